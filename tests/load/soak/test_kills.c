/* kill -9, of clients and of workers, again and again under load: what they had comes back. How long that takes is
 * reported, and asserted only to have an end. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/status.h"
#include "tests/load/soak/length.h"
#include "tests/load/soak/load.h"

enum { BRIEF = 8, LONG = 100, CLIENTS = 4, COMES_BACK_MS = 20000, KEPT = 1 << 20, BUSY_ROUNDS = 5 };

static struct daemon tensord;
static struct load_board *board;
static pid_t clients[CLIENTS];
static int times[LONG];

static void start(void) {
    daemon_start(&tensord, &(struct daemon_options){.devices = "cpu:0,cpu:1",
                                                    .flags = (const char *const[]){
                                                        "--threads", "1", "--quarantine-after", "0",
                                                        "--restart-backoff", "0ms", "--log-level", "error", NULL}});
    board = load_board_make(tensord.url);
}

static void stop(void) {
    daemon_kill(&tensord);
}

TestSuite(kills, .init = start, .fini = stop);

/* All of them on the device that is killed, and at work. */
static void clients_start(enum load_kind kind) {
    static const enum load_kind KINDS[CLIENTS] = {LOAD_UPLOAD, LOAD_CHAIN, LOAD_STREAMS, LOAD_UPLOAD};
    uint64_t before = board->rounds;
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = load_start(board, kind == LOAD_KINDS ? KINDS[i] : kind);
    int64_t deadline = deadline_in(COMES_BACK_MS);
    while (board->rounds < before + BUSY_ROUNDS)
        cr_assert(deadline_pause(deadline), "the clients do not get to work: %s", board->words);
}

static int compare(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

static void report(const char *what, int n) {
    qsort(times, (size_t)n, sizeof *times, compare);
    fprintf(stderr, "%d times kill -9 of %s: all is back after %d ms (median), %d ms (longest)\n", n, what,
            times[n / 2], times[n - 1]);
}

Test(kills, of_clients_give_back_all_that_they_had) {
    struct client keeper;
    int n = soak_is_long() ? LONG : BRIEF;
    client_open(&keeper, tensord.url, "cpu:0");
    td_tensor *kept = td_full(keeper.device, TD_U8, TD_SHAPE(KEPT), 7);
    cr_assert(!td_wait(kept));
    struct status_baseline baseline = {.device = "cpu:0", .live = KEPT, .sessions = 1};
    for (int i = 0; i < n; i++) {
        clients_start(LOAD_KINDS);
        for (int k = 0; k < CLIENTS; k++)
            kill(clients[k], SIGKILL);
        int64_t since = deadline_now();
        cr_assert(status_settles(tensord.url, &baseline, COMES_BACK_MS), "kill %d: bytes or sessions are kept", i);
        times[i] = (int)(deadline_now() - since);
        for (int k = 0; k < CLIENTS; k++)
            cr_assert(load_join(clients[k], true), "%s", board->words);
    }
    report("four clients at once", n);
    client_expect(td_cast(td_slice(kept, 0, 0, 2, 1), TD_F32), (float[]){7, 7}, 2);
    client_close(&keeper);
    daemon_stop(&tensord);
}

static bool is_empty_again(const Tensord__Status *status, const void *epoch) {
    const Tensord__DeviceStatus *device = status_device(status, "cpu:1");
    return device->epoch > *(const uint64_t *)epoch && !strcmp(device->device->state, "ready") &&
           device->memory_live == 0;
}

Test(kills, of_workers_take_nothing_else_along) {
    struct client bystander;
    int n = soak_is_long() ? LONG : BRIEF;
    client_open(&bystander, tensord.url, "cpu:0");
    td_tensor *kept = client_ramp(bystander.device, 3, 1);
    clients_start(LOAD_LOST); /* they connect anew each time */
    for (int i = 0; i < n; i++) {
        uint64_t epoch = status_epoch(tensord.url, "cpu:1"), rounds = board->rounds;
        kill(status_worker_pid(tensord.url, "cpu:1"), SIGKILL);
        int64_t since = deadline_now();
        status_until(tensord.url, is_empty_again, &epoch, COMES_BACK_MS);
        times[i] = (int)(deadline_now() - since);
        client_expect(kept, (float[]){1, 2, 3}, 3);
        int64_t deadline = deadline_in(COMES_BACK_MS);
        while (board->rounds < rounds + BUSY_ROUNDS)
            cr_assert(deadline_pause(deadline), "kill %d: the clients do not get on: %s", i, board->words);
    }
    report("a worker", n);
    board->end = true;
    for (int k = 0; k < CLIENTS; k++)
        cr_assert(load_join(clients[k], false), "%s", board->words);
    cr_assert(status_settles(tensord.url, &(struct status_baseline){.device = "cpu:1"}, COMES_BACK_MS));
    client_close(&bystander);
    daemon_stop(&tensord);
}
