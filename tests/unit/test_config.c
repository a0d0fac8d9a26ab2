/* The configuration: file, flags, and what they refuse. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/front/config.h"
#include "server/process/log.h"

/* Reads `text` as a file. The fault's message has the file's name cut off: it begins with ":LINE: ". */
static int read_text(struct config *config, const char *text, struct fault *fault) {
    char path[] = "/tmp/tensord-test-config-XXXXXX";
    int fd = mkstemp(path);
    cr_assert(fd >= 0);
    cr_assert(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    config_init(config);
    int error = config_read(config, path, fault);
    unlink(path);
    if (error) {
        cr_assert(!strncmp(fault->message, path, strlen(path)), "no file name in \"%s\"", fault->message);
        memmove(fault->message, fault->message + strlen(path), strlen(fault->message) - strlen(path) + 1);
    }
    return error;
}

Test(config, defaults_are_one_cpu_device_and_the_default_socket) {
    struct config config;
    config_init(&config);
    cr_assert(config.n_listen == 0);
    cr_assert(config.n_devices == 1 && config.devices_auto);
    cr_assert_str_eq(config.devices[0].name, "cpu:0");
    cr_assert(config.socket_mode == 0660);
    cr_assert(config.hello_timeout == 5000);
    cr_assert(config.log_level == LOG_LEVEL_INFO);
}

Test(config, user_kernels_are_for_nobody_until_somebody_is_named) {
    struct config config;
    struct fault fault;
    config_init(&config);
    cr_assert(!principal_is_listed(config.user_kernels, "uid:0"));
    cr_assert_eq(config_set(&config, "user-kernels", "uid:1000, uid:10,tcp", &fault), STATUS_OK, "%s", fault.message);
    cr_assert(principal_is_listed(config.user_kernels, "uid:1000") &&
              principal_is_listed(config.user_kernels, "uid:10"));
    cr_assert(principal_is_listed(config.user_kernels, "tcp"));
    cr_assert(!principal_is_listed(config.user_kernels, "uid:1") &&
              !principal_is_listed(config.user_kernels, "uid:100"));
    cr_assert(!principal_is_listed(config.user_kernels, "") &&
              !principal_is_listed(config.user_kernels, "uid:1000,uid:10"));
    cr_assert_eq(config_set(&config, "user-kernels", "all", &fault), STATUS_OK);
    cr_assert(principal_is_listed(config.user_kernels, "uid:1") && principal_is_listed(config.user_kernels, "tcp"));
    cr_assert_eq(config_set(&config, "user-kernels", "none", &fault), STATUS_OK);
    cr_assert(!principal_is_listed(config.user_kernels, "none") &&
              !principal_is_listed(config.user_kernels, "uid:0"));
}

Test(config, users_are_principals_by_their_names) {
    struct config config;
    struct fault fault;
    config_init(&config);
    cr_assert_eq(config_set(&config, "user-kernels", "alice, bob-2.x_y", &fault), STATUS_OK, "%s", fault.message);
    cr_assert(principal_is_listed(config.user_kernels, "alice") &&
              principal_is_listed(config.user_kernels, "bob-2.x_y"));
    cr_assert(!principal_is_listed(config.user_kernels, "ali") && !principal_is_listed(config.user_kernels, "bob"));
}

struct changes {
    char text[256];
};
static void note_change(void *owner, const char *key, bool taken) {
    struct changes *changes = owner;
    size_t used = strlen(changes->text);
    snprintf(changes->text + used, sizeof changes->text - used, "%s%s ", taken ? "+" : "-", key);
}

Test(config, a_running_daemon_takes_over_what_can_change_and_names_the_rest) {
    struct config running, fresh;
    struct changes changes = {""};
    struct fault fault;
    config_init(&running);
    config_init(&fresh);
    fresh.ignore_devices = true;
    cr_assert_eq(config_set(&fresh, "devices", "cuda:5", &fault), STATUS_OK, "%s", fault.message);
    config_take(&running, &fresh, note_change, &changes);
    cr_assert_str_eq(changes.text, "");
    cr_assert_eq(config_set(&fresh, "listen", "unix:/a", &fault), STATUS_OK);
    cr_assert_eq(config_set(&fresh, "max-connections", "7", &fault), STATUS_OK);
    cr_assert_eq(config_set(&fresh, "memory", "1G", &fault), STATUS_OK);
    cr_assert_eq(config_set(&fresh, "user-kernels", "alice", &fault), STATUS_OK);
    cr_assert_eq(config_set(&fresh, "users", "/b", &fault), STATUS_OK);
    cr_assert_eq(config_set(&fresh, "allow-plaintext", "yes", &fault), STATUS_OK);
    config_take(&running, &fresh, note_change, &changes);
    cr_assert_str_eq(changes.text, "-listen -memory +max-connections +user-kernels -users -allow-plaintext ");
    cr_assert(running.max_connections == 7 && principal_is_listed(running.user_kernels, "alice"));
    cr_assert(running.n_listen == 0 && running.memory == 0 && !*running.users && !running.allow_plaintext);
    cr_assert(running.n_devices == 1 && !strcmp(running.devices[0].name, "cpu:0"));
}

Test(config, lists_of_principals_that_are_none_are_refused) {
    static const char *const wrong[] = {"uid:",      "uid:x",      "uid:1,",      ",uid:1", "1000",      "all,uid:1",
                                        "uid:1,all", "uid:1,none", "uid:1 uid:2", "Uid:1",  "alice bob", "alice+"};
    struct config config;
    struct fault fault;
    config_init(&config);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_assert_eq(config_set(&config, "user-kernels", wrong[i], &fault), STATUS_INVALID_ARGUMENT, "%s", wrong[i]);
        cr_assert(strstr(fault.message, "principals"), "%s", fault.message);
    }
    cr_assert(!principal_is_listed(config.user_kernels, "uid:1"));
}

