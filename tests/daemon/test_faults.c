/* What dies, and what lives on. */
#include <criterion/criterion.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/daemon/client.h"
#include "tests/daemon/command.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/status.h"

static struct daemon tensord;

static void start(void) {
    daemon_start(&tensord, &(struct daemon_options){.devices = "cpu:0,cpu:1"});
}

static void stop(void) {
    daemon_stop(&tensord);
}

TestSuite(faults, .init = start, .fini = stop, .timeout = 120);

/* Seconds of work, enqueued in no time. */
static td_tensor *load(td_device *device) {
    td_tensor *x = td_full(device, TD_F32, TD_SHAPE(1024, 1024), 0.001);
    for (int i = 0; i < 300; i++) {
        td_tensor *next = td_matmul(x, x);
        td_release(x);
        x = next;
    }
    cr_assert_not_null(x, "%s", td_last_error()->message);
    cr_assert(!td_flush(device));
    return x;
}

Test(faults, killed_worker_takes_only_its_own_sessions_along) {
    struct client victim, bystander;
    client_open(&victim, tensord.url, "cpu:0");
    client_open(&bystander, tensord.url, "cpu:1");
    td_tensor *kept = client_ramp(bystander.device, 3, 1);
    td_tensor *lost = load(victim.device);
    uint64_t epoch = status_epoch(tensord.url, "cpu:0");
    kill(status_worker_pid(tensord.url, "cpu:0"), SIGKILL);
    client_expect_failure(lost, TD_E_DEVICE_LOST);
    cr_assert_eq(td_sync(victim.device), TD_E_DEVICE_LOST);
    client_expect(td_add(kept, kept), (float[]){2, 4, 6}, 3);
    status_until(tensord.url, status_device_is, &(struct status_is){"cpu:0", "ready", epoch + 1}, 30000);

    Tensord__Status *status = status_get(tensord.url);
    const Tensord__DeviceStatus *device = status_device(status, "cpu:0");
    cr_assert_eq(device->epoch, epoch + 1);
    cr_assert_eq(device->restarts, 1);
    cr_assert(*device->last_fault, "status tells no fault");
    cr_assert_eq(status_device(status, "cpu:1")->restarts, 0);
    cr_assert_eq(status_sessions(status, "cpu:0"), 0);
    cr_assert_eq(device->memory_live, 0);
    status_free(status);
    client_close(&victim);
    client_close(&bystander);
}

Test(faults, connection_can_open_the_device_again_after_its_loss) {
    struct client client;
    td_device *again;
    client_open(&client, tensord.url, "cpu:0");
    td_tensor *old = client_ramp(client.device, 2, 0);
    cr_assert(!td_wait(old));
    kill(status_worker_pid(tensord.url, "cpu:0"), SIGKILL);
    client_expect_failure(old, TD_E_DEVICE_LOST);
    status_until(tensord.url, status_device_is, &(struct status_is){"cpu:0", "ready", 2}, 30000);
    cr_assert(!td_device_open(client.connection, "cpu:0", &again), "%s", td_last_error()->message);
    client_expect(client_ramp(again, 2, 5), (float[]){5, 6}, 2);
    client_expect_failure(old, TD_E_DEVICE_LOST);
    td_tensor *more = td_add(old, old);
    if (more)
        client_expect_failure(more, TD_E_DEVICE_LOST);
    client_close(&client);
}

static bool ready_again_or_quarantined(const Tensord__Status *status, const void *epoch) {
    const Tensord__DeviceStatus *device = status_device(status, "cpu:0");
    return !strcmp(device->device->state, "quarantined") ||
           (!strcmp(device->device->state, "ready") && device->epoch > *(const uint64_t *)epoch);
}

static bool is_quarantined(const char *url) {
    Tensord__Status *status = status_get(url);
    bool is = !strcmp(status_device(status, "cpu:0")->device->state, "quarantined");
    status_free(status);
    return is;
}

