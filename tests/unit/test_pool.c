/* The pool, checked step by step against what it may not do: give out memory twice, give memory that a stream still uses to
 * somebody who does not wait for it, reserve more than there is, keep what nobody uses. Streams are bare counters here. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "engine/order/turns.h"
#include "tests/unit/pool.h"

enum { LIVE = 200 };

/* Which stream uses a byte of memory last, by a list of intervals: what the pool's own `uses` are compared with. */
struct owned {
    uint8_t *begin, *end;
    struct stream *stream;
    uint64_t number;
};
static struct owned history[100000];
static size_t history_count;

/* Work on the storage, as launches record it. */
static void use(struct storage *storage, struct stream *stream) {
    stream->enqueued++;
    if (!uses_add(&storage->uses, stream, stream->enqueued)) {
        /* the one that comes stands for the first: in the engine it waits for it */
        uint64_t number = storage->uses.use[0].number;
        if (atomic_load(&storage->uses.use[0].stream->completed) < number)
            atomic_store(&storage->uses.use[0].stream->completed, number);
        storage->uses.use[0] = (struct use){stream, stream->enqueued};
    }
    cr_assert_lt(history_count, sizeof history / sizeof *history);
    history[history_count++] = (struct owned){storage->data, storage->data + storage->bytes, stream, stream->enqueued};
}

static void forget_completed(void) {
    size_t kept = 0;
    for (size_t i = 0; i < history_count; i++)
        if (atomic_load(&history[i].stream->completed) < history[i].number)
            history[kept++] = history[i];
    history_count = kept;
}

/* What still uses these bytes must be the stream itself or be among the uses that the taker waits for. */
static void check_taken(const struct storage *storage, const struct stream *stream) {
    forget_completed();
    for (size_t i = 0; i < history_count; i++) {
        const struct owned *old = &history[i];
        if (old->end <= storage->data || old->begin >= storage->data + storage->bytes)
            continue;
        cr_assert_not_null(stream, "memory in use was given to the host");
        bool covered = old->stream == stream;
        for (unsigned k = 0; k < storage->uses.count; k++)
            covered |= storage->uses.use[k].stream == old->stream && storage->uses.use[k].number >= old->number;
        cr_assert(covered, "memory in use was given away, and its new owner does not know");
    }
}

static void check_apart(struct storage *const live[], const struct storage *taken) {
    for (int i = 0; i < LIVE; i++)
        if (live[i] && live[i] != taken)
            cr_assert(live[i]->data + live[i]->bytes <= taken->data || taken->data + taken->bytes <= live[i]->data,
                      "two live blocks overlap");
}

static size_t random_size(void) {
    switch (pick(4)) {
    case 0:
        return 1 + pick(500);
    case 1:
        return 1 + pick(20000);
    case 2:
        return 1 + pick(300000);
    default:
        return pick(8) ? 4096 : 1 + pick(6 << 20);
    }
}

static void check_figures(struct storage *const live[]) {
    uint64_t sum = 0;
    for (int i = 0; i < LIVE; i++)
        sum += live[i] ? live[i]->charged : 0;
    cr_assert_eq(pool.live, sum);
    cr_assert_leq(pool.live, pool.reserved);
    cr_assert_leq(pool.reserved, pool.total);
    cr_assert_leq(pool.live, pool.peak);
    cr_assert_eq(pool.reserved, device.memory_reserved);
}

