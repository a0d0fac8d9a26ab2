#include "client/lib/reader.h"

#include <poll.h>
#include <sched.h>
#include <time.h>

#include "client/lib/device.h"

/* Waking a sleeping core costs some 30 µs on virtual machines: a reply that comes within this time costs none. */
enum {
    SPIN_NS = 50000,
    READ_AHEAD = 64 << 10,
    LOOKS_MAX = 16, /* reads at a time, so that a long fetch does not keep the thread from sending, and from its end */
};

int reader_init(struct reader *reader) {
    *reader = (struct reader){.busy = false};
    int code = frame_reader_init(&reader->frames, READ_AHEAD);
    if (!code)
        frame_reader_limits(&reader->frames, FRAME_MESSAGE_MAX, FRAME_PAYLOAD_MAX);
    return code;
}

void reader_finish(struct reader *reader) {
    frame_reader_finish(&reader->frames);
}

void reader_cut(td_device *device) {
    struct frame_reader *reader = &device->reader.frames;
    uint64_t begun = frame_reader_payload_begun(reader);
    struct request *request = begun ? pending_find(&device->pending, reader->header.sequence) : NULL;
    if (request && request->reply == FRAME_FETCH_CHUNK)
        request->received += begun;
    frame_reader_reset(reader);
}

/* The reader is done. */
static void reader_leave(td_device *device, int got, const td_error *cause, bool final) {
    device->reader.busy = false;
    if (got < 0)
        device_interrupt(device, cause, final);
    sender_notify(device);
}

void reader_look(td_device *device) {
    td_error cause;
    bool final = false;
    if (device->reader.busy || device->lost || device->resume.away)
        return;
    device->reader.busy = true;
    pthread_mutex_unlock(&device->lock);
    int got = 1;
    for (int i = 0; i < LOOKS_MAX && got > 0; i++)
        got = reader_receive(device, &cause, &final);
    pthread_mutex_lock(&device->lock);
    reader_leave(device, got, &cause, final);
    reader_pass_role(device);
}

void reader_pass_role(td_device *device) {
    const struct pending *pending = &device->pending;
    if (device->reader.busy || device->resume.away)
        return;
    for (struct request *request = pending->first; request; request = request->next) {
        if (request->waiting) {
            pthread_cond_signal(&request->wake);
            return;
        }
    }
    if (pending->n_async && io_urgent(&device->io))
        io_wake(&device->io);
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Nothing has come: spins for a moment, then sleeps until something has. */
static void read_idle(td_device *device, int64_t *spin_until) {
    int64_t now = now_ns();
    if (!*spin_until)
        *spin_until = now + SPIN_NS;
    if (now < *spin_until) {
        sched_yield();
        return;
    }
    struct pollfd entry = {.fd = device->transport.fd, .events = POLLIN};
    (void)poll(&entry, 1, -1);
}

void reader_until_done(td_device *device, const atomic_bool *done) {
    td_error cause;
    bool final = false;
    int got = 0;
    int64_t spin_until = 0;
    device->reader.busy = true;
    pthread_mutex_unlock(&device->lock);
    while (!atomic_load_explicit(done, memory_order_acquire)) {
        got = reader_receive(device, &cause, &final);
        if (got < 0)
            break;
        if (got > 0)
            spin_until = 0;
        else
            read_idle(device, &spin_until);
    }
    pthread_mutex_lock(&device->lock);
    reader_leave(device, got, &cause, final);
}
