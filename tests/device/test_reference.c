/* The suite's own tools: what is compared with them must be beyond doubt. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "tests/device/suite.h"
#include "tests/device/tolerance.h"

Test(reference, every_narrow_float_keeps_its_bits) {
    static const enum dtype dtypes[] = {DTYPE_F16, DTYPE_BF16, DTYPE_F8E4M3, DTYPE_F8E5M2};
    for (int i = 0; i < 4; i++) {
        enum dtype dtype = dtypes[i];
        struct values *one = values_create(dtype, 0, NULL);
        for (unsigned bits = 0; bits < 1u << value_size(dtype) * 8; bits++) {
            uint16_t given = (uint16_t)bits, back = 0;
            values_decode(one, &given);
            values_encode(one, &back);
            if (!isnan(one->f[0]))
                cr_assert_eq(given, back, "%s %04x became %04x", value_name(dtype), given, back);
            cr_assert(isnan(one->f[0]) || value_round(dtype, one->f[0]) == one->f[0]);
        }
        values_destroy(one);
    }
}

Test(reference, rounding_is_that_of_the_hardware) {
    struct suite suite = {.random = 11};
    for (int i = 0; i < 200000; i++) {
        uint64_t bits = suite_random(&suite);
        double value;
        memcpy(&value, &bits, sizeof value);
        if (isnan(value))
            continue;
        cr_assert_eq(value_round(DTYPE_F32, value), (long double)(float)value, "%a", value);
        cr_assert_eq(value_round(DTYPE_F64, value), (long double)value, "%a", value);
    }
}

Test(reference, known_values_round_as_published) {
    cr_assert_eq(value_round(DTYPE_F16, 65519.99L), 65504.0L);
    cr_assert_eq(value_round(DTYPE_F16, 65520.0L), (long double)INFINITY);
    cr_assert_eq(value_round(DTYPE_F16, 0x1p-25L), 0.0L);
    cr_assert_eq(value_round(DTYPE_F16, 0x1.8p-25L), 0x1p-24L);
    cr_assert_eq(value_round(DTYPE_BF16, 1 + 0x1p-8L), 1.0L);
    cr_assert_eq(value_round(DTYPE_BF16, 1 + 0x3p-8L), 1 + 0x1p-6L);
    cr_assert_eq(value_max(DTYPE_F8E4M3), 448.0L);
    cr_assert_eq(value_max(DTYPE_F8E5M2), 57344.0L);
    cr_assert_eq(value_round(DTYPE_F8E4M3, 464.0L), 448.0L);
    cr_assert(isnan(value_round(DTYPE_F8E4M3, 464.01L)));
    cr_assert(isnan(value_round(DTYPE_F8E4M3, INFINITY)));
    cr_assert_eq(value_round(DTYPE_F8E4M3, 0x1p-10L), 0.0L);
    cr_assert_eq(value_round(DTYPE_F8E4M3, 0x1.8p-9L), 0x1p-8L);
    cr_assert_eq(value_round(DTYPE_F8E5M2, 61439.0L), 57344.0L);
    cr_assert_eq(value_round(DTYPE_F8E5M2, 61440.0L), (long double)INFINITY);
    cr_assert_eq(value_wrap(DTYPE_I8, 128), -128);
    cr_assert_eq(value_wrap(DTYPE_U8, -1), 255);
    cr_assert_eq(reference_promote(DTYPE_U8, DTYPE_I8), DTYPE_I16);
    cr_assert_eq(reference_promote(DTYPE_F16, DTYPE_BF16), DTYPE_F32);
    cr_assert_eq(reference_promote(DTYPE_I64, DTYPE_F16), DTYPE_F16);
}

Test(reference, a_result_off_by_more_than_allowed_is_noticed) {
    struct values *want = values_create(DTYPE_F32, 0, NULL), *got = values_create(DTYPE_F32, 0, NULL);
    want->f[0] = 1;
    got->f[0] = 1 + 0x1p-23L;
    cr_assert_not(tolerance_holds(OP_ADD, want, got, 0));
    cr_assert(tolerance_holds(OP_EXP, want, got, 0));
    got->f[0] = 1 + 0x1p-20L;
    cr_assert_not(tolerance_holds(OP_EXP, want, got, 0));
    want->f[0] = 0;
    got->f[0] = -0.0L;
    cr_assert_not(tolerance_holds(OP_MULTIPLY, want, got, 0));
    cr_assert(tolerance_holds(OP_MAXIMUM, want, got, 0));
    got->f[0] = NAN;
    cr_assert_not(tolerance_holds(OP_MATMUL, want, got, 0));
    want->f[0] = INFINITY;
    got->f[0] = -INFINITY;
    cr_assert_not(tolerance_holds(OP_EXP, want, got, 0));
    values_destroy(want);
    values_destroy(got);
}

/* The published test vectors of Philox4x32-10 fix the words; this is the one with counter and key of ones and zeros
 * that the fill can reach: seed 0, block 0 gives 6627e8d5 e169c58d bc57ac4c 9b00dbd8. */
Test(reference, the_generator_gives_the_published_words) {
    static const uint32_t words[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    int64_t ints[] = {DTYPE_F32, 0, 0, 4};
    double floats[] = {0, 1};
    struct reference_request request = {.opcode = OP_UNIFORM,
                                        .attributes = {.ints = ints, .floats = floats, .n_ints = 4, .n_floats = 2}};
    struct values *values = reference_run(&request);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(values->f[i], (long double)(words[i] >> 8) * 0x1p-24L, "word %d", i);
    values_destroy(values);
}
