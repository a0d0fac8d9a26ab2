/* How much a call of the pool does: what takes long goes on in the next call, and misses nothing. */
#include "tests/unit/pool.h"

/* A device full of small pieces, every second one of which is free, idle or still in use on several streams: a walk over all of
 * them for each of these refusals would take longer than a test may. */
Test(pool_search, refusals_walk_no_pieces) {
    enum { PIECES = 1 << 18, REFUSALS = 100000 };
    static struct storage *pieces[PIECES];
    for (int busy = 0; busy < 2; busy++) {
        struct storage *found = NULL;
        open_pool((uint64_t)PIECES * 64);
        for (int i = 0; i < PIECES; i++) {
            cr_assert_eq(take(64, streams[i % STREAMS], &pieces[i]), STATUS_OK);
            uses_add(&pieces[i]->uses, streams[i % STREAMS], ++streams[i % STREAMS]->enqueued);
        }
        if (!busy)
            complete_all();
        for (int i = 0; i < PIECES; i += 2)
            storage_unref(pieces[i]);
        for (int i = 0; i < REFUSALS; i++) {
            size_t bytes =
                i % 3 ? 128 : (size_t)PIECES * 64; /* there is so much, but not in one place; there is less */
            cr_assert_eq(take(bytes, i % 2 ? streams[0] : NULL, &found), STATUS_OUT_OF_MEMORY);
            cr_assert_eq(pool_largest_free(&pool), 64);
        }
        for (int i = 1; i < PIECES; i += 2)
            storage_unref(pieces[i]);
        complete_all();
        for (int i = 0; i < PIECES / POOL_SWEEP && !found; i++) /* looks are limited, and go on where they stopped */
            take((size_t)PIECES * 64, NULL, &found);
        cr_assert_not_null(found);
        storage_unref(found);
        close_pool();
    }
}

/* Takes pieces of 64 bytes, all there are, from one segment, each used by work on the next stream of so many. */
static void take_pieces(struct storage **pieces, int n, int n_streams) {
    struct storage *whole = NULL;
    cr_assert_eq(take((size_t)n * 64, NULL, &whole), STATUS_OK);
    storage_unref(whole);
    for (int i = 0; i < n; i++) {
        struct stream *stream = streams[i % n_streams];
        cr_assert_eq(take(64, stream, &pieces[i]), STATUS_OK);
        uses_add(&pieces[i]->uses, stream, ++stream->enqueued);
    }
}

/* As take(); no call may do more than it says. */
static int take_counted(size_t bytes, struct stream *stream, struct storage **storage, int *calls) {
    struct pool_search search = {.on = false};
    int code;
    do {
        uint64_t looks = pool.looks, releases = pool.releases;
        size_t pieces = pool.pieces, binned = pool.n_binned;
        code = pool_take(&pool, bytes, stream, &search, storage);
        cr_assert_leq(pool.looks - looks, 2 * POOL_SWEEP);
        cr_assert_leq(pool.releases - releases, POOL_TRIM);
        cr_assert_leq(pieces, pool.pieces + 2 * (POOL_SWEEP + POOL_JOINS) + 40 * binned, "%zu joins in one call",
                      pieces - pool.pieces);
        ++*calls;
    } while (code == STATUS_AGAIN);
    return code;
}

/* All is free, in one run of neighbours of which no two are alike: it is had as soon as so few use it that one may wait for all of
 * them, and whoever asks before that is refused. */
Test(pool_search, unlike_neighbours_are_joined_in_many_calls) {
    enum { PIECES = 1 << 18 };
    static struct storage *pieces[PIECES];
    struct storage *whole = NULL;
    for (int n_streams = 4; n_streams <= STREAMS; n_streams++) {
        int calls = 0;
        open_pool((uint64_t)PIECES * 64);
        take_pieces(pieces, PIECES, n_streams);
        for (int i = 0; i < PIECES; i++)
            storage_unref(pieces[i]);
        int code = take_counted((size_t)PIECES * 64, streams[0], &whole, &calls);
        if (n_streams == STREAMS) {
            cr_assert_eq(code, STATUS_OUT_OF_MEMORY, "more use it than one may wait for");
            check_structure();
            complete_all();
            code = take_counted((size_t)PIECES * 64, streams[0], &whole, &calls);
        }
        cr_expect_eq(code, STATUS_OK);
        cr_expect_gt(calls, 10, "%d calls", calls);
        storage_unref(whole);
        complete_all();
        close_pool();
    }
}

/* Small tensors that have just become idle, among others that are still in use. */
Test(pool_search, memory_that_has_just_become_idle_is_not_refused) {
    enum { PIECES = 1 << 16 };
    static struct storage *pieces[PIECES];
    struct storage *found = NULL;
    for (int host = 0; host < 2; host++) {
        int calls = 0;
        open_pool((uint64_t)PIECES * 64);
        take_pieces(pieces, PIECES, STREAMS);
        for (int i = 0; i < PIECES; i++)
            if (i != PIECES / 2)
                storage_unref(pieces[i]);
        cr_assert_eq(take_counted((size_t)PIECES / 4 * 64, host ? NULL : streams[0], &found, &calls),
                     STATUS_OUT_OF_MEMORY);
        complete_all();
        cr_expect_eq(take_counted((size_t)PIECES / 4 * 64, host ? NULL : streams[0], &found, &calls), STATUS_OK);
        storage_unref(found);
        storage_unref(pieces[PIECES / 2]);
        close_pool();
    }
}

