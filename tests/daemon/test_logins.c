/* Logins by strangers who mean no good: slowed down, in bounded memory, and to nobody else's harm. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/net/url.h"
#include "server/process/log.h"
#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/status.h"
#include "tests/daemon/users.h"

enum { RUN_MS = 30000, FREE_FAILURES = 3, GOOD_HOST = 0x7f000001, BAD_HOST = 0x7f000002 };

static struct users_file file;
static struct daemon tensord;
static char alice[USERS_TOKEN_BYTES], spoilt[USERS_TOKEN_BYTES];

static void start(void) {
    users_file_make(&file);
    users_file_add(&file, "alice", "run", alice);
    users_token_spoil(alice, spoilt);
    daemon_start(&tensord, &(struct daemon_options){.tcp = "tcp://127.0.0.1:0",
                                                    .flags = (const char *const[]){"--users", file.path, NULL}});
}
static void stop(void) {
    daemon_stop(&tensord);
    users_file_remove(&file);
}
TestSuite(logins, .init = start, .fini = stop, .timeout = 120);

static const uint16_t targets[] = {PREAMBLE_TARGET_CONTROL, PREAMBLE_TARGET_DEFAULT};

/* A connection from this address of the loopback network, with its preamble sent. */
static void connect_from(struct wire *wire, uint32_t host, uint16_t target) {
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(host)};
    struct url_address address;
    struct fault fault;
    struct url url;
    size_t count;
    cr_assert(!url_parse(tensord.tcp, &url, &fault) && !url_resolve(&url, false, &address, 1, &count, &fault));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    cr_assert(!bind(fd, (struct sockaddr *)&from, sizeof from), "bind: %s", strerror(errno));
    cr_assert(!connect(fd, (struct sockaddr *)&address.address, address.length), "connect: %s", strerror(errno));
    fcntl(fd, F_SETFL, O_NONBLOCK);
    *wire = (struct wire){.fd = fd};
    cr_assert(wire_preamble(wire, target));
}

static int login_from(uint32_t host, uint16_t target, const char *token) {
    struct wire wire;
    connect_from(&wire, host, target);
    int code = users_hello(&wire, token, NULL);
    wire_close(&wire);
    return code;
}

/* Hello goes out, and no answer is waited for. */
static void begin_login(struct wire *wire, uint32_t host, uint16_t target, const char *token) {
    Tensord__Hello hello = TENSORD__HELLO__INIT;
    hello.version_min = hello.version_max = PROTOCOL_VERSION_MAX;
    hello.client = "tests 1";
    hello.token = (char *)token;
    connect_from(wire, host, target);
    cr_assert(wire_request(wire, FRAME_HELLO, &hello));
}

static uint64_t put_off(void) {
    Tensord__Status *status = status_get(tensord.url);
    uint64_t count = status->logins->put_off;
    status_free(status);
    return count;
}

static bool has_put_off(const Tensord__Status *status, const void *argument) {
    return status->logins->put_off >= *(const uint64_t *)argument;
}

static void fail_from(uint32_t host, unsigned times) {
    for (unsigned i = 0; i < times; i++)
        cr_assert_eq(login_from(host, targets[i % 2], spoilt), STATUS_DENIED);
}

/* ---- what comes as a token ---- */

Test(logins, sixteen_kibibytes_are_no_token) {
    static char text[16000 + 1];
    struct wire wire;
    char message[256];
    memset(text, 'a', sizeof text - 1);
    memcpy(text, alice, strlen(alice)); /* the right one at first */
    for (unsigned i = 0; i < 2; i++) {
        cr_assert_eq(users_open(&wire, tensord.tcp, targets[i], text, message), STATUS_DENIED);
        cr_assert_str_eq(message, "the token is not valid");
    }
    struct frame_header header = {.type = FRAME_HELLO, .message_bytes = (16 << 10) + 1, .sequence = 1};
    for (unsigned i = 0; i < 2; i++) {
        wire_connect(&wire, tensord.tcp, targets[i]);
        cr_assert(wire_header(&wire, &header));
        cr_assert_eq(wire_until_closed(&wire, RUN_MS, NULL), STATUS_PROTOCOL);
        wire_close(&wire);
    }
}

Test(logins, a_nul_byte_in_a_token_breaks_the_protocol) {
    uint8_t bytes[256] = {0x08, PROTOCOL_VERSION_MAX, 0x10, PROTOCOL_VERSION_MAX, 0x2a,
                          0}; /* versions, and field 5 as a text */
    struct wire wire;
    size_t length = strlen(alice);
    memcpy(bytes + 6, alice, length);
    memcpy(bytes + 6 + length, "\0more", 5);
    bytes[5] = (uint8_t)(length + 5);
    struct frame_header header = {.type = FRAME_HELLO, .message_bytes = (uint32_t)(6 + length + 5), .sequence = 1};
    for (unsigned i = 0; i < 2; i++) {
        wire_connect(&wire, tensord.tcp, targets[i]);
        cr_assert(wire_header(&wire, &header) && wire_write(&wire, bytes, header.message_bytes));
        cr_assert_eq(wire_until_closed(&wire, RUN_MS, NULL), STATUS_PROTOCOL, "target %x", targets[i]);
        wire_close(&wire);
    }
}

