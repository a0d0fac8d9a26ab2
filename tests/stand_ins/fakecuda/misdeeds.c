/* What a source may do to a compiler, and a compiler that it has taken over to the worker (code.h). */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "server/worker/compile_process.h"
#include "tests/stand_ins/fakecuda/code.h"

extern char **environ;

/* ---- what it takes ---- */

static void hang(void) {
    for (;;)
        pause();
}

static void spin(void) {
    for (volatile unsigned n = 0;; n++) {
    }
}

/* Whether there is an end to it, before others would notice. */
static bool take_all(void) {
    enum { PIECE = 1 << 20, PIECES = 1024 };
    char *piece = NULL;
    for (unsigned n = 0; n < PIECES && (piece = malloc(PIECE)); n++)
        memset(piece, 1, PIECE);
    return !piece;
}

static void die(void) {
    raise(SIGSEGV);
}

static void leave(void) {
    _exit(7);
}

static void be_reckless(void) {
    if (take_all())
        abort();
}

static void leave_an_orphan(void) {
    fork();
    hang();
}

/* ---- what it sees ---- */

struct words {
    char *at;
    size_t left;
};

__attribute__((format(printf, 2, 3))) static void say(struct words *words, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(words->at, words->left, format, arguments);
    va_end(arguments);
    if (n > 0 && (size_t)n < words->left) {
        words->at += n;
        words->left -= (size_t)n;
    }
}

static void tell_descriptors(struct words *words) {
    DIR *directory = opendir("/proc/self/fd");
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        char target[200];
        ssize_t n = readlinkat(dirfd(directory), entry->d_name, target, sizeof target - 1);
        if (n > 0 && atoi(entry->d_name) != dirfd(directory))
            say(words, "descriptor %s %.*s\n", entry->d_name, (int)n, target);
    }
    if (directory)
        closedir(directory);
}

static void tell_limits(struct words *words) {
    static const struct {
        const char *name;
        int resource;
    } limits[] = {{"core", RLIMIT_CORE},
                  {"file", RLIMIT_FSIZE},
                  {"cpu", RLIMIT_CPU},
                  {"data", RLIMIT_DATA},
                  {"stack", RLIMIT_STACK}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct rlimit limit;
        if (!getrlimit(limits[i].resource, &limit))
            say(words, "limit %s %llu %llu\n", limits[i].name, (unsigned long long)limit.rlim_cur,
                (unsigned long long)limit.rlim_max);
    }
}

static void tell_file(struct words *words, const char *name, const char *path) {
    char text[64];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    text[n > 0 ? n : 0] = 0;
    say(words, "%s %s\n", name, text);
    if (fd >= 0)
        close(fd);
}

/* Whether a file that the compiler is allowed to open can be written to. */
static void tell_writing(struct words *words) {
    FILE *file = tmpfile();
    bool written = file && fputs("x", file) >= 0 && fflush(file) == 0;
    say(words, "writing %s\n", written ? "works" : "fails");
}

static void tell(char *log, size_t size) {
    struct words words = {log, size};
    sigset_t blocked;
    say(&words, "process %d of %d in group %d\n", getpid(), getppid(), getpgrp());
    tell_descriptors(&words);
    for (char **variable = environ; *variable; variable++)
        say(&words, "variable %s\n", *variable);
    tell_limits(&words);
    say(&words, "nice %d\n", getpriority(PRIO_PROCESS, 0));
    tell_file(&words, "oom", "/proc/self/oom_score_adj");
    tell_writing(&words);
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    say(&words, "signals%s%s\n", sigismember(&blocked, SIGTERM) ? " blocked" : "",
        signal(SIGTERM, SIG_DFL) == SIG_IGN ? " ignored" : "");
    say(&words, "1 error detected\n");
}

/* ---- answers of its own ---- */

static const struct {
    struct compile_reply answer;
    unsigned follow; /* bytes that are sent behind it */
} lies[] = {
    {{.magic = 1, .status = STATUS_OK, .code_bytes = 8, .symbol_bytes = 1}, 9},
    {{.magic = COMPILE_MAGIC, .status = STATUS_DEVICE_LOST}, 0},
    {{.magic = COMPILE_MAGIC, .status = 4711}, 0},
    {{.magic = COMPILE_MAGIC, .status = STATUS_OK, .code_bytes = UINT64_MAX, .symbol_bytes = 1}, 100},
    {{.magic = COMPILE_MAGIC, .status = STATUS_OK, .code_bytes = COMPILE_CODE_MAX, .symbol_bytes = 1}, 100},
    {{.magic = COMPILE_MAGIC, .status = STATUS_OK, .code_bytes = 8, .symbol_bytes = UINT32_MAX}, 100},
    {{.magic = COMPILE_MAGIC, .status = STATUS_OK, .code_bytes = 8, .symbol_bytes = 0}, 8},
    {{.magic = COMPILE_MAGIC, .status = STATUS_OK, .code_bytes = 8, .symbol_bytes = 8}, 16}, /* zeros in the symbol */
    {{.magic = COMPILE_MAGIC, .status = STATUS_LIMIT, .log_bytes = KERNEL_LOG_MAX + 1}, KERNEL_LOG_MAX + 1},
    {{.magic = COMPILE_MAGIC, .status = STATUS_LIMIT, .log_bytes = 100}, 99},
    {{.magic = COMPILE_MAGIC, .status = STATUS_LIMIT, .code_bytes = 100}, 100},
    {{.magic = COMPILE_MAGIC, .status = STATUS_LIMIT, .message = {[255] = 'x'}}, 0},
};

static void lie(unsigned n) {
    static const char zeros[1 << 19];
    struct compile_reply answer = lies[n % (sizeof lies / sizeof *lies)].answer;
    if (answer.message[255])
        memset(answer.message, 'x', sizeof answer.message);
    if (write(COMPILE_REPLY_FD, &answer, sizeof answer) < 0 ||
        write(COMPILE_REPLY_FD, zeros, lies[n % (sizeof lies / sizeof *lies)].follow) < 0)
        _exit(1);
    _exit(0);
}

/* ---- by name ---- */

static const struct {
    const char *words;
    void (*does)(void);
} deeds[] = {
    {"fakecuda: crash;", die},
    {"fakecuda: exit;", leave},
    {"fakecuda: hang;", hang},
    {"fakecuda: spin;", spin},

    {"fakecuda: reckless;", be_reckless},
    {"fakecuda: orphan;", leave_an_orphan},
};

bool misdeeds(const char *source, char *log, size_t size) {
    const char *lies_at = strstr(source, "fakecuda: lie ");
    for (size_t i = 0; i < sizeof deeds / sizeof *deeds; i++)
        if (strstr(source, deeds[i].words))
            deeds[i].does();
    if (lies_at)
        lie((unsigned)atoi(lies_at + strlen("fakecuda: lie ")));
    if (strstr(source, "fakecuda: tell;"))
        tell(log, size);
    return strstr(source, "fakecuda: greedy;") && take_all();
}
