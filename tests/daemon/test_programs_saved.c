/* Programs in files and under names: they compute the same, survive what files and names survive, and what is wrong is refused. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/daemon/client.h"
#include "tests/daemon/command.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/programs.h"
#include "tests/daemon/status.h"

enum { CAPTURED_MAX = 5 };

static struct daemon tensord;
static struct client client;
static char folder[64], path[100];

static void run(void) {
    const char *const flags[] = {"--state-dir", folder, NULL};
    daemon_start(&tensord, &(struct daemon_options){.devices = "cpu:0,cpu:1", .flags = flags});
    client_open(&client, tensord.url, NULL);
}

static void start(void) {
    daemon_directory_make(folder);
    snprintf(path, sizeof path, "%s/model", folder);
    run();
}

static void stop(void) {
    client_close(&client);
    daemon_stop(&tensord);
    daemon_directory_remove(folder);
}

TestSuite(programs_saved, .init = start, .fini = stop, .timeout = 120);

static void refused(int code, int expected, const char *words) {
    cr_expect_eq(code, expected, "code %d: %s", code, td_last_error()->message);
    cr_expect(strstr(td_last_error()->message, words), "\n%s\nis not in\n%s", words, td_last_error()->message);
}

/* x -> (softmax(x · w + b), the sum of x at `place`), whose captured tensors are w (n, n), b (n,) and, for n above 0, place. */
static td_program *model(int64_t n) {
    td_tensor *w = td_normal(client.device, TD_F32, TD_SHAPE(n, n), 7, 0, 1);
    td_tensor *b = td_arange(client.device, TD_F32, 0, (double)n, 1),
              *place = td_full(client.device, TD_I64, TD_SHAPE(1), 1);
    programs_ok(td_record_begin(client.device));
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(2, n));
    td_scope_begin_label("layer");
    td_tensor *y = td_softmax(td_add(td_matmul(x, w), b), -1);
    td_scope_end();
    td_tensor *results[] = {y, td_sum(td_take(x, place, 1), TD_ALL_AXES, 0)};
    td_program *program = NULL;
    programs_ok(td_record_end(client.device, 2, results, &program));
    td_release(w);
    td_release(b);
    td_release(place);
    return program;
}

enum { N = 5, VALUES = 2 * N + 1 };

static void results_of(td_device *device, td_program *program, float values[VALUES]) {
    td_tensor *x = td_reshape(td_arange(device, TD_F32, 0, 2 * N, 1), TD_SHAPE(2, N)), *results[2];
    programs_ok(td_program_run(program, 1, &x, 2, results));
    programs_ok(td_fetch(results[0], values, 2 * N * sizeof *values));
    programs_ok(td_fetch(results[1], values + 2 * N, sizeof *values));
}

static void expect_results(td_device *device, td_program *program, const float values[VALUES]) {
    float again[VALUES];
    results_of(device, program, again);
    cr_assert_arr_eq(again, values, sizeof again, "other bits");
}

/* ---- files ---- */

Test(programs_saved, file_outlives_the_session_and_the_device) {
    float values[VALUES];
    td_program *program = model(N), *loaded = NULL;
    struct stat stat_of;
    results_of(client.device, program, values);
    programs_ok(td_program_save(program, path));
    cr_assert(!stat(path, &stat_of) && S_ISREG(stat_of.st_mode));
    td_program_release(program);
    client_close(&client);
    client_open(&client, tensord.url, "cpu:1");
    programs_ok(td_program_load(client.device, path, &loaded));
    const int64_t *shape;
    td_dtype dtype;
    int rank;
    cr_assert(td_program_parameters(loaded) == 1 && td_program_results(loaded) == 2);
    programs_ok(td_program_parameter_type(loaded, 0, &dtype, &rank, &shape));
    cr_assert(dtype == TD_F32 && rank == 2 && shape[0] == 2 && shape[1] == N);
    cr_assert(!td_program_consumes(loaded, 0));
    expect_results(client.device, loaded, values);
    programs_ok(td_program_save(loaded, path)); /* over the old file, which it was loaded from */
    td_program_release(loaded);
    programs_ok(td_program_load(client.device, path, &loaded));
    expect_results(client.device, loaded, values);
}

