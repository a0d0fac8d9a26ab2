/* Programs with clients' kernels in files, on a device with functions in the place of kernels (tests/stand_ins/late.h). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/files/crc64.h"
#include "tests/daemon/client.h"
#include "tests/daemon/command.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/programs.h"
#include "tests/daemon/status.h"

static struct daemon tensord;
static struct client client;
static char folder[64], path[100];

static void start_with(const char *const *flags) {
    daemon_directory_make(folder);
    snprintf(path, sizeof path, "%s/model", folder);
    daemon_start(&tensord, &(struct daemon_options){.devices = "late:0,cpu:0", .flags = flags});
    client_open(&client, tensord.url, "late:0");
}

static void start(void) {
    start_with((const char *const[]){"--user-kernels", "all", NULL});
}

static void stop(void) {
    client_close(&client);
    daemon_stop(&tensord);
    daemon_directory_remove(folder);
}

TestSuite(programs_kernels_saved, .init = start, .fini = stop, .timeout = 120);

static void refused(int code, int expected, const char *words) {
    cr_expect_eq(code, expected, "code %d: %s", code, td_last_error()->message);
    cr_expect(strstr(td_last_error()->message, words), "\n%s\nis not in\n%s", words, td_last_error()->message);
}

enum { N = 4 };

static const char saxpy_source[] = "// saxpy:\n\n\tz[i] = a * x[i] + y[i]; \x1b\n", split_source[] = "// 2";

/* 2 · x + y */
static td_tensor *saxpy(td_kernel *kernel, td_tensor *x, td_tensor *y) {
    td_tensor *z = NULL;
    td_kernel_launch(
        kernel, TD_DIM(1), TD_DIM(32), 0,
        TD_ARGS(td_arg_out(&z, TD_F32, TD_SHAPE(N)), td_arg_in(x), td_arg_in(y), td_arg_f32(2), td_arg_i32(N)));
    return z;
}

/* x -> (2 · x + w of a captured w, and the parts of 2 · x + x below and above 0), by two kernels that are released meanwhile. */
static td_program *record(void) {
    td_kernel *sum, *split;
    td_program *program = NULL;
    td_tensor *w = client_ramp(client.device, N, 1), *small, *large;
    programs_ok(td_kernel_compile(client.device, saxpy_source, "saxpy", &sum));
    programs_ok(td_kernel_compile(client.device, split_source, "split", &split));
    programs_ok(td_record_begin(client.device));
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(N));
    td_tensor *first = saxpy(sum, x, w), *second = saxpy(sum, x, x);
    programs_ok(td_kernel_launch(split, TD_DIM(1), TD_DIM(1), 0,
                                 TD_ARGS(td_arg_out(&small, TD_F32, TD_SHAPE(N)),
                                         td_arg_out(&large, TD_F32, TD_SHAPE(N)), td_arg_in(second), td_arg_i32(N))));
    td_kernel_release(split); /* one before the recording ends, one after it */
    programs_ok(td_record_end(client.device, 2, (td_tensor *[]){first, td_subtract(large, small)}, &program));
    td_kernel_release(sum);
    td_release(w);
    return program;
}

static void results_of(td_program *program, float values[2 * N]) {
    td_tensor *x = client_ramp(client.device, N, -1), *results[2];
    programs_ok(td_program_run(program, 1, &x, 2, results));
    for (int i = 0; i < 2; i++) {
        programs_ok(td_fetch(results[i], values + i * N, N * sizeof *values));
        td_release(results[i]);
    }
    td_release(x);
}

static void expect_results(td_program *program, const float values[2 * N]) {
    float again[2 * N];
    results_of(program, again);
    cr_assert_arr_eq(again, values, sizeof again, "other bits");
}

static void save(void) {
    td_program *program = record();
    programs_ok(td_program_save(program, path));
    td_program_release(program);
}

static td_program *load(void) {
    td_program *program = NULL;
    programs_ok(td_program_load(client.device, path, &program));
    return program;
}

Test(programs_kernels_saved, file_outlives_kernels_and_session) {
    float values[2 * N];
    td_program *program = record();
    results_of(program, values);
    cr_assert(values[0] == -1 && values[1] == 2 && values[2 * N - 1] > 0, "%g %g %g", (double)values[0],
              (double)values[1], (double)values[2 * N - 1]);
    programs_ok(td_program_save(program, path));
    client_close(&client);
    client_open(&client, tensord.url, "late:0");
    td_kernel *other; /* whose id is that of a kernel in the session that is gone */
    programs_ok(td_kernel_compile(client.device, "// a source", "count", &other));
    program = load();
    expect_results(program, values);
    programs_ok(td_program_save(program, path)); /* over the old file */
    td_program_release(program);
    program = load();
    expect_results(program, values);
}

