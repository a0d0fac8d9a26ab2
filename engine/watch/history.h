/* What the device was given: for the report of a crash, and for the words of a failure. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "proto/ops/status.h"

/* ---- the last launches ---- */

/* The launches that the device was given last, for the report of a crash. Written by the submitter alone;
 * read by a signal handler, which takes no lock, so what is being written meanwhile may come out torn. */
enum { HISTORY_MAX = 32 };

struct history {
    _Atomic uint64_t count; /* of all that were noted; the last HISTORY_MAX are kept */
    struct history_entry {
        const _Atomic uint64_t *completed; /* it has run when this has come to `number` */
        uint64_t number;
        uint64_t session, sequence;
        unsigned opcode;
        char kernel[46]; /* a client's kernel has a name and no opcode; "": it is an operation */
        char label[56];  /* its beginning */
    } entries[HISTORY_MAX];
};

/* One of them, for a reader. */
struct history_operation {
    char name[48];  /* "matmul" */
    char label[56]; /* its beginning; "": it has none */
    uint64_t session,
        sequence; /* the session's number (struct session_limits); the operation's in it, 0: no client's */
    bool done;    /* it is known to have run */
};

static inline void history_copy(char *to, size_t size, const char *from) {
    size_t length = strnlen(from, size - 1);
    memcpy(to, from, length);
    to[length] = 0;
}

/* Called before a launch goes to the device. The launch has run when `*completed`, which stays valid, has come to `number`. `kernel`
 * NULL: it is an operation; `label` may be NULL. Only a dozen stores, since it is done for every operation. */
static inline void history_note(struct history *history, const _Atomic uint64_t *completed, uint64_t number,
                                uint64_t session, uint64_t sequence, unsigned opcode, const char *kernel,
                                const char *label) {
    uint64_t count = atomic_load_explicit(&history->count, memory_order_relaxed);
    struct history_entry *entry = &history->entries[count % HISTORY_MAX];
    entry->completed = completed;
    entry->number = number;
    entry->session = session;
    entry->sequence = sequence;
    entry->opcode = opcode;
    entry->kernel[0] = entry->label[0] = 0;
    if (__builtin_expect(kernel != NULL, 0))
        history_copy(entry->kernel, sizeof entry->kernel, kernel);
    if (__builtin_expect(label != NULL, 0))
        history_copy(entry->label, sizeof entry->label, label);
    atomic_store_explicit(&history->count, count + 1, memory_order_release);
}

/* The last launches, newest first; returns how many. A signal handler may call it, too. */
unsigned history_last(const struct history *history, struct history_operation *operations, unsigned capacity);

/* ---- user kernels ---- */

/* Clients' kernels that are on the device, which are named when it fails. The device's own kernels are not noted: they are tested,
 * clients' kernels are not. Any thread. */
enum { FLIGHT_MAX = 64, FLIGHT_NAME_MAX = 63 };

struct flight {
    pthread_mutex_t lock;
    unsigned next;
    struct flight_entry {
        const _Atomic uint64_t
            *completed; /* the kernel has run when this has come to `number`; NULL: there is no entry */
        uint64_t number;
        char name[FLIGHT_NAME_MAX + 1];
    } entries[FLIGHT_MAX];
};

void flight_init(struct flight *flight);
void flight_finish(struct flight *flight);
/* A launch is about to be put on the device; `completed` stays valid. Of more than FLIGHT_MAX launches the oldest is forgotten. */
void flight_note(struct flight *flight, const _Atomic uint64_t *completed, uint64_t number, const char *name);
/* Adds to the fault's message which of these kernels have not run to their end. */
void flight_blame(struct flight *flight, struct fault *fault);
