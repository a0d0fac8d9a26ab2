/* A backend's entry for one operation: a kernel, with what it accepts and needs; or the operations that make it up; or the reason why
 * there is neither. A backend whose table lacks an entry does not link.
 *
 * The engine's owner thread calls these functions, but for `waits`, when it binds an operation; they wait for nothing. */
#pragma once

#include <stdbool.h>

#include "engine/device/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

struct device;

/* How an operation is made up of others (engine/program/bind.c). */
enum op_parts {
    OP_PARTS_NONE,
    OP_PARTS_COPIES, /* concat, stack: each input is copied into its place */
};

/* A backend's own struct begins with this. Functions may be NULL. */
struct op_kernel {
    /* The presented dtypes for which there is a kernel, as bits: op_operand_dtype() of the last input, or the result's dtype if there is no
     * input. Asked once for each device. NULL: all. */
    uint32_t (*dtypes)(const struct device *device, unsigned opcode);
    /* Whether a launch may have inputs of dtype `from` while the kernel computes on `to` (operand.as): the kernel converts them as it
     * reads them. NULL: no launch may. */
    bool (*converts)(const struct device *device, unsigned opcode, enum dtype from, enum dtype to);
    /* Of an input of indices (op_info.index_inputs): the dtypes that the kernel reads as they are, as bits; it gets
     * others as i32, if they fit and it reads that, or as i64. 0: i64 alone. */
    uint32_t index_dtypes;
    /* Loads what the kernel needs at run time, such as a library. STATUS_OK, at once if it is loaded already, or STATUS_UNSUPPORTED with
     * the reason. NULL: it needs nothing. */
    int (*needs)(struct device *device, enum dtype dtype, struct fault *fault);
    /* STATUS_OK if the kernel takes a launch of these dtypes, shapes and layouts, which is in its normal form; else STATUS_UNSUPPORTED with
     * the reason. NULL: it takes all launches of its dtypes. */
    int (*accepts)(struct device *device, const struct launch *launch, struct fault *fault);
    /* Bytes that the kernel needs for this launch besides the operands: launch->workspace. If launch->scarce, the least, with which it may be
     * slower: it is asked so if there is no memory for more, or the session may not have it. NULL: none. */
    uint64_t (*workspace)(struct device *device, const struct launch *launch);
    /* What the launch is estimated to take, in nanoseconds, where the kernel knows more than the operation's own estimate `ns`. NULL: it does not. */
    uint64_t (*weight)(struct device *device, const struct launch *launch, uint64_t ns);
    /* Whether the call that puts the launch on a device that runs later may take long, because it waits for the device, or a library makes a
     * plan first: then another thread is to make it (device_async.launch_aside). By the submitter. NULL: no call does. */
    bool (*waits)(struct device *device, const struct launch *launch);
    enum op_parts parts; /* instead of a kernel */
    /* Of families whose operands are whole and contiguous (engine/program/bind_dense.h): the kernel reads and writes f16 and bf16 itself; it
     * computes in f32. Else it gets f32 in their place, in tensors that are made for it. */
    bool halves;
    /* Of OP_FAMILY_CONVOLUTION: launches have their operands as the operation has them, with the channels where the layout says, and weights
     * that are never transposed. */
    bool as_given;
    /* Of OP_FAMILY_MATMUL: a launch with more batches than this beside its longest batch axis, on axes that do not merge with it, has contiguous
     * operands, which merge unless one is broadcast: the kernel makes a call for each of these batches. 0: it makes none. */
    int64_t batches_apart;
    const char *reason; /* why there is neither, in words that follow "a cpu device has no exp: " */
};

/* A backend defines each entry next to its driver, as a struct named after the backend and the operation, such as cpu_kernel_sum; and one
 * entry for all operations that are made of formulas, such as cpu_kernel_elementwise. */

#ifdef __cplusplus
}
#endif
