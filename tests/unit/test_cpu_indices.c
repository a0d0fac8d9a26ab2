/* Operations over positions, and any and all, on the CPU device at each of its vector levels: the same as simple loops give, around the numbers
 * of elements at which a device goes another way. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/cpu.h"
#include "tests/unit/cpu_run.h"
#include "tests/unit/sort_fixture.h"

/* ---- devices ---- */

/* Calls `check` with devices of all levels and of some numbers of threads. */
static void each_device(void (*check)(struct device *device)) {
    static const unsigned threads[] = {1, 2, 5};
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        struct device *device = open_cpu(threads[i]);
        for (unsigned level = 0; cpu_kernels_level(level); level++) {
            ((struct cpu *)device)->kernels = cpu_kernels_level(level);
            check(device);
        }
        device_close(device);
    }
}

/* ---- topk ---- */

static void expect_topk(struct device *device, enum dtype dtype, enum order order, const int64_t shape[3], int64_t k) {
    int bits = 8 * (int)dtype_size(dtype);
    int64_t n = shape[1], inner = shape[2], rows = shape[0] * inner;
    struct array x = ARRAY(dtype, shape[0], n, inner);
    struct array values = ARRAY(dtype, shape[0], k, inner), positions = ARRAY(DTYPE_I64, shape[0], k, inner);
    int64_t *sorted = calloc((size_t)(rows * n), sizeof *sorted), *given = positions.data;
    for (int64_t i = 0; i < rows * n; i++)
        element_set(x.data, i, bits, element(order, i / inner % n, n, bits));
    for (int largest = 0; largest < 2; largest++) {
        bool same = true;
        run(device, OP_TOPK, (const int64_t[]){k, 1, largest}, 3, (struct array *[]){&x}, 1,
            (struct array *[]){&values, &positions}, 2, NULL);
        for (int64_t row = 0; row < rows; row++) {
            int64_t first = row / inner * n * inner + row % inner, out = row / inner * k * inner + row % inner;
            row_order(dtype, (char *)x.data + first * bits / 8, n, inner, largest, sorted + first);
            for (int64_t i = 0; i < k; i++) {
                int64_t position = sorted[first + i * inner];
                same &= given[out + i * inner] == position;
                same &= element_get(values.data, out + i * inner, bits) ==
                        element_get(x.data, first + position * inner, bits);
            }
        }
        cr_expect(same, "%s, order %d, %lld of %lld x %lld, largest %d, %s", dtype_name(dtype), (int)order,
                  (long long)k, (long long)n, (long long)inner, largest, ((struct cpu *)device)->kernels->level);
    }
    free(x.data);
    free(values.data);
    free(positions.data);
    free(sorted);
}

static void check_topk(struct device *device) {
    static const int64_t extents[] = {1, 2, 63, 64, 65, 100, 255, 320, 321, 1000, 2049};
    static const int64_t numbers[] = {1, 4, 31, 32, 33, 127, 1024, 1025, INT64_MAX};
    for (int i = 0; i < DTYPES; i++)
        for (int order = 0; order < ORDERS; order++)
            for (size_t e = 0; e < sizeof extents / sizeof *extents; e++) {
                int64_t k = numbers[draw() % (sizeof numbers / sizeof *numbers)], n = extents[e];
                expect_topk(device, dtypes[i], order, (const int64_t[]){1 + (int64_t)(e % 3), n, e % 4 == 3 ? 3 : 1},
                            k < n ? k : n);
            }
}

Test(cpu_indices, topk_gives_elements_and_first_positions_in_every_order, .timeout = 300) {
    each_device(check_topk);
}

/* More results than the stack has room for, of rows so long that they are left in the middle. */
static void check_topk_many(struct device *device) {
    for (int i = 0; i < DTYPES; i++) {
        const int64_t n = 40000, inner = 1 + (int64_t)(draw() % 2);
        expect_topk(device, dtypes[i], (enum order)(draw() % ORDERS), (const int64_t[]){3, n, inner}, 1300);
    }
}

