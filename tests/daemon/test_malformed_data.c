/* Uploads, their chunks, fetches, and copies between devices, in every wrong way. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/daemon/hostile.h"

TestSuite(malformed_data, .timeout = 240);

enum { KEPT = HOSTILE_KEPT, SPARE = HOSTILE_SPARE, NEXT = HOSTILE_NEXT };

static const float DATA[64] = {1, 2, 3, 4, 5, 6, 7, 8};

struct upload {
    uint64_t id, sequence;
    uint32_t dtype, stream;
    size_t rank;
    int64_t shape[9];
    size_t bytes; /* of payload in the first frame */
    char *label;
};

static void upload(struct wire *wire, const struct upload *upload) {
    Tensord__Upload message = TENSORD__UPLOAD__INIT;
    message.id = upload->id;
    message.dtype = upload->dtype;
    message.n_shape = upload->rank;
    message.shape = (int64_t *)upload->shape;
    message.stream = upload->stream;
    message.sequence = upload->sequence ? upload->sequence : NEXT;
    if (upload->label)
        message.label = upload->label;
    wire_send(wire, FRAME_UPLOAD, &message, DATA, upload->bytes);
}

static void chunk(struct wire *wire, uint64_t id, uint64_t offset, size_t bytes) {
    Tensord__UploadChunk message = TENSORD__UPLOAD_CHUNK__INIT;
    message.id = id;
    message.offset = offset;
    wire_send(wire, FRAME_UPLOAD_CHUNK, &message, DATA, bytes);
}

#define UPLOAD(name, ...)                                                                                              \
    static void name(struct wire *wire) {                                                                              \
        upload(wire, &(struct upload){__VA_ARGS__});                                                                   \
    }
/* id, sequence, dtype, stream, rank, shape, payload */
UPLOAD(id_zero, 0, NEXT, DTYPE_F32, 0, 1, {4}, 16)
UPLOAD(id_used_before, KEPT, NEXT, DTYPE_F32, 0, 1, {4}, 16)
UPLOAD(dtype_zero, NEXT, NEXT, 0, 0, 1, {4}, 16)
UPLOAD(dtype_unknown, NEXT, NEXT, 99, 0, 1, {4}, 16)
UPLOAD(dtype_of_all_ones, NEXT, NEXT, UINT32_MAX, 0, 1, {4}, 16)
UPLOAD(negative_extent, NEXT, NEXT, DTYPE_F32, 0, 1, {-4}, 16)
UPLOAD(overflowing_product, NEXT, NEXT, DTYPE_F32, 0, 2, {INT64_C(1) << 32, INT64_C(1) << 32}, 16)
UPLOAD(overflowing_extent, NEXT, NEXT, DTYPE_F64, 0, 1, {INT64_MAX}, 16)
UPLOAD(rank_nine, NEXT, NEXT, DTYPE_F32, 0, 9, {1, 1, 1, 1, 1, 1, 1, 1, 1}, 4)
UPLOAD(stream_not_open, NEXT, NEXT, DTYPE_F32, 7, 1, {4}, 16)
UPLOAD(more_payload_than_tensor, NEXT, NEXT, DTYPE_F32, 0, 1, {4}, 20)
UPLOAD(payload_for_an_empty_tensor, NEXT, NEXT, DTYPE_F32, 0, 1, {0}, 4)
UPLOAD(first_part_alone, NEXT, NEXT, DTYPE_F32, 0, 1, {8}, 16)
UPLOAD(no_payload_yet, NEXT, NEXT, DTYPE_F32, 0, 1, {8}, 0)
UPLOAD(one_gibibyte_announced, NEXT, NEXT, DTYPE_F32, 0, 1, {1 << 28}, 16)
UPLOAD(more_than_the_device_has, NEXT, NEXT, DTYPE_F32, 0, 1, {INT64_C(1) << 45}, 16)
UPLOAD(sequence_from_the_past, NEXT, 1, DTYPE_F32, 0, 1, {4}, 16)

