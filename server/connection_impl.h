/* Between the files of a connection: connection.c has its socket's turns, connection_room.c what holds it up,
 * connection_read.c what it reads, connection_end.c its ends. Loop thread only. */
#pragma once

#include "server/connection.h"

/* connection.c */
/* Whether a handshake must be done before bytes go either way. */
bool connection_is_opening(const struct connection *connection);
/* Asks the poll handle for what is of use now. After whatever changes that. */
void connection_watch(struct connection *connection);

/* connection_room.c */
/* There is room for operations. The owner is a connection. */
void connection_on_room(void *owner);
/* Whether it has more in flight than it may, or waits for an answer; then something will mark it when it has not. */
bool connection_over(struct connection *connection);
/* No bytes may pass now. */
void connection_hold_rate(struct connection *connection);
void connection_let_rate(struct connection *connection);
/* Of what the transport has read ahead no poll will tell. */
void connection_keep_reading(struct connection *connection);

/* connection_read.c */
/* Whether the client is gone altogether. A TCP socket knows only after sending something in vain. */
bool connection_is_dead(const struct connection *connection);
/* Gives the client, which has shut down its side, time for what it is owed. */
void connection_stay(struct connection *connection);
/* It has shut down its side. */
void connection_half_close(struct connection *connection);
/* Whether all has been said to a client that says nothing more, or its time is up. */
bool connection_is_over(const struct connection *connection, uint64_t now_ms);
/* Reads this turn's share. False: the connection is gone. */
bool connection_read(struct connection *connection);

/* connection_end.c */
/* All is said: the session ends, in as many turns as it takes, and what comes then is dropped until the client closes. */
void connection_linger(struct connection *connection);
/* What comes meanwhile. The connection may be gone afterwards. */
void connection_discard(struct connection *connection);
