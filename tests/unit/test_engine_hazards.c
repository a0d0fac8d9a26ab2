/* What must hold where rules of the engine meet: streams that come and go, memory freed under failures, views of tensors
 * that are not there yet, causes that travel between streams. */
#include "tests/unit/engine_fixture.h"

/* ---- recycled streams ---- */

Test(engine_hazards, a_stream_that_stood_for_an_upload_serves_as_an_ordinary_one) {
    struct upload upload;
    open_engine(1 << 30);
    cr_assert_eq(upload_to(1, 4, 4, 0, true, &upload), STATUS_OK);
    upload_finish(&upload, NULL);
    cr_assert_eq(wait_for(1), STATUS_OK);
    open_stream(5); /* takes the upload's */
    for (uint64_t id = 2; id < 20; id++)
        cr_assert_eq(full(session, id, 10, 5), STATUS_OK);
    cr_assert_eq(wait_for(19), STATUS_OK);
    cr_assert_eq(atomic_load(&device.launches), 18);
    close_engine();
}

Test(engine_hazards, an_ordinary_stream_serves_for_an_upload_and_again_as_ordinary) {
    struct upload upload;
    open_engine(1 << 30);
    for (uint64_t round = 0; round < 20; round++) {
        open_stream(5);
        cr_assert_eq(full(session, round * 3 + 1, 10, 5), STATUS_OK);
        cr_assert_eq(wait_for(0), STATUS_OK);
        close_stream(5);
        cr_assert_eq(upload_to(round * 3 + 2, 4, 4, 0, true, &upload), STATUS_OK);
        cr_assert_eq(binary(round * 3 + 3, round * 3 + 2, round * 3 + 2, 0, 0), STATUS_OK);
        upload_finish(&upload, NULL);
        cr_assert_eq(wait_for(round * 3 + 3), STATUS_OK);
    }
    cr_assert_eq(atomic_load(&device.launches), 40);
    close_engine();
}

Test(engine_hazards, a_closed_stream_still_counts_as_queued_and_is_waited_for) {
    struct answer answer;
    open_engine(1 << 30);
    open_stream(5);
    park(1);
    for (uint64_t id = 2; id < 102; id++)
        cr_assert_eq(full(session, id, 10, 5), STATUS_OK);
    cr_assert_eq(session_queued(session), 101);
    close_stream(5);
    cr_expect_eq(session_queued(session), 101, "closing a stream hides what is queued on it");
    gate.opcode = OP_FULL;
    ask_wait(&answer, 0);
    uint64_t before = atomic_load(&device.launches);
    cr_assert_eq(before, 1);
    unpark();
    cr_assert(settle(&answer.times));
    cr_expect_eq(atomic_load(&device.launches), 101, "sync came back before the closed stream's work");
    close_engine();
}

Test(engine_hazards, a_destroyed_session_skips_what_is_queued_on_streams_it_had_closed) {
    struct fault fault;
    struct session *other;
    open_engine(1 << 30);
    cr_assert_eq(session_create(engine_sessions(engine), &limits, &other, &fault), STATUS_OK);
    open_stream(5);
    park(1);
    for (uint64_t id = 2; id < 102; id++)
        cr_assert_eq(full(session, id, 10, 5), STATUS_OK);
    close_stream(5);
    session_destroy(session);
    session = other;
    unpark();
    cr_assert_eq(full(session, 1, 10, 0), STATUS_OK);
    cr_assert_eq(wait_for(1), STATUS_OK);
    session_destroy(session);
    engine_destroy(engine);
    cr_assert_leq(atomic_load(&device.launches), 2);
}

/* ---- views of what comes from outside or from closed streams ---- */

static int transpose(uint64_t id, uint64_t x, uint32_t stream) {
    return unary(OP_MATRIX_TRANSPOSE, id, x, stream);
}

Test(engine_hazards, a_transposed_view_is_fetched_while_its_upload_still_runs) {
    struct upload upload;
    struct answer answer;
    open_engine(1 << 30);
    cr_assert_eq(upload_to(1, 4, 8, 0, true, &upload), STATUS_OK);
    cr_assert_eq(transpose(2, 1, 0), STATUS_OK);
    ask_fetch(&answer, 2);
    engine_kick(engine);
    engine_poll(engine);
    cr_assert_eq(answer.times, 0);
    upload_finish(&upload, NULL);
    cr_assert(settle(&answer.times));
    cr_assert_eq(answer.code, STATUS_OK);
    cr_assert_eq(atomic_load(&device.launches), 1, "the copy has not run");
    fetch_release(&answer.fetch);
    close_engine();
}

