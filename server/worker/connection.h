/* One client's connection to a device: socket, frame reader, reply queue, and the session behind it.
 *
 * It is read while its session has room for operations and its replies leave; otherwise the rest waits in the socket. A
 * client that breaks the protocol gets an Error as its last frame. One that shuts down its sending side gets the
 * answers that are still due, within a bounded time; one that is gone ends at once, unless it may come back: its
 * session then stays, without a socket (server/worker/lease.h). Loop thread only. */
#pragma once

#include <uv.h>

#include "engine/session/session.h"
#include "proto/net/transport.h"
#include "proto/wire/frame.h"
#include "server/ipc/peer.h"
#include "server/worker/answer.h"
#include "server/worker/lease.h"
#include "server/worker/reply.h"
#include "server/worker/request.h"
#include "server/worker/service.h"

enum {
    CONNECTION_NAME_BYTES = 64,
    CONNECTION_READ_BYTES = 1 << 20,    /* read in one turn */
    CONNECTION_WRITE_BYTES = 512 << 10, /* written in one turn */
    CONNECTION_FRAME_STEPS = 16,        /* of the budget, for each frame, */
    CONNECTION_STEP_BYTES = 1024,       /* and one for so many bytes */
    CONNECTION_ANSWER_STEPS = 4,        /* for each answer that is taken back */
    CONNECTION_BUFFER_BYTES = 64 << 10,
    CONNECTION_LARGE_MS = 1000,  /* after the last message that needs more, the buffer is as small again */
    CONNECTION_LINGER_MS = 1000, /* for the client to take its last frame */
    /* For the next answer over TCP, where a client that died looks like one that still reads. It is short, because a
     * dead client's memory is wanted back within a second. Else it is limits.drain_timeout_ms, for Unix sockets tell
     * the two apart. */
    CONNECTION_LEAVE_TCP_MS = 500,
};

struct connection_options {
    struct service *service;
    uint64_t session;        /* number of the session */
    bool kept;               /* its place is one for those that come back */
    const struct peer *peer; /* copied */
    struct tls_context *tls; /* NULL: in the clear */
};

enum connection_state {
    CONNECTION_OPEN,
    CONNECTION_GIVING_UP, /* reads nothing; its pending requests are being answered with `verdict`, which is its last word */
    CONNECTION_CLOSING, /* writes what is left, reads nothing; what it has is given back when all has been written */
    CONNECTION_LINGER,  /* has said its last; drops what comes until the client closes */
    CONNECTION_ENDED,   /* is in no list but service->ending: what it has is being given back */
};

struct connection {
    struct service *service;
    struct connection *next, **previous;
    TAILQ_ENTRY(connection) dirty_link, more_link, end_link;
    bool dirty;
    struct connection_queue *more; /* the one where it waits; NULL: none */
    uint64_t used_ns;              /* of the loop's time since the last tick */
    bool unread;                   /* there is something to read, and there was no time for it */
    enum connection_state state;

    uv_poll_t *poll; /* NULL: the session has no socket now */
    struct transport transport;
    struct handshake
        *handshake; /* of TLS, while another thread takes a step of it, and has the transport; NULL: none */
    bool tcp;
    int events;        /* asked of the poll handle */
    bool blocked;      /* the socket took no more */
    uint64_t leave_ms; /* the client has shut down its side: what it is owed leaves until then; 0: it has not */
    bool eof;          /* and all that it sent has been read */
    bool draining;
    struct frame_reader reader;
    struct reply_queue queue;
    struct answer *pending;
    uint64_t out_cost;
    bool wait_room, wait_output, wait_staging; /* why reading has paused, */
    bool wait_principal;                       /* and for room of the principal's */
    bool wait_rate;                            /* the socket is left alone until more bytes may pass */
    int64_t grant;                             /* bytes that may pass until the next tick */
    uint64_t host;                             /* bytes of it that its session has been charged for */
    uint64_t large_ms;                         /* when a message came last that needs a larger buffer */
    uint64_t operations_seen;                  /* in flight, of the principal's sum */
    uint64_t deadline_ms;                      /* 0: none */
    bool heard;                                /* from the client since the last tick, more than a Ping */
    uint64_t idle_ms;                          /* since when it has not been used */
    char reason[256];
    struct fault verdict; /* while it is given up, */
    bool silent;          /* without a word to pending requests */
    bool unplugging;      /* it has lost its socket, and has not yet let go of what was under way on that */
    bool ends_some;       /* it is in service->giving_up */

