/* A device that computes nothing: launches are counted and shown to a hook, which may block. For tests of the engine's
 * own rules: order, memory, cancellation, failure. */
#pragma once

#include <stdatomic.h>

#include "engine/device/device_impl.h"

struct null_device {
    struct device device;
    uint64_t memory_total;    /* bytes it gives out at most */
    uint64_t memory_reserved; /* bytes given out now */
    bool holds_back;          /* memory that comes back is not free before null_device_catch_up() */
    uint64_t memory_coming;   /* so much of it */
    _Atomic unsigned launches;
    /* Called for each launch by the submitting thread; may be NULL. Not 0: the device fails for good. */
    int (*hook)(struct null_device *device, const struct launch *launch);
    void *context;
    /* Of matrix products, asked when one is bound: whether it is taken (NULL: yes), and the workspace's bytes. */
    int (*accepts)(const struct launch *launch, struct fault *fault);
    uint64_t workspace;
    uint64_t workspaces; /* bytes that all workspaces are said to take */
};

/* Owned by the caller; closing it does nothing. */
void null_device_init(struct null_device *device, uint64_t memory_total);
void null_device_catch_up(struct null_device *device);
