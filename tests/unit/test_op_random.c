/* Rules of random numbers; those of uniform and normal are tested with other tensors made from attributes alone. */
#include <criterion/criterion.h>
#include <math.h>

#include "tests/unit/infer.h"

Test(op_random, integers_are_values_of_the_dtype) {
    static const struct infer_case cases[] = {
        {OP_RANDINT, "", INTS(DTYPE_U8, 1, 0, 0, 256, 2, 3), .result = "u8(2,3)"},
        {OP_RANDINT, "", INTS(DTYPE_I64, 1, 0, INT64_MIN, INT64_MAX), .result = "i64()"},
        {OP_RANDINT, "", INTS(DTYPE_U8, 1, 0, 0, 257, 2), FAILS(INVALID_ARGUMENT, "256 is no value of u8")},
        {OP_RANDINT, "", INTS(DTYPE_U8, 1, 0, -1, 25, 2), FAILS(INVALID_ARGUMENT, "-1 is no value of u8")},
        {OP_RANDINT, "", INTS(DTYPE_I32, 1, 0, 5, 5, 2), FAILS(INVALID_ARGUMENT, "no integers from 5 to below 5")},
        {OP_RANDINT, "", INTS(DTYPE_I32, 1, -1, 5, 6, 2), FAILS(INVALID_ARGUMENT, "offset -1")},
        {OP_RANDINT, "", INTS(DTYPE_F32, 1, 0, 5, 6, 2), FAILS(DTYPE, "f32")},
        {OP_RANDINT, "", INTS(DTYPE_I32, 1, 0, 5, 6, -2), FAILS(SHAPE, NULL)},
    };
    INFER_CHECK(cases);
}

Test(op_random, probabilities_and_rates) {
    static const struct infer_case cases[] = {
        {OP_BERNOULLI, "", INTS(DTYPE_BOOL, 1, 0, 2), FLOATS(1), .result = "bool(2)"},
        {OP_BERNOULLI, "", INTS(DTYPE_F64, 1, 0), FLOATS(0), .result = "f64()"},
        {OP_BERNOULLI, "", INTS(DTYPE_BOOL, 1, 0, 2), FLOATS(1.5), FAILS(INVALID_ARGUMENT, "1.5, not between 0 and 1")},
        {OP_BERNOULLI, "", INTS(DTYPE_BOOL, 1, 0, 2), FLOATS(NAN), FAILS(INVALID_ARGUMENT, "not between 0 and 1")},
        {OP_EXPONENTIAL, "", INTS(DTYPE_F16, 1, 0, 2), FLOATS(3), .result = "f16(2)"},
        {OP_EXPONENTIAL, "", INTS(DTYPE_F16, 1, 0, 2), FLOATS(-1), FAILS(INVALID_ARGUMENT, "scale -1")},
        {OP_EXPONENTIAL, "", INTS(DTYPE_F16, 1, 0, 2), FLOATS(INFINITY),
         FAILS(INVALID_ARGUMENT, "inf is out of range of f16")},
        {OP_DROPOUT, "bf16(2,3)", INTS(1, 0), FLOATS(0.5), .result = "bf16(2,3)"},
        {OP_DROPOUT, "bf16(2,3)", INTS(1, 0), FLOATS(-0.5), FAILS(INVALID_ARGUMENT, "not between 0 and 1")},
        {OP_DROPOUT, "i32(2,3)", INTS(1, 0), FLOATS(0.5), FAILS(DTYPE, "i32")},
        {OP_BERNOULLI_LIKE, "f32(2,3)", INTS(1, 0), .result = "f32(2,3)"},
        {OP_BERNOULLI_LIKE, "f32(2,3)", INTS(1, -4), FAILS(INVALID_ARGUMENT, "offset -4")},
    };
    INFER_CHECK(cases);
}

Test(op_random, permutations_and_positions) {
    static const struct infer_case cases[] = {
        {OP_PERMUTATION, "", INTS(DTYPE_I64, 0, 1), .result = "i64(0)"},
        {OP_PERMUTATION, "", INTS(DTYPE_I8, 128, 1), .result = "i8(128)"},
        {OP_PERMUTATION, "", INTS(DTYPE_I8, 129, 1), FAILS(INVALID_ARGUMENT, "i8 has no 129 numbers from 0 on")},
        {OP_PERMUTATION, "", INTS(DTYPE_I64, -1, 1), FAILS(INVALID_ARGUMENT, "-1 numbers")},
        {OP_MULTINOMIAL, "f32(2,3)", INTS(7, 1, 1, 0), .result = "i64(2,7)"},
        {OP_MULTINOMIAL, "f16(3)", INTS(3, 0, 1, 0), .result = "i64(3)"},
        {OP_MULTINOMIAL, "f16(3)", INTS(4, 0, 1, 0), FAILS(INVALID_ARGUMENT, "4 samples of 3 positions without")},
        {OP_MULTINOMIAL, "f16(0)", INTS(4, 1, 1, 0), FAILS(INVALID_ARGUMENT, "4 samples of 0 positions")},
        {OP_MULTINOMIAL, "f16()", INTS(4, 1, 1, 0), FAILS(SHAPE, "rank 0")},
        {OP_MULTINOMIAL, "i32(3)", INTS(4, 1, 1, 0), FAILS(DTYPE, "i32")},
    };
    INFER_CHECK(cases);
}
