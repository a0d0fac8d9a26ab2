/* Elementwise rows: one function for each formula (engine/device/formula.h) and dtype, with loops for the layouts that matter. Lists that
 * are generated from the descriptions say which functions there are, and which operation each of them computes. Those of complex numbers are in
 * rows_complex.c. */
#include "engine/cpu/rows.h"
#include "engine/cpu/rows_complex.h"

#if defined(__AVX512F__)
#include "engine/cpu/vector_avx512_double.h"
#endif

#define ROW_OF_1(name, T, R, formula) ROW1(name, T, R, formula(a))
#define ROW_OF_2(name, T, R, formula) ROW2(name, T, R, formula(a, b))
#define ROW(name, inputs, parameters, dtype, result)                                                                   \
    COMPLEX_CHOOSE(dtype, COMPLEX_NONE, ROW_OF_##inputs)                                                               \
    (row_##name##_##dtype, FORMULA_TYPE_##dtype, FORMULA_TYPE_##result, formula_##name##_##dtype)
/* By inputs and parameters. */
#define LOOP_OF_10 LOOP1
#define LOOP_OF_11 LOOP2
#define LOOP_OF_12 LOOP3
#define LOOP_OF_20 LOOP2
#define LOOP_OF_21 LOOP3
#define LOOP_OF_30 LOOP3
#define LOOP_ROW(name, inputs, parameters, dtype, result)                                                              \
    COMPLEX_CHOOSE(dtype, COMPLEX_NONE, LOOP_OF_##inputs##parameters)                                                  \
    (row_##name##_##dtype, FORMULA_TYPE_##dtype, FORMULA_TYPE_##result, formula_##name##_##dtype)
#define ROW_HALF(name, inputs, parameters, dtype, result)                                                              \
    HALF_ROW(row_##name##_##dtype, dtype, inputs, parameters, row_##name##_f32, DTYPE_IS_##result)
enum { DTYPE_IS_f16, DTYPE_IS_bool, DTYPE_IS_bf16 = DTYPE_IS_f16 };

/* Quotients of integers by those of floats, which have vector instructions: no quotient that is less than an integer is so near to it that it is
 * rounded there, since it differs by 2^-16 of itself (2^-32 with 32 bits) or more. Adding the constant leaves the integer in the low
 * bits. Where a divisor is 0 the result is 0, as formula.h says. */
#define QUOTIENT_BITS_float(q) float_bits((q) + VECTOR_ROUND)
#define QUOTIENT_BITS_double(q) (uint32_t) double_bits((q) + WIDE_ROUND)
#define QUOTIENT(operation, name, T, U, result)                                                                        \
    static inline T quotient_##operation##_##name(T a, T b) {                                                          \
        return b == 0 ? 0 : (T)(U)(result);                                                                            \
    }
#define QUOTIENTS(name, T, U, F, f)                                                                                    \
    QUOTIENT(floor_divide, name, T, U, QUOTIENT_BITS_##F(__builtin_floor##f((F)a / (F)b)))                             \
    QUOTIENT(remainder, name, T, U, (uint32_t)a - (uint32_t)b * (uint32_t)quotient_floor_divide_##name(a, b))          \
    QUOTIENT(fmod, name, T, U, (uint32_t)a - (uint32_t)b * QUOTIENT_BITS_##F(__builtin_trunc##f((F)a / (F)b)))
QUOTIENTS(i8, int8_t, uint8_t, float, f)
QUOTIENTS(u8, uint8_t, uint8_t, float, f)
QUOTIENTS(i16, int16_t, uint16_t, float, f)
QUOTIENTS(u16, uint16_t, uint16_t, float, f)
QUOTIENTS(i32, int32_t, uint32_t, double, )
QUOTIENTS(u32, uint32_t, uint32_t, double, )
/* In the place of the formulas. */
#define formula_floor_divide_i8 quotient_floor_divide_i8
#define formula_floor_divide_u8 quotient_floor_divide_u8
#define formula_floor_divide_i16 quotient_floor_divide_i16
#define formula_floor_divide_u16 quotient_floor_divide_u16
#define formula_floor_divide_i32 quotient_floor_divide_i32
#define formula_floor_divide_u32 quotient_floor_divide_u32
#define formula_remainder_i8 quotient_remainder_i8
#define formula_remainder_u8 quotient_remainder_u8
#define formula_remainder_i16 quotient_remainder_i16
#define formula_remainder_u16 quotient_remainder_u16
#define formula_remainder_i32 quotient_remainder_i32
#define formula_remainder_u32 quotient_remainder_u32
#define formula_fmod_i8 quotient_fmod_i8
#define formula_fmod_u8 quotient_fmod_u8
#define formula_fmod_i16 quotient_fmod_i16
#define formula_fmod_u16 quotient_fmod_u16
#define formula_fmod_i32 quotient_fmod_i32
#define formula_fmod_u32 quotient_fmod_u32

/* What is left of a, exactly, while |a / b| < DOUBLE_QUOTIENT: the quotient's integer part is at most 1 from what it is rounded to, and a less its
 * product with b is a number of f64 then. Without FMA the rest of the product would take long. */
#define DOUBLE_QUOTIENT 0x1p52
#if defined(__FMA__) || defined(__aarch64__)
static inline double near_fmod_f64(double a, double b) {
    double rest = __builtin_fma(-__builtin_trunc(a / b), b, a), step = __builtin_copysign(b, a);
    rest = rest != 0 && (rest < 0) != (a < 0) ? rest + step : rest;
    rest = __builtin_fabs(b) == __builtin_inf() && a - a == 0 ? a : rest;
    return rest == 0 ? __builtin_copysign(rest, a) : rest;
}
#define near_remainder_f64(a, b) formula_remainder_of_f64(near_fmod_f64(a, b), b)
#define row_fmod_f64 general_fmod_f64
#define row_remainder_f64 general_remainder_f64
#define formula_fmod_f64 near_fmod_f64
#define formula_remainder_f64 near_remainder_f64
#endif

/* The generated rows of some operations get other names here, since they have rows of their own below. */
#define row_pow_f32 general_pow_f32
#define row_pow_f64 general_pow_f64
#define row_sin_f32 general_sin_f32
#define row_cos_f32 general_cos_f32
#define row_tan_f32 general_tan_f32
#define row_sin_f64 general_sin_f64
#define row_cos_f64 general_cos_f64
#define row_tan_f64 general_tan_f64
#define row_fmod_f32 general_fmod_f32
#define row_remainder_f32 general_remainder_f32
OP_FORMULAS_ALL(ROW)
OP_FORMULAS_FEW(LOOP_ROW)
#undef row_pow_f32
#undef row_pow_f64
#undef row_sin_f32
#undef row_cos_f32
#undef row_tan_f32
#undef row_sin_f64
#undef row_cos_f64
#undef row_tan_f64
#undef row_fmod_f32
#undef row_remainder_f32
#undef row_fmod_f64
#undef row_remainder_f64
#undef formula_fmod_f64
#undef formula_remainder_f64

/* Powers with exponents that are far more common than others: x², whose value is correctly rounded, as those of √x and 1/x are, and x³. √x is +0 for
 * -0, and infinite for -∞. */
#define POW_ROW(name, T)                                                                                               \
    ROW1(square_##name, T, T, a *a)                                                                                    \
    ROW1(cube_##name, T, T, a *a *a)                                                                                   \
    ROW1(inverse_##name, T, T, 1 / a)                                                                                  \
    ROW1(root_##name, T, T, a == -(T)__builtin_inf() ? (T)__builtin_inf() : formula_sqrt_##name(a) + 0)                \
    static cpu_row_function *power_row_##name(const struct cpu_row *row, cpu_row_function *other) {                    \
        T power = row->stride[2] == 0 ? *(const T *)(const void *)row->data[2] : 0;                                    \
        return power == 2     ? square_##name                                                                          \
               : power == 3   ? cube_##name                                                                            \
               : power == -1  ? inverse_##name                                                                         \
               : power == 0.5 ? root_##name                                                                            \
                              : other;                                                                                 \
    }                                                                                                                  \
    static void row_pow_##name(const struct cpu_row *row) {                                                            \
        power_row_##name(row, general_pow_##name)(row);                                                                \
    }
POW_ROW(f32, float)
POW_ROW(f64, double)

/* Elements for which a formula that vectorises does not hold: they are seldom, and computed once more, by another row or, if they are beyond that as
 * well, by libm. The other elements stay as they are, so that no result depends on its neighbours. The output may be an input, so the elements
 * of a block that has some are kept. */
enum { MENDED_BLOCK = 1024 };
#define MENDED_ROW(name, T, inputs, seldom, second, beyond, exact)                                                     \
    static void row_##name(const struct cpu_row *row) {                                                                \
        T kept[2][MENDED_BLOCK], again[MENDED_BLOCK];                                                                  \
        for (int64_t i = 0; i < row->n; i += MENDED_BLOCK) {                                                           \
            int64_t n = row->n - i < MENDED_BLOCK ? row->n - i : MENDED_BLOCK;                                         \
            struct cpu_row block = {.n = n, .data = {row->data[0] + i * (int64_t)sizeof(T)}, .stride = {1}};           \
            for (int k = 1; k <= inputs; k++) {                                                                        \
                block.data[k] = row->data[k] + i * row->stride[k] * (int64_t)sizeof(T);                                \
                block.stride[k] = row->stride[k];                                                                      \
                if (block.stride[k] != 1) {                                                                            \
                    row_gather(n, sizeof(T), block.data[k], block.stride[k], kept[k - 1]);                             \
                    block.data[k] = (char *)kept[k - 1];                                                               \
                    block.stride[k] = 1;                                                                               \
                }                                                                                                      \
            }                                                                                                          \
            const T *a = (const void *)block.data[1], *b = (const void *)block.data[inputs];                           \
            (void)b;                                                                                                   \
            int found = 0;                                                                                             \
            for (int64_t j = 0; j < n; j++) {                                                                          \
                found |= seldom(a[j], b[j]);                                                                           \
            }                                                                                                          \
            for (int k = 1; found && k <= inputs; k++) {                                                               \
                memmove(kept[k - 1], block.data[k], (size_t)n * sizeof(T));                                            \
            }                                                                                                          \
            general_##name(&block);                                                                                    \
            if (found) {                                                                                               \
                second(&(struct cpu_row){n, {(char *)again, (char *)kept[0], (char *)kept[inputs - 1]}, {1, 1, 1}});   \
            }                                                                                                          \
            for (int64_t j = 0; found && j < n; j++) {                                                                 \
                const T c = kept[0][j], d = kept[inputs - 1][j];                                                       \
                (void)d;                                                                                               \
                if (seldom(c, d)) {                                                                                    \
                    ((T *)(void *)block.data[0])[j] = beyond(c, d) ? exact(c, d) : again[j];                           \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }
#define MANY_TURNS(a, b) (__builtin_fabsf(a) >= VECTOR_TURNS)
#define TOO_MANY_TURNS(a, b) (__builtin_fabsf(a) >= WIDE_TURNS)
#define LARGE_QUOTIENT(a, b) (__builtin_fabsf(a) >= __builtin_fabsf(b) * WIDE_QUOTIENT)
#define MANY_DOUBLE_TURNS(a, b) (__builtin_fabs(a) >= DOUBLE_TURNS)
#define EXACT_DOUBLE_SIN(a, b) __builtin_sin(a)
#define EXACT_DOUBLE_COS(a, b) __builtin_cos(a)
#define EXACT_DOUBLE_TAN(a, b) __builtin_tan(a)
#define EXACT_SIN(a, b) __builtin_sinf(a)
#define EXACT_COS(a, b) __builtin_cosf(a)
#define EXACT_TAN(a, b) __builtin_tanf(a)
#define EXACT_REMAINDER(a, b) (float)formula_remainder_of_wide((double)__builtin_fmodf(a, b), (double)(b))
LOOP1(wide_sin_f32, float, float, wide_sin)
LOOP1(wide_cos_f32, float, float, wide_cos)
LOOP1(wide_tan_f32, float, float, wide_tan)
MENDED_ROW(sin_f32, float, 1, MANY_TURNS, wide_sin_f32, TOO_MANY_TURNS, EXACT_SIN)
MENDED_ROW(cos_f32, float, 1, MANY_TURNS, wide_cos_f32, TOO_MANY_TURNS, EXACT_COS)
MENDED_ROW(tan_f32, float, 1, MANY_TURNS, wide_tan_f32, TOO_MANY_TURNS, EXACT_TAN)
MENDED_ROW(sin_f64, double, 1, MANY_DOUBLE_TURNS, general_sin_f64, MANY_DOUBLE_TURNS, EXACT_DOUBLE_SIN)
MENDED_ROW(cos_f64, double, 1, MANY_DOUBLE_TURNS, general_cos_f64, MANY_DOUBLE_TURNS, EXACT_DOUBLE_COS)
MENDED_ROW(tan_f64, double, 1, MANY_DOUBLE_TURNS, general_tan_f64, MANY_DOUBLE_TURNS, EXACT_DOUBLE_TAN)
MENDED_ROW(fmod_f32, float, 2, LARGE_QUOTIENT, general_fmod_f32, LARGE_QUOTIENT, __builtin_fmodf)
MENDED_ROW(remainder_f32, float, 2, LARGE_QUOTIENT, general_remainder_f32, LARGE_QUOTIENT, EXACT_REMAINDER)
#if defined(__FMA__) || defined(__aarch64__)
#define LARGE_DOUBLE_QUOTIENT(a, b) (__builtin_fabs(a) >= __builtin_fabs(b) * DOUBLE_QUOTIENT)
#define EXACT_DOUBLE_REMAINDER(a, b) formula_remainder_of_f64(__builtin_fmod(a, b), b)
MENDED_ROW(fmod_f64, double, 2, LARGE_DOUBLE_QUOTIENT, general_fmod_f64, LARGE_DOUBLE_QUOTIENT, __builtin_fmod)
MENDED_ROW(remainder_f64, double, 2, LARGE_DOUBLE_QUOTIENT, general_remainder_f64, LARGE_DOUBLE_QUOTIENT,
           EXACT_DOUBLE_REMAINDER)
#endif

/* ---- halves ---- */

/* Contiguous bf16 in one loop, since their conversions are a few integer operations; f16 have instructions for theirs, which the compiler
 * does not find in a loop. */
#define BF16_ARGUMENT(x) half_from_bf16(x[i])
#define BF16_OF_1(formula) formula(BF16_ARGUMENT(x))
#define BF16_OF_2(formula) formula(BF16_ARGUMENT(x), BF16_ARGUMENT(y))
#define BF16_AS_bf16 half_to_bf16
#define BF16_AS_bool
#define BF16_TYPE_bf16 uint16_t
#define BF16_TYPE_bool uint8_t
#define ROW_HALF_bf16(name, inputs, is_bool, R, as_result)                                                             \
    static void row_##name##_bf16(const struct cpu_row *row) {                                                         \
        const uint16_t *x = (const void *)row->data[1], *y = (const void *)row->data[inputs];                          \
        R *z = (void *)row->data[0];                                                                                   \
        const int64_t n = row->n;                                                                                      \
        if (row->stride[1] != 1 || row->stride[inputs] != 1) {                                                         \
            rows_through_bf16(row, inputs, 0, row_##name##_f32, is_bool);                                              \
            return;                                                                                                    \
        }                                                                                                              \
        (void)y;                                                                                                       \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            z[i] = as_result(BF16_OF_##inputs(formula_##name##_f32));                                                  \
        }                                                                                                              \
    }
#define ROW_HALF_f16(name, inputs, is_bool, R, as_result)                                                              \
    HALF_ROW(row_##name##_f16, f16, inputs, 0, row_##name##_f32, is_bool)
#define ROW_HALF_OF(name, inputs, parameters, dtype, result)                                                           \
    ROW_HALF_##dtype(name, inputs, DTYPE_IS_##result, BF16_TYPE_##result, BF16_AS_##result)
#define BF16_TYPE_f16 uint16_t
#define BF16_AS_f16
OP_FORMULAS_ALL_HALF(ROW_HALF_OF)
OP_FORMULAS_FEW_HALF(ROW_HALF)

/* ---- functions that have loops of AVX-512's own instructions ---- */

#if defined(__AVX512F__)
#define AVX512_ROWS_1(X)                                                                                               \
    X(exp)                                                                                                             \
    X(exp2)                                                                                                            \
    X(expm1)                                                                                                           \
    X(log)                                                                                                             \
    X(log1p)                                                                                                           \
    X(log2)                                                                                                            \
    X(log10)                                                                                                           \
    X(tanh)                                                                                                            \
    X(sigmoid)                                                                                                         \
    X(erf)                                                                                                             \
    X(erfc)                                                                                                            \
    X(rsqrt)                                                                                                           \
    X(silu)                                                                                                            \
    X(gelu)                                                                                                            \
    X(gelu_tanh)
#define AVX512_ROWS_2(X)                                                                                               \
    X(pow)                                                                                                             \
    X(hypot)

/* The elements of a vector that are below n: all of them, but for the last vector of a row. */
static inline uint32_t lanes_below(int64_t n) {
    return n >= 32 ? UINT32_MAX : ((uint32_t)1 << n) - 1;
}

/* Loops over contiguous elements, of which the last vector may be shorter. `all` and `some` are a step for all lanes and for some. */
#define AVX512_LOOP(name, T, width, all, some)                                                                         \
    static void name(int64_t n, void *out, const void *const *arguments) {                                             \
        const T *x = arguments[0], *y = arguments[1];                                                                  \
        T *z = out;                                                                                                    \
        int64_t i = 0;                                                                                                 \
        (void)y;                                                                                                       \
        for (; i + width <= n; i += width) {                                                                           \
            all;                                                                                                       \
        }                                                                                                              \
        if (i < n) {                                                                                                   \
            const uint32_t lanes = lanes_below(n - i);                                                                 \
            some;                                                                                                      \
        }                                                                                                              \
    }
#define AVX512_ALL_1(f, load, store) store(f(load(x + i)))
#define AVX512_ALL_2(f, load, store) store(f(load(x + i), load(y + i)))
#define AVX512_BF16_1(f, load, store)                                                                                  \
    const __m512i a = load(x + i);                                                                                     \
    store(avx512_bf16_pairs(f(avx512_bf16_low(a)), f(avx512_bf16_high(a))))
#define AVX512_BF16_2(f, load, store)                                                                                  \
    const __m512i a = load(x + i), b = load(y + i);                                                                    \
    store(avx512_bf16_pairs(f(avx512_bf16_low(a), avx512_bf16_low(b)), f(avx512_bf16_high(a), avx512_bf16_high(b))))
#define LOAD_F32(x) _mm512_loadu_ps(x)
#define LOAD_F32_SOME(x) _mm512_maskz_loadu_ps((__mmask16)lanes, x)
#define STORE_F32(value) _mm512_storeu_ps(z + i, value)
#define STORE_F32_SOME(value) _mm512_mask_storeu_ps(z + i, (__mmask16)lanes, value)
#define LOAD_F16(x) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(x)))
#define LOAD_F16_SOME(x) _mm512_cvtph_ps(_mm256_maskz_loadu_epi16((__mmask16)lanes, x))
#define STORE_F16(value)                                                                                               \
    _mm256_storeu_si256((__m256i *)(void *)(z + i), _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT))
#define STORE_F16_SOME(value)                                                                                          \
    _mm256_mask_storeu_epi16(z + i, (__mmask16)lanes, _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT))
#define LOAD_BF16(x) _mm512_loadu_si512(x)
#define LOAD_BF16_SOME(x) _mm512_maskz_loadu_epi16(lanes, x)
#define STORE_BF16(value) _mm512_storeu_si512(z + i, value)
#define STORE_BF16_SOME(value) _mm512_mask_storeu_epi16(z + i, lanes, value)
#define AVX512_ROW_OF(name, inputs, T, dtype)                                                                          \
    static void avx512_##name##_##dtype(const struct cpu_row *row) {                                                   \
        rows_in_blocks(row, inputs, sizeof(T), sizeof(T), avx512_##name##_##dtype##_loop);                             \
    }
#define AVX512_ROW(name, inputs)                                                                                       \
    AVX512_LOOP(avx512_##name##_f32_loop, float, 16, AVX512_ALL_##inputs(avx512_##name, LOAD_F32, STORE_F32),          \
                AVX512_ALL_##inputs(avx512_##name, LOAD_F32_SOME, STORE_F32_SOME))                                     \
    AVX512_LOOP(avx512_##name##_f16_loop, uint16_t, 16, AVX512_ALL_##inputs(avx512_##name, LOAD_F16, STORE_F16),       \
                AVX512_ALL_##inputs(avx512_##name, LOAD_F16_SOME, STORE_F16_SOME))                                     \
    AVX512_LOOP(avx512_##name##_bf16_loop, uint16_t, 32, AVX512_BF16_##inputs(avx512_##name, LOAD_BF16, STORE_BF16),   \
                AVX512_BF16_##inputs(avx512_##name, LOAD_BF16_SOME, STORE_BF16_SOME))                                  \
    AVX512_ROW_OF(name, inputs, float, f32)                                                                            \
    AVX512_ROW_OF(name, inputs, uint16_t, f16)                                                                         \
    AVX512_ROW_OF(name, inputs, uint16_t, bf16)
#define AVX512_ROW_1(name) AVX512_ROW(name, 1)
#define AVX512_ROW_2(name) AVX512_ROW(name, 2)
AVX512_ROWS_1(AVX512_ROW_1)
AVX512_ROWS_2(AVX512_ROW_2)

static void avx512_power_f32(const struct cpu_row *row) {
    power_row_f32(row, avx512_pow_f32)(row);
}

/* Of many elements by one. */
static void avx512_divide_f32(const struct cpu_row *row) {
    struct cpu_chain_divisor one;
    if (row->stride[1] != 1 || row->stride[2] != 0 || row->n < 16 ||
        !cpu_chain_divisor_init(&one, *(const float *)(const void *)row->data[2])) {
        row_divide_f32(row);
        return;
    }
    const struct avx512_divisor divisor = avx512_divisor_of(&one);
    const float *x = (const void *)row->data[1];
    float *z = (void *)row->data[0];
    const int64_t n = row->n;
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        const __m512 a = LOAD_F32(x + i), b = LOAD_F32(x + i + 16), c = LOAD_F32(x + i + 32), d = LOAD_F32(x + i + 48);
        if (__builtin_expect((avx512_dividends_beyond(a) | avx512_dividends_beyond(b) | avx512_dividends_beyond(c) |
                              avx512_dividends_beyond(d)) == 0,
                             1)) {
            _mm512_storeu_ps(z + i, avx512_divided(a, &divisor));
            _mm512_storeu_ps(z + i + 16, avx512_divided(b, &divisor));
            _mm512_storeu_ps(z + i + 32, avx512_divided(c, &divisor));
            _mm512_storeu_ps(z + i + 48, avx512_divided(d, &divisor));
        } else {
            _mm512_storeu_ps(z + i, avx512_divided_any(a, &divisor));
            _mm512_storeu_ps(z + i + 16, avx512_divided_any(b, &divisor));
            _mm512_storeu_ps(z + i + 32, avx512_divided_any(c, &divisor));
            _mm512_storeu_ps(z + i + 48, avx512_divided_any(d, &divisor));
        }
    }
    for (; i < n; i += 16) {
        const uint32_t lanes = lanes_below(n - i);
        STORE_F32_SOME(avx512_divided_any(LOAD_F32_SOME(x + i), &divisor));
    }
}

/* One number, which is f32 of halves as well, is the factor of all elements. */
#define ELU(x) avx512_elu(x, _mm512_set1_ps(*(const float *)(const void *)y))
AVX512_LOOP(avx512_elu_f32_loop, float, 16, STORE_F32(ELU(LOAD_F32(x + i))), STORE_F32_SOME(ELU(LOAD_F32_SOME(x + i))))
AVX512_LOOP(avx512_elu_f16_loop, uint16_t, 16, STORE_F16(ELU(LOAD_F16(x + i))),
            STORE_F16_SOME(ELU(LOAD_F16_SOME(x + i))))
#define ELU_BF16(load, store)                                                                                          \
    const __m512i a = load(x + i);                                                                                     \
    store(avx512_bf16_pairs(ELU(avx512_bf16_low(a)), ELU(avx512_bf16_high(a))))
AVX512_LOOP(avx512_elu_bf16_loop, uint16_t, 32, ELU_BF16(LOAD_BF16, STORE_BF16),
            ELU_BF16(LOAD_BF16_SOME, STORE_BF16_SOME))
AVX512_ROW_OF(elu, 1, float, f32)
AVX512_ROW_OF(elu, 1, uint16_t, f16)
AVX512_ROW_OF(elu, 1, uint16_t, bf16)

/* ---- the same of f64 ---- */

#define AVX512_ROWS_F64_1(X)                                                                                           \
    X(exp)                                                                                                             \
    X(exp2)                                                                                                            \
    X(log)                                                                                                             \
    X(log2)                                                                                                            \
    X(log10)                                                                                                           \
    X(log1p)                                                                                                           \
    X(erf)                                                                                                             \
    X(atan)                                                                                                            \
    X(asinh)                                                                                                           \
    X(acosh)                                                                                                           \
    X(atanh)
#define AVX512_ROWS_F64_2(X) X(atan2)

#define LOAD_F64(x) _mm512_loadu_pd(x)
#define LOAD_F64_SOME(x) _mm512_maskz_loadu_pd((__mmask8)lanes, x)
#define STORE_F64(value) _mm512_storeu_pd(z + i, value)
#define STORE_F64_SOME(value) _mm512_mask_storeu_pd(z + i, (__mmask8)lanes, value)
#define AVX512_ROW_F64(name, inputs)                                                                                   \
    AVX512_LOOP(avx512_##name##_f64_loop, double, 8, AVX512_ALL_##inputs(avx512_d_##name, LOAD_F64, STORE_F64),        \
                AVX512_ALL_##inputs(avx512_d_##name, LOAD_F64_SOME, STORE_F64_SOME))                                   \
    AVX512_ROW_OF(name, inputs, double, f64)
#define AVX512_ROW_F64_1(name) AVX512_ROW_F64(name, 1)
#define AVX512_ROW_F64_2(name) AVX512_ROW_F64(name, 2)
AVX512_ROWS_F64_1(AVX512_ROW_F64_1)
AVX512_ROWS_F64_2(AVX512_ROW_F64_2)

AVX512_ROW_F64(pow, 2)
static void avx512_power_f64(const struct cpu_row *row) {
    power_row_f64(row, avx512_pow_f64)(row);
}

AVX512_ROW_F64(sin, 1)
AVX512_ROW_F64(cos, 1)
AVX512_ROW_F64(tan, 1)
#define general_turned_sin_f64 avx512_sin_f64
#define general_turned_cos_f64 avx512_cos_f64
#define general_turned_tan_f64 avx512_tan_f64
MENDED_ROW(turned_sin_f64, double, 1, MANY_DOUBLE_TURNS, avx512_sin_f64, MANY_DOUBLE_TURNS, EXACT_DOUBLE_SIN)
MENDED_ROW(turned_cos_f64, double, 1, MANY_DOUBLE_TURNS, avx512_cos_f64, MANY_DOUBLE_TURNS, EXACT_DOUBLE_COS)
MENDED_ROW(turned_tan_f64, double, 1, MANY_DOUBLE_TURNS, avx512_tan_f64, MANY_DOUBLE_TURNS, EXACT_DOUBLE_TAN)
#endif

/* ---- where: one row for each size of elements, since it only moves them ---- */

#define WHERE_LOOP(A, B)                                                                                               \
    do {                                                                                                               \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const __typeof__(*x) a = A, b = B;                                                                         \
            z[i] = c[i] ? a : b;                                                                                       \
        }                                                                                                              \
    } while (0)
#define WHERE_ROW(name, T)                                                                                             \
    static void name(const struct cpu_row *row) {                                                                      \
        const int64_t n = row->n, sc = row->stride[1], sa = row->stride[2], sb = row->stride[3];                       \
        const uint8_t *c = (const uint8_t *)row->data[1];                                                              \
        const T *x = (const void *)row->data[2], *y = (const void *)row->data[3];                                      \
        const T one = sa == 0 ? *x : (T){0}, other = sb == 0 ? *y : (T){0};                                            \
        T *z = (void *)row->data[0];                                                                                   \
        if (sc == 1 && sa == 1 && sb == 1) {                                                                           \
            WHERE_LOOP(x[i], y[i]);                                                                                    \
        } else if (sc == 1 && sa == 1 && sb == 0) {                                                                    \
            WHERE_LOOP(x[i], other);                                                                                   \
        } else if (sc == 1 && sa == 0 && sb == 1) {                                                                    \
            WHERE_LOOP(one, y[i]);                                                                                     \
        } else if (sc == 1 && sa == 0 && sb == 0) {                                                                    \
            WHERE_LOOP(one, other);                                                                                    \
        } else if (sc == 0) {                                                                                          \
            row_gather(n, sizeof(T), *c ? (const void *)x : y, *c ? sa : sb, z);                                       \
        } else {                                                                                                       \
            CPU_LOOP                                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                const T a = x[i * sa], b = y[i * sb];                                                                  \
                z[i] = c[i * sc] ? a : b;                                                                              \
            }                                                                                                          \
        }                                                                                                              \
    }
WHERE_ROW(where_1, uint8_t)
WHERE_ROW(where_2, uint16_t)
WHERE_ROW(where_4, uint32_t)
WHERE_ROW(where_8, uint64_t)
WHERE_ROW(where_16, struct cpu_pair)

/* ---- the table ---- */

/* clang-format off */
#define WHERE(size) [CPU_ROW_where_##size] = where_##size, [CPU_ROW_copy_##size] = CPU_NAME(copy_##size),
#define REAL_FUNCTION(row) [CPU_ROW_##row] = row_##row,
#define COMPLEX_FUNCTION(row) [CPU_ROW_##row] = CPU_NAME(complex_##row),
#define FUNCTION(name, inputs, parameters, dtype, result)                                                              \
    COMPLEX_CHOOSE(dtype, COMPLEX_FUNCTION, REAL_FUNCTION)(name##_##dtype)
#define AVX512_FUNCTION(name)                                                                                          \
    [CPU_ROW_##name##_f32] = avx512_##name##_f32, [CPU_ROW_##name##_f16] = avx512_##name##_f16,                        \
    [CPU_ROW_##name##_bf16] = avx512_##name##_bf16,
#define AVX512_FUNCTION_F64(name) [CPU_ROW_##name##_f64] = avx512_##name##_f64,
#pragma GCC diagnostic ignored "-Woverride-init" /* of two functions for a row the last one counts */
cpu_row_function *const CPU_NAME(elementwise)[CPU_ROW_COUNT] = {
    WHERE(1) WHERE(2) WHERE(4) WHERE(8) WHERE(16)
    OP_FORMULAS(FUNCTION) OP_FORMULAS_HALF(FUNCTION)
#if defined(__AVX512F__)
    AVX512_ROWS_1(AVX512_FUNCTION) AVX512_ROWS_2(AVX512_FUNCTION) AVX512_FUNCTION(elu) [CPU_ROW_pow_f32] = avx512_power_f32,
    [CPU_ROW_divide_f32] = avx512_divide_f32,
    AVX512_ROWS_F64_1(AVX512_FUNCTION_F64) AVX512_ROWS_F64_2(AVX512_FUNCTION_F64)
    [CPU_ROW_pow_f64] = avx512_power_f64, [CPU_ROW_sin_f64] = row_turned_sin_f64, [CPU_ROW_cos_f64] = row_turned_cos_f64,
    [CPU_ROW_tan_f64] = row_turned_tan_f64,
#endif
};
/* clang-format on */
