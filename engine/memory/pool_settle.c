/* Settled storage: free storage of which it is known whether anything still uses it, merged with neighbours of the same state and
 * users, and filed by size. */
#include "engine/memory/pool_impl.h"

enum {
    POOL_NEAR = 32,     /* neighbours that are counted on each side of a new piece; a run of more may have any length */
    POOL_JOIN_NEAR = 8, /* the same for a piece that may be joined with its neighbours */
    /* Joins around a piece that has just been settled: at most so many neighbours were left apart before the piece came, because
     * together they were too small. */
    POOL_JOINS_SETTLE = 5 * POOL_JOIN_NEAR,
};

/* ---- settled storage by size ----
 *
 * Each bin has a tree. Each level of it stands for one bit of the size, from the highest bit in which sizes of the bin differ: pieces
 * below down[b] have the bit b there. The piece at a node itself has only the bits of the levels above in common with the pieces below
 * it. Pieces of one size form a list at one node. So each search takes as many steps as a size has bits, however many pieces there
 * are. */

/* The bits that choose the way down the tree, the first as the highest. */
static uint64_t set_key(size_t bytes) {
    size_t units = bytes / POOL_ALIGNMENT;
    if (units < 16)
        return 0;
    unsigned log2 = 63u - (unsigned)__builtin_clzll(units);
    return (uint64_t)units << (64 - (log2 - 3));
}

void pool_set_insert(struct pool_set *set, struct storage *storage) {
    unsigned bin = pool_bin(storage->bytes);
    struct storage **link = &set->bins[bin], *up = NULL;
    uint64_t key = set_key(storage->bytes);
    while (*link && (*link)->bytes != storage->bytes) {
        up = *link;
        link = &up->down[key >> 63];
        key <<= 1;
    }
    storage->mate = *link;
    if (storage->mate) {
        storage_list_insert(&(*link)->next, storage);
        return;
    }
    *link = storage;
    storage->up = up;
    storage->down[0] = storage->down[1] = NULL;
    storage->next = NULL;
    set->filled[bin / 64] |= UINT64_C(1) << bin % 64;
}

/* Where a node hangs. */
static struct storage **set_link(struct pool_set *set, const struct storage *node) {
    if (!node->up)
        return &set->bins[pool_bin(node->bytes)];
    return &node->up->down[node->up->down[1] == node];
}

static void set_replace(struct pool_set *set, struct storage *node, struct storage *by) {
    *set_link(set, node) = by;
    by->up = node->up;
    for (int i = 0; i < 2; i++) {
        by->down[i] = node->down[i];
        if (by->down[i])
            by->down[i]->up = by;
    }
}

void pool_set_remove(struct pool_set *set, struct storage *storage) {
    if (storage->mate) {
        storage_list_remove(storage);
        return;
    }
    struct storage *by = storage->next;
    if (by) { /* one of its size comes in its place */
        storage_list_remove(by);
        by->mate = false;
        by->next = storage->next;
        if (by->next)
            by->next->previous = &by->next;
        set_replace(set, storage, by);
        return;
    }
    by = storage; /* any leaf below it may: it has all the bits that are asked for up there */
    while (by->down[0] || by->down[1])
        by = by->down[by->down[1] != NULL];
    *set_link(set, by) = NULL;
    if (by != storage) {
        set_replace(set, storage, by);
        return;
    }
    unsigned bin = pool_bin(storage->bytes);
    if (!set->bins[bin])
        set->filled[bin / 64] &= ~(UINT64_C(1) << bin % 64);
}

/* The smallest piece at or below a node. */
static struct storage *node_least(struct storage *node) {
    struct storage *least = node;
    for (; node; node = node->down[0] ? node->down[0] : node->down[1])
        if (node->bytes < least->bytes)
            least = node;
    return least;
}

/* The smallest piece of a bin that has `bytes`: it is on the way to where that size would be, or in the last subtree right of the
 * way. */
static struct storage *bin_fit(struct storage *node, size_t bytes) {
    struct storage *best = NULL, *right = NULL;
    for (uint64_t key = set_key(bytes); node; key <<= 1) {
        if (node->bytes >= bytes && (!best || node->bytes < best->bytes))
            best = node;
        if (!(key >> 63) && node->down[1])
            right = node->down[1];
        node = node->down[key >> 63];
    }
    struct storage *least = node_least(right);
    return least && (!best || least->bytes < best->bytes) ? least : best;
}

