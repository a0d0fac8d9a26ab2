#include "server/worker/compile_process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/program/kernel.h"
#include "proto/files/file.h"
#include "proto/ops/cleanup.h"
#include "server/process/clock.h"

/* One call of compile_process_run(). */
struct compile_run {
    struct compile_process *process;
    const struct compile_process_options *options;
    int reply;           /* the reading end of the pipe */
    int64_t deadline_ms; /* INT64_MAX: none */
    bool late;           /* the deadline has passed */
    bool absurd;         /* the reply contradicts itself */
};

void compile_process_init(struct compile_process *process) {
    *process = (struct compile_process){.id = 0};
    pthread_mutex_init(&process->lock, NULL);
}

void compile_process_finish(struct compile_process *process) {
    pthread_mutex_destroy(&process->lock);
}

/* ---- the request ---- */

/* Makes a file in memory with the request, to be read from its beginning; -1: it cannot be made. */
static int compile_process_request(const struct compile_process_options *options, const struct kernel_source *source) {
    const struct compile_request request = {
        .magic = COMPILE_MAGIC,
        .target = source->target,
        .text_bytes = strlen(source->text) + 1,
        .name_bytes = strlen(source->name) + 1,
        .memory = options->memory,
        .seconds = options->timeout_ms / 1000 + (options->timeout_ms % 1000 != 0),
    };
    int fd = memfd_create("tensord-kernel", MFD_CLOEXEC);
    if (fd >= 0 && whole_write(fd, &request, sizeof request) && whole_write(fd, source->text, request.text_bytes) &&
        whole_write(fd, source->name, request.name_bytes) && lseek(fd, 0, SEEK_SET) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* ---- the start ---- */

/* Variables that the loader, the compiler and builds with sanitizers use. The others may hold an operator's secrets. */
static const char *const compile_process_variables[] = {
    "LD_LIBRARY_PATH=", "TMPDIR=", "ASAN_OPTIONS=", "LSAN_OPTIONS=", "UBSAN_OPTIONS="};
enum { COMPILE_VARIABLES = sizeof compile_process_variables / sizeof *compile_process_variables };
static void compile_process_environment(char *list[COMPILE_VARIABLES + 1]) {
    unsigned kept = 0;
    for (char **at = environ; *at; at++)
        for (unsigned i = 0; i < COMPILE_VARIABLES && kept < COMPILE_VARIABLES; i++)
            if (!strncmp(*at, compile_process_variables[i], strlen(compile_process_variables[i])))
                list[kept++] = *at;
    list[kept] = NULL;
}

/* Standard input is the request; standard output and error go nowhere. */
static int compile_process_descriptors(posix_spawn_file_actions_t *actions, int request, int reply) {
    int error = posix_spawn_file_actions_adddup2(actions, request, STDIN_FILENO);
    if (!error)
        error = posix_spawn_file_actions_addopen(actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (!error)
        error = posix_spawn_file_actions_addopen(actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (!error)
        error = posix_spawn_file_actions_adddup2(actions, reply, COMPILE_REPLY_FD);
    /* Descriptors of a driver may not be close-on-exec. */
    return error ? error : posix_spawn_file_actions_addclosefrom_np(actions, COMPILE_REPLY_FD + 1);
}

/* In a process group of its own, which a terminal's ^C does not reach, and with default signals: a worker ignores some,
 * and the threads of newer libuv pools block all. */
static int compile_process_attributes(posix_spawnattr_t *attributes) {
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    int error = posix_spawnattr_setsigdefault(attributes, &all);
    if (!error)
        error = posix_spawnattr_setsigmask(attributes, &none);
    if (!error)
        error = posix_spawnattr_setpgroup(attributes, 0);
    return error ? error
                 : posix_spawnattr_setflags(attributes,
                                            POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
}

static int compile_process_spawn(const struct compile_process_options *options, int request, int reply, pid_t *id) {
    char parent[24], *environment[COMPILE_VARIABLES + 1];
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    snprintf(parent, sizeof parent, "%d", getpid());
    char *arguments[] = {"tensord", "compile", (char *)(uintptr_t)options->kind, parent, NULL};
    compile_process_environment(environment);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    int error = compile_process_descriptors(&actions, request, reply);
    if (!error)
        error = compile_process_attributes(&attributes);
    if (!error)
        error = posix_spawn(id, options->program, &actions, &attributes, arguments, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

static int compile_process_failed(struct fault *fault, int error) {
    return fault_set(fault, error == ENOMEM || error == EAGAIN ? STATUS_NO_HOST_MEMORY : STATUS_INTERNAL,
                     "no process to compile in: %s", strerror(error));
}

/* Starts the process, and sets run->reply. */
static int compile_process_start(struct compile_run *run, const struct kernel_source *source, pid_t *id,
                                 struct fault *fault) {
    int ends[2];
    CLEANUP(close) int request = compile_process_request(run->options, source);
    if (request < 0 || pipe2(ends, O_CLOEXEC))
        return compile_process_failed(fault, errno);
    int error = compile_process_spawn(run->options, request, ends[1], id);
    close(ends[1]);
    if (!error && fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0) {
        run->reply = ends[0];
        return STATUS_OK;
    }
    close(ends[0]);
    return compile_process_failed(fault, error);
}

/* ---- the reply ---- */

/* Waits until there is something to read. False: nothing will come, or not in time. */
static bool compile_process_await(struct compile_run *run) {
    for (;;) {
        int64_t left = run->deadline_ms == INT64_MAX ? INT_MAX : run->deadline_ms - (int64_t)clock_now_ms();
        struct pollfd readable = {.fd = run->reply, .events = POLLIN};
        if (left <= 0) {
            run->late = true;
            return false;
        }
        int ready = poll(&readable, 1, left < INT_MAX ? (int)left : INT_MAX);
        if (ready > 0)
            return true;
        if (ready < 0 && errno != EINTR && errno != EAGAIN)
            return false;
    }
}

/* Reads exactly `bytes` bytes. False: they do not come. */
static bool compile_process_read(struct compile_run *run, void *data, size_t bytes) {
    for (char *at = data; bytes;) {
        ssize_t got = read(run->reply, at, bytes);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (!compile_process_await(run))
                return false;
            continue;
        }
        if (got <= 0)
            return false;
        at += got;
        bytes -= (size_t)got;
    }
    return true;
}

/* The codes that a compiler may reply with. It cannot say that a device is lost. */
static bool compile_process_status_known(uint32_t status) {
    static const enum status known[] = {STATUS_OK,        STATUS_INVALID_ARGUMENT, STATUS_UNSUPPORTED,
                                        STATUS_CANCELLED, STATUS_NO_HOST_MEMORY,   STATUS_LIMIT,
                                        STATUS_INTERNAL};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (status == (uint32_t)known[i])
            return true;
    return false;
}

static bool compile_process_reply_valid(const struct compile_reply *reply) {
    bool ok = reply->status == STATUS_OK;
    return reply->magic == COMPILE_MAGIC && compile_process_status_known(reply->status) &&
           reply->code_bytes <= (ok ? COMPILE_CODE_MAX : 0) && reply->symbol_bytes <= (ok ? COMPILE_SYMBOL_MAX : 0) &&
           (reply->symbol_bytes > 0) == ok && reply->log_bytes <= KERNEL_LOG_MAX &&
           memchr(reply->message, 0, sizeof reply->message);
}

/* Reads code and symbol as one block. NULL: they do not come, or there is no memory (*short_of_memory). */
static struct device_code *compile_process_read_code(struct compile_run *run, const struct compile_reply *reply,
                                                     bool *short_of_memory) {
    size_t bytes = (size_t)reply->code_bytes + reply->symbol_bytes;
    struct device_code *code = malloc(sizeof *code + bytes + 1);
    *short_of_memory = !code;
    if (!code)
        return NULL;
    code->bytes = (size_t)reply->code_bytes;
    code->symbol = (char *)code->code + code->bytes;
    code->code[bytes] = 0;
    if (compile_process_read(run, code->code, bytes) && strlen(code->symbol) == reply->symbol_bytes)
        return code;
    run->absurd = !run->late;
    free(code);
    return NULL;
}

/* False: the log does not come. Without memory for it there is no log. */
static bool compile_process_read_log(struct compile_run *run, const struct compile_reply *reply, char **log) {
    char *text = reply->log_bytes ? malloc((size_t)reply->log_bytes + 1) : NULL;
    if (!text)
        return true;
    text[reply->log_bytes] = 0;
    if (!compile_process_read(run, text, reply->log_bytes)) {
        run->absurd = !run->late;
        free(text);
        return false;
    }
    *log = text;
    return true;
}

/* True: there is a whole and valid reply, or no memory for it; *status and `fault` say which. */
static bool compile_process_take(struct compile_run *run, struct device_code **code, char **log, int *status,
                                 struct fault *fault) {
    struct compile_reply reply;
    struct device_code *taken = NULL;
    bool short_of_memory = false;
    if (!compile_process_read(run, &reply, sizeof reply))
        return false;
    if (!compile_process_reply_valid(&reply)) {
        run->absurd = true;
        return false;
    }
    if (reply.status == STATUS_OK && !(taken = compile_process_read_code(run, &reply, &short_of_memory))) {
        *status = fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for %" PRIu64 " bytes of code", reply.code_bytes);
        return short_of_memory;
    }
    if (!compile_process_read_log(run, &reply, log)) {
        free(taken);
        return false;
    }
    if (taken)
        *code = taken;
    *status = reply.status == STATUS_OK ? STATUS_OK : fault_set(fault, (enum status)reply.status, "%s", reply.message);
    return true;
}

/* ---- the end ---- */

static bool compile_process_cancelled(struct compile_process *process) {
    pthread_mutex_lock(&process->lock);
    bool cancelled = process->cancelled;
    pthread_mutex_unlock(&process->lock);
    return cancelled;
}

/* Kills the process, which has replied or never will, and returns its exit status. A process that has already died
 * keeps its own status. */
static int compile_process_end(struct compile_run *run) {
    struct compile_process *process = run->process;
    close(run->reply);
    kill(-process->id, SIGKILL);
    siginfo_t info;
    int status = 0;
    while (waitid(P_PID, (id_t)process->id, &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
    }
    pthread_mutex_lock(&process->lock); /* from here on another process may get its number */
    while (waitpid(process->id, &status, 0) < 0 && errno == EINTR) {
    }
    process->id = 0;
    pthread_mutex_unlock(&process->lock);
    return status;
}

static int compile_process_too_long(const struct compile_run *run, struct fault *fault) {
    return fault_set(fault, STATUS_TIMED_OUT,
                     "it takes more than %g s to compile: the daemon's setting compile-timeout",
                     run->options->timeout_ms / 1e3);
}

static int compile_process_too_large(const struct compile_run *run, struct fault *fault) {
    return fault_set(fault, STATUS_LIMIT,
                     "the compiler takes more than %" PRIu64 " bytes for it: the daemon's setting compile-memory",
                     run->options->memory);
}

/* Sets the reason why there is no reply. */
static int compile_process_explain(const struct compile_run *run, int status, struct fault *fault) {
    int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (compile_process_cancelled(run->process))
        return fault_set(fault, STATUS_CANCELLED, "nobody waits for it any more");
    if (run->late || signal == SIGXCPU)
        return compile_process_too_long(run, fault);
    if (run->absurd)
        return fault_set(fault, STATUS_INTERNAL, "the compiler's reply to this source makes no sense");
    if (!signal && WEXITSTATUS(status) == COMPILE_NO_MEMORY)
        return compile_process_too_large(run, fault);
    if (signal == SIGKILL)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "the compiler was killed: the host may be short of memory");
    if (signal)
        return fault_set(fault, STATUS_INTERNAL, "the compiler crashes on this source: %s (signal %d)",
                         strsignal(signal), signal);
    return fault_set(fault, STATUS_INTERNAL, "the compiler ended without a reply (exit status %d)",
                     WEXITSTATUS(status));
}

/* ---- all of it ---- */

/* False: it was cancelled before it began. */
static bool compile_process_publish(struct compile_process *process, pid_t id) {
    pthread_mutex_lock(&process->lock);
    process->id = id;
    bool cancelled = process->cancelled;
    pthread_mutex_unlock(&process->lock);
    return !cancelled;
}

void compile_process_cancel(struct compile_process *process) {
    pthread_mutex_lock(&process->lock);
    process->cancelled = true;
    if (process->id)
        kill(-process->id, SIGKILL);
    pthread_mutex_unlock(&process->lock);
}

int compile_process_run(struct compile_process *process, const struct compile_process_options *options,
                        const struct kernel_source *source, struct device_code **code, char **log,
                        struct fault *fault) {
    struct compile_run run = {.process = process, .options = options, .reply = -1, .deadline_ms = INT64_MAX};
    int status = STATUS_OK;
    pid_t id;
    *log = NULL;
    if (options->timeout_ms)
        run.deadline_ms = (int64_t)clock_now_ms() + options->timeout_ms;
    int error = compile_process_start(&run, source, &id, fault);
    if (error)
        return error;
    bool replied = compile_process_publish(process, id) && compile_process_take(&run, code, log, &status, fault);
    int end = compile_process_end(&run);
    return replied ? status : compile_process_explain(&run, end, fault);
}

/* ---- the process itself ---- */

enum { COMPILE_NICE = 10, COMPILE_STACK = 64 << 20 };

/* The process ends when its parent ends, and is the first to be killed when the system has no memory. */
static void compile_child_settle(const char *parent) {
    static const char first[] = "1000";
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != atoi(parent)) /* the parent may have died before prctl() took effect */
        _exit(COMPILE_NO_REPLY);
    prctl(PR_SET_NAME, "tensord compile");
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, first, sizeof first - 1) < 0) { /* then it is killed as likely as its parent */
    }
    if (fd >= 0)
        close(fd);
    setpriority(PRIO_PROCESS, 0, COMPILE_NICE);
}

static void compile_child_limit(int resource, uint64_t most) {
    struct rlimit limit;
    if (getrlimit(resource, &limit))
        return;
    if (most < limit.rlim_cur)
        limit.rlim_cur = most;
    if (resource == RLIMIT_CPU)
        most++; /* SIGXCPU comes at the soft limit and names the cause; at the hard limit comes SIGKILL */
    if (most < limit.rlim_max)
        limit.rlim_max = most;
    setrlimit(resource, &limit);
}

static uint64_t compile_child_memory; /* limit; 0: there is none */

/* A compiler without memory often ends by a signal. If it had taken most of its memory by then, memory was the
 * cause. */
static void compile_child_crashed(int number) {
    size_t bytes = (size_t)compile_child_memory / 4;
    if (bytes && mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
        _exit(COMPILE_NO_MEMORY);
    signal(number, SIG_DFL);
    raise(number);
}

/* The handler has a stack of its own, because the compiler may have used up its stack. */
static void compile_child_watch(void) {
    static char stack[64 << 10];
    static const int signals[] = {SIGABRT, SIGBUS, SIGILL, SIGSEGV, SIGTRAP};
    struct sigaction action = {.sa_handler = compile_child_crashed, .sa_flags = SA_ONSTACK | SA_NODEFER};
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &action, NULL);
}

/* Limits data, not addresses: CUDA's libraries take gigabytes of addresses. A sanitizer takes terabytes of both. */
static void compile_child_limits(const struct compile_request *request) {
    signal(SIGXFSZ, SIG_IGN); /* so that a write to a file fails */
    compile_child_limit(RLIMIT_CORE, 0);
    compile_child_limit(RLIMIT_FSIZE, 0);
    compile_child_limit(RLIMIT_STACK, COMPILE_STACK);
    if (request->seconds)
        compile_child_limit(RLIMIT_CPU, request->seconds);
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    if (request->memory) {
        compile_child_limit(RLIMIT_DATA, request->memory);
        compile_child_memory = request->memory;
    }
#endif
}

static bool compile_child_read(void *data, size_t bytes) {
    for (char *at = data; bytes;) {
        ssize_t got = read(STDIN_FILENO, at, bytes);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        bytes -= (size_t)got;
    }
    return true;
}

static char *compile_child_read_text(uint64_t bytes) {
    char *text = bytes && bytes <= SIZE_MAX ? malloc((size_t)bytes) : NULL;
    if (!text || !compile_child_read(text, (size_t)bytes) || text[bytes - 1])
        _exit(COMPILE_NO_REPLY);
    return text;
}

static void compile_child_write(const void *data, size_t bytes) {
    if (!whole_write(COMPILE_REPLY_FD, data, bytes))
        _exit(COMPILE_NO_REPLY);
}

/* Sends the reply and exits at once: nothing is freed, and no code of the compiler runs at exit, because it could do
 * anything. */
static _Noreturn void compile_child_reply(int status, const struct device_code *code, const char *log,
                                          const struct fault *fault) {
    size_t words = log ? strlen(log) : 0;
    struct fault large;
    if (status == STATUS_OK && (code->bytes > COMPILE_CODE_MAX || strlen(code->symbol) > COMPILE_SYMBOL_MAX)) {
        status =
            fault_set(&large, STATUS_LIMIT, "%zu bytes of code, or the name of its kernel, are too large", code->bytes);
        fault = &large;
    }
    struct compile_reply reply = {.magic = COMPILE_MAGIC, .status = (uint32_t)status};
    reply.log_bytes = words < KERNEL_LOG_MAX ? (uint32_t)words : KERNEL_LOG_MAX;
    if (status == STATUS_OK) {
        reply.code_bytes = code->bytes;
        reply.symbol_bytes = (uint32_t)strlen(code->symbol);
    } else {
        snprintf(reply.message, sizeof reply.message, "%s", fault->message);
    }
    compile_child_write(&reply, sizeof reply);
    if (status == STATUS_OK) {
        compile_child_write(code->code, code->bytes);
        compile_child_write(code->symbol, reply.symbol_bytes);
    }
    compile_child_write(log, reply.log_bytes);
    _exit(EXIT_SUCCESS);
}

void compile_process_main(const char *kind, const char *parent) {
    const _Atomic bool cancelled = false;
    struct compile_request request;
    struct device_code *code = NULL;
    struct fault fault = {0};
    char *log = NULL;
    compile_child_settle(parent);
    if (!compile_child_read(&request, sizeof request) || request.magic != COMPILE_MAGIC)
        _exit(COMPILE_NO_REPLY);
    compile_child_watch();
    compile_child_limits(&request);
    const char *text = compile_child_read_text(request.text_bytes), *name = compile_child_read_text(request.name_bytes);
    const struct kernel_source source = {.text = text, .name = name, .target = request.target};
    int error = kernel_compile(kind, &source, &cancelled, &code, &log, &fault);
    if (error == STATUS_NO_HOST_MEMORY && request.memory)
        error = fault_set(&fault, STATUS_LIMIT,
                          "the compiler takes more than %" PRIu64 " bytes for it: the daemon's setting compile-memory",
                          request.memory);
    if (error == STATUS_NO_DEVICE) /* the worker has a device; only this process cannot load its module */
        error = (int)(fault.code = STATUS_UNSUPPORTED);
    compile_child_reply(error, code, log, &fault);
}
