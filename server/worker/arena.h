/* A bump allocator for the messages of one frame: protobuf-c unpacks into it, and the next frame begins with it empty.
 * One thread at a time. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena_block;

struct arena {
    ProtobufCAllocator allocator; /* what protobuf-c's unpack functions take; its free does nothing */
    struct arena_block *first, *current;
    size_t used;  /* bytes taken of `current` */
    size_t total; /* bytes of all blocks */
    size_t limit;
    uint64_t resets; /* ever */
    bool starved;    /* since the last reset the host had no memory for it: what did not unpack may be well-formed */
};

/* Keeps one block of `block` bytes over resets, and never holds more than `limit` in all. -ENOMEM without memory. */
int arena_init(struct arena *arena, size_t block, size_t limit);
void arena_finish(struct arena *arena);
/* NULL past the limit or without memory. Aligned to 16 bytes, valid until the next reset. */
void *arena_allocate(struct arena *arena, size_t bytes);
void arena_reset(struct arena *arena);
