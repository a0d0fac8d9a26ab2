/* Extremes, norms that are extremes, and the positions of extremes. */
#include "engine/cpu/rows_reduce.h"

/* ---- extremes ---- */

#define EXTREME(name, T, operation, neutral, TAKE)                                                                     \
    STEPS(name, T, T, operation, neutral, TAKE, MAP_PLAIN)                                                             \
    FINISH(name, T, T, v)                                                                                              \
    TABLE(name, name, name)
#define INTEGER_EXTREMES(NAME, name, T, U, minimum, maximum)                                                           \
    EXTREME(max_##name, T, max, minimum, TAKE_MAX)                                                                     \
    EXTREME(min_##name, T, min, maximum, TAKE_MIN)
CPU_INTEGERS(INTEGER_EXTREMES)

/* A NaN wins and stays. The streams of a row overlook it, for a comparison alone is one instruction; they note whether there is one. */
#define TAKE_MAX_NAN(v, x) ((x) > (v) || (x) != (x) ? (x) : (v))
#define TAKE_MIN_NAN(v, x) ((x) < (v) || (x) != (x) ? (x) : (v))
#define FLOAT_STREAMS(name, T, N, operation, neutral, TAKE, MAP)                                                       \
    INLINE T name##_streams(int64_t n, const T *x, int64_t stride) {                                                   \
        T v0 = neutral, v1 = neutral, v2 = neutral, v3 = neutral;                                                      \
        N nan = 0;                                                                                                     \
        const int64_t quarter = n < SHORT_ROW ? 0 : n / 4;                                                             \
        const T *x1 = x + quarter * stride, *x2 = x1 + quarter * stride, *x3 = x2 + quarter * stride;                  \
        CPU_PRAGMA(omp simd reduction(operation : v0, v1, v2, v3) reduction(| : nan))                                  \
        for (int64_t i = 0; i < quarter; i++) {                                                                        \
            const T a = MAP(x[i * stride]), b = MAP(x1[i * stride]), c = MAP(x2[i * stride]), d = MAP(x3[i * stride]); \
            v0 = TAKE(v0, a);                                                                                          \
            v1 = TAKE(v1, b);                                                                                          \
            v2 = TAKE(v2, c);                                                                                          \
            v3 = TAKE(v3, d);                                                                                          \
            nan |= (N)(__builtin_isunordered(a, b) | __builtin_isunordered(c, d));                                     \
        }                                                                                                              \
        v0 = TAKE(v0, v1);                                                                                             \
        v2 = TAKE(v2, v3);                                                                                             \
        v0 = TAKE(v0, v2);                                                                                             \
        for (int64_t i = 4 * quarter; i < n; i++) {                                                                    \
            const T a = MAP(x[i * stride]);                                                                            \
            v0 = TAKE(v0, a);                                                                                          \
            nan |= (N)(a != a);                                                                                        \
        }                                                                                                              \
        return nan ? (T)__builtin_nan("") : v0;                                                                        \
    }                                                                                                                  \
    static __attribute__((noinline)) T name##_strided(int64_t n, const T *x, int64_t stride) {                         \
        return name##_streams(n, x, stride);                                                                           \
    }
/* Of a row without a stride, in vectors. */
#if defined(__AVX512F__)
#define EXTREME_VECTOR_ps __m512
#define EXTREME_VECTOR_pd __m512d
#define EXTREME_MASK_ps __mmask16
#define EXTREME_MASK_pd __mmask8
#define EXTREME_CALL(name, suffix) _mm512_##name##_##suffix
#define EXTREME_OF(operation, suffix, TAKE, v) _mm512_reduce_##operation##_##suffix(v)
#define EXTREME_NAN_ps(v) (_mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q) != 0)
#define EXTREME_NAN_pd(v) (_mm512_cmp_pd_mask(v, v, _CMP_UNORD_Q) != 0)
/* The elements behind the last whole vector. */
#define EXTREME_REST(suffix, operation)                                                                                \
    if (i < n) {                                                                                                       \
        const EXTREME_MASK_##suffix rest = (EXTREME_MASK_##suffix)((1U << (n - i)) - 1);                               \
        const EXTREME_VECTOR_##suffix a = EXTREME_CALL(mask_loadu, suffix)(v[0], rest, x + i);                         \
        v[0] = EXTREME_CALL(operation, suffix)(a, v[0]);                                                               \
        s[0] = EXTREME_CALL(mask_add, suffix)(s[0], rest, a, s[0]);                                                    \
        i = n;                                                                                                         \
    }
