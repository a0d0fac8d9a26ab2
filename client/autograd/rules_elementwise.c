/* Rules of elementwise operations. Where a function has a kink, the derivative there is the one that PyTorch has. */
#include "client/autograd/rule.h"

#include <math.h>

/* The rule of a function of one input: its gradient is `expression`, of g, x (the input) and y (the result), as far as they are kept. Of complex
 * numbers x and y are the conjugates: the slope of such a function, which is made of analytic functions with real coefficients, is then the
 * conjugate of its slope. */
#define UNARY(name, expression)                                                                                        \
    RULE(name) {                                                                                                       \
        td_tensor *g = call->g[0], *x = rule_conjugate(rule_input(call, 0)),                                           \
                  *y = rule_conjugate(rule_output(call, 0));                                                           \
        (void)x, (void)y;                                                                                              \
        rule_give(call, 0, expression);                                                                                \
    }

static td_tensor *zero(const td_tensor *like) {
    return rule_number(like, 0);
}

/* a where the condition holds, elsewhere 0. */
static td_tensor *only(td_tensor *condition, td_tensor *a) {
    return td_where(condition, a, zero(a));
}

/* factor · x² + 1 */
static td_tensor *square_and_one(td_tensor *x, double factor) {
    return rule_shift(rule_scale(td_square(x), factor), 1);
}

/* ---- arithmetic ---- */

UNARY(cast, g)
UNARY(real, g)
UNARY(conj, rule_conjugate(g))
UNARY(positive, g)
UNARY(negative, td_negative(g))
UNARY(abs, td_multiply(g, rule_conjugate(td_sign(x)))) /* which is x / |x|, of x itself */
UNARY(square, td_multiply(g, rule_scale(x, 2)))
UNARY(sqrt, td_divide(rule_scale(g, 0.5), y))
UNARY(rsqrt, td_multiply(g, rule_scale(td_multiply(y, td_square(y)), -0.5)))
UNARY(reciprocal, td_negative(td_multiply(g, td_square(y))))

/* ---- parts of complex numbers: the gradient by re + im·i is that by re, and i times that by im ---- */

static td_tensor *zeros_like(const struct rule_call *call, td_tensor *x) {
    return x ? rule_zeros(call, &x->type) : NULL;
}

RULE(imag) {
    td_tensor *g = call->g[0];
    if (dtype_is_complex(rule_type(call, 0)->dtype)) /* else it is 0 */
        rule_give(call, 0, td_complex(zeros_like(call, g), g));
}

RULE(complex) {
    if (rule_wants(call, 0))
        rule_give(call, 0, td_real(call->g[0]));
    if (rule_wants(call, 1))
        rule_give(call, 1, td_imag(call->g[0]));
}

/* i · x / |x|², and 0 of 0. */
RULE(angle) {
    td_tensor *x = rule_input(call, 0);
    if (!dtype_is_complex(rule_type(call, 0)->dtype))
        return;
    td_tensor *squares = td_add(td_square(td_real(x)), td_square(td_imag(x)));
    td_tensor *g =
        td_where(td_equal(squares, zero(squares)), zero(call->g[0]), td_divide(call->g[0], rule_divisor(squares)));
    rule_give(call, 0, td_complex(td_negative(td_multiply(g, td_imag(x))), td_multiply(g, td_real(x))));
}

/* Of a complex number s = x / |x|: what the gradient has across the direction of x, divided by |x|. The sign of a real number is a constant. */
RULE(sign) {
    td_tensor *x = rule_input(call, 0), *g = call->g[0];
    if (!dtype_is_complex(rule_type(call, 0)->dtype))
        return;
    td_tensor *s = td_sign(x), *length = td_abs(x);
    td_tensor *across = td_subtract(g, td_multiply(td_real(td_multiply(g, td_conj(s))), s));
    rule_give(call, 0, td_where(td_equal(length, zero(length)), zero(g), td_divide(across, rule_divisor(length))));
}

/* Also from another device. */
RULE(copy) {
    td_device *device = call->node->inputs[0].device;
    rule_give(call, 0, call->g[0]->device == device ? call->g[0] : td_copy_to(call->g[0], device));
}

RULE(add) {
    for (unsigned i = 0; i < 2; i++)
        if (rule_wants(call, i))
            rule_give(call, i, call->g[0]);
}

