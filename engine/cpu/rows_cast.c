/* Conversions between all pairs of dtypes, and copies. The output may be strided too. */
#include "engine/cpu/move.h"
#include "engine/cpu/rows.h"
#include "engine/device/formula_f8.h"

#define COPY_ROW(name, T)                                                                                              \
    void CPU_NAME(name)(const struct cpu_row *row) {                                                                   \
        const int64_t n = row->n, sa = row->stride[1], sz = row->stride[0];                                            \
        const T *x = (const void *)row->data[1];                                                                       \
        T *z = (void *)row->data[0];                                                                                   \
        if (sa == 1 && sz == 1) {                                                                                      \
            cpu_move(z, x, (size_t)n * sizeof *x);                                                                     \
        } else if (sa == 0 && sz == 1) {                                                                               \
            const T one = *x;                                                                                          \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                z[i] = one;                                                                                            \
            }                                                                                                          \
        } else if (sa == -1 && sz == 1) { /* whole vectors, turned over */                                             \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                z[i] = x[-i];                                                                                          \
            }                                                                                                          \
        } else if (sz == 1) {                                                                                          \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                z[i] = x[i * sa];                                                                                      \
            }                                                                                                          \
        } else {                                                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                z[i * sz] = x[i * sa];                                                                                 \
            }                                                                                                          \
        }                                                                                                              \
    }
COPY_ROW(copy_1, uint8_t)
COPY_ROW(copy_2, uint16_t)
COPY_ROW(copy_4, uint32_t)
COPY_ROW(copy_8, uint64_t)
COPY_ROW(copy_16, struct cpu_pair)

/* ---- casts; what they do with one element is in engine/device/formula_cast.h ---- */

#define CAST_ROW(from, to, T, R, expression)                                                                           \
    static void from##_to_##to(const struct cpu_row *row) {                                                            \
        const int64_t n = row->n, sa = row->stride[1], sz = row->stride[0];                                            \
        const T *x = (const void *)row->data[1];                                                                       \
        R *z = (void *)row->data[0];                                                                                   \
        if (sa == 1 && sz == 1) {                                                                                      \
            CPU_LOOP                                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                const T a = x[i];                                                                                      \
                z[i] = expression;                                                                                     \
            }                                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const T a = x[i * sa];                                                                                     \
            z[i * sz] = expression;                                                                                    \
        }                                                                                                              \
    }

#define CAST_TO_F8(from, T, value)                                                                                     \
    CAST_ROW(from, f8e4m3, T, uint8_t, formula_to_f8e4m3(value(a)))                                                    \
    CAST_ROW(from, f8e5m2, T, uint8_t, formula_to_f8e5m2(value(a)))

/* To a complex number with this real part. */
#define CAST_TO_COMPLEX(from, T, value)                                                                                \
    CAST_ROW(from, c64, T, formula_c64, formula_make_c64((float)value(a), 0))                                          \
    CAST_ROW(from, c128, T, formula_c128, formula_make_c128((double)value(a), 0))

/* From an integer. The new element's size is all that counts of an integer dtype: larger ones take on the sign, smaller ones lose the
 * high bits. Where it has the same size, it is a copy. `odd` makes a float that may be rounded once more. */
#define CAST_TO_SIZE(from, T, size, R) CAST_ROW(from, size, T, R, (R)a)
#define CAST_FROM_INTEGER(from, T, odd)                                                                                \
    CAST_ROW(from, truth, T, uint8_t, a != 0)                                                                          \
    CAST_ROW(from, f16, T, uint16_t, half_to_f16(odd(a)))                                                              \
    CAST_ROW(from, bf16, T, uint16_t, half_to_bf16(odd(a)))                                                            \
    CAST_ROW(from, f32, T, float, (float)a)                                                                            \
    CAST_ROW(from, f64, T, double, (double)a)                                                                          \
    CAST_TO_F8(from, T, odd)                                                                                           \
    CAST_TO_COMPLEX(from, T, )
