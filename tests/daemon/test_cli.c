/* tensord's start: flags, configuration file, sockets. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/daemon/client.h"
#include "tests/daemon/command.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"

enum { RUN_MS = 30000 };

TestSuite(cli, .timeout = 60);

static struct command command;

/* Runs tensord with these arguments. */
#define TENSORD(...)                                                                                                   \
    command_run(&command, (const char *const[]){daemon_program("TENSORD_EXE"), __VA_ARGS__, NULL}, NULL, RUN_MS)

/* It ended at once, not with success, and said this. */
static void refused_with(const char *text) {
    cr_assert_gt(command.code, 0, "it started, or hung: %d", command.code);
    cr_assert_lt(command.code, 128, "it crashed: %d", command.code);
    cr_assert(strstr(command.err, text), "\"%s\" is not in: %s", text, command.err);
    command_finish(&command);
}

Test(cli, help_shows_every_flag) {
    static const char *const FLAGS[] = {"--config", "--listen", "--devices", "--log-level", "--version", "--help"};
    TENSORD("--help");
    cr_assert_eq(command.code, 0);
    for (size_t i = 0; i < sizeof FLAGS / sizeof *FLAGS; i++)
        cr_assert(strstr(command.out, FLAGS[i]), "%s is not in:\n%s", FLAGS[i], command.out);
    cr_assert_leq(command_columns(command.out), 120);
    command_finish(&command);
}

Test(cli, version_is_the_library_s) {
    TENSORD("--version");
    cr_assert_eq(command.code, 0);
    cr_assert(strstr(command.out, td_version()), "%s", command.out);
    command_finish(&command);
}

Test(cli, unknown_flag_is_named) {
    TENSORD("--no-such-flag");
    refused_with("no-such-flag");
}

Test(cli, stray_argument_is_named) {
    TENSORD("stray");
    refused_with("stray");
}

/* A wrong command line is told in one line, whichever command it is for. */
static void refused_in_one_line(const char *text) {
    const char *end = strchr(command.err, '\n');
    cr_assert(end && !end[1], "not one line: %s", command.err);
    refused_with(text);
}

Test(cli, a_wrong_command_line_is_told_in_one_line) {
    TENSORD("--no-such-flag");
    refused_in_one_line("no-such-flag");
    TENSORD("user", "no-such-command");
    refused_in_one_line("no-such-command");
    TENSORD("user", "list", "--no-such-flag", "x");
    refused_in_one_line("no-such-flag");
    TENSORD("user", "add", "alice", "--role", "king", "--users", "/nonexistent/users");
    refused_in_one_line("king");
}

Test(cli, bad_values_are_named) {
    TENSORD("--log-level", "loud");
    refused_with("loud");
    TENSORD("--max-sessions", "-1");
    refused_with("-1");
    TENSORD("--max-sessions", "99999999999999999999999");
    refused_with("max-sessions");
    TENSORD("--session-bytes", "12Q");
    refused_with("12Q");
    TENSORD("--hello-timeout", "soon");
    refused_with("soon");
    TENSORD("--listen", "ftp://x");
    refused_with("ftp");
    TENSORD("--listen");
    refused_with("listen");
}

Test(cli, impossible_devices_are_named) {
    static const char *const LISTS[] = {"tpu:0", "cpu:x", "cuda:99", "cpu:0,cpu:0", "cpu:0,,cpu:1", "cpu:-1"};
    for (size_t i = 0; i < sizeof LISTS / sizeof *LISTS; i++) {
        char directory[64], url[100];
        daemon_directory_make(directory);
        snprintf(url, sizeof url, "unix:%s/s", directory);
        TENSORD("--listen", url, "--devices", LISTS[i]);
        cr_assert(command.code > 0 && command.code < 128, "%s: %d\n%s", LISTS[i], command.code, command.err);
        cr_assert(*command.err);
        command_finish(&command);
        daemon_directory_remove(directory);
    }
}

