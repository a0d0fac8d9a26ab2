/* Binding a Unix socket to a path where a dead daemon may have left its own. */
#pragma once

#include <sys/stat.h>

#include "proto/ops/status.h"

/* A listening socket at `path`: *fd. STATUS_CONNECTION where a live daemon listens there, or the system refuses.
 * Two daemons that start at once cannot take the path from each other: the directory is locked meanwhile. */
int listener_unix_bind(const char *path, mode_t mode, int *fd, struct stat *file, struct fault *fault);
