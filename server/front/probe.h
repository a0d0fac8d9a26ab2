/* Which devices of a kind this host has, found out by a process of its own: the front never loads a backend, so none
 * can take it down or leave threads and memory in it. */
#pragma once

#include <stdbool.h>

#include "engine/device/device.h"

/* Calls device_list() in such a process. Blocks until the process has replied, for PROBE_TIMEOUT_MS at most; only
 * before there is an event loop. STATUS_NO_DEVICE says why there is no device. */
int probe_list(const char *kind, struct device_place *places, unsigned capacity, unsigned *count, struct fault *fault);
/* The process itself, `tensord count KIND`: prints a line for each device, with the index and the environment with
 * which its worker opens it ("0", "0 CUDA_VISIBLE_DEVICES=MIG-…"); or "- " and why there is none. Returns its exit
 * status. */
int probe_main(const char *kind);
/* Whether a graphics driver is loaded at all: without one no process is needed. */
bool probe_worthwhile(void);
