/* Leases: sessions that outlive their sockets. A client that asks for a lease in Hello gets a secret and a count of
 * the frames that have been handled. When its socket ends without a Goodbye the session is detached, and waits until
 * its lease ends for another connection that presents the secret (see "Resumption" in proto/wire/tensord.proto). The
 * connection object belongs to the session and stays; only its socket is replaced. Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/ops/status.h"
#include "proto/wire/frame.h"
#include "proto/wire/tensord.pb-c.h"
#include "server/worker/reply.h"

struct connection;
struct frame_header;

enum {
    LEASE_SECRET_BYTES = 16,
    LEASE_HEARTBEAT_LEAST_MS = 100, /* a shorter heartbeat counts as this */
    /* An Ack is due after so many bytes. Larger payloads do not count: the client keeps no copy of them. */
    LEASE_ACK_BYTES = 256 << 10,
    LEASE_SCAN_BYTES = 8 << 20,   /* at most so many bytes are searched for a Goodbye: as many as a socket holds, */
    LEASE_SCAN_AHEAD = 64 << 10,  /* and those that TLS has already read */
    LEASE_SCAN_STEP_BYTES = 1024, /* for a step of the budget */
};

/* The search for a Goodbye in what a client had sent before its connection ended. */
struct lease_scan {
    bool on;
    size_t left; /* bytes to search, at most */
    struct frame_reader reader;
    struct transport transport; /* the connection's, while it is detached */
};

/* Replies to requests that change something, for clients that may not have got them. A client that has lost its
 * connection repeats such a request under the same number, and gets the same reply; the change is not made twice. A
 * session keeps the last OUTCOMES_MAX. */
enum { OUTCOMES_MAX = 64 };

/* A reply without payload, as it is sent; or, while the reply waits for the disk (`changed`), the owner whose names
 * have changed. */
struct outcome {
    struct outcome *next;
    uint64_t sequence;
    bool changed;
    uint16_t type;
    size_t bytes;
    uint8_t frame[]; /* `changed`: a principal's key, with its NUL */
};

struct outcome_list {
    struct outcome *first, **last; /* oldest first; `last` NULL: the list is empty */
    unsigned count;
    size_t bytes; /* that the entries take */
};

/* Without memory nothing is remembered, and a repeated request is carried out again. */
void outcome_remember(struct outcome_list *list, const struct reply *reply);
/* The change has been made, and its reply waits for the disk: outcome_remember() will replace this entry. */
void outcome_changed(struct outcome_list *list, uint64_t sequence, const char *principal);
/* NULL: nothing is remembered of this request. */
const struct outcome *outcome_find(const struct outcome_list *list, uint64_t sequence);
void outcome_list_finish(struct outcome_list *list);

struct lease {
    bool granted;
    bool goodbye; /* the client has sent Goodbye */
    uint8_t secret[LEASE_SECRET_BYTES];
    uint64_t frames;  /* number of frames handled, of the types that count; */
    uint64_t unacked; /* their bytes since the last Ack */
    struct reply ack; /* the Ack on its way; there is one at most, */
    bool acking;      /* while this is true; */
    bool ack_due;     /* another Ack is due after it */
    uint64_t reconnects;
    uint64_t until_ms; /* the session is detached and waits until then; 0: it has a socket */
    pid_t process;     /* the client's process, if it is the socket's other end; 0: not known */
    int pidfd;         /* of that process, while detached; -1: none */

    /* The frame reader, in the middle of the frame that was cut when the connection ended; without a buffer: no frame
     * was cut. */
    struct frame_reader cut;
    uint64_t cut_bytes;     /* bytes of that frame that have come */
    struct lease_scan scan; /* while detached */

    bool once; /* the present request changes something: its reply is remembered in `outcomes` */
    struct outcome_list outcomes;

    uint32_t heartbeat_ms; /* the client wants to get something at least this often; 0: it does not */
    bool heard, said;      /* something from the client, or to it, since the last tick; */
    uint64_t heard_ms, said_ms;

    struct connection *claimed; /* of a fresh connection: the session whose secret it has presented; */
    uint64_t claim_sequence;    /* its Hello's sequence number, */
    uint32_t version;           /* its version of the protocol, */
    bool within;                /* and whether it continues within the frame that was cut */
};

void lease_init(struct lease *lease);
/* Ends the lease: the session no longer waits for a client. */
void lease_finish(struct connection *connection);

/* At Hello: gives the session a lease if both the client and the operator want one. */
void lease_grant(struct connection *connection, const Tensord__Hello *hello);
/* Sets the lease's fields of Welcome, which borrows the secret. */
void lease_welcome(const struct connection *connection, Tensord__Welcome *welcome);

/* Counts a frame of a session with a lease that has been handled completely. */
void lease_handled(struct connection *connection, const struct frame_header *header);
/* Sends an Ack with the present count, at once or after the Ack that is on its way. */
void lease_ack(struct connection *connection);

/* The socket of an open connection has ended: detaches the session, or destroys it if it has no lease. */
void lease_lost(struct connection *connection, const char *reason);
/* Continues the search for a Goodbye, while lease.scan is on. False: the budget has ended before the search has. If a
 * Goodbye is found the caller destroys the session. */
bool lease_scan_some(struct connection *connection);
/* A Hello that presents a session's secret. On success the fresh connection reads no more, and the caller calls
 * lease_take_over() when the reader has returned. STATUS_DEVICE_LOST: the session has ended. STATUS_DENIED. */
int lease_claim(struct connection *fresh, const Tensord__Hello *hello, uint64_t sequence, struct fault *fault);
/* Gives the fresh connection's socket to the session it has claimed; `fresh` is gone afterwards. */
void lease_take_over(struct connection *fresh);

/* At each tick. False: the connection is gone. */
bool lease_tick(struct connection *connection, uint64_t now_ms);