static void walk(uint64_t memory, int steps, bool outside) {
    history_count = 0;
    static struct storage *live[LIVE];
    static struct run_group groups[2];
    memset(live, 0, sizeof live);
    open_pool(memory);
    for (int i = 0; i < STREAMS; i++)
        streams[i]->group = &groups[i % 2];
    streams[STREAMS - 1]->outside = streams[0]->outside = outside;
    for (int step = 0; step < steps; step++) {
        unsigned i = pick(LIVE), s = pick(STREAMS);
        if (live[i]) {
            for (unsigned n = pick(3); n; n--)
                use(live[i], streams[pick(STREAMS)]);
            if (pick(4)) {
                storage_unref(live[i]);
                live[i] = NULL;
            }
        } else {
            struct stream *stream = pick(8) ? streams[s] : NULL;
            size_t bytes = random_size();
            if (take(bytes, stream, &live[i]) == STATUS_OK) {
                cr_assert_geq(live[i]->bytes, bytes);
                cr_assert_eq((uintptr_t)live[i]->data % POOL_ALIGNMENT, 0);
                check_taken(live[i], stream);
                check_apart(live, live[i]);
                live[i]->uses.count = 0; /* the taker has waited */
                forget_completed();
                for (size_t k = 0; k < history_count;) { /* and so nothing older is left there */
                    bool here = history[k].begin < live[i]->data + live[i]->bytes && history[k].end > live[i]->data;
                    if (here)
                        history[k] = history[--history_count];
                    else
                        k++;
                }
                if (stream)
                    use(live[i], stream);
            } else {
                live[i] = NULL;
                check_refusal(pool_rounded(bytes), stream);
            }
        }
        if (pick(4) == 0) {
            uint64_t open = streams[s]->enqueued - atomic_load(&streams[s]->completed);
            atomic_fetch_add(&streams[s]->completed, open ? pick((uint32_t)open + 1) : 0);
        }
        if (pick(500) == 0)
            pool_trim(&pool, pick(2) ? 0 : memory / 2);
        if (step % 16 == 0)
            check_figures(live);
        if (step % 16 == 0)
            check_structure();
        if (pick(300) == 0)
            pool_largest_free(&pool); /* settles everything */
    }
    for (int i = 0; i < LIVE; i++)
        storage_unref(live[i]);
    complete_all();
    pool_trim(&pool, 0);
    cr_assert_eq(pool.reserved, 0, "%llu bytes are kept though nobody uses them", (unsigned long long)pool.reserved);
    cr_assert_eq(pool.live, 0);
    close_pool();
}

Test(pool, never_gives_memory_out_twice) {
    walk(UINT64_C(1) << 30, 20000, false);
}

Test(pool, never_gives_memory_out_twice_when_it_is_nearly_full) {
    walk(24 << 20, 20000, false);
    walk((5 << 20) + 12345, 10000, false);
}

Test(pool, never_gives_memory_out_twice_beside_what_waits_for_other_devices) {
    walk(24 << 20, 20000, true);
    walk((5 << 20) + 12345, 10000, true);
}

Test(pool, idle_memory_in_pieces_is_merged_again) {
    struct storage *pieces[64], *whole;
    open_pool(16 << 20);
    for (int i = 0; i < 64; i++)
        cr_assert_eq(take(256 << 10, streams[0], &pieces[i]), STATUS_OK);
    cr_assert_neq(take(64, streams[0], &whole), STATUS_OK);
    for (int i = 0; i < 64; i++)
        storage_unref(pieces[(i * 37) % 64]);
    cr_assert_eq(take(16 << 20, NULL, &whole), STATUS_OK);
    storage_unref(whole);
    close_pool();
}

/* Nobody waits in here for the device, which may have much to do, nor is told that there is no memory. */
Test(pool, memory_that_the_device_has_not_got_back_is_asked_for_again) {
    struct storage *pieces[4], *whole, *small;
    struct pool_search search = {.on = false};
    open_pool(64 << 20);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(take(16 << 20, streams[0], &pieces[i]), STATUS_OK);
    device.holds_back = true;
    for (int i = 0; i < 3; i++)
        storage_unref(pieces[i]);
    for (int i = 0; i < 10; i++)
        cr_assert_eq(pool_take(&pool, 48 << 20, streams[1], &search, &whole), STATUS_AGAIN);
    cr_assert_eq(device.memory_coming, 48 << 20);
    cr_assert_eq(take(64 << 20, streams[1], &whole), STATUS_OUT_OF_MEMORY, "more than will ever come");
    null_device_catch_up(&device);
    cr_assert_eq(pool_take(&pool, 48 << 20, streams[1], &search, &whole), STATUS_OK);
    cr_assert_eq(take(64, streams[1], &small), STATUS_OUT_OF_MEMORY);
    storage_unref(whole);
    storage_unref(pieces[3]);
    close_pool();
}

