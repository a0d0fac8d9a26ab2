/* Kernels of fused launches (engine/program/fusion.h), compiled while the loop runs: one at a time, beside those of clients, in a process of its
 * own if the service has a program for that, or found on disk. A thread of libuv's pool waits for compiler and load. Loop thread only. */
#pragma once

#include <uv.h>

#include "engine/program/kernel.h"
#include "server/worker/code_cache.h"
#include "server/worker/compile_process.h"

struct fusion;
struct service;

/* Of a service. */
struct compile_fused {
    struct service *service;
    struct fusion *fusion; /* that is being compiled; NULL: none */
    bool stopped;
    uint64_t compiled; /* kernels, so far */
    uint64_t began_ns;
    struct code_cache cache;
    char compiler[KERNEL_COMPILER_MAX];
    bool begun;  /* cache and compiler are known; written by the pool's thread, of which there is one at a time */
    bool cached; /* the code was on disk */
    struct kernel_job job;
    struct compile_process process;
    uv_work_t work;
};

/* Starts the next one that waits, if none is being compiled. */
void compile_fused_next(struct service *service);
/* Ends what is being compiled, and begins no other. */
void compile_fused_stop(struct service *service);
