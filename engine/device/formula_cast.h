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

FORMULA_FUNCTION uint8_t formula_float_to_u8(float x) {
    return (uint8_t)(int32_t)(x != x ? 0 : x > 255 ? 255 : x < 0 ? 0 : x);
}
FORMULA_FUNCTION int8_t formula_float_to_i8(float x) {
    return (int8_t)(int32_t)(x != x ? 0 : x > 127 ? 127 : x < -128 ? -128 : x);
}
FORMULA_FUNCTION int16_t formula_float_to_i16(float x) {
    return (int16_t)(int32_t)(x != x ? 0 : x > 32767 ? 32767 : x < -32768 ? -32768 : x);
}
/* 2^31 - 128 is the largest float below 2^31: what is beyond is clamped to it first, so that the conversion is defined. */
FORMULA_FUNCTION int32_t formula_float_to_i32(float x) {
    float clamped = x != x ? 0 : x > 0x1.fffffep30f ? 0x1.fffffep30f : x < -0x1p31f ? -0x1p31f : x;
    int32_t whole = (int32_t)clamped;
    return x >= 0x1p31f ? INT32_MAX : whole;
}
FORMULA_FUNCTION int64_t formula_float_to_i64(float x) {
    float clamped = x != x ? 0 : x > 0x1.fffffep62f ? 0x1.fffffep62f : x < -0x1p63f ? -0x1p63f : x;
    int64_t whole = (int64_t)clamped;
    return x >= 0x1p63f ? INT64_MAX : whole;
}
FORMULA_FUNCTION uint8_t formula_double_to_u8(double x) {
    return (uint8_t)(int32_t)(x != x ? 0 : x > 255 ? 255 : x < 0 ? 0 : x);
}
FORMULA_FUNCTION int8_t formula_double_to_i8(double x) {
    return (int8_t)(int32_t)(x != x ? 0 : x > 127 ? 127 : x < -128 ? -128 : x);
}
FORMULA_FUNCTION int16_t formula_double_to_i16(double x) {
    return (int16_t)(int32_t)(x != x ? 0 : x > 32767 ? 32767 : x < -32768 ? -32768 : x);
}
FORMULA_FUNCTION int32_t formula_double_to_i32(double x) {
    return (int32_t)(x != x ? 0 : x > 2147483647.0 ? 2147483647.0 : x < -2147483648.0 ? -2147483648.0 : x);
}
FORMULA_FUNCTION int64_t formula_double_to_i64(double x) {
    double clamped = x != x ? 0 : x > 0x1.fffffffffffffp62 ? 0x1.fffffffffffffp62 : x < -0x1p63 ? -0x1p63 : x;
    int64_t whole = (int64_t)clamped;
    return x >= 0x1p63 ? INT64_MAX : whole;
}

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
FORMULA_FUNCTION float formula_odd_i32(int32_t x) {
    return formula_odd((double)x);
}
