#include "tests/unit/infer.h"

#include <criterion/criterion.h>
#include <math.h>

Test(op_create, full) {
    static const struct infer_case cases[] = {
        {OP_FULL, "", INTS(DTYPE_F32, 0, 2, 3), FLOATS(1.5), .result = "f32(2,3)"},
        {OP_FULL, "", INTS(DTYPE_F16, 0), FLOATS(INFINITY), .result = "f16()"},
        {OP_FULL, "", INTS(DTYPE_BOOL, 1, 0), FLOATS(0), .result = "bool(0)"},
        {OP_FULL, "", INTS(DTYPE_F8E4M3, 7, 2), FLOATS(0.5), .result = "f8e4m3(2)"},
        {OP_FULL, "", INTS(DTYPE_U8, 255, 1), FLOATS(0), .result = "u8(1)"},
        {OP_FULL, "", INTS(DTYPE_I64, INT64_MIN, 1), FLOATS(0), .result = "i64(1)"},
        {OP_FULL, "", INTS(DTYPE_U16, UINT16_MAX, 1), FLOATS(0), .result = "u16(1)"},
        {OP_FULL, "", INTS(DTYPE_U32, UINT32_MAX, 1), FLOATS(0), .result = "u32(1)"},
        {OP_FULL, "", INTS(DTYPE_U64, INT64_MAX, 1), FLOATS(0), .result = "u64(1)"},
        {OP_FULL, "", INTS(DTYPE_U64, -1, 1), FLOATS(0x1p64), .result = "u64(1)"},
        {OP_FULL, "", INTS(DTYPE_U64, -1, 1), FLOATS(-1), FAILS(INVALID_ARGUMENT, "-1 is no value of u64")},
        {OP_FULL, "", INTS(DTYPE_U64, -1, 1), FLOATS(0), FAILS(INVALID_ARGUMENT, "-1 is no value of u64")},
        {OP_FULL, "", INTS(DTYPE_U64, INT64_MIN, 1), FLOATS(NAN), FAILS(INVALID_ARGUMENT, "is no value of u64")},
        {OP_FULL, "", INTS(DTYPE_U32, -1, 1), FLOATS(0x1p64), FAILS(INVALID_ARGUMENT, "-1 is no value of u32")},
        {OP_FULL, "", INTS(DTYPE_U16, 1 << 16, 1), FLOATS(0), FAILS(INVALID_ARGUMENT, "65536 is no value of u16")},
        {OP_FULL, "", INTS(DTYPE_BOOL, 2, 0), FLOATS(0), FAILS(INVALID_ARGUMENT, "2 is no value of bool")},
        {OP_FULL, "", INTS(DTYPE_U8, 256, 1), FLOATS(0), FAILS(INVALID_ARGUMENT, "256")},
        {OP_FULL, "", INTS(DTYPE_U8, -1, 1), FLOATS(0), FAILS(INVALID_ARGUMENT, "-1")},
        {OP_FULL, "", INTS(DTYPE_I8, 128, 1), FLOATS(0), FAILS(INVALID_ARGUMENT, "128")},
        {OP_FULL, "", INTS(DTYPE_I16, -32769, 1), FLOATS(0), FAILS(INVALID_ARGUMENT, "i16")},
        {OP_FULL, "", INTS(DTYPE_I32, INT64_C(1) << 31, 1), FLOATS(0), FAILS(INVALID_ARGUMENT, "i32")},
        {OP_FULL, "", INTS(DTYPE_F32), FLOATS(0), FAILS(INVALID_ARGUMENT, "missing")},
        {OP_FULL, "", INTS(DTYPE_F32, 0, 1), FAILS(INVALID_ARGUMENT, "float")},
        {OP_FULL, "", INTS(0, 0, 1), FLOATS(0), FAILS(DTYPE, NULL)},
        {OP_FULL, "", INTS(DTYPE_F32, 0, -1), FLOATS(0), FAILS(SHAPE, "-1")},
        {OP_FULL, "", INTS(DTYPE_F32, 0, INT64_MAX), FLOATS(0), FAILS(SHAPE, "2^63")},
        {OP_FULL, "", INTS(DTYPE_F32, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1), FLOATS(0), FAILS(SHAPE, "rank 9")},
        {OP_FULL, "f32(2)", INTS(DTYPE_F32, 0), FLOATS(0), FAILS(INVALID_ARGUMENT, "0 inputs, not 1")},
    };
    INFER_CHECK(cases);
}

