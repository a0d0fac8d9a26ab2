/* Traces and the last operations, on a device that computes nothing and has run a launch when it returns. */
#include "tests/unit/engine_fixture.h"

#include "engine/device/clock.h"
#include "engine/device/device_impl.h"
#include "engine/watch/trace.h"

enum { MEMORY = 1 << 20, RING = (64 << 20) / sizeof(struct trace_event) };

static void begin(void) {
    struct fault fault;
    struct session_limits numbered = limits;
    numbered.number = 77;
    open_limited(MEMORY, &numbered);
    cr_assert_eq(engine_trace_start(engine, NULL, 0, &fault), STATUS_OK);
}

/* Runs `n` operations of one launch each, the first of which binds `id`. */
static void run(uint64_t id, uint64_t n, const char *label) {
    for (uint64_t i = 0; i < n; i++) {
        cr_assert_eq(submit_in(session, REQUEST_FULL(DTYPE_F32, 5, 0, .output = id + i, .label = label)), STATUS_OK);
        cr_assert_eq(release(id + i), STATUS_OK);
        if (i % 256 == 255)
            cr_assert_eq(wait_for(0), STATUS_OK);
    }
    cr_assert_eq(wait_for(0), STATUS_OK);
}

static uint64_t drain(struct trace_event *last) {
    uint64_t n = 0;
    while (trace_next(engine_trace(engine), last))
        n++;
    return n;
}

Test(engine_trace, every_launch_is_recorded_once_and_in_order) {
    struct trace_event event;
    uint64_t end = clock_now(), before = end;
    begin();
    run(1, 100, "step/full");
    for (uint64_t i = 0; i < 100; i++) {
        cr_assert(trace_next(engine_trace(engine), &event), "%llu events", (unsigned long long)i);
        cr_assert_str_eq(event.name, "full");
        cr_assert_str_eq(event.label, "step/full");
        cr_assert_eq(event.session, 77);
        cr_assert_eq(event.sequence, 2 * i + 1); /* the others are of `free` */
        cr_assert_eq(event.role, 0);
        cr_assert_eq(event.bytes, 20);
        cr_assert(event.n_operands == 1 && event.dtypes[0] == DTYPE_F32 && event.ranks[0] == 1);
        cr_assert_eq(event.extents[0], 5);
        cr_assert(event.begin_ns >= end && event.end_ns >= event.begin_ns, "event %llu overlaps",
                  (unsigned long long)i);
        cr_assert(event.queued_ns && event.begin_ns - event.queued_ns >= before, "it is enqueued before it begins");
        end = event.end_ns;
    }
    cr_assert(!trace_next(engine_trace(engine), &event));
    cr_assert(before <= end && end <= clock_now());
    cr_assert_eq(trace_dropped(engine_trace(engine)), 0);
    close_engine();
}

Test(engine_trace, one_session_alone_is_recorded) {
    struct trace_event event;
    struct fault fault;
    begin();
    trace_stop(engine_trace(engine));
    cr_assert_eq(engine_trace_start(engine, NULL, 78, &fault), STATUS_OK);
    run(1, 10, NULL);
    cr_assert(!trace_next(engine_trace(engine), &event), "another session's");
    trace_stop(engine_trace(engine));
    cr_assert_eq(engine_trace_start(engine, NULL, 77, &fault), STATUS_OK);
    run(100, 10, NULL);
    cr_assert_eq(drain(&event), 10);
    close_engine();
}

Test(engine_trace, time_in_the_queue_is_that_behind_others) {
    struct trace_event event;
    struct fault fault;
    open_engine(16 << 20);
    park(1);
    cr_assert_eq(engine_trace_start(engine, NULL, 0, &fault), STATUS_OK);
    uint64_t before = clock_now();
    cr_assert_eq(full(session, 2, 3, 0), STATUS_OK);
    engine_kick(engine);
    uint64_t after = clock_now();
    unpark();
    cr_assert_eq(wait_for(2), STATUS_OK);
    cr_assert(trace_next(engine_trace(engine), &event));
    cr_assert_eq(event.sequence, 2);
    cr_assert_geq(event.begin_ns, after);
    cr_assert(event.begin_ns - event.queued_ns >= before && event.begin_ns - event.queued_ns <= after);
    close_engine();
}

