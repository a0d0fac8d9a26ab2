/* Elementwise rows of complex numbers. Arithmetic is loops over the formulas (engine/device/formula_complex.h). Functions compute by
 * vector_complex.h, block by block, and by the formula what that leaves. */
#include "engine/cpu/rows_complex.h"
#include "engine/cpu/vector_complex.h"

#if defined(__AVX512F__)
#include "engine/cpu/vector_avx512_complex.h"
#elif defined(__AVX2__)
#include <immintrin.h>
#endif

/* ---- arithmetic ---- */

#define ROW_OF_1(name, T, R, formula) ROW1(name, T, R, formula(a))
#define ROW_OF_2(name, T, R, formula) ROW2(name, T, R, formula(a, b))
#define ROW(name, inputs, dtype, result)                                                                               \
    ROW_OF_##inputs(row_##name##_##dtype, FORMULA_TYPE_##dtype, FORMULA_TYPE_##result, formula_##name##_##dtype)
#define LOOP_ROW(name, inputs, dtype, result)                                                                          \
    LOOP##inputs(row_##name##_##dtype, FORMULA_TYPE_##dtype, FORMULA_TYPE_##result, formula_##name##_##dtype)

/* X(name, inputs, dtype, dtype of the result): with a loop for each layout, and with one for few. */
#define ARITHMETIC_ALL(X, dtype)                                                                                       \
    X(add, 2, dtype, dtype)                                                                                            \
    X(subtract, 2, dtype, dtype)                                                                                       \
    X(equal, 2, dtype, bool)                                                                                           \
    X(not_equal, 2, dtype, bool)                                                                                       \
    X(negative, 1, dtype, dtype)
#define ARITHMETIC_FEW(X, dtype, part)                                                                                 \
    X(square, 1, dtype, dtype)                                                                                         \
    X(round, 1, dtype, dtype)                                                                                          \
    X(positive, 1, dtype, dtype)                                                                                       \
    X(isfinite, 1, dtype, bool)                                                                                        \
    X(isinf, 1, dtype, bool)                                                                                           \
    X(isnan, 1, dtype, bool)                                                                                           \
    X(real, 1, dtype, part)                                                                                            \
    X(imag, 1, dtype, part)                                                                                            \
    X(conj, 1, dtype, dtype)                                                                                           \
    X(angle, 1, dtype, part)

ARITHMETIC_ALL(ROW, c64)
ARITHMETIC_ALL(ROW, c128)
ARITHMETIC_FEW(LOOP_ROW, c64, f32)
ARITHMETIC_FEW(LOOP_ROW, c128, f64)

static inline double abs_of_c128(formula_c128 a) {
    return double_hypot(a.re, a.im);
}
LOOP1(row_abs_c128, formula_c128, double, abs_of_c128)
LOOP_ROW(reciprocal, 1, c128, c128)
#if !defined(__AVX512F__) /* else it is below */
LOOP_ROW(abs, 1, c64, f32)
#endif

/* Products. GCC 12 makes a fused multiply-add of the sum and the difference where they are neighbours, even if contraction is forbidden: then a
 * product would depend on whether it is computed in a vector or behind the last one. So where there are such instructions vectors are written
 * here, and the last elements are computed in one, too. */
#if defined(__AVX512F__)
#define PRODUCT_c64(x, re, im)                                                                                         \
    _mm512_mask_sub_ps(_mm512_add_ps(_mm512_mul_ps(x, re), _mm512_mul_ps(_mm512_permute_ps(x, 0xb1), im)), 0x5555,     \
                       _mm512_mul_ps(x, re), _mm512_mul_ps(_mm512_permute_ps(x, 0xb1), im))
#define PRODUCT_c128(x, re, im)                                                                                        \
    _mm512_mask_sub_pd(_mm512_add_pd(_mm512_mul_pd(x, re), _mm512_mul_pd(_mm512_permute_pd(x, 0x55), im)), 0x55,       \
                       _mm512_mul_pd(x, re), _mm512_mul_pd(_mm512_permute_pd(x, 0x55), im))
