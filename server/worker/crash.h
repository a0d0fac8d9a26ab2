/* The report of a process that a signal such as SIGSEGV ends: lines of its log (server/process/log.h) with the signal,
 * the place, the device's last operations and its state, and the calls that led there. Then the signal takes its usual
 * effect, so that the parent sees it and the system may write a core dump.
 *
 *   event=crash            the signal and its cause, the thread, the build
 *   event=crash_operation  an operation that the device was given, newest first
 *   event=crash_device     memory and queue, as on the stats page
 *   event=crash_frame      a call that had not returned, innermost first: module, offset in it (as addr2line -e takes it),
 *                          and function where the module's symbol table has its name
 *   event=crash_end
 *
 * The handlers run on stacks of their own (engine/device/thread.h). They allocate nothing and take no lock. If a report
 * hangs nevertheless, in damaged memory, an alarm ends the process after some seconds, by the signal that it had got. A
 * fault within a report ends the report and the process. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct engine;
struct stats_page;

/* Call it on the process's main thread, after log_init(). A signal that somebody else handles, such as a sanitizer, is
 * left alone. */
void crash_init(void);
/* The engine and the page that a report describes; either may be NULL. A report leaves the last operation on the page,
 * for the front (struct stats_page). */
void crash_watch(const struct engine *engine, struct stats_page *page);

/* Finds the name of the function at `address`, which is relative to the file, in the symbol table of a program or library.
 * The table also has functions that are not exported. Uses open() and mmap() only, so that a signal handler may call it.
 * False: the file has no such table (it is stripped), or no function at this address. True: `name` is the function's name,
 * cut at `size`, and *begin its first address. */
bool symbols_find(const char *path, uint64_t address, char *name, size_t size, uint64_t *begin);
