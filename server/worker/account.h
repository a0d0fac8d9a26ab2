/* What one principal has on this worker's device: its connections and sessions together, within its limits. A principal
 * is here as long as it has a connection, or named tensors. Memory and turns are the engine's to watch (engine/session/tenant.h); here are
 * sessions, operations in flight, and bytes a second. Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/session/tenant.h"
#include "server/users/principal.h"

struct connection;
struct service;

/* What work has been done, and how much of it a second: of one session, or of all that a principal has had. */
struct account_work {
    uint64_t ops, device_ns, failures;
};
struct account_rates {
    struct account_work measured; /* when it was looked at last: */
    uint64_t measured_ns;
    double ops_per_s, device_ratio; /* over a second or so before that */
};

struct account {
    struct service *service;
    struct account *next, **previous;
    char key[PRINCIPAL_NAME_BYTES];  /* principal_key() */
    char name[PRINCIPAL_NAME_BYTES]; /* in words */
    bool orphan;                     /* of a user who has gone, and left names here */
    struct limits limits;
    struct tenant *tenant;
    unsigned connections, sessions;
    unsigned copies; /* that its sessions wait for from other devices */
    unsigned kept;   /* by whoever else needs it to be here */
    /* Of user kernels (compile.h): asked for and not done, of these in a compiler now, and when one began last. */
    unsigned compiles, compiling;
    uint64_t compile_turn;
    /* Operations in flight: the sum of what was found in each session when it was looked at last, after it had received
     * something. In between they can only become fewer. */
    uint64_t operations;
    unsigned waiting;                /* connections that do not read because these are too many */
    int64_t tokens;                  /* bytes that may pass now; less than 0 after a frame that was larger */
    uint64_t refilled_ns;            /* when they were added to last */
    unsigned throttled;              /* connections that wait for some */
    struct account_work ended, work; /* of the sessions that have ended, and of all of them */
    uint64_t ops_queued;             /* of these, as they were counted last */
    struct account_rates rates;
    uint64_t bytes;     /* that have passed, in and out, */
    double bytes_per_s; /* and over the last second or so: */
    uint64_t measured, measured_ns;
};

/* Finds the principal of this key (principal_key()) or makes it. `limits` replace those that it had, for all of its sessions. */
int account_join(struct service *service, const char *key, const struct limits *limits, struct account **account,
                 struct fault *fault);
/* The limits of those that are here are others: of the principal with this name, or, where it is "", of all that are no
 * users. */
void account_change_limits(struct service *service, const char *name, const struct limits *limits);
/* One connection less; the last one takes the principal with it. Takes NULL. */
void account_leave(struct account *account);
/* Finds the principal, or makes it with these limits, and keeps it without a connection; until this takes it back. */
int account_keep(struct service *service, const char *key, const struct limits *limits, struct account **account,
                 struct fault *fault);
void account_let_go(struct account *account);
/* One connection less, which keeps the principal until this takes it back. */
void account_retire(struct account *account);

/* STATUS_LIMIT where it has as many sessions as it may. */
int account_open_session(struct account *account, struct fault *fault);
/* With what the session had in flight; what it has done, `work`, stays. */
void account_close_session(struct connection *connection, const struct account_work *work);
/* What a session has done. */
struct session_stats;
struct account_work account_work_of(const struct session_stats *stats);
/* Brings rates up to date, about once a second. */
void account_measure_work(struct account_rates *rates, const struct account_work *work, uint64_t now_ns);
/* Those who have no account now, but had: what they have done is not forgotten while there is room for them. */
void account_forget_all(struct service *service);

/* Whether all of the principal's sessions have too much in flight, now that this one has `queued`. Then the connection
 * is marked as one that waits, and goes on when there is room. */
bool account_over(struct connection *connection, uint64_t queued);
/* Those who wait look again. */
void account_wake(struct account *account);

/* How many bytes the connection may read or write now; SIZE_MAX: any. */
size_t account_allowance(const struct connection *connection);
/* So many have passed. */
void account_spend(struct connection *connection, size_t bytes);
/* For status: brings the figures up to date, but for `work`. */
void account_measure(struct service *service, uint64_t now_ns);
/* At each tick of the service: more bytes may pass. */
void account_tick(struct service *service, uint64_t now_ns);
