/* Named tensors: values that outlive the sessions that made them, on a device that computes at once and on one on which
 * everything happens later. */
#include <criterion/criterion.h>
#include <grp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/daemon/client.h"
#include "tests/daemon/command.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/json.h"
#include "tests/daemon/status.h"
#include "tests/daemon/wire.h"

enum { SETTLE_MS = 30000 };

static struct daemon tensord;

static void start(void) {
    daemon_start(&tensord, &(struct daemon_options){.devices = "cpu:0,late:0",
                                                    .flags = (const char *const[]){"--socket-mode", "0666", NULL}});
}

static void start_with(const char *const *flags) {
    daemon_stop(&tensord);
    daemon_start(&tensord, &(struct daemon_options){.devices = "cpu:0,late:0", .flags = flags});
}

static void stop(void) {
    daemon_stop(&tensord);
}

TestSuite(names, .init = start, .fini = stop, .timeout = 120);

/* A test on either device. */
#define ON_BOTH(name)                                                                                                  \
    static void name(const char *device);                                                                              \
    Test(names, name##_cpu) {                                                                                          \
        name("cpu:0");                                                                                                 \
    }                                                                                                                  \
    Test(names, name##_late) {                                                                                         \
        name("late:0");                                                                                                \
    }                                                                                                                  \
    static void name(const char *device)

#define OK(call) cr_assert(!(call), "%s: %s", #call, td_last_error()->message)

static void expect_error(int got, int code, const char *words) {
    cr_assert_eq(got, code, "%d (%s), not %d", got, got ? td_last_error()->message : "success", code);
    cr_assert(strstr(td_last_error()->message, words), "\"%s\" does not say \"%s\"", td_last_error()->message, words);
}

/* The next frame's message, which is a Done. */
static Tensord__Done *wire_done(struct wire *wire) {
    struct wire_frame frame;
    Tensord__Done *done = NULL;
    if (wire_receive(wire, &frame, WIRE_TIMEOUT_MS) != WIRE_FRAME)
        return NULL;
    if (frame.header.type == FRAME_DONE)
        done = tensord__done__unpack(NULL, frame.header.message_bytes, frame.message);
    wire_frame_finish(&frame);
    return done;
}

static void expect_unknown(td_device *device, const char *name) {
    cr_assert_null(td_open(device, name));
    expect_error(td_last_error()->code, TD_E_UNKNOWN_ID, "no tensor here has the name");
}

/* ---- lives ---- */

ON_BOTH(outlives_its_session) {
    struct client first, second;
    client_open(&first, tensord.url, device);
    td_tensor *x = client_ramp(first.device, 6, 1);
    OK(td_publish(td_reshape(td_add(x, x), TD_SHAPE(2, 3)), "weights/Ω"));
    client_close(&first);
    cr_assert(status_settles(tensord.url, &(struct status_baseline){device, UINT64_MAX, 0}, SETTLE_MS));
    client_open(&second, tensord.url, device);
    td_tensor *opened = td_open(second.device, "weights/Ω");
    cr_assert_not_null(opened, "%s", td_last_error()->message);
    cr_assert_eq(td_tensor_rank(opened), 2);
    cr_assert_eq(td_tensor_shape(opened)[1], 3);
    client_expect(opened, (float[]){2, 4, 6, 8, 10, 12}, 6);
    client_expect(td_negative(opened), (float[]){-2, -4, -6, -8, -10, -12}, 6);
    OK(td_unpublish(second.device, "weights/Ω"));
    expect_unknown(second.device, "weights/Ω");
    client_expect(opened, (float[]){2, 4, 6, 8, 10, 12}, 6); /* what has been opened stays */
    client_close(&second);
}

ON_BOTH(operation_after_the_open_has_its_id) {
    struct client client;
    client_open(&client, tensord.url, device);
    td_tensor *x = client_ramp(client.device, 2, 1);
    OK(td_publish(x, "x"));
    td_tensor *before = td_negative(x), *opened = td_open(client.device, "x"), *after = td_add(opened, before);
    expect_unknown(client.device, "y"); /* the id that it used up is left out */
    client_expect(td_add(after, opened), (float[]){1, 2}, 2);
    client_close(&client);
}

