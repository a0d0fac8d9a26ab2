/* What a program and the operator see of connections that are lost: leases, restarts, silence, and clients that are gone. */
#include <criterion/criterion.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/daemon/certificates.h"
#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/proxy.h"
#include "tests/daemon/status.h"

static struct daemon tensord;
static struct proxy proxy;

static bool proxied;

/* For clients in processes of their own: forked while no thread runs here, or locks of a sanitizer's allocator may be held
 * in them for ever. */
static void start_alone(const char *const *flags) {
    daemon_start(&tensord, &(struct daemon_options){.tcp = "tcp://127.0.0.1:0", .flags = flags});
}

static void start_with(const char *const *flags) {
    start_alone(flags);
    proxy_start(&proxy, tensord.url, 1);
    proxied = true;
}

static void stop(void) {
    if (proxied)
        proxy_stop(&proxy);
    daemon_stop(&tensord);
}

TestSuite(resume, .fini = stop, .timeout = 60);

static void open_with(struct client *client, const char *url, unsigned reconnect_ms, unsigned heartbeat_ms) {
    td_options options = {.reconnect_ms = reconnect_ms, .heartbeat_ms = heartbeat_ms};
    cr_assert(!td_connect(url, &options, &client->connection), "%s", td_last_error()->message);
    cr_assert(!td_device_open(client->connection, "cpu:0", &client->device), "%s", td_last_error()->message);
}

/* Cuts the connection, and lets no other one through. */
static void cut_off(void) {
    proxy.shut = true;
    proxy_cut(&proxy);
}

static bool one_detached(const Tensord__Status *status, const void *none) {
    (void)none;
    return status->n_sessions == 1 && status->sessions[0]->detached && status->sessions[0]->lease_left_s > 0;
}

static bool one_attached(const Tensord__Status *status, const void *reconnects) {
    return status->n_sessions == 1 && !status->sessions[0]->detached &&
           status->sessions[0]->reconnects >= *(const uint64_t *)reconnects;
}

static void until_link_is(struct client *client, bool connected) {
    int64_t deadline = deadline_in(20000);
    td_link link;
    do
        cr_assert(!td_device_link(client->device, &link));
    while (link.connected != connected && deadline_pause(deadline));
    cr_assert_eq(link.connected, connected);
}

static void fails_with(td_tensor *tensor, const char *words) {
    const td_error *error = client_expect_failure(tensor, TD_E_DEVICE_LOST);
    cr_assert(strstr(error->message, words), "%s", error->message);
}

Test(resume, work_goes_on_while_the_client_is_away) {
    struct client client;
    td_link link;
    start_with(NULL);
    open_with(&client, proxy.url, 0, 0);
    td_tensor *x = client_ramp(client.device, 3, 1);
    cr_assert(!td_sync(client.device));
    cut_off();
    status_until(tensord.url, one_detached, NULL, 30000);
    until_link_is(&client, false);
    td_tensor *y = td_add(x, x); /* enqueued in between */
    cr_assert_not_null(y);
    proxy.shut = false;
    client_expect(y, (float[]){2, 4, 6}, 3);
    cr_assert(!td_device_link(client.device, &link));
    cr_assert(link.connected && link.reconnects == 1);
    status_until(tensord.url, one_attached, &link.reconnects, 30000);
    client_close(&client);
}

Test(resume, lease_that_is_over_is_told_and_memory_comes_back) {
    struct client client;
    start_with((const char *const[]){"--session-lease", "300ms", NULL});
    struct status_baseline baseline = status_baseline_of(tensord.url, "cpu:0");
    open_with(&client, proxy.url, 30000, 0); /* it tries for longer than the daemon waits */
    td_tensor *x = client_ramp(client.device, 1 << 18, 1);
    cr_assert(!td_wait(x));
    cut_off();
    cr_assert(status_settles(tensord.url, &baseline, 20000), "the session outlives its lease");
    proxy.shut = false;
    fails_with(x, "lease");
    cr_assert_null(td_full(client.device, TD_F32, TD_SCALAR, 1));
    cr_assert(td_last_error()->code == TD_E_DEVICE_LOST && strstr(td_last_error()->message, "lease"));
    client_close(&client);
}

/* What it has lost does not count against it. */
Test(resume, principal_at_its_limits_comes_back) {
    struct client client;
    start_with((const char *const[]){"--principal-sessions", "1", "--principal-connections", "4", "--session-lease",
                                     "10s", NULL});
    open_with(&client, proxy.url, 0, 0);
    td_tensor *x = client_ramp(client.device, 3, 1);
    cr_assert(!td_sync(client.device));
    for (uint64_t times = 1; times <= 3; times++) {
        proxy_cut(&proxy);
        client_expect(td_add(x, x), (float[]){2, 4, 6}, 3);
        status_until(tensord.url, one_attached, &times, 30000);
    }
    client_close(&client);
}