/* No more is given back for a request than it needs. */
Test(pool, a_request_that_waits_for_the_device_leaves_others_their_memory) {
    struct storage *pieces[4], *half, *other;
    struct pool_search search = {.on = false};
    open_pool(64 << 20);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(take(16 << 20, streams[0], &pieces[i]), STATUS_OK);
    device.holds_back = true;
    for (int i = 0; i < 4; i++)
        storage_unref(pieces[i]);
    for (int i = 0; i < 10; i++)
        cr_assert_eq(pool_take(&pool, 32 << 20, streams[1], &search, &half), STATUS_AGAIN);
    cr_assert_eq(device.memory_coming, 32 << 20);
    cr_assert_eq(take(16 << 20, streams[1], &other), STATUS_OK);
    null_device_catch_up(&device);
    cr_assert_eq(pool_take(&pool, 32 << 20, streams[1], &search, &half), STATUS_OK);
    storage_unref(half);
    storage_unref(other);
    close_pool();
}

/* A few MiB are live at a time, and in use for as long again. Bins of each size would keep half of the device. */
Test(pool, small_blocks_of_all_sizes_do_not_spread_over_the_device) {
    enum { ROUNDS = 200000, HELD = 32 };
    struct storage *held[HELD] = {NULL};
    open_pool((uint64_t)4 << 30);
    for (int i = 0; i < ROUNDS; i++) {
        struct storage **at = &held[i % HELD];
        struct stream *stream = streams[i % STREAMS];
        if (i % HELD == 0) {
            complete_all();
            history_count = 0;
        }
        storage_unref(*at);
        cr_assert_eq(take(pick(8) ? 1 + pick(64 << 10) : 1 + pick((2 << 20) - 1), stream, at), STATUS_OK);
        use(*at, stream);
    }
    cr_assert_leq(pool.reserved, 64 << 20, "%lu MiB are reserved for %lu", pool.reserved >> 20, pool.peak >> 20);
    for (int i = 0; i < HELD; i++)
        storage_unref(held[i]);
    complete_all();
    close_pool();
}

/* Largest block by trying: the largest multiple of 64 that is given out to a stream. */
static uint64_t largest_by_trial(void) {
    uint64_t low = 0, high = pool.total / 64 + 1;
    while (high - low > 1) {
        uint64_t middle = (low + high) / 2;
        struct storage *storage;
        if (take(middle * 64, streams[0], &storage) == STATUS_OK) {
            storage_unref(storage);
            low = middle;
        } else {
            high = middle;
        }
    }
    return low * 64;
}

Test(pool, the_largest_free_block_is_what_it_says) {
    for (int round = 0; round < 50; round++) {
        struct storage *live[40] = {NULL};
        open_pool((16 << 20) + pick(3) * 1000);
        for (int step = 0; step < 200; step++) {
            unsigned i = pick(40);
            if (live[i]) {
                storage_unref(live[i]);
                live[i] = NULL;
            } else if (take(1 + pick(1 << 20), streams[0], &live[i]) != STATUS_OK) {
                live[i] = NULL;
            }
        }
        complete_all();
        uint64_t said = pool_largest_free(&pool);
        struct storage *storage = NULL;
        if (said)
            cr_expect_eq(take(said, NULL, &storage), STATUS_OK, "%llu do not fit, %llu do", (unsigned long long)said,
                         (unsigned long long)largest_by_trial());
        storage_unref(storage);
        uint64_t found = largest_by_trial();
        cr_expect_leq(found, said, "it says %llu, and %llu fit", (unsigned long long)said, (unsigned long long)found);
        for (int i = 0; i < 40; i++)
            storage_unref(live[i]);
        close_pool();
    }
}