Test(programs_saved, failure_of_a_loaded_program_names_operation_and_label) {
    programs_ok(td_record_begin(client.device));
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(3)), *place = td_parameter(TD_I64, TD_SHAPE(1));
    td_label("pick");
    td_tensor *y = td_take(x, place, 0), *result;
    td_program *program = NULL;
    programs_ok(td_record_end(client.device, 1, &y, &program));
    programs_ok(td_program_save(program, path));
    programs_ok(td_program_load(client.device, path, &program));
    td_tensor *inputs[] = {client_ramp(client.device, 3, 0), td_full(client.device, TD_I64, TD_SHAPE(1), 5)};
    programs_ok(td_program_run(program, 2, inputs, 1, &result));
    const td_error *error = client_expect_failure(result, TD_E_OUT_OF_RANGE);
    cr_assert_str_eq(error->label, "pick");
    cr_assert_str_eq(error->operation, "take");
}

/* Captured tensors whose data is larger than the send queue. */
Test(programs_saved, large_captured_tensors_are_loaded) {
    enum { MANY = 3 << 20 };
    td_tensor *parts[3];
    for (int i = 0; i < 3; i++)
        parts[i] = td_normal(client.device, TD_F32, TD_SHAPE(MANY), (uint64_t)i, 0, 1);
    programs_ok(td_record_begin(client.device));
    td_tensor *y = td_add(td_multiply(parts[0], parts[1]), parts[2]), *before, *after;
    td_program *program = NULL, *loaded = NULL;
    programs_ok(td_record_end(client.device, 1, &y, &program));
    programs_ok(td_program_save(program, path));
    programs_ok(td_program_load(client.device, path, &loaded));
    programs_ok(td_program_run(program, 0, NULL, 1, &before));
    programs_ok(td_program_run(loaded, 0, NULL, 1, &after));
    bool same = false;
    programs_ok(td_fetch(td_all(td_equal(before, after), TD_ALL_AXES, 0), &same, sizeof same));
    cr_assert(same);
}

Test(programs_saved, loaded_program_runs_inside_of_another_one) {
    float values[VALUES];
    td_program *program = model(N), *outer = NULL;
    results_of(client.device, program, values);
    programs_ok(td_program_save(program, path));
    td_program_release(program);
    programs_ok(td_program_load(client.device, path, &program));
    programs_ok(td_record_begin(client.device));
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(2, N)), *results[2];
    programs_ok(td_program_run(program, 1, &x, 2, results));
    programs_ok(td_record_end(client.device, 2, results, &outer));
    td_program_release(program);
    expect_results(client.device, outer, values);
}

Test(programs_saved, error_of_a_thread_stays_after_a_success) {
    td_program *program = model(N);
    refused(td_program_load(client.device, "/", &program), TD_E_INVALID_ARGUMENT, "no ordinary file");
    td_error before = *td_last_error();
    programs_ok(td_program_publish(program, "model")); /* looks for an earlier one, which is not there */
    cr_assert_str_eq(td_last_error()->message, before.message);
}

static void damage(long at, const void *bytes, size_t n) {
    int fd = open(path, O_RDWR);
    cr_assert(fd >= 0 && pwrite(fd, bytes, n, at) == (ssize_t)n && !close(fd));
}

Test(programs_saved, damaged_files_are_refused) {
    td_program *program = model(N), *none = NULL;
    struct stat whole;
    programs_ok(td_program_save(program, path));
    cr_assert_eq(stat(path, &whole), 0);
    damage(whole.st_size - 12, "x", 1);
    refused(td_program_load(client.device, path, &none), TD_E_INVALID_ARGUMENT,
            "/model: is damaged: the checksum of captured tensor 2 is wrong");
    damage(40, "\377", 1);
    refused(td_program_load(client.device, path, &none), TD_E_INVALID_ARGUMENT, "checksum of its description");
    damage(8, "\3", 1);
    refused(td_program_load(client.device, path, &none), TD_E_VERSION,
            "is a program in version 3 of the format, and this version of tensord reads versions 1 to 2");
    cr_assert_eq(truncate(path, whole.st_size - 1), 0);
    damage(8, "\1", 1);
    refused(td_program_load(client.device, path, &none), TD_E_INVALID_ARGUMENT, "bytes, and should have");
    cr_assert_eq(truncate(path, 7), 0);
    refused(td_program_load(client.device, path, &none), TD_E_INVALID_ARGUMENT, "too short");
    refused(td_program_load(client.device, "/none", &none), TD_E_INVALID_ARGUMENT, "/none: No such file");
    cr_assert_null(none);
    refused(td_program_save(program, "/none/there"), TD_E_INVALID_ARGUMENT, "No such file");
    programs_ok(td_program_save(program, path));
    programs_ok(td_program_load(client.device, path, &none));
}

