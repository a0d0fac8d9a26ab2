/* Compilations of user kernels, while the loop goes on: what nobody has compiled yet waits for its turn at a compiler, which
 * is a process of its own where the service has a program for that; then it is loaded on the device. A thread of libuv's
 * pool waits for either.
 *
 * Turns. Few compile at once, and of each principal one: whoever has waited longest since his last turn is next, among the
 * principals, and among a principal's sessions; so a queue of one's sources is his own alone to wait for. What has been
 * compiled before waits for no compiler. Loop thread only. */
#pragma once

#include <uv.h>

#include "engine/program/kernel.h"
#include "server/worker/compile_process.h"

struct worker_principal;
struct answer;
struct connection;
struct service;

enum {
    COMPILE_RUNNING_MAX = 2,    /* of a service: a compiler takes a core and some 100 MB */
    COMPILE_PENDING_MAX = 8,    /* of a connection, */
    COMPILE_PRINCIPAL_MAX = 64, /* of a principal on this device: sources may have 1 MiB */
};

struct compile {
    struct compile *next; /* while it waits for its turn, or is among those left */
    struct service *service;
    struct worker_principal *principal; /* whose turns it takes; kept */
    struct answer *answer;              /* who waits for it; NULL: nobody any more */
    struct connection *left;            /* whose session will ask for it again, with no answer now; NULL: nobody's */
    uint64_t left_cost;                 /* bytes of the source and the name, which `left` is charged meanwhile */
    enum { COMPILE_QUEUED, COMPILE_RUNNING, COMPILE_LOADING, COMPILE_DONE } state;
    uint64_t kernel; /* the id to bind */
    uint64_t started_ns;
    bool compiled; /* by a compiler, and not long ago */
    uv_work_t work;
    struct compile_process process;
    struct kernel_job job;
};

/* Of a service. */
struct compile_queue {
    struct compile *first, **last;
    struct compile *left; /* at a compiler */
    unsigned running;     /* in compilers */
    unsigned busy;        /* threads: those that wait for these, that load, that release */
    uint64_t turns;       /* so far */
    bool releases;
    uv_work_t releasing;
    struct device_kernel *unused; /* what it releases */
};

void compile_queue_init(struct compile_queue *queue);

/* answer_compiled() is called when it is done, not before this returns. */
int compile_start(struct answer *answer, uint64_t kernel, const char *source, const char *name,
                  struct compile **compile, struct fault *fault);
/* Starts to take off the device what nobody needs any more. */
void compile_release_unused(struct service *service);
/* The answer is lost with its session's socket, and its client will ask again: a compiler goes on, for what it makes is there
 * then. False: there is nothing to keep, and compile_let_go() is due. Else compile_abandon() is, when the session ends. */
bool compile_leave(struct compile *compile);
void compile_abandon(const struct connection *connection);
/* The answer goes away, and its session may: a compiler is ended, a load runs to its end; then all is freed. Takes NULL. */
void compile_let_go(struct compile *compile);