RULE(subtract) {
    if (rule_wants(call, 0))
        rule_give(call, 0, call->g[0]);
    if (rule_wants(call, 1))
        rule_give(call, 1, td_negative(call->g[0]));
}

RULE(multiply) {
    for (unsigned i = 0; i < 2; i++)
        if (rule_wants(call, i))
            rule_give(call, i, td_multiply(call->g[0], rule_conjugate(rule_input(call, 1 - i))));
}

RULE(divide) {
    td_tensor *g = td_divide(call->g[0], rule_conjugate(rule_input(call, 1)));
    if (rule_wants(call, 0))
        rule_give(call, 0, g);
    if (rule_wants(call, 1))
        rule_give(call, 1, td_negative(td_multiply(g, rule_conjugate(rule_output(call, 0)))));
}

/* By the exponent: where x is 0, y·log(x) has no value, and the derivative for exponents from 0 on is 0. */
RULE(pow) {
    td_tensor *g = call->g[0], *x = rule_conjugate(rule_operand(call, 0)),
              *exponent = rule_conjugate(rule_operand(call, 1)), *y = rule_conjugate(rule_output(call, 0));
    if (rule_wants(call, 0)) {
        td_tensor *slope = td_multiply(exponent, td_pow(x, rule_shift(exponent, -1)));
        rule_give(call, 0, td_multiply(g, td_where(td_equal(exponent, zero(exponent)), zero(slope), slope)));
    }
    if (rule_wants(call, 1)) {
        td_tensor *slope = td_multiply(y, td_log(x));
        td_tensor *size = dtype_is_complex(rule_type(call, 1)->dtype) ? td_real(exponent) : rule_input(call, 1);
        td_tensor *flat = td_logical_and(td_equal(x, zero(x)), td_greater_equal(size, zero(size)));
        rule_give(call, 1, td_multiply(g, td_where(flat, zero(slope), slope)));
    }
}

/* Half of the gradient for each input where both are the same. */
static void extreme(struct rule_call *call) {
    td_tensor *y = rule_output(call, 0), *a = rule_input(call, 0), *b = rule_input(call, 1);
    td_tensor *shared = td_where(td_equal(a, b), rule_scale(call->g[0], 0.5), call->g[0]);
    for (unsigned i = 0; i < 2; i++)
        if (rule_wants(call, i))
            rule_give(call, i, only(td_equal(rule_input(call, i), y), shared));
}
RULE(maximum) {
    extreme(call);
}
RULE(minimum) {
    extreme(call);
}

/* To the input that the condition, input 0, chooses. */
RULE(where) {
    td_tensor *condition = rule_input(call, 0), *g = call->g[0];
    if (rule_wants(call, 1))
        rule_give(call, 1, only(condition, g));
    if (rule_wants(call, 2))
        rule_give(call, 2, td_where(condition, zero(g), g));
}

/* To x where the result is x, else to the limit that it is; where x is at a limit, half to each. */
RULE(clip) {
    td_tensor *x = rule_input(call, 0), *y = rule_output(call, 0), *g = call->g[0], *half = rule_scale(g, 0.5);
    td_tensor *inside = td_equal(x, y), *at_min = td_equal(rule_input(call, 1), y),
              *at_max = td_equal(rule_input(call, 2), y);
    if (rule_wants(call, 0))
        rule_give(call, 0, only(inside, td_where(td_logical_or(at_min, at_max), half, g)));
    if (rule_wants(call, 1)) {
        td_tensor *other = td_logical_or(inside, at_max);
        rule_give(call, 1, td_where(td_logical_and(inside, at_min), half, td_where(other, zero(g), g)));
    }
    if (rule_wants(call, 2))
        rule_give(call, 2, td_where(td_logical_and(inside, at_max), half, only(at_max, g)));
}

RULE(copysign) {
    td_tensor *x = rule_input(call, 0), *y = rule_output(call, 0);
    if (rule_wants(call, 0))
        rule_give(call, 0, td_multiply(call->g[0], td_multiply(td_sign(x), td_sign(y))));
}

