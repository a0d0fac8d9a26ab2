/* One worker process as the front sees it: its pid, its channel, its stats page. It lives for one epoch; what happens
 * from one epoch to the next is worker_slot.h's. Front thread only. */
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
    /* The last event. `signal` is 0 where it exited by itself. */
    void (*exited)(void *owner, int64_t status, int signal);
};

struct worker_process {
    uv_process_t process;
    uv_poll_t poll;
    int channel; /* -1 after a hang-up */
    const struct stats_page *page;
    struct worker_packet *first, **last;
    unsigned queued;
    unsigned handles; /* not yet closed */
    const struct worker_process_events *events;
    void *owner;
};

/* Starts this program again as the worker of `device`; the name is for people who list processes. `environment`:
 * "NAME=value", in the place of what this process has for NAME; or "". */
int worker_process_start(uv_loop_t *loop, const char *device, const char *environment,
                         const struct worker_process_events *events, void *owner, struct worker_process **process,
                         struct fault *fault);
/* Sends or queues. Takes `fd` (-1: none) in any case. STATUS_LIMIT where the queue is full, STATUS_DEVICE_LOST where
 * the channel is gone. */
int worker_process_send(struct worker_process *process, const struct channel_message *message, int fd);
void worker_process_kill(struct worker_process *process);
/* After its exit, or to forget one that never started to be of use; it is killed if it still runs. No event comes any
 * more. Freed when the loop has closed its handles. Takes NULL. */
void worker_process_destroy(struct worker_process *process);
