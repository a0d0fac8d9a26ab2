/* Waits for names to be on the disk: many of them are replied to in turns of bounded time, in order, and none is lost. */
#include <stdlib.h>
#include <sys/stat.h>

#include "server/worker/state_impl.h"
#include "tests/unit/service_fixture.h"

enum { MANY = 2000 };

static struct state state;
static char directory[] = "/tmp/tensord-test-XXXXXX";
static struct state_wait waits[2 * MANY], other_wait;
/* Those that were called, in this order; and how many of them had a fault. */
static unsigned order[2 * MANY], called, faults;
static bool other_called, other_fault;

static void on_done(struct state_wait *wait, const struct fault *fault) {
    order[called++] = (unsigned)(wait - waits);
    faults += fault != NULL;
    cr_assert(fault || wait->revision <= names_owner(&service.names, "uid:0")->disk->saved);
}

static void on_other_done(struct state_wait *wait, const struct fault *fault) {
    (void)wait;
    other_called = true;
    other_fault = fault != NULL;
}

static void finish_state(void) {
    state_finish(&state);
}

/* Names are saved at once, but for now none are. */
static void open_state(void) {
    struct fault fault;
    open_service(&(struct limits){.named_tensors = 4});
    cr_assert_not_null(mkdtemp(directory));
    cr_assert_eq(state_init(&state, &service, directory, &fault), STATUS_OK, "%s", fault.message);
    finish_more = finish_state;
    state.paused = true;
}

static void close_state(void) {
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", directory);
    close_service();
    cr_assert_eq(system(command), 0);
}

/* A tensor of this principal gets a name, which is not on the disk yet. */
static void change(const char *principal) {
    const uint64_t id = 1;
    char *text = "w";
    Tensord__Publish publish = TENSORD__PUBLISH__INIT;
    publish.n_ids = publish.n_names = 1;
    publish.ids = (uint64_t *)(uintptr_t)&id;
    publish.names = &text;
    snprintf(peer.principal.name, sizeof peer.principal.name, "%s", principal);
    open_client();
    session_submit(connection->session, &(struct op_request)REQUEST_FULL(DTYPE_U8, 1, 0, .output = 1, .sequence = 1));
    engine_kick(service.engine);
    send_message(FRAME_PUBLISH, 2, &publish.base);
    for (unsigned turns = 0; !connection->out.pending && turns < TURNS_MAX; turns++)
        turn();
    for (unsigned turns = 0; !names_owner(&service.names, principal) && turns < TURNS_MAX; turns++)
        turn();
    cr_assert_not_null(names_owner(&service.names, principal));
    close(client);
    client = -1;
    for (unsigned turns = 0; service.connections && turns < TURNS_MAX; turns++)
        turn();
}

static void wait_many(unsigned first) {
    for (unsigned i = first; i < first + MANY; i++) {
        waits[i].done = on_done;
        cr_assert(names_wait(&service.names, "uid:0", &waits[i]));
    }
}

/* The changes so far begin to be saved. Later ones are saved afterwards. */
static void begin_save(void) {
    state.paused = false;
    state_go(&state);
}

/* Turns until so many are called. A turn has so little time that one look at the clock is all of it. Returns the
 * number of turns that have called some. */
static unsigned turns_until_called(unsigned n) {
    unsigned some = 0;
    look_ns = SERVICE_TURN_NS;
    for (unsigned turns = 0; called < n && turns < TURNS_MAX; turns++) {
        unsigned before = called;
        turn();
        sched_yield();
        some += called > before;
        cr_assert_leq(called - before, BUDGET_STEPS, "%u were called in one turn", called - before);
    }
    look_ns = 1000;
    return some;
}

/* In the order in which they began to wait. */
static void expect_called(unsigned n, unsigned with_fault) {
    cr_assert_eq(called, n, "%u were called", called);
    cr_assert_eq(faults, with_fault, "%u had a fault", faults);
    for (unsigned i = 0; i < n; i++)
        cr_assert_eq(order[i], i, "number %u was called as number %u", order[i], i);
}

