#include "server/worker/compile_child.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "engine/program/kernel.h"
#include "proto/files/whole.h"
#include "server/ipc/compile_message.h"

enum { COMPILE_NICE = 10, COMPILE_STACK = 64 << 20 };

/* Leaves before others: with its parent, and where the system's memory runs out. */
static void compile_child_settle(const char *parent) {
    static const char first[] = "1000";
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != atoi(parent)) /* the parent may have died before that took effect */
        _exit(COMPILE_NO_REPLY);
    prctl(PR_SET_NAME, "tensord compile");
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, first, sizeof first - 1) < 0) { /* then it is as likely as its parent */
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
        most++; /* at the soft limit comes SIGXCPU, which says what it is; at the hard one SIGKILL */
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

/* On a stack of its own: the compiler's may be what it has no more of. */
static void compile_child_watch(void) {
    static char stack[64 << 10];
    static const int signals[] = {SIGABRT, SIGBUS, SIGILL, SIGSEGV, SIGTRAP};
    struct sigaction action = {.sa_handler = compile_child_crashed, .sa_flags = SA_ONSTACK | SA_NODEFER};
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &action, NULL);
}

/* Of memory it is data that is limited, not addresses: libraries of CUDA take gigabytes of the latter. A sanitizer
 * takes both by the terabyte. */
static void compile_child_limits(const struct compile_request *request) {
    signal(SIGXFSZ, SIG_IGN); /* a write to a file shall fail */
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

/* Nothing is given back, and nothing of the compiler's runs any more: what it might do at its end is nobody's
 * concern. */
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

void compile_child_main(const char *kind, const char *parent) {
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
    if (error == STATUS_NO_DEVICE) /* the worker has one; it is this process that cannot load its module */
        error = (int)(fault.code = STATUS_UNSUPPORTED);
    compile_child_reply(error, code, log, &fault);
}
