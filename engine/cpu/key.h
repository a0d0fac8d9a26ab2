/* The order of elements: an unsigned number for each element's bits, which has the element's order. NaN is above all numbers, and -0 is +0.
 *
 * Code that sorts or searches is made for each width of elements and each kind of number: KEY_TYPES has the functions' names, types and
 * kinds. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/ops/dtype.h"

enum key_kind { KEY_UNSIGNED, KEY_SIGNED, KEY_FLOAT, KEY_KINDS };
enum { KEY_PLACES = 4 * KEY_KINDS };

/* X(suffix, type, kind, kind in words) */
#define KEY_TYPES(X)                                                                                                   \
    X(u8, uint8_t, KEY_UNSIGNED)                                                                                       \
    X(s8, uint8_t, KEY_SIGNED)                                                                                         \
    X(f8, uint8_t, KEY_FLOAT)                                                                                          \
    X(u16, uint16_t, KEY_UNSIGNED)                                                                                     \
    X(s16, uint16_t, KEY_SIGNED)                                                                                       \
    X(f16, uint16_t, KEY_FLOAT)                                                                                        \
    X(u32, uint32_t, KEY_UNSIGNED)                                                                                     \
    X(s32, uint32_t, KEY_SIGNED)                                                                                       \
    X(f32, uint32_t, KEY_FLOAT)                                                                                        \
    X(u64, uint64_t, KEY_UNSIGNED)                                                                                     \
    X(s64, uint64_t, KEY_SIGNED)                                                                                       \
    X(f64, uint64_t, KEY_FLOAT)

/* The place of elements of so many bytes, 1 to 8, and of a kind in a table that KEY_TYPES makes. */
#define KEY_PLACE(bytes, kind) (((bytes) == 1 ? 0 : (bytes) == 2 ? 1 : (bytes) == 4 ? 2 : 3) * KEY_KINDS + (int)(kind))
static inline int key_place(enum dtype dtype) {
    enum key_kind kind = dtype_kind(dtype) == DTYPE_KIND_FLOAT                              ? KEY_FLOAT
                         : dtype_kind(dtype) == DTYPE_KIND_INT && !dtype_is_unsigned(dtype) ? KEY_SIGNED
                                                                                            : KEY_UNSIGNED;
    return KEY_PLACE(dtype_size(dtype), kind);
}

/* The bits of a float's infinity, or of its largest number if it has none. */
static inline uint64_t key_infinity(enum dtype dtype) {
    switch (dtype) {
    case DTYPE_F16:
        return 0x7c00;
    case DTYPE_BF16:
        return 0x7f80;
    case DTYPE_F32:
        return 0x7f800000;
    case DTYPE_F64:
        return UINT64_C(0x7ff0000000000000);
    case DTYPE_F8E4M3:
        return 0x7e;
    case DTYPE_F8E5M2:
        return 0x7c;
    default:
        return 0;
    }
}

/* The key of `bits` of an element of type T; `kind` is a constant wherever this is called. */
#define KEY(T, kind, bits, infinity)                                                                                   \
    __extension__({                                                                                                    \
        const T key_bits = (bits), key_sign = (T)((T)1 << (8 * sizeof(T) - 1)),                                        \
                key_size = (T)(key_bits & (T)~key_sign);                                                               \
        (T)((kind) == KEY_UNSIGNED     ? key_bits                                                                      \
            : (kind) == KEY_SIGNED     ? (T)(key_bits ^ key_sign)                                                      \
            : key_size > (T)(infinity) ? (T) ~(T)0                                                                     \
            : key_bits == key_size     ? (T)(key_sign + key_size)                                                      \
                                       : (T)(key_sign - key_size));                                                        \
    })
