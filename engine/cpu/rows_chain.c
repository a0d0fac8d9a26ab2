/* Chains of elementwise operations: several vectors go through all steps before the next ones do. */
#include "engine/cpu/lanes.h"

#if defined(__AVX512F__)
#include <immintrin.h>

#define EACH_1(X, ...) X(0, __VA_ARGS__)
#define EACH_8(X, ...)                                                                                                 \
    X(0, __VA_ARGS__)                                                                                                  \
    X(1, __VA_ARGS__)                                                                                                  \
    X(2, __VA_ARGS__) X(3, __VA_ARGS__) X(4, __VA_ARGS__) X(5, __VA_ARGS__) X(6, __VA_ARGS__) X(7, __VA_ARGS__)

#define ADD(P, a, b) _mm512_add_##P(a, b)
#define SUBTRACT(P, a, b) _mm512_sub_##P(a, b)
#define MULTIPLY(P, a, b) _mm512_mul_##P(a, b)
#define DIVIDE(P, a, b) _mm512_div_##P(a, b)
/* The first operand if it is NaN; where both are equal, or the second is NaN, the second one. */
#define MAXIMUM(P, a, b) _mm512_mask_mov_##P(_mm512_max_##P(a, b), _mm512_cmp_##P##_mask(a, a, _CMP_UNORD_Q), a)
#define MINIMUM(P, a, b) _mm512_mask_mov_##P(_mm512_min_##P(a, b), _mm512_cmp_##P##_mask(a, a, _CMP_UNORD_Q), a)
#define NEGATIVE(P, a) NEGATIVE_##P(a)
#define NEGATIVE_ps(a) _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(a), _mm512_set1_epi32(INT32_MIN)))
#define NEGATIVE_pd(a) _mm512_castsi512_pd(_mm512_xor_si512(_mm512_castpd_si512(a), _mm512_set1_epi64(INT64_MIN)))
#define ABS(P, a) _mm512_abs_##P(a)
#define SQRT(P, a) _mm512_sqrt_##P(a)
#define RELU(P, a) _mm512_maskz_mov_##P(_mm512_cmp_##P##_mask(a, _mm512_setzero_##P(), _CMP_NLE_UQ), a)
#define RECIPROCAL(P, a) _mm512_div_##P(_mm512_set1_##P(1), a)

#define T_ps float
#define T_pd double
#define V_ps __m512
#define V_pd __m512d
#define WITH(P) ((const T_##P *)step->with)
#define OUT(P) ((T_##P *)step->out)
#define ALL_LOAD(k, P, L) _mm512_loadu_##P(WITH(P) + i + (k)*L)
#define ALL_STORE(k, P, L) _mm512_storeu_##P(OUT(P) + i + (k)*L, a##k);
#define ALL_STREAM(k, P, L) _mm512_stream_##P(OUT(P) + i + (k)*L, a##k);
#define ALL_FETCH(k, P, L) _mm_prefetch((const char *)(WITH(P) + i + (k)*L), _MM_HINT_T1);
#define SOME_LOAD(k, P, L) _mm512_maskz_loadu_##P(lanes##k, WITH(P) + i + (k)*L)
#define SOME_STORE(k, P, L) _mm512_mask_storeu_##P(OUT(P) + i + (k)*L, lanes##k, a##k);

/* Those of vector k that are elements. */
#define LANES(k, L, mask)                                                                                              \
    const mask lanes##k = (mask)(left >= ((k) + 1) * L ? ~0u : left > (k)*L ? (1u << (left - (k)*L)) - 1 : 0u);
#define DECLARED(k, V, P) V a##k = _mm512_setzero_##P();
#define LOADED(k, P, L, KIND) a##k = KIND##_LOAD(k, P, L);
#define LOADED_ONE(k, P) a##k = _mm512_set1_##P(*WITH(P));
#define WITH_ELEMENTS(k, P, L, KIND, NAME)                                                                             \
    {                                                                                                                  \
        const V_##P x = KIND##_LOAD(k, P, L);                                                                          \
        a##k = NAME(P, a##k, x);                                                                                       \
    }
#define WITH_ONE(k, P, NAME) a##k = NAME(P, a##k, one);
#define OF_ELEMENTS(k, P, L, KIND, NAME)                                                                               \
    {                                                                                                                  \
        const V_##P x = KIND##_LOAD(k, P, L);                                                                          \
        a##k = NAME(P, x, a##k);                                                                                       \
    }
#define OF_ONE(k, P, NAME) a##k = NAME(P, one, a##k);
#define WITH_SELF(k, P, NAME) a##k = NAME(P, a##k, a##k);
#define OF_IT(k, P, NAME) a##k = NAME(P, a##k);
#define STORED(k, P, L, KIND) KIND##_STORE(k, P, L)

