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
    default:
        reference_lacks(opcode);
    }
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
    default:
        reference_lacks(opcode);
    }
}

static long double sigmoid(long double x) {
    return 1 / (1 + expl(-x));
}

/* Of integers they are floats. */
static long double (*const real_functions[OP_CODE_MAX])(long double) = {
    [OP_EXP] = expl, [OP_LOG] = logl, [OP_SQRT] = sqrtl, [OP_TANH] = tanhl, [OP_SIGMOID] = sigmoid, [OP_ERF] = erfl,
};

static long double float_unary(unsigned opcode, enum dtype dtype, long double x) {
    if (opcode == OP_SQRT && dtype == DTYPE_F64)
        return (long double)sqrt((double)x);
    if (real_functions[opcode])
        return real_functions[opcode](x);
    switch (opcode) {
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
    if (opcode == OP_LOGICAL_AND || opcode == OP_LOGICAL_OR)
        return DTYPE_BOOL;
    enum dtype dtype = reference_promote(a, b);
    if (opcode == OP_DIVIDE && !value_is_float(dtype))
        return DTYPE_F32;
    if ((opcode == OP_SUBTRACT || opcode == OP_POW) && dtype == DTYPE_BOOL)
        return DTYPE_INVALID;
    return dtype;
}

static void binary_element(unsigned opcode, const struct values *a, const struct values *b, struct values *out,
                           int64_t k) {
    if (opcode == OP_LOGICAL_AND)
        out->i[k] = a->i[k] && b->i[k];
    else if (opcode == OP_LOGICAL_OR)
        out->i[k] = a->i[k] || b->i[k];
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
    struct values *out = values_create(opcode_compares(r->opcode) ? DTYPE_BOOL : dtype, rank, shape);
    for (int64_t k = 0; k < out->count; k++)
        binary_element(r->opcode, a, b, out, k);
    values_destroy(a);
    values_destroy(b);
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
        if (out->f)
            out->f[k] = condition->i[k] ? a->f[k] : b->f[k];
        else
            out->i[k] = condition->i[k] ? a->i[k] : b->i[k];
    }
    values_destroy(condition);
    values_destroy(a);
    values_destroy(b);
    return out;
}

static struct values *elementwise_unary(const struct reference_request *r) {
    const struct values *given = r->inputs[0];
    bool floating = real_functions[r->opcode] != NULL;
    if (r->opcode == OP_COPY)
        return values_copy(given);
    if ((given->dtype == DTYPE_BOOL && !floating) || value_is_f8(given->dtype))
        return NULL;
    struct values *x = reference_cast(given, floating && !given->f ? DTYPE_F32 : given->dtype);
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
    if (r->n_inputs == 3)
        return elementwise_where(r);
    return r->n_inputs == 2 ? elementwise_binary(r) : elementwise_unary(r);
}
