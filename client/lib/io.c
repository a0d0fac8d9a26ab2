#include "client/lib/io.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "client/lib/device.h"
#include "client/lib/error.h"

enum { HANGUP_NAP_NS = 1000000 };

uint64_t io_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void io_begin_tick(struct io *io) {
    io->state = IO_AWAKE;
    io->opened_ns = io_now_ns();
}

bool io_urgent(struct io *io) {
    io->urgent = true;
    if (io->state == IO_AWAKE)
        return false;
    io->state = IO_AWAKE;
    return true;
}

void io_wake(const struct io *io) {
    /* It can only fail if the counter is full, and then the thread is awake. */
    (void)!write(io->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
}

void io_complete(struct io *io, struct completion *completion) {
    completion->next = NULL;
    *io->completions_last = completion;
    io->completions_last = &completion->next;
    if (io_urgent(io))
        io_wake(io);
}

bool io_must_send(td_device *device) {
    return !device->io.out && sender_needs_io(device) && io_urgent(&device->io);
}

void io_sleep(td_device *device, unsigned ms) {
    struct pollfd wake = {.fd = device->io.wake_fd, .events = POLLIN};
    if (!ms)
        return;
    pthread_mutex_unlock(&device->lock);
    if (poll(&wake, 1, (int)ms) > 0)
        (void)!read(device->io.wake_fd, &(uint64_t){0}, sizeof(uint64_t));
    pthread_mutex_lock(&device->lock);
}

void io_run_completions(td_device *device) {
    struct io *io = &device->io;
    while (io->completions) {
        struct completion *completion = io->completions;
        io->completions = completion->next;
        if (!io->completions)
            io->completions_last = &io->completions;
        pthread_mutex_unlock(&device->lock);
        completion->run(completion);
        pthread_mutex_lock(&device->lock);
    }
}

/* Sends what callers have enqueued; whether there was anything to send. */
static bool io_flush(td_device *device) {
    bool some = batches_begun(&device->batches) || sender_has_work(device) || tensor_any_gone(&device->tensors);
    device_seal(device);
    sender_pump(device);
    return some;
}

/* The connection has something to read, or has ended. */
static void io_receive(td_device *device, bool hangup) {
    if (device->reader.busy) {
        /* The reader will see the end; until then poll() would report the end again and again. */
        if (hangup) {
            pthread_mutex_unlock(&device->lock);
            nanosleep(&(struct timespec){.tv_nsec = HANGUP_NAP_NS}, NULL);
            pthread_mutex_lock(&device->lock);
        }
        return;
    }
    reader_look(device);
}

/* The thread ticks while there is something to send, and for some quiet ticks more. */
static bool io_ticking(const td_device *device) {
    return !device->lost && (batches_begun(&device->batches) || device->io.quiet < device->io.patience);
}

/* The thread has been woken. If that was soon after it went to sleep, more quiet ticks would have been better; if it was late,
 * fewer. */
static void io_learn(struct io *io) {
    bool soon = io->opened_ns < io->asleep_ns + (uint64_t)IO_QUIET_TICKS * IO_TICK_NS;
    io->patience = soon ? IO_QUIET_TICKS : (io->patience + 1) / 2;
}

static void io_poll(td_device *device) {
    struct io *io = &device->io;
    bool ticking = io_ticking(device);
    io->out = sender_needs_io(device);
    io->in = !device->reader.busy && (device->pending.n_async || sender_stuck(device));
    struct pollfd entries[2] = {
        {.fd = io->wake_fd, .events = POLLIN},
        {.fd = device->lost ? -1 : device->transport.fd,
         .events = (short)(POLLRDHUP | (io->out ? POLLOUT : 0) | (io->in ? POLLIN : 0))},
    };
    /* poll() does not report data that TLS has already read. */
    bool ahead = io->in && transport_more(&device->transport);
    io->state = ticking || ahead ? IO_TICKING : IO_ASLEEP;
    if (io_asleep(io) && tensor_any_released(&device->tensors)) {
        /* The caller that released may have seen this thread awake. This thread stores its state before it looks for
         * releases, and the caller stores its release before it looks at the state, so one of the two sees the other. */
        ticking = true;
        io->state = IO_TICKING;
    }
    pthread_mutex_unlock(&device->lock);
    uint64_t now = io_now_ns();
    struct timespec timeout = {.tv_nsec = now < io->tick_ns && !ahead ? (long)(io->tick_ns - now) : 0};
    io->asleep_ns = now;
    if (!ticking && !ahead)
        timeout = resume_patience(&device->resume, now);
    int n = ppoll(entries, 2, &timeout, NULL);
    if (n > 0 && entries[0].revents)
        (void)!read(io->wake_fd, &(uint64_t){0}, sizeof(uint64_t));
    now = io_now_ns();
    pthread_mutex_lock(&device->lock);
    io->state = IO_AWAKE;
    io->out = io->in = false;
    short events = (short)((n > 0 ? entries[1].revents : 0) | (ahead ? POLLIN : 0));
    if (events & ~POLLOUT)
        io_receive(device, events & (POLLHUP | POLLRDHUP | POLLERR));
    if (events & POLLOUT)
        sender_pump(device);
    resume_heartbeat(device, now);
    /* The thread was woken: the open batch gets some time to fill, counted from the call that woke the thread. */
    if (!ticking && !ahead) {
        io->tick_ns = io->opened_ns + IO_FIRST_TICK_NS;
        io->quiet = 0;
        io_learn(io);
    }
    if (now >= io->tick_ns) {
        io->quiet = io_flush(device) ? 0 : io->quiet + 1;
        io->tick_ns = now + IO_TICK_NS;
    }
}

static void *io_main(void *argument) {
    td_device *device = argument;
    struct io *io = &device->io;
    (void)prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0); /* the default of 50 µs would double a tick */
    (void)pthread_setname_np(pthread_self(), "tensord-io");
    pthread_mutex_lock(&device->lock);
    while (!io->stop) {
        if (device->resume.away) {
            resume_run(device);
        } else if (io->urgent) {
            io->urgent = false;
            io_run_completions(device);
            io_flush(device);
        } else {
            io_poll(device);
        }
    }
    td_error cause;
    error_compose(&cause, STATUS_CANCELLED, "the device was closed", NULL, NULL, 0);
    device_lose(device, &cause);
    io_run_completions(device);
    pthread_mutex_unlock(&device->lock);
    return NULL;
}

int io_start(td_device *device) {
    struct io *io = &device->io;
    io->completions_last = &io->completions;
    io->quiet = io->patience = IO_QUIET_TICKS;
    io->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (io->wake_fd < 0)
        return errno;
    /* The program's own threads shall handle the program's signals. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&io->thread, NULL, io_main, device);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    io->started = !error;
    return error;
}

void io_stop(td_device *device) {
    if (device->io.started) {
        pthread_mutex_lock(&device->lock);
        device->io.stop = true;
        resume_stop(device);
        io_wake(&device->io);
        pthread_mutex_unlock(&device->lock);
        pthread_join(device->io.thread, NULL);
    }
    if (device->io.wake_fd >= 0)
        close(device->io.wake_fd);
}
