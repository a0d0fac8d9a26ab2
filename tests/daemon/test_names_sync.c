/* state-sync: when names are on the disk, that they are then whole, and that what is not is told. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/status.h"

enum { RUN_MS = 60000, SETTLE_MS = 30000 };

static struct daemon tensord;
static struct client client;
static char state[64];

static void run(const char *sync, const char *fault) {
    char preload[300], variable[64];
    const char *const environment[] = {preload, variable, "ASAN_OPTIONS=verify_asan_link_order=0", NULL};
    const char *const flags[] = {"--state-dir", state, "--socket-mode", "0666", "--state-sync", sync, NULL};
    if (fault) {
        snprintf(preload, sizeof preload, "LD_PRELOAD=%s", daemon_program("DISK_FAULTS_LIBRARY"));
        snprintf(variable, sizeof variable, "TENSORD_DISK_FAULT=%s", fault);
    }
    daemon_start(&tensord, &(struct daemon_options){.flags = flags, .environment = fault ? environment : NULL});
}

static void start(void) {
    daemon_directory_make(state);
}

static void stop(void) {
    client_close(&client);
    daemon_kill(&tensord);
    daemon_directory_remove(state);
}

TestSuite(names_sync, .init = start, .fini = stop, .timeout = 120);

#define OK(call) cr_assert(!(call), "%s: %s", #call, td_last_error()->message)

static void reconnect(void) {
    client_close(&client);
    client_open(&client, tensord.url, "cpu:0");
}

static void kill_worker(void) {
    uint64_t epoch = status_epoch(tensord.url, "cpu:0");
    kill(status_worker_pid(tensord.url, "cpu:0"), SIGKILL);
    status_until(tensord.url, status_device_is, &(struct status_is){"cpu:0", "ready", epoch + 1}, SETTLE_MS);
    reconnect();
}

/* With all its processes, at once. */
static void kill_daemon(void) {
    client_close(&client);
    daemon_kill(&tensord);
}

static int publish(const char *name, double value) {
    td_tensor *tensor = td_full(client.device, TD_F32, TD_SCALAR, value);
    int code = td_publish(tensor, name);
    td_release(tensor);
    return code;
}

static float value_of(const char *name) {
    float value = -1;
    td_tensor *tensor = td_open(client.device, name);
    if (tensor && td_fetch(tensor, &value, sizeof value))
        value = -2;
    td_release(tensor);
    return value;
}

static bool all_are_saved(const Tensord__Status *status, const void *count) {
    const Tensord__DeviceStatus *device = status_device(status, "cpu:0");
    return device->names == *(const uint64_t *)count && device->names_unsaved == 0;
}

static bool some_are_unsaved(const Tensord__Status *status, const void *count) {
    const Tensord__DeviceStatus *device = status_device(status, "cpu:0");
    return device->names_unsaved == *(const uint64_t *)count && device->names_unsaved_s > 0 &&
           device->n_name_owners == 1 && device->name_owners[0]->unsaved == device->names_unsaved;
}

/* ---- the three rules ---- */

Test(names_sync, done_means_that_the_disk_has_it) {
    run("publish", NULL);
    reconnect();
    OK(publish("w", 1));
    OK(publish("w", 2));
    OK(publish("gone", 3));
    OK(td_unpublish(client.device, "gone"));
    kill_worker();
    cr_assert_eq(value_of("w"), 2);
    cr_assert_eq(value_of("gone"), -1);
    OK(publish("w", 4));
    kill_daemon();
    run("publish", NULL);
    reconnect();
    cr_assert_eq(value_of("w"), 4);
}

Test(names_sync, names_are_saved_some_time_after_a_change) {
    const uint64_t one = 1, two = 2;
    run("100ms", NULL);
    reconnect();
    OK(publish("w", 1));
    OK(publish("v", 7));
    status_until(tensord.url, all_are_saved, &two, SETTLE_MS);
    kill_worker();
    cr_assert(value_of("w") == 1 && value_of("v") == 7);
    OK(publish("w", 2));
    OK(td_unpublish(client.device, "v"));
    status_until(tensord.url, all_are_saved, &one, SETTLE_MS);
    kill_daemon();
    run("100ms", NULL);
    reconnect();
    cr_assert(value_of("w") == 2 && value_of("v") == -1);
}

