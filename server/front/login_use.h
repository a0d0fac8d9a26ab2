/* When tokens were used last: kept in memory, and once in a while written beside the file of users ("FILE.used", a line
 * "ID TIME" each), for `tensord user list`; the file of users itself is not touched by logins. Where that cannot be written it is
 * told once, and logins go on. One thread. */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "server/users/token.h"

struct login_use {
    char path[PATH_MAX];
    struct login_use_entry {
        char id[TOKEN_ID_CHARS + 1];
        int64_t at;
    } * entries;
    unsigned count, capacity;
    bool changed, complained;
    int64_t written;
};

/* Of this file of users; reads what is known. Without memory nothing is. */
void login_use_init(struct login_use *use, const char *users);
void login_use_finish(struct login_use *use);
/* 0: never, as far as is known. */
int64_t login_use_of(const struct login_use *use, const char *id);
void login_use_note(struct login_use *use, const char *id, int64_t now);
/* Writes what is new, but not more than once a minute unless `at_once`. Tokens that `users` does not have are forgotten. */
struct users;
void login_use_save(struct login_use *use, const struct users *users, int64_t now, bool at_once);
