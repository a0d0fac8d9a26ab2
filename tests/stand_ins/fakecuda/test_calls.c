/* The module on the stand-in for CUDA, in this process: the n-th call fails, for every n in a job.
 *
 * Each run is a process of its own, since a module that has been loaded stays, and so does what CUDA never forgives.
 * FAKECUDA_FULL=1 leaves no call out; an argument "N:CODE" or "FUNCTION:N:CODE" is the one run to make. FAKECUDA_TRACED=1:
 * all that runs is recorded meanwhile (engine/watch/trace.h). */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/device/clock.h"
#include "engine/engine_impl.h"
#include "engine/program/program.h"
#include "tests/stand_ins/fakecuda/fakecuda.h"
#include "tests/stand_ins/fakecuda/job.h"
#include "tests/stand_ins/fakecuda/traced.h"

enum { RUN_SECONDS = 20, DEVICE = 1 /* not CUDA's default: a thread that forgets to choose it is found out */ };

/* What a run says of itself. */
struct run {
    struct fakecuda_figures figures; /* at its end */
    int opened;                      /* STATUS_OK, or why there was no engine */
    bool broken;                     /* the engine has given the device up */
    unsigned failed;                 /* operations and answers */
    char wrong[512];                 /* "": nothing */
};

static struct run *run; /* shared with the process that runs */
static unsigned runs, bad;
static const char *connections; /* of the environment; NULL: not set */
static bool thorough, steady, scarce, tracing, unharmed, preloaded, slow;

__attribute__((format(printf, 1, 2))) static void run_wrong(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (!*run->wrong)
        vsnprintf(run->wrong, sizeof run->wrong, format, arguments);
    va_end(arguments);
}

/* ---- in the process of a run ---- */