/* x - floor(x / y) · y, and for fmod x - trunc(x / y) · y. */
static void rest(struct rule_call *call, td_tensor *quotient) {
    if (rule_wants(call, 0))
        rule_give(call, 0, call->g[0]);
    if (rule_wants(call, 1))
        rule_give(call, 1, td_negative(td_multiply(call->g[0], quotient)));
}
RULE(remainder) {
    rest(call, td_floor_divide(rule_input(call, 0), rule_input(call, 1)));
}
RULE(fmod) {
    rest(call, td_trunc(td_divide(rule_input(call, 0), rule_input(call, 1))));
}

RULE(hypot) {
    td_tensor *g = td_divide(call->g[0], rule_output(call, 0));
    for (unsigned i = 0; i < 2; i++)
        if (rule_wants(call, i))
            rule_give(call, i, td_multiply(g, rule_input(call, i)));
}

RULE(atan2) {
    td_tensor *y = rule_operand(call, 0), *x = rule_operand(call, 1);
    td_tensor *length = td_hypot(x, y), *g = td_divide(call->g[0], length); /* whose square may be out of range */
    if (rule_wants(call, 0))
        rule_give(call, 0, td_multiply(g, td_divide(x, length)));
    if (rule_wants(call, 1))
        rule_give(call, 1, td_negative(td_multiply(g, td_divide(y, length))));
}

RULE(logaddexp) {
    for (unsigned i = 0; i < 2; i++)
        if (rule_wants(call, i))
            rule_give(call, i, td_multiply(call->g[0], td_exp(td_subtract(rule_input(call, i), rule_output(call, 0)))));
}

/* ---- exponentials, logarithms, circles ---- */

UNARY(exp, td_multiply(g, y))
UNARY(exp2, td_multiply(g, rule_scale(y, M_LN2)))
UNARY(expm1, td_multiply(g, rule_shift(y, 1)))
UNARY(log, td_divide(g, x))
UNARY(log1p, td_divide(g, rule_shift(x, 1)))
UNARY(log2, td_divide(g, rule_scale(x, M_LN2)))
UNARY(log10, td_divide(g, rule_scale(x, M_LN10)))
UNARY(sin, td_multiply(g, td_cos(x)))
UNARY(cos, td_negative(td_multiply(g, td_sin(x))))
UNARY(tan, td_multiply(g, square_and_one(y, 1)))
/* 1 / √x: td_rsqrt() takes no complex numbers. */
static td_tensor *root_below_one(td_tensor *x) {
    return x && dtype_is_complex(x->type.dtype) ? td_reciprocal(td_sqrt(x)) : td_rsqrt(x);
}

/* 1 / √(x² - 1), of a complex number as 1 / (√(x - 1) · √(x + 1)), whose branch cut is that of acosh. */
static td_tensor *acosh_slope(td_tensor *x) {
    if (x && dtype_is_complex(x->type.dtype))
        return td_reciprocal(td_multiply(td_sqrt(rule_shift(x, -1)), td_sqrt(rule_shift(x, 1))));
    return td_rsqrt(rule_shift(td_square(x), -1));
}
UNARY(asin, td_multiply(g, root_below_one(square_and_one(x, -1))))
UNARY(acos, td_negative(td_multiply(g, root_below_one(square_and_one(x, -1)))))
UNARY(atan, td_divide(g, square_and_one(x, 1)))
UNARY(sinh, td_multiply(g, td_cosh(x)))
UNARY(cosh, td_multiply(g, td_sinh(x)))
UNARY(tanh, td_multiply(g, square_and_one(y, -1)))
UNARY(asinh, td_multiply(g, root_below_one(square_and_one(x, 1))))
UNARY(acosh, td_multiply(g, acosh_slope(x)))
UNARY(atanh, td_divide(g, square_and_one(x, -1)))

/* 2/√π · exp(-x²) */
static td_tensor *bell(td_tensor *x) {
    return rule_scale(td_exp(td_negative(td_square(x))), M_2_SQRTPI);
}
UNARY(erf, td_multiply(g, bell(x)))
UNARY(erfc, td_negative(td_multiply(g, bell(x))))

/* ---- activations ---- */

/* y · (1 - y) */
static td_tensor *logistic_slope(td_tensor *y) {
    return td_subtract(y, td_square(y));
}
UNARY(sigmoid, td_multiply(g, logistic_slope(y)))
UNARY(relu, only(td_greater(y, zero(y)), g))

