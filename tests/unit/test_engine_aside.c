/* Launches whose calls wait for the device (device_async.launch_aside): one session's never hold another session up, and for its own stream
 * nothing else changes. The device runs later; calls of tanh wait for it, and while tanh hangs they do not return. */
#include <math.h>

#include "engine/watch/trace.h"
#include "tests/stand_ins/late.h"
#include "tests/unit/loop_fixture.h"

enum { X = 1, Y, Z, ELEMENTS = 16 };

static struct device *later;
static struct session *other;
static const uint64_t second = 1000 * 1000 * 1000;

static struct session *open_session(void) {
    struct session *opened;
    struct fault fault;
    cr_assert_eq(session_create(engine_sessions(engine), &limits, &opened, &fault), STATUS_OK);
    return opened;
}

/* Two sessions, each with a value X of 0.5. */
static void begin(void) {
    struct device_options options = {.memory_total = 64 << 20, .threads = 1};
    struct fault fault;
    sequence = 0;
    cr_assert_eq(late_open(&options, &later, &fault), STATUS_OK);
    late_wait(later, "tanh");
    cr_assert_eq(engine_create(later, &(struct engine_options){0}, &engine, &fault), STATUS_OK);
    session = open_session();
    other = open_session();
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(submit_in(i ? other : session, REQUEST_FULL(DTYPE_F32, ELEMENTS, 0.5, .output = X)), STATUS_OK);
    }
    cr_assert_eq(wait_for(X), STATUS_OK);
}

static void end(void) {
    late_hang(later, NULL);
    session_destroy(session);
    session_destroy(other);
    engine_destroy(engine);
}

TestSuite(engine_aside, .init = begin, .fini = end, .timeout = 60);

/* Until so many calls of tanh are under way. */
static void await_calls(unsigned n) {
    while (late_launches(later) < n) {
        engine_kick(engine);
        engine_poll(engine);
        sched_yield();
    }
}

static void await_call(void) {
    await_calls(1);
}

/* tanh of X, whose call does not return. */
static void hang(uint32_t stream) {
    late_hang(later, "tanh");
    cr_assert_eq(unary(OP_TANH, Y, X, stream), STATUS_OK);
    await_call();
}

static float value_of(uint64_t id) {
    struct answer answer;
    ask_fetch(&answer, id);
    cr_assert(settle(&answer.times), "no answer for %llu", (unsigned long long)id);
    cr_assert_eq(answer.code, STATUS_OK);
    cr_assert_eq(answer.fetch.bytes, ELEMENTS * (int64_t)sizeof(float));
    float value;
    memcpy(&value, answer.fetch.data, sizeof value);
    fetch_release(&answer.fetch);
    return value;
}

static void expect(uint64_t id, double want) {
    float got = value_of(id);
    cr_assert_float_eq(got, want, 1e-6, "%g instead of %g", (double)got, want);
}

/* The other session computes, and gets its result. */
static void other_goes_on(void) {
    struct session *own = session;
    session = other;
    cr_assert_eq(unary(OP_NEGATIVE, Y, X, 0), STATUS_OK, "%s", session->last_failure);
    expect(Y, -0.5);
    session = own;
}

Test(engine_aside, other_sessions_go_on_while_a_call_waits) {
    struct answer answer;
    hang(0);
    ask_wait(&answer, Y);
    other_goes_on();
    cr_assert_eq(answer.times, 0, "tanh does not end");
    late_hang(later, NULL);
    cr_assert(settle(&answer.times));
    expect(Y, 0.46211716);
}

Test(engine_aside, several_calls_wait_side_by_side) {
    struct session *own = session;
    hang(0);
    session = other;
    cr_assert_eq(unary(OP_TANH, Z, X, 0), STATUS_OK);
    await_calls(2);
    late_hang(later, NULL);
    expect(Z, 0.46211716);
    session = own;
    expect(Y, 0.46211716);
}

/* More wait for those to return, and leave threads of the device to others. */
Test(engine_aside, one_session_has_so_many_calls_under_way) {
    enum { STREAMS = 5, AT_ONCE = 3 };
    struct session *own = session;
    late_hang(later, "tanh");
    for (uint32_t i = 1; i <= STREAMS; i++) {
        open_stream(i);
        cr_assert_eq(unary(OP_TANH, Z + i, X, i), STATUS_OK);
    }
    await_calls(AT_ONCE);
    other_goes_on();
    session = other;
    cr_assert_eq(unary(OP_TANH, Z, X, 0), STATUS_OK);
    await_calls(AT_ONCE + 1);
    cr_assert_eq(late_launches(later), AT_ONCE + 1);
    late_hang(later, NULL);
    expect(Z, 0.46211716);
    session = own;
    for (uint32_t i = 1; i <= STREAMS; i++)
        expect(Z + i, 0.46211716);
}

/* What comes behind it in the stream, and what waits for its result in another one. */
Test(engine_aside, what_uses_the_result_waits_for_it) {
    struct answer behind, beside;
    open_stream(1);
    hang(0);
    cr_assert_eq(unary(OP_NEGATIVE, Z, Y, 0), STATUS_OK);
    cr_assert_eq(unary(OP_NEGATIVE, Z + 1, Y, 1), STATUS_OK);
    ask_wait(&behind, Z);
    ask_wait(&beside, Z + 1);
    other_goes_on();
    cr_assert(!behind.times && !beside.times);
    late_hang(later, NULL);
    expect(Z, -0.46211716);
    expect(Z + 1, -0.46211716);
    cr_assert(behind.times == 1 && beside.times == 1);
}

