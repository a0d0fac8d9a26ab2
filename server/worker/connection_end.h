/* The ends of a connection: a last word to the client, the session's end, and giving back what both had, in as many
 * turns as that takes. Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/ops/status.h"

struct connection;

enum {
    CONNECTION_REPLY_STEPS = 4,  /* of the budget, for each reply that is taken back */
    CONNECTION_LINGER_MS = 1000, /* for the client to take its last frame */
};

struct connection_end {
    uint64_t deadline_ms; /* for Hello to come, or for the present step of the end; 0: none */
    char reason[256];     /* for the log */
    struct fault verdict; /* the reply to pending requests while the connection is given up, */
    bool silent;          /* unless they get none */
    bool unplugging;      /* the socket is lost, and the work that was under way on it is still being dropped */
    bool listed;          /* it is in service->giving_up */
};

/* Nobody may use the connection from now on; its memory is given back from the end of this turn on. Must not be called
 * from a frame handler or a callback of the engine. Takes NULL. */
void connection_destroy(struct connection *connection, const char *reason);
/* Sends the replies that are ready and an Error frame, then ends the connection. Pending requests get no reply. */
void connection_fail(struct connection *connection, const struct fault *fault);
/* As connection_fail(), but from the end of this turn on pending requests first get `fault` as their reply. */
void connection_give_up(struct connection *connection, const struct fault *fault);
/* Closes the socket and drops the data that was still to be read or written. It may take several turns; end.unplugging
 * is true meanwhile. */
void connection_unplug(struct connection *connection);
/* Takes the connection out of service->giving_up, if it is there. */
void connection_unmark(struct connection *connection);

/* The last frame has been sent: ends the session, in as many turns as it takes. Incoming bytes are then dropped until
 * the client closes. */
void connection_linger(struct connection *connection);
/* Drops the bytes that arrive meanwhile. The connection may be gone afterwards. */
void connection_discard(struct connection *connection);

/* Parts of a turn, as far as the budget goes. True: the connection is out of service->giving_up; or its memory is
 * free. */
bool connection_give_up_some(struct connection *connection);
bool connection_end_some(struct connection *connection);
