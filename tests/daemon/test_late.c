/* A real daemon on a device that a module brings, on which everything happens later and elsewhere (tests/stand_ins/late.h):
 * what a GPU is to the engine and the server. */
#include <criterion/criterion.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "tests/daemon/client.h"
#include "tests/daemon/command.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/status.h"

enum { LARGE = 5 * (1 << 20) + 3 }; /* floats: several chunks and a rest */

static struct daemon tensord;
static struct client client;
static td_device *cpu;

static void start(void) {
    daemon_start(&tensord, &(struct daemon_options){.devices = "late:0,late:1,cpu:0"});
    client_open(&client, tensord.url, "late:0");
    cr_assert(!td_device_open(client.connection, "cpu:0", &cpu), "%s", td_last_error()->message);
}

static void stop(void) {
    client_close(&client);
    daemon_stop(&tensord);
}

TestSuite(late, .init = start, .fini = stop, .timeout = 120);

static float *noise(void) {
    float *data = malloc(LARGE * sizeof *data);
    for (size_t i = 0; i < LARGE; i++)
        data[i] = (float)(i * 2654435761u % 1000003);
    return data;
}

static void expect_same(td_tensor *tensor, const float *want) {
    float *got = malloc(LARGE * sizeof *got);
    cr_assert(!td_fetch(tensor, got, LARGE * sizeof *got), "%s", td_last_error()->message);
    cr_assert_eq(memcmp(got, want, LARGE * sizeof *got), 0);
    free(got);
}

Test(late, says_who_it_is) {
    td_device_info infos[3];
    struct command command;
    size_t count;
    cr_assert(!td_devices(client.connection, infos, 3, &count));
    cr_assert_str_eq(infos[0].name, "late:0");
    cr_assert_str_eq(infos[0].uuid, "LATE-1");
    cr_assert_str_eq(infos[2].uuid, "");
    command_run(&command, (const char *const[]){daemon_program("TENSORCTL_EXE"), "--url", tensord.url, "status", NULL},
                NULL, 30000);
    cr_assert(strstr(command.out, "LATE-1 at 0000:3b:00.0"), "%s", command.out);
    command_finish(&command);
}

Test(late, computes) {
    td_tensor *x = client_ramp(client.device, 4, 1);
    client_expect(td_add(x, x), (float[]){2, 4, 6, 8}, 4);
    client_expect(td_matmul(td_reshape(x, TD_SHAPE(2, 2)), td_reshape(x, TD_SHAPE(2, 2))), (float[]){7, 10, 15, 22}, 4);
}

Test(late, large_tensors_go_up_and_come_back_in_chunks) {
    float *data = noise();
    td_tensor *x = td_upload(client.device, TD_F32, TD_SHAPE(LARGE), data);
    expect_same(x, data);
    expect_same(td_negative(td_negative(x)), data);
    free(data);
}

static sem_t fetched;

static void count_fetched(void *user, int status) {
    *(int *)user = status;
    sem_post(&fetched);
}

Test(late, many_large_fetches_at_once) {
    enum { FETCHES = 4 };
    float *data = noise(), *got[FETCHES];
    int codes[FETCHES];
    td_tensor *x = td_upload(client.device, TD_F32, TD_SHAPE(LARGE), data);
    sem_init(&fetched, 0, 0);
    for (int i = 0; i < FETCHES; i++) {
        got[i] = malloc(LARGE * sizeof *got[i]);
        cr_assert(!td_fetch_async(x, got[i], LARGE * sizeof *got[i], count_fetched, &codes[i]));
    }
    for (int i = 0; i < FETCHES; i++)
        sem_wait(&fetched);
    for (int i = 0; i < FETCHES; i++) {
        cr_assert_eq(codes[i], 0);
        cr_assert_eq(memcmp(got[i], data, LARGE * sizeof *data), 0);
        free(got[i]);
    }
    free(data);
}

Test(late, tensors_are_copied_to_another_device_and_back) {
    float *data = noise();
    td_tensor *x = td_upload(client.device, TD_F32, TD_SHAPE(LARGE), data);
    td_tensor *back = td_copy_to(td_negative(td_copy_to(x, cpu)), client.device);
    expect_same(td_negative(back), data);
    free(data);
}

/* A sum that needs both devices in turn, and large values that go both ways meanwhile. */
Test(late, copies_go_both_ways_at_once) {
    enum { TURNS = 12, WAYS = 4 };
    float *data = noise();
    td_device *other;
    cr_assert(!td_device_open(client.connection, "late:1", &other), "%s", td_last_error()->message);
    td_tensor *x = td_upload(client.device, TD_F32, TD_SHAPE(LARGE), data);
    td_tensor *y = td_upload(other, TD_F32, TD_SHAPE(LARGE), data);
    td_tensor *small = client_ramp(client.device, 4, 1), *there[WAYS], *here[WAYS];
    for (int i = 0; i < TURNS; i++) {
        small = td_copy_to(td_add(small, small), i % 2 ? client.device : other);
        there[i % WAYS] = td_copy_to(x, other);
        here[i % WAYS] = td_copy_to(y, client.device);
    }
    for (int i = 0; i < WAYS; i++) {
        expect_same(there[i], data);
        expect_same(here[i], data);
    }
    client_expect(small, (float[]){4096, 8192, 12288, 16384}, 4);
    free(data);
}

Test(late, bad_index_is_told_with_its_operation) {
    td_tensor *x = client_ramp(client.device, 3, 0), *index = td_full(client.device, TD_I64, TD_SHAPE(1), 77);
    td_label("culprit");
    const td_error *error = client_expect_failure(td_exp(td_take(x, index, 0)), TD_E_OUT_OF_RANGE);
    cr_assert_str_eq(error->operation, "take");
    cr_assert_str_eq(error->label, "culprit");
    cr_assert(strstr(error->message, "77"), "%s", error->message);
}

Test(late, killed_worker_comes_back) {
    td_tensor *old = client_ramp(client.device, 2, 0);
    td_device *again;
    cr_assert(!td_wait(old));
    kill(status_worker_pid(tensord.url, "late:0"), SIGKILL);
    client_expect_failure(old, TD_E_DEVICE_LOST);
    status_until(tensord.url, status_device_is, &(struct status_is){"late:0", "ready", 2}, 30000);
    cr_assert(!td_device_open(client.connection, "late:0", &again), "%s", td_last_error()->message);
    client_expect(client_ramp(again, 2, 5), (float[]){5, 6}, 2);
}

Test(late, a_number_that_the_host_does_not_have_is_refused_at_start) {
    struct command command;
    command_run(&command, (const char *const[]){daemon_program("TENSORD_EXE"), "--devices", "late:2", NULL}, NULL,
                30000);
    cr_assert_eq(command.code, 2);
    cr_assert(strstr(command.err, "late:2") && strstr(command.err, "from 0 to 1"), "%s", command.err);
    command_finish(&command);
}

/* With or without a GPU, with or without the module. */
Test(late, impossible_gpu_is_refused_at_start_with_the_reason) {
    struct command command;
    command_run(&command, (const char *const[]){daemon_program("TENSORD_EXE"), "--devices", "cuda:99", NULL}, NULL,
                30000);
    cr_assert_eq(command.code, 2, "%s", command.err);
    cr_assert(strstr(command.err, "--devices: no device \\\"cuda:99\\\": "), "%s", command.err);
    command_finish(&command);
}
