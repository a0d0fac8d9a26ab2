/* A device that completes nothing any more: it is noticed, with what it is at; and nothing else is taken for it. Time is made
 * to pass by moving the engine's last look back. */
#include "tests/stand_ins/late.h"
#include "tests/unit/engine_fixture.h"

static const uint64_t second = 1000 * 1000 * 1000;

/* Looks again, half a second later. */
static bool stalled(uint64_t timeout_ns, struct engine_stall *stall) {
    engine->order.watch.looked_ns = clock_now() - second / 2;
    return engine_stalled(engine, timeout_ns, stall);
}

/* After how many looks half a second apart; 0: not within `looks`. */
static int stalls_after(uint64_t timeout_ns, int looks, struct engine_stall *stall) {
    for (int i = 1; i <= looks; i++)
        if (stalled(timeout_ns, stall))
            return i;
    return 0;
}

Test(engine_stall, idle_device_is_no_stalled_one) {
    struct engine_stall stall;
    open_engine(64 << 20);
    cr_assert_eq(full(session, 1, 1000, 0), STATUS_OK);
    cr_assert_eq(wait_for(1), STATUS_OK);
    cr_assert_eq(stalls_after(second, 20, &stall), 0);
    close_engine();
}

Test(engine_stall, launch_that_does_not_return_is_named) {
    struct engine_stall stall;
    struct engine_stats stats;
    open_engine(64 << 20);
    park(1);
    cr_assert(!stalled(2 * second, &stall) && !stalled(2 * second, &stall) && !stalled(2 * second, &stall));
    engine_stats(engine, &stats);
    cr_assert_geq(stats.stalled_ns, second);
    int looks = stalls_after(2 * second, 4, &stall);
    cr_assert(looks >= 2 && looks <= 3, "%d", looks); /* and four times what it is estimated to take */
    cr_assert_str_eq(stall.operation, "full");
    cr_assert_eq(stall.session, session);
    cr_assert_geq(stall.ns, 2 * second);
    unpark();
    cr_assert_eq(wait_for(1), STATUS_OK);
    await_rest();
    cr_assert_eq(stalls_after(2 * second, 20, &stall), 0);
    close_engine();
}

Test(engine_stall, timeout_of_nothing_means_never) {
    struct engine_stall stall;
    open_engine(64 << 20);
    park(1);
    cr_assert_eq(stalls_after(0, 50, &stall), 0);
    unpark();
    cr_assert_eq(wait_for(1), STATUS_OK);
    close_engine();
}

/* One look counts a second at most: whoever was stopped for an hour has not watched a device for an hour. */
Test(engine_stall, time_in_which_nobody_looked_does_not_count) {
    struct engine_stall stall;
    open_engine(64 << 20);
    park(1);
    stalled(5 * second, &stall);
    for (int i = 0; i < 4; i++) {
        engine->order.watch.looked_ns = clock_now() - 3600 * second;
        cr_assert_not(engine_stalled(engine, 5 * second, &stall));
    }
    unpark();
    cr_assert_eq(wait_for(1), STATUS_OK);
    close_engine();
}

/* Its bytes come from another device, which may take its time. */
Test(engine_stall, stream_that_waits_for_a_copy_from_elsewhere_is_no_stall) {
    struct engine_stall stall;
    struct upload upload;
    open_engine(64 << 20);
    cr_assert_eq(upload_to(1, 100, 100, 0, true, &upload), STATUS_OK);
    cr_assert_eq(unary(OP_EXP, 2, 1, 0), STATUS_OK);
    engine_kick(engine);
    cr_assert_eq(stalls_after(second, 20, &stall), 0);
    upload_fill(&upload, 0);
    upload_finish(&upload, NULL);
    cr_assert_eq(wait_for(2), STATUS_OK);
    close_engine();
}

static int slow_hook(struct null_device *null, const struct launch *launch) {
    (void)null;
    (void)launch;
    sem_post(&gate.arrived);
    sem_wait(&gate.open);
    return 0;
}