CAST_FROM_INTEGER(u8, uint8_t, (float))
CAST_FROM_INTEGER(u16, uint16_t, (float))
CAST_FROM_INTEGER(u32, uint32_t, formula_odd_u32)
CAST_FROM_INTEGER(u64, uint64_t, formula_odd_u64)
CAST_FROM_INTEGER(i8, int8_t, (float))
CAST_FROM_INTEGER(i16, int16_t, (float))
CAST_FROM_INTEGER(i32, int32_t, formula_odd_i32)
CAST_FROM_INTEGER(i64, int64_t, formula_odd_i64)
CAST_TO_SIZE(u8, uint8_t, 2, uint16_t)
CAST_TO_SIZE(u8, uint8_t, 4, uint32_t)
CAST_TO_SIZE(u8, uint8_t, 8, uint64_t)
CAST_TO_SIZE(i8, int8_t, 2, int16_t)
CAST_TO_SIZE(i8, int8_t, 4, int32_t)
CAST_TO_SIZE(i8, int8_t, 8, int64_t)
CAST_TO_SIZE(u16, uint16_t, 1, uint8_t)
CAST_TO_SIZE(u16, uint16_t, 4, uint32_t)
CAST_TO_SIZE(u16, uint16_t, 8, uint64_t)
CAST_TO_SIZE(i16, int16_t, 4, int32_t)
CAST_TO_SIZE(i16, int16_t, 8, int64_t)
CAST_TO_SIZE(u32, uint32_t, 1, uint8_t)
CAST_TO_SIZE(u32, uint32_t, 2, uint16_t)
CAST_TO_SIZE(u32, uint32_t, 8, uint64_t)
CAST_TO_SIZE(i32, int32_t, 8, int64_t)
CAST_TO_SIZE(u64, uint64_t, 1, uint8_t)
CAST_TO_SIZE(u64, uint64_t, 2, uint16_t)
CAST_TO_SIZE(u64, uint64_t, 4, uint32_t)
#define i16_to_1 u16_to_1
#define i32_to_1 u32_to_1
#define i32_to_2 u32_to_2
#define i64_to_1 u64_to_1
#define i64_to_2 u64_to_2
#define i64_to_4 u64_to_4
#define u8_to_1 CPU_NAME(copy_1)
#define i8_to_1 CPU_NAME(copy_1)
#define u16_to_2 CPU_NAME(copy_2)
#define i16_to_2 CPU_NAME(copy_2)
#define u32_to_4 CPU_NAME(copy_4)
#define i32_to_4 CPU_NAME(copy_4)
#define u64_to_8 CPU_NAME(copy_8)
#define i64_to_8 CPU_NAME(copy_8)