Test(faults, worker_that_keeps_dying_is_quarantined) {
    struct client client;
    td_device *device = NULL;
    int kills = 0;
    client_open(&client, tensord.url, "cpu:1");
    while (!is_quarantined(tensord.url)) {
        uint64_t epoch = status_epoch(tensord.url, "cpu:0");
        cr_assert_lt(kills++, 20, "never quarantined");
        kill(status_worker_pid(tensord.url, "cpu:0"), SIGKILL);
        status_until(tensord.url, ready_again_or_quarantined, &epoch, 30000);
    }
    cr_assert_gt(kills, 1, "one death is no reason for quarantine");
    int code = td_device_open(client.connection, "cpu:0", &device);
    cr_assert_neq(code, TD_OK);
    cr_assert(strstr(td_last_error()->message, "quarantine"), "%s", td_last_error()->message);
    client_expect(client_ramp(client.device, 2, 0), (float[]){0, 1}, 2);
    client_close(&client);
}

Test(faults, workers_exit_when_the_front_is_killed) {
    struct client client;
    client_open(&client, tensord.url, "cpu:0");
    td_tensor *x = client_ramp(client.device, 2, 0);
    cr_assert(!td_wait(x));
    int workers[2] = {status_worker_pid(tensord.url, "cpu:0"), status_worker_pid(tensord.url, "cpu:1")};
    int watches[2] = {daemon_process_watch(workers[0]), daemon_process_watch(workers[1])};
    kill(tensord.pid, SIGKILL);
    int64_t deadline = deadline_in(30000);
    for (int i = 0; i < 2; i++) {
        cr_assert(deadline_poll(watches[i], POLLIN, deadline), "worker %d outlives its front", workers[i]);
        close(watches[i]);
    }
    float got[2];
    cr_assert_neq(td_fetch(x, got, sizeof got), TD_OK);
    client_close(&client);
    daemon_kill(&tensord);
}

/* Far above what an answer takes on a busy machine, and far below what it takes to wait for a worker that hangs. */
enum { ANSWER_MS = 10000 };

/* Milliseconds that a status took; its age of cpu:0's figures into *age. */
static int64_t status_timed(double *age) {
    int64_t before = deadline_now();
    Tensord__Status *status = status_get(tensord.url);
    int64_t took = deadline_now() - before;
    *age = status_device(status, "cpu:0")->data_age_ms;
    status_free(status);
    return took;
}

static bool figures_are_older(const Tensord__Status *status, const void *age) {
    return status_device(status, "cpu:0")->data_age_ms > *(const double *)age;
}

Test(faults, status_answers_while_a_worker_hangs) {
    struct client client;
    double first, later;
    client_open(&client, tensord.url, "cpu:0");
    int worker = status_worker_pid(tensord.url, "cpu:0");
    kill(worker, SIGSTOP);
    cr_assert_lt(status_timed(&first), ANSWER_MS);
    later = first + 300;
    status_until(tensord.url, figures_are_older, &later, 30000);
    cr_assert_lt(status_timed(&later), ANSWER_MS);
    kill(worker, SIGCONT);
    status_until(tensord.url, status_device_is, &(struct status_is){"cpu:0", "ready", 0}, 30000);
    client_expect(client_ramp(client.device, 2, 0), (float[]){0, 1}, 2);
    client_close(&client);
}

/* The age of cpu:0's figures as tensorctl tells it, in the JSON. */
static double age_told(void) {
    struct command command;
    double age = -1;
    command_run(&command,
                (const char *const[]){daemon_program("TENSORCTL_EXE"), "--url", tensord.url, "status", "--json", NULL},
                NULL, 30000);
    cr_assert_eq(command.code, 0, "%s", command.err);
    const char *place = strstr(command.out, "\"data_age_ms\":");
    cr_assert_not_null(place, "%s", command.out);
    cr_assert_eq(sscanf(place, "\"data_age_ms\": %lf", &age), 1, "%s", place);
    command_finish(&command);
    return age;
}

Test(faults, tensorctl_tells_how_old_a_hung_worker_s_figures_are) {
    struct command command;
    int worker = status_worker_pid(tensord.url, "cpu:0");
    kill(worker, SIGSTOP);
    double first = age_told(), later = first + 300;
    status_until(tensord.url, figures_are_older, &later, 30000);
    cr_assert_geq(age_told(), later);
    command_run(&command, (const char *const[]){daemon_program("TENSORCTL_EXE"), "--url", tensord.url, "status", NULL},
                NULL, 30000);
    cr_assert_eq(command.code, 0, "%s", command.err);
    cr_assert(strstr(command.out, "cpu:0  ready") && strstr(command.out, " old\n"), "%s", command.out);
    command_finish(&command);
    kill(worker, SIGCONT);
}

