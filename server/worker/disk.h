/* A thread for work that waits for a disk, one job at a time, so that the loop does not wait. If no thread can be
 * started the loop does the work. Loop thread only, except for disk_job.run. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <uv.h>

#include "proto/ops/status.h"

struct disk_job {
    void (*run)(struct disk_job *job);  /* called on the disk's thread */
    void (*done)(struct disk_job *job); /* called on the loop after that */
};

struct disk {
    uv_async_t async;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;
    bool threaded, stopping;
    struct disk_job *job; /* in progress, or run and `done` not called yet; NULL: none */
    bool taken, ran;      /* under the lock */
};

int disk_init(struct disk *disk, uv_loop_t *loop, struct fault *fault);
/* Waits for the job in progress, whose `done` is not called, and closes the handle; the caller then runs the loop. */
void disk_finish(struct disk *disk);
bool disk_busy(const struct disk *disk);
/* Call it while the disk is not busy. The job must stay at its address until it is done. */
void disk_start(struct disk *disk, struct disk_job *job);
