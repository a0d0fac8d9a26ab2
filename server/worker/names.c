#include "server/worker/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/ops/cleanup.h"
#include "proto/wire/check.h"
#include "server/users/users.h"
#include "server/worker/service.h"
#include "server/worker/state.h"
#include "server/worker/state_impl.h"

enum { NAMES_MAKE_STEPS = 3 }; /* of the budget, for a name that is checked and copied */

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
        worker_principal_let_go(owner->principal);
        state_owner_destroy(owner->disk);
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

int names_remove(struct names *names, const char *principal, const char *name, struct fault *fault) {
    struct name_owner *owner = names_owner(names, principal);
    unsigned position;
    if (!owner || !owner_seek(owner, name, &position))
        return names_unknown(name, fault);
    struct name_entry *entry = owner->entries[position];
    owner->count--;
    memmove(&owner->entries[position], &owner->entries[position + 1],
            (owner->count - position) * sizeof *owner->entries);
    state_unbound(owner, entry, false);
    name_entry_unref(entry);
    state_changed(names->state, owner);
    names_let_go(names);
    return STATUS_OK;
}

void names_remove_all(struct names *names, struct name_owner *owner) {
    while (owner->count) {
        struct name_entry *entry = owner->entries[--owner->count];
        state_unbound(owner, entry, false);
        name_entry_unref(entry);
    }
    state_changed(names->state, owner);
    names_let_go(names);
}

void names_finish(struct names *names) {
    for (struct name_owner *owner = names->owners; owner; owner = owner->next)
        while (owner->count)
            name_entry_unref(owner->entries[--owner->count]);
    for (struct name_owner *owner = names->owners; owner; owner = owner->next) {
        state_owner_destroy(owner->disk); /* changes that are not saved by now will never be */
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

/* Counts the names that are new, and the bytes that replaced names free. */
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
    unsigned added;
    uint64_t spare;
    int error = batch_survey(batch, owner, (unsigned)limits->named_tensors, only_new, &added, &spare, fault);
    if (error == STATUS_OK)
        error = owner_reserve(owner, added, fault);
    if (error == STATUS_OK)
        error = held_charge(batch->values, batch->n, &owner->bytes, spare, fault);
    if (error == STATUS_OK)
        batch_bind(names, batch, owner, added);
    return error;
}

int names_bind(struct names *names, struct name_owner *owner, const struct limits *limits, struct held *const values[],
               const char *const texts[], unsigned n, bool only_new, struct fault *fault) {
    struct names_batch *batch = names_batch_create(values, texts, n);
    int error = batch ? names_batch_some(batch, NULL, fault)
                      : fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for %u names", n);
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

/* ---- for admins: whose names are meant ---- */

/* The line that begins with this text and then `end`; NULL: there is none. */
static const char *names_find_user(const struct names *names, const char *text, char end) {
    char line[PRINCIPAL_NAME_BYTES + 4];
    snprintf(line, sizeof line, "\n%.*s%c", PRINCIPAL_NAME_BYTES, text, end);
    const char *found = names->users ? strstr(names->users, line) : NULL;
    return found ? found + 1 : NULL;
}

static bool names_orphaned(const struct names *names, const char *key) {
    char name[PRINCIPAL_NAME_BYTES];
    principal_key_name(key, name);
    return users_is_name(name) && !names_find_user(names, key, '\n');
}

void names_know_owner(const struct names *names, struct name_owner *owner) {
    owner->principal->orphan = names_orphaned(names, owner->key);
}

void names_set_users(struct names *names, char *users) {
    free(names->users);
    names->users = users;
    for (struct name_owner *owner = names->owners; owner; owner = owner->next)
        names_know_owner(names, owner);
}

const char *names_shown(const struct name_owner *owner) {
    return owner->principal->orphan ? owner->key : owner->principal->name;
}

/* The key of the present user of this name; false: there is none. */
static bool names_present_key(const struct names *names, const char *name, char key[PRINCIPAL_NAME_BYTES]) {
    const char *line = names_find_user(names, name, '#');
    if (!line)
        line = names_find_user(names, name, '\n');
    if (!line)
        return false;
    snprintf(key, PRINCIPAL_NAME_BYTES, "%.*s", (int)strcspn(line, "\n"), line);
    return true;
}

/* Whether `words` may be the key of a principal: of a present user, or of a principal that is no user. */
static bool names_can_be(const struct names *names, const char *words, const char *name) {
    bool uid = !strncmp(words, "uid:", 4) && words[4] && words[4 + strspn(words + 4, "0123456789")] == 0;
    if (users_is_name(name))
        return !names_orphaned(names, words);
    return uid || (!strncmp(words, "cert:", 5) && words[5]) || !strcmp(words, "tcp") || !strcmp(words, "unix");
}

int names_resolve(const struct names *names, const char *words, bool given, char key[PRINCIPAL_NAME_BYTES],
                  struct fault *fault) {
    char present[PRINCIPAL_NAME_BYTES], name[PRINCIPAL_NAME_BYTES];
    if (strlen(words) >= PRINCIPAL_NAME_BYTES)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "nobody is called \"%.100s\"", words);
    bool user = users_is_name(words) && names_present_key(names, words, present);
    if (user && (given || names_owner(names, present) || !names_owner(names, words))) {
        memcpy(key, present, sizeof present);
        return STATUS_OK;
    }
    principal_key_name(words, name);
    if (given && !names_can_be(names, words, name))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "there is no user \"%s\"", words);
    snprintf(key, PRINCIPAL_NAME_BYTES, "%s", words);
    return STATUS_OK;
}

