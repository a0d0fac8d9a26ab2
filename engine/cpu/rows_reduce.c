/* Reductions. Sums of f32 and of halves are accumulated in f64, sums of f64 with their rounding errors, integers wrap around in 64 bits. So
 * all sums are at least as exact as pairwise summation, in any order of the axes. */
#include "engine/cpu/half.h"

#define VALUES(T) T *const value = (void *)accumulators->value
#define FROM_VALUES(T) const T *const other = (const void *)from->value

enum { SUM_BLOCK = 128 }; /* f64 elements that are added plainly between two additions that keep the error */
enum { LANES = 64 };      /* accumulators side by side, so that additions of a row need not wait for one another */

/* Takes a row as columns into LANES accumulators, which are merged at its end. Short rows take the plain loop. */
#define ROW_BY_LANES(name, T, reduction)                                                                               \
    static void name##_row(int64_t n, const void *x, int64_t stride, int64_t position,                                 \
                           struct cpu_accumulators *accumulators) {                                                    \
        const T *elements = x;                                                                                         \
        struct cpu_accumulators lanes;                                                                                 \
        int64_t i = 0;                                                                                                 \
        if (n >= 2 * LANES) {                                                                                          \
            name##_start(LANES, &lanes);                                                                               \
            for (; i + LANES <= n; i += LANES) {                                                                       \
                name##_column(LANES, elements + i * stride, stride, position + i, &lanes);                             \
            }                                                                                                          \
            name##_fold(LANES, &lanes, accumulators);                                                                  \
        }                                                                                                              \
        for (; i < n; i++) {                                                                                           \
            name##_column(1, elements + i * stride, stride, position + i, accumulators);                               \
        }                                                                                                              \
    }

/* Reductions that are one expression: `value` is the accumulator, `x` the element, `other` a later accumulator. */
#define SIMPLE_REDUCTION(name, T, A, neutral, take, R, result)                                                         \
    static void name##_start(int64_t n, struct cpu_accumulators *accumulators) {                                       \
        VALUES(A);                                                                                                     \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            value[i] = neutral;                                                                                        \
        }                                                                                                              \
    }                                                                                                                  \
    static inline void name##_column(int64_t n, const void *elements, int64_t stride, int64_t position,                \
                                     struct cpu_accumulators *accumulators) {                                          \
        VALUES(A);                                                                                                     \
        const T *e = elements;                                                                                         \
        (void)position;                                                                                                \
        if (stride == 1) {                                                                                             \
            CPU_LOOP                                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                const A v = value[i], x = (A)e[i];                                                                     \
                value[i] = take;                                                                                       \
            }                                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const A v = value[i], x = (A)e[i * stride];                                                                \
            value[i] = take;                                                                                           \
        }                                                                                                              \
    }                                                                                                                  \
    static inline void name##_merge(int64_t n, struct cpu_accumulators *accumulators,                                  \
                                    const struct cpu_accumulators *from) {                                             \
        VALUES(A);                                                                                                     \
        FROM_VALUES(A);                                                                                                \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const A v = value[i], x = other[i];                                                                        \
            value[i] = take;                                                                                           \
        }                                                                                                              \
    }                                                                                                                  \
    static void name##_finish(int64_t n, const struct cpu_accumulators *accumulators, int64_t count, void *out) {      \
        const A *value = (const void *)accumulators->value;                                                            \
        R *z = out;                                                                                                    \
        (void)count;                                                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const A v = value[i];                                                                                      \
            z[i] = result;                                                                                             \
        }                                                                                                              \
    }

#define REDUCTION_TABLE(name)                                                                                          \
    static const struct cpu_reduction name = {name##_start, name##_row, name##_column, name##_merge, name##_finish};

#define REDUCTION(name, T, A, neutral, take, R, result)                                                                \
    SIMPLE_REDUCTION(name, T, A, neutral, take, R, result)                                                             \
    static inline void name##_fold(int64_t n, const struct cpu_accumulators *lanes,                                    \
                                   struct cpu_accumulators *accumulators) {                                            \
        VALUES(A);                                                                                                     \
        const A *const lane = (const void *)lanes->value;                                                              \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const A v = *value, x = lane[i];                                                                           \
            *value = take;                                                                                             \
        }                                                                                                              \
    }                                                                                                                  \
    ROW_BY_LANES(name, T, name)                                                                                        \
    REDUCTION_TABLE(name)

