#include <math.h>

#include "tests/device/reference.h"

static int64_t integer_pow(enum dtype dtype, int64_t base, int64_t exponent) {
    if (value_order(dtype, exponent, 0) < 0)
        return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
    uint64_t result = 1, factor = (uint64_t)base;
    for (uint64_t left = (uint64_t)exponent; left; left >>= 1, factor *= factor)
        if (left & 1)
            result *= factor;
    return value_wrap(dtype, (int64_t)result);
}

/* Of any integer dtype, so that no quotient overflows. */
__extension__ typedef __int128 wide_integer;

static wide_integer integer_wide(enum dtype dtype, int64_t x) {
    return value_low(dtype) == 0 ? (wide_integer)(uint64_t)x : (wide_integer)x;
}

static int64_t integer_quotient(unsigned opcode, enum dtype dtype, int64_t a, int64_t b) {
    wide_integer x = integer_wide(dtype, a), y = integer_wide(dtype, b);
    if (y == 0)
        return 0;
    wide_integer rest = x % y, whole = x / y;
    if (opcode != OP_FMOD && rest != 0 && (rest < 0) != (y < 0)) {
        rest += y;
        whole--;
    }
    return value_wrap(dtype, (int64_t)(opcode == OP_FLOOR_DIVIDE ? whole : rest));
}

static int64_t integer_shift(unsigned opcode, enum dtype dtype, int64_t a, int64_t b) {
    wide_integer x = integer_wide(dtype, a), count = integer_wide(dtype, b);
    bool far = count < 0 || count >= value_bits(dtype);
    if (opcode == OP_BITWISE_LEFT_SHIFT)
        return far ? 0 : value_wrap(dtype, (int64_t)((uint64_t)a << count));
    return value_wrap(dtype, (int64_t)(far ? (x < 0 ? -1 : 0) : x >> count));
}

static int64_t integer_binary(unsigned opcode, enum dtype dtype, int64_t a, int64_t b) {
    uint64_t ua = (uint64_t)a, ub = (uint64_t)b;
    switch (opcode) {
    case OP_ADD:
        return dtype == DTYPE_BOOL ? a | b : value_wrap(dtype, (int64_t)(ua + ub));
    case OP_SUBTRACT:
        return value_wrap(dtype, (int64_t)(ua - ub));
    case OP_MULTIPLY:
        return value_wrap(dtype, (int64_t)(ua * ub));
    case OP_POW:
        return integer_pow(dtype, a, b);
    case OP_MAXIMUM:
        return value_order(dtype, a, b) > 0 ? a : b;
    case OP_MINIMUM:
        return value_order(dtype, a, b) < 0 ? a : b;
    case OP_BITWISE_AND:
        return a & b;
    case OP_BITWISE_OR:
        return a | b;
    case OP_BITWISE_XOR:
        return a ^ b;
    case OP_BITWISE_LEFT_SHIFT:
    case OP_BITWISE_RIGHT_SHIFT:
        return integer_shift(opcode, dtype, a, b);
    case OP_FLOOR_DIVIDE:
    case OP_REMAINDER:
    case OP_FMOD:
        return integer_quotient(opcode, dtype, a, b);
    default:
        reference_lacks(opcode);
    }
}

/* As Python's divmod(): the remainder has the divisor's sign, also where it is 0. */
static long double float_remainder(bool wide, long double a, long double b) {
    long double rest = fmodl(a, b);
    if (rest == 0)
        return copysignl(0, b);
    if (isnan(rest) || (rest < 0) == (b < 0))
        return rest;
    return wide ? (long double)((double)rest + (double)b) : rest + b;
}

static long double float_floor_divide(long double a, long double b) {
    if (isinf(a) || isnan(a) || isnan(b))
        return NAN;
    long double rest = fmodl(a, b), whole = rintl((a - rest) / b);
    if (b == 0)
        return a / b;
    if (rest != 0 && (rest < 0) != (b < 0))
        whole -= 1;
    return whole == 0 ? copysignl(0, a) * copysignl(1, b) : whole;
}

