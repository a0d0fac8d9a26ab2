/* Ids, poison, and what a session says of bad requests. */
#include <criterion/criterion.h>
#include <string.h>

#include <inttypes.h>

#include "tests/device/suite.h"

/* A unary operation on the device alone, with both ids chosen by the test. */
static int submit_ids(struct suite *suite, unsigned opcode, uint64_t input, uint64_t output, const char *label) {
    struct op_request request = {.opcode = opcode,
                                 .n_inputs = 1,
                                 .inputs = &input,
                                 .output = output,
                                 .sequence = ++suite->sequence,
                                 .label = label};
    return session_submit(suite->session, &request);
}

static struct sample numbers(struct suite *suite, int64_t n) {
    return suite_sample(suite, DTYPE_F32, 1, &n, FILL_ORDINARY);
}

Test(ids, zero_is_no_id_for_a_result) {
    struct suite suite;
    suite_open(&suite, 1);
    struct sample x = numbers(&suite, 4);
    cr_assert_neq(submit_ids(&suite, OP_NEGATIVE, x.id, 0, NULL), STATUS_OK);
    cr_assert_neq(suite_outcome(&suite, 0, NULL), STATUS_OK);
    suite_check(&suite, &x);
    suite_close(&suite);
}

Test(ids, a_used_id_cannot_be_bound_again_and_keeps_its_value) {
    struct suite suite;
    suite_open(&suite, 1);
    struct sample x = numbers(&suite, 4), y = numbers(&suite, 6);
    cr_assert_eq(submit_ids(&suite, OP_NEGATIVE, x.id, y.id, NULL), STATUS_DUPLICATE_ID);
    cr_assert_eq(submit_ids(&suite, OP_NEGATIVE, y.id, x.id, NULL), STATUS_DUPLICATE_ID);
    suite_check(&suite, &x);
    suite_check(&suite, &y);
    suite_close(&suite);
}

Test(ids, a_freed_id_is_never_used_again) {
    struct suite suite;
    suite_open(&suite, 1);
    struct sample x = numbers(&suite, 4), y = numbers(&suite, 4);
    suite_release(&suite, x.id);
    cr_assert_eq(submit_ids(&suite, OP_NEGATIVE, y.id, x.id, NULL), STATUS_DUPLICATE_ID);
    cr_assert_eq(suite_outcome(&suite, x.id, NULL), STATUS_UNKNOWN_ID);
    suite_close(&suite);
}

Test(ids, ids_may_be_skipped_but_not_go_back) {
    struct suite suite;
    suite_open(&suite, 1);
    struct sample x = numbers(&suite, 4);
    cr_assert_eq(submit_ids(&suite, OP_NEGATIVE, x.id, 1000, NULL), STATUS_OK);
    cr_assert_eq(submit_ids(&suite, OP_NEGATIVE, x.id, 999, NULL), STATUS_DUPLICATE_ID);
    cr_assert_eq(suite_outcome(&suite, 1000, NULL), STATUS_OK);
    cr_assert_eq(submit_ids(&suite, OP_NEGATIVE, x.id, UINT64_MAX, NULL), STATUS_OK);
    cr_assert_eq(suite_outcome(&suite, UINT64_MAX, NULL), STATUS_OK);
    suite_close(&suite);
}

Test(ids, an_unknown_input_poisons_the_result_alone) {
    struct suite suite;
    struct failure failure;
    suite_open(&suite, 1);
    struct sample x = numbers(&suite, 4);
    uint64_t result = ++suite.next_id;
    cr_assert_eq(submit_ids(&suite, OP_NEGATIVE, 123456, result, "layer/bias"), STATUS_UNKNOWN_ID);
    cr_assert_eq(suite_outcome(&suite, result, &failure), STATUS_UNKNOWN_ID);
    cr_assert_str_eq(failure.operation, "negative");
    cr_assert_str_eq(failure.label, "layer/bias");
    cr_assert_eq(failure.sequence, suite.sequence);
    cr_assert(strstr(failure.message, "123456"), "the message names the id: %s", failure.message);
    suite_check(&suite, &x);
    suite_close(&suite);
}

Test(ids, an_operation_cannot_read_its_own_result) {
    struct suite suite;
    suite_open(&suite, 1);
    struct sample x = numbers(&suite, 4);
    uint64_t result = ++suite.next_id;
    cr_assert_eq(submit_ids(&suite, OP_NEGATIVE, result, result, NULL), STATUS_UNKNOWN_ID);
    cr_assert_eq(suite_outcome(&suite, result, NULL), STATUS_UNKNOWN_ID);
    suite_check(&suite, &x);
    suite_close(&suite);
}

