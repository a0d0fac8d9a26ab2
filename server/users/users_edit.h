/* Changes to the file of users, as `tensord user` makes them: under a lock, and whole or not at all. Comments, and lines that
 * are none of its business, stay. */
#pragma once

#include "server/users/users.h"

/* The file as lines without their ends, and as what they say. */
struct users_edit {
    char **lines;
    unsigned n_lines, capacity;
    struct users *users;
};

/* Reads the file (`create`: an absent one is an empty one), lets `change` edit the lines, reads them again as a file, and
 * puts that in the place of the old one: a new file of mode 0600, written out to the disk, then renamed. Nothing is changed
 * where any of this fails. */
int users_edit(const char *path, bool create, int (*change)(struct users_edit *edit, void *owner, struct fault *fault),
               void *owner, struct fault *fault);

/* For `change`. The user is there (users_find), or is not for the first. */
int users_edit_add(struct users_edit *edit, const char *name, enum role role, struct fault *fault);
/* An id of its own, so that nothing of an earlier user of that name is this one's. */
int users_edit_add_id(struct users_edit *edit, const char *name, struct fault *fault);
int users_edit_add_pair(struct users_edit *edit, const char *name, const char *key, const char *value,
                        struct fault *fault);
int users_edit_set_role(struct users_edit *edit, const char *name, enum role role, struct fault *fault);
void users_edit_remove(struct users_edit *edit, const char *name);
/* False where no token has this id. */
bool users_edit_revoke(struct users_edit *edit, const char *id);
