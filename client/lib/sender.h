/* The sender: takes items and chunks off the queue (queue.h), puts them into the journal, and sends them from there. One load
 * is what one system call sends. All functions are called under the device's lock, and give it up during system calls. */
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
    bool busy;               /* some thread is the sender */
    size_t charge;           /* the bytes of the load in the journal, which still count in queue->bytes */
    bool ask;                /* a program waits until the data of the last upload is not needed any more: send a Ping */
    bool turn;               /* the next load is a chunk: chunks and items take turns */
    bool unflushed;          /* the last bytes that left the journal lie encrypted in the transport */
    bool broken;             /* the socket takes no more bytes (the reader will find out why), or there is no socket */
    int error;               /* the errno of an end that the reader cannot find out */
    unsigned pumpers;        /* callers who wait for room in the socket themselves, */
    unsigned polling;        /* and the number of them inside poll() now; several threads may have this role */
    pthread_cond_t progress; /* an upload has finished, or a role is free */
    unsigned waiters;        /* threads that sleep on `progress` */
};

/* `copies_max` and `keeps`: as in the journal. False out of memory. */
bool sender_init(struct sender *sender, size_t copies_max, bool keeps);
/* After sender_drop(). */
void sender_finish(struct sender *sender);

/* Whether there is something that can be sent. */
bool sender_has_work(const struct td_device *device);
/* Whether there is work, and only the I/O thread can do it when the socket has room. */
bool sender_needs_io(const struct td_device *device);
/* Whether everything has been sent. */
bool sender_is_done(const struct td_device *device);
/* Whether the journal is full, so that nothing can be sent before an Ack comes. */
bool sender_stuck(const struct td_device *device);

/* Sends until the socket is full or nothing may be sent. Does nothing if another thread is the sender. */
void sender_pump(struct td_device *device);
/* Pumps and waits for the socket until `upload` (NULL: everything) has been sent, the device is lost, or the deadline of
 * CLOCK_MONOTONIC has passed. */
void sender_pump_wait(struct td_device *device, const struct upload *upload, int64_t deadline_ms);
/* Waits until an upload that has been sent is not needed any more. */
void sender_wait_finished(struct td_device *device, const struct upload *upload);
/* The daemon has handled `frames` counted frames: frees their memory, and lets the I/O thread send if there is room
 * again. False if that number is impossible. */
bool sender_handled(struct td_device *device, uint64_t frames);
/* A role is free: wakes the threads that wait for a role. */
void sender_notify(struct td_device *device);

/* Waits until no thread is the sender or the reader (reader.h), or polls the socket. The socket is shut down, so all
 * of these threads find its end. Only then may another socket take its number: a thread that is still inside poll()
 * would wait for the old socket for ever, even if the new one is ready. */
void sender_wait_roles(struct td_device *device);
/* There is a new connection. The daemon has handled `frames` counted frames and has `bytes` of the next one. Sends the other
 * frames again; *repeated is their number. */
int sender_rewind(struct td_device *device, uint64_t frames, uint64_t bytes, uint64_t *repeated, struct fault *fault);
/* Drops everything on a lost device. If a thread is the sender, that thread will do it. */
void sender_drop(struct td_device *device);
