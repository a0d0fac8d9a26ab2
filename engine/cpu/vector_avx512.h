/* Functions of f32, 16 elements at a time, by AVX-512's own instructions: those of vector_math.h and vector_more.h that gain much by
 * them. Powers of two are multiplied by scalef, which rounds once and saturates; exponent and mantissa come from getexp and getmant,
 * which know zeros, infinities, subnormal and negative numbers; a register is a table of 16 numbers; and a quotient is a product by
 * rcp14's estimate after a step of Newton's. min and max give their second operand where one is NaN, so that a NaN passes through
 * when the constant is the first.
 *
 * Polynomials are fitted for the least greatest relative error, which is below 2^-26 of the result unless a comment says another. */
#pragma once

#include <immintrin.h>

#include "engine/cpu/chain.h"

#define AVX512_ALL(x) _mm512_set1_ps(x)
#define AVX512_ROUND AVX512_ALL(12582912.0f) /* 1.5 · 2^23: adding it rounds to an integer */
#define AVX512_LN2_HIGH AVX512_ALL(0.693147182f)
#define AVX512_LN2_LOW AVX512_ALL(-1.90465421e-9f)

/* ---- bf16: 32 in a register, as the high and low halves of 16 words ---- */

static inline __m512 avx512_bf16_low(__m512i pairs) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}

static inline __m512 avx512_bf16_high(__m512i pairs) {
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(-0x10000)));
}

/* Rounds to the high halves of words: to nearest, ties to even. A NaN is quiet already, and stays as it is. */
static inline __m512i avx512_bf16_round(__m512 x) {
    __m512i bits = _mm512_castps_si512(x), half = _mm512_set1_epi32(0x7fff);
    half = _mm512_mask_mov_epi32(half, _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000)),
                                 _mm512_set1_epi32(0x8000));
    return _mm512_mask_add_epi32(bits, _mm512_cmpord_ps_mask(x, x), bits, half);
}

static inline __m512i avx512_bf16_pairs(__m512 low, __m512 high) {
    return _mm512_mask_mov_epi16(_mm512_srli_epi32(avx512_bf16_round(low), 16), 0xaaaaaaaa, avx512_bf16_round(high));
}

/* ---- parts of functions ---- */

static inline __m512 avx512_abs(__m512 x) {
    return _mm512_abs_ps(x);
}

static inline __m512 avx512_negative(__m512 x) {
    return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(x), _mm512_set1_epi32(INT32_MIN)));
}

/* The magnitude of the first and the sign of the second. */
static inline __m512 avx512_copysign(__m512 x, __m512 sign) {
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(_mm512_set1_epi32(INT32_MAX), _mm512_castps_si512(x),
                                                         _mm512_castps_si512(sign), 0xca));
}

/* NaN where `of` is -∞, else x. */
static inline __m512 avx512_unless_lowest(__m512 x, __m512 of) {
    return _mm512_fixupimm_ps(x, of, _mm512_set1_epi32(0x30000), 0);
}

/* y, about 1 / d, and e, so that x / d is about x · (y + y · e), to a unit in the last place; d is neither 0 nor infinite nor subnormal. */
static inline __m512 avx512_inverse(__m512 d, __m512 *e) {
    __m512 y = _mm512_rcp14_ps(d);
    *e = _mm512_fnmadd_ps(d, y, AVX512_ALL(1));
    return y;
}

static inline __m512 avx512_quotient(__m512 x, __m512 y, __m512 e) {
    return _mm512_mul_ps(x, _mm512_fmadd_ps(y, e, y));
}

/* ---- quotients by one divisor ----
 *
 * A division takes three times as long as what is here: a product with the inverse, whose rounding error is known and taken back, so
 * that the quotient is within a unit in the last place; then its remainder, which is exact, and a step by that. With a rounded inverse
 * this rounds as a division does (Markstein, Computation of elementary functions on the IBM RISC System/6000 processor, 1990), as long as nothing
 * on the way is subnormal or too great. So divisor and dividends are neither small nor great; quotients of other dividends are divisions. */
struct avx512_divisor {
    __m512 d, high, low; /* as in struct cpu_chain_divisor */
};

enum { AVX512_DIVIDE_LEAST = (127 - 50) << 23, AVX512_DIVIDE_MOST = (127 + 50) << 23 }; /* the bits of 2^-50 and 2^50 */

static inline struct avx512_divisor avx512_divisor_of(const struct cpu_chain_divisor *one) {
    return (struct avx512_divisor){AVX512_ALL(one->d), AVX512_ALL(one->high), AVX512_ALL(one->low)};
}

/* Dividends for which avx512_divided() is not the quotient. */
static inline __mmask16 avx512_dividends_beyond(__m512 x) {
    __m512i bits = _mm512_sub_epi32(_mm512_castps_si512(avx512_abs(x)), _mm512_set1_epi32(AVX512_DIVIDE_LEAST));
    return _mm512_cmpgt_epu32_mask(bits, _mm512_set1_epi32(AVX512_DIVIDE_MOST - AVX512_DIVIDE_LEAST));
}

/* x / d of the other dividends. */
static inline __m512 avx512_divided(__m512 x, const struct avx512_divisor *divisor) {
    __m512 q = _mm512_fmadd_ps(x, divisor->high, _mm512_mul_ps(x, divisor->low));
    return _mm512_fmadd_ps(_mm512_fnmadd_ps(q, divisor->d, x), divisor->high, q);
}