/* The stand-in came with the module. */
static void run_figures(void) {
    void *library = dlopen(FAKECUDA_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
    void (*figures)(struct fakecuda_figures *);
    void *symbol = library ? dlsym(library, "fakecuda_figures") : NULL;
    if (!symbol) {
        run_wrong("%s is not the stand-in: %s", FAKECUDA_LIBRARY, dlerror());
        return;
    }
    memcpy(&figures, &symbol, sizeof symbol);
    figures(&run->figures);
}

static bool code_sticky(const char *fail) {
    const char *colon = fail ? strrchr(fail, ':') : NULL;
    return colon && atoi(colon + 1) != cudaErrorMemoryAllocation && atoi(colon + 1) != cudaErrorInvalidValue;
}

/* After the job: nothing is left of it, and either the device has been given up or all is as if nothing had been. */
static void run_settle(struct engine *engine, bool sticky) {
    struct engine_stats stats;
    struct fault fault;
    struct job again;
    run_figures();
    if (run->figures.connections != (connections ? atol(connections) : 32))
        run_wrong("CUDA has started with %ld connections", run->figures.connections);
    if (run->figures.properties != 1)
        run_wrong("the device's properties have been read %lu times", run->figures.properties);
    run->broken = engine_fault(engine, &fault) != STATUS_OK;
    if (*run->figures.failed && sticky && !run->broken) { /* the last call gave something back: the next one tells */
        job_run(&again, engine);
        run->broken = engine_fault(engine, &fault) != STATUS_OK;
        if (!run->broken)
            run_wrong("the device is lost, and the engine does not know");
    }
    if (unharmed && (!*run->figures.failed || run->broken || run->failed))
        run_wrong("what a library refused has failed: %u failures%s", run->failed,
                  run->broken ? ", and the device" : "");
    engine_stats(engine, &stats);
    if (stats.memory_live || stats.sessions)
        run_wrong("%llu bytes and %u sessions are left", (unsigned long long)stats.memory_live, stats.sessions);
    if (!run->broken && *run->figures.failed) {
        job_run(&again, engine);
        if (again.n_failed || *again.wrong)
            run_wrong("the job after it: %u failures, %s", again.n_failed, again.wrong);
    }
}

static bool stats_same_calls(const struct engine_stats *a, const struct engine_stats *b) {
    return a->reservations == b->reservations && a->releases == b->releases && a->pinnings == b->pinnings &&
           a->unpinnings == b->unpinnings && a->workspace_growths == b->workspace_growths;
}

/* Work that has been done before takes nothing from the device, pins nothing, and grows no workspace. Each of the streams
 * in reserve has had its first product before that is so, and which one a job gets depends on who came back last. */
static void run_steady(struct engine *engine) {
    enum { ROUNDS = 50, STEADY = 5 };
    struct engine_stats before, after;
    struct job job;
    int unchanged = 0;
    job_run(&job, engine);
    engine_stats(engine, &before);
    if (!before.reservations || !before.pinnings || !before.workspace_growths || !before.workspaces)
        run_wrong("nothing is counted: %llu segments, %llu pinned, %llu growths to %llu bytes",
                  (unsigned long long)before.reservations, (unsigned long long)before.pinnings,
                  (unsigned long long)before.workspace_growths, (unsigned long long)before.workspaces);
    for (int i = 0; i < ROUNDS && unchanged < STEADY; i++, before = after) {
        job_run(&job, engine);
        engine_stats(engine, &after);
        unchanged = stats_same_calls(&before, &after) ? unchanged + 1 : 0;
    }
    if (unchanged < STEADY)
        run_wrong("jobs that have run before go on to take memory: %llu segments, %llu pinned, %llu growths",
                  (unsigned long long)before.reservations, (unsigned long long)before.pinnings,
                  (unsigned long long)before.workspace_growths);
}

/* Half a minute without work, as the watch counts it, and workspaces have been given back. */
static void run_rest(struct engine *engine) {
    struct timespec pause = {.tv_nsec = 1000000};
    struct engine_stats stats;
    struct engine_stall stall;
    for (int i = 0; i < 30; i++) {
        engine->order.watch.looked_ns = clock_now() - UINT64_C(1000000000);
        engine_stalled(engine, 0, &stall);
    }
    for (int i = 0; i < 2000; i++) {
        engine_stats(engine, &stats);
        if (!stats.workspaces)
            return;
        nanosleep(&pause, NULL);
    }
    run_wrong("%llu bytes of workspaces are kept by a device at rest", (unsigned long long)stats.workspaces);
}

/* ---- out of memory ---- */

enum { SCARCE_MIB = 128, SCARCE_BLOCK_MIB = 16, SCARCE_TIMES = 1000 };

/* As the worker does it: what waits for memory that the device has not got back yet is asked for again. */
static int scarce_full(struct engine *engine, struct session *session, uint64_t id, int64_t mebibytes) {
    int64_t ints[3] = {DTYPE_U8, 0, mebibytes << 20};
    double value = 0;
    struct op_request request = {
        .opcode = OP_FULL, .n_ints = 3, .ints = ints, .n_floats = 1, .floats = &value, .output = id, .sequence = id};
    struct timespec pause = {.tv_nsec = 1000000};
    int code;
    while ((code = session_submit(session, &request)) == STATUS_AGAIN) {
        engine_kick(engine);
        engine_poll(engine);
        nanosleep(&pause, NULL);
    }
    return code;
}

static void scarce_free(struct session *session, uint64_t id, uint64_t sequence) {
    struct op_request request = {.opcode = OP_FREE, .n_inputs = 1, .inputs = &id, .sequence = sequence};
    session_submit(session, &request);
}

static bool scarce_answered;

static void scarce_answer(struct fetch *fetch, const struct failure *failure) {
    (void)fetch, (void)failure;
    scarce_answered = true;
}

/* All that was enqueued before has run. */
static void scarce_await(struct engine *engine, struct session *session, uint64_t id) {
    struct fetch fetch = {.done = scarce_answer};
    scarce_answered = false;
    session_fetch(session, id, &fetch);
    engine_kick(engine);
    while (!scarce_answered)
        engine_wait(engine);
    fetch_release(&fetch);
}

/* Blocks are given back for one of twice the size. The device has them when it has had nothing to do: this thread does not wait
 * for that, and is told to come again. */
static void scarce_reshape(struct engine *engine, struct session *session, uint64_t id) {
    scarce_await(engine, session, id);
    for (uint64_t block = 2; block < 6; block++) /* a segment may have two of them */
        scarce_free(session, block, ++id);
    int code = scarce_full(engine, session, ++id, 2 * SCARCE_BLOCK_MIB);
    if (code != STATUS_OK)
        run_wrong("what was given back cannot be had again: %d", code);
}

/* The device has less than the engine believes: CUDA refuses, a thousand times, and nothing is left of it. */
static void run_scarce(struct engine *engine) {
    struct session_limits limits = {.tensors = 1 << 20, .streams = 1};
    struct engine_stats stats;
    struct session *session;
    struct fault fault;
    uint64_t id = 0, before;
    if (session_create(engine_sessions(engine), &limits, &session, &fault) != STATUS_OK) {
        run_wrong("no session: %s", fault.message);
        return;
    }
    run_rest(engine); /* or what is given back meanwhile would be found */
    while (scarce_full(engine, session, ++id, SCARCE_BLOCK_MIB) == STATUS_OK)
        engine_kick(engine);
    uint64_t blocks = id - 1;
    run_figures();
    before = run->figures.device_bytes;
    for (int i = 0; i < SCARCE_TIMES; i++)
        if (scarce_full(engine, session, ++id, SCARCE_BLOCK_MIB) != STATUS_OUT_OF_MEMORY)
            run_wrong("block %llu is no failure", (unsigned long long)id);
    run_figures();
    if (!blocks || run->figures.device_bytes != before)
        run_wrong("%llu blocks; %llu bytes taken before, and %llu after", (unsigned long long)blocks,
                  (unsigned long long)before, (unsigned long long)run->figures.device_bytes);
    engine_stats(engine, &stats);
    if (stats.memory_live != blocks * ((uint64_t)SCARCE_BLOCK_MIB << 20))
        run_wrong("%llu bytes are live", (unsigned long long)stats.memory_live);
    scarce_free(session, 1, ++id);
    if (scarce_full(engine, session, ++id, SCARCE_BLOCK_MIB) != STATUS_OK)
        run_wrong("what was freed cannot be had again");
    scarce_reshape(engine, session, id);
    session_destroy(session);
}

/* The thread that brings kernels to the device ends when it has done so. */
static void run_preloaded(void) {
    struct timespec pause = {.tv_nsec = 1000000};
    char path[64], name[32] = "";
    bool there = true;
    for (int i = 0; i < 10000 && there; i++, nanosleep(&pause, NULL)) {
        DIR *tasks = opendir("/proc/self/task");
        there = false;
        for (struct dirent *task; tasks && (task = readdir(tasks));) {
            snprintf(path, sizeof path, "/proc/self/task/%.20s/comm", task->d_name);
            FILE *file = fopen(path, "r");
            there |= file && fgets(name, sizeof name, file) && !strncmp(name, "tensord kernels", 15);
            if (file)
                fclose(file);
        }
        if (tasks)
            closedir(tasks);
    }
    if (there)
        run_wrong("kernels are still being loaded");
}

/* No launch of a job has to wait until its kernel has been loaded; but for CUB's, of which only CUB knows. */
static void run_late(void) {
    enum { OF_CUB = 4 };
    if (run->figures.slow)
        run_wrong("the thread that serves clients has made %lu calls that take long", run->figures.slow);
    if (run->figures.loaded < 500 || run->figures.late > OF_CUB)
        run_wrong("of its kernels %lu were loaded before and %lu when they were launched", run->figures.loaded,
                  run->figures.late);
}

static void run_job(struct engine *engine, const char *fail) {
    bool sticky = code_sticky(fail);
    struct job job;
    struct engine_stats stats;
    struct traced traced = {0};
    if (tracing)
        traced_begin(&traced, engine);
    if (preloaded)
        run_preloaded();
    job_run(&job, engine);
    run->failed = job.n_failed;
    if (tracing)
        traced_end(&traced, engine, &job, !fail);
    if (*job.wrong || *traced.wrong)
        run_wrong("%s", *job.wrong ? job.wrong : traced.wrong);
    run_settle(engine, sticky);
    if (steady) {
        run_steady(engine);
        run_rest(engine);
    }
    if (scarce)
        run_scarce(engine);
    if (preloaded && !fail) {
        run_rest(engine);
        run_figures();
        run_late();
    }
    do { /* what was cancelled passes, too */
        engine_poll(engine);
        engine_stats(engine, &stats);
    } while (stats.queue_depth);
    engine_destroy(engine);
}

/* A failing call that gives something back leaves it behind; nothing else may. */
static void run_leaks(bool sticky) {
    const struct fakecuda_figures *left = &run->figures;
    if (left->early && !*left->failed)
        run_wrong("%u graphs were destroyed while they ran", left->early);
    if (sticky || strstr(left->failed, "Free") || strstr(left->failed, "Destroy") || strstr(left->failed, "Unload"))
        return;
    if (left->device_bytes || left->host_bytes || left->streams || left->events || left->libraries || left->graphs ||
        left->execs)
        run_wrong("left behind: %llu bytes of the device, %llu pinned, %u streams, %u events, %u libraries, %u graphs, "
                  "%u of them executable",
                  (unsigned long long)left->device_bytes, (unsigned long long)left->host_bytes, left->streams,
                  left->events, left->libraries, left->graphs, left->execs);
}

static int run_main(const char *fail) {
    struct device_options options = {
        .index = DEVICE, .memory_total = scarce ? UINT64_C(4) << 30 : 0, .preload = preloaded};
    struct device *device = NULL;
    struct engine *engine = NULL;
    struct fault fault = {0};
    bool sticky = code_sticky(fail);
    alarm(RUN_SECONDS);
    setenv("FAKECUDA_DEVICES", "2", 1);
    if (connections)
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", connections, 1);
    if (slow)
        setenv("FAKECUDA_SLOW", "2000", 1);
    if (scarce) {
        char text[32];
        snprintf(text, sizeof text, "%d", SCARCE_MIB << 20);
        setenv("FAKECUDA_MEMORY", text, 1);
    }
    if (fail)
        setenv("FAKECUDA_FAIL", fail, 1);
    run->opened = device_open("cuda", &options, &device, &fault);
    if (run->opened == STATUS_OK)
        run->opened = engine_create(device, &(struct engine_options){0}, &engine, &fault);
    if (run->opened == STATUS_OK)
        run_job(engine, fail);
    else if (!fail)
        run_wrong("no device: %s", fault.message);
    run_figures();
    run_leaks(sticky);
    fflush(NULL);
    return 0;
}

/* ---- runs ---- */

/* False where something is wrong. `fail` NULL: nothing does. */
static bool run_once(const char *fail) {
    int status = 0;
    memset(run, 0, sizeof *run);
    fflush(NULL);
    pid_t process = fork();
    if (process == 0)
        (thorough ? exit
                  : _exit)(run_main(fail)); /* exit() looks for leaks where there is a sanitizer, which takes long */
    while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
    }
    runs++;
    if (WIFSIGNALED(status))
        run_wrong(WTERMSIG(status) == SIGALRM ? "it hangs" : "it died of signal %d", WTERMSIG(status));
    else if (WEXITSTATUS(status))
        run_wrong("it ended with %d", WEXITSTATUS(status));
    if (!*run->wrong)
        return true;
    printf("# FAKECUDA_FAIL=%s (%s): %s\n", fail ? fail : "", run->figures.failed, run->wrong);
    bad++;
    return false;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Every `step`-th call of a job. */
static void sweep(unsigned long calls, unsigned long first, unsigned long step, cudaError_t code) {
    unsigned lost = 0, survived = 0, refused = 0, missed = 0;
    double start = seconds();
    for (unsigned long n = first; n <= calls; n += step) {
        char fail[64];
        snprintf(fail, sizeof fail, "%lu:%d", n, (int)code);
        run_once(fail);
        refused += run->opened != STATUS_OK;
        missed += !*run->figures.failed;
        lost += run->broken;
        survived += run->opened == STATUS_OK && *run->figures.failed && !run->broken;
    }
    printf("# error %d at every %lu. of %lu calls: %u devices refused, %u lost, %u survived, %u calls never came; %.1f "
           "s\n",
           (int)code, step, calls, refused, lost, survived, missed, seconds() - start);
}

static void sweep_function(const char *function) {
    static const int codes[] = {cudaErrorMemoryAllocation, cudaErrorIllegalAddress, cudaErrorECCUncorrectable};
    for (size_t j = 0; j < sizeof codes / sizeof *codes; j++) {
        char fail[96];
        snprintf(fail, sizeof fail, "%s:%d:%d", function, 1 + (int)j, codes[j]);
        run_once(fail);
    }
}

/* One call of each function on its own: the numbers above depend on how the threads happen to run. */
static void sweep_functions(void) {
    static const char *const functions[] = {
        "cudaMalloc",
        "cudaHostAlloc",
        "cudaMallocAsync",
        "cudaStreamCreateWithPriority",
        "cudaEventRecord",
        "cudaEventQuery",
        "cudaStreamWaitEvent",
        "cudaEventCreateWithFlags",
        "cudaMemcpyAsync",
        "cudaMemsetAsync",
        "cudaLaunchKernel",
        "cudaSetDevice",
        "cublasLtCreate",
        "cublasLtMatmul",
        "cudaFreeAsync",
        "cublasLtMatmulAlgoGetHeuristic",
        "cudaGetDevice",
        "cudaFuncGetAttributes",
        "cudaDeviceGetAttribute",
        "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
        "cuLibraryLoadData",
        "cuFuncGetParamInfo",
        "cuFuncLoad",
        "cuLaunchKernel",
        "cudaGetDriverEntryPointByVersion",
        "cudnnBackendExecute",
        "cufftExecR2C",
        "cusolverDnXgetrf",
        "cudaStreamBeginCapture",
        "cudaStreamEndCapture",
        "cudaStreamGetCaptureInfo",
        "cudaGraphGetNodes",
        "cudaGraphInstantiate",
        "cudaGraphLaunch",
        "cudaGraphExecUpdate",
        "cudaGraphNodeGetType",
        "cuGraphKernelNodeGetParams",
        "cuGraphExecKernelNodeSetParams",
        "cudaGraphMemcpyNodeGetParams",
        "cudaGraphExecMemcpyNodeSetParams",
        "cudaGraphMemsetNodeGetParams",
        "cudaGraphExecMemsetNodeSetParams",
        "cudaGraphDestroy",
        "cudaGraphExecDestroy",
        "cudaEventSynchronize",
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        sweep_function(functions[i]);
}

/* What a library says without the device having failed costs nobody anything: there is another way to compute a product. */
static void sweep_refusals(void) {
    static const char *const refusals[] = {
        "cublasLtMatmul:1:1",      "cublasLtMatmul:2:1",
        "cublasLtMatmul:1:2",      "cublasLtMatmulAlgoGetHeuristic:1:1",
        "cublasLtCreate:1:1",      "cublasLtCreate:1:2",
        "cudnnCreate:1:1",         "cudnnCreate:1:2",
        "cudnnBackendExecute:1:1", "cudnnBackendExecute:1:2",
        "cudnnSetStream:1:2",      "cufftCreate:1:2",
        "cufftMakePlanMany64:1:1", "cufftSetWorkArea:1:2",
        "cufftExecR2C:1:1",        "cufftExecR2C:1:2",
        "cusolverDnCreate:1:2",    "cusolverDnCreateParams:1:1",
        "cusolverDnXgetrf:1:1",    "cusolverDnXgetrs:1:2",
    };
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        unharmed = true;
        run_once(refusals[i]);
        unharmed = false;
    }
}

/* What a trace calls besides, and a part of what it shares with all else. */
static void sweep_traced(unsigned long calls) {
    sweep(calls, 1, thorough ? 1 : 9, cudaErrorMemoryAllocation);
    sweep(calls, 2, thorough ? 1 : 23, cudaErrorIllegalAddress);
    sweep_function("cudaEventElapsedTime");
    sweep_function("cudaEventRecord");
    sweep_function("cudaEventQuery");
    sweep_function("cudaEventCreateWithFlags");
    sweep_function("cudaStreamCreateWithPriority");
    printf("# %u runs that were traced, %u wrong\n", runs, bad);
}

int main(int argc, char **argv) {
    const char *full = getenv("FAKECUDA_FULL");
    thorough = (full && *full) || argc > 1;
    tracing = getenv("FAKECUDA_TRACED");
    run = mmap(NULL, sizeof *run, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run == MAP_FAILED)
        return 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1) { /* one of them, to look at */
        run_once(argv[1]);
        printf("# %s failed; %u failures, %s\n", run->figures.failed, run->failed, run->broken ? "lost" : "not lost");
        return bad != 0;
    }
    if (!run_once(NULL) || run->failed) {
        printf("# without a fault: %u failures\n", run->failed);
        return 1;
    }
    unsigned long calls = run->figures.calls;
    if (tracing) {
        sweep_traced(calls);
        return bad != 0;
    }
    steady = true;
    if (!run_once(NULL))
        return 1;
    steady = false;
    scarce = true;
    if (!run_once(NULL))
        return 1;
    scarce = false;
    slow = true; /* what is given back while it runs shows */
    run_once(NULL);
    slow = false;
    connections = "16";
    run_once(NULL);
    connections = NULL;
    preloaded = true;
    run_once(NULL);
    run_once("cudaFuncGetAttributes:7:2");
    run_once("cudaFuncGetAttributes:7:700");
    preloaded = false;
    sweep(calls, 1, 1, cudaErrorMemoryAllocation);
    sweep(calls, 1, thorough ? 1 : 5, cudaErrorIllegalAddress);
    sweep(calls, 3, thorough ? 1 : 25, cudaErrorLaunchFailure);
    sweep_functions();
    sweep_refusals();
    printf("# %u runs, %u wrong\n", runs, bad);
    return bad != 0;
}
