/* tensorctl: what it prints for people and for programs. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/daemon/client.h"
#include "tests/daemon/command.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/json.h"
#include "tests/daemon/status.h"
#include "tests/daemon/wire.h"

enum { RUN_MS = 30000 };

static struct daemon tensord;
static struct client client;
static struct command command;

/* The worker publishes its figures a few times a second. */
static bool work_is_counted(const Tensord__Status *status, const void *none) {
    (void)none;
    return status_device(status, "cpu:1")->ops_total >= 3 && status->n_sessions == 1;
}

static void start(void) {
    daemon_start(&tensord, &(struct daemon_options){.devices = "cpu:0,cpu:1"});
    client_open(&client, tensord.url, "cpu:1");
    td_label("held");
    td_tensor *held = td_full(client.device, TD_F32, TD_SHAPE(1 << 20), 1);
    cr_assert(!td_wait(held), "%s", td_last_error()->message);
    cr_assert_eq(td_wait(td_take(held, td_full(client.device, TD_I32, TD_SHAPE(1), -5), 0)), TD_E_OUT_OF_RANGE);
    status_until(tensord.url, work_is_counted, NULL, 30000);
}

static void stop(void) {
    command_finish(&command);
    client_close(&client);
    daemon_stop(&tensord);
}

TestSuite(tensorctl, .init = start, .fini = stop, .timeout = 60);

#define TENSORCTL(...)                                                                                                 \
    command_run(&command,                                                                                              \
                (const char *const[]){daemon_program("TENSORCTL_EXE"), "--url", tensord.url, __VA_ARGS__, NULL}, NULL, \
                RUN_MS)

static void json_holds(const char *expression) {
    json_expect(command.out, command.out_bytes, expression);
}

Test(tensorctl, status_json_has_its_keys) {
    TENSORCTL("status", "--json");
    cr_assert_eq(command.code, 0, "%s", command.err);
    json_holds("has(d, 'version uptime_s draining devices sessions') and d['draining'] is False");
    json_holds("len(d['devices']) == 2 and [x['name'] for x in d['devices']] == ['cpu:0', 'cpu:1']");
    json_holds("all(has(x, 'name kind state worker_pid epoch restarts last_fault memory queue_depth ops_total bytes_in "
               "bytes_out data_age_ms') for x in d['devices'])");
    json_holds(
        "all(ints(x, 'worker_pid epoch restarts queue_depth ops_total bytes_in bytes_out') for x in d['devices'])");
    json_holds("all(ints(x['memory'], 'total reserved live peak largest_free workspaces workspaces_limit') for x in "
               "d['devices'])");
    json_holds(
        "all(ints(x['staging'], 'total reserved held waiting') and ints(x['allocations'], 'reservations releases "
        "pinnings unpinnings workspace_growths') and x['stalled_s'] == 0 for x in d['devices'])");
    json_holds("len(d['sessions']) == 1");
    json_holds("all(has(x, 'id principal peer device age_s tensors live peak ops_queued ops_done failures') and "
               "ints(x, 'id tensors live peak ops_queued ops_done') for x in d['sessions'])");
}

Test(tensorctl, status_json_tells_the_truth) {
    TENSORCTL("status", "--json");
    json_holds("d['devices'][1]['memory']['live'] >= 4 << 20 and d['devices'][0]['memory']['live'] == 0");
    json_holds("d['sessions'][0]['device'] == 'cpu:1' and d['sessions'][0]['live'] >= 4 << 20");
    json_holds("d['sessions'][0]['principal'].startswith('uid:') and d['sessions'][0]['ops_done'] >= 3");
    json_holds("all(x['state'] == 'ready' and x['kind'] == 'cpu' for x in d['devices'])");
}

static bool unknown_id_is_counted(const Tensord__Status *status, const void *none) {
    (void)none;
    for (size_t i = 0; i < status->n_sessions; i++)
        for (size_t j = 0; j < status->sessions[i]->n_failures; j++)
            if (status->sessions[i]->failures[j]->code == STATUS_UNKNOWN_ID)
                return true;
    return false;
}