#elif defined(__AVX__)
#define EXTREME_REST(suffix, operation)
#define EXTREME_VECTOR_ps __m256
#define EXTREME_VECTOR_pd __m256d
#define EXTREME_CALL(name, suffix) _mm256_##name##_##suffix
#define EXTREME_OF(operation, suffix, TAKE, v) EXTREME_OF_##suffix(TAKE, v)
#define EXTREME_OF_pd(TAKE, v) TAKE(TAKE((v)[0], (v)[1]), TAKE((v)[2], (v)[3]))
#define EXTREME_OF_ps(TAKE, v)                                                                                         \
    TAKE(TAKE(TAKE((v)[0], (v)[1]), TAKE((v)[2], (v)[3])), TAKE(TAKE((v)[4], (v)[5]), TAKE((v)[6], (v)[7])))
#define EXTREME_NAN_ps(v) (_mm256_movemask_ps(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)) != 0)
#define EXTREME_NAN_pd(v) (_mm256_movemask_pd(_mm256_cmp_pd(v, v, _CMP_UNORD_Q)) != 0)
#endif
#if defined(__AVX__)
/* Intel's max and min give their second operand where one is a NaN, as TAKE does. Sums are NaN if an element is: an addition is faster than a
 * comparison. They may be NaN because of infinities, too: then the streams know. */
#define EXTREME_VECTORS(name, T, suffix, operation, neutral, TAKE)                                                     \
    INLINE T name##_vectors(int64_t n, const T *x) {                                                                   \
        enum { LANES = sizeof(EXTREME_VECTOR_##suffix) / sizeof(T) };                                                  \
        EXTREME_VECTOR_##suffix v[4], s[4];                                                                            \
        for (int k = 0; k < 4; k++) {                                                                                  \
            v[k] = EXTREME_CALL(set1, suffix)(neutral);                                                                \
            s[k] = EXTREME_CALL(set1, suffix)(0);                                                                      \
        }                                                                                                              \
        int64_t i = 0;                                                                                                 \
        for (; i + 4 * LANES <= n; i += 4 * LANES) {                                                                   \
            for (int k = 0; k < 4; k++) {                                                                              \
                const EXTREME_VECTOR_##suffix a = EXTREME_CALL(loadu, suffix)(x + i + k * LANES);                      \
                v[k] = EXTREME_CALL(operation, suffix)(a, v[k]);                                                       \
                s[k] = EXTREME_CALL(add, suffix)(a, s[k]);                                                             \
            }                                                                                                          \
        }                                                                                                              \
        for (int k = 1; k < 4; k++) {                                                                                  \
            v[0] = EXTREME_CALL(operation, suffix)(v[0], v[k]);                                                        \
            s[0] = EXTREME_CALL(add, suffix)(s[0], s[k]);                                                              \
        }                                                                                                              \
        for (; i + LANES <= n; i += LANES) {                                                                           \
            const EXTREME_VECTOR_##suffix a = EXTREME_CALL(loadu, suffix)(x + i);                                      \
            v[0] = EXTREME_CALL(operation, suffix)(a, v[0]);                                                           \
            s[0] = EXTREME_CALL(add, suffix)(a, s[0]);                                                                 \
        }                                                                                                              \
        EXTREME_REST(suffix, operation)                                                                                \
        T best = EXTREME_OF(operation, suffix, TAKE, v[0]);                                                            \
        bool nan = EXTREME_NAN_##suffix(s[0]);                                                                         \
        for (; i < n; i++) {                                                                                           \
            best = TAKE(best, x[i]);                                                                                   \
            nan |= x[i] != x[i];                                                                                       \
        }                                                                                                              \
        return nan ? name##_strided(n, x, 1) : best;                                                                   \
    }
#else
#define EXTREME_VECTORS(name, T, suffix, operation, neutral, TAKE)                                                     \
    INLINE T name##_vectors(int64_t n, const T *x) {                                                                   \
        return name##_streams(n, x, 1);                                                                                \
    }
#endif
#define EXTREME_STREAMS(name, T, suffix, operation, neutral, TAKE)                                                     \
    INLINE T name##_vectors(int64_t n, const T *x) {                                                                   \
        return name##_streams(n, x, 1);                                                                                \
    }