/* And follow other launches. */
Test(engine_aside, calls_follow_one_another) {
    double want = 0.5;
    uint64_t id = X;
    for (int i = 0; i < 100; i++) {
        unsigned opcode = i % 5 < 3 ? OP_TANH : OP_NEGATIVE;
        cr_assert_eq(unary(opcode, id + 1, id, 0), STATUS_OK);
        want = opcode == OP_TANH ? tanh(want) : -want;
        id++;
    }
    expect(id, want);
}

/* The call reads the launch to its end (late.c sees to that). */
Test(engine_aside, session_that_ends_meanwhile_stays_until_the_call_has_returned) {
    hang(0);
    for (uint64_t id = Z; id < Z + 10; id++)
        cr_assert_eq(unary(OP_TANH, id, Y, 0), STATUS_OK);
    engine_kick(engine);
    session_destroy(session);
    session = other;
    other_goes_on();
    late_hang(later, NULL);
    other = open_session();
}

/* ---- runs of programs ---- */

/* Loop 2: its parameter becomes tanh(-p), and then the negative of that. */
static void define_loop(void) {
    const uint64_t values[] = {1, 2, 3};
    define_loop_of((const struct op_request[]){{.opcode = OP_NEGATIVE, .n_inputs = 1, .inputs = &values[0]},
                                               {.opcode = OP_TANH, .n_inputs = 1, .inputs = &values[1]},
                                               {.opcode = OP_NEGATIVE, .n_inputs = 1, .inputs = &values[2]}},
                   3, ELEMENTS);
}

Test(engine_aside, programs_wait_for_their_calls) {
    define_loop();
    late_hang(later, "tanh");
    run_loop(50, X, Y);
    await_call();
    other_goes_on();
    late_hang(later, NULL);
    double want = 0.5;
    for (int i = 0; i < 50; i++)
        want = tanh(want);
    expect(Y, want);
}

Test(engine_aside, program_of_a_session_that_ends_leaves_its_call_to_return) {
    define_loop();
    late_hang(later, "tanh");
    run_loop(1000 * 1000, X, Y);
    await_call();
    session_destroy(session);
    session = other;
    other_goes_on();
    late_hang(later, NULL);
    other = open_session();
}

/* ---- what is told of it ---- */

Test(engine_aside, call_that_does_not_return_is_a_stall_of_its_session) {
    struct engine_stall stall;
    hang(0);
    int looks = 0;
    for (bool stalled = false; !stalled && looks < 40; looks++) {
        engine->order.watch.looked_ns = clock_now() - second / 2;
        stalled = engine_stalled(engine, 5 * second, &stall);
    }
    cr_assert(looks >= 10 && looks <= 20, "%d", looks);
    cr_assert_str_eq(stall.operation, "tanh");
    cr_assert_eq(stall.session, session);
}

Test(engine_aside, call_is_noticed_beside_others_that_go_on) {
    struct engine_stall stall;
    int looks = 0;
    open_stream(1);
    hang(1);
    for (bool stalled = false; !stalled && looks < 40; looks++) {
        cr_assert_eq(unary(OP_NEGATIVE, 100 + (uint64_t)looks, X, 0), STATUS_OK);
        cr_assert_eq(wait_for(100 + (uint64_t)looks), STATUS_OK);
        engine->order.watch.looked_ns = clock_now() - second / 2;
        stalled = engine_stalled(engine, 5 * second, &stall);
    }
    cr_assert(looks >= 10 && looks <= 20, "%d", looks);
    cr_assert_str_eq(stall.operation, "tanh");
}

/* The device is busy for as long as the call takes, and the trace has it for as long. */
Test(engine_aside, time_of_a_call_counts) {
    struct engine_stats before, stats;
    struct session_stats of_session;
    struct trace_event event;
    struct fault fault;
    uint64_t pause = 20 * 1000 * 1000;
    cr_assert_eq(engine_trace_start(engine, NULL, 0, &fault), STATUS_OK);
    engine_stats(engine, &before);
    hang(0);
    while (!late_hung(later)) /* the kernel itself has begun, too */
        sched_yield();
    nanosleep(&(struct timespec){.tv_nsec = (long)pause}, NULL);
    engine_stats(engine, &stats);
    cr_assert_geq(stats.busy_ns - before.busy_ns, pause, "while it is under way");
    late_hang(later, NULL);
    cr_assert_eq(wait_for(Y), STATUS_OK);
    engine_stats(engine, &stats);
    session_stats(session, &of_session);
    cr_assert_geq(of_session.device_ns, pause);
    cr_assert_leq(of_session.device_ns, stats.busy_ns);
    uint64_t busy = stats.busy_ns;
    nanosleep(&(struct timespec){.tv_nsec = (long)pause}, NULL);
    engine_stats(engine, &stats);
    cr_assert_eq(stats.busy_ns, busy, "nothing to do");
    cr_assert(trace_next(engine_trace(engine), &event));
    cr_assert_str_eq(event.name, "tanh");
    cr_assert_geq(event.end_ns - event.begin_ns, pause);
    cr_assert(!trace_next(engine_trace(engine), &event));
}
