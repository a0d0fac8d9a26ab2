/* The file of users: who may connect, and as what.
 *
 *     [alice]
 *     role = run
 *     id = 5d1c20aa0f3b7e21            what is hers is no later alice's; `tensord user add` writes it
 *     token = 5d1c20aa SALT HASH       any number of them; `tensord user` writes these, with expires= and comment= behind
 *     uid = 1000                       the peer of a Unix socket with this uid is alice
 *     principal-bytes = 20G            and other limits of hers (server/users/limits.h), in place of the configuration's
 *
 * A table is read whole and does not change: a reload reads another one. Front thread only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

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
    char id[PRINCIPAL_ID_BYTES]; /* ""; two users of one name, one after the other, have different ones */
    enum role role;
    struct limits limits; /* those that are its own, */
    uint32_t own;         /* which are these, as bits of LIMITS_KEYS */
};

struct users {
    struct user *users;
    struct users_token {
        struct token token;
        unsigned user; /* its place in `users` */
    } * tokens;
    struct users_uid {
        uid_t uid;
        unsigned user;
    } * uids;
    unsigned n_users, n_tokens, n_uids;
};

/* The whole file as zero-terminated text, which the caller frees. Refuses one that others than its owner may read or
 * write, or that belongs to neither root nor this process's user: what stands in it decides who may do what. With `owner`
 * it is for a change to the file, and root may change everybody's; may be NULL. */
struct stat;
int users_load(const char *path, char **text, struct stat *owner, struct fault *fault);
/* Refuses a text that is not all there, as a disk leaves it that is full: an empty one, a last line without its end, and one
 * that begins with USERS_FIRST_LINE and has no USERS_LAST_LINE. `tensord user` writes both; whoever writes the file by hand
 * need not, and a cut between two lines does not show then. */
#define USERS_FIRST_LINE "# Users of tensord, as `tensord user` writes them, up to the line \"# end of users\"."
#define USERS_LAST_LINE "# end of users"
int users_check_whole(const char *path, const char *text, struct fault *fault);
/* Such a text as a table; `path` is for the fault, which begins with "PATH:LINE: ". */
int users_parse(const char *path, const char *text, struct users **users, struct fault *fault);
/* All of it. */
int users_read(const char *path, struct users **users, struct fault *fault);
/* Takes NULL. */
void users_destroy(struct users *users);

/* Why somebody is not let in; what a client is told is less. */
enum users_denial {
    USERS_GRANTED,
    USERS_NO_TOKEN, /* one is needed, and none came */
    USERS_MALFORMED,
    USERS_UNKNOWN, /* no token has this id: never had, or it was revoked */
    USERS_WRONG,   /* the id is known, the secret is another one */
    USERS_EXPIRED, /* both are right, and its time is over */
};
enum users_denial users_by_token(const struct users *users, const char *text, struct principal *principal);
/* The peer of a Unix socket: the user whom the table maps the uid to, or else "uid:N" with the role run; root, and the
 * user that the daemon runs as, are administrators then. `users` may be NULL. */
void users_by_uid(const struct users *users, uid_t uid, struct principal *principal);

/* Who shows a certificate with this name: the user of that name. Without a table (`users` NULL) it is "cert:NAME" with the
 * role run; with one that has no such user, "cert:NAME" with no role, for whoever keeps a table has said who may come. */
void users_by_certificate(const struct users *users, const char *name, struct principal *principal);

/* For each credential that means something else in `now` than it did in `before`, or nothing any more: calls with what it
 * meant, and what it means (NULL: nothing). Those who were let in by it may not stay. Tokens' times that had ended at
 * `expired` have been told of, and those that end after it users_expire() is to tell of, in whichever table there is then. */
typedef void users_ended(void *owner, const struct principal *was, const struct principal *is);
void users_compare(const struct users *before, const struct users *now, int64_t expired, users_ended *ended,
                   void *owner);

/* For each token whose time has ended after `since`, and until `now`: the same. */
void users_expire(const struct users *users, int64_t since, int64_t now, users_ended *ended, void *owner);

/* What a principal of this name may take: the limits of everybody, and in place of some its own. `users` may be NULL. */
void users_limits(const struct users *users, const char *name, const struct limits *everybody, struct limits *limits);

/* Whether somebody may be called that; no principal is that is no user. */
bool users_is_name(const char *text);
/* NULL: there is no such user. */
const struct user *users_find(const struct users *users, const char *name);
/* NULL: no user has a token with this id. */
const struct users_token *users_find_token(const struct users *users, const char *id);
