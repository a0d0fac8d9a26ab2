#include "proto/wire/frame.h"

#include <inttypes.h>
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

/* Little-endian numbers at any address. Compilers make one move of each. */
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

/* A browser, openssl s_client and their like begin with a record of type handshake, version 3.something. */
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
