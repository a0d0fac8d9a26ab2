#include "proto/ops/dtype.h"

#include <criterion/criterion.h>
#include <math.h>

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

/* Every value of a half: its neighbours, and what lies between them. */
static double half_value(enum dtype dtype, unsigned bits) {
    int fraction = dtype == DTYPE_F16 ? 10 : 7, exponent = (int)(bits >> fraction & (dtype == DTYPE_F16 ? 31 : 255));
    double significand = (double)(bits & ((1u << fraction) - 1)) + (exponent ? ldexp(1, fraction) : 0);
    return ldexp(significand, (exponent ? exponent : 1) - (dtype == DTYPE_F16 ? 15 : 127) - fraction);
}

Test(dtype, neighbours_of_every_half) {
    for (int i = 0; i < 2; i++) {
        enum dtype dtype = i ? DTYPE_BF16 : DTYPE_F16;
        unsigned most = i ? 0x7f7f : 0x7bff;
        cr_assert_eq(dtype_largest(dtype), half_value(dtype, most));
        for (unsigned bits = 0; bits < most; bits++) {
            double low = half_value(dtype, bits), high = half_value(dtype, bits + 1), middle = low + (high - low) / 3;
            cr_assert_eq(dtype_not_below(dtype, low), low);
            cr_assert_eq(dtype_not_below(dtype, middle), high, "%a", middle);
            cr_assert_eq(dtype_not_below(dtype, -middle), -low, "%a", -middle);
            cr_assert_eq(dtype_below(dtype, high), low, "%a", high);
            cr_assert_eq(dtype_below(dtype, middle), low, "%a", middle);
            cr_assert_eq(dtype_below(dtype, -low), -high, "%a", -low);
            cr_assert_eq(dtype_below(dtype, -middle), -high, "%a", -middle);
        }
    }
}

Test(dtype, neighbours_of_floats_and_doubles) {
    const double values[] = {0, 1, -1, 1.5, -2, 0x1p-1022, 0x1p-1074, -0x1p-1074, 0.1, 3e300, -3e300};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        cr_assert_eq(dtype_not_below(DTYPE_F64, values[i]), values[i]);
        cr_assert_eq(dtype_below(DTYPE_F64, values[i]), nextafter(values[i], -INFINITY), "%a", values[i]);
    }
    for (size_t i = 0; i < 9; i++) {
        float nearest = (float)values[i];
        double up = (double)nearest >= values[i] ? (double)nearest : (double)nextafterf(nearest, INFINITY);
        double down = (double)nearest < values[i] ? (double)nearest : (double)nextafterf(nearest, -INFINITY);
        cr_assert_eq(dtype_not_below(DTYPE_F32, values[i]), up, "%a", values[i]);
        cr_assert_eq(dtype_below(DTYPE_F32, values[i]), down, "%a", values[i]);
    }
    cr_assert_eq(dtype_largest(DTYPE_F32), 0x1.fffffep127);
    cr_assert_eq(dtype_largest(DTYPE_F64), 0x1.fffffffffffffp1023);
}

/* The f8 formats promote with nothing but themselves; of integers, u64 does not with those that have a sign. */
static bool promotes(int a, int b) {
    enum dtype x = (enum dtype)a, y = (enum dtype)b;
    bool integers = dtype_kind(x) == DTYPE_KIND_INT && dtype_kind(y) == DTYPE_KIND_INT;
    bool mixed = dtype_is_unsigned(x) != dtype_is_unsigned(y) && (x == DTYPE_U64 || y == DTYPE_U64);
    return a == b || !(dtype_is_f8(x) || dtype_is_f8(y) || (integers && mixed));
}

/* Floats and complex numbers are one: the standard defines how they mix. */
static enum dtype_kind family_of(int dtype) {
    enum dtype_kind kind = dtype_kind((enum dtype)dtype);
    return kind == DTYPE_KIND_COMPLEX ? DTYPE_KIND_FLOAT : kind;
}