static bool watchdog_has_acted(const Tensord__Status *status, const void *none) {
    (void)none;
    const Tensord__DeviceStatus *device = status_device(status, "cpu:0");
    return device->epoch >= 2 && !strcmp(device->device->state, "ready");
}

Test(faults, watchdog_ends_a_hung_worker_and_the_device_comes_back) {
    struct client client;
    td_device *again;
    daemon_stop(&tensord);
    daemon_start(&tensord, &(struct daemon_options){.devices = "cpu:0,cpu:1",
                                                    .flags = (const char *const[]){"--watchdog-timeout", "2s", NULL}});
    client_open(&client, tensord.url, "cpu:0");
    td_tensor *x = client_ramp(client.device, 2, 0);
    cr_assert(!td_wait(x));
    kill(status_worker_pid(tensord.url, "cpu:0"), SIGSTOP);
    client_expect_failure(x, TD_E_DEVICE_LOST);
    status_until(tensord.url, watchdog_has_acted, NULL, 30000);
    Tensord__Status *status = status_get(tensord.url);
    cr_assert(strstr(status_device(status, "cpu:0")->last_fault, "no sign of life"), "%s",
              status_device(status, "cpu:0")->last_fault);
    cr_assert_eq(status_device(status, "cpu:1")->epoch, 1, "its neighbour was ended, too");
    status_free(status);
    cr_assert(!td_device_open(client.connection, "cpu:0", &again), "%s", td_last_error()->message);
    client_expect(client_ramp(again, 2, 5), (float[]){5, 6}, 2);
    client_close(&client);
}

Test(faults, status_answers_while_a_worker_is_busy) {
    struct client client;
    double age;
    client_open(&client, tensord.url, "cpu:0");
    load(client.device);
    for (int i = 0; i < 20; i++) {
        cr_assert_lt(status_timed(&age), ANSWER_MS);
        cr_assert_lt(age, ANSWER_MS);
    }
    client_close(&client);
}

struct hoard {
    int ready; /* write end: one byte when the memory is taken */
};

/* Takes 1 GiB and then waits to be killed. */
static int hoard_run(void *argument) {
    const struct hoard *hoard = argument;
    td_connection *connection;
    td_device *device;
    if (td_connect(tensord.url, NULL, &connection) || td_device_open(connection, "cpu:0", &device))
        return 2;
    for (int i = 0; i < 16; i++)
        if (td_wait(td_full(device, TD_U8, TD_SHAPE(64 << 20), 1)))
            return 3;
    (void)!write(hoard->ready, "x", 1);
    pause();
    return 0;
}

static bool holds_a_gibibyte(const Tensord__Status *status, const void *none) {
    (void)none;
    return status_device(status, "cpu:0")->memory_live >= UINT64_C(1) << 30;
}

Test(faults, killed_client_gives_all_its_memory_back) {
    int ready[2];
    char byte;
    struct status_baseline baseline = status_baseline_of(tensord.url, "cpu:0");
    cr_assert(!pipe(ready));
    struct hoard hoard = {ready[1]};
    pid_t pid = client_fork(hoard_run, &hoard);
    close(ready[1]);
    cr_assert(deadline_poll(ready[0], POLLIN, deadline_in(30000)));
    cr_assert_eq(read(ready[0], &byte, 1), 1, "the client could not take 1 GiB");
    close(ready[0]);
    status_until(tensord.url, holds_a_gibibyte, NULL, 30000);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    cr_assert(status_settles(tensord.url, &baseline, 20000), "memory was not given back");
}

Test(faults, client_killed_under_load_leaves_nothing) {
    struct status_baseline baseline = status_baseline_of(tensord.url, "cpu:0");
    struct client client;
    client_open(&client, tensord.url, "cpu:0");
    load(client.device);
    td_close(client.connection);
    cr_assert(status_settles(tensord.url, &baseline, 20000), "memory was not given back");
}
