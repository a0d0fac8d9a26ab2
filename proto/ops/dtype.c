#include "proto/ops/dtype.h"

#include <math.h>

static const struct {
    const char *name;
    unsigned char kind;
} dtype_rows[DTYPE_COUNT] = {[DTYPE_INVALID] = {"invalid", DTYPE_KIND_NONE},
#define X(name, value, text, bytes, kind) [value] = {text, DTYPE_KIND_##kind},
                             DTYPE_TABLE(X)
#undef X
};

const uint8_t dtype_sizes[DTYPE_COUNT] = {
#define X(name, value, text, bytes, kind) [value] = (bytes),
    DTYPE_TABLE(X)
#undef X
};

/* One row for each dtype, columns in the order of DTYPE_TABLE. The table is symmetric; a test checks that. N: they do not promote. */
#define ROW(a, ...) [DTYPE_##a] = {DTYPE_INVALID, __VA_ARGS__}
#define N DTYPE_INVALID
#define B DTYPE_BOOL
#define U8 DTYPE_U8
#define I8 DTYPE_I8
#define I16 DTYPE_I16
#define I32 DTYPE_I32
#define I64 DTYPE_I64
#define F16 DTYPE_F16
#define BF16 DTYPE_BF16
#define F32 DTYPE_F32
#define F64 DTYPE_F64
#define U16 DTYPE_U16
#define U32 DTYPE_U32
#define U64 DTYPE_U64
#define C64 DTYPE_C64
#define C128 DTYPE_C128
static const unsigned char promotion[DTYPE_COUNT][DTYPE_COUNT] = {
    ROW(BOOL, B, U8, I8, I16, I32, I64, F16, BF16, F32, F64, N, N, U16, U32, U64, C64, C128),
    ROW(U8, U8, U8, I16, I16, I32, I64, F16, BF16, F32, F64, N, N, U16, U32, U64, C64, C128),
    ROW(I8, I8, I16, I8, I16, I32, I64, F16, BF16, F32, F64, N, N, I32, I64, N, C64, C128),
    ROW(I16, I16, I16, I16, I16, I32, I64, F16, BF16, F32, F64, N, N, I32, I64, N, C64, C128),
    ROW(I32, I32, I32, I32, I32, I32, I64, F16, BF16, F32, F64, N, N, I32, I64, N, C64, C128),
    ROW(I64, I64, I64, I64, I64, I64, I64, F16, BF16, F32, F64, N, N, I64, I64, N, C64, C128),
    ROW(F16, F16, F16, F16, F16, F16, F16, F16, F32, F32, F64, N, N, F16, F16, F16, C64, C128),
    ROW(BF16, BF16, BF16, BF16, BF16, BF16, BF16, F32, BF16, F32, F64, N, N, BF16, BF16, BF16, C64, C128),
    ROW(F32, F32, F32, F32, F32, F32, F32, F32, F32, F32, F64, N, N, F32, F32, F32, C64, C128),
    ROW(F64, F64, F64, F64, F64, F64, F64, F64, F64, F64, F64, N, N, F64, F64, F64, C128, C128),
    [DTYPE_F8E4M3] = {[DTYPE_F8E4M3] = DTYPE_F8E4M3},
    [DTYPE_F8E5M2] = {[DTYPE_F8E5M2] = DTYPE_F8E5M2},
    ROW(U16, U16, U16, I32, I32, I32, I64, F16, BF16, F32, F64, N, N, U16, U32, U64, C64, C128),
    ROW(U32, U32, U32, I64, I64, I64, I64, F16, BF16, F32, F64, N, N, U32, U32, U64, C64, C128),
    ROW(U64, U64, U64, N, N, N, N, F16, BF16, F32, F64, N, N, U64, U64, U64, C64, C128),
    ROW(C64, C64, C64, C64, C64, C64, C64, C64, C64, C64, C128, N, N, C64, C64, C64, C64, C128),
    ROW(C128, C128, C128, C128, C128, C128, C128, C128, C128, C128, C128, N, N, C128, C128, C128, C128, C128),
};

bool dtype_valid(int dtype) {
    return dtype > DTYPE_INVALID && dtype < DTYPE_COUNT;
}

const char *dtype_name(enum dtype dtype) {
    return dtype_rows[dtype_valid((int)dtype) ? dtype : DTYPE_INVALID].name;
}

enum dtype_kind dtype_kind(enum dtype dtype) {
    return dtype_valid((int)dtype) ? (enum dtype_kind)dtype_rows[dtype].kind : DTYPE_KIND_NONE;
}

/* IEEE 754 formats: the bits of the significand, including the bit that is not stored, and the smallest normal exponent. */
static const struct {
    int bits, least;
} dtype_formats[DTYPE_COUNT] = {
    [DTYPE_F16] = {11, -14}, [DTYPE_BF16] = {8, -126}, [DTYPE_F32] = {24, -126}, [DTYPE_F64] = {53, -1022}};

/* The distance between two values near x. */
static double dtype_step(enum dtype dtype, double x) {
    int least = dtype_formats[dtype].least, exponent = x != 0 ? ilogb(x) : least;
    return ldexp(1, (exponent > least ? exponent : least) - dtype_formats[dtype].bits + 1);
}

double dtype_largest(enum dtype dtype) {
    int bits = dtype_formats[dtype].bits;
    return ldexp(ldexp(1, bits) - 1, 2 - dtype_formats[dtype].least - bits);
}

double dtype_not_below(enum dtype dtype, double x) {
    double step = dtype_step(dtype, x);
    return ceil(x / step) * step;
}

double dtype_below(enum dtype dtype, double x) {
    double step = dtype_step(dtype, x), value = floor(x / step) * step;
    if (value < x) {
        return value;
    }
    /* Below a power of two the steps are half as large, except among the smallest values. */
    return x > 0 && x / step == ldexp(1, dtype_formats[dtype].bits - 1) ? x - dtype_step(dtype, x / 2) : x - step;
}

bool dtype_holds(enum dtype dtype, int64_t value, bool above) {
    int bits = 8 * (int)dtype_size(dtype);
    if (dtype == DTYPE_BOOL) {
        return !above && (value == 0 || value == 1);
    }
    if (dtype_kind(dtype) != DTYPE_KIND_INT) {
        return true;
    }
    if (above || dtype == DTYPE_U64) {
        return dtype == DTYPE_U64 && above == (value < 0);
    }
    if (dtype_is_unsigned(dtype)) {
        return value >= 0 && value >> bits == 0;
    }
    /* All bits above the lowest bits - 1 are the sign. */
    return value >> (bits - 1) == (value < 0 ? -1 : 0);
}

enum dtype dtype_promote(enum dtype a, enum dtype b) {
    if (!dtype_valid((int)a) || !dtype_valid((int)b)) {
        return DTYPE_INVALID;
    }
    return (enum dtype)promotion[a][b];
}

enum dtype dtype_to_float(enum dtype dtype) {
    return dtype_kind(dtype) >= DTYPE_KIND_FLOAT ? dtype : DTYPE_F32;
}
