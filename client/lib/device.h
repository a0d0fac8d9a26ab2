/* A device as its client sees it: one session, over one data connection at a time (resume.h).
 *
 * Threads. Everything in a td_device is under its `lock`, except where a field's comment says otherwise. Three roles
 * pass from thread to thread under the lock, so that no thread holds the lock during a system call:
 *   sender  (sender.h)   packs and sends. A thread that flushes takes the role; if another thread has it, that thread
 *                        sends this thread's work, too.
 *   reader  (reader.h)   receives and completes requests. A caller that waits takes the role, so that a fetch needs no
 *                        thread switch here; of several callers one reads, and the others sleep until it passes the role on.
 *   io      (io.h)       the device's own thread: sends what callers have left, reads while only asynchronous requests
 *                        are pending, watches for the end of the connection, and calls callbacks.
 * Lock order: connection, scopes, device. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/lib/batch.h"
#include "client/lib/error.h"
#include "client/lib/io.h"
#include "client/lib/kernel.h"
#include "client/lib/pending.h"
#include "client/lib/program.h"
#include "client/lib/queue.h"
#include "client/lib/reader.h"
#include "client/lib/resume.h"
#include "client/lib/sender.h"
#include "client/lib/stream.h"
#include "client/lib/tensor.h"
#include "client/tensord.h"
#include "proto/net/transport.h"

struct scope_part;
struct td_connection;

struct td_device {
    struct td_connection *connection;
    struct td_device *next; /* of the connection */
    char name[TD_NAME_MAX]; /* constant */
    uint64_t serial;        /* constant; never the same twice in a process */
    /* Has a lock of its own. It is replaced under the device's lock, while no thread reads or sends. The number of its
     * socket is constant. */
    struct transport transport;

    pthread_mutex_t lock;
    bool lost; /* for good: every call fails with `cause` */
    td_error cause;

    struct streams streams;
    struct kernels kernels;
    struct programs programs;
    struct tensor_pool tensors;
    struct scope_part *parts; /* one for each scope that holds handles of this device; under the scopes' lock too */
    struct batches batches;
    struct queue queue;
    struct sender sender;
    struct pending pending;
    struct reader reader;
    struct io io;
    struct resume resume;
};

/* Runs a session over `transport`, and takes the transport over (also on failure). Does not block. */
int device_create(struct transport *transport, const char *name, size_t queue_bytes, size_t chunk_bytes,
                  const struct resume *resume, td_device **device, struct fault *fault);
/* Sends the queue, for at most `timeout_ms`, then ends the session. Takes NULL. */
void device_destroy(td_device *device, unsigned timeout_ms);

/* Under the lock: 0, or the stored error of a lost device. */
static inline int device_check(const td_device *device) {
    return device->lost ? error_store(&device->cause) : 0;
}
/* Under the lock: stores the error that the queue has no room for `bytes`; returns its code. */
int device_no_room(const td_device *device, size_t bytes);
/* Under the lock: 0 if `bytes` may be queued; otherwise stores the error of a lost device or a full queue. */
static inline int device_admit(const td_device *device, size_t bytes) {
    int code = device_check(device);
    return code || batches_room(&device->batches, bytes) ? code : device_no_room(device, bytes);
}
/* Under the lock: the device is lost for good; all pending requests fail with `cause`. Only the first call has an effect. */
void device_lose(td_device *device, const td_error *cause);

/* Under the lock: the connection has ended. The device continues over another connection. If `final` is set, or if the
 * program wants no reconnection, the device is lost instead. */
void device_interrupt(td_device *device, const td_error *cause, bool final);

/* Under the lock: queues the releases so far, and moves the open batch to the send queue. */
void device_seal(td_device *device);
/* Under the lock: the same, for a batch that is full; true: the I/O thread must be woken. */
bool device_seal_full(td_device *device);
/* Under the lock: seals, and sends as much as the socket takes; true: the I/O thread must be woken for the rest. */
bool device_flush(td_device *device);
