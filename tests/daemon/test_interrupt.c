/* Waits that the program ends: the call comes back, its request goes on, and the session stays as it was. Also what else a binding of
 * another language needs: a descriptor for a wait, a wait for room in the send queue, scopes that hold no handles. */
#include <criterion/criterion.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/status.h"

enum { END_MS = 30000 };

static struct daemon tensord;
static struct client client;
static pid_t worker;

/* One wait: how often it was asked, when it wants to end, and what came of its request. */
struct asked {
    int times, end_at;
    sem_t done;
    int status;
};

static bool ask(void *user) {
    struct asked *asked = user;
    return ++asked->times == asked->end_at;
}

static void done(void *user, int status) {
    struct asked *asked = user;
    asked->status = status;
    sem_post(&asked->done);
}

static td_interrupt interrupt_of(struct asked *asked, int end_at) {
    *asked = (struct asked){.end_at = end_at, .status = -1};
    sem_init(&asked->done, 0, 0);
    return (td_interrupt){ask, done, asked};
}

static void start(void) {
    daemon_start(&tensord, NULL);
    client_open(&client, tensord.url, "cpu:0");
    worker = status_worker_pid(tensord.url, "cpu:0");
}

static void stop(void) {
    kill(worker, SIGCONT);
    client_close(&client);
    daemon_stop(&tensord);
}

TestSuite(interrupt, .init = start, .fini = stop, .timeout = 120);

Test(interrupt, waits_that_nobody_ends_are_as_others) {
    struct asked asked;
    td_interrupt interrupt = interrupt_of(&asked, 0);
    float got[3];
    td_tensor *x = client_ramp(client.device, 3, 1);
    cr_assert_eq(td_fetch_interruptible(x, got, sizeof got, &interrupt), TD_OK, "%s", td_last_error()->message);
    cr_assert(got[0] == 1 && got[2] == 3);
    cr_assert_eq(td_wait_interruptible(x, &interrupt), TD_OK);
    cr_assert_eq(td_sync_interruptible(client.device, &interrupt), TD_OK);
    const int64_t beyond = 9;
    td_tensor *lost = td_take(x, td_upload(client.device, TD_I64, TD_SHAPE(1), &beyond), 0);
    cr_assert_eq(td_wait_interruptible(lost, &interrupt), TD_E_OUT_OF_RANGE);
    cr_assert_str_eq(td_last_error()->operation, "take");
    cr_assert_eq(td_fetch_interruptible(x, got, 1, &interrupt), TD_E_INVALID_ARGUMENT);
    cr_assert_eq(td_wait_interruptible(NULL, &interrupt), TD_E_INVALID_ARGUMENT);
    cr_assert_eq(td_wait_interruptible(x, &(td_interrupt){.asked = ask}), TD_E_INVALID_ARGUMENT);
}

Test(interrupt, ended_waits_come_back_and_their_requests_go_on) {
    struct asked fetch, wait, sync;
    td_interrupt interrupts[] = {interrupt_of(&fetch, 1), interrupt_of(&wait, 2), interrupt_of(&sync, 1)};
    float got[4] = {0};
    td_tensor *x = client_ramp(client.device, 4, 1);
    cr_assert(!td_wait(x));
    kill(worker, SIGSTOP);
    td_tensor *y = td_add(x, x);
    cr_assert_eq(td_fetch_interruptible(y, got, sizeof got, &interrupts[0]), TD_E_CANCELLED);
    cr_assert_eq(td_wait_interruptible(y, &interrupts[1]), TD_E_CANCELLED);
    td_release(y); /* while both requests are on their way */
    cr_assert_eq(td_sync_interruptible(client.device, &interrupts[2]), TD_E_CANCELLED);
    cr_assert(fetch.times == 1 && wait.times == 2 && sync.times == 1);
    kill(worker, SIGCONT);
    struct asked *all[] = {&fetch, &wait, &sync};
    for (int i = 0; i < 3; i++) {
        sem_wait(&all[i]->done);
        cr_assert_eq(all[i]->status, TD_OK);
    }
    cr_assert(got[0] == 2 && got[3] == 8);
    client_expect(x, (float[]){1, 2, 3, 4}, 4);
}

static volatile sig_atomic_t signals;

static void on_signal(int number) {
    (void)number;
    signals++;
}

static bool ask_signal(void *user) {
    (void)user;
    return signals > 0;
}

Test(interrupt, a_signal_is_a_reason_to_ask) {
    struct asked asked;
    td_interrupt interrupt = interrupt_of(&asked, 0);
    interrupt.asked = ask_signal;
    td_tensor *x = client_ramp(client.device, 4, 1);
    signal(SIGALRM, on_signal);
    kill(worker, SIGSTOP);
    alarm(1);
    cr_assert_eq(td_wait_interruptible(x, &interrupt), TD_E_CANCELLED);
    kill(worker, SIGCONT);
    sem_wait(&asked.done);
    cr_assert_eq(asked.status, TD_OK);
}