/* ---- moving names ---- */

static int names_find_own(const struct names *names, const char *key, const char *name, struct name_owner **owner,
                          struct fault *fault) {
    *owner = names_owner(names, key);
    if (*owner && (*owner)->count && (!name || names_entry(*owner, name)))
        return STATUS_OK;
    if (!name || !*owner || !(*owner)->count)
        return fault_set(fault, STATUS_UNKNOWN_ID, "%s has no named tensors here", key);
    return fault_set(fault, STATUS_UNKNOWN_ID, "no tensor of %s here has the name \"%.100s\"", key, name);
}

/* The number of names that stay and share memory with the moved one: it would not be clear who pays for it. */
static unsigned names_count_sharing(const struct name_owner *owner, const struct name_entry *moved) {
    const void *storage = held_place(moved->held).storage;
    unsigned count = 0;
    for (unsigned i = 0; storage && i < owner->count; i++)
        count += owner->entries[i] != moved && held_place(owner->entries[i]->held).storage == storage;
    return count;
}

/* The limits of a principal: as its connections here have them, or else as the front has told them
 * (front_tell_users()). */
static void names_limits(const struct names *names, const char *key, struct limits *limits) {
    char line[PRINCIPAL_NAME_BYTES + 4];
    *limits = names->service->limits.each;
    int length = snprintf(line, sizeof line, "\n %s ", key);
    const char *own = names->users ? strstr(names->users, line) : NULL;
    if (own)
        sscanf(own + length, "%" SCNu64 " %" SCNu64, &limits->named_bytes, &limits->named_tensors);
    for (const struct worker_principal *at = names->service->principals; at; at = at->next)
        if (!strcmp(at->key, key))
            *limits = at->limits;
}

struct names_moving {
    struct names *names;
    struct name_owner *from, *to;
    struct held **values;
    const char **texts;
    unsigned n;
    struct limits limits; /* of the new owner */
};

static int moving_fill(struct names_moving *moving, const char *name, const char *new_name, struct fault *fault) {
    struct name_owner *from = moving->from;
    moving->n = name ? 1 : from->count;
    moving->values = calloc(moving->n, sizeof *moving->values);
    moving->texts = calloc(moving->n, sizeof *moving->texts);
    if (!moving->values || !moving->texts)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for %u names", moving->n);
    for (unsigned i = 0; i < moving->n; i++) {
        const struct name_entry *entry = name ? names_entry(from, name) : from->entries[i];
        moving->values[i] = entry->held;
        moving->texts[i] = new_name ? new_name : entry->name;
    }
    return STATUS_OK;
}