static long double float_logaddexp(long double a, long double b) {
    return a == b ? a + logl(2) : (a > b ? a : b) + log1pl(expl(-fabsl(a - b)));
}

/* f64 is rounded by the hardware's own f64 arithmetic: through long double it would be rounded twice. pow of what is
 * not an ordinary number is left to pow(): glibc's powl(-inf, -2^63) is inf, where C has +0. */
static long double float_binary(unsigned opcode, enum dtype dtype, long double a, long double b) {
    bool wide = dtype == DTYPE_F64;
    double da = (double)a, db = (double)b;
    switch (opcode) {
    case OP_ADD:
        return wide ? (long double)(da + db) : a + b;
    case OP_SUBTRACT:
        return wide ? (long double)(da - db) : a - b;
    case OP_MULTIPLY:
        return wide ? (long double)(da * db) : a * b;
    case OP_DIVIDE:
        return wide ? (long double)(da / db) : a / b;
    case OP_POW:
        return isfinite(a) && a != 0 && isfinite(b) ? powl(a, b) : (long double)pow(da, db);
    case OP_MAXIMUM:
        return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
    case OP_MINIMUM:
        return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
    case OP_ATAN2:
        return atan2l(a, b);
    case OP_HYPOT:
        return hypotl(a, b);
    case OP_LOGADDEXP:
        return float_logaddexp(a, b);
    case OP_COPYSIGN:
        return copysignl(a, b);
    case OP_NEXTAFTER:
        return wide ? (long double)nextafter(da, db) : (long double)nextafterf((float)a, (float)b);
    case OP_FLOOR_DIVIDE:
        return float_floor_divide(a, b);
    case OP_REMAINDER:
        return float_remainder(wide, a, b);
    case OP_FMOD:
        return fmodl(a, b);
    default:
        reference_lacks(opcode);
    }
}

static long double sigmoid(long double x) {
    return 1 / (1 + expl(-x));
}

static long double reciprocal(long double x) {
    return 1 / x;
}

static long double rsqrt(long double x) {
    return 1 / sqrtl(x);
}

static long double hardsigmoid(long double x) {
    return isnan(x) ? x : (x + 3 < 0 ? 0 : x + 3 > 6 ? 6 : x + 3) / 6;
}

static long double hardswish(long double x) {
    return x * hardsigmoid(x);
}

/* By erfc, in which nothing cancels. */
static long double gelu(long double x) {
    return x / 2 * erfcl(-x * 0.707106781186547524400844362104849039L);
}

static long double gelu_tanh(long double x) {
    return x / (1 + expl(-2 * 0.797884560802865355879892119868763737L * (x + 0.044715L * x * x * x)));
}

static long double silu(long double x) {
    return x / (1 + expl(-x));
}

/* tanh(log(1 + e)) = e(e + 2) / (e(e + 2) + 2). */
static long double mish(long double x) {
    long double e = expl(x), n = e * (e + 2);
    return x > 60 ? x : x * (n / (n + 2));
}

/* Of integers they are floats. */
static long double (*const real_functions[OP_CODE_MAX])(long double) = {
    [OP_EXP] = expl,
    [OP_LOG] = logl,
    [OP_SQRT] = sqrtl,
    [OP_TANH] = tanhl,
    [OP_SIGMOID] = sigmoid,
    [OP_ERF] = erfl,
    [OP_SIN] = sinl,
    [OP_COS] = cosl,
    [OP_TAN] = tanl,
    [OP_ASIN] = asinl,
    [OP_ACOS] = acosl,
    [OP_ATAN] = atanl,
    [OP_SINH] = sinhl,
    [OP_COSH] = coshl,
    [OP_ASINH] = asinhl,
    [OP_ACOSH] = acoshl,
    [OP_ATANH] = atanhl,
    [OP_EXP2] = exp2l,
    [OP_EXPM1] = expm1l,
    [OP_LOG1P] = log1pl,
    [OP_LOG2] = log2l,
    [OP_LOG10] = log10l,
    [OP_ERFC] = erfcl,
    [OP_RECIPROCAL] = reciprocal,
    [OP_RSQRT] = rsqrt,
    [OP_GELU] = gelu,
    [OP_GELU_TANH] = gelu_tanh,
    [OP_SILU] = silu,
    [OP_MISH] = mish,
    [OP_HARDSIGMOID] = hardsigmoid,
    [OP_HARDSWISH] = hardswish,
};

