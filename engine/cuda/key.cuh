/* The order of elements: an unsigned number for each element's bits, which has the element's order. NaN is above all numbers, and -0 is +0. The
 * width and the kind of an element are known at run time alone: the threads of a kernel all take the same branches, and one kernel
 * serves all dtypes. CUDA C++ only. */
#pragma once

#include "engine/cuda/index.cuh"

enum key_kind { KEY_UNSIGNED, KEY_SIGNED, KEY_FLOAT, KEY_INDEX };

struct key_type {
    uint32_t size; /* bytes of an element */
    enum key_kind kind;
    uint64_t
        limit; /* KEY_FLOAT: the bits of infinity, or of the largest number; KEY_INDEX: the extent, which is the key of wrong indices */
    uint64_t flip; /* all ones: the order is turned round */
};

/* The type of an operand's elements, in ascending order. */
static inline struct key_type key_type_of(enum dtype dtype) {
    struct key_type type = {(uint32_t)dtype_size(dtype), KEY_UNSIGNED, 0, 0};
    if (dtype_kind(dtype) == DTYPE_KIND_FLOAT) {
        type.kind = KEY_FLOAT;
        type.limit = dtype == DTYPE_F16      ? 0x7c00
                     : dtype == DTYPE_BF16   ? 0x7f80
                     : dtype == DTYPE_F32    ? 0x7f800000
                     : dtype == DTYPE_F8E4M3 ? 0x7e
                     : dtype == DTYPE_F8E5M2 ? 0x7c
                                             : UINT64_C(0x7ff0000000000000);
    } else if (dtype_kind(dtype) == DTYPE_KIND_INT && !dtype_is_unsigned(dtype)) {
        type.kind = KEY_SIGNED;
    }
    return type;
}

INDEX_FUNCTION uint64_t key_bits(const char *x, int64_t at, uint32_t size) {
    switch (size) {
    case 1:
        return ((const uint8_t *)x)[at];
    case 2:
        return ((const uint16_t *)x)[at];
    case 4:
        return ((const uint32_t *)x)[at];
    default:
        return ((const uint64_t *)x)[at];
    }
}

/* Writes an element's bits. */
INDEX_FUNCTION void key_copy(char *out, int64_t at, uint64_t bits, uint32_t size) {
    switch (size) {
    case 1:
        ((uint8_t *)out)[at] = (uint8_t)bits;
        break;
    case 2:
        ((uint16_t *)out)[at] = (uint16_t)bits;
        break;
    case 4:
        ((uint32_t *)out)[at] = (uint32_t)bits;
        break;
    default:
        ((uint64_t *)out)[at] = bits;
    }
}

INDEX_FUNCTION uint64_t key_read(const struct key_type &type, const char *x, int64_t at) {
    const uint64_t bits = key_bits(x, at, type.size), sign = (uint64_t)1 << (8 * type.size - 1),
                   all = sign | (sign - 1);
    uint64_t key = bits;
    if (type.kind == KEY_SIGNED) {
        key = bits ^ sign;
    } else if (type.kind == KEY_INDEX) { /* of 8 bytes, or with a sign */
        const uint64_t index = type.size == 4 ? (uint64_t)(int64_t)(int32_t)bits : bits;
        key = index < type.limit ? index : type.limit;
    } else if (type.kind == KEY_FLOAT) {
        const uint64_t magnitude = bits & ~sign;
        key = magnitude > type.limit ? all : bits == magnitude ? sign + magnitude : sign - magnitude;
    }
    return key ^ (type.flip & all);
}