Test(names_sync, status_tells_what_is_not_saved) {
    const uint64_t two = 2, three = 3;
    run("drain", NULL);
    reconnect();
    OK(publish("a", 1));
    OK(publish("b", 1));
    status_until(tensord.url, some_are_unsaved, &two, SETTLE_MS);
    OK(publish("b", 2)); /* still one name */
    OK(publish("c", 2));
    OK(td_unpublish(client.device, "c"));
    status_until(tensord.url, some_are_unsaved, &three, SETTLE_MS);
    client_close(&client);
    daemon_stop(&tensord);
}

static int end_of_daemon(void) {
    client_close(&client);
    kill(tensord.pid, SIGTERM);
    return WEXITSTATUS(daemon_wait(&tensord, RUN_MS));
}

Test(names_sync, what_was_restored_and_not_changed_is_never_told_as_lost) {
    run("publish", NULL);
    reconnect();
    OK(publish("w", 1));
    cr_assert_eq(end_of_daemon(), 0);
    run("publish", NULL);
    reconnect();
    kill_worker();
    cr_assert_eq(value_of("w"), 1);
    char *log = daemon_log(&tensord);
    cr_assert_null(strstr(log, "names_lost"), "%s", log);
    free(log);
    cr_assert_eq(end_of_daemon(), 0, "it says that changes were lost");
}

Test(names_sync, loss_is_not_forgotten_when_a_later_worker_ends_in_order) {
    run("drain", NULL);
    reconnect();
    OK(publish("w", 1));
    kill_worker();
    cr_assert(daemon_log_has(&tensord, "event=names_lost", SETTLE_MS));
    cr_assert_eq(end_of_daemon(), 1, "it says that nothing was lost");
}

/* The client refuses a list that is out of order. */
Test(names_sync, names_published_together_in_any_order_are_listed_in_theirs) {
    enum { BEFORE = 40, TOGETHER = 97 };
    static char texts[TOGETHER][8];
    static td_name_info infos[BEFORE + TOGETHER];
    const char *names[TOGETHER];
    td_tensor *values[TOGETHER];
    size_t count;
    run("drain", NULL);
    reconnect();
    for (int i = 0; i < BEFORE; i++) {
        snprintf(texts[0], sizeof texts[0], "n%03d", 3 * i); /* every second one is replaced */
        OK(publish(texts[0], -i - 10));
    }
    for (int i = 0; i < TOGETHER; i++) {
        names[i] = texts[i];
        snprintf(texts[i], sizeof texts[i], "n%03d", i * 61 % TOGETHER * 2);
        values[i] = td_full(client.device, TD_F32, TD_SCALAR, i);
    }
    OK(td_publish_all(TOGETHER, values, names, false));
    OK(td_names(client.device, infos, BEFORE + TOGETHER, &count));
    cr_assert_eq(count, BEFORE / 2 + TOGETHER);
    for (int i = 0; i < TOGETHER; i++)
        cr_assert_eq(value_of(texts[i]), (float)i);
    for (int i = 1; i < BEFORE; i += 2) {
        snprintf(texts[0], sizeof texts[0], "n%03d", 3 * i);
        cr_assert_eq(value_of(texts[0]), (float)(-i - 10));
    }
    OK(td_names_remove(client.device, NULL, NULL));
    OK(td_names(client.device, infos, BEFORE + TOGETHER, &count));
    cr_assert_eq(count, 0);
}

/* ---- values that share memory ---- */

/* Bytes of all files in the state folder's folders. */
static unsigned long long bytes_of(const char *folder) {
    unsigned long long sum = 0;
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        char path[600];
        struct stat stat_now;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (*entry->d_name == '.' || stat(path, &stat_now))
            continue;
        sum += S_ISDIR(stat_now.st_mode) ? bytes_of(path) : (unsigned long long)stat_now.st_size;
    }
    if (entries)
        closedir(entries);
    return sum;
}

