/* One good job as recorded bytes: cut off at every byte, changed at every byte, and sent one byte at a time. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "tests/daemon/daemon.h"
#include "tests/daemon/hostile.h"

enum { SYNC_SEQUENCE = 3, FETCH_SEQUENCE = 4 };

static struct daemon tensord;
static struct hostile_witness witness;
static struct wire_buffer job;

static void record_uploads(void) {
    static const float data[4] = {1, 2, 3, 4};
    int64_t shape[2] = {2, 2};
    Tensord__Upload upload = TENSORD__UPLOAD__INIT;
    upload.id = upload.sequence = 1;
    upload.dtype = DTYPE_F32;
    upload.n_shape = 2;
    upload.shape = shape;
    upload.label = "x";
    Tensord__UploadChunk chunk = TENSORD__UPLOAD_CHUNK__INIT;
    chunk.id = 1;
    chunk.offset = 8;
    wire_buffer_frame(&job, FRAME_UPLOAD, 0, &upload, data, 8);
    wire_buffer_frame(&job, FRAME_UPLOAD_CHUNK, 0, &chunk, data + 2, 8);
}

/* Hello, an upload in two parts, a stream, four operations, Sync, Fetch of the result: (x + 1) @ x. */
static void record(void) {
    uint8_t preamble[PREAMBLE_BYTES];
    preamble_encode(PREAMBLE_TARGET_DEFAULT, preamble);
    wire_buffer_add(&job, preamble, sizeof preamble);
    Tensord__Hello hello = TENSORD__HELLO__INIT;
    hello.version_min = hello.version_max = PROTOCOL_VERSION_MAX;
    hello.client = "recorded";
    wire_buffer_frame(&job, FRAME_HELLO, 1, &hello, NULL, 0);
    record_uploads();
    Tensord__StreamOpen open = TENSORD__STREAM_OPEN__INIT;
    open.stream = 1;
    wire_buffer_frame(&job, FRAME_STREAM_OPEN, 0, &open, NULL, 0);
    wire_buffer_op(
        &job,
        &(struct wire_op){
            .opcode = OP_FULL, .output = 2, .sequence = 2, .label = "one", WIRE_INTS(DTYPE_F32, 1, 2), WIRE_FLOATS(1)});
    wire_buffer_op(&job,
                   &(struct wire_op){.opcode = OP_ADD, .output = 3, .sequence = 3, .stream = 1, WIRE_INPUTS(1, 2)});
    wire_buffer_op(&job, &(struct wire_op){.opcode = OP_MATMUL, .output = 4, .sequence = 4, WIRE_INPUTS(3, 1)});
    wire_buffer_op(&job, &(struct wire_op){.opcode = OP_FREE, .output = 5, .sequence = 5, WIRE_INPUTS(1, 2, 3)});
    Tensord__Sync sync = TENSORD__SYNC__INIT;
    wire_buffer_frame(&job, FRAME_SYNC, SYNC_SEQUENCE, &sync, NULL, 0);
    Tensord__Fetch fetch = TENSORD__FETCH__INIT;
    fetch.id = 4;
    wire_buffer_frame(&job, FRAME_FETCH, FETCH_SEQUENCE, &fetch, NULL, 0);
}

static void start(void) {
    record();
    /* A changed byte may make a small tensor one of gigabytes, and filling that would outlast the test. */
    daemon_start(&tensord, &(struct daemon_options){.flags = (const char *const[]){"--session-bytes", "16M", NULL}});
    hostile_witness_start(&witness, tensord.url);
}

static void stop(void) {
    wire_buffer_finish(&job);
    daemon_stop(&tensord);
}

TestSuite(truncated, .init = start, .fini = stop, .timeout = 120);

/* Takes the replies of the whole job and checks the result. The value may be told before the end of all streams is. */
static void take_result(struct wire *wire) {
    static const float expected[4] = {11, 16, 19, 28};
    unsigned welcomes = 0, dones = 0, chunks = 0;
    for (int i = 0; i < 3; i++) {
        struct wire_frame frame;
        cr_assert_eq(wire_receive(wire, &frame, WIRE_TIMEOUT_MS), WIRE_FRAME, "reply %d is missing", i);
        welcomes += frame.header.type == FRAME_WELCOME && i == 0;
        dones += frame.header.type == FRAME_DONE && frame.header.sequence == SYNC_SEQUENCE;
        if (frame.header.type == FRAME_FETCH_CHUNK) {
            chunks++;
            cr_assert_eq(frame.header.sequence, FETCH_SEQUENCE);
            cr_assert_eq(frame.header.payload_bytes, sizeof expected);
            cr_assert_arr_eq(frame.payload, expected, sizeof expected);
        }
        wire_frame_finish(&frame);
    }
    cr_assert(welcomes == 1 && dones == 1 && chunks == 1, "%u Welcomes, %u Dones, %u chunks", welcomes, dones, chunks);
}

Test(truncated, whole_job_gives_its_result) {
    struct wire wire;
    cr_assert(wire_dial(&wire, tensord.url));
    cr_assert(wire_write(&wire, job.bytes, job.n));
    take_result(&wire);
    wire_close(&wire);
    hostile_witness_check(&witness, "whole job");
}

Test(truncated, one_byte_at_a_time_gives_the_same) {
    struct wire wire;
    cr_assert(wire_dial(&wire, tensord.url));
    for (size_t i = 0; i < job.n; i++)
        cr_assert(wire_write(&wire, job.bytes + i, 1));
    take_result(&wire);
    wire_close(&wire);
    hostile_witness_check(&witness, "one byte at a time");
}

Test(truncated, cut_off_at_every_byte) {
    for (size_t n = 0; n < job.n; n++) {
        struct wire wire;
        cr_assert(wire_dial(&wire, tensord.url), "refused before byte %zu", n);
        wire_write(&wire, job.bytes, n);
        wire_close(&wire);
    }
    hostile_witness_check(&witness, "cut off at every byte");
}

Test(truncated, waits_for_the_end_when_cut_off_at_every_byte) {
    for (size_t n = 0; n < job.n; n++) {
        struct wire wire;
        cr_assert(wire_dial(&wire, tensord.url));
        wire_write(&wire, job.bytes, n);
        shutdown(wire.fd, SHUT_WR);
        cr_assert_geq(wire_until_closed(&wire, WIRE_TIMEOUT_MS, NULL), 0, "not closed after %zu bytes", n);
        wire_close(&wire);
    }
    hostile_witness_check(&witness, "ended at every byte");
}

static void changed_at_every_byte(uint8_t mask) {
    for (size_t n = 0; n < job.n; n++) {
        struct wire wire;
        uint8_t was = job.bytes[n];
        job.bytes[n] ^= mask;
        cr_assert(wire_dial(&wire, tensord.url));
        wire_write(&wire, job.bytes, job.n);
        job.bytes[n] = was;
        shutdown(wire.fd, SHUT_WR);
        cr_assert_geq(wire_until_closed(&wire, WIRE_TIMEOUT_MS, NULL), 0, "not closed with byte %zu ^ 0x%02x", n, mask);
        wire_close(&wire);
    }
    hostile_witness_check(&witness, "changed bytes");
}

Test(truncated, lowest_bit_changed_in_every_byte) {
    changed_at_every_byte(0x01);
}

Test(truncated, highest_bit_changed_in_every_byte) {
    changed_at_every_byte(0x80);
}

Test(truncated, every_bit_changed_in_every_byte) {
    changed_at_every_byte(0xff);
}
