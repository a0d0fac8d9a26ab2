/* One client's connection to a device: socket, frame reader, reply queue, and the session behind it.
 *
 * Its parts have files of their own: the socket, what holds reading up, the end, the lease (what stays when
 * the socket is lost), links to other devices. Frames are read while the session has room for operations and the
 * replies leave; otherwise the rest waits in the socket. A client that breaks the protocol gets an Error as its last
 * frame. One that shuts down its sending side gets the replies that are still due, within a bounded time. If it is
 * gone the connection ends at once, unless the client may come back: its session then stays, without a socket
 * (server/worker/lease.h). Loop thread only. */
#pragma once

#include "engine/session/session.h"
#include "server/ipc/peer.h"
#include "server/worker/connection_end.h"
#include "server/worker/connection_socket.h"
#include "server/worker/lease.h"
#include "server/worker/pending_reply.h"
#include "server/worker/reply.h"
#include "server/worker/request.h"
#include "server/worker/service.h"
#include "server/worker/throttle.h"

enum { CONNECTION_NAME_BYTES = 64 };

struct connection_options {
    struct service *service;
    uint64_t session;        /* number of the session */
    bool kept;               /* it came in through a kept place (server/front/places.h) */
    const struct peer *peer; /* copied */
    struct tls_context *tls; /* NULL: in the clear */
};

enum connection_state {
    CONNECTION_OPEN,
    CONNECTION_GIVING_UP, /* reads nothing; pending requests get end.verdict as their reply, also the last frame */
    CONNECTION_CLOSING,   /* reads nothing, and writes what is left; its memory is given back after that */
    CONNECTION_LINGER,    /* the last frame has left; incoming bytes are dropped until the client closes */
    CONNECTION_ENDED,     /* only in service->ending: its memory is being given back */
};

struct connection {
    struct service *service;
    struct connection *next, **previous; /* of all that the service has */
    enum connection_state state;
    uint64_t number; /* of the session */

    /* who it is */
    struct peer peer; /* its principal is another one after a login */
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

/* Takes over `fd`, a stream socket whose preamble has been read, also on failure. The connection destroys itself when
 * the client goes; service_finish() destroys what is left. */
int connection_create(const struct connection_options *options, int fd, struct connection **connection,
                      struct fault *fault);
/* The reply to service_options.login: who the client is, or why it is nobody. */
void connection_granted(struct connection *connection, const struct principal *principal);
void connection_denied(struct connection *connection, const struct fault *fault);
/* Each SERVICE_TICK_MS. The connection may be gone afterwards. */
void connection_tick(struct connection *connection, uint64_t now_ms);
/* Nothing pending, queued or buffered. */
bool connection_idle(const struct connection *connection);
/* Charges the session for the host memory that the connection itself holds now. */
void connection_count_host(struct connection *connection);