Test(programs_saved, program_of_a_failed_tensor_is_not_saved) {
    td_tensor *ramp = client_ramp(client.device, 3, 0), *place = td_full(client.device, TD_I64, TD_SHAPE(1), 9);
    td_label("broken");
    td_tensor *w = td_take(ramp, place, 0);
    programs_ok(td_record_begin(client.device));
    td_tensor *y = td_exp(w);
    td_program *program = NULL;
    programs_ok(td_record_end(client.device, 1, &y, &program));
    refused(td_program_save(program, path), TD_E_OUT_OF_RANGE, "index 9");
    cr_assert_str_eq(td_last_error()->label, "broken");
    cr_assert(access(path, F_OK) != 0, "there is a file");
}

Test(programs_saved, calls_are_checked) {
    td_program *program = model(N), *none = NULL;
    refused(td_program_save(NULL, path), TD_E_INVALID_ARGUMENT, "the program is NULL");
    refused(td_program_save(program, NULL), TD_E_INVALID_ARGUMENT, "the path is NULL");
    refused(td_program_load(NULL, path, &none), TD_E_INVALID_ARGUMENT, "the device is NULL");
    refused(td_program_load(client.device, path, NULL), TD_E_INVALID_ARGUMENT, "place for the program");
    refused(td_program_publish(program, "a\nb"), TD_E_INVALID_ARGUMENT, "control character");
    refused(td_program_open(client.device, NULL, &none), TD_E_INVALID_ARGUMENT, "the name is NULL");
    programs_ok(td_record_begin(client.device));
    refused(td_program_save(program, path), TD_E_INVALID_ARGUMENT, "cannot be recorded");
    refused(td_program_load(client.device, path, &none), TD_E_INVALID_ARGUMENT, "cannot be recorded");
    refused(td_program_publish(program, "model"), TD_E_INVALID_ARGUMENT, "cannot be recorded");
    refused(td_program_open(client.device, "model", &none), TD_E_INVALID_ARGUMENT, "cannot be recorded");
    refused(td_program_unpublish(client.device, "model"), TD_E_INVALID_ARGUMENT, "cannot be recorded");
    td_record_cancel(client.device);
}

/* ---- tensorctl program dump ---- */

static void dump(struct command *command, const char *option) {
    command_run(command, (const char *const[]){daemon_program("TENSORCTL_EXE"), "program", "dump", path, option, NULL},
                NULL, 30000);
}

/* (x, y) -> (max and its places of exp(x) + w, the same max again), where x is consumed. */
static void save_small(void) {
    td_tensor *w = td_full(client.device, TD_F32, TD_SHAPE(2, 3), 1);
    programs_ok(td_record_begin(client.device));
    td_tensor *x = td_parameter_consumed(TD_F32, TD_SHAPE(2, 3)), *y = td_parameter(TD_F64, TD_SCALAR);
    td_label("say \"exp\"");
    td_tensor *sum = td_add(td_exp(x), w), *values, *places;
    programs_ok(td_topk(sum, 2, -1, 1, &values, &places));
    td_tensor *results[] = {values, places, y, td_sum(sum, TD_AXES(1), 0)};
    td_program *program = NULL;
    programs_ok(td_record_end(client.device, 4, results, &program));
    programs_ok(td_program_save(program, path));
}

