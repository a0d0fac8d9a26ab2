/* What a daemon costs that has nothing to do. */
#include <criterion/criterion.h>
#include <poll.h>

#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/status.h"

enum { WATCH_MS = 2000, PROCESSES = 3 };

static struct daemon tensord;

static void stop(void) {
    daemon_stop(&tensord);
}

TestSuite(idle, .fini = stop, .timeout = 60);

/* A loop that spins uses all of the time, one that ticks a few hundredths of a percent. */
static void nobody_spins(void) {
    int pids[PROCESSES] = {tensord.pid, status_worker_pid(tensord.url, "cpu:0"),
                           status_worker_pid(tensord.url, "cpu:1")};
    unsigned long long before[PROCESSES];
    for (int i = 0; i < PROCESSES; i++)
        before[i] = daemon_process_cpu_ms(pids[i]);
    poll(NULL, 0, WATCH_MS); /* not to wait for something, but to measure over a span */
    for (int i = 0; i < PROCESSES; i++) {
        unsigned long long spent = daemon_process_cpu_ms(pids[i]) - before[i];
        cr_assert_leq(spent, WATCH_MS / 20, "process %d of %d used %llu of %d ms", i, PROCESSES, spent, WATCH_MS);
    }
}

Test(idle, without_clients) {
    daemon_start(&tensord, &(struct daemon_options){.devices = "cpu:0,cpu:1"});
    nobody_spins();
}

Test(idle, with_clients_that_have_done_their_work) {
    struct client unix_client, tcp_client;
    daemon_start(&tensord, &(struct daemon_options){.devices = "cpu:0,cpu:1", .tcp = "tcp://127.0.0.1:0"});
    client_open(&unix_client, tensord.url, "cpu:0");
    client_open(&tcp_client, tensord.tcp, "cpu:1");
    client_expect(client_ramp(unix_client.device, 2, 0), (float[]){0, 1}, 2);
    client_expect(client_ramp(tcp_client.device, 2, 0), (float[]){0, 1}, 2);
    nobody_spins();
    client_close(&unix_client);
    client_close(&tcp_client);
}
