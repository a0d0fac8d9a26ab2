/* Very many sessions, and very slow clients: those that the limits allow are served, the next one is told why not, and
 * nobody spins. Short of descriptors, the numbers are smaller, and the test says so. */
#include <criterion/criterion.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/status.h"
#include "tests/daemon/wire.h"
#include "tests/load/soak/length.h"

enum { BESIDE = 512, READERS = 100, ROUNDS = 5, COMES_BACK_MS = 20000, WATCH_MS = 1500 };

static const unsigned long long MEBIBYTE = 1 << 20;

static struct daemon tensord;

static void stop(void) {
    daemon_kill(&tensord);
}

TestSuite(crowd, .fini = stop);

/* ---- idle and active connections ---- */

/* The active ones have sessions of cpu:0, the idle ones of the devices after it, so many of each. */
enum { DEVICE_SESSIONS = 1000, DEVICES_TEXT = 128 };

struct crowd {
    struct wire *idle, *active;
    unsigned n_idle, n_active;
};

/* This process needs a descriptor for each, and a worker for its own. */
static unsigned descriptors_for(unsigned wanted) {
    struct rlimit limit;
    cr_assert(!getrlimit(RLIMIT_NOFILE, &limit));
    if (limit.rlim_max < wanted + BESIDE) {
        struct rlimit more = {wanted + BESIDE, wanted + BESIDE};
        if (setrlimit(RLIMIT_NOFILE, &more)) /* only root may */
            fprintf(stderr, "%lu descriptors are allowed: not %u connections\n", (unsigned long)limit.rlim_max, wanted);
        else
            limit = more;
    }
    limit.rlim_cur = limit.rlim_max;
    cr_assert(!setrlimit(RLIMIT_NOFILE, &limit));
    return limit.rlim_max < wanted + BESIDE ? (unsigned)limit.rlim_max - BESIDE : wanted;
}

static const char *crowd_devices(unsigned idle, char text[DEVICES_TEXT]) {
    int n = snprintf(text, DEVICES_TEXT, "cpu:0");
    for (unsigned i = 0; i * DEVICE_SESSIONS < idle; i++)
        n += snprintf(text + n, DEVICES_TEXT - (size_t)n, ",cpu:%u", i + 1);
    return text;
}

static void crowd_start(struct crowd *crowd) {
    static char connections[16], sessions[16], devices[DEVICES_TEXT];
    unsigned idle = soak_is_long() ? 10000 : 1000, active = soak_is_long() ? 1000 : 100;
    unsigned possible = descriptors_for(idle + active);
    if (possible < idle + active) {
        active = possible / 11;
        idle = possible - active;
    }
    *crowd = (struct crowd){.n_idle = idle, .n_active = active};
    crowd->idle = calloc(idle, sizeof *crowd->idle);
    crowd->active = calloc(active, sizeof *crowd->active);
    cr_assert(crowd->idle && crowd->active);
    snprintf(connections, sizeof connections, "%u", idle + active);
    snprintf(sessions, sizeof sessions, "%u", DEVICE_SESSIONS);
    daemon_start(&tensord, &(struct daemon_options){.devices = crowd_devices(idle, devices),
                                                    .flags = (const char *const[]){
                                                        "--max-connections", connections, "--max-sessions", sessions,
                                                        "--threads", "1", "--log-level", "warning", NULL}});
}

/* Each has a session, and says nothing more: without one it would give its place up to those that come. */
static void crowd_idle(struct crowd *crowd) {
    for (unsigned i = 0; i < crowd->n_idle; i++)
        wire_open(&crowd->idle[i], tensord.url, (uint16_t)(DAEMON_TARGET_CPU1 + i / DEVICE_SESSIONS));
}