/* Each operation takes longer than half of the timeout, all together many times as long. */
Test(engine_stall, long_queue_that_moves_on_is_no_stall) {
    struct engine_stall stall;
    open_engine(64 << 20);
    sem_init(&gate.arrived, 0, 0);
    sem_init(&gate.open, 0, 0);
    device.hook = slow_hook;
    for (uint64_t id = 1; id <= 20; id++)
        cr_assert_eq(full_of(session, DTYPE_U8, id, 1 << 20, 0), STATUS_OK);
    engine_kick(engine);
    for (int i = 0; i < 20; i++) {
        sem_wait(&gate.arrived);
        cr_assert_eq(stalls_after(2 * second, 3, &stall), 0, "at operation %d", i);
        sem_post(&gate.open);
    }
    cr_assert_eq(wait_for(20), STATUS_OK);
    close_engine();
}

/* Ten seconds by the engine's own estimate: it may be wrong by some factor. */
Test(engine_stall, long_operation_has_the_time_it_needs) {
    struct engine_stall stall;
    open_engine(64 << 20);
    park(1);
    struct record *record =
        (struct record *)session->stream->queue.tail.chunk->records; /* parked in it: nobody reads it now */
    uint64_t weight = record->weight;
    record->weight = 10 * second;
    cr_assert_eq(stalls_after(second, 80, &stall), 0);
    cr_assert_neq(stalls_after(second, 10, &stall), 0);
    record->weight = weight;
    unpark();
    cr_assert_eq(wait_for(1), STATUS_OK);
    close_engine();
}

/* ---- a device on which everything happens later ---- */

static struct device *late;

static void open_late(const char *hang) {
    struct fault fault;
    sequence = 0;
    cr_assert_eq(late_open(&(struct device_options){.memory_total = 256 << 20, .threads = 1}, &late, &fault),
                 STATUS_OK);
    cr_assert_eq(engine_create(late, &(struct engine_options){0}, &engine, &fault), STATUS_OK);
    cr_assert_eq(session_create(engine_sessions(engine), &limits, &session, &fault), STATUS_OK);
    late_hang(late, hang);
}

static void close_late(void) {
    late_hang(late, NULL);
    session_destroy(session);
    engine_destroy(engine);
}

