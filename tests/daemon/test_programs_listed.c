/* What operators see of recorded programs: tensorctl programs, and plans with TENSORD_DEBUG=program. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/daemon/client.h"
#include "tests/daemon/command.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/json.h"
#include "tests/daemon/programs.h"
#include "tests/daemon/status.h"
#include "tests/daemon/users.h"

enum { RUN_MS = 20000, ROWS = 64, COLUMNS = 64, SESSION_MOST = 32 };

static struct daemon tensord;
static struct client client;
static struct command command;

static void start(void) {
    const char *const environment[] = {"TENSORD_DEBUG=program", NULL};
    daemon_start(&tensord, &(struct daemon_options){.environment = environment});
    client_open(&client, tensord.url, NULL);
}

static void stop(void) {
    command_finish(&command);
    client_close(&client);
    daemon_stop(&tensord);
}

TestSuite(programs_listed, .init = start, .fini = stop, .timeout = 60);

/* Replaces what the last command has printed. */
static void run_command(const char *const arguments[], const char *const environment[]) {
    command_finish(&command);
    command_run(&command, arguments, environment, RUN_MS);
    cr_assert_eq(command.code, 0, "%s", command.err);
}

#define TENSORCTL(...)                                                                                                 \
    run_command((const char *const[]){daemon_program("TENSORCTL_EXE"), "--url", tensord.url, __VA_ARGS__, NULL}, NULL)

static void json_holds(const char *expression) {
    json_expect(command.out, command.out_bytes, expression);
}

/* tanh(x * w) + exp(x * w), where w is captured; and the product once more, and its negative, which nobody needs. Six operations, four needed. */
static td_program *record(const char *label, td_tensor *w) {
    td_program *program = NULL;
    programs_ok(td_record_begin(client.device));
    td_tensor *x = td_parameter_consumed(TD_F32, TD_SHAPE(ROWS, COLUMNS));
    td_label(label);
    td_tensor *y = td_multiply(x, w), *again = td_multiply(x, w);
    td_negative(again);
    td_tensor *grown = td_exp(y), *bent = td_tanh(y), *z = td_add(bent, grown);
    programs_ok(td_record_end(client.device, 1, &z, &program));
    return program;
}

static td_tensor *run(td_program *program, td_tensor *input) {
    td_tensor *result;
    programs_ok(td_program_run(program, 1, &input, 1, &result));
    return result;
}

struct wanted {
    size_t programs;
    uint64_t runs, iterations; /* of all together */
};

static bool are_listed(const Tensord__Status *status, const void *argument) {
    const struct wanted *wanted = argument;
    uint64_t runs = 0, iterations = 0;
    for (size_t i = 0; i < status->n_programs; i++) {
        runs += status->programs[i]->runs;
        iterations += status->programs[i]->iterations;
    }
    return status->n_programs == wanted->programs && runs == wanted->runs && iterations == wanted->iterations;
}

static void wait_for(size_t programs, uint64_t runs, uint64_t iterations) {
    const struct wanted wanted = {programs, runs, iterations};
    status_until(tensord.url, are_listed, &wanted, 30000);
}

static bool are_all_called(const Tensord__Status *status, const void *label) {
    for (size_t i = 0; i < status->n_programs; i++)
        if (strcmp(status->programs[i]->label, label) != 0)
            return false;
    return status->n_programs == SESSION_MOST;
}

/* A program that ran three times, a loop of 50 iterations over it, and one that has not run. */
static void three_programs(void) {
    td_tensor *w = td_full(client.device, TD_F32, TD_SHAPE(COLUMNS), 0.5);
    td_program *program = record("net", w), *other = record("other", w);
    td_tensor *x = td_full(client.device, TD_F32, TD_SHAPE(ROWS, COLUMNS), 1), *result;
    const td_carry carry = {0, 0};
    const td_loop loop = {1, &carry, 0, NULL, 0, NULL};
    for (int i = 0; i < 3; i++)
        x = run(program, x);
    programs_ok(td_program_repeat(program, 50, &loop, 1, &x, 1, &result));
    programs_ok(td_sync(client.device));
    cr_assert(other);
}

