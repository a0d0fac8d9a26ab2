/* Tokens: what a client shows to be somebody. `tensord_ID_SECRET`, with an id of 8 and a secret of 64 hexadecimal digits:
 * 256 random bits. Only a salted hash is kept, SHA-256 of salt and secret. A slow hash, as passwords need, would win
 * nothing: nobody tries 2^256 secrets at any speed, and a slow one is work that strangers could ask for. */
#pragma once

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

/* What is kept of a token. */
struct token {
    char id[TOKEN_ID_CHARS + 1];
    uint8_t salt[TOKEN_SALT_BYTES], hash[TOKEN_HASH_BYTES];
    int64_t expires; /* seconds since 1970, from which on it is no good; 0: never */
    char comment[TOKEN_COMMENT_MAX + 1];
};

/* A new token of random bytes, and its text, which is told once and then wiped by the caller. */
int token_make(struct token *token, char text[TOKEN_TEXT_CHARS + 1], struct fault *fault);
/* The id within a token's text; false where the text is no token. */
bool token_text_id(const char *text, char id[TOKEN_ID_CHARS + 1]);
bool token_is_id(const char *text);
/* Whether `text`, of a token's form, has this token's secret. Takes as long for a wrong secret as for the right one;
 * `token` NULL: does the same work for nothing, so that an unknown id takes as long as a known one. */
bool token_verify(const struct token *token, const char *text);

/* Whether both have the same id and secret. */
bool token_same(const struct token *a, const struct token *b);

bool token_expired(const struct token *token, int64_t now);
/* A time as "2026-12-31T00:00:00Z", and back; -1 where it is none. */
void token_time_write(int64_t seconds, char text[TOKEN_TIME_BYTES]);
int64_t token_time_parse(const char *text);
/* Whether it may stand in the file of users: plain text in one line, without ';' and '#'. */
bool token_is_comment(const char *text);

/* As the file of users has them: "ID SALT HASH" in hexadecimal digits, then, where they are there, "expires=TIME" and
 * "comment=" with all that follows. */
void token_record_write(const struct token *token, char text[TOKEN_RECORD_BYTES]);
bool token_record_parse(const char *text, struct token *token);
