/* How a thread of ours begins and ends: with a name, for those who list threads, and a stack of its own for signal
 * handlers, so that also a thread that has used up its stack can still say so (server/worker/crash.h). */
#pragma once

#include <signal.h>

/* By the thread itself. `name` has at most 15 bytes; NULL keeps the one it has. Where there is such a stack already, as
 * sanitizers bring it, or no memory for one, the thread goes on as it is. */
void thread_begin(const char *name);
void thread_end(void);
/* Blocks all signals for the calling thread, and so for those that it starts, but those that tell of a fault of the thread
 * itself: blocked, they would end the process without a word. `before` takes what
 * was blocked until now. */
void thread_block_signals(sigset_t *before);
