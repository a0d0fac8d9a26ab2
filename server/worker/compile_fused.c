#include "server/worker/compile_fused.h"

#include <stddef.h>

#include "engine/program/fusion.h"
#include "server/process/log.h"
#include "server/worker/service.h"

static void fused_log(const struct compile_fused *fused) {
    const struct kernel_job *job = &fused->job;
    char took[24];
    uint64_t ms = (clock_now_ns() - fused->began_ns) / 1000000u;
    /* Kernels of all clients' programs are one source: a kernel may be for several of them. */
    log_event_from(job->status && !fused->stopped ? LOG_LEVEL_WARNING : LOG_LEVEL_DEBUG, "programs",
                   "fused_kernel_compiled", "status", status_name(job->status), "ms",
                   log_text(took, sizeof took, "%lu", ms), "cached", fused->cached ? "yes" : "no",
                   job->status ? "cause" : NULL, job->fault.message, NULL);
}

/* ---- on a thread of the pool ---- */

static void fused_begin(struct compile_fused *fused) {
    struct fault fault;
    const char *folder = fused->service->options.cache_dir;
    if (fused->begun)
        return;
    fused->begun = true;
    kernel_compiler(fused->service->kind, fused->compiler);
    if (!code_cache_init(&fused->cache, folder ? folder : "none", &fault))
        log_event(LOG_LEVEL_WARNING, "kernels_not_kept", "cause", fault.message, NULL);
}

static int fused_compile(struct kernel_job *job, const struct kernel_source *source, struct device_code **code,
                         char **log, struct fault *fault) {
    struct compile_fused *fused = (struct compile_fused *)((char *)job - offsetof(struct compile_fused, job));
    struct service *service = fused->service;
    *log = NULL;
    fused->cached = code_cache_find(&fused->cache, fused->compiler, source, code);
    if (fused->cached)
        return STATUS_OK;
    int status = service->options.compiler ? compile_apart(service, &fused->process, source, code, log, fault)
                                           : kernel_compile(service->kind, source, &job->cancelled, code, log, fault);
    if (status == STATUS_OK)
        code_cache_keep(&fused->cache, fused->compiler, source, *code);
    return status;
}

static void fused_run(uv_work_t *work) {
    struct compile_fused *fused = work->data;
    struct kernel_job *job = &fused->job;
    fused_begin(fused);
    kernel_job_compile(job);
    if (job->status == STATUS_OK)
        kernel_job_load(job);
    if (fused->cached && job->status != STATUS_OK && job->status != STATUS_OUT_OF_MEMORY &&
        job->status != STATUS_DEVICE_LOST && job->status != STATUS_CANCELLED) {
        const struct kernel_source source = {.text = job->source, .name = job->name, .target = kernel_job_target(job)};
        code_cache_forget(&fused->cache, fused->compiler, &source); /* the next one that asks has it compiled */
    }
}

/* ---- on the loop ---- */

static void fused_ran(uv_work_t *work, int status) {
    struct compile_fused *fused = work->data;
    struct service *service = fused->service;
    struct fusion *fusion = fused->fusion;
    (void)status; /* the pool cancels nothing that runs */
    service_busy(service);
    service->compiles.busy--;
    fused_log(fused);
    compile_process_finish(&fused->process);
    fused->fusion = NULL;
    fused->compiled++;
    fusion_settle(engine_kernels(service->engine), fusion, &fused->job);
    compile_release_unused(service);
    compile_fused_next(service);
}

void compile_fused_next(struct service *service) {
    struct compile_fused *fused = &service->fused;
    struct kernel_store *store = engine_kernels(service->engine);
    struct fault fault;
    if (fused->fusion || fused->stopped || !(fused->fusion = fusion_take(store)))
        return;
    if (fusion_job_init(&fused->job, store, fused->fusion, &fault) !=
        STATUS_OK) { /* no memory: these stay as they are */
        fusion_settle(store, fused->fusion, NULL);
        fused->fusion = NULL;
        return;
    }
    fused->job.compile = fused_compile;
    fused->service = service;
    fused->cached = false;
    fused->began_ns = clock_now_ns();
    fused->work.data = fused;
    compile_process_init(&fused->process);
    service->compiles.busy++;
    uv_queue_work(service->loop, &fused->work, fused_run, fused_ran);
}

void compile_fused_stop(struct service *service) {
    struct compile_fused *fused = &service->fused;
    fused->stopped = true;
    if (!fused->fusion)
        return;
    atomic_store(&fused->job.cancelled, true);
    compile_process_cancel(&fused->process);
}
