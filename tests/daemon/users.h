/* A file of users for one test, maintained by the real `tensord user`, and clients that show tokens. Everything asserts. */
#pragma once

#include "tests/daemon/daemon.h"
#include "tests/daemon/wire.h"

enum { USERS_TOKEN_BYTES = 96 };

struct users_file {
    char directory[64];
    char path[100];
};

void users_file_make(struct users_file *file);
void users_file_remove(struct users_file *file);
/* `tensord user WORDS… --users FILE`, which must succeed; `words` are NULL-ended. What it printed goes into `out`, without
 * its end of line (NULL: nowhere). */
void users_file_run(const struct users_file *file, const char *const words[], char out[USERS_TOKEN_BYTES]);
#define USERS_RUN(file, out, ...) users_file_run(file, (const char *const[]){__VA_ARGS__, NULL}, out)
/* A user with a token. */
void users_file_add(const struct users_file *file, const char *name, const char *role, char token[USERS_TOKEN_BYTES]);
/* Writes text of the test's own into it. */
void users_file_write(const struct users_file *file, const char *text);
/* The id within a token; in a buffer that the next call uses again. */
const char *users_token_id(const char *token);
/* The token with another secret. */
void users_token_spoil(const char *token, char spoilt[USERS_TOKEN_BYTES]);

/* SIGHUP, and waits until the daemon says in its log that it has read everything again, or why not: whichever `event` is,
 * "reloaded" or "reload_failed", for the `times`th time. */
void users_reload(const struct daemon *daemon, const char *event, unsigned times);

/* Hello with this token on a connection whose preamble has been sent: STATUS_OK for Welcome, else the code of Error, whose
 * words go into `message` (256 bytes, may be NULL); -1 where nothing came. */
int users_hello(struct wire *wire, const char *token, char *message);
/* The same on a connection of its own to this target, which is open afterwards only after STATUS_OK. */
int users_open(struct wire *wire, const char *url, uint16_t target, const char *token, char *message);
