/* Logins: from what a connection shows to the principal that it is. The front's alone: it holds the users, counts what
 * fails, and slows down the failures of whoever fails often, by where it comes from. A good token is let in at once. Front
 * thread only. */
#pragma once

#include <sys/queue.h>
#include <uv.h>

#include "server/front/config.h"
#include "server/ipc/peer.h"
#include "server/users/token_use.h"
#include "server/users/users.h"

enum {
    LOGIN_WAITING_MAX = 256,      /* failed logins whose answer is put off, of all sources */
    LOGIN_SOURCE_WAITING_MAX = 8, /* and of one */
};

/* Where failed logins came from, and for how long whoever comes from there has to wait: a delay that doubles with each
 * failure, until a minute has gone without one. */
enum {
    LOGIN_SOURCES_MAX = 1024, /* that are remembered; then the oldest is forgotten */
    LOGIN_FREE_FAILURES = 3,  /* before a source is slowed down */
    LOGIN_DELAY_MS = 100,     /* at first, doubled with each failure, */
    LOGIN_DELAY_MAX_MS = 2000,
};

struct login_source {
    struct source source;
    unsigned failures;
    uint64_t last_ns; /* of the last one */
};

/* All zeroes: no failures. */
struct login_source_table {
    struct login_source sources[LOGIN_SOURCES_MAX];
    unsigned n_sources;
};

struct login_counts {
    uint64_t granted;
    uint64_t no_token, malformed, unknown, wrong; /* denied, by why; unknown: tokens and certificates */
    uint64_t put_off;                             /* slowed down, and */
    uint64_t turned_away;                         /* more than may wait */
};

struct login_request {
    const struct peer *peer;
    const char *token; /* "" for none; not kept but as a copy that is wiped */
    /* Called after STATUS_AGAIN, with the fault; or, where the users have changed meanwhile, STATUS_OK and who it is. */
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
    /* Apart, or a scraper with a token that was revoked would slow down the clients at its address. */
    struct login_source_table sources, http_sources;
    LIST_HEAD(, login_waiting) waiting;
    unsigned n_waiting;
    struct login_counts counts;
    struct token_use use;
    int64_t expired; /* until when tokens whose time was over have been told of */
};

/* Of zeroed memory, most of which is not touched until it is needed. Reads the file of users, where there is one. */
int login_init(struct login *login, uv_loop_t *loop, const struct config *config, struct fault *fault);
/* Nobody who waits is called any more. The caller then runs the loop until the handles are closed. */
void login_finish(struct login *login);

/* What the principal of this name may take. */
void login_limits(const struct login *login, const char *name, struct limits *limits);
/* Whether those who come over TCP have to say who they are, by a token or, over TLS, by a certificate. */
bool login_strangers(const struct login *login, bool tls);
/* Who a peer is without a token: sets peer->principal. The role is ROLE_NONE where it takes one. */
void login_identify(const struct login *login, struct peer *peer);
/* The peer has shown a certificate with the name peer->certificate, which is not "": sets peer->principal. The role is
 * ROLE_NONE where there are users and this is none. A token that it shows besides is looked at as any other. */
void login_certify(const struct login *login, struct peer *peer);
/* STATUS_OK: *principal is who it is. STATUS_DENIED, STATUS_LIMIT: the fault is for the client, and says no more than a
 * stranger may know. STATUS_AGAIN: it fails, its source has failed often, and request->done will be called. */
int login_check(struct login *login, const struct login_request *request, struct principal *principal,
                struct fault *fault);
/* The same for a request by HTTP, which cannot be told later: nobody waits. Failures are logged and counted, also against
 * their source, and slow down failures by HTTP from there, and nothing else; what is granted is not counted, for they ask
 * anew each time. STATUS_LIMIT: it fails, as its source has too often, and may ask again after *wait_ms. request->done is
 * not looked at. */
int login_check_now(struct login *login, const struct login_request *request, struct principal *principal,
                    uint64_t *wait_ms, struct fault *fault);
/* The owner of a request that waits is gone. */
void login_forget(struct login *login, const void *owner, uint64_t number);

/* Once in a while: tells of tokens whose time is over since the last time, and writes down when tokens were used. */
void login_tick(struct login *login, users_ended *ended, void *owner);
/* Takes another table of users over, and gives the old one back. */
struct users *login_replace_users(struct login *login, struct users *users);
