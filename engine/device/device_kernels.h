/* Kernels that clients bring: the part of a backend that compiles and launches them. A backend without it has none. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/ops/kernel.h"
#include "proto/ops/status.h"

struct device;
struct device_stream;
struct report;

/* What to compile, and for what. */
struct kernel_source {
    const char *text, *name; /* the kernel's; both borrowed */
    uint32_t target;         /* what the device is to its compiler: of device_kernels.target() */
};

/* What a compilation made: code for one kind of device, of no process or session. One block of malloc(), and everybody's
 * to read. */
struct device_code {
    size_t bytes;       /* of `code` */
    const char *symbol; /* the kernel's in it; within the block */
    uint8_t code[];
};

/* Code on the device, with variables of its own where the source has such; a backend's own struct begins with this. Does not
 * change once it is made, but for the link. */
struct device_kernel {
    struct device_kernel *next; /* the engine's */
    /* What a launch may ask for; whoever launches keeps to it. */
    uint32_t grid_max[3], block_max[3]; /* blocks; threads of a block, along x, y, z */
    uint32_t threads_max;               /* of a block */
    uint32_t shared_max;                /* bytes of dynamic shared memory */
    uint32_t n_parameters;
    uint32_t parameter_bytes[KERNEL_ARGUMENTS_MAX];
};

struct kernel_launch {
    const struct device_kernel *kernel;
    const char *name; /* for people; lives as long as the kernel */
    struct report
        *report; /* takes what the device refuses this launch for: ordinary errors, out of memory among them */
    uint32_t grid[3], block[3], shared;
    uint32_t n_arguments;
    uint64_t arguments[]; /* addresses and numbers, these in the first bytes of theirs */
};

/* All but launch: any thread, several at a time. STATUS_DEVICE_LOST is a failure of the device, all else one of the source, or
 * of what would have to be there. */
struct device_kernels {
    uint32_t (*target)(const struct device *device);
    /* Compiles `name` of a source in the backend's language, without a device: also in a process that has none. Takes
     * from a tenth of a second to for ever, and as much memory as the source makes it; the compiler may crash. Gives up
     * when `cancelled` becomes true, as far as the compiler allows. *log (NULL: none) is the caller's to free(), also on
     * failure. */
    int (*compile)(const struct kernel_source *source, const _Atomic bool *cancelled, struct device_code **code,
                   char **log, struct fault *fault);
    /* The device memory that the code takes when it is loaded, with its variables: an estimate. The code may come from
     * anybody: STATUS_INVALID_ARGUMENT where what it says of itself does not fit its size. */
    int (*measure)(const struct device_code *code, uint64_t *bytes, struct fault *fault);
    /* Puts what has been measured on the device, so that the first launch need not. */
    int (*load)(struct device *device, const struct device_code *code, struct device_kernel **kernel,
                struct fault *fault);
    /* As the device's launch(), and by the same thread. What is wrong with this launch alone goes into its report, and
     * is no error here. */
    int (*launch)(struct device *device, struct device_stream *stream, const struct kernel_launch *launch,
                  struct fault *fault);
    /* Nothing runs it any more, or the device has failed. May wait until the device is idle. */
    void (*release)(struct device *device, struct device_kernel *kernel);
};