#define FLOAT_EXTREME(name, T, N, suffix, operation, neutral, TAKE, MAP, CONTIGUOUS)                                   \
    FLOAT_STREAMS(name, T, N, operation, neutral, TAKE, MAP)                                                           \
    CONTIGUOUS(name, T, suffix, operation, neutral, TAKE)                                                              \
    INLINE T name##_of_row(int64_t n, const T *x, int64_t stride) {                                                    \
        return stride == 1 ? name##_vectors(n, x) : name##_strided(n, x, stride);                                      \
    }                                                                                                                  \
    START(name, T, neutral)                                                                                            \
    COLUMNS(name, T, T, T, TAKE##_NAN, MAP)                                                                            \
    static void name##_row(int64_t n, const void *x, int64_t stride, int64_t position,                                 \
                           struct cpu_accumulators *accumulators) {                                                    \
        VALUES(T);                                                                                                     \
        (void)position;                                                                                                \
        const T v = name##_of_row(n, x, stride);                                                                       \
        *value = TAKE##_NAN(*value, v);                                                                                \
    }                                                                                                                  \
    MERGE(name, T, TAKE##_NAN)                                                                                         \
    FINISH(name, T, T, v)                                                                                              \
    TABLE(name, name, name)
#define FLOAT_EXTREMES(name, operation, INFINITY_, TAKE, MAP32, MAP64, CONTIGUOUS)                                     \
    FLOAT_EXTREME(name##_f32, float, uint32_t, ps, operation, INFINITY_##f(), TAKE, MAP32, CONTIGUOUS)                 \
    FLOAT_EXTREME(name##_f64, double, uint64_t, pd, operation, INFINITY_(), TAKE, MAP64, CONTIGUOUS)                   \
    HALF_REDUCTION(name##_f16, f16, name##_f32, float, v)                                                              \
    HALF_REDUCTION(name##_bf16, bf16, name##_f32, float, v)
#define MAP_ABS32(x) __builtin_fabsf(x)
#define ZERO() 0.0
#define ZEROf() 0.0f
#define LOWEST() (-__builtin_inf())
#define LOWESTf() (-__builtin_inff())
FLOAT_EXTREMES(max, max, LOWEST, TAKE_MAX, MAP_PLAIN, MAP_PLAIN, EXTREME_VECTORS)
FLOAT_EXTREMES(min, min, __builtin_inf, TAKE_MIN, MAP_PLAIN, MAP_PLAIN, EXTREME_VECTORS)
FLOAT_EXTREMES(norm_max, max, ZERO, TAKE_MAX, MAP_ABS32, MAP_ABS, EXTREME_STREAMS)
FLOAT_EXTREMES(norm_min, min, __builtin_inf, TAKE_MIN, MAP_ABS32, MAP_ABS, EXTREME_STREAMS)

/* ---- positions of extremes: of a block first the extreme, then, if it is better than all before, where it is ---- */

enum {
    POSITION_BLOCK = 1024, /* elements, which stay in the first-level cache until the extreme is looked for */
    POSITION_SEARCH = 64,  /* elements that are compared with it at a time */
};

/* A negative position: nothing seen yet. */
static void position_start(int64_t n, struct cpu_accumulators *accumulators) {
    EXTRA(int64_t);
    memset(accumulators->value, 0, (size_t)n * 8);
    for (int64_t i = 0; i < n; i++) {
        extra[i] = -1;
    }
}

static void position_finish(int64_t n, const struct cpu_accumulators *accumulators, int64_t count, void *out) {
    (void)count;
    memcpy(out, accumulators->extra, (size_t)n * sizeof(int64_t));
}

/* BEATS(x, v): whether x is more extreme than v. SAME(x, v): whether x is the extreme v. `of` is a reduction of a row to the extreme. */
#define POSITION(name, T, BEATS, SAME, of)                                                                             \
    static void name##_columns(int64_t n, const void *elements, int64_t stride, int64_t steps, int64_t step,           \
                               int64_t position, struct cpu_accumulators *accumulators) {                              \
        VALUES(T);                                                                                                     \
        EXTRA(int64_t);                                                                                                \
        const T *e = elements;                                                                                         \
        for (int64_t k = 0; k < steps; k++, e += step) {                                                               \
            const int64_t here = position + k;                                                                         \
            CPU_LOOP                                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                const T x = e[i * stride], v = value[i];                                                               \
                const bool take = (extra[i] < 0) | BEATS(x, v);                                                        \
                value[i] = take ? x : v;                                                                               \
                extra[i] = take ? here : extra[i];                                                                     \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    /* The first of n elements that is v; there is one. */                                                             \
    INLINE int64_t name##_find(int64_t n, const T *e, int64_t stride, T v) {                                           \
        int64_t i = 0;                                                                                                 \
        for (; i + POSITION_SEARCH < n; i += POSITION_SEARCH) {                                                        \
            uint8_t found = 0;                                                                                         \
            CPU_PRAGMA(omp simd reduction(| : found))                                                                  \
            for (int64_t k = i; k < i + POSITION_SEARCH; k++) {                                                        \
                found |= SAME(e[k * stride], v);                                                                       \
            }                                                                                                          \
            if (found) {                                                                                               \
                break;                                                                                                 \
            }                                                                                                          \
        }                                                                                                              \
        /* Without a branch that the processor would foresee wrongly once in each row. */                              \
        const int32_t left = (int32_t)(n - i < POSITION_SEARCH ? n - i : POSITION_SEARCH);                             \
        int32_t first = POSITION_SEARCH;                                                                               \
        CPU_PRAGMA(omp simd reduction(min : first))                                                                    \
        for (int32_t k = 0; k < left; k++) {                                                                           \
            const int32_t at = SAME(e[(i + k) * stride], v) ? k : POSITION_SEARCH;                                     \
            first = at < first ? at : first;                                                                           \
        }                                                                                                              \
        return i + first;                                                                                              \
    }                                                                                                                  \
    INLINE void name##_block(int64_t n, const T *e, int64_t stride, int64_t position, T *value, int64_t *at) {         \
        const T v = of;                                                                                                \
        if (*at < 0 || BEATS(v, *value)) {                                                                             \
            *at = position + name##_find(n, e, stride, v);                                                             \
            *value = v;                                                                                                \
        }                                                                                                              \
    }                                                                                                                  \
    static void name##_row(int64_t n, const void *elements, int64_t stride, int64_t position,                          \
                           struct cpu_accumulators *accumulators) {                                                    \
        VALUES(T);                                                                                                     \
        EXTRA(int64_t);                                                                                                \
        const T *e = elements;                                                                                         \
        for (int64_t i = 0; i < n; i += POSITION_BLOCK) {                                                              \
            const int64_t block = n - i < POSITION_BLOCK ? n - i : POSITION_BLOCK;                                     \
            if (stride == 1) {                                                                                         \
                name##_block(block, e + i, 1, position + i, value, extra);                                             \
            } else {                                                                                                   \
                name##_block(block, e + i * stride, stride, position + i, value, extra);                               \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void name##_merge(int64_t n, struct cpu_accumulators *accumulators, const struct cpu_accumulators *from) {  \
        VALUES(T);                                                                                                     \
        EXTRA(int64_t);                                                                                                \
        FROM_VALUES(T);                                                                                                \
        FROM_EXTRA(int64_t);                                                                                           \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            if (other_extra[i] >= 0 && (extra[i] < 0 || BEATS(other[i], value[i]))) {                                  \
                value[i] = other[i];                                                                                   \
                extra[i] = other_extra[i];                                                                             \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static const struct cpu_reduction name = {position_start, name##_row, name##_columns, name##_merge,                \
                                              position_finish};

#define GREATER(x, v) ((x) > (v))
#define LESS(x, v) ((x) < (v))
#define EQUAL(x, v) ((x) == (v))
#define INTEGER_POSITIONS(NAME, name, T, U, minimum, maximum)                                                          \
    POSITION(argmax_##name, T, GREATER, EQUAL, max_##name##_streams(n, e, stride, 0))                                  \
    POSITION(argmin_##name, T, LESS, EQUAL, min_##name##_streams(n, e, stride, 0))
CPU_INTEGERS(INTEGER_POSITIONS)
#define GREATER_NAN(x, v) (((x) > (v)) | (((x) != (x)) & ((v) == (v))))
#define LESS_NAN(x, v) (((x) < (v)) | (((x) != (x)) & ((v) == (v))))
#define EQUAL_NAN(x, v) (((x) == (v)) | (((x) != (x)) & ((v) != (v))))
#define FLOAT_POSITIONS(name, T)                                                                                       \
    POSITION(argmax_##name, T, GREATER_NAN, EQUAL_NAN, max_##name##_of_row(n, e, stride))                              \
    POSITION(argmin_##name, T, LESS_NAN, EQUAL_NAN, min_##name##_of_row(n, e, stride))
FLOAT_POSITIONS(f32, float)
FLOAT_POSITIONS(f64, double)
#define HALF_POSITIONS(name, half, base)                                                                               \
    HALF_STEPS(name, half, base)                                                                                       \
    static const struct cpu_reduction name = {position_start, name##_row, name##_columns, base##_merge,                \
                                              position_finish};
HALF_POSITIONS(argmax_f16, f16, argmax_f32)
HALF_POSITIONS(argmin_f16, f16, argmin_f32)
HALF_POSITIONS(argmax_bf16, bf16, argmax_f32)
HALF_POSITIONS(argmin_bf16, bf16, argmin_f32)

/* clang-format off */
#define ALL_DTYPES(name)                                                                                               \
    {[DTYPE_BOOL] = &name##_u8, [DTYPE_U8] = &name##_u8, [DTYPE_I8] = &name##_i8, [DTYPE_I16] = &name##_i16,           \
     [DTYPE_I32] = &name##_i32, [DTYPE_I64] = &name##_i64, [DTYPE_U16] = &name##_u16, [DTYPE_U32] = &name##_u32,       \
     [DTYPE_U64] = &name##_u64, FLOATS(name)}
/* clang-format on */
REDUCTION(max, ALL_DTYPES(max))
REDUCTION(min, ALL_DTYPES(min))
REDUCTION(norm_max, {FLOATS(norm_max)})
REDUCTION(norm_min, {FLOATS(norm_min)})
REDUCTION(argmax, ALL_DTYPES(argmax))
REDUCTION(argmin, ALL_DTYPES(argmin))