Test(programs_listed, json_has_operations_memory_runs_and_times) {
    three_programs();
    wait_for(3, 4, 53);
    TENSORCTL("programs", "--json");
    json_holds("list(d) == ['programs'] and len(d['programs']) == 3");
    json_holds("[(p['loops'], p['planned'], p['runs'], p['iterations']) for p in d['programs']] == "
               "[(True, True, 1, 50), (False, True, 3, 3), (False, False, 0, 0)]");
    json_holds("all(p['device'] == 'cpu:0' and p['principal'].startswith('uid:') for p in d['programs'])");
    json_holds("len({p['session'] for p in d['programs']}) == 1 and len({p['id'] for p in d['programs']}) == 3");
    json_holds("[p['label'] for p in d['programs']] == ['net', 'net', 'other']");
    json_holds("all(p['operations'] == 6 and p['operations_kept'] == 4 for p in d['programs'])");
    json_holds("all(p['fused'] == 1 and p['fused_launches'] == 4 and p['launches'] == 1 and p['launches_once'] == 0 "
               "for p in d['programs'][:2])");
    json_holds("all(p['arena'] >= p['arena_least'] >= 0 for p in d['programs'][:2])");
    json_holds("all(p['runs_timed'] >= 1 and p['mean_run_s'] > 0 and p['last_run_s'] > 0 for p in d['programs'][:2])");
    json_holds("no(d['programs'][2], 'launches fused arena arena_least mean_run_s last_run_s cause graph_reason "
               "fused_reason')");
}

Test(programs_listed, table_has_a_line_for_each_and_status_counts_them) {
    three_programs();
    wait_for(3, 4, 53);
    TENSORCTL("programs");
    cr_assert(strstr(command.out, "OPERATIONS (KEPT)") && strstr(command.out, "FUSED (OF)"), "%s", command.out);
    cr_assert(strstr(command.out, " loop ") && strstr(command.out, "net") && strstr(command.out, "other"), "%s",
              command.out);
    cr_assert(strstr(command.out, "6 (4)") && strstr(command.out, "1 (4)"), "%s", command.out);
    TENSORCTL("status");
    cr_assert(strstr(command.out, "    3 recorded programs\n"), "%s", command.out);
    TENSORCTL("status", "--json");
    json_holds("len(d['programs']) == 3 and d['sessions'][0]['programs'] == 3");
}

Test(programs_listed, released_programs_are_gone) {
    td_program *program = record("net", td_full(client.device, TD_F32, TD_SHAPE(COLUMNS), 0.5));
    run(program, td_full(client.device, TD_F32, TD_SHAPE(ROWS, COLUMNS), 1));
    wait_for(1, 1, 1);
    td_program_release(program);
    programs_ok(td_sync(client.device));
    wait_for(0, 0, 0);
    TENSORCTL("programs");
    cr_assert_str_eq(command.out, "no recorded programs\n");
}

/* What was run last comes first, however many programs there are. */
Test(programs_listed, session_lists_those_that_ran_last) {
    td_tensor *w = td_full(client.device, TD_F32, TD_SHAPE(COLUMNS), 0.5);
    td_program *first = record("first", w);
    for (int i = 0; i < SESSION_MOST + 7; i++)
        record("later", w);
    programs_ok(td_sync(client.device));
    status_until(tensord.url, are_all_called, "later", 30000);
    TENSORCTL("programs", "--json");
    json_holds("all(p['label'] == 'later' for p in d['programs'])");
    run(first, td_full(client.device, TD_F32, TD_SHAPE(ROWS, COLUMNS), 1));
    wait_for(SESSION_MOST, 1, 1);
    TENSORCTL("programs", "--json");
    json_holds("[p['label'] for p in d['programs']] == ['first'] + ['later'] * 31");
    TENSORCTL("programs");
    cr_assert(strstr(command.out, "\nand 8 more\n"), "%s", command.out);
}

/* Of runs that take less than some microseconds one in thirteen is timed, and counts for the others. */
Test(programs_listed, timed_runs_count_for_those_that_are_not) {
    td_program *program = NULL;
    programs_ok(td_record_begin(client.device));
    td_tensor *x = td_parameter_consumed(TD_F32, TD_SHAPE(4)), *y = td_exp(x);
    programs_ok(td_record_end(client.device, 1, &y, &program));
    td_tensor *state = td_full(client.device, TD_F32, TD_SHAPE(4), 0);
    for (int i = 0; i < 14; i++)
        state = run(program, state);
    programs_ok(td_sync(client.device));
    wait_for(1, 14, 14);
    TENSORCTL("programs", "--json");
    json_holds("d['programs'][0]['runs_timed'] == 14 and 0 < d['programs'][0]['mean_run_s'] < 1");
    run(program, state);
    programs_ok(td_sync(client.device));
    wait_for(1, 15, 15);
    TENSORCTL("programs", "--json");
    json_holds("d['programs'][0]['runs_timed'] == 14");
}

/* ---- plans ---- */

