/* The socket of a connection: what its poll handle watches, the TLS handshake, reading, writing, and a client that has shut
 * down its sending side. Frames are read and handled while the session has room and the turn has time; otherwise the rest
 * waits in the socket. A session may lose its socket and get another one (server/worker/lease.h). Loop thread
 * only. */
#pragma once

#include <stdbool.h>
#include <uv.h>

#include "proto/net/transport.h"
#include "proto/wire/frame.h"

struct connection;

enum {
    CONNECTION_WRITE_BYTES = 512 << 10, /* written in one turn */
    /* For the next reply to leave over TCP, where a client that died looks like one that still reads. It is short,
     * because a dead client's memory is wanted back within a second. Over a Unix socket, which tells the two apart, it
     * is limits.drain_timeout_ms. */
    CONNECTION_LEAVE_TCP_MS = 500,
};

enum {
    CONNECTION_READ_BYTES = 1 << 20, /* read in one turn */
    CONNECTION_FRAME_STEPS = 16,     /* of the budget, for each frame, */
    CONNECTION_STEP_BYTES = 1024,    /* and one for so many bytes */
    CONNECTION_BUFFER_BYTES = 64 << 10,
    CONNECTION_LARGE_MS = 1000, /* after the last message that needed more, the buffer is as small again */
};

struct connection_socket {
    uv_poll_t *poll; /* NULL: the session has no socket now */
    struct transport transport;
    struct handshake *handshake; /* of TLS, while another thread takes a step of it and owns the transport; else NULL */
    bool tcp;
    int events;        /* that the poll handle watches for */
    bool blocked;      /* the socket takes no more bytes now */
    uint64_t leave_ms; /* the client has shut down its sending side: its replies may leave until then; 0: it has not */
    bool eof;          /* and all that it sent has been read */
    uint64_t guest;    /* the number under which the front counts the socket; 0: the front does not */
    bool kept;         /* it came in through a kept place (server/front/places.h) and has not settled */
};

struct connection_input {
    struct frame_reader reader;
    bool unread;       /* there is something to read, and the turn had no time for it */
    bool draining;     /* what has come is handled, and nothing more is read */
    bool heard;        /* since the last tick the client has sent something other than a Ping */
    uint64_t large_ms; /* when a message last came that needed a larger buffer */
};

/* Asks the poll handle for the events that the connection can handle now. Call it after each change of these. */
void connection_watch(struct connection *connection);
/* Whether a handshake must be done before bytes go either way. */
bool connection_is_opening(const struct connection *connection);
/* Logs that the connection is refused before its session began, and why. */
void connection_refused(struct connection *connection, const char *reason);
/* Writes this turn's share of the replies. The connection may be gone afterwards. */
void connection_flush(struct connection *connection);

/* Continues with the frames that the reader holds, and with what is unread. The connection may be gone afterwards. */
void connection_resume(struct connection *connection);
/* Marks the connection for the next turn if the transport holds data that TLS has already read: poll() does not report
 * it. */
void connection_read_on(struct connection *connection);
/* Takes what has been received until now and reads no more. */
void connection_drain(struct connection *connection);

/* Whether the client is gone altogether. A TCP socket notices it only when it has sent bytes and nobody takes them. */
bool connection_is_dead(const struct connection *connection);
/* Whether somebody may still wait for something: the client itself, or a device to which a copy is on its way. */
bool connection_owes(const struct connection *connection);
/* Gives a client that has shut down its sending side more time to take its outstanding replies. Over TCP that is long
 * only while bytes are under way: a dead client's host would have reset the connection for them. */
void connection_stay(struct connection *connection);
/* Handles that the client has shut down its sending side. */
void connection_half_close(struct connection *connection);
/* For a client that has shut down its sending side: whether all replies have been sent, or its time is up. */
bool connection_is_over(const struct connection *connection, uint64_t now_ms);

/* Tells the front that the client has sent Hello. */
void connection_greet(struct connection *connection);
/* The connection continues its session: from now on its kept place counts like any other place. */
void connection_settle(struct connection *connection);
/* Tells the front to stop counting this connection's socket. */
void connection_leave(struct connection *connection);
/* Takes over the socket and the frame reader of `fresh`; the caller must then destroy `fresh`. */
void connection_adopt(struct connection *connection, struct connection *fresh);
/* Closes the socket, and drops what the reader has; nothing is read or written any more. */
void connection_close(struct connection *connection);
