#include "tests/fuzz/fuzz_script.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/wire/batch.h"
#include "proto/wire/frame.h"
#include "proto/wire/tensord.pb-c.h"

enum { OPERATIONS_MAX = 64, COLUMN_MAX = 1024, FIRST_ID = 3 };

/* What is left of the input; reads past its end give 0. */
struct input {
    const uint8_t *data;
    size_t size;
};

static uint8_t input_byte(struct input *input) {
    if (!input->size)
        return 0;
    input->size--;
    return *input->data++;
}

static size_t input_length(struct input *input) {
    size_t low = input_byte(input);
    return low | (size_t)input_byte(input) << 8;
}

static const uint8_t *input_bytes(struct input *input, size_t *n) {
    const uint8_t *bytes = input->data;
    if (*n > input->size)
        *n = input->size;
    input->data += *n;
    input->size -= *n;
    return bytes;
}

static void stream_add(struct script_stream *stream, const void *bytes, size_t n) {
    if (stream->n + n > stream->capacity) {
        stream->capacity = (stream->n + n) * 2;
        stream->bytes = realloc(stream->bytes, stream->capacity);
        if (!stream->bytes)
            abort();
    }
    if (n)
        memcpy(stream->bytes + stream->n, bytes, n);
    stream->n += n;
}

static void stream_header(struct script_stream *stream, unsigned type, size_t message, size_t payload) {
    struct frame_header header = {
        .type = (uint16_t)type, .message_bytes = (uint32_t)message, .payload_bytes = payload, .sequence = stream->n};
    uint8_t encoded[FRAME_HEADER_BYTES];
    frame_header_encode(&header, encoded);
    stream_add(stream, encoded, sizeof encoded);
}

static void stream_message(struct script_stream *stream, unsigned type, const void *message) {
    size_t bytes = protobuf_c_message_get_packed_size(message);
    uint8_t *packed = malloc(bytes + 1);
    if (!packed)
        abort();
    protobuf_c_message_pack(message, packed);
    stream_header(stream, type, bytes, 0);
    stream_add(stream, packed, bytes);
    free(packed);
}

static void stream_hello(struct script_stream *stream) {
    Tensord__Hello hello = TENSORD__HELLO__INIT;
    hello.version_min = PROTOCOL_VERSION_MIN;
    hello.version_max = PROTOCOL_VERSION_MAX;
    hello.client = "fuzz";
    stream_message(stream, FRAME_HELLO, &hello);
}

static void stream_frames(struct script_stream *stream, struct input *input) {
    stream_hello(stream);
    while (input->size) {
        unsigned type = input_byte(input);
        size_t message = input_length(input), payload = input_length(input);
        const uint8_t *message_bytes = input_bytes(input, &message);
        const uint8_t *payload_bytes = input_bytes(input, &payload);
        stream_header(stream, type, message, payload);
        stream_add(stream, message_bytes, message);
        stream_add(stream, payload_bytes, payload);
    }
}

/* ---- operations ---- */

struct columns {
    uint64_t heads[OPERATIONS_MAX], inputs[COLUMN_MAX];
    int64_t ints[COLUMN_MAX];
    double floats[COLUMN_MAX];
    size_t n_heads, n_inputs, n_ints, n_floats;
};

/* Mostly small numbers, which make shapes and axes; some that are at the edges of what can be counted. */
static int64_t script_int(uint8_t byte) {
    static const int64_t EDGES[] = {INT64_MIN,
                                    INT64_MIN + 1,
                                    INT64_MAX,
                                    INT64_MAX - 1,
                                    INT64_C(1) << 32,
                                    INT64_C(1) << 62,
                                    UINT32_MAX,
                                    INT32_MIN,
                                    INT64_C(1) << 31,
                                    255,
                                    256,
                                    1000,
                                    4096,
                                    65536,
                                    INT64_C(1) << 40,
                                    -(INT64_C(1) << 40)};
    if (byte >= 0xf0)
        return EDGES[byte & 15];
    return byte < 0xc0 ? byte : (int64_t)byte - 0xf0;
}

