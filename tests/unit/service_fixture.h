/* A service with one client, in the test's own process and thread: the engine is on a device that computes nothing, and time
 * for turns is counted by a clock that goes on with each look at it. Include once in a program. */
#pragma once

#include <criterion/criterion.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/wire/frame.h"
#include "proto/wire/tensord.pb-c.h"
#include "server/process/log.h"
#include "server/worker/connection.h"
#include "server/worker/service.h"
#include "tests/stand_ins/null_device.h"
#include "tests/unit/requests.h"

enum { TURNS_MAX = 1000000 };

static struct null_device device;
static uv_loop_t loop;
static struct service service;
static struct connection *connection; /* of the client; not to be used once it may have ended */
static int client = -1;               /* its end of the socket */
static struct peer peer = {.principal = {.name = "uid:0", .role = ROLE_RUN}, .address = "test"};

/* Called when the service is finished, and before the loop's handles must be closed; NULL: nothing is. */
static void (*finish_more)(void);

static uint64_t clock_ns, look_ns; /* what each look costs */

/* To be set before the service is opened. */
static int (*want_link)(void *owner, const char *device, const char *principal,
                        const uint8_t ticket[LINK_TICKET_BYTES]);

static uint64_t looked_at(void) {
    return clock_ns += look_ns;
}

static inline void open_service(const struct limits *limits) {
    struct service_options options = {
        .device = "null:0", .kind = "null", .epoch = 1, .want_link = want_link, .limits = {.each = *limits}};
    struct engine_options engine_options = {.wake = service_wake, .owner = &service};
    struct engine *engine;
    struct fault fault;
    peer.principal.limits = *limits;
    log_init(LOG_LEVEL_ERROR, "test");
    null_device_init(&device, 1 << 26);
    cr_assert_eq(uv_loop_init(&loop), 0);
    cr_assert_eq(service_init(&service, &loop, &options, &fault), STATUS_OK);
    cr_assert_eq(engine_create(&device.device, &engine_options, &engine, &fault), STATUS_OK);
    cr_assert_eq(service_start(&service, engine, &fault), STATUS_OK);
    engine_budget(engine)->clock = looked_at;
    look_ns = 1000;
}

static inline void turn(void) {
    uv_run(&loop, UV_RUN_NOWAIT);
}

