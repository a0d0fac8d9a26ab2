/* Streams: numbers, priorities, and tensors that cross from one to another. */
#include <criterion/criterion.h>

#include "tests/device/suite.h"

static int open_stream(struct suite *suite, uint32_t stream, int priority) {
    struct fault fault;
    return session_stream_open(suite->session, stream, priority, &fault);
}

Test(streams, any_priority_is_accepted_and_numbers_are_checked) {
    struct suite suite;
    struct fault fault;
    suite_open(&suite, 7);
    cr_assert_eq(open_stream(&suite, 1, 5), STATUS_OK);
    cr_assert_eq(open_stream(&suite, 2, -5), STATUS_OK);
    cr_assert_eq(open_stream(&suite, 3, INT32_MAX), STATUS_OK);
    cr_assert_eq(open_stream(&suite, 4, INT32_MIN), STATUS_OK);
    cr_assert_neq(open_stream(&suite, 2, 0), STATUS_OK, "2 is open");
    cr_assert_neq(open_stream(&suite, 0, 0), STATUS_OK, "0 is the default stream");
    cr_assert_neq(session_stream_close(suite.session, 9, &fault), STATUS_OK);
    cr_assert_neq(session_stream_close(suite.session, 0, &fault), STATUS_OK);
    for (uint32_t i = 0; i < 5; i++) {
        suite.stream = i;
        struct sample x = suite_sample(&suite, DTYPE_F32, 1, (int64_t[]){100}, FILL_ANY);
        struct sample y = suite_unary(&suite, OP_NEGATIVE, &x);
        suite_check(&suite, &y);
    }
    suite_close(&suite);
}

Test(streams, their_number_is_limited_and_closed_ones_make_room) {
    struct suite suite;
    struct fault fault;
    uint32_t opened = 0;
    suite_open(&suite, 7);
    while (open_stream(&suite, opened + 1, 0) == STATUS_OK)
        opened++;
    cr_assert_eq(opened, 16);
    cr_assert_eq(session_stream_close(suite.session, 3, &fault), STATUS_OK);
    cr_assert_eq(open_stream(&suite, 40, 0), STATUS_OK);
    cr_assert_eq(open_stream(&suite, 41, 0), STATUS_LIMIT);
    suite_close(&suite);
}

Test(streams, an_operation_on_no_stream_fails_by_itself) {
    struct suite suite;
    uint64_t id;
    suite_open(&suite, 7);
    struct sample x = suite_sample(&suite, DTYPE_F32, 1, (int64_t[]){100}, FILL_ANY);
    suite.stream = 77;
    struct op_request request = {.opcode = OP_NEGATIVE, .n_inputs = 1, .inputs = &x.id};
    cr_assert_neq(suite_submit(&suite, &request, &id), STATUS_OK);
    suite.stream = 0;
    cr_assert_neq(suite_outcome(&suite, id, NULL), STATUS_OK);
    suite_check(&suite, &x);
    suite_close(&suite);
}

Test(streams, what_is_queued_on_a_closed_one_still_runs) {
    struct suite suite;
    struct fault fault;
    suite_open(&suite, 7);
    for (int i = 0; i < 50; i++) {
        cr_assert_eq(open_stream(&suite, 1, 0), STATUS_OK);
        suite.stream = 1;
        struct sample x = suite_sample(&suite, DTYPE_I32, 2, (int64_t[]){40, 40}, FILL_ORDINARY);
        struct sample y = suite_binary(&suite, OP_MATMUL, &x, &x), z = suite_binary(&suite, OP_ADD, &y, &x);
        cr_assert_eq(session_stream_close(suite.session, 1, &fault), STATUS_OK);
        suite.stream = 0;
        struct sample w = suite_unary(&suite, OP_NEGATIVE, &z);
        suite_check(&suite, &w);
        suite_free(&suite, &x);
        suite_free(&suite, &y);
        suite_free(&suite, &z);
        suite_free(&suite, &w);
    }
    suite_close(&suite);
}

/* A slow producer on one stream, quick readers and a free on others: nobody may see the memory before or after its
 * time. */
Test(streams, memory_freed_on_one_is_not_reused_too_early_on_another, .timeout = 60) {
    struct suite suite;
    suite_open(&suite, 7);
    cr_assert_eq(open_stream(&suite, 1, 0), STATUS_OK);
    cr_assert_eq(open_stream(&suite, 2, 10), STATUS_OK);
    struct sample big = suite_sample(&suite, DTYPE_F32, 2, (int64_t[]){100, 100}, FILL_ORDINARY);
    for (int i = 0; i < SUITE_REPEAT(60); i++) {
        suite.stream = 1;
        struct sample slow = suite_binary(&suite, OP_MATMUL, &big, &big);
        suite.stream = 2;
        struct sample sign = suite_attributes(&suite, OP_CAST, &slow, SUITE_ATTRIBUTES(cast, .dtype = DTYPE_F64));
        suite_free(&suite, &slow);
        suite.stream = 0;
        struct sample other = suite_sample(&suite, DTYPE_F32, 2, (int64_t[]){100, 100}, FILL_ORDINARY);
        struct sample negative = suite_unary(&suite, OP_NEGATIVE, &other);
        sign.opcode = OP_MATMUL; /* it has the product's rounding errors */
        suite_check(&suite, &negative);
        suite_free(&suite, &negative);
        suite_free(&suite, &other);
        suite_free(&suite, &sign);
    }
    suite_close(&suite);
}

Test(streams, an_in_place_operation_waits_for_readers_on_other_streams, .timeout = 60) {
    struct suite suite;
    suite_open(&suite, 7);
    cr_assert_eq(open_stream(&suite, 1, -10), STATUS_OK);
    for (int i = 0; i < SUITE_REPEAT(60); i++) {
        suite.stream = 0;
        struct sample x = suite_sample(&suite, DTYPE_I32, 2, (int64_t[]){60, 60}, FILL_ORDINARY);
        suite.stream = 1;
        struct sample reader = suite_binary(&suite, OP_MATMUL, &x, &x);
        suite.stream = 0;
        const struct sample *input = &x;
        struct sample written = suite_run(
            &suite, &(struct suite_call){.opcode = OP_NEGATIVE, .n_inputs = 1, .inputs = &input, .consume = 1});
        suite_check(&suite, &reader);
        suite_check(&suite, &written);
        suite_forget(&x);
        suite_free(&suite, &reader);
        suite_free(&suite, &written);
    }
    suite_close(&suite);
}
