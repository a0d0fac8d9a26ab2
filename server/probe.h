/* How many devices of a kind this host has, found out by a process of its own: the front never loads a backend, so none can
 * take it down or leave threads and memory in it. */
#pragma once

#include <stdbool.h>

#include "proto/status.h"

/* Blocks until the process has answered, for PROBE_TIMEOUT_MS at most; only before there is an event loop. STATUS_NO_DEVICE
 * says why there is none. */
int probe_count(const char *kind, unsigned *count, struct fault *fault);
/* What that process does, `tensord count KIND`: its exit status. */
int probe_main(const char *kind);
/* Whether a graphics driver is loaded at all, which spares hosts without one the process. */
bool probe_worthwhile(void);
