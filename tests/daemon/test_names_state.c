/* --state-dir: named tensors outlive the daemon, and nothing that was saved is lost to a save or a start that fails. */
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
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/daemon/client.h"
#include "tests/daemon/command.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/status.h"

enum { RUN_MS = 60000, SETTLE_MS = 30000 };

static struct daemon tensord;
static struct client client;
static char state[64];

static void run_with(const char *flag, const char *value) {
    const char *const flags[] = {"--state-dir", state, "--socket-mode", "0666", flag, value, NULL};
    daemon_start(&tensord, &(struct daemon_options){.devices = "cpu:0,late:0", .flags = flags});
}

static void run(void) {
    run_with(NULL, NULL);
}

static void start(void) {
    daemon_directory_make(state);
    run();
}

static void stop(void) {
    client_close(&client);
    daemon_kill(&tensord);
    daemon_directory_remove(state);
}

TestSuite(names_state, .init = start, .fini = stop, .timeout = 180);

#define OK(call) cr_assert(!(call), "%s: %s", #call, td_last_error()->message)

static void reconnect(const char *device) {
    client_close(&client);
    client_open(&client, tensord.url, device);
}

static void restart(void) {
    client_close(&client);
    daemon_stop(&tensord);
    run();
}

static void expect_unknown(const char *name) {
    cr_assert_null(td_open(client.device, name));
    cr_assert_eq(td_last_error()->code, TD_E_UNKNOWN_ID);
}

/* The folder of this user's names on cpu:0, or what lies there. */
static char *place_of(const char *more) {
    static char path[4][400];
    static unsigned next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/cpu:0@uid%%3A%u%s", state, geteuid(), more);
    return path[next];
}

/* The one file of values there. */
static char *values_of(const char *more) {
    char *folder = place_of(more), *found = NULL;
    DIR *entries = opendir(folder);
    cr_assert_not_null(entries, "%s", folder);
    for (struct dirent *entry; (entry = readdir(entries));) {
        char name[264];
        if (!strstr(entry->d_name, ".safetensors"))
            continue;
        cr_assert_null(found, "there are several files of values");
        snprintf(name, sizeof name, "%s/%s", more, entry->d_name);
        found = place_of(name);
    }
    closedir(entries);
    cr_assert_not_null(found);
    return found;
}

static bool exists(const char *path) {
    return access(path, F_OK) == 0;
}

/* What lies there, but for the daemon's lock. */
static unsigned files_in(const char *folder) {
    DIR *entries = opendir(folder);
    unsigned n = 0;
    for (struct dirent *entry; (entry = readdir(entries));)
        n += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") && strcmp(entry->d_name, ".lock");
    closedir(entries);
    return n;
}

static unsigned files(void) {
    return files_in(state);
}

static char *contents(const char *path, size_t *bytes) {
    struct stat stat_now;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    cr_assert(fd >= 0 && !fstat(fd, &stat_now), "%s", path);
    char *text = malloc((size_t)stat_now.st_size + 1);
    *bytes = (size_t)stat_now.st_size;
    cr_assert_eq(read(fd, text, *bytes), (ssize_t)*bytes);
    close(fd);
    return text;
}

/* ---- what outlives the daemon ---- */

static void lives_on(const char *device) {
    reconnect(device);
    td_tensor *x = client_ramp(client.device, 6, 1);
    OK(td_publish(td_transpose(td_reshape(x, TD_SHAPE(2, 3))), "weights/Ω"));
    OK(td_publish(td_full(client.device, TD_F32, TD_SCALAR, 7), "scalar"));
    OK(td_publish(td_full(client.device, TD_I8, TD_SHAPE(0, 4), 0), "empty"));
    OK(td_publish(td_upload(client.device, TD_BOOL, TD_SHAPE(3), (uint8_t[]){1, 0, 9}), "flags"));
    OK(td_publish(td_full_complex(client.device, TD_C128, TD_SHAPE(2), 1.5, -2), "complex"));
    restart();
    reconnect(device);
    td_tensor *opened = td_open(client.device, "weights/Ω");
    cr_assert_eq(td_tensor_shape(opened)[0], 3);
    client_expect(opened, (float[]){1, 4, 2, 5, 3, 6}, 6);
    client_expect(td_open(client.device, "scalar"), (float[]){7}, 1);
    client_expect(td_cast(td_open(client.device, "flags"), TD_F32), (float[]){1, 0, 1}, 3);
    cr_assert_eq(td_tensor_dtype(td_open(client.device, "empty")), TD_I8);
    cr_assert_eq(td_tensor_dtype(td_open(client.device, "complex")), TD_C128);
    client_expect(td_cast(td_imag(td_open(client.device, "complex")), TD_F32), (float[]){-2, -2}, 2);
    OK(td_unpublish(client.device, "scalar"));
    OK(td_publish(td_full(client.device, TD_F32, TD_SCALAR, 8), "flags"));
    restart();
    reconnect(device);
    expect_unknown("scalar");
    client_expect(td_open(client.device, "flags"), (float[]){8}, 1);
    client_expect(td_open(client.device, "weights/Ω"), (float[]){1, 4, 2, 5, 3, 6}, 6);
}

