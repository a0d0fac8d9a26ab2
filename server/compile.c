#include "server/compile.h"

#include <stdlib.h>

#include "server/connection.h"
#include "server/log.h"

static void compile_next(struct service *service);

void compile_queue_init(struct compile_queue *queue) {
    *queue = (struct compile_queue){.first = NULL};
    queue->last = &queue->first;
}

static void compile_destroy(struct compile *compile) {
    kernel_job_finish(&compile->job);
    free(compile);
}

/* On a thread of the pool. */
static void compile_run(uv_work_t *work) {
    struct compile *compile = work->data;

    kernel_job_run(&compile->job);
}

static void compile_log(const struct compile *compile) {
    const struct connection *connection = compile->answer->connection;
    uint64_t ms = (service_now_ns() - compile->started_ns) / 1000000u;
    char session[24], took[24];

    log_event(compile->job.cached ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO, "kernel_compiled", "session",
              log_text(session, sizeof session, "%lu", connection->number), "principal",
              connection->peer.principal.name, "kernel", compile->job.name, "status", status_name(compile->job.status),
              "ms", log_text(took, sizeof took, "%lu", ms), NULL);
}

static void compile_done(uv_work_t *work, int status) {
    struct compile *compile = work->data;
    struct service *service = compile->service;

    (void)status; /* nothing that runs is cancelled in the pool */
    service_busy(service);
    service->compiles.running--;
    compile->state = COMPILE_DONE;
    if (compile->answer) {
        compile_log(compile);
        answer_compiled(compile->answer);
    } else {
        compile_destroy(compile);
    }
    compile_next(service);
    compile_release_unused(service);
}

static void compile_next(struct service *service) {
    struct compile_queue *queue = &service->compiles;

    while (queue->first && queue->running < COMPILE_RUNNING_MAX) {
        struct compile *compile = queue->first;

        queue->first = compile->next;
        if (!queue->first)
            queue->last = &queue->first;
        compile->state = COMPILE_RUNNING;
        compile->started_ns = service_now_ns();
        queue->running++;
        uv_queue_work(service->loop, &compile->work, compile_run, compile_done);
    }
}

/* On a thread of the pool. */
static void compile_run_release(uv_work_t *work) {
    struct service *service = work->data;

    kernel_unused_release(service->engine, service->compiles.unused);
}

static void compile_release_done(uv_work_t *work, int status) {
    struct service *service = work->data;

    (void)status; /* nothing that runs is cancelled in the pool */
    service_busy(service);
    service->compiles.running--;
    compile_next(service);
    compile_release_unused(service);
}

void compile_release_unused(struct service *service) {
    struct compile_queue *queue = &service->compiles;

    if (queue->first || queue->running || !(queue->unused = kernel_unused_take(service->engine)))
        return;
    queue->running++;
    queue->releasing.data = service;
    uv_queue_work(service->loop, &queue->releasing, compile_run_release, compile_release_done);
}

int compile_start(struct answer *answer, uint64_t kernel, const char *source, const char *name, struct compile **result,
                  struct fault *fault) {
    struct service *service = answer->connection->service;
    struct compile *compile = calloc(1, sizeof *compile);
    int status;

    if (!compile)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory to compile a kernel");
    status = kernel_job_init(&compile->job, service->engine, source, name, fault);
    if (status) {
        free(compile);
        return status;
    }
    compile->service = service;
    compile->answer = answer;
    compile->kernel = kernel;
    compile->work.data = compile;
    *result = compile;
    *service->compiles.last = compile;
    service->compiles.last = &compile->next;
    compile_next(service);
    return STATUS_OK;
}

static void compile_unqueue(struct compile *compile) {
    struct compile_queue *queue = &compile->service->compiles;
    struct compile **at = &queue->first;

    while (*at != compile)
        at = &(*at)->next;
    *at = compile->next;
    if (!*at)
        queue->last = at;
}

void compile_let_go(struct compile *compile) {
    if (!compile)
        return;
    compile->answer = NULL;
    atomic_store(&compile->job.cancelled, true);
    if (compile->state == COMPILE_QUEUED)
        compile_unqueue(compile);
    if (compile->state != COMPILE_RUNNING)
        compile_destroy(compile);
}
