/* Named tensors in the client: what is sent and when, and what a daemon may answer. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/tensord.h"
#include "proto/wire/frame.h"
#include "tests/stand_ins/fake_daemon.h"

static struct fake_daemon fake;
static td_connection *connection;
static td_device *device;

static void start(void) {
    fake_daemon_start(&fake);
    cr_assert_eq(td_connect(fake.url, NULL, &connection), 0);
    cr_assert_eq(td_device_open(connection, "cpu:0", &device), 0);
}

static void stop(void) {
    td_close(connection);
    fake_daemon_stop(&fake);
}

TestSuite(client_names, .init = start, .fini = stop, .timeout = 60);

Test(client_names, publish_comes_behind_all_that_was_enqueued) {
    size_t bytes = 3 << 20;
    uint8_t *data = calloc(1, bytes);
    td_tensor *x = td_upload_borrow(device, TD_U8, TD_SHAPE((int64_t)bytes), data, NULL, NULL);
    cr_assert_eq(td_publish(x, "x"), 0, "%s", td_last_error()->message);
    cr_assert_eq(td_publish(td_exp(td_full(device, TD_F32, TD_SCALAR, 1)), "y"), 0);
    char *log = fake_daemon_log(&fake), *published = strstr(log, "PUBLISH");
    char *last = strstr(log, "chunk 1 at 2097152");
    cr_assert(published && last && last < published, "%s", log);
    char *computed = strstr(log, "exp(");
    cr_assert(computed && computed > published && strstr(computed, "PUBLISH"), "%s", log);
    free(log);
    free(data);
}

Test(client_names, opened_name_is_a_handle_like_others) {
    td_scope_begin("scope");
    td_tensor *before = td_full(device, TD_F32, TD_SCALAR, 1), *x = td_open(device, "x"), *after = td_exp(x);
    cr_assert(x && before && after);
    cr_assert(td_tensor_dtype(x) == TD_F32 && td_tensor_rank(x) == 1 && td_tensor_shape(x)[0] == 2);
    cr_assert_eq(td_test(x), 1, "its value is there");
    cr_assert_eq(td_tensor_rank(after), 1);
    td_scope_end(); /* releases them */
    cr_assert_eq(td_sync(device), 0);
    char *log = fake_daemon_log(&fake);
    cr_assert(strstr(log, "full()=1") && strstr(log, "OPEN_NAME") && strstr(log, "exp(2)=3"), "%s", log);
    free(log);
}

Test(client_names, mistakes_are_found_before_anything_is_sent) {
    td_device *other;
    td_tensor *x = td_full(device, TD_F32, TD_SCALAR, 1), *tensors[2] = {x, NULL};
    const char *names[2] = {"a", "b"};
    size_t count;
    cr_assert_eq(td_device_open(connection, "cpu:1", &other), 0);
    cr_assert_eq(td_publish(x, NULL), TD_E_INVALID_ARGUMENT);
    cr_assert_eq(td_publish(x, ""), TD_E_INVALID_ARGUMENT);
    cr_assert_eq(td_publish_all(0, tensors, names, false), TD_E_INVALID_ARGUMENT);
    cr_assert_neq(td_publish_all(2, tensors, names, false), 0);
    tensors[1] = td_full(other, TD_F32, TD_SCALAR, 1);
    cr_assert_eq(td_publish_all(2, tensors, names, false), TD_E_DEVICE_MISMATCH);
    cr_assert_null(td_open(device, NULL));
    cr_assert_null(td_open(NULL, "x"));
    cr_assert_null(td_open(device, "\xff"));
    cr_assert_eq(td_unpublish(device, NULL), TD_E_INVALID_ARGUMENT);
    cr_assert_eq(td_unpublish(NULL, "x"), TD_E_INVALID_ARGUMENT);
    cr_assert_eq(td_names(NULL, NULL, 0, &count), TD_E_INVALID_ARGUMENT);
    cr_assert_eq(td_names(device, NULL, 0, NULL), TD_E_INVALID_ARGUMENT);
    cr_assert_eq(td_names(device, NULL, 1, &count), TD_E_INVALID_ARGUMENT);
    cr_assert_eq(td_sync(device), 0);
    char *log = fake_daemon_log(&fake);
    cr_assert(!strstr(log, "PUBLISH") && !strstr(log, "NAME"), "%s", log);
    free(log);
}