Test(names_state, restarted_daemon_has_them) {
    lives_on("cpu:0");
}

Test(names_state, restarted_daemon_has_them_on_a_device_that_runs_later) {
    lives_on("late:0");
}

Test(names_state, large_values_go_in_pieces_and_stay_exact) {
    enum { BYTES = 41 * (1 << 20) + 7 };
    uint8_t *data = malloc(BYTES), *got = malloc(BYTES);
    client_noise(data, BYTES, 3);
    daemon_stop(&tensord);
    run_with("--staging", "16M"); /* less than the value has */
    for (int i = 0; i < 2; i++) {
        reconnect(i ? "late:0" : "cpu:0");
        OK(td_publish(td_upload(client.device, TD_U8, TD_SHAPE(BYTES), data), "noise"));
    }
    client_close(&client);
    daemon_stop(&tensord);
    run_with("--staging", "16M");
    for (int i = 0; i < 2; i++) {
        reconnect(i ? "late:0" : "cpu:0");
        OK(td_fetch(td_open(client.device, "noise"), got, BYTES));
        cr_assert_eq(memcmp(data, got, BYTES), 0);
    }
    free(data);
    free(got);
}

Test(names_state, restored_bytes_are_charged_to_their_principal) {
    reconnect("cpu:0");
    OK(td_publish(td_full(client.device, TD_U8, TD_SHAPE(1 << 20), 1), "a"));
    restart();
    Tensord__Status *status = status_get(tensord.url);
    const Tensord__DeviceStatus *device = status_device(status, "cpu:0");
    cr_assert(device->names == 1 && device->names_bytes == 1 << 20 && device->memory_live == 1 << 20);
    cr_assert(device->n_name_owners == 1 && device->name_owners[0]->bytes == 1 << 20);
    status_free(status);
}

static int other_user(void *publish) {
    td_connection *connection;
    td_device *device;
    float value = 0;
    if (setgroups(0, NULL) || setgid(65534) || setuid(65534) || td_connect(tensord.url, NULL, &connection) ||
        td_device_open(connection, "cpu:0", &device))
        return 1;
    if (*(bool *)publish)
        return td_publish(td_full(device, TD_F32, TD_SCALAR, 9), "x") ? 2 : 0;
    return td_fetch(td_open(device, "x"), &value, sizeof value) || value != 9 ? 3 : 0;
}

Test(names_state, principals_have_folders_of_their_own) {
    bool publish = true;
    if (geteuid() != 0)
        cr_skip_test("only root can be another user");
    chmod(tensord.directory, 0711);
    cr_assert_eq(client_join(client_fork(other_user, &publish), RUN_MS), 0);
    reconnect("cpu:0");
    OK(td_publish(td_full(client.device, TD_F32, TD_SCALAR, 5), "x"));
    restart();
    chmod(tensord.directory, 0711);
    cr_assert_eq(files(), 2);
    publish = false;
    cr_assert_eq(client_join(client_fork(other_user, &publish), RUN_MS), 0);
    reconnect("cpu:0");
    client_expect(td_open(client.device, "x"), (float[]){5}, 1);
    OK(td_unpublish(client.device, "x"));
    restart();
    cr_assert_eq(files(), 1, "who has no names has no folder");
}

static bool names_are_unsaved(const Tensord__Status *status, const void *none) {
    (void)none;
    return status_device(status, "cpu:0")->names_unsaved > 0;
}

