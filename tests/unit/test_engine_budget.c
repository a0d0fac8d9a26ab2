/* What the engine does for its owner within a budget of time, by a clock that the test moves. */
#include <sched.h>

#include "engine/memory/tenant.h"
#include "engine/session/held.h"
#include "tests/unit/engine_fixture.h"

static uint64_t now_ns;

/* Each look at the clock costs a microsecond, so that a budget is a number of looks. */
static uint64_t ticking(void) {
    return now_ns += 1000;
}

static struct budget *ticking_budget(void) {
    struct budget *budget = engine_budget(engine);
    budget->clock = ticking;
    return budget;
}

Test(budget, is_over_when_its_time_is_and_stays_so) {
    uint64_t alive = 0;
    struct budget budget = {.clock = ticking, .alive = (_Atomic uint64_t *)&alive};
    unsigned steps = 0;
    now_ns = 0;
    budget_begin(&budget, 10000);
    while (!budget_spent(&budget, 1) && steps < 100000)
        steps++;
    cr_assert_eq(steps, 10 * BUDGET_STEPS - 1, "%u steps", steps);
    cr_assert(budget_spent(&budget, 1), "once over it is over");
    cr_assert_eq(alive, now_ns, "the last look is a sign of life");
}

Test(budget, without_a_limit_never_ends) {
    struct budget budget = {.clock = ticking, .until_ns = BUDGET_UNLIMITED};
    for (unsigned i = 0; i < 100000; i++)
        cr_assert(!budget_spent(&budget, 1000000));
}

enum { MANY = 20000 };

static void make_many(void) {
    for (uint64_t id = 1; id <= MANY; id++)
        cr_assert_eq(full(session, id, 1, 0), STATUS_OK);
    engine_kick(engine);
}

/* Turns of ten looks at the clock each, until nothing is due. */
static unsigned turns_until_idle(struct budget *budget) {
    unsigned turns = 0;
    for (; engine_due(engine) && turns < 1000000; turns++) {
        uint64_t looks = budget->looks;
        budget_begin(budget, 10000);
        engine_poll(engine);
        cr_assert_leq(budget->looks - looks, 13, "a turn of %llu looks", (unsigned long long)(budget->looks - looks));
    }
    return turns;
}

/* The same operation again and again, as the server asks: the pool looks at so many pieces a call, and what a stream is just
 * about to pass is still busy. */
static int full_in_the_end(struct session *of, uint64_t id, int64_t extent) {
    int code = STATUS_AGAIN;
    budget_begin(engine_budget(engine), BUDGET_UNLIMITED);
    for (unsigned tries = 0; code == STATUS_AGAIN && tries < 1000000; tries++) {
        code = full(of, id, extent, 0);
        engine_kick(engine);
        engine_poll(engine);
        sched_yield();
    }
    return code;
}

Test(engine_budget, a_session_of_many_tensors_ends_in_many_turns) {
    struct engine_stats stats;
    open_engine(1 << 26);
    make_many();
    struct budget *budget = ticking_budget();
    budget_begin(budget, 10000);
    session_destroy(session);
    session = NULL;
    engine_stats(engine, &stats);
    cr_assert_eq(stats.sessions, 0, "for its owner it is gone at once");
    cr_assert_gt(stats.memory_live, 0, "its memory is not");
    unsigned turns = turns_until_idle(budget);
    cr_assert_gt(turns, MANY / BUDGET_STEPS / 10, "%u turns", turns);
    engine_stats(engine, &stats);
    cr_assert_eq(stats.memory_live, 0);
    close_engine();
}

Test(engine_budget, the_engine_ends_with_sessions_that_have_not_quite) {
    open_engine(1 << 26);
    make_many();
    budget_begin(ticking_budget(), 1000);
    session_destroy(session);
    session = NULL;
    cr_assert(engine_due(engine));
    close_engine(); /* with all memory back */
}

Test(engine_budget, a_tenant_may_go_before_the_memory_of_its_sessions) {
    const struct tenant_limits tenant_limits = {.bytes = 1 << 26};
    struct session_limits own = limits;
    struct fault fault;
    open_engine(1 << 26);
    struct session *first = session;
    cr_assert_eq(tenant_create(engine_memory(engine), "anna", &tenant_limits, &own.tenant, &fault), STATUS_OK);
    cr_assert_eq(session_create(engine_sessions(engine), &own, &session, &fault), STATUS_OK);
    make_many();
    struct budget *budget = ticking_budget();
    budget_begin(budget, 1000);
    session_destroy(session);
    tenant_destroy(own.tenant);
    cr_assert(engine_due(engine));
    turns_until_idle(budget);
    session = first;
    close_engine();
}

