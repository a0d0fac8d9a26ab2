/* What linear does with a row of a product: the bias is added, and the activation applied. The bias runs along, or is one
 * number for all: where there is none, that which changes nothing. */
#include "engine/cpu/formulas.h"
#include "engine/cpu/rows.h"

#define LINEAR_INTEGER(name, T, U)                                                                                     \
    ROW2(linear_none_##name, T, T, formula_add_##name(a, b))                                                           \
    ROW2(linear_relu_##name, T, T, formula_relu_##name(formula_add_##name(a, b)))
FORMULA_SIGNED(LINEAR_INTEGER)
ROW2(linear_u8, uint8_t, uint8_t, formula_add_u8(a, b))

#define LINEAR_FLOAT(name, T, U)                                                                                       \
    ROW2(linear_none_##name, T, T, formula_add_##name(a, b))                                                           \
    ROW2(linear_relu_##name, T, T, formula_relu_##name(formula_add_##name(a, b)))                                      \
    ROW2(linear_gelu_##name, T, T, formula_gelu_tanh_##name(formula_add_##name(a, b)))
FORMULA_FLOATS(LINEAR_FLOAT)

/* clang-format off */
#define LINEAR_ROW(name)                                                                                               \
    {[DTYPE_U8] = linear_u8, [DTYPE_I8] = linear_##name##_i8, [DTYPE_I16] = linear_##name##_i16,                       \
     [DTYPE_I32] = linear_##name##_i32, [DTYPE_I64] = linear_##name##_i64, [DTYPE_F32] = linear_##name##_f32,          \
     [DTYPE_F64] = linear_##name##_f64}

cpu_row_function *CPU_NAME(linear)[OP_ACTIVATION_COUNT][DTYPE_COUNT] = {
    [OP_ACTIVATION_NONE] = LINEAR_ROW(none),
    [OP_ACTIVATION_RELU] = LINEAR_ROW(relu),
    [OP_ACTIVATION_GELU_TANH] = {[DTYPE_F32] = linear_gelu_f32, [DTYPE_F64] = linear_gelu_f64},
};
/* clang-format on */
