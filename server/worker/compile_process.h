/* A compilation of a user kernel in a process of its own: a source can crash a compiler, keep it busy for ever, or
 * make it take all memory. Then only that process ends, and the client that sent the source gets an ordinary error.
 *
 * The process is this program, started anew by posix_spawn() as `PROGRAM compile KIND PID`: never a fork of a worker,
 * which has threads and a context of its device. The process has neither of these, opens no device, and has no
 * descriptors except its own three and the pipe for its reply. It dies with the thread that started it. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "engine/device/device_kernels.h"
#include "proto/ops/kernel.h"
#include "proto/ops/status.h"

struct compile_process {
    pthread_mutex_t lock;
    pid_t id; /* of the process and of its group, while it must not be reaped by others; 0: there is none */
    bool cancelled;
};

struct compile_process_options {
    const char *program, *kind;
    uint64_t memory;     /* bytes of data; 0: any */
    uint32_t timeout_ms; /* from the start to the reply; 0: any */
};

void compile_process_init(struct compile_process *process);
/* Call it after compile_process_run() has returned, or in its place. */
void compile_process_finish(struct compile_process *process);

/* Blocks until there is a reply or the process is gone, and leaves no process behind. Call it on a thread that may wait
 * and does not end soon. Outputs and errors are those of device_kernels.compile(); of the code only its sizes are
 * checked. Further errors: STATUS_TIMED_OUT; STATUS_LIMIT: it takes too much memory; STATUS_INTERNAL: the compiler
 * crashes, or the process does not start; STATUS_CANCELLED. */
int compile_process_run(struct compile_process *process, const struct compile_process_options *options,
                        const struct kernel_source *source, struct device_code **code, char **log, struct fault *fault);
/* Any thread, before or during the run: ends the process. */
void compile_process_cancel(struct compile_process *process);

/* ---- the process itself ---- */

/* `tensord compile KIND PARENT-PID`, started by a worker alone: standard input is a file with a struct compile_request,
 * and the reply goes to COMPILE_REPLY_FD. Does not return. */
_Noreturn void compile_process_main(const char *kind, const char *parent);

/* Worker and process are the same program on the same host, so they exchange plain structs. But the source that is
 * compiled may have taken over the process, so the worker checks the whole reply before it uses it. */
enum {
    COMPILE_REPLY_FD = 3,    /* a pipe */
    COMPILE_NO_REPLY = 120,  /* exit status: the process could not even reply */
    COMPILE_NO_MEMORY = 121, /* exit status: it crashed, and had taken most of its memory limit */
    COMPILE_CODE_MAX = 256 << 20,
    COMPILE_SYMBOL_MAX = 1 << 20,
    COMPILE_MAGIC = 0x6b637274,
};

/* Followed by the source and the kernel's name, each with its zero. */
struct compile_request {
    uint32_t magic, target;
    uint64_t text_bytes, name_bytes; /* with the zeros */
    uint64_t memory;                 /* bytes that the compiler may take; 0: any number */
    uint32_t seconds;                /* of processor time; 0: any number */
    uint32_t unused;
};

/* Followed by the code, its symbol and the log; texts without a zero. */
struct compile_reply {
    uint32_t magic, status;
    uint64_t code_bytes;
    uint32_t symbol_bytes, log_bytes;
    char message[sizeof((struct fault *)0)->message];
};
