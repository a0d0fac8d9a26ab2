/* The time of day jumps by years, for the daemon and for its client, forth and back while they work: nothing times out,
 * nothing is restarted, no age is wrong. The daemon's log has the years, so the jumps did take place. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/status.h"
#include "tests/daemon/wire.h"
#include "tests/load/soak/clock.h"

#define YEAR_S INT64_C(31556952)

static struct daemon tensord;
static char path[64], setting[128], preload[512];
static int64_t started;

static void start(void) {
    snprintf(path, sizeof path, "/tmp/tensord-clock.XXXXXX");
    int fd = mkstemp(path);
    cr_assert(fd >= 0 && !ftruncate(fd, sizeof(struct clock_page)));
    close(fd);
    clock_attach(path);
    cr_assert_not_null(clock_page);
    snprintf(setting, sizeof setting, "%s=%s", CLOCK_PAGE, path);
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", daemon_program("CLOCK_LIBRARY"));
    started = deadline_now();
    daemon_start(&tensord,
                 &(struct daemon_options){.devices = "cpu:0,cpu:1",
                                          .flags = (const char *const[]){"--threads", "1", "--hello-timeout", "60s",
                                                                         "--watchdog-timeout", "20s", NULL},
                                          .environment = (const char *const[]){preload, setting, NULL}});
}

static void stop(void) {
    daemon_kill(&tensord);
    unlink(path);
}

TestSuite(clock, .init = start, .fini = stop, .timeout = 120);

static int year_now(void) {
    time_t now = time(NULL);
    struct tm parts;
    gmtime_r(&now, &parts);
    return parts.tm_year + 1900;
}

/* Work that is under way when the clock jumps; copies and streams have timeouts of their own. */
static void job_across(struct client *client, td_device *other, int64_t ahead_s) {
    enum { N = 256 };
    float got = 0;
    td_scope_begin("jump");
    td_tensor *x = td_eye(client->device, TD_F32, N, N, 0);
    for (int i = 0; i < 60; i++)
        x = td_matmul(x, x);
    td_tensor *home = td_copy_to(td_copy_to(x, other), client->device);
    cr_assert(!td_flush(client->device) && !td_flush(other));
    clock_page->ahead_s = ahead_s;
    cr_assert(!td_fetch(td_sum(home, TD_ALL_AXES, 0), &got, sizeof got), "%s", td_last_error()->message);
    cr_assert_eq(got, N);
    cr_assert(!td_sync(client->device) && !td_sync(other), "%s", td_last_error()->message);
    td_scope_end();
}

/* What the daemon tells of durations fits between the start of this test and now. */
static void ages_are_true(void) {
    double most = (double)(deadline_now() - started) / 1000 + 1;
    Tensord__Status *status = status_get(tensord.url);
    cr_assert(status->uptime_s >= 0 && status->uptime_s <= most, "up for %g s", status->uptime_s);
    for (size_t i = 0; i < status->n_devices; i++) {
        const Tensord__DeviceStatus *device = status->devices[i];
        cr_assert_eq(device->restarts, 0, "%s", device->last_fault);
        cr_assert(device->data_age_ms >= 0 && device->data_age_ms <= most * 1000, "data of %g ms", device->data_age_ms);
        cr_assert(device->stalled_s >= 0 && device->stalled_s <= most, "stalled for %g s", device->stalled_s);
    }
    for (size_t i = 0; i < status->n_sessions; i++)
        cr_assert(status->sessions[i]->age_s >= 0 && status->sessions[i]->age_s <= most, "a session of %g s",
                  status->sessions[i]->age_s);
    status_free(status);
}

Test(clock, jumps_of_years_are_not_noticed) {
    static const int64_t JUMPS[] = {10 * YEAR_S, -20 * YEAR_S, YEAR_S / 365, 60 * YEAR_S, -1, 0};
    struct client client;
    struct wire silent;
    td_device *other;
    client_open(&client, tensord.url, "cpu:0");
    cr_assert(!td_device_open(client.connection, "cpu:1", &other), "%s", td_last_error()->message);
    wire_connect(&silent, tensord.url, DAEMON_TARGET_CPU0); /* has a minute for its Hello */
    for (size_t i = 0; i < sizeof JUMPS / sizeof *JUMPS; i++) {
        char stamp[32];
        struct client visitor;
        job_across(&client, other, JUMPS[i]);
        client_open(&visitor, tensord.url, "cpu:1"); /* the log says when */
        client_expect(client_ramp(visitor.device, 2, 0), (float[]){0, 1}, 2);
        client_close(&visitor);
        snprintf(stamp, sizeof stamp, "ts=%d-", year_now());
        cr_assert(daemon_log_has(&tensord, stamp, 30000), "the daemon has not seen %s", stamp);
        ages_are_true();
    }
    wire_hello(&silent);
    wire_close(&silent);
    client_close(&client);
    daemon_stop(&tensord);
}

Test(clock, a_worker_is_restarted_across_a_jump) {
    struct client client;
    uint64_t epoch = status_epoch(tensord.url, "cpu:0");
    clock_page->ahead_s = -30 * YEAR_S;
    kill(status_worker_pid(tensord.url, "cpu:0"), SIGKILL);
    clock_page->ahead_s = 30 * YEAR_S;
    status_until(tensord.url, status_device_is, &(struct status_is){"cpu:0", "ready", epoch + 1}, 30000);
    client_open(&client, tensord.url, "cpu:0");
    client_expect(client_ramp(client.device, 2, 0), (float[]){0, 1}, 2);
    client_close(&client);
    daemon_stop(&tensord);
}
