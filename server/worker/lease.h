/* Sessions that outlive their connections. A client that asks for it in Hello gets a secret and a count of the frames
 * that have been handled; when its socket ends without a goodbye the session is detached and waits, for its lease, for
 * a connection that presents the secret (the protocol: "Resumption" in proto/wire/tensord.proto). The connection object is
 * the session's and stays; what comes and goes is its socket. Loop thread only. */
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
    LEASE_HEARTBEAT_LEAST_MS = 100, /* a shorter one counts as this */
    LEASE_ACK_BYTES = 256 << 10,  /* an Ack after each so many; larger payloads are not copies that the client keeps */
    LEASE_SCAN_BYTES = 8 << 20,   /* at most so many are looked through for a goodbye: as many as a socket holds, */
    LEASE_SCAN_AHEAD = 64 << 10,  /* and what TLS has taken out of it */
    LEASE_SCAN_STEP_BYTES = 1024, /* for a step of the budget */
};

/* A look for a goodbye in what a client had sent before its connection ended. */
struct lease_scan {
    bool on;
    size_t left; /* bytes, at most */
    struct frame_reader reader;
    struct transport transport; /* the connection's, while it is detached */
};

/* What has been answered to requests that change something, for clients that may not have heard it: one that lost its
 * connection asks again under the same number, and gets the same answer instead of the same change once more. Of each
 * session the last OUTCOMES_MAX are kept. */
enum { OUTCOMES_MAX = 64 };

/* A reply without payload, as it is sent; or, of one that waits for the disk (`changed`), whose names have changed. */
struct outcome {
    struct outcome *next;
    uint64_t sequence;
    bool changed;
    uint16_t type;
    size_t bytes;
    uint8_t frame[]; /* `changed`: a principal's key, with its NUL */
};

struct outcome_list {
    struct outcome *first, **last; /* the oldest one first; `last` NULL: none yet */
    unsigned count;
};

/* Without memory for it the request is carried out again if it is asked again. */
void outcome_remember(struct outcome_list *list, const struct reply *reply);
/* The change has been made, and is answered when it is on the disk: outcome_remember() takes this one's place. */
void outcome_changed(struct outcome_list *list, uint64_t sequence, const char *principal);
/* NULL: it has not been answered. */
const struct outcome *outcome_find(const struct outcome_list *list, uint64_t sequence);
void outcome_list_finish(struct outcome_list *list);

struct lease {
    bool granted;
    bool goodbye; /* the client has said that it goes */
    uint8_t secret[LEASE_SECRET_BYTES];
    uint64_t frames;  /* handled, of those that count, */
    uint64_t unacked; /* and bytes of them since the last Ack */
    struct reply ack; /* the only one on its way, */
    bool acking;      /* while it is there; */
    bool ack_due;     /* and another one was wanted meanwhile */
    uint64_t reconnects;
    uint64_t until_ms; /* detached, and waits until then; 0: it has a socket */
    pid_t process;     /* the client's, where it is the socket's other end; 0: not known */
    int pidfd;         /* of that, while detached; -1: none */

    struct frame_reader
        cut;                /* within the frame that was in hand when the connection ended; no buffer: there was none */
    uint64_t cut_bytes;     /* of that frame have come */
    struct lease_scan scan; /* while detached */

    bool once; /* the request in hand is one that changes something, */
    struct outcome_list outcomes;

    uint32_t heartbeat_ms; /* the client wants to hear something that often; 0: it does not care */
    bool heard, said;      /* since the last tick, */
    uint64_t heard_ms, said_ms;

    struct connection *claimed; /* of a fresh connection: the session that it has presented the secret of, */
    uint64_t claim_sequence;    /* and its Hello's number, */
    uint32_t version;           /* and the protocol's for the client, */
    bool within;                /* who goes on within a frame that was cut */
};

void lease_init(struct lease *lease);
/* The session waits for nobody any more. */
void lease_finish(struct connection *connection);

/* At Hello: gives the session a lease, if the client and the operator want that. */
void lease_grant(struct connection *connection, const Tensord__Hello *hello);
/* The fields of Welcome that tell of it; `welcome` borrows the secret. */
void lease_welcome(const struct connection *connection, Tensord__Welcome *welcome);

/* After each frame that has been handled completely. */
void lease_handled(struct connection *connection, const struct frame_header *header);
/* An Ack with the present count; while one is on its way, after that. */
void lease_ack(struct connection *connection);

/* The socket of an open connection has ended: detaches the session, or destroys it where nobody may come back. */
void lease_lost(struct connection *connection, const char *reason);
/* Looks on for a goodbye, while lease.scan is on. False: the budget has ended before that is over. The session is to be
 * destroyed where it has found one. */
bool lease_scan_some(struct connection *connection);
/* A Hello that presents a session. On success the connection reads no more, and lease_take_over() is due when its reader
 * has returned. Errors: STATUS_DEVICE_LOST where the session is gone, STATUS_DENIED. */
int lease_claim(struct connection *fresh, const Tensord__Hello *hello, uint64_t sequence, struct fault *fault);
/* Gives the fresh connection's socket to the session it has claimed; `fresh` is gone afterwards. */
void lease_take_over(struct connection *fresh);

/* On each tick; false: the connection is gone. */
bool lease_tick(struct connection *connection, uint64_t now_ms);
