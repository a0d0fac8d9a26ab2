#include "server/worker/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/wire/name.h"
#include "server/worker/service.h"
#include "server/worker/state.h"

enum { NAMES_MAKE_STEPS = 3 }; /* of the budget, for a name that is looked at and copied */

void names_init(struct names *names, struct service *service) {
    *names = (struct names){.service = service};
}

/* ---- owners ---- */

struct name_owner *names_owner(const struct names *names, const char *principal) {
    struct name_owner *owner = names->owners;

    while (owner && strcmp(owner->key, principal) != 0)
        owner = owner->next;
    return owner;
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

    *result = names_owner(names, principal);
    if (!*result)
        status = names_add_owner(names, principal, limits, result, fault);
    if (status == STATUS_OK)
        (*result)->bytes.limit = limits->named_bytes;
    return status;
}

/* ---- entries ---- */

/* Position of the name from `low` on and below `high`, or of where it belongs. */
static bool owner_seek_between(const struct name_owner *owner, unsigned low, unsigned high, const char *name,
                               unsigned *position) {
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
    return owner_seek_between(owner, 0, owner->count, name, position);
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
    const struct name_owner *owner = names_owner(names, principal);
    unsigned position;

    if (!owner || !owner_seek(owner, name, &position))
        return names_unknown(name, fault);
    *held = owner->entries[position]->held;
    return STATUS_OK;
}

int names_remove(struct names *names, const char *principal, const char *name, struct fault *fault) {
    struct name_owner *owner = names_owner(names, principal);
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
    struct name_owner *owner = names_owner(names, principal);

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
    const char *const *texts;
    struct held *const *values;
    unsigned n, made; /* names; those that have been checked and have an entry */
    struct name_entry **entries, **merged;
    unsigned width, low, left,
        right; /* of the sort: its runs, where the pair of them in hand begins, and what is next in both */
    struct batch_place {
        unsigned position; /* among the owner's entries */
        bool replaces;     /* the one that is there */
    } * places;
};

struct names_batch *names_batch_create(struct held *const values[], const char *const texts[], unsigned n) {
    struct names_batch *batch = malloc(sizeof *batch);

    if (!batch)
        return NULL;
    *batch = (struct names_batch){.texts = texts, .values = values, .n = n, .width = 1, .right = 1};
    batch->entries = calloc(n, sizeof *batch->entries);
    batch->merged = calloc(n, sizeof *batch->merged);
    batch->places = calloc(n, sizeof *batch->places);
    if (batch->entries && batch->merged && batch->places)
        return batch;
    names_batch_destroy(batch);
    return NULL;
}

void names_batch_destroy(struct names_batch *batch) {
    if (!batch)
        return;
    for (unsigned i = 0; batch->entries && i < batch->n; i++)
        free(batch->entries[i]);
    free(batch->entries);
    free(batch->merged);
    free(batch->places);
    free(batch);
}

static int batch_make(struct names_batch *batch, struct fault *fault) {
    const char *text = batch->texts[batch->made];
    size_t length = strlen(text) + 1;
    struct name_entry *entry;
    int status = name_check(text, fault);

    if (status)
        return status;
    entry = calloc(1, sizeof *entry + length);
    if (!entry)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for %u names", batch->n);
    memcpy(entry->name, text, length);
    entry->held = batch->values[batch->made];
    batch->entries[batch->made++] = entry;
    return STATUS_OK;
}

static unsigned batch_bound(const struct names_batch *batch, unsigned place) {
    return place < batch->n ? place : batch->n;
}

/* What is next of the pair of runs in hand. Two names that are the same meet here, as neighbours of each order do. */
static int batch_merge_one(struct names_batch *batch, unsigned middle, unsigned high, struct fault *fault) {
    unsigned place = batch->left + batch->right - middle;
    int order = batch->left == middle ? 1 : batch->right == high ? -1 : 0;

    if (!order) {
        order = strcmp(batch->entries[batch->left]->name, batch->entries[batch->right]->name);
        if (!order)
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "\"%.160s\" is named twice",
                             batch->entries[batch->left]->name);
    }
    batch->merged[place] = order < 0 ? batch->entries[batch->left++] : batch->entries[batch->right++];
    return STATUS_OK;
}

/* Sorts by merging runs of 1, of 2, of 4 and so on, since it has to be left at any point. */
static int batch_sort_some(struct names_batch *batch, struct budget *budget, struct fault *fault) {
    while (batch->width < batch->n) {
        unsigned middle = batch_bound(batch, batch->low + batch->width);
        unsigned high = batch_bound(batch, batch->low + 2 * batch->width);

        while (batch->left < middle || batch->right < high) {
            int status = batch_merge_one(batch, middle, high, fault);

            if (status)
                return status;
            if (budget && budget_spent(budget, 1))
                return STATUS_AGAIN;
        }
        batch->low = high;
        if (high == batch->n) {
            struct name_entry **merged = batch->merged;

            batch->merged = batch->entries;
            batch->entries = merged;
            batch->width *= 2;
            batch->low = 0;
        }
        batch->left = batch->low;
        batch->right = batch_bound(batch, batch->low + batch->width);
    }
    return STATUS_OK;
}

