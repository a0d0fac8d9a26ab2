/* How tensord's threads begin and end: with a name, for lists of threads, and a stack of their own for signal handlers, so that a
 * thread that has used up its stack can still report it (server/worker/crash.h). */
#pragma once

#include <signal.h>

/* Called by the thread itself. `name` has at most 15 bytes; NULL keeps its name. If there is a stack for signal handlers already, which
 * sanitizers make, or no memory for one, the thread goes on as it is. */
void thread_begin(const char *name);
void thread_end(void);
/* Blocks signals for the calling thread and for threads that it starts: all except signals about a fault of the thread itself, which,
 * if they were blocked, would end the process without a message. `before` takes the set that was blocked before. */
void thread_block_signals(sigset_t *before);
