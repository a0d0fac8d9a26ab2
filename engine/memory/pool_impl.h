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

void pool_set_insert(struct pool_set *set, struct storage *storage);
void pool_set_remove(struct pool_set *set, struct storage *storage);
/* The smallest that has `bytes`; NULL: none has. */
struct storage *pool_set_fit(const struct pool_set *set, size_t bytes);
/* The next one in that order: of the same size, or larger. */
struct storage *pool_set_after(const struct pool_set *set, const struct storage *storage);
/* Bytes of the largest; 0: the set is empty. */
size_t pool_set_largest(const struct pool_set *set);
