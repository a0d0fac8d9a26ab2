/* Elementwise rows: arithmetic, comparisons, logic. Each operation is a formula of a and b (engine/formula.h); the macros
 * make of it one function for each dtype, with loops of their own for the layouts that matter. */
#include "engine/cpu/half.h"
#include "engine/cpu/rows.h"

#define INTEGER_ROWS(name, T, U)                                                                                       \
    ROW2(add_##name, T, T, formula_add_##name(a, b))                                                                   \
    ROW2(subtract_##name, T, T, formula_subtract_##name(a, b))                                                         \
    ROW2(multiply_##name, T, T, formula_multiply_##name(a, b))                                                         \
    ROW2(maximum_##name, T, T, formula_maximum_##name(a, b))                                                           \
    ROW2(minimum_##name, T, T, formula_minimum_##name(a, b))                                                           \
    ROW1(negative_##name, T, T, formula_negative_##name(a))
FORMULA_INTEGERS(INTEGER_ROWS)

#define SIGNED_ROWS(name, T, U)                                                                                        \
    ROW1(abs_##name, T, T, formula_abs_##name(a))                                                                      \
    ROW1(relu_##name, T, T, formula_relu_##name(a))
FORMULA_SIGNED(SIGNED_ROWS)
ROW1(identity_u8, uint8_t, uint8_t, a)

#define FLOAT_ROWS(name, T, U)                                                                                         \
    ROW2(add_##name, T, T, formula_add_##name(a, b))                                                                   \
    ROW2(subtract_##name, T, T, formula_subtract_##name(a, b))                                                         \
    ROW2(multiply_##name, T, T, formula_multiply_##name(a, b))                                                         \
    ROW2(divide_##name, T, T, formula_divide_##name(a, b))                                                             \
    ROW2(maximum_##name, T, T, formula_maximum_##name(a, b))                                                           \
    ROW2(minimum_##name, T, T, formula_minimum_##name(a, b))                                                           \
    ROW1(negative_##name, T, T, formula_negative_##name(a))                                                            \
    ROW1(relu_##name, T, T, formula_relu_##name(a))
FORMULA_FLOATS(FLOAT_ROWS)
ROW1(abs_f32, float, float, __builtin_fabsf(a))
ROW1(abs_f64, double, double, __builtin_fabs(a))
ROW1(sqrt_f32, float, float, __builtin_sqrtf(a))
ROW1(sqrt_f64, double, double, __builtin_sqrt(a))

#define COMPARISON_ROWS(name, T, U)                                                                                    \
    ROW2(equal_##name, T, uint8_t, formula_equal_##name(a, b))                                                         \
    ROW2(not_equal_##name, T, uint8_t, formula_not_equal_##name(a, b))                                                 \
    ROW2(less_##name, T, uint8_t, formula_less_##name(a, b))                                                           \
    ROW2(less_equal_##name, T, uint8_t, formula_less_equal_##name(a, b))                                               \
    ROW2(greater_##name, T, uint8_t, formula_greater_##name(a, b))                                                     \
    ROW2(greater_equal_##name, T, uint8_t, formula_greater_equal_##name(a, b))
FORMULA_INTEGERS(COMPARISON_ROWS)
FORMULA_FLOATS(COMPARISON_ROWS)

ROW2(or_bool, uint8_t, uint8_t, formula_or_truth(a, b))
ROW2(and_bool, uint8_t, uint8_t, formula_and_truth(a, b))
ROW1(not_bool, uint8_t, uint8_t, formula_not_truth(a))

#define HALF_ARITHMETIC(half)                                                                                          \
    HALF_ROW(add, half, 2)                                                                                             \
    HALF_ROW(subtract, half, 2)                                                                                        \
    HALF_ROW(multiply, half, 2)                                                                                        \
    HALF_ROW(divide, half, 2)                                                                                          \
    HALF_ROW(maximum, half, 2)                                                                                         \
    HALF_ROW(minimum, half, 2)                                                                                         \
    HALF_ROW(negative, half, 1)                                                                                        \
    HALF_ROW(relu, half, 1)                                                                                            \
    HALF_ROW(abs, half, 1)                                                                                             \
    HALF_ROW(sqrt, half, 1)                                                                                            \
    HALF_COMPARISON(equal, half)                                                                                       \
    HALF_COMPARISON(not_equal, half)                                                                                   \
    HALF_COMPARISON(less, half)                                                                                        \
    HALF_COMPARISON(less_equal, half)                                                                                  \
    HALF_COMPARISON(greater, half)                                                                                     \
    HALF_COMPARISON(greater_equal, half)
HALF_ARITHMETIC(f16)
HALF_ARITHMETIC(bf16)

/* ---- where: by size, since it only moves elements ---- */

#define WHERE_ROW(name, T)                                                                                             \
    static void name(const struct cpu_row *row) {                                                                      \
        const int64_t n = row->n, sc = row->stride[1], sa = row->stride[2], sb = row->stride[3];                       \
        const uint8_t *c = (const uint8_t *)row->data[1];                                                              \
        const T *x = (const void *)row->data[2], *y = (const void *)row->data[3];                                      \
        T *z = (void *)row->data[0];                                                                                   \
        if (sc == 1 && sa == 1 && sb == 1) {                                                                           \
            CPU_LOOP                                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                const T a = x[i], b = y[i];                                                                            \
                z[i] = c[i] ? a : b;                                                                                   \
            }                                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const T a = x[i * sa], b = y[i * sb];                                                                      \
            z[i] = c[i * sc] ? a : b;                                                                                  \
        }                                                                                                              \
    }
WHERE_ROW(where_1, uint8_t)
WHERE_ROW(where_2, uint16_t)
WHERE_ROW(where_4, uint32_t)
WHERE_ROW(where_8, uint64_t)

/* ---- the table ---- */

/* clang-format off */
#define UNSIGNED_AS(name, u8)                                                                                          \
    {[DTYPE_U8] = u8, [DTYPE_I8] = name##_i8, [DTYPE_I16] = name##_i16, [DTYPE_I32] = name##_i32,                      \
     [DTYPE_I64] = name##_i64, [DTYPE_F16] = name##_f16, [DTYPE_BF16] = name##_bf16, [DTYPE_F32] = name##_f32,         \
     [DTYPE_F64] = name##_f64}
#define WITH_BOOL(name, bool_row)                                                                                      \
    {[DTYPE_BOOL] = bool_row, [DTYPE_U8] = name##_u8, [DTYPE_I8] = name##_i8, [DTYPE_I16] = name##_i16,                \
     [DTYPE_I32] = name##_i32, [DTYPE_I64] = name##_i64, [DTYPE_F16] = name##_f16, [DTYPE_BF16] = name##_bf16,         \
     [DTYPE_F32] = name##_f32, [DTYPE_F64] = name##_f64}
#define FLOATS(name)                                                                                                   \
    {[DTYPE_F16] = name##_f16, [DTYPE_BF16] = name##_bf16, [DTYPE_F32] = name##_f32, [DTYPE_F64] = name##_f64}
#define MATH(name)                                                                                                     \
    {[DTYPE_F16] = CPU_NAME(name##_f16), [DTYPE_BF16] = CPU_NAME(name##_bf16), [DTYPE_F32] = CPU_NAME(name##_f32),     \
     [DTYPE_F64] = CPU_NAME(name##_f64)}
#define MATH_NUMBERS(name)                                                                                             \
    {[DTYPE_U8] = CPU_NAME(name##_u8), [DTYPE_I8] = CPU_NAME(name##_i8), [DTYPE_I16] = CPU_NAME(name##_i16),           \
     [DTYPE_I32] = CPU_NAME(name##_i32), [DTYPE_I64] = CPU_NAME(name##_i64), [DTYPE_F16] = CPU_NAME(name##_f16),       \
     [DTYPE_BF16] = CPU_NAME(name##_bf16), [DTYPE_F32] = CPU_NAME(name##_f32), [DTYPE_F64] = CPU_NAME(name##_f64)}
#define BY_SIZE(one, two, four, eight)                                                                                 \
    {[DTYPE_BOOL] = one, [DTYPE_U8] = one, [DTYPE_I8] = one, [DTYPE_I16] = two, [DTYPE_I32] = four,                    \
     [DTYPE_I64] = eight, [DTYPE_F16] = two, [DTYPE_BF16] = two, [DTYPE_F32] = four, [DTYPE_F64] = eight,              \
     [DTYPE_F8E4M3] = one, [DTYPE_F8E5M2] = one}

cpu_row_function *CPU_NAME(elementwise)[CPU_OPCODES][DTYPE_COUNT] = {
    /* of truth values, a sum is "or" and a product is "and" */
    [OP_ADD] = WITH_BOOL(add, or_bool),
    [OP_SUBTRACT] = UNSIGNED_AS(subtract, subtract_u8),
    [OP_MULTIPLY] = WITH_BOOL(multiply, and_bool),
    [OP_DIVIDE] = FLOATS(divide),
    [OP_POW] = MATH_NUMBERS(pow),
    [OP_MAXIMUM] = WITH_BOOL(maximum, or_bool),
    [OP_MINIMUM] = WITH_BOOL(minimum, and_bool),
    [OP_EQUAL] = WITH_BOOL(equal, equal_u8),
    [OP_NOT_EQUAL] = WITH_BOOL(not_equal, not_equal_u8),
    [OP_LESS] = WITH_BOOL(less, less_u8),
    [OP_LESS_EQUAL] = WITH_BOOL(less_equal, less_equal_u8),
    [OP_GREATER] = WITH_BOOL(greater, greater_u8),
    [OP_GREATER_EQUAL] = WITH_BOOL(greater_equal, greater_equal_u8),
    [OP_LOGICAL_AND] = {[DTYPE_BOOL] = and_bool},
    [OP_LOGICAL_OR] = {[DTYPE_BOOL] = or_bool},
    [OP_LOGICAL_NOT] = {[DTYPE_BOOL] = not_bool},
    [OP_NEGATIVE] = UNSIGNED_AS(negative, negative_u8),
    [OP_ABS] = UNSIGNED_AS(abs, identity_u8),
    [OP_EXP] = MATH(exp),
    [OP_LOG] = MATH(log),
    [OP_SQRT] = FLOATS(sqrt),
    [OP_TANH] = MATH(tanh),
    [OP_SIGMOID] = MATH(sigmoid),
    [OP_RELU] = UNSIGNED_AS(relu, identity_u8),
    [OP_WHERE] = BY_SIZE(where_1, where_2, where_4, where_8),
    [OP_COPY] = BY_SIZE(CPU_NAME(copy_1), CPU_NAME(copy_2), CPU_NAME(copy_4), CPU_NAME(copy_8)),
};
/* clang-format on */
