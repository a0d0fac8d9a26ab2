/* Streams, and the stream that the calling thread has chosen on each device. */
#pragma once

#include <stdint.h>

#include "client/tensord.h"

/* The open streams of a device, except the default stream. Under the device's lock. */
struct streams {
    struct td_stream *first;
    uint32_t last_number; /* the last number that was given out */
};

void streams_finish(struct streams *streams);

struct choice;

/* Every operation reads this; the model is explained in scope.h. NULL: the default stream on every device. */
extern _Thread_local __attribute__((tls_model("initial-exec"))) struct choice *stream_choices;

int stream_chosen(td_device *device, uint32_t *number);
/* The stream that this thread has set on the device; 0 by default. Under the lock. Fails if that stream was closed. */
static inline int stream_current(td_device *device, uint32_t *number) {
    *number = 0;
    return stream_choices ? stream_chosen(device, number) : 0;
}
/* The device closes: forgets this thread's choice. The choices of other threads are freed when these threads end. */
void stream_forget_device(const td_device *device);
