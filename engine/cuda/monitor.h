/* Takes the readings of one device from NVML, about once a second, on a thread of its own: if a call hangs, only that thread does, and
 * the readings grow old.
 *
 * Threads: the owner calls these functions; any thread may call monitor_reserved(). None waits for NVML longer than it says. */
#pragma once

#include "engine/device/readings.h"

struct monitor;

/* `bus`: the PCI address. `uuid`: of a MIG device, which has no address of its own; NULL for a whole GPU. Returns NULL if there is no
 * NVML, or the thread cannot be started. */
struct monitor *monitor_start(const char *bus, const char *uuid);
/* Waits, for MONITOR_FIRST_MS at most, until the device has been read for the first time or cannot be. To be called before this process
 * takes any memory of the device, so that the size of its context can be found. */
void monitor_wait(struct monitor *monitor);
/* The process has made its context. */
void monitor_opened(struct monitor *monitor);
/* Device memory that the process has taken, or given back. */
void monitor_reserved(struct monitor *monitor, int64_t bytes);
void monitor_read(struct monitor *monitor, struct device_readings *readings);
/* Ends the thread, or leaves it alone if it does not end within MONITOR_STOP_MS. */
void monitor_stop(struct monitor *monitor);

enum { MONITOR_FIRST_MS = 500, MONITOR_STOP_MS = 1000 };
