/* Launches of user kernels, as both sides describe them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    KERNEL_ARGUMENTS_MAX = 64,
    KERNEL_NAME_MAX = 255,      /* bytes of a name or an expression for one */
    KERNEL_LOG_MAX = 256 << 10, /* bytes of a compiler's log that travel */
};

/* What a kernel's parameter is given. Wire values. */
enum kernel_argument {
    KERNEL_INPUT = 1,  /* the address of a tensor's elements: contiguous, row-major, not to be written */
    KERNEL_OUTPUT = 2, /* of a new tensor's, zero in the beginning */
    /* Of a new tensor's, in the beginning a copy of another one. If the launch releases the other one and nobody else uses its
     * memory, the new tensor takes that memory. */
    KERNEL_UPDATE = 3,
    KERNEL_BITS32 = 4, /* a number of four bytes, */
    KERNEL_BITS64 = 5, /* or of eight */
};

/* Whether the argument is one of the operation's inputs, and whether it is one of its outputs. */
static inline bool kernel_reads(int64_t kind) {
    return kind == KERNEL_INPUT || kind == KERNEL_UPDATE;
}
static inline bool kernel_makes(int64_t kind) {
    return kind == KERNEL_OUTPUT || kind == KERNEL_UPDATE;
}