/* x / d of all. Zeros are frequent, and need no division. */
static inline __m512 avx512_divided_any(__m512 x, const struct avx512_divisor *divisor) {
    __mmask16 beyond = avx512_dividends_beyond(x);
    __mmask16 zero = _mm512_testn_epi32_mask(_mm512_castps_si512(x), _mm512_set1_epi32(INT32_MAX));
    __m512 q = _mm512_mask_mul_ps(avx512_divided(x, divisor), zero, x, divisor->high);
    return __builtin_expect(beyond != zero, 0) ? _mm512_mask_div_ps(q, (__mmask16)(beyond & ~zero), x, divisor->d) : q;
}

/* (e^r - 1 - r) / r² for |r| <= ln(2)/2. */
static inline __m512 avx512_exp_tail(__m512 r, __m512 square) {
    __m512 low = _mm512_fmadd_ps(AVX512_ALL(0.166665211f), r, AVX512_ALL(0.49999994f));
    __m512 high = _mm512_fmadd_ps(AVX512_ALL(0.00836868491f), r, AVX512_ALL(0.0416682735f));
    return _mm512_fmadd_ps(_mm512_fmadd_ps(AVX512_ALL(0.00138201099f), square, high), square, low);
}

static inline __m512 avx512_exp_near(__m512 r) {
    __m512 square = _mm512_mul_ps(r, r);
    return _mm512_add_ps(_mm512_fmadd_ps(avx512_exp_tail(r, square), square, r), AVX512_ALL(1));
}

/* x = n · ln(2) + r, for |x| < 2^21: returns r. */
static inline __m512 avx512_exp_reduce(__m512 x, __m512 *n) {
    *n = _mm512_sub_ps(_mm512_fmadd_ps(x, AVX512_ALL(1.44269504f), AVX512_ROUND), AVX512_ROUND);
    return _mm512_fnmadd_ps(*n, AVX512_LN2_LOW, _mm512_fnmadd_ps(*n, AVX512_LN2_HIGH, x));
}

static inline __m512 avx512_exp(__m512 x) {
    __m512 n, clamped = _mm512_max_ps(AVX512_ALL(-104.5f), _mm512_min_ps(AVX512_ALL(89), x));
    __m512 p = avx512_exp_near(avx512_exp_reduce(clamped, &n));
    return _mm512_scalef_ps(p, n);
}

/* 2^x = 2^n · 2^r with |r| <= 1/2. Of an infinite x the rest r is 0, but x - r is not. */
static inline __m512 avx512_exp2(__m512 x) {
    __m512 r = _mm512_reduce_ps(x, 0), square = _mm512_mul_ps(r, r);
    __m512 low = _mm512_fmadd_ps(AVX512_ALL(0.240226477f), r, AVX512_ALL(0.693147182f));
    __m512 middle = _mm512_fmadd_ps(AVX512_ALL(0.00961850584f), r, AVX512_ALL(0.0555035993f));
    __m512 high = _mm512_fmadd_ps(AVX512_ALL(0.000153264627f), r, AVX512_ALL(0.00133908063f));
    __m512 p = _mm512_fmadd_ps(_mm512_fmadd_ps(high, square, middle), square, low);
    return _mm512_scalef_ps(_mm512_fmadd_ps(p, r, AVX512_ALL(1)), _mm512_sub_ps(x, r));
}

/* The sum of a vector's elements, added in f64 to those of eight sums. */
static inline __m512d avx512_widen_add(__m512d sums, __m512 x) {
    sums = _mm512_add_pd(sums, _mm512_cvtps_pd(_mm512_castps512_ps256(x)));
    return _mm512_add_pd(sums, _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)));
}

/* The greatest of n elements; NaNs count less than others. */
static inline float avx512_maximum(int64_t n, const float *x) {
    __m512 best = _mm512_set1_ps(-__builtin_inff()), other = best;
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        best = _mm512_max_ps(_mm512_loadu_ps(x + i), best);
        other = _mm512_max_ps(_mm512_loadu_ps(x + i + 16), other);
    }
    for (; i < n; i += 16) {
        const __mmask16 lanes = (__mmask16)(n - i < 16 ? (1 << (n - i)) - 1 : 0xffff);
        best = _mm512_mask_max_ps(best, lanes, _mm512_maskz_loadu_ps(lanes, x + i), best);
    }
    return _mm512_reduce_max_ps(_mm512_max_ps(best, other));
}

/* The exponentials of n elements less `shift`, stored if `out` is wanted, and their sum in f64: four vectors are added in f32 before they join it.
 * `ends`: an infinite element less an equal shift is 0, not NaN. */
static inline __attribute__((always_inline)) double avx512_exponentials(int64_t n, float shift, const float *x,
                                                                        float *out, bool stores, bool ends) {
    const __m512 shifts = _mm512_set1_ps(shift);
    __m512d sums = _mm512_setzero_pd();
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        __m512 e[4];
        for (int k = 0; k < 4; k++) {
            const __m512 element = _mm512_loadu_ps(x + i + 16 * k);
            const __mmask16 apart = ends ? _mm512_cmpneq_ps_mask(element, shifts) : 0xffff;
            e[k] = avx512_exp(_mm512_maskz_sub_ps(apart, element, shifts));
            if (stores) {
                _mm512_storeu_ps(out + i + 16 * k, e[k]);
            }
        }
        sums = avx512_widen_add(sums, _mm512_add_ps(_mm512_add_ps(e[0], e[1]), _mm512_add_ps(e[2], e[3])));
    }
    for (; i < n; i += 16) {
        const __mmask16 lanes = (__mmask16)(n - i < 16 ? (1 << (n - i)) - 1 : 0xffff);
        const __m512 element = _mm512_maskz_loadu_ps(lanes, x + i);
        const __mmask16 apart = ends ? _mm512_cmpneq_ps_mask(element, shifts) : 0xffff;
        __m512 e = avx512_exp(_mm512_maskz_sub_ps(apart, element, shifts));
        if (stores) {
            _mm512_mask_storeu_ps(out + i, lanes, e);
        }
        sums = avx512_widen_add(sums, _mm512_maskz_mov_ps(lanes, e));
    }
    return _mm512_reduce_add_pd(sums);
}