Test(cpu_indices, topk_gives_many_results, .timeout = 300) {
    each_device(check_topk_many);
}

/* Rows longer than a piece, and so much work that they are left, and continued from their results. */
Test(cpu_indices, topk_of_long_rows_is_made_in_turns, .timeout = 300) {
    static const enum order orders[] = {RANDOM, SPECIAL, RISING};
    struct device *device = open_cpu(2);
    for (unsigned level = 0; cpu_kernels_level(level); level++) {
        ((struct cpu *)device)->kernels = cpu_kernels_level(level);
        for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
            expect_topk(device, i % 2 ? DTYPE_I64 : DTYPE_F32, orders[i], (const int64_t[]){8, 40000, 2}, 1024);
    }
    device_close(device);
}

/* ---- searchsorted ---- */

static int ranks_compare(const void *a, const void *b) {
    const __int128 *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void expect_searched(struct device *device, enum dtype dtype, enum order order, int64_t n, int64_t count) {
    int bits = 8 * (int)dtype_size(dtype);
    struct array x = ARRAY(dtype, n), values = ARRAY(dtype, count), out = ARRAY(DTYPE_I64, count);
    int64_t *positions = calloc((size_t)n, sizeof *positions);
    __int128 *ranks = calloc((size_t)n, sizeof *ranks);
    char *raw = calloc((size_t)n, sizeof(uint64_t));
    for (int64_t i = 0; i < n; i++)
        element_set(raw, i, bits, element(order, i, n, bits));
    row_order(dtype, raw, n, 1, false, positions);
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits_of = element_get(raw, positions[i], bits);
        element_set(x.data, i, bits, bits_of);
        ranks[i] = element_rank(dtype, bits_of);
    }
    for (int64_t i = 0; i < count; i++)
        element_set(values.data, i, bits,
                    draw() % 2 ? element(order, i, n, bits) : element_get(x.data, (int64_t)(draw() % n), bits));
    qsort(ranks, (size_t)n, sizeof *ranks, ranks_compare);
    for (int right = 0; right < 2; right++) {
        bool same = true;
        run(device, OP_SEARCHSORTED, (const int64_t[]){right}, 1, (struct array *[]){&x, &values}, 2,
            (struct array *[]){&out}, 1, NULL);
        for (int64_t i = 0; i < count; i++) {
            __int128 rank = element_rank(dtype, element_get(values.data, i, bits));
            int64_t place = ((int64_t *)out.data)[i];
            same &= place >= 0 && place <= n;
            same &= place == 0 || (right ? ranks[place - 1] <= rank : ranks[place - 1] < rank);
            same &= place == n || (right ? ranks[place] > rank : ranks[place] >= rank);
        }
        cr_expect(same, "%s, order %d, %lld among %lld, right %d, %s", dtype_name(dtype), (int)order, (long long)count,
                  (long long)n, right, ((struct cpu *)device)->kernels->level);
    }
    free(x.data);
    free(values.data);
    free(out.data);
    free(positions);
    free(ranks);
    free(raw);
}

static void check_search(struct device *device) {
    static const int64_t extents[] = {1, 2, 3, 7, 16, 63, 64, 65, 127, 128, 1000, 4096, 4099};
    static const int64_t counts[] = {1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100};
    for (int i = 0; i < DTYPES; i++)
        for (int order = 0; order < ORDERS; order++)
            for (size_t e = 0; e < sizeof extents / sizeof *extents; e++)
                expect_searched(device, dtypes[i], order, extents[e],
                                counts[draw() % (sizeof counts / sizeof *counts)]);
}

Test(cpu_indices, searchsorted_finds_the_first_and_the_last_place, .timeout = 300) {
    each_device(check_search);
}

/* ---- scatter and scatter_add ---- */

/* A stride of 0 where there is one value for all; values are small, so that halves do not round. */
struct scattered {
    enum dtype dtype, index;
    int64_t shape[3], k;
    bool same_index, same_value;
};