#define BINARY_CASES(EACH, P, L, KIND, NAME)                                                                           \
    case CPU_CHAIN_WHAT(CPU_CHAIN_##NAME, CPU_CHAIN_ELEMENTS):                                                         \
        EACH(WITH_ELEMENTS, P, L, KIND, NAME)                                                                          \
        break;                                                                                                         \
    case CPU_CHAIN_WHAT(CPU_CHAIN_##NAME, CPU_CHAIN_OF_ELEMENTS):                                                      \
        EACH(OF_ELEMENTS, P, L, KIND, NAME)                                                                            \
        break;                                                                                                         \
    case CPU_CHAIN_WHAT(CPU_CHAIN_##NAME, CPU_CHAIN_ONE): {                                                            \
        const V_##P one = _mm512_set1_##P(*WITH(P));                                                                   \
        EACH(WITH_ONE, P, NAME)                                                                                        \
        break;                                                                                                         \
    }                                                                                                                  \
    case CPU_CHAIN_WHAT(CPU_CHAIN_##NAME, CPU_CHAIN_OF_ONE): {                                                         \
        const V_##P one = _mm512_set1_##P(*WITH(P));                                                                   \
        EACH(OF_ONE, P, NAME)                                                                                          \
        break;                                                                                                         \
    }                                                                                                                  \
    case CPU_CHAIN_WHAT(CPU_CHAIN_##NAME, CPU_CHAIN_SELF):                                                             \
        EACH(WITH_SELF, P, NAME)                                                                                       \
        break;
#define UNARY_CASE(EACH, P, NAME)                                                                                      \
    case CPU_CHAIN_WHAT(CPU_CHAIN_##NAME, CPU_CHAIN_SELF):                                                             \
        EACH(OF_IT, P, NAME)                                                                                           \
        break;

/* All steps on EACH vectors of L elements, from element i on. */
#define BLOCK(EACH, P, L, KIND, STREAM)                                                                                \
    do {                                                                                                               \
        EACH(DECLARED, V_##P, P)                                                                                       \
        for (const struct cpu_chain_step *step = steps; step < end; step++) {                                          \
            switch (step->what) {                                                                                      \
            case CPU_CHAIN_WHAT(CPU_CHAIN_LOAD, CPU_CHAIN_ELEMENTS):                                                   \
                EACH(LOADED, P, L, KIND)                                                                               \
                break;                                                                                                 \
            case CPU_CHAIN_WHAT(CPU_CHAIN_FETCH, CPU_CHAIN_ELEMENTS):                                                  \
                EACH(ALL_FETCH, P, L)                                                                                  \
                break;                                                                                                 \
            case CPU_CHAIN_WHAT(CPU_CHAIN_LOAD, CPU_CHAIN_ONE):                                                        \
                EACH(LOADED_ONE, P)                                                                                    \
                break;                                                                                                 \
                BINARY_CASES(EACH, P, L, KIND, ADD)                                                                    \
                BINARY_CASES(EACH, P, L, KIND, SUBTRACT)                                                               \
                BINARY_CASES(EACH, P, L, KIND, MULTIPLY)                                                               \
                BINARY_CASES(EACH, P, L, KIND, DIVIDE)                                                                 \
                BINARY_CASES(EACH, P, L, KIND, MAXIMUM)                                                                \
                BINARY_CASES(EACH, P, L, KIND, MINIMUM)                                                                \
                UNARY_CASE(EACH, P, NEGATIVE)                                                                          \
                UNARY_CASE(EACH, P, ABS)                                                                               \
                UNARY_CASE(EACH, P, SQRT)                                                                              \
                UNARY_CASE(EACH, P, RELU)                                                                              \
                UNARY_CASE(EACH, P, RECIPROCAL)                                                                        \
            default:                                                                                                   \
                __builtin_unreachable();                                                                               \
            }                                                                                                          \
            if (step->to == CPU_CHAIN_STORED) {                                                                        \
                EACH(STORED, P, L, KIND)                                                                               \
            } else if (step->to == CPU_CHAIN_STREAMED) {                                                               \
                EACH(STREAM, P, L)                                                                                     \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)

#define CHAIN(name, P, L, mask)                                                                                        \
    static void name(int64_t n, const struct cpu_chain_step *steps, unsigned count) {                                  \
        const struct cpu_chain_step *end = steps + count;                                                              \
        int64_t i = 0;                                                                                                 \
        for (; n - i >= 8 * L; i += 8 * L) {                                                                           \
            BLOCK(EACH_8, P, L, ALL, ALL_STREAM);                                                                      \
        }                                                                                                              \
        const int64_t left = n - i;                                                                                    \
        if (left > 2 * L) {                                                                                            \
            EACH_8(LANES, L, mask)                                                                                     \
            BLOCK(EACH_8, P, L, SOME, SOME_STORE);                                                                     \
            return;                                                                                                    \
        }                                                                                                              \
        for (; n - i >= L; i += L) {                                                                                   \
            BLOCK(EACH_1, P, L, ALL, ALL_STREAM);                                                                      \
        }                                                                                                              \
        if (i < n) {                                                                                                   \
            const mask lanes0 = (mask)((1u << (n - i)) - 1);                                                           \
            BLOCK(EACH_1, P, L, SOME, SOME_STORE);                                                                     \
        }                                                                                                              \
    }
CHAIN(chain_f32, ps, 16, __mmask16)
CHAIN(chain_f64, pd, 8, __mmask8)

cpu_chain_function *const CPU_NAME(chain)[2] = {chain_f32, chain_f64};
#else
cpu_chain_function *const CPU_NAME(chain)[2] = {NULL, NULL};
#endif