Test(names_state, killed_worker_comes_back_with_what_was_saved_last) {
    client_close(&client);
    daemon_stop(&tensord);
    run_with("--state-sync", "drain");
    reconnect("cpu:0");
    OK(td_publish(td_full(client.device, TD_F32, TD_SCALAR, 1), "old"));
    client_close(&client);
    daemon_stop(&tensord);
    run_with("--state-sync", "drain");
    reconnect("cpu:0");
    OK(td_publish(td_full(client.device, TD_F32, TD_SCALAR, 2), "new"));
    status_until(tensord.url, names_are_unsaved, NULL, SETTLE_MS);
    kill(status_worker_pid(tensord.url, "cpu:0"), SIGKILL);
    status_until(tensord.url, status_device_is, &(struct status_is){"cpu:0", "ready", 2}, SETTLE_MS);
    reconnect("cpu:0");
    client_expect(td_open(client.device, "old"), (float[]){1}, 1);
    expect_unknown("new");
    cr_assert(daemon_log_has(&tensord, "event=names_lost", SETTLE_MS), "what is lost is told");
}

/* ---- the directory ---- */

Test(names_state, nobody_else_can_look_into_it) {
    struct stat stat_now;
    char made[100];
    daemon_stop(&tensord);
    snprintf(made, sizeof made, "%s/made", state);
    strcpy(state + strlen(state), "/made");
    run();
    cr_assert(!stat(made, &stat_now) && (stat_now.st_mode & 07777) == 0700);
    reconnect("cpu:0");
    OK(td_publish(td_full(client.device, TD_F32, TD_SCALAR, 1), "x"));
    client_close(&client);
    daemon_stop(&tensord);
    cr_assert(!stat(place_of(""), &stat_now) && (stat_now.st_mode & 07777) == 0700);
    cr_assert(!stat(place_of("/names.json"), &stat_now) && (stat_now.st_mode & 07777) == 0600);
    cr_assert(!stat(values_of(""), &stat_now) && (stat_now.st_mode & 07777) == 0600);
    *strrchr(state, '/') = 0;
}

static void expect_no_start(const char *directory, const char *words) {
    struct command command;
    command_run(&command,
                (const char *const[]){daemon_program("TENSORD_EXE"), "--state-dir", directory, "--devices", "cpu:0",
                                      "--listen", "unix:/tmp/tensord-never", NULL},
                NULL, RUN_MS);
    cr_assert_eq(command.code, 2, "%s", command.err);
    cr_assert(strstr(command.err, words), "%s", command.err);
    command_finish(&command);
}

Test(names_state, impossible_directories_are_refused_at_the_start) {
    expect_no_start(state, "another tensord has it");
    daemon_stop(&tensord);
    chmod(state, 0755);
    expect_no_start(state, "mode 0755");
    chmod(state, 0700);
    expect_no_start("/proc/none/such", "No such file");
    expect_no_start("/dev/null", "no directory");
    if (geteuid() == 0 && !chown(state, 65534, 65534))
        expect_no_start(state, "belongs to uid 65534");
}

/* ---- files that cannot be restored ---- */

static void damage(const char *path, const char *how) {
    struct stat stat_now;
    cr_assert_eq(stat(path, &stat_now), 0);
    if (!strcmp(how, "cut"))
        cr_assert_eq(truncate(path, stat_now.st_size - 2), 0);
    else if (!strcmp(how, "longer"))
        cr_assert_eq(truncate(path, stat_now.st_size + 1), 0);
    else
        cr_assert_eq(truncate(path, 0), 0);
}

static bool fault_is_told(const Tensord__Status *status, const void *words) {
    return strstr(status_device(status, "cpu:0")->names_fault, words);
}

static void damaged_file_is_refused(bool index, const char *how, const char *words) {
    size_t before_bytes, after_bytes;
    reconnect("cpu:0");
    OK(td_publish(client_ramp(client.device, 3, 1), "x"));
    client_close(&client);
    daemon_stop(&tensord);
    damage(index ? place_of("/names.json") : values_of(""), how);
    char *before = contents(index ? place_of("/names.json") : values_of(""), &before_bytes);
    run();
    cr_assert(daemon_log_has(&tensord, "event=names_refused", RUN_MS) && daemon_log_has(&tensord, words, RUN_MS));
    status_until(tensord.url, fault_is_told, words, SETTLE_MS);
    reconnect("cpu:0");
    expect_unknown("x");
    OK(td_publish(td_full(client.device, TD_F32, TD_SCALAR, 4), "y"));
    restart();
    char *after = contents(index ? place_of(".refused/names.json") : values_of(".refused"), &after_bytes);
    cr_assert(before_bytes == after_bytes && !memcmp(before, after, after_bytes), "the refused file was touched");
    reconnect("cpu:0");
    client_expect(td_open(client.device, "y"), (float[]){4}, 1);
    client_close(&client);
    daemon_stop(&tensord);
    damage(index ? place_of("/names.json") : values_of(""), how); /* a second one goes beside the first */
    run();
    cr_assert(exists(place_of(".refused")) && exists(place_of(".refused.2")));
    free(before);
    free(after);
}

