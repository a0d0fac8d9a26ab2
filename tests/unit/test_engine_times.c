/* Of which operations times are taken, and what these say. Only lower bounds of times are asserted: what was made to
 * last so long cannot have taken less. */
#include "engine/engine_impl.h"
#include "engine/watch/trace.h"
#include "tests/stand_ins/late.h"
#include "tests/unit/engine_fixture.h"

enum { HELD_NS = 2 * 1000 * 1000 };

static uint64_t count_of(const struct histogram *histogram) {
    uint64_t count = 0;
    for (int i = 0; i < HISTOGRAM_BUCKETS; i++)
        count += histogram->counts[i];
    return count;
}

/* Once so many times are booked: that comes a moment after the completion. */
static struct engine_stats stats_of(uint64_t runs) {
    struct timespec pause = {.tv_nsec = 1000000};
    struct engine_stats stats;
    for (int i = 0; i < 30000; i++) {
        engine_stats(engine, &stats);
        if (count_of(&stats.run_time) >= runs)
            break;
        nanosleep(&pause, NULL);
    }
    return stats;
}

static void pass_time(void) {
    uint64_t begin = clock_now();
    while (clock_now() - begin < HELD_NS)
        sched_yield();
}

Test(histogram, a_time_counts_in_the_bucket_of_its_magnitude) {
    static const struct {
        uint64_t ns;
        unsigned bucket;
    } rows[] = {{0, 0},          {1, 0},    {1000, 0},        {1001, 1},        {2000, 1},         {2001, 2},
                {4000, 2},       {4001, 3}, {1048576000, 20}, {1048576001, 21}, {67108864000, 26}, {67108864001, 27},
                {UINT64_MAX, 27}};
    struct histogram histogram = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cr_assert_eq(histogram_bucket(rows[i].ns), rows[i].bucket, "%llu ns: %u", (unsigned long long)rows[i].ns,
                     histogram_bucket(rows[i].ns));
    histogram_add(&histogram, 1500, 1);
    histogram_add(&histogram, 500, 1);
    cr_assert_eq(histogram.counts[0], 1);
    cr_assert_eq(histogram.counts[1], 1);
    cr_assert_eq(histogram.sum_ns, 2000);
}

Test(engine_times, long_operation_tells_how_long_it_ran) {
    open_engine(64 << 20);
    park(1);
    pass_time();
    unpark();
    cr_assert_eq(wait_for(1), STATUS_OK);
    struct engine_stats stats = stats_of(1);
    cr_assert_eq(count_of(&stats.queue_time), 1);
    cr_assert_eq(count_of(&stats.run_time), 1);
    cr_assert_geq(stats.run_time.sum_ns, HELD_NS);
    close_engine();
}

Test(engine_times, time_in_the_queue_is_that_behind_others) {
    open_engine(64 << 20);
    park(1);
    open_stream(1);
    cr_assert_eq(full_of(session, DTYPE_U8, 2, 8 << 20, 1), STATUS_OK); /* its own stream, whose sample is free */
    engine_kick(engine);
    pass_time();
    unpark();
    cr_assert_eq(wait_for(2), STATUS_OK);
    cr_assert_geq(stats_of(2).queue_time.sum_ns, HELD_NS);
    close_engine();
}

/* ---- what a sample says of all ---- */

/* A clock of the test's own, which moves with each look, and with each launch by what that is to take. */
static _Atomic bool own_clock;
static _Atomic uint64_t own_ns = 1000000000;

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now) {
    if (!atomic_load(&own_clock) || clock != CLOCK_MONOTONIC)
        return __real_clock_gettime(clock, now);
    uint64_t ns = atomic_fetch_add(&own_ns, 25);
    *now = (struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    return 0;
}

/* Some take longer than anybody would estimate, in a rhythm; what is estimated to be long is no more than that. */
static int passing_hook(struct null_device *null, const struct launch *launch) {
    static unsigned launches;
    (void)null;
    atomic_fetch_add(&own_ns, launch->opcode == OP_ADD ? 400000 : launches++ % 16 == 5 ? 30000 : 1400);
    return 0;
}

/* The bucket below which this part of all times lies. */
static unsigned quantile(const struct histogram *histogram, double part) {
    uint64_t below = 0;
    unsigned bucket = 0;
    for (; bucket < HISTOGRAM_BUCKETS - 1; bucket++)
        if ((double)(below += histogram->counts[bucket]) >= part * (double)count_of(histogram))
            break;
    return bucket;
}

Test(engine_times, percentiles_agree_with_a_trace_of_the_same_work) {
    enum { ROUNDS = 400, EACH = 63 };
    static const double parts[] = {0.1, 0.5, 0.9, 0.95, 0.98, 0.99, 0.999};
    static struct histogram traced;
    struct trace_event event;
    open_engine(256 << 20);
    device.hook = passing_hook;
    atomic_store(&own_clock, true);
    cr_assert_eq(engine_trace_start(engine, NULL, 0, &(struct fault){0}), STATUS_OK);
    uint64_t id = 0;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t first = id + 1;
        cr_assert_eq(full_of(session, DTYPE_F32, ++id, i % 7 ? 16 : 1 << 18, 0), STATUS_OK);
        for (int k = 0; k < EACH; k++, id++)
            cr_assert_eq(k == 30 && i % 7 == 0 ? binary(id + 1, id, id, 0, 0) : unary(OP_EXP, id + 1, id, 0),
                         STATUS_OK);
        cr_assert_eq(wait_for(id), STATUS_OK);
        for (; first <= id; first++)
            cr_assert_eq(release(first), STATUS_OK);
        while (trace_next(engine_trace(engine), &event))
            histogram_add(&traced, event.end_ns - event.begin_ns, 1);
    }
    struct engine_stats stats;
    engine_stats(engine, &stats);
    atomic_store(&own_clock, false);
    cr_assert_eq(count_of(&traced), ROUNDS * (EACH + 1));
    cr_assert_lt(stats.run_time.samples, count_of(&traced) / 4, "a sample");
    uint64_t counted = count_of(&stats.run_time);
    cr_assert(counted <= count_of(&traced) && counted > count_of(&traced) - 64, "it stands for all: %llu",
              (unsigned long long)counted);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        unsigned sampled = quantile(&stats.run_time, parts[i]), all = quantile(&traced, parts[i]);
        cr_expect(sampled + 1 >= all && sampled <= all + 1, "p%g: up to 2^%u us, in the trace 2^%u us", parts[i] * 100,
                  sampled, all);
    }
    close_engine();
}