/* ---- logarithms ---- */

/* x = 2^n · m with m from 3/4 to below 3/2. The top four bits of m's fraction choose an inverse of about its value, so that |f| =
 * |m · inverse - 1| < 0.0345, but for the inverse 1 of m near 1, where f goes up to 1/16. Returns f; *t is n · unit and the logarithm
 * of what `inverses` took away. */
static inline __m512 avx512_log_reduce(__m512 x, __m512 unit, __m512 inverses, __m512 logarithms, __m512 *n,
                                       __m512 *t) {
    __m512 m = _mm512_getmant_ps(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_nan);
    *n = _mm512_sub_ps(_mm512_getexp_ps(x), _mm512_getexp_ps(m));
    __m512i part = _mm512_srli_epi32(_mm512_castps_si512(m), 19);
    *t = _mm512_fmadd_ps(*n, unit, _mm512_permutexvar_ps(part, logarithms));
    return _mm512_fmadd_ps(m, _mm512_permutexvar_ps(part, inverses), AVX512_ALL(-1));
}

/* The inverses are numbers of 12 bits whose logarithms are nearly numbers of f32. */
static inline __m512 avx512_log(__m512 x) {
    const __m512 inverses = _mm512_setr_ps(1, 0.913574219f, 0.869384766f, 0.820556641f, 0.780029297f, 0.736083984f,
                                           0.704833984f, 0.676513672f, 1.30224609f, 1.25195312f, 1.20068359f,
                                           1.1640625f, 1.12890625f, 1.07592773f, 1.05737305f, 1);
    const __m512 logarithms = _mm512_setr_ps(0, 0.0903906599f, 0.139969483f, 0.197772339f, 0.2484238f, 0.306411058f,
                                             0.349792987f, 0.390802622f, -0.264090538f, -0.224704832f, -0.182891056f,
                                             -0.151916042f, -0.121249244f, -0.0731832981f, -0.0557875745f, 0);
    __m512 t, n, f = avx512_log_reduce(x, AVX512_LN2_HIGH, inverses, logarithms, &n, &t), square = _mm512_mul_ps(f, f);
    __m512 p = _mm512_fmadd_ps(AVX512_ALL(0.189740896f), f, AVX512_ALL(-0.25015828f));
    p = _mm512_fmadd_ps(p, f, AVX512_ALL(0.333345056f));
    p = _mm512_fmadd_ps(p, f, AVX512_ALL(-0.49999997f));
    return _mm512_add_ps(t, _mm512_fmadd_ps(p, square, f));
}

static inline __m512 avx512_log2(__m512 x) {
    const __m512 inverses = _mm512_setr_ps(1, 0.918212891f, 0.869384766f, 0.813232422f, 0.779785156f, 0.739013672f,
                                           0.715332031f, 0.680419922f, 1.30200195f, 1.25732422f, 1.19848633f,
                                           1.15966797f, 1.11621094f, 1.0769043f, 1.04931641f, 1);
    const __m512 logarithms = _mm512_setr_ps(0, 0.123099409f, 0.20193328f, 0.298260361f, 0.358851403f, 0.43632704f,
                                             0.483315051f, 0.555502713f, -0.380731612f, -0.330356717f, -0.261213452f,
                                             -0.213711798f, -0.158609688f, -0.106890045f, -0.0694497675f, 0);
    __m512 t, n, f = avx512_log_reduce(x, AVX512_ALL(1), inverses, logarithms, &n, &t);
    __m512 p = _mm512_fmadd_ps(AVX512_ALL(0.263776422f), f, AVX512_ALL(-0.360995054f));
    p = _mm512_fmadd_ps(p, f, AVX512_ALL(0.480959535f));
    p = _mm512_fmadd_ps(p, f, AVX512_ALL(-0.721347511f));
    p = _mm512_fmadd_ps(p, f, AVX512_ALL(1.44269502f));
    return _mm512_fmadd_ps(p, f, t);
}

/* The polynomial's error is below 2^-25. */
static inline __m512 avx512_log10(__m512 x) {
    const __m512 inverses = _mm512_setr_ps(1, 0.916503906f, 0.868896484f, 0.826416016f, 0.786376953f, 0.739501953f,
                                           0.712890625f, 0.686767578f, 1.31494141f, 1.25463867f, 1.21533203f,
                                           1.16601562f, 1.12719727f, 1.07617188f, 1.05078125f, 1);
    const __m512 logarithms = _mm512_setr_ps(0, 0.0378656797f, 0.06103196f, 0.082801275f, 0.104369223f, 0.131060675f,
                                             0.146977097f, 0.163190216f, -0.118906401f, -0.0985186696f, -0.0846949443f,
                                             -0.0667043701f, -0.0519999266f, -0.0318816379f, -0.0215123147f, 0);
    const __m512 unit = AVX512_ALL(0.30102998f), rest = AVX512_ALL(1.54813336e-8f); /* log10(2) */
    __m512 t, n, f = avx512_log_reduce(x, unit, inverses, logarithms, &n, &t);
    __m512 p = _mm512_fmadd_ps(AVX512_ALL(0.08666832f), f, AVX512_ALL(-0.108595282f));
    p = _mm512_fmadd_ps(p, f, AVX512_ALL(0.144750118f));
    p = _mm512_fmadd_ps(p, f, AVX512_ALL(-0.217147246f));
    p = _mm512_fmadd_ps(p, f, AVX512_ALL(0.434294492f));
    return _mm512_add_ps(t, _mm512_fmadd_ps(p, f, _mm512_mul_ps(n, rest)));
}

