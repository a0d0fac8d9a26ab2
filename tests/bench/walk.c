/* The way of an operation through the worker, for scripts/walk, which runs this under callgrind: a service in this process, on the CPU
 * device, and a client that does one thing COUNT times.
 *
 *   walk add COUNT    sends a batch with one add of 16 floats, which runs before the next one is sent
 *   walk chain COUNT  the same, of which 256 are in a batch, each with the free of the one before
 *   walk fetch COUNT  fetches 64 bytes */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/program/program.h"
#include "proto/wire/batch.h"
#include "server/process/log.h"
#include "server/users/limits.h"
#include "server/worker/connection.h"
#include "server/worker/service.h"

enum { WALK_ELEMENTS = 16, WALK_BATCH = 256 };

static uv_loop_t loop;
static struct service service;
static struct connection *connection;
static struct peer peer = {.principal = {.name = "uid:0", .role = ROLE_RUN}, .address = "walk"};
static int client;
static uint64_t next_id = 1, next_sequence = 1;

static void must(bool good, const char *what) {
    if (good)
        return;
    fprintf(stderr, "walk: %s\n", what);
    exit(1);
}

static void walk_open(void) {
    struct service_options options = {.device = "cpu:0", .kind = "cpu", .epoch = 1};
    struct engine_options engine_options = {.wake = service_wake, .owner = &service};
    struct device_options device_options = {.threads = 1, .memory_total = 64 << 20};
    struct connection_options connection_options = {.service = &service, .session = 1, .peer = &peer};
    struct device *device;
    struct engine *engine;
    struct fault fault;
    int fds[2];
    limits_init(&options.limits.each);
    peer.principal.limits = options.limits.each;
    log_init(LOG_LEVEL_ERROR, "walk");
    must(device_open("cpu", &device_options, &device, &fault) == STATUS_OK, "no device");
    must(uv_loop_init(&loop) == 0, "no loop");
    must(service_init(&service, &loop, &options, &fault) == STATUS_OK, "no service");
    must(engine_create(device, &engine_options, &engine, &fault) == STATUS_OK, "no engine");
    must(service_start(&service, engine, &fault) == STATUS_OK, "the service does not start");
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0, "no socket");
    must(connection_create(&connection_options, fds[1], &connection, &fault) == STATUS_OK, "no connection");
    client = fds[0];
}

static void walk_send(unsigned type, uint64_t sequence, const ProtobufCMessage *message) {
    static uint8_t frame[1 << 16];
    struct frame_header header = {.type = (uint16_t)type, .sequence = sequence};
    header.message_bytes = (uint32_t)protobuf_c_message_get_packed_size(message);
    frame_header_encode(&header, frame);
    protobuf_c_message_pack(message, frame + FRAME_HEADER_BYTES);
    size_t bytes = FRAME_HEADER_BYTES + header.message_bytes;
    must(send(client, frame, bytes, MSG_NOSIGNAL) == (ssize_t)bytes, "the socket is full");
}

static void walk_receive(void *bytes, size_t n) {
    for (size_t had = 0; had < n;) {
        ssize_t some = recv(client, (uint8_t *)bytes + had, n - had, MSG_DONTWAIT);
        must(some != 0, "the connection was closed");
        if (some > 0)
            had += (size_t)some;
        else
            uv_run(&loop, UV_RUN_NOWAIT);
    }
}

/* The next frame must be of this type. */
static void walk_reply(unsigned type) {
    static uint8_t bytes[1 << 16];
    struct frame_header header;
    struct fault fault;
    walk_receive(bytes, FRAME_HEADER_BYTES);
    must(frame_header_decode(bytes, FRAME_MESSAGE_MAX, FRAME_PAYLOAD_MAX, &header, &fault) == STATUS_OK &&
             header.type == type && header.message_bytes + header.payload_bytes <= sizeof bytes,
         "another reply than was expected");
    walk_receive(bytes, header.message_bytes + header.payload_bytes);
    must(type != FRAME_FETCH_CHUNK || header.payload_bytes == WALK_ELEMENTS * sizeof(float), "an operation has failed");
}

static void walk_hello(void) {
    Tensord__Hello hello = TENSORD__HELLO__INIT;
    hello.version_min = PROTOCOL_VERSION_MIN;
    hello.version_max = PROTOCOL_VERSION_MAX;
    hello.client = "walk";
    walk_send(FRAME_HELLO, 1, &hello.base);
    walk_reply(FRAME_WELCOME);
}

static void walk_sync(void) {
    static const Tensord__Sync sync = TENSORD__SYNC__INIT;
    walk_send(FRAME_SYNC, 1, &sync.base);
    walk_reply(FRAME_DONE);
}

static void walk_ones(void) {
    uint64_t head = batch_head(OP_FULL, 0, 3, 1, 0, 0);
    int64_t ints[] = {DTYPE_F32, 0, WALK_ELEMENTS};
    double value = 1;
    Tensord__Batch batch = TENSORD__BATCH__INIT;
    batch.first_output = next_id++;
    batch.first_sequence = next_sequence++;
    batch.n_heads = 1;
    batch.heads = &head;
    batch.n_ints = 3;
    batch.ints = ints;
    batch.n_floats = 1;
    batch.floats = &value;
    walk_send(FRAME_BATCH, 0, &batch.base);
    walk_sync();
}

/* The newest tensor and itself, so many times. */
static void walk_adds(unsigned count, bool release) {
    uint64_t heads[2 * WALK_BATCH], inputs[3 * WALK_BATCH];
    Tensord__Batch batch = TENSORD__BATCH__INIT;
    batch.first_output = next_id;
    batch.first_sequence = next_sequence;
    batch.heads = heads;
    batch.inputs = inputs;
    for (unsigned i = 0; i < count; i++) {
        uint64_t last = next_id - 1;
        heads[batch.n_heads++] = batch_head(OP_ADD, 2, 0, 0, 0, 0);
        inputs[batch.n_inputs++] = last;
        inputs[batch.n_inputs++] = last;
        next_id++;
        if (!release)
            continue;
        heads[batch.n_heads++] = batch_head(OP_FREE, 1, 0, 0, 0, 0);
        inputs[batch.n_inputs++] = last;
    }
    next_sequence += batch.n_heads;
    walk_send(FRAME_BATCH, 0, &batch.base);
    do
        uv_run(&loop, UV_RUN_NOWAIT);
    while (connection->operations + 1 < next_sequence || session_queued(connection->session) > 0);
}

static void walk_fetch(void) {
    Tensord__Fetch fetch = TENSORD__FETCH__INIT;
    fetch.id = next_id - 1;
    walk_send(FRAME_FETCH, 2, &fetch.base);
    walk_reply(FRAME_FETCH_CHUNK);
}

int main(int argc, char **argv) {
    must(argc == 3, "usage: walk add|chain|fetch COUNT");
    unsigned count = (unsigned)atoi(argv[2]);
    walk_open();
    walk_hello();
    walk_ones();
    for (unsigned done = 0; done < count;) {
        if (!strcmp(argv[1], "fetch")) {
            walk_fetch();
            done++;
            continue;
        }
        bool chain = !strcmp(argv[1], "chain");
        walk_adds(chain ? WALK_BATCH : 1, chain);
        done += chain ? WALK_BATCH : 1;
    }
    walk_fetch(); /* it is known that all have run, and how */
    _exit(0);     /* the end is not part of the way */
}
