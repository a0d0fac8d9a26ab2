/* Tenants: several sessions that share an account of memory and a share of the device's turns. */
#include <stdlib.h>

#include "engine/memory/tenant.h"
#include "engine/order/turns.h"
#include "tests/unit/engine_fixture.h"

enum { MIB = 1 << 20, ORDER_MAX = 64 };

static struct tenant *tenant_of(const char *name, struct tenant_limits of) {
    struct tenant *tenant;
    struct fault fault;
    cr_assert_eq(tenant_create(engine_memory(engine), name, &of, &tenant, &fault), STATUS_OK);
    return tenant;
}

static struct session *session_of(struct tenant *tenant) {
    struct session_limits of = limits;
    struct session *made;
    struct fault fault;
    of.tenant = tenant;
    cr_assert_eq(session_create(engine_sessions(engine), &of, &made, &fault), STATUS_OK);
    return made;
}

/* ---- turns ---- */

/* However long it was away, and whatever the others have had meanwhile. */
Test(engine_tenants, share_that_comes_back_is_not_behind_those_that_stayed) {
    static struct run_queue run;
    static struct run_share shares[2];
    static struct run_group groups[2];
    static struct stream streams[2];
    struct run_share *share;
    for (int i = 0; i < 2; i++) {
        turns_reset(&run, &shares[i], i ? 1 : SHARE_WEIGHT_DEFAULT);
        groups[i].share = &shares[i];
        streams[i].group = &groups[i];
    }
    for (int day = 0; day < 1000; day++) {
        turns_enqueue(&run, &streams[1]);
        cr_assert_eq(turns_begin(&run, &share), &streams[1]);
        turns_end(&run, share, UINT64_MAX);
    }
    turns_enqueue(&run, &streams[1]);
    turns_enqueue(&run, &streams[0]);
    cr_expect_eq(turns_begin(&run, &share), &streams[0]);
    turns_end(&run, share, 1);
    cr_expect_eq(turns_begin(&run, &share), &streams[1]);
}

static struct {
    char order[ORDER_MAX + 1];
    _Atomic unsigned count;
} ran;

/* Each heavy operation is a turn by itself, and tells by its value whose it is. */
static int order_hook(struct null_device *null, const struct launch *launch) {
    if (launch->attributes.n_floats == 1 && launch->attributes.floats[0] != 0 && ran.count < ORDER_MAX)
        ran.order[ran.count++] = (char)launch->attributes.floats[0];
    return gate_hook(null, launch);
}

static void open_turns(void) {
    open_engine(256 << 20);
    device.hook = order_hook;
    ran.count = 0;
    memset(ran.order, 0, sizeof ran.order);
}

/* `count` operations of some milliseconds each, into memory that is used again and again. */
static void enqueue(struct session *in, char letter, uint64_t first, int count) {
    for (uint64_t id = first; id < first + (uint64_t)count; id++) {
        cr_assert_eq(submit_in(in, REQUEST_FULL(DTYPE_U8, 8 * MIB, letter, .output = id)), STATUS_OK);
        submit_in(in, (struct op_request){.opcode = OP_FREE, .n_inputs = 1, .inputs = &id});
    }
    engine_kick(engine);
}

static void drained(struct session *in) {
    struct answer answer = {.wait.done = answer_wait, .code = -1};
    session_wait(in, 0, &answer.wait);
    cr_assert(settle(&answer.times) && answer.code == STATUS_OK);
}

static void expect_order(const char *order) {
    cr_assert_str_eq(ran.order, order);
}

Test(engine_tenants, turns_follow_the_weights) {
    open_turns();
    struct tenant *a = tenant_of("a", (struct tenant_limits){.weight = 400});
    struct tenant *b = tenant_of("b", (struct tenant_limits){.weight = 100});
    struct session *of_a = session_of(a), *of_b = session_of(b);
    park(1);
    enqueue(of_a, 'a', 1, 13);
    enqueue(of_b, 'b', 1, 5);
    unpark();
    drained(of_a), drained(of_b);
    expect_order("abaaabaaaabaaaabab"); /* four to one while both have something, then what is left */
    session_destroy(of_a), session_destroy(of_b);
    tenant_destroy(a), tenant_destroy(b);
    close_engine();
}