/* The first bin from `bin` on that is not empty; POOL_BINS: none. */
static unsigned set_filled(const struct pool_set *set, unsigned bin) {
    for (unsigned word = bin / 64; word < POOL_BINS / 64; word++) {
        uint64_t bits = set->filled[word];
        if (word == bin / 64)
            bits &= UINT64_MAX << bin % 64;
        if (bits)
            return word * 64 + (unsigned)__builtin_ctzll(bits);
    }
    return POOL_BINS;
}

struct storage *pool_set_fit(const struct pool_set *set, size_t bytes) {
    unsigned bin = pool_bin(bytes);
    struct storage *best = bin_fit(set->bins[bin], bytes);
    if (best)
        return best;
    bin = set_filled(set, bin + 1);
    return bin < POOL_BINS ? node_least(set->bins[bin]) : NULL;
}

struct storage *pool_set_after(const struct pool_set *set, const struct storage *storage) {
    return storage->next ? storage->next : pool_set_fit(set, storage->bytes + POOL_ALIGNMENT);
}

size_t pool_set_largest(const struct pool_set *set) {
    for (unsigned word = POOL_BINS / 64; word--;) {
        if (!set->filled[word])
            continue;
        const struct storage *node = set->bins[word * 64 + 63 - (unsigned)__builtin_clzll(set->filled[word])];
        size_t most = 0;
        for (; node; node = node->down[1] ? node->down[1] : node->down[0])
            most = node->bytes > most ? node->bytes : most;
        return most;
    }
    return 0;
}

/* ---- settled storage of all sizes ---- */

static struct pool_set *pool_set_of(struct pool *pool, enum storage_state state) {
    return state == STORAGE_IDLE ? &pool->idle : state == STORAGE_BUSY ? &pool->busy : &pool->tied;
}

static bool uses_certain(const struct uses *uses) {
    for (unsigned i = 0; i < uses->count; i++)
        if (!stream_certain(uses->use[i].stream, uses->use[i].number))
            return false;
    return true;
}

static enum storage_state storage_look(struct storage *storage) {
    if (uses_idle(&storage->uses))
        return STORAGE_IDLE;
    return uses_certain(&storage->uses) ? STORAGE_BUSY : STORAGE_TIED;
}

static void waiting_append(struct pool *pool, struct storage *storage) {
    storage->newer = NULL;
    storage->older = pool->newest;
    *(pool->newest ? &pool->newest->newer : &pool->oldest) = storage;
    pool->newest = storage;
}

/* Makes it the next to be looked at. */
static void waiting_prepend(struct pool *pool, struct storage *storage) {
    storage->older = NULL;
    storage->newer = pool->oldest;
    *(pool->oldest ? &pool->oldest->older : &pool->newest) = storage;
    pool->oldest = storage;
}

static void waiting_remove(struct pool *pool, struct storage *storage) {
    *(storage->older ? &storage->older->newer : &pool->oldest) = storage->newer;
    *(storage->newer ? &storage->newer->older : &pool->newest) = storage->older;
}

static void segment_list_idle(struct pool *pool, struct segment *segment) {
    segment->idle_next = pool->idle_segments;
    segment->idle_previous = &pool->idle_segments;
    if (segment->idle_next)
        segment->idle_next->idle_previous = &segment->idle_next;
    pool->idle_segments = segment;
    pool->idle_bytes += segment->bytes;
}

static void segment_unlist_idle(struct pool *pool, struct segment *segment) {
    *segment->idle_previous = segment->idle_next;
    if (segment->idle_next)
        segment->idle_next->idle_previous = segment->idle_previous;
    segment->idle_previous = NULL;
    pool->idle_bytes -= segment->bytes;
}

/* Bytes of `storage` and its settled neighbours; UINT64_MAX: there are more than `near` of them on one side. */
static uint64_t run_around(const struct storage *storage, int near) {
    uint64_t run = storage->bytes;
    const struct storage *at = storage;
    for (int i = 0; run < UINT64_MAX && storage_settled(at = at->before); i++)
        run = i < near ? run + at->bytes : UINT64_MAX;
    at = storage;
    for (int i = 0; run < UINT64_MAX && storage_settled(at = at->after); i++)
        run = i < near ? run + at->bytes : UINT64_MAX;
    return run;
}

