/* One principal on this worker's device: its connections and sessions together, within its limits. A principal exists
 * here while it has a connection or named tensors. The engine limits its memory and its turns (engine/memory/tenant.h);
 * this file limits sessions, operations in flight, and bytes a second. Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "engine/memory/tenant.h"
#include "server/users/principal.h"

struct connection;
struct publish;
struct service;

TAILQ_HEAD(publish_queue, publish);
TAILQ_HEAD(worker_principal_queue, worker_principal);

/* Work done by one session, or by all sessions that a principal has had; and its rates. */
struct work_done {
    uint64_t ops, device_ns, failures;
};
struct work_rates {
    struct work_done measured; /* at the last measurement */
    uint64_t measured_ns;
    double ops_per_s, device_ratio; /* over about the second before that */
};

struct worker_principal {
    struct service *service;
    struct worker_principal *next, **previous;
    char key[PRINCIPAL_NAME_BYTES];  /* principal_key() */
    char name[PRINCIPAL_NAME_BYTES]; /* the name in the key */
    bool orphan;                     /* a user that has been removed, and left names here */
    struct limits limits;
    struct tenant *tenant;
    unsigned connections, sessions;
    unsigned copies;  /* copies from other devices that its sessions wait for */
    unsigned holders; /* other things than connections that keep the principal here */
    /* User kernels (compile.h): requests that are not done, compilations in a compiler now, and when the last one
     * began. */
    unsigned compiles, compiling;
    uint64_t compile_turn;
    struct publish_queue publishes;             /* whose names are being bound, one after the other */
    TAILQ_ENTRY(worker_principal) publish_turn; /* in service->publishes, while there are some */
    /* Operations in flight: the sum over its sessions. Each is counted when it has received something; until it is
     * counted again its number can only become smaller. */
    uint64_t operations;
    unsigned waiting;             /* connections that do not read because `operations` is over the limit */
    int64_t tokens;               /* bytes that may pass now; below 0 after a larger frame */
    uint64_t refilled_ns;         /* when tokens were last added */
    unsigned throttled;           /* connections that wait for tokens */
    struct work_done ended, work; /* of the sessions that have ended, and of all sessions */
    uint64_t ops_queued;          /* operations queued in all sessions, at the last count */
    struct work_rates rates;
    uint64_t bytes;                 /* bytes that have passed, in and out, */
    double bytes_per_s;             /* and their rate in about the last second */
    uint64_t measured, measured_ns; /* `bytes` at the last measurement */
};

/* Finds or creates the principal of this key (principal_key()) for one more connection. `limits` become its limits,
 * for all of its sessions. */
int worker_principal_join(struct service *service, const char *key, const struct limits *limits,
                          struct worker_principal **principal, struct fault *fault);
/* One connection less; destroys a principal without connections and holders. Takes NULL. */
void worker_principal_leave(struct worker_principal *principal);
/* Finds the principal, or creates it with these limits, and adds a holder. */
int worker_principal_hold(struct service *service, const char *key, const struct limits *limits,
                          struct worker_principal **principal, struct fault *fault);
/* One holder less; destroys a principal without connections and holders. */
void worker_principal_let_go(struct worker_principal *principal);
/* One connection less, and one holder more. */
void worker_principal_retire(struct worker_principal *principal);
/* Sets the limits of the principal with this name, if it is here; with the name "", of all principals that are no
 * users. */
void worker_principal_change_limits(struct service *service, const char *name, const struct limits *limits);
/* Frees the counts of principals that have left; they are kept so that a principal that comes back continues its
 * count. */
void worker_principal_forget_all(struct service *service);

/* Counts a session. STATUS_LIMIT: the principal has as many as it may. */
int worker_principal_open_session(struct worker_principal *principal, struct fault *fault);
/* The session ends: its operations in flight are subtracted, and its `work` is added to the work of ended sessions. */
void worker_principal_close_session(struct connection *connection, const struct work_done *work);

struct session_stats;
struct work_done work_done_of(const struct session_stats *stats);
/* Measures the rates anew, if about a second has passed. */
void work_rates_measure(struct work_rates *rates, const struct work_done *work, uint64_t now_ns);

/* Counts the operations in flight of one session: `*counted` were counted before, and now there are `queued`. */
static inline void worker_principal_count(struct worker_principal *principal, uint64_t *counted, uint64_t queued) {
    principal->operations += queued - *counted;
    *counted = queued;
}
/* Sets hold.principal: whether the principal's sessions together have too much in flight. If so, the connection is marked
 * again when there is room. */
void worker_principal_hold_back(struct connection *connection);
/* The waiting connections check again. */
void worker_principal_wake(struct worker_principal *principal);

/* How many bytes the connection may read or write now; SIZE_MAX: any number. */
size_t worker_principal_allowance(const struct connection *connection);
/* Counts bytes that have passed. */
void worker_principal_spend(struct connection *connection, size_t bytes);
/* For the status: brings all figures up to date except `work`. */
void worker_principal_measure(struct service *service, uint64_t now_ns);
/* At each tick of the service: adds tokens. */
void worker_principal_tick(struct service *service, uint64_t now_ns);
