/* HTTP: what it serves, to whom, and that it goes on when devices or its own clients do not. */
#include <criterion/criterion.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/ops/op.h"
#include "tests/daemon/client.h"
#include "tests/daemon/command.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/http.h"
#include "tests/daemon/json.h"
#include "tests/daemon/status.h"
#include "tests/daemon/wire.h"

static struct daemon tensord;
static unsigned port;

static void start_with(const char *const *flags) {
    daemon_start(&tensord, &(struct daemon_options){.devices = "cpu:0,cpu:1", .flags = flags});
    port = http_port(&tensord);
}

static void start(void) {
    start_with((const char *const[]){"--http", "127.0.0.1:0", "--quarantine-after", "1", "--watchdog-timeout", "0",
                                     "--http-hosts", "gpu1,gpu1.example.org", "--max-sessions", "2", NULL});
}

static void stop(void) {
    daemon_stop(&tensord);
}

TestSuite(http, .init = start, .fini = stop, .timeout = 120);

static void expect(const char *path, int code, const char *text) {
    struct http_reply reply;
    http_get(port, path, NULL, &reply);
    cr_assert_eq(reply.code, code, "%s: %s", path, reply.text);
    cr_assert(strstr(reply.body, text), "%s has no \"%s\":\n%s", path, text, reply.body);
    http_reply_finish(&reply);
}

/* ---- what it serves ---- */

Test(http, a_daemon_that_is_well_says_so) {
    expect("/healthz", 200, "ok\n");
    expect("/readyz", 200, "ok\n");
    expect("/", 200, "<title>tensord</title>");
    cr_assert_eq(http_metric(port, "tensord_device_state{device=\"cpu:1\",state=\"ready\"}"), 1);
    cr_assert_eq(http_metric(port, "tensord_device_state{device=\"cpu:1\",state=\"lost\"}"), 0);
}

Test(http, readyz_names_the_devices_that_are_not_ready) {
    kill(status_worker_pid(tensord.url, "cpu:1"), SIGKILL);
    status_until(tensord.url, status_device_is, &(struct status_is){"cpu:1", "quarantined", 0}, 30000);
    expect("/readyz", 503, "cpu:1 is quarantined: the worker was killed by signal 9");
    struct http_reply reply;
    http_get(port, "/readyz", NULL, &reply);
    cr_assert(!strstr(reply.body, "cpu:0"), "%s", reply.body);
    http_reply_finish(&reply);
    expect("/healthz", 200, "ok\n");
    cr_assert_eq(http_metric(port, "tensord_device_faults_total{device=\"cpu:1\"}"), 1);
    cr_assert_eq(http_metric(port, "tensord_device_faults_total{device=\"cpu:0\"}"), 0);
    cr_assert(http_metric(port, "tensord_device_last_fault_timestamp_seconds{device=\"cpu:1\"}") > 1e9);
}

/* Every key at every level, but for those below "failures" and the like, which come and go. */
Test(http, status_json_has_the_shape_of_tensorctl_status) {
    struct client client;
    struct http_reply reply;
    struct command tensorctl;
    client_open(&client, tensord.url, "cpu:0");
    cr_assert(!td_wait(client_ramp(client.device, 4, 0)));
    cr_assert(http_metric_reaches(port, "tensord_device_operations_total{device=\"cpu:0\"}", 1, 30000));
    cr_assert_eq(http_metric(port, "tensord_device_programs{device=\"cpu:0\"}"), 0);
    cr_assert_eq(http_metric(port, "tensord_device_program_runs_total{device=\"cpu:0\"}"), 0);
    http_get(port, "/status.json", NULL, &reply);
    cr_assert_eq(reply.code, 200);
    command_run(&tensorctl,
                (const char *const[]){daemon_program("TENSORCTL_EXE"), "--url", tensord.url, "status", "--json", NULL},
                NULL, 30000);
    cr_assert_eq(tensorctl.code, 0, "%s", tensorctl.err);
    size_t size = reply.bytes + tensorctl.out_bytes + 16;
    char *both = malloc(size);
    int n = snprintf(both, size, "[%s,%s]", reply.body, tensorctl.out);
    json_expect(both, (size_t)n,
                "(lambda f: f(f, d[0]) == f(f, d[1]) and len(d[0]['sessions']) == 1 and len(d[0]['devices']) == 2)"
                "(lambda f, o: {k: f(f, v) for k, v in o.items()} if isinstance(o, dict) else "
                "[f(f, v) for v in o] if isinstance(o, list) else 0)");
    free(both);
    command_finish(&tensorctl);
    http_reply_finish(&reply);
    client_close(&client);
}

