/* Sorting with vectors: elements become unsigned keys of 32 or 64 bits (key.h), and keys are sorted by value alone. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* How the elements of one width and kind are sorted; all is NULL where they are not. Strides are in elements. Keys have the order of the
 * result: in a descending one, `flip` has reversed the bits. */
struct cpu_sort {
    int64_t size; /* bytes of a key */
    /* The keys of n elements. `position` is that of the first one; only argsort's keys contain positions. True: there may be a NaN or -0
     * among them, of which a key does not tell the bits. */
    bool (*load)(uint64_t infinity, uint64_t flip, const void *x, int64_t stride, int64_t position, int64_t n,
                 void *keys);
    /* The elements, or for argsort the positions, of n keys. `out` may be `keys`. */
    void (*store)(uint64_t flip, const void *keys, int64_t n, void *out, int64_t stride);
    void (*sort)(void *keys, int64_t n);
    /* Keys `begin` to `end` - 1 of those of a and b, which both are in order, together. */
    void (*merge)(const void *a, int64_t n_a, const void *b, int64_t n_b, int64_t begin, int64_t end, void *out);
    /* The rest is of floats alone, and else NULL. How many of n elements in order come before the ones whose key is `key` in ascending
     * order. */
    int64_t (*below)(uint64_t infinity, uint64_t flip, const void *x, int64_t stride, int64_t n, uint64_t key);
    /* Zeros are equal whatever their sign, and NaN whatever its bits: writes those of x, in x's order, from the places *zero and *nan of
     * `out` on, and moves these behind them. `out` may be NULL: then they are only counted. */
    void (*restore)(uint64_t infinity, const void *x, int64_t stride, int64_t n, void *out, int64_t out_stride,
                    int64_t *zero, int64_t *nan);
};

/* The place of the first of n elements whose key, with its bits reversed by `flip`, is below `limit`; n: there is none. By key_place(). */
typedef int64_t cpu_find_function(uint64_t infinity, uint64_t flip, const void *x, int64_t n, uint64_t limit);
/* Writes those of n keys that are below `limit` in their order, and for `pairs` their positions, of which `position` is that of the first
 * key; returns how many. Up to CPU_SELECT_MORE behind them are written, too. NULL where nothing is sorted with vectors. */
struct cpu_select {
    int64_t (*keys)(const uint64_t *keys, int64_t n, uint64_t limit, uint64_t *out);
    int64_t (*pairs)(const uint64_t *keys, int64_t n, uint64_t limit, int64_t position, uint64_t *out,
                     int64_t *positions);
};
enum { CPU_SELECT_MORE = 8 };

/* For each of some values the place among n sorted elements: as many are less, or with `right` not greater. By key_place(). */
struct cpu_search {
    const void *sorted;
    int64_t n;
    uint64_t infinity; /* for keys */
    bool right;
};
typedef void cpu_search_function(const struct cpu_search *search, const void *values, int64_t count, int64_t *out);

struct cpu;
struct cpu_job;
struct launch;

/* How a launch of sort or argsort is done with vectors; NULL: it is not. In sort_keys.c. */
const struct cpu_sort *cpu_sort_find(const struct cpu *cpu, const struct launch *launch);
uint64_t cpu_sort_workspace(const struct cpu *cpu, const struct cpu_sort *sort, const struct launch *launch);
void cpu_sort_begin(struct cpu *cpu, const struct cpu_sort *sort, const struct launch *launch, struct cpu_job **begun);
