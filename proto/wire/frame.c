#include "proto/wire/frame.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const frame_names[] = {
#define X(name, value, message, sender) [value] = #name,
    FRAME_TABLE(X)
#undef X
};

const char *frame_type_name(unsigned type) {
    const char *name = type < sizeof(frame_names) / sizeof(frame_names[0]) ? frame_names[type] : NULL;
    return name ? name : "unknown";
}

/* Little-endian numbers at any address. Compilers turn each call into one move. */
static void put(uint8_t *out, unsigned bytes, uint64_t value) {
    for (unsigned i = 0; i < bytes; i++) {
        out[i] = (uint8_t)(value >> (8 * i));
    }
}

static uint64_t get(const uint8_t *in, unsigned bytes) {
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++) {
        value |= (uint64_t)in[i] << (8 * i);
    }
    return value;
}

void frame_header_encode(const struct frame_header *header, uint8_t out[FRAME_HEADER_BYTES]) {
    put(out, 4, FRAME_MAGIC);
    put(out + 4, 2, header->type);
    put(out + 6, 2, header->flags);
    put(out + 8, 4, header->message_bytes);
    put(out + 12, 4, 0);
    put(out + 16, 8, header->payload_bytes);
    frame_header_number(out, header->sequence);
}

void frame_header_number(uint8_t encoded[FRAME_HEADER_BYTES], uint64_t sequence) {
    put(encoded + 24, 8, sequence);
}

int frame_header_decode(const uint8_t in[FRAME_HEADER_BYTES], uint32_t message_max, uint64_t payload_max,
                        struct frame_header *header, struct fault *fault) {
    uint32_t magic = (uint32_t)get(in, 4), reserved = (uint32_t)get(in + 12, 4);
    struct frame_header read = {
        .type = (uint16_t)get(in + 4, 2),
        .flags = (uint16_t)get(in + 6, 2),
        .message_bytes = (uint32_t)get(in + 8, 4),
        .payload_bytes = get(in + 16, 8),
        .sequence = get(in + 24, 8),
    };
    if (magic != FRAME_MAGIC) {
        return fault_set(fault, STATUS_PROTOCOL, "frame magic is 0x%08" PRIx32 ", not 0x%08x", magic, FRAME_MAGIC);
    }
    if (read.type >= sizeof(frame_names) / sizeof(frame_names[0]) || !frame_names[read.type]) {
        return fault_set(fault, STATUS_PROTOCOL, "%u is no frame type", read.type);
    }
    if (read.flags != 0 || reserved != 0) {
        return fault_set(fault, STATUS_PROTOCOL, "%s frame has flags 0x%x, reserved bits 0x%" PRIx32 ", not 0",
                         frame_names[read.type], read.flags, reserved);
    }
    if (read.message_bytes > message_max) {
        return fault_set(fault, STATUS_PROTOCOL, "%s message of %" PRIu32 " bytes, the limit is %" PRIu32,
                         frame_names[read.type], read.message_bytes, message_max);
    }
    if (read.payload_bytes > payload_max) {
        return fault_set(fault, STATUS_PROTOCOL, "%s payload of %" PRIu64 " bytes, the limit is %" PRIu64,
                         frame_names[read.type], read.payload_bytes, payload_max);
    }
    *header = read;
    return STATUS_OK;
}

enum { PREAMBLE_GENERATION = 1 };

void preamble_encode(uint16_t target, uint8_t out[PREAMBLE_BYTES]) {
    put(out, 4, FRAME_MAGIC);
    out[4] = PREAMBLE_GENERATION;
    out[5] = 0;
    put(out + 6, 2, target);
}

void preamble_set_tls(uint8_t preamble[PREAMBLE_BYTES]) {
    preamble[5] |= PREAMBLE_TLS;
}

bool preamble_has_tls(const uint8_t preamble[PREAMBLE_BYTES]) {
    return preamble[5] & PREAMBLE_TLS;
}

void preamble_set_resumes(uint8_t preamble[PREAMBLE_BYTES]) {
    preamble[5] |= PREAMBLE_RESUMES;
}

bool preamble_resumes(const uint8_t preamble[PREAMBLE_BYTES]) {
    return preamble[5] & PREAMBLE_RESUMES;
}

/* A TLS client without our preamble, such as a browser or openssl s_client, begins with a record of type handshake and version
 * 3.x. */
static bool looks_like_tls(const uint8_t in[PREAMBLE_BYTES]) {
    return in[0] == 0x16 && in[1] == 3;
}

int preamble_decode(const uint8_t in[PREAMBLE_BYTES], uint16_t *target, struct fault *fault) {
    uint32_t magic = (uint32_t)get(in, 4);
    if (looks_like_tls(in)) {
        return fault_set(fault, STATUS_PROTOCOL, "TLS without the preamble that comes first here");
    }
    if (magic != FRAME_MAGIC) {
        return fault_set(fault, STATUS_PROTOCOL, "preamble magic is 0x%08" PRIx32 ", not 0x%08x", magic, FRAME_MAGIC);
    }
    if (in[4] != PREAMBLE_GENERATION) {
        return fault_set(fault, STATUS_VERSION, "protocol generation %u, this side speaks %d", in[4],
                         PREAMBLE_GENERATION);
    }
    if (in[5] & ~(PREAMBLE_TLS | PREAMBLE_RESUMES)) {
        return fault_set(fault, STATUS_PROTOCOL, "preamble has flags 0x%x, 1 and 2 are known", in[5]);
    }
    *target = (uint16_t)get(in + 6, 2);
    return STATUS_OK;
}