/* As log of u = 1 + x, with what the sum was rounded by. The sum of the logarithms' high parts, of 14 bits behind the point, is exact, as
 * the error has less room: below 0.9 units. */
static inline __m512 avx512_log1p(__m512 x) {
    const __m512 inverses = _mm512_setr_ps(1, 0.913574219f, 0.869384766f, 0.820556641f, 0.780029297f, 0.736083984f,
                                           0.704833984f, 0.676513672f, 1.30224609f, 1.25195312f, 1.20068359f,
                                           1.1640625f, 1.12890625f, 1.07592773f, 1.05737305f, 1);
    const __m512 logarithms = _mm512_setr_ps(0, 0.0903930664f, 0.139953613f, 0.197753906f, 0.248413086f, 0.306396484f,
                                             0.34979248f, 0.390808105f, -0.264099121f, -0.224731445f, -0.182861328f,
                                             -0.151916504f, -0.121276855f, -0.0731811523f, -0.0557861328f, 0);
    const __m512 rests =
        _mm512_setr_ps(0, -2.40652093e-06f, 1.58701605e-05f, 1.84327437e-05f, 1.07139704e-05f, 1.45731829e-05f,
                       5.06587639e-07f, -5.48361231e-06f, 8.58307158e-06f, 2.66134321e-05f, -2.97279312e-05f,
                       4.61880404e-07f, 2.76118353e-05f, -2.14577881e-06f, -1.4416828e-06f, 0);
    const __m512 one = AVX512_ALL(1);
    __m512 u = _mm512_add_ps(one, x), greater = _mm512_max_ps(one, x), lesser = _mm512_min_ps(one, x);
    __m512 u_low = _mm512_sub_ps(lesser, _mm512_sub_ps(u, greater));
    __m512 m = _mm512_getmant_ps(u, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_nan);
    __m512 n = _mm512_sub_ps(_mm512_getexp_ps(u), _mm512_getexp_ps(m));
    __m512i part = _mm512_srli_epi32(_mm512_castps_si512(m), 19);
    __m512 inverse = _mm512_permutexvar_ps(part, inverses);
    __m512 t = _mm512_fmadd_ps(n, AVX512_ALL(0.693115234f), _mm512_permutexvar_ps(part, logarithms));
    __m512 low = _mm512_fmadd_ps(n, AVX512_ALL(3.19461833e-05f), _mm512_permutexvar_ps(part, rests));
    __m512 scaled = _mm512_scalef_ps(u_low, avx512_negative(n));
    __m512 f = _mm512_fmadd_ps(scaled, inverse, _mm512_fmsub_ps(m, inverse, one)), square = _mm512_mul_ps(f, f);
    __m512 p = _mm512_fmadd_ps(AVX512_ALL(0.189740896f), f, AVX512_ALL(-0.25015828f));
    p = _mm512_fmadd_ps(p, f, AVX512_ALL(0.333345056f));
    p = _mm512_fmadd_ps(p, f, AVX512_ALL(-0.49999997f));
    __m512 result = _mm512_add_ps(t, _mm512_add_ps(f, _mm512_fmadd_ps(p, square, low)));
    result = _mm512_mask_mov_ps(result, _mm512_cmpeq_ps_mask(u, _mm512_setzero_ps()), AVX512_ALL(-__builtin_inff()));
    return _mm512_mask_mov_ps(result, _mm512_fpclass_ps_mask(x, 0x0e), x); /* ±0, ∞ */
}

/* e^x - 1 = 2^n · (e^r - 1 + (1 - 2^-n)). The least argument gives -1. */
static inline __m512 avx512_expm1(__m512 x) {
    __m512 n, clamped = _mm512_max_ps(AVX512_ALL(-20), _mm512_min_ps(AVX512_ALL(89), x));
    __m512 r = avx512_exp_reduce(clamped, &n), square = _mm512_mul_ps(r, r);
    __m512 rest = _mm512_sub_ps(AVX512_ALL(1), _mm512_scalef_ps(AVX512_ALL(1), avx512_negative(n)));
    __m512 p = _mm512_fmadd_ps(avx512_exp_tail(r, square), square, r);
    return avx512_copysign(_mm512_scalef_ps(_mm512_add_ps(p, rest), n), x);
}

static inline __m512 avx512_elu(__m512 x, __m512 factor) {
    __mmask16 positive = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GT_OQ);
    return _mm512_mask_mov_ps(_mm512_mul_ps(factor, avx512_expm1(x)), positive, x);
}

/* ---- 1 / (1 + e^-t) and what is made of it ---- */

/* x / (1 + e^-t) = x · 2^n / (2^n + p) where e^-t = p · 2^-n. The power of two is multiplied last, so that a subnormal result is
 * rounded once. */
static inline __m512 avx512_logistic(__m512 x, __m512 t) {
    __m512 bounded = _mm512_max_ps(AVX512_ALL(-112), _mm512_min_ps(AVX512_ALL(30), t)), e;
    __m512 n = _mm512_sub_ps(_mm512_fmadd_ps(bounded, AVX512_ALL(1.44269504f), AVX512_ROUND), AVX512_ROUND);
    __m512 r = _mm512_fmadd_ps(n, AVX512_LN2_LOW, _mm512_fmsub_ps(n, AVX512_LN2_HIGH, bounded));
    __m512 y = avx512_inverse(_mm512_add_ps(avx512_exp_near(r), _mm512_scalef_ps(AVX512_ALL(1), n)), &e);
    return _mm512_scalef_ps(avx512_quotient(x, y, e), n);
}

static inline __m512 avx512_sigmoid(__m512 x) {
    return avx512_logistic(AVX512_ALL(1), x);
}

