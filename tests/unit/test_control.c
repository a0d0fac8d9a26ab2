/* Control connections in the front's loop, which the test runs round by round: how many requests of whom are answered
 * in a round. The clock says that each request takes a quarter of what a round has. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/wire/frame.h"
#include "proto/wire/tensord.pb-c.h"
#include "server/front/front.h"
#include "server/process/log.h"
#include "server/process/packet.h"

enum { FLOODERS = 40, REQUESTS = 20, ROUND_REQUESTS = 4 };

static struct front front;
static struct config config;
static uint64_t now_ns;

static uint64_t clock_of_the_test(void) {
    return now_ns += TURNS_NS / ROUND_REQUESTS;
}

static void begin(void) {
    struct fault fault;
    log_init(LOG_LEVEL_ERROR, "test");
    config_init(&config);
    front.config = &config;
    uv_loop_init(&front.loop);
    LIST_INIT(&front.controls.head);
    roster_init(&front.roster);
    front.roster.places = 1024;
    turns_init(&front.turns, &front.loop);
    front.turns.budget.clock = clock_of_the_test;
    farewell_list_init(&front.farewells, &front.loop);
    handshakes_init(&front.handshakes, &front.loop);
    cr_assert_eq(login_init(&front.login, &front.loop, &config, &fault), STATUS_OK);
}

static void end(void) {
    control_list_finish(&front.controls);
    turns_finish(&front.turns);
    login_finish(&front.login);
    handshakes_finish(&front.handshakes);
    farewell_list_finish(&front.farewells);
    uv_run(&front.loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&front.loop), 0, "a handle was left");
    roster_finish(&front.roster);
}

TestSuite(control, .init = begin, .fini = end, .timeout = 60);

/* ---- clients ---- */

static void ask(int fd, enum frame_type type, const ProtobufCMessage *message, unsigned times) {
    uint8_t *bytes = NULL;
    size_t n = 0;
    for (unsigned i = 0; i < times; i++)
        cr_assert_eq(packet_append(&bytes, &n, type, i, message), STATUS_OK);
    cr_assert_eq(write(fd, bytes, n), (ssize_t)n);
    free(bytes);
}

static void ping(int fd, unsigned times) {
    Tensord__Ping message = TENSORD__PING__INIT;
    ask(fd, FRAME_PING, &message.base, times);
}

/* A connection of this principal; returns the client's end. */
static int dial(const char *name) {
    struct peer peer = {.address = "here", .principal = {.role = ROLE_OBSERVE}};
    struct roster_entry *entry;
    struct fault fault;
    int ends[2];
    snprintf(peer.principal.name, sizeof peer.principal.name, "%s", name);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    cr_assert_eq(roster_join(&front.roster, name, NULL, &entry, &fault), STATUS_OK);
    control_start(&front, ends[1], &peer, entry, false);
    return ends[0];
}

static void say_hello(int fd) {
    Tensord__Hello hello = TENSORD__HELLO__INIT;
    hello.version_min = PROTOCOL_VERSION_MIN;
    hello.version_max = PROTOCOL_VERSION_MAX;
    hello.client = (char *)"test";
    ask(fd, FRAME_HELLO, &hello.base, 1);
}

/* How many replies have come. They have only a header, if `message_bytes` is 0. */
static unsigned replies(int fd) {
    uint8_t bytes[FRAME_HEADER_BYTES];
    unsigned count = 0;
    for (; read(fd, bytes, sizeof bytes) == (ssize_t)sizeof bytes; count++) {
        uint8_t message[4096];
        struct frame_header header;
        struct fault fault;
        cr_assert_eq(frame_header_decode(bytes, sizeof message, 0, &header, &fault), STATUS_OK, "%s", fault.message);
        cr_assert_neq(header.type, FRAME_ERROR);
        cr_assert_eq(read(fd, message, header.message_bytes), (ssize_t)header.message_bytes);
    }
    return count;
}

static void one_round(void) {
    uv_run(&front.loop, UV_RUN_NOWAIT);
}

static int open_one(const char *name) {
    int fd = dial(name);
    say_hello(fd);
    for (unsigned welcomes = 0; !welcomes; welcomes = replies(fd))
        one_round();
    return fd;
}

static void flood(int fds[FLOODERS]) {
    for (int i = 0; i < FLOODERS; i++)
        fds[i] = open_one("flooder");
    for (int i = 0; i < FLOODERS; i++)
        ping(fds[i], REQUESTS);
    one_round(); /* which sees that they are there */
}

static unsigned all_replies(const int fds[FLOODERS]) {
    unsigned count = 0;
    for (int i = 0; i < FLOODERS; i++)
        count += replies(fds[i]);
    return count;
}

static void hang_up(const int fds[FLOODERS]) {
    for (int i = 0; i < FLOODERS; i++)
        close(fds[i]);
}

/* ---- what is shown ---- */

Test(control, a_round_answers_no_more_than_its_time_allows) {
    int fds[FLOODERS];
    unsigned answered = 0;
    flood(fds);
    while (answered < FLOODERS * REQUESTS) {
        one_round();
        unsigned now = all_replies(fds);
        cr_assert(now <= ROUND_REQUESTS, "%u requests were answered in a round", now);
        answered += now;
    }
    hang_up(fds);
}

Test(control, another_principal_is_answered_after_one_request_of_the_flooder) {
    enum { ASKED = 5 };
    int fds[FLOODERS], other = open_one("other");
    unsigned answered = 0, before = 0;
    flood(fds);
    ping(other, ASKED);
    one_round(); /* which sees that they are there */
    all_replies(fds);
    while (answered < ASKED) {
        one_round();
        before += all_replies(fds);
        answered += replies(other);
    }
    cr_assert(before <= ASKED + ROUND_REQUESTS, "%u requests of the flooder came before %d of the other one", before,
              ASKED);
    hang_up(fds);
    close(other);
}

Test(control, a_hello_waits_for_nobody_s_requests) {
    int fds[FLOODERS], other;
    flood(fds);
    other = dial("other");
    say_hello(other);
    one_round();
    cr_assert_eq(replies(other), 1, "Welcome has come in the same round");
    hang_up(fds);
    close(other);
}
