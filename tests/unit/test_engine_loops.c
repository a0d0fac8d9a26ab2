/* Long runs of recorded programs, and many streams, on a device that runs later: how much is on the device at a time, and that the rest comes. */
#include <limits.h>

#include "engine/order/order_impl.h"
#include "tests/stand_ins/late.h"
#include "tests/unit/loop_fixture.h"

/* submitter.c's bounds of what one stream has on the device, and all of them; but each stream may have a few there. */
enum { AHEAD_MOST = 512, AHEAD_ALL = 960, AHEAD_LEAST = 16 };
enum { X = 1, ELEMENTS = 16, STREAMS = 20, LAUNCHES = 600 };

static struct device *later;

static void open_late(void) {
    struct device_options options = {.memory_total = 64 << 20, .threads = 1};
    struct fault fault;
    sequence = 0;
    cr_assert_eq(late_open(&options, &later, &fault), STATUS_OK);
    cr_assert_eq(engine_create(later, &(struct engine_options){0}, &engine, &fault), STATUS_OK);
    cr_assert_eq(session_create(engine_sessions(engine), &limits, &session, &fault), STATUS_OK);
    cr_assert_eq(full(session, X, ELEMENTS, 0), STATUS_OK);
}

/* Loop 2 carries the result of `opcode` to its parameter. */
static void define_loop(unsigned opcode) {
    const uint64_t parameter = 1;
    define_loop_of(&(struct op_request){.opcode = opcode, .n_inputs = 1, .inputs = &parameter}, 1, ELEMENTS);
}

Test(engine_loops, long_loop_does_not_fill_the_device, .timeout = 60) {
    struct session *other;
    struct fault fault;
    open_late();
    define_loop(OP_TANH);
    cr_assert_eq(wait_for(X), STATUS_OK);
    late_hang(later, "tanh");
    run_loop(1000 * 1000, X, X + 1);
    await_rest();
    unsigned launches = late_launches(later);
    cr_assert(launches > 0 && launches <= AHEAD_MOST, "%u launches are on the device", launches);
    /* Another session's work goes on meanwhile. */
    cr_assert_eq(session_create(engine_sessions(engine), &limits, &other, &fault), STATUS_OK);
    struct session *first = session;
    session = other;
    cr_assert_eq(full(session, X, ELEMENTS, 0), STATUS_OK);
    cr_assert_eq(wait_for(X), STATUS_OK);
    session_destroy(other);
    /* The run ends with its session: what is on the device runs, and no more. */
    session_destroy(first);
    late_hang(later, NULL);
    engine_destroy(engine);
}

Test(engine_loops, long_loop_comes_to_its_end, .timeout = 60) {
    struct answer answer;
    open_late();
    define_loop(OP_NEGATIVE);
    for (uint64_t id = X + 1; id < X + 3; id++) {
        run_loop(100 * 1000, X, id);
        ask_wait(&answer, id);
        while (!answer.times)
            engine_wait(engine);
        cr_assert_eq(answer.code, STATUS_OK);
    }
    session_destroy(session);
    engine_destroy(engine);
}

static uint64_t launch_id(uint32_t stream, uint32_t launch) {
    return 1000 + stream * LAUNCHES + launch;
}

/* Of the streams' launches that are on the device, and of those of the stream that has the fewest there. */
static void count_ahead(unsigned *all, unsigned *least) {
    struct fault fault;
    *all = 0;
    *least = UINT_MAX;
    for (uint32_t stream = 1; stream <= STREAMS; stream++) {
        unsigned ahead = atomic_load(&session_find_stream(session, stream, &fault)->submit.ahead);
        *all += ahead;
        *least = ahead < *least ? ahead : *least;
    }
}

/* They may share one of the queues of the device. */
Test(engine_loops, many_streams_together_do_not_fill_the_device, .timeout = 60) {
    const struct session_limits many = {.tensors = 100000, .streams = STREAMS + 1};
    struct fault fault;
    unsigned all, least;
    open_late();
    session_destroy(session);
    cr_assert_eq(session_create(engine_sessions(engine), &many, &session, &fault), STATUS_OK);
    cr_assert_eq(full(session, X, ELEMENTS, 0), STATUS_OK);
    cr_assert_eq(wait_for(X), STATUS_OK);
    late_hang(later, "tanh");
    for (uint32_t stream = 1; stream <= STREAMS; stream++) {
        open_stream(stream);
        for (uint32_t launch = 0; launch < LAUNCHES; launch++)
            cr_assert_eq(unary(OP_TANH, launch_id(stream, launch), X, stream), STATUS_OK);
        engine_kick(engine);
    }
    await_rest();
    count_ahead(&all, &least);
    unsigned launches = late_launches(later);
    cr_expect(launches > AHEAD_MOST && launches <= AHEAD_ALL + STREAMS * AHEAD_LEAST, "%u launches are on the device",
              launches);
    cr_expect_eq(all, launches);
    cr_expect_eq(least, AHEAD_LEAST, "a stream has %u launches there", least);
    late_hang(later, NULL);
    for (uint32_t stream = 1; stream <= STREAMS; stream++)
        cr_assert_eq(wait_for(launch_id(stream, LAUNCHES - 1)), STATUS_OK);
    session_destroy(session);
    engine_destroy(engine);
}
