/* A thread for what waits for a disk: one piece of work at a time, in place of the loop, which would stand still
 * meanwhile. Where there is no thread to be had the work is done on the loop. Loop thread only, but for disk_job.run. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <uv.h>

#include "proto/ops/status.h"

struct disk_job {
    void (*run)(struct disk_job *job);  /* on the disk's thread */
    void (*done)(struct disk_job *job); /* on the loop, after that */
};

struct disk {
    uv_async_t async;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;
    bool threaded, stopping;
    struct disk_job *job; /* under way, or done and not yet told; NULL: none */
    bool taken, ran;      /* under the lock */
};

int disk_init(struct disk *disk, uv_loop_t *loop, struct fault *fault);
/* Waits for what is under way, and closes the handle: the caller runs the loop until that is done. There is no call for
 * what was under way. */
void disk_finish(struct disk *disk);
bool disk_busy(const struct disk *disk);
/* While it is not busy. The job must stay put until it is done. */
void disk_start(struct disk *disk, struct disk_job *job);
