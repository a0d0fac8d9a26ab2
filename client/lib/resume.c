#include "client/lib/resume.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/lib/connection.h"
#include "client/lib/control.h"
#include "client/lib/device.h"
#include "client/lib/error.h"
#include "client/lib/frame.h"

enum { BACKOFF_MS = 50, BACKOFF_MAX_MS = 2000, PATIENCE_S = 3600 };

/* ---- the handshake ---- */

void resume_init(struct resume *resume, const struct td_connection *connection, uint16_t target) {
    *resume = (struct resume){.connection = connection, .target = target, .attempt = -1};
    resume->on = connection->reconnect_ms != TD_NEVER;
    resume->silence_ms = connection->heartbeat_ms ? connection->heartbeat_ms : RESUME_HEARTBEAT_MS;
    if (connection->heartbeat_ms == TD_NEVER)
        resume->silence_ms = 0;
}

void resume_hello(const struct resume *resume, Tensord__Hello *hello) {
    if (!resume->on)
        return;
    hello->resumable = true;
    hello->heartbeat_ms = resume->silence_ms;
    if (!resume->session)
        return;
    hello->resume_session = resume->session;
    hello->resume_epoch = resume->epoch;
    hello->resume_within = true;
    hello->resume_secret = (ProtobufCBinaryData){sizeof resume->secret, (uint8_t *)(uintptr_t)resume->secret};
}

/* The process at the other end of a Unix socket may be a forwarder: it is the daemon only if the daemon claims its number. */
static pid_t resume_daemon(int fd, uint32_t claimed) {
    struct ucred credentials;
    socklen_t size = sizeof credentials;
    if (!claimed || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size))
        return 0;
    return credentials.pid > 0 && (uint32_t)credentials.pid == claimed ? credentials.pid : 0;
}

/* Whether it is known that the daemon has ended, and all sessions with it. */
static bool resume_orphaned(const struct resume *resume) {
    if (!resume->daemon)
        return false;
    struct pollfd end = {.fd = socket_watch_process(resume->daemon), .events = POLLIN};
    if (end.fd < 0)
        return errno == ESRCH;
    bool ended = poll(&end, 1, 0) > 0;
    close(end.fd);
    return ended;
}

void resume_welcome(struct resume *resume, const Tensord__Welcome *welcome, int fd) {
    unsigned shortest = resume->silence_ms;
    resume->on = resume->on && welcome->session && welcome->resume_secret.len == sizeof resume->secret;
    if (!resume->on)
        return;
    resume->session = welcome->session;
    resume->epoch = welcome->epoch;
    resume->daemon = resume_daemon(fd, welcome->process);
    memcpy(resume->secret, welcome->resume_secret.data, sizeof resume->secret);
    resume->reconnect_ms = resume->connection->reconnect_ms ? resume->connection->reconnect_ms : welcome->lease_ms;
    if (welcome->heartbeat_ms && (!shortest || welcome->heartbeat_ms < shortest))
        shortest = welcome->heartbeat_ms;
    resume->check_ms = shortest / 3 + (shortest && shortest < 3);
    resume->look_ms = resume->heard_ms = control_now_ms();
}

/* ---- one attempt ---- */

/* Whether another attempt may succeed after this failure. */
static bool resume_worth_another(int code) {
    return code == STATUS_CONNECTION || code == STATUS_TIMED_OUT || code == STATUS_LIMIT || code == STATUS_AGAIN ||
           code == STATUS_NO_HOST_MEMORY;
}

/* From now on the thread that closes the device may shut this socket down; -1: it may not any more. False: the device is being
 * closed. Takes the lock. */
static bool resume_attempting(void *owner, int fd) {
    td_device *device = owner;
    pthread_mutex_lock(&device->lock);
    bool go_on = !device->io.stop;
    device->resume.attempt = go_on ? fd : -1;
    pthread_mutex_unlock(&device->lock);
    return go_on;
}

