/* What is counted of operations: each once, when it has come to its end, however many records it takes; and no counter ever
 * falls. */
#include "tests/unit/engine_fixture.h"

static uint64_t total(void) {
    struct engine_stats stats;
    engine_stats(engine, &stats);
    return stats.ops_total;
}

static uint64_t depth(void) {
    struct engine_stats stats;
    engine_stats(engine, &stats);
    return stats.queue_depth;
}

static struct session_stats of_session(void) {
    struct session_stats stats;
    session_stats(session, &stats);
    return stats;
}

/* Until nothing is queued, in whatever streams. */
static bool drained(void) {
    struct timespec pause = {.tv_nsec = 1000000};
    for (int i = 0; i < 2000 && depth(); i++) {
        engine_poll(engine);
        nanosleep(&pause, NULL);
    }
    return !depth();
}

/* Positions along an axis are checked where they run: a launch, and a record that settles what the check has found. */
static int take(uint64_t id, uint64_t from, uint64_t positions, uint32_t stream) {
    const int64_t axis = 0;
    return apply(OP_TAKE, id, 2, (const uint64_t[]){from, positions}, 1, &axis, 0, stream);
}

/* A tensor and positions in it, 1 and 2: two operations. */
static void tensors(void) {
    cr_assert_eq(full(session, 1, 16, 0), STATUS_OK);
    cr_assert_eq(full_of(session, DTYPE_I64, 2, 16, 0), STATUS_OK);
    cr_assert_eq(wait_for(2), STATUS_OK);
}

Test(engine_counts, operation_of_many_records_counts_once_and_when_it_has_run) {
    open_engine(64 << 20);
    open_stream(1);
    tensors();
    cr_assert_eq(total(), 2);
    park(3);
    for (uint64_t id = 4; id < 104; id++)
        cr_assert_eq(take(id, 1, 2, id % 2), STATUS_OK);
    cr_assert_gt(session_queued(session), 200, "each takes several records: the test would show nothing");
    cr_assert_eq(total(), 2, "what is enqueued takes nothing off what is done");
    cr_assert_eq(depth(), 101);
    cr_assert_eq(of_session().ops_done, 2);
    cr_assert_eq(of_session().ops_queued, 101);
    engine_kick(engine);
    unpark();
    cr_assert_eq(wait_for(102), STATUS_OK);
    cr_assert_eq(wait_for(103), STATUS_OK);
    cr_assert_eq(total(), 103);
    cr_assert_eq(depth(), 0);
    cr_assert_eq(of_session().ops_done, 103);
    close_engine();
}

Test(engine_counts, operation_that_needs_no_device_or_fails_is_done_at_once) {
    open_engine(64 << 20);
    tensors();
    park(3);
    cr_assert_eq(release(1), STATUS_OK);
    cr_assert_eq(unary(OP_EXP, 4, 99, 0), STATUS_UNKNOWN_ID);
    cr_assert_eq(unary(OP_EXP, 5, 4, 0), STATUS_UNKNOWN_ID, "a cause that was passed on");
    cr_assert_eq(full(session, 5, 16, 0), STATUS_DUPLICATE_ID);
    cr_assert_eq(total(), 6);
    cr_assert_eq(of_session().ops_done, 6);
    cr_assert_eq(depth(), 1);
    unpark();
    close_engine();
}

Test(engine_counts, upload_counts_when_it_is_there) {
    struct upload upload;
    open_engine(64 << 20);
    cr_assert_eq(upload_to(1, 4, 4, 0, false, &upload), STATUS_OK);
    cr_assert_eq(total(), 0);
    upload_fill(&upload, 1);
    upload_finish(&upload, NULL);
    cr_assert_eq(total(), 1);
    close_engine();
}

Test(engine_counts, what_is_cancelled_was_never_done) {
    open_engine(64 << 20);
    tensors();
    park(3);
    for (uint64_t id = 4; id < 14; id++)
        cr_assert_eq(take(id, 1, 2, 0), STATUS_OK);
    engine_kick(engine);
    session_destroy(session);
    unpark();
    cr_assert(drained());
    cr_assert_eq(session_create(engine_sessions(engine), &limits, &session, &(struct fault){0}), STATUS_OK);
    cr_assert_eq(full_of(session, DTYPE_U8, 1, 8 << 20, 0), STATUS_OK);
    cr_assert_eq(wait_for(1), STATUS_OK);
    cr_assert_leq(total(), 4, "what ran, and what was running");
    cr_assert_geq(total(), 3);
    cr_assert_eq(depth(), 0);
    cr_assert_eq(of_session().ops_done, 1, "a session in whose stream another one's work ran has done its own alone");
    close_engine();
}

Test(engine_counts, closed_stream_leaves_what_ran_there) {
    open_engine(64 << 20);
    for (uint32_t i = 1; i <= 20; i++) {
        open_stream(i);
        cr_assert_eq(full(session, i, 16, i), STATUS_OK);
        close_stream(i);
        cr_assert_eq(wait_for(i), STATUS_OK);
        cr_assert_eq(of_session().ops_done, i);
        cr_assert_eq(total(), i);
    }
    close_engine();
}
