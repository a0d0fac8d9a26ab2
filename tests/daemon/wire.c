#include "tests/daemon/wire.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/net/url.h"
#include "tests/daemon/deadline.h"

void wire_frame_finish(struct wire_frame *frame) {
    free(frame->message);
    free(frame->payload);
    *frame = (struct wire_frame){0};
}

/* ---- connections ---- */

bool wire_dial(struct wire *wire, const char *url) {
    struct url parsed;
    struct url_address address;
    struct fault fault;
    size_t count;
    cr_assert(!url_parse(url, &parsed, &fault), "%s: %s", url, fault.message);
    cr_assert(!url_resolve(&parsed, false, &address, 1, &count, &fault) && count, "%s: %s", url, fault.message);
    int fd = socket(address.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(fd >= 0, "socket: %s", strerror(errno));
    *wire = (struct wire){.fd = fd};
    if (connect(fd, (const struct sockaddr *)&address.address, address.length)) {
        wire_close(wire);
        return false;
    }
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return true;
}

void wire_connect(struct wire *wire, const char *url, uint16_t target) {
    cr_assert(wire_dial(wire, url), "cannot connect to %s: %s", url, strerror(errno));
    cr_assert(wire_preamble(wire, target));
}

void wire_hello(struct wire *wire) {
    Tensord__Hello hello = TENSORD__HELLO__INIT;
    hello.version_min = PROTOCOL_VERSION_MIN;
    hello.version_max = PROTOCOL_VERSION_MAX;
    hello.client = "tests 1";
    struct wire_frame frame;
    cr_assert(wire_request(wire, FRAME_HELLO, &hello));
    enum wire_got got = wire_receive(wire, &frame, WIRE_TIMEOUT_MS);
    cr_assert(got == WIRE_FRAME, "no answer to Hello: %s", got == WIRE_CLOSED ? "closed" : "silence");
    cr_assert_eq(frame.header.type, FRAME_WELCOME, "Hello was answered by %s: %.*s", frame_type_name(frame.header.type),
                 (int)frame.header.message_bytes, (const char *)frame.message);
    wire_frame_finish(&frame);
}

void wire_open(struct wire *wire, const char *url, uint16_t target) {
    wire_connect(wire, url, target);
    wire_hello(wire);
}

void wire_close(struct wire *wire) {
    if (wire->fd >= 0)
        close(wire->fd);
    wire->fd = -1;
}

/* ---- sending ---- */

bool wire_write(struct wire *wire, const void *bytes, size_t n) {
    return wire_write_some(wire, bytes, n, WIRE_TIMEOUT_MS) == n;
}

size_t wire_write_some(struct wire *wire, const void *bytes, size_t n, int idle_ms) {
    size_t done = 0;
    while (done < n) {
        ssize_t written = send(wire->fd, (const uint8_t *)bytes + done, n - done, MSG_NOSIGNAL);
        if (written >= 0)
            done += (size_t)written;
        else if (errno != EAGAIN && errno != EINTR)
            break;
        else if (!deadline_poll(wire->fd, POLLOUT, deadline_in(idle_ms)))
            break;
    }
    return done;
}

bool wire_preamble(struct wire *wire, uint16_t target) {
    uint8_t bytes[PREAMBLE_BYTES];
    preamble_encode(target, bytes);
    return wire_write(wire, bytes, sizeof bytes);
}

bool wire_header(struct wire *wire, const struct frame_header *header) {
    uint8_t bytes[FRAME_HEADER_BYTES];
    frame_header_encode(header, bytes);
    return wire_write(wire, bytes, sizeof bytes);
}

void wire_buffer_add(struct wire_buffer *buffer, const void *bytes, size_t n) {
    if (buffer->n + n > buffer->capacity) {
        buffer->capacity = (buffer->n + n) * 2;
        buffer->bytes = realloc(buffer->bytes, buffer->capacity);
        cr_assert_not_null(buffer->bytes);
    }
    if (n)
        memcpy(buffer->bytes + buffer->n, bytes, n);
    buffer->n += n;
}

void wire_buffer_frame(struct wire_buffer *buffer, unsigned type, uint64_t sequence, const void *message,
                       const void *payload, size_t payload_bytes) {
    size_t bytes = protobuf_c_message_get_packed_size(message);
    struct frame_header header = {
        .type = (uint16_t)type, .message_bytes = (uint32_t)bytes, .payload_bytes = payload_bytes, .sequence = sequence};
    uint8_t encoded[FRAME_HEADER_BYTES];
    frame_header_encode(&header, encoded);
    uint8_t *packed = malloc(bytes + 1);
    protobuf_c_message_pack(message, packed);
    wire_buffer_add(buffer, encoded, sizeof encoded);
    wire_buffer_add(buffer, packed, bytes);
    wire_buffer_add(buffer, payload, payload_bytes);
    free(packed);
}

void wire_buffer_finish(struct wire_buffer *buffer) {
    free(buffer->bytes);
    *buffer = (struct wire_buffer){0};
}

static bool wire_send_sequence(struct wire *wire, unsigned type, uint64_t sequence, const void *message,
                               const void *payload, size_t payload_bytes) {
    struct wire_buffer buffer = {0};
    wire_buffer_frame(&buffer, type, sequence, message, payload, payload_bytes);
    bool sent = wire_write(wire, buffer.bytes, buffer.n);
    wire_buffer_finish(&buffer);
    return sent;
}

bool wire_send(struct wire *wire, unsigned type, const void *message, const void *payload, size_t payload_bytes) {
    return wire_send_sequence(wire, type, 0, message, payload, payload_bytes);
}

bool wire_request(struct wire *wire, unsigned type, const void *message) {
    return wire_send_sequence(wire, type, ++wire->sequence, message, NULL, 0);
}

/* ---- common requests ---- */

/* What a batch of one operation points to. */
struct wire_batch {
    uint64_t head, wide[8];
    char *label;
};

/* The columns are only read, so the casts that drop const are harmless. */
static Tensord__Batch batch_of(const struct wire_op *op, struct wire_batch *own) {
    Tensord__Batch batch = TENSORD__BATCH__INIT;
    unsigned n_inputs = (unsigned)op->n_inputs, n_ints = (unsigned)op->n_ints, n_floats = (unsigned)op->n_floats;
    bool wide = n_inputs > BATCH_COUNT_MAX || n_ints > BATCH_COUNT_MAX || n_floats > BATCH_COUNT_MAX ||
                op->n_outputs > BATCH_OUTPUTS_MAX;
    *own = (struct wire_batch){.label = (char *)op->label,
                               .wide = {batch_wide(n_inputs, n_ints, n_floats, op->n_outputs)}};
    own->head = batch_head(op->opcode, n_inputs, n_ints, n_floats,
                           (op->label ? BATCH_FLAG_LABEL : 0) | (wide ? BATCH_FLAG_WIDE : 0), op->consume) |
                batch_head_outputs(op->n_outputs);
    cr_assert_leq(batch_wide_entries(n_inputs), sizeof own->wide / sizeof *own->wide);
    batch.n_wide = wide ? batch_wide_entries(n_inputs) : 0;
    batch.wide = own->wide;
    batch.first_output = op->output;
    batch.first_sequence = op->sequence;
    batch.stream = op->stream;
    batch.n_heads = 1;
    batch.heads = &own->head;
    batch.n_inputs = op->n_inputs;
    batch.inputs = (uint64_t *)op->inputs;
    batch.n_ints = op->n_ints;
    batch.ints = (int64_t *)op->ints;
    batch.n_floats = op->n_floats;
    batch.floats = (double *)op->floats;
    batch.n_labels = op->label ? 1 : 0;
    batch.labels = &own->label;
    return batch;
}

bool wire_op(struct wire *wire, const struct wire_op *op) {
    struct wire_batch own;
    Tensord__Batch batch = batch_of(op, &own);
    return wire_send(wire, FRAME_BATCH, &batch, NULL, 0);
}

void wire_buffer_op(struct wire_buffer *buffer, const struct wire_op *op) {
    struct wire_batch own;
    Tensord__Batch batch = batch_of(op, &own);
    wire_buffer_frame(buffer, FRAME_BATCH, 0, &batch, NULL, 0);
}

bool wire_full(struct wire *wire, uint64_t output, uint64_t sequence, int64_t n, double value) {
    return wire_op(wire, &(struct wire_op){.opcode = OP_FULL,
                                           .output = output,
                                           .sequence = sequence,
                                           WIRE_INTS(DTYPE_F32, (int64_t)value, n),
                                           WIRE_FLOATS(value)});
}

/* ---- receiving ---- */

static enum wire_got wire_read(struct wire *wire, void *bytes, size_t n, int64_t deadline) {
    size_t done = 0;
    while (done < n) {
        ssize_t got = recv(wire->fd, (uint8_t *)bytes + done, n - done, 0);
        if (got > 0)
            done += (size_t)got;
        else if (got == 0 || (errno != EAGAIN && errno != EINTR))
            return WIRE_CLOSED;
        else if (!deadline_poll(wire->fd, POLLIN, deadline))
            return WIRE_SILENT;
    }
    return WIRE_FRAME;
}

enum wire_got wire_receive(struct wire *wire, struct wire_frame *frame, int milliseconds) {
    int64_t deadline = deadline_in(milliseconds);
    uint8_t header[FRAME_HEADER_BYTES];
    struct fault fault;
    *frame = (struct wire_frame){0};
    enum wire_got got = wire_read(wire, header, sizeof header, deadline);
    if (got != WIRE_FRAME)
        return got;
    cr_assert(!frame_header_decode(header, FRAME_MESSAGE_MAX, FRAME_PAYLOAD_MAX, &frame->header, &fault),
              "the daemon sent a bad frame: %s", fault.message);
    frame->message = malloc(frame->header.message_bytes + 1);
    frame->payload = malloc(frame->header.payload_bytes + 1);
    got = wire_read(wire, frame->message, frame->header.message_bytes, deadline);
    if (got == WIRE_FRAME)
        got = wire_read(wire, frame->payload, frame->header.payload_bytes, deadline);
    if (got != WIRE_FRAME)
        wire_frame_finish(frame);
    return got;
}

bool wire_ping(struct wire *wire) {
    Tensord__Ping ping = TENSORD__PING__INIT;
    struct wire_frame frame;
    if (!wire_request(wire, FRAME_PING, &ping) || wire_receive(wire, &frame, WIRE_TIMEOUT_MS) != WIRE_FRAME)
        return false;
    bool answered = frame.header.type == FRAME_PONG && frame.header.sequence == wire->sequence;
    wire_frame_finish(&frame);
    return answered;
}

/* The code of an Error message, its text into `message`. */
static int error_code(const Tensord__Error *error, char *message) {
    if (message)
        snprintf(message, 256, "%s", error->message);
    return (int)error->code;
}

/* One FetchChunk into its place: a status code; STATUS_INTERNAL where the daemon's figures are wrong. */
static int fetch_chunk(const struct wire_frame *frame, void *data, size_t bytes, size_t *done, char *message) {
    Tensord__FetchChunk *chunk = tensord__fetch_chunk__unpack(NULL, frame->header.message_bytes, frame->message);
    if (!chunk)
        return STATUS_INTERNAL;
    int code = STATUS_OK;
    if (chunk->error)
        code = error_code(chunk->error, message);
    else if (chunk->total != bytes || chunk->offset != *done || frame->header.payload_bytes > bytes - *done)
        code = STATUS_INTERNAL;
    else if (bytes)
        memcpy((uint8_t *)data + *done, frame->payload, frame->header.payload_bytes);
    *done += frame->header.payload_bytes;
    tensord__fetch_chunk__free_unpacked(chunk, NULL);
    return code;
}

int wire_fetch(struct wire *wire, uint64_t id, void *data, size_t bytes, char *message) {
    Tensord__Fetch fetch = TENSORD__FETCH__INIT;
    fetch.id = id;
    if (!wire_request(wire, FRAME_FETCH, &fetch))
        return STATUS_CONNECTION;
    size_t done = 0;
    int code;
    do {
        struct wire_frame frame;
        enum wire_got got = wire_receive(wire, &frame, WIRE_TIMEOUT_MS);
        if (got != WIRE_FRAME)
            return got == WIRE_SILENT ? STATUS_TIMED_OUT : STATUS_CONNECTION;
        bool ours = frame.header.type == FRAME_FETCH_CHUNK && frame.header.sequence == wire->sequence;
        code = ours ? fetch_chunk(&frame, data, bytes, &done, message) : STATUS_PROTOCOL;
        wire_frame_finish(&frame);
    } while (!code && done < bytes);
    return code;
}

int wire_until_closed(struct wire *wire, int milliseconds, char *message) {
    int64_t deadline = deadline_in(milliseconds);
    int code = STATUS_OK;
    for (;;) {
        struct wire_frame frame;
        enum wire_got got = wire_receive(wire, &frame, milliseconds);
        if (got != WIRE_FRAME)
            return got == WIRE_CLOSED ? code : -1;
        if (frame.header.type == FRAME_ERROR) {
            Tensord__Error *error = tensord__error__unpack(NULL, frame.header.message_bytes, frame.message);
            cr_assert_not_null(error);
            code = error_code(error, message);
            tensord__error__free_unpacked(error, NULL);
        }
        wire_frame_finish(&frame);
        if (deadline_now() > deadline)
            return -1;
    }
}
