/* How numbers change their dtype, one element at a time: the same text for the CPU's loops, CUDA's kernels and NVRTC (formula.h says
 * more). The conversions from and to f16 and bf16 are a device's own. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifndef FORMULA_FUNCTION
#define FORMULA_FUNCTION static inline
#endif

/* a + b · c, rounded twice. */
FORMULA_FUNCTION double formula_multiply_add(double a, double b, double c) {
#ifdef __CUDA_ARCH__
    return __dadd_rn(a, __dmul_rn(b, c));
#else
    return a + b * c;
#endif
}

/* ---- casts: float to integer truncates and saturates, NaN gives 0 ---- */

/* Where the float's type has both ends of the integers. */
#define FORMULA_CAST(from, name, T, low, high)                                                                         \
    FORMULA_FUNCTION T formula_##from##_to_##name(from x) {                                                            \
        return (T)(int32_t)(x != x ? 0 : x > high ? high : x < low ? low : x);                                         \
    }
FORMULA_CAST(float, u8, uint8_t, 0, 255)
FORMULA_CAST(float, u16, uint16_t, 0, 65535)
FORMULA_CAST(float, i8, int8_t, -128, 127)
FORMULA_CAST(float, i16, int16_t, -32768, 32767)
FORMULA_CAST(double, u8, uint8_t, 0, 255)
FORMULA_CAST(double, u16, uint16_t, 0, 65535)
FORMULA_CAST(double, i8, int8_t, -128, 127)
FORMULA_CAST(double, i16, int16_t, -32768, 32767)
FORMULA_CAST(double, i32, int32_t, -2147483648.0, 2147483647.0)

/* Where it has not: larger numbers are clamped to the last one below 2^31, 2^32, 2^63 or 2^64 first, so that the conversion is
 * defined. */
#define FORMULA_CAST_WIDE(from, name, T, low, last, power, most)                                                       \
    FORMULA_FUNCTION T formula_##from##_to_##name(from x) {                                                            \
        from clamped = x != x ? 0 : x > last ? last : x < low ? low : x;                                               \
        T whole = (T)clamped;                                                                                          \
        return x >= power ? most : whole;                                                                              \
    }
FORMULA_CAST_WIDE(float, i32, int32_t, -0x1p31f, 0x1.fffffep30f, 0x1p31f, INT32_MAX)
FORMULA_CAST_WIDE(float, u32, uint32_t, 0, 0x1.fffffep31f, 0x1p32f, UINT32_MAX)
FORMULA_CAST_WIDE(float, i64, int64_t, -0x1p63f, 0x1.fffffep62f, 0x1p63f, INT64_MAX)
FORMULA_CAST_WIDE(float, u64, uint64_t, 0, 0x1.fffffep63f, 0x1p64f, UINT64_MAX)
FORMULA_CAST_WIDE(double, u32, uint32_t, 0, 0x1.fffffffep31, 0x1p32, UINT32_MAX)
FORMULA_CAST_WIDE(double, i64, int64_t, -0x1p63, 0x1.fffffffffffffp62, 0x1p63, INT64_MAX)
FORMULA_CAST_WIDE(double, u64, uint64_t, 0, 0x1.fffffffffffffp63, 0x1p64, UINT64_MAX)

/* ---- casts to halves: a float that, rounded once more to f16 or bf16, gives what one rounding gives ---- */

FORMULA_FUNCTION uint32_t float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

FORMULA_FUNCTION float bits_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

FORMULA_FUNCTION uint64_t double_bits(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

FORMULA_FUNCTION double bits_double(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* f64 to f32 by "round to odd". */
FORMULA_FUNCTION float formula_odd(double x) {
    float nearest = (float)x;
    uint32_t bits = float_bits(nearest);
    double back = (double)nearest, magnitude = fabs(x);
    uint32_t truncated = bits - (fabs(back) > magnitude ? 1 : 0);
    return bits_float(back == x || x != x ? bits : truncated | 1);
}

/* Above 2^40 the low 16 bits count only as "not zero": 47 bits remain, which f64 holds, and a half has 11 at most. */
FORMULA_FUNCTION float formula_odd_i64(int64_t x) {
    int64_t sticky = (x & ~INT64_C(0xffff)) | ((x & 0xffff) != 0 ? 0x8000 : 0);
    int64_t small = x > -(INT64_C(1) << 40) && x < INT64_C(1) << 40;
    return formula_odd((double)(small ? x : sticky));
}
FORMULA_FUNCTION float formula_odd_u64(uint64_t x) {
    uint64_t sticky = (x & ~UINT64_C(0xffff)) | ((x & 0xffff) != 0 ? 0x8000 : 0);
    return formula_odd((double)(x < UINT64_C(1) << 40 ? x : sticky));
}
FORMULA_FUNCTION float formula_odd_i32(int32_t x) {
    return formula_odd((double)x);
}
FORMULA_FUNCTION float formula_odd_u32(uint32_t x) {
    return formula_odd((double)x);
}
