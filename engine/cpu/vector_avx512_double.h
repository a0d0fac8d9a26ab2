/* Functions of f64, 8 elements at a time, by AVX-512's own instructions, as vector_avx512.h's of f32: those of vector_double.h that gain much by
 * them. Two registers are a table of 16 numbers, from which the low bits of a sum choose: adding AVX512_D_ROUND leaves an integer there.
 * Tables keep the polynomials short. Quotients and roots are made of estimates and of what these leave, which also gives the low parts of
 * results that need one.
 *
 * The greatest errors that were found among millions of arguments, in units in the last place: exp2 0.7; exp, logarithms, asinh, acosh,
 * atanh, sin and cos 0.8; atan 1; atan2 1.2; tan and erf 1.3; pow 1.5. NaN, infinities, zeros and subnormal numbers come out as libm has them. */
#pragma once

#include "engine/cpu/vector_avx512.h"
#include "engine/cpu/vector_math.h"

#define AVX512_D(x) _mm512_set1_pd(x)
#define AVX512_D_ROUND AVX512_D(WIDE_ROUND)

static inline __m512d avx512_d_choose(const double *table, __m512d shifted) {
    return _mm512_permutex2var_pd(_mm512_load_pd(table), _mm512_castpd_si512(shifted), _mm512_load_pd(table + 8));
}

static inline __m512d avx512_d_copysign(__m512d x, __m512d sign) {
    return _mm512_castsi512_pd(_mm512_ternarylogic_epi64(_mm512_set1_epi64(INT64_MAX), _mm512_castpd_si512(x),
                                                         _mm512_castpd_si512(sign), 0xca));
}

static inline __m512d avx512_d_negative(__m512d x, __mmask8 where) {
    return _mm512_mask_xor_pd(x, where, x, AVX512_D(-0.0));
}

/* About 1 / d, to 2^-28 of it; d is neither 0 nor infinite nor subnormal. */
static inline __m512d avx512_d_inverse(__m512d d) {
    __m512d y = _mm512_rcp14_pd(d);
    return _mm512_fmadd_pd(_mm512_fnmadd_pd(d, y, AVX512_D(1)), y, y);
}

/* ---- powers of two ---- */

/* (1 + p) · 2^(n / 16), where n is in the low bits of `shifted`, too. */
static inline __m512d avx512_d_power(__m512d p, __m512d n, __m512d shifted) {
    static const _Alignas(64) double powers[16] = {1.0,
                                                   1.0442737824274138,
                                                   1.0905077326652577,
                                                   1.1387886347566916,
                                                   1.189207115002721,
                                                   1.241857812073484,
                                                   1.2968395546510096,
                                                   1.3542555469368927,
                                                   1.4142135623730951,
                                                   1.4768261459394993,
                                                   1.5422108254079407,
                                                   1.6104903319492543,
                                                   1.681792830507429,
                                                   1.7562521603732995,
                                                   1.8340080864093424,
                                                   1.9152065613971474};
    static const _Alignas(64) double rest[16] = {0.0,
                                                 8.551889705537965e-17,
                                                 -3.046782079812471e-17,
                                                 8.912812676025408e-17,
                                                 3.982015231465646e-17,
                                                 4.658027591836937e-17,
                                                 2.5382502794888315e-17,
                                                 7.70094837980299e-17,
                                                 -9.667293313452913e-17,
                                                 -3.483994556892796e-17,
                                                 7.949834809697621e-17,
                                                 2.4707192569797888e-17,
                                                 8.199010020581497e-17,
                                                 2.960140695448873e-17,
                                                 3.283107224245627e-17,
                                                 -1.0619946056195963e-16};
    __m512d t = avx512_d_choose(powers, shifted);
    __m512d sum = _mm512_add_pd(t, _mm512_fmadd_pd(t, p, avx512_d_choose(rest, shifted)));
    return _mm512_scalef_pd(sum, _mm512_mul_pd(n, AVX512_D(0.0625)));
}

/* e^(x + low) for |x| <= 800. */
static inline __m512d avx512_d_exp_sum(__m512d x, __m512d low) {
    __m512d shifted = _mm512_fmadd_pd(x, AVX512_D(23.083120654223414), AVX512_D_ROUND);
    __m512d n = _mm512_sub_pd(shifted, AVX512_D_ROUND);
    __m512d r = _mm512_fnmadd_pd(n, AVX512_D(0.04332169878499658), x);
    r = _mm512_add_pd(_mm512_fnmadd_pd(n, AVX512_D(1.4494042586539372e-18), r), low);
    __m512d p = AVX512_D(0.0013889034639665864);
    p = _mm512_fmadd_pd(p, r, AVX512_D(0.008333449934107185));
    p = _mm512_fmadd_pd(p, r, AVX512_D(0.04166666666495362));
    p = _mm512_fmadd_pd(p, r, AVX512_D(0.16666666665296223));
    p = _mm512_fmadd_pd(p, r, AVX512_D(0.5));
    return avx512_d_power(_mm512_fmadd_pd(_mm512_mul_pd(r, r), p, r), n, shifted);
}

static inline __m512d avx512_d_exp(__m512d x) {
    return avx512_d_exp_sum(_mm512_max_pd(AVX512_D(-746), _mm512_min_pd(AVX512_D(710), x)), _mm512_setzero_pd());
}

static inline __m512d avx512_d_exp2(__m512d x) {
    __m512d bounded = _mm512_max_pd(AVX512_D(-1080), _mm512_min_pd(AVX512_D(1025), x));
    __m512d shifted = _mm512_fmadd_pd(bounded, AVX512_D(16), AVX512_D_ROUND);
    __m512d n = _mm512_sub_pd(shifted, AVX512_D_ROUND), r = _mm512_fnmadd_pd(n, AVX512_D(0.0625), bounded);
    __m512d p = AVX512_D(0.00015403723980749256);
    p = _mm512_fmadd_pd(p, r, AVX512_D(0.0013333781576784268));
    p = _mm512_fmadd_pd(p, r, AVX512_D(0.009618129106919537));
    p = _mm512_fmadd_pd(p, r, AVX512_D(0.0555041086566393));
    p = _mm512_fmadd_pd(p, r, AVX512_D(0.24022650695910075));
    p = _mm512_fmadd_pd(p, r, AVX512_D(0.6931471805599457));
    return avx512_d_power(_mm512_mul_pd(p, r), n, shifted);
}

