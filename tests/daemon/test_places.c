/* A daemon whose places are all taken (max-connections), sessions that come back to it, and connections that make room
 * because they have said nothing. */
#include <criterion/criterion.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/proxy.h"
#include "tests/daemon/status.h"
#include "tests/daemon/users.h"

enum { PLACES = 6, BESIDE = 32 /* as in server/front/places.h */ };

static struct daemon tensord;
static struct proxy proxy;
static bool proxied;

static void start_places(const char *places, const char *lease, const char *hello) {
    daemon_start(&tensord,
                 &(struct daemon_options){.flags = (const char *const[]){"--max-connections", places, "--session-lease",
                                                                         lease, "--hello-timeout", hello, NULL}});
}

static void start_with(const char *lease, const char *hello) {
    start_places("6", lease, hello);
}

static void stop(void) {
    if (proxied)
        proxy_stop(&proxy);
    daemon_stop(&tensord);
}

TestSuite(places, .fini = stop, .timeout = 60);

/* Connections of no special kind until one is refused; how many were not. */
static unsigned fill(struct wire wires[PLACES]) {
    char message[256] = "";
    unsigned n = 0;
    int code = STATUS_OK;
    while (n < PLACES && !(code = users_open(&wires[n], tensord.url, DAEMON_TARGET_CPU0, "", message)))
        n++;
    if (n < PLACES)
        cr_assert(code == STATUS_LIMIT && strstr(message, "max-connections"), "%d %s", code, message);
    return n;
}

static void empty(struct wire wires[], unsigned n) {
    for (unsigned i = 0; i < n; i++)
        wire_close(&wires[i]);
}

/* Full again, when those that were there a moment ago are gone for the front, too. */
static unsigned fill_up(struct wire wires[PLACES], unsigned expected) {
    int64_t deadline = deadline_in(10000);
    unsigned n;
    while ((n = fill(wires)) < expected && deadline_pause(deadline))
        empty(wires, n);
    return n;
}

/* ---- by hand ---- */

struct pass {
    uint64_t session, epoch;
    uint8_t secret[16];
};

/* A connection whose preamble says that it comes back. */
static void dial_back(struct wire *wire, uint16_t target) {
    uint8_t preamble[PREAMBLE_BYTES];
    preamble_encode(target, preamble);
    preamble_set_resumes(preamble);
    cr_assert(wire_dial(wire, tensord.url));
    wire_write(wire, preamble, sizeof preamble);
}

static void hello(struct wire *wire, const struct pass *pass) {
    Tensord__Hello message = TENSORD__HELLO__INIT;
    message.version_min = message.version_max = PROTOCOL_VERSION_MAX;
    message.client = "tests 1";
    message.resumable = true;
    if (pass) {
        message.resume_session = pass->session;
        message.resume_epoch = pass->epoch;
        message.resume_secret = (ProtobufCBinaryData){sizeof pass->secret, (uint8_t *)(uintptr_t)pass->secret};
    }
    wire_request(wire, FRAME_HELLO, &message);
}

static struct pass welcome(struct wire *wire) {
    struct wire_frame frame;
    cr_assert_eq(wire_receive(wire, &frame, WIRE_TIMEOUT_MS), WIRE_FRAME);
    cr_assert_eq(frame.header.type, FRAME_WELCOME, "%s", frame_type_name(frame.header.type));
    Tensord__Welcome *message = tensord__welcome__unpack(NULL, frame.header.message_bytes, frame.message);
    cr_assert_not_null(message);
    struct pass pass = {.session = message->session, .epoch = message->epoch};
    cr_assert_eq(message->resume_secret.len, sizeof pass.secret);
    memcpy(pass.secret, message->resume_secret.data, sizeof pass.secret);
    tensord__welcome__free_unpacked(message, NULL);
    wire_frame_finish(&frame);
    return pass;
}

static struct pass open_session(struct wire *wire) {
    wire_connect(wire, tensord.url, DAEMON_TARGET_CPU0);
    hello(wire, NULL);
    return welcome(wire);
}

/* What one that says it comes back, and presents this, is told. */
static int refusal(const struct pass *pass, uint16_t target, char message[256]) {
    struct wire wire;
    dial_back(&wire, target);
    hello(&wire, pass);
    int code = wire_until_closed(&wire, WIRE_TIMEOUT_MS, message);
    wire_close(&wire);
    return code;
}