Test(logins, control_characters_in_a_token_reach_no_log) {
    struct wire wire;
    for (unsigned i = 0; i < 2; i++)
        cr_assert_eq(users_open(&wire, tensord.tcp, targets[i], "\x1b[2J\nevent=fake \xff", NULL), STATUS_DENIED);
    char *log = daemon_log(&tensord);
    cr_assert(!strstr(log, "event=fake") && !strchr(log, 0x1b), "%s", log);
    free(log);
}

/* ---- slowing down ---- */

Test(logins, after_failures_those_who_fail_wait_and_others_do_not) {
    struct wire slow[2], wire;
    char message[256];
    fail_from(BAD_HOST, FREE_FAILURES);
    cr_assert_eq(put_off(), 0);
    for (unsigned i = 0; i < 2; i++)
        begin_login(&slow[i], BAD_HOST, targets[i], spoilt);
    status_until(tensord.url, has_put_off, &(uint64_t){2}, RUN_MS);
    cr_assert_eq(login_from(GOOD_HOST, PREAMBLE_TARGET_DEFAULT, alice), STATUS_OK);
    cr_assert_eq(login_from(GOOD_HOST, PREAMBLE_TARGET_CONTROL, alice), STATUS_OK);
    cr_assert_eq(users_open(&wire, tensord.url, PREAMBLE_TARGET_DEFAULT, "", NULL), STATUS_OK);
    wire_close(&wire);
    cr_assert_eq(put_off(), 2);
    for (unsigned i = 0; i < 2; i++) {
        cr_assert_eq(wire_until_closed(&slow[i], RUN_MS, message), STATUS_DENIED);
        cr_assert_str_eq(message, "the token is not valid");
        wire_close(&slow[i]);
    }
    cr_assert(daemon_log_has(&tensord, "event=login_slowed peer=127.0.0.2", RUN_MS));
}

/* As many wrong ones as may wait do, and more are turned away: a good one at their address is in at once. */
Test(logins, a_good_token_is_let_in_whatever_others_at_its_address_do) {
    enum { FLOOD = 40 };
    static struct wire wires[FLOOD];
    fail_from(BAD_HOST, FREE_FAILURES);
    for (unsigned i = 0; i < FLOOD; i++)
        begin_login(&wires[i], BAD_HOST, targets[i % 2], spoilt);
    for (unsigned i = 0; i < 20; i++)
        cr_assert_eq(login_from(BAD_HOST, targets[i % 2], alice), STATUS_OK);
    for (unsigned i = 0; i < FLOOD; i++)
        wire_close(&wires[i]);
}

Test(logins, one_that_leaves_while_it_waits_leaves_nothing) {
    struct wire wire;
    fail_from(BAD_HOST, FREE_FAILURES);
    for (unsigned i = 0; i < 2; i++) {
        begin_login(&wire, BAD_HOST, targets[i], spoilt);
        status_until(tensord.url, has_put_off, &(uint64_t){i + 1}, RUN_MS);
        wire_close(&wire);
    }
    struct status_baseline none = {"cpu:0", 0, 0};
    cr_assert(status_settles(tensord.url, &none, RUN_MS));
}

Test(logins, one_that_has_said_all_it_wants_is_answered_after_its_wait) {
    Tensord__Ping ping = TENSORD__PING__INIT;
    struct wire wire;
    fail_from(BAD_HOST, FREE_FAILURES);
    begin_login(&wire, BAD_HOST, PREAMBLE_TARGET_CONTROL, spoilt);
    cr_assert(wire_request(&wire, FRAME_PING, &ping) && !shutdown(wire.fd, SHUT_WR));
    cr_assert_eq(wire_until_closed(&wire, RUN_MS, NULL), STATUS_DENIED);
    wire_close(&wire);
}

Test(logins, a_worker_that_dies_meanwhile_takes_only_the_connection_along) {
    struct wire wire;
    fail_from(BAD_HOST, FREE_FAILURES);
    begin_login(&wire, BAD_HOST, DAEMON_TARGET_CPU0, spoilt);
    status_until(tensord.url, has_put_off, &(uint64_t){1}, RUN_MS);
    uint64_t epoch = status_epoch(tensord.url, "cpu:0");
    kill(status_worker_pid(tensord.url, "cpu:0"), SIGKILL);
    struct status_is again = {"cpu:0", "ready", epoch + 1};
    status_until(tensord.url, status_device_is, &again, RUN_MS);
    cr_assert_eq(wire_until_closed(&wire, RUN_MS, NULL), STATUS_OK);
    wire_close(&wire);
    cr_assert_eq(login_from(GOOD_HOST, DAEMON_TARGET_CPU0, alice), STATUS_OK);
}