/* ---- logarithms ---- */

/* x = 2^n · m with m from 3/4 to below 3/2, in pieces of 1/16, of which one is around 1. An inverse of about the piece's middle leaves |f| =
 * |m · inverse - 1| < 0.039, exactly in the pieces next to 1, where the logarithm is not much greater than f. The high parts of the
 * logarithms of inverses and of 2 are multiples of 2^-42, so that *t is an exact sum; *low is the sum of the low ones. Of 0 and infinity
 * n, *t and *low are infinite, of numbers below 0 m is NaN. */
struct avx512_d_logarithm {
    _Alignas(64) double inverses[16];
    _Alignas(64) double logarithms[16];
    _Alignas(64) double rests[16];
    double unit, unit_low;
};

struct avx512_d_reduced {
    __m512d n, inverse, t, low, f, f_low;
};

/* `exactly`: f is rounded to f64's bits, and f_low is what is left; else f is the only part. */
static inline __attribute__((always_inline)) struct avx512_d_reduced
avx512_d_log_reduce(const struct avx512_d_logarithm *of, __m512d x, bool exactly) {
    struct avx512_d_reduced to;
    __m512d m = _mm512_getmant_pd(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_nan);
    __m512d shifted = _mm512_fmadd_pd(m, AVX512_D(16), AVX512_D_ROUND);
    to.n = _mm512_sub_pd(_mm512_getexp_pd(x), _mm512_getexp_pd(m));
    to.inverse = avx512_d_choose(of->inverses, shifted);
    to.t = _mm512_fmadd_pd(to.n, AVX512_D(of->unit), avx512_d_choose(of->logarithms, shifted));
    to.low = _mm512_fmadd_pd(to.n, AVX512_D(of->unit_low), avx512_d_choose(of->rests, shifted));
    __m512d product = _mm512_mul_pd(m, to.inverse);
    to.f = exactly ? _mm512_sub_pd(product, AVX512_D(1)) : _mm512_fmsub_pd(m, to.inverse, AVX512_D(1));
    to.f_low = exactly ? _mm512_fmsub_pd(m, to.inverse, product) : _mm512_setzero_pd();
    return to;
}

static const struct avx512_d_logarithm avx512_d_ln = {
    {1.0, 0.9375, 0.888671875, 0.841796875, 0.80078125, 0.76171875, 0.7265625, 0.6953125, 0.673828125, 1.0, 1.0, 1.0,
     1.306640625, 1.23046875, 1.142578125, 1.0625},
    {0.0, 0.0645385211375924, 0.11802720608852724, 0.172216534935842, 0.2221674653410446, 0.2721778859158803,
     0.3194307707663029, 0.36339389418753854, 0.39478020800811464, 0.0, 0.0, 0.0, -0.26745943508876735,
     -0.20739519434596332, -0.13328722219239353, -0.06062462181648698},
    {0.0, -2.1225608044809997e-14, 3.013227959910772e-14, -8.199467511461324e-14, 1.0970699320566433e-13,
     -6.465103064005256e-14, 5.834357420090924e-14, -6.120773136055512e-14, 3.338653644511022e-14, 0.0, 0.0, 0.0,
     4.6684676570510833e-14, -1.0726867577289733e-13, 4.4819840726013836e-14, 5.213620639136504e-14},
    0.6931471805598903,
    5.497923018708371e-14};

/* a + b + low, for |a| >= |b| or a = 0. */
static inline __m512d avx512_d_sum(__m512d a, __m512d b, __m512d low) {
    __m512d sum = _mm512_add_pd(a, b), rest = _mm512_add_pd(_mm512_sub_pd(a, sum), b);
    return _mm512_add_pd(sum, _mm512_add_pd(rest, low));
}

/* The logarithm of 0 and of infinity, else `result`. */
static inline __m512d avx512_d_unless_special(__m512d x, __m512d result, __m512d special) {
    return _mm512_mask_mov_pd(result, _mm512_fpclass_pd_mask(x, 0x0e), special); /* ±0, ∞ */
}

/* (ln(1 + f) - f) / f². */
static inline __m512d avx512_d_log_tail(__m512d f) {
    __m512d p = AVX512_D(-0.100285746144095);
    p = _mm512_fmadd_pd(p, f, AVX512_D(0.11142282635454434));
    p = _mm512_fmadd_pd(p, f, AVX512_D(-0.12499967383430567));
    p = _mm512_fmadd_pd(p, f, AVX512_D(0.1428567870517589));
    p = _mm512_fmadd_pd(p, f, AVX512_D(-0.16666666680450812));
    p = _mm512_fmadd_pd(p, f, AVX512_D(0.200000000150367));
    p = _mm512_fmadd_pd(p, f, AVX512_D(-0.24999999999998426));
    p = _mm512_fmadd_pd(p, f, AVX512_D(0.33333333333331616));
    p = _mm512_fmadd_pd(p, f, AVX512_D(-0.5));
    return p;
}

/* An infinite t is the result, of which the rest would be NaN. */
static inline __m512d avx512_d_log(__m512d x) {
    const struct avx512_d_reduced a = avx512_d_log_reduce(&avx512_d_ln, x, false);
    __m512d low = _mm512_fmadd_pd(_mm512_mul_pd(a.f, a.f), avx512_d_log_tail(a.f), a.low);
    return avx512_d_unless_special(x, avx512_d_sum(a.t, a.f, low), a.t);
}

/* t + f · (k + k_low) + low, rounded once but for little. */
static inline __m512d avx512_d_log_times(__m512d t, __m512d f, double k, double k_low, __m512d low) {
    __m512d most = _mm512_mul_pd(f, AVX512_D(k)), rest = _mm512_fmsub_pd(f, AVX512_D(k), most);
    return avx512_d_sum(t, most, _mm512_fmadd_pd(f, AVX512_D(k_low), _mm512_add_pd(rest, low)));
}

