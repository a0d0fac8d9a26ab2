/* The inside of the pool, for its files and its tests. Owner thread. */
#pragma once

#include "engine/memory/pool.h"

/* A piece of device memory cut into storage. */
struct segment {
    struct pool *pool;
    uint8_t *data;
    size_t bytes;
    size_t settled; /* bytes of its settled storage */
    struct storage *first;
    struct segment *next, **previous;
    struct segment *idle_next, **idle_previous; /* in pool->idle_segments; previous NULL: not there */
};

/* Bins: one for each multiple of 64 bytes up to 1 KiB, then eight for each doubling. All storage in a bin above pool_bin(bytes) has at
 * least `bytes`; in that bin itself some has and some has not. */
static inline unsigned pool_bin(size_t bytes) {
    size_t units = bytes / POOL_ALIGNMENT;
    if (units < 16)
        return (unsigned)units;
    unsigned log2 = 63u - (unsigned)__builtin_clzll(units);
    return 16 + (log2 - 4) * 8 + (unsigned)((units >> (log2 - 3)) & 7);
}

static inline void storage_list_insert(struct storage **list, struct storage *storage) {
    storage->next = *list;
    storage->previous = list;
    if (*list)
        (*list)->previous = &storage->next;
    *list = storage;
}

static inline void storage_list_remove(struct storage *storage) {
    *storage->previous = storage->next;
    if (storage->next)
        storage->next->previous = storage->previous;
}

/* An object for storage, in no list; NULL: out of host memory. */
struct storage *pool_piece(struct pool *pool);
void pool_recycle(struct pool *pool, struct storage *storage);

/* ---- settled storage ---- */

static inline bool storage_settled(const struct storage *storage) {
    return storage && storage->state >= STORAGE_IDLE;
}

/* Files storage that is in no list, merged with neighbours of the same state and users. Returns the whole. */
struct storage *storage_settle(struct pool *pool, struct storage *storage);
/* Takes settled storage out of all lists. */
void storage_leave(struct pool *pool, struct storage *storage);
/* Adds the piece after `storage` to it. Both are in no list. */
void storage_absorb(struct pool *pool, struct storage *storage);
/* Whether a request waits that may need neighbours of different states or users, joined. */
bool pool_joins(const struct pool *pool);
/* Settles all storage in bins. */
void pool_settle(struct pool *pool);
/* Looks again at BUSY and TIED storage, first at the pieces that have waited longest: a piece may be idle by now, or be large enough
 * for a request together with its neighbours. Ends with the first piece that has `bytes` and at most this state. True: it has
 * looked at all pieces. */
bool pool_sweep(struct pool *pool, size_t looks, size_t bytes, enum storage_state state);
/* Cuts storage that is in no list to `bytes`. The rest is filed, with the same uses. */
struct storage *pool_split(struct pool *pool, struct storage *storage, size_t bytes);
/* Takes settled storage out of all lists and cuts it to `bytes`. Takes NULL. */
struct storage *pool_cut(struct pool *pool, struct storage *storage, size_t bytes);

/* ---- settled storage by size ---- */

void pool_set_insert(struct pool_set *set, struct storage *storage);
void pool_set_remove(struct pool_set *set, struct storage *storage);
/* The smallest piece that has `bytes`; NULL: none has. */
struct storage *pool_set_fit(const struct pool_set *set, size_t bytes);
/* The next piece in that order: of the same size or larger. */
struct storage *pool_set_after(const struct pool_set *set, const struct storage *storage);
/* Bytes of the largest piece; 0: the set is empty. */
size_t pool_set_largest(const struct pool_set *set);
