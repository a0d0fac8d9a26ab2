/* Why a connection's frames wait: its session or its principal has too much in flight, or its principal has used up
 * its bytes a second. Each cause that ends marks the connection, so that a later turn continues with its frames. Loop
 * thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct connection;

struct throttle {
    bool room;           /* reading waits for operations of the session to finish, */
    bool principal;      /* for operations of the principal's other sessions, */
    bool output;         /* for replies to leave, */
    bool staging;        /* or for staging memory for an upload */
    bool rate;           /* neither reading nor writing until more bytes may pass */
    int64_t grant;       /* bytes that may pass until the next tick */
    uint64_t operations; /* in flight, as they were last added to the principal's sum */
};

/* Whether reading must pause, because the connection has more in flight than it may, or waits for a reply. If so, the
 * connection is marked again when the cause has ended. */
bool throttle_holds(struct connection *connection);
/* The session has room for operations again. The owner is a connection. */
void throttle_on_room(void *owner);
/* There is staging memory for the upload that has been put off. */
void throttle_on_staging(struct connection *connection);

/* No bytes may pass now. */
void throttle_hold_rate(struct connection *connection);
/* They may pass again; nothing is read or written yet. */
void throttle_let_rate(struct connection *connection);
/* They may pass again: continues. The connection may be gone afterwards. */
void throttle_on_rate(struct connection *connection);