ON_BOTH(empty_and_scalar_values) {
    struct client client;
    client_open(&client, tensord.url, device);
    OK(td_publish(td_full(client.device, TD_F32, TD_SHAPE(0, 3), 1), "empty"));
    OK(td_publish(td_full(client.device, TD_F32, TD_SCALAR, 7), "scalar"));
    td_tensor *empty = td_open(client.device, "empty");
    cr_assert_eq(td_tensor_rank(empty), 2);
    cr_assert_eq(td_tensor_bytes(empty), 0);
    OK(td_fetch(empty, NULL, 0));
    client_expect(td_open(client.device, "scalar"), (float[]){7}, 1);
    client_close(&client);
}

ON_BOTH(failed_value_is_refused_and_the_old_one_stays) {
    struct client client;
    client_open(&client, tensord.url, device);
    td_tensor *x = client_ramp(client.device, 3, 0), *index = td_full(client.device, TD_I64, TD_SHAPE(1), 77);
    OK(td_publish(x, "x"));
    td_label("culprit");
    expect_error(td_publish(td_exp(td_take(x, index, 0)), "x"), TD_E_OUT_OF_RANGE, "77");
    cr_assert_str_eq(td_last_error()->operation, "take");
    cr_assert_str_eq(td_last_error()->label, "culprit");
    client_expect(td_open(client.device, "x"), (float[]){0, 1, 2}, 3);
    td_tensor *many[2] = {td_negative(x), td_take(x, index, 0)};
    expect_error(td_publish_all(2, many, (const char *const[]){"x", "y"}, false), TD_E_OUT_OF_RANGE, "77");
    client_expect(td_open(client.device, "x"), (float[]){0, 1, 2}, 3);
    expect_unknown(client.device, "y");
    client_close(&client);
}

