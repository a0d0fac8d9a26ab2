/* A trace of a worker's device on its way to the client that asked for it (TraceStart): the engine records, and each turn of
 * the loop sends a part of what it has, while the client keeps up. One at a time. Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/wire/tensord.pb-c.h"

struct connection;
struct fault;
struct service;
struct trace_feed_room;

struct trace_feed {
    struct connection *connection; /* NULL: nobody traces */
    uint64_t sequence, until_ms;
    bool stopped;       /* what is left is sent */
    unsigned in_flight; /* frames that have not left */
    struct trace_feed_room *room;
};

/* `session` 0: of all that the client may see. STATUS_INVALID_ARGUMENT, STATUS_LIMIT where somebody traces already, or why the
 * engine does not. */
int trace_feed_start(struct connection *connection, uint64_t sequence, uint32_t milliseconds, uint64_t session,
                     struct fault *fault);
/* The connection sends no more. */
void trace_feed_drop(struct connection *connection);
/* A part of a turn; true: there is more to send at once. */
bool trace_feed_turn(struct service *service);
/* Notes the counters, about ten times a second. */
void trace_feed_tick(struct service *service);
