/* Runs a program to its end and keeps what it said. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

struct command {
    int code;         /* exit code; 128 + signal; -1: it ran past its deadline and was killed */
    char *out, *err;  /* zero-terminated */
    size_t out_bytes; /* without the terminator */
};

/* `arguments` end with NULL, the first is the program, looked up in PATH. `environment` is a NULL-ended list of
 * "NAME=value" that are set, and "NAME" that are unset, in the program's environment; may be NULL. */
void command_run(struct command *command, const char *const arguments[], const char *const environment[],
                 int milliseconds);
void command_finish(struct command *command);
/* The longest line of `text` in columns; UTF-8 continuation bytes do not count. */
size_t command_columns(const char *text);

/* Applies such a list to the present process: between fork and exec. */
void command_environment(const char *const environment[]);
