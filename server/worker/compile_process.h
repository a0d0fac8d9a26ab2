/* A compilation of a user kernel in a process of its own: a source can crash a compiler, keep it busy for ever, or
 * make it take all memory. Then only that process ends, and the client that sent the source gets an ordinary error.
 *
 * The process is this program, started anew by posix_spawn() as `PROGRAM compile KIND PID` (compile_child.h): never a
 * fork of a worker, which has threads and a context of its device. It has neither of these, opens no device, and has
 * no descriptors but its own three and the pipe for its reply. It dies with the thread that started it. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "engine/device/device_kernels.h"

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
/* After compile_process_run() has returned, or instead. */
void compile_process_finish(struct compile_process *process);

/* Blocks until there is a reply or the process is gone, and leaves no process behind: on a thread that may wait and
 * that lives on. Outputs and errors as of device_kernels.compile(), but that the code has its sizes right and is not
 * believed otherwise; and STATUS_TIMED_OUT; STATUS_LIMIT for memory; STATUS_INTERNAL for a compiler that crashes, or a
 * process that does not start; STATUS_CANCELLED. */
int compile_process_run(struct compile_process *process, const struct compile_process_options *options,
                        const struct kernel_source *source, struct device_code **code, char **log, struct fault *fault);
/* Any thread, before or while it runs: ends it. */
void compile_process_cancel(struct compile_process *process);