/* Of a slow transfer its client hears now and then, or it would take the daemon for gone. */
Test(resume, rate_that_is_held_is_no_silence) {
    enum { N = 320 << 10 };
    static float data[N], back[N];
    struct client client;
    td_link link;
    start_with((const char *const[]){"--principal-rate", "256K", NULL});
    open_with(&client, proxy.url, 0, 2500);
    for (int i = 0; i < N; i++)
        data[i] = (float)i;
    td_tensor *x = td_upload(client.device, TD_F32, TD_SHAPE(N), data);
    cr_assert(!td_wait(x), "%s", td_last_error()->message);
    cr_assert(!td_device_link(client.device, &link));
    cr_expect_eq(link.reconnects, 0);
    cr_assert(!td_fetch(x, back, sizeof back), "%s", td_last_error()->message);
    cr_expect_eq(memcmp(data, back, sizeof data), 0);
    client_close(&client);
}

Test(resume, client_gives_up_when_its_time_is_over) {
    struct client client;
    start_with(NULL);
    open_with(&client, proxy.url, 300, 0);
    td_tensor *x = client_ramp(client.device, 3, 1);
    cr_assert(!td_wait(x));
    cut_off();
    fails_with(x, "session");
    client_close(&client);
}

Test(resume, client_that_does_not_want_it_is_lost_at_once) {
    struct client client;
    start_with(NULL);
    struct status_baseline baseline = status_baseline_of(tensord.url, "cpu:0");
    open_with(&client, proxy.url, TD_NEVER, 0);
    td_tensor *x = client_ramp(client.device, 3, 1);
    cr_assert(!td_wait(x));
    proxy_cut(&proxy);
    fails_with(x, "ended");
    cr_assert(status_settles(tensord.url, &baseline, 20000));
    client_close(&client);
}

Test(resume, daemon_that_does_not_want_it_ends_sessions_with_their_connections) {
    struct client client;
    start_with((const char *const[]){"--session-lease", "0", NULL});
    struct status_baseline baseline = status_baseline_of(tensord.url, "cpu:0");
    open_with(&client, proxy.url, 0, 0);
    td_tensor *x = client_ramp(client.device, 3, 1);
    cr_assert(!td_wait(x));
    proxy_cut(&proxy);
    fails_with(x, "ended");
    cr_assert(status_settles(tensord.url, &baseline, 20000));
    client_close(&client);
}

Test(resume, worker_that_was_restarted_meanwhile_is_told) {
    struct client client;
    start_with(NULL);
    open_with(&client, proxy.url, 0, 0);
    td_tensor *x = client_ramp(client.device, 3, 1);
    cr_assert(!td_wait(x));
    cut_off();
    kill(status_worker_pid(tensord.url, "cpu:0"), SIGKILL);
    status_until(tensord.url, status_device_is, &(struct status_is){"cpu:0", "ready", 2}, 30000);
    proxy.shut = false;
    fails_with(x, "restarted");
    client_close(&client);
}

Test(resume, drain_does_not_wait_for_clients_that_are_away) {
    struct client client;
    start_with(NULL);
    open_with(&client, proxy.url, 1000, 0);
    td_tensor *x = client_ramp(client.device, 3, 1);
    cr_assert(!td_wait(x));
    cut_off();
    status_until(tensord.url, one_detached, NULL, 30000);
    kill(tensord.pid, SIGTERM);
    cr_assert_eq(daemon_wait(&tensord, 30000), 0);
    daemon_gone(&tensord);
    client_expect_failure(x, TD_E_DEVICE_LOST);
    client_close(&client);
}

/* Cuts while a drain lets queued work finish: whatever a client is told, it is told. */
Test(resume, cut_during_a_drain_leaves_nobody_without_an_answer) {
    struct client client;
    float got;
    start_with((const char *const[]){"--drain-timeout", "2s", NULL});
    open_with(&client, proxy.url, 1000, 0);
    td_tensor *a = td_full(client.device, TD_F32, TD_SHAPE(400, 400), 0.001);
    for (int i = 0; i < 300; i++)
        a = td_matmul(a, a);
    td_tensor *sum = td_sum(a, TD_ALL_AXES, false);
    cr_assert(!td_flush(client.device));
    kill(tensord.pid, SIGTERM);
    proxy_cut(&proxy);
    int code = td_fetch(sum, &got, sizeof got);
    cr_assert(code == TD_OK || code == TD_E_DEVICE_LOST || code == TD_E_DRAINING, "%d: %s", code,
              td_last_error()->message);
    cr_assert_eq(daemon_wait(&tensord, 30000), 0);
    daemon_gone(&tensord);
    client_close(&client);
}

