/* Settled storage by size: in each bin a tree, in which every step goes by one bit of the size, from the highest one in which
 * sizes of the bin differ. What is below down[b] has the bit b there; what a node holds itself has only the bits above in
 * common with what is below it. Storage of one size hangs on one node as a list. So whatever is asked takes as many steps as
 * a size has bits, however much there is. */
#include "engine/memory/pool_impl.h"

/* The bits that decide, the first one as the highest. */
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

/* The smallest at or below a node. */
static struct storage *node_least(struct storage *node) {
    struct storage *least = node;
    for (; node; node = node->down[0] ? node->down[0] : node->down[1])
        if (node->bytes < least->bytes)
            least = node;
    return least;
}

/* The smallest of a bin that has `bytes`: on the way to where that size would be, or in the last tree right of the way. */
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

/* The first bin from `bin` on that has something; POOL_BINS: none. */
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