/* Each line of the log is an object, the last one has the cause. */
static void refused_as_json(const char *cause) {
    const char *line = command.err, *last = line;
    cr_assert_gt(command.code, 0);
    for (const char *end; (end = strchr(line, '\n')); line = end + 1) {
        cr_assert(!strncmp(line, "{\"ts\":\"", 7) && end[-1] == '}', "no JSON: %s", command.err);
        last = line;
    }
    cr_assert(strstr(last, "\"level\":\"error\",\"process\":\"front\",\"event\":\"start_failed\",\"cause\":\""), "%s",
              last);
    refused_with(cause);
}

Test(cli, what_stops_a_start_is_a_line_of_the_log_in_its_format) {
    TENSORD("--log-format", "json", "--devices", "cpu:0", "--listen", "unix:/nonexistent/socket");
    refused_as_json("/nonexistent");
    TENSORD("--log-format", "json", "--devices", "cpu:0", "--state-dir", "/dev/null/state");
    refused_as_json("/dev/null/state");
    TENSORD("--log-format", "json", "--max-sessions", "-1");
    refused_as_json("-1");
    TENSORD("--devices", "cpu:0", "--listen", "unix:/nonexistent/socket");
    refused_with(" level=error process=front event=start_failed cause=");
}

Test(cli, tcp_beyond_loopback_is_refused) {
    TENSORD("--listen", "tcp://0.0.0.0:0", "--devices", "cpu:0");
    refused_with("authentication");
    TENSORD("--listen", "tcp://[::]:0", "--devices", "cpu:0");
    refused_with("authentication");
    TENSORD("--listen", "tcp://192.0.2.1:8478", "--devices", "cpu:0");
    refused_with("authentication");
}

/* ---- the configuration file ---- */

static char directory[64], config[100], url[128];

static void configure(const char *text) {
    daemon_directory_make(directory);
    snprintf(config, sizeof config, "%s/tensord.conf", directory);
    snprintf(url, sizeof url, "unix:%s/s", directory);
    FILE *file = fopen(config, "w");
    fputs(text, file);
    fclose(file);
}

static void config_refused_at(const char *text, const char *line, const char *word) {
    configure(text);
    TENSORD("--config", config, "--listen", url);
    cr_assert(strstr(command.err, line), "no line %s in: %s", line, command.err);
    refused_with(word);
    daemon_directory_remove(directory);
}

Test(cli, config_errors_name_file_and_line) {
    config_refused_at("devices = cpu:0\nno-such-key = 1\n", "tensord.conf:2:", "no-such-key");
    config_refused_at("# comment\n\ndevices = cpu:0\nmax-sessions = many\n", "tensord.conf:4:", "many");
    config_refused_at("devices = tpu:0\n", "tensord.conf:1:", "tpu");
    config_refused_at("devices = cpu:0\nthis is no pair\n", "tensord.conf:2:", "tensord.conf");
    config_refused_at("log-level =\n", "tensord.conf:1:", "log-level");
}

Test(cli, missing_config_file_is_named) {
    TENSORD("--config", "/nonexistent/tensord.conf");
    refused_with("/nonexistent/tensord.conf");
}

Test(cli, config_file_has_the_keys_of_the_flags) {
    struct daemon tensord;
    struct client client;
    configure("# limits\nsession-tensors = 3\nlog-level = debug\n");
    daemon_start(&tensord, &(struct daemon_options){.flags = (const char *const[]){"--config", config, NULL}});
    client_open(&client, tensord.url, NULL);
    td_tensor *last = NULL;
    for (int i = 0; i < 5; i++)
        last = td_full(client.device, TD_F32, TD_SCALAR, 1);
    cr_assert_neq(td_wait(last), TD_OK, "the key of the file is not heeded");
    client_close(&client);
    daemon_stop(&tensord);
    daemon_directory_remove(directory);
}

/* ---- sockets ---- */

Test(cli, second_daemon_on_the_same_socket_is_refused) {
    struct daemon tensord;
    struct client client;
    daemon_start(&tensord, NULL);
    TENSORD("--listen", tensord.url, "--devices", "cpu:0");
    refused_with(tensord.socket);
    client_open(&client, tensord.url, NULL);
    client_expect(client_ramp(client.device, 2, 0), (float[]){0, 1}, 2);
    client_close(&client);
    daemon_stop(&tensord);
}