Test(config, a_file_sets_every_kind_of_key) {
    static const char text[] = "# a comment\n"
                               "listen = unix:/tmp/a.sock, tcp://127.0.0.1:8478\n"
                               "[devices]\n"
                               "  devices = cpu, cpu:3\n"
                               "memory = 2G\n"
                               "\n"
                               "[limits]\n"
                               "  hello-timeout = 250ms\n"
                               "listen = tcp://[::1]:0 ; another\n"
                               "socket-mode = 0600\n"
                               "log-level = debug\n"
                               "threads = 2";
    struct config config;
    struct fault fault;
    cr_assert(read_text(&config, text, &fault) == STATUS_OK, "%s", fault.message);
    cr_assert(config.n_listen == 3);
    cr_assert_str_eq(config.listen[1], "tcp://127.0.0.1:8478");
    cr_assert_str_eq(config.listen[2], "tcp://[::1]:0");
    cr_assert(config.n_devices == 2 && !config.devices_auto);
    cr_assert_str_eq(config.devices[0].name, "cpu:0");
    cr_assert_str_eq(config.devices[1].name, "cpu:3");
    cr_assert(config.devices[1].index == 3);
    cr_assert(config.memory == UINT64_C(2) << 30);
    cr_assert(config.hello_timeout == 250);
    cr_assert(config.socket_mode == 0600);
    cr_assert(config.log_level == LOG_LEVEL_DEBUG);
    cr_assert(config.threads == 2);
}