Test(ids, poison_carries_the_first_cause_through_a_chain) {
    struct suite suite;
    struct failure failure;
    suite_open(&suite, 1);
    struct sample a = numbers(&suite, 4), b = numbers(&suite, 5);
    uint64_t sum, last, ids[] = {a.id, b.id};
    struct op_request bad = {.opcode = OP_ADD, .n_inputs = 2, .inputs = ids, .label = "first"};
    cr_assert_eq(suite_submit(&suite, &bad, &sum), STATUS_SHAPE);
    uint64_t first = suite.sequence;
    last = sum;
    for (int i = 0; i < 50; i++) {
        uint64_t inputs[] = {a.id, last};
        struct op_request next = {
            .opcode = i % 2 ? OP_MULTIPLY : OP_SUBTRACT, .n_inputs = 2, .inputs = inputs, .label = "later"};
        cr_assert_eq(suite_submit(&suite, &next, &last), STATUS_SHAPE);
    }
    cr_assert_eq(suite_outcome(&suite, last, &failure), STATUS_SHAPE);
    cr_assert_str_eq(failure.operation, "add");
    cr_assert_str_eq(failure.label, "first");
    cr_assert_eq(failure.sequence, first);
    struct session_stats stats;
    session_stats(suite.session, &stats);
    cr_assert_eq(stats.failures[STATUS_SHAPE], 1, "copies of a cause do not count: %lu",
                 (unsigned long)stats.failures[STATUS_SHAPE]);
    cr_assert(strstr(stats.last_failure, "add"), "%s", stats.last_failure);
    suite_close(&suite);
}

Test(ids, a_consumed_input_is_gone_whether_the_operation_works_or_fails) {
    struct suite suite;
    suite_open(&suite, 1);
    for (int works = 0; works < 2; works++) {
        struct sample a = numbers(&suite, 4), b = numbers(&suite, works ? 4 : 5);
        uint64_t result, ids[] = {a.id, b.id};
        struct op_request request = {.opcode = OP_ADD, .n_inputs = 2, .inputs = ids, .consume = 3};
        cr_assert_eq(suite_submit(&suite, &request, &result), works ? STATUS_OK : STATUS_SHAPE);
        cr_assert_eq(suite_outcome(&suite, a.id, NULL), STATUS_UNKNOWN_ID);
        cr_assert_eq(suite_outcome(&suite, b.id, NULL), STATUS_UNKNOWN_ID);
        cr_assert_eq(suite_outcome(&suite, result, NULL), works ? STATUS_OK : STATUS_SHAPE);
    }
    suite_close(&suite);
}

static int topk_of(struct suite *suite, uint64_t x, unsigned further, uint16_t consume, uint64_t *first) {
    static const int64_t ints[] = {2, 0, 1};
    return suite_submit(suite,
                        &(struct op_request){.opcode = OP_TOPK,
                                             .n_inputs = 1,
                                             .inputs = &x,
                                             .n_ints = 3,
                                             .ints = ints,
                                             .further = further,
                                             .consume = consume,
                                             .label = "best"},
                        first);
}

/* Fails because of the operation number `sequence`, as all that come from it. */
static void fails_by(struct suite *suite, uint64_t id, int code, uint64_t sequence) {
    struct failure failure;
    cr_assert_eq(suite_outcome(suite, id, &failure), code, "%" PRIu64, id);
    cr_assert_str_eq(failure.operation, "topk");
    cr_assert_str_eq(failure.label, "best");
    cr_assert_eq(failure.sequence, sequence);
}

Test(ids, all_outputs_of_a_failed_operation_have_one_cause) {
    struct suite suite;
    struct session_stats stats;
    uint64_t first, chain;
    suite_open(&suite, 1);
    struct sample one = numbers(&suite, 1), four = numbers(&suite, 4);
    cr_assert_eq(topk_of(&suite, one.id, 1, 1, &first), STATUS_INVALID_ARGUMENT, "two of one");
    uint64_t sequence = suite.sequence;
    uint64_t inputs[] = {four.id, first + 1};
    struct op_request take = {.opcode = OP_TAKE, .n_inputs = 2, .inputs = inputs, .n_ints = 1, .ints = (int64_t[]){0}};
    cr_assert_eq(suite_submit(&suite, &take, &chain), STATUS_INVALID_ARGUMENT);
    fails_by(&suite, first, STATUS_INVALID_ARGUMENT, sequence);
    fails_by(&suite, first + 1, STATUS_INVALID_ARGUMENT, sequence);
    fails_by(&suite, chain, STATUS_INVALID_ARGUMENT, sequence);
    cr_assert_eq(suite_outcome(&suite, one.id, NULL), STATUS_UNKNOWN_ID, "consumed all the same");
    session_stats(suite.session, &stats);
    cr_assert_eq(stats.failures[STATUS_INVALID_ARGUMENT], 1, "counted once");
    suite_close(&suite);
}

/* Whatever number of ids the client has counted is used up. */
Test(ids, an_operation_with_a_wrong_number_of_outputs_uses_up_those_that_were_meant) {
    struct suite suite;
    uint64_t first;
    suite_open(&suite, 1);
    struct sample x = numbers(&suite, 4);
    const unsigned numbers_of[] = {0, 2, OP_OUTPUTS_MAX - 1};
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(topk_of(&suite, x.id, numbers_of[i], 0, &first), STATUS_INVALID_ARGUMENT);
        for (unsigned j = 0; j <= numbers_of[i]; j++)
            fails_by(&suite, first + j, STATUS_INVALID_ARGUMENT, suite.sequence);
    }
    cr_assert_eq(topk_of(&suite, x.id, 1, 0, &first), STATUS_OK);
    cr_assert_eq(suite_outcome(&suite, first + 1, NULL), STATUS_OK);
    suite_close(&suite);
}

