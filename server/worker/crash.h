/* The report of a process that a signal such as SIGSEGV ends: lines of its log (server/process/log.h) that say which
 * signal, where, what the device was at, how it was, and how the program had come there. Then the signal has its usual
 * way, so that the parent sees it and a core dump is written where the system does that.
 *
 *   event=crash            the signal and its cause, the thread, the build
 *   event=crash_operation  what the device was given last, newest first
 *   event=crash_device     memory and queue, as on the stats page
 *   event=crash_frame      a call that had not returned, innermost first: module, offset in it (as addr2line -e takes it),
 *                          and function where the module's symbol table has its name
 *   event=crash_end
 *
 * The handlers run on stacks of their own (engine/device/thread.h). They allocate nothing and take no lock; should one
 * hang nevertheless, in damaged memory, an alarm ends the process after some seconds, by the signal that it had got. A
 * fault within a report ends it and the process. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct engine;
struct stats_page;

/* For the calling thread, the process's main one, after log_init(). Where somebody else handles such a signal, as
 * sanitizers do, that stays. */
void crash_init(void);
/* What the device is told by; either may be NULL. The page takes the words for the front (struct stats_page). */
void crash_watch(const struct engine *engine, struct stats_page *page);

/* Finds the name of the function at `address`, which is relative to the file, in the symbol table of a program or library.
 * The table also has functions that are not exported. Uses open() and mmap() only, so that a signal handler may call it.
 * False: the file has no such table (it is stripped), or no function at this address. True: `name` is the function's name,
 * cut at `size`, and *begin its first address. */
bool symbols_find(const char *path, uint64_t address, char *name, size_t size, uint64_t *begin);
