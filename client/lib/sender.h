/* The sender: takes items and chunks off the queue (queue.h) and gives them to the socket, by way of the journal, a load at
 * a time: one system call's worth. Under the device's lock, which is given up during system calls. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lib/journal.h"
#include "proto/ops/status.h"

struct td_device;
struct upload;

struct sender {
    struct journal journal;
    bool busy;               /* somebody is the sender */
    size_t charge;           /* what the load in the journal counts in the queue's `bytes` */
    bool ask;                /* somebody waits to hear that the last upload sent is not needed any more */
    bool turn;               /* chunks and items take turns */
    bool unflushed;          /* the last of what left the journal lies encrypted in the transport */
    bool broken;             /* the socket takes no more: the reader will find out why; or there is none now */
    int error;               /* where only the sender knows: an errno */
    unsigned pumpers;        /* callers who wait for room in the socket themselves, */
    unsigned polling;        /* and those of them who are inside poll() now: a role too, but one of several */
    pthread_cond_t progress; /* an upload finished, or a role is free */
    unsigned waiters;        /* on that */
};

/* `copies_max`: as in the journal, which `keeps` frames until they are handled. False out of memory. */
bool sender_init(struct sender *sender, size_t copies_max, bool keeps);
/* After sender_drop(). */
void sender_finish(struct sender *sender);

/* Whether pumping has something to try, */
bool sender_has_work(const struct td_device *device);
/* and nobody but the I/O thread is there to do it once the socket has room. */
bool sender_needs_io(const struct td_device *device);
/* Nothing left at all. */
bool sender_is_done(const struct td_device *device);
/* Whether the journal is full, and the daemon's word is waited for. */
bool sender_stuck(const struct td_device *device);

/* Sends until the socket is full or nothing may be sent, unless another thread is at it. Gives up the lock meanwhile. */
void sender_pump(struct td_device *device);
/* Pumps and waits for the socket until `upload` has been sent, or (NULL) until nothing is left or the deadline of
 * CLOCK_MONOTONIC has passed. */
void sender_pump_wait(struct td_device *device, const struct upload *upload, int64_t deadline_ms);
/* Waits until an upload that has been sent is not needed any more. */
void sender_wait_finished(struct td_device *device, const struct upload *upload);
/* The daemon has handled `frames` counted frames: frees their memory, and lets the I/O thread send if there is room
 * again. False if that number is impossible. */
bool sender_handled(struct td_device *device, uint64_t frames);
/* A role is free: wakes those who wait for one. */
void sender_notify(struct td_device *device);

/* Waits until no thread is the sender or the reader (reader.h), or polls the socket. The socket is shut down, so all
 * of these threads find its end. Only then may another socket take its number: a thread that is still inside poll()
 * would wait for the old socket for ever, even if the new one is ready. */
void sender_wait_roles(struct td_device *device);
/* There is a new connection, to a daemon that has handled `frames` counted frames and has `bytes` of the next one: sends the
 * others again, of which *repeated is the number. */
int sender_rewind(struct td_device *device, uint64_t frames, uint64_t bytes, uint64_t *repeated, struct fault *fault);
/* Drops everything on a lost device, unless a sender is at work, who will do it then. */
void sender_drop(struct td_device *device);
