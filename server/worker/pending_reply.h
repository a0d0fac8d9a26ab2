/* A pending reply: a request waits for it until the engine's callback fills it and queues it as a frame; it is freed
 * when the frame has left. Its cost is charged to the connection from the request until the last byte has left, so
 * that the requests of a client that never reads are not read either. Loop thread only. */
#pragma once

#include "engine/session/session.h"
#include "server/worker/reply.h"
#include "server/worker/state.h"

struct compile;
struct connection;
struct outcome;
struct publish;
struct service;

struct pending_reply {
    struct reply reply;
    struct connection *connection;
    struct pending_reply *next, **previous; /* in the connection's list `pending`; previous NULL: not in it */
    uint64_t sequence, cost;
    uint64_t values;   /* bytes of `cost` that are a tensor's value, which is no host memory */
    uint64_t asked_ns; /* when a fetch was requested */
    bool once;  /* its request changes something, so the reply is remembered when it is queued (struct outcome) */
    bool begun; /* of a fetch: its first frame has been made */
    enum {
        PENDING_PLAIN,
        PENDING_FETCH,
        PENDING_WAIT,
        PENDING_COMPILE,
        PENDING_PUBLISH,
        PENDING_SAVED,
        PENDING_DATA
    } kind;
    union {
        struct feed feed;
        struct wait wait;
        struct compile *compile; /* the compiler's log is part of the reply */
        struct publish *publish;
        struct state_wait saved; /* until a change of names is on the disk */
        uint8_t *data;           /* malloc'ed; part of the reply */
    };
};

/* What a connection is to send. */
struct connection_output {
    struct reply_queue queue;
    struct pending_reply *pending; /* the requests that have no reply yet */
    uint64_t cost;                 /* bytes of replies, asked for and not yet sent; */
    uint64_t values;               /* those of them that are values of tensors, and no memory of the connection */
};
/* Charge and give back bytes of replies. */
void pending_reply_charge(struct connection *connection, uint64_t cost);
void pending_reply_discharge(struct connection *connection, uint64_t cost);

/* Each of these functions queues a reply, at once or later. STATUS_NO_HOST_MEMORY without memory for it. */
int pending_reply_message(struct connection *connection, unsigned type, uint64_t sequence,
                          const ProtobufCMessage *message);
/* The bytes of a tensor from `offset` on. */
int pending_reply_fetch(struct connection *connection, uint64_t sequence, uint64_t id, uint64_t offset);
/* Done, when the tensor is computed; id 0: when all operations enqueued so far are. */
int pending_reply_wait(struct connection *connection, uint64_t sequence, uint64_t id);
/* Compiles a kernel and binds it to the id. */
int pending_reply_compile(struct connection *connection, uint64_t sequence, uint64_t kernel, const char *source,
                          const char *name);
/* Called by the compilation when it is done. */
void pending_reply_compiled(struct pending_reply *pending);
/* Names values when they are computed. STATUS_AGAIN: call pending_reply_publish_on() in a later turn. */
int pending_reply_publish(struct connection *connection, uint64_t sequence, const Tensord__Publish *message);
int pending_reply_publish_on(struct connection *connection);
/* Done, now; `failure` NULL: the request has succeeded. Called when a Publish has ended. */
void pending_reply_done(struct pending_reply *pending, const struct failure *failure);
/* The request's change of the principal's names has been made, and waits for the disk. A client that loses its
 * connection and repeats the request then waits for the disk, too, and the change is not made twice. */
void pending_reply_changed(struct pending_reply *pending, const char *principal);
/* Done, when the principal's last change of names is on the disk, if state-sync makes replies wait for that. */
int pending_reply_saved(struct connection *connection, uint64_t sequence, const char *principal);
/* A message with a payload of at most FRAME_CHUNK bytes. `data` is malloc'ed, and taken over also on failure. */
int pending_reply_data(struct connection *connection, unsigned type, uint64_t sequence, const ProtobufCMessage *message,
                       uint8_t *data, size_t bytes);
/* Sends a remembered reply again. */
int pending_reply_outcome(struct connection *connection, const struct outcome *outcome);
/* FRAME_DONE, FRAME_KERNEL_COMPILED, FRAME_NAME_OPENED or FRAME_TRACE_DATA with an error. */
int pending_reply_fault(struct connection *connection, unsigned type, uint64_t sequence, const struct fault *fault);
/* The connection's last frame, an Error, which is not queued yet. NULL without memory. */
struct pending_reply *pending_reply_last(struct connection *connection, const struct fault *fault);

/* Drops all pending replies, which are never sent. False: the budget has ended before all are dropped. */
bool pending_reply_cancel_some(struct connection *connection);
/* Replies to the newest pending request with `fault`. */
void pending_reply_fail(struct connection *connection, const struct fault *fault);

/* Prints a reply that is about to be queued, if TENSORD_DEBUG contains the word wire. */
void pending_reply_print(const struct connection *connection, const struct reply *reply);

/* Allocates and frees the service's spare reply, with which a connection can say why it ends when there is no
 * memory. */
int pending_reply_reserve(struct service *service);
void pending_reply_unreserve(struct service *service);
