/* Changes to the file of users, as `tensord user` makes them: under a lock, and either whole or not at all. Comments
 * and all other lines stay. */
#pragma once

#include "server/users/users.h"

/* The file as lines without their ends, and as a table. */
struct users_edit {
    char **lines;
    unsigned n_lines, capacity;
    struct users *users;
};

/* Reads the file (`create`: a missing file counts as empty), lets `change` edit the lines, parses the result, and
 * replaces the file by a new one of mode 0600, which is on the disk before it is renamed. If any of this fails the
 * file is unchanged. */
int users_edit(const char *path, bool create, int (*change)(struct users_edit *edit, void *owner, struct fault *fault),
               void *owner, struct fault *fault);

/* For `change`. The user exists (users_find()); for the first function it does not. */
int users_edit_add(struct users_edit *edit, const char *name, enum role role, struct fault *fault);
/* Gives the user an id, so that it does not get what an earlier user of the same name has left. */
int users_edit_add_id(struct users_edit *edit, const char *name, struct fault *fault);
int users_edit_add_pair(struct users_edit *edit, const char *name, const char *key, const char *value,
                        struct fault *fault);
int users_edit_set_role(struct users_edit *edit, const char *name, enum role role, struct fault *fault);
void users_edit_remove(struct users_edit *edit, const char *name);
/* False: no token has this id. */
bool users_edit_revoke(struct users_edit *edit, const char *id);
