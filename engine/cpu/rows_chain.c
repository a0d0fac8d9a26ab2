/* Chains of elementwise operations: several vectors go through all steps before the next ones do. */
#include "engine/cpu/lanes.h"

#if defined(__AVX2__) /* without, loops over rows are as quick */
#include <immintrin.h>

#if defined(__AVX512F__)
#include "engine/cpu/vector_avx512.h"
#endif

/* In what follows W is how the instructions of a width begin, _mm512_, _mm256_ or _mm_, and P how they end, ps or pd. */
#define T_ps float
#define T_pd double
#define V__mm512_ps __m512
#define V__mm512_pd __m512d
#define V__mm256_ps __m256
#define V__mm256_pd __m256d
#define V__mm_ps __m128
#define V__mm_pd __m128d
#define VECTOR(W, P) V_##W##P
#define LANES(W, P) ((int64_t)(sizeof(VECTOR(W, P)) / sizeof(T_##P)))

#define EACH_1(X, ...) X(0, __VA_ARGS__)
#define EACH_8(X, ...)                                                                                                 \
    X(0, __VA_ARGS__)                                                                                                  \
    X(1, __VA_ARGS__)                                                                                                  \
    X(2, __VA_ARGS__) X(3, __VA_ARGS__) X(4, __VA_ARGS__) X(5, __VA_ARGS__) X(6, __VA_ARGS__) X(7, __VA_ARGS__)

/* ---- operations ---- */

#define ADD(W, P, a, b) W##add_##P(a, b)
#define SUBTRACT(W, P, a, b) W##sub_##P(a, b)
#define MULTIPLY(W, P, a, b) W##mul_##P(a, b)
#define DIVIDE(W, P, a, b) W##div_##P(a, b)
/* The first operand if it is NaN; where both are equal, or the second is NaN, the second one. */
#define MAXIMUM(W, P, a, b) IF_NAN_##W(P, a, W##max_##P(a, b))
#define MINIMUM(W, P, a, b) IF_NAN_##W(P, a, W##min_##P(a, b))
#define IF_NAN__mm512_(P, a, other) _mm512_mask_mov_##P(other, _mm512_cmp_##P##_mask(a, a, _CMP_UNORD_Q), a)
#define IF_NAN__mm256_(P, a, other) _mm256_blendv_##P(other, a, _mm256_cmp_##P(a, a, _CMP_UNORD_Q))
#define IF_NAN__mm_(P, a, other) _mm_blendv_##P(other, a, _mm_cmpunord_##P(a, a))
#define NEGATIVE(W, P, a) W##xor_##P(a, W##set1_##P((T_##P) - 0.0))
#define ABS(W, P, a) W##andnot_##P(W##set1_##P((T_##P) - 0.0), a)
#define SQRT(W, P, a) W##sqrt_##P(a)
#define RELU(W, P, a) RELU_##W(P, a)
#define RELU__mm512_(P, a) _mm512_maskz_mov_##P(_mm512_cmp_##P##_mask(a, _mm512_setzero_##P(), _CMP_NLE_UQ), a)
#define RELU__mm256_(P, a) _mm256_andnot_##P(_mm256_cmp_##P(a, _mm256_setzero_##P(), _CMP_LE_OQ), a)
#define RELU__mm_(P, a) _mm_andnot_##P(_mm_cmple_##P(a, _mm_setzero_##P()), a)
#define RECIPROCAL(W, P, a) W##div_##P(W##set1_##P(1), a)

/* ---- memory: whole vectors (ALL); with AVX-512 those lanes that are elements (SOME), else one lane (LAST) ---- */