/* ---- the reader ---- */

int frame_reader_init(struct frame_reader *reader, size_t capacity) {
    if (capacity < FRAME_HEADER_BYTES) {
        capacity = FRAME_HEADER_BYTES;
    }
    *reader = (struct frame_reader){
        .buffer = malloc(capacity),
        .capacity = capacity,
        .message_max = FRAME_BEFORE_HELLO_MAX,
        .payload_max = 0, /* message and payload together stay within the limit */
    };
    return reader->buffer ? STATUS_OK : STATUS_NO_HOST_MEMORY;
}

void frame_reader_finish(struct frame_reader *reader) {
    free(reader->buffer);
    reader->buffer = NULL;
    reader->capacity = reader->begin = reader->end = 0;
}

/* Moves unread bytes to the front. Between two reads these are less than one header or message, unless the reader is paused. */
static void compact(struct frame_reader *reader) {
    if (reader->begin > 0) {
        memmove(reader->buffer, reader->buffer + reader->begin, reader->end - reader->begin);
        reader->end -= reader->begin;
        reader->begin = 0;
    }
}

void frame_reader_reset(struct frame_reader *reader) {
    *reader = (struct frame_reader){
        .buffer = reader->buffer,
        .capacity = reader->capacity,
        .message_max = reader->message_max,
        .payload_max = reader->payload_max,
    };
}

uint64_t frame_reader_payload_begun(const struct frame_reader *reader) {
    return reader->state == FRAME_READER_PAYLOAD ? reader->header.payload_bytes - reader->payload_left : 0;
}

/* The bytes of the present frame that wait in the buffer. */
static uint64_t buffered(const struct frame_reader *reader) {
    uint64_t bytes = reader->end - reader->begin;
    uint64_t due = reader->header.message_bytes + reader->header.payload_bytes;
    if (reader->state != FRAME_READER_MESSAGE) {
        return 0; /* payload bytes never wait in the buffer */
    }
    return bytes < due ? bytes : due;
}

uint64_t frame_reader_begun(const struct frame_reader *reader) {
    switch (reader->state) {
    case FRAME_READER_MESSAGE:
        return FRAME_HEADER_BYTES + buffered(reader);
    case FRAME_READER_PAYLOAD:
        return FRAME_HEADER_BYTES + reader->header.message_bytes + frame_reader_payload_begun(reader);
    default:
        return 0;
    }
}

void frame_reader_cut(struct frame_reader *reader) {
    reader->end = reader->begin + (size_t)buffered(reader);
    reader->direct = false;
}

int frame_reader_follow(struct frame_reader *reader, struct frame_reader *next) {
    size_t bytes = next->end - next->begin;
    compact(reader);
    if (bytes > reader->capacity - reader->end) {
        uint8_t *grown = realloc(reader->buffer, reader->end + bytes);
        if (!grown) {
            return STATUS_NO_HOST_MEMORY;
        }
        reader->buffer = grown;
        reader->capacity = reader->end + bytes;
    }
    memcpy(reader->buffer + reader->end, next->buffer + next->begin, bytes);
    reader->end += bytes;
    next->begin = next->end = 0;
    reader->paused = true;
    return STATUS_OK;
}

int frame_reader_copy(const struct frame_reader *reader, struct frame_reader *copy) {
    uint8_t *buffer = malloc(reader->capacity);
    if (!buffer) {
        return STATUS_NO_HOST_MEMORY;
    }
    *copy = *reader;
    copy->buffer = buffer;
    copy->sink = NULL;
    copy->direct = false;
    memcpy(buffer + copy->begin, reader->buffer + reader->begin, reader->end - reader->begin);
    return STATUS_OK;
}

void frame_reader_shrink(struct frame_reader *reader, size_t capacity) {
    if (reader->capacity <= capacity || capacity < FRAME_HEADER_BYTES || reader->begin != reader->end ||
        reader->state == FRAME_READER_MESSAGE) {
        return;
    }
    uint8_t *smaller = realloc(reader->buffer, capacity);
    if (smaller) {
        reader->buffer = smaller;
        reader->capacity = capacity;
    }
}

void frame_reader_limits(struct frame_reader *reader, uint32_t message_max, uint64_t payload_max) {
    reader->message_max = message_max;
    reader->payload_max = payload_max;
}

void frame_reader_pause(struct frame_reader *reader) {
    reader->paused = true;
}

