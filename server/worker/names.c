#include "server/worker/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/order/budget.h"
#include "proto/ops/cleanup.h"
#include "proto/wire/check.h"
#include "server/users/users.h"
#include "server/worker/service.h"
#include "server/worker/state.h"
#include "server/worker/state_impl.h"

/* Of the budget, for each name. */
enum {
    NAMES_MAKE_STEPS = 3, /* that is checked and copied, */
    NAMES_BIND_STEPS = 4, /* bound, */
    NAMES_DROP_STEPS = 4, /* or removed */
};

void names_init(struct names *names, struct service *service) {
    *names = (struct names){.service = service};
}

void names_charge(const struct names *names, unsigned n, int steps) {
    struct budget *budget = names->service->budget;
    if (n)
        budget_spent(budget, (int)n * steps);
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
        worker_principal_let_go(owner->principal);
        state_owner_destroy(names->state, owner->disk);
        free(owner->entries);
        free(owner);
    }
}

static int names_add_owner(struct names *names, const char *principal, const struct limits *limits,
                           struct name_owner **result, struct fault *fault) {
    names_let_go(names);
    if (names->n_owners >= NAMES_OWNERS_MAX)
        return fault_set(fault, STATUS_LIMIT, "%u principals have named tensors here, and no more may",
                         names->n_owners);
    CLEANUP(free) struct name_owner *fresh = calloc(1, sizeof *fresh);
    if (!fresh)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a name");
    int error = worker_principal_hold(names->service, principal, limits, &fresh->principal, fault);
    if (error)
        return error;
    fresh->disk = names->state ? state_owner_create() : NULL;
    if (names->state && !fresh->disk) {
        worker_principal_let_go(fresh->principal);
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a name");
    }
    struct name_owner *owner = TAKE(fresh);
    snprintf(owner->key, sizeof owner->key, "%s", principal);
    owner->bytes.whole = tenant_payer(owner->principal->tenant);
    owner->next = names->owners;
    names->owners = owner;
    names->n_owners++;
    names_know_owner(names, owner);
    *result = owner;
    return STATUS_OK;
}

int names_take_owner(struct names *names, const char *principal, const struct limits *limits,
                     struct name_owner **result, struct fault *fault) {
    int error = STATUS_OK;
    *result = names_owner(names, principal);
    if (!*result)
        error = names_add_owner(names, principal, limits, result, fault);
    if (error == STATUS_OK)
        (*result)->bytes.limit = limits->named_bytes;
    return error;
}

/* ---- entries ---- */

/* Searches the name from `low` on and below `high`: sets its position, or the position where it belongs. */
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

