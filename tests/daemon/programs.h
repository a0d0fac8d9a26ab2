/* What tests of recorded programs share. */
#pragma once

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "client/tensord.h"

static inline void programs_ok(int code) {
    cr_assert_eq(code, 0, "%s", td_last_error()->message);
}

static inline td_program *programs_end(td_device *device, int count, td_tensor *const *results) {
    td_program *program = NULL;
    programs_ok(td_record_end(device, count, results, &program));
    return program;
}

/* Both have the same type and the same bits. */
static inline void programs_expect_same(td_tensor *a, td_tensor *b, const char *what) {
    cr_assert(a && b, "%s: %s", what, td_last_error()->message);
    cr_assert(td_tensor_dtype(a) == td_tensor_dtype(b) && td_tensor_rank(a) == td_tensor_rank(b), "%s", what);
    cr_assert_arr_eq(td_tensor_shape(a), td_tensor_shape(b), (size_t)td_tensor_rank(a) * sizeof(int64_t), "%s", what);
    size_t bytes = td_tensor_bytes(a);
    void *x = malloc(bytes + 1), *y = malloc(bytes + 1);
    cr_assert_eq(td_fetch(a, x, bytes), 0, "%s: %s", what, td_last_error()->message);
    cr_assert_eq(td_fetch(b, y, bytes), 0, "%s: %s", what, td_last_error()->message);
    cr_assert(!memcmp(x, y, bytes), "%s: other bits", what);
    free(x);
    free(y);
}

/* Small normal numbers, the same each time. */
static inline td_tensor *programs_numbers(td_device *device, int rank, const int64_t *shape, uint64_t seed) {
    return td_normal(device, TD_F32, rank, shape, seed, 0, 1);
}