static void remove_name(const char *principal) {
    struct fault fault;
    cr_assert_eq(names_remove(&service.names, principal, "w", "", &fault), STATUS_OK, "%s", fault.message);
}

Test(state_waits, many_are_called_in_turns_and_in_order) {
    open_state();
    change("uid:0");
    wait_many(0);
    begin_save();
    remove_name("uid:0");
    wait_many(MANY); /* for a change that the first save does not have */
    cr_assert_gt(turns_until_called(2 * MANY), 2 * MANY / BUDGET_STEPS);
    expect_called(2 * MANY, 0);
    cr_assert_null(names_owner(&service.names, "uid:0"), "it has no names, and nobody waits");
    close_state();
}

Test(state_waits, an_owner_with_one_is_not_behind_an_owner_with_many) {
    const char *const principals[] = {"uid:0", "uid:1"};
    open_state();
    change("uid:0");
    change("uid:1");
    wait_many(0);
    other_wait.done = on_other_done;
    cr_assert(names_wait(&service.names, "uid:1", &other_wait));
    for (int i = 0; i < 2; i++) {
        const struct name_owner *owner = names_owner(&service.names, principals[i]);
        state_not_saved(&state, owner, owner->disk->revision, &(struct fault){STATUS_INTERNAL, "test"});
    }
    look_ns = SERVICE_TURN_NS;
    turn();
    cr_assert(other_called, "%u of the other one's were called before", called);
    turns_until_called(MANY);
    expect_called(MANY, MANY);
    close_state();
}

/* A change that came after the save had begun has it tried again. */
Test(state_waits, a_save_that_fails_is_told_to_all_and_tried_again_for_later_changes) {
    struct fault fault;
    open_state();
    change("uid:0");
    const struct state_owner *disk = names_owner(&service.names, "uid:0")->disk;
    wait_many(0);
    cr_assert_eq(rmdir(directory), 0);
    begin_save();
    cr_assert_eq(names_move(&service.names, "uid:0", "w", "uid:0", "v", &fault), STATUS_OK, "%s", fault.message);
    wait_many(MANY);
    cr_assert_gt(turns_until_called(2 * MANY), 2 * MANY / BUDGET_STEPS);
    expect_called(2 * MANY, 2 * MANY);
    cr_assert_eq(disk->failures, 2, "%u", disk->failures);
    cr_assert_eq(mkdir(directory, 0700), 0);
    other_wait.done = on_other_done;
    cr_assert(names_wait(&service.names, "uid:0", &other_wait));
    begin_save();
    for (unsigned turns = 0; !other_called && turns < TURNS_MAX; turns++)
        turn();
    cr_assert(other_called && !other_fault);
    close_state();
}

/* Replies that are still to be sent come before those to later requests, although the disk has all changes by then. */
Test(state_waits, a_late_one_does_not_overtake_those_that_are_still_to_be_called) {
    open_state();
    change("uid:0");
    wait_many(0);
    begin_save();
    turns_until_called(1);
    cr_assert_lt(called, MANY);
    wait_many(MANY);
    turns_until_called(2 * MANY);
    expect_called(2 * MANY, 0);
    cr_assert(!names_wait(&service.names, "uid:0", &other_wait), "all of it is on the disk");
    close_state();
}

Test(state_waits, those_that_are_cancelled_are_not_called) {
    open_state();
    change("uid:0");
    wait_many(0);
    begin_save();
    turns_until_called(1);
    unsigned before = called;
    cr_assert_lt(before, MANY);
    for (unsigned i = 0; i < MANY; i++)
        state_wait_cancel(&waits[i]);
    for (unsigned turns = 0; state_has_replies(&state) && turns < TURNS_MAX; turns++)
        turn();
    expect_called(before, 0);
    close_state();
}
