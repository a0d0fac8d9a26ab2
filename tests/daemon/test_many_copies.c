/* More copies between devices than fit: nobody waits for a copy, and none fails because there are many. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/status.h"

enum {
    DEVICES = 3,
    ROUNDS = 1800, /* of a session 1,024 copies may be under way; each device comes equally often (ring_check) */
    SESSIONS = 4,
    PATIENCE_MS = 60000,
};

_Static_assert(ROUNDS % (2 * DEVICES) == 0, "rings of two and of three devices come round");

static const char *const names[DEVICES] = {"cpu:0", "cpu:1", "cpu:2"};
static struct daemon tensord;

static void start(void) {
    daemon_start(&tensord, &(struct daemon_options){.devices = "cpu:0,cpu:1,cpu:2"});
}

static void stop(void) {
    daemon_stop(&tensord);
}

TestSuite(many_copies, .init = start, .fini = stop, .timeout = 240);

/* A client's tensors, one on each device, which go round. */
struct ring {
    td_connection *connection;
    unsigned n;
    td_device *devices[DEVICES];
    td_tensor *at[DEVICES], *step[DEVICES];
};

static void ring_open(struct ring *ring, unsigned n) {
    *ring = (struct ring){.n = n};
    cr_assert(!td_connect(tensord.url, NULL, &ring->connection), "%s", td_last_error()->message);
    for (unsigned i = 0; i < n; i++) {
        cr_assert(!td_device_open(ring->connection, names[i], &ring->devices[i]), "%s", td_last_error()->message);
        ring->at[i] = td_full(ring->devices[i], TD_F32, TD_SHAPE(2), i);
        ring->step[i] = td_full(ring->devices[i], TD_F32, TD_SHAPE(2), i + 1);
    }
}

/* Whether a call has to be made again, because a send queue is full. */
static bool is_full(const struct ring *ring) {
    if (td_last_error()->code != TD_E_AGAIN)
        return false;
    for (unsigned i = 0; i < ring->n; i++)
        cr_assert(!td_wait_room(ring->devices[i], PATIENCE_MS), "%s", td_last_error()->message);
    return true;
}

static td_tensor *ring_copy(const struct ring *ring, td_tensor *tensor, td_device *device) {
    td_tensor *copy;
    while (!(copy = td_copy_to(tensor, device)) && is_full(ring))
        continue;
    cr_assert_not_null(copy, "%s", td_last_error()->message);
    return copy;
}

/* Each tensor goes to the next device, where that device's step is added. */
static void ring_turn(struct ring *ring) {
    td_tensor *next[DEVICES];
    for (unsigned i = 0; i < ring->n; i++) {
        unsigned to = (i + 1) % ring->n;
        td_tensor *copy = ring_copy(ring, ring->at[i], ring->devices[to]);
        while (!(next[to] = td_add(copy, ring->step[to])) && is_full(ring))
            continue;
        cr_assert_not_null(next[to], "%s", td_last_error()->message);
        td_release(copy);
    }
    for (unsigned i = 0; i < ring->n; i++) {
        td_release(ring->at[i]);
        ring->at[i] = next[i];
    }
}

/* `rounds` is a multiple of the number of devices: each tensor has been everywhere equally often. */
static void ring_check(struct ring *ring, unsigned rounds) {
    unsigned sum = ring->n * (ring->n + 1) / 2, circles = rounds / ring->n;
    for (unsigned i = 0; i < ring->n; i++) {
        float value = (float)(i + circles * sum);
        client_expect(ring->at[i], (float[]){value, value}, 2);
    }
}

static void ring_close(struct ring *ring) {
    td_close(ring->connection);
}

static void go_round(unsigned devices) {
    struct ring ring;
    ring_open(&ring, devices);
    for (unsigned i = 0; i < ROUNDS; i++)
        ring_turn(&ring);
    ring_check(&ring, ROUNDS);
    ring_close(&ring);
}

Test(many_copies, in_both_directions) {
    go_round(2);
}

Test(many_copies, in_a_ring_of_three_devices) {
    go_round(3);
}

