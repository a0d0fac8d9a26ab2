/* A device that makes no progress is given up, and it alone. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/daemon/client.h"
#include "tests/daemon/command.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/status.h"

static struct daemon tensord;

static void start_with(const char *devices, const char *timeout) {
    daemon_start(&tensord, &(struct daemon_options){
                               .devices = devices,
                               .flags = (const char *const[]){"--device-timeout", timeout, NULL},
                               .environment = (const char *const[]){"TENSORD_LATE_HANG=tanh", NULL},
                           });
}

static void stop(void) {
    daemon_stop(&tensord);
}

TestSuite(watchdog, .fini = stop, .timeout = 120);

static bool is_stalled(const Tensord__Status *status, const void *seconds) {
    return status_device(status, "late:0")->stalled_s >= *(const double *)seconds;
}

static bool has_given_back(const Tensord__Status *status, const void *nothing) {
    (void)nothing;
    return status_device(status, "late:0")->releases > 0;
}

/* No session has a failure. */
static bool nothing_has_failed(const Tensord__Status *status) {
    for (size_t i = 0; i < status->n_sessions; i++)
        if (status->sessions[i]->n_failures)
            return false;
    return true;
}

/* First its session ends, and since that does not help, the worker. */
Test(watchdog, endless_kernel_costs_its_own_device_a_worker_and_is_named) {
    struct client victim, bystander;
    start_with("late:0,cpu:0", "3s");
    client_open(&victim, tensord.url, "late:0");
    client_open(&bystander, tensord.url, "cpu:0");
    td_tensor *x = client_ramp(victim.device, 4, 1);
    client_expect(td_add(x, x), (float[]){2, 4, 6, 8}, 4);
    td_label("stuck here");
    td_tensor *y = td_tanh(x);
    td_label(NULL);
    td_tensor *z = td_add(y, y);
    const td_error *error = client_expect_failure(z, TD_E_TIMED_OUT);
    cr_assert(strstr(error->message, "no progress for ") && strstr(error->message, "tanh") &&
                  strstr(error->message, "of session "),
              "%s", error->message);
    cr_assert_eq(td_sync(victim.device), TD_E_TIMED_OUT);
    client_expect(client_ramp(bystander.device, 3, 1), (float[]){1, 2, 3}, 3);
    status_until(tensord.url, status_device_is, &(struct status_is){"late:0", "ready", 2}, 30000);
    Tensord__Status *status = status_get(tensord.url);
    cr_assert(strstr(status_device(status, "late:0")->last_fault, "tanh"), "%s",
              status_device(status, "late:0")->last_fault);
    cr_assert_eq(status_device(status, "cpu:0")->restarts, 0);
    status_free(status);
    td_device *again;
    cr_assert(!td_device_open(victim.connection, "late:0", &again), "%s", td_last_error()->message);
    client_expect(client_ramp(again, 2, 5), (float[]){5, 6}, 2);
    client_close(&victim);
    client_close(&bystander);
}

/* Another session's work goes on beside it. */
Test(watchdog, endless_kernel_is_noticed_on_a_busy_device) {
    struct client victim, busy;
    start_with("late:0", "700ms");
    client_open(&victim, tensord.url, "late:0");
    client_open(&busy, tensord.url, "late:0");
    td_tensor *ramp = client_ramp(victim.device, 4, 1);
    td_label("stuck here");
    td_tensor *y = td_tanh(ramp);
    td_label(NULL);
    cr_assert(!td_flush(victim.device));
    td_tensor *x = client_ramp(busy.device, 4, 1);
    int64_t begun = deadline_now();
    int code = TD_OK, rounds = 0;
    for (; code == TD_OK && deadline_now() - begun < 20000; rounds++) {
        td_tensor *sum = td_add(x, x);
        code = td_wait(sum);
        td_release(sum);
    }
    cr_assert_eq(code, TD_E_DEVICE_LOST, "%d rounds", rounds);
    cr_expect(!strstr(td_last_error()->message, "stuck here"), "another's label: %s", td_last_error()->message);
    cr_expect_gt(rounds, 10);
    const td_error *error = client_expect_failure(y, TD_E_TIMED_OUT);
    cr_expect(strstr(error->message, "no progress for ") && strstr(error->message, "tanh"), "%s", error->message);
    client_close(&victim);
    client_close(&busy);
}

