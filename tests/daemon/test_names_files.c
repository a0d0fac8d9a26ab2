/* tensorctl names, save and load: named tensors to and from safetensors files. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/daemon/client.h"
#include "tests/daemon/command.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/json.h"
#include "tests/daemon/status.h"

enum { RUN_MS = 60000 };

static struct daemon tensord;
static struct client client;
static struct command command;
static char directory[64], file[100];

static void start(void) {
    daemon_start(&tensord, &(struct daemon_options){.devices = "cpu:0,late:0"});
    daemon_directory_make(directory);
    snprintf(file, sizeof file, "%s/file", directory);
}

static void stop(void) {
    command_finish(&command);
    client_close(&client);
    daemon_stop(&tensord);
    daemon_directory_remove(directory);
}

TestSuite(names_files, .init = start, .fini = stop, .timeout = 180);

#define OK(call) cr_assert(!(call), "%s: %s", #call, td_last_error()->message)

#define TENSORCTL(...)                                                                                                 \
    (command_finish(&command),                                                                                         \
     command_run(&command,                                                                                             \
                 (const char *const[]){daemon_program("TENSORCTL_EXE"), "--url", tensord.url, __VA_ARGS__, NULL},      \
                 NULL, RUN_MS))

#define SUCCEEDS(...)                                                                                                  \
    do {                                                                                                               \
        TENSORCTL(__VA_ARGS__);                                                                                        \
        cr_assert_eq(command.code, 0, "%s", command.err);                                                              \
    } while (0)

static void expect_refused(const char *words) {
    cr_assert_eq(command.code, 1, "%d: %s", command.code, command.err);
    cr_assert(strstr(command.err, words), "\"%s\" does not say \"%s\"", command.err, words);
}

static char *read_file(const char *path, size_t *bytes) {
    struct stat stat_now;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    cr_assert(fd >= 0 && !fstat(fd, &stat_now), "%s", path);
    char *text = malloc((size_t)stat_now.st_size + 1);
    *bytes = (size_t)stat_now.st_size;
    cr_assert_eq(read(fd, text, *bytes), (ssize_t)*bytes);
    close(fd);
    return text;
}

static void expect_same_files(const char *a, const char *b) {
    size_t a_bytes, b_bytes;
    char *x = read_file(a, &a_bytes), *y = read_file(b, &b_bytes);
    cr_assert(a_bytes == b_bytes && !memcmp(x, y, a_bytes), "%s and %s differ", a, b);
    free(x);
    free(y);
}

/* Entries of the directory besides those named `known`. */
static unsigned others_in(const char *path, const char *known) {
    DIR *entries = opendir(path);
    unsigned others = 0;
    for (struct dirent *entry; (entry = readdir(entries));)
        others += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") && strcmp(entry->d_name, known);
    closedir(entries);
    return others;
}

static void put_file(const char *text) {
    FILE *out = fopen(file, "w");
    fputs(text, out);
    fclose(out);
}

static void expect_file(const char *text) {
    size_t bytes;
    char *got = read_file(file, &bytes);
    cr_assert(bytes == strlen(text) && !memcmp(got, text, bytes));
    free(got);
    cr_assert_eq(others_in(directory, "file"), 0, "something was left beside the old file");
}

/* ---- round trips ---- */

enum { NOISE = 9 * (1 << 20) + 5 }; /* bytes: several pieces and a rest */

/* Every dtype, also as a scalar and without elements; and one that is read in pieces. */
static void publish_everything(td_device *device) {
    uint8_t *noise = malloc(NOISE);
    char name[64];
    client_noise(noise, NOISE, 7);
    for (int dtype = TD_BOOL; dtype <= TD_C64; dtype++) {
        size_t size = td_dtype_size((td_dtype)dtype);
        snprintf(name, sizeof name, "%s/matrix", td_dtype_name((td_dtype)dtype));
        OK(td_publish(td_upload(device, (td_dtype)dtype, TD_SHAPE(3, 5), noise + (size_t)dtype * 120), name));
        snprintf(name, sizeof name, "%s/\"scalar\" \\Ω", td_dtype_name((td_dtype)dtype));
        OK(td_publish(td_upload(device, (td_dtype)dtype, TD_SCALAR, noise + size), name));
        snprintf(name, sizeof name, "%s/empty", td_dtype_name((td_dtype)dtype));
        OK(td_publish(td_upload(device, (td_dtype)dtype, TD_SHAPE(2, 0, 3), NULL), name));
    }
    OK(td_publish(td_upload(device, TD_U8, TD_SHAPE(NOISE), noise), "noise"));
    OK(td_publish(td_transpose(td_upload(device, TD_F32, TD_SHAPE(2, 3), noise)), "transposed"));
    free(noise);
}

