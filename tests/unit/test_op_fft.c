/* Shapes and dtypes of Fourier transforms. */
#include "tests/unit/infer.h"

#include <criterion/criterion.h>

Test(op_fft, shapes_and_dtypes) {
    static const struct infer_case cases[] = {
        {OP_FFT, "f32(2,5)", INTS(0, -1, 0), .result = "c64(2,5)"},
        {OP_FFT, "c128(2,5)", INTS(8, 0, 1), .result = "c128(8,5)"},
        {OP_IFFT, "c64(5)", INTS(3, 0, 2), .result = "c64(3)"},
        {OP_IFFT, "f64(5)", INTS(0, 0, 0), .result = "c128(5)"},
        {OP_RFFT, "f32(2,5)", INTS(0, 1, 0), .result = "c64(2,3)"},
        {OP_RFFT, "f64(6)", INTS(0, 0, 0), .result = "c128(4)"},
        {OP_RFFT, "f64(6)", INTS(1, 0, 0), .result = "c128(1)"},
        {OP_IRFFT, "c64(2,5)", INTS(0, 1, 0), .result = "f32(2,8)"},
        {OP_IRFFT, "c128(5)", INTS(9, 0, 0), .result = "f64(9)"},
        {OP_IRFFT, "c128(1)", INTS(1, 0, 0), .result = "f64(1)"},
        {OP_FFT, "c64(0,5)", INTS(0, 1, 0), .result = "c64(0,5)"},
    };
    INFER_CHECK(cases);
}

Test(op_fft, what_is_refused) {
    static const struct infer_case cases[] = {
        {OP_FFT, "i32(5)", INTS(0, 0, 0), FAILS(DTYPE, "i32")},
        {OP_FFT, "f16(5)", INTS(0, 0, 0), FAILS(DTYPE, "f16")},
        {OP_RFFT, "c64(5)", INTS(0, 0, 0), FAILS(DTYPE, "takes f32 and f64, not c64")},
        {OP_IRFFT, "f32(5)", INTS(0, 0, 0), FAILS(DTYPE, "takes complex numbers, not f32")},
        {OP_FFT, "f32(5)", INTS(0, 1, 0), FAILS(INVALID_ARGUMENT, "axis")},
        {OP_FFT, "f32(5)", INTS(-1, 0, 0), FAILS(INVALID_ARGUMENT, "n is -1, not 1 to 2^31 - 1")},
        {OP_FFT, "f32(5)", INTS((int64_t)1 << 31, 0, 0), FAILS(INVALID_ARGUMENT, "n is 2147483648, not 1 to 2^31 - 1")},
        {OP_FFT, "f32(0,5)", INTS(3, 0, 0), FAILS(SHAPE, "axis 0 has no elements, and there is no transform of none")},
        {OP_IRFFT, "c64(1)", INTS(0, 0, 0), FAILS(SHAPE, "axis 0 has one element, for which n must be given")},
        {OP_FFT, "f32(5)", INTS(0, 0, 3), FAILS(INVALID_ARGUMENT, "norm")},
    };
    INFER_CHECK(cases);
}
