/* Kernels for fused launches (struct fused_launch), as CUDA C++ that NVRTC compiles. A kernel is made of the formulas of its operations, which
 * are those of the kernels for each by itself (engine/device/formula.h): a thread computes all operations for one element before it goes on to
 * its next, what lies in a slot stays in a register, and what lies in memory is read and written where the operations by themselves would.
 *
 * The text depends on the operations, their dtypes, and how operands lie: addresses, extents and attributes are arguments. So launches of one kind
 * have one kernel, by whose text it is found.
 *
 * The results have the bits of the operations by themselves. A compiler may make one rounding of a product and a sum where these stand in one
 * formula, there and here alike; but it must not where one operation's product is another's summand. So each result passes through an exclusive or
 * with an argument that is 0, of which the compiler does not know that. */
#pragma once

#include "engine/device/launch.h"

enum {
    FUSED_THREADS = 256, /* of a block */
    FUSED_ARGUMENTS_MAX =
        3 * 8 + FUSED_OPERATIONS_MAX * (4 * sizeof(void *) + 2 * sizeof(double)) /* bytes; CUDA takes 4 KiB */
};

/* Whether there is text for an operation on operands of these dtypes: as device_vtable.fuses(). */
bool fused_text_has(unsigned opcode, enum dtype from, enum dtype as, enum dtype to);
/* The kernel `name` alone, which comes behind number_text (formula_text.h); one block of malloc(). NULL: no host memory. */
char *fused_text(const struct fused_launch *launch, const char *name);
/* What the kernel takes: one struct. Returns its size. */
size_t fused_arguments(const struct fused_launch *launch, char to[FUSED_ARGUMENTS_MAX]);
