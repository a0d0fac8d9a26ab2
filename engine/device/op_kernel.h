/* What a backend has for one operation: a kernel, with what it takes and what it needs; or the operations that make it up; or the
 * reason why there is nothing. Its table has one entry for each operation of OP_KERNEL_LIST, or it does not compile.
 *
 * All functions are called by the engine's owner thread when it binds an operation; they wait for nothing. */
#pragma once

#include <stdbool.h>

#include "engine/device/launch.h"

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

/* Defines a backend's table from its rows: ROWS(K) has a K(ID, entry) for each operation, where the entry is a backend's own
 * struct with `base`. An operation without a row is an undeclared OP_ID_HAS_NO_ENTRY. */
#define OP_KERNEL_ENTRY(ID, entry) [OP_##ID] = &(entry).base,
#define OP_KERNEL_FOUND(ID, entry) OP_##ID##_HAS_NO_ENTRY,
#define OP_KERNEL_WANTED(ID, number, name) _Static_assert(OP_##ID##_HAS_NO_ENTRY >= 0, name);
#define OP_KERNEL_TABLE(table, ROWS)                                                                                   \
    enum { ROWS(OP_KERNEL_FOUND) };                                                                                    \
    OP_KERNEL_LIST(OP_KERNEL_WANTED)                                                                                   \
    static const struct op_kernel *const table[OP_CODE_MAX] = {ROWS(OP_KERNEL_ENTRY)}
