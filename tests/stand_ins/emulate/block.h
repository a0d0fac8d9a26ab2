/* Blocks of CUDA threads on the host, one after the other, by one thread of the host.
 *
 * Threads are called one after the other. One that waits, at a barrier or for an exchange within its warp, keeps its stack, and goes on
 * when all for whom it waits are there. What CUDA leaves undefined ends the process, with words on
 * stderr: threads of a block at different barriers, or one that has left while others wait. Blocks, and threads in them,
 * run forwards and backwards in turn, so that results which depend on an order differ.
 *
 * Includable from C and from C++. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <vector_types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { BLOCK_THREADS_MAX = 1024, BLOCK_WARP = 32, BLOCK_EXCHANGE_MAX = 16 /* bytes */ };

/* The running thread's place; its block and the grid are one-dimensional. */
extern uint3 block_thread, block_index;
extern dim3 block_size, block_grid;

/* Runs a whole grid: thread(argument) for each thread of each block. One grid runs at a time. */
void block_launch(dim3 grid, dim3 block, void (*thread)(void *argument), void *argument);

/* ---- for running threads; `where` names the place in the source ---- */

/* Waits for all threads of the block; whether any of them came with something true. */
bool block_barrier(bool any, const char *where);
/* Waits for all threads of the warp; the value that the thread of this lane came with, good until the next exchange. */
const void *block_exchange(const void *value, size_t bytes, unsigned lane, const char *where);

/* Ends the process. */
__attribute__((noreturn, format(printf, 1, 2))) void block_die(const char *format, ...);

#ifdef __cplusplus
}
#endif