Test(names_sync, memory_of_several_names_is_written_once_and_shared_again) {
    enum { ELEMENTS = 1 << 20, BYTES = 4 * ELEMENTS, NAMES = 40 };
    float got[3];
    run("publish", NULL);
    reconnect();
    td_tensor *x = td_arange(client.device, TD_F32, 0, ELEMENTS, 1);
    for (int i = 0; i < NAMES; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        OK(td_publish(x, name));
    }
    OK(td_publish(td_reshape(x, TD_SHAPE(1024, 1024)), "square"));
    OK(td_publish(td_slice(x, 0, 1000, ELEMENTS, 1), "rest"));
    OK(td_unpublish(client.device, "n0"));
    cr_assert_lt(bytes_of(state), 2ull * BYTES);
    kill_daemon();
    run("publish", NULL);
    Tensord__Status *status = status_get(tensord.url);
    cr_assert_eq(status_device(status, "cpu:0")->names, NAMES + 1);
    cr_assert_eq(status_device(status, "cpu:0")->names_bytes, BYTES, "they share their memory again");
    status_free(status);
    reconnect();
    td_tensor *rest = td_open(client.device, "rest"), *square = td_open(client.device, "square");
    cr_assert_eq(td_tensor_shape(rest)[0], ELEMENTS - 1000);
    cr_assert(td_tensor_rank(square) == 2 && td_tensor_shape(square)[1] == 1024);
    OK(td_fetch(td_slice(rest, 0, 0, 3, 1), got, sizeof got));
    cr_assert(got[0] == 1000 && got[1] == 1001 && got[2] == 1002);
    for (int i = 1; i < NAMES; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        OK(td_unpublish(client.device, name));
    }
    td_release(rest);
    td_release(square);
    OK(td_unpublish(client.device, "square"));
    OK(td_unpublish(client.device, "rest"));
    cr_assert_eq(bytes_of(state), 0);
}

static unsigned files_of_values(void) {
    char folder[200];
    unsigned n = 0;
    snprintf(folder, sizeof folder, "%s/cpu:0@uid%%3A%u", state, geteuid());
    DIR *entries = opendir(folder);
    cr_assert_not_null(entries);
    for (struct dirent *entry; (entry = readdir(entries));)
        n += strstr(entry->d_name, ".safetensors") != NULL;
    closedir(entries);
    return n;
}

Test(names_sync, many_changes_leave_few_files_and_a_large_value_is_not_written_again) {
    enum { CHANGES = 60, LARGE = 4 << 20 };
    char path[300];
    struct stat before, after;
    run("publish", NULL);
    reconnect();
    OK(td_publish(td_full(client.device, TD_U8, TD_SHAPE(LARGE), 1), "large"));
    snprintf(path, sizeof path, "%s/cpu:0@uid%%3A%u/1.safetensors", state, geteuid());
    cr_assert_eq(stat(path, &before), 0);
    for (int i = 0; i < CHANGES; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        OK(publish(name, i));
    }
    cr_assert(stat(path, &after) == 0 && after.st_ino == before.st_ino && after.st_mtime == before.st_mtime);
    cr_assert_lt(files_of_values(), 12);
    kill_daemon();
    run("publish", NULL);
    reconnect();
    for (int i = 0; i < CHANGES; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        cr_assert_eq(value_of(name), (float)i);
    }
}

/* ---- turns ---- */

static int other_user(void *bytes) {
    td_connection *connection;
    td_device *device;
    if (setgroups(0, NULL) || setgid(65534) || setuid(65534) || td_connect(tensord.url, NULL, &connection) ||
        td_device_open(connection, "cpu:0", &device))
        return 1;
    return td_publish(td_full(device, TD_U8, TD_SHAPE(*(const int64_t *)bytes), 1), "large") ? 2 : 0;
}

