/* When tokens were used last: kept in memory, and once in a while written beside the file of users ("FILE.used", a line
 * "ID TIME" each), for `tensord user list`; the file of users itself is not touched by logins. Where that cannot be written it is
 * told once, and logins go on. One thread. */
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

/* Of this file of users; reads what is known. Without memory nothing is. */
void token_use_init(struct token_use *use, const char *users);
void token_use_finish(struct token_use *use);
/* 0: never, as far as is known. */
int64_t token_use_of(const struct token_use *use, const char *id);
void token_use_note(struct token_use *use, const char *id, int64_t now);
/* Writes what is new, but not more than once a minute unless `at_once`. Tokens that `users` does not have are forgotten. */
struct users;
void token_use_save(struct token_use *use, const struct users *users, int64_t now, bool at_once);