static inline __m512 avx512_silu(__m512 x) {
    return avx512_unless_lowest(avx512_logistic(_mm512_max_ps(AVX512_ALL(-120), x), x), x);
}

/* x / (1 + e^-t) with t = √(8/π) · (x + 0.044715 x³). */
static inline __m512 avx512_gelu_tanh(__m512 x) {
    __m512 cubic = _mm512_fmadd_ps(_mm512_mul_ps(x, x), AVX512_ALL(0.0713548163f), AVX512_ALL(1.59576912f));
    __m512 bounded = _mm512_max_ps(AVX512_ALL(-120), x);
    return avx512_unless_lowest(avx512_logistic(bounded, _mm512_mul_ps(x, cubic)), x);
}

/* h / (h + 1) with h = (e^2|x| - 1) / 2 = 2^n · (e^2r - 1) / 2 + (2^n - 1) / 2, in which little cancels. 1 - y is exact where y is above
 * 1/2, so that what h + 1 was rounded by does not count. */
static inline __m512 avx512_tanh(__m512 x) {
    __m512 a = _mm512_min_ps(AVX512_ALL(10), avx512_abs(x));
    __m512 n = _mm512_sub_ps(_mm512_fmadd_ps(a, AVX512_ALL(2.88539008f), AVX512_ROUND), AVX512_ROUND);
    __m512 r = _mm512_fnmadd_ps(n, AVX512_ALL(-9.52327106e-10f), _mm512_fnmadd_ps(n, AVX512_ALL(0.346573591f), a));
    __m512 square = _mm512_mul_ps(r, r), power = _mm512_scalef_ps(AVX512_ALL(1), n);
    __m512 low = _mm512_fmadd_ps(AVX512_ALL(0.666660845f), r, AVX512_ALL(0.99999988f));
    __m512 high = _mm512_fmadd_ps(AVX512_ALL(0.133898959f), r, AVX512_ALL(0.333346188f));
    __m512 tail = _mm512_fmadd_ps(_mm512_fmadd_ps(AVX512_ALL(0.0442243516f), square, high), square, low);
    __m512 near = _mm512_fmadd_ps(tail, square, r);
    __m512 h = _mm512_fmadd_ps(power, near, _mm512_fmsub_ps(power, AVX512_ALL(0.5f), AVX512_ALL(0.5f)));
    __m512 y = _mm512_rcp14_ps(_mm512_add_ps(h, AVX512_ALL(1)));
    __m512 e = _mm512_fnmadd_ps(h, y, _mm512_sub_ps(AVX512_ALL(1), y));
    return avx512_copysign(avx512_quotient(h, y, e), x);
}

/* ---- the normal distribution ---- */

/* A function of a >= 0 in 16 pieces: polynomials of a less a number near the middle of the piece, where the function is nearly a number of
 * f32. Column by column, so that one permutation takes each element's coefficient. The piece is in the exponent's last two bits and the
 * fraction's first two of a number from 1 to below 16: each doubling of it has four pieces. */
struct avx512_pieces {
    _Alignas(64) float middle[16];
    _Alignas(64) float coefficients[7][16];
};

static inline __attribute__((always_inline)) __m512 avx512_piecewise(const struct avx512_pieces *pieces, __m512 a,
                                                                     __m512 from_1_to_16) {
    __m512i piece = _mm512_srli_epi32(_mm512_castps_si512(from_1_to_16), 21);
    __m512 d = _mm512_sub_ps(a, _mm512_permutexvar_ps(piece, _mm512_load_ps(pieces->middle)));
    __m512 p = _mm512_permutexvar_ps(piece, _mm512_load_ps(pieces->coefficients[6]));
    for (int k = 5; k >= 0; k--) {
        p = _mm512_fmadd_ps(p, d, _mm512_permutexvar_ps(piece, _mm512_load_ps(pieces->coefficients[k])));
    }
    return p;
}

/* e^-(h · a) = p · 2^n, returns p: what the product is rounded by counts, since an error of the exponent is one of the result's. */
static inline __m512 avx512_exp_product(__m512 h, __m512 a, __m512 *n) {
    __m512 s = _mm512_mul_ps(h, a), rest = _mm512_fmsub_ps(h, a, s);
    *n = _mm512_sub_ps(_mm512_fnmadd_ps(s, AVX512_ALL(1.44269504f), AVX512_ROUND), AVX512_ROUND);
    __m512 r = _mm512_fnmadd_ps(*n, AVX512_LN2_LOW, _mm512_fnmsub_ps(*n, AVX512_LN2_HIGH, s));
    return avx512_exp_near(_mm512_sub_ps(r, rest));
}