Test(config, a_wrong_file_is_refused_with_its_line) {
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"threads = 1\n\ncolour = red\n", ":3: unknown key \"colour\""},
        {"threads = many\n", ":1: \"many\" is not a number"},
        {"threads = -1\n", ":1: \"-1\" is not a number"},
        {"threads = 99999\n", ":1: \"99999\" is not a number from 0 to 1024"},
        {"# x\n[a]\nthreads\n", ":3: neither"},
        {"threads =\n", ":1: \"threads\" has no value"},
        {"threads = 1\n    threads = x\n", ":2: \"x\" is not a number"},
        {"threads = 1\nthreads\ncolour = 1\n", ":2: neither"},
        {"colour = 1\nthreads\n", ":1: unknown key"},
        {"memory = 12X\n", ":1: \"12X\" is not a size"},
        {"memory = 99999999999999999999\n", ":1: \"99999999999999999999\" is not a size"},
        {"memory = 18446744073709551615G\n", ":1: \"18446744073709551615G\" is not a size"},
        {"hello-timeout = 5\n", ":1: \"5\" is not a duration"},
        {"state-sync = soon\n", ":1: \"soon\" is none of publish, drain, and a duration such as 5s"},
        {"hello-timeout = 5h\n", ":1: \"5h\" is out of range: 10ms to 1h"},
        {"socket-mode = 0999\n", ":1: \"0999\" is not an octal mode"},
        {"log-level = loud\n", ":1: \"loud\" is none of debug"},
        {"listen = http://x\n", ":1: address \"http://x\""},
        {"listen = unix:/a,\n", ":1: address \"\""},
        {"\ndevices = cuda:0\n", ":2: no device \"cuda:0\""},
        {"devices = gpu\n", ":1: no device \"gpu\""},
        {"devices = cpu:0,cpu:0\n", ":1: device \"cpu:0\" is named twice"},
        {"devices = cpu,cpu:0\n", ":1: device \"cpu:0\" is named twice"},
        {"devices = cpu:x\n", ":1: no device \"cpu:x\""},
        {"devices = cpu:999\n", ":1: no device \"cpu:999\""},
        {"devices = auto,cpu:1\n", ":1: no device \"auto\""},
        {"devices = cpu:0,\n", ":1: no device \"\""},
        {"http = 8477\n", ":1: \"8477\" is not an address and port such as 127.0.0.1:8477"},
        {"http = 127.0.0.1:99999\n", ":1: \"127.0.0.1:99999\" is not an address"},
        {"http-hosts = a,b c\n", ":1: \"a,b c\" is no list of host names"},
        {"http-hosts = a,,b\n", ":1: \"a,,b\" is no list of host names"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct config config;
        struct fault fault = {.message = ""};
        cr_expect(read_text(&config, rows[i].text, &fault) == STATUS_INVALID_ARGUMENT, "row %zu is taken", i);
        cr_expect(!strncmp(fault.message, rows[i].message, strlen(rows[i].message)), "row %zu: \"%s\"", i,
                  fault.message);
    }
}

Test(config, sizes_and_durations_of_large_hosts_and_long_leases) {
    struct config config;
    struct fault fault;
    config_init(&config);
    cr_assert_eq(config_set(&config, "memory", "1T", &fault), STATUS_OK, "%s", fault.message);
    cr_assert_eq(config.memory, UINT64_C(1) << 40);
    cr_assert_eq(config_set(&config, "idle-timeout", "8h", &fault), STATUS_OK, "%s", fault.message);
    cr_assert_eq(config_set(&config, "idle-timeout", "90m", &fault), STATUS_OK, "%s", fault.message);
    cr_assert_eq(config_set(&config, "idle-timeout", "7d", &fault), STATUS_OK, "%s", fault.message);
    cr_assert_neq(config_set(&config, "idle-timeout", "8d", &fault), STATUS_OK);
    cr_assert_neq(config_set(&config, "memory", "99999999999T", &fault), STATUS_OK);
}

Test(config, state_sync_is_a_word_or_a_time) {
    static const struct {
        const char *text;
        uint64_t value;
    } rows[] = {{"publish", 0}, {"drain", UINT64_MAX}, {"5s", 5000}, {"7", 7000}, {"250ms", 250}};
    struct config config;
    struct fault fault;
    config_init(&config);
    cr_assert_eq(config.state_sync, 5000);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cr_assert_eq(config_set(&config, "state-sync", rows[i].text, &fault), STATUS_OK, "%s", fault.message);
        cr_assert_eq(config.state_sync, rows[i].value, "%s", rows[i].text);
    }
}

Test(config, a_line_too_long_is_refused_with_its_line) {
    char text[600] = "threads = 1\nlisten = unix:/";
    struct config config;
    struct fault fault;
    memset(text + strlen(text), 'x', sizeof text - strlen(text) - 1);
    text[sizeof text - 1] = 0;
    cr_assert(read_text(&config, text, &fault) == STATUS_INVALID_ARGUMENT);
    cr_assert(!strncmp(fault.message, ":2: the line is longer", 22), "%s", fault.message);
}