static inline __m512d avx512_d_log2(__m512d x) {
    static const struct avx512_d_logarithm log2 = {
        {1.0, 0.9375, 0.888671875, 0.841796875, 0.80078125, 0.76171875, 0.7265625, 0.6953125, 0.673828125, 1.0, 1.0,
         1.0, 1.306640625, 1.23046875, 1.142578125, 1.0625},
        {0.0, 0.09310940439149817, 0.1702772649139206, 0.24845594091084422, 0.3205199004944461, 0.39266968625042864,
         0.46084118889189085, 0.5242665690336707, 0.5695474483345606, 0.0, 0.0, 0.0, -0.385862400641372,
         -0.29920801838738953, -0.19229281447087487, -0.0874628412502716},
        {0.0, -1.6703260328550802e-14, 2.0794684620954387e-14, 5.764439755273126e-14, 1.0783955372342267e-13,
         -3.932977168458341e-14, 7.775807578056954e-14, -6.850343183727799e-14, -9.201476612102723e-14, 0.0, 0.0, 0.0,
         -8.890914781162426e-14, 1.1071116024939427e-13, 1.0800204817323626e-13, -6.781363655020842e-14},
        1,
        0};
    const struct avx512_d_reduced a = avx512_d_log_reduce(&log2, x, false);
    __m512d p = AVX512_D(-0.14468174863393535);
    p = _mm512_fmadd_pd(p, a.f, AVX512_D(0.1607491590235332));
    p = _mm512_fmadd_pd(p, a.f, AVX512_D(-0.1803364095534907));
    p = _mm512_fmadd_pd(p, a.f, AVX512_D(0.20609877823690323));
    p = _mm512_fmadd_pd(p, a.f, AVX512_D(-0.24044917368035706));
    p = _mm512_fmadd_pd(p, a.f, AVX512_D(0.28853900839472646));
    p = _mm512_fmadd_pd(p, a.f, AVX512_D(-0.36067376022221814));
    p = _mm512_fmadd_pd(p, a.f, AVX512_D(0.4808983469629631));
    p = _mm512_fmadd_pd(p, a.f, AVX512_D(-0.7213475204444817));
    __m512d low = _mm512_fmadd_pd(_mm512_mul_pd(a.f, a.f), p, a.low);
    return avx512_d_unless_special(x, avx512_d_log_times(a.t, a.f, 1.4426950408889634, 2.0355273740931033e-17, low),
                                   a.t);
}

static inline __m512d avx512_d_log10(__m512d x) {
    static const struct avx512_d_logarithm log10 = {
        {1.0, 0.9375, 0.888671875, 0.841796875, 0.80078125, 0.76171875, 0.7265625, 0.6953125, 0.673828125, 1.0, 1.0,
         1.0, 1.306640625, 1.23046875, 1.142578125, 1.0625},
        {0.0, 0.02802872360030051, 0.051258564318686695, 0.07479269081500206, 0.09648610425620063, 0.11820535394940634,
         0.13872702109392776, 0.15781996300302126, 0.17145086590244318, 0.0, 0.0, 0.0, -0.1161561567919307,
         -0.090070588477829, -0.05788590510633185, -0.026328938722372186},
        {0.0, -5.697035970961075e-14, 3.165761339154213e-14, 9.709532880677858e-14, -1.0537083035076859e-13,
         -7.479390502733346e-14, 5.489158776621583e-15, -6.567569121373702e-14, 1.1345238858253556e-13, 0.0, 0.0, 0.0,
         -6.165575538983567e-14, 7.805719059757665e-14, -1.7844167497892012e-14, 2.303833573367737e-14},
        0.30102999566383914,
        1.42050232272661e-13};
    const struct avx512_d_reduced a = avx512_d_log_reduce(&log10, x, false);
    __m512d p = AVX512_D(-0.04355354616393077);
    p = _mm512_fmadd_pd(p, a.f, AVX512_D(0.04839031864384283));
    p = _mm512_fmadd_pd(p, a.f, AVX512_D(-0.05428666858594524));
    p = _mm512_fmadd_pd(p, a.f, AVX512_D(0.0620419143190068));
    p = _mm512_fmadd_pd(p, a.f, AVX512_D(-0.07238241371040575));
    p = _mm512_fmadd_pd(p, a.f, AVX512_D(0.08685889644595393));
    p = _mm512_fmadd_pd(p, a.f, AVX512_D(-0.10857362047580613));
    p = _mm512_fmadd_pd(p, a.f, AVX512_D(0.14476482730107648));
    p = _mm512_fmadd_pd(p, a.f, AVX512_D(-0.2171472409516259));
    __m512d low = _mm512_fmadd_pd(_mm512_mul_pd(a.f, a.f), p, a.low);
    return avx512_d_unless_special(x, avx512_d_log_times(a.t, a.f, 0.4342944819032518, 1.098319650216765e-17, low),
                                   a.t);
}

/* ln((u + low) · 2^more), where low is at most what u was rounded by, for finite u > 0. Around 1 what f + low is rounded by counts. */
static inline __m512d avx512_d_log_of_sum(__m512d u, __m512d low, __m512d more) {
    const struct avx512_d_reduced a = avx512_d_log_reduce(&avx512_d_ln, u, false);
    __m512d scaled = _mm512_mul_pd(_mm512_scalef_pd(low, _mm512_sub_pd(_mm512_setzero_pd(), a.n)), a.inverse);
    __m512d f = _mm512_add_pd(a.f, scaled), rest = _mm512_sub_pd(scaled, _mm512_sub_pd(f, a.f));
    rest = _mm512_fmadd_pd(more, AVX512_D(avx512_d_ln.unit_low), _mm512_add_pd(a.low, rest));
    rest = _mm512_fmadd_pd(_mm512_mul_pd(f, f), avx512_d_log_tail(f), rest);
    return avx512_d_sum(_mm512_fmadd_pd(more, AVX512_D(avx512_d_ln.unit), a.t), f, rest);
}

static inline __m512d avx512_d_log1p(__m512d x) {
    const __m512d one = AVX512_D(1);
    __m512d u = _mm512_add_pd(one, x), greater = _mm512_max_pd(one, x), lesser = _mm512_min_pd(one, x);
    __m512d low = _mm512_sub_pd(lesser, _mm512_sub_pd(u, greater));
    __m512d result = avx512_d_log_of_sum(u, low, _mm512_setzero_pd());
    result = _mm512_mask_mov_pd(result, _mm512_cmpeq_pd_mask(u, _mm512_setzero_pd()), AVX512_D(-__builtin_inf()));
    return _mm512_mask_mov_pd(result, _mm512_fpclass_pd_mask(x, 0x0e), x); /* ±0, ∞ */
}