#define WITH(k, W, P) ((const T_##P *)step->with + i + (k)*LANES(W, P))
#define OUT(k, W, P) (z + (k)*LANES(W, P))
#define ALL_LOAD(k, W, P) W##loadu_##P(WITH(k, W, P))
#define ALL_STORE(k, W, P) W##storeu_##P(OUT(k, W, P), a##k)
#define SOME_LOAD(k, W, P) _mm512_maskz_loadu_##P(lanes##k, WITH(k, W, P))
#define SOME_STORE(k, W, P) _mm512_mask_storeu_##P(OUT(k, W, P), lanes##k, a##k)
#define LAST_LOAD(k, W, P) LAST_LOAD_##P(WITH(k, W, P))
#define LAST_LOAD_ps _mm_load_ss
#define LAST_LOAD_pd _mm_load_sd
#define LAST_STORE(k, W, P) LAST_STORE_##P(OUT(k, W, P), a##k)
#define LAST_STORE_ps _mm_store_ss
#define LAST_STORE_pd _mm_store_sd

/* ---- steps, of vector number k, whose result so far is a##k ---- */

#define DECLARED(k, W, P) VECTOR(W, P) a##k = W##setzero_##P();
#define LOADED(k, W, P, KIND) a##k = KIND##_LOAD(k, W, P);
#define LOADED_ONE(k, W, P) a##k = one;
#define WITH_ELEMENTS(k, W, P, KIND, NAME)                                                                             \
    {                                                                                                                  \
        const VECTOR(W, P) x = KIND##_LOAD(k, W, P);                                                                   \
        a##k = NAME(W, P, a##k, x);                                                                                    \
    }
#define OF_ELEMENTS(k, W, P, KIND, NAME)                                                                               \
    {                                                                                                                  \
        const VECTOR(W, P) x = KIND##_LOAD(k, W, P);                                                                   \
        a##k = NAME(W, P, x, a##k);                                                                                    \
    }
#define WITH_ONE(k, W, P, NAME) a##k = NAME(W, P, a##k, one);
#define OF_ONE(k, W, P, NAME) a##k = NAME(W, P, one, a##k);
#define WITH_SELF(k, W, P, NAME) a##k = NAME(W, P, a##k, a##k);
#define OF_IT(k, W, P, NAME) a##k = NAME(W, P, a##k);
#define STORED(k, W, P, KIND) KIND##_STORE(k, W, P);

