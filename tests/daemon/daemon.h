/* A tensord of its own for one test: the real program, in a temporary directory, with a Unix socket and, if wanted, a
 * TCP port. One thread at a time. Everything asserts: a test does not go on without its daemon. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

enum { DAEMON_WORKERS_MAX = 8, DAEMON_TARGET_CPU0 = 0, DAEMON_TARGET_CPU1 = 1 };

struct daemon {
    pid_t pid;
    int pidfd;
    int notify;         /* our end of NOTIFY_SOCKET */
    char directory[64]; /* removed by daemon_stop and daemon_kill */
    char socket[100];
    char url[108]; /* "unix:/tmp/…" */
    char tcp[128]; /* "tcp://127.0.0.1:40123", or tls://; "" without daemon_options.tcp */
    char log[100]; /* file that takes stderr */
};

struct daemon_options {
    const char *devices;            /* NULL: "cpu:0" */
    const char *tcp;                /* address to listen on besides the Unix socket: "tcp://127.0.0.1:0", "tls://…" */
    const char *const *flags;       /* more arguments, NULL-ended; may be NULL */
    const char *const *environment; /* as command_run takes it; may be NULL */
    unsigned files_max;             /* RLIMIT_NOFILE; 0: as it is */
};

/* Starts it and waits until it says that it is ready and every device is. `options` may be NULL. */
void daemon_start(struct daemon *daemon, const struct daemon_options *options);
/* For a daemon that may refuse to start: whether it is ready. If not, it has ended with this wait status (-1: it hangs);
 * daemon_log() tells why, and daemon_kill() tidies up. */
bool daemon_starts(struct daemon *daemon, const struct daemon_options *options, int *status);
/* SIGTERM, then: exit code 0, no socket file, no process left. Does nothing if it has been stopped already. */
void daemon_stop(struct daemon *daemon);
/* Ends it without any claim. */
void daemon_kill(struct daemon *daemon);
/* Waits for the front to end; its wait status, or -1 when the deadline passed. */
int daemon_wait(struct daemon *daemon, int milliseconds);
/* After daemon_wait: no socket file, no process left, then tidies up. */
void daemon_gone(struct daemon *daemon);
/* Waits until `text` stands in the log. */
bool daemon_log_has(const struct daemon *daemon, const char *text, int milliseconds);
/* The log so far; the caller frees it. */
char *daemon_log(const struct daemon *daemon);

/* The value of TENSORD_EXE and the like; asserts that it is set. */
const char *daemon_program(const char *variable);
/* Makes a directory under /tmp, removes one with all that is in it (TENSORD_TEST_KEEP=1 leaves it, with the log, to
 * look at). */
void daemon_directory_make(char directory[64]);
void daemon_directory_remove(const char *directory);

/* From /proc: bytes of resident memory, and milliseconds of processor time of all threads; asserts that the process
 * lives. */
unsigned long long daemon_process_rss(pid_t pid);
unsigned long long daemon_process_cpu_ms(pid_t pid);
/* A descriptor that becomes readable when the process ends. */
int daemon_process_watch(pid_t pid);