void name_entry_unref(struct name_entry *entry) {
    if (!entry || --entry->references)
        return;
    held_unref(entry->held);
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

/* Lets go of an entry that is leaving its owner's list. */
static void owner_drop(struct name_owner *owner, struct name_entry *entry) {
    state_unbound(owner, entry, false);
    name_entry_unref(entry);
}

/* Closes the gap of the places from `begin` to `end` (not included), whose entries have left. */
static void owner_close_gap(struct name_owner *owner, unsigned begin, unsigned end) {
    memmove(&owner->entries[begin], &owner->entries[end], (owner->count - end) * sizeof *owner->entries);
    owner->count -= end - begin;
}

/* Some of an owner's entries, which follow each other. */
struct name_range {
    unsigned begin, end;
};

/* The names that begin with this text; none for "". */
static struct name_range owner_beneath(const struct name_owner *owner, const char *text) {
    size_t length = strlen(text);
    struct name_range range = {0, 0};
    unsigned high = owner->count;
    if (!length)
        return range;
    (void)owner_seek(owner, text, &range.begin);
    range.end = range.begin;
    while (range.end < high) {
        unsigned middle = range.end + (high - range.end) / 2;
        if (strncmp(owner->entries[middle]->name, text, length) == 0)
            range.end = middle + 1;
        else
            high = middle;
    }
    return range;
}

static void owner_remove_range(struct name_owner *owner, struct name_range range) {
    for (unsigned i = range.begin; i < range.end; i++)
        owner_drop(owner, owner->entries[i]);
    owner_close_gap(owner, range.begin, range.end);
}

int names_remove(struct names *names, const char *principal, const char *name, const char *beneath,
                 struct fault *fault) {
    struct name_owner *owner = names_owner(names, principal);
    unsigned position, before;
    if (!owner || !owner_seek(owner, name, &position))
        return names_unknown(name, fault);
    before = owner->count;
    owner_remove_range(owner, (struct name_range){position, position + 1});
    owner_remove_range(owner, owner_beneath(owner, beneath));
    names_charge(names, before - owner->count, NAMES_DROP_STEPS);
    state_changed(names->state, owner);
    names_let_go(names);
    return STATUS_OK;
}

void names_remove_all(struct names *names, struct name_owner *owner) {
    names_charge(names, owner->count, NAMES_DROP_STEPS);
    owner_remove_range(owner, (struct name_range){0, owner->count});
    state_changed(names->state, owner);
    names_let_go(names);
}

void names_finish(struct names *names) {
    for (struct name_owner *owner = names->owners; owner; owner = owner->next)
        while (owner->count)
            name_entry_unref(owner->entries[--owner->count]);
    for (struct name_owner *owner = names->owners; owner; owner = owner->next) {
        state_owner_destroy(names->state, owner->disk); /* changes that are not saved by now will never be */
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

/* Several names that are about to be bound. */
struct names_batch {
    const char *const *texts;
    const char *beneath; /* other names that begin with this text go; "": none do */
    struct held *const *values;
    unsigned n, made; /* names; and names that are checked and have an entry */
    struct name_entry **entries, **merged;
    /* Of the sort: the length of a run, where the present pair of runs begins, and the next entry of both runs. */
    unsigned width, low, left, right;
    struct batch_place {
        unsigned position; /* among the owner's entries */
        bool replaces;     /* an entry of this name exists */
    } * places;
};

/* How the names change. */
struct batch_sums {
    unsigned added, removed; /* names that are new, and names beneath that go */
    uint64_t spare;          /* bytes that are free when what is replaced or removed has gone */
};

struct names_batch *names_batch_create(struct held *const values[], const char *const texts[], unsigned n,
                                       const char *beneath) {
    struct names_batch *batch = malloc(sizeof *batch);
    if (!batch)
        return NULL;
    *batch = (struct names_batch){.texts = texts, .values = values, .n = n, .beneath = beneath, .width = 1, .right = 1};
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
    int error = name_check(text, fault);
    if (error)
        return error;
    struct name_entry *entry = calloc(1, sizeof *entry + length);
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

/* Takes the next entry of the present pair of runs. Two equal names meet here, because neighbours of the sorted order
 * are compared. */
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

/* Sorts by merging runs of 1, of 2, of 4 and so on: it can be interrupted at any point. */
static int batch_sort_some(struct names_batch *batch, struct budget *budget, struct fault *fault) {
    while (batch->width < batch->n) {
        unsigned middle = batch_bound(batch, batch->low + batch->width);
        unsigned high = batch_bound(batch, batch->low + 2 * batch->width);
        while (batch->left < middle || batch->right < high) {
            int error = batch_merge_one(batch, middle, high, fault);
            if (error)
                return error;
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
        int error = batch_make(batch, fault);
        if (error)
            return error;
        if (budget && budget_spent(budget, NAMES_MAKE_STEPS))
            return STATUS_AGAIN;
    }
    return batch_sort_some(batch, budget, fault);
}

/* Searches from `low` on in steps that double: names of the batch are sorted, so this is fast for many names and for
 * few. */
static bool batch_seek(const struct name_owner *owner, unsigned low, const char *name, unsigned *position) {
    unsigned high = low;
    for (unsigned step = 1; high < owner->count && strcmp(owner->entries[high]->name, name) < 0; step *= 2) {
        low = high + 1;
        high += step;
    }
    return owner_seek_between(owner, low, high < owner->count ? high + 1 : owner->count, name, position);
}

/* Looks where each name belongs. */
static void batch_seek_all(struct names_batch *batch, const struct name_owner *owner) {
    unsigned at = 0;
    for (unsigned i = 0; i < batch->n; i++) {
        struct batch_place *place = &batch->places[i];
        place->replaces = batch_seek(owner, at, batch->entries[i]->name, &place->position);
        at = place->position + place->replaces;
    }
}

/* Whether the batch names this entry; *next is the first place that may be its. */
static bool batch_keeps(const struct names_batch *batch, unsigned position, unsigned *next) {
    while (*next < batch->n && batch->places[*next].position < position)
        ++*next;
    return *next < batch->n && batch->places[*next].position == position && batch->places[*next].replaces;
}

/* Sums up how the names change; the places are known. */
static int batch_survey(const struct names_batch *batch, const struct name_owner *owner, unsigned count_max,
                        bool only_new, struct batch_sums *sums, struct fault *fault) {
    struct name_range range = owner_beneath(owner, batch->beneath);
    unsigned next = 0;
    *sums = (struct batch_sums){0};
    for (unsigned i = 0; i < batch->n; i++) {
        const struct batch_place *place = &batch->places[i];
        if (place->replaces && only_new)
            return fault_set(fault, STATUS_DUPLICATE_ID, "there is a tensor with the name \"%.160s\" already",
                             batch->entries[i]->name);
        sums->added += !place->replaces;
        sums->spare += place->replaces ? held_free_bytes(owner->entries[place->position]->held) : 0;
    }
    for (unsigned position = range.begin; position < range.end; position++)
        if (!batch_keeps(batch, position, &next)) {
            sums->removed++;
            sums->spare += held_free_bytes(owner->entries[position]->held);
        }
    unsigned left = owner->count - sums->removed;
    if (sums->added > count_max || left > count_max - sums->added)
        return fault_set(fault, STATUS_LIMIT,
                         "the limit of %u named tensors is reached: there are %u, and %u more came", count_max, left,
                         sums->added);
    return STATUS_OK;
}

/* Removes what lies beneath and is not named here, and looks again where the names belong. */
static void batch_clear_beneath(struct names_batch *batch, struct name_owner *owner) {
    struct name_range range = owner_beneath(owner, batch->beneath);
    unsigned next = 0, end = range.begin;
    for (unsigned position = range.begin; position < range.end; position++) {
        struct name_entry *entry = owner->entries[position];
        if (batch_keeps(batch, position, &next))
            owner->entries[end++] = entry;
        else
            owner_drop(owner, entry);
    }
    owner_close_gap(owner, end, range.end);
    batch_seek_all(batch, owner);
}

/* Reserves all memory that binding needs, so that it cannot fail half-way. */
static int owner_reserve(struct name_owner *owner, unsigned added, struct fault *fault) {
    unsigned needed = owner->count + added, capacity = needed + needed / 2 + 8;
    if (needed <= owner->capacity)
        return STATUS_OK;
    struct name_entry **entries = realloc(owner->entries, capacity * sizeof *entries);
    if (!entries)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for %u names", added);
    owner->entries = entries;
    owner->capacity = capacity;
    return STATUS_OK;
}

/* Merges from the end, so that each existing entry moves at most once. */
static void batch_merge(struct names_batch *batch, struct name_owner *owner, unsigned added) {
    /* The number of entries that are not in their places yet, and the end of the places for them. */
    unsigned left = owner->count, end = owner->count + added;
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
            name_entry_unref(replaced);
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
    batch_merge(batch, owner, added);
    state_changed(names->state, owner);
}

static int names_bind_batch(struct names *names, struct name_owner *owner, const struct limits *limits,
                            struct names_batch *batch, bool only_new, struct fault *fault) {
    struct batch_sums sums;
    names_charge(names, batch->n, NAMES_BIND_STEPS);
    batch_seek_all(batch, owner);
    int error = batch_survey(batch, owner, (unsigned)limits->named_tensors, only_new, &sums, fault);
    if (error == STATUS_OK)
        error = owner_reserve(owner, sums.added, fault);
    if (error == STATUS_OK)
        error = held_charge(batch->values, batch->n, &owner->bytes, sums.spare, fault);
    if (error != STATUS_OK)
        return error;
    if (sums.removed)
        batch_clear_beneath(batch, owner);
    batch_bind(names, batch, owner, sums.added);
    names_charge(names, sums.removed, NAMES_DROP_STEPS);
    return STATUS_OK;
}

int names_bind(struct names *names, struct name_owner *owner, const struct limits *limits, struct held *const values[],
               const char *const texts[], unsigned n, bool only_new, struct fault *fault) {
    struct names_batch *batch = names_batch_create(values, texts, n, "");
    int error = batch ? names_batch_some(batch, NULL, fault)
                      : fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for %u names", n);
    names_charge(names, n, NAMES_MAKE_STEPS);
    if (error == STATUS_OK)
        error = names_bind_batch(names, owner, limits, batch, only_new, fault);
    names_batch_destroy(batch);
    return error;
}

int names_publish_batch(struct names *names, const char *principal, const struct limits *limits,
                        struct names_batch *batch, bool only_new, struct fault *fault) {
    struct name_owner *owner;
    int error = names_take_owner(names, principal, limits, &owner, fault);
    if (error == STATUS_OK)
        error = names_bind_batch(names, owner, limits, batch, only_new, fault);
    if (error)
        names_let_go(names);
    return error;
}

int names_publish(struct names *names, const char *principal, const struct limits *limits, struct held *const values[],
                  const char *const texts[], unsigned n, bool only_new, struct fault *fault) {
    struct name_owner *owner;
    int error = names_take_owner(names, principal, limits, &owner, fault);
    if (error == STATUS_OK)
        error = names_bind(names, owner, limits, values, texts, n, only_new, fault);
    if (error)
        names_let_go(names);
    return error;
}