/* All of them at once, each with a session, ask and are answered. */
static void crowd_round(struct crowd *crowd, uint64_t round) {
    Tensord__Fetch fetch = TENSORD__FETCH__INIT;
    for (unsigned i = 0; i < crowd->n_active; i++) {
        struct wire *wire = &crowd->active[i];
        fetch.id = 1 + round;
        cr_assert(wire_full(wire, fetch.id, fetch.id, 4, (double)(i + round)));
        cr_assert(wire_request(wire, FRAME_FETCH, &fetch));
    }
    for (unsigned i = 0; i < crowd->n_active; i++) {
        struct wire_frame frame;
        cr_assert_eq(wire_receive(&crowd->active[i], &frame, 60000), WIRE_FRAME, "connection %u: no answer", i);
        cr_assert_eq(frame.header.type, FRAME_FETCH_CHUNK);
        cr_assert_eq(((float *)(void *)frame.payload)[3], (float)(i + round), "connection %u: another's answer", i);
        wire_frame_finish(&frame);
    }
}

/* One more is told what the limit is, and those that are there do not notice. */
static void crowd_refuses(const struct crowd *crowd) {
    struct wire wire;
    char message[256] = "", figure[16];
    cr_assert(wire_dial(&wire, tensord.url));
    wire_preamble(&wire, DAEMON_TARGET_CPU0);
    int code = wire_until_closed(&wire, 10000, message);
    cr_assert_eq(code, STATUS_LIMIT, "one too many gets %d (-1: is kept) %s", code, message);
    snprintf(figure, sizeof figure, "%u", crowd->n_idle + crowd->n_active);
    cr_assert(strstr(message, figure) && strstr(message, "max-connections"), "%s", message);
    wire_close(&wire);
}

static void crowd_is_quiet(pid_t worker) {
    pid_t pids[] = {tensord.pid, worker};
    for (int i = 0; i < 2; i++) {
        unsigned long long before = daemon_process_cpu_ms(pids[i]);
        poll(NULL, 0, WATCH_MS); /* not to wait for something, but to measure over a span */
        unsigned long long spent = daemon_process_cpu_ms(pids[i]) - before;
        cr_assert_lt(spent, WATCH_MS / 3, "process %d spent %llu of %d ms on idle connections", i, spent, WATCH_MS);
    }
}

/* The front learns from its workers who has gone. Some at once, for one alone would be in its own way. */
static void there_is_room_again(void) {
    enum { AT_ONCE = 8 };
    int64_t deadline = deadline_in(COMES_BACK_MS);
    td_connection *connections[AT_ONCE];
    int n = 0;
    while (n < AT_ONCE) {
        if (!td_connect(tensord.url, NULL, &connections[n]))
            n++;
        else
            cr_assert(deadline_pause(deadline), "no room after the others went: %s", td_last_error()->message);
    }
    while (n > 0)
        td_close(connections[--n]);
}

Test(crowd, idle_and_active_connections_up_to_the_limit) {
    struct crowd crowd;
    crowd_start(&crowd);
    pid_t worker = status_worker_pid(tensord.url, "cpu:1");
    unsigned long long before = daemon_process_rss(worker);
    crowd_idle(&crowd);
    for (unsigned i = 0; i < crowd.n_active; i++)
        wire_open(&crowd.active[i], tensord.url, DAEMON_TARGET_CPU0);
    for (unsigned round = 0; round < ROUNDS; round++)
        crowd_round(&crowd, round);
    crowd_refuses(&crowd);
    crowd_is_quiet(worker);
    crowd_round(&crowd, ROUNDS);
    unsigned here = crowd.n_idle < DEVICE_SESSIONS ? crowd.n_idle : DEVICE_SESSIONS;
    fprintf(stderr, "%u idle connections: %u of them cost their worker %llu KiB each\n", crowd.n_idle, here,
            (daemon_process_rss(worker) - before) / 1024 / here);
    for (unsigned i = 0; i < crowd.n_idle; i++)
        wire_close(&crowd.idle[i]);
    for (unsigned i = 0; i < crowd.n_active; i++)
        wire_close(&crowd.active[i]);
    there_is_room_again();
    cr_assert(status_settles(tensord.url, &(struct status_baseline){.device = "cpu:0"}, COMES_BACK_MS));
    free(crowd.idle);
    free(crowd.active);
    daemon_stop(&tensord);
}