/* The plan that the log has of a program or loop; its next line that begins without a blank ends it. */
static char *plan_of(const char *head) {
    cr_assert(daemon_log_has(&tensord, head, 20000), "%s", daemon_log(&tensord));
    char *log = daemon_log(&tensord), *plan = strstr(log, head), *end = plan;
    while ((end = strchr(end, '\n')) && end[1] == ' ')
        end++;
    plan = end ? strndup(plan, (size_t)(end - plan) + 1) : strdup(plan);
    free(log);
    return plan;
}

static void expect_lines(const char *head, const char *const lines[]) {
    char *plan = plan_of(head);
    for (; *lines; lines++)
        cr_assert(strstr(plan, *lines), "%s: not in the plan:\n%s", *lines, plan);
    free(plan);
}

Test(programs_listed, plan_is_printed_with_its_steps_and_the_arena) {
    three_programs();
    expect_lines(
        "program 1 of session ",
        (const char *const[]){
            ": 6 operations, 4 needed; 1 parameters, 1 captured tensors, 1 results\n",
            "  operation 2, multiply, is the same as operation 1\n", "  operation 3, negative, is not needed\n",
            "  1 in each run:\n", "  fused, 4 on 64 x 64 elements, ",
            "    multiply [net]: parameter 0 f32 (64, 64) = parameter 0 f32 (64, 64), captured 0 f32 (64, 64)\n",
            "    exp: slot 0 f32 (4096) = parameter 0 f32 (4096)\n", "  result 0 is in the memory of parameter 0\n",
            "  arena: 0 bytes, at most 0 in use at one time\n", NULL});
    char *loop = plan_of("loop ");
    cr_assert(strstr(loop, "  result 0 is carried to parameter 0\n"), "%s", loop);
    free(loop);
}

Test(programs_listed, plan_shows_single_launches_flat_ones_and_the_arena) {
    td_program *program = NULL;
    programs_ok(td_record_begin(client.device));
    td_tensor *a = td_parameter(TD_F32, TD_SHAPE(ROWS, COLUMNS));
    td_label("\x1b[31mred");
    td_tensor *product = td_matmul(td_matmul(a, a), a), *sum = td_sum(product, TD_ALL_AXES, 0);
    td_tensor *results[] = {td_exp(sum)};
    programs_ok(td_record_end(client.device, 1, results, &program));
    run(program, td_full(client.device, TD_F32, TD_SHAPE(ROWS, COLUMNS), 0));
    programs_ok(td_sync(client.device));
    expect_lines("program 1 of session ",
                 (const char *const[]){"  launch matmul [\\x1b[31mred]: arena +",
                                       " = parameter 0 f32 (64, 64), parameter 0 f32 (64, 64)\n",
                                       ": 16384 bytes, in launches ", "\n    +0: ", NULL});
    char *log = daemon_log(&tensord);
    cr_assert(!strchr(log, '\x1b'), "%s", log);
    free(log);
}

Test(programs_listed, plan_shows_what_has_become_a_part_of_another_operation) {
    td_program *program = NULL;
    programs_ok(td_record_begin(client.device));
    td_tensor *a = td_parameter(TD_F32, TD_SHAPE(ROWS, COLUMNS));
    td_tensor *results[] = {td_relu(td_linear(a, a, NULL, TD_ACTIVATION_NONE))};
    programs_ok(td_record_end(client.device, 1, results, &program));
    run(program, td_full(client.device, TD_F32, TD_SHAPE(ROWS, COLUMNS), 0));
    programs_ok(td_sync(client.device));
    expect_lines(
        "program 1 of session ",
        (const char *const[]){": 2 operations, 1 needed; ", "  operation 2, relu, is a part of operation 1\n", NULL});
}

static bool counts_are(const Tensord__Status *status, const void *wanted) {
    const uint64_t *counts = wanted;
    const Tensord__DeviceStatus *device = status_device(status, "cpu:0");
    return device->programs == counts[0] && device->program_runs == counts[1];
}

/* Also after the session's end, and of what it has left. */
Test(programs_listed, device_counts_programs_and_their_runs) {
    td_tensor *w = td_full(client.device, TD_F32, TD_SHAPE(COLUMNS), 0.5);
    td_program *first = record("first", w);
    record("second", w);
    td_tensor *x = td_full(client.device, TD_F32, TD_SHAPE(ROWS, COLUMNS), 1);
    for (int i = 0; i < 3; i++)
        x = run(first, x);
    programs_ok(td_sync(client.device));
    status_until(tensord.url, counts_are, (const uint64_t[]){2, 3}, RUN_MS);
    td_program_release(first);
    programs_ok(td_sync(client.device));
    status_until(tensord.url, counts_are, (const uint64_t[]){1, 3}, RUN_MS);
    TENSORCTL("status", "--json");
    json_holds("d['devices'][0]['programs'] == 1 and d['devices'][0]['program_runs'] == 3");
    client_close(&client);
    status_until(tensord.url, counts_are, (const uint64_t[]){0, 3}, RUN_MS);
    client_open(&client, tensord.url, NULL);
}