/* ---- inverse hyperbolic functions ---- */

/* √(s + s_low), and in *low what it is rounded by; of 0 it is 0. */
static inline __m512d avx512_d_root(__m512d s, __m512d s_low, __m512d *low) {
    __m512d y = _mm512_maskz_rsqrt14_pd(_mm512_cmpneq_pd_mask(s, _mm512_setzero_pd()), s);
    __m512d half = _mm512_mul_pd(y, AVX512_D(0.5)), root = _mm512_mul_pd(s, y);
    __m512d e = _mm512_fnmadd_pd(root, half, AVX512_D(0.5)); /* Goldschmidt's iteration, to 2^-28 */
    root = _mm512_fmadd_pd(root, e, root);
    half = _mm512_fmadd_pd(half, e, half);
    root = _mm512_fmadd_pd(_mm512_fnmadd_pd(root, root, s), half, root); /* to half a unit and a little */
    *low = _mm512_mul_pd(_mm512_add_pd(_mm512_fnmadd_pd(root, root, s), s_low), half);
    return root;
}

/* Where x² may overflow ln(2|x|) is the result; near 0 it is x. */
static inline __m512d avx512_d_asinh(__m512d x) {
    const __m512d one = AVX512_D(1), zero = _mm512_setzero_pd();
    __m512d magnitude = _mm512_abs_pd(x);
    __mmask8 great = _mm512_cmp_pd_mask(magnitude, AVX512_D(0x1p500), _CMP_GT_OQ);
    __m512d a = _mm512_mask_mov_pd(magnitude, great, one);
    __m512d square = _mm512_mul_pd(a, a), sum = _mm512_add_pd(one, square);
    __m512d lesser = _mm512_min_pd(one, square), greater = _mm512_max_pd(one, square);
    __m512d sum_low = _mm512_add_pd(_mm512_sub_pd(lesser, _mm512_sub_pd(sum, greater)), _mm512_fmsub_pd(a, a, square));
    __m512d root_low, root = avx512_d_root(sum, sum_low, &root_low);
    __m512d u = _mm512_add_pd(root, a), low = _mm512_add_pd(_mm512_sub_pd(a, _mm512_sub_pd(u, root)), root_low);
    u = _mm512_mask_mov_pd(u, great, magnitude);
    low = _mm512_mask_mov_pd(low, great, zero);
    __m512d result = avx512_d_log_of_sum(u, low, _mm512_maskz_mov_pd(great, one));
    __mmask8 itself = _mm512_cmp_pd_mask(magnitude, AVX512_D(0x1p-28), _CMP_LT_OQ) |
                      _mm512_cmpeq_pd_mask(magnitude, AVX512_D(__builtin_inf()));
    return _mm512_mask_mov_pd(avx512_d_copysign(result, x), itself, x);
}

static inline __m512d avx512_d_acosh(__m512d x) {
    const __m512d one = AVX512_D(1), zero = _mm512_setzero_pd();
    __mmask8 great = _mm512_cmp_pd_mask(x, AVX512_D(0x1p500), _CMP_GT_OQ);
    __m512d a = _mm512_mask_mov_pd(x, great, AVX512_D(2));
    __m512d less = _mm512_sub_pd(a, one), more = _mm512_add_pd(a, one);
    __m512d more_low = _mm512_add_pd(_mm512_sub_pd(a, more), one), product = _mm512_mul_pd(less, more);
    __m512d product_low = _mm512_fmadd_pd(less, more_low, _mm512_fmsub_pd(less, more, product));
    __m512d root_low, root = avx512_d_root(product, product_low, &root_low);
    __m512d u = _mm512_add_pd(a, root), low = _mm512_add_pd(_mm512_sub_pd(root, _mm512_sub_pd(u, a)), root_low);
    u = _mm512_mask_mov_pd(u, great, x);
    low = _mm512_mask_mov_pd(low, great, zero);
    __m512d result = avx512_d_log_of_sum(u, low, _mm512_maskz_mov_pd(great, one));
    result = _mm512_mask_mov_pd(result, _mm512_cmp_pd_mask(x, one, _CMP_LT_OQ), AVX512_D(__builtin_nan("")));
    return _mm512_mask_mov_pd(result, _mm512_cmpeq_pd_mask(x, AVX512_D(__builtin_inf())), x);
}

/* Half of ln((1 + |x|) / (1 - |x|)). */
static inline __m512d avx512_d_atanh(__m512d x) {
    const __m512d one = AVX512_D(1);
    __m512d a = _mm512_abs_pd(x), over = _mm512_add_pd(one, a), under = _mm512_sub_pd(one, a);
    __m512d over_low = _mm512_add_pd(_mm512_sub_pd(one, over), a);
    __m512d under_low = _mm512_sub_pd(_mm512_sub_pd(one, under), a);
    __m512d inverse = avx512_d_inverse(under), q = _mm512_mul_pd(over, inverse);
    q = _mm512_fmadd_pd(_mm512_fnmadd_pd(q, under, over), inverse, q);
    __m512d rest = _mm512_fnmadd_pd(q, under_low, _mm512_add_pd(_mm512_fnmadd_pd(q, under, over), over_low));
    __m512d result = avx512_d_log_of_sum(q, _mm512_mul_pd(rest, inverse), _mm512_setzero_pd());
    result = avx512_d_copysign(_mm512_mul_pd(result, AVX512_D(0.5)), x);
    result = _mm512_mask_mov_pd(result, _mm512_cmpeq_pd_mask(a, one), avx512_d_copysign(AVX512_D(__builtin_inf()), x));
    result = _mm512_mask_mov_pd(result, _mm512_cmp_pd_mask(a, one, _CMP_GT_OQ), AVX512_D(__builtin_nan("")));
    return _mm512_mask_mov_pd(result, _mm512_cmp_pd_mask(a, AVX512_D(0x1p-28), _CMP_LT_OQ), x);
}

/* ---- circular functions ---- */

/* x = q · π/2 + r + *rest, and q in the low bits of the quadrant. As double_turn(), but with FMA the first two parts of π/2 have 53 bits, since the
 * first difference is exact. */