Test(config, a_file_that_is_not_there_is_refused) {
    struct config config;
    struct fault fault;
    config_init(&config);
    cr_assert(config_read(&config, "/nonexistent/tensord.conf", &fault) == STATUS_INVALID_ARGUMENT);
    cr_assert_str_eq(fault.message, "/nonexistent/tensord.conf: No such file or directory");
}

static int read_flags(struct config *config, enum config_action *action, struct fault *fault, char **arguments) {
    int count = 0;
    while (arguments[count])
        count++;
    config_init(config);
    return config_read_flags(config, count, arguments, action, fault);
}
#define FLAGS(...) ((char *[]){"tensord", __VA_ARGS__, NULL})

Test(config, flags_win_over_the_file_wherever_they_stand) {
    char path[] = "/tmp/tensord-test-config-XXXXXX", text[] = "threads = 2\nlisten = unix:/file\nmemory = 1M\n";
    int fd = mkstemp(path);
    cr_assert(write(fd, text, sizeof text - 1) == (ssize_t)sizeof text - 1);
    close(fd);
    struct config config;
    struct fault fault;
    enum config_action action;
    int error = read_flags(&config, &action, &fault,
                           FLAGS("--threads", "3", "--listen=unix:/a", "--config", path, "--listen", "unix:/b"));
    unlink(path);
    cr_assert(error == STATUS_OK, "%s", fault.message);
    cr_assert(action == CONFIG_RUN);
    cr_assert(config.threads == 3 && config.memory == 1 << 20);
    cr_assert(config.n_listen == 2);
    cr_assert_str_eq(config.listen[0], "unix:/a");
    cr_assert_str_eq(config.listen[1], "unix:/b");
}

