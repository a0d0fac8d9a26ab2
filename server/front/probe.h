/* Which devices of a kind this host has, found out by a process of its own: the front never loads a backend, so none
 * can take it down or leave threads and memory in it. */
#pragma once

#include <stdbool.h>

#include "engine/device/device.h"

/* device_list() by such a process. Blocks until the process has replied, for PROBE_TIMEOUT_MS at most; only before
 * there is an event loop. STATUS_NO_DEVICE says why there is none. */
int probe_list(const char *kind, struct device_place *places, unsigned capacity, unsigned *count, struct fault *fault);
/* What that process does, `tensord count KIND`: a line for each device, with the index and the environment with which
 * its worker opens it ("0", "0 CUDA_VISIBLE_DEVICES=MIG-…"); or "- " and why there is none. Its exit status. */
int probe_main(const char *kind);
/* Whether a graphics driver is loaded at all, which spares hosts without one the process. */
bool probe_worthwhile(void);