Test(many_copies, of_several_sessions) {
    struct ring rings[SESSIONS];
    for (unsigned s = 0; s < SESSIONS; s++)
        ring_open(&rings[s], 2);
    for (unsigned i = 0; i < ROUNDS; i++)
        for (unsigned s = 0; s < SESSIONS; s++)
            ring_turn(&rings[s]);
    for (unsigned s = 0; s < SESSIONS; s++) {
        ring_check(&rings[s], ROUNDS);
        ring_close(&rings[s]);
    }
}

/* Copies of one tensor to another device; the last one and some between are looked at. */
static void send_many(struct ring *ring, td_tensor **copies) {
    for (unsigned i = 0; i < ROUNDS; i++)
        copies[i] = ring_copy(ring, ring->step[0], ring->devices[1]);
}

static void check_many(td_tensor *const *copies) {
    for (unsigned i = 0; i < ROUNDS; i += 100)
        client_expect(copies[i], (float[]){1, 1}, 2);
    client_expect(copies[ROUNDS - 1], (float[]){1, 1}, 2);
}

Test(many_copies, in_one_direction) {
    td_tensor *copies[ROUNDS];
    struct ring ring;
    ring_open(&ring, 2);
    send_many(&ring, copies);
    check_many(copies);
    ring_close(&ring);
}

/* The source, or the destination, stands still while they are enqueued: then the other side comes first for all. */
static void send_to_sleeper(const char *name) {
    pid_t worker = status_worker_pid(tensord.url, name);
    td_tensor *copies[ROUNDS];
    struct ring ring;
    ring_open(&ring, 2);
    cr_assert(!td_sync(ring.devices[0]) && !td_sync(ring.devices[1]));
    kill(worker, SIGSTOP);
    send_many(&ring, copies);
    kill(worker, SIGCONT);
    check_many(copies);
    for (unsigned i = 0; i < 30; i++)
        ring_turn(&ring);
    ring_check(&ring, 30);
    ring_close(&ring);
}

Test(many_copies, to_a_worker_that_stands_still) {
    send_to_sleeper("cpu:1");
}

Test(many_copies, from_a_worker_that_stands_still) {
    send_to_sleeper("cpu:0");
}

/* A client that ends by itself, with everything it has enqueued on its way, once there is something to read from the pipe. */
static int die(void *argument) {
    struct ring dying = {0}, *ring = &dying;
    const int *begin = argument;
    char byte;
    if (read(begin[0], &byte, 1) != 1 || td_connect(tensord.url, NULL, &ring->connection))
        return 1;
    for (unsigned i = 0; i < 2; i++) {
        if (td_device_open(ring->connection, names[i], &ring->devices[i]))
            return 2;
        ring->at[i] = td_full(ring->devices[i], TD_F32, TD_SHAPE(2), 1);
    }
    for (unsigned i = 0; i < 900; i++) {
        td_tensor *a = td_copy_to(ring->at[1], ring->devices[0]), *b = td_copy_to(ring->at[0], ring->devices[1]);
        if (!a || !b)
            return 3;
        ring->at[0] = a;
        ring->at[1] = b;
    }
    raise(SIGKILL);
    return 4;
}

/* The processes are made before this one has other threads: those would hold locks, at times, that nobody opens in a child. */
Test(many_copies, of_clients_that_die_leave_room) {
    struct ring ring;
    int begin[SESSIONS][2];
    pid_t pids[SESSIONS];
    for (unsigned i = 0; i < SESSIONS; i++) {
        cr_assert(!pipe(begin[i]));
        pids[i] = client_fork(die, begin[i]);
    }
    ring_open(&ring, 2);
    for (unsigned i = 0; i < SESSIONS; i++) {
        for (unsigned k = 0; k < 100; k++)
            ring_turn(&ring);
        cr_assert(write(begin[i][1], "", 1) == 1);
        cr_assert_eq(client_join(pids[i], PATIENCE_MS), 128 + SIGKILL);
    }
    for (unsigned k = 0; k < ROUNDS - SESSIONS * 100; k++)
        ring_turn(&ring);
    ring_check(&ring, ROUNDS);
    ring_close(&ring);
}