static bool is_detached(const Tensord__Status *status, const void *none) {
    (void)none;
    return status->n_sessions == 1 && status->sessions[0]->detached;
}

/* ---- those who come back ---- */

Test(places, client_comes_back_to_a_daemon_that_others_have_filled) {
    td_options options = {.reconnect_ms = 5000};
    struct client client;
    struct wire wires[PLACES];
    td_link link;
    start_with("60s", "5s");
    proxy_start(&proxy, tensord.url, 1);
    proxied = true;
    cr_assert(!td_connect(proxy.url, &options, &client.connection));
    cr_assert(!td_device_open(client.connection, "cpu:0", &client.device));
    td_tensor *x = client_ramp(client.device, 3, 1);
    cr_assert(!td_wait(x));
    proxy.shut = true;
    proxy_cut(&proxy);
    status_until(tensord.url, is_detached, NULL, 5000);
    unsigned n = fill_up(wires, PLACES - 2);
    proxy.shut = false;
    client_expect(x, (float[]){1, 2, 3}, 3);
    cr_assert(!td_device_link(client.device, &link));
    cr_assert(link.connected && link.reconnects == 1);
    cr_assert_eq(n, PLACES - 2, "one place was kept, and one is the client's control connection's");
    empty(wires, n);
    client_close(&client);
}

/* The client knows before the daemon that its connection is dead. */
Test(places, session_whose_end_was_not_noticed_is_come_back_to) {
    struct wire wires[PLACES], old, fresh;
    float got[3] = {0};
    start_with("60s", "5s");
    struct pass pass = open_session(&old);
    cr_assert(wire_full(&old, 1, 1, 3, 7) && wire_ping(&old));
    cr_assert_eq(fill_up(wires, PLACES - 1), PLACES - 1);
    dial_back(&fresh, DAEMON_TARGET_CPU0);
    hello(&fresh, &pass);
    cr_assert_eq(welcome(&fresh).session, pass.session);
    cr_assert_eq(wire_fetch(&fresh, 1, got, sizeof got, NULL), STATUS_OK);
    cr_assert_eq(got[2], 7);
    empty(wires, PLACES - 1);
    cr_assert_eq(fill_up(wires, PLACES - 1), PLACES - 1, "it has one place, as before");
    empty(wires, PLACES - 1);
    wire_close(&old), wire_close(&fresh);
}

Test(places, place_is_free_when_the_lease_is_over) {
    struct wire wires[PLACES], wire;
    start_with("4s", "5s");
    open_session(&wire);
    wire_close(&wire);
    status_until(tensord.url, is_detached, NULL, 3500);
    unsigned n = fill(wires);
    cr_assert_leq(n, PLACES - 1, "one place was kept");
    empty(wires, n);
    cr_assert_eq(fill_up(wires, PLACES), PLACES);
    empty(wires, PLACES);
}

/* ---- those who only say so ---- */

Test(places, whoever_says_so_without_a_session_is_refused) {
    struct wire wires[PLACES], back;
    char message[256] = "";
    struct pass nobody = {.session = 77, .epoch = 1};
    start_with("60s", "5s");
    struct pass pass = open_session(&back), wrong = pass;
    wrong.secret[3] ^= 1;
    cr_assert_eq(fill_up(wires, PLACES - 1), PLACES - 1);
    /* More often than there are places for it: each refusal gives its place back. */
    for (int i = 0; i < BESIDE + 8; i++) {
        cr_assert_eq(refusal(NULL, DAEMON_TARGET_CPU0, message), STATUS_LIMIT, "%s", message);
        cr_assert(strstr(message, "max-connections"), "%s", message);
    }
    cr_assert_eq(refusal(&nobody, DAEMON_TARGET_CPU0, message), STATUS_DEVICE_LOST, "%s", message);
    cr_assert_eq(refusal(&wrong, DAEMON_TARGET_CPU0, message), STATUS_DENIED, "%s", message);
    cr_assert(wire_ping(&back));
    empty(wires, PLACES - 1);
    cr_assert_eq(fill_up(wires, PLACES - 1), PLACES - 1, "and takes nobody else's");
    empty(wires, PLACES - 1);
    wire_close(&back);
}

