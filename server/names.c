#include "server/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/name.h"
#include "server/service.h"
#include "server/state.h"

void names_init(struct names *names, struct service *service) {
    *names = (struct names){.service = service};
}

/* ---- owners ---- */

static struct name_owner *names_find_owner(const struct names *names, const char *principal) {
    struct name_owner *owner = names->owners;

    while (owner && strcmp(owner->key, principal) != 0)
        owner = owner->next;
    return owner;
}

struct name_owner *names_owner(const struct names *names, const char *principal) {
    return names_find_owner(names, principal);
}

void names_let_go(struct names *names) {
    struct name_owner **at = &names->owners;

    while (*at) {
        struct name_owner *owner = *at;

        if (owner->count || owner->bytes.bytes || !state_owner_idle(owner->disk)) {
            at = &owner->next;
            continue;
        }
        *at = owner->next;
        names->n_owners--;
        account_let_go(owner->account);
        state_owner_destroy(owner->disk);
        free(owner->entries);
        free(owner);
    }
}

static int names_add_owner(struct names *names, const char *principal, const struct limits *limits,
                           struct name_owner **result, struct fault *fault) {
    struct name_owner *owner;
    int status;

    names_let_go(names);
    if (names->n_owners >= NAMES_OWNERS_MAX)
        return fault_set(fault, STATUS_LIMIT, "%u principals have named tensors here, and no more may",
                         names->n_owners);
    owner = calloc(1, sizeof *owner);
    if (!owner)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a name");
    status = account_keep(names->service, principal, limits, &owner->account, fault);
    if (status) {
        free(owner);
        return status;
    }
    owner->disk = names->state ? state_owner_create() : NULL;
    if (names->state && !owner->disk) {
        account_let_go(owner->account);
        free(owner);
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a name");
    }
    snprintf(owner->key, sizeof owner->key, "%s", principal);
    owner->bytes.tenant = owner->account->tenant;
    owner->next = names->owners;
    names->owners = owner;
    names->n_owners++;
    names_know_owner(names, owner);
    *result = owner;
    return STATUS_OK;
}

int names_take_owner(struct names *names, const char *principal, const struct limits *limits,
                     struct name_owner **result, struct fault *fault) {
    int status = STATUS_OK;

    *result = names_find_owner(names, principal);
    if (!*result)
        status = names_add_owner(names, principal, limits, result, fault);
    if (status == STATUS_OK)
        (*result)->bytes.limit = limits->named_bytes;
    return status;
}

/* ---- entries ---- */