Test(engine_hazards, a_transposed_view_of_a_finished_upload_is_fetched) {
    struct upload upload, next;
    struct answer answer;
    open_engine(1 << 30);
    cr_assert_eq(upload_to(1, 4, 8, 0, true, &upload), STATUS_OK);
    upload_finish(&upload, NULL);
    cr_assert_eq(transpose(2, 1, 0), STATUS_OK);
    cr_assert_eq(upload_to(3, 4, 8, 0, true, &next), STATUS_OK); /* may use the first one's stream */
    ask_fetch(&answer, 2);
    cr_assert(settle(&answer.times), "it waits for an upload it has nothing to do with");
    cr_assert_eq(answer.code, STATUS_OK);
    cr_assert_eq(atomic_load(&device.launches), 1);
    fetch_release(&answer.fetch);
    upload_finish(&next, NULL);
    cr_assert_eq(wait_for(3), STATUS_OK);
    close_engine();
}

Test(engine_hazards, a_view_is_fetched_after_its_stream_went_through_a_session_that_is_gone) {
    struct fault fault;
    struct session *other;
    struct answer answer;
    struct upload upload;
    open_engine(1 << 30);
    open_stream(5);
    cr_assert_eq(upload_to(1, 4, 8, 0, false, &upload), STATUS_OK);
    upload_finish(&upload, NULL);
    cr_assert_eq(binary(2, 1, 1, 0, 5), STATUS_OK);
    cr_assert_eq(transpose(3, 2, 5), STATUS_OK);
    cr_assert_eq(wait_for(3), STATUS_OK);
    close_stream(5);
    cr_assert_eq(session_create(engine_sessions(engine), &limits, &other, &fault), STATUS_OK); /* takes the stream, */
    session_destroy(other);                                                                    /* and cancels it */
    unsigned before = atomic_load(&device.launches);
    ask_fetch(&answer, 3);
    cr_assert(settle(&answer.times));
    cr_assert_eq(answer.code, STATUS_OK);
    cr_assert_eq(atomic_load(&device.launches), before + 1, "memory nobody wrote was delivered as the value");
    fetch_release(&answer.fetch);
    close_engine();
}

Test(engine_hazards, a_staged_upload_is_copied_after_its_stream_was_closed_and_given_away) {
    struct fault fault;
    struct session *other;
    struct upload upload;
    open_engine(16 << 20);
    open_stream(5);
    park(1);                                               /* 8 MiB */
    cr_assert_eq(full(session, 2, 2 << 20, 0), STATUS_OK); /* the other 8 MiB, */
    cr_assert_eq(release(2), STATUS_OK);                   /* free and busy */
    cr_assert_eq(upload_to(3, 1024, 2048, 5, false, &upload), STATUS_OK);
    cr_assert(upload.staged);
    close_stream(5);
    cr_assert_eq(session_create(engine_sessions(engine), &limits, &other, &fault), STATUS_OK);
    session_destroy(other);
    upload_fill(&upload, 1);
    upload_finish(&upload, NULL);
    unpark();
    cr_assert_eq(wait_for(3), STATUS_OK);
    cr_assert_eq(atomic_load(&device.launches), 3, "the copy was skipped");
    close_engine();
}

/* ---- poisons ---- */

static int out_of_range_hook(struct null_device *null, const struct launch *launch) {
    gate_hook(null, launch);
    if (launch->opcode == OP_TAKE) {
        launch->report->value = 99;
        launch->report->limit = 10;
        atomic_store(&launch->report->code, STATUS_OUT_OF_RANGE);
    }
    return 0;
}

/* Tensor 10: taken by indices that are out of range, behind a parked operation on stream 0. */
static void parked_poison(void) {
    device.hook = out_of_range_hook;
    park(1);
    cr_assert_eq(full(session, 2, 10, 0), STATUS_OK);
    cr_assert_eq(full_of(session, DTYPE_I64, 3, 12, 0), STATUS_OK);
    cr_assert_eq(apply(OP_TAKE, 10, 2, (const uint64_t[]){2, 3}, 1, (const int64_t[]){0}, 0, 0), STATUS_OK);
}