/* Without the lock: makes a connection to the session. *point: what the daemon has handled. */
static int resume_attempt(td_device *device, int64_t deadline_ms, struct transport *transport,
                          struct resume_point *point, struct fault *fault) {
    const struct resume *resume = &device->resume;
    const td_connection *connection = resume->connection;
    Tensord__Welcome *welcome;
    int64_t until_ms = control_now_ms() + connection->timeout_ms;
    if (until_ms > deadline_ms)
        until_ms = deadline_ms;
    const struct control_dial dial = {.url = connection->url,
                                      .tls = connection->tls,
                                      .target = resume->target,
                                      .resumes = true,
                                      .deadline_ms = until_ms,
                                      .waits = resume_attempting,
                                      .owner = device};
    int code = control_dial(&dial, transport, fault);
    if (code)
        return code;
    code = control_hello(transport, connection->client_name, connection->token, connection->allow_tf32, resume,
                         until_ms, &welcome, fault);
    (void)resume_attempting(device, -1);
    if (!code) {
        *point = (struct resume_point){welcome->frames, welcome->frame_bytes};
        if (welcome->session != resume->session || welcome->epoch != resume->epoch)
            code = fault_set(fault, STATUS_PROTOCOL, "the daemon gave session %llu of epoch %llu instead",
                             (unsigned long long)welcome->session, (unsigned long long)welcome->epoch);
        tensord__welcome__free_unpacked(welcome, NULL);
    }
    if (code)
        transport_finish(transport);
    return code;
}

/* ---- reconnecting ---- */

/* Under the lock, while no thread uses the old socket: continues over the new one, which it takes over. */
static int resume_adopt(td_device *device, struct transport *fresh, struct resume_point point, struct fault *fault) {
    struct resume *resume = &device->resume;
    const struct journal *journal = &device->sender.journal;
    uint64_t repeated;
    if (!journal_may_have(journal, point.frames)) {
        transport_finish(fresh);
        return fault_set(fault, STATUS_PROTOCOL, "the daemon has handled %llu messages, of which it had %llu to %llu",
                         (unsigned long long)point.frames, (unsigned long long)journal->gone,
                         (unsigned long long)journal->frames);
    }
    transport_replace(&device->transport, fresh);
    reader_cut(device);
    int code = sender_rewind(device, point.frames, point.bytes, &repeated, fault);
    if (code)
        return code;
    resume->repeated += repeated;
    /* If the last connection brought nothing, the next attempt waits a little, but no longer than that. */
    resume->attempts = point.frames == resume->point.frames && point.bytes == resume->point.bytes;
    resume->point = point;
    pending_ask_again(device);
    resume->away = false;
    resume->reconnects++;
    resume->heard_at_once = atomic_load(&device->reader.heard);
    resume->look_ms = resume->heard_ms = control_now_ms();
    if (trace_enabled())
        fprintf(stderr, "tensord: %s: session %llu goes on over another connection, %llu messages are sent again\n",
                device->name, (unsigned long long)resume->session, (unsigned long long)repeated);
    return 0;
}

void resume_begin(td_device *device, const td_error *cause) {
    struct resume *resume = &device->resume;
    uint64_t heard = atomic_load(&device->reader.heard);
    resume->away = true;
    resume->cause = *cause;
    resume->deadline_ms = control_now_ms() + resume->reconnect_ms;
    if (heard != resume->heard_at_once) /* something came over the last connection: begin at once */
        resume->attempts = 0;
    device->sender.broken = true;
    transport_hang_up(&device->transport);
    if (trace_enabled())
        fprintf(stderr, "tensord: %s: %s; connecting anew\n", device->name, cause->message);
    if (io_urgent(&device->io))
        io_wake(&device->io);
}

/* Milliseconds before the next attempt, with jitter, so that the clients of a daemon do not all come back at the same time. */
static unsigned resume_backoff(unsigned attempts) {
    unsigned ms = BACKOFF_MAX_MS, noise = 0;
    if (!attempts)
        return 0;
    if (attempts < 6)
        ms = (unsigned)BACKOFF_MS << (attempts - 1);
    (void)!getrandom(&noise, sizeof noise, GRND_NONBLOCK);
    return ms / 2 + noise % (ms / 2 + 1);
}

/* Reconnecting has failed for good: the device is lost. */
static void resume_fail(td_device *device, const struct fault *fault) {
    char text[sizeof device->resume.cause.message];
    td_error cause;
    if (fault->code == STATUS_DEVICE_LOST) /* the fault says everything: the session is gone, or the daemon has ended */
        snprintf(text, sizeof text, "%s", fault->message);
    else
        snprintf(text, sizeof text, "%.130s, and with it the session: %.150s", device->resume.cause.message,
                 fault->message);
    error_compose(&cause, STATUS_DEVICE_LOST, text, NULL, NULL, 0);
    device_lose(device, &cause);
}

static void resume_try(td_device *device) {
    struct resume *resume = &device->resume;
    struct fault fault = {0};
    struct transport fresh;
    struct resume_point point;
    io_sleep(device, resume_backoff(resume->attempts++));
    if (device->io.stop)
        return;
    if (resume_orphaned(resume)) {
        fault_set(&fault, STATUS_DEVICE_LOST, "the daemon has ended");
        resume_fail(device, &fault);
        return;
    }
    pthread_mutex_unlock(&device->lock);
    int code = resume_attempt(device, resume->deadline_ms, &fresh, &point, &fault);
    pthread_mutex_lock(&device->lock);
    if (!code)
        code = resume_adopt(device, &fresh, point, &fault);
    if (code && !device->io.stop && (!resume_worth_another(code) || control_now_ms() >= resume->deadline_ms))
        resume_fail(device, &fault);
}

