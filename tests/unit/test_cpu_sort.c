/* sort and argsort on the CPU device: the same bits as those of a simple stable sort, in whatever order the elements come, and by any number of
 * threads. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/cpu.h"
#include "engine/cpu/key.h"
#include "engine/cpu/sort.h"
#include "tests/unit/cpu_run.h"
#include "tests/unit/sort_fixture.h"

/* Sorts x [outer, n, inner], in turns as short as can be, which are counted. */
static int device_sort(struct device *device, unsigned opcode, enum dtype dtype, const int64_t shape[3], const void *x,
                       bool descending, void *out) {
    struct array from = array_over(dtype, 3, shape, (void *)x);
    struct array to = array_over(opcode == OP_SORT ? dtype : DTYPE_I64, 3, shape, out);
    int turns;
    run(device, opcode, (const int64_t[]){1, descending}, 2, (struct array *[]){&from}, 1, (struct array *[]){&to}, 1,
        &turns);
    return turns;
}

static void expect_sorted(struct device *device, enum dtype dtype, enum order order, const int64_t shape[3]) {
    int bits = 8 * (int)dtype_size(dtype);
    int64_t n = shape[1], inner = shape[2], count = shape[0] * n * inner;
    char *x = malloc((size_t)count * sizeof(uint64_t)), *values = malloc((size_t)count * sizeof(uint64_t));
    char *should = malloc((size_t)count * sizeof(uint64_t));
    int64_t *positions = calloc((size_t)count, sizeof *positions), *given = calloc((size_t)count, sizeof *given);
    for (int64_t i = 0; i < count; i++)
        element_set(x, i, bits, element(order, i / inner % n, n, bits));
    for (int descending = 0; descending < 2; descending++) {
        for (int64_t row = 0; row < shape[0] * inner; row++) {
            int64_t first = row / inner * n * inner + row % inner;
            row_order(dtype, x + first * bits / 8, n, inner, descending, positions + first);
            for (int64_t i = first; i < first + n * inner; i += inner)
                element_set(should, i, bits, element_get(x, first + positions[i] * inner, bits));
        }
        device_sort(device, OP_SORT, dtype, shape, x, descending, values);
        device_sort(device, OP_ARGSORT, dtype, shape, x, descending, given);
        bool same = memcmp(values, should, (size_t)(count * bits / 8)) == 0;
        cr_expect(same, "sort: %s, order %d, %lld x %lld", dtype_name(dtype), (int)order, (long long)n,
                  (long long)inner);
        same = memcmp(given, positions, (size_t)count * sizeof *given) == 0;
        cr_expect(same, "argsort: %s, order %d, %lld x %lld", dtype_name(dtype), (int)order, (long long)n,
                  (long long)inner);
    }
    free(x);
    free(values);
    free(should);
    free(positions);
    free(given);
}

/* Around the numbers of elements at which a device sorts in another way: vectors, networks, blocks. */
Test(cpu_sort, short_rows_are_sorted_by_value_and_stably_in_every_order, .timeout = 300) {
    static const int64_t extents[] = {1,   2,   7,   8,   9,   15,  16,  17,  31,  32,  33,  64,  65,
                                      100, 127, 128, 129, 255, 256, 257, 300, 511, 513, 700, 1500};
    struct device *device = open_cpu(1);
    for (int i = 0; i < DTYPES; i++)
        for (int order = 0; order < ORDERS; order++)
            for (size_t k = 0; k < sizeof extents / sizeof *extents; k++)
                expect_sorted(device, dtypes[i], order,
                              (const int64_t[]){1 + (int64_t)(k % 3), extents[k], k % 4 == 3 ? 3 : 1});
    device_close(device);
}

Test(cpu_sort, long_rows_are_sorted_by_value_and_stably_in_every_order, .timeout = 300) {
    static const unsigned threads[] = {1, 2, 5};
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
        struct device *device = open_cpu(threads[t]);
        for (int i = 0; i < DTYPES; i++)
            for (int order = 0; order < ORDERS; order++)
                expect_sorted(device, dtypes[i], order,
                              (const int64_t[]){1, 30000 + (int64_t)(draw() % 20000), order % 4 == 3 ? 2 : 1});
        device_close(device);
    }
}

/* More rounds of merges than there are threads. */
Test(cpu_sort, the_longest_rows_are_sorted_stably, .timeout = 300) {
    struct device *device = open_cpu(2);
    for (int order = 0; order < ORDERS; order++)
        expect_sorted(device, order % 2 ? DTYPE_F32 : DTYPE_F64, order, (const int64_t[]){1, 1200000 + order, 1});
    device_close(device);
}

/* Each piece, of a millisecond or so, can be the last one of a turn: 2 MiB of keys that are sorted or merged, or whose zeros and NaN
 * are written again. */
Test(cpu_sort, a_long_row_is_sorted_in_turns, .timeout = 300) {
    enum { N = 1 << 23, PIECES = N * sizeof(float) >> 21, ROUNDS = 1 + 4 };
    struct device *device = open_cpu(1);
    uint32_t *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    for (int special = 0; special < 2; special++) {
        for (int64_t i = 0; i < N; i++)
            x[i] = (uint32_t)element(special ? SPECIAL : EQUAL, i, N, 32);
        int turns = device_sort(device, OP_SORT, DTYPE_F32, (const int64_t[]){1, N, 1}, x, false, y);
        if (((struct cpu *)device)->kernels->sort[key_place(DTYPE_F32)].sort)
            cr_expect_geq(turns, PIECES * (ROUNDS + 2 * special) - ROUNDS, "%d", turns);
    }
    free(x);
    free(y);
    device_close(device);
}
