/* Reading INI files with libinih. Adds the line number to each fault, which libinih does not pass to its handler. */
#pragma once

#include <stdio.h>

#include "proto/ops/status.h"

enum { INI_FILE_LINE_MAX = 199 }; /* bytes that libinih takes in one line */

struct ini_file_events {
    /* A header `[name]` begins a section. May be NULL: sections have no meaning then. */
    int (*section)(void *owner, const char *name, struct fault *fault);
    int (*pair)(void *owner, const char *key, const char *value, struct fault *fault);
    /* The end of the file: may say that something is missing in the last section. May be NULL. */
    int (*end)(void *owner, struct fault *fault);
};

/* The first wrong line ends the reading with STATUS_INVALID_ARGUMENT, and the fault begins with "NAME:LINE: ". */
int ini_file_read(FILE *stream, const char *name, const struct ini_file_events *events, void *owner,
                  struct fault *fault);