Test(watchdog, status_says_since_when_nothing_completes) {
    struct client client;
    struct command command;
    start_with("late:0", "0");
    client_open(&client, tensord.url, "late:0");
    td_tensor *y = td_tanh(client_ramp(client.device, 4, 1));
    cr_assert_not_null(y);
    cr_assert(!td_flush(client.device));
    status_until(tensord.url, is_stalled, &(double){1.2}, 30000);
    command_run(&command, (const char *const[]){daemon_program("TENSORCTL_EXE"), "--url", tensord.url, "status", NULL},
                NULL, 30000);
    cr_assert(strstr(command.out, "nothing has completed for "), "%s", command.out);
    cr_assert(strstr(command.out, "epoch 1"), "a timeout of 0 means never: %s", command.out);
    command_finish(&command);
    /* Nor does the end of the daemon wait for it: drain-timeout is over at once. */
    client_close(&client);
    daemon_kill(&tensord);
}

/* Many times the timeout in all, and each operation much less. */
Test(watchdog, long_queue_that_moves_on_is_left_alone) {
    struct client client;
    char timeout[32]; /* where many tests run at once, one product may take this long */
    snprintf(timeout, sizeof timeout, "%lums", (unsigned long)(deadline_in(2000) - deadline_now()));
    start_with("cpu:0", timeout);
    client_open(&client, tensord.url, "cpu:0");
    td_tensor *x = td_full(client.device, TD_F32, TD_SHAPE(768, 768), 0.001);
    int64_t end = deadline_in(5000);
    int rounds = 0;
    do {
        for (int i = 0; i < 40; i++) {
            td_tensor *next = td_matmul(x, x);
            td_release(x);
            x = next;
        }
        if (++rounds % 4 == 0)
            cr_assert(!td_wait(x), "%s", td_last_error()->message);
    } while (deadline_now() < end);
    cr_assert(!td_sync(client.device), "%s", td_last_error()->message);
    cr_assert_eq(status_epoch(tensord.url, "cpu:0"), 1);
    client_close(&client);
}

/* No more launches are put on a device than fit its queue, also of recorded programs: with a full queue the launching thread would wait,
 * for all sessions. */
Test(watchdog, runs_that_pile_up_behind_an_endless_kernel_hold_nobody_up) {
    enum { LAUNCHES = 60, RUNS = 200, ROUNDS = 50, ELEMENTS = 1024 /* so that each run is timed */ };
    struct client victim, bystander;
    td_program *program;
    start_with("late:0", "0");
    client_open(&victim, tensord.url, "late:0");
    client_open(&bystander, tensord.url, "late:0");
    td_tensor *x = td_full(victim.device, TD_F32, TD_SHAPE(ELEMENTS), 1);
    cr_assert(!td_record_begin(victim.device));
    td_tensor *result = td_parameter(TD_F32, TD_SHAPE(ELEMENTS));
    for (int i = 0; i < LAUNCHES; i++)
        result = td_add(result, result);
    cr_assert(!td_record_end(victim.device, 1, &result, &program), "%s", td_last_error()->message);
    cr_assert(!td_program_run(program, 1, &x, 1, &result) && !td_wait(result), "%s", td_last_error()->message);
    td_tensor *stuck = td_tanh(x);
    for (int i = 0; i < RUNS; i++)
        cr_assert(!td_program_run(program, 1, &stuck, 1, &result), "%s", td_last_error()->message);
    cr_assert(!td_flush(victim.device));
    x = client_ramp(bystander.device, 4, 1);
    for (int i = 0; i < ROUNDS; i++)
        client_expect(td_add(x, x), (float[]){2, 4, 6, 8}, 4);
    client_close(&victim);
    client_close(&bystander);
    daemon_kill(&tensord); /* the kernel never ends */
}