/* Where NumPy does not go beyond the standard: it has f64 for u64 with a signed integer, and for integers with floats. */
Test(dtype, promotion_within_a_kind_is_that_of_numpy) {
    static const struct {
        enum dtype a, b, both;
    } rows[] = {
#define PROMOTION(a, b, both) {DTYPE_##a, DTYPE_##b, DTYPE_##both},
#include "tests/unit/promotion.inc"
    };
    unsigned seen = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cr_expect_eq(dtype_promote(rows[i].a, rows[i].b), rows[i].both, "%s with %s: %s, not %s", dtype_name(rows[i].a),
                     dtype_name(rows[i].b), dtype_name(dtype_promote(rows[i].a, rows[i].b)), dtype_name(rows[i].both));
    for (int a = 1; a < DTYPE_COUNT; a++)
        for (int b = 1; b < DTYPE_COUNT; b++)
            seen += family_of(a) == family_of(b) && promotes(a, b) && !dtype_is_f8((enum dtype)a);
    cr_expect_eq(sizeof rows / sizeof *rows, seen, "%zu rows for %u pairs", sizeof rows / sizeof *rows, seen);
}

Test(dtype, integers_that_a_dtype_holds) {
    static const struct {
        enum dtype dtype;
        int64_t low, high; /* the ends; what is beyond them by one is no value */
    } rows[] = {{DTYPE_BOOL, 0, 1},
                {DTYPE_U8, 0, UINT8_MAX},
                {DTYPE_U16, 0, UINT16_MAX},
                {DTYPE_U32, 0, UINT32_MAX},
                {DTYPE_I8, INT8_MIN, INT8_MAX},
                {DTYPE_I16, INT16_MIN, INT16_MAX},
                {DTYPE_I32, INT32_MIN, INT32_MAX}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cr_expect(dtype_holds(rows[i].dtype, rows[i].low, false) && dtype_holds(rows[i].dtype, rows[i].high, false));
        cr_expect_not(dtype_holds(rows[i].dtype, rows[i].low - 1, false), "%s", dtype_name(rows[i].dtype));
        cr_expect_not(dtype_holds(rows[i].dtype, rows[i].high + 1, false), "%s", dtype_name(rows[i].dtype));
        cr_expect_not(dtype_holds(rows[i].dtype, INT64_MIN, false), "%s", dtype_name(rows[i].dtype));
        cr_expect_not(dtype_holds(rows[i].dtype, -1, true), "%s", dtype_name(rows[i].dtype));
    }
    cr_expect(dtype_holds(DTYPE_I64, INT64_MIN, false) && dtype_holds(DTYPE_I64, INT64_MAX, false));
    cr_expect_not(dtype_holds(DTYPE_I64, INT64_MIN, true));
    cr_expect(dtype_holds(DTYPE_U64, 0, false) && dtype_holds(DTYPE_U64, INT64_MAX, false));
    cr_expect(dtype_holds(DTYPE_U64, INT64_MIN, true) && dtype_holds(DTYPE_U64, -1, true));
    cr_expect_not(dtype_holds(DTYPE_U64, -1, false));
    cr_expect_not(dtype_holds(DTYPE_U64, INT64_MIN, false));
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
    cr_assert_eq(dtype_promote(DTYPE_U16, DTYPE_I8), DTYPE_I32);
    cr_assert_eq(dtype_promote(DTYPE_I32, DTYPE_U32), DTYPE_I64);
    cr_assert_eq(dtype_promote(DTYPE_U8, DTYPE_U64), DTYPE_U64);
    cr_assert_eq(dtype_promote(DTYPE_U64, DTYPE_I8), DTYPE_INVALID);
    cr_assert_eq(dtype_promote(DTYPE_U64, DTYPE_BF16), DTYPE_BF16);
    cr_assert_eq(dtype_promote(DTYPE_I64, DTYPE_C64), DTYPE_C64);
    cr_assert_eq(dtype_promote(DTYPE_F64, DTYPE_C64), DTYPE_C128);
    cr_assert_eq(dtype_promote(DTYPE_F8E5M2, DTYPE_C64), DTYPE_INVALID);
}

Test(dtype, floats_stay_what_they_are_and_all_else_is_f32) {
    for (int a = 1; a < DTYPE_COUNT; a++) {
        enum dtype dtype = (enum dtype)a;
        cr_assert_eq(dtype_to_float(dtype), dtype_kind(dtype) >= DTYPE_KIND_FLOAT ? dtype : DTYPE_F32);
    }
}
