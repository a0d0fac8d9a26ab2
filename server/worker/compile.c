#include "server/worker/compile.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "engine/session/host.h"
#include "proto/ops/kernel.h"
#include "server/process/log.h"
#include "server/worker/connection.h"
#include "server/worker/request_impl.h"

static void compile_next(struct service *service);

void compile_queue_init(struct compile_queue *queue) {
    *queue = (struct compile_queue){.first = NULL};
    queue->last = &queue->first;
}

/* Call it while the session exists. */
static void compile_give_host(struct compile *compile) {
    if (compile->payer)
        host_give(compile->payer, compile->host);
    compile->payer = NULL;
}

static void compile_destroy(struct compile *compile) {
    compile_give_host(compile);
    compile->principal->compiles--;
    worker_principal_let_go(compile->principal);
    kernel_job_finish(&compile->job);
    compile_process_finish(&compile->process);
    free(compile);
}

static void compile_log(const struct compile *compile) {
    const struct connection *connection = compile->pending->connection;
    const struct kernel_job *job = &compile->job;
    uint64_t ms = (clock_now_ns() - compile->started_ns) / 1000000u;
    char session[24], took[24];
    log_event_from(compile->compiled ? LOG_LEVEL_INFO : LOG_LEVEL_DEBUG, PEER_SOURCE(&connection->peer),
                   "kernel_compiled", "session", log_text(session, sizeof session, "%lu", connection->number),
                   "principal", connection->peer.principal.name, "kernel", job->name, "status",
                   status_name(job->status), "ms", log_text(took, sizeof took, "%lu", ms), job->status ? "cause" : NULL,
                   job->fault.message, NULL);
}

/* The compilation has ended, with or without success. */
static void compile_over(struct compile *compile) {
    compile->state = COMPILE_DONE;
    compile_give_host(compile);
    if (compile->pending) {
        compile_log(compile);
        pending_reply_compiled(compile->pending);
        kernel_job_settle(&compile->job); /* the reply may take long to leave */
    } else {
        compile_destroy(compile);
    }
}

/* Its turn at a compiler has ended. Loading the code is part of the turn, because the driver may have to translate
 * it. */
static void compile_turn_over(struct compile *compile) {
    if (!compile->compiled)
        return;
    compile->service->compiles.running--;
    compile->principal->compiling--;
}

/* ---- on a thread of the pool ---- */

static void compile_work(struct service *service, uv_work_t *work, uv_work_cb run, uv_after_work_cb done) {
    service->compiles.busy++;
    uv_queue_work(service->loop, work, run, done);
}

/* Back on the loop. */
static void compile_work_done(struct service *service) {
    service_busy(service);
    service->compiles.busy--;
}

static void compile_run_load(uv_work_t *work) {
    struct compile *compile = work->data;
    kernel_job_load(&compile->job);
}

static void compile_loaded(uv_work_t *work, int status) {
    struct compile *compile = work->data;
    struct service *service = compile->service;
    (void)status; /* the pool cancels nothing that runs */
    compile_work_done(service);
    compile_turn_over(compile);
    compile_over(compile);
    compile_release_unused(service);
    compile_next(service);
}

/* Loads what is compiled, if the session has room for it. */
static int compile_load(struct compile *compile) {
    int error = kernel_job_charge(&compile->job, compile->pending->connection->session);
    if (error)
        return error;
    compile->state = COMPILE_LOADING;
    compile_work(compile->service, &compile->work, compile_run_load, compile_loaded);
    return STATUS_OK;
}

/* Takes the compilation out of the list `left`. */
static void compile_return(struct compile *compile) {
    struct compile **at = &compile->service->compiles.left;
    if (!compile->left)
        return;
    while (*at != compile)
        at = &(*at)->next;
    *at = compile->next;
    compile->left = NULL;
}

int compile_apart(const struct service *service, struct compile_process *process, const struct kernel_source *source,
                  struct device_code **code, char **log, struct fault *fault) {
    const struct compile_process_options options = {
        .program = service->options.compiler,
        .kind = service->kind,
        .memory = service->limits.compile_memory,
        .timeout_ms = service->limits.compile_timeout_ms,
    };
    return compile_process_run(process, &options, source, code, log, fault);
}