Test(ids, outputs_may_go_their_own_ways) {
    struct suite suite;
    struct session_stats before, after;
    uint64_t first;
    suite_open(&suite, 1);
    struct sample x = numbers(&suite, 4);
    session_stats(suite.session, &before);
    cr_assert_eq(topk_of(&suite, x.id, 1, 0, &first), STATUS_OK);
    suite_release(&suite, first);
    cr_assert_eq(suite_outcome(&suite, first, NULL), STATUS_UNKNOWN_ID);
    cr_assert_eq(suite_outcome(&suite, first + 1, NULL), STATUS_OK);
    suite_release(&suite, first + 1);
    session_stats(suite.session, &after);
    cr_assert_eq(after.live, before.live);
    cr_assert_eq(after.tensors, before.tensors);
    suite_close(&suite);
}

Test(ids, one_input_twice_may_be_consumed_twice) {
    struct suite suite;
    suite_open(&suite, 1);
    struct sample a = numbers(&suite, 33);
    struct sample want = suite_binary(&suite, OP_SUBTRACT, &a, &a);
    uint64_t result, ids[] = {a.id, a.id};
    struct op_request request = {.opcode = OP_SUBTRACT, .n_inputs = 2, .inputs = ids, .consume = 3};
    cr_assert_eq(suite_submit(&suite, &request, &result), STATUS_OK);
    struct sample twice = {.id = result,
                           .opcode = OP_SUBTRACT,
                           .values = values_copy(want.values),
                           .story = "subtract of one tensor with itself, consumed twice"};
    suite_check(&suite, &want);
    suite_check(&suite, &twice);
    suite_close(&suite);
}

Test(ids, freeing_what_is_not_there_harms_nothing) {
    struct suite suite;
    suite_open(&suite, 1);
    struct sample x = numbers(&suite, 4), y = numbers(&suite, 4);
    uint64_t none, ids[] = {x.id, 777, x.id, 0};
    cr_assert_eq(suite_submit(&suite, &(struct op_request){.opcode = OP_FREE, .n_inputs = 4, .inputs = ids}, &none),
                 STATUS_UNKNOWN_ID);
    cr_assert_eq(suite_outcome(&suite, x.id, NULL), STATUS_UNKNOWN_ID);
    suite_check(&suite, &y);
    suite_close(&suite);
}

Test(ids, two_sessions_do_not_see_each_other) {
    struct suite suite;
    suite_open(&suite, 1);
    struct suite other = {.engine = suite.engine, .seed = 2};
    struct fault fault;
    struct session_limits limits = {.tensors = 100, .streams = 4};
    cr_assert_eq(session_create(engine_sessions(suite.engine), &limits, &other.session, &fault), STATUS_OK);
    struct sample mine = numbers(&suite, 10), more = numbers(&suite, 10);
    struct sample theirs = numbers(&other, 20);
    uint64_t result;
    cr_assert_eq(mine.id, theirs.id);
    cr_assert_eq(
        suite_submit(&other, &(struct op_request){.opcode = OP_COPY, .n_inputs = 1, .inputs = &more.id}, &result),
        STATUS_UNKNOWN_ID);
    suite_release(&other, theirs.id);
    suite_check(&suite, &mine);
    session_destroy(other.session);
    suite_check(&suite, &mine);
    suite_check(&suite, &more);
    suite_close(&suite);
}

Test(ids, the_limit_of_tensors_is_an_error_and_room_comes_back) {
    struct suite suite;
    suite_open(&suite, 1);
    struct fault fault;
    struct session_limits limits = {.tensors = 8, .streams = 1};
    session_destroy(suite.session);
    cr_assert_eq(session_create(engine_sessions(suite.engine), &limits, &suite.session, &fault), STATUS_OK);
    suite.next_id = 0;
    struct sample x[8];
    for (int i = 0; i < 8; i++)
        x[i] = numbers(&suite, 3);
    uint64_t result;
    struct op_request request = {.opcode = OP_COPY, .n_inputs = 1, .inputs = &x[0].id};
    cr_assert_eq(suite_submit(&suite, &request, &result), STATUS_LIMIT);
    cr_assert_neq(suite_outcome(&suite, result, NULL), STATUS_OK);
    for (int i = 1; i < 4; i++) /* a refused id may or may not count itself */
        suite_release(&suite, x[i].id);
    suite_check(&suite, &x[0]);
    cr_assert_eq(suite_submit(&suite, &request, &result), STATUS_OK);
    cr_assert_eq(suite_outcome(&suite, result, NULL), STATUS_OK);
    suite_close(&suite);
}
