/* User kernels. */
#pragma once

#include <stdint.h>

/* A device's. Under its lock. */
struct kernels {
    struct td_kernel *first;
    uint64_t last_id; /* given out */
};

void kernels_finish(struct kernels *kernels);