/* While a request looks for memory in many calls others take and free some, and ask for some in vain. What is refused is not there
 * then, by a look at all there is. */
Test(pool_search, a_search_in_many_calls_misses_nothing) {
    enum { PIECES = 1 << 13, ROUNDS = 40 };
    static struct storage *pieces[PIECES];
    int refused = 0, found = 0, calls = 0;
    open_pool((uint64_t)PIECES * 64);
    take_pieces(pieces, PIECES, STREAMS);
    for (int round = 0; round < ROUNDS; round++) {
        struct pool_search search = {.on = false};
        struct storage *storage = NULL;
        size_t bytes = 64 + pick(round % 2 ? 1 << 10 : 8 << 10);
        int code, keep = (int)pick(64) + 2;
        for (int i = 0; i < PIECES; i++) /* all but a few, so that runs are long */
            if (pieces[i] && pick((uint32_t)keep)) {
                storage_unref(pieces[i]);
                pieces[i] = NULL;
            }
        while ((code = pool_take(&pool, bytes, streams[0], &search, &storage)) == STATUS_AGAIN) {
            calls++;
            for (int k = 0; k < 20; k++) {
                unsigned i = pick(PIECES);
                struct stream *stream = streams[pick(STREAMS)];
                storage_unref(pieces[i]);
                pieces[i] = NULL;
                if (pool_take(&pool, 64 + pick(256), stream, NULL, &pieces[i]) != STATUS_OK)
                    continue;
                pieces[i]->uses.count = 0;
                uses_add(&pieces[i]->uses, stream, ++stream->enqueued);
            }
        }
        if (code == STATUS_OK)
            found++;
        else
            refused++, check_refusal(pool_rounded(bytes), streams[0]);
        check_structure();
        storage_unref(storage);
        for (int i = 0; i < STREAMS; i++)
            if (pick(8) == 0)
                atomic_store(&streams[i]->completed, streams[i]->enqueued);
        for (int i = 0; i < PIECES; i++) { /* and all is in use again, small and unlike */
            struct stream *stream = streams[i % STREAMS];
            if (pieces[i])
                continue;
            if (pool_take(&pool, 64, stream, NULL, &pieces[i]) != STATUS_OK)
                break;
            pieces[i]->uses.count = 0;
            uses_add(&pieces[i]->uses, stream, ++stream->enqueued);
        }
    }
    cr_expect(refused && found && calls, "%d refused, %d found in %d calls", refused, found, calls);
    for (int i = 0; i < PIECES; i++)
        storage_unref(pieces[i]);
    complete_all();
    close_pool();
}

Test(pool_search, segments_are_given_back_some_at_a_time) {
    enum { SEGMENTS = 4 * POOL_TRIM, EACH = 16 };
    static struct storage *pieces[SEGMENTS * EACH];
    struct storage *whole = NULL;
    int calls = 0;
    open_pool((uint64_t)SEGMENTS * (2 << 20));
    for (int i = 0; i < SEGMENTS * EACH; i++)
        cr_assert_eq(take(128 << 10, streams[0], &pieces[i]), STATUS_OK);
    cr_assert_eq(pool.reservations, SEGMENTS);
    for (int i = 0; i < SEGMENTS * EACH; i++)
        storage_unref(pieces[i]);
    cr_expect_eq(take_counted(pool.total, streams[0], &whole, &calls), STATUS_OK);
    cr_expect_eq(calls, SEGMENTS / POOL_TRIM);
    storage_unref(whole);
    close_pool();
}

/* A run that one call does not walk, and requests meanwhile. */
Test(pool_search, the_largest_free_block_shows_after_some_calls) {
    enum { PIECES = 1 << 16, LONG = PIECES / 2 };
    static struct storage *pieces[PIECES];
    struct storage *found = NULL;
    uint64_t said = 0;
    open_pool((uint64_t)PIECES * 64);
    take_pieces(pieces, PIECES, STREAMS);
    for (int i = 0; i < LONG; i++)
        storage_unref(pieces[i]);
    for (int i = 0; i <= PIECES / POOL_RUN_LOOKS; i++) {
        said = pool_largest_free(&pool);
        cr_assert_leq(said, LONG * 64);
        cr_assert_neq(pool_take(&pool, (size_t)LONG * 64 + 64, streams[0], NULL, &found), STATUS_OK);
    }
    cr_expect_eq(said, LONG * 64);
    for (int i = LONG; i < PIECES; i++)
        storage_unref(pieces[i]);
    complete_all();
    close_pool();
}