/* ---- clients that are gone ---- */

/* A client that holds 8 MiB until it is killed; says that it does. */
static int hold(void *argument) {
    const char *const *urls = argument;
    td_connection *connection;
    td_device *device;
    int said = atoi(urls[1]);
    if (td_connect(urls[0], NULL, &connection) || td_device_open(connection, "cpu:0", &device))
        return 1;
    td_tensor *x = td_full(device, TD_F32, TD_SHAPE(2 << 20), 1);
    if (td_wait(x) || write(said, "x", 1) != 1)
        return 2;
    for (;;) {
        if (td_wait(x) || td_sync(device))
            return 3;
        if (write(said, "x", 1) != 1)
            return 4;
        pause();
    }
}

/* Starts it and waits until it holds its memory. */
static pid_t holder(const char *url, int *said) {
    int pipes[2];
    char number[16], first;
    cr_assert(!pipe(pipes));
    snprintf(number, sizeof number, "%d", pipes[1]);
    const char *urls[] = {url, number};
    pid_t pid = client_fork(hold, urls);
    close(pipes[1]);
    cr_assert_eq(read(pipes[0], &first, 1), 1);
    cr_assert_eq(read(pipes[0], &first, 1), 1);
    *said = pipes[0];
    return pid;
}

static void end(pid_t pid, int said) {
    kill(pid, SIGKILL);
    cr_assert_eq(waitpid(pid, NULL, 0), pid);
    close(said);
}

Test(resume, killed_client_of_a_unix_socket_gives_its_memory_back_at_once) {
    int said;
    start_alone(NULL);
    struct status_baseline baseline = status_baseline_of(tensord.url, "cpu:0");
    pid_t pid = holder(tensord.url, &said);
    end(pid, said);
    cr_assert(status_settles(tensord.url, &baseline, 20000));
}

Test(resume, client_that_never_comes_back_holds_its_memory_for_the_lease) {
    int said;
    start_alone((const char *const[]){"--session-lease", "1s", NULL});
    struct status_baseline baseline = status_baseline_of(tensord.url, "cpu:0");
    pid_t pid = holder(tensord.tcp, &said); /* where the daemon cannot see its process */
    end(pid, said);
    status_until(tensord.url, one_detached, NULL, 30000);
    cr_assert(status_settles(tensord.url, &baseline, 20000));
}

Test(resume, closing_a_device_ends_its_session_at_once) {
    start_with(NULL);
    struct status_baseline baseline = status_baseline_of(tensord.url, "cpu:0");
    const char *urls[] = {tensord.url, tensord.tcp, proxy.url};
    for (int i = 0; i < 3; i++) {
        struct client client;
        client_open(&client, urls[i], "cpu:0");
        td_tensor *x = client_ramp(client.device, 1 << 18, 0);
        cr_assert(!td_wait(x));
        for (int k = 0; k < 20000; k++) /* what the daemon says of them lies unread when the device is closed */
            td_release(td_full(client.device, TD_F32, TD_SCALAR, k));
        client_close(&client);
        cr_assert(status_settles(tensord.url, &baseline, 20000), "%s", urls[i]);
    }
}

/* ---- silence ---- */

Test(resume, stopped_worker_is_found_by_the_client_and_loses_nothing) {
    struct client client;
    start_with(NULL);
    open_with(&client, tensord.url, 0, 600);
    td_tensor *x = client_ramp(client.device, 3, 1);
    cr_assert(!td_wait(x));
    int worker = status_worker_pid(tensord.url, "cpu:0");
    kill(worker, SIGSTOP);
    until_link_is(&client, false);
    kill(worker, SIGCONT);
    client_expect(td_add(x, x), (float[]){2, 4, 6}, 3);
    client_close(&client);
}

Test(resume, stopped_client_is_found_by_the_daemon_and_loses_nothing) {
    int said;
    uint64_t once = 1;
    start_alone((const char *const[]){"--heartbeat-timeout", "1500ms", NULL});
    pid_t pid = holder(tensord.url, &said);
    kill(pid, SIGSTOP);
    status_until(tensord.url, one_detached, NULL, 30000);
    kill(pid, SIGCONT);
    status_until(tensord.url, one_attached, &once, 30000);
    end(pid, said);
}