Test(http, history_grows_by_a_sample_a_second) {
    int64_t deadline = deadline_in(30000);
    struct http_reply reply;
    char *first;
    do {
        http_get(port, "/history.json", NULL, &reply);
        first = strstr(reply.body, "\"live\": [0");
        if (!first)
            http_reply_finish(&reply);
    } while (!first && deadline_pause(deadline));
    cr_assert(first, "no sample has been taken");
    json_expect(reply.body, reply.bytes,
                "[x['name'] for x in d['devices']] == ['cpu:0', 'cpu:1'] and d['step_s'] == 1 and "
                "all(len(v) == len(x['live']) >= 1 for x in d['devices'] for k, v in x.items() if k != 'name')");
    http_reply_finish(&reply);
}

Test(http, a_hung_device_is_told_of_by_the_age_of_its_figures) {
    int worker = status_worker_pid(tensord.url, "cpu:1");
    kill(worker, SIGSTOP);
    bool old = http_metric_reaches(port, "tensord_device_data_age_seconds{device=\"cpu:1\"}", 0.5, 30000);
    expect("/status.json", 200, "\"cpu:1\"");
    expect("/healthz", 200, "ok\n");
    int64_t deadline = deadline_in(30000);
    bool younger;
    do /* on a busy machine the other worker may be late, but it comes */
        younger = http_metric(port, "tensord_device_data_age_seconds{device=\"cpu:0\"}") <
                  http_metric(port, "tensord_device_data_age_seconds{device=\"cpu:1\"}");
    while (!younger && deadline_pause(deadline));
    kill(worker, SIGCONT);
    cr_assert(old, "the age of a stopped worker's figures does not grow");
    cr_assert(younger, "a worker that runs has older figures than one that is stopped");
}

/* ---- what is counted ---- */

Test(http, failures_are_counted_beyond_their_sessions_end) {
    static const char sample[] = "tensord_device_failures_total{device=\"cpu:0\",code=\"UNKNOWN_ID\"}";
    struct wire wire;
    cr_assert_eq(http_metric(port, sample), 0);
    wire_open(&wire, tensord.url, DAEMON_TARGET_CPU0);
    cr_assert(wire_op(&wire, &(struct wire_op){.opcode = OP_TANH, .output = 1, .sequence = 1, WIRE_INPUTS(99)}));
    cr_assert_eq(wire_fetch(&wire, 1, NULL, 0, NULL), STATUS_UNKNOWN_ID);
    cr_assert(http_metric_reaches(port, sample, 1, 30000));
    wire_close(&wire);
    cr_assert(status_settles(tensord.url, &(struct status_baseline){"cpu:0", 0, 0}, 20000));
    cr_assert_eq(http_metric(port, sample), 1);
}

Test(http, times_are_taken_of_fetches_and_operations) {
    struct client client;
    client_open(&client, tensord.url, "cpu:0");
    td_tensor *x = td_full(client.device, TD_F32, TD_SHAPE(256, 256), 0.5);
    td_tensor *y = td_matmul(x, x); /* long enough for its times to be taken for certain */
    float *values = malloc(256 * 256 * sizeof *values);
    for (int i = 0; i < 3; i++)
        cr_assert(!td_fetch(y, values, 256 * 256 * sizeof *values), "%s", td_last_error()->message);
    free(values);
    cr_assert(http_metric_reaches(port, "tensord_device_fetch_seconds_count{device=\"cpu:0\"}", 3, 30000));
    cr_assert_eq(http_metric(port, "tensord_device_fetch_seconds_count{device=\"cpu:0\"}"), 3);
    cr_assert_eq(http_metric(port, "tensord_device_fetch_seconds_bucket{device=\"cpu:0\",le=\"+Inf\"}"), 3);
    cr_assert(http_metric(port, "tensord_device_run_seconds_count{device=\"cpu:0\"}") >= 1);
    cr_assert(http_metric(port, "tensord_device_run_seconds_sum{device=\"cpu:0\"}") > 0);
    cr_assert(http_metric(port, "tensord_device_queue_seconds_count{device=\"cpu:0\"}") >= 1);
    cr_assert_eq(http_metric(port, "tensord_device_fetch_seconds_count{device=\"cpu:1\"}"), 0);
    client_close(&client);
}