/* Position of the name among the first `high`, or of where it belongs. */
static bool owner_seek_below(const struct name_owner *owner, unsigned high, const char *name, unsigned *position) {
    unsigned low = 0;

    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        int order = strcmp(owner->entries[middle]->name, name);

        if (order == 0) {
            *position = middle;
            return true;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *position = low;
    return false;
}

static bool owner_seek(const struct name_owner *owner, const char *name, unsigned *position) {
    return owner_seek_below(owner, owner->count, name, position);
}

unsigned names_after(const struct name_owner *owner, const char *name) {
    unsigned position;

    return owner_seek(owner, name, &position) ? position + 1 : position;
}

struct name_entry *names_entry(const struct name_owner *owner, const char *name) {
    unsigned position;

    return owner_seek(owner, name, &position) ? owner->entries[position] : NULL;
}

void name_entry_unref(struct names *names, struct name_entry *entry) {
    if (!entry || --entry->references)
        return;
    held_unref(names->service->engine, entry->held);
    saved_value_unref(entry->saved);
    free(entry);
}

static int names_unknown(const char *name, struct fault *fault) {
    return fault_set(fault, STATUS_UNKNOWN_ID, "no tensor here has the name \"%.160s\"", name);
}

int names_find(const struct names *names, const char *principal, const char *name, struct held **held,
               struct fault *fault) {
    const struct name_owner *owner = names_find_owner(names, principal);
    unsigned position;

    if (!owner || !owner_seek(owner, name, &position))
        return names_unknown(name, fault);
    *held = owner->entries[position]->held;
    return STATUS_OK;
}

int names_remove(struct names *names, const char *principal, const char *name, struct fault *fault) {
    struct name_owner *owner = names_find_owner(names, principal);
    struct name_entry *entry;
    unsigned position;

    if (!owner || !owner_seek(owner, name, &position))
        return names_unknown(name, fault);
    entry = owner->entries[position];
    owner->count--;
    memmove(&owner->entries[position], &owner->entries[position + 1],
            (owner->count - position) * sizeof *owner->entries);
    state_unbound(owner, entry, false);
    name_entry_unref(names, entry);
    state_changed(names->state, owner);
    names_let_go(names);
    return STATUS_OK;
}

void names_remove_all(struct names *names, struct name_owner *owner) {
    while (owner->count) {
        struct name_entry *entry = owner->entries[--owner->count];

        state_unbound(owner, entry, false);
        name_entry_unref(names, entry);
    }
    state_changed(names->state, owner);
    names_let_go(names);
}

void names_finish(struct names *names) {
    for (struct name_owner *owner = names->owners; owner; owner = owner->next)
        while (owner->count)
            name_entry_unref(names, owner->entries[--owner->count]);
    for (struct name_owner *owner = names->owners; owner; owner = owner->next) {
        state_owner_destroy(owner->disk); /* whatever is not saved by now will not be */
        owner->disk = NULL;
    }
    names_let_go(names);
    free(names->users);
    names->users = NULL;
}

bool names_wait(const struct names *names, const char *principal, struct state_wait *wait) {
    struct name_owner *owner = names_find_owner(names, principal);

    return owner && state_wait(names->state, owner, wait);
}

/* ---- figures ---- */

/* Puts an owner into its place among the largest. */
static void stats_insert(struct stats_names *stats, const struct name_owner *owner) {
    unsigned place = stats->n_owners;
    uint64_t since;

    while (place > 0 && stats->owners[place - 1].bytes < owner->bytes.bytes)
        place--;
    if (place == STATS_OWNERS_MAX)
        return;
    if (stats->n_owners < STATS_OWNERS_MAX)
        stats->n_owners++;
    memmove(&stats->owners[place + 1], &stats->owners[place], (stats->n_owners - 1 - place) * sizeof *stats->owners);
    snprintf(stats->owners[place].principal, sizeof stats->owners[place].principal, "%s", names_shown(owner));
    stats->owners[place].count = owner->count;
    stats->owners[place].bytes = owner->bytes.bytes;
    stats->owners[place].unsaved = state_unsaved(owner, &since);
}

void names_stats(const struct names *names, struct stats_names *stats) {
    stats->count = stats->bytes = stats->unsaved = stats->unsaved_since_ns = 0;
    stats->n_owners = stats->failing = 0;
    stats->save_fault[0] = 0;
    memcpy(stats->fault, names->fault, sizeof stats->fault);
    for (const struct name_owner *owner = names->owners; owner; owner = owner->next) {
        uint64_t since;
        unsigned unsaved = state_unsaved(owner, &since);

        stats->count += owner->count;
        stats->bytes += owner->bytes.bytes;
        stats->unsaved += unsaved;
        if (since && (!stats->unsaved_since_ns || since < stats->unsaved_since_ns))
            stats->unsaved_since_ns = since;
        stats->failing += *state_fault(owner) != 0;
        if (!*stats->save_fault && *state_fault(owner))
            snprintf(stats->save_fault, sizeof stats->save_fault, "those of %.64s: %.180s", names_shown(owner),
                     state_fault(owner));
        if (owner->count || owner->bytes.bytes || unsaved)
            stats_insert(stats, owner);
    }
}

/* ---- publishing ---- */

/* Several names on their way in. */
struct names_batch {
    struct name_owner *owner;
    struct held *const *values;
    const char *const *texts;
    unsigned n, added;           /* names; those of them that are not there yet */
    uint64_t spare;              /* bytes of the values that are replaced */
    struct name_entry **entries; /* one for each name */
};

static int names_compare(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int batch_check_names(const struct names_batch *batch, struct fault *fault) {
    const char **sorted = malloc(batch->n * sizeof *sorted);
    int status = STATUS_OK;

    if (!sorted)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for %u names", batch->n);
    memcpy(sorted, batch->texts, batch->n * sizeof *sorted);
    for (unsigned i = 0; i < batch->n && status == STATUS_OK; i++)
        status = name_check(batch->texts[i], fault);
    qsort(sorted, batch->n, sizeof *sorted, names_compare);
    for (unsigned i = 1; i < batch->n && status == STATUS_OK; i++)
        if (!strcmp(sorted[i - 1], sorted[i]))
            status = fault_set(fault, STATUS_INVALID_ARGUMENT, "\"%.160s\" is named twice", sorted[i]);
    free(sorted);
    return status;
}

/* What is new, and what goes for it. */
static int batch_survey(struct names_batch *batch, unsigned count_max, bool only_new, struct fault *fault) {
    const struct name_owner *owner = batch->owner;

    for (unsigned i = 0; i < batch->n; i++) {
        unsigned position;

        if (!owner_seek(owner, batch->texts[i], &position)) {
            batch->added++;
            continue;
        }
        if (only_new)
            return fault_set(fault, STATUS_DUPLICATE_ID, "there is a tensor with the name \"%.160s\" already",
                             batch->texts[i]);
        batch->spare += held_free_bytes(owner->entries[position]->held);
    }
    if (batch->added > count_max || owner->count > count_max - batch->added)
        return fault_set(fault, STATUS_LIMIT,
                         "the limit of %u named tensors is reached: there are %u, and %u more came", count_max,
                         owner->count, batch->added);
    return STATUS_OK;
}

static void batch_discard(struct names_batch *batch) {
    for (unsigned i = 0; batch->entries && i < batch->n; i++)
        free(batch->entries[i]);
    free(batch->entries);
}

/* All memory that binding needs, so that it cannot fail half-way. */
static int batch_reserve(struct names_batch *batch, struct fault *fault) {
    struct name_owner *owner = batch->owner;
    unsigned needed = owner->count + batch->added;
    bool memory = true;

    batch->entries = calloc(batch->n, sizeof *batch->entries);
    for (unsigned i = 0; i < batch->n && memory && batch->entries; i++) {
        size_t length = strlen(batch->texts[i]) + 1;

        batch->entries[i] = calloc(1, sizeof *batch->entries[i] + length);
        memory = batch->entries[i];
        if (memory)
            memcpy(batch->entries[i]->name, batch->texts[i], length);
    }
    if (batch->entries && memory && needed > owner->capacity) {
        unsigned capacity = needed + needed / 2 + 8;
        struct name_entry **entries = realloc(owner->entries, capacity * sizeof *entries);

        memory = entries;
        if (entries) {
            owner->entries = entries;
            owner->capacity = capacity;
        }
    }
    if (batch->entries && memory)
        return STATUS_OK;
    return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for %u names", batch->n);
}

static int batch_compare(const void *a, const void *b) {
    return strcmp((*(struct name_entry *const *)a)->name, (*(struct name_entry *const *)b)->name);
}

/* The last one first, so that each entry which is there already moves once at most. */
static void batch_merge(struct names *names, struct names_batch *batch) {
    struct name_owner *owner = batch->owner;
    unsigned left = owner->count, end = owner->count + batch->added; /* what is not in its place yet, and places for it */

    qsort(batch->entries, batch->n, sizeof(struct name_entry *), batch_compare);
    for (unsigned i = batch->n; i-- > 0;) {
        unsigned position;
        bool replaces = owner_seek_below(owner, left, batch->entries[i]->name, &position);
        struct name_entry *replaced = replaces ? owner->entries[position] : NULL;
        unsigned after = left - position - replaces;

        end -= after;
        memmove(&owner->entries[end], &owner->entries[position + replaces], after * sizeof *owner->entries);
        owner->entries[--end] = batch->entries[i];
        left = position;
        if (replaced) {
            state_unbound(owner, replaced, true);
            name_entry_unref(names, replaced);
        }
        state_bound(owner, batch->entries[i]);
    }
    owner->count += batch->added;
}

static void batch_bind(struct names *names, struct names_batch *batch) {
    struct name_owner *owner = batch->owner;
    uint64_t now = service_now_ns();

    for (unsigned i = 0; i < batch->n; i++) {
        struct name_entry *entry = batch->entries[i];

        entry->held = batch->values[i];
        entry->since_ns = now;
        entry->references = 1;
        held_ref(entry->held);
    }
    batch_merge(names, batch);
    free(batch->entries);
    state_changed(names->state, owner);
}

int names_bind(struct names *names, struct name_owner *owner, const struct limits *limits, struct held *const values[],
               const char *const texts[], unsigned n, bool only_new, struct fault *fault) {
    struct names_batch batch = {.owner = owner, .values = values, .texts = texts, .n = n};
    int status = batch_check_names(&batch, fault);

    if (status == STATUS_OK)
        status = batch_survey(&batch, (unsigned)limits->named_tensors, only_new, fault);
    if (status == STATUS_OK)
        status = batch_reserve(&batch, fault);
    if (status == STATUS_OK)
        status = held_charge(values, n, &batch.owner->bytes, batch.spare, fault);
    if (status == STATUS_OK)
        batch_bind(names, &batch);
    else
        batch_discard(&batch);
    return status;
}

int names_publish(struct names *names, const char *principal, const struct limits *limits, struct held *const values[],
                  const char *const texts[], unsigned n, bool only_new, struct fault *fault) {
    struct name_owner *owner;
    int status = names_take_owner(names, principal, limits, &owner, fault);

    if (status == STATUS_OK)
        status = names_bind(names, owner, limits, values, texts, n, only_new, fault);
    if (status)
        names_let_go(names);
    return status;
}