/* A new seam may have made a longer run than there was. */
static void pool_note_run(struct pool *pool, const struct storage *storage) {
    uint64_t run = run_around(storage, POOL_NEAR);
    pool->run_most = run > pool->run_most ? run : pool->run_most;
    pool->walk.most = run > pool->walk.most ? run : pool->walk.most;
}

/* Files storage that is in no list, in this state. Its neighbours are of another state or have other users. */
static void storage_enter(struct pool *pool, struct storage *storage, enum storage_state state) {
    struct segment *segment = storage->segment;
    unsigned seams = storage_settled(storage->before) + storage_settled(storage->after);
    storage->state = state;
    pool_set_insert(pool_set_of(pool, state), storage);
    if (state != STORAGE_IDLE) {
        waiting_append(pool, storage);
        pool->n_waiting++;
    } else if (storage->bytes == segment->bytes) {
        segment_list_idle(pool, segment);
    }
    segment->settled += storage->bytes;
    if (segment->settled == segment->bytes)
        pool->free_bytes += segment->bytes;
    if (!seams)
        return;
    pool->seams += seams;
    pool_note_run(pool, storage);
}

void storage_leave(struct pool *pool, struct storage *storage) {
    struct segment *segment = storage->segment;
    pool_set_remove(pool_set_of(pool, storage->state), storage);
    if (storage->state != STORAGE_IDLE) {
        waiting_remove(pool, storage);
        pool->n_waiting--;
    } else if (storage->bytes == segment->bytes) {
        segment_unlist_idle(pool, segment);
    }
    if (segment->settled == segment->bytes)
        pool->free_bytes -= segment->bytes;
    segment->settled -= storage->bytes;
    storage->state = STORAGE_BINNED;
    pool->seams -= storage_settled(storage->before) + (size_t)storage_settled(storage->after);
}

void storage_absorb(struct pool *pool, struct storage *storage) {
    struct storage *after = storage->after;
    storage->bytes += after->bytes;
    storage->after = after->after;
    if (after->after)
        after->after->before = storage;
    pool_recycle(pool, after);
}

/* Whether a neighbour may be merged with storage of this state and no taker of a part would have to wait for more streams. */
static bool storage_like(const struct storage *storage, enum storage_state state, const struct storage *neighbour) {
    const struct uses *uses = &storage->uses, *others = &neighbour->uses;
    if (neighbour->state != state || uses->count != others->count)
        return false;
    for (unsigned i = 0; i < uses->count; i++) {
        unsigned k = 0;
        while (k < others->count && others->use[k].stream != uses->use[i].stream)
            k++;
        if (k == others->count)
            return false;
    }
    return true;
}

/* Adds the neighbour after it to storage of this state that is in no list. */
static void storage_add_after(struct pool *pool, struct storage *storage, enum storage_state *state) {
    struct storage *after = storage->after;
    *state = after->state > *state ? after->state : *state;
    uses_join(&storage->uses, &after->uses);
    storage_leave(pool, after);
    storage_absorb(pool, storage);
}

/* Adds storage of this state that is in no list to the neighbour before it, which is returned. */
static struct storage *storage_add_before(struct pool *pool, struct storage *storage, enum storage_state *state) {
    struct storage *before = storage->before;
    struct uses uses = storage->uses; /* joined in the same order as by storage_joinable() */
    *state = before->state > *state ? before->state : *state;
    uses_join(&uses, &before->uses);
    storage_leave(pool, before);
    storage_absorb(pool, before);
    before->uses = uses;
    return before;
}

bool pool_joins(const struct pool *pool) {
    return pool->looks < pool->join_until;
}

/* Whether a neighbour may be joined with storage of this state, although a taker of one part then waits for the users of the other.
 * Tied storage stays apart: else only its own session could take the whole. */
