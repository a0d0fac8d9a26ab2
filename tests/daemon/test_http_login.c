/* HTTP where there is a file of users: tokens, as Prometheus and browsers show them. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/daemon/command.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/http.h"
#include "tests/daemon/status.h"
#include "tests/daemon/users.h"

static struct daemon tensord;
static struct users_file users;
static unsigned port;
static char observer[USERS_TOKEN_BYTES], runner[USERS_TOKEN_BYTES];

static void start(void) {
    users_file_make(&users);
    users_file_add(&users, "watch", "observe", observer);
    users_file_add(&users, "alice", "run", runner);
    daemon_start(&tensord,
                 &(struct daemon_options){.devices = "cpu:0,cpu:1",
                                          .tcp = "tcp://127.0.0.1:0",
                                          .flags = (const char *const[]){"--http", "127.0.0.1:0", "--users", users.path,
                                                                         "--quarantine-after", "1", NULL}});
    port = http_port(&tensord);
}

static void stop(void) {
    daemon_stop(&tensord);
    users_file_remove(&users);
}

TestSuite(http_login, .init = start, .fini = stop, .timeout = 120);

static int code_at_once(const char *path, const char *scheme, const char *shown) {
    char headers[512];
    struct http_reply reply;
    snprintf(headers, sizeof headers, "Host: localhost\r\n%s%s%s%s", *scheme ? "Authorization: " : "", scheme, shown,
             *scheme ? "\r\n" : "");
    http_get(port, path, headers, &reply);
    int code = reply.code;
    cr_assert_eq(code == 401, !!strstr(reply.text, "\r\nWWW-Authenticate: Basic "), "%s", reply.text);
    cr_assert_eq(code == 429, !!strstr(reply.text, "\r\nRetry-After: "), "%s", reply.text);
    http_reply_finish(&reply);
    return code;
}

/* The same by a client that comes again where it is told to: this test fails more often than is free. */
static int code_with(const char *path, const char *scheme, const char *shown) {
    int64_t deadline = deadline_in(20000);
    int code;
    while ((code = code_at_once(path, scheme, shown)) == 429 && deadline_pause(deadline))
        continue;
    return code;
}

/* RFC 4648. */
static const char *base64_of(const char *text, size_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static char out[400];
    size_t used = 0;
    for (size_t i = 0; i < n; i += 3) {
        unsigned left = (unsigned)(n - i), bits = 0;
        for (unsigned k = 0; k < 3; k++)
            bits = bits << 8 | (k < left ? (unsigned char)text[i + k] : 0);
        for (unsigned k = 0; k < 4; k++)
            out[used++] = k > left ? '=' : digits[bits >> (18 - 6 * k) & 63];
    }
    out[used] = 0;
    return out;
}

static const char *base64(const char *text) {
    return base64_of(text, strlen(text));
}

static const char *basic(const char *name, const char *password) {
    char pair[200];
    snprintf(pair, sizeof pair, "%s:%s", name, password);
    return base64(pair);
}

Test(http_login, figures_take_a_token) {
    static const char *const paths[] = {"/", "/metrics", "/status.json", "/history.json"};
    char spoilt[USERS_TOKEN_BYTES];
    users_token_spoil(observer, spoilt);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        cr_assert_eq(code_with(paths[i], "", ""), 401, "%s", paths[i]);
        cr_assert_eq(code_with(paths[i], "Bearer ", spoilt), 401);
        cr_assert_eq(code_with(paths[i], "Bearer ", "tensord_"), 401);
        cr_assert_eq(code_with(paths[i], "Digest ", observer), 401);
        cr_assert_eq(code_with(paths[i], "Bearer ", observer), 200, "%s", paths[i]);
        cr_assert_eq(code_with(paths[i], "bearer ", runner), 200);
    }
    cr_assert_eq(code_with("/nothing", "", ""), 404);
    struct http_reply reply;
    char headers[256];
    snprintf(headers, sizeof headers, "Host: localhost\r\nAuthorization: Bearer %s\r\n", observer);
    http_get(port, "/metrics", headers, &reply);
    cr_assert(strstr(reply.body, "\ntensord_logins_total{result=\"granted\"} "), "%s", reply.body);
    http_reply_finish(&reply);
}

Test(http_login, a_browser_asks_for_the_token_as_a_password) {
    cr_assert_eq(code_with("/", "Basic ", basic("anybody", observer)), 200);
    cr_assert_eq(code_with("/", "Basic ", basic("", observer)), 200);
    cr_assert_eq(code_with("/", "Basic ", basic(observer, "")), 401);
    cr_assert_eq(code_with("/", "Basic ", basic("anybody", "wrong")), 401);
    cr_assert_eq(code_with("/", "Basic ", base64("no colon")), 401);
    cr_assert_eq(code_with("/", "Basic ", "%%%%"), 401);
    cr_assert_eq(code_with("/", "Basic ", ""), 401);
    char pair[200];
    int length = snprintf(pair, sizeof pair, "anybody:%s%c%s", observer, 0, "more");
    cr_assert_eq(code_with("/", "Basic ", base64_of(pair, (size_t)length)), 401, "a NUL byte ends no password");
}

