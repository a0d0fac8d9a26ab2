/* Waiting and being woken: uploads that others wait for, fetches and waits in every state, callbacks that use the engine,
 * room, and wake-ups that must not be lost. Linked with --wrap=pthread_mutex_lock, to stop the submitter between a look at
 * another stream's point and the booking of what it saw. */
#include <pthread.h>

#include "tests/unit/engine_fixture.h"

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);

static struct {
    pthread_t owner;
    sem_t arrived, open;
    _Atomic bool armed;
} stop;

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex) {
    if (atomic_load(&stop.armed) && !pthread_equal(pthread_self(), stop.owner) && atomic_exchange(&stop.armed, false)) {
        sem_post(&stop.arrived);
        sem_wait(&stop.open);
    }
    return __real_pthread_mutex_lock(mutex);
}

/* ---- wake-ups ---- */

static int stop_hook(struct null_device *null, const struct launch *launch) {
    (void)null;
    if (launch->opcode == OP_FULL)
        atomic_store(&stop.armed, true); /* the next lock of this thread books the turn */
    return 0;
}

Test(engine_waiting, an_upload_that_ends_while_a_stream_is_found_blocked_is_not_missed) {
    struct upload upload;
    open_engine(1 << 30);
    sem_init(&stop.arrived, 0, 0);
    sem_init(&stop.open, 0, 0);
    stop.owner = pthread_self();
    device.hook = stop_hook;
    cr_assert_eq(upload_to(1, 4, 4, 0, true, &upload), STATUS_OK);
    /* Between 50 and 200 µs: the submitter's work, and the wait record is in the same turn. */
    cr_assert_eq(full_of(session, DTYPE_U8, 2, 400 << 10, 0), STATUS_OK);
    cr_assert_eq(binary(3, 1, 1, 0, 0), STATUS_OK);
    engine_kick(engine);
    sem_wait(&stop.arrived);
    device.hook = NULL;
    upload_finish(&upload, NULL);
    engine_kick(engine);
    engine_poll(engine);
    sem_post(&stop.open);
    cr_expect_eq(wait_for(3), STATUS_OK);
    close_engine();
}

static _Atomic unsigned wakes;

static void count_wake(void *owner) {
    (void)owner;
    atomic_fetch_add(&wakes, 1);
}

/* Waits for a wake-up before it polls, as a loop thread does. */
static bool woken(unsigned before, const int *times) {
    struct timespec pause = {.tv_nsec = 1000000};
    for (int i = 0; i < 30000 && !*times; i++) {
        if (atomic_load(&wakes) != before)
            engine_poll(engine);
        nanosleep(&pause, NULL);
    }
    return *times == 1;
}

static void open_woken(void) {
    struct fault fault;
    struct engine_options options = {.wake = count_wake};
    null_device_init(&device, 1 << 30);
    device.hook = gate_hook;
    cr_assert_eq(engine_create(&device.device, &options, &engine, &fault), STATUS_OK);
    cr_assert_eq(session_create(engine_sessions(engine), &limits, &session, &fault), STATUS_OK);
}

Test(engine_waiting, the_owner_is_woken_after_another_session_was_destroyed) {
    struct fault fault;
    struct session *other;
    struct answer answer;
    open_woken();
    cr_assert_eq(session_create(engine_sessions(engine), &limits, &other, &fault), STATUS_OK);
    cr_assert_eq(full(other, 1, 10, 0), STATUS_OK);
    session_destroy(other); /* kicks by itself, and nobody polls */
    cr_assert_eq(full_of(session, DTYPE_U8, 1, 8 << 20, 0), STATUS_OK);
    ask_wait(&answer, 1);
    unsigned before = atomic_load(&wakes);
    engine_kick(engine);
    cr_expect(woken(before, &answer.times), "no wake-up for a completion");
    close_engine();
}

Test(engine_waiting, the_owner_is_woken_though_it_did_not_poll_after_every_kick) {
    struct answer answer;
    open_woken();
    cr_assert_eq(full(session, 1, 10, 0), STATUS_OK);
    engine_kick(engine);
    cr_assert_eq(full_of(session, DTYPE_U8, 2, 8 << 20, 0), STATUS_OK);
    ask_wait(&answer, 2);
    unsigned before = atomic_load(&wakes);
    engine_kick(engine);
    cr_expect(woken(before, &answer.times), "no wake-up for a completion");
    close_engine();
}

/* ---- uploads ---- */