/* The new owner pays for the memory; `back`: the old one does again. */
static void moving_charge(const struct names_moving *moving, bool back) {
    struct payer *from = &moving->from->bytes, *to = &moving->to->bytes;
    for (unsigned i = 0; i < moving->n && from != to; i++)
        held_transfer(moving->values[i], back ? to : from, back ? from : to);
}

static int moving_bind(struct names_moving *moving, struct fault *fault) {
    struct limits limits = moving->limits;
    uint64_t limit = limits.named_bytes;
    moving_charge(moving, false);
    if (moving->from == moving->to)
        limits.named_tensors++; /* for a moment the tensor has two names */
    int error = STATUS_OK;
    if (limit && moving->from != moving->to && moving->to->bytes.bytes > limit)
        error = fault_set(fault, STATUS_LIMIT, "the limit of %lu bytes in named tensors is reached: %s would have %lu",
                          limit, moving->to->key, moving->to->bytes.bytes);
    if (error == STATUS_OK)
        error = names_bind(moving->names, moving->to, &limits, moving->values, moving->texts, moving->n, true, fault);
    if (error != STATUS_OK)
        moving_charge(moving, true);
    return error;
}

/* A value that is saved under the old name is saved under the new one, too. */
static void moving_keep(const struct names_moving *moving, const char *name) {
    const struct name_entry *before = names_entry(moving->from, name);
    struct name_entry *after = names_entry(moving->to, moving->texts[0]);
    if (moving->from != moving->to || !before->saved)
        return;
    after->saved = before->saved;
    after->saved->references++;
}

int names_remove_of(struct names *names, const char *key, const char *name, struct fault *fault) {
    struct name_owner *owner;
    int error = names_find_own(names, key, name, &owner, fault);
    if (error != STATUS_OK)
        return error;
    if (name)
        return names_remove(names, key, name, fault);
    names_remove_all(names, owner);
    return STATUS_OK;
}

static int moving_carry_out(struct names_moving *moving, const char *name, const char *to, const char *new_name,
                            struct fault *fault) {
    struct names *names = moving->names;
    int error = names_take_owner(names, to, &moving->limits, &moving->to, fault);
    if (error == STATUS_OK)
        error = moving_fill(moving, name, new_name, fault);
    if (error == STATUS_OK)
        error = moving_bind(moving, fault);
    if (error != STATUS_OK)
        return error;
    if (name)
        moving_keep(moving, name);
    if (moving->from != moving->to)
        state_order(moving->from, moving->to);
    char key[PRINCIPAL_NAME_BYTES];
    memcpy(key, moving->from->key, sizeof key);
    return names_remove_of(names, key, name, fault);
}

int names_move(struct names *names, const char *from, const char *name, const char *to, const char *new_name,
               struct fault *fault) {
    struct names_moving moving = {.names = names};
    int error = names_find_own(names, from, name, &moving.from, fault);
    if (error != STATUS_OK)
        return error;
    unsigned sharing =
        name && strcmp(from, to) != 0 ? names_count_sharing(moving.from, names_entry(moving.from, name)) : 0;
    if (sharing)
        return fault_set(fault, STATUS_INVALID_ARGUMENT,
                         "\"%.100s\" shares its memory with %u other name%s of %s: they can only be moved together",
                         name, sharing, sharing == 1 ? "" : "s", from);
    if (!strcmp(from, to) && (!new_name || !strcmp(name, new_name)))
        return STATUS_OK; /* it has this name already */
    if (strcmp(from, to) != 0)
        error = state_check_order(names->state, moving.from, names_owner(names, to), fault);
    if (error != STATUS_OK)
        return error;
    names_limits(names, to, &moving.limits);
    if (names->state)
        names->state->paused = true;
    error = moving_carry_out(&moving, name, to, new_name, fault);
    if (names->state)
        state_resume(names->state);
    free(moving.values);
    free(moving.texts);
    names_let_go(names);
    return error;
}