/* CUDA gives memory back when everything on the device has run. Who needs it comes to it then, and until then holds nobody up. */
Test(watchdog, memory_that_comes_back_is_waited_for_by_who_needs_it_alone) {
    enum { SMALL = 64 << 20, LARGE = 80 << 20, ROUNDS = 20 };
    struct client victim, client, bystander;
    daemon_start(&tensord, &(struct daemon_options){
                               .devices = "late:0",
                               .flags = (const char *const[]){"--device-timeout", "0", "--memory", "128M", NULL},
                               .environment = (const char *const[]){"TENSORD_LATE_HANG=tanh", NULL},
                           });
    client_open(&client, tensord.url, "late:0");
    client_open(&bystander, tensord.url, "late:0");
    client_open(&victim, tensord.url, "late:0");
    td_tensor *small = td_full(client.device, TD_U8, TD_SHAPE(SMALL), 1);
    td_tensor *ramp = client_ramp(bystander.device, 4, 1);
    cr_assert(!td_sync(client.device) && !td_sync(bystander.device));
    cr_assert(td_tanh(client_ramp(victim.device, 4, 1)) && !td_flush(victim.device));
    status_until(tensord.url, is_stalled, &(double){0.1}, 30000);
    td_release(small);
    td_tensor *large = td_full(client.device, TD_U8, TD_SHAPE(LARGE), 7);
    cr_assert(large && !td_flush(client.device));
    status_until(tensord.url, has_given_back, NULL, 30000);
    for (int i = 0; i < ROUNDS; i++) {
        client_expect(td_add(ramp, ramp), (float[]){2, 4, 6, 8}, 4);
        struct client newcomer;
        client_open(&newcomer, tensord.url, "late:0");
        client_close(&newcomer);
    }
    td_release(ramp);
    Tensord__Status *status = status_get(tensord.url);
    cr_assert_eq(status_device(status, "late:0")->epoch, 1);
    cr_assert_geq(status->n_sessions, 3);
    cr_assert(nothing_has_failed(status), "no memory was told, while it comes");
    status_free(status);
    client_close(&bystander);
    client_close(&client);
    client_close(&victim);
    daemon_kill(&tensord);
}

Test(watchdog, memory_that_comes_back_comes_to_who_waits_for_it) {
    enum { N = 1024, PRODUCTS = 40, SMALL = 40 << 20, LARGE = 80 << 20 };
    struct client client;
    uint8_t last = 0;
    daemon_start(&tensord, &(struct daemon_options){
                               .devices = "late:0",
                               .flags = (const char *const[]){"--memory", "128M", NULL},
                           });
    client_open(&client, tensord.url, "late:0");
    td_tensor *small = td_full(client.device, TD_U8, TD_SHAPE(SMALL), 1);
    td_tensor *x = td_eye(client.device, TD_F32, N, N, 0), *w = td_eye(client.device, TD_F32, N, N, 0);
    cr_assert(!td_sync(client.device));
    td_release(small);
    td_tensor *first = td_matmul(w, w);
    for (int i = 0; i < PRODUCTS; i++) {
        td_tensor *product = td_matmul(x, w);
        td_release(x);
        x = product;
    }
    cr_assert(!td_wait(first)); /* the others are on the device */
    td_tensor *large = td_full(client.device, TD_U8, TD_SHAPE(LARGE), 7);
    cr_assert(!td_fetch(td_slice(large, 0, LARGE - 1, LARGE, 1), &last, 1), "%s", td_last_error()->message);
    cr_assert_eq(last, 7);
    Tensord__Status *status = status_get(tensord.url);
    cr_assert_eq(status_device(status, "late:0")->epoch, 1);
    cr_assert_geq(status_device(status, "late:0")->releases, 1, "nothing was given back");
    status_free(status);
    client_close(&client);
}
