/* How long the front lets a worker be silent. Its process is a stand-in that does nothing; its page is the test's. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/front/config.h"
#include "server/front/worker_slot.h"

#define SECOND_NS UINT64_C(1000000000)

static void changed(void *owner) {
    (void)owner;
}

static void lost(void *owner, const struct worker_slot *at) {
    (void)owner, (void)at;
}

static const struct worker_slot_events events = {.changed = changed, .lost = lost};
static struct config config = {.watchdog_timeout = 2000, .device_timeout = 60000};
static struct stats_page page;
static struct stats_session sessions[STATS_SESSIONS_MAX];
static struct stats_principal principals[STATS_PRINCIPALS_MAX];
static struct stats_program programs[STATS_PROGRAMS_MAX];
static struct worker_process process;
static struct worker_slot slot;

static void start(void) {
    pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(60); /* it does not outlive a test that crashes before that is set */
        pause();
        _exit(0);
    }
    process.process.pid = pid;
    process.channel = -1;
    process.page = &page;
    slot = (struct worker_slot){.config = &config,
                                .events = &events,
                                .state = WORKER_READY,
                                .process = &process,
                                .snapshot = {.sessions = sessions, .principals = principals, .programs = programs},
                                .credentials = -1};
}

static void stop(void) {
    kill(process.process.pid, SIGKILL);
    waitpid(process.process.pid, NULL, 0);
}

TestSuite(worker_slot, .init = start, .fini = stop, .timeout = 60);

/* When it has written its page, begun to wait for its device, and gone on, in seconds before now; 0: it has not. */
static bool is_left_alone(uint64_t written_s, uint64_t held_up_s, uint64_t let_go_s) {
    uint64_t now = uv_hrtime();
    slot.state = WORKER_READY;
    page.written_ns = now - written_s * SECOND_NS;
    page.device_call_ns = held_up_s ? now - held_up_s * SECOND_NS : 0;
    page.device_called_ns = let_go_s ? now - let_go_s * SECOND_NS : 0;
    worker_slot_tick(&slot, false);
    return slot.state == WORKER_READY;
}

Test(worker_slot, silence_ends_a_worker) {
    cr_expect(is_left_alone(1, 0, 0));
    cr_expect_not(is_left_alone(3, 0, 0));
}

Test(worker_slot, worker_that_waits_for_its_device_may_be_silent_for_as_long_as_that_may_take) {
    cr_expect(is_left_alone(30, 30, 0));
    cr_expect_not(is_left_alone(63, 63, 0));
}

/* Its page is as old as the wait was long, until it has written it. */
Test(worker_slot, silence_counts_from_the_end_of_a_wait) {
    cr_expect(is_left_alone(30, 0, 1));
    cr_expect_not(is_left_alone(30, 0, 3));
    cr_expect(is_left_alone(1, 0, 30));
}

/* A turn of its loop may take long without a page: what it leaves while it works counts as well. */
Test(worker_slot, worker_that_works_is_left_alone_and_one_that_has_stopped_is_not) {
    page.alive_ns = uv_hrtime() - SECOND_NS;
    cr_expect(is_left_alone(30, 0, 0));
    page.alive_ns = uv_hrtime() - 3 * SECOND_NS;
    cr_expect_not(is_left_alone(30, 0, 0));
}

/* Otherwise connections that come and go faster than the front reads the worker's messages would be counted as guests,
 * more and more of them, and each new one would take longer. */
Test(worker_slot, connections_wait_until_the_front_knows_which_have_ended) {
    enum { MANY = 100000 };
    slot.handed = slot.taken = MANY;
    slot.ended = MANY - 10;
    atomic_store(&page.places.departed, MANY - 10);
    cr_expect(worker_slot_takes(&slot), "the front knows of all");
    atomic_store(&page.places.departed, MANY);
    cr_expect(worker_slot_takes(&slot), "it does not know of a few yet");
    slot.ended = MANY - 1000;
    cr_expect_not(worker_slot_takes(&slot), "it does not know of 1,000");
    slot.ended = MANY;
    cr_expect(worker_slot_takes(&slot));
    slot.taken = MANY - 1000;
    cr_expect_not(worker_slot_takes(&slot), "1,000 are on their way");
}
