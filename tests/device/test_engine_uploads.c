/* Uploads that are late, and fetches and waits that are many, cancelled or orphaned. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/device/suite.h"

static void begin(struct suite *suite, const struct values *values, bool waitable, struct upload *upload,
                  uint64_t *id) {
    struct tensor_type type = {.dtype = values->dtype, .rank = values->rank};
    memcpy(type.shape, values->shape, sizeof values->shape);
    *id = ++suite->next_id;
    struct upload_request request = {.id = *id,
                                     .type = &type,
                                     .stream = suite->stream,
                                     .label = "input",
                                     .sequence = ++suite->sequence,
                                     .waitable = waitable};
    cr_assert_eq(session_upload(suite->session, &request, upload), STATUS_OK);
}

static struct values *random_values(struct suite *suite, int64_t n) {
    struct values *values = values_create(DTYPE_F32, 1, &n);
    suite_fill(suite, values, FILL_ORDINARY);
    return values;
}

static int negate(struct suite *suite, uint64_t input, uint64_t *output) {
    return suite_submit(suite, &(struct op_request){.opcode = OP_NEGATIVE, .n_inputs = 1, .inputs = &input}, output);
}

Test(uploads, using_one_before_its_bytes_are_there_fails) {
    struct suite suite;
    uint64_t id, early, late;
    suite_open(&suite, 5);
    struct values *values = random_values(&suite, 100);
    struct upload upload;
    begin(&suite, values, false, &upload, &id);
    cr_assert_neq(negate(&suite, id, &early), STATUS_OK);
    cr_assert_neq(suite_outcome(&suite, early, NULL), STATUS_OK);
    suite_deliver(&upload, values);
    upload_finish(&upload, NULL);
    cr_assert_eq(negate(&suite, id, &late), STATUS_OK);
    struct sample x = {.id = id, .opcode = OP_COPY, .values = values, .story = "upload"};
    suite_check(&suite, &x);
    cr_assert_eq(suite_outcome(&suite, late, NULL), STATUS_OK);
    suite_close(&suite);
}

Test(uploads, one_that_fails_poisons_its_id_with_the_cause) {
    struct suite suite;
    struct failure failure;
    uint64_t id, after;
    suite_open(&suite, 5);
    struct values *values = random_values(&suite, 100);
    struct upload upload;
    begin(&suite, values, false, &upload, &id);
    const struct failure cause = {.code = STATUS_CONNECTION, .message = "the sender went away"};
    upload_finish(&upload, &cause);
    cr_assert_eq(negate(&suite, id, &after), STATUS_CONNECTION);
    cr_assert_eq(suite_outcome(&suite, after, &failure), STATUS_CONNECTION);
    cr_assert(strstr(failure.message, "the sender went away"), "%s", failure.message);
    suite_close(&suite);
}

Test(uploads, operations_wait_for_a_waitable_one) {
    struct suite suite;
    uint64_t id;
    suite_open(&suite, 5);
    struct values *values = random_values(&suite, 5000);
    struct upload upload;
    begin(&suite, values, true, &upload, &id);
    struct sample x = {.id = id, .opcode = OP_COPY, .values = values, .story = "waitable upload"};
    struct sample y = suite_unary(&suite, OP_NEGATIVE, &x), z = suite_binary(&suite, OP_ADD, &x, &y);
    struct suite_fetch fetch;
    suite_fetch_start(&suite, z.id, &fetch);
    engine_kick(suite.engine);
    engine_poll(suite.engine);
    cr_assert_not(fetch.done, "nothing can be there yet");
    suite_deliver(&upload, values);
    upload_finish(&upload, NULL);
    suite_fetch_wait(&suite, &fetch);
    cr_assert_not(fetch.failed);
    fetch_release(&fetch.fetch);
    suite_check(&suite, &y);
    suite_check(&suite, &z);
    suite_check(&suite, &x);
    suite_close(&suite);
}

Test(uploads, a_waitable_one_that_fails_passes_its_cause_on) {
    struct suite suite;
    struct failure failure;
    uint64_t id, y, z;
    suite_open(&suite, 5);
    struct values *values = random_values(&suite, 500);
    struct sample other = suite_sample(&suite, DTYPE_F32, 1, (int64_t[]){500}, FILL_ORDINARY);
    struct upload upload;
    begin(&suite, values, true, &upload, &id);
    cr_assert_eq(negate(&suite, id, &y), STATUS_OK);
    cr_assert_eq(negate(&suite, y, &z), STATUS_OK);
    struct suite_fetch fetch;
    suite_fetch_start(&suite, z, &fetch);
    engine_kick(suite.engine);
    const struct failure cause = {.code = STATUS_DEVICE_LOST, .message = "cpu:1 was lost"};
    upload_finish(&upload, &cause);
    suite_fetch_wait(&suite, &fetch);
    cr_assert(fetch.failed);
    cr_assert_eq(fetch.failure.code, STATUS_DEVICE_LOST);
    fetch_release(&fetch.fetch);
    cr_assert_eq(suite_outcome(&suite, y, &failure), STATUS_DEVICE_LOST);
    cr_assert(strstr(failure.message, "cpu:1 was lost"), "%s", failure.message);
    cr_assert_eq(suite_outcome(&suite, id, NULL), STATUS_DEVICE_LOST);
    suite_check(&suite, &other);
    suite_close(&suite);
}

Test(uploads, an_id_may_be_freed_while_it_is_uploaded) {
    struct suite suite;
    suite_open(&suite, 5);
    for (int waitable = 0; waitable < 2; waitable++) {
        uint64_t id;
        struct values *values = random_values(&suite, 5000);
        struct upload upload;
        begin(&suite, values, waitable, &upload, &id);
        suite_release(&suite, id);
        suite_deliver(&upload, values);
        upload_finish(&upload, NULL);
        cr_assert_eq(suite_outcome(&suite, id, NULL), STATUS_UNKNOWN_ID);
        values_destroy(values);
    }
    suite_sync(&suite);
    struct session_stats stats;
    session_stats(suite.session, &stats);
    cr_assert_eq(stats.live, 0);
    suite_close(&suite);
}

Test(uploads, a_session_may_end_in_the_middle_of_some) {
    struct suite suite;
    uint64_t a, b, c;
    suite_open(&suite, 5);
    struct values *values = random_values(&suite, 5000);
    struct upload plain, late;
    begin(&suite, values, false, &plain, &a);
    begin(&suite, values, true, &late, &b);
    cr_assert_eq(negate(&suite, b, &c), STATUS_OK);
    engine_kick(suite.engine);
    session_destroy(suite.session);
    suite.session = NULL;
    struct engine_stats stats;
    engine_stats(suite.engine, &stats);
    cr_assert_eq(stats.memory_live, 0);
    values_destroy(values);
    suite_close(&suite);
}

/* ---- fetches ---- */