/* A publication of n operations of 1.4 us each: the last one waits n times that. */
Test(engine_times, time_in_the_queue_is_of_all_that_wait) {
    enum { ROUNDS = 200, EACH = 250 };
    open_engine(256 << 20);
    device.hook = passing_hook;
    atomic_store(&own_clock, true);
    uint64_t id = 0;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t first = id + 1;
        for (int k = 0; k < EACH; k++)
            cr_assert_eq(full(session, ++id, 16, 0), STATUS_OK);
        cr_assert_eq(wait_for(id), STATUS_OK);
        for (; first <= id; first++)
            cr_assert_eq(release(first), STATUS_OK);
        cr_assert_eq(full(session, ++id, 16, 0), STATUS_OK); /* and one alone, which waits for nobody */
        cr_assert_eq(wait_for(id), STATUS_OK);
    }
    struct engine_stats stats;
    engine_stats(engine, &stats);
    atomic_store(&own_clock, false);
    double mean_us = 1.4 + (30 - 1.4) / 16;
    unsigned half = histogram_bucket((uint64_t)(mean_us * 1000 * EACH / 2)), found = quantile(&stats.queue_time, 0.5);
    cr_expect(found + 1 >= half && found <= half + 1, "half wait up to 2^%u us, not 2^%u", half, found);
    close_engine();
}

Test(engine_times, device_is_busy_while_it_has_something_to_do) {
    struct engine_stats stats;
    struct session_stats of_session;
    open_engine(64 << 20);
    park(1);
    engine_stats(engine, &stats);
    uint64_t before = stats.busy_ns;
    pass_time();
    engine_stats(engine, &stats); /* an operation that has not ended counts as well */
    session_stats(session, &of_session);
    cr_assert_geq(stats.busy_ns, before + HELD_NS);
    cr_assert_geq(of_session.device_ns, HELD_NS);
    cr_assert_leq(of_session.device_ns, stats.busy_ns + HELD_NS * 1000);
    unpark();
    cr_assert_eq(wait_for(1), STATUS_OK);
    while (engine_stats(engine, &stats), stats.run_time.samples == 0) /* booked, a moment after the completion */
        sched_yield();
    uint64_t after = stats.busy_ns;
    pass_time();
    engine_stats(engine, &stats);
    session_stats(session, &of_session);
    cr_assert_eq(stats.busy_ns, after, "nothing to do");
    cr_assert_eq(of_session.device_ns, after, "all of it was this session's");
    close_engine();
}

Test(engine_times, on_a_device_that_runs_later_the_reaper_sees_how_long) {
    struct fault fault;
    struct device *late;
    cr_assert_eq(late_open(&(struct device_options){.memory_total = 256 << 20, .threads = 1}, &late, &fault), STATUS_OK,
                 "%s", fault.message);
    cr_assert_eq(engine_create(late, &(struct engine_options){0}, &engine, &fault), STATUS_OK);
    cr_assert_eq(session_create(engine_sessions(engine), &limits, &session, &fault), STATUS_OK);
    for (uint64_t id = 1; id <= 5; id++) {
        cr_assert_eq(full_of(session, DTYPE_U8, id, 8 << 20, 0), STATUS_OK);
        cr_assert_eq(wait_for(id), STATUS_OK);
    }
    struct engine_stats stats = stats_of(1);
    cr_assert_eq(count_of(&stats.queue_time), count_of(&stats.run_time));
    cr_assert_leq(count_of(&stats.run_time), 5);
    cr_assert_gt(stats.run_time.sum_ns, 0);
    cr_assert_geq(stats.busy_ns, stats.run_time.sum_ns, "one stream: what runs does not overlap");
    uint64_t busy = stats.busy_ns;
    pass_time();
    engine_stats(engine, &stats);
    cr_assert_eq(stats.busy_ns, busy, "nothing to do");
    session_destroy(session);
    engine_destroy(engine);
}
