/* Records: what a stream has to do, one after the other in chunks of memory, which the owner fills and the submitter and the
 * reaper go through behind it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/device/device_kernels.h"
#include "engine/device/launch.h"

struct guard;
struct poison;
struct stream;

enum record_kind {
    RECORD_LAUNCH,  /* a struct launch follows */
    RECORD_KERNEL,  /* a struct kernel_launch follows */
    RECORD_WAIT,    /* go on when another stream has reached a point */
    RECORD_POISON,  /* settle a poison (engine/order/poison.h) */
    RECORD_CHUNK,   /* the queue goes on in the next chunk */
    RECORD_NOTHING, /* was a launch, and has been taken back */
};

struct record {
    uint32_t bytes;    /* of the whole record, header included */
    uint8_t kind;      /* enum record_kind */
    bool ends;         /* the last one of its operation */
    uint16_t label;    /* of a launch: where in the record its operation's label is, NUL-terminated; 0: it has none */
    uint64_t weight;   /* rough cost in nanoseconds */
    uint64_t sequence; /* number of its operation in the session; 0: of none */
    uint64_t enqueued_ns;
    union {
        struct launch launch;
        struct kernel_launch kernel;
        struct {
            struct stream *stream;
            uint64_t number;
        } wait;
        struct {
            struct poison *result;
            struct poison *inputs[3];
            struct guard *guard;
        } poison;
    };
};

/* The label of its operation; NULL: it has none. */
static inline const char *record_label(const struct record *record) {
    return record->label ? (const char *)record + record->label : NULL;
}

enum { STREAM_CHUNK_BYTES = 64 << 10 };

struct stream_chunk {
    struct stream_chunk *next;
    _Alignas(16) uint8_t records[STREAM_CHUNK_BYTES];
};

/* A place in a stream's chunks. */
struct record_cursor {
    struct stream_chunk *chunk; /* NULL: the stream had no chunk yet */
    size_t used;                /* bytes of the chunk that are before the place */
};

static inline struct record *record_at(const struct record_cursor *cursor) {
    return (struct record *)(cursor->chunk->records + cursor->used);
}