static inline __m512d avx512_d_turn(__m512d x, __m512i *quadrant, __m512d *rest) {
    const __m512d first = AVX512_D(1.5707963267948966), second = AVX512_D(6.123233995736766e-17);
    __m512d shifted = _mm512_fmadd_pd(x, AVX512_D(0.63661977236758134), AVX512_D_ROUND);
    __m512d q = _mm512_sub_pd(shifted, AVX512_D_ROUND), near = _mm512_fnmadd_pd(q, first, x);
    __m512d more = _mm512_mul_pd(q, second), r = _mm512_sub_pd(near, more);
    __m512d lost = _mm512_sub_pd(_mm512_sub_pd(near, r), more), less = _mm512_fmsub_pd(q, second, more);
    *rest = _mm512_fnmadd_pd(q, AVX512_D(-1.4973849048591833e-33), _mm512_sub_pd(lost, less));
    *quadrant = _mm512_castpd_si512(shifted);
    return r;
}

/* sin(r + rest), cos(r + rest), and these with the other sign, by the quadrant. */
static inline __m512d avx512_d_turned(__m512d r, __m512d rest, __m512i quadrant) {
    const __m512d one = AVX512_D(1), half = AVX512_D(0.5), z = _mm512_mul_pd(r, r), cube = _mm512_mul_pd(z, r);
    __m512d p = AVX512_D(1.58969099521155010221e-10), c = AVX512_D(-1.13596475577881948265e-11);
    p = _mm512_fmadd_pd(p, z, AVX512_D(-2.50507602534068634195e-08));
    c = _mm512_fmadd_pd(c, z, AVX512_D(2.08757232129817482790e-09));
    p = _mm512_fmadd_pd(p, z, AVX512_D(2.75573137070700676789e-06));
    c = _mm512_fmadd_pd(c, z, AVX512_D(-2.75573143513906633035e-07));
    p = _mm512_fmadd_pd(p, z, AVX512_D(-1.98412698298579493134e-04));
    c = _mm512_fmadd_pd(c, z, AVX512_D(2.48015872894767294178e-05));
    p = _mm512_fmadd_pd(p, z, AVX512_D(8.33333333332248946124e-03));
    c = _mm512_fmadd_pd(c, z, AVX512_D(-1.38888888888741095749e-03));
    p = _mm512_fmadd_pd(p, z, AVX512_D(-1.66666666666666324348e-01));
    c = _mm512_fmadd_pd(c, z, AVX512_D(4.16666666666666019037e-02));
    __m512d most = _mm512_fnmadd_pd(z, half, one), lost = _mm512_fnmadd_pd(z, half, _mm512_sub_pd(one, most));
    __m512d sine = _mm512_add_pd(r, _mm512_fmadd_pd(cube, p, _mm512_mul_pd(rest, most)));
    __m512d more = _mm512_fmadd_pd(_mm512_mul_pd(z, z), c, _mm512_fnmadd_pd(r, rest, lost));
    __mmask8 odd = _mm512_test_epi64_mask(quadrant, _mm512_set1_epi64(1));
    __m512d result = _mm512_mask_add_pd(sine, odd, most, more);
    /* The quadrant's second bit changes the sign. */
    const __m512i sign = _mm512_castpd_si512(AVX512_D(-0.0));
    result = _mm512_castsi512_pd(
        _mm512_ternarylogic_epi64(_mm512_castpd_si512(result), _mm512_slli_epi64(quadrant, 62), sign, 0x78));
    return result;
}

static inline __m512d avx512_d_sin(__m512d x) {
    __m512i quadrant;
    __m512d rest, r = avx512_d_turn(x, &quadrant, &rest), sine = avx512_d_turned(r, rest, quadrant);
    return _mm512_mask_mov_pd(sine, _mm512_cmpeq_pd_mask(x, _mm512_setzero_pd()), x);
}

static inline __m512d avx512_d_cos(__m512d x) {
    __m512i quadrant;
    __m512d rest, r = avx512_d_turn(x, &quadrant, &rest);
    return avx512_d_turned(r, rest, _mm512_add_epi64(quadrant, _mm512_set1_epi64(1)));
}

/* tan(r + rest) = high + low with x = q · π/2 + r + rest; its inverse where q is odd. */
static inline __m512d avx512_d_tan(__m512d x) {
    const __m512d one = AVX512_D(1);
    __m512i quadrant;
    __m512d rest, r = avx512_d_turn(x, &quadrant, &rest), z = _mm512_mul_pd(r, r);
    __m512d p = AVX512_D(8.485316072701323e-06);
    p = _mm512_fmadd_pd(p, z, AVX512_D(-1.8323519064364184e-05));
    p = _mm512_fmadd_pd(p, z, AVX512_D(3.653131664108726e-05));
    p = _mm512_fmadd_pd(p, z, AVX512_D(-1.1030080532725273e-05));
    p = _mm512_fmadd_pd(p, z, AVX512_D(5.559954108301084e-05));
    p = _mm512_fmadd_pd(p, z, AVX512_D(8.997951259028279e-05));
    p = _mm512_fmadd_pd(p, z, AVX512_D(0.0002412282918388211));
    p = _mm512_fmadd_pd(p, z, AVX512_D(0.0005895751422742284));
    p = _mm512_fmadd_pd(p, z, AVX512_D(0.0014559028161905394));
    p = _mm512_fmadd_pd(p, z, AVX512_D(0.0035921209718821146));
    p = _mm512_fmadd_pd(p, z, AVX512_D(0.008863236004116282));
    p = _mm512_fmadd_pd(p, z, AVX512_D(0.02186948851704705));
    p = _mm512_fmadd_pd(p, z, AVX512_D(0.05396825396865608));
    p = _mm512_fmadd_pd(p, z, AVX512_D(0.13333333333333));
    p = _mm512_fmadd_pd(p, z, AVX512_D(0.3333333333333333));
    __m512d more = _mm512_fmadd_pd(_mm512_mul_pd(r, z), p, _mm512_fmadd_pd(rest, z, rest));
    __m512d high = _mm512_add_pd(r, more), low = _mm512_add_pd(_mm512_sub_pd(r, high), more);
    __m512d y = avx512_d_inverse(high), e = _mm512_fnmadd_pd(low, y, _mm512_fnmadd_pd(high, y, one));
    __m512d inverse = _mm512_fnmsub_pd(_mm512_fmadd_pd(e, e, e), y, y);
    __mmask8 odd = _mm512_test_epi64_mask(quadrant, _mm512_set1_epi64(1));
    high = _mm512_mask_mov_pd(high, odd, inverse);
    return _mm512_mask_mov_pd(high, _mm512_cmpeq_pd_mask(x, _mm512_setzero_pd()), x);
}