Test(http, refused_connections_are_counted_by_their_reason) {
    struct wire wire, sessions[3];
    wire_connect(&wire, tensord.url, 77);
    cr_assert_eq(wire_until_closed(&wire, 5000, NULL), STATUS_NO_DEVICE);
    wire_close(&wire);
    cr_assert_eq(http_metric(port, "tensord_rejections_total{code=\"NO_DEVICE\"}"), 1);
    for (int i = 0; i < 2; i++)
        wire_open(&sessions[i], tensord.url, DAEMON_TARGET_CPU0);
    wire_connect(&sessions[2], tensord.url, DAEMON_TARGET_CPU0);
    Tensord__Hello hello = TENSORD__HELLO__INIT;
    hello.version_min = hello.version_max = PROTOCOL_VERSION_MAX;
    cr_assert(wire_request(&sessions[2], FRAME_HELLO, &hello));
    cr_assert_eq(wire_until_closed(&sessions[2], 5000, NULL), STATUS_LIMIT);
    cr_assert(http_metric_reaches(port, "tensord_device_rejections_total{device=\"cpu:0\",code=\"LIMIT\"}", 1, 30000));
    cr_assert(http_metric_reaches(port, "tensord_device_limits_met_total{device=\"cpu:0\",limit=\"max-sessions\"}", 1,
                                  30000));
    for (int i = 0; i < 3; i++)
        wire_close(&sessions[i]);
}

Test(http, what_a_client_calls_itself_is_in_no_metric) {
    struct wire wire;
    struct wire_frame welcome;
    struct http_reply reply;
    Tensord__Hello hello = TENSORD__HELLO__INIT;
    hello.version_min = hello.version_max = PROTOCOL_VERSION_MAX;
    hello.client = "a\"} 1\nevil_metric 1\n\\<img src=x>\xff";
    wire_connect(&wire, tensord.url, DAEMON_TARGET_CPU0);
    cr_assert(wire_request(&wire, FRAME_HELLO, &hello));
    cr_assert_eq(wire_receive(&wire, &welcome, WIRE_TIMEOUT_MS), WIRE_FRAME);
    wire_frame_finish(&welcome);
    cr_assert(http_metric_reaches(port, "tensord_device_sessions{device=\"cpu:0\"}", 1, 30000));
    http_get(port, "/metrics", NULL, &reply);
    cr_assert(!strstr(reply.body, "evil_metric"), "%s", reply.body);
    cr_assert(strstr(reply.body, "tensord_principal_sessions{device=\"cpu:0\","), "%s", reply.body);
    http_reply_finish(&reply);
    http_get(port, "/status.json", NULL, &reply);
    json_expect(reply.body, reply.bytes,
                "d['sessions'][0]['client'] == 'a\"} 1\\nevil_metric 1\\n\\\\<img src=x>\\ufffd'");
    http_reply_finish(&reply);
    wire_close(&wire);
}

/* ---- to whom ---- */

static int code_for_host(const char *host) {
    char header[128];
    struct http_reply reply;
    snprintf(header, sizeof header, "Host: %s\r\n", host);
    http_get(port, "/status.json", header, &reply);
    int code = reply.code;
    http_reply_finish(&reply);
    return code;
}

Test(http, pages_of_other_names_are_not_answered) {
    cr_assert_eq(code_for_host("localhost:8477"), 200);
    cr_assert_eq(code_for_host("127.0.0.1"), 200);
    cr_assert_eq(code_for_host("[::1]:8477"), 200);
    cr_assert_eq(code_for_host("gpu1"), 200);
    cr_assert_eq(code_for_host("GPU1.example.org:80"), 200);
    cr_assert_eq(code_for_host("evil.example.com"), 403);
    cr_assert_eq(code_for_host("localhost.evil.example.com"), 403);
    cr_assert_eq(code_for_host("gpu1,gpu1.example.org"), 403);
    cr_assert_eq(code_for_host(":80"), 403);
}

Test(http, answers_are_marked_as_what_they_are) {
    static const char *const needed[] = {"\r\nX-Content-Type-Options: nosniff\r\n", "\r\nX-Frame-Options: DENY\r\n",
                                         "\r\nContent-Security-Policy: default-src 'none'",
                                         "\r\nCache-Control: no-store\r\n",
                                         "\r\nCross-Origin-Resource-Policy: same-origin\r\n"};
    static const char *const paths[] = {"/", "/metrics", "/status.json", "/history.json", "/healthz", "/nothing"};
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++) {
        struct http_reply reply;
        http_get(port, paths[p], NULL, &reply);
        for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
            cr_assert(strstr(reply.text, needed[i]), "%s: no%s", paths[p], needed[i]);
        cr_assert(!strstr(reply.text, "Access-Control-Allow-Origin"));
        http_reply_finish(&reply);
    }
}

