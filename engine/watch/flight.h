/* User kernels that are on the device: whom to name when it fails. The device's own kernels are not among them: they are
 * tested, a client's are not. Any thread. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "proto/ops/status.h"

enum { FLIGHT_MAX = 64, FLIGHT_NAME_MAX = 63 };

struct flight {
    pthread_mutex_t lock;
    unsigned next;
    struct flight_entry {
        const _Atomic uint64_t *completed; /* it has run to its end when this has come to `number`; NULL: none */
        uint64_t number;
        char name[FLIGHT_NAME_MAX + 1];
    } entries[FLIGHT_MAX];
};

void flight_init(struct flight *flight);
void flight_finish(struct flight *flight);
/* A launch is about to be put on the device; `completed` stays. Of more than FLIGHT_MAX the oldest is forgotten. */
void flight_note(struct flight *flight, const _Atomic uint64_t *completed, uint64_t number, const char *name);
/* Adds to the fault's words which of them have not run to their end. */
void flight_blame(struct flight *flight, struct fault *fault);