/* The angle of less / more, 0 <= less <= more, more > 0, from π/2 downwards where `swapped`: arctan(c) + arctan(t), where c is the multiple of
 * 1/16 next to less / more but for 1, and t = (less - c · more) / (more + c · less). */
static inline __m512d avx512_d_angle(__m512d less, __m512d more, __mmask8 swapped) {
    static const _Alignas(64) double angles[16] = {0.0,
                                                   0.06241880999595728,
                                                   0.12435499454676147,
                                                   0.1853479499956947,
                                                   0.24497866312686423,
                                                   0.3028848683749714,
                                                   0.3587706702705722,
                                                   0.41241044159738727,
                                                   0.46364760900080615,
                                                   0.5123894603107377,
                                                   0.5585993153435624,
                                                   0.6022873461349643,
                                                   0.6435011087932845,
                                                   0.6823165548747481,
                                                   0.7188299996216245,
                                                   0.7531512809621943};
    static const _Alignas(64) double rest[16] = {0.0,
                                                 6.783986340824278e-17,
                                                 -3.088089975808285e-17,
                                                 5.969184350010091e-17,
                                                 -7.256797122815228e-17,
                                                 -1.1010827903001369e-17,
                                                 3.088733564861919e-17,
                                                 3.963462895355093e-17,
                                                 -3.281237377829614e-17,
                                                 -2.5462781472855804e-17,
                                                 -5.4556305485916264e-18,
                                                 -8.151799509023163e-17,
                                                 -9.518751741107137e-17,
                                                 6.943223671560008e-18,
                                                 -2.1478388444456983e-17,
                                                 8.676536780333358e-17};
    const __m512d right = AVX512_D(1.5707963267948966), right_low = AVX512_D(6.123233995736766e-17);
    __m512d ratio = _mm512_min_pd(_mm512_mul_pd(less, _mm512_rcp14_pd(more)), AVX512_D(0.96));
    __m512d shifted = _mm512_fmadd_pd(ratio, AVX512_D(16), AVX512_D_ROUND);
    __m512d c = _mm512_mul_pd(_mm512_sub_pd(shifted, AVX512_D_ROUND), AVX512_D(0.0625));
    __m512d over = _mm512_fnmadd_pd(c, more, less), under = _mm512_fmadd_pd(c, less, more);
    __m512d under_low = _mm512_fmadd_pd(c, less, _mm512_sub_pd(more, under));
    __m512d inverse = avx512_d_inverse(under), t = _mm512_mul_pd(over, inverse);
    __m512d left = _mm512_fnmadd_pd(t, under_low, _mm512_fnmadd_pd(t, under, over));
    t = _mm512_fmadd_pd(left, inverse, t);
    __m512d angle = avx512_d_choose(angles, shifted), low = avx512_d_choose(rest, shifted), z = _mm512_mul_pd(t, t);
    angle = _mm512_mask_sub_pd(angle, swapped, right, angle); /* exact */
    low = _mm512_mask_sub_pd(low, swapped, right_low, low);
    t = avx512_d_negative(t, swapped);
    __m512d p = AVX512_D(0.11090773979724851);
    p = _mm512_fmadd_pd(p, z, AVX512_D(-0.14285700055454031));
    p = _mm512_fmadd_pd(p, z, AVX512_D(0.1999999999681293));
    p = _mm512_fmadd_pd(p, z, AVX512_D(-0.3333333333333322));
    low = _mm512_fmadd_pd(_mm512_mul_pd(t, z), p, low);
    return _mm512_add_pd(angle, _mm512_add_pd(t, low));
}

static inline __m512d avx512_d_atan(__m512d x) {
    const __m512d one = AVX512_D(1);
    __m512d a = _mm512_min_pd(AVX512_D(0x1p1000), _mm512_abs_pd(x));
    __mmask8 swapped = _mm512_cmp_pd_mask(a, one, _CMP_GT_OQ);
    return avx512_d_copysign(avx512_d_angle(_mm512_min_pd(one, a), _mm512_max_pd(one, a), swapped), x);
}

/* Numbers are divided by the greater one's power of two; infinite ones are as if they were 1 beside 0. */
static inline __m512d avx512_d_atan2(__m512d y, __m512d x) {
    __m512d a = _mm512_abs_pd(y), b = _mm512_abs_pd(x), more = _mm512_max_pd(a, b), less = _mm512_min_pd(a, b);
    __m512d down = _mm512_sub_pd(_mm512_setzero_pd(), _mm512_max_pd(_mm512_getexp_pd(more), AVX512_D(-1100)));
    __mmask8 infinite = _mm512_cmpeq_pd_mask(less, AVX512_D(__builtin_inf()));
    less = _mm512_mask_mov_pd(_mm512_scalef_pd(less, down), infinite, AVX512_D(1));
    more = _mm512_getmant_pd(more, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_zero); /* 1 of 0 and of infinity */
    __m512d angle = avx512_d_angle(less, more, _mm512_cmp_pd_mask(a, b, _CMP_GT_OQ));
    __mmask8 left = _mm512_movepi64_mask(_mm512_castpd_si512(x));
    __m512d other = _mm512_sub_pd(AVX512_D(3.1415926535897931), angle);
    __m512d other_low = _mm512_sub_pd(_mm512_sub_pd(AVX512_D(3.1415926535897931), other), angle);
    other = _mm512_add_pd(other, _mm512_add_pd(other_low, AVX512_D(1.2246467991473532e-16)));
    angle = avx512_d_copysign(_mm512_mask_mov_pd(angle, left, other), y);
    return _mm512_mask_mov_pd(angle, _mm512_cmpunord_pd_mask(x, y), AVX512_D(__builtin_nan("")));
}

/* ---- the error function ---- */