/* Functions of a real number and attributes, which are f32 unless the number is f64. */
static long double leaky_relu(long double x, const long double *p) {
    return x > 0 ? x : p[0] * x;
}

static long double elu(long double x, const long double *p) {
    return x > 0 ? x : p[0] * expm1l(x);
}

static long double softplus(long double x, const long double *p) {
    long double t = p[0] * x;
    return t > p[1] ? x : ((t > 0 ? t : 0) + log1pl(expl(-fabsl(t)))) / p[0];
}

static long double (*const functions_with_attributes[OP_CODE_MAX])(long double, const long double *) = {
    [OP_LEAKY_RELU] = leaky_relu,
    [OP_ELU] = elu,
    [OP_SOFTPLUS] = softplus,
};

static long double float_unary(unsigned opcode, enum dtype dtype, long double x) {
    if (opcode == OP_SQRT && dtype == DTYPE_F64)
        return (long double)sqrt((double)x);
    if (opcode == OP_RECIPROCAL && dtype == DTYPE_F64)
        return (long double)(1 / (double)x);
    if (real_functions[opcode])
        return real_functions[opcode](x);
    switch (opcode) {
    case OP_POSITIVE:
    case OP_REAL:
    case OP_CONJ:
        return x;
    case OP_SQUARE:
        return dtype == DTYPE_F64 ? (long double)((double)x * (double)x) : x * x;
    case OP_FLOOR:
        return floorl(x);
    case OP_CEIL:
        return ceill(x);
    case OP_TRUNC:
        return truncl(x);
    case OP_ROUND:
        return rintl(x);
    case OP_SIGN:
        return x > 0 ? 1 : x < 0 ? -1 : x == 0 ? 0 : x;
    case OP_NEGATIVE:
        return -x;
    case OP_ABS:
        return fabsl(x);
    case OP_RELU:
        return x < 0 ? 0 : x;
    default:
        reference_lacks(opcode);
    }
}

static int64_t integer_unary(unsigned opcode, enum dtype dtype, int64_t x) {
    switch (opcode) {
    case OP_POSITIVE:
    case OP_REAL:
    case OP_CONJ:
    case OP_FLOOR:
    case OP_CEIL:
    case OP_TRUNC:
    case OP_ROUND:
        return x;
    case OP_SQUARE:
        return value_wrap(dtype, (int64_t)((uint64_t)x * (uint64_t)x));
    case OP_SIGN:
        return (integer_wide(dtype, x) > 0) - (integer_wide(dtype, x) < 0);
    case OP_BITWISE_INVERT:
        return dtype == DTYPE_BOOL ? !x : value_wrap(dtype, ~x);
    case OP_NEGATIVE:
        return value_wrap(dtype, (int64_t)(0 - (uint64_t)x));
    case OP_ABS:
        return value_wrap(dtype, value_order(dtype, x, 0) < 0 ? (int64_t)(0 - (uint64_t)x) : x);
    case OP_RELU:
        return value_order(dtype, x, 0) < 0 ? 0 : x;
    default:
        reference_lacks(opcode);
    }
}

static bool compare_holds(unsigned opcode, bool less, bool equal, bool greater) {
    switch (opcode) {
    case OP_EQUAL:
        return equal;
    case OP_NOT_EQUAL:
        return !equal;
    case OP_LESS:
        return less;
    case OP_LESS_EQUAL:
        return less || equal;
    case OP_GREATER:
        return greater;
    case OP_GREATER_EQUAL:
        return greater || equal;
    default:
        reference_lacks(opcode);
    }
}

static bool opcode_compares(unsigned opcode) {
    return opcode >= OP_EQUAL && opcode <= OP_GREATER_EQUAL;
}