/* max(x, 0) - t(|x|) with t(a) = a · e^(-a²/2) · g(a), where g is half of erfcx(a/√2). */
static inline __m512 avx512_gelu(__m512 x) {
    static const struct avx512_pieces half_erfcx = {
        {1.25170898f, 1.75683594f, 2.2421875f, 2.74584961f, 3.51171875f, 4.50634766f, 5.49511719f, 6.50683594f,
         8.00512695f, 9.99707031f, 11.9978027f, 14.0144043f, 0.124481201f, 0.373779297f, 0.623718262f, 0.875396729f},
        {
            {0.230571628f, 0.184721693f, 0.154068798f, 0.130888656f, 0.106032737f, 0.0846935436f, 0.0704016164f,
             0.0599553026f, 0.0490919985f, 0.0395180508f, 0.0330249369f, 0.0283238087f, 0.45397082f, 0.37991786f,
             0.323608637f, 0.279709429f},
            {-0.110333711f, -0.0744165704f, -0.0534911491f, -0.0395417176f, -0.0265851356f, -0.0172837302f,
             -0.0120771481f, -0.00882296264f, -0.00595460134f, -0.00387754757f, -0.00271560205f, -0.00200097426f,
             -0.342431456f, -0.256936848f, -0.197101668f, -0.154085562f},
            {0.0462329723f, 0.0269919988f, 0.0170658045f, 0.0111565059f, 0.00633662101f, 0.00340352929f, 0.00201813597f,
             0.00127286289f, 0.000712335866f, 0.00037696943f, 0.000221839276f, 0.000140672957f, 0.205672294f,
             0.141940147f, 0.100336239f, 0.0724119246f},
            {-0.0174869448f, -0.00899860077f, -0.00507533876f, -0.00296908268f, -0.00144409249f, -0.000648704125f,
             -0.000329079165f, -0.000180215662f, -8.40756693e-05f, -3.63176114e-05f, -1.80055995e-05f, -9.84214694e-06f,
             -0.105607182f, -0.0679611638f, -0.0448389351f, -0.0302321427f},
            {0.00608557044f, 0.00279541709f, 0.00142151827f, 0.000751567248f, 0.000316127203f, 0.000119976467f,
             5.24461757e-05f, 2.50816902e-05f, 9.79757988e-06f, 3.46810543e-06f, 1.45233662e-06f, 6.85344276e-07f,
             0.0481272601f, 0.0291274395f, 0.0181102734f, 0.0114516923f},
            {-0.00199726084f, -0.000822607952f, -0.000380943413f, -0.000183545635f, -6.79397126e-05f, -2.19168342e-05f,
             -8.2469287e-06f, -3.43295096e-06f, -1.15339219e-06f, -3.33426101e-07f, -1.17387181e-07f, -4.77342361e-08f,
             -0.0200997014f, -0.0114209251f, -0.00678160135f, -0.00404391252f},
            {0.000609259936f, 0.000231272395f, 9.51958864e-05f, 3.60249396e-05f, 1.40586581e-05f, 3.90554942e-06f,
             1.25124734e-06f, 4.21993718e-07f, 1.31672778e-07f, 3.15227595e-08f, 9.29285804e-09f, 3.30563132e-09f,
             0.00781263411f, 0.00438837847f, 0.00165192108f, 0.00280214124f},
        },
    };
    __m512 n, a = _mm512_min_ps(AVX512_ALL(14.9f), avx512_abs(x));
    __m512 p = avx512_exp_product(_mm512_mul_ps(a, AVX512_ALL(0.5f)), a, &n);
    __m512 g = avx512_piecewise(&half_erfcx, a, _mm512_add_ps(a, AVX512_ALL(1)));
    __m512 t = _mm512_scalef_ps(_mm512_mul_ps(_mm512_mul_ps(a, p), g), n);
    return avx512_unless_lowest(_mm512_sub_ps(_mm512_max_ps(AVX512_ALL(-0.0f), x), t), x);
}

/* e^(-x²) · erfcx(x) for x > 0, else 2 less that of |x|. */
static inline __m512 avx512_erfc(__m512 x) {
    static const struct avx512_pieces erfcx = {
        {0.870422363f, 1.21923828f, 1.55273438f, 1.9152832f, 2.44140625f, 3.13085938f, 3.83911133f, 4.51953125f,
         5.55151367f, 6.95288086f, 8.33447266f, 9.75048828f, 0.0865478516f, 0.262512207f, 0.434661865f, 0.607788086f},
        {
            {0.465761304f, 0.374349177f, 0.313163906f, 0.264752835f, 0.215249911f, 0.172148347f, 0.1424101f,
             0.121978737f, 0.100053675f, 0.0803302377f, 0.0672163963f, 0.0575630702f, 0.90937072f, 0.761138141f,
             0.650786817f, 0.564341426f},
            {-0.31756106f, -0.215537474f, -0.155858442f, -0.11422585f, -0.0773542225f, -0.0504346378f, -0.0349227153f,
             -0.025805736f, -0.0174804777f, -0.0113260234f, -0.00795273297f, -0.00584308524f, -0.970970988f,
             -0.728763044f, -0.562634766f, -0.442379177f},
            {0.189349145f, 0.111557648f, 0.0711568221f, 0.0459778495f, 0.0263968706f, 0.0142445909f, 0.00833790749f,
             0.00534890732f, 0.00301059359f, 0.00158175081f, 0.000934562471f, 0.000590135169f, 0.825335264f,
             0.569829702f, 0.406230778f, 0.29546839f},
            {-0.101829246f, -0.053013999f, -0.0302470289f, -0.0174436644f, -0.00860501919f, -0.00389103615f,
             -0.00194166217f, -0.00108744227f, -0.000511333696f, -0.000218849411f, -0.000109092194f, -5.93057302e-05f,
             -0.599699199f, -0.386126518f, -0.257361889f, -0.175198063f},
            {0.0503505878f, 0.0234590489f, 0.0121222064f, 0.00629439065f, 0.00269265706f, 0.00103088107f,
             0.000441718614f, 0.000217061941f, 8.57243576e-05f, 3.00119846e-05f, 1.26543455e-05f, 5.9410936e-06f,
             0.386721253f, 0.23400481f, 0.14722392f, 0.0945766121f},
            {-0.0233966187f, -0.00983174052f, -0.00459701288f, -0.00216024905f, -0.000826246862f, -0.000268730684f,
             -9.9181947e-05f, -4.28605599e-05f, -1.45168251e-05f, -4.13964563e-06f, -1.47397873e-06f, -5.95933557e-07f,
             -0.226375595f, -0.129055545f, -0.0788347125f, -0.0471533239f},
            {0.010215342f, 0.0038931421f, 0.00111581571f, 0.000523743918f, 0.000243266317f, 6.72017632e-05f,
             2.18819787e-05f, 8.24272047e-06f, 2.35959897e-06f, 5.54377095e-07f, 1.65330803e-07f, 4.5302162e-08f,
             0.121837623f, 0.0852808878f, 0.0349498391f, 0.0146908537f},
        },
    };
    __m512 n, a = _mm512_min_ps(AVX512_ALL(10.4f), avx512_abs(x)), p = avx512_exp_product(a, a, &n);
    __m512 g = avx512_piecewise(&erfcx, a, _mm512_fmadd_ps(a, AVX512_ALL(1.4375f), AVX512_ALL(1)));
    __m512 t = _mm512_scalef_ps(_mm512_mul_ps(p, g), n);
    return _mm512_mask_sub_ps(t, _mm512_movepi32_mask(_mm512_castps_si512(x)), AVX512_ALL(2), t);
}