Test(engine_trace, streams_are_told_apart) {
    struct trace_event event;
    begin();
    open_stream(9);
    full(session, 1, 3, 0);
    cr_assert_eq(wait_for(1), STATUS_OK);
    uint32_t first = trace_next(engine_trace(engine), &event) ? event.stream : 0;
    cr_assert_eq(event.role, 0);
    full(session, 2, 3, 9);
    cr_assert_eq(wait_for(2), STATUS_OK);
    cr_assert(trace_next(engine_trace(engine), &event));
    cr_assert_eq(event.role, 9);
    cr_assert_neq(event.stream, first);
    close_engine();
}

Test(engine_trace, what_a_slow_reader_has_no_room_for_is_counted) {
    struct trace_event event;
    begin();
    run(1, RING + 1000, NULL);
    cr_assert_eq(trace_dropped(engine_trace(engine)), 1000);
    cr_assert_eq(drain(&event), RING);
    cr_assert_eq(event.sequence, 2 * (RING - 1) + 1, "the oldest are kept");
    run(RING + 2000, 10, NULL);
    cr_assert_eq(drain(&event), 10);
    cr_assert_eq(trace_dropped(engine_trace(engine)), 1000);
    close_engine();
}

Test(engine_trace, nothing_is_recorded_before_and_after) {
    struct trace_event event;
    struct fault fault;
    open_engine(MEMORY);
    cr_assert(!trace_next(engine_trace(engine), &event));
    run(1, 10, NULL);
    cr_assert(!trace_next(engine_trace(engine), &event));
    cr_assert_eq(engine_trace_start(engine, NULL, 0, &fault), STATUS_OK);
    run(100, 10, NULL);
    trace_stop(engine_trace(engine));
    run(200, 10, NULL);
    cr_assert_eq(drain(&event), 10);
    cr_assert_eq(engine_trace_start(engine, NULL, 0, &fault), STATUS_OK);
    cr_assert(!trace_next(engine_trace(engine), &event));
    run(300, 3, NULL);
    trace_stop(engine_trace(engine)); /* unread */
    cr_assert_eq(engine_trace_start(engine, NULL, 0, &fault), STATUS_OK);
    run(400, 2, NULL);
    cr_assert_eq(drain(&event), 2);
    close_engine();
}

Test(engine_trace, device_that_tells_no_times_is_not_traced) {
    const struct device_async async = {0};
    struct fault fault;
    open_engine(MEMORY);
    const struct device_vtable *before = engine->device->vtable;
    struct device_vtable vtable = *before;
    vtable.async = &async;
    engine->device->vtable = &vtable;
    cr_assert_eq(engine_trace_start(engine, NULL, 0, &fault), STATUS_UNSUPPORTED);
    engine->device->vtable = before;
    close_engine();
}

/* ---- for reports of crashes ---- */

Test(engine_trace, last_operations_are_told_newest_first) {
    struct history_operation operations[ENGINE_LAST_OPERATIONS + 1];
    open_engine(MEMORY);
    cr_assert_eq(engine_last_operations(engine, operations, ENGINE_LAST_OPERATIONS + 1), 0);
    run(1, 3, NULL);
    cr_assert_eq(engine_last_operations(engine, operations, ENGINE_LAST_OPERATIONS + 1), 3);
    cr_assert_eq(operations[0].sequence, 5);
    cr_assert_eq(operations[2].sequence, 1);
    run(10, 100, "a-label-that-is-longer-than-what-is-kept-of-it-for-the-report-of-a-crash");
    cr_assert_eq(engine_last_operations(engine, operations, ENGINE_LAST_OPERATIONS + 1), ENGINE_LAST_OPERATIONS);
    cr_assert_str_eq(operations[0].name, "full");
    cr_assert_str_eq(operations[0].label, "a-label-that-is-longer-than-what-is-kept-of-it-for-the-");
    cr_assert(operations[0].done);
    cr_assert_eq(engine_last_operations(engine, operations, 5), 5);
    close_engine();
}

Test(engine_trace, operation_that_runs_is_told_as_such) {
    struct history_operation operation;
    open_engine(16 << 20);
    park(1);
    cr_assert_eq(engine_last_operations(engine, &operation, 1), 1);
    cr_assert(!operation.done);
    unpark();
    cr_assert_eq(wait_for(1), STATUS_OK);
    cr_assert_eq(engine_last_operations(engine, &operation, 1), 1);
    cr_assert(operation.done);
    close_engine();
}