Test(engine_hazards, a_view_on_another_stream_keeps_the_cause) {
    struct answer answer;
    open_engine(1 << 30);
    open_stream(5);
    parked_poison();
    cr_assert_eq(apply(OP_RESHAPE, 11, 1, (const uint64_t[]){10}, 2, (const int64_t[]){3, 4}, 0, 5), STATUS_OK);
    cr_assert_eq(binary(12, 11, 11, 0, 5), STATUS_OK);
    ask_wait(&answer, 11);
    unpark();
    cr_assert(settle(&answer.times));
    cr_expect_eq(answer.code, STATUS_OUT_OF_RANGE, "the view is clean: %s", status_name(answer.code));
    cr_expect_eq(wait_for(12), STATUS_OUT_OF_RANGE);
    cr_assert_eq(wait_for(10), STATUS_OUT_OF_RANGE);
    close_engine();
}

static _Atomic unsigned seen[256];
static _Atomic unsigned seen_count;

static int seen_hook(struct null_device *null, const struct launch *launch) {
    gate_hook(null, launch);
    seen[atomic_fetch_add(&seen_count, 1) % 256] = launch->opcode;
    return 0;
}

Test(engine_hazards, a_view_on_another_stream_is_not_ready_before_its_value) {
    struct answer answer;
    open_engine(1 << 30);
    open_stream(5);
    open_stream(6);
    device.hook = seen_hook;
    park(1);
    cr_assert_eq(full(session, 2, 10, 0), STATUS_OK);
    cr_assert_eq(full_of(session, DTYPE_I64, 3, 12, 0), STATUS_OK);
    for (uint64_t id = 4; id < 9; id++) /* each of them a turn of its own, so that other streams come first */
        cr_assert_eq(full_of(session, DTYPE_U8, id, 8 << 20, 0), STATUS_OK);
    cr_assert_eq(apply(OP_TAKE, 10, 2, (const uint64_t[]){2, 3}, 1, (const int64_t[]){0}, 0, 0), STATUS_OK);
    cr_assert_eq(apply(OP_RESHAPE, 11, 1, (const uint64_t[]){10}, 2, (const int64_t[]){3, 4}, 0, 5), STATUS_OK);
    cr_assert_eq(unary(OP_EXP, 12, 11, 6), STATUS_OK);
    for (uint64_t id = 13; id < 15; id++)
        cr_assert_eq(full(session, id, 1, 6), STATUS_OK);
    ask_wait(&answer, 12);
    engine_kick(engine);
    unpark();
    cr_assert(settle(&answer.times));
    cr_assert_eq(wait_for(0), STATUS_OK);
    unsigned take = 0, exp = 0;
    for (unsigned i = 0; i < atomic_load(&seen_count); i++) {
        if (seen[i] == OP_TAKE)
            take = i + 1;
        if (seen[i] == OP_EXP)
            exp = i + 1;
    }
    cr_assert_gt(take, 0);
    cr_assert_gt(exp, take, "the view was read before it was computed");
    close_engine();
}

Test(engine_hazards, a_concat_of_many_poisoned_inputs_has_the_cause) {
    for (unsigned n = 1; n <= 12; n++)
        for (unsigned bad = 0; bad < n; bad++) {
            uint64_t inputs[16];
            open_engine(1 << 30);
            device.hook = out_of_range_hook;
            cr_assert_eq(full(session, 1, 10, 0), STATUS_OK);
            cr_assert_eq(full_of(session, DTYPE_I64, 2, 12, 0), STATUS_OK);
            for (unsigned i = 0; i < n; i++) {
                inputs[i] = 10 + i;
                unsigned opcode = i == bad ? OP_TAKE : OP_TAKE_ALONG_AXIS; /* the hook fails only the one */
                cr_assert_eq(apply(opcode, inputs[i], 2, (const uint64_t[]){1, 2}, 1, (const int64_t[]){0}, 0, 0),
                             STATUS_OK);
            }
            cr_assert_eq(apply(OP_CONCAT, 100, n, inputs, 1, (const int64_t[]){0}, 0x7, 0), STATUS_OK);
            cr_assert_eq(wait_for(100), STATUS_OUT_OF_RANGE, "%u of %u", bad, n);
            cr_assert_eq(unary(OP_EXP, 101, 100, 0), STATUS_OUT_OF_RANGE);
            close_engine();
        }
}

/* ---- memory ---- */