Test(programs_kernels_saved, loaded_program_runs_inside_of_another_one) {
    float values[2 * N];
    save();
    td_program *inner = load(), *outer = NULL;
    td_tensor *results[2];
    results_of(inner, values);
    programs_ok(td_record_begin(client.device));
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(N));
    programs_ok(td_program_run(inner, 1, &x, 2, results));
    programs_ok(td_record_end(client.device, 2, results, &outer));
    td_program_release(inner);
    expect_results(outer, values);
    programs_ok(td_program_save(outer, path));
    expect_results(load(), values);
}

Test(programs_kernels_saved, loaded_program_gives_its_kernels_back) {
    const struct status_baseline before = {.device = "late:0", .live = 0, .sessions = 1};
    save();
    for (int i = 0; i < 140; i++) /* a session may have 256 kernels */
        td_program_release(load());
    programs_ok(td_sync(client.device));
    cr_assert(status_settles(tensord.url, &before, 20000));
}

/* The file as somebody else could write it: with other words of the same length. */
static void replace(const char *old, const char *new) {
    char bytes[4096];
    FILE *file = fopen(path, "r+b");
    cr_assert(file && strlen(old) == strlen(new));
    size_t n = fread(bytes, 1, sizeof bytes, file), message;
    memcpy(&message, bytes + 16, sizeof message);
    char *at = memmem(bytes, n, old, strlen(old));
    cr_assert(at && n < sizeof bytes);
    memcpy(at, new, strlen(new));
    const uint64_t sum = crc64(0, bytes, 32 + message);
    memcpy(bytes + 32 + message, &sum, sizeof sum);
    rewind(file);
    cr_assert(fwrite(bytes, 1, n, file) == n && !fclose(file));
}

Test(programs_kernels_saved, source_that_does_not_compile_is_named) {
    const struct status_baseline before = {.device = "late:0", .live = 0, .sessions = 1};
    td_program *program = NULL;
    save();
    replace(saxpy_source, "#error:\n\n\tz[i] = a * x[i] + y[i]; \x1b\n\n\n");
    refused(td_program_load(client.device, path, &program), TD_E_INVALID_ARGUMENT,
            "/model: kernel saxpy: kernel.cu(1): error: #error directive");
    cr_assert_str_eq(td_last_error()->details, "kernel.cu(1): error: #error directive\n1 error detected\n");
    cr_assert_null(program);
    save();
    replace("split", "spill"); /* after the first kernel has been compiled */
    refused(td_program_load(client.device, path, &program), TD_E_INVALID_ARGUMENT,
            "/model: kernel spill: the source has no kernel spill");
    programs_ok(td_sync(client.device));
    cr_assert(status_settles(tensord.url, &before, 20000));
}

Test(programs_kernels_saved, device_without_kernels_says_so) {
    td_device *cpu;
    td_program *program = NULL;
    save();
    programs_ok(td_device_open(client.connection, "cpu:0", &cpu));
    refused(td_program_load(cpu, path, &program), TD_E_UNSUPPORTED,
            "/model: kernel saxpy: a cpu device takes no user kernels");
}

Test(programs_kernels_saved, user_who_may_have_no_kernels_loads_none) {
    td_program *program = NULL;
    save();
    client_close(&client);
    daemon_stop(&tensord);
    daemon_start(&tensord, &(struct daemon_options){.devices = "late:0"});
    client_open(&client, tensord.url, "late:0");
    refused(td_program_load(client.device, path, &program), TD_E_DENIED, "/model: kernel saxpy: ");
}

/* Who opens a name would run kernels of another session's. */
Test(programs_kernels_saved, is_not_published) {
    size_t count;
    refused(td_program_publish(record(), "model"), TD_E_UNSUPPORTED,
            "operation 1 of the program is a kernel of the client's own, which cannot be saved under a name");
    programs_ok(td_names(client.device, NULL, 0, &count));
    cr_assert_eq(count, 0);
}

/* ---- what tensorctl shows ---- */

static void dump(struct command *command, const char *option) {
    command_run(command, (const char *const[]){daemon_program("TENSORCTL_EXE"), "program", "dump", path, option, NULL},
                NULL, 30000);
    cr_assert_eq(command->code, 0, "%s", command->err);
}

Test(programs_kernels_saved, dump_shows_sources) {
    struct command command;
    save();
    dump(&command, NULL);
    cr_assert(strstr(command.out, "1 captured tensor with 16 B, 2 kernels, 4 operations, 2 results\n"), "%s",
              command.out);
    cr_assert(strstr(command.out, "kernels\n"
                                  "  1: saxpy\n"
                                  "      // saxpy:\n\n      \tz[i] = a * x[i] + y[i]; \\x1b\n"
                                  "  2: split\n"
                                  "      // 2\n"
                                  "operations\n"
                                  "  %3 = kernel(%1, %2; kernel=1, "),
              "%s", command.out);
    cr_assert(strstr(command.out, "  %5, %6 = kernel(%4; kernel=2, "), "%s", command.out);
    command_finish(&command);
    dump(&command, "--dot");
    cr_assert(strstr(command.out, "  n3 [label=\"kernel\\nsaxpy\\nf32 (4,)\"];\n"), "%s", command.out);
    command_finish(&command);
}