Test(places, silent_ones_that_say_so_keep_nobody_out_and_go) {
    struct wire wires[PLACES], silent[BESIDE], wire;
    char message[256] = "";
    start_with("60s", "1s");
    struct pass pass = open_session(&wire);
    cr_assert_eq(fill_up(wires, PLACES - 1), PLACES - 1);
    for (int i = 0; i < BESIDE; i++)
        dial_back(&silent[i], DAEMON_TARGET_CPU0);
    int64_t deadline = deadline_in(5000);
    struct wire back;
    bool there = false;
    do {
        struct wire_frame frame;
        dial_back(&back, DAEMON_TARGET_CPU0);
        hello(&back, &pass);
        if (wire_receive(&back, &frame, WIRE_TIMEOUT_MS) == WIRE_FRAME) {
            there = frame.header.type == FRAME_WELCOME;
            wire_frame_finish(&frame);
        }
        if (!there)
            wire_close(&back);
    } while (!there && deadline_pause(deadline));
    cr_assert(there, "it is kept out");
    for (int i = 0; i < BESIDE; i++) {
        int code = wire_until_closed(&silent[i], 5000, message);
        cr_assert(code == STATUS_TIMED_OUT || code == STATUS_LIMIT, "%d %s", code, message);
        wire_close(&silent[i]);
    }
    wire_close(&back), wire_close(&wire);
    empty(wires, PLACES - 1);
}

/* Whether a connection comes back is told by its preamble, which may be a moment behind it, but no longer. */
Test(places, full_daemon_waits_for_a_preamble_but_not_for_long) {
    struct wire wires[PLACES], wire, late;
    char message[256] = "";
    start_with("60s", "30s");
    struct pass pass = open_session(&wire);
    cr_assert_eq(fill_up(wires, PLACES - 1), PLACES - 1);
    int64_t before = deadline_now();
    cr_assert(wire_dial(&late, tensord.url));
    cr_assert_eq(wire_until_closed(&late, 10000, message), STATUS_LIMIT, "%s", message);
    cr_assert_lt(deadline_now() - before, 15000, "it was waited for as others are");
    wire_close(&late);
    uint8_t preamble[PREAMBLE_BYTES];
    preamble_encode(DAEMON_TARGET_CPU0, preamble);
    preamble_set_resumes(preamble);
    cr_assert(wire_dial(&late, tensord.url));
    for (int i = 0; i < PREAMBLE_BYTES; i++) {
        poll(NULL, 0, 5); /* a byte at a time */
        cr_assert(wire_write(&late, preamble + i, 1));
    }
    hello(&late, &pass);
    cr_assert_eq(welcome(&late).session, pass.session);
    wire_close(&late), wire_close(&wire);
    empty(wires, PLACES - 1);
}

/* ---- those who say nothing ---- */

enum { OF_ONE_PEER = 8 /* of 64 places: as in server/front/places.h */ };

static void told_to_make_room(struct wire *wire) {
    char message[256] = "";
    int code = wire_until_closed(wire, WIRE_TIMEOUT_MS, message);
    cr_assert(code == STATUS_LIMIT && strstr(message, "no Hello had come"), "%d %s", code, message);
    wire_close(wire);
}

Test(places, beyond_a_peers_part_the_oldest_without_a_preamble_makes_room) {
    struct wire wires[OF_ONE_PEER + 2];
    start_places("64", "60s", "3600s");
    for (int i = 0; i < OF_ONE_PEER + 2; i++)
        cr_assert(wire_dial(&wires[i], tensord.url));
    told_to_make_room(&wires[0]);
    told_to_make_room(&wires[1]);
    cr_assert(wire_preamble(&wires[2], DAEMON_TARGET_CPU0));
    wire_hello(&wires[2]); /* the next one was let be */
    empty(wires + 2, OF_ONE_PEER);
}

Test(places, beyond_a_peers_part_the_oldest_without_hello_makes_room) {
    struct wire wires[OF_ONE_PEER], more;
    start_places("64", "60s", "3600s");
    for (int i = 0; i < OF_ONE_PEER; i++)
        wire_connect(&wires[i], tensord.url, DAEMON_TARGET_CPU0);
    /* Its Hello may be on its way for a moment, so it is let be until it is older than that. */
    int64_t deadline = deadline_in(WIRE_TIMEOUT_MS);
    do {
        cr_assert(wire_dial(&more, tensord.url));
        wire_close(&more);
    } while (!deadline_poll(wires[0].fd, POLLIN, deadline_in(10)) && deadline_now() < deadline);
    told_to_make_room(&wires[0]);
    empty(wires + 1, OF_ONE_PEER - 1);
}