/* σ(x) + x · σ'(x) */
static td_tensor *silu_slope(td_tensor *x) {
    td_tensor *s = td_sigmoid(x);
    return td_add(s, td_multiply(x, logistic_slope(s)));
}
UNARY(silu, td_multiply(g, silu_slope(x)))

/* Φ(x) + x · φ(x), with the normal distribution's Φ and φ. */
static td_tensor *gelu_slope(td_tensor *x) {
    td_tensor *below = rule_scale(td_erfc(rule_scale(x, -M_SQRT1_2)), 0.5);
    td_tensor *density = rule_scale(td_exp(rule_scale(td_square(x), -0.5)), M_2_SQRTPI * M_SQRT1_2 / 2);
    return td_add(below, td_multiply(x, density));
}
UNARY(gelu, td_multiply(g, gelu_slope(x)))

/* With u = √(2/π) · (x + 0.044715 · x³): (1 + tanh u) / 2 + x / 2 · (1 - tanh² u) · u'. */
td_tensor *rule_gelu_tanh_slope(td_tensor *x) {
    const double factor = M_2_SQRTPI * M_SQRT1_2, cubic = 0.044715;
    td_tensor *t = td_tanh(rule_scale(td_multiply(x, square_and_one(x, cubic)), factor));
    td_tensor *inner = rule_scale(square_and_one(x, 3 * cubic), factor);
    td_tensor *outer = td_multiply(td_multiply(x, square_and_one(t, -1)), inner);
    return rule_scale(td_add(rule_shift(t, 1), outer), 0.5);
}
UNARY(gelu_tanh, td_multiply(g, rule_gelu_tanh_slope(x)))

/* With t = tanh(softplus(x)): t + x · (1 - t²) · σ(x). */
static td_tensor *mish_slope(td_tensor *x) {
    td_tensor *t = td_tanh(td_softplus(x, 1, 20));
    return td_add(t, td_multiply(td_multiply(x, square_and_one(t, -1)), td_sigmoid(x)));
}
UNARY(mish, td_multiply(g, mish_slope(x)))

/* σ(β · x), which is 1 beyond the threshold by definition. */
RULE(softplus) {
    struct softplus_attributes attributes;
    td_tensor *x = rule_input(call, 0);
    softplus_attributes_read(&call->node->attributes, &attributes);
    td_tensor *beyond = td_greater(rule_scale(x, attributes.beta), rule_number(x, attributes.threshold));
    td_tensor *g = call->g[0];
    rule_give(call, 0, td_where(beyond, g, td_multiply(g, td_sigmoid(rule_scale(x, attributes.beta)))));
}

RULE(leaky_relu) {
    struct leaky_relu_attributes attributes;
    td_tensor *x = rule_input(call, 0), *g = call->g[0];
    leaky_relu_attributes_read(&call->node->attributes, &attributes);
    rule_give(call, 0, td_where(td_greater(x, zero(x)), g, rule_scale(g, attributes.negative_slope)));
}

/* Below 0 the result is α · (exp(x) - 1), whose slope is the result and α. */
RULE(elu) {
    struct elu_attributes attributes;
    td_tensor *x = rule_input(call, 0), *y = rule_output(call, 0), *g = call->g[0];
    elu_attributes_read(&call->node->attributes, &attributes);
    td_tensor *below = td_multiply(g, rule_shift(y, attributes.alpha));
    rule_give(call, 0, td_where(td_greater(x, zero(x)), g, below));
}

static td_tensor *between(td_tensor *x, double low, double high) {
    return td_logical_and(td_greater(x, rule_number(x, low)), td_less(x, rule_number(x, high)));
}
UNARY(hardsigmoid, only(between(x, -3, 3), rule_scale(g, 1.0 / 6)))

/* 0 below -3, 1 above 3, between them x / 3 + 1/2. */
static td_tensor *hardswish_slope(td_tensor *x) {
    td_tensor *outside = td_cast(td_greater_equal(x, rule_number(x, 3)), td_tensor_dtype(x));
    return td_where(between(x, -3, 3), rule_shift(rule_scale(x, 1.0 / 3), 0.5), outside);
}
UNARY(hardswish, td_multiply(g, hardswish_slope(x)))
