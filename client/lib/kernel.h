/* User kernels of a device. */
#pragma once

#include <stdint.h>

#include "proto/ops/kernel.h"

/* Recordings and programs that launch it hold a kernel beside the caller, so that others can run it, and files have its source. */
struct td_kernel {
    struct td_device *device;
    struct td_kernel *next, *previous; /* under the device's lock, */
    unsigned holders;                  /* as are these */
    uint64_t id;
    char *source;
    char name[KERNEL_NAME_MAX + 1];
};

/* Under the device's lock. */
struct kernels {
    struct td_kernel *first;
    uint64_t last_id; /* the last id that was given out */
};

void kernels_finish(struct kernels *kernels);

/* Under the device's lock. NULL: no kernel that anybody holds has this id. */
struct td_kernel *kernels_find(const struct kernels *kernels, uint64_t id);
/* Under the device's lock: the last holder gives the kernel back to the daemon. */
void kernel_let_go(struct td_kernel *kernel);
