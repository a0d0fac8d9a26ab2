/* Reading and writing files as a whole: all bytes of a piece, and a new file in the place of an old one. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/ops/status.h"

/* Writes all bytes, with as many system calls as that takes. False with errno: some could not be written. */
bool whole_write(int fd, const void *data, size_t bytes);
/* Reads all bytes from the place `at` on. False with errno; errno 0: the file ends too early. */
bool whole_read(int fd, void *to, size_t bytes, uint64_t at);

/* A new file that replaces an old one in one step: it is written beside the old file under another name, synced to the disk,
 * and renamed. Until then, and on any failure, the old file stays as it was. */

enum { NEW_FILE_PATH_MAX = 4096 };

struct new_file {
    int fd; /* -1: none */
    char path[NEW_FILE_PATH_MAX], temporary[NEW_FILE_PATH_MAX];
};

/* The mode for a file that is written anew: that of the old file, or what the process's umask gives. Any thread. */
mode_t new_file_mode(const char *path);
/* All of these functions fail with STATUS_INVALID_ARGUMENT; the message begins with the path and says why. */
int new_file_open(struct new_file *file, const char *path, mode_t mode, struct fault *fault);
int new_file_write(struct new_file *file, const void *data, size_t bytes, struct fault *fault);
/* On failure the old file is still there, unless only the sync of the folder has failed: then the new file is there, but may
 * be lost in a crash of the host. Call new_file_abandon() also after a failure. */
int new_file_commit(struct new_file *file, struct fault *fault);
/* Removes what has been written. Does nothing after a commit, or for a file that was not opened. */
void new_file_abandon(struct new_file *file);