Test(programs_saved, dump_shows_a_program) {
    struct command command;
    save_small();
    dump(&command, NULL);
    cr_assert_eq(command.code, 0, "%s", command.err);
    cr_assert_str_eq(command.out, "program of tensord " TENSORD_VERSION
                                  ": 2 parameters, 1 captured tensor with 24 B, 4 operations, 4 results\n"
                                  "parameters\n"
                                  "  %1  f32 (2, 3)  consumed\n"
                                  "  %2  f64 ()\n"
                                  "captured tensors\n"
                                  "  %3  f32 (2, 3)\n"
                                  "operations\n"
                                  "  %4 = exp(%1)  f32 (2, 3)  [say \\x22exp\\x22]\n"
                                  "  %5 = add(%4, %3)  f32 (2, 3)\n"
                                  "  %6, %7 = topk(%5; k=2, axis=-1, largest=1)  f32 (2, 2), i64 (2, 2)\n"
                                  "  %8 = sum(%5; keepdims=0, axes=[1])  f32 (2,)\n"
                                  "results\n"
                                  "  0: %6  f32 (2, 2)\n"
                                  "  1: %7  i64 (2, 2)\n"
                                  "  2: %2  f64 ()\n"
                                  "  3: %8  f32 (2,)\n");
    command_finish(&command);
}

Test(programs_saved, dump_draws_a_program) {
    struct command command;
    save_small();
    dump(&command, "--dot");
    cr_assert_eq(command.code, 0, "%s", command.err);
    cr_assert_str_eq(command.out, "digraph program {\n"
                                  "  node [shape=box, fontname=\"sans-serif\"];\n"
                                  "  n1 [shape=ellipse, label=\"parameter 0\\nf32 (2, 3)\"];\n"
                                  "  n2 [shape=ellipse, label=\"parameter 1\\nf64 ()\"];\n"
                                  "  n3 [shape=cylinder, label=\"captured 0\\nf32 (2, 3)\"];\n"
                                  "  n4 [label=\"exp\\nf32 (2, 3)\\n[say \\\"exp\\\"]\"];\n"
                                  "  n1 -> n4;\n"
                                  "  n5 [label=\"add\\nf32 (2, 3)\"];\n"
                                  "  n4 -> n5;\n"
                                  "  n3 -> n5;\n"
                                  "  n6 [label=\"topk\\nf32 (2, 2)\\ni64 (2, 2)\"];\n"
                                  "  n5 -> n6;\n"
                                  "  n8 [label=\"sum\\nf32 (2,)\"];\n"
                                  "  n5 -> n8;\n"
                                  "  r0 [shape=ellipse, style=bold, label=\"result 0\"];\n"
                                  "  n6 -> r0 [label=\"output 0\"];\n"
                                  "  r1 [shape=ellipse, style=bold, label=\"result 1\"];\n"
                                  "  n6 -> r1 [label=\"output 1\"];\n"
                                  "  r2 [shape=ellipse, style=bold, label=\"result 2\"];\n"
                                  "  n2 -> r2;\n"
                                  "  r3 [shape=ellipse, style=bold, label=\"result 3\"];\n"
                                  "  n8 -> r3;\n"
                                  "}\n");
    command_finish(&command);
}

Test(programs_saved, dump_refuses_a_damaged_file) {
    struct command command;
    save_small();
    damage(60, "\377", 1);
    dump(&command, NULL);
    cr_assert(command.code == 1 && !*command.out);
    cr_assert(strstr(command.err, "/model: is damaged"), "%s", command.err);
    command_finish(&command);
}

/* ---- names ---- */

static size_t names(void) {
    size_t count;
    programs_ok(td_names(client.device, NULL, 0, &count));
    return count;
}

Test(programs_saved, published_program_is_shared) {
    float values[VALUES];
    td_program *program = model(N), *opened = NULL;
    results_of(client.device, program, values);
    programs_ok(td_program_publish(program, "model"));
    cr_assert_eq(names(), 4);
    struct client other;
    client_open(&other, tensord.url, NULL);
    programs_ok(td_program_open(other.device, "model", &opened));
    expect_results(other.device, opened, values);
    td_program_release(program);
    programs_ok(td_program_unpublish(client.device, "model"));
    cr_assert_eq(names(), 0);
    expect_results(other.device, opened, values);
    refused(td_program_open(other.device, "model", &opened), TD_E_UNKNOWN_ID, "model");
    client_close(&other);
}

enum { LARGE = 2048 }; /* w has 16 MiB */