Test(cli, stale_socket_is_replaced) {
    struct daemon tensord, after;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    daemon_start(&tensord, NULL);
    daemon_stop(&tensord);
    /* A socket file whose listener is gone, in a new daemon's place. */
    daemon_directory_make(directory);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/stale", directory);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(!bind(fd, (struct sockaddr *)&address, sizeof address) && !listen(fd, 1));
    close(fd);
    snprintf(url, sizeof url, "unix:%s", address.sun_path);
    daemon_start(&after, &(struct daemon_options){.flags = (const char *const[]){"--listen", url, NULL}});
    struct client client;
    client_open(&client, url, NULL);
    client_close(&client);
    daemon_stop(&after);
    cr_assert(access(address.sun_path, F_OK), "the socket file was left behind");
    daemon_directory_remove(directory);
}

Test(cli, file_that_is_no_socket_is_kept) {
    configure("precious");
    snprintf(url, sizeof url, "unix:%s", config);
    TENSORD("--listen", url, "--devices", "cpu:0");
    refused_with(config);
    struct stat stat_now;
    cr_assert(!stat(config, &stat_now) && S_ISREG(stat_now.st_mode) && stat_now.st_size == 8);
    daemon_directory_remove(directory);
}

/* Everybody can lock a directory that he may read. */
Test(cli, lock_on_the_directory_does_not_keep_the_daemon_from_starting) {
    struct daemon tensord;
    daemon_directory_make(directory);
    int lock = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_assert(lock >= 0 && !flock(lock, LOCK_EX));
    snprintf(url, sizeof url, "unix:%s/socket", directory);
    daemon_start(&tensord, &(struct daemon_options){.flags = (const char *const[]){"--listen", url, NULL}});
    struct client client;
    client_open(&client, url, NULL);
    client_close(&client);
    daemon_stop(&tensord);
    close(lock);
    daemon_directory_remove(directory);
}

Test(cli, socket_is_for_owner_and_group) {
    struct daemon tensord;
    struct stat stat_now;
    daemon_start(&tensord, NULL);
    cr_assert(!stat(tensord.socket, &stat_now));
    cr_assert_eq(stat_now.st_mode & 0777, 0660, "mode %o", stat_now.st_mode & 0777);
    daemon_stop(&tensord);
}

Test(cli, config_alone_listens_where_it_says) {
    struct daemon tensord;
    char listen[140];
    daemon_directory_make(directory);
    snprintf(listen, sizeof listen, "unix:%s/second", directory);
    daemon_start(&tensord, &(struct daemon_options){.flags = (const char *const[]){"--listen", listen, NULL}});
    struct client client;
    client_open(&client, listen, NULL);
    client_close(&client);
    daemon_stop(&tensord);
    daemon_directory_remove(directory);
}

/* Starts tensord without --listen; ready when its log says so. */
static pid_t start_bare(const char *const environment[], int listener, const char *log) {
    pid_t pid = fork();
    cr_assert(pid >= 0);
    if (pid)
        return pid;
    char number[16];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int out = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    dup2(out, 2);
    command_environment(environment);
    if (listener >= 0) {
        dup2(listener, 3);
        fcntl(3, F_SETFD, 0);
        snprintf(number, sizeof number, "%d", getpid());
        setenv("LISTEN_PID", number, 1);
        setenv("LISTEN_FDS", "1", 1);
    }
    execl(daemon_program("TENSORD_EXE"), "tensord", "--devices", "cpu:0", NULL);
    _exit(127);
}

static void served_then_stopped(pid_t pid, const char *where, const char *const environment[]) {
    td_connection *connection = NULL;
    int64_t deadline = deadline_in(RUN_MS);
    command_environment(environment);
    while (td_connect(where, NULL, &connection))
        cr_assert(deadline_pause(deadline), "no daemon: %s", td_last_error()->message);
    td_device *device;
    cr_assert(!td_device_open(connection, NULL, &device), "%s", td_last_error()->message);
    client_expect(client_ramp(device, 2, 3), (float[]){3, 4}, 2);
    td_close(connection);
    kill(pid, SIGTERM);
    cr_assert_eq(client_join(pid, 30000), 0);
}

