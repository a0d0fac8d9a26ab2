/* Logins: finds the principal of a connection from the token or the certificate that it shows. Only the front does
 * this, because it has the table of users. It counts failed logins, and delays its reply to failures from a source
 * that has failed often. A valid token is accepted at once. Front thread only. */
#pragma once

#include <sys/queue.h>
#include <uv.h>

#include "server/front/config.h"
#include "server/ipc/peer.h"
#include "server/users/identities.h"
#include "server/users/users.h"

enum {
    LOGIN_WAITING_MAX = 256,      /* failed logins whose reply is delayed, from all sources, */
    LOGIN_SOURCE_WAITING_MAX = 8, /* and from one source */
};

/* The sources of failed logins. The delay of a source doubles with each failure, and ends after a minute without
 * one. */
enum {
    LOGIN_SOURCES_MAX = 1024,  /* in a table; one more replaces the oldest */
    LOGIN_FREE_FAILURES = 3,   /* of a source without a delay */
    LOGIN_DELAY_MS = 100,      /* of the next failure, doubled with each further one, */
    LOGIN_DELAY_MAX_MS = 2000, /* up to this */
};

struct login_source {
    struct source source;
    unsigned failures;
    uint64_t last_ns; /* when the last one came */
};

/* All zeroes: no failures. */
struct login_source_table {
    struct login_source sources[LOGIN_SOURCES_MAX];
    unsigned n_sources;
};

struct login_counts {
    uint64_t granted;
    uint64_t no_token, malformed, unknown, wrong; /* denied, by the reason; unknown: tokens and certificates */
    uint64_t put_off;                             /* failures whose reply was delayed, and */
    uint64_t turned_away;                         /* failures that came when too many were waiting */
};

struct login_request {
    const struct peer *peer;
    const char *token; /* "": none. The login may keep a copy, which it wipes */
    /* Called after STATUS_AGAIN: with a fault, or, if the users have changed meanwhile, with STATUS_OK and the
     * principal. */
    void (*done)(void *owner, uint64_t number, int status, const struct principal *principal,
                 const struct fault *fault);
    void *owner;
    uint64_t number;
};

struct login_waiting;
struct login {
    uv_loop_t *loop;
    const struct config *config;
    struct users *users; /* NULL: the configuration names no file of users */
    /* Two tables: otherwise a scraper with a revoked token would delay the clients at its address. */
    struct login_source_table sources, http_sources;
    LIST_HEAD(, login_waiting) waiting;
    unsigned n_waiting;
    struct login_counts counts;
    struct token_use use;
    struct identities identities;
    int64_t expired; /* tokens that expired before this second have been reported */
};

/* `login` is zeroed memory, most of which stays untouched until it is needed. Reads the file of users, if there is
 * one. */
int login_init(struct login *login, uv_loop_t *loop, const struct config *config, struct fault *fault);
/* `done` of waiting requests is not called. The caller then runs the loop until the handles are closed. */
void login_finish(struct login *login);

/* The limits of the principal with this name. */
void login_limits(const struct login *login, const char *name, struct limits *limits);
/* Whether a client over TCP has to log in, with a token or, over TLS, with a certificate. */
bool login_strangers(const struct login *login, bool tls);
/* Sets peer->principal for a peer that has shown no token. The role is ROLE_NONE if the peer has to log in. */
void login_identify(const struct login *login, struct peer *peer);
/* Sets peer->principal for a peer that has shown a certificate with the name peer->certificate, which is not "". The
 * role is ROLE_NONE if there is a file of users and this name is not in it. The peer may show a token as well, which
 * is checked as usual. */
void login_certify(const struct login *login, struct peer *peer);
/* STATUS_OK: *principal is set. STATUS_DENIED, STATUS_LIMIT: the fault is for the client, and says only what a
 * stranger may know. STATUS_AGAIN: the login fails, but its source has failed often: request->done will be called
 * later. */
int login_check(struct login *login, const struct login_request *request, struct principal *principal,
                struct fault *fault);
/* The same for a request by HTTP, whose reply cannot be delayed; request->done is not used. Failures are logged and
 * counted, and they delay only further failures by HTTP from the same source. Successes are not counted, because each
 * request by HTTP logs in again. STATUS_LIMIT: the login fails, its source has failed often, and it may try again
 * after *wait_ms. */
int login_check_now(struct login *login, const struct login_request *request, struct principal *principal,
                    uint64_t *wait_ms, struct fault *fault);
/* Drops a waiting request, whose owner is gone. */
void login_forget(struct login *login, const void *owner, uint64_t number);

/* Call it regularly: reports tokens that have expired since the last call, and saves when tokens were used. */
void login_tick(struct login *login, users_ended *ended, void *owner);
/* Replaces the table of users, and returns the old one. */
struct users *login_replace_users(struct login *login, struct users *users);
