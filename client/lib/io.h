/* The I/O thread of a device. It sleeps until a caller says that a batch is open, then ticks: each tick sends what callers
 * have enqueued since the last one, so callers wake the thread once and not for each operation. After some quiet ticks it
 * sleeps again. It waits for fewer quiet ticks if its last sleeps were long, because on a busy machine an idle tick costs
 * other programs two thread switches. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct td_device;

/* Something for the I/O thread to do without the lock: a callback of the user. */
struct completion {
    struct completion *next;
    void (*run)(struct completion *completion);
};

enum {
    IO_TICK_NS = 80000,       /* an operation waits at most this time, and the time of a wake-up */
    IO_FIRST_TICK_NS = 50000, /* the first tick after a sleep, from the call that ended it: two wake-ups */
    IO_QUIET_TICKS = 12,
};

enum io_state { IO_AWAKE, IO_TICKING, IO_ASLEEP };

struct io {
    pthread_t thread;
    int wake_fd;
    bool started;
    /* What the thread is doing; it is inside poll() in the last two states. Written under the lock, like the other members. */
    _Atomic enum io_state state;
    bool stop;
    bool urgent; /* woken for more than an open batch */
    bool out;    /* the thread watches for room in the socket, */
    bool in;     /* and for data that comes */
    struct completion *completions, **completions_last;
    uint64_t opened_ns;       /* when a batch was begun while the thread slept */
    uint64_t tick_ns;         /* when the next tick is due; only the thread uses it */
    uint64_t asleep_ns;       /* when it went to sleep */
    unsigned quiet, patience; /* ticks with nothing to send: so far, and before the thread sleeps */
};

/* Nanoseconds of CLOCK_MONOTONIC. */
uint64_t io_now_ns(void);

int io_start(struct td_device *device);
/* Ends the thread after its last completions. Without the lock. */
void io_stop(struct td_device *device);

/* Whether the thread sleeps: then it sends nothing before io_opened() or io_urgent() is called. Without the lock. */
static inline bool io_asleep(const struct io *io) {
    return io->state == IO_ASLEEP;
}

/* All functions below are called under the lock. "True: wake" means that the caller must call io_wake() after unlocking. */

void io_begin_tick(struct io *io);
/* There is an open batch. True: wake. */
static inline bool io_opened(struct io *io) {
    if (!io_asleep(io))
        return false;
    io_begin_tick(io);
    return true;
}
/* Whether the sender has left work that only the I/O thread can do, and the thread does not watch for it yet. True: wake. */
bool io_must_send(struct td_device *device);
/* There is work that cannot wait for the next tick. True: wake. */
bool io_urgent(struct io *io);
/* Wakes the thread. May be called without the lock, too. */
void io_wake(const struct io *io);
/* On the thread: sleeps for `ms`, or until it is woken. Gives up the lock meanwhile. */
void io_sleep(struct td_device *device, unsigned ms);
/* On the thread: runs the completions that are due. Gives up the lock meanwhile. */
void io_run_completions(struct td_device *device);
/* Makes the thread run the completion. Wakes the thread itself. */
void io_complete(struct io *io, struct completion *completion);
