/* One client's connection to a device: its socket, frame reader and reply queue, and the session behind it.
 *
 * connection.c has its beginning and its end, connection_socket.c its socket: TLS, reading, and writing. Frames are read
 * while the session has room for operations, replies leave, and the turn has time; the rest waits in the socket. A client
 * that breaks the protocol gets an Error as its last frame. A client that shuts down its sending side still gets its
 * outstanding replies, within a bounded time. When the client is gone the connection ends at once; but a session with a
 * lease stays, without a socket, and may get another one (server/worker/lease.h), and what had come before the end is
 * handled as far as nothing makes it wait. Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "engine/session/session.h"
#include "proto/net/transport.h"
#include "proto/wire/frame.h"
#include "server/ipc/peer.h"
#include "server/worker/lease.h"
#include "server/worker/pending_reply.h"
#include "server/worker/reply.h"
#include "server/worker/request.h"
#include "server/worker/service.h"

enum {
    CONNECTION_NAME_BYTES = 64,
    CONNECTION_WRITE_BYTES = 512 << 10, /* written in one turn */
    CONNECTION_REPLY_STEPS = 4,         /* of the budget, for each reply that is taken back */
    CONNECTION_BUFFER_BYTES = 64 << 10, /* of the frame reader, except for messages that need more */
};

struct connection_options {
    struct service *service;
    uint64_t session;        /* number of the session */
    bool kept;               /* the connection came through a kept place (server/front/places.h) */
    const struct peer *peer; /* copied */
    struct tls_context *tls; /* NULL: in the clear */
};

enum connection_state {
    CONNECTION_OPEN,
    CONNECTION_GIVING_UP, /* reads nothing; pending requests get end.verdict as their reply, and then the client does */
    CONNECTION_CLOSING,   /* reads nothing, and writes the queued replies; its memory is given back after that */
    CONNECTION_LINGER,    /* the last frame has left; incoming bytes are dropped until the client closes */
    CONNECTION_ENDED,     /* only in service->ending: its memory is being given back */
};

struct connection_socket {
    uv_poll_t *poll; /* NULL: the session has no socket now */
    struct transport transport;
    struct handshake *handshake; /* of TLS, while a thread takes a step of it; else NULL */
    bool tcp;
    int events;        /* that the poll handle watches for */
    bool blocked;      /* the socket takes no more bytes now */
    uint64_t leave_ms; /* the client has shut down its sending side; replies may leave until then; 0: it has not */
    bool eof;          /* the client has shut down its sending side, and all that it sent has been read */
    bool ended;        /* nothing comes or goes any more; what came before is still being handled */
    uint64_t guest;    /* the front counts the socket under this number; 0: it does not */
    bool kept;         /* the socket came through a kept place (server/front/places.h) and has not settled */
};

struct connection_input {
    struct frame_reader reader;
    bool unread;       /* there is something to read, and the turn had no time for it */
    bool draining;     /* frames that have come are handled, and nothing more is read */
    bool heard;        /* since the last tick the client has sent something other than a Ping */
    uint64_t large_ms; /* when a message last came that needed a larger buffer */
};

/* Why frames wait: the session or its principal has too much in flight, or the principal has used up its bytes a second.
 * Each cause that ends marks the connection, so that a later turn continues with its frames. */
struct throttle {
    bool room;           /* reading waits for operations of this session to finish, */
    bool principal;      /* for operations of the principal's sessions together, */
    bool output;         /* for replies to leave, */
    bool staging;        /* for staging memory for an upload, */
    bool copies;         /* or for copies to this session to come (link_in_full()) */
    bool rate;           /* neither reading nor writing until more bytes may pass */
    int64_t grant;       /* bytes that may pass until the next tick */
    uint64_t operations; /* in flight, as they were last added to the principal's sum */
};

struct connection_end {
    uint64_t deadline_ms; /* for Hello to come, or for the present step of the end; 0: none */
    char reason[256];     /* for the log */
    struct fault verdict; /* the reply to pending requests while the connection is given up, */
    bool silent;          /* unless they get none */
    bool unplugging;      /* the socket is lost, and the work that was in progress on it is still being dropped */
    bool listed;          /* in service->giving_up */
};

struct connection {
    struct service *service;
    struct connection *next, **previous; /* in the service's list of all connections */
    enum connection_state state;
    uint64_t number; /* of the session */