Test(engine_waiting, another_stream_waits_for_a_waitable_upload) {
    struct upload upload;
    struct answer answer;
    open_engine(1 << 30);
    open_stream(3);
    cr_assert_eq(upload_to(1, 4, 4, 0, true, &upload), STATUS_OK);
    cr_assert_eq(binary(2, 1, 1, 1, 3), STATUS_OK);
    ask_fetch(&answer, 2);
    engine_kick(engine);
    engine_poll(engine);
    cr_assert_eq(answer.times, 0);
    cr_assert_eq(atomic_load(&device.launches), 0);
    upload_fill(&upload, 1); /* consumed, but not yet gone */
    upload_finish(&upload, NULL);
    cr_assert(settle(&answer.times));
    cr_assert_eq(answer.code, STATUS_OK);
    fetch_release(&answer.fetch);
    close_engine();
}

Test(engine_waiting, a_failed_waitable_upload_poisons_what_waits_for_it) {
    struct upload upload;
    struct answer answer;
    open_engine(1 << 30);
    open_stream(3);
    cr_assert_eq(upload_to(1, 4, 4, 0, true, &upload), STATUS_OK);
    cr_assert_eq(binary(2, 1, 1, 0, 3), STATUS_OK);
    cr_assert_eq(unary(OP_MATRIX_TRANSPOSE, 3, 1, 3), STATUS_OK);
    ask_wait(&answer, 3);
    engine_kick(engine);
    upload_finish(&upload, &(struct failure){.code = STATUS_CONNECTION, .message = "the peer is gone"});
    cr_assert(settle(&answer.times));
    cr_assert_eq(answer.code, STATUS_CONNECTION);
    cr_assert_eq(wait_for(1), STATUS_CONNECTION);
    cr_assert_eq(wait_for(2), STATUS_CONNECTION);
    close_engine();
}

Test(engine_waiting, a_session_destroyed_under_its_uploads_leaves_nothing) {
    struct upload uploads[3];
    struct answer fetch, wait;
    open_engine(1 << 30);
    open_stream(3);
    cr_assert_eq(upload_to(1, 4, 4, 0, true, &uploads[0]), STATUS_OK);
    cr_assert_eq(upload_to(2, 4, 4, 0, false, &uploads[1]), STATUS_OK);
    cr_assert_eq(upload_to(3, 0, 4, 0, true, &uploads[2]), STATUS_OK);
    cr_assert_eq(binary(4, 1, 1, 0, 3), STATUS_OK);
    ask_fetch(&fetch, 4);
    ask_wait(&wait, 0);
    engine_kick(engine);
    engine_poll(engine);
    session_destroy(session);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(uploads[i].bytes, 0);
    engine_poll(engine);
    cr_assert_eq(fetch.times + wait.times, 0);
    fetch_release(&fetch.fetch); /* what the owner of a request does, whatever became of it */
    wait_cancel(&wait.wait);
    session = NULL;
    close_engine();
}

Test(engine_waiting, an_upload_used_too_early_fails_its_user_alone) {
    struct upload upload;
    open_engine(1 << 30);
    cr_assert_eq(upload_to(1, 4, 4, 0, false, &upload), STATUS_OK);
    cr_assert_eq(binary(2, 1, 1, 0, 0), STATUS_INVALID_ARGUMENT);
    cr_assert_eq(wait_for(1), STATUS_INVALID_ARGUMENT);
    upload_finish(&upload, NULL);
    cr_assert_eq(wait_for(1), STATUS_OK);
    cr_assert_eq(binary(3, 1, 1, 0, 0), STATUS_OK);
    cr_assert_eq(wait_for(3), STATUS_OK);
    close_engine();
}

Test(engine_waiting, an_upload_released_before_its_end_is_harmless) {
    struct upload upload;
    open_engine(1 << 30);
    for (int waitable = 0; waitable < 2; waitable++) {
        uint64_t id = 1 + (uint64_t)waitable;
        cr_assert_eq(upload_to(id, 4, 4, 0, waitable, &upload), STATUS_OK);
        cr_assert_eq(release(id), STATUS_OK);
        upload_fill(&upload, 1);
        upload_finish(&upload, NULL);
        cr_assert_eq(wait_for(id), STATUS_UNKNOWN_ID);
    }
    cr_assert_eq(session->ledger.payer.bytes, 0);
    close_engine();
}

Test(engine_waiting, an_upload_of_a_type_that_is_none_is_refused) {
    struct upload uploads[3];
    struct tensor_type types[] = {
        {.dtype = DTYPE_F32, .rank = 1, .shape = {-4}},
        {.dtype = DTYPE_F32, .rank = 2, .shape = {INT64_C(1) << 40, INT64_C(1) << 40}},
        {.dtype = (enum dtype)77, .rank = 1, .shape = {4}},
    };
    open_engine(1 << 30);
    for (uint64_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct upload_request request = {.id = i + 1, .type = &types[i]};
        cr_expect_neq(session_upload(session, &request, &uploads[i]), STATUS_OK, "type %d", (int)i);
    }
    close_engine();
}