Test(cli, default_socket_is_in_the_runtime_directory) {
    char runtime[100], log[100], path[100];
    daemon_directory_make(directory);
    snprintf(runtime, sizeof runtime, "XDG_RUNTIME_DIR=%s", directory);
    snprintf(log, sizeof log, "%s/log", directory);
    snprintf(path, sizeof path, "%s/tensord.sock", directory);
    const char *const environment[] = {runtime, "TENSORD_URL", NULL};
    pid_t pid = start_bare(environment, -1, log);
    served_then_stopped(pid, NULL, environment);
    cr_assert(access(path, F_OK), "the socket file was left behind");
    daemon_directory_remove(directory);
}

Test(cli, socket_activation) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char runtime[100], log[100];
    daemon_directory_make(directory);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/activated", directory);
    snprintf(runtime, sizeof runtime, "XDG_RUNTIME_DIR=%s", directory);
    snprintf(log, sizeof log, "%s/log", directory);
    snprintf(url, sizeof url, "unix:%s", address.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(!bind(fd, (struct sockaddr *)&address, sizeof address) && !listen(fd, 16));
    const char *const environment[] = {runtime, NULL};
    pid_t pid = start_bare(environment, fd, log);
    close(fd);
    served_then_stopped(pid, url, environment);
    cr_assert(!access(address.sun_path, F_OK), "the socket file is systemd's, not the daemon's to remove");
    daemon_directory_remove(directory);
}

/* Whoever passed the socket still has it, and may do with it what he wants. */
Test(cli, passed_socket_that_was_shut_down_does_not_spin) {
    enum { WATCH_MS = 600 };
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char log[100];
    td_connection *connection = NULL;
    daemon_directory_make(directory);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/activated", directory);
    snprintf(log, sizeof log, "%s/log", directory);
    snprintf(url, sizeof url, "unix:%s", address.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(!bind(fd, (struct sockaddr *)&address, sizeof address) && !listen(fd, 16));
    pid_t pid = start_bare(NULL, fd, log);
    cr_assert(!td_connect(url, NULL, &connection), "%s", td_last_error()->message);
    shutdown(fd, SHUT_RDWR);
    unsigned long long before = daemon_process_cpu_ms(pid);
    poll(NULL, 0, WATCH_MS); /* not to wait for something, but to measure over a span */
    unsigned long long spent = daemon_process_cpu_ms(pid) - before;
    cr_assert_lt(spent, WATCH_MS / 3, "the front used %llu of %d ms", spent, WATCH_MS);
    td_close(connection);
    kill(pid, SIGTERM);
    cr_assert_eq(client_join(pid, 30000), 0);
    close(fd);
    daemon_directory_remove(directory);
}

Test(cli, a_configuration_is_checked_without_a_start) {
    char folder[64], path[80];
    TENSORD("--check-config", "--listen", "unix:/tmp/x", "--listen", "tcp://127.0.0.1:8478", "--threads", "2");
    cr_assert_eq(command.code, 0, "%s", command.err);
    cr_assert_str_eq(command.out, "The configuration is valid.\n");
    command_finish(&command);
    TENSORD("--check-config", "--listen", "tcp://0.0.0.0:8478");
    refused_with("there is no authentication");
    TENSORD("--check-config", "--listen", "tls://127.0.0.1:8478");
    refused_with("no certificate to show");
    TENSORD("--check-config", "--tls-certificate", "/nonexistent/c.pem");
    refused_with("/nonexistent/c.pem");
    TENSORD("--check-config", "--users", "/nonexistent/users");
    refused_with("/nonexistent/users");
    TENSORD("--check-config", "--http", "0.0.0.0:9137");
    refused_with("http");
    TENSORD("--check-config", "--threads", "many");
    refused_with("many");
    TENSORD("--check-config=yes");
    refused_with("takes no value");
    daemon_directory_make(folder);
    snprintf(path, sizeof path, "%s/state", folder);
    TENSORD("--check-config", "--state-dir", path);
    cr_assert_eq(command.code, 0, "%s", command.err);
    cr_assert(access(path, F_OK) != 0, "it was made");
    command_finish(&command);
    cr_assert(!mkdir(path, 0755) && !chmod(path, 0755));
    TENSORD("--check-config", "--state-dir", path);
    refused_with("has mode 0755");
    daemon_directory_remove(folder);
}