Test(client_names, more_names_than_a_message_holds_are_refused) {
    enum { MANY = 9000 };
    char(*texts)[200] = malloc(MANY * sizeof *texts);
    const char **names = malloc(MANY * sizeof *names);
    td_tensor **tensors = malloc(MANY * sizeof(td_tensor *)), *x = td_full(device, TD_F32, TD_SCALAR, 1);
    for (int i = 0; i < MANY; i++) {
        snprintf(texts[i], sizeof texts[i], "%0190d", i);
        names[i] = texts[i];
        tensors[i] = x;
    }
    cr_assert_eq(td_publish_all(MANY, tensors, names, false), TD_E_LIMIT);
    cr_assert_eq(td_publish_all(4000, tensors, names, false), 0, "%s", td_last_error()->message);
    free(texts);
    free(names);
    free(tensors);
}

/* ---- answers ---- */

#define OPENED(...)                                                                                                    \
    { FRAME_NAME_OPENED, __VA_ARGS__ }
#define LIST(...)                                                                                                      \
    { FRAME_NAME_LIST, __VA_ARGS__ }

/* The next request about names is answered so; then the client asks for a Sync. */
static const struct row {
    const char *name;
    struct fake_frame frames[FAKE_FRAMES_MAX];
    int code, sync;
} opens[] = {
    {"a right answer", {OPENED(.dtype = TD_F32, .extent = 3)}, 0, 0},
    {"a right failure", {OPENED(.error = TD_E_UNKNOWN_ID)}, TD_E_UNKNOWN_ID, 0},
    {"no dtype", {OPENED(.extent = 3)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"a dtype of the future", {OPENED(.dtype = 99, .extent = 3)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"a negative extent", {OPENED(.dtype = TD_F32, .extent = -1)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"too large", {OPENED(.dtype = TD_F32, .extent = INT64_MAX)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"another number", {OPENED(.dtype = TD_F32, .extent = 3, .sequence = 1)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"Done", {{FRAME_DONE}}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"a list", {LIST()}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"two answers", {OPENED(.dtype = TD_F32), OPENED(.dtype = TD_F32)}, 0, TD_E_PROTOCOL},
    {"a payload", {OPENED(.dtype = TD_F32, .payload = 8)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"garbage", {OPENED(.garbage = true)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
};

static const struct row lists[] = {
    {"a right answer", {LIST(.dtype = TD_F32, .extent = 3, .names = {"a", "b"})}, 0, 0},
    {"none", {LIST()}, 0, 0},
    {"a right failure", {LIST(.error = TD_E_NO_HOST_MEMORY)}, TD_E_NO_HOST_MEMORY, 0},
    {"more of none", {LIST(.more = true)}, 0, 0},
    {"out of order", {LIST(.dtype = TD_F32, .names = {"b", "a"})}, TD_E_PROTOCOL, 0},
    {"one twice", {LIST(.dtype = TD_F32, .names = {"a", "a"})}, TD_E_PROTOCOL, 0},
    {"no dtype", {LIST(.names = {"a"})}, TD_E_PROTOCOL, 0},
    {"a negative extent", {LIST(.dtype = TD_F32, .extent = -1, .names = {"a"})}, TD_E_PROTOCOL, 0},
    {"a payload of zeros", {LIST(.payload = 64)}, TD_E_PROTOCOL, 0},
    {"a payload of 1 TiB", {LIST(.more_payload = 1ull << 40)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"two answers", {LIST(.payload = 1), LIST(.payload = 1)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"Done", {{FRAME_DONE}}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"another number", {LIST(.sequence = 1)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
};

static void one_answer(const struct row *row, bool list) {
    td_name_info infos[4];
    td_device *fresh;
    size_t count = 0;
    cr_assert_eq(td_device_open(connection, "cpu:1", &fresh), 0);
    fake.script = row->frames;
    int code = list ? td_names(fresh, infos, 4, &count) : td_open(fresh, "x") ? 0 : td_last_error()->code;
    cr_expect_eq(code, row->code, "%s: %d (%s), not %d", row->name, code, td_last_error()->message, row->code);
    int sync = td_sync(fresh);
    cr_expect_eq(sync, row->sync, "%s: the sync gave %d (%s)", row->name, sync, td_last_error()->message);
    td_device_close(fresh);
}

Test(client_names, wrong_answers_are_told_and_do_no_harm) {
    for (size_t i = 0; i < sizeof opens / sizeof *opens; i++)
        one_answer(&opens[i], false);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        one_answer(&lists[i], true);
}
