/* The attributes of an operation `kernel` as integers, for tests that launch without the client library. */
#pragma once

#include "proto/ops/kernel.h"
#include "proto/ops/op.h"

struct launch_ints {
    int64_t values[OP_INTS_MAX];
    unsigned count;
};

#define LAUNCH_LIST(...)                                                                                               \
    { sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]) { __VA_ARGS__ } }

/* They must fit. */
static inline void launch_ints_write(struct launch_ints *out, const struct kernel_attributes *launch) {
    const struct op_ints *lists[] = {&launch->grid, &launch->block, &launch->arguments, &launch->numbers,
                                     &launch->results};
    out->count = 2;
    out->values[0] = launch->kernel;
    out->values[1] = launch->shared;
    for (int i = 0; i < 5; i++) {
        if (i < 4)
            out->values[out->count++] = lists[i]->count;
        for (unsigned k = 0; k < lists[i]->count; k++)
            out->values[out->count++] = lists[i]->values[k];
    }
}
