/* Between the files of a connection: connection.c has its socket's turns, connection_room.c what holds it up,
 * connection_read.c what it reads, connection_end.c its ends. Loop thread only. */
#pragma once

#include "server/worker/connection.h"

/* connection.c */
/* Whether a handshake must be done before bytes go either way. */
bool connection_is_opening(const struct connection *connection);
/* Asks the poll handle for the events that the connection can handle now. Call it after each change of these. */
void connection_watch(struct connection *connection);

/* connection_room.c */
/* There is room for operations. The owner is a connection. */
void connection_on_room(void *owner);
/* Whether reading must pause, because the connection has more in flight than it may or waits for a reply. If so, the
 * connection is marked again when the cause has ended. */
bool connection_over(struct connection *connection);
/* hold: no bytes may pass now. let: they may pass again. */
void connection_hold_rate(struct connection *connection);
void connection_let_rate(struct connection *connection);
/* Marks the connection for the next turn if the transport holds data that TLS has already read: poll() does not report
 * it. */
void connection_keep_reading(struct connection *connection);

/* connection_read.c */
/* Whether the client is gone altogether. A TCP socket notices it only when it has sent bytes and nobody takes them. */
bool connection_is_dead(const struct connection *connection);
/* Gives a client that has shut down its sending side more time to take its outstanding replies. */
void connection_stay(struct connection *connection);
/* Handles that the client has shut down its sending side. */
void connection_half_close(struct connection *connection);
/* For a client that has shut down its sending side: whether all replies have been sent, or its time is up. */
bool connection_is_over(const struct connection *connection, uint64_t now_ms);
/* Reads this turn's share. False: the connection is gone. */
bool connection_read(struct connection *connection);

/* connection_end.c */
/* The last frame has been sent: ends the session, in as many turns as it takes. Incoming bytes are then dropped until
 * the client closes. */
void connection_linger(struct connection *connection);
/* Drops the bytes that arrive meanwhile. The connection may be gone afterwards. */
void connection_discard(struct connection *connection);