Test(pool, busy_neighbours_are_waited_for_together) {
    struct storage *pieces[16], *whole = NULL;
    open_pool(16 << 20);
    for (int i = 0; i < 16; i++) {
        cr_assert_eq(take(1 << 20, streams[0], &pieces[i]), STATUS_OK);
        use(pieces[i], streams[0]);
    }
    for (int i = 0; i < 16; i++)
        storage_unref(pieces[i]);
    cr_expect_eq(take(8 << 20, streams[0], &whole), STATUS_OK,
                 "16 MiB are free in pieces that the same stream used last");
    storage_unref(whole);
    complete_all();
    close_pool();
}

/* What waits for another device's bytes may be had by its own session alone; idle memory beside it by everybody. */
Test(pool, idle_memory_is_not_tied_to_what_only_its_own_session_may_wait_for) {
    struct run_group groups[2];
    struct storage *tied, *idle, *rest, *found = NULL;
    open_pool(16 << 20);
    streams[0]->group = streams[1]->group = &groups[0];
    streams[2]->group = &groups[1];
    streams[0]->outside = true;
    cr_assert_eq(take(4 << 20, streams[0], &tied), STATUS_OK);
    cr_assert_eq(take(4 << 20, streams[0], &idle), STATUS_OK);
    cr_assert_eq(take(8 << 20, streams[2], &rest), STATUS_OK);
    use(tied, streams[0]);
    storage_unref(tied);
    storage_unref(idle);
    cr_assert_eq(take(9 << 20, streams[1], &found), STATUS_OUT_OF_MEMORY);
    cr_assert_eq(take(4 << 20, streams[2], &found), STATUS_OK, "its neighbour is another session's");
    cr_assert_eq(take(4 << 20, streams[1], &tied), STATUS_OK, "it is its own session's");
    storage_unref(found);
    storage_unref(tied);
    storage_unref(rest);
    complete_all();
    close_pool();
}

Test(pool, what_fits_is_found_behind_many_that_do_not) {
    struct storage *storage[64], *found = NULL;
    open_pool(4 << 20);
    size_t small = 33 << 10, large = 35 << 10; /* one bin */
    for (int i = 0; i < 64; i++) {
        cr_assert_eq(take(i == 0 ? large : small, streams[0], &storage[i]), STATUS_OK);
        use(storage[i], streams[0]);
    }
    struct storage *rest[4096];
    int n = 0;
    while (n < 4096 && take(64, streams[0], &rest[n]) == STATUS_OK)
        n++;
    for (int i = 0; i < 64; i++) { /* only every second one, so that nothing merges */
        if (i % 2 == 0)
            storage_unref(storage[i]);
    }
    cr_expect_eq(take(large, streams[1], &found), STATUS_OK, "the only block that fits is not found");
    storage_unref(found);
    for (int i = 1; i < 64; i += 2)
        storage_unref(storage[i]);
    while (n)
        storage_unref(rest[--n]);
    complete_all();
    close_pool();
}

/* The pool knows no limits: whoever pays, and whose part that is, gets back what the storage was charged with. */
Test(pool, the_last_reference_gives_back_what_was_charged) {
    struct storage *storage = NULL;
    struct payer whole = {.bytes = 1000}, payer = {.bytes = 500, .whole = &whole};
    open_pool(2 << 20);
    cr_assert_eq(take(100, streams[0], &storage), STATUS_OK);
    cr_expect_null(storage->payer);
    storage_unref(storage); /* nobody pays */
    cr_assert_eq(take(100, streams[0], &storage), STATUS_OK);
    storage->payer = &payer;
    storage_ref(storage);
    storage_unref(storage);
    cr_expect_eq(payer.bytes, 500);
    storage_unref(storage);
    cr_expect_eq(payer.bytes, 500 - 128);
    cr_expect_eq(whole.bytes, 1000 - 128);
    storage_unref(NULL);
    cr_expect_eq(payer.bytes, 500 - 128);
    close_pool();
}
