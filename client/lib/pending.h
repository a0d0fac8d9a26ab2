/* Requests that wait for a reply. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/lib/queue.h"
#include "client/tensord.h"
#include "proto/wire/frame.h"

enum request_kind {
    REQUEST_WAITED,   /* a caller waits and owns the struct */
    REQUEST_CALLBACK, /* requests of this kind and of the next ones are freed when they have ended */
    REQUEST_FD,
    REQUEST_TEST,
};

struct request {
    struct item item;
    struct completion completion;
    struct request *next, *previous;
    enum request_kind kind;
    enum frame_type asked, reply;
    uint64_t sequence;
    uint64_t id;              /* the id of the request's tensor; 0: none */
    struct td_tensor *tensor; /* NULL: none, or released meanwhile */
    struct td_tensor *held;   /* a tensor whose release waits for the reply; NULL: none */
    uint8_t *data;            /* FETCH: where the bytes go; [bytes]. KERNEL_COMPILED: the log, malloc'ed; NULL: none.
                                 NAME_LIST: the names, malloc'ed */
    struct tensor_type *type; /* NAME_OPENED: where the type goes */
    bool more;                /* NAME_LIST: there are more names */
    uint64_t bytes, received;

    bool sent;        /* it has left the queue, */
    uint64_t frames;  /* behind so many counted frames */
    bool elsewhere;   /* its frame was an item of its own, which does not exist any more, */
    bool again;       /* so if the reply was lost with a connection, the caller must send the request again */
    atomic_bool done; /* written under the lock */
    int status;
    td_error error; /* filled unless status is 0 */
    pthread_cond_t wake;
    bool waiting; /* the caller sleeps on `wake` */

    void (*callback)(void *user, int status);
    void *user;
    int fd;
    uint8_t frame[FRAME_HEADER_BYTES + 24];
};

struct pending {
    struct request *first, *last;
    unsigned n_async;
    uint64_t next_sequence;
    uint64_t ping; /* the sequence of the last Ping; 0: none */
};

void pending_init(struct pending *pending);

/* All functions below are called under the device's lock, except pending_ask(). */

/* Fills a request. It has a frame of its own for FRAME_FETCH and FRAME_WAIT, which need a tensor, and for FRAME_SYNC and
 * FRAME_PING; a request of another type goes to pending_push_frame(). */
void request_init(struct request *request, enum request_kind kind, enum frame_type type, struct td_tensor *tensor);
/* For a malloc'ed request that is not pending. */
void request_destroy(struct request *request);
/* Numbers the request and pushes it behind everything enqueued so far; a Sync also goes behind all uploads. */
void pending_push(struct td_device *device, struct request *request);
/* Numbers a request whose frame is in an item of its own, and pushes that item. Takes over the frame. A request that
 * has a number already keeps it: the library repeats that request. */
void pending_push_frame(struct td_device *device, struct request *request, struct frame_item *frame);
/* Flushes, and waits for the end of a REQUEST_WAITED; returns its status. */
int pending_wait(struct td_device *device, struct request *request);
/* Without the lock: pushes a REQUEST_WAITED and waits for its end. Stores the error; returns its code. */
int pending_ask(struct td_device *device, struct request *request);
/* As pending_ask(), for a malloc'ed REQUEST_WAITED, which it takes over: the program may end the wait. Then the request goes on as a
 * REQUEST_CALLBACK, and the call fails with STATUS_CANCELLED. */
int pending_ask_interruptible(struct td_device *device, struct request *request, const td_interrupt *interrupt);
struct request *pending_find(struct pending *pending, uint64_t sequence);
/* Ends a request with `error`, or (NULL) with success, and takes it off the list. */
void pending_complete(struct td_device *device, struct request *request, const td_error *error);
void pending_fail_all(struct td_device *device, const td_error *error);
/* The session continues over a new connection: repeats the requests that were sent before, ahead of the unsent ones. */
void pending_ask_again(struct td_device *device);
/* Sends a Ping, whose reply also shows which frames have been handled; does nothing if a Ping is under way already, or
 * if there is no memory. */
void pending_ping(struct td_device *device);
