/* Compilations of user kernels, while the loop runs. A source that is not in the cache waits for a compiler, which is
 * a process of its own if the service has a program for that; then the code is loaded on the device. A thread of
 * libuv's pool waits for compiler and load.
 *
 * Turns: only few compilers run at once, and one for each principal. The next turn goes to the principal whose last
 * turn is longest ago, and in it to the session whose last turn is longest ago; so nobody waits for another
 * principal's queue. A source in the cache waits for no compiler. Loop thread only. */
#pragma once

#include <uv.h>

#include "engine/program/kernel.h"
#include "server/worker/compile_process.h"

struct worker_principal;
struct pending_reply;
struct connection;
struct service;

enum {
    COMPILE_RUNNING_MAX = 2,    /* of a service: a compiler takes a core and some 100 MB */
    COMPILE_PENDING_MAX = 8,    /* of a connection, */
    COMPILE_PRINCIPAL_MAX = 64, /* of a principal on this device: a source may have 1 MiB */
};

struct compile {
    struct compile *next; /* in the queue, or in the list `left` */
    struct service *service;
    struct worker_principal *principal; /* held; the compilation uses this principal's turns */
    struct pending_reply *pending;      /* the reply that waits for it; NULL: none any more */
    struct connection *left;            /* has lost its socket, and will ask for this again; NULL: no connection has */
    struct session *payer;              /* of the host memory for source and name; NULL: nobody pays any more */
    uint64_t host;                      /* its bytes */
    enum { COMPILE_QUEUED, COMPILE_RUNNING, COMPILE_LOADING, COMPILE_DONE } state;
    uint64_t kernel; /* the id to bind */
    uint64_t started_ns;
    bool compiled; /* a compiler has just compiled it; it was not in the cache */
    uv_work_t work;
    struct compile_process process;
    struct kernel_job job;
};

/* Of a service. */
struct compile_queue {
    struct compile *first, **last;
    struct compile *left; /* compilations in a compiler whose session has lost its socket */
    unsigned running;     /* compilers */
    unsigned busy;        /* threads that wait for a compiler, a load or a release */
    uint64_t turns;       /* so far */
    bool releases;
    uv_work_t releasing;
    struct device_kernel *unused; /* the code that `releasing` unloads */
};

void compile_queue_init(struct compile_queue *queue);

/* pending_reply_compiled() is called when it is done, never before this function returns. */
int compile_start(struct pending_reply *pending, uint64_t kernel, const char *source, const char *name,
                  struct compile **compile, struct fault *fault);
/* Compiles in a process of its own, as the service's options and limits say: compile_process_run(). Any thread. */
int compile_apart(const struct service *service, struct compile_process *process, const struct kernel_source *source,
                  struct device_code **code, char **log, struct fault *fault);
/* Starts to unload code from the device that nobody needs any more. */
void compile_release_unused(struct service *service);
/* The session has lost its socket, and its client will ask again: the compiler continues, so that the code is there
 * then. False: there is nothing to keep, and the caller calls compile_let_go(). True: compile_abandon() is due when
 * the session ends. */
bool compile_leave(struct compile *compile);
void compile_abandon(const struct connection *connection);
/* Nobody waits for the compilation any more, and its session may end: kills a compiler, lets a load run to its end,
 * and then frees all. Takes NULL. */
void compile_let_go(struct compile *compile);