Test(config, wrong_flags_are_refused_by_name) {
    static const struct {
        char *arguments[4];
        const char *message;
    } rows[] = {
        {{"tensord", "--colour", "red"}, "--colour: no such flag"},
        {{"tensord", "--threads"}, "--threads: has no value"},
        {{"tensord", "--threads="}, "--threads: \"threads\" has no value"},
        {{"tensord", "--threads", "x"}, "--threads: \"x\" is not a number"},
        {{"tensord", "--devices=cuda:0"}, "--devices: no device \"cuda:0\""},
        {{"tensord", "threads"}, "\"threads\" is no flag"},
        {{"tensord", "-t"}, "\"-t\" is no flag"},
        {{"tensord", "-"}, "\"-\" is no flag"},
        {{"tensord", ""}, "\"\" is no flag"},
        {{"tensord", "--"}, "--: no such flag"},
        {{"tensord", "--config"}, "--config: has no value"},
        {{"tensord", "--version=1"}, "--version: takes no value"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct config config;
        struct fault fault = {.message = ""};
        enum config_action action;
        cr_expect(read_flags(&config, &action, &fault, (char **)rows[i].arguments) == STATUS_INVALID_ARGUMENT,
                  "row %zu is taken", i);
        cr_expect(!strncmp(fault.message, rows[i].message, strlen(rows[i].message)), "row %zu: \"%s\"", i,
                  fault.message);
    }
}

/* Three of the kind: two that a process gets at by its environment, and one that it sees as number 7. */
static int three_devices(const char *kind, struct device_place *places, unsigned capacity, unsigned *count,
                         struct fault *fault) {
    if (strcmp(kind, "cuda") != 0)
        return fault_set(fault, STATUS_NO_DEVICE, "no %s", kind);
    cr_assert(capacity >= 3);
    *count = 3;
    for (unsigned i = 0; i < 2; i++) {
        places[i] = (struct device_place){.index = 0};
        snprintf(places[i].environment, sizeof places[i].environment, "PART=%u", i);
    }
    places[2] = (struct device_place){.index = 7};
    return STATUS_OK;
}

Test(config, devices_keep_the_way_to_them) {
    struct config config;
    struct fault fault;
    config_init(&config);
    config.list_devices = three_devices;
    cr_assert(config_set(&config, "devices", "cuda:2,cuda:1,cpu:4", &fault) == STATUS_OK, "%s", fault.message);
    cr_assert(config.n_devices == 3 && config.devices[0].index == 7 && !*config.devices[0].environment);
    cr_assert_str_eq(config.devices[1].name, "cuda:1");
    cr_assert_str_eq(config.devices[1].environment, "PART=1");
    cr_assert(config.devices[1].index == 0 && config.devices[2].index == 4 && !*config.devices[2].environment);
    cr_assert(config_set(&config, "devices", "cuda:3", &fault) == STATUS_INVALID_ARGUMENT);
    cr_assert(strstr(fault.message, "goes from 0 to 2"), "%s", fault.message);
    cr_assert(config_set(&config, "devices", "auto", &fault) == STATUS_OK);
    cr_assert(config_find_devices(&config, &fault) == STATUS_OK && config.n_devices == 3);
    cr_assert_str_eq(config.devices[0].environment, "PART=0");
}

Test(config, help_and_version_are_actions) {
    struct config config;
    struct fault fault;
    enum config_action action;
    cr_assert(!read_flags(&config, &action, &fault, FLAGS("--version")) && action == CONFIG_VERSION);
    cr_assert(!read_flags(&config, &action, &fault, FLAGS("--threads", "2", "--help")) && action == CONFIG_HELP);
}

/* What a row shows is what a file would have to say. */
Test(config, rows_read_back_are_the_same_configuration) {
    struct config config, again;
    struct config_row row, same;
    struct fault fault;
    enum config_action action;
    cr_assert(
        !read_flags(&config, &action, &fault,
                    FLAGS("--listen", "unix:/a", "--listen", "tcp://127.0.0.1:1", "--memory", "1536M", "--staging",
                          "17M", "--socket-mode", "0600", "--watchdog-timeout", "1500ms", "--allow-plaintext", "yes",
                          "--user-kernels", "alice,uid:7", "--log-level", "warning", "--session-bytes", "1000")));
    config_init(&again);
    for (unsigned i = 0; config_row(&config, i, &row); i++)
        if (*row.value)
            cr_assert(!config_set(&again, row.key, row.value, &fault), "%s: %s", row.key, fault.message);
    for (unsigned i = 0; config_row(&config, i, &row) && config_row(&again, i, &same); i++)
        cr_assert_str_eq(row.value, same.value, "%s", row.key);
    cr_assert(again.memory == UINT64_C(1536) << 20 && again.watchdog_timeout == 1500 && again.n_listen == 2);
    cr_assert(again.limits.session_bytes == 1000 && again.socket_mode == 0600);
}

static enum config_origin origin_of(const struct config *config, const char *key) {
    static struct config_row row;
    for (unsigned i = 0; config_row(config, i, &row); i++)
        if (!strcmp(row.key, key))
            return row.origin;
    cr_assert_fail("no row %s", key);
    return CONFIG_FROM_DEFAULT;
}

Test(config, rows_say_where_their_values_come_from) {
    struct config config;
    struct fault fault;
    enum config_action action;
    char path[] = "/tmp/tensord-config.XXXXXX";
    int fd = mkstemp(path);
    cr_assert(fd >= 0 && dprintf(fd, "memory = 1G\nthreads = 2\nweight = 7\n") > 0);
    close(fd);
    cr_assert(!read_flags(&config, &action, &fault, FLAGS("--threads", "3", "--check-config", "--config", path)));
    unlink(path);
    cr_assert_eq(action, CONFIG_CHECK);
    cr_assert_eq(origin_of(&config, "memory"), CONFIG_FROM_FILE);
    cr_assert_eq(origin_of(&config, "weight"), CONFIG_FROM_FILE);
    cr_assert_eq(origin_of(&config, "threads"), CONFIG_FROM_FLAG);
    cr_assert_eq(origin_of(&config, "staging"), CONFIG_FROM_DEFAULT);
    cr_assert_str_eq(config_origin_text(&config, CONFIG_FROM_FILE), path);
}