Test(engine_hazards, memory_of_a_failed_operation_is_not_idle_while_others_use_it) {
    struct upload upload;
    open_engine(16 << 20);
    open_stream(5);
    park(1); /* 8 MiB of u8 */
    cr_assert_eq(full_of(session, DTYPE_U8, 2, 6 << 20, 0), STATUS_OK);
    uint8_t *begin = session_tensor(session, 2)->storage->data, *end = begin + (6 << 20);
    cr_assert_eq(release(2), STATUS_OK); /* free, but the parked stream is going to write there */
    cr_assert_eq(full_of(session, DTYPE_U8, 3, 1 << 20, 5), STATUS_OK);
    /* Its output takes what was freed; for its converted input, 24 MiB, there is no memory. */
    cr_assert_eq(apply(OP_RESHAPE, 4, 1, (const uint64_t[]){3}, 2, (const int64_t[]){1 << 20, 1}, 0, 5), STATUS_OK);
    cr_assert_eq(apply(OP_BROADCAST_TO, 5, 1, (const uint64_t[]){4}, 2, (const int64_t[]){1 << 20, 6}, 0, 5),
                 STATUS_OK);
    cr_assert_eq(full_of(session, DTYPE_F32, 6, 1, 5), STATUS_OK);
    cr_assert_eq(apply(OP_LESS, 7, 2, (const uint64_t[]){5, 6}, 0, NULL, 0, 5), STATUS_OUT_OF_MEMORY);
    int code = upload_to(8, 1024, 1024, 0, false, &upload);
    if (code == STATUS_OK) {
        const uint8_t *data = upload_chunk(&upload, 0, upload.bytes);
        bool outside = data + upload.bytes <= begin || data >= end;
        cr_expect(upload.staged || outside, "the host writes where queued work is going to write");
        upload_chunk_done(&upload);
        upload_finish(&upload, NULL);
    }
    unpark();
    cr_assert_eq(wait_for(0), STATUS_OK);
    close_engine();
}

Test(engine_hazards, a_small_tensor_does_not_take_a_whole_large_block_that_is_only_busy) {
    open_engine(16 << 20);
    park(1); /* half of it */
    cr_assert_eq(full_of(session, DTYPE_U8, 2, 8 << 20, 0), STATUS_OK);
    cr_assert_eq(release(2), STATUS_OK);
    uint64_t before = session->ledger.payer.bytes;
    cr_assert_eq(full_of(session, DTYPE_U8, 3, 64, 0), STATUS_OK);
    cr_expect_leq(session->ledger.payer.bytes - before, 4096, "64 bytes cost %llu",
                  (unsigned long long)(session->ledger.payer.bytes - before));
    cr_expect_eq(full_of(session, DTYPE_U8, 4, 64, 0), STATUS_OK, "the second 64 bytes do not fit any more");
    unpark();
    cr_assert_eq(wait_for(0), STATUS_OK);
    close_engine();
}

Test(engine_hazards, live_bytes_never_exceed_the_sessions_limit) {
    struct session_limits small = {.bytes = 1 << 20, .tensors = 100000, .streams = 4};
    open_limited(64 << 20, &small);
    uint32_t random = 7;
    uint64_t live[32] = {0}, id = 0;
    for (int i = 0; i < 5000; i++) {
        random = random * 1664525 + 1013904223;
        unsigned slot = (random >> 8) % 32;
        if (live[slot])
            release(live[slot]);
        live[slot] = ++id;
        full_of(session, DTYPE_U8, id, 1 + (random >> 5) % 100000, 0);
        cr_assert_leq(session->ledger.payer.bytes, small.bytes, "step %d: %llu", i,
                      (unsigned long long)session->ledger.payer.bytes);
        cr_assert_leq(session->ledger.payer.peak, small.bytes);
        if (i % 64 == 0)
            engine_kick(engine);
    }
    cr_assert_eq(wait_for(0), STATUS_OK);
    close_engine();
}

Test(engine_hazards, peak_counts_only_what_was_had) {
    struct session_limits small = {.bytes = 1 << 30, .tensors = 100, .streams = 4};
    struct session_stats stats;
    open_limited(16 << 20, &small);
    cr_assert_eq(full_of(session, DTYPE_U8, 1, 10 << 20, 0), STATUS_OK);
    cr_assert_eq(full_of(session, DTYPE_U8, 2, 10 << 20, 0), STATUS_OUT_OF_MEMORY);
    session_stats(session, &stats);
    cr_assert_leq(stats.peak, 10 << 20);
    close_engine();
}