/* Something that takes a while, many times over. */
static struct sample deep_queue(struct suite *suite, int depth) {
    struct sample x = suite_sample(suite, DTYPE_F32, 2, (int64_t[]){64, 64}, FILL_ORDINARY);
    uint64_t last = x.id;
    for (int i = 0; i < depth; i++) {
        uint64_t ids[] = {last, x.id}, next;
        cr_assert_eq(
            suite_submit(suite,
                         &(struct op_request){
                             .opcode = OP_MATMUL, .n_inputs = 2, .inputs = ids, .consume = last == x.id ? 0 : 1},
                         &next),
            STATUS_OK);
        last = next;
    }
    struct sample deep = {.id = last};
    suite_forget(&x);
    return deep;
}

Test(fetches, one_tensor_may_be_fetched_many_times_at_once) {
    struct suite suite;
    struct suite_fetch fetches[64];
    suite_open(&suite, 6);
    struct sample x = suite_view(&suite, DTYPE_F32, 2, (int64_t[]){30, 40}, FILL_ANY);
    for (int i = 0; i < 64; i++)
        suite_fetch_start(&suite, x.id, &fetches[i]);
    for (int i = 0; i < 64; i++) {
        suite_fetch_wait(&suite, &fetches[i]);
        cr_assert_not(fetches[i].failed);
        cr_assert_eq(memcmp(fetches[i].fetch.data, fetches[0].fetch.data, (size_t)fetches[0].fetch.bytes), 0);
    }
    for (int i = 0; i < 64; i++)
        fetch_release(&fetches[i].fetch);
    suite_check(&suite, &x);
    suite_close(&suite);
}

Test(fetches, a_value_stays_while_it_is_held_even_after_a_free) {
    struct suite suite;
    struct suite_fetch fetch;
    suite_open(&suite, 6);
    struct sample x = suite_sample(&suite, DTYPE_I64, 1, (int64_t[]){2000}, FILL_ANY);
    struct values *want = values_copy(x.values), *got = values_copy(x.values);
    suite_fetch_start(&suite, x.id, &fetch);
    suite_fetch_wait(&suite, &fetch);
    suite_free(&suite, &x);
    for (int i = 0; i < 20; i++) {
        struct sample other = suite_sample(&suite, DTYPE_I64, 1, (int64_t[]){2000}, FILL_ANY);
        suite_sync(&suite);
        suite_free(&suite, &other);
    }
    values_decode(got, fetch.fetch.data);
    cr_assert_eq(memcmp(got->i, want->i, 2000 * sizeof *got->i), 0);
    fetch_release(&fetch.fetch);
    values_destroy(got);
    values_destroy(want);
    suite_close(&suite);
}

Test(fetches, a_consumed_tensor_whose_value_is_held_is_not_written_over) {
    struct suite suite;
    struct suite_fetch fetch;
    suite_open(&suite, 6);
    struct sample x = suite_sample(&suite, DTYPE_I64, 1, (int64_t[]){2000}, FILL_ANY);
    struct values *got = values_copy(x.values);
    suite_fetch_start(&suite, x.id, &fetch);
    uint64_t result;
    cr_assert_eq(suite_submit(&suite,
                              &(struct op_request){.opcode = OP_NEGATIVE, .n_inputs = 1, .inputs = &x.id, .consume = 1},
                              &result),
                 STATUS_OK);
    cr_assert_eq(suite_outcome(&suite, result, NULL), STATUS_OK);
    suite_fetch_wait(&suite, &fetch);
    values_decode(got, fetch.fetch.data);
    cr_assert_eq(memcmp(got->i, x.values->i, 2000 * sizeof *got->i), 0);
    fetch_release(&fetch.fetch);
    values_destroy(got);
    suite_close(&suite);
}