    uint64_t guest; /* by which the front counts its socket; 0: it has none */
    bool kept;      /* its place is one for those that come back, and it has not yet */
    uint64_t number;
    struct account *account; /* of the principal */
    uint64_t compile_turn;   /* when a kernel of it began to be compiled last (compile.h) */
    struct peer peer;        /* its principal is another one after a login */
    enum { CONNECTION_STRANGER, CONNECTION_LOGGING_IN, CONNECTION_LOGGED_IN } login;
    char client[CONNECTION_NAME_BYTES];
    struct remote remote;
    struct account_rates rates;
    uint64_t started_ns;
    struct session *session; /* NULL before Hello */
    uint64_t operations;     /* numbered so far */
    struct request_upload *uploads, *receiving;
    struct request_upload *held; /* its chunk's frame has been put off, or was cut; NULL: none */
    unsigned n_uploads;
    struct request_batch batch; /* the rest of the one that has been put off, or was cut */
    /* The message of one that has been put off, as it was parsed into the service's arena; NULL: none. Still there
     * while that has been reset so many times. */
    ProtobufCMessage *put_off;
    uint64_t put_off_at;
    struct answer *publishing; /* to a Publish that has been put off; NULL: none */
    struct link_ends links;
    struct lease lease;
};

/* Takes over `fd`, a stream socket whose preamble has been read, also on failure. The connection destroys itself when
 * the client goes; service_finish() destroys what is left. */
int connection_create(const struct connection_options *options, int fd, struct connection **connection,
                      struct fault *fault);
/* Nobody may use the connection from now on; its memory is given back from the end of this turn on. Must not be called
 * from a frame handler or a callback of the engine. Takes NULL. */
void connection_destroy(struct connection *connection, const char *reason);
/* Sends the replies that are ready and an Error frame, then ends the connection. Pending requests get no reply. */
void connection_fail(struct connection *connection, const struct fault *fault);
/* As connection_fail(), but from the end of this turn on pending requests first get `fault` as their reply. */
void connection_give_up(struct connection *connection, const struct fault *fault);

/* The next five are for server/worker/lease.c. Closes the socket and drops the data that was still to be read or written. It
 * may take several turns; `unplugging` is true meanwhile. */
void connection_unplug(struct connection *connection);
/* Tells the front that the client has sent Hello. */
void connection_greet(struct connection *connection);
/* The connection continues its session: from now on its kept place counts like any other place. */
void connection_settle(struct connection *connection);
/* Tells the front to stop counting this connection's socket. */
void connection_leave(struct connection *connection);
/* Takes over the socket and the frame reader of `fresh`; the caller must then destroy `fresh`. */
void connection_adopt(struct connection *connection, struct connection *fresh);
/* The answer to service_options.login: who the client is, or why it is nobody. */
void connection_granted(struct connection *connection, const struct principal *principal);
void connection_denied(struct connection *connection, const struct fault *fault);

/* There is staging memory for the upload that has been put off. */
void connection_on_staging(struct connection *connection);

/* More bytes may pass. The connection may be gone afterwards. */
void connection_on_rate(struct connection *connection);

/* Parts of a turn, called by the service. */
void connection_resume(struct connection *connection);
void connection_flush(struct connection *connection);
void connection_tick(struct connection *connection, uint64_t now_ms);
/* As far as the budget goes. True: it is out of service->giving_up; it has been freed. */
bool connection_give_up_some(struct connection *connection);
bool connection_end_some(struct connection *connection);
/* Takes what has been received until now and reads no more. */
void connection_drain(struct connection *connection);
/* Nothing pending, queued or buffered. */
bool connection_idle(const struct connection *connection);

/* What fetching tensor `id` costs of the window of reply bytes: its size, but never more than a quarter of the window,
 * so that requests are still read while a large tensor is on its way. (The bytes themselves are the session's own
 * device memory, which is limited elsewhere.) */
uint64_t connection_fetch_cost(const struct connection *connection, uint64_t id);
/* What the connection itself holds of the host's memory is charged to its session: as much as now. */
void connection_count_host(struct connection *connection);
/* Charges and gives back reply bytes. */
void connection_charge(struct connection *connection, uint64_t cost);
void connection_discharge(struct connection *connection, uint64_t cost);