static double number(enum dtype dtype, const void *data, int64_t i) {
    switch (dtype) {
    case DTYPE_U8:
        return ((const uint8_t *)data)[i];
    case DTYPE_I32:
        return ((const int32_t *)data)[i];
    case DTYPE_I64:
        return (double)((const int64_t *)data)[i];
    case DTYPE_F64:
        return ((const double *)data)[i];
    case DTYPE_BF16: {
        uint32_t bits = (uint32_t)((const uint16_t *)data)[i] << 16;
        float value;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    default:
        return ((const float *)data)[i];
    }
}

static void number_set(enum dtype dtype, void *data, int64_t i, double value) {
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    switch (dtype) {
    case DTYPE_U8:
        ((uint8_t *)data)[i] = (uint8_t)(int64_t)value;
        break;
    case DTYPE_I32:
        ((int32_t *)data)[i] = (int32_t)value;
        break;
    case DTYPE_I64:
        ((int64_t *)data)[i] = (int64_t)value;
        break;
    case DTYPE_F64:
        ((double *)data)[i] = value;
        break;
    case DTYPE_BF16:
        ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
        break;
    default:
        ((float *)data)[i] = single;
    }
}

static void expect_scattered(struct device *device, const struct scattered *of, bool add, bool wrong) {
    int64_t outer = of->shape[0], n = of->shape[1], inner = of->shape[2], k = of->k;
    struct array x = ARRAY(of->dtype, outer, n, inner), out = ARRAY(of->dtype, outer, n, inner);
    struct array values = of->same_value ? ARRAY(of->dtype, 1, 1, 1) : ARRAY(of->dtype, outer, k, inner);
    struct array index = of->same_index ? ARRAY(of->index, 1, k, 1) : ARRAY(of->index, outer, k, inner);
    double *should = calloc((size_t)(outer * n * inner), sizeof *should);
    int64_t wrong_at = wrong ? (int64_t)(draw() % (uint64_t)k) : -1;
    for (int i = 0; i < 3; i++) {
        index.strides[i] = index.shape[i] == 1 ? 0 : index.strides[i];
        values.strides[i] = values.shape[i] == 1 ? 0 : values.strides[i];
    }
    values.shape[1] = index.shape[1] = k;
    values.shape[0] = outer, values.shape[2] = inner;
    if (!of->same_index)
        index.shape[0] = outer, index.shape[2] = inner;
    for (int64_t i = 0; i < outer * n * inner; i++)
        number_set(of->dtype, x.data, i, should[i] = (double)(draw() >> 20 & 3));
    for (int64_t i = 0; i < (of->same_value ? 1 : outer * k * inner); i++)
        number_set(of->dtype, values.data, i, (double)(1 + (draw() >> 20) % 3));
    for (int64_t i = 0; i < (of->same_index ? k : outer * k * inner); i++)
        number_set(of->index, index.data, i, (double)(int64_t)((draw() >> 20) % (uint64_t)n));
    if (wrong)
        number_set(of->index, index.data, of->same_index ? wrong_at : wrong_at * inner,
                   draw() % 2 || of->index == DTYPE_U8 ? (double)n : -1);
    for (int64_t i = 0; i < outer * k * inner; i++) {
        int64_t o = i / inner / k, place = i / inner % k, column = i % inner;
        double at =
            number(of->index, index.data, o * index.strides[0] + place * index.strides[1] + column * index.strides[2]);
        double value = number(of->dtype, values.data,
                              o * values.strides[0] + place * values.strides[1] + column * values.strides[2]);
        if (at >= 0 && at < (double)n) {
            double *to = &should[(o * n + (int64_t)at) * inner + column];
            *to = add ? *to + value : value;
        }
    }
    struct report report = run(device, add ? OP_SCATTER_ADD : OP_SCATTER, (const int64_t[]){1}, 1,
                               (struct array *[]){&x, &index, &values}, 3, (struct array *[]){&out}, 1, NULL);
    bool same = true;
    for (int64_t i = 0; i < outer * n * inner; i++) {
        uint8_t narrow = (uint8_t)(int64_t)should[i];
        same &= number(of->dtype, out.data, i) == (of->dtype == DTYPE_U8 ? narrow : should[i]);
    }
    cr_expect(same, "%s, add %d, [%lld, %lld, %lld], %lld", dtype_name(of->dtype), add, (long long)outer, (long long)n,
              (long long)inner, (long long)k);
    cr_expect_eq(report.code, wrong ? STATUS_OUT_OF_RANGE : STATUS_OK);
    if (wrong)
        cr_expect_eq(report.position, of->same_index ? wrong_at : wrong_at * inner, "%lld", (long long)report.position);
    free(x.data);
    free(out.data);
    free(values.data);
    free(index.data);
    free(should);
}

static void check_scatter(struct device *device) {
    static const enum dtype kinds[] = {DTYPE_U8, DTYPE_I32, DTYPE_I64, DTYPE_BF16, DTYPE_F32, DTYPE_F64};
    /* One column and several, one outer place and several, few elements for many values, and an axis that is cut. */
    static const struct {
        int64_t shape[3], k;
    } sizes[] = {{{1, 100, 1}, 1},     {{1, 10, 1}, 513},   {{3, 7, 1}, 511},       {{2, 50, 17}, 33},
                 {{1, 100, 3}, 40000}, {{1, 20, 1}, 70001}, {{1, 300000, 1}, 20000}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t d = 0; d < sizeof kinds / sizeof *kinds; d++)
            for (int way = 0; way < 16; way++) {
                struct scattered of = {.dtype = kinds[d],
                                       .index = draw() % 2 ? DTYPE_I64 : DTYPE_I32,
                                       .k = sizes[s].k,
                                       .same_index = way & 1,
                                       .same_value = way & 2};
                memcpy(of.shape, sizes[s].shape, sizeof of.shape);
                if (kinds[d] == DTYPE_BF16 && way & 4 && of.k > 100)
                    of.k = 100; /* larger sums are rounded */
                expect_scattered(device, &of, way & 4, way & 8);
            }
}

Test(cpu_indices, scatter_takes_values_in_order_and_reports_a_wrong_index, .timeout = 300) {
    each_device(check_scatter);
}

/* So many values that the parts with sums of their own are left. */
Test(cpu_indices, many_integers_are_added_in_turns, .timeout = 300) {
    const struct scattered of = {
        .dtype = DTYPE_I64, .index = DTYPE_I64, .shape = {1, 20, 1}, .k = 1000001, .same_index = true};
    for (unsigned threads = 1; threads < 4; threads++) {
        struct device *device = open_cpu(threads);
        expect_scattered(device, &of, true, false);
        expect_scattered(device, &of, true, true);
        device_close(device);
    }
}

/* ---- any and all ---- */

static void check_truth(struct device *device) {
    static const int64_t extents[] = {1, 31, 2048, 2049, 4096, 4097, 6145, 300000};
    for (size_t e = 0; e < sizeof extents / sizeof *extents; e++)
        for (int all = 0; all < 2; all++) {
            int64_t n = extents[e], places[] = {-1, 0, 30, 2047, 2048, 4095, 4096, 6144, n / 2, n - 1};
            struct array x = ARRAY(DTYPE_BOOL, n), out = array_of(DTYPE_BOOL, 0, NULL);
            uint8_t *elements = x.data, *result = out.data;
            for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
                bool there = places[i] >= 0 && places[i] < n;
                memset(elements, all, (size_t)n);
                if (there)
                    elements[places[i]] = !all;
                run(device, all ? OP_ALL : OP_ANY, NULL, 0, (struct array *[]){&x}, 1, (struct array *[]){&out}, 1,
                    NULL);
                cr_expect_eq(*result, there != all, "%lld of %lld, all %d", (long long)places[i], (long long)n, all);
            }
            free(x.data);
            free(out.data);
        }
}

Test(cpu_indices, any_and_all_know_of_one_element_anywhere) {
    each_device(check_truth);
}
