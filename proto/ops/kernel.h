/* Launches of user kernels: what client and server share. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    KERNEL_ARGUMENTS_MAX = 64,
    KERNEL_NAME_MAX = 255,      /* bytes of a name, or of an expression that names a kernel */
    KERNEL_LOG_MAX = 256 << 10, /* bytes of a compiler's log that the daemon sends */
};

/* The argument for a kernel's parameter. Wire values. */
enum kernel_argument {
    KERNEL_INPUT = 1,  /* the address of a tensor's elements: contiguous, row-major; the kernel must not write there */
    KERNEL_OUTPUT = 2, /* the address of a new tensor's elements, which are zero at first */
    /* The address of a new tensor's elements, which are a copy of an input at first. If the launch releases the input and nothing
     * else uses its memory, the new tensor takes that memory. */
    KERNEL_UPDATE = 3,
    KERNEL_BITS32 = 4, /* a number of four bytes */
    KERNEL_BITS64 = 5, /* a number of eight bytes */
};

/* Whether the argument takes one of the operation's inputs, and whether it makes one of its outputs. */
static inline bool kernel_reads(int64_t kind) {
    return kind == KERNEL_INPUT || kind == KERNEL_UPDATE;
}
static inline bool kernel_makes(int64_t kind) {
    return kind == KERNEL_OUTPUT || kind == KERNEL_UPDATE;
}