/* The dtype that inputs are cast to first, and the result's; DTYPE_INVALID: refused. */
static enum dtype binary_operand(unsigned opcode, enum dtype a, enum dtype b) {
    if (value_is_f8(a) || value_is_f8(b))
        return DTYPE_INVALID;
    enum dtype dtype = reference_promote(a, b);
    switch (opcode) {
    case OP_LOGICAL_AND:
    case OP_LOGICAL_OR:
    case OP_LOGICAL_XOR:
        return DTYPE_BOOL;
    case OP_DIVIDE:
    case OP_ATAN2:
    case OP_HYPOT:
    case OP_LOGADDEXP:
    case OP_COPYSIGN:
        return value_is_float(dtype) ? dtype : DTYPE_F32;
    case OP_SUBTRACT:
    case OP_POW:
    case OP_FLOOR_DIVIDE:
    case OP_REMAINDER:
    case OP_FMOD:
        return dtype == DTYPE_BOOL ? DTYPE_INVALID : dtype;
    case OP_BITWISE_AND:
    case OP_BITWISE_OR:
    case OP_BITWISE_XOR:
        return value_is_float(dtype) ? DTYPE_INVALID : dtype;
    case OP_BITWISE_LEFT_SHIFT:
    case OP_BITWISE_RIGHT_SHIFT:
        return value_is_float(dtype) || dtype == DTYPE_BOOL ? DTYPE_INVALID : dtype;
    case OP_NEXTAFTER:
    case OP_COMPLEX:
        return dtype == DTYPE_F32 || dtype == DTYPE_F64 ? dtype : DTYPE_INVALID;
    default:
        return dtype;
    }
}

static void binary_element(unsigned opcode, const struct values *a, const struct values *b, struct values *out,
                           int64_t k) {
    if (opcode == OP_COMPLEX)
        out->f[k] = a->f[k], out->im[k] = b->f[k];
    else if (a->im)
        reference_complex_binary(opcode, a, b, out, k);
    else if (opcode == OP_LOGICAL_AND)
        out->i[k] = a->i[k] && b->i[k];
    else if (opcode == OP_LOGICAL_OR)
        out->i[k] = a->i[k] || b->i[k];
    else if (opcode == OP_LOGICAL_XOR)
        out->i[k] = !a->i[k] != !b->i[k];
    else if (opcode_compares(opcode) && a->f)
        out->i[k] = compare_holds(opcode, a->f[k]<b->f[k], a->f[k] == b->f[k], a->f[k]> b->f[k]);
    else if (opcode_compares(opcode))
        out->i[k] = compare_holds(opcode, value_order(a->dtype, a->i[k], b->i[k]) < 0, a->i[k] == b->i[k],
                                  value_order(a->dtype, a->i[k], b->i[k]) > 0);
    else if (out->f)
        out->f[k] = value_round(out->dtype, float_binary(opcode, out->dtype, a->f[k], b->f[k]));
    else
        out->i[k] = integer_binary(opcode, out->dtype, a->i[k], b->i[k]);
}

static struct values *presented(const struct values *x, enum dtype dtype, int rank, const int64_t *shape) {
    struct values *cast = reference_cast(x, dtype);
    struct values *wide = reference_broadcast_to(cast, rank, shape);
    values_destroy(cast);
    return wide;
}

static struct values *elementwise_binary(const struct reference_request *r) {
    const struct values *x = r->inputs[0], *y = r->inputs[1];
    int rank;
    int64_t shape[VALUES_RANK_MAX];
    enum dtype dtype = binary_operand(r->opcode, x->dtype, y->dtype);
    if (dtype == DTYPE_INVALID || !reference_broadcast(x->rank, x->shape, y->rank, y->shape, &rank, shape))
        return NULL;
    struct values *a = presented(x, dtype, rank, shape), *b = presented(y, dtype, rank, shape);
    enum dtype result = opcode_compares(r->opcode) ? DTYPE_BOOL
                        : r->opcode != OP_COMPLEX  ? dtype
                        : dtype == DTYPE_F32       ? DTYPE_C64
                                                   : DTYPE_C128;
    struct values *out = values_create(result, rank, shape);
    for (int64_t k = 0; k < out->count; k++)
        binary_element(r->opcode, a, b, out, k);
    if (r->opcode == OP_LOGADDEXP) { /* its terms may cancel */
        values_scaled(out, 1);
        for (int64_t k = 0; k < out->count; k++)
            out->scale[k] = fmaxl(fabsl(a->f[k]), fabsl(b->f[k]));
    }
    if (r->opcode == OP_POW && out->im)
        reference_complex_pow_scale(a, b, out);
    values_destroy(a);
    values_destroy(b);
    return out;
}

