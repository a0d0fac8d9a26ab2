/* User kernels of a device. */
#pragma once

#include <stdint.h>

/* Under the device's lock. */
struct kernels {
    struct td_kernel *first;
    uint64_t last_id; /* the last id that was given out */
};

void kernels_finish(struct kernels *kernels);
