/* The engine's threads under ThreadSanitizer on a device that computes nothing, hence a plain main: streams that open and
 * close with work in them, uploads that others wait for, poisons between streams, sessions that go away while they run.
 * Every question is answered in time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/engine.h"
#include "engine/memory/tenant.h"
#include "engine/program/program.h"
#include "engine/session/session.h"
#include "tests/stand_ins/null_device.h"

enum { SESSIONS = 3, STREAMS = 6, LIVE = 40, ROUNDS = 3000, UPLOADS = 4 };

static struct engine *engine;
static uint32_t seed = 1;

static unsigned pick(unsigned limit) {
    seed = seed * 1664525 + 1013904223;
    return (unsigned)((uint64_t)seed * limit >> 32);
}

static void expect(int good, const char *what) {
    if (good)
        return;
    fprintf(stderr, "threads_engine_null: %s\n", what);
    exit(1);
}

struct client {
    struct session *session;
    uint64_t ids[LIVE], next_id;
    bool open[STREAMS];
    struct upload uploads[UPLOADS];
    uint64_t upload_ids[UPLOADS];
    struct wait wait;
    bool waiting;
    struct fetch fetch;
    bool fetching;
};

static struct client clients[SESSIONS];
static struct tenant *tenant; /* of some sessions; goes and comes again when it has none */

static void waited(struct wait *wait, const struct failure *failure) {
    (void)failure;
    ((struct client *)(void *)((char *)wait - offsetof(struct client, wait)))->waiting = false;
}

static void fetched(struct fetch *fetch, const struct failure *failure) {
    struct client *client = (struct client *)(void *)((char *)fetch - offsetof(struct client, fetch));
    unsigned sum = 0;
    for (int64_t i = 0; !failure && i < fetch->bytes; i += 512)
        sum += fetch->data[i];
    client->next_id += sum & 0;
    client->fetching = false;
    fetch_release(fetch);
}

static uint32_t some_stream(const struct client *client) {
    uint32_t stream = pick(STREAMS);
    return client->open[stream] ? stream : 0;
}

static uint64_t submit(struct client *client, unsigned opcode, unsigned n_inputs, const uint64_t *inputs,
                       unsigned n_ints, const int64_t *ints, uint16_t consume) {
    double value = 1;
    struct op_request request = {.opcode = opcode,
                                 .stream = some_stream(client),
                                 .n_inputs = n_inputs,
                                 .inputs = inputs,
                                 .n_ints = n_ints,
                                 .ints = ints,
                                 .n_floats = opcode == OP_FULL,
                                 .floats = &value,
                                 .output = ++client->next_id,
                                 .consume = consume};
    session_submit(client->session, &request);
    return client->next_id;
}

static void replace(struct client *client, unsigned at, uint64_t id) {
    uint64_t old = client->ids[at];
    struct op_request request = {.opcode = OP_FREE, .n_inputs = 1, .inputs = &old};
    session_submit(client->session, &request);
    client->ids[at] = id;
}

static uint64_t some(const struct client *client) {
    return client->ids[pick(LIVE)];
}

static void client_start(struct client *client) {
    struct fault fault;
    struct session_limits limits = {.tensors = 10000, .streams = STREAMS, .tenant = pick(3) ? tenant : NULL};
    memset(client, 0, sizeof *client);
    client->open[0] = true;
    client->fetch.done = fetched;
    client->wait.done = waited;
    expect(session_create(engine_sessions(engine), &limits, &client->session, &fault) == STATUS_OK, "session");
    for (unsigned i = 0; i < LIVE; i++)
        client->ids[i] = submit(client, OP_FULL, 0, NULL, 4, (const int64_t[]){DTYPE_I64, 1, 4, 4}, 0);
}

static void turn_stream(struct client *client) {
    struct fault fault;
    uint32_t stream = 1 + pick(STREAMS - 1);
    if (client->open[stream])
        session_stream_close(client->session, stream, &fault);
    else
        session_stream_open(client->session, stream, (int)pick(3) - 1, &fault);
    client->open[stream] = !client->open[stream];
}

static void turn_upload(struct client *client) {
    unsigned i = pick(UPLOADS);
    struct upload *upload = &client->uploads[i];
    const struct failure cause = {.code = STATUS_CONNECTION};
    if (upload->bytes) {
        uint8_t *data = upload_chunk(upload, 0, upload->bytes);
        if (data)
            memset(data, 1, (size_t)upload->bytes);
        upload_chunk_done(upload);
        upload_finish(upload, pick(5) ? NULL : &cause);
        memset(upload, 0, sizeof *upload);
        return;
    }
    struct tensor_type type = {.dtype = DTYPE_I64, .rank = 2, .shape = {4, 4}};
    struct upload_request request = {
        .id = ++client->next_id, .type = &type, .stream = some_stream(client), .waitable = pick(2)};
    if (session_upload(client->session, &request, upload) == STATUS_OK)
        replace(client, pick(LIVE), request.id);
}