Test(names_sync, large_value_does_not_keep_a_small_one_of_another_from_the_disk) {
    char event[4096], folder[200];
    int64_t bytes = INT64_C(512) << 20;
    if (geteuid() != 0)
        cr_skip_test("only root can be another user");
    run("publish", NULL);
    chmod(tensord.directory, 0711);
    reconnect();
    OK(publish("first", 1)); /* what is made once is made */
    int watch = inotify_init1(IN_CLOEXEC);
    snprintf(folder, sizeof folder, "%s", state);
    inotify_add_watch(watch, folder, IN_CREATE);
    client_close(&client);
    pid_t other = client_fork(other_user, &bytes);
    reconnect();
    cr_assert(deadline_poll(watch, POLLIN, deadline_in(RUN_MS)) && read(watch, event, sizeof event) > 0);
    close(watch);
    OK(publish("small", 2)); /* on the disk now */
    snprintf(folder, sizeof folder, "%s/cpu:0@uid%%3A65534/names.json", state);
    cr_assert(access(folder, F_OK), "the small one was kept waiting for all of the large one");
    cr_assert_eq(client_join(other, RUN_MS), 0);
}

/* ---- what cannot be saved ---- */

Test(names_sync, end_of_state_timeout_tells_what_is_lost_and_is_no_success) {
    const char *const flags[] = {"--state-dir", state, "--state-sync", "drain", "--state-timeout", "1ms", NULL};
    daemon_start(&tensord, &(struct daemon_options){.flags = flags});
    reconnect();
    OK(td_publish(td_full(client.device, TD_U8, TD_SHAPE(256 << 20), 1), "large"));
    client_close(&client);
    kill(tensord.pid, SIGTERM);
    cr_assert_eq(WEXITSTATUS(daemon_wait(&tensord, RUN_MS)), 1);
    char *log = daemon_log(&tensord);
    const char *line = strstr(log, "event=names_not_saved");
    cr_assert(line && strstr(line, "principal=uid:") && strstr(line, "names=1") && strstr(line, "state-timeout"), "%s",
              log);
    cr_assert_null(strstr(log, "drain_timeout"), "the worker itself gave up");
    free(log);
}

/* ---- every step of a save ---- */

enum { STEPS_MAX = 40 };

/* After a save in which one step killed the worker, or failed: `w` and `v` are from the same step, and that is the last
 * that was told to be done, or the one after it. */
static void check_pair(float done, float tried) {
    float w = value_of("w"), v = value_of("v");
    cr_assert(w == v && (w == done || w == tried), "w is %g and v is %g; done was %g, tried %g", (double)w, (double)v,
              (double)done, (double)tried);
}

static int publish_pair(double value) {
    td_tensor *both[2] = {td_full(client.device, TD_F32, TD_SCALAR, value),
                          td_full(client.device, TD_F32, TD_SCALAR, value)};
    const char *const names[] = {"w", "v"};
    int code = td_publish_all(2, both, names, false);
    td_release(both[0]);
    td_release(both[1]);
    return code;
}

static void every_step(const char *how) {
    float done = -1, tried = -1;
    bool met = true;
    int step;
    for (step = 1; met && step < STEPS_MAX; step++) {
        char fault[32];
        snprintf(fault, sizeof fault, "%s:%d", how, step);
        run("publish", fault);
        reconnect();
        if (tried >= 0)
            check_pair(done, tried);
        tried = (float)step;
        if (step % 4 == 0)
            td_unpublish(client.device, "other"); /* a change without bytes; it may be what fails */
        met = publish_pair(step) != 0;
        if (!met)
            done = tried;
        kill_daemon();
    }
    cr_assert(step > 8 && step < STEPS_MAX, "%d steps were met", step);
    run("publish", NULL);
    reconnect();
    check_pair(done, tried);
    cr_assert_leq(files_of_values(), 3);
}

Test(names_sync, worker_killed_at_any_step_of_a_save_has_all_of_a_change_or_nothing) {
    every_step("kill");
}

Test(names_sync, step_of_a_save_that_fails_is_told_and_all_of_a_change_is_there_or_nothing) {
    every_step("fail");
}

Test(names_sync, failed_save_is_tried_again_and_told) {
    const uint64_t one = 1;
    run("publish", "fail:3");
    reconnect();
    cr_assert_eq(publish("w", 1), TD_E_INTERNAL);
    cr_assert(strstr(td_last_error()->message, "not on the daemon's disk"), "%s", td_last_error()->message);
    cr_assert(daemon_log_has(&tensord, "event=names_not_saved", SETTLE_MS));
    status_until(tensord.url, all_are_saved, &one, SETTLE_MS);
    kill_worker();
    cr_assert_eq(value_of("w"), 1);
}
