/* Connections that are on their way from the front to a worker when that one dies or hangs. */
#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/status.h"
#include "tests/daemon/wire.h"

static struct daemon tensord;

static void stop(void) {
    daemon_stop(&tensord);
}

TestSuite(handover, .fini = stop, .timeout = 120);

static void say_hello(struct wire *wire) {
    Tensord__Hello hello = TENSORD__HELLO__INIT;
    hello.version_min = hello.version_max = PROTOCOL_VERSION_MAX;
    hello.client = "tests 1";
    cr_assert(wire_request(wire, FRAME_HELLO, &hello));
}

/* `n` connections in the hands of a worker that stands still. */
static int hand_over_to_a_stopped_worker(struct wire *wires, int n) {
    int worker = status_worker_pid(tensord.url, "cpu:0");
    kill(worker, SIGSTOP);
    for (int i = 0; i < n; i++) {
        wire_connect(&wires[i], tensord.url, DAEMON_TARGET_CPU0);
        say_hello(&wires[i]);
    }
    /* The front takes connections in their order: what came before this one has been handed over. */
    status_free(status_get(tensord.url));
    return worker;
}

static uint64_t welcome_epoch(struct wire *wire) {
    struct wire_frame frame;
    cr_assert_eq(wire_receive(wire, &frame, WIRE_TIMEOUT_MS), WIRE_FRAME, "no answer to Hello");
    cr_assert_eq(frame.header.type, FRAME_WELCOME, "Hello was answered by %s", frame_type_name(frame.header.type));
    Tensord__Welcome *welcome = tensord__welcome__unpack(NULL, frame.header.message_bytes, frame.message);
    cr_assert_not_null(welcome);
    uint64_t epoch = welcome->epoch;
    tensord__welcome__free_unpacked(welcome, NULL);
    wire_frame_finish(&frame);
    return epoch;
}

/* More than the channel to the worker holds at once. */
Test(handover, next_worker_serves_what_a_dead_one_had_not_taken) {
    enum { N = 200 };
    struct wire wires[N];
    daemon_start(&tensord, NULL);
    kill(hand_over_to_a_stopped_worker(wires, N), SIGKILL);
    for (int i = 0; i < N; i++) {
        cr_assert_eq(welcome_epoch(&wires[i]), 2);
        cr_assert(wire_ping(&wires[i]));
        wire_close(&wires[i]);
    }
}

Test(handover, quarantined_device_s_clients_are_told) {
    struct wire wire;
    char message[256] = "";
    daemon_start(&tensord, &(struct daemon_options){.flags = (const char *const[]){"--quarantine-after", "1", NULL}});
    kill(hand_over_to_a_stopped_worker(&wire, 1), SIGKILL);
    cr_assert_eq(wire_until_closed(&wire, WIRE_TIMEOUT_MS, message), STATUS_DEVICE_LOST);
    cr_assert(strstr(message, "quarantine"), "%s", message);
    wire_close(&wire);
}

Test(handover, clients_of_a_worker_that_comes_back_by_itself_are_served_once) {
    enum { N = 20 };
    struct wire wires[N];
    daemon_start(&tensord, NULL);
    kill(hand_over_to_a_stopped_worker(wires, N), SIGCONT);
    for (int i = 0; i < N; i++) {
        cr_assert_eq(welcome_epoch(&wires[i]), 1);
        cr_assert(wire_ping(&wires[i]));
    }
    for (int i = 0; i < N; i++)
        wire_close(&wires[i]);
}

/* Twice as many would be over the limit, and status would be refused. */
Test(handover, connections_on_their_way_count_once) {
    enum { N = 12 };
    struct wire wires[N];
    daemon_start(&tensord, &(struct daemon_options){.flags = (const char *const[]){"--max-connections", "16", NULL}});
    int worker = hand_over_to_a_stopped_worker(wires, N);
    status_free(status_get(tensord.url));
    kill(worker, SIGKILL);
    for (int i = 0; i < N; i++)
        cr_assert_eq(welcome_epoch(&wires[i]), 2);
    status_free(status_get(tensord.url));
    for (int i = 0; i < N; i++)
        wire_close(&wires[i]);
}

Test(handover, drain_ends_what_a_stopped_worker_had_not_taken) {
    struct wire wire;
    daemon_start(&tensord, &(struct daemon_options){.flags = (const char *const[]){"--drain-timeout", "0", NULL}});
    hand_over_to_a_stopped_worker(&wire, 1);
    kill(tensord.pid, SIGTERM);
    cr_assert_geq(wire_until_closed(&wire, WIRE_TIMEOUT_MS, NULL), 0);
    wire_close(&wire);
    cr_assert_eq(daemon_wait(&tensord, 30000), 0);
    daemon_gone(&tensord);
}
