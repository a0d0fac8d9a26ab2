/* The protocol by hand: whatever bytes a test wants to send, and the frames that come back. It shares proto/'s encoders
 * and nothing of the client library. One thread at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/wire/batch.h"
#include "proto/wire/frame.h"
#include "proto/wire/tensord.pb-c.h"

enum { WIRE_TIMEOUT_MS = 30000 };

struct wire {
    int fd;
    uint64_t sequence; /* of the last request that wanted a reply */
};

/* A frame that came: one allocation each for message and payload. */
struct wire_frame {
    struct frame_header header;
    uint8_t *message, *payload;
};
void wire_frame_finish(struct wire_frame *frame);

/* ---- connections ---- */

/* A connected socket and nothing sent; false where the daemon does not take it. "unix:…" or "tcp://…". */
bool wire_dial(struct wire *wire, const char *url);
/* The same, and the preamble. Asserts. */
void wire_connect(struct wire *wire, const char *url, uint16_t target);
/* The same, with Hello and Welcome. */
void wire_open(struct wire *wire, const char *url, uint16_t target);
void wire_hello(struct wire *wire);
void wire_close(struct wire *wire);

/* ---- sending ---- */

/* Raw bytes, with a deadline; false when the peer has closed or does not read on. */
bool wire_write(struct wire *wire, const void *bytes, size_t n);
/* As many of them as the socket takes before nothing moves for `idle_ms`. */
size_t wire_write_some(struct wire *wire, const void *bytes, size_t n, int idle_ms);
bool wire_preamble(struct wire *wire, uint16_t target);
/* A frame with these header fields; the message's and payload's lengths are the header's. */
bool wire_header(struct wire *wire, const struct frame_header *header);
/* A whole frame: `message` is one of the generated structs. The sequence is 0. */
bool wire_send(struct wire *wire, unsigned type, const void *message, const void *payload, size_t payload_bytes);
/* The same with the next sequence number, for requests that want a reply. */
bool wire_request(struct wire *wire, unsigned type, const void *message);
/* Appends such a frame to a growing buffer instead: for recorded sessions. */
struct wire_buffer {
    uint8_t *bytes;
    size_t n, capacity;
};
void wire_buffer_add(struct wire_buffer *buffer, const void *bytes, size_t n);
void wire_buffer_frame(struct wire_buffer *buffer, unsigned type, uint64_t sequence, const void *message,
                       const void *payload, size_t payload_bytes);
void wire_buffer_finish(struct wire_buffer *buffer);

/* ---- common requests ---- */

/* One operation in a batch of its own. */
struct wire_op {
    unsigned opcode;
    uint64_t output, sequence;
    uint32_t stream;
    size_t n_inputs, n_ints, n_floats;
    const uint64_t *inputs;
    const int64_t *ints;
    const double *floats;
    const char *label;
    uint16_t consume;
    unsigned n_outputs; /* 0: as the usual one */
};
bool wire_op(struct wire *wire, const struct wire_op *op);
void wire_buffer_op(struct wire_buffer *buffer, const struct wire_op *op);
/* Arrays as designated initialisers: WIRE_INPUTS(1, 2). */
#define WIRE_LIST(type, ...) sizeof((type[]){__VA_ARGS__}) / sizeof(type)
#define WIRE_INPUTS(...)                                                                                               \
    .n_inputs = WIRE_LIST(uint64_t, __VA_ARGS__), .inputs = (const uint64_t[]) {                                       \
        __VA_ARGS__                                                                                                    \
    }
#define WIRE_INTS(...)                                                                                                 \
    .n_ints = WIRE_LIST(int64_t, __VA_ARGS__), .ints = (const int64_t[]) {                                             \
        __VA_ARGS__                                                                                                    \
    }
#define WIRE_FLOATS(...)                                                                                               \
    .n_floats = WIRE_LIST(double, __VA_ARGS__), .floats = (const double[]) {                                           \
        __VA_ARGS__                                                                                                    \
    }
/* An f32 tensor of `n` elements, all of them `value`: an operation `full`. */
bool wire_full(struct wire *wire, uint64_t output, uint64_t sequence, int64_t n, double value);

/* ---- receiving ---- */

enum wire_got { WIRE_FRAME, WIRE_CLOSED, WIRE_SILENT };
/* The next frame; CLOSED at the end of the stream or a reset, SILENT when the deadline passed. */
enum wire_got wire_receive(struct wire *wire, struct wire_frame *frame, int milliseconds);
/* Sends Ping and takes Pong; false when anything else happens. */
bool wire_ping(struct wire *wire);
/* Asks for a tensor and puts its bytes into `data`: the status code, STATUS_CONNECTION when the connection ended
 * instead. The message of a failure goes into `message` (256 bytes, may be NULL). */
int wire_fetch(struct wire *wire, uint64_t id, void *data, size_t bytes, char *message);
/* Waits until the daemon has closed the connection: the code of its Error frame (text into `message`), STATUS_OK when
 * it closed without one, -1 when it did not close. Other frames that come before are dropped. */
int wire_until_closed(struct wire *wire, int milliseconds, char *message);