/* A polynomial of |x| less a number near the middle of a piece, at which erf is nearly a number of f64; around 0, of |x| itself, which is added. */
static inline __m512d avx512_d_erf(__m512d x) {
    static const _Alignas(64) double middles[16] = {0.0,
                                                    0.38379579519845175,
                                                    0.767937079232268,
                                                    1.152123828128835,
                                                    1.5362385867639987,
                                                    1.9202185092682793,
                                                    2.304020445804239,
                                                    2.6877618782606425,
                                                    3.071765168426393,
                                                    3.4560270768462087,
                                                    3.8397642051582714,
                                                    4.223966997489992,
                                                    4.608058849062725,
                                                    4.9918939932831945,
                                                    5.375998640391141,
                                                    5.760244101369844};
    static const _Alignas(64) double coefficients[14][16] = {
        {0.0, 0.41271129089141084, 0.7225329673723953, 0.8967608716870838, 0.9701872623001748, 0.9933844018001995,
         0.9988794854629127, 0.9998559270033412, 0.9999860172551702, 0.9999989790680249, 0.9999999437237704,
         0.9999999976791336, 0.999999999928167, 0.9999999999983302, 0.999999999999971, 0.9999999999999997},
        {0.1283791670955126, 0.9738315131226892, 0.6256619185248741, 0.2992107579817071, 0.1065387236228487,
         0.02825579002646968, 0.005584680934781722, 0.0008224016338369271, 9.006679355122637e-05, 7.3314230656249e-06,
         4.459732280242505e-07, 2.0128784970653222e-08, 6.769497171685821e-10, 1.6992935746784414e-11,
         3.167767449198407e-13, 4.389198011891854e-15},
        {4.530278971558307e-19, -0.3737524399682337, -0.4804689862988492, -0.34472784390321487, -0.16366889821400524,
         -0.05425729100282514, -0.012867219057030239, -0.0022104197600461535, -0.0002766640392625057,
         -2.533759662661526e-05, -1.7124320374266174e-06, -8.502332341558915e-08, -3.11942413455665e-09,
         -8.482693388083038e-11, -1.7029913498612687e-12, -2.5282851951486176e-14},
        {-0.37612638903183765, -0.2289807611042498, 0.0374259938250597, 0.1650425227930119, 0.13211007671871997,
         0.060038639622096816, 0.01790266354709914, 0.0036865874327250965, 0.0005365423749247395, 5.593447231398292e-05,
         4.234899084709448e-06, 2.3271421309276277e-07, 9.35734341912809e-09, 2.766337292285464e-10,
         5.997927206413206e-12, 9.562719989607363e-14},
        {1.5043834063285803e-14, 0.1685250733024289, 0.14578592457373915, 0.019834569718956353, -0.046919999373240005,
         -0.039557889869197164, -0.016334978404408538, -0.004217527994599865, -0.000731844742920245,
         -8.820965988033222e-05, -7.559696279659697e-06, -4.6314747018720693e-07, -2.0519786537734975e-08,
         -6.621874823628931e-10, -1.555476057238651e-11, -2.669903944789033e-13},
        {0.11283791670866139, 0.04282254252368761, -0.05600956499156752, -0.058653508995486166, -0.01080089760441318,
         0.012372325039164462, 0.009683650626091033, 0.0034283081559290515, 0.0007382593635206427,
         0.00010516164750094375, 1.034051074536627e-05, 7.127135876556588e-07, 3.501535053374997e-08,
         1.2392377653268284e-09, 3.164957034419441e-11, 5.864837698080554e-13},
        {3.123613842650336e-11, -0.05041839008554986, -0.024538972668389787, 0.01723614983707039, 0.018042918408062963,
         0.0026295814479052534, -0.0030811154399402758, -0.001946817856448824, -0.0005607612008785024,
         -9.762459122607112e-05, -1.1219122034427999e-05, -8.799868952472629e-07, -4.831232017370824e-08,
         -1.8854642319496013e-09, -5.2568057489980406e-11, -1.0548980987285448e-12},
        {-0.026866171346273376, -0.004667167428416425, 0.01871972126798356, 0.008291355787001393, -0.005347851271831328,
         -0.004388469099511391, -0.00027735882556766383, 0.0006787598168146206, 0.0003163744539697782,
         7.135957827248231e-05, 9.84619738082662e-06, 8.923164665384238e-07, 5.527044663875669e-08,
         2.3940972810111312e-09, 7.320892688617079e-11, 1.5964965455917315e-12},
        {1.0490534105865635e-08, 0.011251746057188053, 0.0016644621890907433, -0.0060816268761126405,
         -0.0018124474523733818, 0.0015432234286853928, 0.0008199994570730174, -3.8911040077539094e-05,
         -0.00012279392811013746, -4.0735591911209895e-05, -7.047668284184785e-06, -7.537105456017483e-07,
         -5.3319916486859096e-08, -2.583768885976177e-09, -8.713023037009883e-11, -2.073097338997869e-12},
        {0.005223871035477053, -5.213320475348138e-05, -0.003923989476355095, -5.5144944032021554e-05,
         0.0016586043966447127, 0.00019479685244068955, -0.0003659125101942488, -0.00010874035155801648,
         2.230365246300314e-05, 1.7409715208613615e-05, 4.099103943386594e-06, 5.339710516487163e-07,
         4.385311715074044e-08, 2.4006620513924482e-09, 8.985505714570808e-11, 2.343180402112865e-12},
        {7.340418396723159e-07, -0.001996107297390079, 0.00030663979282667713, 0.0010938423799413193,
         -0.00018731481158585449, -0.00034917343305996906, 2.2821338982865727e-05, 6.537586809749858e-05,
         8.129315507252846e-06, -4.792323022919514e-06, -1.8951436090913654e-06, -3.170869894098305e-07,
         -3.092796724987911e-08, -1.9362209508731984e-09, -8.1030551272879e-11, -2.3266595102086885e-12},
        {-0.0008581656970543784, 0.00014779923212368992, 0.0005992400049034407, -0.00022007752842369345,
         -0.00021907470618820238, 9.00166062353231e-05, 5.031537236709268e-05, -1.4151257127295176e-05,
         -8.189852862444183e-06, 1.6214753245867454e-07, 6.522730234402192e-07, 1.5615948571477196e-07,
         1.8741241087776714e-08, 1.36512640863709e-09, 6.454443398953558e-11, 2.055334358522314e-12},
        {9.261282151477805e-06, 0.0002886436849032687, -0.00012032791077032499, -0.00012255782064596928,
         8.286171154004161e-05, 2.435718111215474e-05, -2.2456418784701788e-05, -3.6678937997932126e-06,
         2.926649591984153e-06, 6.43849927275733e-07, -1.2718224938177354e-07, -6.222053015223841e-08,
         -9.890412406596309e-09, -8.685494691074579e-10, -4.753430675114587e-11, -1.7123514853738557e-12},
        {0.0001078924805672267, -3.7362948232520985e-05, -6.92143155636818e-05, 5.20051498104388e-05,
         1.1094891115064157e-05, -1.9587507365726144e-05, 8.665394591342043e-07, 3.455186311193752e-06,
         -2.268784819289024e-07, -3.590504172782734e-07, -1.6368118828929387e-08, 1.8112099632389536e-08,
         4.287358777527554e-09, 4.649009816922086e-10, 2.9553125624645554e-11, 1.1989181393003986e-12}};
    __m512d a = _mm512_min_pd(AVX512_D(5.95), _mm512_abs_pd(x));
    __m512d shifted = _mm512_fmadd_pd(a, AVX512_D(2.6041666666666665), AVX512_D_ROUND);
    __m512d d = _mm512_sub_pd(a, avx512_d_choose(middles, shifted)), p = avx512_d_choose(coefficients[13], shifted);
    for (int k = 12; k > 0; k--) {
        p = _mm512_fmadd_pd(p, d, avx512_d_choose(coefficients[k], shifted));
    }
    __m512d first = avx512_d_choose(coefficients[0], shifted);
    first = _mm512_mask_mov_pd(first, _mm512_cmpeq_pd_mask(first, _mm512_setzero_pd()), a);
    return avx512_d_copysign(_mm512_fmadd_pd(p, d, first), x);
}

