/* What the page of a worker says of the rate of operations, by a clock that the test moves. */
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

#include "server/worker/worker_stats.h"
#include "tests/unit/service_fixture.h"

enum { BURST = 200, TICK_MS = SERVICE_TICK_MS };

static _Atomic uint64_t now_ns = 1000000000;

int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now) {
    uint64_t ns = atomic_load(&now_ns);
    (void)clock;
    *now = (struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    return 0;
}

static struct worker_stats stats;

static void begin(void) {
    int file = memfd_create("page", MFD_CLOEXEC);
    cr_assert_eq(ftruncate(file, sizeof(struct stats_page)), 0);
    cr_assert_eq(worker_stats_init(&stats, file), 0);
    close(file);
    open_service(&(struct limits){0});
    open_client();
}

static void end(void) {
    close_service();
    worker_stats_finish(&stats);
}

/* The time of a tick passes; `busy`: something has happened since the last one. Returns what the page says. */
static double tick(bool busy) {
    struct stats_copy copy = {.sessions = NULL};
    atomic_fetch_add(&now_ns, TICK_MS * UINT64_C(1000000));
    service.active = busy;
    worker_stats_tick(&stats, &service);
    cr_assert(stats_page_read(stats.page, &copy));
    return copy.device.ops_per_s;
}

/* BURST operations are enqueued and complete, while no time passes. */
static void burst(void) {
    static uint64_t id;
    struct engine_stats engine;
    uint64_t turns = 0;
    engine_stats(service.engine, &engine);
    uint64_t wanted = engine.ops_total + BURST;
    for (int i = 0; i < BURST; i++)
        make_tensor(++id, 1);
    engine_kick(service.engine);
    for (; engine.ops_total < wanted && turns < TURNS_MAX; turns++) {
        turn();
        sched_yield();
        engine_stats(service.engine, &engine);
    }
    cr_assert_eq(engine.ops_total, wanted);
}

/* A job with a data loader: 200 operations each 0.8 s are 250 a second. A second's window has one burst or two of them. */
Test(worker_stats, the_rate_between_bursts_is_that_of_the_last_second) {
    begin();
    for (int ms = 0; ms < 8000; ms += TICK_MS) {
        if (ms % 800 == 0)
            burst();
        double rate = tick(ms % 800 == 0);
        if (ms >= 1000)
            cr_expect(rate > BURST / 1.3 && rate < 2 * BURST / 0.9, "%d ms: %g op/s", ms, rate);
    }
    end();
}

/* Whether pages are written at each tick or, because nothing happens, more rarely. */
Test(worker_stats, the_rate_is_0_when_nothing_has_completed_for_about_a_second) {
    for (int busy = 0; busy < 2; busy++) {
        begin();
        for (int i = 0; i < 30; i++)
            tick(busy);
        burst();
        for (int ms = TICK_MS; ms <= 2000; ms += TICK_MS) {
            double rate = tick(busy);
            if (ms >= 200 && ms <= 800)
                cr_expect(rate > 0, "%d ms, %s", ms, busy ? "busy" : "quiet");
            if (ms >= 1400)
                cr_expect_eq(rate, 0, "%d ms, %s: %g op/s", ms, busy ? "busy" : "quiet", rate);
        }
        end();
    }
}

Test(worker_stats, the_rate_is_0_at_once_where_no_session_is_left) {
    begin();
    tick(true);
    burst();
    cr_assert_gt(tick(true), 0);
    close(client);
    client = -1;
    for (unsigned turns = 0; service.connections && turns < TURNS_MAX; turns++)
        turn();
    cr_assert_null(service.connections);
    cr_assert_eq(tick(true), 0);
    end();
}