Test(names_state, cut_file_is_refused_and_kept) {
    damaged_file_is_refused(false, "cut", "cut off");
}

Test(names_state, file_with_more_behind_it_is_refused_and_kept) {
    damaged_file_is_refused(false, "longer", "longer");
}

Test(names_state, empty_file_is_refused_and_kept) {
    damaged_file_is_refused(false, "empty", "too short");
}

Test(names_state, cut_index_is_refused_and_kept) {
    damaged_file_is_refused(true, "cut", "names.json");
}

Test(names_state, empty_index_is_refused_and_kept) {
    damaged_file_is_refused(true, "empty", "names.json");
}

Test(names_state, limit_that_has_become_smaller_takes_nothing_away) {
    reconnect("cpu:0");
    OK(td_publish(td_full(client.device, TD_U8, TD_SHAPE(2 << 20), 1), "x"));
    client_close(&client);
    daemon_stop(&tensord);
    run_with("--named-bytes", "1M");
    reconnect("cpu:0");
    td_tensor *opened = td_open(client.device, "x");
    cr_assert_not_null(opened, "%s", td_last_error()->message);
    td_release(opened);
    cr_assert_eq(td_publish(td_full(client.device, TD_U8, TD_SHAPE(1), 1), "y"), TD_E_LIMIT);
    OK(td_publish(td_full(client.device, TD_U8, TD_SHAPE(1), 1), "x"));
}

Test(names_state, file_that_the_device_has_no_room_for_is_refused_and_kept) {
    reconnect("cpu:0");
    OK(td_publish(td_full(client.device, TD_U8, TD_SHAPE(2 << 20), 1), "x"));
    client_close(&client);
    daemon_stop(&tensord);
    run_with("--memory", "1M");
    reconnect("cpu:0");
    expect_unknown("x");
    cr_assert(daemon_log_has(&tensord, "out of device memory", RUN_MS));
    client_close(&client);
    daemon_stop(&tensord);
    cr_assert(!exists(place_of("")) && exists(place_of(".refused")));
    cr_assert_eq(rename(place_of(".refused"), place_of("")), 0); /* what an operator does then */
    run();
    reconnect("cpu:0");
    cr_assert_not_null(td_open(client.device, "x"));
}

/* Both are documented to lie in one folder, which each of them locks in its way. */
Test(names_state, users_are_changed_while_the_daemon_has_the_folder) {
    struct command command;
    char users[sizeof state + 8];
    snprintf(users, sizeof users, "%s/users", state);
    command_run(&command,
                (const char *const[]){daemon_program("TENSORD_EXE"), "user", "add", "alice", "--role", "run", "--users",
                                      users, NULL},
                NULL, 30000);
    cr_expect_eq(command.code, 0, "%s", command.err);
    cr_expect(strstr(command.out, "tensord_"), "%s", command.out);
    command_finish(&command);
}

Test(names_state, strange_files_are_left_alone) {
    static const char *const names[] = {"notes.txt", "cpu:0@",        "cpu:0@uid%3a0", "cpu:1@x",
                                        "cpu:0@%00", "cpu:0@uid.old", "cpu:0@uid"};
    char path[200];
    client_close(&client);
    daemon_stop(&tensord);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", state, names[i]);
        close(open(path, O_WRONLY | O_CREAT, 0600));
    }
    run();
    daemon_stop(&tensord);
    cr_assert_eq(files(), sizeof names / sizeof *names);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", state, names[i]);
        cr_assert(exists(path), "%s", names[i]);
    }
}

/* ---- saves that fail ---- */

/* A daemon with a value of 1 saved, and a large one of 2 in its place, not saved yet. */
static void replace_by_large(int64_t bytes) {
    reconnect("cpu:0");
    OK(td_publish(td_full(client.device, TD_U8, TD_SHAPE(1), 1), "x"));
    restart();
    reconnect("cpu:0");
    OK(td_publish(td_full(client.device, TD_U8, TD_SHAPE(bytes), 2), "x"));
    client_close(&client);
}

