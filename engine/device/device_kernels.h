/* Kernels from clients: the part of a backend that compiles and launches them. Backends need not have it. */
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

enum { KERNEL_COMPILER_MAX = 128 };

/* The source to compile, and for which device. */
struct kernel_source {
    const char *text, *name; /* the source's text, the kernel's name; both borrowed */
    uint32_t target;         /* the device's architecture for the compiler: from device_kernels.target() */
};

/* The result of a compilation: code for one kind of device, which belongs to no process or session. One block of malloc(), which does
 * not change: any thread may read it. */
struct device_code {
    size_t bytes;       /* of `code` */
    const char *symbol; /* of the kernel in the code; within the block */
    uint8_t code[];
};

/* Code on the device, with its own copy of the source's variables. A backend's own struct begins with this. Only `next` changes after it
 * has been made. */
struct device_kernel {
    struct device_kernel *next; /* the engine's */
    /* The most that a launch may ask for; the caller has checked it. */
    uint32_t grid_max[3], block_max[3]; /* blocks; threads of a block, along x, y, z */
    uint32_t threads_max;               /* of a block */
    uint32_t shared_max;                /* bytes of dynamic shared memory */
    uint32_t n_parameters;
    uint32_t parameter_bytes[KERNEL_ARGUMENTS_MAX];
};

struct kernel_launch {
    const struct device_kernel *kernel;
    const char *name; /* for people; lives as long as the kernel */
    /* Takes the reason why the device refuses this launch: an ordinary error, such as out of memory. */
    struct report *report;
    uint32_t grid[3], block[3], shared;
    uint32_t n_arguments;
    uint64_t arguments[]; /* addresses, and numbers in the first bytes of their elements */
};

/* All functions except launch: any thread, several at a time. STATUS_DEVICE_LOST is a failure of the device; other codes tell what is
 * wrong with the source, or what is missing. */
struct device_kernels {
    uint32_t (*target)(const struct device *device);
    /* Compiles the kernel `name` of a source in the backend's language. Needs no device. May take from a tenth of a second to for ever, and
     * any amount of memory, depending on the source; the compiler may crash. Gives up when `cancelled` becomes true, as far as the
     * compiler allows. *log (NULL: none) is the caller's to free(), also on failure. */
    int (*compile)(const struct kernel_source *source, const _Atomic bool *cancelled, struct device_code **code,
                   char **log, struct fault *fault);
    /* Which compiler that is, in full: equal words, source and target give the same code. "": it is not known. */
    void (*compiler)(char words[KERNEL_COMPILER_MAX]);
    /* An estimate of the device memory that the code takes when it is loaded, with its variables. The code may come from any client:
     * STATUS_INVALID_ARGUMENT if what it says of itself does not fit its size. */
    int (*measure)(const struct device_code *code, uint64_t *bytes, struct fault *fault);
    /* Puts measured code on the device, so that the first launch need not do it. */
    int (*load)(struct device *device, const struct device_code *code, struct device_kernel **kernel,
                struct fault *fault);
    /* As the device's launch(), by the same thread. An error of this launch alone goes into its report, and STATUS_OK is returned. */
    int (*launch)(struct device *device, struct device_stream *stream, const struct kernel_launch *launch,
                  struct fault *fault);
    /* No launch runs the kernel any more, or the device has failed. May wait until the device is idle. */
    void (*release)(struct device *device, struct device_kernel *kernel);
};