/* Both sessions have the captured tensors, in the memory of one; and their bytes were on no socket. */
static bool shared(const Tensord__Status *status, const void *none) {
    const Tensord__DeviceStatus *device = status_device(status, "cpu:0");
    unsigned having = 0;
    (void)none;
    for (size_t i = 0; i < status->n_sessions; i++)
        having += status->sessions[i]->tensors >= 3;
    return having == 2 && device->memory_live >= 16 << 20 && device->memory_live < 24 << 20 &&
           device->bytes_out < 1 << 20;
}

Test(programs_saved, opened_weights_take_no_memory) {
    td_program *program = model(LARGE), *opened = NULL;
    programs_ok(td_program_publish(program, "large"));
    struct client other;
    client_open(&other, tensord.url, NULL);
    programs_ok(td_program_open(other.device, "large", &opened));
    programs_ok(td_sync(other.device));
    status_until(tensord.url, shared, NULL, 20000);
    client_close(&other);
}

Test(programs_saved, names_survive_the_daemon) {
    float values[VALUES];
    td_program *program = model(N);
    results_of(client.device, program, values);
    programs_ok(td_program_publish(program, "model"));
    client_close(&client);
    daemon_stop(&tensord);
    run();
    programs_ok(td_program_open(client.device, "model", &program));
    expect_results(client.device, program, values);
}

Test(programs_saved, new_program_takes_the_place_of_the_old_one) {
    td_program *program = model(N), *opened = NULL;
    programs_ok(td_program_publish(program, "model"));
    cr_assert_eq(names(), 4);
    programs_ok(td_record_begin(client.device));
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(2)), *y = td_exp(x);
    td_program *smaller = NULL;
    programs_ok(td_record_end(client.device, 1, &y, &smaller));
    programs_ok(td_program_publish(smaller, "model"));
    cr_assert_eq(names(), 1, "captured tensors of the old program stay");
    programs_ok(td_program_open(client.device, "model", &opened));
    cr_assert_eq(td_program_results(opened), 1);
}

/* A program that has captured `n` tensors of the value `value`. */
static int program_of(td_device *device, unsigned n, double value, td_program **program) {
    td_tensor *captured[CAPTURED_MAX] = {NULL};
    for (unsigned i = 0; i < n; i++)
        captured[i] = td_full(device, TD_F32, TD_SHAPE(2), value);
    int code = td_record_begin(device);
    td_tensor *result = td_subtract(captured[0], captured[1]);
    for (unsigned i = 2; i < n; i++)
        result = td_add(result, td_subtract(captured[i], captured[0]));
    if (!code)
        code = td_record_end(device, 1, &result, program);
    for (unsigned i = 0; i < n; i++)
        td_release(captured[i]);
    return code;
}

struct publisher {
    unsigned captured;
    atomic_bool ended;
    int code;
};

/* Publishes one program after the other. */
static void *publisher_main(void *argument) {
    struct publisher *publisher = argument;
    struct client own;
    client_open(&own, tensord.url, NULL);
    for (int i = 0; i < 80 && !publisher->code; i++) {
        td_program *program = NULL;
        publisher->code = program_of(own.device, publisher->captured, i, &program);
        if (!publisher->code)
            publisher->code = td_program_publish(program, "model");
        td_program_release(program);
    }
    client_close(&own);
    publisher->ended = true;
    return NULL;
}

Test(programs_saved, opened_program_is_one_of_those_that_were_published) {
    struct publisher publishers[] = {{.captured = 2}, {.captured = CAPTURED_MAX}};
    pthread_t threads[2];
    unsigned opened = 0;
    td_program *program;
    for (int i = 0; i < 2; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, publisher_main, &publishers[i]), 0);
    for (bool last = false; !last;) {
        last = publishers[0].ended && publishers[1].ended;
        int found = td_program_open(client.device, "model", &program);
        if (found == TD_E_UNKNOWN_ID && !opened && !last) /* it is not there yet */
            continue;
        programs_ok(found);
        td_tensor *result;
        programs_ok(td_program_run(program, 0, NULL, 1, &result));
        client_expect(result, (float[]){0, 0}, 2);
        td_release(result);
        td_program_release(program);
        opened++;
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        cr_assert_eq(publishers[i].code, 0);
    }
    size_t left = names();
    cr_assert(left == 1 + 2 || left == 1 + CAPTURED_MAX, "%zu names", left);
}

