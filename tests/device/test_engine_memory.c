/* Accounts of memory, its limits, and views that outlive their bases. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/device/suite.h"

enum { MIB = 1 << 20 };

static uint64_t engine_live(struct suite *suite) {
    struct engine_stats stats;
    engine_stats(suite->engine, &stats);
    return stats.memory_live;
}

static struct session_stats account(struct suite *suite) {
    struct session_stats stats;
    session_stats(suite->session, &stats);
    return stats;
}

static int full(struct suite *suite, int64_t floats, uint64_t *id) {
    int64_t ints[] = {DTYPE_F32, 0, floats};
    double value = 1;
    return suite_submit(
        suite, &(struct op_request){.opcode = OP_FULL, .n_ints = 3, .ints = ints, .n_floats = 1, .floats = &value}, id);
}

Test(memory, live_bytes_follow_tensors_and_end_at_zero) {
    struct suite suite;
    suite_open(&suite, 3);
    cr_assert_eq(engine_live(&suite), 0);
    uint64_t a, b;
    cr_assert_eq(full(&suite, MIB / 4, &a), STATUS_OK);
    cr_assert_eq(full(&suite, MIB / 2, &b), STATUS_OK);
    cr_assert_geq(account(&suite).live, 3 * MIB);
    cr_assert_leq(account(&suite).live, 3 * MIB + 8192);
    cr_assert_eq(account(&suite).tensors, 2);
    suite_release(&suite, a);
    suite_release(&suite, b);
    suite_sync(&suite);
    cr_assert_eq(account(&suite).live, 0);
    cr_assert_eq(account(&suite).tensors, 0);
    cr_assert_geq(account(&suite).peak, 3 * MIB);
    cr_assert_eq(engine_live(&suite), 0);
    suite_close(&suite);
}

Test(memory, a_session_gives_everything_back_at_its_end) {
    struct suite suite;
    suite_open(&suite, 3);
    uint64_t id;
    for (int i = 0; i < 20; i++)
        cr_assert_eq(full(&suite, MIB / 4, &id), STATUS_OK);
    session_destroy(suite.session);
    suite.session = NULL;
    cr_assert_eq(engine_live(&suite), 0);
    struct engine_stats stats;
    engine_stats(suite.engine, &stats);
    cr_assert_eq(stats.sessions, 0);
    cr_assert_geq(stats.memory_peak, 20u * MIB);
    suite_close(&suite);
}

Test(memory, out_of_memory_names_the_numbers_and_the_session_goes_on) {
    struct suite suite;
    struct failure failure;
    suite_open_limited(&suite, 3, 32 * MIB, 0);
    uint64_t kept, refused, again;
    cr_assert_eq(full(&suite, 5 * MIB, &kept), STATUS_OK);
    cr_assert_eq(full(&suite, 4 * MIB, &refused), STATUS_OUT_OF_MEMORY);
    cr_assert_eq(suite_outcome(&suite, refused, &failure), STATUS_OUT_OF_MEMORY);
    cr_assert(strstr(failure.message, "16777216"), "it names the bytes asked for: %s", failure.message);
    cr_assert(strstr(failure.message, "20971520"), "it names the bytes in use: %s", failure.message);
    cr_assert(strstr(failure.message, "33554432"), "it names the limit: %s", failure.message);
    cr_assert_str_eq(failure.operation, "full");
    cr_assert_eq(suite_outcome(&suite, kept, NULL), STATUS_OK);
    suite_release(&suite, kept);
    cr_assert_eq(full(&suite, 4 * MIB, &again), STATUS_OK, "freed memory can be taken again");
    cr_assert_eq(suite_outcome(&suite, again, NULL), STATUS_OK);
    suite_close(&suite);
}

Test(memory, what_no_memory_could_hold_is_refused) {
    struct suite suite;
    suite_open_limited(&suite, 3, 32 * MIB, 0);
    uint64_t id;
    cr_assert_neq(full(&suite, INT64_MAX, &id), STATUS_OK);
    cr_assert_neq(full(&suite, INT64_MAX / 4, &id), STATUS_OK);
    cr_assert_eq(full(&suite, (int64_t)1 << 40, &id), STATUS_OUT_OF_MEMORY);
    struct sample x = suite_sample(&suite, DTYPE_F32, 0, NULL, FILL_ANY);
    int64_t wide[] = {1 << 20, 1 << 20};
    uint64_t view, copy;
    struct op_request broadcast = {
        .opcode = OP_BROADCAST_TO, .n_inputs = 1, .inputs = &x.id, .n_ints = 2, .ints = wide};
    cr_assert_eq(suite_submit(&suite, &broadcast, &view), STATUS_OK, "a view of one number needs no memory");
    struct op_request contiguous = {.opcode = OP_COPY, .n_inputs = 1, .inputs = &view};
    cr_assert_eq(suite_submit(&suite, &contiguous, &copy), STATUS_OUT_OF_MEMORY);
    cr_assert_eq(suite_outcome(&suite, view, NULL), STATUS_OUT_OF_MEMORY, "its value does not fit either");
    suite_check(&suite, &x);
    suite_close(&suite);
}

Test(memory, a_quota_holds_its_session_alone) {
    struct suite suite;
    suite_open_limited(&suite, 3, 0, 8 * MIB);
    struct session *other;
    struct session_limits limits = {.tensors = 10, .streams = 1};
    struct failure failure;
    struct fault fault;
    uint64_t a, b, c;
    cr_assert_eq(session_create(suite.engine, &limits, &other, &fault), STATUS_OK);
    cr_assert_eq(full(&suite, MIB, &a), STATUS_OK);
    int code = full(&suite, 2 * MIB, &b);
    cr_assert(code == STATUS_LIMIT || code == STATUS_OUT_OF_MEMORY, "got %s", status_name(code));
    cr_assert_eq(suite_outcome(&suite, b, &failure), code);
    cr_assert(strstr(failure.message, "8388608"), "it names each number: %s", failure.message);
    suite_release(&suite, a);
    cr_assert_eq(full(&suite, 2 * MIB - 4096, &c), STATUS_OK);
    struct suite neighbour = {.engine = suite.engine, .session = other};
    cr_assert_eq(full(&neighbour, 4 * MIB, &c), STATUS_OK);
    cr_assert_eq(suite_outcome(&neighbour, c, NULL), STATUS_OK);
    session_destroy(other);
    suite_close(&suite);
}

Test(memory, an_upload_over_the_limit_is_poisoned_and_takes_no_bytes) {
    struct suite suite;
    suite_open_limited(&suite, 3, 16 * MIB, 0);
    struct tensor_type type = {.dtype = DTYPE_F64, .rank = 1, .shape = {8 * MIB}};
    struct upload upload;
    struct upload_request request = {
        .id = ++suite.next_id, .type = &type, .sequence = ++suite.sequence, .label = "big"};
    struct failure failure;
    cr_assert_eq(session_upload(suite.session, &request, &upload), STATUS_OUT_OF_MEMORY);
    cr_assert_eq(upload.bytes, 0);
    cr_assert_eq(suite_outcome(&suite, request.id, &failure), STATUS_OUT_OF_MEMORY);
    cr_assert_str_eq(failure.label, "big");
    struct sample x = suite_sample(&suite, DTYPE_F64, 1, (int64_t[]){1000}, FILL_ANY);
    suite_check(&suite, &x);
    suite_close(&suite);
}

Test(memory, a_view_keeps_its_storage) {
    struct suite suite;
    suite_open(&suite, 3);
    struct sample base = suite_sample(&suite, DTYPE_I32, 2, (int64_t[]){100, 50}, FILL_ANY);
    struct sample row =
        suite_attributes(&suite, OP_SLICE, &base, 6, (int64_t[]){7, 8, 1, OP_SLICE_NONE, OP_SLICE_NONE, -1});
    struct sample again = suite_attributes(&suite, OP_PERMUTE_DIMS, &row, 2, (int64_t[]){1, 0});
    uint64_t live = account(&suite).live;
    suite_free(&suite, &base);
    suite_free(&suite, &row);
    cr_assert_eq(account(&suite).live, live, "the view holds all of it");
    for (int i = 0; i < 50; i++) {
        struct sample other = suite_sample(&suite, DTYPE_I32, 2, (int64_t[]){100, 50}, FILL_ANY);
        suite_check(&suite, &again);
        suite_free(&suite, &other);
    }
    suite_free(&suite, &again);
    suite_sync(&suite);
    cr_assert_eq(account(&suite).live, 0);
    suite_close(&suite);
}

Test(memory, failed_operations_hold_nothing) {
    struct suite suite;
    suite_open(&suite, 3);
    struct sample a = suite_sample(&suite, DTYPE_F32, 2, (int64_t[]){30, 40}, FILL_ANY);
    uint64_t live = account(&suite).live, id, ids[] = {a.id, a.id};
    for (int i = 0; i < 1000; i++)
        cr_assert_eq(suite_submit(&suite, &(struct op_request){.opcode = OP_MATMUL, .n_inputs = 2, .inputs = ids}, &id),
                     STATUS_SHAPE);
    cr_assert_eq(account(&suite).live, live);
    suite_close(&suite);
}

/* Sizes and lives at random: every block must keep its contents while others come and go. */
Test(memory, blocks_keep_their_contents_while_others_come_and_go, .timeout = 120) {
    struct suite suite;
    struct sample held[64] = {0};
    suite_open_limited(&suite, 3, 24 * MIB, 0);
    for (int i = 0; i < SUITE_REPEAT(4000); i++) {
        struct sample *slot = &held[suite_below(&suite, 64)];
        if (slot->values) {
            if (suite_chance(&suite, 20))
                suite_check(&suite, slot);
            suite_free(&suite, slot);
            continue;
        }
        int64_t n = (int64_t)1 << suite_below(&suite, 17);
        n += suite_below(&suite, n);
        double none[] = {0, 0, 0};
        struct suite_call call = {.opcode = OP_ARANGE,
                                  .n_ints = 4,
                                  .ints = (int64_t[]){DTYPE_I32, i, i + n % 8192 + 1, 1},
                                  .n_floats = 3,
                                  .floats = none};
        *slot = suite_run(&suite, &call);
    }
    for (int i = 0; i < 64; i++)
        if (held[i].values) {
            suite_check(&suite, &held[i]);
            suite_free(&suite, &held[i]);
        }
    suite_sync(&suite);
    cr_assert_eq(account(&suite).live, 0);
    suite_close(&suite);
}