#define ARANGE_I(dtype, start, stop, step)                                                                             \
    {                                                                                                                  \
        OP_ARANGE, "", INTS(dtype, start, stop, step), FLOATS(0, 0, 0)
#define ARANGE_F(dtype, start, stop, step)                                                                             \
    {                                                                                                                  \
        OP_ARANGE, "", INTS(dtype, 0, 0, 0), FLOATS(start, stop, step)

Test(op_create,
     arange_of_integers){static const struct infer_case cases[] = {ARANGE_I(DTYPE_I64, 0, 10, 3), .result = "i64(4)"},
                         ARANGE_I(DTYPE_I64, 0, 9, 3), .result = "i64(3)"},
    ARANGE_I(DTYPE_I32, 5, 0, -2), .result = "i32(3)"
}
, ARANGE_I(DTYPE_I32, 5, 0, 1), .result = "i32(0)"
}
, ARANGE_I(DTYPE_I32, 5, 5, 1), .result = "i32(0)"
}
, ARANGE_I(DTYPE_U8, 0, 256, 1), .result = "u8(256)"
}
, ARANGE_I(DTYPE_I8, 127, -129, -1), .result = "i8(256)"
}
, ARANGE_I(DTYPE_I64, INT64_MIN, INT64_MAX, INT64_MAX), .result = "i64(3)"
}
, ARANGE_I(DTYPE_I64, INT64_MAX, INT64_MIN, INT64_MIN), .result = "i64(2)"
}
, ARANGE_I(DTYPE_U8, 0, 257, 1), FAILS(INVALID_ARGUMENT, "256 is no value of u8")
}
, ARANGE_I(DTYPE_U8, -1, 5, 1), FAILS(INVALID_ARGUMENT, "-1 is no value of u8")
}
, ARANGE_I(DTYPE_I64, 0, 1, 0), FAILS(INVALID_ARGUMENT, "step is 0")
}
, ARANGE_I(DTYPE_I64, INT64_MIN, INT64_MAX, 1), FAILS(SHAPE, "too many")
}
, ARANGE_I(DTYPE_I64, 0, INT64_MAX, 1), FAILS(SHAPE, "2^63")
}
, ARANGE_I(DTYPE_BOOL, 0, 2, 1), FAILS(DTYPE, "bool")
}
, ARANGE_I(99, 0, 2, 1), FAILS(DTYPE, "99")
}
,
}
;
INFER_CHECK(cases);
}

Test(op_create,
     arange_of_floats){static const struct infer_case cases[] = {ARANGE_F(DTYPE_F32, 0, 1, 0.25), .result = "f32(4)"},
                       ARANGE_F(DTYPE_F64, 0, 1.1, 0.25), .result = "f64(5)"},
    ARANGE_F(DTYPE_F64, 1, 0, -0.5), .result = "f64(2)"
}
, ARANGE_F(DTYPE_F64, 1, 0, 0.5), .result = "f64(0)"
}
, ARANGE_F(DTYPE_F32, 0, 1, 0), FAILS(INVALID_ARGUMENT, "steps of 0")
}
, ARANGE_F(DTYPE_F32, NAN, 1, 1), FAILS(INVALID_ARGUMENT, "nan")
}
, ARANGE_F(DTYPE_F32, 0, INFINITY, 1), FAILS(INVALID_ARGUMENT, "inf")
}
, ARANGE_F(DTYPE_F32, 0, 1, NAN), FAILS(INVALID_ARGUMENT, "nan")
}
, ARANGE_F(DTYPE_F32, 0, 1, 1e-300), FAILS(SHAPE, "too many")
}
, ARANGE_F(DTYPE_F32, -1e308, 1e308, 1), FAILS(SHAPE, "too many")
}
, ARANGE_F(DTYPE_F64, 0, 4e18, 1), FAILS(SHAPE, "2^63")
}
, ARANGE_F(DTYPE_F8E4M3, 0, 2, 1), FAILS(DTYPE, "gives no f8e4m3: ask for")
}
, ARANGE_F(DTYPE_F64, 0, 1, 5e-324), FAILS(SHAPE, "too many")
}
,
}
;
INFER_CHECK(cases);
}

