#include "server/worker/disk.h"

#include "engine/device/thread.h"

enum { DISK_STACK_BYTES = 256 << 10 };

static void *disk_main(void *owner) {
    struct disk *disk = owner;
    thread_begin("tensord disk");
    pthread_mutex_lock(&disk->lock);
    while (!disk->stopping) {
        struct disk_job *job = disk->job;
        if (!job || disk->taken) {
            pthread_cond_wait(&disk->work, &disk->lock);
            continue;
        }
        disk->taken = true;
        pthread_mutex_unlock(&disk->lock);
        job->run(job);
        pthread_mutex_lock(&disk->lock);
        disk->ran = true;
        uv_async_send(&disk->async);
    }
    pthread_mutex_unlock(&disk->lock);
    thread_end();
    return NULL;
}

static void disk_on_async(uv_async_t *async) {
    struct disk *disk = async->data;
    pthread_mutex_lock(&disk->lock);
    struct disk_job *job = disk->ran ? disk->job : NULL;
    if (job) {
        disk->job = NULL;
        disk->taken = disk->ran = false;
    }
    pthread_mutex_unlock(&disk->lock);
    if (job)
        job->done(job);
}

static bool disk_start_thread(struct disk *disk) {
    pthread_attr_t attributes;
    sigset_t before;
    if (pthread_attr_init(&attributes))
        return false;
    pthread_attr_setstacksize(&attributes, DISK_STACK_BYTES);
    thread_block_signals(&before);
    bool started = !pthread_create(&disk->thread, &attributes, disk_main, disk);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}

int disk_init(struct disk *disk, uv_loop_t *loop, struct fault *fault) {
    *disk = (struct disk){.threaded = false};
    int error = uv_async_init(loop, &disk->async, disk_on_async);
    if (error)
        return fault_set(fault, STATUS_INTERNAL, "event loop: %s", uv_strerror(error));
    disk->async.data = disk;
    pthread_mutex_init(&disk->lock, NULL);
    pthread_cond_init(&disk->work, NULL);
    disk->threaded = disk_start_thread(disk);
    return STATUS_OK;
}

void disk_finish(struct disk *disk) {
    pthread_mutex_lock(&disk->lock);
    disk->stopping = true;
    pthread_cond_signal(&disk->work);
    pthread_mutex_unlock(&disk->lock);
    if (disk->threaded)
        pthread_join(disk->thread, NULL);
    pthread_cond_destroy(&disk->work);
    pthread_mutex_destroy(&disk->lock);
    uv_close((uv_handle_t *)&disk->async, NULL);
}

bool disk_busy(const struct disk *disk) {
    return disk->job;
}

void disk_start(struct disk *disk, struct disk_job *job) {
    pthread_mutex_lock(&disk->lock);
    disk->job = job;
    pthread_cond_signal(&disk->work);
    pthread_mutex_unlock(&disk->lock);
    if (disk->threaded)
        return;
    job->run(job);
    disk->ran = true;
    uv_async_send(&disk->async);
}