static void expect_the_old_one(void) {
    uint8_t value = 0;
    run();
    reconnect("cpu:0");
    OK(td_fetch(td_open(client.device, "x"), &value, 1));
    cr_assert_eq(value, 1);
    cr_assert_eq(files(), 1, "something was left behind");
    cr_assert_eq(files_in(place_of("")), 2, "something was left behind");
}

Test(names_state, worker_killed_while_it_saves_loses_nothing_that_was_saved) {
    char event[4096];
    int watch = inotify_init1(IN_CLOEXEC);
    replace_by_large(256 << 20);
    int worker = status_worker_pid(tensord.url, "cpu:0");
    inotify_add_watch(watch, place_of(""), IN_MODIFY);
    kill(tensord.pid, SIGTERM);
    cr_assert(deadline_poll(watch, POLLIN, deadline_in(RUN_MS)) && read(watch, event, sizeof event) > 0);
    kill(worker, SIGKILL);
    close(watch);
    cr_assert_eq(WEXITSTATUS(daemon_wait(&tensord, RUN_MS)), 1, "not all was saved");
    cr_assert_eq(files_in(place_of("")), 3, "256 MiB were written before the kill came");
    daemon_kill(&tensord);
    expect_the_old_one();
}

Test(names_state, full_disk_is_told_and_keeps_the_old_file) {
    client_close(&client);
    daemon_stop(&tensord);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = 8 << 20, .rlim_max = RLIM_INFINITY}); /* the daemon's, too */
    run();
    replace_by_large(16 << 20);
    kill(tensord.pid, SIGTERM);
    cr_assert_eq(WEXITSTATUS(daemon_wait(&tensord, RUN_MS)), 1, "not all was saved");
    cr_assert(daemon_log_has(&tensord, "event=names_not_saved", 0) && daemon_log_has(&tensord, "File too large", 0));
    daemon_gone(&tensord);
    expect_the_old_one();
}

/* Stopped while it saves, for longer than the front would wait for queued work alone. */
Test(names_state, save_that_takes_longer_than_the_drain_is_waited_for) {
    enum { GRACE_MS = 4000 }; /* of the front, besides drain-timeout */
    char event[4096];
    int watch = inotify_init1(IN_CLOEXEC);
    reconnect("cpu:0");
    OK(td_publish(td_full(client.device, TD_U8, TD_SHAPE(1), 1), "small"));
    client_close(&client);
    daemon_stop(&tensord);
    run_with("--drain-timeout", "0");
    reconnect("cpu:0");
    OK(td_publish(td_full(client.device, TD_U8, TD_SHAPE(64 << 20), 2), "x"));
    client_close(&client);
    int worker = status_worker_pid(tensord.url, "cpu:0"), ends = daemon_process_watch(worker);
    inotify_add_watch(watch, place_of(""), IN_MODIFY);
    kill(tensord.pid, SIGTERM);
    cr_assert(deadline_poll(watch, POLLIN, deadline_in(RUN_MS)) && read(watch, event, sizeof event) > 0);
    kill(worker, SIGSTOP);
    cr_assert(!deadline_poll(ends, POLLIN, deadline_now() + GRACE_MS + 1000), "the worker was not waited for");
    kill(worker, SIGCONT);
    close(ends);
    close(watch);
    cr_assert_eq(daemon_wait(&tensord, RUN_MS), 0);
    daemon_gone(&tensord);
    run();
    reconnect("cpu:0");
    cr_assert_eq(td_tensor_bytes(td_open(client.device, "x")), 64 << 20);
}

Test(names_state, strange_bytes_become_bools) {
    uint8_t got[3];
    reconnect("cpu:0");
    OK(td_publish(td_upload(client.device, TD_BOOL, TD_SHAPE(3), (uint8_t[]){1, 0, 1}), "flags"));
    client_close(&client);
    daemon_stop(&tensord);
    int fd = open(values_of(""), O_WRONLY);
    cr_assert(lseek(fd, -1, SEEK_END) > 0 && write(fd, "\x09", 1) == 1);
    close(fd);
    run();
    reconnect("cpu:0");
    OK(td_fetch(td_open(client.device, "flags"), got, sizeof got));
    cr_assert(got[0] == 1 && got[1] == 0 && got[2] == 1);
}
