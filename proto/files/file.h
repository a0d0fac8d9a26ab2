/* Reading and writing files as a whole: all bytes of a piece, and a new file in the place of an old one. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/ops/status.h"

/* False with errno: some of them could not be written. */
bool whole_write(int fd, const void *data, size_t bytes);
/* From a place in the file. False with errno; 0: the file ends before. */
bool whole_read(int fd, void *to, size_t bytes, uint64_t at);

/* A file that takes the place of another one in one step: it is written beside it under another name, brought to the disk,
 * and renamed. Until then, and on any failure, the old one stays as it was. */

enum { NEW_FILE_PATH_MAX = 4096 };

struct new_file {
    int fd; /* -1: none */
    char path[NEW_FILE_PATH_MAX], temporary[NEW_FILE_PATH_MAX];
};

/* STATUS_INVALID_ARGUMENT begins with the path and says why not. All of them do. */
int new_file_open(struct new_file *file, const char *path, mode_t mode, struct fault *fault);
int new_file_write(struct new_file *file, const void *data, size_t bytes, struct fault *fault);
/* On failure the old file is there (the new one only where it cannot be said that it outlasts a crash of the host), and
 * new_file_abandon() is still to be called. */
int new_file_commit(struct new_file *file, struct fault *fault);
/* Removes what has been written. Does nothing after a commit, or for a file that was not opened. */
void new_file_abandon(struct new_file *file);