static bool failure_is_counted(const Tensord__Status *status, const void *none) {
    (void)none;
    return status->n_sessions == 1 && status->sessions[0]->n_failures > 0;
}

Test(tensorctl, label_is_shown) {
    TENSORCTL("sessions", "--json");
    json_holds("d['sessions'][0]['label'] == 'held'");
    command_finish(&command);
    TENSORCTL("status");
    cr_assert(strstr(command.out, "    at: held\n"), "%s", command.out);
}

static bool two_sessions(const Tensord__Status *status, const void *none) {
    (void)none;
    return status->n_sessions == 2;
}

Test(tensorctl, precision_is_shown) {
    td_connection *fast;
    td_device *device;
    cr_assert(!td_connect(tensord.url, &(td_options){.allow_tf32 = true}, &fast));
    cr_assert(!td_device_open(fast, "cpu:0", &device));
    status_until(tensord.url, two_sessions, NULL, 30000);
    TENSORCTL("sessions", "--json");
    json_holds("sorted((s['device'], s['allow_tf32']) for s in d['sessions']) == [('cpu:0', True), ('cpu:1', False)]");
    td_close(fast);
}

Test(tensorctl, failure_noticed_by_the_device_is_counted) {
    status_until(tensord.url, failure_is_counted, NULL, 30000);
    TENSORCTL("sessions", "--json");
    json_holds("'out_of_range' in json.dumps(d).lower() and 'take' in json.dumps(d)");
}

Test(tensorctl, failure_noticed_at_the_submission_is_counted) {
    struct wire wire;
    wire_open(&wire, tensord.url, 1);
    cr_assert(wire_op(&wire, &(struct wire_op){.opcode = OP_ADD, .output = 1, .sequence = 1, WIRE_INPUTS(5, 6)}));
    cr_assert(wire_ping(&wire));
    status_until(tensord.url, unknown_id_is_counted, NULL, 30000);
    wire_close(&wire);
}

Test(tensorctl, devices_json) {
    TENSORCTL("devices", "--json");
    cr_assert_eq(command.code, 0, "%s", command.err);
    json_holds("'cpu:1' in json.dumps(d)");
    json_holds("all(no(x, 'uuid bus driver runtime driver_version memory_device') for x in d['devices'])");
    json_holds("all(x['readings'].pop('xid_watched') is False and len(x['readings']) == 16 for x in d['devices'])");
    json_holds("all(v is None for x in d['devices'] for k, v in x['readings'].items() if k != 'xid_watched')");
}

Test(tensorctl, ops_json_names_every_operation_and_its_devices) {
    TENSORCTL("ops", "--json");
    cr_assert_eq(command.code, 0, "%s", command.err);
    json_holds("[x['name'] for x in d['devices'] if x['known']] == ['cpu:0', 'cpu:1']");
    json_holds("{'add': 48, 'matmul': 128, 'reshape': 32}.items() <= {x['name']: x['opcode'] for x in "
               "d['operations']}.items()");
    json_holds("all(list(x['devices']) == ['cpu:0', 'cpu:1'] for x in d['operations'])");
    json_holds(
        "all(y['complete'] and y['dtypes'] == x['dtypes'] and y['reason'] is None for x in d['operations'] for y "
        "in x['devices'].values())");
    json_holds("{x['name'] for x in d['operations'] if not x['dtypes']} >= {'free', 'slice', 'concat'}");
}

Test(tensorctl, ops_text_says_that_none_is_missing) {
    TENSORCTL("ops");
    cr_assert_eq(command.code, 0, "%s", command.err);
    cr_assert(strstr(command.out, "\ncpu:0: none missing\ncpu:1: none missing\n"), "%s", command.out);
    cr_assert(strstr(command.out, "\nlogical_not"), "%s", command.out);
}

/* The front answers, from what the worker wrote down when it was ready. */
Test(tensorctl, ops_of_a_device_that_hangs_are_known) {
    int worker = status_worker_pid(tensord.url, "cpu:0");
    kill(worker, SIGSTOP);
    TENSORCTL("ops");
    kill(worker, SIGCONT);
    cr_assert_eq(command.code, 0, "%s", command.err);
    cr_assert(strstr(command.out, "\ncpu:0: none missing\n"), "%s", command.out);
}