void frame_reader_want(struct frame_reader *reader, uint8_t **place, size_t *bytes) {
    reader->direct = reader->state == FRAME_READER_PAYLOAD && reader->sink && reader->begin == reader->end &&
                     reader->payload_left >= FRAME_DIRECT_MIN;
    if (reader->direct) {
        *place = reader->sink;
        *bytes = reader->payload_left;
    } else {
        compact(reader);
        *place = reader->buffer + reader->end;
        *bytes = reader->capacity - reader->end;
        /* A large value comes in parts; bytes of a part that are read ahead would be copied twice. */
        if (reader->bulk && reader->state == FRAME_READER_HEADER && *bytes > FRAME_BULK_AHEAD) {
            *bytes = FRAME_BULK_AHEAD;
        }
    }
}

/* A step returns 1: continue; 0: more bytes are needed; -1: the reader has stopped, see reader->stopped. */
static int stop(struct frame_reader *reader, int status) {
    reader->stopped = status;
    return -1;
}

static int step_header(struct frame_reader *reader, struct fault *fault) {
    if (reader->end - reader->begin < FRAME_HEADER_BYTES) {
        return 0;
    }
    int status = frame_header_decode(reader->buffer + reader->begin, reader->message_max, reader->payload_max,
                                     &reader->header, fault);
    if (status != STATUS_OK) {
        return stop(reader, status);
    }
    reader->begin += FRAME_HEADER_BYTES;
    reader->state = FRAME_READER_MESSAGE;
    if (reader->header.message_bytes > reader->capacity) { /* at most message_max, as was just checked */
        uint8_t *grown = realloc(reader->buffer, reader->header.message_bytes);
        if (!grown) {
            return stop(reader, fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a message of %u bytes",
                                          reader->header.message_bytes));
        }
        reader->buffer = grown;
        reader->capacity = reader->header.message_bytes;
    }
    return 1;
}

static int step_message(struct frame_reader *reader, const struct frame_handler *handler, void *owner,
                        struct fault *fault) {
    if (reader->end - reader->begin < reader->header.message_bytes) {
        return 0;
    }
    uint8_t *sink = NULL;
    int status = handler->on_message(owner, &reader->header, reader->buffer + reader->begin, &sink, fault);
    if (status == STATUS_AGAIN) {
        reader->held = reader->paused = true;
        return 0;
    }
    if (status != STATUS_OK) {
        return stop(reader, status);
    }
    reader->begin += reader->header.message_bytes;
    reader->sink = sink;
    reader->payload_left = reader->header.payload_bytes;
    reader->bulk = reader->payload_left >= FRAME_DIRECT_MIN;
    reader->state = reader->payload_left > 0 ? FRAME_READER_PAYLOAD : FRAME_READER_HEADER;
    return 1;
}

static int payload_done(struct frame_reader *reader, const struct frame_handler *handler, void *owner,
                        struct fault *fault) {
    reader->state = FRAME_READER_HEADER;
    reader->sink = NULL;
    int status = handler->on_payload ? handler->on_payload(owner, &reader->header, fault) : STATUS_OK;
    return status == STATUS_OK ? 1 : stop(reader, status);
}

/* Takes the payload bytes that are in the buffer. */
static int step_payload(struct frame_reader *reader, const struct frame_handler *handler, void *owner,
                        struct fault *fault) {
    size_t bytes = reader->end - reader->begin;
    if (bytes > reader->payload_left) {
        bytes = reader->payload_left;
    }
    if (reader->sink && bytes > 0) {
        memcpy(reader->sink, reader->buffer + reader->begin, bytes);
        reader->sink += bytes;
    }
    reader->begin += bytes;
    reader->payload_left -= bytes;
    return reader->payload_left == 0 ? payload_done(reader, handler, owner, fault) : 0;
}

static int run(struct frame_reader *reader, const struct frame_handler *handler, void *owner, struct fault *fault) {
    int more = 1;
    while (more > 0) {
        switch (reader->state) {
        case FRAME_READER_HEADER: /* during a pause the present frame may end, but no other frame begins */
            more = reader->paused ? 0 : step_header(reader, fault);
            break;
        case FRAME_READER_MESSAGE:
            more = reader->held ? 0 : step_message(reader, handler, owner, fault);
            break;
        case FRAME_READER_PAYLOAD:
            more = step_payload(reader, handler, owner, fault);
            break;
        }
    }
    if (reader->begin == reader->end) {
        reader->begin = reader->end = 0;
    }
    return more < 0 ? reader->stopped : STATUS_OK;
}

int frame_reader_advance(struct frame_reader *reader, size_t bytes, const struct frame_handler *handler, void *owner,
                         struct fault *fault) {
    if (reader->stopped) {
        return fault_set(fault, (enum status)reader->stopped, "nothing is read after a malformed frame");
    }
    if (!reader->direct) {
        reader->end += bytes;
        return run(reader, handler, owner, fault);
    }
    reader->direct = false;
    reader->sink += bytes;
    reader->payload_left -= bytes;
    return run(reader, handler, owner, fault);
}

int frame_reader_resume(struct frame_reader *reader, const struct frame_handler *handler, void *owner,
                        struct fault *fault) {
    if (reader->stopped) {
        return fault_set(fault, (enum status)reader->stopped, "nothing is read after a malformed frame");
    }
    reader->paused = reader->held = false;
    return run(reader, handler, owner, fault);
}