static int compile_job_apart(struct kernel_job *job, const struct kernel_source *source, struct device_code **code,
                             char **log, struct fault *fault) {
    struct compile *compile = (struct compile *)((char *)job - offsetof(struct compile, job));
    return compile_apart(compile->service, &compile->process, source, code, log, fault);
}

static void compile_run(uv_work_t *work) {
    struct compile *compile = work->data;
    kernel_job_compile(&compile->job);
}

static void compile_ran(uv_work_t *work, int status) {
    struct compile *compile = work->data;
    struct service *service = compile->service;
    (void)status; /* the pool cancels nothing that runs */
    compile_work_done(service);
    compile_return(compile);
    if (compile->pending && !compile_load(compile))
        return;
    compile_turn_over(compile);
    compile_over(compile);
    compile_next(service);
}

/* ---- turns ---- */

static bool compile_precedes(const struct compile *a, const struct compile *b) {
    if (a->principal != b->principal)
        return a->principal->compile_turn < b->principal->compile_turn;
    return a->pending->connection->compile_turn < b->pending->connection->compile_turn;
}

/* Takes the compilation whose turn it is out of the queue. NULL: there is none now. */
static struct compile *compile_take(struct compile_queue *queue) {
    struct compile **best = NULL, *compile;
    for (struct compile **at = &queue->first; *at; at = &(*at)->next)
        if (!(*at)->principal->compiling && (!best || compile_precedes(*at, *best)))
            best = at;
    if (!best)
        return NULL;
    compile = *best;
    *best = compile->next;
    if (!*best)
        queue->last = best;
    return compile;
}

static void compile_begin(struct compile *compile) {
    struct compile_queue *queue = &compile->service->compiles;
    compile->state = COMPILE_RUNNING;
    compile->compiled = true;
    compile->started_ns = clock_now_ns();
    compile->principal->compile_turn = compile->pending->connection->compile_turn = ++queue->turns;
    compile->principal->compiling++;
    queue->running++;
    compile_work(compile->service, &compile->work, compile_run, compile_ran);
}

static void compile_next(struct service *service) {
    struct compile_queue *queue = &service->compiles;
    struct compile *compile;
    while (queue->running < COMPILE_RUNNING_MAX && (compile = compile_take(queue))) {
        if (!kernel_job_compiled(&compile->job)) /* another compilation of the same source may have ended meanwhile */
            compile_begin(compile);
        else if (compile_load(compile))
            compile_over(compile);
    }
}

/* ---- unloading code that nobody needs ---- */

static void compile_run_release(uv_work_t *work) {
    struct service *service = work->data;
    kernel_unused_release(engine_kernels(service->engine), service->compiles.unused);
}

static void compile_released(uv_work_t *work, int status) {
    struct service *service = work->data;
    (void)status; /* the pool cancels nothing that runs */
    compile_work_done(service);
    service->compiles.releases = false;
    compile_release_unused(service);
}

void compile_release_unused(struct service *service) {
    struct compile_queue *queue = &service->compiles;
    if (queue->releases || !(queue->unused = kernel_unused_take(engine_kernels(service->engine))))
        return;
    queue->releases = true;
    queue->releasing.data = service;
    compile_work(service, &queue->releasing, compile_run_release, compile_released);
}

/* ---- from the request to the reply ---- */

static int compile_create(struct pending_reply *pending, uint64_t kernel, const char *source, const char *name,
                          struct compile **result, struct fault *fault) {
    struct connection *connection = pending->connection;
    struct service *service = connection->service;
    uint64_t host = sizeof(struct compile) + strlen(source) + strlen(name);
    int error = host_take(connection->session, host, fault);
    if (error)
        return error;
    struct compile *compile = calloc(1, sizeof *compile);
    if (!compile) {
        host_give(connection->session, host);
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory to compile a kernel");
    }
    error = kernel_job_init(&compile->job, engine_kernels(service->engine), source, name, fault);
    if (error == STATUS_OK) {
        error = worker_principal_hold(service, connection->principal->key, &connection->principal->limits,
                                      &compile->principal, fault);
        if (error)
            kernel_job_finish(&compile->job);
    }
    if (error) {
        host_give(connection->session, host);
        free(compile);
        return error;
    }
    compile->payer = connection->session;
    compile->host = host;
    if (service->options.compiler)
        compile->job.compile = compile_job_apart;
    compile_process_init(&compile->process);
    compile->principal->compiles++;
    compile->service = service;
    compile->pending = pending;
    compile->kernel = kernel;
    compile->work.data = compile;
    compile->started_ns = clock_now_ns();
    *result = compile;
    return STATUS_OK;
}

