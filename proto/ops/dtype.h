/* Element types and their promotion. Values are wire values and equal the public header's TD_F32 and so on. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(NAME, value, "name", bytes, kind) */
#define DTYPE_TABLE(X)                                                                                                 \
    X(BOOL, 1, "bool", 1, BOOL)                                                                                        \
    X(U8, 2, "u8", 1, INT)                                                                                             \
    X(I8, 3, "i8", 1, INT)                                                                                             \
    X(I16, 4, "i16", 2, INT)                                                                                           \
    X(I32, 5, "i32", 4, INT)                                                                                           \
    X(I64, 6, "i64", 8, INT)                                                                                           \
    X(F16, 7, "f16", 2, FLOAT)                                                                                         \
    X(BF16, 8, "bf16", 2, FLOAT)                                                                                       \
    X(F32, 9, "f32", 4, FLOAT)                                                                                         \
    X(F64, 10, "f64", 8, FLOAT)                                                                                        \
    X(F8E4M3, 11, "f8e4m3", 1, FLOAT)                                                                                  \
    X(F8E5M2, 12, "f8e5m2", 1, FLOAT)                                                                                  \
    X(U16, 13, "u16", 2, INT)                                                                                          \
    X(U32, 14, "u32", 4, INT)                                                                                          \
    X(U64, 15, "u64", 8, INT)                                                                                          \
    X(C64, 16, "c64", 8, COMPLEX)                                                                                      \
    X(C128, 17, "c128", 16, COMPLEX)

enum dtype {
    DTYPE_INVALID = 0,
#define X(name, value, text, bytes, kind) DTYPE_##name = (value),
    DTYPE_TABLE(X)
#undef X
        DTYPE_COUNT
};

enum dtype_kind { DTYPE_KIND_NONE, DTYPE_KIND_BOOL, DTYPE_KIND_INT, DTYPE_KIND_FLOAT, DTYPE_KIND_COMPLEX };

bool dtype_valid(int dtype);
/* Bytes of one element; 0 if no dtype has this number. A bool is one byte, 0 or 1. A complex number is its real and then its imaginary
 * part, f32 in c64 and f64 in c128. */
extern const uint8_t dtype_sizes[DTYPE_COUNT];
static inline size_t dtype_size(enum dtype dtype) {
    return (unsigned)dtype < DTYPE_COUNT ? dtype_sizes[dtype] : 0;
}
/* "f32"; "invalid" if no dtype has this number. */
const char *dtype_name(enum dtype dtype);
enum dtype_kind dtype_kind(enum dtype dtype);

/* The two formats of 8 bits (engine/device/formula_f8.h). Operations store, move and cast them, and multiply matrices of them
 * with a result in f32; op_infer() refuses them for all other operations. */
static inline bool dtype_is_f8(enum dtype dtype) {
    return dtype == DTYPE_F8E4M3 || dtype == DTYPE_F8E5M2;
}

static inline bool dtype_is_unsigned(enum dtype dtype) {
    return dtype == DTYPE_U8 || dtype == DTYPE_U16 || dtype == DTYPE_U32 || dtype == DTYPE_U64;
}

static inline bool dtype_is_complex(enum dtype dtype) {
    return dtype == DTYPE_C64 || dtype == DTYPE_C128;
}
/* The dtype of a complex dtype's parts; any other dtype itself. */
static inline enum dtype dtype_real(enum dtype dtype) {
    return dtype == DTYPE_C64 ? DTYPE_F32 : dtype == DTYPE_C128 ? DTYPE_F64 : dtype;
}

/* The dtype of complex numbers with parts of this dtype, f32 or f64; a complex dtype itself. */
static inline enum dtype dtype_complex(enum dtype dtype) {
    return dtype == DTYPE_F32 ? DTYPE_C64 : dtype == DTYPE_F64 ? DTYPE_C128 : dtype;
}

/* For f16, bf16, f32 and f64: the largest finite value of the dtype; and for |x| up to that value, the dtype's smallest value
 * that is not below x, and the dtype's largest value below x. */
double dtype_largest(enum dtype dtype);
double dtype_not_below(enum dtype dtype, double x);
double dtype_below(enum dtype dtype, double x);
/* Whether an integer is a value of a bool or integer dtype. The integer is `value`, or value + 2^64 if `above`, which is for
 * values of u64 that an int64_t does not have. */
bool dtype_holds(enum dtype dtype, int64_t value, bool above);

/* Promotion as in the Array API standard within a kind (u8 with i8 is i16, u32 with i8 is i64, f16 with bf16 is f32). The standard
 * does not define promotion between kinds: there the dtype of the higher kind wins, as in PyTorch and JAX: bool < int < float
 * < complex (i64 with f16 is f16; f64 with c64 is c128, as in the standard). Nor does it define u64 with a signed integer: no integer dtype has the values of both, and the result is
 * DTYPE_INVALID, as in PyTorch. So it is for an f8 format with any other dtype, as in PyTorch and JAX. */
enum dtype dtype_promote(enum dtype a, enum dtype b);
/* The floating dtype in which exp, mean and similar operations compute: the dtype itself if it is a float or complex, otherwise f32. */
enum dtype dtype_to_float(enum dtype dtype);
