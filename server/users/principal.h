/* A principal: who is at the other end of a connection, and what it may do. A plain value, which front and worker send
 * to each other. */
#pragma once

#include <stdbool.h>

#include "server/users/limits.h"
#include "server/users/role.h"

enum { PRINCIPAL_NAME_BYTES = 80, PRINCIPAL_CREDENTIAL_BYTES = 80, PRINCIPAL_ID_BYTES = 20 };

struct principal {
    char name[PRINCIPAL_NAME_BYTES]; /* "alice"; "uid:1000", "cert:alice", "tcp" or "unix" if it is no user */
    char id
        [PRINCIPAL_ID_BYTES]; /* of a user: distinguishes it from an earlier or later user of the same name; "": none */
    /* How it was identified: a token's id, "uid:1000" for the peer of a Unix socket, "cert:alice" for the name in a
     * certificate, or "". When the credential ends, or stands for another principal, its connections end. Not
     * secret. */
    char credential[PRINCIPAL_CREDENTIAL_BYTES];
    enum role role;    /* ROLE_NONE: it has to log in first */
    bool user_kernels; /* it may bring kernels of its own */
    struct limits limits;
};

/* A list of principals as a configuration has it: "none", "all", or names with commas between them. */
enum { PRINCIPAL_LIST_BYTES = 512 };
bool principal_is_listed(const char list[PRINCIPAL_LIST_BYTES], const char *name);

/* Terminates its texts: for a principal that came from another process, which may be broken. */
void principal_end_texts(struct principal *principal);
/* The key under which a principal's things are stored, also after the user is removed: "alice#5d1c20aa", or the name
 * alone if there is no id. */
void principal_key(const struct principal *principal, char key[PRINCIPAL_NAME_BYTES]);
/* The name in such a key. */
void principal_key_name(const char *key, char name[PRINCIPAL_NAME_BYTES]);
/* Whether both are the same principal with the same credential. */
bool principal_same_login(const struct principal *a, const struct principal *b);
