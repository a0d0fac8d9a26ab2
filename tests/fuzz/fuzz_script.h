/* Turns a fuzzer's input into a client's stream, so that mutations reach what lies behind headers and protobuf. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum script_mode {
    SCRIPT_RAW,        /* the input is the stream */
    SCRIPT_FRAMES,     /* Hello, then records: type u8, message length u16, payload length u16, both parts */
    SCRIPT_OPERATIONS, /* Hello, two tensors, one batch of operations, a fetch of each result */
    SCRIPT_MODES,
};

struct script_stream {
    uint8_t *bytes;
    size_t n, capacity;
};

/* `mode` is taken modulo SCRIPT_MODES. */
void script_stream(struct script_stream *stream, uint8_t mode, const uint8_t *data, size_t size);
void script_stream_finish(struct script_stream *stream);