    /* who the client is */
    struct peer peer; /* a login changes its principal */
    enum { CONNECTION_STRANGER, CONNECTION_LOGGING_IN, CONNECTION_LOGGED_IN } login;
    struct worker_principal *principal;
    char client[CONNECTION_NAME_BYTES];
    struct remote remote;

    struct session *session; /* NULL before Hello */
    uint64_t operations;     /* numbered so far */
    uint64_t started_ns;
    uint64_t idle_ms;      /* since when it has not been used */
    uint64_t host;         /* bytes of the connection's own memory that its session has been charged for */
    uint64_t compile_turn; /* when a kernel of it began to be compiled last (compile.h) */
    struct work_rates rates;

    struct connection_socket socket;
    struct connection_input in;
    struct connection_output out;
    struct throttle hold;
    struct service_turn turn;
    struct request_progress request;
    struct link_ends links;
    struct lease lease;
    struct connection_end end;
};

/* ---- beginning and end: connection.c ---- */

/* Takes over `fd`, a stream socket whose preamble has been read, also on failure. The connection destroys itself when
 * the client goes; service_finish() destroys the connections that are left. */
int connection_create(const struct connection_options *options, int fd, struct connection **connection,
                      struct fault *fault);
/* The reply to service_options.login: who the client is, or why the login is denied. */
void connection_granted(struct connection *connection, const struct principal *principal);
void connection_denied(struct connection *connection, const struct fault *fault);
/* Each SERVICE_TICK_MS. The connection may be gone afterwards. */
void connection_tick(struct connection *connection, uint64_t now_ms);
/* Nothing is pending, queued or buffered. */
bool connection_idle(const struct connection *connection);
/* Charges the session for the host memory that the connection itself holds now. */
void connection_count_host(struct connection *connection);

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
/* The last frame has been sent: ends the session, in as many turns as that takes. Incoming bytes are then dropped until
 * the client closes, because closing now could destroy the last frame on its way if the client is still sending. */
void connection_linger(struct connection *connection);
/* The part of a turn that ends connections, as far as the budget goes. True: the connection is out of
 * service->giving_up; or its memory is free. */
bool connection_give_up_some(struct connection *connection);
bool connection_end_some(struct connection *connection);

/* Tells the front that the client has sent Hello. */
void connection_greet(struct connection *connection);
/* The connection continues its session: from now on its kept place counts like any other place. */
void connection_settle(struct connection *connection);
/* Tells the front to stop counting this connection's socket. */
void connection_leave(struct connection *connection);
/* Takes over the socket and the frame reader of `fresh`; the caller must then destroy `fresh`. */
void connection_adopt(struct connection *connection, struct connection *fresh);

/* ---- the socket: connection_socket.c ---- */

/* Asks the poll handle for the events that the connection can handle now. Call it after each change of these. */
void connection_watch(struct connection *connection);
/* Whether a handshake must be done before bytes go either way. */
bool connection_is_opening(const struct connection *connection);
/* Logs that the connection is refused before its session began, and why. */
void connection_refused(struct connection *connection, const char *reason);
/* Writes this turn's share of the replies. The connection may be gone afterwards. */
void connection_flush(struct connection *connection);
/* Continues with the frames that the reader holds, and with unread data. The connection may be gone afterwards. */
void connection_resume(struct connection *connection);
/* Handles the data that has been received until now, and reads no more. */
void connection_drain(struct connection *connection);
/* Gives a client that has shut down its sending side more time to take its outstanding replies. Over TCP that is long
 * only while bytes are under way: a dead client's host would have reset the connection for them. */
void connection_stay(struct connection *connection);
/* For a client that has shut down its sending side: whether all replies have been sent, or its time is up. */
bool connection_is_over(const struct connection *connection, uint64_t now_ms);

/* The session has room for operations again. The owner is a connection. */
void throttle_on_room(void *owner);
/* Whether the session has as much in flight as it may; then throttle_on_room() will be called. */
bool throttle_crowded(struct connection *connection);
/* There is staging memory for the upload that has been put off. */
void throttle_on_staging(struct connection *connection);
/* Bytes may pass again, by the principal's rate: continues. The connection may be gone afterwards. */
void throttle_on_rate(struct connection *connection);
/* The connection waits for its principal's rate no more; nothing is read or written yet. */
void throttle_let_rate(struct connection *connection);
