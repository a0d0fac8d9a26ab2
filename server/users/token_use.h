/* When each token was last used, for `tensord user list`. The times are kept in memory and saved regularly beside the
 * file of users ("FILE.used", with a line "ID TIME" for each token); logins do not change the file of users itself. If
 * "FILE.used" cannot be written the log says so once, and logins continue. One thread. */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "server/users/token.h"

struct token_use {
    char path[PATH_MAX];
    struct token_use_entry {
        char id[TOKEN_ID_CHARS + 1];
        int64_t at;
    } * entries;
    unsigned count, capacity;
    bool changed, complained;
    int64_t written;
};

/* `users`: the path of the file of users. Reads the times that were saved; without memory, none. */
void token_use_init(struct token_use *use, const char *users);
void token_use_finish(struct token_use *use);
/* The time of the token's last use; 0: not known, or never. */
int64_t token_use_of(const struct token_use *use, const char *id);
void token_use_note(struct token_use *use, const char *id, int64_t now);
/* Saves changed times, but only once a minute unless `at_once`. Drops tokens that are not in `users`. */
struct users;
void token_use_save(struct token_use *use, const struct users *users, int64_t now, bool at_once);