/* ---- many ---- */

/* Every login of one source at once: few wait, the rest are turned away, the log is not filled, and others get in. */
Test(logins, a_flood_of_one_source_is_turned_away) {
    enum { FLOOD = 2 * LOG_LIMIT_BURST };
    static struct wire wires[FLOOD];
    unsigned denied = 0, turned_away = 0, lines = 0;
    int64_t begun = deadline_now();
    fail_from(BAD_HOST, FREE_FAILURES);
    for (unsigned i = 0; i < FLOOD; i++)
        begin_login(&wires[i], BAD_HOST, targets[i % 2], spoilt);
    cr_assert_eq(login_from(GOOD_HOST, PREAMBLE_TARGET_DEFAULT, alice), STATUS_OK);
    for (unsigned i = 0; i < FLOOD; i++) {
        int code = wire_until_closed(&wires[i], RUN_MS, NULL);
        denied += code == STATUS_DENIED;
        turned_away += code == STATUS_LIMIT;
        wire_close(&wires[i]);
    }
    cr_assert_eq(denied + turned_away, FLOOD, "%u denied, %u turned away", denied, turned_away);
    cr_assert(turned_away > FLOOD / 2 && denied > 0, "%u denied, %u turned away", denied, turned_away);
    char *log = daemon_log(&tensord);
    for (const char *at = log; (at = strstr(at, "event=login_failed")); at++)
        lines++;
    free(log);
    int64_t seconds = (deadline_now() - begun) / 1000 + 1;
    cr_assert(lines && lines <= LOG_LIMIT_BURST + LOG_LIMIT_PER_S * seconds, "%u lines of %u failures in %ld s", lines,
              FLOOD + FREE_FAILURES, seconds);
}

Test(logins, half_logins_hold_nobody_up_and_end_in_time) {
    enum { HALVES = 100 };
    static struct wire wires[2 * HALVES];
    struct frame_header header = {.type = FRAME_HELLO, .message_bytes = 100, .sequence = 1};
    for (unsigned i = 0; i < 2 * HALVES; i++) {
        connect_from(&wires[i], BAD_HOST, targets[i % 2]);
        cr_assert(wire_header(&wires[i], &header) && wire_write(&wires[i], alice, 50));
    }
    cr_assert_eq(login_from(GOOD_HOST, PREAMBLE_TARGET_DEFAULT, alice), STATUS_OK);
    cr_assert_eq(login_from(GOOD_HOST, PREAMBLE_TARGET_CONTROL, alice), STATUS_OK);
    for (unsigned i = 0; i < 2 * HALVES; i++) {
        int code = wire_until_closed(&wires[i], RUN_MS, NULL); /* the oldest give their places up */
        cr_assert(code == STATUS_TIMED_OUT || code == STATUS_LIMIT, "%d", code);
        wire_close(&wires[i]);
    }
}

Test(logins, failures_of_many_sources_take_bounded_memory) {
    enum { WARM = 1500, SOURCES = 3000, GROWTH_MAX = 4 << 20 };
    unsigned long long before = 0;
    for (uint32_t i = 0; i < WARM + SOURCES; i++) {
        if (i == WARM) /* the table is full by now, and so is what a sanitizer keeps of freed memory */
            before = daemon_process_rss(tensord.pid);
        cr_assert_eq(login_from(0x7f010000 + i, PREAMBLE_TARGET_CONTROL, spoilt), STATUS_DENIED);
    }
    unsigned long long after = daemon_process_rss(tensord.pid);
    cr_assert(after < before + GROWTH_MAX, "%llu bytes, then %llu", before, after);
    cr_assert_eq(login_from(GOOD_HOST, PREAMBLE_TARGET_DEFAULT, alice), STATUS_OK);
}

/* Those who have not said who they are cannot take all places for control connections. */
Test(logins, strangers_leave_room_for_the_operator) {
    enum { STRANGERS = 300 };
    static struct wire wires[STRANGERS];
    struct wire wire;
    for (unsigned i = 0; i < STRANGERS; i++)
        connect_from(&wires[i], BAD_HOST, PREAMBLE_TARGET_CONTROL);
    cr_assert_eq(users_open(&wire, tensord.url, PREAMBLE_TARGET_CONTROL, "", NULL), STATUS_OK);
    cr_assert(wire_ping(&wire));
    wire_close(&wire);
    for (unsigned i = 0; i < STRANGERS; i++)
        wire_close(&wires[i]);
}