/* ---- ids ---- */

Test(engine_waiting, odd_ids_and_consume_bits_fail_one_operation_at_most) {
    open_engine(1 << 30);
    cr_assert_eq(full(session, 5, 10, 0), STATUS_OK);
    cr_assert_eq(binary(6, 6, 5, 1, 0), STATUS_UNKNOWN_ID); /* its own input */
    cr_assert_eq(wait_for(6), STATUS_UNKNOWN_ID);           /* consuming itself is not possible */
    cr_assert_eq(binary(7, 5, 5, 3, 0), STATUS_OK);         /* consumed twice */
    cr_assert_null(session_tensor(session, 5));
    cr_assert_eq(binary(7, 7, 7, 0, 0), STATUS_DUPLICATE_ID);
    cr_assert_eq(wait_for(7), STATUS_OK);
    cr_assert_eq(binary(8, 7, 7, 0xfffc, 0), STATUS_OK); /* bits of inputs that are not there */
    cr_assert_eq(binary(9, 7, 5, 1, 0), STATUS_UNKNOWN_ID);
    cr_assert_null(session_tensor(session, 7), "consumed by an operation that failed");
    cr_assert_eq(binary(10, 9, 8, 0, 0), STATUS_UNKNOWN_ID);
    cr_assert_eq(full(session, 0, 10, 0), STATUS_INVALID_ARGUMENT);
    cr_assert_eq(submit_in(session, (struct op_request){.opcode = 9999, .output = 11}), STATUS_INVALID_ARGUMENT);
    cr_assert_eq(submit_in(session, (struct op_request){.opcode = OP_ADD, .n_inputs = 300, .output = 12}),
                 STATUS_INVALID_ARGUMENT);
    cr_assert_eq(full(session, 13, 10, 77), STATUS_INVALID_ARGUMENT);
    cr_assert_eq(wait_for(0), STATUS_OK);
    close_engine();
}

/* ---- fetches and waits ---- */

Test(engine_waiting, fetches_and_waits_are_cancelled_in_every_state) {
    struct answer fetch, wait, all;
    open_engine(1 << 30);
    open_stream(2);
    ask_fetch(&fetch, 99);
    cr_assert_eq(fetch.code, STATUS_UNKNOWN_ID);
    fetch_release(&fetch.fetch);
    park(1);
    cr_assert_eq(full(session, 2, 10, 0), STATUS_OK);
    cr_assert_eq(full(session, 3, 10, 2), STATUS_OK);
    ask_fetch(&fetch, 2);
    ask_wait(&wait, 2);
    ask_wait(&all, 0);
    fetch_release(&fetch.fetch);
    fetch_release(&fetch.fetch);
    wait_cancel(&wait.wait);
    wait_cancel(&wait.wait);
    wait_cancel(&all.wait);
    ask_fetch(&fetch, 2);
    cr_assert_eq(release(2), STATUS_OK); /* the fetch keeps the value */
    ask_wait(&all, 0);
    unpark();
    cr_assert(settle(&all.times));
    cr_assert(settle(&fetch.times));
    cr_assert_eq(fetch.code, STATUS_OK);
    fetch_release(&fetch.fetch);
    fetch_release(&fetch.fetch);
    wait_cancel(&all.wait);
    cr_assert_eq(session_tensor(session, 1)->storage->bytes,
                 session->ledger.payer.bytes - session_tensor(session, 3)->storage->bytes);
    close_engine();
}

static struct answer chain[3];

static void release_and_go_on(struct fetch *fetch, const struct failure *failure) {
    answer_fetch(fetch, failure);
    fetch_release(fetch);
    cr_assert_eq(full(session, 50, 10, 0), STATUS_OK);
    ask_wait(&chain[1], 50);
    wait_cancel(&chain[2].wait); /* hangs on the same point and has not been called */
    engine_kick(engine);
}

Test(engine_waiting, a_callback_may_use_the_session) {
    open_engine(1 << 30);
    park(1);
    cr_assert_eq(full(session, 2, 10, 0), STATUS_OK);
    chain[0] = (struct answer){.fetch.done = release_and_go_on};
    session_fetch(session, 2, &chain[0].fetch);
    ask_wait(&chain[2], 2);
    unpark();
    cr_assert(settle(&chain[0].times));
    cr_assert(settle(&chain[1].times));
    cr_assert_eq(chain[2].times, 0);
    close_engine();
}

static void destroy_session(struct wait *wait, const struct failure *failure) {
    answer_wait(wait, failure);
    session_destroy(session);
    session = NULL;
}