static double script_float(uint8_t byte) {
    static const double EDGES[] = {INFINITY, -INFINITY, NAN, 1e308, -1e308, 1e-308, 5e-324, -0.0};
    return byte >= 0xf8 ? EDGES[byte & 7] : (double)(byte - 64) / 4;
}

/* The number on the wire, so that an operation which is added later does not change what a script means. */
static unsigned script_opcode(struct input *input) {
    unsigned low = input_byte(input);
    return low | (unsigned)input_byte(input) << 8;
}

static void columns_add(struct columns *columns, struct input *input) {
    unsigned opcode = script_opcode(input), counts = input_byte(input), more = input_byte(input);
    unsigned n_inputs = counts & 3, n_ints = counts >> 2 & 15, n_floats = counts >> 6;
    columns->heads[columns->n_heads++] =
        batch_head(opcode, n_inputs, n_ints, n_floats, 0, more & 15) | batch_head_outputs(1 + (more >> 6));
    for (unsigned i = 0; i < n_inputs; i++)
        columns->inputs[columns->n_inputs++] = input_byte(input);
    for (unsigned i = 0; i < n_ints; i++)
        columns->ints[columns->n_ints++] = script_int(input_byte(input));
    for (unsigned i = 0; i < n_floats; i++)
        columns->floats[columns->n_floats++] = script_float(input_byte(input));
}

static void stream_batch(struct script_stream *stream, struct columns *columns, uint64_t first) {
    Tensord__Batch batch = TENSORD__BATCH__INIT;
    batch.first_output = batch.first_sequence = first;
    batch.n_heads = columns->n_heads;
    batch.heads = columns->heads;
    batch.n_inputs = columns->n_inputs;
    batch.inputs = columns->inputs;
    batch.n_ints = columns->n_ints;
    batch.ints = columns->ints;
    batch.n_floats = columns->n_floats;
    batch.floats = columns->floats;
    stream_message(stream, FRAME_BATCH, &batch);
}

/* 1: f32 [2, 3] of 1.5; 2: i64 [3] of 1. */
static void stream_tensors(struct script_stream *stream) {
    struct columns columns = {
        .heads = {batch_head(OP_FULL, 0, 4, 1, 0, 0), batch_head(OP_FULL, 0, 3, 1, 0, 0)},
        .ints = {DTYPE_F32, 1, 2, 3, DTYPE_I64, 1, 3},
        .floats = {1.5, 1},
        .n_heads = 2,
        .n_ints = 7,
        .n_floats = 2,
    };
    stream_batch(stream, &columns, 1);
}

static void stream_operations(struct script_stream *stream, struct input *input) {
    struct columns columns = {.n_heads = 0};
    stream_hello(stream);
    stream_tensors(stream);
    while (input->size && columns.n_heads < OPERATIONS_MAX)
        columns_add(&columns, input);
    stream_batch(stream, &columns, FIRST_ID);
    for (size_t i = 0; i < FIRST_ID + columns.n_heads; i++) {
        Tensord__Fetch fetch = TENSORD__FETCH__INIT;
        fetch.id = i;
        stream_message(stream, FRAME_FETCH, &fetch);
    }
}

void script_stream(struct script_stream *stream, uint8_t mode, const uint8_t *data, size_t size) {
    struct input input = {data, size};
    switch (mode % SCRIPT_MODES) {
    case SCRIPT_RAW:
        stream_add(stream, data, size);
        break;
    case SCRIPT_FRAMES:
        stream_frames(stream, &input);
        break;
    default:
        stream_operations(stream, &input);
        break;
    }
}

void script_stream_finish(struct script_stream *stream) {
    free(stream->bytes);
    *stream = (struct script_stream){0};
}