static bool storage_joinable(const struct storage *storage, enum storage_state state, const struct storage *neighbour) {
    struct uses uses = storage->uses;
    return storage_settled(neighbour) && state != STORAGE_TIED && neighbour->state != STORAGE_TIED &&
           uses_join(&uses, &neighbour->uses);
}

/* Joins storage that is in no list with its neighbours on both sides, as far as possible, in *steps steps at most. */
static struct storage *storage_join(struct pool *pool, struct storage *storage, enum storage_state *state,
                                    size_t *steps) {
    for (; *steps; --*steps)
        if (storage_joinable(storage, *state, storage->after))
            storage_add_after(pool, storage, state);
        else if (storage_joinable(storage, *state, storage->before))
            storage = storage_add_before(pool, storage, state);
        else
            break;
    return storage;
}

/* Files storage that is in no list, merged with neighbours of the same state and users; and if a request needs that, joined with all
 * neighbours with which it may be, in *steps steps at most. Returns the whole. */
static struct storage *storage_settle_with(struct pool *pool, struct storage *storage, size_t *steps) {
    enum storage_state state = storage_look(storage);
    if (storage_settled(storage->after) && storage_like(storage, state, storage->after))
        storage_add_after(pool, storage, &state);
    if (storage_settled(storage->before) && storage_like(storage, state, storage->before))
        storage = storage_add_before(pool, storage, &state);
    if (pool_joins(pool) && run_around(storage, POOL_JOIN_NEAR) >= pool->wanted)
        storage = storage_join(pool, storage, &state, steps);
    storage_enter(pool, storage, state);
    return storage;
}

struct storage *storage_settle(struct pool *pool, struct storage *storage) {
    size_t steps = POOL_JOINS_SETTLE;
    return storage_settle_with(pool, storage, &steps);
}

void pool_settle(struct pool *pool) {
    for (unsigned i = 0; i < POOL_BINS && pool->n_binned; i++)
        while (pool->binned[i]) {
            struct storage *storage = pool->binned[i];
            storage_list_remove(storage);
            pool->n_binned--;
            storage_settle(pool, storage);
        }
}

static bool pool_should_join(const struct pool *pool, const struct storage *storage) {
    return pool_joins(pool) &&
           (storage_joinable(storage, storage->state, storage->after) ||
            storage_joinable(storage, storage->state, storage->before)) &&
           run_around(storage, POOL_JOIN_NEAR) >= pool->wanted;
}

bool pool_sweep(struct pool *pool, size_t looks, size_t bytes, enum storage_state state) {
    size_t steps = POOL_JOINS;
    bool all = looks >= pool->n_waiting, found = false;
    for (looks = all ? pool->n_waiting : looks; looks && steps && !found && pool->oldest; looks--) {
        struct storage *storage = pool->oldest;
        unsigned uses = storage->uses.count;
        if (storage_look(storage) != storage->state || storage->uses.count != uses || pool_should_join(pool, storage)) {
            storage_leave(pool, storage);
            storage = storage_settle_with(pool, storage, &steps);
            found = storage->bytes >= bytes && storage->state <= state;
        } else {
            waiting_remove(pool, storage);
            waiting_append(pool, storage);
        }
        if (!steps && storage->state != STORAGE_IDLE) { /* there may be more to join: the next sweep begins here */
            waiting_remove(pool, storage);
            waiting_prepend(pool, storage);
        } else {
            pool->looks++;
        }
    }
    return all && steps && !found;
}

struct storage *pool_split(struct pool *pool, struct storage *storage, size_t bytes) {
    struct storage *rest = storage->bytes > bytes ? pool_piece(pool) : NULL;
    if (!rest) /* an exact fit; or there is no host memory for the rest's object, and the taker gets the whole */
        return storage;
    rest->data = storage->data + bytes;
    rest->bytes = storage->bytes - bytes;
    rest->uses = storage->uses;
    rest->segment = storage->segment;
    rest->before = storage;
    rest->after = storage->after;
    if (rest->after)
        rest->after->before = rest;
    storage->after = rest;
    storage->bytes = bytes;
    storage_settle(pool, rest);
    return storage;
}

struct storage *pool_cut(struct pool *pool, struct storage *storage, size_t bytes) {
    if (!storage)
        return NULL;
    storage_leave(pool, storage);
    return pool_split(pool, storage, bytes);
}