Test(engine_waiting, a_callback_may_destroy_the_session) {
    struct answer answers[4];
    open_engine(1 << 30);
    open_stream(2);
    park(1);
    cr_assert_eq(full(session, 2, 10, 2), STATUS_OK);
    answers[0] = (struct answer){.wait.done = destroy_session};
    session_wait(session, 0, &answers[0].wait);
    for (int i = 1; i < 4; i++)
        ask_wait(&answers[i], 2);
    unpark();
    for (int i = 0; i < 2000 && session; i++) {
        engine_kick(engine);
        engine_poll(engine);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    cr_assert_null(session);
    close_engine();
}

/* ---- room ---- */

static void told(void *owner) {
    ++*(int *)owner;
}

Test(engine_waiting, room_is_told_when_nothing_is_queued) {
    int times = 0;
    open_engine(1 << 30);
    session_notify_drained(session, 0, told, &times);
    cr_assert_eq(times, 0, "told from within");
    cr_assert(settle(&times));
    close_engine();
}

Test(engine_waiting, room_is_told_at_once_when_less_than_that_is_queued) {
    struct upload upload;
    int times = 0;
    open_engine(1 << 30);
    cr_assert_eq(upload_to(1, 4, 4, 0, true, &upload), STATUS_OK);
    for (uint64_t id = 2; id < 12; id++)
        cr_assert_eq(binary(id, 1, 1, 0, 0), STATUS_OK);
    session_notify_drained(session, 100, told, &times);
    cr_expect(settle(&times), "%d queued", (int)session_queued(session));
    upload_finish(&upload, NULL);
    cr_assert_eq(wait_for(0), STATUS_OK);
    close_engine();
}

Test(engine_waiting, room_does_not_hang_on_one_blocked_stream) {
    struct upload upload;
    int times = 0;
    open_engine(1 << 30);
    open_stream(2);
    cr_assert_eq(upload_to(1, 4, 4, 0, true, &upload), STATUS_OK);
    for (uint64_t id = 2; session_queued(session) < 80; id++)
        cr_assert_eq(binary(id, 1, 1, 0, 2), STATUS_OK);
    for (uint64_t id = 82; id < 142; id++)
        cr_assert_eq(full(session, id, 10, 0), STATUS_OK);
    session_notify_drained(session, 100, told, &times);
    cr_expect(settle(&times), "%d queued", (int)session_queued(session));
    upload_finish(&upload, NULL);
    cr_assert_eq(wait_for(0), STATUS_OK);
    close_engine();
}

Test(engine_waiting, room_is_not_told_once_it_was_taken_back) {
    int times = 0, other = 0;
    open_engine(1 << 30);
    open_stream(2);
    park(1);
    for (uint64_t id = 2; id < 100; id++)
        cr_assert_eq(full(session, id, 10, id & 2), STATUS_OK);
    session_notify_drained(session, 10, told, &times);
    session_notify_drained(session, 20, told, &other); /* replaces */
    session_notify_drained(session, 0, NULL, NULL);
    session_notify_drained(session, 30, told, &other);
    unpark();
    cr_assert(settle(&other));
    cr_assert_leq(session_queued(session), 30);
    session_notify_drained(session, 0, told, &times);
    session_notify_drained(session, 0, NULL, NULL);
    cr_assert_eq(wait_for(0), STATUS_OK);
    engine_poll(engine);
    cr_assert_eq(times, 0);
    cr_assert_eq(other, 1);
    close_engine();
}

/* ---- faults ---- */

static int fail_hook(struct null_device *null, const struct launch *launch) {
    (void)null;
    return launch->opcode == OP_NEGATIVE ? -1 : 0;
}

Test(engine_waiting, a_fault_answers_all_that_is_pending) {
    struct answer answers[5];
    struct upload upload;
    open_engine(1 << 30);
    open_stream(2);
    device.hook = fail_hook;
    cr_assert_eq(upload_to(1, 4, 4, 0, true, &upload), STATUS_OK);
    cr_assert_eq(binary(2, 1, 1, 0, 2), STATUS_OK); /* blocked until the upload ends */
    cr_assert_eq(full(session, 3, 10, 0), STATUS_OK);
    cr_assert_eq(unary(OP_NEGATIVE, 4, 3, 0), STATUS_OK);
    ask_wait(&answers[0], 4);
    ask_wait(&answers[1], 0);
    ask_fetch(&answers[2], 2);
    ask_fetch(&answers[3], 1);
    cr_assert(settle(&answers[0].times));
    for (int i = 0; i < 4; i++) {
        cr_expect(settle(&answers[i].times), "%d is not answered", i);
        cr_expect_eq(answers[i].code, STATUS_DEVICE_LOST, "%d", i);
    }
    ask_wait(&answers[4], 3);
    cr_assert_eq(answers[4].code, STATUS_DEVICE_LOST);
    upload_finish(&upload, NULL);
    close_engine();
}