#define PRODUCTS(X)                                                                                                    \
    X(c64, __m512, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_moveldup_ps, _mm512_movehdup_ps)                          \
    X(c128, __m512d, _mm512_loadu_pd, _mm512_storeu_pd, _mm512_movedup_pd, PRODUCT_SECOND)
#define PRODUCT_SECOND(y) _mm512_permute_pd(y, 0xff)
#elif defined(__AVX2__)
#define PRODUCT_c64(x, re, im) _mm256_addsub_ps(_mm256_mul_ps(x, re), _mm256_mul_ps(_mm256_permute_ps(x, 0xb1), im))
#define PRODUCT_c128(x, re, im) _mm256_addsub_pd(_mm256_mul_pd(x, re), _mm256_mul_pd(_mm256_permute_pd(x, 0x5), im))
#define PRODUCTS(X)                                                                                                    \
    X(c64, __m256, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_moveldup_ps, _mm256_movehdup_ps)                          \
    X(c128, __m256d, _mm256_loadu_pd, _mm256_storeu_pd, _mm256_movedup_pd, PRODUCT_SECOND)
#define PRODUCT_SECOND(y) _mm256_permute_pd(y, 0xf)
#endif
#if defined(PRODUCTS)
#define PRODUCT_ROW(dtype, V, load, store, first, second)                                                              \
    enum { PRODUCT_WIDTH_##dtype = sizeof(V) / sizeof(FORMULA_TYPE_##dtype) };                                         \
    static void product_##dtype(int64_t n, void *out, const void *const *arguments) {                                  \
        const FORMULA_TYPE_##dtype *a = arguments[0], *b = arguments[1];                                               \
        FORMULA_TYPE_##dtype *z = out, x[PRODUCT_WIDTH_##dtype] = {{0}}, y[PRODUCT_WIDTH_##dtype] = {{0}};             \
        const int64_t whole = n - n % PRODUCT_WIDTH_##dtype;                                                           \
        for (int64_t i = 0; i < whole; i += PRODUCT_WIDTH_##dtype) {                                                   \
            const V u = load(&a[i].re), v = load(&b[i].re), re = first(v), im = second(v);                             \
            store(&z[i].re, PRODUCT_##dtype(u, re, im));                                                               \
        }                                                                                                              \
        if (whole < n) {                                                                                               \
            memcpy(x, a + whole, (size_t)(n - whole) * sizeof *x);                                                     \
            memcpy(y, b + whole, (size_t)(n - whole) * sizeof *y);                                                     \
            const V u = load(&x->re), v = load(&y->re), re = first(v), im = second(v);                                 \
            store(&x->re, PRODUCT_##dtype(u, re, im));                                                                 \
            memcpy(z + whole, x, (size_t)(n - whole) * sizeof *x);                                                     \
        }                                                                                                              \
    }                                                                                                                  \
    static void product_by_one_##dtype(int64_t n, const FORMULA_TYPE_##dtype *a, const FORMULA_TYPE_##dtype *b,        \
                                       FORMULA_TYPE_##dtype *z) {                                                      \
        FORMULA_TYPE_##dtype x[PRODUCT_WIDTH_##dtype] = {{0}}, y[PRODUCT_WIDTH_##dtype];                               \
        for (int64_t i = 0; i < PRODUCT_WIDTH_##dtype; i++) {                                                          \
            y[i] = *b;                                                                                                 \
        }                                                                                                              \
        const V v = load(&y->re), re = first(v), im = second(v);                                                       \
        const int64_t whole = n - n % PRODUCT_WIDTH_##dtype;                                                           \
        for (int64_t i = 0; i < whole; i += PRODUCT_WIDTH_##dtype) {                                                   \
            const V u = load(&a[i].re);                                                                                \
            store(&z[i].re, PRODUCT_##dtype(u, re, im));                                                               \
        }                                                                                                              \
        if (whole < n) {                                                                                               \
            memcpy(x, a + whole, (size_t)(n - whole) * sizeof *x);                                                     \
            const V u = load(&x->re);                                                                                  \
            store(&x->re, PRODUCT_##dtype(u, re, im));                                                                 \
            memcpy(z + whole, x, (size_t)(n - whole) * sizeof *x);                                                     \
        }                                                                                                              \
    }                                                                                                                  \
    static void row_multiply_##dtype(const struct cpu_row *row) {                                                      \
        const void *a = row->data[1], *b = row->data[2];                                                               \
        if (row->stride[1] == 1 && row->stride[2] == 0) {                                                              \
            product_by_one_##dtype(row->n, a, b, (void *)row->data[0]);                                                \
        } else if (row->stride[1] == 0 && row->stride[2] == 1) {                                                       \
            product_by_one_##dtype(row->n, b, a, (void *)row->data[0]);                                                \
        } else {                                                                                                       \
            rows_in_blocks(row, 2, sizeof(FORMULA_TYPE_##dtype), sizeof(FORMULA_TYPE_##dtype), product_##dtype);       \
        }                                                                                                              \
    }
PRODUCTS(PRODUCT_ROW)
#else
ROW(multiply, 2, c64, c64)
ROW(multiply, 2, c128, c128)
#endif

/* ---- functions ---- */

/* A few arrays of 1 KiB stay in the first-level cache. */
enum { COMPLEX_BLOCK = 128 };
struct block {
    _Alignas(64) double re[3][COMPLEX_BLOCK],
        im[3][COMPLEX_BLOCK]; /* of the result and the arguments, as in struct cpu_row */
    uint64_t beyond[COMPLEX_BLOCK];
    int power; /* of block_whole_power() */
};

/* Computes n elements. Returns whether there are some for which the formula is to be taken: block->beyond says which. */
typedef bool block_function(int64_t n, struct block *block);
typedef formula_c128 exact_function(formula_c128 a, formula_c128 b);

#define BLOCK_ARGUMENT(k) formula_make_c128(block->re[k][i], block->im[k][i])
#define BLOCK_OF_1(name) complex_##name(BLOCK_ARGUMENT(1), &beyond)
#define BLOCK_OF_2(name) complex_##name(BLOCK_ARGUMENT(1), BLOCK_ARGUMENT(2), &beyond)
#define BLOCK(name, inputs)                                                                                            \
    static bool block_##name(int64_t n, struct block *block) {                                                         \
        uint64_t found = 0;                                                                                            \
        CPU_PRAGMA(omp simd reduction(| : found))                                                                      \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            bool beyond;                                                                                               \
            const formula_c128 z = BLOCK_OF_##inputs(name);                                                            \
            block->re[0][i] = z.re;                                                                                    \
            block->im[0][i] = z.im;                                                                                    \
            block->beyond[i] = beyond;                                                                                 \
            found |= beyond;                                                                                           \
        }                                                                                                              \
        return found;                                                                                                  \
    }
#define EXACT_OF_1(name) formula_##name##_c128(a)
#define EXACT_OF_2(name) formula_##name##_c128(a, b)
#define EXACT(name, inputs)                                                                                            \
    static formula_c128 exact_##name(formula_c128 a, formula_c128 b) {                                                 \
        (void)b;                                                                                                       \
        return EXACT_OF_##inputs(name);                                                                                \
    }

/* Results are written behind the arguments that they are computed from, since the output may be an input. The elements for which the formula is
 * taken do not change the others, so that no result depends on its neighbours. The processor does not see that the next block is read soon and
 * this one written, so it is told: 10 to 20 % less time where the arrays are beyond its caches. */
#define BLOCKS(dtype, C, T)                                                                                            \
    static void load_##dtype(int64_t n, const C *x, int64_t stride, double *re, double *im) {                          \
        if (stride == 1) {                                                                                             \
            CPU_LOOP                                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                re[i] = (double)x[i].re;                                                                               \
                im[i] = (double)x[i].im;                                                                               \
            }                                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            re[i] = (double)x[i * stride].re;                                                                          \
            im[i] = (double)x[i * stride].im;                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void store_##dtype(int64_t n, const struct block *block, C *z) {                                            \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            z[i].re = (T)block->re[0][i];                                                                              \
            z[i].im = (T)block->im[0][i];                                                                              \
        }                                                                                                              \
    }                                                                                                                  \
    static __attribute__((noinline)) void in_blocks_##dtype(                                                           \
        const struct cpu_row *row, int inputs, block_function *compute, exact_function *exact, int power) {            \
        const int64_t line = 64 / (int64_t)sizeof(C);                                                                  \
        struct block block;                                                                                            \
        block.power = power;                                                                                           \
        for (int64_t begin = 0; begin < row->n; begin += COMPLEX_BLOCK) {                                              \
            const int64_t left = row->n - begin, n = left < COMPLEX_BLOCK ? left : COMPLEX_BLOCK;                      \
            C *out = (C *)(void *)row->data[0] + begin;                                                                \
            for (int k = 1; k <= inputs; k++) {                                                                        \
                const int64_t stride = row->stride[k];                                                                 \
                const C *x = (const C *)(const void *)row->data[k] + begin * stride;                                   \
                if (stride != 0 || begin == 0) {                                                                       \
                    load_##dtype(n, x, stride, block.re[k], block.im[k]);                                              \
                }                                                                                                      \
                for (int64_t i = n; stride == 1 && i < left && i < 2 * n; i += line) {                                 \
                    __builtin_prefetch(x + i);                                                                         \
                }                                                                                                      \
            }                                                                                                          \
            for (int64_t i = 0; i < n; i += line) {                                                                    \
                __builtin_prefetch(out + i, 1);                                                                        \
            }                                                                                                          \
            if (compute(n, &block)) {                                                                                  \
                for (int64_t i = 0; i < n; i++) {                                                                      \
                    if (block.beyond[i]) {                                                                             \
                        const formula_c128 z = exact(formula_make_c128(block.re[1][i], block.im[1][i]),                \
                                                     formula_make_c128(block.re[inputs][i], block.im[inputs][i]));     \
                        block.re[0][i] = z.re;                                                                         \
                        block.im[0][i] = z.im;                                                                         \
                    }                                                                                                  \
                }                                                                                                      \
            }                                                                                                          \
            store_##dtype(n, &block, out);                                                                             \
        }                                                                                                              \
    }