/* ---- descriptors ---- */

Test(crowd, with_128_descriptors_the_front_waits_without_spinning) {
    enum { FILES = 128, WAITING = 200 };
    static struct wire wires[WAITING];
    struct client client;
    daemon_start(&tensord, &(struct daemon_options){.files_max = FILES,
                                                    .flags = (const char *const[]){"--hello-timeout", "3600s", NULL}});
    client_open(&client, tensord.url, NULL);
    /* They say nothing, so that the front has to keep them; the backlog of its socket takes those it has no room for. */
    for (int i = 0; i < WAITING; i++)
        cr_assert(wire_dial(&wires[i], tensord.url), "connection %d", i);
    unsigned long long before = daemon_process_cpu_ms(tensord.pid);
    poll(NULL, 0, WATCH_MS);
    unsigned long long spent = daemon_process_cpu_ms(tensord.pid) - before;
    cr_assert_lt(spent, WATCH_MS / 3, "the front used %llu of %d ms", spent, WATCH_MS);
    client_expect(client_ramp(client.device, 2, 0), (float[]){0, 1}, 2);
    for (int i = 0; i < WAITING; i++)
        wire_close(&wires[i]);
    there_is_room_again();
    client_close(&client);
    daemon_stop(&tensord);
}

/* ---- clients that never read ---- */

Test(crowd, a_hundred_clients_that_never_read_cost_bounded_memory) {
    enum { TENSOR = 1 << 20, FETCHES = 64 }; /* of each: 64 MiB, where a session may have 2 on its way */
    static struct wire wires[READERS];
    struct client client;
    daemon_start(&tensord,
                 &(struct daemon_options){.flags = (const char *const[]){"--session-out-bytes", "2M", "--threads", "1",
                                                                         "--log-level", "warning", NULL}});
    pid_t worker = status_worker_pid(tensord.url, "cpu:0");
    struct status_baseline baseline = status_baseline_of(tensord.url, "cpu:0");
    for (int i = 0; i < READERS; i++) {
        wire_open(&wires[i], tensord.url, DAEMON_TARGET_CPU0);
        cr_assert(wire_full(&wires[i], 1, 1, TENSOR / 4, i));
    }
    client_open(&client, tensord.url, NULL);
    client_expect(client_ramp(client.device, 2, 0), (float[]){0, 1}, 2); /* after all of the tensors */
    unsigned long long before = daemon_process_rss(worker);
    for (int i = 0; i < READERS; i++) {
        Tensord__Fetch fetch = TENSORD__FETCH__INIT;
        fetch.id = 1;
        for (int k = 0; k < FETCHES; k++)
            cr_assert(wire_request(&wires[i], FRAME_FETCH, &fetch));
    }
    for (int i = 0; i < 50; i++)
        client_expect(client_ramp(client.device, 3, (float)i), (float[]){(float)i, (float)i + 1, (float)i + 2}, 3);
    unsigned long long grown = daemon_process_rss(worker) - before;
    fprintf(stderr, "%d clients that never read: the worker grew by %llu MiB\n", READERS, grown / MEBIBYTE);
    /* What a session may have on its way, and a chunk each beside it. */
    cr_assert_lt(grown, READERS * 4 * MEBIBYTE, "the worker grew by %llu MiB", grown / MEBIBYTE);
    for (int i = 0; i < READERS; i++)
        wire_close(&wires[i]);
    client_close(&client);
    cr_assert(status_settles(tensord.url, &baseline, COMES_BACK_MS), "memory was not given back");
    daemon_stop(&tensord);
}
