/* Elementwise operations of complex numbers, by C's functions of long double _Complex. */
#include <complex.h>
#include <math.h>

#include "tests/device/reference.h"

static long double _Complex element(const struct values *x, int64_t k) {
    return CMPLXL(x->f[k], x->im[k]);
}

static void element_set(struct values *out, int64_t k, long double re, long double im) {
    out->f[k] = value_round(out->dtype, re);
    out->im[k] = value_round(out->dtype, im);
}

/* f64 is rounded by the hardware: through long double it would be rounded twice. */
static long double sum(enum dtype dtype, long double a, long double b) {
    return dtype == DTYPE_C128 ? (long double)((double)a + (double)b) : a + b;
}

void reference_complex_binary(unsigned opcode, const struct values *a, const struct values *b, struct values *out,
                              int64_t k) {
    long double _Complex z;
    switch (opcode) {
    case OP_ADD:
        element_set(out, k, sum(a->dtype, a->f[k], b->f[k]), sum(a->dtype, a->im[k], b->im[k]));
        return;
    case OP_SUBTRACT:
        element_set(out, k, sum(a->dtype, a->f[k], -b->f[k]), sum(a->dtype, a->im[k], -b->im[k]));
        return;
    case OP_MULTIPLY:
        element_set(out, k, a->f[k] * b->f[k] - a->im[k] * b->im[k], a->f[k] * b->im[k] + a->im[k] * b->f[k]);
        return;
    case OP_DIVIDE:
        z = element(a, k) / element(b, k);
        element_set(out, k, creall(z), cimagl(z));
        return;
    case OP_POW:
        z = element(a, k) == 0 && element(b, k) != 0 ? (b->f[k] > 0 ? 0 : CMPLXL(NAN, NAN))
                                                     : cpowl(element(a, k), element(b, k));
        element_set(out, k, creall(z), cimagl(z));
        return;
    case OP_EQUAL:
    case OP_NOT_EQUAL:
        out->i[k] = (a->f[k] == b->f[k] && a->im[k] == b->im[k]) == (opcode == OP_EQUAL);
        return;
    default:
        reference_lacks(opcode);
    }
}

void reference_complex_pow_scale(const struct values *a, const struct values *b, struct values *out) {
    long double part = out->dtype == DTYPE_C64 ? 0x1p-29L : 1; /* c64 is computed in f64 */
    values_scaled(out, 1);
    for (int64_t k = 0; k < out->count; k++) {
        long double power = cabsl(element(out, k)), exponent = cabsl(element(b, k));
        out->scale[k] = element(a, k) == 0 ? 0 : part * power * exponent * (1 + cabsl(clogl(element(a, k))));
    }
}

static bool result_is_real(unsigned opcode) {
    return opcode == OP_ABS || opcode == OP_REAL || opcode == OP_IMAG || opcode == OP_ANGLE;
}

static long double real_result(unsigned opcode, long double _Complex z) {
    switch (opcode) {
    case OP_ABS:
        return cabsl(z);
    case OP_REAL:
        return creall(z);
    case OP_IMAG:
        return cimagl(z);
    default:
        return cargl(z);
    }
}

static long double _Complex log1p_result(long double _Complex z) {
    return cabsl(z) < 0.5L ? 2 * catanhl(z / (2 + z)) : clogl(1 + z);
}

static long double _Complex complex_result(unsigned opcode, long double _Complex z) {
    switch (opcode) {
    case OP_NEGATIVE:
        return CMPLXL(-creall(z), -cimagl(z));
    case OP_POSITIVE:
        return z;
    case OP_SIGN:
        return z == 0 ? 0 : CMPLXL(creall(z) / cabsl(z), cimagl(z) / cabsl(z));
    case OP_SQUARE:
        return z * z;
    case OP_RECIPROCAL:
        return 1 / z;
    case OP_CONJ:
        return conjl(z);
    case OP_EXP:
        return cexpl(z);
    case OP_LOG:
        return clogl(z);
    case OP_SQRT:
        return csqrtl(z);
    case OP_SIN:
        return csinl(z);
    case OP_COS:
        return ccosl(z);
    case OP_TAN:
        return ctanl(z);
    case OP_ASIN:
        return casinl(z);
    case OP_ACOS:
        return cacosl(z);
    case OP_ATAN:
        return catanl(z);
    case OP_SINH:
        return csinhl(z);
    case OP_COSH:
        return ccoshl(z);
    case OP_TANH:
        return ctanhl(z);
    case OP_ASINH:
        return casinhl(z);
    case OP_ACOSH:
        return cacoshl(z);
    case OP_ATANH:
        return catanhl(z);
    case OP_EXPM1:
        return z == 0 ? CMPLXL(0, cimagl(z)) : 2 * cexpl(z / 2) * csinhl(z / 2);
    case OP_LOG1P:
        return log1p_result(z);
    case OP_LOG2:
        return clogl(z) / logl(2);
    case OP_LOG10:
        return clogl(z) / logl(10);
    case OP_ROUND:
        return CMPLXL(rintl(creall(z)), rintl(cimagl(z)));
    default:
        reference_lacks(opcode);
    }
}

struct values *reference_complex_unary(unsigned opcode, const struct values *x) {
    bool real = result_is_real(opcode);
    enum dtype parts = x->dtype == DTYPE_C64 ? DTYPE_F32 : DTYPE_F64;
    struct values *out = values_create(real ? parts : x->dtype, x->rank, x->shape);
    out->of = real ? x->dtype : DTYPE_INVALID;
    for (int64_t k = 0; k < x->count; k++) {
        if (real) {
            out->f[k] = value_round(parts, real_result(opcode, element(x, k)));
        } else {
            long double _Complex z = complex_result(opcode, element(x, k));
            element_set(out, k, creall(z), cimagl(z));
        }
    }
    return out;
}