#define CAST_FROM_FLOAT(from, T, type, value)                                                                          \
    CAST_ROW(from, truth, T, uint8_t, value(a) != 0)                                                                   \
    CAST_ROW(from, u8, T, uint8_t, formula_##type##_to_u8(value(a)))                                                   \
    CAST_ROW(from, u16, T, uint16_t, formula_##type##_to_u16(value(a)))                                                \
    CAST_ROW(from, u32, T, uint32_t, formula_##type##_to_u32(value(a)))                                                \
    CAST_ROW(from, u64, T, uint64_t, formula_##type##_to_u64(value(a)))                                                \
    CAST_ROW(from, i8, T, int8_t, formula_##type##_to_i8(value(a)))                                                    \
    CAST_ROW(from, i16, T, int16_t, formula_##type##_to_i16(value(a)))                                                 \
    CAST_ROW(from, i32, T, int32_t, formula_##type##_to_i32(value(a)))                                                 \
    CAST_ROW(from, i64, T, int64_t, formula_##type##_to_i64(value(a)))                                                 \
    CAST_TO_COMPLEX(from, T, value)
CAST_FROM_FLOAT(f16, uint16_t, float, half_from_f16)
CAST_FROM_FLOAT(bf16, uint16_t, float, half_from_bf16)
CAST_FROM_FLOAT(f32, float, float, )
CAST_FROM_FLOAT(f64, double, double, )
CAST_ROW(f16, f64, uint16_t, double, (double)half_from_f16(a))
CAST_ROW(bf16, f64, uint16_t, double, (double)half_from_bf16(a))
CAST_ROW(f32, f64, float, double, (double)a)
CAST_ROW(bf16, f16, uint16_t, uint16_t, half_to_f16(half_from_bf16(a)))
CAST_ROW(f16, bf16, uint16_t, uint16_t, half_to_bf16(half_from_f16(a)))
CAST_ROW(f64, f16, double, uint16_t, half_to_f16(formula_odd(a)))
CAST_ROW(f64, bf16, double, uint16_t, half_to_bf16(formula_odd(a)))
CAST_ROW(f64, f32, double, float, (float)a)
CAST_ROW(bf16, f32, uint16_t, float, half_from_bf16(a))
CAST_ROW(f32, bf16, float, uint16_t, half_to_bf16(a))
CAST_ROW(f16_strided, f32, uint16_t, float, half_from_f16(a))
CAST_ROW(f32_strided, f16, float, uint16_t, half_to_f16(a))

#define CAST_FROM_F8(from, value)                                                                                      \
    CAST_FROM_FLOAT(from, uint8_t, float, value)                                                                       \
    CAST_ROW(from, bf16, uint8_t, uint16_t, half_to_bf16(value(a)))                                                    \
    CAST_ROW(from, f32, uint8_t, float, value(a))                                                                      \
    CAST_ROW(from, f64, uint8_t, double, (double)value(a))
CAST_FROM_F8(f8e4m3, formula_from_f8e4m3)
CAST_FROM_F8(f8e5m2, formula_from_f8e5m2)
CAST_ROW(f8e4m3, f8e5m2, uint8_t, uint8_t, formula_to_f8e5m2(formula_from_f8e4m3(a)))
CAST_ROW(f8e5m2, f8e4m3, uint8_t, uint8_t, formula_to_f8e4m3(formula_from_f8e5m2(a)))
CAST_TO_F8(bf16, uint16_t, half_from_bf16)
CAST_TO_F8(f32, float, )
CAST_TO_F8(f64, double, formula_odd)

#define CAST_FROM_COMPLEX(from, C) CAST_ROW(from, truth, C, uint8_t, (uint8_t)((a.re != 0) | (a.im != 0)))
CAST_FROM_COMPLEX(c64, formula_c64)
CAST_FROM_COMPLEX(c128, formula_c128)
CAST_ROW(c64, c128, formula_c64, formula_c128, formula_c64_to_c128(a))
CAST_ROW(c128, c64, formula_c128, formula_c64, formula_c128_to_c64(a))

/* These two conversions have instructions of their own, which the compiler does not find by itself. */
static void f16_to_f32(const struct cpu_row *row) {
    if (row->stride[0] != 1 || row->stride[1] != 1) {
        f16_strided_to_f32(row);
        return;
    }
    half_load_f16(row->n, (const void *)row->data[1], 1, (void *)row->data[0]);
}

static void f32_to_f16(const struct cpu_row *row) {
    if (row->stride[0] != 1 || row->stride[1] != 1) {
        f32_strided_to_f16(row);
        return;
    }
    half_store_f16(row->n, (const void *)row->data[1], (void *)row->data[0], 1);
}

/* Between f16 and f8 in two steps, since the step from or to f16 has an instruction. */
#define CAST_F16_AND(f8)                                                                                               \
    static void f16_to_##f8(const struct cpu_row *row) {                                                               \
        float buffer[CPU_BLOCK];                                                                                       \
        const int64_t sa = row->stride[1], sz = row->stride[0];                                                        \
        for (int64_t i = 0; i < row->n; i += CPU_BLOCK) {                                                              \
            int64_t n = row->n - i < CPU_BLOCK ? row->n - i : CPU_BLOCK;                                               \
            half_load_f16(n, (const uint16_t *)(const void *)row->data[1] + i * sa, sa, buffer);                       \
            f32_to_##f8(&(struct cpu_row){n, {row->data[0] + i * sz, (char *)buffer}, {sz, 1}});                       \
        }                                                                                                              \
    }                                                                                                                  \
    static void f8##_to_f16(const struct cpu_row *row) {                                                               \
        float buffer[CPU_BLOCK];                                                                                       \
        const int64_t sa = row->stride[1], sz = row->stride[0];                                                        \
        for (int64_t i = 0; i < row->n; i += CPU_BLOCK) {                                                              \
            int64_t n = row->n - i < CPU_BLOCK ? row->n - i : CPU_BLOCK;                                               \
            f8##_to_f32(&(struct cpu_row){n, {(char *)buffer, row->data[1] + i * sa}, {1, sa}});                       \
            half_store_f16(n, buffer, (uint16_t *)(void *)row->data[0] + i * sz, sz);                                  \
        }                                                                                                              \
    }
CAST_F16_AND(f8e4m3)
CAST_F16_AND(f8e5m2)

#define f16_to_f16 CPU_NAME(copy_2)
#define bf16_to_bf16 CPU_NAME(copy_2)
#define f32_to_f32 CPU_NAME(copy_4)
#define f64_to_f64 CPU_NAME(copy_8)
#define f8e4m3_to_f8e4m3 CPU_NAME(copy_1)
#define f8e5m2_to_f8e5m2 CPU_NAME(copy_1)

/* clang-format off */
#define CASTS_TO_FLOATS(from)                                                                                          \
    [DTYPE_F16] = from##_to_f16, [DTYPE_BF16] = from##_to_bf16, [DTYPE_F32] = from##_to_f32,                           \
    [DTYPE_F64] = from##_to_f64, [DTYPE_F8E4M3] = from##_to_f8e4m3, [DTYPE_F8E5M2] = from##_to_f8e5m2,                 \
    [DTYPE_C64] = from##_to_c64, [DTYPE_C128] = from##_to_c128
#define CASTS_OF_INTEGER(from, truth)                                                                                  \
    {[DTYPE_BOOL] = truth, [DTYPE_U8] = from##_to_1, [DTYPE_I8] = from##_to_1, [DTYPE_U16] = from##_to_2,              \
     [DTYPE_I16] = from##_to_2, [DTYPE_U32] = from##_to_4, [DTYPE_I32] = from##_to_4, [DTYPE_U64] = from##_to_8,       \
     [DTYPE_I64] = from##_to_8, CASTS_TO_FLOATS(from)}
#define CASTS_OF_FLOAT(from)                                                                                           \
    {[DTYPE_BOOL] = from##_to_truth, [DTYPE_U8] = from##_to_u8, [DTYPE_I8] = from##_to_i8,                             \
     [DTYPE_U16] = from##_to_u16, [DTYPE_I16] = from##_to_i16, [DTYPE_U32] = from##_to_u32,                            \
     [DTYPE_I32] = from##_to_i32, [DTYPE_U64] = from##_to_u64, [DTYPE_I64] = from##_to_i64, CASTS_TO_FLOATS(from)}

/* A bool is a u8 of 0 or 1. Of complex numbers there are no casts to real ones. */
cpu_row_function *CPU_NAME(cast)[DTYPE_COUNT][DTYPE_COUNT] = {
    [DTYPE_BOOL] = CASTS_OF_INTEGER(u8, CPU_NAME(copy_1)),
#define X(NAME, name, T, U, minimum, maximum) [DTYPE_##NAME] = CASTS_OF_INTEGER(name, name##_to_truth),
    CPU_INTEGERS(X)
#undef X
    [DTYPE_F16] = CASTS_OF_FLOAT(f16), [DTYPE_BF16] = CASTS_OF_FLOAT(bf16), [DTYPE_F32] = CASTS_OF_FLOAT(f32),
    [DTYPE_F64] = CASTS_OF_FLOAT(f64), [DTYPE_F8E4M3] = CASTS_OF_FLOAT(f8e4m3), [DTYPE_F8E5M2] = CASTS_OF_FLOAT(f8e5m2),
    [DTYPE_C64] = {[DTYPE_BOOL] = c64_to_truth, [DTYPE_C64] = CPU_NAME(copy_8), [DTYPE_C128] = c64_to_c128},
    [DTYPE_C128] = {[DTYPE_BOOL] = c128_to_truth, [DTYPE_C64] = c128_to_c64, [DTYPE_C128] = CPU_NAME(copy_16)},
};
/* clang-format on */