/* Until it is true, with so much time a turn that a look at the clock or two are all of it. */
#define TURNS_UNTIL(condition)                                                                                         \
    ({                                                                                                                 \
        unsigned turns_ = 0;                                                                                           \
        look_ns = SERVICE_TURN_NS;                                                                                     \
        for (; !(condition) && turns_ < TURNS_MAX; turns_++) {                                                         \
            turn();                                                                                                    \
            sched_yield(); /* to threads whose work it may wait for */                                                 \
        }                                                                                                              \
        look_ns = 1000;                                                                                                \
        cr_assert(condition, "never: " #condition);                                                                    \
        turns_;                                                                                                        \
    })
static inline void send_payload(unsigned type, uint64_t sequence, const ProtobufCMessage *message, const void *payload,
                                size_t payload_bytes) {
    size_t message_bytes = protobuf_c_message_get_packed_size(message);
    size_t bytes = FRAME_HEADER_BYTES + message_bytes + payload_bytes;
    uint8_t *frame = malloc(bytes);
    struct frame_header header = {.type = (uint16_t)type,
                                  .message_bytes = (uint32_t)message_bytes,
                                  .payload_bytes = payload_bytes,
                                  .sequence = sequence};
    frame_header_encode(&header, frame);
    protobuf_c_message_pack(message, frame + FRAME_HEADER_BYTES);
    memcpy(frame + FRAME_HEADER_BYTES + message_bytes, payload, payload_bytes);
    for (size_t sent = 0; sent < bytes;) {
        ssize_t some = send(client, frame + sent, bytes - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        sent += some > 0 ? (size_t)some : 0;
        if (some < 0)
            turn();
    }
    free(frame);
}

static inline void send_message(unsigned type, uint64_t sequence, const ProtobufCMessage *message) {
    send_payload(type, sequence, message, "", 0);
}

/* Turns until so many bytes have come. */
static inline void receive_bytes(void *bytes, size_t n) {
    for (size_t had = 0, turns = 0; had < n; turns++) {
        ssize_t some = recv(client, (uint8_t *)bytes + had, n - had, MSG_DONTWAIT);
        cr_assert_neq(some, 0, "the connection was closed");
        cr_assert_lt(turns, TURNS_MAX);
        had += some > 0 ? (size_t)some : 0;
        if (some < 0) {
            turn();
            sched_yield();
        }
    }
}

/* The next frame's message, in `message`, without what follows it. */
static inline struct frame_header receive_message(uint8_t *message, size_t most) {
    uint8_t head[FRAME_HEADER_BYTES];
    struct frame_header header;
    struct fault fault = {0};
    receive_bytes(head, sizeof head);
    cr_assert_eq(frame_header_decode(head, FRAME_MESSAGE_MAX, FRAME_PAYLOAD_MAX, &header, &fault), STATUS_OK, "%s",
                 fault.message);
    cr_assert_leq(header.message_bytes, most);
    receive_bytes(message, header.message_bytes);
    return header;
}

/* A Done: its status, with the words. */
static inline int receive_done(uint64_t sequence, char words[256]) {
    static uint8_t bytes[1 << 16];
    struct frame_header header = receive_message(bytes, sizeof bytes);
    cr_assert_eq(header.type, FRAME_DONE, "%s", frame_type_name(header.type));
    cr_assert_eq(header.sequence, sequence);
    Tensord__Done *done = tensord__done__unpack(NULL, header.message_bytes, bytes);
    cr_assert_not_null(done);
    int code = done->error ? (int)done->error->code : STATUS_OK;
    snprintf(words, 256, "%s", done->error ? done->error->message : "");
    tensord__done__free_unpacked(done, NULL);
    return code;
}

/* A socket to the service; no Hello. */
static inline void open_connection(void) {
    static uint64_t number;
    struct connection_options options = {.service = &service, .session = ++number, .peer = &peer};
    struct fault fault;
    int fds[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    cr_assert_eq(connection_create(&options, fds[1], &connection, &fault), STATUS_OK);
    client = fds[0];
}

/* What the last Welcome has said. */
static struct {
    uint64_t session, epoch;
    uint8_t secret[LEASE_SECRET_BYTES];
} welcomed;

static inline void keep_welcome(const uint8_t *bytes, size_t n) {
    Tensord__Welcome *welcome = tensord__welcome__unpack(NULL, n, bytes);
    cr_assert_not_null(welcome);
    welcomed.session = welcome->session;
    welcomed.epoch = welcome->epoch;
    if (welcome->resume_secret.len == sizeof welcomed.secret)
        memcpy(welcomed.secret, welcome->resume_secret.data, sizeof welcomed.secret);
    tensord__welcome__free_unpacked(welcome, NULL);
}

/* `again`: it presents the session that it has been told of last. */
static inline void send_hello(bool resumable, bool again) {
    Tensord__Hello hello = TENSORD__HELLO__INIT;
    hello.version_min = PROTOCOL_VERSION_MIN;
    hello.version_max = PROTOCOL_VERSION_MAX;
    hello.client = "test";
    hello.resumable = resumable;
    if (again) {
        hello.resume_session = welcomed.session;
        hello.resume_epoch = welcomed.epoch;
        hello.resume_secret = (ProtobufCBinaryData){sizeof welcomed.secret, welcomed.secret};
    }
    send_message(FRAME_HELLO, 1, &hello.base);
}

static inline void receive_welcome(void) {
    static uint8_t bytes[1 << 16];
    struct frame_header header = receive_message(bytes, sizeof bytes);
    cr_assert_eq(header.type, FRAME_WELCOME, "%s", frame_type_name(header.type));
    keep_welcome(bytes, header.message_bytes);
}

static inline void open_client(void) {
    open_connection();
    send_hello(false, false);
    receive_welcome();
}

/* A tensor of zeros, past the client. */
static inline void make_tensor(uint64_t id, int64_t bytes) {
    static uint64_t sequence;
    struct op_request request = REQUEST_FULL(DTYPE_U8, bytes, 0, .output = id, .sequence = ++sequence);
    cr_assert_eq(session_submit(connection->session, &request), STATUS_OK);
}

/* The tensors 1, 2 and so on. */
static inline void make_tensors(uint64_t n) {
    for (uint64_t id = 1; id <= n; id++)
        make_tensor(id, 1);
    engine_kick(service.engine);
}

static inline void close_service(void) {
    if (client >= 0)
        close(client);
    for (unsigned turns = 0; service.connections && turns < TURNS_MAX; turns++)
        turn();
    service_finish(&service);
    if (finish_more)
        finish_more();
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&loop), 0);
    cr_assert_eq(device.memory_reserved, 0, "the device still has %llu bytes out",
                 (unsigned long long)device.memory_reserved);
}

static inline void send_garbage(void) {
    uint8_t garbage[FRAME_HEADER_BYTES] = {0};
    cr_assert_eq(send(client, garbage, sizeof garbage, MSG_NOSIGNAL), sizeof garbage);
}

/* A service with a client whose session stays for a while when its connection is lost. */
static inline void open_resumable(const struct limits *limits) {
    open_service(limits);
    open_connection();
    send_hello(true, false);
    receive_welcome();
}
