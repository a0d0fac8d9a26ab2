/* Rows of products. Linear's end: the bias is added to a row of a product, and the activation applied. The bias runs along, or is
 * one number for all: where there is none, a number that changes nothing. */
#include "engine/cpu/rows.h"

#define LINEAR_INTEGER(name, T, U)                                                                                     \
    ROW2(linear_none_##name, T, T, formula_add_##name(a, b))                                                           \
    ROW2(linear_relu_##name, T, T, formula_relu_##name(formula_add_##name(a, b)))
#define LINEAR_UNSIGNED(name, T, U) ROW2(linear_##name, T, T, formula_add_##name(a, b))
FORMULA_SIGNED(LINEAR_INTEGER)
FORMULA_UNSIGNED(LINEAR_UNSIGNED)

#define LINEAR_FLOAT(name, T, U)                                                                                       \
    ROW2(linear_none_##name, T, T, formula_add_##name(a, b))                                                           \
    ROW2(linear_relu_##name, T, T, formula_relu_##name(formula_add_##name(a, b)))                                      \
    ROW2(linear_gelu_##name, T, T, formula_gelu_tanh_##name(formula_add_##name(a, b)))
FORMULA_FLOATS(LINEAR_FLOAT)

/* clang-format off */
#define LINEAR_ROW(name)                                                                                               \
    {[DTYPE_U8] = linear_u8, [DTYPE_U16] = linear_u16, [DTYPE_U32] = linear_u32, [DTYPE_U64] = linear_u64,             \
     [DTYPE_I8] = linear_##name##_i8, [DTYPE_I16] = linear_##name##_i16, [DTYPE_I32] = linear_##name##_i32,            \
     [DTYPE_I64] = linear_##name##_i64, [DTYPE_F32] = linear_##name##_f32, [DTYPE_F64] = linear_##name##_f64}

cpu_row_function *CPU_NAME(linear)[OP_ACTIVATION_COUNT][DTYPE_COUNT] = {
    [OP_ACTIVATION_NONE] = LINEAR_ROW(none),
    [OP_ACTIVATION_RELU] = LINEAR_ROW(relu),
    [OP_ACTIVATION_GELU_TANH] = {[DTYPE_F32] = linear_gelu_f32, [DTYPE_F64] = linear_gelu_f64},
};
/* clang-format on */

/* Matrix products of integers and truth values on packed blocks. Multiples of four rows of b are added to a row of c at a time, so that c
 * is loaded and stored a quarter as often. */
#define PRODUCT(name, T, PLUS, TIMES)                                                                                  \
    void CPU_NAME(name)(int64_t rows, int64_t columns, int64_t depth, const void *a, const void *b, void *c,           \
                        int64_t c_stride) {                                                                            \
        for (int64_t i = 0; i < rows; i++) {                                                                           \
            const T *x = (const T *)a + i * depth;                                                                     \
            T *z = (T *)c + i * c_stride;                                                                              \
            int64_t k = 0;                                                                                             \
            for (; k + 4 <= depth; k += 4) {                                                                           \
                const T *y = (const T *)b + k * columns;                                                               \
                const T x0 = x[k], x1 = x[k + 1], x2 = x[k + 2], x3 = x[k + 3];                                        \
                CPU_LOOP                                                                                               \
                for (int64_t j = 0; j < columns; j++) {                                                                \
                    z[j] = z[j] PLUS((x0 TIMES y[j])PLUS(x1 TIMES y[columns + j]))                                     \
                        PLUS((x2 TIMES y[2 * columns + j])PLUS(x3 TIMES y[3 * columns + j]));                          \
                }                                                                                                      \
            }                                                                                                          \
            for (; k < depth; k++) {                                                                                   \
                const T *y = (const T *)b + k * columns;                                                               \
                CPU_LOOP                                                                                               \
                for (int64_t j = 0; j < columns; j++) {                                                                \
                    z[j] = z[j] PLUS(x[k] TIMES y[j]);                                                                 \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }
PRODUCT(product_u32, uint32_t, +, *)
PRODUCT(product_u64, uint64_t, +, *)
PRODUCT(product_bool, uint32_t, |, &)
