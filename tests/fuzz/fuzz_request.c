/* The whole request path under arbitrary bytes: a connection of a service with a real engine on the CPU device, one end
 * of a socket pair in the fuzzer's hand.
 *
 * The first byte chooses how the rest is read: as the very stream after the preamble, as frames whose headers are made
 * here, or as a script of operations whose batch is made here (fuzz_script.h). What must hold after each input: the
 * connection ends when its client goes, the engine is well, and not a byte of device memory is left. */
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "engine/engine.h"
#include "server/process/log.h"
#include "server/worker/connection.h"
#include "server/worker/service.h"
#include "tests/fuzz/fuzz_script.h"

enum { QUIET_MS = 20, HANG_MS = 20000 };

static uv_loop_t loop;
static struct service service;
static struct engine *engine;

/* An assertion that no build leaves out. */
#define require(holds)                                                                                                 \
    ((holds) ? (void)0 : (fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #holds), abort()))

/* The front's part in a login, as the first letter of the token wants it: granted, denied, asked again first, or never
 * answered. */
static struct {
    const struct connection *connection; /* NULL: nobody asks */
    bool granted, again;
} asked;

static int harness_login(void *owner, const struct connection *connection, const char *token) {
    (void)owner;
    require(connection->login == CONNECTION_STRANGER);
    if (*token == 'a' && !asked.again) {
        asked.again = true;
        return -EAGAIN;
    }
    asked.granted = strchr(token, 'g') && *token != 'd';
    asked.connection = *token == 's' ? NULL : connection;
    return 0;
}

/* Put off by the front, the connection has to ask again of its own accord. */
static bool harness_is_to_be_asked(void) {
    const struct connection *connection = service.connections;
    return asked.again && connection && connection->state == CONNECTION_OPEN && !connection->socket.leave_ms &&
           connection->in.reader.held && connection->login == CONNECTION_STRANGER;
}

static void harness_answer(void) {
    static const struct principal principal = {.name = "fuzzer", .credential = "00000000", .role = ROLE_RUN};
    struct connection *connection = service.connections;
    struct fault fault;
    if (!asked.connection || asked.connection != connection)
        return;
    asked.connection = NULL;
    fault_set(&fault, STATUS_DENIED, "the token is not valid");
    if (asked.granted)
        connection_granted(connection, &principal);
    else
        connection_denied(connection, &fault);
    require(!asked.granted || connection->login == CONNECTION_LOGGED_IN);
}

/* One engine for all inputs: what one leaves behind shows in the next one's memory account. */
static void harness_start(void) {
    struct device_options device_options = {.threads = 1, .memory_total = 64 << 20};
    struct service_options options = {
        .device = "cpu:0",
        .kind = "cpu",
        .epoch = 1,
        .limits = {.each = {.session_bytes = 512 << 10,
                            .session_tensors = 64,
                            .session_streams = 4,
                            .session_operations = 256,
                            .session_out_bytes = 1 << 20},
                   .sessions = 4,
                   .hello_timeout_ms = 1000,
                   .transfer_timeout_ms = 1000,
                   .drain_timeout_ms = 1000},
        .login = harness_login,
    };
    struct engine_options engine_options = {.wake = service_wake, .owner = &service};
    struct device *device;
    struct fault fault;
    log_init(LOG_LEVEL_ERROR, "fuzz");
    require(!uv_loop_init(&loop));
    require(!device_open("cpu", &device_options, &device, &fault));
    require(!service_init(&service, &loop, &options, &fault));
    require(!engine_create(device, &engine_options, &engine, &fault));
    require(!service_start(&service, engine, &fault));
}

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Drops the replies; true when there were any. */
static bool replies_drop(int fd) {
    static uint8_t bytes[64 << 10];
    bool any = false;
    while (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        any = true;
    return any;
}

static bool engine_quiet(void) {
    struct engine_stats stats;
    engine_stats(engine, &stats);
    return stats.queue_depth == 0;
}

/* Everything sent has been read, and nothing is being done about it. */
static bool connection_settled(int fd) {
    int unread = 0;
    ioctl(fd, SIOCOUTQ, &unread);
    return !service.connections || (!unread && engine_quiet() && connection_idle(service.connections));
}

/* Sends the stream and lets the loop turn until all is done, or nothing more happens. */
static void harness_feed(int fd, const uint8_t *bytes, size_t size) {
    uint64_t start = now_ms(), moved = start;
    size_t sent = 0;
    while (service.connections) {
        ssize_t n = sent < size ? send(fd, bytes + sent, size - sent, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
        if (n > 0)
            sent += (size_t)n;
        else if (n < 0 && errno != EAGAIN)
            break;
        uv_run(&loop, UV_RUN_NOWAIT);
        require(now_ms() < start + HANG_MS);
        harness_answer();
        if (replies_drop(fd) || n > 0 || !engine_quiet() || harness_is_to_be_asked())
            moved = now_ms();
        if ((sent == size && connection_settled(fd)) || now_ms() > moved + QUIET_MS)
            break;
    }
}

/* After the client is gone so must be all that it had, but for what it has published; then that, too. */
static void harness_check(void) {
    struct engine_stats stats;
    struct fault fault;
    uint64_t start = now_ms();
    do {
        uv_run(&loop, UV_RUN_NOWAIT);
        engine_stats(engine, &stats);
        require(now_ms() < start + HANG_MS);
        if (!service.connections)
            names_finish(&service.names);
    } while (service.connections || stats.queue_depth || stats.memory_live);
    require(stats.sessions == 0 && service.names.n_owners == 0);
    require(!engine_fault(engine, &fault));
}

static void harness_run(const uint8_t *bytes, size_t size) {
    static uint64_t session;
    static const struct peer peer = {.principal = {.name = "uid:0", .role = ROLE_RUN, .user_kernels = true},
                                     .address = "fuzz"};
    struct connection_options options = {.service = &service, .session = ++session, .peer = &peer};
    struct connection *connection;
    struct fault fault;
    int fds[2];
    require(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds));
    require(!connection_create(&options, fds[1], &connection, &fault));
    asked.connection = NULL;
    asked.again = false;
    harness_feed(fds[0], bytes, size);
    close(fds[0]);
    harness_check();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct script_stream stream = {0};
    if (!engine)
        harness_start();
    if (!size)
        return 0;
    script_stream(&stream, data[0], data + 1, size - 1);
    harness_run(stream.bytes, stream.n);
    script_stream_finish(&stream);
    return 0;
}