/* The reduction of halves is that of f32, on converted blocks. */
#define HALF_COLUMNS(name, half, base)                                                                                 \
    static void name##_column(int64_t n, const void *x, int64_t stride, int64_t position,                              \
                              struct cpu_accumulators *accumulators) {                                                 \
        float buffer[CPU_REDUCE_WIDTH];                                                                                \
        half_load_##half(n, x, stride, buffer);                                                                        \
        base##_column(n, buffer, 1, position, accumulators);                                                           \
    }                                                                                                                  \
    static void name##_row(int64_t n, const void *x, int64_t stride, int64_t position,                                 \
                           struct cpu_accumulators *accumulators) {                                                    \
        float buffer[CPU_BLOCK];                                                                                       \
        for (int64_t i = 0; i < n; i += CPU_BLOCK) {                                                                   \
            int64_t block = n - i < CPU_BLOCK ? n - i : CPU_BLOCK;                                                     \
            half_load_##half(block, (const uint16_t *)x + i * stride, stride, buffer);                                 \
            base##_row(block, buffer, 1, position + i, accumulators);                                                  \
        }                                                                                                              \
    }
#define HALF_REDUCTION(name, half, base, A, R, result)                                                                 \
    HALF_COLUMNS(name, half, base)                                                                                     \
    static void name##_finish(int64_t n, const struct cpu_accumulators *accumulators, int64_t count, void *out) {      \
        const A *value = (const void *)accumulators->value;                                                            \
        R *z = out;                                                                                                    \
        (void)count;                                                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const A v = value[i];                                                                                      \
            z[i] = result;                                                                                             \
        }                                                                                                              \
    }                                                                                                                  \
    static const struct cpu_reduction name = {base##_start, name##_row, name##_column, base##_merge, name##_finish};

/* ---- sums and products ---- */

/* Of i64, too; integers of fewer bits come converted. */
REDUCTION(sum_u64, uint64_t, uint64_t, 0, v + x, uint64_t, v)
REDUCTION(prod_u64, uint64_t, uint64_t, 1, v *x, uint64_t, v)

REDUCTION(prod_f64, double, double, 1, v *x, double, v)
REDUCTION(prod_f32, float, double, 1, v *x, float, (float)v)
HALF_REDUCTION(prod_f16, f16, prod_f32, double, uint16_t, half_to_f16(formula_odd(v)))
HALF_REDUCTION(prod_bf16, bf16, prod_f32, double, uint16_t, half_to_bf16(formula_odd(v)))

SIMPLE_REDUCTION(sum_f32, float, double, 0, v + x, float, (float)v)
static inline void sum_f32_row(int64_t n, const void *x, int64_t stride, int64_t position,
                               struct cpu_accumulators *accumulators) {
    VALUES(double);
    const float *e = x;
    double sum = 0;
    (void)position;
    if (stride == 1) {
        CPU_LOOP_SUM(sum)
        for (int64_t i = 0; i < n; i++) {
            sum += (double)e[i];
        }
    } else {
        CPU_LOOP_SUM(sum)
        for (int64_t i = 0; i < n; i++) {
            sum += (double)e[i * stride];
        }
    }
    *value += sum;
}
REDUCTION_TABLE(sum_f32)
static void mean_f32_finish(int64_t n, const struct cpu_accumulators *accumulators, int64_t count, void *out) {
    const double *value = (const void *)accumulators->value;
    float *z = out;
    for (int64_t i = 0; i < n; i++) {
        z[i] = (float)(value[i] / (double)count);
    }
}
static const struct cpu_reduction mean_f32 = {sum_f32_start, sum_f32_row, sum_f32_column, sum_f32_merge,
                                              mean_f32_finish};
HALF_REDUCTION(sum_f16, f16, sum_f32, double, uint16_t, half_to_f16(formula_odd(v)))
HALF_REDUCTION(sum_bf16, bf16, sum_f32, double, uint16_t, half_to_bf16(formula_odd(v)))
HALF_REDUCTION(mean_f16, f16, sum_f32, double, uint16_t, half_to_f16(formula_odd(v / (double)count)))
HALF_REDUCTION(mean_bf16, bf16, sum_f32, double, uint16_t, half_to_bf16(formula_odd(v / (double)count)))

/* Adds x to *sum, and the rounding error to *error (Knuth's TwoSum). Infinities and NaN make the error NaN: then the sum is right without
 * it, and finish ignores it. */
static inline void sum_f64_add(double x, double *sum, double *error) {
    double before = *sum, after = before + x, part = after - before;
    *error += (before - (after - part)) + (x - part);
    *sum = after;
}

#define SUM_F64                                                                                                        \
    double *const value = (void *)accumulators->value;                                                                 \
    double *const error = (void *)accumulators->extra

static void sum_f64_start(int64_t n, struct cpu_accumulators *accumulators) {
    memset(accumulators->value, 0, (size_t)n * sizeof(double));
    memset(accumulators->extra, 0, (size_t)n * sizeof(double));
}

static void sum_f64_column(int64_t n, const void *x, int64_t stride, int64_t position,
                           struct cpu_accumulators *accumulators) {
    SUM_F64;
    const double *e = x;
    (void)position;
    if (stride == 1) {
        CPU_LOOP
        for (int64_t i = 0; i < n; i++) {
            sum_f64_add(e[i], &value[i], &error[i]);
        }
        return;
    }
    CPU_LOOP
    for (int64_t i = 0; i < n; i++) {
        sum_f64_add(e[i * stride], &value[i], &error[i]);
    }
}

static void sum_f64_row(int64_t n, const void *x, int64_t stride, int64_t position,
                        struct cpu_accumulators *accumulators) {
    SUM_F64;
    const double *e = x;
    (void)position;
    for (int64_t begin = 0; begin < n; begin += SUM_BLOCK) {
        int64_t end = n - begin < SUM_BLOCK ? n : begin + SUM_BLOCK;
        double sum = 0;
        if (stride == 1) {
            CPU_LOOP_SUM(sum)
            for (int64_t i = begin; i < end; i++) {
                sum += e[i];
            }
        } else {
            CPU_LOOP_SUM(sum)
            for (int64_t i = begin; i < end; i++) {
                sum += e[i * stride];
            }
        }
        sum_f64_add(sum, value, error);
    }
}

static void sum_f64_merge(int64_t n, struct cpu_accumulators *accumulators, const struct cpu_accumulators *from) {
    SUM_F64;
    FROM_VALUES(double);
    const double *other_error = (const void *)from->extra;
    for (int64_t i = 0; i < n; i++) {
        sum_f64_add(other[i], &value[i], &error[i]);
        error[i] += other_error[i];
    }
}

static inline double sum_f64_result(double sum, double error) {
    return __builtin_isfinite(error) ? sum + error : sum;
}

static void sum_f64_finish(int64_t n, const struct cpu_accumulators *accumulators, int64_t count, void *out) {
    const double *value = (const void *)accumulators->value, *error = (const void *)accumulators->extra;
    double *z = out;
    (void)count;
    for (int64_t i = 0; i < n; i++) {
        z[i] = sum_f64_result(value[i], error[i]);
    }
}

static void mean_f64_finish(int64_t n, const struct cpu_accumulators *accumulators, int64_t count, void *out) {
    double *z = out;
    sum_f64_finish(n, accumulators, count, out);
    for (int64_t i = 0; i < n; i++) {
        z[i] /= (double)count;
    }
}
REDUCTION_TABLE(sum_f64)
static const struct cpu_reduction mean_f64 = {sum_f64_start, sum_f64_row, sum_f64_column, sum_f64_merge,
                                              mean_f64_finish};

/* ---- any and all ---- */

REDUCTION(any_bool, uint8_t, uint8_t, 0, v | x, uint8_t, v)
REDUCTION(all_bool, uint8_t, uint8_t, 1, v &x, uint8_t, v)

/* ---- extremes; a NaN wins and stays ---- */

#define EXTREMES(name, T, minimum, maximum)                                                                            \
    REDUCTION(max_##name, T, T, minimum, (x > v ? x : v), T, v)                                                        \
    REDUCTION(min_##name, T, T, maximum, (x < v ? x : v), T, v)
#define INTEGER_EXTREMES(NAME, name, T, U, minimum, maximum) EXTREMES(name, T, minimum, maximum)
CPU_INTEGERS(INTEGER_EXTREMES)
#define FLOAT_EXTREMES(name, T)                                                                                        \
    REDUCTION(max_##name, T, T, -__builtin_inff(), (x > v || x != x ? x : v), T, v)                                    \
    REDUCTION(min_##name, T, T, __builtin_inff(), (x < v || x != x ? x : v), T, v)
FLOAT_EXTREMES(f32, float)
FLOAT_EXTREMES(f64, double)
HALF_REDUCTION(max_f16, f16, max_f32, float, uint16_t, half_to_f16(v))
HALF_REDUCTION(min_f16, f16, min_f32, float, uint16_t, half_to_f16(v))
HALF_REDUCTION(max_bf16, bf16, max_f32, float, uint16_t, half_to_bf16(v))
HALF_REDUCTION(min_bf16, bf16, min_f32, float, uint16_t, half_to_bf16(v))

/* ---- positions of extremes; `better`: whether x is more extreme than v ---- */

#define POSITION(name, T, better)                                                                                      \
    static inline bool name##_beats(T x, T v) {                                                                        \
        return better;                                                                                                 \
    }                                                                                                                  \
    static void name##_column(int64_t n, const void *elements, int64_t stride, int64_t position,                       \
                              struct cpu_accumulators *accumulators) {                                                 \
        VALUES(T);                                                                                                     \
        int64_t *const at = (void *)accumulators->extra;                                                               \
        const T *e = elements;                                                                                         \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const T x = e[i * stride], v = value[i];                                                                   \
            const bool take = at[i] < 0 || name##_beats(x, v);                                                         \
            value[i] = take ? x : v;                                                                                   \
            at[i] = take ? position : at[i];                                                                           \
        }                                                                                                              \
    }                                                                                                                  \
    static void name##_row(int64_t n, const void *elements, int64_t stride, int64_t position,                          \
                           struct cpu_accumulators *accumulators) {                                                    \
        VALUES(T);                                                                                                     \
        int64_t *const at = (void *)accumulators->extra;                                                               \
        const T *e = elements;                                                                                         \
        for (int64_t begin = 0; begin < n; begin += CPU_BLOCK) {                                                       \
            int64_t end = n - begin < CPU_BLOCK ? n : begin + CPU_BLOCK;                                               \
            if (*at < 0) {                                                                                             \
                *value = e[begin * stride];                                                                            \
                *at = position + begin;                                                                                \
            }                                                                                                          \
            /* Most blocks have nothing better: test all elements of a block at once. */                               \
            const T v = *value;                                                                                        \
            int found = 0;                                                                                             \
            if (stride == 1) {                                                                                         \
                CPU_PRAGMA(omp simd reduction(| : found))                                                              \
                for (int64_t i = begin; i < end; i++) {                                                                \
                    found |= name##_beats(e[i], v);                                                                    \
                }                                                                                                      \
            } else {                                                                                                   \
                found = 1;                                                                                             \
            }                                                                                                          \
            for (int64_t i = begin; found && i < end; i++) {                                                           \
                if (name##_beats(e[i * stride], *value)) {                                                             \
                    *value = e[i * stride];                                                                            \
                    *at = position + i;                                                                                \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void name##_merge(int64_t n, struct cpu_accumulators *accumulators, const struct cpu_accumulators *from) {  \
        VALUES(T);                                                                                                     \
        FROM_VALUES(T);                                                                                                \
        int64_t *const at = (void *)accumulators->extra;                                                               \
        const int64_t *const other_at = (const void *)from->extra;                                                     \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            if (other_at[i] >= 0 && (at[i] < 0 || name##_beats(other[i], value[i]))) {                                 \
                value[i] = other[i];                                                                                   \
                at[i] = other_at[i];                                                                                   \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static const struct cpu_reduction name = {position_start, name##_row, name##_column, name##_merge, position_finish};

/* A negative position: nothing seen yet. */
static void position_start(int64_t n, struct cpu_accumulators *accumulators) {
    int64_t *at = (void *)accumulators->extra;
    memset(accumulators->value, 0, (size_t)n * 8);
    for (int64_t i = 0; i < n; i++) {
        at[i] = -1;
    }
}

static void position_finish(int64_t n, const struct cpu_accumulators *accumulators, int64_t count, void *out) {
    (void)count;
    memcpy(out, accumulators->extra, (size_t)n * sizeof(int64_t));
}

#define INTEGER_POSITIONS(NAME, name, T, U, minimum, maximum)                                                          \
    POSITION(argmax_##name, T, x > v)                                                                                  \
    POSITION(argmin_##name, T, x < v)
CPU_INTEGERS(INTEGER_POSITIONS)
#define FLOAT_POSITIONS(name, T)                                                                                       \
    POSITION(argmax_##name, T, x > v || (x != x && v == v))                                                            \
    POSITION(argmin_##name, T, x < v || (x != x && v == v))
FLOAT_POSITIONS(f32, float)
FLOAT_POSITIONS(f64, double)
#define HALF_POSITIONS(name, half, base)                                                                               \
    HALF_COLUMNS(name, half, base)                                                                                     \
    static const struct cpu_reduction name = {position_start, name##_row, name##_column, base##_merge, position_finish};
HALF_POSITIONS(argmax_f16, f16, argmax_f32)
HALF_POSITIONS(argmin_f16, f16, argmin_f32)
HALF_POSITIONS(argmax_bf16, bf16, argmax_f32)
HALF_POSITIONS(argmin_bf16, bf16, argmin_f32)

/* ---- the table; a bool is a u8 of 0 or 1 ---- */

/* clang-format off */
#define ALL_DTYPES(name)                                                                                               \
    {[DTYPE_BOOL] = &name##_u8, [DTYPE_U8] = &name##_u8, [DTYPE_I8] = &name##_i8, [DTYPE_I16] = &name##_i16,           \
     [DTYPE_I32] = &name##_i32, [DTYPE_I64] = &name##_i64, [DTYPE_U16] = &name##_u16, [DTYPE_U32] = &name##_u32,       \
     [DTYPE_U64] = &name##_u64, [DTYPE_F16] = &name##_f16, [DTYPE_BF16] = &name##_bf16, [DTYPE_F32] = &name##_f32,     \
     [DTYPE_F64] = &name##_f64}

#define SUMS(name)                                                                                                     \
    {[DTYPE_I64] = &name##_u64, [DTYPE_U64] = &name##_u64, [DTYPE_F16] = &name##_f16, [DTYPE_BF16] = &name##_bf16,     \
     [DTYPE_F32] = &name##_f32, [DTYPE_F64] = &name##_f64}

const struct cpu_reduction *CPU_NAME(reductions)[OP_PLACES_REDUCE][DTYPE_COUNT] = {
    [OP_PLACE_SUM] = SUMS(sum),
    [OP_PLACE_PROD] = SUMS(prod),
    [OP_PLACE_MEAN] = {[DTYPE_F16] = &mean_f16, [DTYPE_BF16] = &mean_bf16, [DTYPE_F32] = &mean_f32, [DTYPE_F64] = &mean_f64},
    [OP_PLACE_MAX] = ALL_DTYPES(max),
    [OP_PLACE_MIN] = ALL_DTYPES(min),
    [OP_PLACE_ANY] = {[DTYPE_BOOL] = &any_bool},
    [OP_PLACE_ALL] = {[DTYPE_BOOL] = &all_bool},
    [OP_PLACE_ARGMAX] = ALL_DTYPES(argmax),
    [OP_PLACE_ARGMIN] = ALL_DTYPES(argmin),
};
/* clang-format on */
