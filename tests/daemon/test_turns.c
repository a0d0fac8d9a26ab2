/* The worker's loop works in turns: what one client sends at once does not hold up the others. */
#include <criterion/criterion.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "tests/daemon/daemon.h"
#include "tests/daemon/wire.h"

static struct daemon tensord;

static void start(void) {
    daemon_start(&tensord, NULL);
}

static void stop(void) {
    daemon_stop(&tensord);
}

TestSuite(turns, .init = start, .fini = stop, .timeout = 120);

enum { MANY = 20000 };

/* `count` tensors of one element, each with its id for a value, in one frame. */
static void send_fulls(struct wire *wire, uint64_t first, size_t count) {
    Tensord__Batch batch = TENSORD__BATCH__INIT;
    uint64_t *heads = malloc(count * sizeof *heads);
    int64_t *ints = malloc(3 * count * sizeof *ints);
    double *floats = malloc(count * sizeof *floats);
    for (size_t i = 0; i < count; i++) {
        heads[i] = batch_head(OP_FULL, 0, 3, 1, 0, 0);
        ints[3 * i] = DTYPE_F32;
        ints[3 * i + 1] = 0;
        ints[3 * i + 2] = 1;
        floats[i] = (double)(first + i);
    }
    batch.first_output = batch.first_sequence = first;
    batch.n_heads = batch.n_floats = count;
    batch.n_ints = 3 * count;
    batch.heads = heads;
    batch.ints = ints;
    batch.floats = floats;
    cr_assert(wire_send(wire, FRAME_BATCH, &batch, NULL, 0));
    free(heads), free(ints), free(floats);
}

static bool has_something(const struct wire *wire) {
    struct pollfd readable = {.fd = wire->fd, .events = POLLIN};
    return poll(&readable, 1, 0) > 0;
}

/* Round trips of one client while the answer to another one's question is due. */
static unsigned trips_until_answered(struct wire *other, struct wire *busy) {
    unsigned trips = 0;
    for (; !has_something(busy); trips++)
        cr_assert(wire_ping(other));
    return trips;
}

static void expect_done(struct wire *wire) {
    struct wire_frame frame;
    cr_assert_eq(wire_receive(wire, &frame, WIRE_TIMEOUT_MS), WIRE_FRAME);
    cr_assert_eq(frame.header.type, FRAME_DONE, "%s", frame_type_name(frame.header.type));
    wire_frame_finish(&frame);
}

/* As many operations that fail as a frame takes: each frees a tensor that is not there. */
static void send_failures(struct wire *wire, uint64_t first) {
    enum { FAILURES = 65000 };
    static uint64_t heads[FAILURES], inputs[FAILURES];
    Tensord__Batch batch = TENSORD__BATCH__INIT;
    for (size_t i = 0; i < FAILURES; i++) {
        heads[i] = batch_head(OP_FREE, 1, 0, 0, 0, 0);
        inputs[i] = 1;
    }
    batch.first_output = 1;
    batch.first_sequence = 1 + first * FAILURES;
    batch.n_heads = batch.n_inputs = FAILURES;
    batch.heads = heads;
    batch.inputs = inputs;
    cr_assert(wire_send(wire, FRAME_BATCH, &batch, NULL, 0));
}

Test(turns, batches_of_many_operations_leave_turns_to_others) {
    enum { FRAMES = 2 };
    const Tensord__Sync sync = TENSORD__SYNC__INIT;
    struct wire busy, other;
    wire_open(&busy, tensord.url, DAEMON_TARGET_CPU0);
    wire_open(&other, tensord.url, DAEMON_TARGET_CPU0);
    for (uint64_t i = 0; i < FRAMES; i++)
        send_failures(&busy, i);
    cr_assert(wire_request(&busy, FRAME_SYNC, &sync));
    /* The socket holds a part of a frame, so that most of the last one is still to be done by now: some hundred slices. Done
     * in one turn, it would leave one trip or two. */
    unsigned trips = trips_until_answered(&other, &busy);
    cr_assert_gt(trips, 4, "%u round trips", trips);
    expect_done(&busy);
    wire_close(&busy);
    wire_close(&other);
}

Test(turns, frames_behind_a_batch_wait_for_its_end) {
    struct wire wire;
    float got = 0;
    wire_open(&wire, tensord.url, DAEMON_TARGET_CPU0);
    send_fulls(&wire, 1, MANY);
    cr_assert(wire_op(
        &wire,
        &(struct wire_op){.opcode = OP_ADD, .output = MANY + 1, .sequence = MANY + 1, WIRE_INPUTS(MANY - 1, MANY)}));
    cr_assert_eq(wire_fetch(&wire, MANY + 1, &got, sizeof got, NULL), STATUS_OK);
    cr_assert_eq(got, 2 * MANY - 1);
    for (uint64_t id = 1; id <= MANY; id += MANY / 16) {
        cr_assert_eq(wire_fetch(&wire, id, &got, sizeof got, NULL), STATUS_OK);
        cr_assert_eq(got, (float)id, "tensor %lu is %f", (unsigned long)id, (double)got);
    }
    wire_close(&wire);
}

Test(turns, message_of_very_many_fields_breaks_the_protocol) {
    enum { FIELDS = 200000 };
    Tensord__Batch batch = TENSORD__BATCH__INIT;
    struct wire wire;
    char message[256], **labels = malloc(FIELDS * sizeof *labels);
    wire_open(&wire, tensord.url, DAEMON_TARGET_CPU0);
    for (int i = 0; i < FIELDS; i++)
        labels[i] = "";
    batch.first_output = batch.first_sequence = 1;
    batch.n_labels = FIELDS;
    batch.labels = labels;
    cr_assert(wire_send(&wire, FRAME_BATCH, &batch, NULL, 0));
    cr_assert_eq(wire_until_closed(&wire, WIRE_TIMEOUT_MS, message), STATUS_PROTOCOL);
    cr_assert_not_null(strstr(message, "fields in one message"), "%s", message);
    wire_close(&wire);
    free(labels);
}

/* Sessions that are closed with all they have, beside one that goes on. */
Test(turns, sessions_that_end_give_back_all_they_had) {
    struct wire other, gone[3];
    float got = 0;
    wire_open(&other, tensord.url, DAEMON_TARGET_CPU0);
    for (int i = 0; i < 3; i++) {
        wire_open(&gone[i], tensord.url, DAEMON_TARGET_CPU0);
        send_fulls(&gone[i], 1, MANY);
        cr_assert_eq(wire_fetch(&gone[i], MANY, &got, sizeof got, NULL), STATUS_OK);
    }
    for (int i = 0; i < 3; i++)
        wire_close(&gone[i]);
    for (int i = 0; i < 20; i++)
        cr_assert(wire_ping(&other));
    wire_close(&other);
    daemon_stop(&tensord); /* without a leak, under a sanitizer */
}