static struct values *elementwise_clip(const struct reference_request *r) {
    int rank = 0;
    int64_t shape[VALUES_RANK_MAX] = {0};
    enum dtype dtype = r->inputs[0]->dtype;
    for (unsigned i = 0; i < 3; i++) {
        int64_t before[VALUES_RANK_MAX];
        int rank_before = rank;
        for (int axis = 0; axis < VALUES_RANK_MAX; axis++)
            before[axis] = shape[axis];
        dtype = value_is_f8(r->inputs[i]->dtype) || dtype == DTYPE_INVALID
                    ? DTYPE_INVALID
                    : reference_promote(dtype, r->inputs[i]->dtype);
        if (!reference_broadcast(rank_before, before, r->inputs[i]->rank, r->inputs[i]->shape, &rank, shape))
            return NULL;
    }
    if (dtype == DTYPE_INVALID || dtype == DTYPE_BOOL)
        return NULL;
    struct values *x = presented(r->inputs[0], dtype, rank, shape), *low = presented(r->inputs[1], dtype, rank, shape);
    struct values *high = presented(r->inputs[2], dtype, rank, shape), *out = values_create(dtype, rank, shape);
    for (int64_t k = 0; k < out->count; k++) {
        if (out->f)
            out->f[k] =
                float_binary(OP_MINIMUM, dtype, float_binary(OP_MAXIMUM, dtype, x->f[k], low->f[k]), high->f[k]);
        else
            out->i[k] =
                integer_binary(OP_MINIMUM, dtype, integer_binary(OP_MAXIMUM, dtype, x->i[k], low->i[k]), high->i[k]);
    }
    values_destroy(x);
    values_destroy(low);
    values_destroy(high);
    return out;
}

static struct values *elementwise_where(const struct reference_request *r) {
    const struct values *c = r->inputs[0], *x = r->inputs[1], *y = r->inputs[2];
    int rank;
    int64_t shape[VALUES_RANK_MAX], both[VALUES_RANK_MAX];
    if (c->dtype != DTYPE_BOOL || !reference_broadcast(x->rank, x->shape, y->rank, y->shape, &rank, both) ||
        !reference_broadcast(c->rank, c->shape, rank, both, &rank, shape))
        return NULL;
    enum dtype dtype = reference_promote(x->dtype, y->dtype);
    if (dtype == DTYPE_INVALID)
        return NULL;
    struct values *condition = presented(c, DTYPE_BOOL, rank, shape);
    struct values *a = presented(x, dtype, rank, shape), *b = presented(y, dtype, rank, shape);
    struct values *out = values_create(dtype, rank, shape);
    for (int64_t k = 0; k < out->count; k++) {
        values_put(out, k, condition->i[k] ? a : b, k);
    }
    values_destroy(condition);
    values_destroy(a);
    values_destroy(b);
    return out;
}

static bool float_test(unsigned opcode, long double x) {
    switch (opcode) {
    case OP_ISFINITE:
        return isfinite(x);
    case OP_ISINF:
        return isinf(x);
    case OP_ISNAN:
        return isnan(x);
    case OP_SIGNBIT:
        return signbit(x);
    default:
        reference_lacks(opcode);
    }
}

static struct values *elementwise_test(const struct reference_request *r) {
    const struct values *x = r->inputs[0];
    if (value_is_f8(x->dtype))
        return NULL;
    struct values *out = values_create(DTYPE_BOOL, x->rank, x->shape);
    for (int64_t k = 0; k < out->count; k++) {
        out->i[k] = float_test(r->opcode, x->f ? x->f[k] : (long double)integer_wide(x->dtype, x->i[k]));
        if (x->im) { /* both parts are finite, or one of them is what is asked for */
            bool other = float_test(r->opcode, x->im[k]);
            out->i[k] = r->opcode == OP_ISFINITE ? out->i[k] && other : out->i[k] || other;
        }
    }
    return out;
}