/* A scraper whose token was revoked, and others at its address. */
Test(http_login, wrong_tokens_slow_down_wrong_tokens_from_their_address_and_nothing_else) {
    char spoilt[USERS_TOKEN_BYTES];
    struct wire wire;
    unsigned denied = 0, put_off = 0;
    users_token_spoil(observer, spoilt);
    for (int i = 0; i < 40; i++) {
        int code = code_at_once("/metrics", "Bearer ", spoilt);
        cr_assert(code == 401 || code == 429, "%d", code);
        denied += code == 401;
        put_off += code == 429;
        cr_assert_eq(code_at_once("/metrics", "Bearer ", observer), 200, "a good token after %d wrong ones", i + 1);
    }
    cr_assert(put_off > denied, "%u were looked at, %u were not", denied, put_off);
    int64_t before = deadline_now();
    for (int i = 0; i < 10; i++) { /* each would have to wait for two seconds, as wrong tokens do by now */
        code_at_once("/metrics", "Bearer ", spoilt);
        cr_assert_eq(users_open(&wire, tensord.tcp, PREAMBLE_TARGET_CONTROL, runner, NULL), STATUS_OK);
        wire_close(&wire);
    }
    cr_assert_lt(deadline_now() - before, 10000, "clients at that address had to wait");
    cr_assert_eq(code_at_once("/healthz", "Bearer ", spoilt), 200, "health takes no token");
}

Test(http_login, a_revoked_token_is_no_good_from_the_next_request_on) {
    cr_assert_eq(code_with("/metrics", "Bearer ", observer), 200);
    USERS_RUN(&users, NULL, "revoke", users_token_id(observer));
    users_reload(&tensord, "reloaded", 1);
    cr_assert_eq(code_with("/metrics", "Bearer ", observer), 401);
    cr_assert_eq(code_with("/metrics", "Bearer ", runner), 200);
}

Test(http_login, health_is_for_everybody_and_tells_no_causes) {
    struct http_reply reply;
    http_get(port, "/readyz", NULL, &reply);
    cr_assert_eq(reply.code, 200);
    http_reply_finish(&reply);
    kill(status_worker_pid(tensord.url, "cpu:1"), SIGKILL);
    cr_assert(daemon_log_has(&tensord, "worker_quarantined", 30000));
    http_get(port, "/readyz", NULL, &reply);
    cr_assert_eq(reply.code, 503);
    cr_assert_str_eq(reply.body, "cpu:1 is quarantined\n");
    http_reply_finish(&reply);
    http_get(port, "/healthz", NULL, &reply);
    cr_assert_eq(reply.code, 200);
    http_reply_finish(&reply);
}

/* ---- beyond loopback ---- */

static void refuses(const char *const *flags, const char *text) {
    struct command command;
    char listen[128];
    const char *arguments[16] = {
        daemon_program("TENSORD_EXE"), "--devices", "cpu:0", "--listen", listen, "--http", "0.0.0.0:0"};
    snprintf(listen, sizeof listen, "%s.other", tensord.url);
    for (int n = 7; *flags; n++, flags++)
        arguments[n] = *flags;
    command_run(&command, arguments, NULL, 30000);
    cr_assert_eq(command.code, 2, "exit code %d: %s", command.code, command.err);
    cr_assert(strstr(command.err, text), "%s", command.err);
    command_finish(&command);
}

Test(http_login, addresses_for_everybody_take_users_names_and_a_word_about_the_clear) {
    refuses((const char *const[]){"--http-hosts", "gpu1", NULL}, "(users)");
    refuses((const char *const[]){"--users", users.path, "--http-hosts", "gpu1", NULL}, "allow-plaintext");
    refuses((const char *const[]){"--users", users.path, "--allow-plaintext", "yes", NULL}, "(http-hosts)");
    daemon_stop(&tensord);
    daemon_start(&tensord,
                 &(struct daemon_options){.flags = (const char *const[]){"--http", "0.0.0.0:0", "--users", users.path,
                                                                         "--allow-plaintext", "yes", "--http-hosts",
                                                                         "gpu1.example.org", NULL}});
    char *log = daemon_log(&tensord), *place = strstr(log, "url=http://0.0.0.0:");
    cr_assert(place && sscanf(place, "url=http://0.0.0.0:%u", &port) == 1, "%s", log);
    free(log);
    char headers[256];
    struct http_reply reply;
    snprintf(headers, sizeof headers, "Host: gpu1.example.org\r\nAuthorization: Bearer %s\r\n", observer);
    http_get(port, "/metrics", headers, &reply);
    cr_assert_eq(reply.code, 200, "%s", reply.text);
    http_reply_finish(&reply);
}
