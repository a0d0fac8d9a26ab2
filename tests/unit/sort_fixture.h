/* Elements of all dtypes that have an order, in many orders, and a simple sort of them. Include once in a program. */
#pragma once

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "engine/device/device_impl.h"

static uint64_t seed = 1;

static inline uint64_t draw(void) {
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return seed ^ seed >> 29;
}

/* ---- elements ---- */

static const enum dtype dtypes[] = {DTYPE_U8,  DTYPE_I16, DTYPE_BF16, DTYPE_I32, DTYPE_U32,
                                    DTYPE_F32, DTYPE_I64, DTYPE_U64,  DTYPE_F64};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

enum order { RANDOM, SPECIAL, EQUAL, RISING, FALLING, PEAK, GEOMETRIC, PERIODIC, OUTLIERS, STRAY, ORDERS };

/* Zeros of both signs, NaN of several bits, infinities and ordinary numbers, in the upper bits of f64, f32 and bf16. */
static const uint16_t specials[] = {0x0000, 0x8000, 0x7fc0, 0xffc1, 0x7fff, 0x7ff8, 0xffff,
                                    0x7f80, 0xff80, 0x7ff0, 0xfff0, 0x3f80, 0xbf80};

static inline uint64_t element(enum order order, int64_t i, int64_t n, int bits) {
    uint64_t all = UINT64_MAX >> (64 - bits);
    switch (order) {
    case SPECIAL:
        return (uint64_t)specials[draw() % (sizeof specials / sizeof *specials)] << (bits - (bits < 16 ? 8 : 16)) & all;
    case EQUAL:
        return 0x3f & all;
    case RISING:
        return (uint64_t)i & all;
    case FALLING:
        return (uint64_t)(n - i) & all;
    case PEAK:
        return (uint64_t)(i < n / 2 ? i : n - i) & all;
    case GEOMETRIC: /* each value half as often as the one below it */
        return (uint64_t)__builtin_ctzll(draw() | UINT64_C(1) << 63);
    case PERIODIC:
        return (uint64_t)(i % 64) & all;
    case OUTLIERS: /* of all sizes */
        return (UINT64_C(1) << draw() % 64 | (draw() & 7)) & all;
    case STRAY: /* few values, and one far from them */
        return i == n / 3 ? all >> 1 : draw() % 30;
    default:
        return draw() & all;
    }
}

static inline void element_set(char *x, int64_t i, int bits, uint64_t value) {
    memcpy(x + i * bits / 8, &value, (size_t)bits / 8);
}

static inline uint64_t element_get(const char *x, int64_t i, int bits) {
    uint64_t value = 0;
    memcpy(&value, x + i * bits / 8, (size_t)bits / 8);
    return value;
}

/* A number that has the element's order: NaN above all, and -0 is 0. */
static inline __int128 element_rank(enum dtype dtype, uint64_t bits) {
    int width = 8 * (int)dtype_size(dtype);
    __int128 sign = (__int128)1 << (width - 1);
    if (dtype_kind(dtype) != DTYPE_KIND_FLOAT)
        return dtype_is_unsigned(dtype) || (__int128)bits < sign ? (__int128)bits : (__int128)bits - 2 * sign;
    __int128 size = (__int128)bits & (sign - 1);
    __int128 infinity = sign - ((__int128)1 << (dtype == DTYPE_F64 ? 52 : width - 9));
    return size > infinity ? sign : (__int128)bits < sign ? size : -size;
}

/* ---- the simple sort ---- */

struct item {
    __int128 rank;
    int64_t position;
};

static inline int items_compare(const void *a, const void *b) {
    const struct item *x = a, *y = b;
    int order = (x->rank > y->rank) - (x->rank < y->rank);
    return order ? order : (x->position > y->position) - (x->position < y->position);
}

/* The positions of the elements of a row in their order, `step` apart. */
static inline void row_order(enum dtype dtype, const char *x, int64_t n, int64_t step, bool descending,
                             int64_t *positions) {
    struct item *items = calloc((size_t)n, sizeof *items);
    for (int64_t i = 0; i < n; i++) {
        __int128 rank = element_rank(dtype, element_get(x, i * step, 8 * (int)dtype_size(dtype)));
        items[i] = (struct item){descending ? -rank : rank, i};
    }
    qsort(items, (size_t)n, sizeof *items, items_compare);
    for (int64_t i = 0; i < n; i++)
        positions[i * step] = items[i].position;
    free(items);
}

/* ---- devices ---- */

static inline struct device *open_cpu(unsigned threads) {
    struct device_options options = {.memory_total = 1 << 20, .threads = threads};
    struct device *device;
    struct fault fault;
    cr_assert_eq(device_open("cpu", &options, &device, &fault), STATUS_OK, "%s", fault.message);
    return device;
}