static void rank_of_a_hundred_thousand(struct wire *wire) {
    Tensord__Upload message = TENSORD__UPLOAD__INIT;
    int64_t *shape = malloc(100000 * sizeof *shape);
    for (int i = 0; i < 100000; i++)
        shape[i] = 1;
    message.id = message.sequence = NEXT;
    message.dtype = DTYPE_F32;
    message.n_shape = 100000;
    message.shape = shape;
    wire_send(wire, FRAME_UPLOAD, &message, DATA, 4);
    free(shape);
}
/* A shape that says it has 10^9 entries, which are not there. */
static void rank_of_a_billion(struct wire *wire) {
    static const uint8_t message[] = {0x09,      NEXT, 0,    0,    0,    0,    0, 0, 0, 0x10,
                                      DTYPE_F32, 0x1a, 0x80, 0x94, 0xeb, 0xdc, 3, 2, 2};
    wire_header(wire,
                &(struct frame_header){.type = FRAME_UPLOAD, .message_bytes = sizeof message, .payload_bytes = 4});
    wire_write(wire, message, sizeof message);
    wire_write(wire, DATA, 4);
}
static void label_too_long(struct wire *wire) {
    char label[5000];
    memset(label, 'x', sizeof label);
    label[sizeof label - 1] = 0;
    upload(wire, &(struct upload){NEXT, NEXT, DTYPE_F32, 0, 1, {4}, 16, label});
}
static void chunk_after_a_gap(struct wire *wire) {
    first_part_alone(wire);
    chunk(wire, NEXT, 20, 12);
}
static void chunk_that_overlaps(struct wire *wire) {
    first_part_alone(wire);
    chunk(wire, NEXT, 8, 16);
}
static void chunk_that_overruns(struct wire *wire) {
    first_part_alone(wire);
    chunk(wire, NEXT, 16, 20);
}
static void chunk_at_the_largest_offset(struct wire *wire) {
    first_part_alone(wire);
    chunk(wire, NEXT, UINT64_MAX - 3, 16);
}
static void chunk_for_an_unknown_id(struct wire *wire) {
    chunk(wire, 999, 0, 16);
}
static void chunk_for_id_zero(struct wire *wire) {
    chunk(wire, 0, 0, 16);
}
static void chunk_for_a_complete_tensor(struct wire *wire) {
    chunk(wire, KEPT, 0, 16);
}
static void chunk_after_the_last(struct wire *wire) {
    first_part_alone(wire);
    chunk(wire, NEXT, 16, 16);
    chunk(wire, NEXT, 32, 16);
}
static void chunk_without_payload(struct wire *wire) {
    first_part_alone(wire);
    chunk(wire, NEXT, 16, 0);
}
/* A client that sends ahead cannot know yet that the upload has failed: the rest must be swallowed. */
static void chunks_of_a_failed_upload(struct wire *wire) {
    more_than_the_device_has(wire);
    chunk(wire, NEXT, 16, 16);
    chunk(wire, NEXT, 32, 16);
}
static void chunks_of_an_upload_with_a_bad_dtype(struct wire *wire) {
    dtype_unknown(wire);
    chunk(wire, NEXT, 16, 16);
}
static void use_before_the_last_chunk(struct wire *wire) {
    first_part_alone(wire);
    wire_op(wire,
            &(struct wire_op){.opcode = OP_ADD, .output = NEXT + 1, .sequence = NEXT + 1, WIRE_INPUTS(NEXT, NEXT)});
    chunk(wire, NEXT, 16, 16);
}
static void free_before_the_last_chunk(struct wire *wire) {
    first_part_alone(wire);
    wire_op(wire, &(struct wire_op){.opcode = OP_FREE, .output = NEXT + 1, .sequence = NEXT + 1, WIRE_INPUTS(NEXT)});
    chunk(wire, NEXT, 16, 16);
}
static void fetch_before_the_last_chunk(struct wire *wire) {
    float got[8];
    first_part_alone(wire);
    int code = wire_fetch(wire, NEXT, got, sizeof got, NULL);
    cr_assert(code != STATUS_OK && code != STATUS_TIMED_OUT && code != STATUS_CONNECTION, "%d", code);
    chunk(wire, NEXT, 16, 16);
    cr_assert_eq(wire_fetch(wire, NEXT, got, sizeof got, NULL), STATUS_OK);
    cr_assert_arr_eq(got + 4, DATA, 16);
}
static void two_uploads_at_once(struct wire *wire) {
    float got[8];
    first_part_alone(wire);
    upload(wire, &(struct upload){NEXT + 1, NEXT + 1, DTYPE_F32, 0, 1, {8}, 8, NULL});
    chunk(wire, NEXT, 16, 16);
    chunk(wire, NEXT + 1, 8, 24);
    cr_assert_eq(wire_fetch(wire, NEXT, got, sizeof got, NULL), STATUS_OK);
    cr_assert_arr_eq(got + 4, DATA, 16);
    cr_assert_eq(wire_fetch(wire, NEXT + 1, got, sizeof got, NULL), STATUS_OK);
    cr_assert_arr_eq(got + 2, DATA, 24);
}
static void ten_thousand_unfinished_uploads(struct wire *wire) {
    for (uint64_t i = 0; i < 10000; i++)
        upload(wire, &(struct upload){NEXT + i, NEXT + i, DTYPE_F32, 0, 1, {8}, 16, NULL});
}
static void upload_cut_off_in_its_payload(struct wire *wire) {
    Tensord__Upload message = TENSORD__UPLOAD__INIT;
    int64_t shape = 1 << 20;
    struct wire_buffer buffer = {0};
    message.id = message.sequence = NEXT;
    message.dtype = DTYPE_U8;
    message.n_shape = 1;
    message.shape = &shape;
    uint8_t *data = calloc(1 << 20, 1);
    wire_buffer_frame(&buffer, FRAME_UPLOAD, 0, &message, data, 1 << 20);
    wire_write(wire, buffer.bytes, buffer.n - 1000);
    wire_close(wire);
    free(data);
    wire_buffer_finish(&buffer);
    /* What the daemon makes of it shows in the witness's claims alone. */
}