/* ---- powers ---- */

/* |x|^y = e^(y · ln|x|) with C's special cases, and the logarithm to about 2^-63 of it. An infinite y is taken as the greatest number, so that
 * its product with ln(1) = 0 is 0. */
static inline __m512d avx512_d_pow(__m512d x, __m512d y) {
    const __m512d one = AVX512_D(1), zero = _mm512_setzero_pd(), most = AVX512_D(1.7976931348623157e308);
    __m512d magnitude = _mm512_abs_pd(x),
            finite = _mm512_max_pd(AVX512_D(-1.7976931348623157e308), _mm512_min_pd(most, y));
    const struct avx512_d_reduced a = avx512_d_log_reduce(&avx512_d_ln, magnitude, true);
    const __m512d t = a.t, f = a.f, f_low = a.f_low;
    __m512d first = _mm512_add_pd(t, f), low = _mm512_add_pd(_mm512_sub_pd(t, first), f);
    __m512d half = _mm512_mul_pd(f, AVX512_D(0.5)), square = _mm512_mul_pd(f, half),
            second = _mm512_sub_pd(first, square);
    low = _mm512_add_pd(low, _mm512_sub_pd(_mm512_sub_pd(first, second), square));
    /* ln(1 + f + f_low) - ln(1 + f), and what the square was rounded by */
    __m512d small = _mm512_add_pd(a.low, _mm512_fnmadd_pd(f, _mm512_fnmadd_pd(f, f_low, f_low), f_low));
    small = _mm512_sub_pd(small, _mm512_fmsub_pd(f, half, square));
    __m512d p = AVX512_D(0.09117286231762449);
    p = _mm512_fmadd_pd(p, f, AVX512_D(-0.10028574614409501));
    p = _mm512_fmadd_pd(p, f, AVX512_D(0.11111081002647785));
    p = _mm512_fmadd_pd(p, f, AVX512_D(-0.12499967383430567));
    p = _mm512_fmadd_pd(p, f, AVX512_D(0.14285714298438512));
    p = _mm512_fmadd_pd(p, f, AVX512_D(-0.16666666680450812));
    p = _mm512_fmadd_pd(p, f, AVX512_D(0.1999999999999855));
    p = _mm512_fmadd_pd(p, f, AVX512_D(-0.24999999999998426));
    p = _mm512_fmadd_pd(p, f, AVX512_D(0.3333333333333333));
    low = _mm512_add_pd(low, small);
    low = _mm512_fmadd_pd(_mm512_mul_pd(_mm512_mul_pd(f, f), f), p, low);
    __m512d log = _mm512_add_pd(second, low);
    low = _mm512_add_pd(_mm512_sub_pd(second, log), low);
    __mmask8 special = _mm512_fpclass_pd_mask(magnitude, 0x0a); /* 0, ∞ */
    log = _mm512_mask_mov_pd(log, special, t);
    __m512d exponent = _mm512_mul_pd(finite, log), rest = _mm512_fmsub_pd(finite, log, exponent);
    __mmask8 inside = _mm512_cmp_pd_mask(_mm512_abs_pd(exponent), AVX512_D(800), _CMP_LT_OQ) & ~special;
    rest = _mm512_maskz_fmadd_pd(inside, finite, low, rest);
    exponent = _mm512_max_pd(AVX512_D(-750), _mm512_min_pd(AVX512_D(715), exponent));
    __m512d result = avx512_d_exp_sum(exponent, rest);
    __mmask8 broken = _mm512_cmpneq_pd_mask(_mm512_reduce_pd(y, 3), zero);
    __mmask8 odd = _mm512_cmpneq_pd_mask(_mm512_reduce_pd(_mm512_mul_pd(y, AVX512_D(0.5)), 3), zero) & ~broken;
    __mmask8 negative =
        _mm512_cmp_pd_mask(x, zero, _CMP_LT_OQ) & _mm512_cmpneq_pd_mask(magnitude, AVX512_D(__builtin_inf()));
    __mmask8 unit = _mm512_cmpeq_pd_mask(y, zero) | _mm512_cmpeq_pd_mask(x, one);
    /* The sign bit of x joins the result's. */
    result = _mm512_castsi512_pd(_mm512_mask_ternarylogic_epi64(
        _mm512_castpd_si512(result), odd, _mm512_castpd_si512(x), _mm512_set1_epi64(INT64_MIN), 0xf8));
    result = _mm512_mask_mov_pd(result, negative & broken, AVX512_D(__builtin_nan("")));
    return _mm512_mask_mov_pd(result, unit, one);
}
