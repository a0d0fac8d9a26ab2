/* Ids for users who have none in the file of users, because they were written there by hand: otherwise a later user of
 * the same name would get the names that an earlier one has left. Such a user is known by its name alone, as long as it
 * stays in the file. When it has left the file, the next user of that name gets an id.
 *
 * The names of such users are kept in a file "identities" in the directory of saved names, because they must be known
 * for as long as these names: a line "alice - here" for each, with "-" or the id, and "here" or "gone". Front thread
 * only. */
#pragma once

#include "proto/ops/status.h"
#include "server/process/state_directory.h"
#include "server/users/users.h"

struct identity {
    char name[USERS_NAME_MAX + 1];
    char id[PRINCIPAL_ID_BYTES]; /* "": none is needed, because nobody had the name before */
    bool gone;                   /* the user is not in the file any more */
};

struct identities {
    char path[STATE_PATH_MAX + 16]; /* "": they last as long as the daemon */
    struct identity *entries;
    unsigned count, capacity;
    bool changed; /* since they were written */
    bool failing; /* the last try to write them failed */
};

/* Reads the file. `directory` "": there is none. STATUS_INVALID_ARGUMENT: it cannot be read. */
int identities_init(struct identities *identities, const char *directory, struct fault *fault);
void identities_finish(struct identities *identities);
/* Gives ids to the users of a table that now comes into force. What goes wrong is logged. */
void identities_apply(struct identities *identities, struct users *users);
/* Writes them if they have changed, which a full disk may have prevented before. */
void identities_save(struct identities *identities);