Test(names, bad_names_are_refused_by_both_sides) {
    char longest[257];
    struct client client;
    memset(longest, 'n', sizeof longest);
    longest[256] = 0;
    client_open(&client, tensord.url, NULL);
    td_tensor *x = client_ramp(client.device, 1, 0);
    static const char *const bad[] = {"",     "a\nb",     "\x7f",         "\xc2\x80",
                                      "\xff", "\xc0\xaf", "\xed\xa0\x80", "__metadata__"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_error(td_publish(x, bad[i]), TD_E_INVALID_ARGUMENT, "");
    expect_error(td_publish(x, longest), TD_E_INVALID_ARGUMENT, "255");
    expect_error(td_publish(x, NULL), TD_E_INVALID_ARGUMENT, "NULL");
    longest[255] = 0;
    OK(td_publish(x, longest));
    client_close(&client);
}

Test(names, only_new_replaces_nothing_and_names_differ) {
    struct client client;
    client_open(&client, tensord.url, NULL);
    td_tensor *x = client_ramp(client.device, 2, 0), *y = td_negative(x), *both[2] = {y, y};
    OK(td_publish(x, "a"));
    expect_error(td_publish_all(2, both, (const char *const[]){"b", "a"}, true), TD_E_DUPLICATE_ID, "\"a\"");
    expect_unknown(client.device, "b");
    expect_error(td_publish_all(2, both, (const char *const[]){"b", "b"}, false), TD_E_INVALID_ARGUMENT, "twice");
    OK(td_publish_all(2, both, (const char *const[]){"b", "c"}, true));
    client_expect(td_open(client.device, "c"), (float[]){0, -1}, 2);
    client_expect(td_open(client.device, "a"), (float[]){0, 1}, 2);
    client_close(&client);
}

/* ---- memory ---- */

/* An operation that releases its input may compute in its place, unless a name holds that. */
ON_BOTH(consumed_input_is_not_changed) {
    struct client client;
    client_open(&client, tensord.url, device);
    td_tensor *x = client_ramp(client.device, 4, 1);
    OK(td_publish(x, "x"));
    td_tensor *y = td_negative(x);
    td_release(x); /* consumed by the negative */
    td_tensor *z = td_open(client.device, "x"), *square = td_multiply(z, z);
    td_release(z);
    client_expect(y, (float[]){-1, -2, -3, -4}, 4);
    client_expect(square, (float[]){1, 4, 9, 16}, 4);
    client_expect(td_open(client.device, "x"), (float[]){1, 2, 3, 4}, 4);
    client_close(&client);
}

ON_BOTH(view_is_named_as_it_looks) {
    struct client client;
    client_open(&client, tensord.url, device);
    td_tensor *x = td_reshape(client_ramp(client.device, 6, 0), TD_SHAPE(2, 3));
    OK(td_publish(td_transpose(x), "transposed"));
    OK(td_publish(td_slice(x, 1, 1, 3, 1), "columns"));
    OK(td_publish(td_broadcast_to(td_slice(x, 0, 1, 2, 1), TD_SHAPE(2, 3)), "broadcast"));
    client_expect(td_open(client.device, "transposed"), (float[]){0, 3, 1, 4, 2, 5}, 6);
    client_expect(td_open(client.device, "columns"), (float[]){1, 2, 4, 5}, 4);
    client_expect(td_open(client.device, "broadcast"), (float[]){3, 4, 5, 3, 4, 5}, 6);
    client_close(&client);
}

struct figures {
    const char *device;
    uint64_t names, names_bytes, live;
};

static bool figures_are(const Tensord__Status *status, const void *argument) {
    const struct figures *want = argument;
    const Tensord__DeviceStatus *device = status_device(status, want->device);
    return device->names == want->names && device->names_bytes == want->names_bytes &&
           device->memory_live == want->live;
}

static void expect_figures(const char *device, uint64_t names, uint64_t names_bytes, uint64_t live) {
    struct figures want = {device, names, names_bytes, live};
    if (status_becomes(tensord.url, figures_are, &want, SETTLE_MS))
        return;
    Tensord__Status *status = status_get(tensord.url);
    const Tensord__DeviceStatus *got = status_device(status, device);
    cr_assert_fail("%lu names, %lu bytes, %lu live; not %lu, %lu, %lu", got->names, got->names_bytes, got->memory_live,
                   names, names_bytes, live);
}

ON_BOTH(bytes_are_charged_and_given_back_exactly) {
    enum { MIB = 1 << 20 };
    struct client client;
    client_open(&client, tensord.url, device);
    td_tensor *x = td_full(client.device, TD_U8, TD_SHAPE(4 * MIB), 1);
    OK(td_publish(x, "large"));
    expect_figures(device, 1, 4 * MIB, 4 * MIB);
    OK(td_publish(x, "again")); /* what names share is there once */
    expect_figures(device, 2, 4 * MIB, 4 * MIB);
    td_tensor *part = td_slice(x, 0, 0, MIB, 1);
    OK(td_publish(part, "part")); /* and a part keeps no more than itself */
    td_release(part);
    expect_figures(device, 3, 5 * MIB, 5 * MIB);
    td_tensor *opened = td_open(client.device, "large");
    OK(td_unpublish(client.device, "large"));
    OK(td_unpublish(client.device, "again"));
    td_release(x);
    OK(td_sync(client.device));
    expect_figures(device, 1, 5 * MIB, 5 * MIB); /* `opened` still uses it, and it is still paid for */
    td_release(opened);
    OK(td_sync(client.device));
    expect_figures(device, 1, MIB, MIB);
    client_close(&client);
    expect_figures(device, 1, MIB, MIB);
    client_open(&client, tensord.url, device);
    OK(td_unpublish(client.device, "part"));
    expect_figures(device, 0, 0, 0);
    client_close(&client);
}

ON_BOTH(limits_of_bytes_and_of_names) {
    struct client client;
    start_with((const char *const[]){"--named-bytes", "1M", "--named-tensors", "3", NULL});
    client_open(&client, tensord.url, device);
    td_tensor *half = td_full(client.device, TD_U8, TD_SHAPE(512 << 10), 1);
    td_tensor *most = td_full(client.device, TD_U8, TD_SHAPE((512 << 10) + 64), 1);
    OK(td_publish(half, "a"));
    expect_error(td_publish(most, "b"), TD_E_LIMIT, "1.00 MiB in named tensors");
    cr_assert(strstr(td_last_error()->message, "512 KiB asked, 512 KiB named"), "%s", td_last_error()->message);
    expect_unknown(client.device, "b");
    td_release(half);
    OK(td_publish(most, "a")); /* what it replaces makes room */
    OK(td_publish(most, "b"));
    OK(td_publish(most, "c"));
    expect_error(td_publish(most, "d"), TD_E_LIMIT, "the limit of 3 named tensors is reached");
    OK(td_unpublish(client.device, "b"));
    OK(td_publish(most, "d"));
    expect_figures(device, 3, (512 << 10) + 64, (512 << 10) + 64);
    client_close(&client);
}

/* Also when nobody of the principal's is connected any more. */
ON_BOTH(names_are_among_the_bytes_of_their_principal) {
    struct client client;
    start_with((const char *const[]){"--principal-bytes", "1M", NULL});
    client_open(&client, tensord.url, device);
    OK(td_publish(td_full(client.device, TD_U8, TD_SHAPE(600 << 10), 1), "x"));
    client_close(&client);
    cr_assert(status_settles(tensord.url, &(struct status_baseline){device, UINT64_MAX, 0}, SETTLE_MS));
    client_open(&client, tensord.url, device);
    td_tensor *more = td_full(client.device, TD_U8, TD_SHAPE(600 << 10), 1);
    expect_error(td_wait(more), TD_E_LIMIT, "1.00 MiB on this device, is reached: 600 KiB asked, 600 KiB live");
    td_release(more);
    OK(td_wait(td_open(client.device, "x")));
    OK(td_unpublish(client.device, "x"));
    client_close(&client);
    client_open(&client, tensord.url, device);
    OK(td_wait(td_full(client.device, TD_U8, TD_SHAPE(600 << 10), 1)));
    client_close(&client);
}

static void add_publish(struct wire_buffer *buffer, uint64_t sequence, uint64_t id) {
    Tensord__Publish publish = TENSORD__PUBLISH__INIT;
    publish.n_ids = publish.n_names = 1;
    publish.ids = &id;
    publish.names = (char *[]){"x"};
    wire_buffer_frame(buffer, FRAME_PUBLISH, sequence, &publish, NULL, 0);
}

/* Both are handled before the answer to the first has left: that holds nothing any more of what the second replaces. */
Test(names, answer_that_has_not_left_holds_no_value) {
    enum { ELEMENTS_600K = 150 << 10 };
    struct wire wire;
    struct wire_buffer buffer = {0};
    start_with((const char *const[]){"--named-bytes", "1M", NULL});
    wire_open(&wire, tensord.url, DAEMON_TARGET_CPU0);
    cr_assert(wire_full(&wire, 1, 1, ELEMENTS_600K, 1) && wire_full(&wire, 2, 2, ELEMENTS_600K, 2));
    Tensord__Sync sync = TENSORD__SYNC__INIT;
    Tensord__Done *done = wire_request(&wire, FRAME_SYNC, &sync) ? wire_done(&wire) : NULL;
    cr_assert(done && !done->error);
    tensord__done__free_unpacked(done, NULL);
    uint64_t frees[2] = {1, 2};
    for (uint64_t i = 0; i < 2; i++) {
        add_publish(&buffer, 100 + i, i + 1);
        wire_buffer_op(&buffer,
                       &(struct wire_op){.opcode = OP_FREE, .sequence = 3 + i, .n_inputs = 1, .inputs = &frees[i]});
    }
    cr_assert(wire_write(&wire, buffer.bytes, buffer.n));
    for (int i = 0; i < 2; i++) {
        done = wire_done(&wire);
        cr_assert(done && !done->error, "%s", done && done->error ? done->error->message : "no answer");
        tensord__done__free_unpacked(done, NULL);
    }
    wire_buffer_finish(&buffer);
    wire_close(&wire);
}

/* ---- others ---- */

enum { CHILD_OK, CHILD_FAILED, CHILD_SAW, CHILD_REPLACED };

/* As another user: what it sees of the name, and of its own with the same name. */
static int other_user(void *url) {
    td_connection *connection;
    td_device *device;
    size_t count = 99;
    if (setgroups(0, NULL) || setgid(65534) || setuid(65534) || td_connect(url, NULL, &connection) ||
        td_device_open(connection, "cpu:0", &device))
        return CHILD_FAILED;
    if (td_open(device, "secret") || td_last_error()->code != TD_E_UNKNOWN_ID || td_names(device, NULL, 0, &count) ||
        count || td_unpublish(device, "secret") != TD_E_UNKNOWN_ID)
        return CHILD_SAW;
    if (td_publish(td_full(device, TD_F32, TD_SCALAR, 9), "secret"))
        return CHILD_FAILED;
    td_close(connection);
    return CHILD_OK;
}

Test(names, other_principals_neither_see_nor_touch_them) {
    struct client client;
    if (geteuid() != 0)
        cr_skip_test("only root can be another user");
    chmod(tensord.directory, 0711);
    client_open(&client, tensord.url, "cpu:0");
    OK(td_publish(client_ramp(client.device, 2, 5), "secret"));
    client_close(&client); /* nothing of the library's runs while the other one is forked */
    cr_assert_eq(client_join(client_fork(other_user, tensord.url), 30000), CHILD_OK);
    client_open(&client, tensord.url, "cpu:0");
    client_expect(td_open(client.device, "secret"), (float[]){5, 6}, 2);
    expect_figures("cpu:0", 2, 128, 128);
    struct command command;
    command_run(&command,
                (const char *const[]){daemon_program("TENSORCTL_EXE"), "--url", tensord.url, "status", "--json", NULL},
                NULL, 30000);
    json_expect(command.out, command.out_bytes,
                "sorted((o['principal'], o['count'], o['bytes']) for o in d['devices'][0]['names']['owners']) == "
                "[('uid:0', 1, 64), ('uid:65534', 1, 64)]");
    command_finish(&command);
    client_close(&client);
}

/* ---- replacing under readers ---- */

enum { READERS = 3, ROUNDS = 60, ELEMENTS = 300000 };

static struct {
    const char *device;
    _Atomic bool over;
    _Atomic int wrong, reads;
} race;

/* All elements of a value are the same, and values only grow. */
static void *reader(void *unused) {
    struct client client;
    float *got = malloc(ELEMENTS * sizeof *got), last = 0;
    (void)unused;
    if (td_connect(tensord.url, NULL, &client.connection) ||
        td_device_open(client.connection, race.device, &client.device)) {
        atomic_store(&race.wrong, 1);
        return NULL;
    }
    while (!atomic_load(&race.over)) {
        td_tensor *x = td_open(client.device, "value");
        if (!x || td_fetch(x, got, ELEMENTS * sizeof *got) || got[0] < last)
            atomic_store(&race.wrong, 1);
        for (size_t i = 1; i < ELEMENTS; i++)
            if (got[i] != got[0])
                atomic_store(&race.wrong, 1);
        last = got[0];
        td_release(x);
        atomic_fetch_add(&race.reads, 1);
    }
    td_close(client.connection);
    free(got);
    return NULL;
}

ON_BOTH(replacing_under_readers_shows_the_old_or_the_new_value) {
    pthread_t readers[READERS];
    struct client client;
    race.device = device;
    client_open(&client, tensord.url, device);
    OK(td_publish(td_full(client.device, TD_F32, TD_SHAPE(ELEMENTS), 1), "value"));
    for (int i = 0; i < READERS; i++)
        pthread_create(&readers[i], NULL, reader, NULL);
    int rounds = 2;
    do { /* until they have looked often enough */
        td_tensor *one = td_full(client.device, TD_F32, TD_SHAPE(ELEMENTS), rounds - 1);
        td_tensor *next = td_add(one, td_full(client.device, TD_F32, TD_SCALAR, 1));
        OK(td_publish(next, "value"));
        td_tensor *reused = td_multiply(next, td_full(client.device, TD_F32, TD_SCALAR, -1));
        td_release(next);
        td_release(one);
        td_release(reused);
        rounds++;
    } while ((rounds < ROUNDS || atomic_load(&race.reads) < ROUNDS) && !atomic_load(&race.wrong));
    atomic_store(&race.over, true);
    for (int i = 0; i < READERS; i++)
        pthread_join(readers[i], NULL);
    cr_assert_eq(atomic_load(&race.wrong), 0);
    client_close(&client);
    expect_figures(device, 1, (ELEMENTS * 4 + 63) / 64 * 64, (ELEMENTS * 4 + 63) / 64 * 64);
}

/* ---- lists ---- */

Test(names, list_of_many_names_comes_whole_and_in_order) {
    enum { MANY = 3000, SOME = 10 };
    struct client client;
    char(*texts)[TD_TENSOR_NAME_MAX + 1] = calloc(MANY, sizeof *texts);
    const char **names = calloc(MANY, sizeof *names);
    td_tensor **tensors = calloc(MANY, sizeof *tensors);
    td_name_info *infos = calloc(MANY, sizeof *infos);
    size_t count = 0;
    client_open(&client, tensord.url, "late:0");
    OK(td_names(client.device, NULL, 0, &count));
    cr_assert_eq(count, 0);
    td_tensor *x = td_full(client.device, TD_BF16, TD_SHAPE(2, 0, 4), 1);
    for (int i = 0; i < MANY; i++) {
        snprintf(texts[i], sizeof texts[i], "%0250d", (i * 7919) % MANY); /* more than one reply holds */
        names[i] = texts[i];
        tensors[i] = x;
    }
    OK(td_publish_all(MANY, tensors, names, true));
    OK(td_names(client.device, infos, MANY, &count));
    cr_assert_eq(count, MANY);
    for (int i = 0; i < MANY; i++) {
        cr_assert_eq(atoi(infos[i].name), i);
        cr_assert(infos[i].dtype == TD_BF16 && infos[i].rank == 3 && infos[i].shape[2] == 4 && infos[i].bytes == 0 &&
                  infos[i].age_s >= 0);
    }
    memset(infos, 0, MANY * sizeof *infos);
    OK(td_names(client.device, infos, SOME, &count));
    cr_assert(count == MANY && infos[SOME - 1].name[0] && !infos[SOME].name[0]);
    client_close(&client);
    free(texts);
    free(names);
    free(tensors);
    free(infos);
}

/* A field that a client forgot is not a wish to lose everything. */
static void expect_refused(struct wire *wire, unsigned type, const void *message) {
    cr_assert(wire_request(wire, type, message));
    Tensord__Done *done = wire_done(wire);
    cr_assert(done && done->error && done->error->code == STATUS_INVALID_ARGUMENT);
    tensord__done__free_unpacked(done, NULL);
}

Test(names, empty_name_does_not_mean_all_of_them) {
    struct client client;
    struct wire wire;
    Tensord__RemoveName remove = TENSORD__REMOVE_NAME__INIT;
    Tensord__MoveName move = TENSORD__MOVE_NAME__INIT;
    client_open(&client, tensord.url, "cpu:0");
    OK(td_publish(client_ramp(client.device, 3, 1), "x"));
    wire_open(&wire, tensord.url, DAEMON_TARGET_CPU0);
    move.new_owner = (char *)"uid:65534";
    expect_refused(&wire, FRAME_REMOVE_NAME, &remove);
    expect_refused(&wire, FRAME_MOVE_NAME, &move);
    remove.name = move.name = (char *)"x";
    remove.all = move.all = true;
    expect_refused(&wire, FRAME_REMOVE_NAME, &remove);
    expect_refused(&wire, FRAME_MOVE_NAME, &move);
    client_expect(td_open(client.device, "x"), (float[]){1, 2, 3}, 3);
    OK(td_names_remove(client.device, NULL, NULL));
    cr_assert_null(td_open(client.device, "x"));
    wire_close(&wire);
    client_close(&client);
}

Test(names, worker_that_dies_takes_them_along) {
    struct client client;
    client_open(&client, tensord.url, "cpu:0");
    td_tensor *x = client_ramp(client.device, 1, 0);
    OK(td_publish(x, "x"));
    kill(status_worker_pid(tensord.url, "cpu:0"), SIGKILL);
    cr_assert_eq(td_publish(x, "x"), TD_E_DEVICE_LOST);
    status_until(tensord.url, status_device_is, &(struct status_is){"cpu:0", "ready", 2}, SETTLE_MS);
    client_close(&client);
    client_open(&client, tensord.url, "cpu:0");
    expect_unknown(client.device, "x");
    client_close(&client);
}
