/* Tokens, with which clients log in: `tensord_ID_SECRET`, with an id of 8 and a secret of 64 hexadecimal digits, which
 * are 256 random bits. Only a salted hash is stored, SHA-256 of salt and secret. A slow hash, as for passwords, would
 * be of no use: 2^256 secrets cannot be tried at any speed, and strangers could make the daemon compute slow hashes. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/ops/status.h"

enum {
    TOKEN_ID_CHARS = 8,
    TOKEN_SECRET_CHARS = 64,
    TOKEN_SALT_BYTES = 16,
    TOKEN_HASH_BYTES = 32,
    TOKEN_TEXT_CHARS = 8 + TOKEN_ID_CHARS + 1 + TOKEN_SECRET_CHARS, /* with "tensord_" and the second '_' */
    TOKEN_TIME_BYTES = 21,                                          /* "2026-12-31T00:00:00Z" */
    TOKEN_COMMENT_MAX = 100,
    TOKEN_SECRET_RECORD_CHARS = TOKEN_ID_CHARS + 1 + 2 * TOKEN_SALT_BYTES + 1 + 2 * TOKEN_HASH_BYTES,
    TOKEN_RECORD_BYTES = TOKEN_SECRET_RECORD_CHARS + 9 + TOKEN_TIME_BYTES + 9 + TOKEN_COMMENT_MAX + 1,
};

/* A token as it is stored. */
struct token {
    char id[TOKEN_ID_CHARS + 1];
    uint8_t salt[TOKEN_SALT_BYTES], hash[TOKEN_HASH_BYTES];
    int64_t expires; /* in seconds since 1970; 0: never */
    char comment[TOKEN_COMMENT_MAX + 1];
};

/* Makes a token from random bytes, and its text, which the caller shows once and then wipes. */
int token_make(struct token *token, char text[TOKEN_TEXT_CHARS + 1], struct fault *fault);
/* The id in a token's text; false: the text is no token. */
bool token_text_id(const char *text, char id[TOKEN_ID_CHARS + 1]);
bool token_is_id(const char *text);
/* Whether `text`, which has the form of a token, has this token's secret. Takes the same time for a wrong secret as
 * for the right one; with `token` NULL it does the same work in vain, so that an unknown id takes as long as a known
 * one. */
bool token_verify(const struct token *token, const char *text);

/* Whether both have the same id and secret. */
bool token_same(const struct token *a, const struct token *b);

bool token_expired(const struct token *token, int64_t now);
/* A time as "2026-12-31T00:00:00Z", and back; -1: the text is no time. */
void token_time_write(int64_t seconds, char text[TOKEN_TIME_BYTES]);
int64_t token_time_parse(const char *text);
/* Whether it may stand in the file of users: plain text in one line, without ';' and '#'. */
bool token_is_comment(const char *text);

/* The form in the file of users: "ID SALT HASH" in hexadecimal digits, then, if the token has them, "expires=TIME" and
 * "comment=" with the rest of the line. */
void token_record_write(const struct token *token, char text[TOKEN_RECORD_BYTES]);
bool token_record_parse(const char *text, struct token *token);

/* When each token was last used, for `tensord user list`. The times are kept in memory and saved regularly beside the
 * file of users ("FILE.used", with a line "ID TIME" for each token); logins do not change the file of users itself. If
 * "FILE.used" cannot be written the log says so once, and logins continue. One thread. */
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