/* ---- many ---- */

enum { MANY = 9, FEW = 5, ALL_MOST = 256 };

/* Of the crowded device as many as fit, and of the other one all; and the sessions count all of theirs. */
static bool many_are_listed(const Tensord__Status *status, const void *none) {
    size_t few = 0, all = 0;
    (void)none;
    for (size_t i = 0; i < status->n_sessions; i++)
        all += status->sessions[i]->programs;
    for (size_t i = 0; i < status->n_programs; i++)
        few += !strcmp(status->programs[i]->device, "cpu:1");
    return status->n_programs == ALL_MOST && few == FEW && all == MANY * SESSION_MOST + FEW;
}

Test(programs_of_many, device_with_few_programs_shows_all_of_them, .timeout = 120) {
    struct client clients[MANY + 1];
    struct daemon daemon;
    daemon_start(&daemon, &(struct daemon_options){.devices = "cpu:0,cpu:1"});
    for (int i = 0; i <= MANY; i++) {
        client_open(&clients[i], daemon.url, i < MANY ? "cpu:0" : "cpu:1");
        client = clients[i];
        td_tensor *w = td_full(client.device, TD_F32, TD_SHAPE(COLUMNS), 0.5);
        for (int k = 0; k < (i < MANY ? SESSION_MOST : FEW); k++)
            record("many", w);
        programs_ok(td_sync(client.device));
    }
    status_until(daemon.url, many_are_listed, NULL, 30000);
    run_command((const char *const[]){daemon_program("TENSORCTL_EXE"), "--url", daemon.url, "programs", NULL}, NULL);
    cr_assert(strstr(command.out, "\nand 37 more\n"), "%s", command.out);
    command_finish(&command);
    for (int i = 0; i <= MANY; i++)
        client_close(&clients[i]);
    daemon_stop(&daemon);
}

/* ---- who sees what ---- */

/* What tensorctl shows of all programs to the user with this token. */
static void list_as(const struct daemon *daemon, const char *token) {
    char variable[USERS_TOKEN_BYTES + 16];
    snprintf(variable, sizeof variable, "TENSORD_TOKEN=%s", token);
    run_command(
        (const char *const[]){daemon_program("TENSORCTL_EXE"), "--url", daemon->tcp, "programs", "--json", NULL},
        (const char *const[]){variable, NULL});
}

Test(programs_of_users, labels_are_shown_to_their_owner_and_admins, .timeout = 60) {
    static const char *const names[] = {"alice", "bob", "root"}, *const roles[] = {"run", "run", "admin"};
    char tokens[3][USERS_TOKEN_BYTES];
    struct users_file file;
    struct daemon daemon;
    users_file_make(&file);
    for (int i = 0; i < 3; i++)
        users_file_add(&file, names[i], roles[i], tokens[i]);
    daemon_start(&daemon, &(struct daemon_options){.tcp = "tcp://127.0.0.1:0",
                                                   .flags = (const char *const[]){"--users", file.path, NULL}});
    const td_options options = {.token = tokens[0]};
    programs_ok(td_connect(daemon.tcp, &options, &client.connection));
    programs_ok(td_device_open(client.connection, NULL, &client.device));
    td_program *program = record("secret", td_full(client.device, TD_F32, TD_SHAPE(COLUMNS), 0.5));
    td_tensor *result = run(program, td_full(client.device, TD_F32, TD_SHAPE(ROWS, COLUMNS), 1));
    programs_ok(td_wait(result));
    do /* the figures are written down a few times a second */
        list_as(&daemon, tokens[0]);
    while (!strstr(command.out, "\"runs\": 1,"));
    json_holds("[(p['principal'], p['label']) for p in d['programs']] == [('alice', 'secret')]");
    list_as(&daemon, tokens[2]);
    json_holds("[(p['principal'], p['label'], p['runs']) for p in d['programs']] == [('alice', 'secret', 1)]");
    list_as(&daemon, tokens[1]);
    json_holds("[(p['principal'], p['label'], p['runs']) for p in d['programs']] == [('alice', None, 1)]");
    cr_assert(!strstr(command.out, "secret"), "%s", command.out);
    command_finish(&command);
    client_close(&client);
    daemon_stop(&daemon);
    users_file_remove(&file);
}