#define CASE_OF_ONE(NAME, FORM, EACH, STEP, W, P, ...)                                                                 \
    case CPU_CHAIN_WHAT(CPU_CHAIN_##NAME, CPU_CHAIN_##FORM): {                                                         \
        const VECTOR(W, P) one = W##set1_##P(*(const T_##P *)step->with);                                              \
        EACH(STEP, W, P, ##__VA_ARGS__)                                                                                \
        break;                                                                                                         \
    }
#define CASE(NAME, FORM, EACH, ...)                                                                                    \
    case CPU_CHAIN_WHAT(CPU_CHAIN_##NAME, CPU_CHAIN_##FORM):                                                           \
        EACH(__VA_ARGS__)                                                                                              \
        break;
#define CASES(NAME, EACH, W, P, KIND)                                                                                  \
    CASE(NAME, ELEMENTS, EACH, WITH_ELEMENTS, W, P, KIND, NAME)                                                        \
    CASE(NAME, OF_ELEMENTS, EACH, OF_ELEMENTS, W, P, KIND, NAME)                                                       \
    CASE_OF_ONE(NAME, ONE, EACH, WITH_ONE, W, P, NAME)                                                                 \
    CASE_OF_ONE(NAME, OF_ONE, EACH, OF_ONE, W, P, NAME)                                                                \
    CASE(NAME, SELF, EACH, WITH_SELF, W, P, NAME)

/* All steps on EACH vectors, from element i on; MORE##_CASES and MORE##_STORED are what chains of tiles have beside others. */
#define BLOCK(EACH, W, P, KIND, MORE)                                                                                  \
    do {                                                                                                               \
        EACH(DECLARED, W, P)                                                                                           \
        for (const struct cpu_chain_step *step = steps; step < end; step++) {                                          \
            switch (step->what) {                                                                                      \
                MORE##_CASES(EACH, KIND) CASE(LOAD, ELEMENTS, EACH, LOADED, W, P, KIND)                                \
                    CASE_OF_ONE(LOAD, ONE, EACH, LOADED_ONE, W, P) CASES(ADD, EACH, W, P, KIND)                        \
                        CASES(SUBTRACT, EACH, W, P, KIND) CASES(MULTIPLY, EACH, W, P, KIND)                            \
                            CASES(DIVIDE, EACH, W, P, KIND) CASES(MAXIMUM, EACH, W, P, KIND)                           \
                                CASES(MINIMUM, EACH, W, P, KIND) CASE(NEGATIVE, SELF, EACH, OF_IT, W, P, NEGATIVE)     \
                                    CASE(ABS, SELF, EACH, OF_IT, W, P, ABS) CASE(SQRT, SELF, EACH, OF_IT, W, P, SQRT)  \
                                        CASE(RELU, SELF, EACH, OF_IT, W, P, RELU)                                      \
                                            CASE(RECIPROCAL, SELF, EACH, OF_IT, W, P, RECIPROCAL) default              \
                    : __builtin_unreachable();                                                                         \
            }                                                                                                          \
            if (step->out) {                                                                                           \
                T_##P *const z = (T_##P *)step->out + i; /* as far as is known, a store may write to the step */       \
                MORE##_STORED(EACH, W, P, KIND)                                                                        \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)

#define FEW_CASES(EACH, KIND)
#define FEW_STORED(EACH, W, P, KIND) EACH(STORED, W, P, KIND)

/* ---- what is left behind blocks of eight vectors ---- */

#if defined(__AVX512F__)
#define WIDE _mm512_
/* Lanes of vector k, of `lanes`, that are among `left` elements. */
static inline uint32_t lanes_left(int64_t left, int k, int64_t lanes) {
    int64_t n = left - k * lanes;
    return n >= lanes ? UINT32_MAX : n > 0 ? ((uint32_t)1 << n) - 1 : 0;
}
#define MASK__ps __mmask16
#define MASK__pd __mmask8
#define MASKED(k, P) const MASK__##P lanes##k = (MASK__##P)lanes_left(left, k, LANES(_mm512_, P));
#define REST(W, P)                                                                                                     \
    const int64_t left = n - i;                                                                                        \
    if (left > 2 * LANES(W, P)) {                                                                                      \
        EACH_8(MASKED, P)                                                                                              \
        BLOCK(EACH_8, W, P, SOME, FEW);                                                                                \
        return;                                                                                                        \
    }                                                                                                                  \
    for (; n - i >= LANES(W, P); i += LANES(W, P)) {                                                                   \
        BLOCK(EACH_1, W, P, ALL, FEW);                                                                                 \
    }                                                                                                                  \
    if (i < n) {                                                                                                       \
        const MASK__##P lanes0 = (MASK__##P)lanes_left(n - i, 0, LANES(W, P));                                         \
        BLOCK(EACH_1, W, P, SOME, FEW);                                                                                \
    }
#else
#define WIDE _mm256_
#define REST(W, P)                                                                                                     \
    for (; n - i >= LANES(W, P); i += LANES(W, P)) {                                                                   \
        BLOCK(EACH_1, W, P, ALL, FEW);                                                                                 \
    }                                                                                                                  \
    for (; i < n; i++) {                                                                                               \
        BLOCK(EACH_1, _mm_, P, LAST, FEW);                                                                             \
    }
#endif

#define CHAIN(name, W, P)                                                                                              \
    static void name(int64_t n, const struct cpu_chain_step *steps, unsigned count) {                                  \
        const struct cpu_chain_step *end = steps + count;                                                              \
        int64_t i = 0;                                                                                                 \
        for (; n - i >= 8 * LANES(W, P); i += 8 * LANES(W, P)) {                                                       \
            BLOCK(EACH_8, W, P, ALL, FEW);                                                                             \
        }                                                                                                              \
        REST(W, P)                                                                                                     \
    }
#define CHAIN_OF(name, W, P) CHAIN(name, W, P)
CHAIN_OF(chain_f32, WIDE, ps)
CHAIN_OF(chain_f64, WIDE, pd)

cpu_chain_function *const CPU_NAME(chain)[2] = {chain_f32, chain_f64};
#else
cpu_chain_function *const CPU_NAME(chain)[2] = {NULL, NULL};
#endif

/* ---- chains of tiles ---- */

#if defined(__AVX512F__)
#define FUNCTION(k, name) a##k = avx512_##name(a##k);
#define VECTORS_FUNCTION(NAME, name)                                                                                   \
    static __attribute__((noinline)) void vectors_##name(__m512 *a) {                                                  \
        for (int k = 0; k < 8; k++) {                                                                                  \
            a[k] = avx512_##name(a[k]);                                                                                \
        }                                                                                                              \
    }
CPU_CHAIN_FUNCTIONS(VECTORS_FUNCTION)
/* Of whole vectors in place; of what is left, once for each tile, by a call. */
#define ALL_FUNCTION(NAME, name)                                                                                       \
    case CPU_CHAIN_WHAT(CPU_CHAIN_##NAME, CPU_CHAIN_SELF):                                                             \
        EACH_8(FUNCTION, name)                                                                                         \
        break;
#define SOME_FUNCTION(NAME, name)                                                                                      \
    case CPU_CHAIN_WHAT(CPU_CHAIN_##NAME, CPU_CHAIN_SELF): {                                                           \
        __m512 all[8] = {a0, a1, a2, a3, a4, a5, a6, a7};                                                              \
        vectors_##name(all);                                                                                           \
        EACH_8(TAKEN_BACK, all)                                                                                        \
        break;                                                                                                         \
    }
#define TAKEN_BACK(k, all) a##k = all[k];
#define BEYOND(k, none) | avx512_dividends_beyond(a##k)
#define DIVIDED(k, how) a##k = how(a##k, &divisor);
#define STREAMED(k, W, P) _mm512_stream_ps(OUT(k, W, P), a##k);

#define FETCH(lines)                                                                                                   \
    case CPU_CHAIN_WHAT(CPU_CHAIN_FETCH, lines):                                                                       \
        for (int k = 0; k < 1 << lines; k++) {                                                                         \
            __builtin_prefetch((const char *)step->with + i / CPU_CHAIN_BLOCK * (64 << lines) + k * 64, 0, 2);         \
        }                                                                                                              \
        break;
#define QUOTIENT(EACH)                                                                                                 \
    case CPU_CHAIN_WHAT(CPU_CHAIN_QUOTIENT, CPU_CHAIN_ONE): {                                                          \
        const struct avx512_divisor divisor = avx512_divisor_of(step->with);                                           \
        if (__builtin_expect((0 EACH(BEYOND, 0)) == 0, 1)) {                                                           \
            EACH(DIVIDED, avx512_divided)                                                                              \
        } else {                                                                                                       \
            EACH(DIVIDED, avx512_divided_any)                                                                          \
        }                                                                                                              \
        break;                                                                                                         \
    }
#define TILE_CASES(EACH, KIND)                                                                                         \
    CPU_CHAIN_FUNCTIONS(KIND##_FUNCTION) FETCH(0) FETCH(1) FETCH(2) FETCH(3) FETCH(4) QUOTIENT(EACH)
#define TILE_STORED(EACH, W, P, KIND) KIND##_TILE_STORED(EACH, W, P)
#define ALL_TILE_STORED(EACH, W, P)                                                                                    \
    if (step->streams) {                                                                                               \
        EACH(STREAMED, W, P)                                                                                           \
    } else {                                                                                                           \
        EACH(STORED, W, P, ALL)                                                                                        \
    }
#define SOME_TILE_STORED(EACH, W, P) EACH(STORED, W, P, SOME)

static void chain_tile_f32(int64_t n, const struct cpu_chain_step *steps, unsigned count) {
    const struct cpu_chain_step *end = steps + count;
    int64_t i = 0;
    for (; n - i >= CPU_CHAIN_BLOCK; i += CPU_CHAIN_BLOCK) {
        BLOCK(EACH_8, _mm512_, ps, ALL, TILE);
    }
    if (i < n) {
        const int64_t left = n - i;
        EACH_8(MASKED, ps)
        BLOCK(EACH_8, _mm512_, ps, SOME, TILE);
    }
}
cpu_chain_function *const CPU_NAME(chain_tile) = chain_tile_f32;
#else
cpu_chain_function *const CPU_NAME(chain_tile) = NULL;
#endif
