/* The form of the daemon's configuration and of the file of users: an INI file, and values, from text and back to text.
 * The functions that read return STATUS_OK, or STATUS_INVALID_ARGUMENT with a fault that shows the text and says what
 * would be right; outputs are untouched on failure. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "server/users/principal.h"

/* Removes white space at both ends; changes `text`. */
char *config_value_trim(char *text);
int config_value_count(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *value, struct fault *fault);
int config_value_octal(const char *text, uint64_t maximum, uint64_t *value, struct fault *fault);
/* "64M", "1T": powers of 1024. */
int config_value_bytes(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *value, struct fault *fault);
/* "250ms", "5s", "10m", "8h", "7d", "0"; milliseconds. */
int config_value_duration(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *value, struct fault *fault);
/* "publish", "drain", or a duration, which may also be a plain number of seconds; as milliseconds, or STATE_SYNC_DRAIN
 * (server/process/state_directory.h). */
int config_value_sync(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *value, struct fault *fault);
/* "yes" or "no", as 1 and 0. */
int config_value_switch(const char *text, uint64_t *value, struct fault *fault);
/* "none", "all", or principals such as "uid:1000" with commas between them; written without white space. */
int config_value_principals(const char *text, char list[PRINCIPAL_LIST_BYTES], struct fault *fault);
/* Names of hosts with commas between them; written without white space. */
int config_value_hosts(const char *text, char list[PRINCIPAL_LIST_BYTES], struct fault *fault);
/* HOST:PORT, copied to `address` of `size` bytes. */
int config_value_address(const char *text, char *address, size_t size, struct fault *fault);
/* A path, copied to `path` of `size` bytes. */
int config_value_path(const char *text, char *path, size_t size, struct fault *fault);

/* Writes a value in the largest unit that shows it exactly. */
void config_value_bytes_text(uint64_t bytes, char *out, size_t size);
void config_value_duration_text(uint64_t milliseconds, char *out, size_t size);
void config_value_sync_text(uint64_t milliseconds, char *out, size_t size);

enum { INI_FILE_LINE_MAX = 199 }; /* bytes that libinih takes in one line */

struct ini_file_events {
    /* A header `[name]` begins a section. NULL: sections have no meaning. */
    int (*section)(void *owner, const char *name, struct fault *fault);
    int (*pair)(void *owner, const char *key, const char *value, struct fault *fault);
    /* Called at the end of the file: may say that something is missing in the last section. May be NULL. */
    int (*end)(void *owner, struct fault *fault);
};

/* Reads a file with libinih. The first wrong line ends the reading with STATUS_INVALID_ARGUMENT, and the fault begins with
 * "NAME:LINE: ", which libinih does not tell its handler. */
int ini_file_read(FILE *stream, const char *name, const struct ini_file_events *events, void *owner,
                  struct fault *fault);
