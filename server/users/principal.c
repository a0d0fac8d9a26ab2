#include "server/users/principal.h"

#include <stdio.h>
#include <string.h>

#include "server/users/users.h"

void principal_end_texts(struct principal *principal) {
    principal->name[sizeof principal->name - 1] = 0;
    principal->credential[sizeof principal->credential - 1] = 0;
    principal->id[sizeof principal->id - 1] = 0;
}

_Static_assert(USERS_NAME_MAX + 1 + PRINCIPAL_ID_BYTES <= PRINCIPAL_NAME_BYTES, "a key has a user's name and id");

void principal_key(const struct principal *principal, char key[PRINCIPAL_NAME_BYTES]) {
    if (*principal->id)
        snprintf(key, PRINCIPAL_NAME_BYTES, "%.*s#%s", USERS_NAME_MAX, principal->name, principal->id);
    else
        snprintf(key, PRINCIPAL_NAME_BYTES, "%s", principal->name);
}

/* Only users have ids, and their names have no '#'. */
void principal_key_name(const char *key, char name[PRINCIPAL_NAME_BYTES]) {
    size_t length = strcspn(key, "#");
    snprintf(name, PRINCIPAL_NAME_BYTES, "%.*s", (int)length, key);
    if (!users_is_name(name))
        snprintf(name, PRINCIPAL_NAME_BYTES, "%s", key);
}

bool principal_same_login(const struct principal *a, const struct principal *b) {
    return !strcmp(a->name, b->name) && !strcmp(a->id, b->id) && !strcmp(a->credential, b->credential);
}

bool principal_is_listed(const char list[PRINCIPAL_LIST_BYTES], const char *name) {
    size_t length = strlen(name);
    if (!strcmp(list, "none") || !strcmp(list, "all"))
        return !strcmp(list, "all");
    for (const char *at = list; *at;) {
        size_t part = strcspn(at, ",");
        if (part == length && !strncmp(at, name, length))
            return true;
        at += part + (at[part] == ',');
    }
    return false;
}
