/* What a backend implements. Callers include device.h; only backends and engine/ itself include this. */
#pragma once

#include "engine/device.h"
#include "engine/launch.h"

/* Threads: open, close, describe, reserve and release are called by the engine's owner thread; stream_create,
 * stream_destroy and launch by whichever thread holds the submitter role, never by two at once. A launch may use worker
 * threads of the backend's own, and has finished with all operands when it returns (capability `synchronous`). */
struct device_vtable {
    const char *kind; /* "cpu" */
    int (*open)(const struct device_options *options, struct device **device, struct fault *fault);
    void (*close)(struct device *device);
    void (*describe)(const struct device *device, struct device_info *info);

    /* Memory segments for the pool, aligned to 4096 bytes at least. Contents are unspecified. reserve returns
     * STATUS_OUT_OF_MEMORY where the device has no more. */
    int (*reserve)(struct device *device, size_t bytes, void **segment, struct fault *fault);
    void (*release)(struct device *device, void *segment, size_t bytes);

    /* Runs one launch in its normal form (engine/launch.h). An error here is a failure of the device, not of the data:
     * it is sticky, and the worker ends. Data errors go into launch->report. */
    int (*launch)(struct device *device, const struct launch *launch, struct fault *fault);

    /* Whether there is a kernel for this operation with this dtype presented (op_operand_dtype of its last input, or
     * the result's where it has none), and what it needs besides can be had: STATUS_OK, or STATUS_UNSUPPORTED with the
     * reason. The engine asks before it binds, on the owner's thread. */
    int (*supports)(struct device *device, unsigned opcode, enum dtype dtype, struct fault *fault);
};

/* A backend's own struct begins with this. */
struct device {
    const struct device_vtable *vtable;
};
