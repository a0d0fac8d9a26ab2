/* The end of a daemon: queued work is finished, everyone gets an answer, nothing stays behind. */
#include <criterion/criterion.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/daemon/client.h"
#include "tests/daemon/command.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/status.h"
#include "tests/daemon/wire.h"

enum { END_MS = 20000 };

static struct daemon tensord;
static struct client client;

static void start(void) {
    daemon_start(&tensord, &(struct daemon_options){.devices = "cpu:0,cpu:1"});
    client_open(&client, tensord.url, "cpu:0");
}

static void stop(void) {
    td_close(client.connection);
    daemon_kill(&tensord);
}

TestSuite(drain, .init = start, .fini = stop, .timeout = 120);

/* Half a second of work whose result is known: products of ones, scaled back each time. */
static td_tensor *work(int rounds) {
    td_tensor *ones = td_full(client.device, TD_F32, TD_SHAPE(512, 512), 1);
    td_tensor *scale = td_full(client.device, TD_F32, TD_SCALAR, 1.0 / 512);
    td_tensor *x = ones;
    for (int i = 0; i < rounds; i++) {
        td_tensor *product = td_matmul(x, ones), *scaled = td_multiply(product, scale);
        td_release(product);
        if (x != ones)
            td_release(x);
        x = scaled;
    }
    td_tensor *sum = td_sum(x, TD_ALL_AXES, 0);
    cr_assert_not_null(sum, "%s", td_last_error()->message);
    return sum;
}

/* More than any machine does in a fraction of a second, and few enough for session-operations: past that the daemon reads on only
 * as the work is done. */
enum { LONG_ROUNDS = 5000 };

/* Returns when the daemon has read all that was sent so far: a request on a stream of its own overtakes the work. */
static void until_arrived(void) {
    td_stream *stream;
    cr_assert(!td_stream_open(client.device, 1, &stream) && !td_stream_set(client.device, stream));
    cr_assert(!td_wait(td_full(client.device, TD_F32, TD_SCALAR, 1)), "%s", td_last_error()->message);
    cr_assert(!td_stream_set(client.device, NULL));
    td_stream_close(stream);
}

/* The fetch's status. */
static int ended(int fd) {
    uint64_t value = 0;
    cr_assert(deadline_poll(fd, POLLIN, deadline_in(END_MS)), "the fetch was never answered");
    cr_assert_eq(read(fd, &value, sizeof value), sizeof value);
    close(fd);
    return (int)value - 1;
}

static void queued_work_is_finished_on(int signal_number) {
    float got = 0;
    int fd = -1;
    cr_assert(!td_fetch_fd(work(100), &got, sizeof got, &fd), "%s", td_last_error()->message);
    until_arrived();
    kill(tensord.pid, signal_number);
    cr_assert_eq(ended(fd), TD_OK);
    cr_assert_eq(got, 512 * 512);
    cr_assert_eq(daemon_wait(&tensord, END_MS), 0);
    daemon_gone(&tensord);
}

Test(drain, sigterm_finishes_queued_work_and_answers_fetches) {
    queued_work_is_finished_on(SIGTERM);
}

Test(drain, sigint_does_the_same) {
    queued_work_is_finished_on(SIGINT);
}

Test(drain, idle_clients_do_not_hold_the_end_up) {
    client_expect(client_ramp(client.device, 2, 0), (float[]){0, 1}, 2);
    int64_t before = deadline_now();
    kill(tensord.pid, SIGTERM);
    cr_assert_eq(daemon_wait(&tensord, END_MS), 0);
    cr_assert_lt(deadline_now(), before + 15000); /* half of drain-timeout */
    daemon_gone(&tensord);
}

Test(drain, tensorctl_drain_ends_the_daemon) {
    struct command command;
    float got = 0;
    int fd = -1;
    cr_assert(!td_fetch_fd(work(50), &got, sizeof got, &fd), "%s", td_last_error()->message);
    until_arrived();
    const char *const arguments[] = {daemon_program("TENSORCTL_EXE"), "--url", tensord.url, "drain", NULL};
    command_run(&command, arguments, NULL, END_MS);
    cr_assert_eq(command.code, 0, "%s", command.err);
    command_finish(&command);
    cr_assert_eq(ended(fd), TD_OK);
    cr_assert_eq(got, 512 * 512);
    cr_assert_eq(daemon_wait(&tensord, END_MS), 0);
    daemon_gone(&tensord);
}

/* Until the front says so over this control connection. */
static void until_draining(struct wire *control) {
    int64_t deadline = deadline_in(END_MS);
    bool draining = false;
    do {
        Tensord__GetStatus request = TENSORD__GET_STATUS__INIT;
        struct wire_frame frame;
        if (!wire_request(control, FRAME_GET_STATUS, &request) ||
            wire_receive(control, &frame, WIRE_TIMEOUT_MS) != WIRE_FRAME)
            return; /* it takes no more requests, which is draining as well */
        Tensord__Status *status = tensord__status__unpack(NULL, frame.header.message_bytes, frame.message);
        draining = status && status->draining;
        status_free(status);
        wire_frame_finish(&frame);
    } while (!draining && deadline_pause(deadline));
    cr_assert(draining, "status never said draining");
}

Test(drain, new_work_is_refused_meanwhile) {
    struct wire control;
    td_connection *connection = NULL;
    td_device *device = NULL;
    int worker = status_worker_pid(tensord.url, "cpu:0");
    wire_open(&control, tensord.url, PREAMBLE_TARGET_CONTROL);
    kill(worker, SIGSTOP); /* so that the drain lasts */
    kill(tensord.pid, SIGTERM);
    until_draining(&control);
    int code = td_connect(tensord.url, NULL, &connection);
    if (!code)
        code = td_device_open(connection, "cpu:1", &device);
    cr_assert(code == TD_E_DRAINING || code == TD_E_CONNECTION, "%d: %s", code, td_last_error()->message);
    td_close(connection);
    kill(worker, SIGCONT);
    cr_assert_eq(daemon_wait(&tensord, END_MS), 0);
    wire_close(&control);
    daemon_gone(&tensord);
}

Test(drain, operations_sent_after_the_end_fail) {
    td_tensor *x = client_ramp(client.device, 2, 0);
    float got[2];
    cr_assert(!td_wait(x));
    kill(tensord.pid, SIGTERM);
    cr_assert_eq(daemon_wait(&tensord, END_MS), 0);
    int code = td_fetch(x, got, sizeof got);
    cr_assert_neq(code, TD_OK);
    cr_assert(*td_last_error()->message);
    daemon_gone(&tensord);
}

/* More work than the time allows: what waits for it is told so, and the daemon ends all the same. */
Test(drain, work_beyond_the_timeout_is_given_up_and_told) {
    float got = 0;
    int first = -1, second = -1;
    stop();
    daemon_start(&tensord, &(struct daemon_options){.devices = "cpu:0,cpu:1",
                                                    .flags = (const char *const[]){"--drain-timeout", "200ms", NULL}});
    client_open(&client, tensord.url, "cpu:0");
    td_tensor *result = work(LONG_ROUNDS);
    cr_assert(!td_fetch_fd(result, &got, sizeof got, &first), "%s", td_last_error()->message);
    cr_assert(!td_fetch_fd(td_copy(result), &got, sizeof got, &second), "%s", td_last_error()->message);
    until_arrived();
    kill(tensord.pid, SIGTERM);
    cr_assert_eq(ended(first), TD_E_DRAINING);
    cr_assert_eq(ended(second), TD_E_DRAINING);
    cr_assert_eq(daemon_wait(&tensord, END_MS), 0);
    daemon_gone(&tensord);
}