/* Until what was enqueued on the stream is on the device. */
static struct stream_mark *stall_mark(struct stream *stream) {
    struct stream_mark *mark = NULL;
    for (int i = 0; i < 5000; i++) {
        pthread_mutex_lock(&engine->order.lock);
        mark = &stream->marks.ring[stream->marks.first];
        bool there = stream->marks.count == 1 && mark->event && mark->span.launches;
        pthread_mutex_unlock(&engine->order.lock);
        if (there)
            return mark;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    cr_assert_fail("it is not on the device");
    return NULL;
}

static struct stream *stall_stream(uint32_t number) {
    struct fault fault;
    return session_find_stream(session, number, &fault);
}

/* Until so many marks stand for what was enqueued on the stream. */
static void marks_are(const struct stream *stream, unsigned n) {
    unsigned count = 0;
    for (int i = 0; i < 5000 && count != n; i++) {
        pthread_mutex_lock(&engine->order.lock);
        count = stream->marks.count;
        pthread_mutex_unlock(&engine->order.lock);
        if (count != n)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    cr_assert_eq(count, n);
}

/* What does not complete is on the device already: until then looks would find the threads slow that put it there. */
static bool stall_found(struct engine_stall *stall) {
    for (int i = 0; i < 30000; i++) {
        struct timespec pause = {.tv_nsec = 1000000};
        if (stalled(5 * second, stall))
            return true;
        nanosleep(&pause, NULL);
    }
    return false;
}

static void labelled(unsigned opcode, uint64_t id, uint64_t input, uint32_t stream, const char *label) {
    cr_assert_eq(
        submit_in(
            session,
            (struct op_request){
                .opcode = opcode, .n_inputs = 1, .inputs = &input, .output = id, .stream = stream, .label = label}),
        STATUS_OK);
}

Test(engine_stall, endless_kernel_is_named_with_its_label_and_session) {
    struct engine_stall stall;
    open_late("tanh");
    cr_assert_eq(full(session, 1, 1000, 0), STATUS_OK);
    cr_assert_eq(wait_for(1), STATUS_OK);
    labelled(OP_TANH, 2, 1, 0, "forward/activation");
    engine_kick(engine);
    stall_mark(session->stream);
    cr_assert(stall_found(&stall), "never noticed");
    cr_assert_str_eq(stall.operation, "tanh");
    cr_assert_eq(stall.session, session);
    close_late();
}

/* The others are put on the device, too, and wait there. */
Test(engine_stall, stream_behind_the_stuck_one_is_not_accused) {
    struct engine_stall stall;
    open_late("tanh");
    open_stream(1);
    open_stream(2);
    cr_assert_eq(full(session, 1, 1000, 1), STATUS_OK);
    cr_assert_eq(wait_for(1), STATUS_OK);
    labelled(OP_TANH, 2, 1, 1, "culprit");
    engine_kick(engine);
    stall_mark(stall_stream(1));
    labelled(OP_EXP, 3, 2, 2, "victim");
    labelled(OP_NEGATIVE, 4, 3, 0, "victim");
    engine_kick(engine);
    marks_are(stall_stream(2), 1);
    marks_are(session->stream, 1);
    cr_assert(stall_found(&stall), "never noticed");
    cr_assert_str_eq(stall.operation, "tanh");
    close_late();
}

/* ---- beside others that go on ---- */

static void open_prior_stream(uint32_t number, int priority) {
    struct fault fault;
    cr_assert_eq(session_stream_open(session, number, priority, &fault), STATUS_OK);
}

/* Something completes on this stream before each look. */
static int stalls_beside(uint32_t stream, uint64_t *id, uint64_t timeout_ns, int looks, struct engine_stall *stall) {
    for (int i = 1; i <= looks; i++) {
        labelled(OP_EXP, ++*id, 1, stream, "busy");
        cr_assert_eq(wait_for(*id), STATUS_OK);
        if (stalled(timeout_ns, stall))
            return i;
    }
    return 0;
}

Test(engine_stall, stream_that_is_stuck_beside_others_is_noticed) {
    struct engine_stall stall;
    uint64_t id = 10;
    open_late("tanh");
    open_stream(1);
    open_stream(2);
    open_stream(3);
    cr_assert_eq(full(session, 1, 1000, 1), STATUS_OK);
    cr_assert_eq(wait_for(1), STATUS_OK);
    labelled(OP_TANH, 2, 1, 1, "culprit");
    engine_kick(engine);
    labelled(OP_NEGATIVE, 3, 2, 3, "victim");
    engine_kick(engine);
    stall_mark(stall_stream(1));
    int looks = stalls_beside(2, &id, 5 * second, 40, &stall);
    cr_assert(looks >= 10 && looks <= 20, "%d", looks);
    cr_assert_str_eq(stall.operation, "tanh");
    cr_assert_eq(stall.session, session);
    cr_assert_geq(stall.ns, 5 * second);
    cr_assert_eq(stalls_beside(2, &id, 0, 20, &stall), 0, "0 means never");
    close_late();
}

/* The device may do first what was put there before, by all. */
Test(engine_stall, stream_has_the_time_that_others_need_before_it) {
    struct engine_stall stall;
    uint64_t id = 10;
    open_late("tanh");
    open_stream(1);
    open_stream(2);
    open_stream(3);
    cr_assert_eq(full(session, 1, 1000, 0), STATUS_OK);
    cr_assert_eq(wait_for(1), STATUS_OK);
    labelled(OP_TANH, 2, 1, 1, "long");
    engine_kick(engine);
    struct stream_mark *mark = stall_mark(stall_stream(1));
    pthread_mutex_lock(&engine->order.lock);
    mark->span.weight = 10 * second;
    pthread_mutex_unlock(&engine->order.lock);
    labelled(OP_TANH, 3, 1, 3, "behind it");
    engine_kick(engine);
    stall_mark(stall_stream(3));
    cr_assert_eq(stalls_beside(2, &id, second, 80, &stall), 0);
    cr_assert_neq(stalls_beside(2, &id, second, 10, &stall), 0);
    close_late();
}

Test(engine_stall, stream_of_lower_priority_waits_for_others) {
    struct engine_stall stall;
    uint64_t id = 10;
    open_late("tanh");
    open_prior_stream(1, -1);
    open_stream(2);
    cr_assert_eq(full(session, 1, 1000, 0), STATUS_OK);
    cr_assert_eq(wait_for(1), STATUS_OK);
    labelled(OP_TANH, 2, 1, 1, "low");
    engine_kick(engine);
    stall_mark(stall_stream(1));
    struct stream *above = stall_stream(2);
    struct stream_mark held = {.event = marks_at(&stall_stream(1)->marks, 0)->event,
                               .span = marks_at(&stall_stream(1)->marks, 0)->span};
    for (int i = 0; i < 100; i++) { /* at each look something is there, each time something else */
        pthread_mutex_lock(&engine->order.lock);
        above->marks.ring[above->marks.first] = held;
        above->marks.count = 1;
        pthread_mutex_unlock(&engine->order.lock);
        atomic_fetch_add(&above->completed, 1);
        cr_assert_not(stalled(5 * second, &stall), "%d looks", i);
        above->marks.count = 0;
    }
    atomic_fetch_sub(&above->completed, 100);
    cr_assert_neq(stalls_beside(2, &id, 5 * second, 20, &stall), 0);
    cr_assert_str_eq(stall.operation, "tanh");
    close_late();
}

Test(engine_stall, several_launches_between_two_events_are_told_as_such) {
    struct engine_stall stall;
    open_late("tanh");
    cr_assert_eq(full(session, 1, 1000, 0), STATUS_OK);
    cr_assert_eq(wait_for(1), STATUS_OK);
    labelled(OP_EXP, 2, 1, 0, "a");
    labelled(OP_TANH, 3, 2, 0, NULL);
    labelled(OP_NEGATIVE, 4, 3, 0, "b");
    engine_kick(engine);
    stall_mark(session->stream);
    cr_assert(stall_found(&stall), "never noticed");
    cr_assert_str_eq(stall.operation, "one of 3 launches, from exp to negative");
    close_late();
}

/* The session that is at fault goes first; what it has left on the device is still told of. */
Test(engine_stall, device_has_its_time_again_without_the_session) {
    struct engine_stall stall;
    open_late("tanh");
    cr_assert_eq(full(session, 1, 1000, 0), STATUS_OK);
    cr_assert_eq(wait_for(1), STATUS_OK);
    labelled(OP_TANH, 2, 1, 0, "culprit");
    engine_kick(engine);
    stall_mark(session->stream);
    cr_assert(stall_found(&stall), "never noticed");
    cr_assert_eq(stall.session, session);
    engine_stall_again(engine);
    session_destroy(session);
    session = NULL;
    cr_assert_eq(stalls_after(5 * second, 8, &stall), 0);
    cr_assert_neq(stalls_after(5 * second, 8, &stall), 0);
    cr_assert_str_eq(stall.operation, "tanh");
    cr_assert_null(stall.session);
    close_late();
}

/* An operation that is estimated to take ten seconds, on the device, which will not do it. */
static void hang_long(void) {
    open_late("tanh");
    cr_assert_eq(full(session, 1, 1000, 0), STATUS_OK);
    cr_assert_eq(wait_for(1), STATUS_OK);
    labelled(OP_TANH, 2, 1, 0, "culprit");
    engine_kick(engine);
    struct stream_mark *mark = stall_mark(session->stream);
    pthread_mutex_lock(&engine->order.lock);
    mark->span.weight = 10 * second;
    pthread_mutex_unlock(&engine->order.lock);
}

Test(engine_stall, session_at_fault_has_the_time_of_its_estimate_once) {
    struct engine_stall stall;
    hang_long();
    cr_assert_eq(stalls_after(second, 80, &stall), 0);
    cr_assert_neq(stalls_after(second, 10, &stall), 0);
    cr_assert_eq(stall.session, session);
    engine_stall_again(engine);
    session_destroy(session);
    session = NULL;
    int looks = stalls_after(second, 10, &stall);
    cr_assert(looks >= 2 && looks <= 3, "%d", looks);
    cr_assert_str_eq(stall.operation, "tanh");
    close_late();
}

/* Others would lose all for a client that has ended in the middle of its work. */
Test(engine_stall, session_that_ends_by_itself_leaves_its_work_the_time_it_needs) {
    struct engine_stall stall;
    hang_long();
    cr_assert_eq(stalls_after(second, 4, &stall), 0);
    session_destroy(session);
    session = NULL;
    cr_assert_eq(stalls_after(second, 70, &stall), 0);
    cr_assert_neq(stalls_after(second, 20, &stall), 0);
    close_late();
}

/* Of another stream a launch waits for the value it uses, and not for what has been put there behind it. */
Test(engine_stall, stream_waits_for_the_value_alone) {
    open_late("exp");
    open_stream(1);
    open_stream(2);
    cr_assert_eq(full(session, 1, 1000, 1), STATUS_OK);
    cr_assert_eq(wait_for(1), STATUS_OK);
    labelled(OP_EXP, 2, 1, 1, "value");
    engine_kick(engine);
    marks_are(stall_stream(1), 1);
    labelled(OP_TANH, 3, 1, 1, "behind it");
    engine_kick(engine);
    marks_are(stall_stream(1), 2);
    labelled(OP_NEGATIVE, 4, 2, 2, "user");
    engine_kick(engine);
    marks_are(stall_stream(2), 1);
    late_hang(late, "tanh");
    cr_assert_eq(wait_for(4), STATUS_OK);
    close_late();
}

/* As many marks as a stream has. Behind the value that is used, the stream is stuck. */
Test(engine_stall, stream_waits_for_the_value_alone_behind_many_others) {
    enum { VALUE = 40 };
    open_late("exp");
    open_stream(1);
    open_stream(2);
    cr_assert_eq(full(session, 1, 1000, 1), STATUS_OK);
    cr_assert_eq(wait_for(1), STATUS_OK);
    for (uint64_t id = 2; id < STREAM_MARKS; id++) {
        labelled(id == 2 ? OP_EXP : id == VALUE + 1 ? OP_TANH : OP_NEGATIVE, id, 1, 1, "many");
        engine_kick(engine);
        marks_are(stall_stream(1), (unsigned)id - 1);
    }
    labelled(OP_ABS, STREAM_MARKS, VALUE, 2, "user");
    engine_kick(engine);
    marks_are(stall_stream(2), 1);
    late_hang(late, "tanh");
    cr_assert_eq(wait_for(STREAM_MARKS), STATUS_OK);
    close_late();
}

/* What is enqueued behind the awaited value in the same moment does not keep the waiting program. It is tried often: a turn may also end there for
 * the sake of a sample. */
Test(engine_stall, value_is_told_while_what_came_with_it_is_stuck) {
    enum { ROUNDS = 20, BEFORE = 5 };
    uint64_t id = 1;
    open_late("tanh");
    cr_assert_eq(full(session, 1, 1000, 0), STATUS_OK);
    cr_assert_eq(wait_for(1), STATUS_OK);
    for (int round = 0; round < ROUNDS; round++) {
        struct answer answer;
        for (int i = 0; i < BEFORE; i++)
            labelled(OP_NEGATIVE, ++id, 1, 0, "before");
        uint64_t value = id;
        labelled(OP_TANH, ++id, 1, 0, "behind it");
        ask_wait(&answer, value);
        cr_assert(settle(&answer.times), "round %d: it waits for what is behind it", round);
        late_hang(late, NULL);
        cr_assert_eq(wait_for(id), STATUS_OK);
        late_hang(late, "tanh");
    }
    close_late();
}

Test(engine_stall, device_that_is_given_up_answers_everything) {
    struct engine_stall stall;
    struct answer fetch, wait;
    struct fault fault;
    open_late("tanh");
    cr_assert_eq(full(session, 1, 1000, 0), STATUS_OK);
    labelled(OP_TANH, 2, 1, 0, "x");
    engine_kick(engine);
    ask_fetch(&fetch, 2);
    ask_wait(&wait, 0);
    cr_assert(stall_found(&stall));
    fault_set(&fault, STATUS_DEVICE_LOST, "no progress in %s", stall.operation);
    engine_fail(engine, &fault);
    cr_assert(settle(&fetch.times) && settle(&wait.times), "not answered");
    cr_assert_eq(fetch.code, STATUS_DEVICE_LOST);
    cr_assert_eq(wait.code, STATUS_DEVICE_LOST);
    cr_assert_eq(engine_fault(engine, &fault), STATUS_DEVICE_LOST);
    cr_assert(strstr(fault.message, "no progress in "), "%s", fault.message);
    cr_assert_not(stalled(second, &stall), "it has been told");
    fetch_release(&fetch.fetch);
    late_lose(late);
    close_late();
}
