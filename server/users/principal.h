/* Who is at the other end of a connection, and what it may do. A value: front and worker hand it to each other. */
#pragma once

#include <stdbool.h>

#include "server/users/limits.h"
#include "server/users/role.h"

enum { PRINCIPAL_NAME_BYTES = 80, PRINCIPAL_CREDENTIAL_BYTES = 80, PRINCIPAL_ID_BYTES = 20 };

struct principal {
    char name[PRINCIPAL_NAME_BYTES]; /* "alice"; "uid:1000" and "tcp" for those without a name */
    char id[PRINCIPAL_ID_BYTES]; /* of a user: tells one from another of the same name, before or after; "": has none */
    /* By what it is known: a token's id, "uid:1000" for the peer of a Unix socket, "cert:alice" for the name in a
     * certificate, "" for nothing. When that ends, or comes to mean somebody else, so do its connections. Not secret. */
    char credential[PRINCIPAL_CREDENTIAL_BYTES];
    enum role role;    /* ROLE_NONE: has to show a token first */
    bool user_kernels; /* may bring kernels of its own */
    struct limits limits;
};

/* A list of principals as a configuration has it: "none", "all", or names with commas between them. */
enum { PRINCIPAL_LIST_BYTES = 512 };
bool principal_is_listed(const char list[PRINCIPAL_LIST_BYTES], const char *name);

/* For one that came from another process, which may have gone wrong. */
void principal_end_texts(struct principal *principal);
/* Whose things are whose, beyond a user's life: "alice#5d1c20aa", or the name alone where there is no id. */
void principal_key(const struct principal *principal, char key[PRINCIPAL_NAME_BYTES]);
/* The name in such a key. */
void principal_key_name(const char *key, char name[PRINCIPAL_NAME_BYTES]);
/* Whether both were let in as the same, by the same. */
bool principal_same_login(const struct principal *a, const struct principal *b);
