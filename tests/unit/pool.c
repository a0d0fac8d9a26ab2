#include "tests/unit/pool.h"

struct null_device device;
struct pool pool;
struct stream *streams[STREAMS];

static uint32_t seed = 1;

uint32_t pick(uint32_t limit) {
    seed = seed * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)seed * limit >> 32);
}

void open_pool(uint64_t memory) {
    null_device_init(&device, memory);
    pool_init(&pool, &device.device);
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = aligned_alloc(64, sizeof **streams);
        memset(streams[i], 0, sizeof **streams);
    }
}

void close_pool(void) {
    pool_finish(&pool);
    cr_assert_eq(device.memory_reserved, 0);
    for (int i = 0; i < STREAMS; i++)
        free(streams[i]);
}

int take(size_t bytes, struct stream *stream, struct storage **storage) {
    struct pool_search search = {.on = false};
    int code;
    do
        code = pool_take(&pool, bytes, stream, &search, storage);
    while (code == STATUS_AGAIN);
    return code;
}

void complete_all(void) {
    for (int i = 0; i < STREAMS; i++)
        atomic_store(&streams[i]->completed, streams[i]->enqueued);
}

/* ---- what the pool knows of its pieces, counted anew ---- */

static bool settled(const struct storage *storage) {
    return storage && storage->state >= STORAGE_IDLE;
}

static size_t count_tree(const struct storage *node, const struct storage *up) {
    size_t n = 0;
    if (!node)
        return 0;
    cr_assert_eq(node->up, up);
    cr_assert_not(node->mate);
    for (const struct storage *mate = node->next; mate; mate = mate->next, n++)
        cr_assert(mate->mate && mate->bytes == node->bytes && mate->state == node->state);
    return n + 1 + count_tree(node->down[0], node) + count_tree(node->down[1], node);
}

static size_t count_set(const struct pool_set *set) {
    size_t n = 0;
    for (unsigned bin = 0; bin < POOL_BINS; bin++) {
        cr_assert_eq(!!set->bins[bin], set->filled[bin / 64] >> bin % 64 & 1);
        n += count_tree(set->bins[bin], NULL);
    }
    return n;
}

void check_structure(void) {
    size_t counts[STORAGE_TIED + 1] = {0}, seams = 0, pieces = 0, waiting = 0, binned = 0;
    size_t largest[STORAGE_TIED + 1] = {0};
    uint64_t idle_bytes = 0, free_bytes = 0, longest = 0;
    for (const struct segment *segment = pool.segments; segment; segment = segment->next) {
        size_t bytes = 0, free = 0;
        uint64_t run = 0;
        bool seamed = false;
        for (const struct storage *at = segment->first; at; at = at->after) {
            pieces++;
            counts[at->state]++;
            cr_assert_eq(at->data, segment->data + bytes);
            cr_assert_eq(at->segment, segment);
            cr_assert(!at->after || at->after->before == at);
            largest[at->state] = at->bytes > largest[at->state] ? at->bytes : largest[at->state];
            bytes += at->bytes;
            free += settled(at) ? at->bytes : 0;
            seams += settled(at) && settled(at->after);
            seamed = settled(at) && settled(at->before);
            run = !settled(at) ? 0 : seamed ? run + at->bytes : at->bytes;
            longest = seamed && run > longest ? run : longest;
            cr_assert_not(at->state == STORAGE_IDLE && at->after && at->after->state == STORAGE_IDLE);
        }
        cr_assert_eq(bytes, segment->bytes);
        cr_assert_eq(free, segment->settled);
        free_bytes += free == segment->bytes ? free : 0;
        bool idle = segment->first->state == STORAGE_IDLE && !segment->first->after;
        cr_assert_eq(idle, segment->idle_previous != NULL);
        idle_bytes += idle ? segment->bytes : 0;
    }
    for (const struct storage *at = pool.oldest; at; at = at->newer, waiting++)
        cr_assert(at->state == STORAGE_BUSY || at->state == STORAGE_TIED);
    for (unsigned bin = 0; bin < POOL_BINS; bin++)
        for (const struct storage *at = pool.binned[bin]; at; at = at->next, binned++)
            cr_assert_eq(at->state, STORAGE_BINNED);
    cr_assert_eq(pool.pieces, pieces);
    cr_assert_eq(pool.seams, seams);
    cr_assert_eq(pool.n_binned, binned);
    cr_assert_eq(pool.n_waiting, waiting);
    cr_assert_eq(waiting, counts[STORAGE_BUSY] + counts[STORAGE_TIED]);
    cr_assert_eq(pool.idle_bytes, idle_bytes);
    cr_assert_eq(pool.free_bytes, free_bytes);
    cr_assert_leq(longest, pool.run_most);
    cr_assert_eq(count_set(&pool.idle), counts[STORAGE_IDLE]);
    cr_assert_eq(count_set(&pool.busy), counts[STORAGE_BUSY]);
    cr_assert_eq(count_set(&pool.tied), counts[STORAGE_TIED]);
    cr_assert_eq(pool_set_largest(&pool.idle), largest[STORAGE_IDLE]);
    cr_assert_eq(pool_set_largest(&pool.busy), largest[STORAGE_BUSY]);
    cr_assert_eq(pool_set_largest(&pool.tied), largest[STORAGE_TIED]);
}

static bool may_have(const struct storage *storage, const struct stream *taker) {
    struct uses uses = storage->uses;
    if (storage->state == STORAGE_LIVE || (!taker && !uses_idle(&uses)))
        return false;
    for (unsigned i = 0; i < uses.count; i++)
        if (uses.use[i].stream->group != taker->group && !stream_certain(uses.use[i].stream, uses.use[i].number))
            return false;
    return true;
}

static bool uses_fit(struct uses *uses, const struct uses *more) {
    for (unsigned i = 0; i < more->count; i++)
        if (!uses_add(uses, more->use[i].stream, more->use[i].number))
            return false;
    return true;
}

void check_refusal(size_t bytes, const struct stream *stream) {
    uint64_t fresh = pool.total - pool.reserved;
    for (const struct segment *segment = pool.segments; segment; segment = segment->next) {
        struct uses uses = {.count = 0};
        size_t run = 0;
        bool idle = true;
        for (const struct storage *at = segment->first; at; at = at->after) {
            idle = idle && may_have(at, NULL);
            if (!may_have(at, stream) || !uses_fit(&uses, &at->uses)) {
                uses = at->uses;
                run = 0;
            }
            run += may_have(at, stream) ? at->bytes : 0;
            cr_assert_lt(run, bytes, "%zu bytes are refused, and %zu may be had", bytes, run);
        }
        fresh += idle ? segment->bytes : 0;
    }
    cr_assert_lt(fresh & ~UINT64_C(4095), bytes, "%zu bytes are refused, and %zu can be reserved", bytes,
                 (size_t)fresh);
}