static int code_for(const char *request) {
    struct http_reply reply;
    http_exchange(port, request, &reply);
    int code = reply.code;
    http_reply_finish(&reply);
    return code;
}

Test(http, only_reading_is_possible) {
    cr_assert_eq(
        code_for("POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx"), 405);
    cr_assert_eq(code_for("DELETE / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"), 405);
    cr_assert_eq(code_for("GET /../etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"), 404);
    cr_assert_eq(code_for("GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n"), 400);
    struct http_reply reply;
    http_exchange(port, "HEAD /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", &reply);
    cr_assert_eq(reply.code, 200);
    cr_assert_eq(reply.bytes, 0);
    http_reply_finish(&reply);
}

/* What is no HTTP, or too much of it, is refused or cut; the next one is answered. */
Test(http, garbage_harms_nobody) {
    size_t size = 1 << 20;
    char *text = malloc(size + 1);
    memset(text, 'a', size);
    text[size] = 0;
    int code = code_for(text);
    cr_assert(code == 0 || code >= 400, "%d", code);
    memcpy(text, "GET / HTTP/1.1\r\nHost: ", 22);
    code = code_for(text);
    cr_assert(code == 0 || code >= 400, "%d", code);
    code = code_for("\x16\x03\x01\x02\x01 this is TLS\r\n\r\n");
    cr_assert(code == 0 || code >= 400, "%d", code);
    free(text);
    expect("/healthz", 200, "ok\n");
}

/* More connections than are taken, silent ones and halves of requests: the next one is answered while they are there. */
Test(http, health_is_told_beside_any_number_of_silent_connections) {
    enum { MANY = 300 };
    static const char half[] = "GET / HTTP/1.1\r\nHost: ";
    int fds[MANY];
    for (int i = 0; i < MANY; i++) {
        fds[i] = http_dial(port);
        if (i % 2)
            cr_assert_eq(send(fds[i], half, sizeof half - 1, MSG_NOSIGNAL), (ssize_t)sizeof half - 1);
    }
    expect("/healthz", 200, "ok\n");
    expect("/status.json", 200, "cpu:0");
    Tensord__Status *status = status_get(tensord.url); /* the daemon itself goes on */
    status_free(status);
    for (int i = 0; i < MANY; i++)
        close(fds[i]);
}

/* The library gives up what is silent for so long; the daemon's own bound on a request is twice that. */
Test(http, half_a_request_is_not_waited_for_for_ever) {
    int fd = http_dial(port);
    char byte;
    cr_assert_eq(send(fd, "GET /metrics HT", 15, MSG_NOSIGNAL), 15);
    cr_assert(deadline_poll(fd, POLLIN, deadline_in(60000)), "the connection is still there");
    cr_assert_leq(recv(fd, &byte, 1, 0), 0);
    close(fd);
    expect("/healthz", 200, "ok\n");
}

/* ---- the start ---- */

static void refuses(const char *const *flags, const char *text) {
    struct command command;
    char listen[128];
    const char *arguments[12] = {daemon_program("TENSORD_EXE"), "--devices", "cpu:0", "--listen", listen};
    snprintf(listen, sizeof listen, "%s.other", tensord.url);
    for (int n = 5; *flags; n++, flags++)
        arguments[n] = *flags;
    command_run(&command, arguments, NULL, 30000);
    cr_assert_eq(command.code, 2, "exit code %d: %s", command.code, command.err);
    cr_assert(strstr(command.err, text), "%s", command.err);
    command_finish(&command);
}

Test(http, wrong_addresses_stop_the_start) {
    refuses((const char *const[]){"--http", "0.0.0.0:0", NULL}, "other hosts can reach this address");
    refuses((const char *const[]){"--http", "[::]:0", NULL}, "other hosts can reach this address");
    refuses((const char *const[]){"--http", "8477", NULL}, "not an address and port such as 127.0.0.1:8477");
    refuses((const char *const[]){"--http", "127.0.0.1:0", "--http-hosts", "a b", NULL}, "no list of host names");
}