/* ---- copies between devices ---- */

static uint8_t ticket[16] = "a ticket, really";

static void copy_out(struct wire *wire, uint64_t id, char *device, size_t ticket_bytes) {
    Tensord__CopyOut message = TENSORD__COPY_OUT__INIT;
    message.id = id;
    message.device = device;
    message.ticket = (ProtobufCBinaryData){ticket_bytes, ticket};
    wire_send(wire, FRAME_COPY_OUT, &message, NULL, 0);
}
static void copy_in(struct wire *wire, uint64_t id, uint32_t dtype, int64_t extent, size_t ticket_bytes) {
    Tensord__CopyIn message = TENSORD__COPY_IN__INIT;
    message.id = id;
    message.sequence = id;
    message.dtype = dtype;
    message.n_shape = 1;
    message.shape = &extent;
    message.ticket = (ProtobufCBinaryData){ticket_bytes, ticket};
    wire_send(wire, FRAME_COPY_IN, &message, NULL, 0);
}
static void copy_of_an_unknown_tensor(struct wire *wire) {
    copy_out(wire, 999, "cpu:1", 16);
}
static void copy_to_an_unknown_device(struct wire *wire) {
    copy_out(wire, KEPT, "cuda:9", 16);
}
static void copy_to_no_device(struct wire *wire) {
    copy_out(wire, KEPT, "", 16);
}
static void copy_to_a_long_device_name(struct wire *wire) {
    char name[4000];
    memset(name, 'd', sizeof name);
    name[sizeof name - 1] = 0;
    copy_out(wire, KEPT, name, 16);
}
static void copy_that_nobody_takes(struct wire *wire) {
    copy_out(wire, KEPT, "cpu:1", 16);
}
static void copy_with_one_ticket_twice(struct wire *wire) {
    copy_out(wire, KEPT, "cpu:1", 16);
    copy_out(wire, KEPT, "cpu:1", 16);
}
static void copy_with_a_short_ticket(struct wire *wire) {
    copy_out(wire, KEPT, "cpu:1", 3);
}
static void copy_without_ticket(struct wire *wire) {
    copy_out(wire, KEPT, "cpu:1", 0);
}
static void arrival_with_a_short_ticket(struct wire *wire) {
    copy_in(wire, NEXT, DTYPE_F32, 4, 15);
}
static void arrival_that_nobody_sends(struct wire *wire) {
    copy_in(wire, NEXT, DTYPE_F32, 4, 16);
}
static void two_arrivals_with_one_ticket(struct wire *wire) {
    copy_in(wire, NEXT, DTYPE_F32, 4, 16);
    copy_in(wire, NEXT + 1, DTYPE_F32, 4, 16);
}
static void arrival_with_a_bad_dtype(struct wire *wire) {
    copy_in(wire, NEXT, 77, 4, 16);
}
static void arrival_with_a_negative_extent(struct wire *wire) {
    copy_in(wire, NEXT, DTYPE_F32, -4, 16);
}
static void arrival_larger_than_the_device(struct wire *wire) {
    copy_in(wire, NEXT, DTYPE_F32, INT64_C(1) << 45, 16);
}
static void arrival_under_a_used_id(struct wire *wire) {
    copy_in(wire, KEPT, DTYPE_F32, 4, 16);
}
/* The sender has 4 floats, the receiver expects 1000. */
static void arrival_of_another_size(struct wire *wire) {
    copy_out(wire, KEPT, "cpu:0", 16);
    copy_in(wire, NEXT, DTYPE_F32, 1000, 16);
}

