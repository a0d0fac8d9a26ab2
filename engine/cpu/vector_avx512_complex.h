/* Roots, lengths and quotients of c64, 8 elements at a time, by AVX-512's own instructions: in f64, in which squares of f32 neither overflow nor
 * vanish, and with estimates of roots and quotients that iterations improve, since the instructions for these take longer than all else.
 * Errors are below 0.56 units in the last place of a part; of a quotient, of the larger part.
 *
 * Functions return the lanes whose numbers are beyond: infinite, not numbers, or a divisor that is 0. The formula is to compute these. */
#pragma once

#include "engine/cpu/vector_avx512_double.h"

struct avx512_c {
    __m512d re, im;
};

static inline struct avx512_c avx512_c_parts(__m512i numbers) {
    const __m256i re = _mm512_cvtepi64_epi32(numbers), im = _mm512_cvtepi64_epi32(_mm512_srli_epi64(numbers, 32));
    return (struct avx512_c){_mm512_cvtps_pd(_mm256_castsi256_ps(re)), _mm512_cvtps_pd(_mm256_castsi256_ps(im))};
}

static inline __m512i avx512_c_numbers(struct avx512_c a) {
    const __m512i pairs = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    return _mm512_permutex2var_epi32(_mm512_castps_si512(_mm512_castps256_ps512(_mm512_cvtpd_ps(a.re))), pairs,
                                     _mm512_castps_si512(_mm512_castps256_ps512(_mm512_cvtpd_ps(a.im))));
}

/* √s to 2^-52 or so, and in *half_inverse half of its inverse, to 2^-27; of 0 both are 0. */
static inline __m512d avx512_c_root(__m512d s, __m512d *half_inverse) {
    __m512d y = _mm512_maskz_rsqrt14_pd(_mm512_cmpneq_pd_mask(s, _mm512_setzero_pd()), s);
    __m512d half = _mm512_mul_pd(y, AVX512_D(0.5)), root = _mm512_mul_pd(s, y);
    __m512d e = _mm512_fnmadd_pd(root, half, AVX512_D(0.5)); /* Goldschmidt's iteration, to 2^-28 */
    root = _mm512_fmadd_pd(root, e, root);
    half = _mm512_fmadd_pd(half, e, half);
    *half_inverse = half;
    return _mm512_fmadd_pd(_mm512_fnmadd_pd(root, root, s), half, root);
}

/* The lanes that are infinite or not numbers. */
static inline __mmask8 avx512_c_endless(__m512d x) {
    return _mm512_fpclass_pd_mask(x, 0x99);
}

/* The square of the length is endless where a part is, since it is at most 2^257 else. */
static inline __m512d avx512_c_square(struct avx512_c a) {
    return _mm512_fmadd_pd(a.re, a.re, _mm512_mul_pd(a.im, a.im));
}

/* As formula_abs_c64(). */
static inline __m512d avx512_c_abs(struct avx512_c a) {
    __m512d half, square = avx512_c_square(a), length = avx512_c_root(square, &half);
    if (__builtin_expect(avx512_c_endless(square) != 0, 0)) {
        const __m512d infinity = AVX512_D(__builtin_inf());
        const __mmask8 infinite =
            _mm512_cmpeq_pd_mask(_mm512_abs_pd(a.re), infinity) | _mm512_cmpeq_pd_mask(_mm512_abs_pd(a.im), infinity);
        length = _mm512_mask_mov_pd(length, infinite, infinity);
    }
    return length;
}

static inline __mmask8 avx512_c_sqrt(struct avx512_c a, struct avx512_c *result) {
    __m512d half, square = avx512_c_square(a), length = avx512_c_root(square, &half);
    __m512d root = avx512_c_root(_mm512_mul_pd(_mm512_add_pd(_mm512_abs_pd(a.re), length), AVX512_D(0.5)), &half);
    __m512d other = _mm512_mul_pd(_mm512_abs_pd(a.im), half);
    const __mmask8 left = _mm512_cmp_pd_mask(a.re, _mm512_setzero_pd(), _CMP_LT_OQ);
    result->re = _mm512_mask_mov_pd(root, left, other);
    result->im = avx512_d_copysign(_mm512_mask_mov_pd(other, left, root), a.im);
    return avx512_c_endless(square);
}

/* z / |z|; 0 of 0. */
static inline __mmask8 avx512_c_sign(struct avx512_c a, struct avx512_c *result) {
    __m512d half, square = avx512_c_square(a);
    avx512_c_root(square, &half);
    const __m512d inverse = _mm512_add_pd(half, half);
    const __mmask8 some = _mm512_cmpneq_pd_mask(square, _mm512_setzero_pd());
    result->re = _mm512_maskz_mul_pd(some, a.re, inverse);
    result->im = _mm512_maskz_mul_pd(some, a.im, inverse);
    return avx512_c_endless(square);
}

/* As complex_narrow_divide(). The inverse is not a number where b is 0 or infinite. */
static inline __mmask8 avx512_c_divide(struct avx512_c a, struct avx512_c b, struct avx512_c *result) {
    const __m512d inverse = avx512_d_inverse(avx512_c_square(b));
    result->re = _mm512_mul_pd(_mm512_fmadd_pd(a.re, b.re, _mm512_mul_pd(a.im, b.im)), inverse);
    result->im = _mm512_mul_pd(_mm512_fmsub_pd(a.im, b.re, _mm512_mul_pd(a.re, b.im)), inverse);
    return avx512_c_endless(result->re) | avx512_c_endless(result->im);
}

static inline __mmask8 avx512_c_reciprocal(struct avx512_c a, struct avx512_c *result) {
    const __m512d inverse = avx512_d_inverse(avx512_c_square(a));
    result->re = _mm512_mul_pd(a.re, inverse);
    result->im = _mm512_mul_pd(_mm512_sub_pd(_mm512_setzero_pd(), a.im), inverse);
    return avx512_c_endless(inverse);
}
