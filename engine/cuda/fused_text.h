/* Kernels for fused launches (struct fused_launch), as CUDA C++ that NVRTC compiles. A kernel is made of the formulas of its operations, which
 * are those of the kernels for each by itself (engine/device/formula.h): a thread computes all operations for one element before it goes on to
 * its next, what lies in a slot stays in a register, and what lies in memory is read and written where the operations by themselves would.
 *
 * With reductions or softmax among them, a team of threads has a row. It goes through the row once for all elementwise operations that follow
 * one another, and once for each reduction or softmax, whose elements the threads share out as that operation's own kernel does
 * (reduce_ops.cuh, softmax_ops.cuh). A value in a slot that a later pass reads is in shared memory. Of a value that each row has one of, every
 * thread of the team has a copy.
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
    FUSED_THREADS = 256,         /* of a block */
    FUSED_TEAM_MIN = 32,         /* threads for a row: a warp */
    FUSED_SHARED_MAX = 48 << 10, /* bytes of shared memory for slots, which every device has for a block */
    FUSED_ARGUMENTS_MAX = (4 + FUSED_OPERATIONS_MAX) * 8 +
                          FUSED_OPERATIONS_MAX * (4 * sizeof(void *) + 2 * sizeof(double)) /* bytes; CUDA takes 4 KiB */
};

/* Whether there is text for an operation on operands of these dtypes: as device_vtable.fuses(). */
bool fused_text_has(unsigned opcode, enum dtype from, enum dtype as, enum dtype to);
/* The same of a reduction. */
bool fused_text_reduces(unsigned opcode, enum dtype dtype);
/* What fused_operation.kernel is of a reduction or a softmax whose kernel has so many threads for a row (reduce_lanes(), softmax_lanes()); NULL for 0. */
const void *fused_lanes(unsigned lanes);
/* device_fusion.row_slots. */
unsigned fused_row_slots(const void *kernel, int64_t columns, size_t size);
/* How many blocks have all elements between them, and how many bytes of shared memory each block needs. */
int64_t fused_blocks(const struct fused_launch *launch);
size_t fused_shared(const struct fused_launch *launch);
/* The kernel `name` alone, which comes behind number_text (formula_text.h); one block of malloc(). NULL: no host memory. */
char *fused_text(const struct fused_launch *launch, const char *name);
/* What the kernel takes: one struct. Returns its size. */
size_t fused_arguments(const struct fused_launch *launch, char to[FUSED_ARGUMENTS_MAX]);