#define ROW(act, outcome, code, id)                                                                                    \
    { #act, HOSTILE_SESSION, act, HOSTILE_##outcome, code, id, NULL }
static const struct hostile_row rows[] = {
    ROW(id_zero, EITHER, 0, 0),
    ROW(id_used_before, EITHER, 0, 0),
    ROW(dtype_zero, FAILS, 0, NEXT),
    ROW(dtype_unknown, FAILS, 0, NEXT),
    ROW(dtype_of_all_ones, FAILS, 0, NEXT),
    ROW(negative_extent, FAILS, 0, NEXT),
    ROW(overflowing_product, FAILS, 0, NEXT),
    ROW(overflowing_extent, FAILS, 0, NEXT),
    ROW(rank_nine, FAILS, 0, NEXT),
    ROW(rank_of_a_hundred_thousand, EITHER, 0, 0),
    ROW(rank_of_a_billion, CLOSES, STATUS_PROTOCOL, 0),
    ROW(stream_not_open, FAILS, 0, NEXT),
    ROW(more_payload_than_tensor, CLOSES, STATUS_PROTOCOL, 0),
    ROW(payload_for_an_empty_tensor, CLOSES, STATUS_PROTOCOL, 0),
    ROW(first_part_alone, LIVES, 0, 0),
    ROW(no_payload_yet, LIVES, 0, 0),
    ROW(one_gibibyte_announced, LIVES, 0, 0),
    ROW(more_than_the_device_has, FAILS, STATUS_OUT_OF_MEMORY, NEXT),
    ROW(sequence_from_the_past, EITHER, 0, 0),
    ROW(label_too_long, EITHER, 0, 0),
    ROW(chunk_after_a_gap, CLOSES, STATUS_PROTOCOL, 0),
    ROW(chunk_that_overlaps, CLOSES, STATUS_PROTOCOL, 0),
    ROW(chunk_that_overruns, CLOSES, STATUS_PROTOCOL, 0),
    ROW(chunk_at_the_largest_offset, CLOSES, STATUS_PROTOCOL, 0),
    ROW(chunk_for_an_unknown_id, CLOSES, STATUS_PROTOCOL, 0),
    ROW(chunk_for_id_zero, CLOSES, STATUS_PROTOCOL, 0),
    ROW(chunk_for_a_complete_tensor, CLOSES, STATUS_PROTOCOL, 0),
    ROW(chunk_after_the_last, CLOSES, STATUS_PROTOCOL, 0),
    ROW(chunk_without_payload, EITHER, 0, 0),
    ROW(chunks_of_a_failed_upload, FAILS, STATUS_OUT_OF_MEMORY, NEXT),
    ROW(chunks_of_an_upload_with_a_bad_dtype, EITHER, 0, 0),
    ROW(use_before_the_last_chunk, FAILS, 0, NEXT + 1),
    ROW(free_before_the_last_chunk, LIVES, 0, 0),
    ROW(fetch_before_the_last_chunk, LIVES, 0, 0),
    ROW(two_uploads_at_once, LIVES, 0, 0),
    ROW(ten_thousand_unfinished_uploads, EITHER, 0, 0),
    ROW(copy_of_an_unknown_tensor, EITHER, 0, 0),
    ROW(copy_to_an_unknown_device, EITHER, 0, 0),
    ROW(copy_to_no_device, EITHER, 0, 0),
    ROW(copy_to_a_long_device_name, EITHER, 0, 0),
    ROW(copy_that_nobody_takes, EITHER, 0, 0),
    ROW(copy_with_one_ticket_twice, EITHER, 0, 0),
    ROW(copy_with_a_short_ticket, EITHER, 0, 0),
    ROW(copy_without_ticket, EITHER, 0, 0),
    ROW(arrival_with_a_short_ticket, EITHER, 0, 0),
    ROW(arrival_that_nobody_sends, LIVES, 0, 0),
    ROW(two_arrivals_with_one_ticket, EITHER, 0, 0),
    ROW(arrival_with_a_bad_dtype, EITHER, 0, 0),
    ROW(arrival_with_a_negative_extent, EITHER, 0, 0),
    ROW(arrival_larger_than_the_device, EITHER, 0, 0),
    ROW(arrival_under_a_used_id, EITHER, 0, 0),
    ROW(arrival_of_another_size, FAILS, 0, NEXT),
    ROW(upload_cut_off_in_its_payload, CLOSES, 0, 0),
};

Test(malformed_data, every_row) {
    hostile_run(rows, sizeof rows / sizeof *rows, NULL);
}
