/* What front and worker both know about the directory where named tensors are saved (state-dir): when to save, and
 * whether a directory may be used. Only the worker knows the files in it (server/worker/state.h). */
#pragma once

#include <stdint.h>

#include "proto/ops/status.h"

enum { STATE_PATH_MAX = 256 };

/* When a change is saved (state-sync), as milliseconds after the change. 0: at once, and the reply to the change waits
 * for it. STATE_SYNC_DRAIN: only when the daemon ends. */
#define STATE_SYNC_DRAIN UINT64_MAX

/* Checks a directory that exists: it must belong to this process's user and be closed to all other users.
 * STATUS_INVALID_ARGUMENT says what is wrong. */
int state_directory_check(const char *directory, struct fault *fault);
/* Makes the directory, with mode 0700, if it does not exist; checks it; and locks it until this process ends, because
 * two daemons in one directory would overwrite each other's files. STATUS_INVALID_ARGUMENT says what is wrong. */
int state_directory_take(const char *directory, struct fault *fault);
