/* What a backend has for one operation: a kernel, with what it takes and what it needs; or the operations that make it up; or the
 * reason why there is nothing. Its table has one entry for each operation, or it does not link.
 *
 * All functions are called by the engine's owner thread when it binds an operation; they wait for nothing. */
#pragma once

#include <stdbool.h>

#include "engine/device/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

struct device;

/* Operations made up of others. engine/program/bind.c has how. */
enum op_parts {
    OP_PARTS_NONE,
    OP_PARTS_COPIES, /* concat, stack: each input is copied into its place */
};

/* A backend's own struct begins with this. Functions may be NULL. */
struct op_kernel {
    /* The dtypes presented (op_operand_dtype of the last input, or the result's where there is none) for which there is a
     * kernel, as bits. Asked once for each device. NULL: all. */
    uint32_t (*dtypes)(const struct device *device, unsigned opcode);
    /* Whether a launch may have inputs of dtype `from` where the kernel computes on `to` (operand.as), which it converts as it reads
     * them. NULL: none may. */
    bool (*converts)(const struct device *device, unsigned opcode, enum dtype from, enum dtype to);
    /* Gets hold of what the kernel cannot do without and finds at run time, such as a library. STATUS_OK, at once where it has
     * it, or STATUS_UNSUPPORTED with the reason. NULL: it needs nothing. */
    int (*needs)(struct device *device, enum dtype dtype, struct fault *fault);
    /* Whether it takes a launch of these dtypes, shapes and layouts, in its normal form: STATUS_OK, or STATUS_UNSUPPORTED with the
     * reason. NULL: it takes all with a dtype of its own. */
    int (*accepts)(struct device *device, const struct launch *launch, struct fault *fault);
    /* Bytes that it needs for this launch besides its operands: launch->workspace. NULL: none. */
    uint64_t (*workspace)(struct device *device, const struct launch *launch);
    enum op_parts parts; /* instead of a kernel */
    const char *reason;  /* why there is neither, in words that follow "a cpu device has no exp: " */
};

/* A backend defines an entry beside each driver, a struct of its own named after the backend and the operation, such as
 * cpu_kernel_sum, and one for all operations that are made of formulas: cpu_kernel_elementwise. */

#ifdef __cplusplus
}
#endif
