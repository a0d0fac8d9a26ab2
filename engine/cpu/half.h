/* f16 and bf16: conversions in blocks from and to f32. Only for sources compiled once for each vector level. */
#pragma once

#include "engine/cpu/lanes.h"
#include "engine/device/formula_cast.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

static inline float half_from_bf16(uint16_t half) {
    return bits_float((uint32_t)half << 16);
}

/* Rounds to nearest, ties to even; a NaN stays a NaN. */
static inline uint16_t half_to_bf16(float x) {
    uint32_t bits = float_bits(x), rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded);
}

/* The exponent is moved by a multiplication, which also normalises subnormal halves: their value is f · 2^-24. */
static inline float half_from_f16_portable(uint16_t half) {
    uint32_t magnitude = (uint32_t)(half & 0x7fff) << 13, sign = (uint32_t)(half & 0x8000) << 16;
    float finite = bits_float(magnitude) * 0x1p112f;
    uint32_t special = magnitude | 0x7f800000;
    return bits_float((magnitude >= 0x0f800000 ? special : float_bits(finite)) | sign);
}

/* Normal results are rounded by an addition to the bits. Subnormal results: the last bit of a float near 0.5 is 2^-24, like the last bit
 * of a subnormal half, so adding 0.5 rounds there. */
static inline uint16_t half_to_f16_portable(float x) {
    uint32_t bits = float_bits(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    uint32_t normal = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
    uint32_t subnormal = float_bits(bits_float(magnitude) + 0.5f) - 0x3f000000;
    uint32_t special = magnitude > 0x7f800000 ? 0x7e00 | (magnitude >> 13 & 0x3ff) : 0x7c00;
    uint32_t result = magnitude < 0x38800000 ? subnormal : magnitude < 0x477ff000 ? normal : special;
    return (uint16_t)(result | sign);
}

#if defined(__F16C__)
static inline float half_from_f16(uint16_t half) {
    return _cvtsh_ss(half);
}
static inline uint16_t half_to_f16(float x) {
    return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
}
#else
#define half_from_f16 half_from_f16_portable
#define half_to_f16 half_to_f16_portable
#endif

static inline void half_load_f16(int64_t n, const uint16_t *x, int64_t stride, float *out) {
    int64_t i = 0;
#if defined(__AVX512F__)
    /* Stores as wide as the loads that follow: a load of what two stores wrote waits until they have left the store buffer. */
    if (stride == 1) {
        for (; i + 16 <= n; i += 16) {
            _mm512_storeu_ps(out + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(x + i))));
        }
    }
#endif
#if defined(__F16C__)
    if (stride == 1) {
        for (; i + 8 <= n; i += 8) {
            _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(x + i))));
        }
    }
    for (; i < n; i++) {
        out[i] = half_from_f16(x[i * stride]);
    }
#else
    CPU_LOOP
    for (i = 0; i < n; i++) {
        out[i] = half_from_f16(x[i * stride]);
    }
#endif
}

static inline void half_store_f16(int64_t n, const float *x, uint16_t *out, int64_t stride) {
    int64_t i = 0;
#if defined(__F16C__)
    if (stride == 1) {
        for (; i + 8 <= n; i += 8) {
            _mm_storeu_si128((__m128i *)(void *)(out + i),
                             _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
        }
    }
    for (; i < n; i++) {
        out[i * stride] = half_to_f16(x[i]);
    }
#else
    CPU_LOOP
    for (i = 0; i < n; i++) {
        out[i * stride] = half_to_f16(x[i]);
    }
#endif
}

static inline void half_load_bf16(int64_t n, const uint16_t *x, int64_t stride, float *out) {
    if (stride == 1) {
        CPU_LOOP
        for (int64_t i = 0; i < n; i++) {
            out[i] = half_from_bf16(x[i]);
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        out[i] = half_from_bf16(x[i * stride]);
    }
}

static inline void half_store_bf16(int64_t n, const float *x, uint16_t *out, int64_t stride) {
    if (stride == 1) {
        CPU_LOOP
        for (int64_t i = 0; i < n; i++) {
            out[i] = half_to_bf16(x[i]);
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        out[i * stride] = half_to_bf16(x[i]);
    }
}