/* The bounds of u64 are from -2^63 to 2^64 - 1; where the integer is negative and the float is not, 2^64 is added. */
Test(op_create, arange_beyond_the_signed_integers) {
    static const struct infer_case cases[] = {
        {OP_ARANGE, "", INTS(DTYPE_U64, 0, -1, INT64_MAX), FLOATS(0, 0x1p64, 0x1p63), .result = "u64(3)"},
        {OP_ARANGE, "", INTS(DTYPE_U64, -1, -1, INT64_MIN), FLOATS(0x1p64, -1, -0x1p63), .result = "u64(2)"},
        {OP_ARANGE, "", INTS(DTYPE_U64, 3, -1, -1), FLOATS(3, -1, -1), .result = "u64(4)"},
        {OP_ARANGE, "", INTS(DTYPE_U64, 3, -2, -1), FLOATS(3, -2, -1),
         FAILS(INVALID_ARGUMENT, "-1 is no value of u64")},
        {OP_ARANGE, "", INTS(DTYPE_U64, -1, 3, 1), FLOATS(-1, 3, 1), FAILS(INVALID_ARGUMENT, "-1 is no value of u64")},
        {OP_ARANGE, "", INTS(DTYPE_U64, -1, 3, 1), FLOATS(0x1p64, 3, 1), .result = "u64(0)"},
        {OP_ARANGE, "", INTS(DTYPE_U64, 0, -1, 1), FLOATS(0, 0x1p64, 1), FAILS(SHAPE, "too many")},
        {OP_ARANGE, "", INTS(DTYPE_U64, 0, 5, 0), FLOATS(0, 5, 0), FAILS(INVALID_ARGUMENT, "step is 0")},
        {OP_ARANGE, "", INTS(DTYPE_I64, 0, -1, 1), FLOATS(0, 0x1p64, 1), .result = "i64(0)"},
        {OP_ARANGE, "", INTS(DTYPE_U32, UINT32_MAX, INT64_C(1) << 32, 1), FLOATS(0, 0, 0), .result = "u32(1)"},
    };
    INFER_CHECK(cases);
}

Test(op_create, eye) {
    static const struct infer_case cases[] = {
        {OP_EYE, "", INTS(DTYPE_F32, 2, 3, -1), .result = "f32(2,3)"},
        {OP_EYE, "", INTS(DTYPE_BOOL, 0, 3, 100), .result = "bool(0,3)"},
        {OP_EYE, "", INTS(DTYPE_F32, -2, 3, 0), FAILS(SHAPE, "-2")},
        {OP_EYE, "", INTS(DTYPE_F32, 2, 3, INT64_MIN), FAILS(INVALID_ARGUMENT, "diagonal")},
        {OP_EYE, "", INTS(DTYPE_F32, 2, 3), FAILS(INVALID_ARGUMENT, NULL)},
        {OP_EYE, "", INTS(DTYPE_F32, INT64_C(1) << 40, INT64_C(1) << 40, 0), FAILS(SHAPE, "2^63")},
    };
    INFER_CHECK(cases);
}

