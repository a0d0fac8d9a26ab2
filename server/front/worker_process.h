/* One worker process as the front sees it: its pid, its channel, its stats page. It exists for one epoch; a worker_slot
 * has one process after the other. Front thread only. */
#pragma once

#include <uv.h>

#include "server/ipc/channel.h"
#include "server/ipc/stats_page.h"

/* A message that the channel had no room for. */
struct worker_packet {
    struct channel_message message;
    int fd;
    struct worker_packet *next;
};

struct worker_process_events {
    /* `fd` is -1 or the receiver's to close. */
    void (*message)(void *owner, const struct channel_message *message, int fd);
    /* The channel has ended; an exit should follow. */
    void (*hung_up)(void *owner);
    /* The last event. `signal` is 0 if the process exited by itself. */
    void (*exited)(void *owner, int64_t status, int signal);
};

struct worker_process {
    uv_process_t process;
    uv_poll_t poll;
    int channel; /* -1: it has ended */
    const struct stats_page *page;
    struct worker_packet *first, **last;
    unsigned queued;
    unsigned handles; /* not yet closed */
    const struct worker_process_events *events;
    void *owner;
};

/* Starts this program again as the worker of `device`, a name that lists of processes show. `environment`:
 * "NAME=value", which replaces this process's value of NAME; or "". */
int worker_process_start(uv_loop_t *loop, const char *device, const char *environment,
                         const struct worker_process_events *events, void *owner, struct worker_process **process,
                         struct fault *fault);
/* Sends or queues a message. Takes `fd` (-1: none) in any case. STATUS_LIMIT: the queue is full. STATUS_DEVICE_LOST:
 * the channel has ended. */
int worker_process_send(struct worker_process *process, const struct channel_message *message, int fd);
void worker_process_kill(struct worker_process *process);
/* Kills the process if it still runs; no event comes any more. The memory is freed when the loop has closed the
 * handles. Takes NULL. */
void worker_process_destroy(struct worker_process *process);