int names_batch_some(struct names_batch *batch, struct budget *budget, struct fault *fault) {
    while (batch->made < batch->n) {
        int status = batch_make(batch, fault);

        if (status)
            return status;
        if (budget && budget_spent(budget, NAMES_MAKE_STEPS))
            return STATUS_AGAIN;
    }
    return batch_sort_some(batch, budget, fault);
}

/* Both are in order: looks from the last place on in steps that grow, so that neither many names nor few take long. */
static bool batch_seek(const struct name_owner *owner, unsigned low, const char *name, unsigned *position) {
    unsigned high = low;

    for (unsigned step = 1; high < owner->count && strcmp(owner->entries[high]->name, name) < 0; step *= 2) {
        low = high + 1;
        high += step;
    }
    return owner_seek_between(owner, low, high < owner->count ? high + 1 : owner->count, name, position);
}

/* What is new, and what goes for it. */
static int batch_survey(struct names_batch *batch, const struct name_owner *owner, unsigned count_max, bool only_new,
                        unsigned *added, uint64_t *spare, struct fault *fault) {
    unsigned at = 0;

    *added = 0;
    *spare = 0;
    for (unsigned i = 0; i < batch->n; i++) {
        struct batch_place *place = &batch->places[i];

        place->replaces = batch_seek(owner, at, batch->entries[i]->name, &place->position);
        at = place->position + place->replaces;
        if (place->replaces && only_new)
            return fault_set(fault, STATUS_DUPLICATE_ID, "there is a tensor with the name \"%.160s\" already",
                             batch->entries[i]->name);
        *added += !place->replaces;
        *spare += place->replaces ? held_free_bytes(owner->entries[place->position]->held) : 0;
    }
    if (*added > count_max || owner->count > count_max - *added)
        return fault_set(fault, STATUS_LIMIT,
                         "the limit of %u named tensors is reached: there are %u, and %u more came", count_max,
                         owner->count, *added);
    return STATUS_OK;
}

/* All memory that binding needs, so that it cannot fail half-way. */
static int owner_reserve(struct name_owner *owner, unsigned added, struct fault *fault) {
    unsigned needed = owner->count + added, capacity = needed + needed / 2 + 8;
    struct name_entry **entries;

    if (needed <= owner->capacity)
        return STATUS_OK;
    entries = realloc(owner->entries, capacity * sizeof *entries);
    if (!entries)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for %u names", added);
    owner->entries = entries;
    owner->capacity = capacity;
    return STATUS_OK;
}

/* The last one first, so that each entry which is there already moves once at most. */
static void batch_merge(struct names *names, struct names_batch *batch, struct name_owner *owner, unsigned added) {
    unsigned left = owner->count, end = owner->count + added; /* what is not in its place yet, and places for it */

    for (unsigned i = batch->n; i-- > 0;) {
        unsigned position = batch->places[i].position;
        bool replaces = batch->places[i].replaces;
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
        batch->entries[i] = NULL;
    }
    owner->count += added;
}

static void batch_bind(struct names *names, struct names_batch *batch, struct name_owner *owner, unsigned added) {
    uint64_t now = clock_now_ns();

    for (unsigned i = 0; i < batch->n; i++) {
        struct name_entry *entry = batch->entries[i];

        entry->since_ns = now;
        entry->references = 1;
        held_ref(entry->held);
    }
    batch_merge(names, batch, owner, added);
    state_changed(names->state, owner);
}

static int names_bind_batch(struct names *names, struct name_owner *owner, const struct limits *limits,
                            struct names_batch *batch, bool only_new, struct fault *fault) {
    unsigned added;
    uint64_t spare;
    int status = batch_survey(batch, owner, (unsigned)limits->named_tensors, only_new, &added, &spare, fault);

    if (status == STATUS_OK)
        status = owner_reserve(owner, added, fault);
    if (status == STATUS_OK)
        status = held_charge(batch->values, batch->n, &owner->bytes, spare, fault);
    if (status == STATUS_OK)
        batch_bind(names, batch, owner, added);
    return status;
}

int names_bind(struct names *names, struct name_owner *owner, const struct limits *limits, struct held *const values[],
               const char *const texts[], unsigned n, bool only_new, struct fault *fault) {
    struct names_batch *batch = names_batch_create(values, texts, n);
    int status = batch ? names_batch_some(batch, NULL, fault)
                       : fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for %u names", n);

    if (status == STATUS_OK)
        status = names_bind_batch(names, owner, limits, batch, only_new, fault);
    names_batch_destroy(batch);
    return status;
}

int names_publish_batch(struct names *names, const char *principal, const struct limits *limits,
                        struct names_batch *batch, bool only_new, struct fault *fault) {
    struct name_owner *owner;
    int status = names_take_owner(names, principal, limits, &owner, fault);

    if (status == STATUS_OK)
        status = names_bind_batch(names, owner, limits, batch, only_new, fault);
    if (status)
        names_let_go(names);
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
