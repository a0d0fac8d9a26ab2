#include "tests/unit/infer.h"

#include <criterion/criterion.h>

Test(op_complex, dtypes_of_results) {
    static const struct infer_case cases[] = {
        {OP_REAL, "c64(2,3)", .result = "f32(2,3)"},
        {OP_IMAG, "c128(2)", .result = "f64(2)"},
        {OP_ANGLE, "c64()", .result = "f32()"},
        {OP_CONJ, "c128(2)", .result = "c128(2)"},
        {OP_ABS, "c64(2)", .result = "f32(2)"},
        {OP_ABS, "c128(2)", .result = "f64(2)"},
        {OP_ABS, "i16(2)", .result = "i16(2)"},
        {OP_ADD, "c64(2,1) f32(3)", .result = "c64(2,3)"},
        {OP_ADD, "c64(2) f64(2)", .result = "c128(2)"},
        {OP_MULTIPLY, "i64(2) c64(2)", .result = "c64(2)"},
        {OP_DIVIDE, "c64(2) c128()", .result = "c128(2)"},
        {OP_EQUAL, "c64(2) bool(2)", .result = "bool(2)"},
        {OP_EXP, "c64(2)", .result = "c64(2)"},
        {OP_LOGICAL_NOT, "c128(2)", .result = "bool(2)"},
        {OP_SUM, "c64(2,3)", INTS(0, 0), .result = "c64(3)"},
        {OP_MEAN, "c128(2)", INTS(0), .result = "c128()"},
        {OP_ANY, "c64(2)", INTS(0), .result = "bool()"},
        {OP_PROD, "c64(2,3)", INTS(0, 1), .result = "c64(2)"},
        {OP_COUNT_NONZERO, "c128(2,3)", INTS(0, 1), .result = "i64(2)"},
        {OP_CUMULATIVE_SUM, "c128(2,3)", INTS(1, 1), .result = "c128(2,4)"},
        {OP_MATMUL, "c64(2,3) f32(3,4)", .result = "c64(2,4)"},
        {OP_POW, "c64(2) i32(2)", .result = "c64(2)"},
        {OP_SIGN, "c64(2)", .result = "c64(2)"},
        {OP_SQUARE, "c128(2)", .result = "c128(2)"},
        {OP_RECIPROCAL, "c64(2)", .result = "c64(2)"},
        {OP_ISFINITE, "c64(2)", .result = "bool(2)"},
        {OP_LOGICAL_XOR, "c64(2) i8(2)", .result = "bool(2)"},
        {OP_SCATTER, "c64(3) i64(2) f64(2)", INTS(0), .result = "c128(3)"},
        {OP_TRIL, "c64(3,2)", INTS(0), .result = "c64(3,2)"},
        {OP_CONCAT, "c64(2) f64(3)", INTS(0), .result = "c128(5)"},
        {OP_REAL, "f32(2)", FAILS(DTYPE, "takes complex numbers, not f32")},
        {OP_LESS, "c64(2) c64(2)", FAILS(DTYPE, "takes real numbers, not c64")},
        {OP_MAXIMUM, "c64(2) f32(2)", FAILS(DTYPE, "takes real numbers, not c64")},
        {OP_MAX, "c64(2)", INTS(0), FAILS(DTYPE, "takes real numbers, not c64")},
        {OP_ARGMAX, "c64(2)", INTS(0), FAILS(DTYPE, "c64")},
        {OP_TANH, "c128(2)", FAILS(DTYPE, "c128")},
        {OP_CLIP, "c64(2) f32(2) f32(2)", FAILS(DTYPE, "takes real numbers, not c64")},
        {OP_FLOOR, "c64(2)", FAILS(DTYPE, "takes real numbers, not c64")},
        {OP_SIGNBIT, "c64(2)", FAILS(DTYPE, "takes real numbers, not c64")},
        {OP_BITWISE_AND, "c64(2) i8(2)", FAILS(DTYPE, "takes integers and bool, not c64")},
        {OP_VAR, "c64(2)", INTS(0), FLOATS(0), FAILS(DTYPE, "takes real numbers, not c64")},
        {OP_LOGSUMEXP, "c64(2)", INTS(0), FAILS(DTYPE, "takes real numbers, not c64")},
        {OP_SORT, "c64(2)", INTS(0, 0), FAILS(DTYPE, "takes real numbers, not c64")},
        {OP_SCATTER_ADD, "c64(3) i64(2) c64(2)", INTS(0), FAILS(DTYPE, "takes real numbers, not c64")},
        {OP_SOFTMAX, "c64(2)", INTS(0), FAILS(DTYPE, "takes floating dtypes, not c64")},
        {OP_ADD, "c64(2) f8e4m3(2)", FAILS(DTYPE, "takes no f8e4m3")},
    };
    INFER_CHECK(cases);
}

Test(op_complex, casts) {
    static const struct infer_case cases[] = {
        {OP_CAST, "c64(2)", INTS(DTYPE_C128), .result = "c128(2)"},
        {OP_CAST, "c128(2)", INTS(DTYPE_C64), .result = "c64(2)"},
        {OP_CAST, "i8(2)", INTS(DTYPE_C64), .result = "c64(2)"},
        {OP_CAST, "f8e5m2(2)", INTS(DTYPE_C128), .result = "c128(2)"},
        {OP_CAST, "c64(2)", INTS(DTYPE_BOOL), .result = "bool(2)"},
        {OP_CAST, "c64(2)", INTS(DTYPE_F32),
         FAILS(DTYPE, "a c64 is not cast to f32: take its real or imag part, or abs")},
        {OP_CAST, "c128(2)", INTS(DTYPE_I64), FAILS(DTYPE, "a c128 is not cast to i64")},
        {OP_FULL, "", INTS(DTYPE_C64, 0, 2), FLOATS(1), .result = "c64(2)"},
        {OP_EYE, "", INTS(DTYPE_C128, 2, 3, 0), .result = "c128(2,3)"},
        {OP_ONE_HOT, "u8(5)", INTS(10, DTYPE_C64), .result = "c64(5,10)"},
        {OP_ARANGE, "", INTS(DTYPE_C64, 0, 1, 1), FLOATS(0, 1, 1), FAILS(DTYPE, "gives real numbers, not c64")},
        {OP_UNIFORM, "", INTS(DTYPE_C64, 1, 0, 2), FLOATS(0, 1), FAILS(DTYPE, "gives floating dtypes, not c64")},
    };
    INFER_CHECK(cases);
}