Test(tensorctl, sessions_json) {
    TENSORCTL("sessions", "--json");
    cr_assert_eq(command.code, 0, "%s", command.err);
    json_holds("'uid:' in json.dumps(d)");
}

Test(tensorctl, options_may_come_before_the_command) {
    TENSORCTL("--json", "status");
    cr_assert_eq(command.code, 0, "%s", command.err);
    json_holds("has(d, 'devices')");
}

Test(tensorctl, text_in_a_pipe_is_not_cut) {
    static const char *const WORDS[] = {"status", "devices", "sessions", "ping"};
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++) {
        TENSORCTL(WORDS[i]);
        cr_assert_eq(command.code, 0, "%s: %s", WORDS[i], command.err);
        cr_assert(command.out_bytes > 0);
        cr_assert(!strstr(command.out, "…"), "%s:\n%s", WORDS[i], command.out);
        command_finish(&command);
    }
}

Test(tensorctl, session_shows_its_process_and_its_program) {
    char pid[24];
    snprintf(pid, sizeof pid, " %d ", getpid());
    TENSORCTL("sessions");
    cr_assert(strstr(command.out, pid), "no%s in\n%s", pid, command.out);
    cr_assert(!strstr(command.out, "libtensord"), "%s", command.out);
    command_finish(&command);
    TENSORCTL("sessions", "--json");
    json_holds("'libtensord' in d['sessions'][0]['client'] and not d['sessions'][0]['pid_claimed']");
}

Test(tensorctl, status_text_names_devices_and_the_failure) {
    TENSORCTL("status");
    cr_assert(strstr(command.out, "cpu:0") && strstr(command.out, "cpu:1") && strstr(command.out, "ready"), "%s",
              command.out);
    cr_assert(strstr(command.out, "uid:"), "%s", command.out);
    cr_assert(strstr(command.out, "MiB"), "%s", command.out);
}

Test(tensorctl, url_comes_from_the_environment) {
    char variable[140];
    snprintf(variable, sizeof variable, "TENSORD_URL=%s", tensord.url);
    command_run(&command, (const char *const[]){daemon_program("TENSORCTL_EXE"), "ping", NULL},
                (const char *const[]){variable, NULL}, RUN_MS);
    cr_assert_eq(command.code, 0, "%s", command.err);
}

Test(tensorctl, wrong_use_is_told) {
    static const char *const WORDS[] = {"no-such-command", "--no-such-flag"};
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++) {
        TENSORCTL(WORDS[i]);
        cr_assert(command.code > 0 && command.code < 128, "%s: %d", WORDS[i], command.code);
        cr_assert(strstr(command.err, WORDS[i]), "%s", command.err);
        command_finish(&command);
    }
}

Test(tensorctl, daemon_that_is_not_there_is_told) {
    command_run(&command,
                (const char *const[]){daemon_program("TENSORCTL_EXE"), "--url", "unix:/nonexistent/s", "status", NULL},
                NULL, RUN_MS);
    cr_assert(command.code > 0 && command.code < 128, "%d", command.code);
    cr_assert(strstr(command.err, "/nonexistent/s"), "%s", command.err);
}

static bool job_runs(const Tensord__Status *status, const void *none) {
    (void)none;
    return status_device(status, "cpu:1")->queue_depth > 0;
}

Test(tensorctl, status_answers_during_a_running_job) {
    td_tensor *x = td_broadcast_to(td_full(client.device, TD_F32, TD_SHAPE(1), 0), 1, (int64_t[]){INT64_C(1) << 40});
    cr_assert_not_null(td_sum(x, 0, NULL, 0)); /* for a quarter of an hour at least, and stopped with its session */
    cr_assert(!td_flush(client.device));
    status_until(tensord.url, job_runs, NULL, 30000);
    TENSORCTL("status", "--json");
    cr_assert_eq(command.code, 0, "%s", command.err);
    json_holds("d['devices'][1]['queue_depth'] > 0");
    json_holds("d['devices'][1]['state'] == 'ready' and d['devices'][1]['data_age_ms'] < 5000");
}