/* By how much more than by the last rounding a result may be off. */
static void unary_scale(const struct reference_request *r, struct values *out, const struct values *x,
                        const long double *parameters) {
    values_scaled(out, 1);
    for (int64_t k = 0; k < out->count; k++) {
        if (r->opcode == OP_GELU_TANH)
            out->scale[k] = fabsl(x->f[k]);
        else /* softplus: also what e^x is rounded by where it is subnormal, divided by beta */
            out->scale[k] = fabsl(parameters[0] * x->f[k] * out->f[k]) +
                            value_min_normal(x->dtype == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32) / fabsl(parameters[0]);
    }
}

static struct values *elementwise_real(const struct reference_request *r) {
    const struct values *given = r->inputs[0];
    if (value_is_f8(given->dtype))
        return NULL;
    struct values *x = reference_cast(given, given->f ? given->dtype : DTYPE_F32);
    struct values *out = values_create(x->dtype, x->rank, x->shape);
    long double parameters[4] = {0};
    for (unsigned i = 0; i < r->attributes.n_floats; i++)
        parameters[i] =
            x->dtype == DTYPE_F64 ? (long double)r->attributes.floats[i] : (long double)(float)r->attributes.floats[i];
    for (int64_t k = 0; k < x->count; k++)
        out->f[k] = value_round(x->dtype, functions_with_attributes[r->opcode]
                                              ? functions_with_attributes[r->opcode](x->f[k], parameters)
                                              : float_unary(r->opcode, x->dtype, x->f[k]));
    if (r->opcode == OP_GELU_TANH || r->opcode == OP_SOFTPLUS)
        unary_scale(r, out, x, parameters);
    values_destroy(x);
    return out;
}

static struct values *elementwise_unary(const struct reference_request *r) {
    const struct values *given = r->inputs[0];
    if (r->opcode == OP_COPY)
        return values_copy(given);
    if (value_is_complex(given->dtype))
        return reference_complex_unary(r->opcode, given);
    if (real_functions[r->opcode] || functions_with_attributes[r->opcode])
        return elementwise_real(r);
    bool bits = r->opcode == OP_BITWISE_INVERT;
    if ((given->dtype == DTYPE_BOOL && !bits) || (given->f && bits) || value_is_f8(given->dtype))
        return NULL;
    struct values *x = reference_cast(given, given->dtype);
    for (int64_t k = 0; k < x->count; k++) {
        if (x->f)
            x->f[k] = value_round(x->dtype, float_unary(r->opcode, x->dtype, x->f[k]));
        else
            x->i[k] = integer_unary(r->opcode, x->dtype, x->i[k]);
    }
    return x;
}

static struct values *elementwise_logical_not(const struct values *given) {
    struct values *x = reference_cast(given, DTYPE_BOOL);
    for (int64_t k = 0; k < x->count; k++)
        x->i[k] = !x->i[k];
    return x;
}

static struct values *elementwise_cast(const struct reference_request *r) {
    struct cast_attributes given;
    cast_attributes_read(&r->attributes, &given);
    return reference_cast(r->inputs[0], given.dtype);
}

struct values *reference_elementwise(const struct reference_request *r) {
    if (r->opcode == OP_CAST)
        return elementwise_cast(r);
    if (r->opcode == OP_LOGICAL_NOT)
        return elementwise_logical_not(r->inputs[0]);
    if (r->opcode == OP_ISFINITE || r->opcode == OP_ISINF || r->opcode == OP_ISNAN || r->opcode == OP_SIGNBIT)
        return elementwise_test(r);
    if (r->n_inputs == 3)
        return r->opcode == OP_CLIP ? elementwise_clip(r) : elementwise_where(r);
    return r->n_inputs == 2 ? elementwise_binary(r) : elementwise_unary(r);
}