void resume_run(td_device *device) {
    sender_wait_roles(device); /* they end at once, because the old socket is shut down */
    while (device->resume.away && !device->io.stop) {
        resume_try(device);
        io_run_completions(device);
    }
    device->io.urgent = true;
    sender_notify(device);
    reader_pass_role(device);
}

/* ---- the end ---- */

void resume_stop(td_device *device) {
    if (device->resume.attempt >= 0)
        shutdown(device->resume.attempt, SHUT_RDWR);
}

void resume_goodbye(td_device *device) {
    struct resume *resume = &device->resume;
    struct frame_header header = {.type = FRAME_GOODBYE};
    if (!resume->on || device->lost)
        return;
    frame_header_encode(&header, resume->goodbye_frame);
    resume->goodbye = (struct item){.kind = ITEM_FRAME,
                                    .uncounted = true,
                                    .gate = device->queue.tickets,
                                    .bytes = FRAME_HEADER_BYTES,
                                    .frame = resume->goodbye_frame,
                                    .frame_bytes = FRAME_HEADER_BYTES};
    queue_push(&device->queue, &resume->goodbye);
}

/* If a socket is closed while unread data waits in it, such as an Ack, the system may also drop the data that it has sent. So
 * this waits until the daemon closes. If the peer of a Unix socket is the daemon itself, nothing is lost that way. */
void resume_part(td_device *device, int64_t deadline_ms) {
    uint8_t nowhere[16 << 10];
    int64_t until_ms = control_now_ms() + RESUME_PARTING_MS;
    ssize_t got = 1;
    if (!device->resume.parting || device->resume.daemon)
        return;
    if (until_ms > deadline_ms)
        until_ms = deadline_ms;
    for (int64_t left_ms; got > 0 && (left_ms = until_ms - control_now_ms()) > 0;) {
        struct pollfd entry = {.fd = device->transport.fd, .events = POLLIN};
        if (poll(&entry, 1, (int)left_ms) > 0)
            got = recv(device->transport.fd, nowhere, sizeof nowhere, MSG_DONTWAIT);
    }
}

/* ---- heartbeats ---- */

struct timespec resume_patience(const struct resume *resume, uint64_t now_ns) {
    int64_t now_ms = (int64_t)(now_ns / 1000000), left_ms = resume->look_ms - now_ms;
    if (!resume->on || !resume->check_ms)
        return (struct timespec){.tv_sec = PATIENCE_S};
    left_ms = left_ms > 0 ? left_ms : 0;
    return (struct timespec){.tv_sec = left_ms / 1000, .tv_nsec = left_ms % 1000 * 1000000};
}

void resume_heartbeat(td_device *device, uint64_t now_ns) {
    struct resume *resume = &device->resume;
    int64_t now_ms = (int64_t)(now_ns / 1000000);
    td_error cause;
    char text[128];
    if (!resume->on || !resume->check_ms || now_ms < resume->look_ms || device->lost)
        return;
    resume->look_ms = now_ms + resume->check_ms;
    reader_look(device); /* data may have come that no thread waits for */
    uint64_t heard = atomic_load(&device->reader.heard), written = device->sender.journal.head;
    bool silent = heard == resume->heard, said = written != resume->written;
    resume->heard = heard;
    resume->written = written;
    if (!silent)
        resume->heard_ms = now_ms;
    if (resume->silence_ms && now_ms - resume->heard_ms >= resume->silence_ms) {
        snprintf(text, sizeof text, "nothing was heard of %s for %u ms", device->name, resume->silence_ms);
        error_compose(&cause, STATUS_DEVICE_LOST, text, NULL, NULL, 0);
        device_interrupt(device, &cause, false);
    } else if (silent || !said) {
        pending_ping(device);
    }
}

int td_device_link(td_device *device, td_link *link) {
    if (!device || !link)
        return error_set(STATUS_INVALID_ARGUMENT, "the %s is NULL", device ? "place for the link" : "device");
    pthread_mutex_lock(&device->lock);
    *link = (td_link){.connected = !device->lost && !device->resume.away,
                      .reconnects = device->resume.reconnects,
                      .frames_repeated = device->resume.repeated};
    pthread_mutex_unlock(&device->lock);
    return 0;
}
