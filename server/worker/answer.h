/* An answer that a request is waiting for: the engine's callback turns it into a reply frame, which is written and then
 * freed. Its cost is charged to the connection from the request until the last byte has left, so that a client that
 * never reads stops being read. Loop thread only. */
#pragma once

#include "engine/session/session.h"
#include "server/worker/feed.h"
#include "server/worker/state.h"

struct compile;
struct connection;
struct outcome;
struct publish;
struct service;

struct answer {
    struct reply reply;
    struct connection *connection;
    struct answer *next, **previous; /* among the connection's pending ones; previous is NULL once called */
    uint64_t sequence, cost;
    uint64_t asked_ns; /* of a fetch */
    bool once;         /* remembered when it is sent: its request changes something */
    bool begun;        /* of a fetch: the first frame has been made */
    enum { ANSWER_PLAIN, ANSWER_FETCH, ANSWER_WAIT, ANSWER_COMPILE, ANSWER_PUBLISH, ANSWER_SAVED, ANSWER_DATA } kind;
    union {
        struct feed feed;
        struct wait wait;
        struct compile *compile; /* its log is part of the reply */
        struct publish *publish;
        struct state_wait saved; /* a change of names is on the disk */
        uint8_t *data;           /* malloc'ed; part of the reply */
    };
};

/* What a connection is to send. */
struct answers {
    struct reply_queue queue;
    struct answer *pending; /* the requests that have no reply yet */
    uint64_t cost;          /* bytes of replies, asked for and not yet sent */
};
/* Charge and give back bytes of replies. */
void answer_charge(struct connection *connection, uint64_t cost);
void answer_discharge(struct connection *connection, uint64_t cost);

/* These queue a reply at once or later. STATUS_NO_HOST_MEMORY without memory for it. */
int answer_message(struct connection *connection, unsigned type, uint64_t sequence, const ProtobufCMessage *message);
/* The bytes from `offset` on. */
int answer_fetch(struct connection *connection, uint64_t sequence, uint64_t id, uint64_t offset);
/* id 0: everything enqueued so far. */
int answer_wait(struct connection *connection, uint64_t sequence, uint64_t id);
/* Compiles a kernel and binds it to the id. */
int answer_compile(struct connection *connection, uint64_t sequence, uint64_t kernel, const char *source,
                   const char *name);
/* Called by the compilation when it is done. */
void answer_compiled(struct answer *answer);
/* Names values when they are there. STATUS_AGAIN: it goes on with answer_publish_on(), in a later turn. */
int answer_publish(struct connection *connection, uint64_t sequence, const Tensord__Publish *message);
int answer_publish_on(struct connection *connection);
/* Called when that is over; `failure` NULL: it has been done. */
void answer_published(struct answer *answer, const struct failure *failure);
/* The change of the principal's names that it answers has been made, and waits for the disk: a client that loses its
 * connection and asks again is to wait for that, and not to make the change once more. */
void answer_changed(struct answer *answer, const char *principal);
/* Done, when the principal's last change of names is where it has to be. */
int answer_saved(struct connection *connection, uint64_t sequence, const char *principal);
/* A message with a payload of at most FRAME_CHUNK bytes, malloc'ed, which it takes over also on failure. */
int answer_data(struct connection *connection, unsigned type, uint64_t sequence, const ProtobufCMessage *message,
                uint8_t *data, size_t bytes);
/* What has been answered before. */
int answer_outcome(struct connection *connection, const struct outcome *outcome);
/* FRAME_DONE, FRAME_KERNEL_COMPILED or FRAME_NAME_OPENED with an error, or the connection's last frame where `type` is FRAME_ERROR. */
struct answer *answer_fault(struct connection *connection, unsigned type, uint64_t sequence, const struct fault *fault);

/* Takes back what has not been answered yet, silently. False: the budget has ended before it has. */
bool answer_cancel_some(struct connection *connection);
/* Answers the newest with `fault`. */
void answer_fail(struct connection *connection, const struct fault *fault);

/* Prints a reply that is about to be queued, where TENSORD_DEBUG has the word wire. */
void answer_print(const struct connection *connection, const struct reply *reply);

/* The service's spare answer, with which a connection says why it ends where memory is refused. */
int answer_reserve(struct service *service);
void answer_unreserve(struct service *service);