Test(engine_tenants, more_sessions_are_no_larger_share) {
    open_turns();
    struct tenant *a = tenant_of("a", (struct tenant_limits){0}), *b = tenant_of("b", (struct tenant_limits){0});
    struct session *first = session_of(a), *second = session_of(a), *of_b = session_of(b);
    park(1);
    enqueue(first, '1', 1, 3);
    enqueue(second, '2', 1, 3);
    enqueue(of_b, 'b', 1, 6);
    unpark();
    drained(first), drained(second), drained(of_b);
    expect_order("1b2b1b2b1b2b");
    session_destroy(first), session_destroy(second), session_destroy(of_b);
    tenant_destroy(a), tenant_destroy(b);
    close_engine();
}

/* From the ninth turn on, neither is ever more than two turns ahead of the other. Which of two that are even comes first depends on
 * how the owner's thread has published what it enqueued, and so on the machine. */
static void expect_even(void) {
    int ahead = 0;
    cr_assert_eq(ran.count, 16);
    for (unsigned i = 0; i < 16; i++) {
        if (i < 8)
            cr_assert_eq(ran.order[i], 'a', "%s", ran.order);
        else
            ahead += ran.order[i] == 'a' ? 1 : -1;
        cr_assert(ahead >= -2 && ahead <= 2, "%s", ran.order);
    }
    cr_assert_eq(ahead, 0, "%s", ran.order);
}

Test(engine_tenants, who_paused_has_nothing_saved_up) {
    open_turns();
    struct tenant *a = tenant_of("a", (struct tenant_limits){0}), *b = tenant_of("b", (struct tenant_limits){0});
    struct session *of_a = session_of(a), *of_b = session_of(b);
    enqueue(of_a, 'a', 1, 8);
    drained(of_a);
    park(1);
    enqueue(of_a, 'a', 9, 4);
    enqueue(of_b, 'b', 1, 4);
    unpark();
    drained(of_a), drained(of_b);
    expect_even();
    session_destroy(of_a), session_destroy(of_b);
    tenant_destroy(a), tenant_destroy(b);
    close_engine();
}

Test(engine_tenants, a_new_weight_holds_from_the_next_turn_on) {
    open_turns();
    struct tenant *a = tenant_of("a", (struct tenant_limits){0}), *b = tenant_of("b", (struct tenant_limits){0});
    struct session *of_a = session_of(a), *of_b = session_of(b);
    park(1);
    enqueue(of_a, 'a', 1, 7);
    enqueue(of_b, 'b', 1, 4);
    tenant_set_limits(a, &(struct tenant_limits){.weight = 200});
    unpark();
    drained(of_a), drained(of_b);
    expect_order("ababaabaaba"); /* two to one */
    session_destroy(of_a), session_destroy(of_b);
    tenant_destroy(a), tenant_destroy(b);
    close_engine();
}

Test(engine_tenants, sessions_that_belong_to_none_take_turns_one_by_one) {
    open_turns();
    struct session *first = session_of(NULL), *second = session_of(NULL);
    park(1);
    enqueue(first, '1', 1, 4);
    enqueue(second, '2', 1, 4);
    unpark();
    drained(first), drained(second);
    expect_order("12121212");
    session_destroy(first), session_destroy(second);
    close_engine();
}

/* ---- memory ---- */

static struct tenant_stats stats_of(const struct tenant *tenant) {
    struct tenant_stats stats;
    tenant_stats(tenant, &stats);
    return stats;
}

static const char *failure_of(struct session *in) {
    static struct session_stats stats;
    session_stats(in, &stats);
    return stats.last_failure;
}

