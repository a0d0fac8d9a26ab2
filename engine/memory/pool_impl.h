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

/* Bins: one for each multiple of 64 bytes up to 1 KiB, then eight for each doubling. All storage in a bin above
 * pool_bin(bytes) has at least `bytes`; in that bin itself it must be asked. */
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

/* Files storage that is in no list, together with neighbours that are like it. Returns the whole. */
struct storage *storage_settle(struct pool *pool, struct storage *storage);
/* Takes settled storage out of all lists. */
void storage_leave(struct pool *pool, struct storage *storage);
/* Adds the piece after `storage` to it. Both are in no list. */
void storage_absorb(struct pool *pool, struct storage *storage);
/* Somebody has been told to come again, as neighbours that are unlike may be what he needs. */
bool pool_joins(const struct pool *pool);
/* Settles what was freed lately. */
void pool_settle(struct pool *pool);
/* Looks at busy storage again, those first that have waited longest: it may be idle by now, or be what somebody needs
 * together with its neighbours. Ends with the first that has `bytes` and is in this state at most. True: it has looked
 * at all. */
bool pool_sweep(struct pool *pool, size_t looks, size_t bytes, enum storage_state state);
/* Cuts `bytes` off storage that is in no list. The rest has the same uses. */
struct storage *pool_split(struct pool *pool, struct storage *storage, size_t bytes);
/* Hands out settled storage; takes NULL. */
struct storage *pool_cut(struct pool *pool, struct storage *storage, size_t bytes);

/* ---- settled storage by size ---- */

void pool_set_insert(struct pool_set *set, struct storage *storage);
void pool_set_remove(struct pool_set *set, struct storage *storage);
/* The smallest that has `bytes`; NULL: none has. */
struct storage *pool_set_fit(const struct pool_set *set, size_t bytes);
/* The next one in that order: of the same size, or larger. */
struct storage *pool_set_after(const struct pool_set *set, const struct storage *storage);
/* Bytes of the largest; 0: the set is empty. */
size_t pool_set_largest(const struct pool_set *set);
