/* Reads what NVML tells of one device, about once a second, on a thread of its own: where a call hangs, only that thread
 * does, and the readings grow old.
 *
 * Threads: the functions are the owner's, but for monitor_reserved(), which any thread may call. None waits for NVML
 * longer than it says. */
#pragma once

#include "engine/device/readings.h"

struct monitor;

/* `bus`: the PCI address. `uuid`: of a MIG device, which has no address of its own; NULL for a whole GPU. NULL where there
 * is no NVML, or no thread. */
struct monitor *monitor_start(const char *bus, const char *uuid);
/* Until the device has been read for the first time, or cannot be: to be called before this process takes anything of
 * the device, so that what its context takes is known; for MONITOR_FIRST_MS at most. */
void monitor_wait(struct monitor *monitor);
/* The context is there now. */
void monitor_opened(struct monitor *monitor);
/* Device memory that the process has taken, or given back. */
void monitor_reserved(struct monitor *monitor, int64_t bytes);
void monitor_read(struct monitor *monitor, struct device_readings *readings);
/* Ends the thread, or leaves it to itself where it does not end within MONITOR_STOP_MS. */
void monitor_stop(struct monitor *monitor);

enum { MONITOR_FIRST_MS = 500, MONITOR_STOP_MS = 1000 };