/* In a piece around 0 the polynomial is of what erf(a) is more than a. */
static inline __m512 avx512_erf(__m512 x) {
    static const struct avx512_pieces erf = {
        {0.331067473f, 0.456740916f, 0.597797155f, 0.723604083f, 0.921015859f, 1.18007612f, 1.42330527f, 1.6942445f,
         2.1214776f, 2.66578221f, 3.1498909f, 3.69117403f, 0, 0.0993529558f, 0.164028838f, 0.227380544f},
        {
            {0.360358506f, 0.48167479f, 0.602119625f, 0.693848491f, 0.807258964f, 0.904858768f, 0.95587039f,
             0.983425975f, 0.997302175f, 0.999836743f, 0.999991596f, 0.999999821f, 0, 0.111740023f, 0.183440089f,
             0.252217472f},
            {1.01123929f, 0.915916562f, 0.78932339f, 0.668431997f, 0.483121097f, 0.28032729f, 0.148820311f,
             0.0639481768f, 0.0125267813f, 0.000925100176f, 5.53970531e-05f, 1.36577091e-06f, 0.128379166f, 1.11729574f,
             1.09842443f, 1.07152224f},
            {-0.334788412f, -0.418336511f, -0.471855283f, -0.483680099f, -0.444962204f, -0.330807567f, -0.211816758f,
             -0.108343869f, -0.0265750289f, -0.00246623601f, -0.000174492918f, -5.04440777e-06f, 0, -0.111006618f,
             -0.180173293f, -0.243643314f},
            {-0.263187975f, -0.177924797f, -0.0750586465f, 0.010517817f, 0.112168051f, 0.166808486f, 0.151380122f,
             0.101058863f, 0.0334150493f, 0.00407330738f, 0.000347282155f, 1.18883208e-05f, -0.37612614f, -0.365079015f,
             -0.346438944f, -0.320241511f},
            {0.155160978f, 0.180050373f, 0.179734796f, 0.157414302f, 0.096671775f, 0.0118464539f, -0.0371176638f,
             -0.0494875386f, -0.0266062319f, -0.00459795771f, -0.000489175087f, -2.00785689e-05f, 0, 0.0551121682f,
             0.0884952769f, 0.117610022f},
            {0.0583536699f, 0.0205187723f, -0.0204182342f, -0.048613511f, -0.068803221f, -0.0554552674f, -0.0243365429f,
             0.00307313027f, 0.0123470929f, 0.00374316378f, 0.00053830375f, 2.87768817e-05f, 0.112671964f, 0.107079938f,
             0.0980288237f, 0.0857907608f},
            {-0.047439713f, -0.0468595102f, -0.0462297015f, -0.0292369742f, -0.00493703829f, 0.0185574237f,
             0.0209539533f, 0.0110006845f, -0.00132290961f, -0.00222306722f, -0.000423760852f, -3.21325897e-05f, 0,
             -0.00293405331f, -0.0441691652f, -0.0331638306f},
        },
    };
    __m512 a = _mm512_min_ps(AVX512_ALL(3.93f), avx512_abs(x));
    __m512 from_1 = _mm512_fmadd_ps(a, AVX512_ALL(3.8125f), AVX512_ALL(1)), p = avx512_piecewise(&erf, a, from_1);
    p = _mm512_mask_add_ps(p, _mm512_cmp_ps_mask(from_1, AVX512_ALL(1.25f), _CMP_LT_OQ), p, a);
    return avx512_copysign(p, x);
}

/* ---- roots ---- */

/* A step of Newton's; of 0 and infinity, where it would give NaN, the estimate is the result. */
static inline __m512 avx512_rsqrt(__m512 x) {
    __m512 y = _mm512_rsqrt14_ps(x), rest = _mm512_fnmadd_ps(_mm512_mul_ps(x, y), y, AVX512_ALL(1));
    __mmask16 ordinary = (__mmask16)~_mm512_fpclass_ps_mask(x, 0x1e); /* ±0, ±∞ */
    return _mm512_mask3_fmadd_ps(_mm512_mul_ps(y, AVX512_ALL(0.5f)), rest, y, ordinary);
}

/* Scaled by the greater operand's power of two. Of a number and a NaN, max gives one and min the other; an infinite operand counts more
 * than a NaN. */
static inline __m512 avx512_hypot(__m512 a, __m512 b) {
    const __m512 infinity = AVX512_ALL(__builtin_inff());
    __m512 x = avx512_abs(a), y = avx512_abs(b), most = _mm512_max_ps(x, y), least = _mm512_min_ps(y, x);
    __m512 n = _mm512_max_ps(_mm512_getexp_ps(most), AVX512_ALL(-200)), down = avx512_negative(n);
    __m512 u = _mm512_scalef_ps(most, down), v = _mm512_scalef_ps(least, down);
    __m512 result = _mm512_scalef_ps(_mm512_sqrt_ps(_mm512_fmadd_ps(u, u, _mm512_mul_ps(v, v))), n);
    __mmask16 infinite = _mm512_cmpeq_ps_mask(x, infinity) | _mm512_cmpeq_ps_mask(y, infinity);
    return _mm512_mask_mov_ps(result, infinite, infinity);
}