int compile_start(struct pending_reply *pending, uint64_t kernel, const char *source, const char *name,
                  struct compile **result, struct fault *fault) {
    struct service *service = pending->connection->service;
    struct compile *compile = NULL;
    int error = compile_create(pending, kernel, source, name, &compile, fault);
    if (error)
        return error;
    if (kernel_job_compiled(&compile->job)) {
        error = compile_load(compile);
        if (error) {
            *fault = compile->job.fault;
            compile_destroy(compile);
            return error;
        }
        *result = compile;
        return STATUS_OK;
    }
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

bool compile_leave(struct compile *compile) {
    struct compile_queue *queue = &compile->service->compiles;
    if (compile->state != COMPILE_RUNNING)
        return false;
    compile->left = compile->pending->connection;
    compile->pending = NULL;
    compile->next = queue->left;
    queue->left = compile;
    return true;
}

void compile_abandon(const struct connection *connection) {
    struct compile *compile = connection->service->compiles.left, *next;
    for (; compile; compile = next) {
        next = compile->next;
        if (compile->left != connection)
            continue;
        compile_return(compile);
        compile_let_go(compile);
    }
}

void compile_let_go(struct compile *compile) {
    if (!compile)
        return;
    compile->pending = NULL;
    compile_give_host(compile);
    atomic_store(&compile->job.cancelled, true);
    kernel_job_discharge(&compile->job);
    if (compile->state == COMPILE_RUNNING)
        compile_process_cancel(&compile->process);
    if (compile->state == COMPILE_QUEUED)
        compile_unqueue(compile);
    if (compile->state == COMPILE_QUEUED || compile->state == COMPILE_DONE)
        compile_destroy(compile);
}

/* ---- the requests KernelCompile and KernelRelease ---- */

static unsigned request_compiles(const struct connection *connection) {
    unsigned n = 0;
    for (const struct pending_reply *pending = connection->out.pending; pending; pending = pending->next)
        n += pending->kind == PENDING_COMPILE;
    return n;
}

static int request_compile_check(const struct connection *connection, const Tensord__KernelCompile *compile,
                                 struct fault *fault) {
    size_t length = strlen(compile->name);
    if (!connection->peer.principal.user_kernels) /* the operator may change that while the session lives */
        return kernel_refuse(connection->peer.principal.name, fault);
    if (length == 0 || length > KERNEL_NAME_MAX)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "a kernel's name has 1 to %d bytes, not %zu", KERNEL_NAME_MAX,
                         length);
    if (request_compiles(connection) >= COMPILE_PENDING_MAX)
        return fault_set(fault, STATUS_LIMIT, "%d kernels are being compiled already", COMPILE_PENDING_MAX);
    if (connection->principal->compiles >= COMPILE_PRINCIPAL_MAX)
        return fault_set(fault, STATUS_LIMIT, "%d kernels of %s are being compiled already", COMPILE_PRINCIPAL_MAX,
                         connection->peer.principal.name);
    return session_kernel_id(connection->session, compile->kernel, fault);
}

int request_kernel_compile(struct connection *connection, const struct frame_header *header,
                           const ProtobufCMessage *message, uint8_t **sink, struct fault *fault) {
    const Tensord__KernelCompile *compile = (const Tensord__KernelCompile *)message;
    struct fault refused;
    (void)sink, (void)fault;
    if (request_compile_check(connection, compile, &refused) == STATUS_OK)
        return pending_reply_compile(connection, header->sequence, compile->kernel, compile->source, compile->name);
    return pending_reply_fault(connection, FRAME_KERNEL_COMPILED, header->sequence, &refused);
}

int request_kernel_release(struct connection *connection, const struct frame_header *header,
                           const ProtobufCMessage *message, uint8_t **sink, struct fault *fault) {
    struct fault ignored; /* the caller's fault would end the connection */
    (void)header, (void)sink, (void)fault;
    session_kernel_release(connection->session, ((const Tensord__KernelRelease *)message)->kernel, &ignored);
    compile_release_unused(connection->service);
    return STATUS_OK;
}