Test(engine_budget, what_an_ended_session_still_has_is_waited_for) {
    struct session_limits own = limits;
    struct engine_stats stats;
    struct upload upload;
    struct fault fault;
    open_engine(1 << 22); /* a few thousand tensors of 256 bytes and more fill it */
    uint64_t id = 0;
    while (full(session, id + 1, 1, 0) == STATUS_OK)
        id++;
    struct session *other;
    cr_assert_eq(session_create(engine_sessions(engine), &own, &other, &fault), STATUS_OK);
    struct budget *budget = ticking_budget();
    budget_begin(budget, 1000);
    session_destroy(session);
    session = other;
    int64_t half = (1 << 21) / 4;
    cr_assert_eq(full(other, 1, half, 0), STATUS_AGAIN);
    cr_assert_eq(upload_to(1, 1, half, 0, false, &upload), STATUS_AGAIN);
    engine_stats(engine, &stats);
    cr_assert_eq(stats.failures[STATUS_OUT_OF_MEMORY], 1, "only the operation that had found it full");
    turns_until_idle(budget);
    cr_assert_eq(full_in_the_end(other, 1, half), STATUS_OK, "the same operation with the same id");
    close_engine();
}

static void held_now(struct hold *hold, const struct failure *failure) {
    cr_assert_null(failure, "%s", failure ? failure->message : "");
    (void)hold;
}

/* A value that has to be copied before it can be fetched or named, where an ended session still has the memory for that. */
Test(engine_budget, copies_of_values_wait_for_the_memory_of_an_ended_session) {
    struct session_limits own = limits;
    struct engine_stats stats;
    struct answer answer;
    struct hold hold = {.done = held_now};
    struct session *other;
    struct fault fault;
    const int64_t quarter[] = {(1 << 20) / 4};
    open_engine(1 << 22);
    cr_assert_eq(session_create(engine_sessions(engine), &own, &other, &fault), STATUS_OK);
    cr_assert_eq(full(other, 1, 1, 0), STATUS_OK);
    uint64_t id = 0;
    while (full(session, id + 1, 1, 0) == STATUS_OK)
        id++;
    struct budget *budget = ticking_budget();
    budget_begin(budget, 1000);
    session_destroy(session);
    session = other;
    cr_assert_eq(apply(OP_BROADCAST_TO, 2, 1, (const uint64_t[]){1}, 1, quarter, 0, 0), STATUS_OK);
    cr_assert_eq(ask_fetch(&answer, 2), STATUS_AGAIN);
    cr_assert_eq(answer.times, 0);
    cr_assert_eq(session_hold(session, 2, &hold), STATUS_AGAIN);
    engine_stats(engine, &stats);
    cr_assert_eq(stats.failures[STATUS_OUT_OF_MEMORY], 1, "only the operation that had found it full");
    turns_until_idle(budget);
    budget_begin(budget, BUDGET_UNLIMITED);
    int code;
    while ((code = session_hold(session, 2, &hold)) == STATUS_AGAIN) {
        engine_kick(engine);
        engine_poll(engine);
    }
    cr_assert_eq(code, STATUS_OK);
    while ((code = ask_fetch(&answer, 2)) == STATUS_AGAIN) {
        engine_kick(engine);
        engine_poll(engine);
    }
    cr_assert_eq(code, STATUS_OK);
    cr_assert(settle(&answer.times));
    cr_assert_eq(answer.code, STATUS_OK);
    fetch_release(&answer.fetch);
    hold_cancel(&hold);
    close_engine();
}

/* i8 + u8 is i16: both inputs are converted, after memory was found for the result and the first of them. */
enum { CONVERTED = 1 << 18 };
static int add_converted(struct session *of) {
    const uint64_t inputs[] = {1, 2};
    return submit_in(of, (struct op_request){.opcode = OP_ADD, .n_inputs = 2, .inputs = inputs, .output = 5});
}

static void open_converted(uint64_t memory, const struct session_limits *own) {
    open_limited(memory, own);
    cr_assert_eq(full_of(session, DTYPE_I8, 1, CONVERTED, 0), STATUS_OK);
    cr_assert_eq(full_of(session, DTYPE_U8, 2, CONVERTED, 0), STATUS_OK);
}

Test(engine_budget, a_refused_operation_leaves_no_conversion_of_its_inputs) {
    struct session_limits own = limits;
    own.bytes = 7 * CONVERTED; /* two inputs, a result and one conversion; not the other */
    open_converted(1 << 24, &own);
    cr_assert_eq(add_converted(session), STATUS_LIMIT);
    cr_assert_eq(wait_for(5), STATUS_LIMIT);
    cr_assert_eq(full(session, 6, 1, 0), STATUS_OK);
    cr_assert_eq(wait_for(6), STATUS_OK);
    cr_assert_eq(atomic_load(&device.launches), 3, "%u launches", atomic_load(&device.launches));
    cr_assert_eq(session_queued(session), 0);
    close_engine();
}