/* ---- powers: in double, whose bits suffice for y · log2(x) ---- */

/* 2^(y · log2(2^n · m)) of 8 elements, m as in avx512_log_reduce(). The errors are 2^-39 of the logarithm and 2^-29 of the power. */
static inline __m512d avx512_pow_half(__m512d m, __m512d n, __m512d y) {
    const __m512d inverses_above =
        _mm512_setr_pd(1, 0.9140625, 0.865234375, 0.8203125, 0.7802734375, 0.744140625, 0.7109375, 0.6806640625);
    const __m512d inverses_below =
        _mm512_setr_pd(1.3056640625, 1.2548828125, 1.2080078125, 1.1640625, 1.123046875, 1.0849609375, 1.048828125, 1);
    const __m512d logarithms_above =
        _mm512_setr_pd(0, 0.12963528041659547, 0.20883711144498168, 0.28575448233387735, 0.35794830707202324,
                       0.42635281250667795, 0.49220535980130375, 0.5549851541315769);
    const __m512d logarithms_below =
        _mm512_setr_pd(-0.38478375009335281, -0.32755264408124046, -0.27262978497636969, -0.21916852046216156,
                       -0.16741814583173756, -0.11764310138909199, -0.068778277985412611, 0);
    __m512i part = _mm512_srli_epi64(_mm512_castpd_si512(m), 48);
    __m512d f = _mm512_fmadd_pd(m, _mm512_permutex2var_pd(inverses_above, part, inverses_below), _mm512_set1_pd(-1));
    __m512d t = _mm512_add_pd(n, _mm512_permutex2var_pd(logarithms_above, part, logarithms_below));
    __m512d p = _mm512_fmadd_pd(_mm512_set1_pd(0.18993765897499387), f, _mm512_set1_pd(-0.24048395636327458));
    p = _mm512_fmadd_pd(p, f, _mm512_set1_pd(0.28857110731640728));
    p = _mm512_fmadd_pd(p, f, _mm512_set1_pd(-0.36067404700322342));
    p = _mm512_fmadd_pd(p, f, _mm512_set1_pd(0.48089832995455567));
    p = _mm512_fmadd_pd(p, f, _mm512_set1_pd(-0.72134752033584593));
    p = _mm512_fmadd_pd(p, f, _mm512_set1_pd(1.442695040890422));
    __m512d exponent = _mm512_mul_pd(y, _mm512_fmadd_pd(p, f, t)), r = _mm512_reduce_pd(exponent, 1);
    __m512d power = _mm512_fmadd_pd(_mm512_set1_pd(0.00021702255202223419), r, _mm512_set1_pd(0.0012439687902511406));
    power = _mm512_fmadd_pd(power, r, _mm512_set1_pd(0.009678840987935566));
    power = _mm512_fmadd_pd(power, r, _mm512_set1_pd(0.055483341988642097));
    power = _mm512_fmadd_pd(power, r, _mm512_set1_pd(0.24022983627305602));
    power = _mm512_fmadd_pd(power, r, _mm512_set1_pd(0.69314698384069151));
    power = _mm512_fmadd_pd(power, r, _mm512_set1_pd(1.0000000018557993));
    return _mm512_scalef_pd(power, exponent);
}

static inline __m512d avx512_half(__m512 x, int half) {
    return _mm512_cvtps_pd(half ? _mm512_extractf32x8_ps(x, 1) : _mm512_castps512_ps256(x));
}

/* With C's special cases. An infinite y is taken as the greatest number, so that its product with log2(1) = 0 is 0. */
static inline __m512 avx512_pow(__m512 x, __m512 y) {
    const __m512 zero = _mm512_setzero_ps(), one = AVX512_ALL(1), most = AVX512_ALL(3.40282347e38f);
    __m512 magnitude = avx512_abs(x), finite = _mm512_max_ps(avx512_negative(most), _mm512_min_ps(most, y));
    __m512 m = _mm512_getmant_ps(magnitude, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_zero);
    __m512 n = _mm512_sub_ps(_mm512_getexp_ps(magnitude), _mm512_getexp_ps(m));
    __m256 low = _mm512_cvtpd_ps(avx512_pow_half(avx512_half(m, 0), avx512_half(n, 0), avx512_half(finite, 0)));
    __m256 high = _mm512_cvtpd_ps(avx512_pow_half(avx512_half(m, 1), avx512_half(n, 1), avx512_half(finite, 1)));
    __m512 result = _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
    __mmask16 broken = _mm512_cmpneq_ps_mask(_mm512_reduce_ps(y, 3), zero);
    __mmask16 odd = _mm512_cmpneq_ps_mask(_mm512_reduce_ps(_mm512_mul_ps(y, AVX512_ALL(0.5f)), 3), zero) & ~broken;
    __mmask16 negative = _mm512_cmplt_ps_mask(x, zero) & _mm512_cmpneq_ps_mask(magnitude, AVX512_ALL(__builtin_inff()));
    __mmask16 unit = _mm512_cmpeq_ps_mask(y, zero) | _mm512_cmpeq_ps_mask(x, one);
    /* The sign bit of x joins the result's. */
    result = _mm512_castsi512_ps(_mm512_mask_ternarylogic_epi32(
        _mm512_castps_si512(result), odd, _mm512_castps_si512(x), _mm512_set1_epi32(INT32_MIN), 0xf8));
    result = _mm512_mask_mov_ps(result, negative & broken, AVX512_ALL(__builtin_nanf("")));
    return _mm512_mask_mov_ps(result, unit, one);
}