Test(engine_tenants, memory_of_all_sessions_counts) {
    struct engine_stats stats;
    open_engine(256 << 20);
    struct tenant *a = tenant_of("uid:7", (struct tenant_limits){.bytes = MIB}),
                  *b = tenant_of("b", (struct tenant_limits){0});
    struct session *first = session_of(a), *second = session_of(a), *other = session_of(b);
    cr_assert_eq(full_of(first, DTYPE_U8, 1, 600 << 10, 0), STATUS_OK);
    cr_assert_eq(full_of(second, DTYPE_U8, 1, 400 << 10, 0), STATUS_OK);
    cr_assert_eq(full_of(second, DTYPE_U8, 2, 100 << 10, 0), STATUS_LIMIT);
    cr_assert_str_eq(failure_of(second),
                     "full: the limit of uid:7, 1.00 MiB on this device, is reached: 100 KiB asked, "
                     "0.98 MiB live in 2 sessions");
    cr_assert_eq(full_of(other, DTYPE_U8, 1, 8 * MIB, 0), STATUS_OK);
    cr_assert_eq(stats_of(a).live, 1000 << 10);
    cr_assert_eq(stats_of(a).sessions, 2);
    engine_stats(engine, &stats);
    cr_assert_eq(stats.refusals[LEDGER_REFUSED_TENANT_BYTES], 1);
    session_destroy(first);
    cr_assert_eq(stats_of(a).live, 400 << 10);
    cr_assert_eq(full_of(second, DTYPE_U8, 3, 600 << 10, 0), STATUS_OK, "%s", failure_of(second));
    session_destroy(second), session_destroy(other);
    cr_assert_eq(stats_of(a).live, 0);
    cr_assert_eq(stats_of(a).peak, 1000 << 10);
    tenant_destroy(a), tenant_destroy(b);
    close_engine();
}

Test(engine_tenants, a_lower_limit_takes_nothing_away) {
    open_engine(256 << 20);
    struct tenant *a = tenant_of("a", (struct tenant_limits){.bytes = 8 * MIB});
    struct session *of_a = session_of(a);
    cr_assert_eq(full_of(of_a, DTYPE_U8, 1, 4 * MIB, 0), STATUS_OK);
    tenant_set_limits(a, &(struct tenant_limits){.bytes = MIB});
    cr_assert_eq(full_of(of_a, DTYPE_U8, 2, 64, 0), STATUS_LIMIT);
    cr_assert_eq(stats_of(a).live, 4 * MIB);
    uint64_t id = 1;
    submit_in(of_a, (struct op_request){.opcode = OP_FREE, .n_inputs = 1, .inputs = &id});
    cr_assert_eq(full_of(of_a, DTYPE_U8, 3, MIB, 0), STATUS_OK);
    session_destroy(of_a);
    tenant_destroy(a);
    close_engine();
}

Test(engine_tenants, every_limit_that_refuses_is_counted) {
    struct session_limits narrow = {.bytes = MIB, .tensors = 2, .streams = 1};
    struct engine_stats stats;
    struct fault fault;
    open_limited(256 << 20, &narrow);
    open_stream(1);
    cr_assert_eq(session_stream_open(session, 2, 0, &fault), STATUS_LIMIT);
    cr_assert_eq(full(session, 1, MIB, 0), STATUS_LIMIT);
    cr_assert_eq(full(session, 2, 1, 0), STATUS_OK);
    cr_assert_eq(full(session, 3, 1, 0), STATUS_LIMIT);
    cr_assert_eq(full(session, 4, 1, 0), STATUS_LIMIT);
    engine_stats(engine, &stats);
    cr_assert_eq(stats.refusals[LEDGER_REFUSED_STREAMS], 1);
    cr_assert_eq(stats.refusals[LEDGER_REFUSED_SESSION_BYTES], 1);
    cr_assert_eq(stats.refusals[LEDGER_REFUSED_TENSORS], 2);
    cr_assert_eq(stats.refusals[LEDGER_REFUSED_TENANT_BYTES], 0);
    close_engine();
}