Test(op_create, random_numbers) {
    static const struct infer_case cases[] = {
        {OP_UNIFORM, "", INTS(DTYPE_F32, -1, 0, 2, 3), FLOATS(-1, 1), .result = "f32(2,3)"},
        {OP_UNIFORM, "", INTS(DTYPE_F16, 7, 0), FLOATS(2, 2), .result = "f16()"},
        {OP_NORMAL, "", INTS(DTYPE_F64, 7, 5, 0), FLOATS(0, 0), .result = "f64(0)"},
        {OP_UNIFORM, "", INTS(DTYPE_I32, 7, 0, 2), FLOATS(0, 1), FAILS(DTYPE, "i32")},
        {OP_NORMAL, "", INTS(DTYPE_F8E5M2, 7, 0, 2), FLOATS(0, 1), FAILS(DTYPE, "gives no f8e5m2: ask for f16")},
        {OP_UNIFORM, "", INTS(DTYPE_F32, 7, 0, 2), FLOATS(1, 0), FAILS(INVALID_ARGUMENT, "from 1 to 0")},
        {OP_UNIFORM, "", INTS(DTYPE_F32, 7, 0, 2), FLOATS(NAN, 0), FAILS(INVALID_ARGUMENT, "nan")},
        {OP_UNIFORM, "", INTS(DTYPE_F32, 7, 0, 2), FLOATS(-1e308, 1e308), FAILS(INVALID_ARGUMENT, NULL)},
        {OP_UNIFORM, "", INTS(DTYPE_F32, 7, -1, 2), FLOATS(0, 1), FAILS(INVALID_ARGUMENT, "offset -1")},
        {OP_UNIFORM, "", INTS(DTYPE_F32, 7), FLOATS(0, 1), FAILS(INVALID_ARGUMENT, "missing")},
        {OP_NORMAL, "", INTS(DTYPE_F32, 7, 0, 2), FLOATS(0, -1), FAILS(INVALID_ARGUMENT, "deviation -1")},
        {OP_NORMAL, "", INTS(DTYPE_F32, 7, 0, 2), FLOATS(0, INFINITY), FAILS(INVALID_ARGUMENT, "inf")},
        {OP_NORMAL, "", INTS(DTYPE_F32, 7, 0, 2), FLOATS(0), FAILS(INVALID_ARGUMENT, NULL)},
        {OP_UNIFORM, "", INTS(DTYPE_F16, 7, 0, 2), FLOATS(-65504, 65504), .result = "f16(2)"},
        {OP_UNIFORM, "", INTS(DTYPE_F16, 7, 0, 2), FLOATS(-1e5, 1),
         FAILS(INVALID_ARGUMENT, "-100000 is out of range of f16")},
        {OP_UNIFORM, "", INTS(DTYPE_F16, 7, 0, 2), FLOATS(0, 65505), FAILS(INVALID_ARGUMENT, "65504")},
        {OP_UNIFORM, "", INTS(DTYPE_F32, 7, 0, 2), FLOATS(0, 1e39), FAILS(INVALID_ARGUMENT, "f32")},
        {OP_UNIFORM, "", INTS(DTYPE_F16, 7, 0, 2), FLOATS(1.0001, 1.0002),
         FAILS(INVALID_ARGUMENT, "no value from 1.0001")},
        {OP_UNIFORM, "", INTS(DTYPE_F16, 7, 0, 2), FLOATS(1.0, 1.0002), .result = "f16(2)"},
        {OP_NORMAL, "", INTS(DTYPE_F16, 7, 0, 2), FLOATS(1e30, 1),
         FAILS(INVALID_ARGUMENT, "1e+30 is out of range of f16")},
        {OP_NORMAL, "", INTS(DTYPE_BF16, 7, 0, 2), FLOATS(0, 1e300), FAILS(INVALID_ARGUMENT, "bf16")},
    };
    INFER_CHECK(cases);
}