/* What goes on without its caller ends with the device, too. */
Test(interrupt, requests_that_go_on_end_when_the_device_is_closed) {
    struct asked asked;
    td_interrupt interrupt = interrupt_of(&asked, 1);
    float got[4];
    td_tensor *x = client_ramp(client.device, 4, 1);
    cr_assert(!td_wait(x));
    kill(worker, SIGSTOP);
    cr_assert_eq(td_fetch_interruptible(x, got, sizeof got, &interrupt), TD_E_CANCELLED);
    td_close(client.connection);
    client.connection = NULL;
    cr_assert_eq(sem_trywait(&asked.done), 0);
    cr_assert_eq(asked.status, TD_E_CANCELLED);
}

Test(interrupt, a_descriptor_tells_the_end_of_a_wait) {
    uint64_t value = 0;
    int fd;
    td_tensor *x = client_ramp(client.device, 4, 1);
    cr_assert(!td_wait(x));
    kill(worker, SIGSTOP);
    cr_assert_eq(td_wait_fd(td_add(x, x), &fd), TD_OK);
    cr_assert(!deadline_poll(fd, POLLIN, deadline_in(0)));
    kill(worker, SIGCONT);
    cr_assert(deadline_poll(fd, POLLIN, deadline_in(END_MS)));
    cr_assert(read(fd, &value, sizeof value) == sizeof value && value == 1);
    close(fd);
    cr_assert_eq(td_wait_fd(NULL, &fd), TD_E_INVALID_ARGUMENT);
    cr_assert_eq(td_wait_fd(x, NULL), TD_E_INVALID_ARGUMENT);
}

Test(interrupt, room_in_the_queue_is_waited_for) {
    td_tensor *x = client_ramp(client.device, 4, 1);
    cr_assert(!td_wait(x));
    cr_assert_eq(td_wait_room(client.device, 0), TD_OK);
    kill(worker, SIGSTOP);
    td_tensor *y;
    while ((y = td_add(x, x)))
        td_release(y);
    cr_assert_eq(td_last_error()->code, TD_E_AGAIN, "%s", td_last_error()->message);
    cr_assert_eq(td_wait_room(client.device, 10), TD_E_TIMED_OUT);
    kill(worker, SIGCONT);
    cr_assert_eq(td_wait_room(client.device, TD_NEVER), TD_OK, "%s", td_last_error()->message);
    cr_assert_not_null(td_add(x, x));
    cr_assert_eq(td_wait_room(NULL, 0), TD_E_INVALID_ARGUMENT);
}

Test(interrupt, scopes_that_only_label_release_no_handle) {
    const int64_t beyond = 9;
    td_scope_begin("outer");
    td_tensor *held = client_ramp(client.device, 4, 1);
    td_keep(held);
    td_tensor *index = td_keep(td_upload(client.device, TD_I64, TD_SHAPE(1), &beyond));
    td_scope_begin_label("inner");
    td_tensor *x = td_add(held, held), *lost = td_keep(td_take(held, index, 0));
    td_scope_end();
    client_expect(x, (float[]){2, 4, 6, 8}, 4);
    td_scope_end(); /* releases x, which belonged to "outer" */
    cr_assert_str_eq(client_expect_failure(lost, TD_E_OUT_OF_RANGE)->label, "outer/inner");
    td_scope_begin_label("alone");
    td_tensor *free = td_add(held, held);
    td_scope_end();
    client_expect(free, (float[]){2, 4, 6, 8}, 4);
}

Test(interrupt, a_scope_that_sets_free_keeps_handles_from_those_around_it) {
    td_scope_begin("outer");
    td_tensor *held = client_ramp(client.device, 4, 1);
    cr_assert_eq(td_scope_begin_free(), 0);
    td_tensor *free = td_add(held, held);
    td_scope_begin("inner");
    td_tensor *kept = td_keep(td_add(free, free));
    (void)td_add(free, kept); /* released by "inner" */
    td_scope_end();
    td_scope_end();
    td_scope_end(); /* releases `held` */
    client_expect(free, (float[]){2, 4, 6, 8}, 4);
    client_expect(kept, (float[]){4, 8, 12, 16}, 4);
    td_release(free), td_release(kept);
}

Test(interrupt, one_call_slices_all_axes) {
    td_tensor *x = td_reshape(client_ramp(client.device, 6, 0), TD_SHAPE(2, 3));
    const int64_t ranges[] = {TD_NONE, TD_NONE, -1, 1, TD_NONE, 1};
    td_tensor *y = td_slices(x, 6, ranges);
    cr_assert_not_null(y, "%s", td_last_error()->message);
    client_expect(td_copy(y), (float[]){4, 5, 1, 2}, 4);
    cr_assert_null(td_slices(x, 3, ranges));
    cr_assert_null(td_slices(x, 27, ranges));
}
