/* Streams, and which of them the calling thread uses on which device. */
#pragma once

#include <stdint.h>

#include "client/tensord.h"

/* A device's open ones, but for the default one. Under its lock. */
struct streams {
    struct td_stream *first;
    uint32_t last_number; /* given out */
};

void streams_finish(struct streams *streams);

struct choice;

/* What every operation asks, as in scope.h. NULL: on every device the default one. */
extern _Thread_local __attribute__((tls_model("initial-exec"))) struct choice *stream_choices;

int stream_chosen(td_device *device, uint32_t *number);
/* The stream that this thread has set on the device; 0 by default. Under the lock. Fails for a closed one. */
static inline int stream_current(td_device *device, uint32_t *number) {
    *number = 0;
    return stream_choices ? stream_chosen(device, number) : 0;
}
/* The thread's choice goes with its device; those of other threads, with the threads. */
void stream_forget_device(const td_device *device);