static bool is_named(const char *name) {
    td_tensor *tensor = td_open(client.device, name);
    td_release(tensor);
    return tensor;
}

Test(programs_saved, what_lies_beneath_a_program_goes_when_one_is_published_and_nothing_else) {
    static const char *const GO[] = {"model/captured/", "model/captured/1/old", "model/captured/7", "model/captured/~"};
    static const char *const STAY[] = {"model/captured", "model/captured.", "model/captured0", "model", "a", "z"};
    enum { GONE = sizeof GO / sizeof *GO, STAYING = sizeof STAY / sizeof *STAY };
    td_tensor *x = client_ramp(client.device, 3, 0);
    td_program *program, *opened;
    for (unsigned i = 0; i < GONE; i++)
        programs_ok(td_publish(x, GO[i]));
    for (unsigned i = 0; i < STAYING; i++)
        programs_ok(td_publish(x, STAY[i]));
    programs_ok(program_of(client.device, 3, 1, &program));
    programs_ok(td_program_publish(program, "model"));
    for (unsigned i = 0; i < GONE; i++)
        cr_assert_not(is_named(GO[i]), "%s", GO[i]);
    for (unsigned i = 0; i < STAYING; i++)
        cr_assert(is_named(STAY[i]), "%s", STAY[i]);
    cr_assert_eq(names(), STAYING + 3);
    programs_ok(td_program_open(client.device, "model", &opened));
    programs_ok(td_publish(x, "model/captured/9"));
    programs_ok(td_program_unpublish(client.device, "model"));
    cr_assert_eq(names(), STAYING - 1, "all of the program's, and no others");
}

/* The limit is that of what is there afterwards. */
Test(programs_saved, names_that_go_make_room_for_those_that_come) {
    const char *const flags[] = {"--named-tensors", "6", NULL};
    td_program *program;
    client_close(&client);
    daemon_stop(&tensord);
    daemon_start(&tensord, &(struct daemon_options){.devices = "cpu:0", .flags = flags});
    client_open(&client, tensord.url, NULL);
    td_tensor *x = client_ramp(client.device, 3, 0);
    programs_ok(td_publish(x, "model/captured/a"));
    programs_ok(td_publish(x, "model/captured/b"));
    programs_ok(program_of(client.device, CAPTURED_MAX, 1, &program));
    programs_ok(td_program_publish(program, "model"));
    cr_assert_eq(names(), 6);
    refused(td_program_publish(program, "other"), TD_E_LIMIT, "6 named tensors");
    programs_ok(td_program_publish(program, "model"));
    cr_assert_eq(names(), 6);
}

Test(programs_saved, what_is_no_program_is_refused) {
    td_program *program = model(N), *none = NULL;
    td_tensor *ramp = client_ramp(client.device, 3, 0), *bytes = td_full(client.device, TD_U8, TD_SHAPE(100), 1);
    programs_ok(td_publish(ramp, "ramp"));
    programs_ok(td_publish(bytes, "bytes"));
    refused(td_program_open(client.device, "ramp", &none), TD_E_INVALID_ARGUMENT,
            "\"ramp\" is no program: its value is f32 (3,)");
    refused(td_program_unpublish(client.device, "ramp"), TD_E_INVALID_ARGUMENT, "is no program");
    refused(td_program_open(client.device, "bytes", &none), TD_E_INVALID_ARGUMENT,
            "the value of \"bytes\" is no saved program");
    programs_ok(td_program_publish(program, "model"));
    programs_ok(td_unpublish(client.device, "model/captured/2"));
    refused(td_program_open(client.device, "model", &none), TD_E_UNKNOWN_ID, "model/captured/2");
    programs_ok(td_publish(ramp, "model/captured/2"));
    refused(td_program_open(client.device, "model", &none), TD_E_UNKNOWN_ID,
            "\"model/captured/2\" is not what the program has captured");
    char name[256] = {0};
    memset(name, 'n', 250);
    refused(td_program_publish(program, name), TD_E_INVALID_ARGUMENT, "no room for \"/captured/1\" behind it");
    cr_assert_null(none);
}
