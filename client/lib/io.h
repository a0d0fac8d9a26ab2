/* The I/O thread of a device. It sleeps until told that a batch is open, then ticks: each tick sends what has come
 * together since, so callers wake it once and not per operation. After some quiet ticks it sleeps again. It waits for
 * fewer quiet ticks if its last sleeps were long, because on a busy machine an idle tick costs others two switches. */
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
    IO_TICK_NS = 80000,       /* an operation waits at most that long, and the wake-up's time, for being sent */
    IO_FIRST_TICK_NS = 50000, /* the first one after a sleep, counted from the call that ended it: two wake-ups */
    IO_QUIET_TICKS = 12,
};

enum io_state { IO_AWAKE, IO_TICKING, IO_ASLEEP };

struct io {
    pthread_t thread;
    int wake_fd;
    bool started;
    /* What it is doing; the last two inside poll. Written under the lock: the rest too is under that. */
    _Atomic enum io_state state;
    bool stop;
    bool urgent; /* woken for more than an open batch */
    bool out;    /* it watches for room in the socket, */
    bool in;     /* for what comes */
    struct completion *completions, **completions_last;
    uint64_t opened_ns;       /* when a batch was begun while the thread slept */
    uint64_t tick_ns;         /* the thread's own */
    uint64_t asleep_ns;       /* when it went to sleep */
    unsigned quiet, patience; /* ticks for nothing: so far, and before it sleeps */
};

int io_start(struct td_device *device);
/* Ends the thread after its last completions. Without the lock. */
void io_stop(struct td_device *device);

/* Nothing that is not urgent will be sent before io_opened(). Without the lock. */
static inline bool io_asleep(const struct io *io) {
    return io->state == IO_ASLEEP;
}

/* Under the lock, from here on. */

void io_begin_tick(struct io *io);
/* There is an open batch; true: io_wake() is needed, after unlocking. */
static inline bool io_opened(struct io *io) {
    if (!io_asleep(io))
        return false;
    io_begin_tick(io);
    return true;
}
/* The sender left something for which only the I/O thread is there, and it does not watch for that already; the same. */
bool io_must_send(struct td_device *device);
/* There is more to do than a batch that can wait for the next tick; the same. */
bool io_urgent(struct io *io);
/* Without the lock, too. */
void io_wake(const struct io *io);
/* On the thread; gives up the lock: sleeps for so long, or until it is woken. */
void io_sleep(struct td_device *device, unsigned ms);
/* The same: calls what callbacks there are. */
void io_run_completions(struct td_device *device);
/* Has the thread run it. Wakes the thread itself. */
void io_complete(struct io *io, struct completion *completion);
