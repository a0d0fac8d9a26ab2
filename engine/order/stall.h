/* The watch over a device that has stopped completing work. Owner thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct order;
struct stream;

/* What the watch found when it looked at a stream last. */
struct stream_watch {
    bool due; /* its oldest work on the device waits for nothing else */
    uint64_t completed, idle_ns;
    uint64_t weight; /* of all work on the device when that work became the oldest */
};

/* What the watch found when it looked at all streams last. */
struct order_watch {
    uint64_t completed, looked_ns;
    bool busy;
    uint64_t idle_ns;          /* for so long the device has had work, and completed none of it */
    uint64_t rest_ns;          /* for so long the device has had nothing to do */
    const struct stream *told; /* the stream that was reported last, and how many of its records had completed then */
    uint64_t told_at;
};

/* The work of a device that has stopped completing work. engine_stalled() says when that is. */
struct order_stall {
    uint64_t ns;
    char operation[320];
    const struct stream *stream;
};
bool order_stalled(struct order *order, uint64_t timeout_ns, struct order_stall *stall);
void order_stall_again(struct order *order);
