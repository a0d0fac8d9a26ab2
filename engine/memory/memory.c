#include "engine/memory/memory.h"

#include <malloc.h>

enum {
    MEMORY_KEEP_BYTES = 64 << 20, /* memory that stays reserved when the last session has gone */
    MEMORY_KEEP_HOST = 64 << 20,  /* host memory that sessions may free before it is given back to the system */
    MEMORY_STAGING_BYTES = 1 << 30,
};

static void memory_lost(void *owner, const struct fault *fault) {
    struct memory *memory = owner;
    order_fail(memory->order, fault, true);
}

static void memory_blocks(void *owner, bool begins) {
    struct memory *memory = owner;
    if (memory->blocks)
        memory->blocks(memory->owner, begins);
}

void memory_init(struct memory *memory, struct order *order, uint64_t staging, void (*blocks)(void *owner, bool begins),
                 void *owner) {
    *memory = (struct memory){.order = order, .blocks = blocks, .owner = owner};
    pool_init(&memory->pool, order->device);
    staging_init(memory, order->device, staging ? staging : MEMORY_STAGING_BYTES);
    memory->pool.lost = memory->staging.pool.lost = memory_lost;
    memory->pool.blocks = memory->staging.pool.blocks = memory_blocks;
    memory->pool.owner = memory->staging.pool.owner = memory;
}

void memory_finish(struct memory *memory) {
    pool_finish(&memory->pool);
    staging_finish(&memory->staging);
}

void memory_rest(struct memory *memory) {
    memory->trim_more = false;
    if (memory->pool.reserved > MEMORY_KEEP_BYTES)
        memory->trim_more |= pool_trim(&memory->pool, MEMORY_KEEP_BYTES);
    if (memory->staging.pool.reserved > MEMORY_KEEP_BYTES)
        memory->trim_more |= pool_trim(&memory->staging.pool, MEMORY_KEEP_BYTES);
}

void memory_rest_host(struct memory *memory) {
    if (memory->host_most - memory->host <= MEMORY_KEEP_HOST)
        return;
    memory->host_most = memory->host;
    malloc_trim(0);
}
