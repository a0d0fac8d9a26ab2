/* The two floats of 8 bits, from and to f32: the same text for the CPU's loops and for CUDA's kernels, as formula.h.
 *
 *             sign, exponent, mantissa   bias   largest   smallest   special
 *   f8e4m3    1, 4, 3                    7      448       2^-9       NaN 0x7f and 0xff, no infinities
 *   f8e5m2    1, 5, 2                    15     57344     2^-16      as IEEE 754: infinity 0x7c, NaN 0x7d to 0x7f
 *
 * after "OCP 8-bit Floating Point Specification (OFP8)", revision 1.0. To nearest, ties to even, in one rounding. What
 * rounds to more than the largest number is not saturated: NaN in f8e4m3, infinity in f8e5m2, as infinities are; so do
 * PyTorch (c10/util/Float8_e4m3fn.h) and ml_dtypes, which JAX and NumPy use, while cuda_fp8.h saturates unless it is told
 * otherwise. A NaN becomes 0x7f, whatever its sign, which CUDA's conversion of an f16 loses. What comes from f64 and wide
 * integers goes through formula_odd(), so that it is rounded once. */
#pragma once

#include "engine/device/formula_cast.h"

/* Normal numbers: the bits in their place, the bias changed. Subnormal ones: so many of the smallest. */
FORMULA_FUNCTION float formula_from_f8e4m3(uint8_t x) {
    uint32_t magnitude = x & 0x7f, sign = (uint32_t)(x & 0x80) << 24;
    uint32_t normal = (magnitude << 20) + (120u << 23);
    uint32_t bits = magnitude < 0x08 ? float_bits((float)(int32_t)magnitude * 0x1p-9f) : normal;
    return bits_float((magnitude == 0x7f ? 0x7fc00000 : bits) | sign);
}

FORMULA_FUNCTION float formula_from_f8e5m2(uint8_t x) {
    uint32_t magnitude = x & 0x7f, sign = (uint32_t)(x & 0x80) << 24;
    uint32_t normal = (magnitude << 21) + (112u << 23);
    uint32_t bits = magnitude < 0x04 ? float_bits((float)(int32_t)magnitude * 0x1p-16f) : normal;
    uint32_t special = magnitude > 0x7c ? 0x7fc00000 : 0x7f800000;
    return bits_float((magnitude >= 0x7c ? special : bits) | sign);
}

/* Normal results: round by an addition to the bits. Subnormal ones: next to 2^14 a float's last bit is 2^-9, as is theirs, so
 * that adding that rounds there; 8 of them are the smallest normal number, whose bits follow. 464 is half-way between 448
 * and what would be next, and 448 is even. */
FORMULA_FUNCTION uint8_t formula_to_f8e4m3(float x) {
    uint32_t bits = float_bits(x), sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffff;
    uint32_t normal = (magnitude - (120u << 23) + 0x7ffff + (magnitude >> 20 & 1)) >> 20;
    uint32_t subnormal = float_bits(bits_float(magnitude) + 0x1p14f) - ((127u + 14) << 23);
    uint32_t result = magnitude < (121u << 23) ? subnormal : normal;
    result = (magnitude > 0x43e80000 ? 0x7f : result) | sign;
    return (uint8_t)(magnitude > 0x7f800000 ? 0x7f : result);
}

/* Here 61440, half-way between 57344 and 65536, goes to the latter, which is even, and the bits of infinity. */
FORMULA_FUNCTION uint8_t formula_to_f8e5m2(float x) {
    uint32_t bits = float_bits(x), sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffff;
    uint32_t normal = (magnitude - (112u << 23) + 0xfffff + (magnitude >> 21 & 1)) >> 21;
    uint32_t subnormal = float_bits(bits_float(magnitude) + 0x1p7f) - ((127u + 7) << 23);
    uint32_t result = magnitude < (113u << 23) ? subnormal : normal;
    result = (magnitude >= 0x47700000 ? 0x7c : result) | sign;
    return (uint8_t)(magnitude > 0x7f800000 ? 0x7f : result);
}