Test(engine_budget, an_operation_that_is_put_off_converts_its_inputs_once) {
    struct session *other;
    struct fault fault;
    open_converted(1 << 22, &limits);
    cr_assert_eq(session_create(engine_sessions(engine), &limits, &other, &fault), STATUS_OK);
    uint64_t id = 1, left = 5 * CONVERTED / POOL_ALIGNMENT;
    while (full(other, id, 1, 0) == STATUS_OK)
        id++;
    for (uint64_t i = 1; i <= left; i++) /* for the result and one conversion */
        cr_assert_eq(submit_in(other, (struct op_request){.opcode = OP_FREE, .n_inputs = 1, .inputs = &i}), STATUS_OK);
    cr_assert_eq(full(session, 4, 1, 0), STATUS_OK);
    cr_assert_eq(wait_for(4), STATUS_OK);
    while (session_queued(other) > 0) { /* or one of its launches would be counted, too */
        engine_kick(engine);
        engine_poll(engine);
    }
    struct budget *budget = ticking_budget();
    budget_begin(budget, 1000);
    session_destroy(other);
    unsigned before = atomic_load(&device.launches);
    for (int tries = 0; tries < 100; tries++)
        cr_assert_eq(add_converted(session), STATUS_AGAIN);
    turns_until_idle(budget);
    budget_begin(budget, BUDGET_UNLIMITED);
    int code;
    while ((code = add_converted(session)) == STATUS_AGAIN) {
        engine_kick(engine);
        engine_poll(engine);
    }
    cr_assert_eq(code, STATUS_OK);
    cr_assert_eq(wait_for(5), STATUS_OK);
    cr_assert_eq(atomic_load(&device.launches) - before, 3, "two conversions and a sum, in %u launches",
                 atomic_load(&device.launches) - before);
    close_engine();
}

/* Not a session's own limit: that of all sessions of one tenant, for the host memory that tensors take. */
Test(engine_budget, tensors_wait_for_the_host_memory_of_an_ended_session) {
    struct session_limits own = limits;
    struct engine_stats stats;
    struct tenant *tenant;
    struct upload upload;
    struct fault fault;
    open_engine(1 << 26);
    struct session *last = session;
    cr_assert_eq(
        tenant_create(engine_memory(engine), "anna", &(struct tenant_limits){.host_bytes = 2 << 20}, &tenant, &fault),
        STATUS_OK);
    own.tenant = tenant;
    cr_assert_eq(session_create(engine_sessions(engine), &own, &session, &fault), STATUS_OK);
    uint64_t id = 0;
    while (full(session, id + 1, 1, 0) == STATUS_OK)
        id++;
    engine_kick(engine);
    struct session *other;
    cr_assert_eq(session_create(engine_sessions(engine), &own, &other, &fault), STATUS_OK);
    struct budget *budget = ticking_budget();
    budget_begin(budget, 1000);
    session_destroy(session);
    session = other;
    cr_assert_eq(full(other, 1, 1, 0), STATUS_AGAIN);
    cr_assert_eq(upload_to(1, 1, 1, 0, false, &upload), STATUS_AGAIN);
    engine_stats(engine, &stats);
    cr_assert_eq(stats.failures[STATUS_LIMIT], 1, "only the operation that had met the limit");
    cr_assert_eq(stats.refusals[LEDGER_REFUSED_TENANT_HOST], 1);
    turns_until_idle(budget);
    cr_assert_eq(full(other, 1, 1, 0), STATUS_OK, "the same operation with the same id");
    session_destroy(other);
    session = last;
    turns_until_idle(budget);
    tenant_destroy(tenant);
    close_engine();
}

Test(engine_budget, answers_of_one_stream_come_in_turns_and_do_not_hold_up_others) {
    enum { WAITS = 4000 };
    static struct answer answers[WAITS];
    struct answer other;
    open_engine(1 << 25);
    open_stream(1);
    park(1);
    cr_assert_eq(full(session, 2, 1, 1), STATUS_OK);
    engine_kick(engine);
    for (int i = 0; i < WAITS; i++)
        ask_wait(&answers[i], 1);
    ask_wait(&other, 2);
    unpark();
    struct stream *second = session_find_stream(session, 1, NULL);
    while (!point_reached(session->stream, session->stream->enqueued) || !point_reached(second, second->enqueued))
        sched_yield();
    await_rest(); /* and they are told */
    struct budget *budget = ticking_budget();
    unsigned turns = 0, first = 0;
    for (; answers[WAITS - 1].times == 0 && turns < 1000000; turns++) {
        budget_begin(budget, 10000);
        engine_poll(engine);
        if (other.times && !first)
            first = turns + 1;
    }
    cr_assert_eq(answers[0].times, 1);
    cr_assert_eq(other.times, 1);
    cr_assert_gt(turns, 10, "%u turns", turns);
    cr_assert_lt(first, turns, "the other stream's answer came in turn %u of %u", first, turns);
    budget_begin(budget, BUDGET_UNLIMITED);
    close_engine();
}