Test(fetches, one_that_is_released_early_is_never_answered) {
    struct suite suite;
    struct suite_fetch fetches[20];
    suite_open(&suite, 6);
    struct sample deep = deep_queue(&suite, SUITE_REPEAT(2000));
    for (int i = 0; i < 20; i++)
        suite_fetch_start(&suite, deep.id, &fetches[i]);
    engine_kick(suite.engine);
    bool answered = fetches[0].done;
    for (int i = 0; i < 20; i += 2)
        fetch_release(&fetches[i].fetch);
    suite_fetch_wait(&suite, &fetches[19]);
    suite_sync(&suite);
    for (int i = 0; i < 20; i++) {
        cr_assert_eq(fetches[i].done, i % 2 ? true : answered, "fetch %d", i);
        if (i % 2)
            fetch_release(&fetches[i].fetch);
    }
    suite_close(&suite);
}

Test(fetches, a_session_may_end_with_much_queued_and_much_pending) {
    struct suite suite;
    static struct suite_fetch fetches[200];
    suite_open(&suite, 6);
    for (int round = 0; round < 5; round++) {
        struct sample deep = deep_queue(&suite, 400);
        for (int i = 0; i < 200; i++)
            suite_fetch_start(&suite, deep.id, &fetches[i]);
        if (round % 2)
            engine_kick(suite.engine);
        suite_restart(&suite);
        struct engine_stats stats;
        engine_stats(suite.engine, &stats);
        cr_assert_eq(stats.memory_live, 0, "round %d: %lu bytes are left", round, (unsigned long)stats.memory_live);
    }
    struct sample x = suite_sample(&suite, DTYPE_F32, 1, (int64_t[]){100}, FILL_ANY);
    struct sample y = suite_unary(&suite, OP_NEGATIVE, &x);
    suite_check(&suite, &y);
    suite_close(&suite);
}

struct counted_wait {
    struct wait wait;
    int calls;
    int code;
};

static void counted_done(struct wait *wait, const struct failure *failure) {
    struct counted_wait *self = (struct counted_wait *)wait;
    self->calls++;
    self->code = failure ? (int)failure->code : STATUS_OK;
}

Test(waits, each_is_answered_once_and_tells_the_cause) {
    struct suite suite;
    struct counted_wait good = {.wait.done = counted_done}, bad = good, all = good, none = good, cancelled = good;
    uint64_t failed;
    suite_open(&suite, 6);
    struct sample deep = deep_queue(&suite, 500);
    uint64_t ids[] = {deep.id, 4242};
    suite_submit(&suite, &(struct op_request){.opcode = OP_ADD, .n_inputs = 2, .inputs = ids}, &failed);
    session_wait(suite.session, deep.id, &good.wait);
    session_wait(suite.session, failed, &bad.wait);
    session_wait(suite.session, 0, &all.wait);
    session_wait(suite.session, 4242, &none.wait);
    session_wait(suite.session, deep.id, &cancelled.wait);
    int before = cancelled.calls;
    wait_cancel(&cancelled.wait);
    engine_kick(suite.engine);
    while (!good.calls || !bad.calls || !all.calls || !none.calls)
        engine_wait(suite.engine);
    suite_sync(&suite);
    cr_assert(good.calls == 1 && bad.calls == 1 && all.calls == 1 && none.calls == 1);
    cr_assert_eq(cancelled.calls, before);
    cr_assert_eq(good.code, STATUS_OK);
    cr_assert_eq(bad.code, STATUS_UNKNOWN_ID);
    cr_assert_eq(all.code, STATUS_OK);
    cr_assert_eq(none.code, STATUS_UNKNOWN_ID);
    suite_close(&suite);
}

static void room_came(void *owner) {
    ++*(int *)owner;
}

Test(waits, room_is_told_once) {
    struct suite suite;
    int calls = 0;
    suite_open(&suite, 6);
    deep_queue(&suite, 1000);
    session_notify_drained(suite.session, 10, room_came, &calls);
    suite_sync(&suite);
    for (int i = 0; i < 100 && !calls; i++)
        engine_poll(suite.engine);
    cr_assert_eq(calls, 1);
    deep_queue(&suite, 1000);
    session_notify_drained(suite.session, 10, room_came, &calls);
    session_notify_drained(suite.session, 0, NULL, NULL);
    suite_sync(&suite);
    engine_poll(suite.engine);
    cr_assert_eq(calls, 1, "it was taken back");
    cr_assert_eq(session_queued(suite.session), 0);
    suite_close(&suite);
}