BLOCKS(c64, formula_c64, float)
BLOCKS(c128, formula_c128, double)

#define FUNCTION_ROW(row, block, exact, inputs, dtype)                                                                 \
    static void row##_##dtype(const struct cpu_row *row) {                                                             \
        in_blocks_##dtype(row, inputs, block_##block, exact_##exact, 0);                                               \
    }

/* X(name): functions that are the same for both dtypes, and those that are others for c64. */
#define FUNCTIONS_OF_BOTH(X)                                                                                           \
    X(expm1)                                                                                                           \
    X(log)                                                                                                             \
    X(log1p)                                                                                                           \
    X(log2)                                                                                                            \
    X(log10)                                                                                                           \
    X(asin)                                                                                                            \
    X(acos)                                                                                                            \
    X(asinh)                                                                                                           \
    X(acosh)                                                                                                           \
    X(atanh)                                                                                                           \
    X(atan)
#define FUNCTIONS_OF_EACH(X)                                                                                           \
    X(exp)                                                                                                             \
    X(sinh)                                                                                                            \
    X(cosh)                                                                                                            \
    X(tanh)                                                                                                            \
    X(sin)                                                                                                             \
    X(cos)                                                                                                             \
    X(tan)
#define FUNCTION_OF_BOTH(name)                                                                                         \
    BLOCK(name, 1)                                                                                                     \
    EXACT(name, 1)                                                                                                     \
    FUNCTION_ROW(row_##name, name, name, 1, c64)                                                                       \
    FUNCTION_ROW(row_##name, name, name, 1, c128)
#define FUNCTION_OF_EACH(name)                                                                                         \
    BLOCK(narrow_##name, 1)                                                                                            \
    BLOCK(name, 1)                                                                                                     \
    EXACT(name, 1)                                                                                                     \
    FUNCTION_ROW(row_##name, narrow_##name, name, 1, c64)                                                              \
    FUNCTION_ROW(row_##name, name, name, 1, c128)
FUNCTIONS_OF_BOTH(FUNCTION_OF_BOTH)
FUNCTIONS_OF_EACH(FUNCTION_OF_EACH)

BLOCK(divide, 2)
BLOCK(sqrt, 1)
BLOCK(sign, 1)
BLOCK(pow, 2)
EXACT(divide, 2)
EXACT(sqrt, 1)
EXACT(sign, 1)
EXACT(pow, 2)
FUNCTION_ROW(row_divide, divide, divide, 2, c128)
FUNCTION_ROW(row_sqrt, sqrt, sqrt, 1, c128)
FUNCTION_ROW(row_sign, sign, sign, 1, c128)
FUNCTION_ROW(general_pow, pow, pow, 2, c64)
FUNCTION_ROW(general_pow, pow, pow, 2, c128)
#if !defined(__AVX512F__)
BLOCK(narrow_divide, 2)
BLOCK(narrow_reciprocal, 1)
EXACT(reciprocal, 1)
FUNCTION_ROW(row_divide, narrow_divide, divide, 2, c64)
FUNCTION_ROW(row_reciprocal, narrow_reciprocal, reciprocal, 1, c64)
FUNCTION_ROW(row_sqrt, sqrt, sqrt, 1, c64)
FUNCTION_ROW(row_sign, sign, sign, 1, c64)
#endif

/* Of one small whole exponent: the formula's products, in its order. Powers of 0 are not products. */
static bool block_whole_power(int64_t n, struct block *block) {
    double re[COMPLEX_BLOCK], im[COMPLEX_BLOCK]; /* of the powers whose exponents are powers of two */
    uint64_t found = 0;
    CPU_PRAGMA(omp simd reduction(| : found))
    for (int64_t i = 0; i < n; i++) {
        re[i] = block->re[1][i];
        im[i] = block->im[1][i];
        block->re[0][i] = 1;
        block->im[0][i] = 0;
        block->beyond[i] = (block->power != 0) & (re[i] == 0) & (im[i] == 0);
        found |= block->beyond[i];
    }
    for (int left = block->power < 0 ? -block->power : block->power; left > 0; left >>= 1) {
        CPU_LOOP
        for (int64_t i = 0; i < n; i++) {
            const formula_c128 square = formula_make_c128(re[i], im[i]);
            const formula_c128 more = formula_multiply_c128(BLOCK_ARGUMENT(0), square);
            const formula_c128 next = formula_multiply_c128(square, square);
            block->re[0][i] = left & 1 ? more.re : block->re[0][i];
            block->im[0][i] = left & 1 ? more.im : block->im[0][i];
            re[i] = next.re;
            im[i] = next.im;
        }
    }
    if (block->power < 0) {
        CPU_LOOP
        for (int64_t i = 0; i < n; i++) {
            const formula_c128 inverse = formula_reciprocal_c128(BLOCK_ARGUMENT(0));
            block->re[0][i] = inverse.re;
            block->im[0][i] = inverse.im;
        }
    }
    return found;
}

#define POW_ROW(dtype, C)                                                                                              \
    static void row_pow_##dtype(const struct cpu_row *row) {                                                           \
        const C b = *(const C *)(const void *)row->data[2];                                                            \
        const double re = (double)b.re;                                                                                \
        if (row->stride[2] == 0 && b.im == 0 && re >= -64 && re <= 64 && re == (int)re) {                              \
            in_blocks_##dtype(row, 2, block_whole_power, exact_pow, (int)re);                                          \
        } else {                                                                                                       \
            general_pow_##dtype(row);                                                                                  \
        }                                                                                                              \
    }
POW_ROW(c64, formula_c64)
POW_ROW(c128, formula_c128)

/* ---- functions of c64 that have loops of AVX-512's own instructions ---- */

#if defined(__AVX512F__)
/* Loops over contiguous elements, of which the last vector may be shorter. `compute` gives the result of x and y, and the lanes for which `exact`
 * is to be taken; the output may be an input, so these are kept. */
#define AVX512_LOOP(name, y_loaded, compute, exact)                                                                    \
    static inline __attribute__((always_inline)) void avx512_##name##_step(__mmask8 lanes, const formula_c64 *a,       \
                                                                           const formula_c64 *b, formula_c64 *z) {     \
        struct avx512_c result;                                                                                        \
        const __m512i x = _mm512_maskz_loadu_epi64(lanes, a), y = y_loaded;                                            \
        const __mmask8 beyond = compute & lanes;                                                                       \
        _mm512_mask_storeu_epi64(z, lanes, avx512_c_numbers(result));                                                  \
        (void)b, (void)y;                                                                                              \
        if (__builtin_expect(beyond != 0, 0)) {                                                                        \
            formula_c64 first[8], second[8];                                                                           \
            _mm512_storeu_si512(first, x);                                                                             \
            _mm512_storeu_si512(second, y);                                                                            \
            (void)second;                                                                                              \
            for (int k = 0; k < 8; k++) {                                                                              \
                if (beyond >> k & 1) {                                                                                 \
                    z[k] = exact;                                                                                      \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void avx512_##name##_loop(int64_t n, void *out, const void *const *arguments) {                             \
        const formula_c64 *a = arguments[0], *b = arguments[1];                                                        \
        formula_c64 *z = out;                                                                                          \
        int64_t i = 0;                                                                                                 \
        for (; i + 8 <= n; i += 8) {                                                                                   \
            avx512_##name##_step(0xff, a + i, b + i, z + i);                                                           \
        }                                                                                                              \
        if (i < n) {                                                                                                   \
            avx512_##name##_step((__mmask8)((1 << (n - i)) - 1), a + i, b + i, z + i);                                 \
        }                                                                                                              \
    }
AVX512_LOOP(sqrt, _mm512_setzero_si512(), avx512_c_sqrt(avx512_c_parts(x), &result), formula_sqrt_c64(first[k]))
AVX512_LOOP(divide, _mm512_maskz_loadu_epi64(lanes, b), avx512_c_divide(avx512_c_parts(x), avx512_c_parts(y), &result),
            formula_divide_c64(first[k], second[k]))
AVX512_LOOP(reciprocal, _mm512_setzero_si512(), avx512_c_reciprocal(avx512_c_parts(x), &result),
            formula_reciprocal_c64(first[k]))
AVX512_LOOP(sign, _mm512_setzero_si512(), avx512_c_sign(avx512_c_parts(x), &result), formula_sign_c64(first[k]))
static void row_sqrt_c64(const struct cpu_row *row) {
    rows_in_blocks(row, 1, sizeof(formula_c64), sizeof(formula_c64), avx512_sqrt_loop);
}
static void row_sign_c64(const struct cpu_row *row) {
    rows_in_blocks(row, 1, sizeof(formula_c64), sizeof(formula_c64), avx512_sign_loop);
}
static void row_divide_c64(const struct cpu_row *row) {
    rows_in_blocks(row, 2, sizeof(formula_c64), sizeof(formula_c64), avx512_divide_loop);
}
static void row_reciprocal_c64(const struct cpu_row *row) {
    rows_in_blocks(row, 1, sizeof(formula_c64), sizeof(formula_c64), avx512_reciprocal_loop);
}

static void avx512_abs_loop(int64_t n, void *out, const void *const *arguments) {
    const formula_c64 *a = arguments[0];
    float *z = out;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        _mm256_storeu_ps(z + i, _mm512_cvtpd_ps(avx512_c_abs(avx512_c_parts(_mm512_loadu_si512(a + i)))));
    }
    if (i < n) {
        const __mmask8 lanes = (__mmask8)((1 << (n - i)) - 1);
        const __m512i x = _mm512_maskz_loadu_epi64(lanes, a + i);
        _mm256_mask_storeu_ps(z + i, lanes, _mm512_cvtpd_ps(avx512_c_abs(avx512_c_parts(x))));
    }
}
static void row_abs_c64(const struct cpu_row *row) {
    rows_in_blocks(row, 1, sizeof(formula_c64), sizeof(float), avx512_abs_loop);
}
#endif

/* ---- for the table ---- */

#define ROW_DEFINED(name)                                                                                              \
    void CPU_NAME(complex_##name)(const struct cpu_row *row) {                                                         \
        row_##name(row);                                                                                               \
    }
#define ROW_OF_TABLE(name, inputs, parameters, dtype, result)                                                          \
    COMPLEX_CHOOSE(dtype, ROW_DEFINED, COMPLEX_NONE)(name##_##dtype)
OP_FORMULAS(ROW_OF_TABLE)
