/* Limits and TLS: who counts as a stranger, and what a rate costs. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/daemon/client.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/status.h"
#include "tests/daemon/tls_fixture.h"
#include "tests/daemon/wire.h"

TLS_SUITE(tls_limits);

/* Who connects and shows no certificate cannot keep out those whom the system vouches for. */
Test(tls_limits, strangers_leave_places_where_certificates_are_wanted) {
    enum { WAVES = 3, WAVE = 8 };
    struct wire strangers[WAVES][WAVE], local;
    char url[64];
    START("--tls-client-ca", certificates_file(&certificates, "ca.pem"), "--max-connections", "8", "--hello-timeout",
          "60s");
    snprintf(url, sizeof url, "tcp://127.0.0.1:%s", strrchr(tensord.tcp, ':') + 1);
    for (int wave = 0; wave < WAVES; wave++)
        for (int i = 0; i < WAVE; i++)
            cr_assert(wire_dial(&strangers[wave][i], url));
    for (int i = 0; i < WAVE; i++) /* the oldest go first */
        cr_assert_geq(wire_until_closed(&strangers[0][i], WIRE_TIMEOUT_MS, NULL), 0, "it found a place");
    wire_open(&local, tensord.url, DAEMON_TARGET_CPU0);
    cr_assert(wire_ping(&local));
    wire_close(&local);
    for (int i = 0; i < WAVES * WAVE; i++)
        wire_close(&strangers[i / WAVE][i % WAVE]);
}

/* What TLS has decrypted already and the rate does not let pass is waited for, not looked at again and again: the worker sleeps
 * for almost all of these seconds (it needs some 20 ms, and two seconds where it does not sleep). */
Test(tls_limits, rate_that_is_held_costs_no_processor_time) {
    enum { N = 128 << 10, BUSY_MS = 250 };
    static float data[N], back[N];
    struct client client;
    START("--principal-rate", "128K");
    client_open(&client, tensord.tcp, "cpu:0");
    int worker = status_worker_pid(tensord.url, "cpu:0");
    unsigned long long before = daemon_process_cpu_ms(worker);
    int64_t begin = deadline_now();
    client_noise(data, sizeof data, 3);
    td_tensor *x = td_upload(client.device, TD_F32, TD_SHAPE(N), data);
    cr_assert(!td_wait(x), "%s", td_last_error()->message);
    unsigned long long used = daemon_process_cpu_ms(worker) - before;
    cr_assert_geq(deadline_now() - begin, 3000, "nothing was held");
    cr_expect_lt(used, BUSY_MS, "the worker was busy for %llu ms", used);
    cr_assert(!td_fetch(x, back, sizeof back), "%s", td_last_error()->message);
    cr_expect(!memcmp(data, back, sizeof data));
    client_close(&client);
}

static bool has_two_sessions(const Tensord__Status *status, const void *none) {
    (void)none;
    return status->n_sessions == 2 && status->sessions[0]->host_bytes && status->sessions[1]->host_bytes;
}

/* TLS keeps buffers for each connection, which are its session's. */
Test(tls_limits, host_memory_of_tls_is_the_session_s) {
    enum { LEAST = 48 << 10 };
    struct client over_tls, local;
    START(NULL);
    client_open(&over_tls, tensord.tcp, "cpu:0");
    client_open(&local, tensord.url, "cpu:0");
    status_until(tensord.url, has_two_sessions, NULL, WIRE_TIMEOUT_MS);
    Tensord__Status *status = status_get(tensord.url);
    bool first = status->sessions[0]->tls;
    uint64_t with = status->sessions[!first]->host_bytes, without = status->sessions[first]->host_bytes;
    cr_assert(status->sessions[!first]->tls && !status->sessions[first]->tls);
    cr_expect_geq(with, without + LEAST, "%lu and %lu bytes", with, without);
    status_free(status);
    client_close(&local);
    client_close(&over_tls);
}