Test(resume, silence_of_the_network_is_found_from_both_sides) {
    struct client client;
    uint64_t once = 1;
    start_with((const char *const[]){"--heartbeat-timeout", "600ms", NULL});
    open_with(&client, proxy.url, 0, 600);
    td_tensor *x = client_ramp(client.device, 3, 1);
    cr_assert(!td_wait(x));
    proxy.frozen = true;
    until_link_is(&client, false);
    status_until(tensord.url, one_detached, NULL, 30000);
    proxy.frozen = false;
    proxy_cut(&proxy); /* wakes it, too */
    status_until(tensord.url, one_attached, &once, 30000);
    client_expect(td_add(x, x), (float[]){2, 4, 6}, 3);
    client_close(&client);
}

Test(resume, clients_and_daemons_that_are_merely_idle_keep_their_connection) {
    struct client client;
    td_link link;
    start_with((const char *const[]){"--heartbeat-timeout", "3s", NULL});
    open_with(&client, tensord.url, 0, 3000);
    td_tensor *x = client_ramp(client.device, 3, 1);
    cr_assert(!td_wait(x));
    int64_t deadline = deadline_in(8000);
    while (deadline_pause(deadline))
        ;
    cr_assert(!td_device_link(client.device, &link));
    cr_assert(link.connected && link.reconnects == 0, "%lu reconnects", link.reconnects);
    client_expect(x, (float[]){1, 2, 3}, 3);
    client_close(&client);
}

/* ---- over TLS ---- */

static struct certificates certificates;

static void start_tls(void) {
    certificates_make(&certificates);
    certificates_use(&certificates, "ca", "alice");
    certificates_start(&certificates, &tensord, NULL,
                       (const char *const[]){"--tls-client-ca", certificates_file(&certificates, "ca.pem"), NULL});
    proxy_start(&proxy, tensord.tcp, 1);
}

static void stop_tls(void) {
    stop();
    certificates_remove(&certificates);
}

TestSuite(resume_tls, .init = start_tls, .fini = stop_tls, .timeout = 60);

static bool one_of_alice(const Tensord__Status *status, const void *reconnects) {
    return one_attached(status, reconnects) && status->sessions[0]->tls &&
           !strcmp(status->sessions[0]->principal, "cert:alice");
}

Test(resume_tls, work_goes_on_and_the_session_is_still_its_principals) {
    struct client client;
    td_link link;
    open_with(&client, proxy.url, 0, 0);
    td_tensor *x = client_ramp(client.device, 3, 1);
    cr_assert(!td_sync(client.device));
    for (uint64_t times = 1; times <= 3; times++) {
        cut_off();
        status_until(tensord.url, one_detached, NULL, 30000);
        until_link_is(&client, false);
        td_tensor *y = td_add(x, x);
        proxy.shut = false;
        client_expect(y, (float[]){2, 4, 6}, 3);
        cr_assert(!td_device_link(client.device, &link));
        cr_assert(link.connected && link.reconnects == times);
        status_until(tensord.url, one_of_alice, &link.reconnects, 30000);
    }
    client_close(&client);
}

/* Its handshake is not answered, and would be waited for for ten seconds. */
Test(resume_tls, closing_a_device_does_not_wait_for_a_handshake) {
    int64_t deadline = deadline_in(10000), before;
    struct client client;
    open_with(&client, proxy.url, 0, 0);
    td_tensor *x = client_ramp(client.device, 3, 1);
    cr_assert(!td_wait(x));
    cut_off();
    until_link_is(&client, false);
    proxy.frozen = true;
    unsigned taken = proxy.taken;
    proxy.shut = false;
    while (proxy.taken == taken)
        cr_assert(deadline_pause(deadline), "nobody comes back");
    poll(NULL, 0, 50); /* for the handshake to begin */
    before = deadline_now();
    client_close(&client);
    cr_assert_lt(deadline_now() - before, 7000, "closing took %ld ms", deadline_now() - before);
}

/* A certificate that is not accepted will not be at the next attempt: the program hears of it at once. */
Test(resume_tls, daemon_that_is_not_trusted_any_more_is_not_tried_again) {
    struct client client;
    open_with(&client, proxy.url, 30000, 0);
    td_tensor *x = client_ramp(client.device, 3, 1);
    cr_assert(!td_wait(x));
    cut_off();
    certificates_add_ca(&certificates, "other");
    certificates_add(&certificates, "impostor", "other", "/CN=localhost", "DNS:localhost,IP:127.0.0.1");
    certificates_replace(&certificates, "impostor", "server");
    cr_assert(!kill(tensord.pid, SIGHUP));
    cr_assert(daemon_log_has(&tensord, "reloaded", 30000));
    proxy.shut = false;
    fails_with(x, "certificate");
    client_close(&client);
}