static void client_step(struct client *client) {
    static const int64_t axis[1] = {0};
    uint64_t inputs[5] = {some(client), some(client), some(client), some(client), some(client)};
    switch (pick(12)) {
    case 0:
        turn_stream(client);
        return;
    case 1:
    case 2:
        turn_upload(client);
        return;
    case 3: /* reported as out of range now and then: see the hook */
        replace(client, pick(LIVE), submit(client, OP_TAKE_ALONG_AXIS, 2, inputs, 1, axis, 0));
        return;
    case 4:
        replace(client, pick(LIVE), submit(client, OP_MATRIX_TRANSPOSE, 1, inputs, 0, NULL, 0));
        return;
    case 5: {
        uint64_t id = submit(client, OP_CONCAT, 5, inputs, 1, axis, 0);
        const int64_t part[6] = {0, 4, 1, OP_SLICE_NONE, OP_SLICE_NONE, 1};
        replace(client, pick(LIVE), submit(client, OP_SLICE, 1, &id, 6, part, 1));
        return;
    }
    case 6:
        replace(client, pick(LIVE), submit(client, OP_FULL, 0, NULL, 4, (const int64_t[]){DTYPE_I64, 1, 4, 4}, 0));
        return;
    case 7:
        if (!client->waiting) {
            client->waiting = true;
            session_wait(client->session, pick(2) ? some(client) : 0, &client->wait);
        }
        return;
    case 8:
        if (!client->fetching) {
            client->fetching = true;
            session_fetch(client->session, some(client), &client->fetch);
        }
        return;
    default:
        replace(client, pick(LIVE), submit(client, OP_ADD, 2, inputs, 0, NULL, 0));
    }
}

static int hook(struct null_device *null, const struct launch *launch) {
    static unsigned count;
    (void)null;
    count++;
    if (launch->report && count % 4 == 0)
        atomic_store(&launch->report->code, STATUS_OUT_OF_RANGE);
    if (count % 16 == 0) /* long enough for the owner to overtake */
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    return 0;
}

static void client_drain(struct client *client) {
    for (unsigned i = 0; i < UPLOADS; i++)
        if (client->uploads[i].bytes)
            upload_finish(&client->uploads[i], NULL);
    for (int i = 0; i < 5000 && (client->waiting || client->fetching); i++) {
        engine_kick(engine);
        engine_poll(engine);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    expect(!client->waiting && !client->fetching, "a question was not answered");
}

static void tenant_renew(void) {
    struct tenant_stats stats;
    struct fault fault;
    if (tenant)
        tenant_stats(tenant, &stats);
    if (tenant && stats.sessions)
        return;
    tenant_destroy(tenant);
    expect(tenant_create(engine_memory(engine), "a", &(struct tenant_limits){0}, &tenant, &fault) == STATUS_OK,
           "tenant");
}

int main(void) {
    static struct null_device device;
    struct fault fault;
    null_device_init(&device, 64 << 20);
    device.hook = hook;
    expect(engine_create(&device.device, &(struct engine_options){0}, &engine, &fault) == STATUS_OK, "engine");
    tenant_renew();
    for (int i = 0; i < SESSIONS; i++) {
        client_start(&clients[i]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        struct client *client = &clients[pick(SESSIONS)];
        for (unsigned n = pick(60); n; n--)
            client_step(client);
        engine_kick(engine);
        engine_poll(engine);
        struct engine_stall stall;
        expect(!engine_stalled(engine, UINT64_C(3600) * 1000000000, &stall), "a stall");
        if (pick(50) == 0)
            tenant_set_limits(tenant, &(struct tenant_limits){.weight = 1 + pick(400)});
        if (pick(100) == 0) {
            if (pick(2))
                client_drain(client);
            session_destroy(client->session);
            tenant_renew();
            client_start(client);
        }
    }
    for (int i = 0; i < SESSIONS; i++) {
        client_drain(&clients[i]);
        session_destroy(clients[i].session);
    }
    tenant_destroy(tenant);
    engine_destroy(engine);
    expect(device.memory_reserved == 0, "memory is left");
    puts("1 passed, 0 failed");
    return 0;
}
