/* The engine's inside: the parts that the rooms own. */
#pragma once

#include "engine/engine.h"
#include "engine/memory/memory.h"
#include "engine/order/order.h"
#include "engine/program/kernel_impl.h"
#include "engine/program/recorded_impl.h"
#include "engine/session/session_impl.h"

struct engine {
    struct device *device;
    struct engine_options options;
    struct order order;
    struct memory memory;
    struct sessions sessions;
    struct kernel_store kernels;
    struct program *program;
    struct {
        uint64_t enqueued; /* as of the last tick */
        unsigned ticks;    /* for so many nothing has been enqueued, and nothing ran */
    } rest;
};
