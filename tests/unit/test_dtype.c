#include "proto/dtype.h"

#include <criterion/criterion.h>

Test(dtype, names_and_sizes) {
    cr_assert_str_eq(dtype_name(DTYPE_BF16), "bf16");
    cr_assert_eq(dtype_size(DTYPE_BOOL), 1u);
    cr_assert_eq(dtype_size(DTYPE_F64), 8u);
    cr_assert_str_eq(dtype_name(DTYPE_F8E4M3), "f8e4m3");
    cr_assert_str_eq(dtype_name(DTYPE_F8E5M2), "f8e5m2");
    cr_assert_eq(dtype_size(DTYPE_F8E5M2), 1u);
}

Test(dtype, what_is_no_dtype_has_no_size) {
    const int numbers[] = {-1, 0, DTYPE_COUNT, 1000, -2147483647};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        enum dtype dtype = (enum dtype)numbers[i];
        cr_assert_not(dtype_valid(numbers[i]));
        cr_assert_eq(dtype_size(dtype), 0u);
        cr_assert_str_eq(dtype_name(dtype), "invalid");
        cr_assert_eq(dtype_promote(dtype, DTYPE_F32), DTYPE_INVALID);
        cr_assert_eq(dtype_promote(DTYPE_F32, dtype), DTYPE_INVALID);
    }
}

/* The f8 formats promote with nothing but themselves. */
static bool promotes(int a, int b) {
    return a == b || !(dtype_is_f8((enum dtype)a) || dtype_is_f8((enum dtype)b));
}

Test(dtype, promotion_is_complete_and_symmetric) {
    for (int a = 1; a < DTYPE_COUNT; a++) {
        cr_assert_eq(dtype_promote((enum dtype)a, (enum dtype)a), (enum dtype)a);
        for (int b = 1; b < DTYPE_COUNT; b++) {
            enum dtype ab = dtype_promote((enum dtype)a, (enum dtype)b);
            cr_assert_eq(dtype_valid((int)ab), promotes(a, b), "%d with %d", a, b);
            cr_assert_eq(ab, dtype_promote((enum dtype)b, (enum dtype)a));
        }
    }
}

Test(dtype, promotion_never_falls_below_either_and_is_no_wider_than_needed) {
    for (int a = 1; a < DTYPE_COUNT; a++) {
        for (int b = 1; b < DTYPE_COUNT; b++) {
            if (!promotes(a, b)) {
                continue;
            }
            enum dtype x = (enum dtype)a, y = (enum dtype)b, xy = dtype_promote(x, y);
            enum dtype_kind kind = dtype_kind(x) > dtype_kind(y) ? dtype_kind(x) : dtype_kind(y);
            cr_assert_eq(dtype_kind(xy), kind);
            cr_assert_eq(dtype_promote(xy, x), xy, "%s with %s", dtype_name(x), dtype_name(y));
            cr_assert_eq(dtype_promote(xy, y), xy, "%s with %s", dtype_name(x), dtype_name(y));
        }
    }
}

Test(dtype, promotion_of_the_standard_and_across_kinds) {
    cr_assert_eq(dtype_promote(DTYPE_U8, DTYPE_I8), DTYPE_I16);
    cr_assert_eq(dtype_promote(DTYPE_U8, DTYPE_I16), DTYPE_I16);
    cr_assert_eq(dtype_promote(DTYPE_I8, DTYPE_I32), DTYPE_I32);
    cr_assert_eq(dtype_promote(DTYPE_F16, DTYPE_BF16), DTYPE_F32);
    cr_assert_eq(dtype_promote(DTYPE_F32, DTYPE_F64), DTYPE_F64);
    cr_assert_eq(dtype_promote(DTYPE_I64, DTYPE_F16), DTYPE_F16);
    cr_assert_eq(dtype_promote(DTYPE_BOOL, DTYPE_U8), DTYPE_U8);
}

Test(dtype, floats_stay_what_they_are_and_all_else_is_f32) {
    for (int a = 1; a < DTYPE_COUNT; a++) {
        enum dtype dtype = (enum dtype)a;
        cr_assert_eq(dtype_to_float(dtype), dtype_kind(dtype) == DTYPE_KIND_FLOAT ? dtype : DTYPE_F32);
    }
}