static void expect_same_tensors(td_device *a, td_device *b) {
    td_name_info infos[64], others[64];
    size_t count = 0, other_count = 0;
    OK(td_names(a, infos, 64, &count));
    OK(td_names(b, others, 64, &other_count));
    cr_assert(count == 50 && other_count == count, "%zu and %zu names", count, other_count);
    for (size_t i = 0; i < count; i++) {
        td_tensor *x = td_open(a, infos[i].name), *y = td_open(b, others[i].name);
        size_t bytes = td_tensor_bytes(x);
        char *x_data = malloc(bytes + 1), *y_data = malloc(bytes + 1);
        cr_assert_str_eq(infos[i].name, others[i].name);
        cr_assert(infos[i].dtype == others[i].dtype && infos[i].rank == others[i].rank &&
                  !memcmp(infos[i].shape, others[i].shape, (size_t)infos[i].rank * sizeof(int64_t)));
        cr_assert_eq(td_tensor_bytes(y), bytes);
        OK(td_fetch(x, x_data, bytes));
        OK(td_fetch(y, y_data, bytes));
        cr_assert_eq(memcmp(x_data, y_data, bytes), 0, "%s differs", infos[i].name);
        free(x_data);
        free(y_data);
    }
}

static void round_trip(const char *from, const char *to) {
    char second[110];
    td_device *other;
    client_open(&client, tensord.url, from);
    OK(td_device_open(client.connection, to, &other));
    publish_everything(client.device);
    SUCCEEDS("save", from, file);
    SUCCEEDS("load", to, file);
    expect_same_tensors(client.device, other);
    snprintf(second, sizeof second, "%s/second", directory);
    SUCCEEDS("save", to, second);
    expect_same_files(file, second);
}

Test(names_files, round_trip_is_exact_for_every_dtype) {
    round_trip("cpu:0", "late:0");
}

Test(names_files, round_trip_is_exact_from_a_device_that_runs_later) {
    round_trip("late:0", "cpu:0");
}

