#include "proto/dtype.h"

static const struct {
    const char *name;
    unsigned char size, kind;
} dtype_rows[DTYPE_COUNT] = {[DTYPE_INVALID] = {"invalid", 0, DTYPE_KIND_NONE},
#define X(name, value, text, bytes, kind) [value] = {text, bytes, DTYPE_KIND_##kind},
                             DTYPE_TABLE(X)
#undef X
};

/* One row for each dtype, columns in the order of DTYPE_TABLE; symmetric, as a test checks. What is not listed is
 * DTYPE_INVALID. */
#define ROW(a, ...) [DTYPE_##a] = {DTYPE_INVALID, __VA_ARGS__}
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
static const unsigned char promotion[DTYPE_COUNT][DTYPE_COUNT] = {
    ROW(BOOL, B, U8, I8, I16, I32, I64, F16, BF16, F32, F64),
    ROW(U8, U8, U8, I16, I16, I32, I64, F16, BF16, F32, F64),
    ROW(I8, I8, I16, I8, I16, I32, I64, F16, BF16, F32, F64),
    ROW(I16, I16, I16, I16, I16, I32, I64, F16, BF16, F32, F64),
    ROW(I32, I32, I32, I32, I32, I32, I64, F16, BF16, F32, F64),
    ROW(I64, I64, I64, I64, I64, I64, I64, F16, BF16, F32, F64),
    ROW(F16, F16, F16, F16, F16, F16, F16, F16, F32, F32, F64),
    ROW(BF16, BF16, BF16, BF16, BF16, BF16, BF16, F32, BF16, F32, F64),
    ROW(F32, F32, F32, F32, F32, F32, F32, F32, F32, F32, F64),
    ROW(F64, F64, F64, F64, F64, F64, F64, F64, F64, F64, F64),
    [DTYPE_F8E4M3] = {[DTYPE_F8E4M3] = DTYPE_F8E4M3},
    [DTYPE_F8E5M2] = {[DTYPE_F8E5M2] = DTYPE_F8E5M2},
};

bool dtype_valid(int dtype) {
    return dtype > DTYPE_INVALID && dtype < DTYPE_COUNT;
}

size_t dtype_size(enum dtype dtype) {
    return dtype_valid((int)dtype) ? dtype_rows[dtype].size : 0;
}

const char *dtype_name(enum dtype dtype) {
    return dtype_rows[dtype_valid((int)dtype) ? dtype : DTYPE_INVALID].name;
}

enum dtype_kind dtype_kind(enum dtype dtype) {
    return dtype_valid((int)dtype) ? (enum dtype_kind)dtype_rows[dtype].kind : DTYPE_KIND_NONE;
}

enum dtype dtype_promote(enum dtype a, enum dtype b) {
    if (!dtype_valid((int)a) || !dtype_valid((int)b)) {
        return DTYPE_INVALID;
    }
    return (enum dtype)promotion[a][b];
}

enum dtype dtype_to_float(enum dtype dtype) {
    return dtype_kind(dtype) == DTYPE_KIND_FLOAT ? dtype : DTYPE_F32;
}