Test(engine_hazards, one_tensor_used_on_many_streams_is_freed_behind_all_of_them) {
    open_engine(64 << 20);
    for (uint32_t stream = 1; stream <= 16; stream++)
        open_stream(stream);
    cr_assert_eq(full_of(session, DTYPE_U8, 1, 1 << 20, 0), STATUS_OK);
    park(2);
    for (uint32_t stream = 1; stream <= 16; stream++)
        cr_assert_eq(unary(OP_NEGATIVE, 10 + stream, 1, stream), STATUS_OK, "stream %u", stream);
    const struct uses *uses = &session_tensor(session, 1)->storage->uses;
    cr_assert_leq(uses->count, USES_MAX);
    struct storage *storage = session_tensor(session, 1)->storage;
    cr_assert_eq(release(1), STATUS_OK);
    cr_assert_eq(storage->state, STORAGE_BINNED);
    cr_assert_not(uses_idle(&storage->uses));
    unpark();
    cr_assert_eq(wait_for(0), STATUS_OK);
    cr_assert(uses_idle(&storage->uses));
    close_engine();
}

/* ---- limits ---- */

Test(engine_hazards, ids_above_the_limit_of_tensors_do_not_pile_up) {
    struct session_limits few = {.tensors = 10, .streams = 1};
    open_limited(16 << 20, &few);
    int code = STATUS_OK;
    for (uint64_t id = 1; id <= 10000; id++)
        code = full(session, id, 1, 0);
    cr_assert_eq(code, STATUS_LIMIT);
    cr_assert_leq(session->tensors.count, 1000, "%zu ids are bound", session->tensors.count);
    close_engine();
}

Test(engine_hazards, take_along_axis_of_a_huge_broadcast_view_is_refused) {
    open_engine(64 << 20);
    cr_assert_eq(full_of(session, DTYPE_U8, 1, 1, 0), STATUS_OK);
    cr_assert_eq(apply(OP_BROADCAST_TO, 2, 1, (const uint64_t[]){1}, 2, (const int64_t[]){1, INT64_C(1) << 62}, 0, 0),
                 STATUS_OK);
    cr_assert_eq(full_of(session, DTYPE_I64, 3, 1024, 0), STATUS_OK);
    cr_assert_eq(apply(OP_RESHAPE, 4, 1, (const uint64_t[]){3}, 2, (const int64_t[]){1024, 1}, 0, 0), STATUS_OK);
    cr_assert_eq(wait_for(0), STATUS_OK);
    unsigned before = atomic_load(&device.launches);
    int code = apply(OP_TAKE_ALONG_AXIS, 5, 2, (const uint64_t[]){2, 4}, 1, (const int64_t[]){1}, 0, 0);
    cr_expect_neq(code, STATUS_OK, "2^72 elements were accepted, and NULL goes to the kernel");
    cr_assert_eq(wait_for(0), STATUS_OK);
    cr_expect_eq(atomic_load(&device.launches), before);
    close_engine();
}

Test(engine_hazards, an_empty_tensor_of_hostile_strides_is_reduced) {
    const int64_t big = INT64_C(1) << 61, none = OP_SLICE_NONE;
    open_engine(64 << 20);
    int64_t ints[5] = {DTYPE_BOOL, 0, 3, 0, big};
    double value = 0;
    cr_assert_eq(
        submit_in(session,
                  (struct op_request){
                      .opcode = OP_FULL, .n_ints = 5, .ints = ints, .n_floats = 1, .floats = &value, .output = 1}),
        STATUS_OK);
    const int64_t every_second[9] = {none, none, 2, none, none, 1, none, none, 1};
    cr_assert_eq(apply(OP_SLICE, 2, 1, (const uint64_t[]){1}, 9, every_second, 0, 0), STATUS_OK, "%s",
                 session->last_failure);
    cr_assert_eq(apply(OP_PERMUTE_DIMS, 3, 1, (const uint64_t[]){2}, 3, (const int64_t[]){1, 0, 2}, 0, 0), STATUS_OK);
    cr_assert_eq(apply(OP_ANY, 4, 1, (const uint64_t[]){3}, 1, (const int64_t[]){0}, 0, 0), STATUS_OK, "%s",
                 session->last_failure);
    cr_assert_eq(wait_for(4), STATUS_OK);
    close_engine();
}