/* tests/unit/safetensors/make.py wrote it. */
Test(names_files, file_of_the_reference_implementation_is_loaded) {
    char reference[1024];
    snprintf(reference, sizeof reference, "%s/tests/unit/safetensors/reference.safetensors",
             daemon_program("TENSORD_SOURCE"));
    client_open(&client, tensord.url, "cpu:0");
    SUCCEEDS("load", "cpu:0", reference);
    static const char *const dtypes[] = {"i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "f8e4m3", "f8e5m2"};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        client_expect(td_cast(td_open(client.device, dtypes[i]), TD_F32), (float[]){-2, -1, 0, 1, 2, 3}, 6);
    static const char *const unsigned_dtypes[] = {"u8", "u16", "u32", "u64"};
    for (size_t i = 0; i < sizeof unsigned_dtypes / sizeof *unsigned_dtypes; i++)
        client_expect(td_cast(td_open(client.device, unsigned_dtypes[i]), TD_F32), (float[]){0, 1, 2, 3, 4, 5}, 6);
    client_expect(td_real(td_open(client.device, "c64")), (float[]){-2, -1, 0, 1, 2, 3}, 6);
    client_expect(td_cast(td_open(client.device, "bool"), TD_F32), (float[]){0, 1, 0, 1, 0, 1}, 6);
    client_expect(td_open(client.device, "scalar"), (float[]){2.5}, 1);
    client_expect(td_open(client.device, "layer.0/Ω \"quoted\""), (float[]){1.5, -2.5}, 2);
    cr_assert_eq(td_tensor_shape(td_open(client.device, "empty"))[1], 4);
}

/* What the reference implementation, where it is installed, reads out of our file. */
Test(names_files, reference_implementation_reads_what_is_saved) {
    static const char script[] =
        "import sys\n"
        "try:\n"
        "    from safetensors import safe_open\n"
        "    import ml_dtypes, numpy\n"
        "except ImportError:\n"
        "    sys.exit(77)\n"
        "with safe_open(sys.argv[1], 'np') as f:\n"
        "    assert sorted(f.keys()) == ['a/Ω', 'b'], sorted(f.keys())\n"
        "    assert (f.get_tensor('a/Ω') == numpy.array([[1, 2, 3]], 'float32')).all()\n"
        "    assert f.get_tensor('b').shape == (0, 2) and f.get_tensor('b').dtype == 'int64'\n";
    const char *python = getenv("TENSORD_SAFETENSORS_PYTHON");
    client_open(&client, tensord.url, "cpu:0");
    OK(td_publish(td_reshape(client_ramp(client.device, 3, 1), TD_SHAPE(1, 3)), "a/Ω"));
    OK(td_publish(td_full(client.device, TD_I64, TD_SHAPE(0, 2), 0), "b"));
    OK(td_publish(td_full(client.device, TD_I64, TD_SHAPE(9), 0), "not this one"));
    SUCCEEDS("save", "cpu:0", file, "b", "a/Ω");
    command_finish(&command);
    command_run(&command, (const char *const[]){python ? python : "python3", "-c", script, file, NULL}, NULL, RUN_MS);
    if (command.code == 77)
        cr_skip_test("Python has no safetensors");
    cr_assert_eq(command.code, 0, "%s", command.err);
}

/* Far less memory than the tensor has (RLIMIT_DATA: all that is private and writable). */
static void with_little_memory(const char *words) {
    char shell[700];
    command_finish(&command);
    snprintf(shell, sizeof shell, "ulimit -d 98304; exec '%s' --url %s %s", daemon_program("TENSORCTL_EXE"),
             tensord.url, words);
    command_run(&command, (const char *const[]){"sh", "-c", shell, NULL}, NULL, RUN_MS);
    cr_assert_eq(command.code, 0, "%s", command.err);
}

Test(names_files, large_tensors_need_little_memory) {
    char words[200];
#ifdef __SANITIZE_ADDRESS__
    cr_skip_test("AddressSanitizer takes more");
#endif
    client_open(&client, tensord.url, "cpu:0");
    OK(td_publish(td_full(client.device, TD_F64, TD_SHAPE(32 << 20), 2), "a")); /* 256 MiB */
    snprintf(words, sizeof words, "save cpu:0 '%s'", file);
    with_little_memory(words);
    snprintf(words, sizeof words, "load late:0 '%s'", file);
    with_little_memory(words);
}

/* ---- what tensorctl says ---- */

Test(names_files, names_are_listed_for_people_and_programs) {
    client_open(&client, tensord.url, "cpu:0");
    SUCCEEDS("names");
    cr_assert_str_eq(command.out, "no named tensors\n");
    OK(td_publish(td_full(client.device, TD_BF16, TD_SHAPE(512, 1024), 1), "layer/weight"));
    OK(td_publish(td_full(client.device, TD_F32, TD_SCALAR, 1), "rate\"Ω"));
    SUCCEEDS("names", "cpu:0");
    cr_assert(strstr(command.out, "layer/weight  bf16   (512, 1024)  1.00 MiB"), "%s", command.out);
    cr_assert(command_columns(command.out) <= 80);
    SUCCEEDS("names", "cpu:0", "--json");
    json_expect(
        command.out, command.out_bytes,
        "[(n['name'], n['dtype'], n['shape'], n['bytes']) for n in d['names']] == "
        "[('layer/weight', 'bf16', [512, 1024], 1 << 20), ('rate\"Ω', 'f32', [], 64)] and "
        "all(n['device'] == 'cpu:0' for n in d['names'])");
    TENSORCTL("names", "cpu:9");
    expect_refused("no device \"cpu:9\"");
}

static bool names_are_counted(const Tensord__Status *status, const void *none) {
    (void)none;
    return status_device(status, "cpu:0")->names == 2;
}

Test(names_files, status_says_who_has_how_much) {
    char line[100];
    client_open(&client, tensord.url, "cpu:0");
    OK(td_publish(td_full(client.device, TD_U8, TD_SHAPE(3 << 20), 1), "a"));
    OK(td_publish(td_full(client.device, TD_U8, TD_SHAPE(1), 1), "b"));
    status_until(tensord.url, names_are_counted, NULL, 30000);
    SUCCEEDS("status");
    snprintf(line, sizeof line, "  names   2 tensors, 3.00 MiB (uid:%u: 2)\n", getuid());
    cr_assert(strstr(command.out, line), "%s", command.out);
}

Test(names_files, wrong_words_are_refused) {
    TENSORCTL("save", "cpu:0");
    cr_assert_eq(command.code, 2);
    TENSORCTL("load", "cpu:0", file, "name");
    cr_assert_eq(command.code, 2);
    TENSORCTL("save", "cpu:0", file, "--replace");
    cr_assert_eq(command.code, 2);
    TENSORCTL("load", "cpu:0", file);
    expect_refused("No such file");
    TENSORCTL("save", "cpu:0", file, "none");
    expect_refused("no tensor here has the name \"none\"");
    cr_assert_eq(others_in(directory, "file"), 0);
}

Test(names_files, save_of_nothing_is_refused_and_leaves_no_file) {
    TENSORCTL("save", "cpu:0", file);
    expect_refused("no named tensors on cpu:0: nothing is saved");
    cr_assert_eq(others_in(directory, ""), 0);
}

/* ---- loading ---- */

Test(names_files, load_replaces_only_when_told_and_all_or_nothing) {
    client_open(&client, tensord.url, "cpu:0");
    OK(td_publish(client_ramp(client.device, 2, 1), "a"));
    OK(td_publish(client_ramp(client.device, 2, 5), "b"));
    SUCCEEDS("save", "cpu:0", file);
    cr_assert(strstr(command.out, "2 tensors, 16 B, saved to "), "%s", command.out);
    OK(td_unpublish(client.device, "a"));
    OK(td_publish(client_ramp(client.device, 2, 9), "b"));
    TENSORCTL("load", "cpu:0", file);
    expect_refused("\"b\" already");
    cr_assert_null(td_open(client.device, "a"));
    client_expect(td_open(client.device, "b"), (float[]){9, 10}, 2);
    SUCCEEDS("load", "cpu:0", file, "--replace");
    cr_assert(strstr(command.out, "2 tensors, 16 B, loaded from "), "%s", command.out);
    client_expect(td_open(client.device, "a"), (float[]){1, 2}, 2);
    client_expect(td_open(client.device, "b"), (float[]){5, 6}, 2);
}

static void cut_file(off_t bytes) {
    struct stat stat_now;
    cr_assert_eq(stat(file, &stat_now), 0);
    cr_assert_eq(truncate(file, stat_now.st_size + bytes), 0);
}

Test(names_files, damaged_files_are_refused_with_the_reason) {
    client_open(&client, tensord.url, "cpu:0");
    OK(td_publish(client_ramp(client.device, 100, 1), "a"));
    SUCCEEDS("save", "cpu:0", file);
    cut_file(-1);
    TENSORCTL("load", "cpu:0", file, "--replace");
    expect_refused("cut off");
    cut_file(3);
    TENSORCTL("load", "cpu:0", file, "--replace");
    expect_refused("longer");
    put_file("not a file of tensors at all");
    TENSORCTL("load", "cpu:0", file, "--replace");
    expect_refused("header");
    put_file("");
    TENSORCTL("load", "cpu:0", file, "--replace");
    expect_refused("too short");
    TENSORCTL("load", "cpu:0", directory);
    expect_refused("no ordinary file");
    client_expect(td_sum(td_open(client.device, "a"), TD_ALL_AXES, 0), (float[]){5050}, 1);
}

/* ---- saving that fails ---- */

Test(names_files, full_disk_keeps_the_old_file) {
    char shell[600];
    client_open(&client, tensord.url, "cpu:0");
    OK(td_publish(td_full(client.device, TD_U8, TD_SHAPE(4 << 20), 1), "a"));
    put_file("old");
    snprintf(shell, sizeof shell, "ulimit -f 64; exec '%s' --url %s save cpu:0 '%s'", daemon_program("TENSORCTL_EXE"),
             tensord.url, file);
    command_run(&command, (const char *const[]){"sh", "-c", shell, NULL}, NULL, RUN_MS);
    expect_refused("File too large");
    expect_file("old");
    /* A small disk that nobody else sees, and that goes with this process. */
    if (geteuid() != 0 || unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("tensord-test", directory, "tmpfs", 0, "size=1M"))
        cr_skip_test("only root can mount a small disk");
    put_file("old"); /* on the small disk */
    TENSORCTL("save", "cpu:0", file);
    expect_refused("No space left on device");
    expect_file("old");
    umount(directory);
}

/* A tensorctl that gets the signal when its first bytes have been written, long before the last ones can be. */
static void save_ended_by(int number) {
    char event[4096];
    int watch = inotify_init1(IN_CLOEXEC);
    client_open(&client, tensord.url, "cpu:0");
    OK(td_publish(td_full(client.device, TD_U8, TD_SHAPE(256 << 20), 1), "a"));
    put_file("old");
    inotify_add_watch(watch, directory, IN_MODIFY);
    pid_t pid = fork();
    if (pid == 0) {
        execl(daemon_program("TENSORCTL_EXE"), "tensorctl", "--url", tensord.url, "save", "cpu:0", file, NULL);
        _exit(127);
    }
    cr_assert(deadline_poll(watch, POLLIN, deadline_in(RUN_MS)) && read(watch, event, sizeof event) > 0);
    kill(pid, number);
    close(watch);
    cr_assert_eq(client_join(pid, RUN_MS), 128 + number);
}

Test(names_files, killed_save_keeps_the_old_file) {
    size_t bytes;
    save_ended_by(SIGKILL);
    cr_assert_eq(others_in(directory, "file"), 1, "it had written everything before the kill came");
    char *got = read_file(file, &bytes);
    cr_assert(bytes == 3 && !memcmp(got, "old", 3));
    free(got);
}

Test(names_files, interrupted_save_leaves_nothing_behind) {
    save_ended_by(SIGINT);
    expect_file("old");
}
