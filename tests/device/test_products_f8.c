/* Products of f8 tensors: by tensor cores where these take them, and in other ways. */
#include <criterion/criterion.h>

#include "tests/device/cases.h"

/* Of whole numbers whose sums stay small, so that they are exact in whatever a device adds up f8 products; with extents
 * that tensor cores take and others. */
static void f8_products(enum dtype a_dtype, enum dtype b_dtype) {
    static const struct {
        int64_t m, k, n;
    } rows[] = {{16, 16, 16}, {5, 32, 16}, {48, 96, 32}, {1, 208, 16},
                {33, 48, 64}, {16, 16, 1}, {17, 15, 19}, {64, 64, 64}};
    struct suite suite;
    suite_open(&suite, 4712);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (unsigned way = 0; way < 8; way++) {
            int64_t batch = way & 4 ? 3 : 1, m = rows[i].m, k = rows[i].k, n = rows[i].n;
            int64_t a_shape[3] = {batch, way & 1 ? k : m, way & 1 ? m : k};
            int64_t b_shape[3] = {batch, way & 2 ? n : k, way & 2 ? k : n};
            struct sample x = suite_sample(&suite, a_dtype, 3, a_shape, FILL_COUNT), a = x;
            struct sample y = suite_sample(&suite, b_dtype, 3, b_shape, FILL_COUNT), b = y;
            if (way & 1)
                a = suite_unary(&suite, OP_MATRIX_TRANSPOSE, &x);
            if (way & 2)
                b = suite_unary(&suite, OP_MATRIX_TRANSPOSE, &y);
            struct sample result = suite_binary(&suite, OP_MATMUL, &a, &b);
            case_settle(&suite, &result);
            if (way & 1)
                suite_free(&suite, &a);
            if (way & 2)
                suite_free(&suite, &b);
            suite_free(&suite, &x);
            suite_free(&suite, &y);
        }
    suite_close(&suite);
}

Test(products_f8, whole_numbers_are_exact, .timeout = 120) {
    for (enum dtype a = DTYPE_BOOL; a < DTYPE_COUNT; a++)
        for (enum dtype b = DTYPE_BOOL; b < DTYPE_COUNT; b++)
            if (dtype_is_f8(a) && dtype_is_f8(b))
                f8_products(a, b);
}
