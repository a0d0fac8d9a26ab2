/* Compilations of user kernels: each runs on a thread of libuv's pool, a few at a time, while the loop goes on. Loop thread
 * only. */
#pragma once

#include <uv.h>

#include "engine/kernel.h"

struct answer;
struct connection;
struct service;

enum {
    COMPILE_RUNNING_MAX = 2, /* of a service: a compiler takes a core and some 100 MB */
    COMPILE_PENDING_MAX = 8, /* of a connection */
};

struct compile {
    struct compile *next; /* while it waits for its turn */
    struct service *service;
    struct answer *answer; /* who waits for it; NULL: nobody any more */
    enum { COMPILE_QUEUED, COMPILE_RUNNING, COMPILE_DONE } state;
    uint64_t kernel; /* the id to bind */
    uint64_t started_ns;
    uv_work_t work;
    struct kernel_job job;
};

/* Of a service. */
struct compile_queue {
    struct compile *first, **last;
    unsigned running; /* a release among them */
    uv_work_t releasing;
    struct device_kernel *unused; /* what it releases */
};

void compile_queue_init(struct compile_queue *queue);

/* answer_compiled() is called when it is done, not before this returns. */
int compile_start(struct answer *answer, uint64_t kernel, const char *source, const char *name,
                  struct compile **compile, struct fault *fault);
/* Starts to take off the device what nobody needs any more, unless a compilation is about to. */
void compile_release_unused(struct service *service);
/* The answer goes away. What runs, runs to its end, or as far as its compiler lets it; then it is freed. Takes NULL. */
void compile_let_go(struct compile *compile);
