/* Elementwise rows of exp, log, tanh, sigmoid and pow. f64 goes through libm, whose results are within 1 ulp. */
#include <math.h>

#include "engine/cpu/rows.h"
#include "engine/cpu/vector_math.h"

static inline double sigmoid(double x) {
    double e = exp(-fabs(x));
    return (x >= 0 ? 1.0 : e) / (1.0 + e) + (x != x ? x : 0.0);
}

ROW1(exp_f32, float, float, vector_exp(a))
ROW1(log_f32, float, float, vector_log(a))
ROW1(tanh_f32, float, float, vector_tanh(a))
ROW1(sigmoid_f32, float, float, vector_sigmoid(a))
ROW1(exp_f64, double, double, exp(a))
ROW1(log_f64, double, double, log(a))
ROW1(tanh_f64, double, double, tanh(a))
ROW1(sigmoid_f64, double, double, sigmoid(a))
ROW2(general_pow_f32, float, float, powf(a, b))
ROW2(general_pow_f64, double, double, pow(a, b))
ROW1(square_f32, float, float, a *a)
ROW1(square_f64, double, double, a *a)

/* x**2 is by far the most common power, and a product is its correctly rounded value. */
static void pow_f32(const struct cpu_row *row) {
    bool square = row->stride[2] == 0 && *(const float *)(const void *)row->data[2] == 2.0f;
    (square ? square_f32 : general_pow_f32)(row);
}

static void pow_f64(const struct cpu_row *row) {
    bool square = row->stride[2] == 0 && *(const double *)(const void *)row->data[2] == 2.0;
    (square ? square_f64 : general_pow_f64)(row);
}

#define POW_ROW(name, T, U) ROW2(pow_##name, T, T, formula_pow_##name(a, b))
FORMULA_INTEGERS(POW_ROW)

#define PUBLIC_ROW(name)                                                                                               \
    void CPU_NAME(name)(const struct cpu_row *row) {                                                                   \
        name(row);                                                                                                     \
    }
#define PUBLIC_MATH(name, inputs)                                                                                      \
    HALF_ROW(name, f16, inputs)                                                                                        \
    HALF_ROW(name, bf16, inputs)                                                                                       \
    PUBLIC_ROW(name##_f16)                                                                                             \
    PUBLIC_ROW(name##_bf16)                                                                                            \
    PUBLIC_ROW(name##_f32)                                                                                             \
    PUBLIC_ROW(name##_f64)
PUBLIC_MATH(exp, 1)
PUBLIC_MATH(log, 1)
PUBLIC_MATH(tanh, 1)
PUBLIC_MATH(sigmoid, 1)
PUBLIC_MATH(pow, 2)
PUBLIC_ROW(pow_u8)
PUBLIC_ROW(pow_i8)
PUBLIC_ROW(pow_i16)
PUBLIC_ROW(pow_i32)
PUBLIC_ROW(pow_i64)
