/* The file of users: who may connect, and as what.
 *
 *     [alice]
 *     role = run
 *     id = 5d1c20aa0f3b7e21            distinguishes her from a later alice; `tensord user add` writes it
 *     token = 5d1c20aa SALT HASH       any number of them; `tensord user` writes these, with expires= and comment= behind
 *     uid = 1000                       the peer of a Unix socket with this uid is alice
 *     principal-bytes = 20G            and other limits for her (server/users/limits.h), in place of the configuration's
 *
 * A table is read whole and does not change: a reload reads another one. Front thread only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "proto/ops/cleanup.h"
#include "server/users/principal.h"
#include "server/users/token.h"

enum {
    USERS_NAME_MAX = 32,
    USERS_MAX = 1024,
    USERS_TOKENS_MAX = 4096,
    USERS_UIDS_MAX = 4096,
    USERS_FILE_MAX = 1 << 20, /* bytes */
};

struct user {
    char name[USERS_NAME_MAX + 1];
    char id[PRINCIPAL_ID_BYTES]; /* distinguishes users who had the same name one after the other; "": none */
    enum role role;
    struct limits limits; /* its own limits, */
    uint32_t own;         /* and a bit for each limit that is its own */
};

struct users {
    struct user *users;
    struct users_token {
        struct token token;
        unsigned user; /* its index in `users` */
    } * tokens;
    struct users_uid {
        uid_t uid;
        unsigned user;
    } * uids;
    unsigned n_users, n_tokens, n_uids;
    bool whole; /* the file has USERS_LAST_LINE, so nothing of it is missing */
    /* The numbers of the rows above, in the order of their keys: names, ids of tokens, uids. */
    unsigned *by_name, *by_token, *by_uid;
};

/* Reads the whole file as zero-terminated text, which the caller frees. Refuses a file that users other than its owner
 * may read or write, or that belongs neither to root nor to this process's user, because the file decides who may do
 * what. With `owner` (may be NULL) the file is read in order to be changed, and root may change everybody's file. */
struct stat;
int users_load(const char *path, char **text, struct stat *owner, struct fault *fault);
/* Refuses a text that was cut, for example by a full disk: an empty text, a last line without its end, and a text with
 * USERS_FIRST_LINE but without USERS_LAST_LINE. `tensord user` writes both lines. A file that was written by hand need
 * not have them; a cut between two of its lines is noticed only by users_check_loss(). */
#define USERS_FIRST_LINE "# Users of tensord, as `tensord user` writes them, up to the line \"# end of users\"."
#define USERS_LAST_LINE "# end of users"
int users_check_whole(const char *path, const char *text, struct fault *fault);
/* Parses such a text; `path` is for the fault, which begins with "PATH:LINE: ". */
int users_parse(const char *path, const char *text, struct users **users, struct fault *fault);
/* Loads, checks and parses the file. */
int users_read(const char *path, struct users **users, struct fault *fault);
/* Whether `now`, read from a file that may have been cut between two lines, may replace `before`: refuses it if more than
 * half of the users are missing, or all admins. A file with USERS_LAST_LINE is taken in any case. */
int users_check_loss(const char *path, const struct users *before, const struct users *now, struct fault *fault);
/* Takes NULL. */
void users_destroy(struct users *users);
CLEANUP_OF(struct users, users_destroy)

/* Why a login is denied. The client is told less. */
enum users_denial {
    USERS_GRANTED,
    USERS_NO_TOKEN, /* a token is needed, and none came */
    USERS_MALFORMED,
    USERS_UNKNOWN, /* no token has this id (any more) */
    USERS_WRONG,   /* the id is known, and the secret is wrong */
    USERS_EXPIRED, /* id and secret are right, and the token has expired */
};
enum users_denial users_by_token(const struct users *users, const char *text, struct principal *principal);
/* The peer of a Unix socket: the user that has this uid in the table, or else "uid:N" with the role run; then root and
 * the user that the daemon runs as are admins. `users` may be NULL. */
void users_by_uid(const struct users *users, uid_t uid, struct principal *principal);

/* The peer that has shown a certificate with this name: the user of that name. Without a table (`users` NULL) it is
 * "cert:NAME" with the role run. With a table that has no such user it is "cert:NAME" without a role, because the
 * table says who may connect. */
void users_by_certificate(const struct users *users, const char *name, struct principal *principal);

/* Calls `ended` for each credential that stands for another principal or role in `now` than in `before`, or for none
 * (`is` NULL): its connections must end. Tokens that expired until `expired` have been reported; users_expire()
 * reports later ones. */
typedef void users_ended(void *owner, const struct principal *was, const struct principal *is);
void users_compare(const struct users *before, const struct users *now, int64_t expired, users_ended *ended,
                   void *owner);

/* The same for each token that has expired after `since` and until `now`. */
void users_expire(const struct users *users, int64_t since, int64_t now, users_ended *ended, void *owner);

/* The limits of a principal: those of everybody, with the user's own in their place. `users` may be NULL. */
void users_limits(const struct users *users, const char *name, const struct limits *everybody, struct limits *limits);

/* Whether a user may have this name. Names of principals that are no users never have this form. */
bool users_is_name(const char *text);
/* NULL: there is no such user. */
const struct user *users_find(const struct users *users, const char *name);
/* NULL: no user has a token with this id. */
const struct users_token *users_find_token(const struct users *users, const char *id);
