/* A trace of the worker's device for the client that asked for it (TraceStart): the engine records, and each turn of
 * the loop sends a part of the records, as fast as the client reads. One trace at a time.
 *
 * Principals take turns: whoever is refused because of another one's trace may try again. The other one's present trace
 * goes on, for a minute at most, but if it then begins a further one, that ends as soon as somebody else asks. Admins'
 * traces end those of users, and are not ended by anybody. Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/wire/tensord.pb-c.h"
#include "server/users/principal.h"

struct connection;
struct fault;
struct service;
struct trace_feed_room;

/* Whose turn it was, and whether it has been long enough. */
struct trace_feed_turn {
    char key[PRINCIPAL_NAME_BYTES]; /* of the principal of the present or last trace */
    bool awaited;                   /* another principal has been refused since that one's turn began */
};

struct trace_feed {
    struct connection *connection; /* NULL: there is no trace */
    uint64_t sequence, until_ms;
    bool yields;        /* it ends when another principal asks for a trace */
    bool stopped;       /* recording has ended, and the last records are being sent */
    unsigned in_flight; /* frames that have not left yet */
    struct trace_feed_room *room;
    struct trace_feed_turn turn; /* outlives the trace */
};

/* `session` 0: all sessions that the client may see. STATUS_INVALID_ARGUMENT; STATUS_LIMIT: there is a trace already;
 * or why the engine does not record. */
int trace_feed_start(struct connection *connection, uint64_t sequence, uint32_t milliseconds, uint64_t session,
                     struct fault *fault);
/* The connection is ending: ends its trace, if it has one. */
void trace_feed_drop(struct connection *connection);
/* Part of a turn. True: there is more to send at once. */
bool trace_feed_turn(struct service *service);
/* Records the counters; call it about ten times a second. */
void trace_feed_tick(struct service *service);
