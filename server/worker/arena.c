#include "server/worker/arena.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

enum { ARENA_ALIGN = 16 };

struct arena_block {
    struct arena_block *next;
    size_t bytes;
    _Alignas(ARENA_ALIGN) uint8_t data[];
};

static struct arena_block *arena_block_create(size_t bytes) {
    struct arena_block *block = malloc(sizeof *block + bytes);
    if (block)
        *block = (struct arena_block){.bytes = bytes};
    return block;
}

static void *arena_protobuf_allocate(void *owner, size_t bytes) {
    return arena_allocate(owner, bytes);
}

static void arena_protobuf_free(void *owner, void *memory) {
    (void)owner;
    (void)memory;
}

int arena_init(struct arena *arena, size_t block, size_t limit) {
    *arena = (struct arena){
        .allocator = {arena_protobuf_allocate, arena_protobuf_free, arena},
        .limit = limit,
    };
    arena->first = arena->current = arena_block_create(block);
    if (!arena->first)
        return -ENOMEM;
    arena->total = block;
    return 0;
}

static void arena_free_from(struct arena_block *block) {
    while (block) {
        struct arena_block *next = block->next;
        free(block);
        block = next;
    }
}

void arena_finish(struct arena *arena) {
    arena_free_from(arena->first);
    *arena = (struct arena){0};
}

/* A block for `bytes` and, where the limit allows, for as much again as the first one holds. */
static struct arena_block *arena_grow(struct arena *arena, size_t bytes) {
    size_t room = arena->limit - arena->total, size = bytes > arena->first->bytes ? bytes : arena->first->bytes;
    if (arena->total > arena->limit || bytes > room)
        return NULL;
    if (size > room)
        size = bytes;
    struct arena_block *block = arena_block_create(size);
    if (!block) {
        arena->starved = true;
        return NULL;
    }
    arena->total += size;
    arena->current->next = block;
    arena->current = block;
    arena->used = 0;
    return block;
}

void *arena_allocate(struct arena *arena, size_t bytes) {
    struct arena_block *block = arena->current;
    void *memory;
    if (bytes > SIZE_MAX - ARENA_ALIGN)
        return NULL;
    bytes = (bytes + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
    if (bytes > block->bytes - arena->used) {
        block = arena_grow(arena, bytes);
        if (!block)
            return NULL;
    }
    memory = block->data + arena->used;
    arena->used += bytes;
    return memory;
}

void arena_reset(struct arena *arena) {
    if (arena->first->next) {
        arena_free_from(arena->first->next);
        arena->first->next = NULL;
        arena->current = arena->first;
        arena->total = arena->first->bytes;
    }
    arena->used = 0;
    arena->resets++;
    arena->starved = false;
}
