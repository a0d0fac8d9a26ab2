/* Of which operations times are taken, and what these say. Only lower bounds of times are asserted: what was made to
 * last so long cannot have taken less. */
#include "engine/engine_impl.h"
#include "tests/device/late.h"
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
    uint64_t begin = engine_clock();
    while (engine_clock() - begin < HELD_NS)
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
    histogram_add(&histogram, 1500);
    histogram_add(&histogram, 500);
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

Test(engine_times, of_short_operations_one_in_64_publications_is_looked_at) {
    open_engine(64 << 20);
    for (uint64_t id = 1; id <= 640; id++) {
        cr_assert_eq(full(session, id, 16, 0), STATUS_OK);
        cr_assert_eq(wait_for(id), STATUS_OK);
    }
    struct engine_stats stats = stats_of(10);
    cr_assert_eq(count_of(&stats.queue_time), 10);
    cr_assert_eq(count_of(&stats.run_time), 10);
    close_engine();
}

Test(engine_times, on_a_device_that_runs_later_the_reaper_sees_how_long) {
    struct fault fault;
    struct device *late;
    cr_assert_eq(late_open(&(struct device_options){.memory_total = 256 << 20, .threads = 1}, &late, &fault), STATUS_OK,
                 "%s", fault.message);
    cr_assert_eq(engine_create(late, &(struct engine_options){0}, &engine, &fault), STATUS_OK);
    cr_assert_eq(session_create(engine, &limits, &session, &fault), STATUS_OK);
    for (uint64_t id = 1; id <= 5; id++) {
        cr_assert_eq(full_of(session, DTYPE_U8, id, 8 << 20, 0), STATUS_OK);
        cr_assert_eq(wait_for(id), STATUS_OK);
    }
    struct engine_stats stats = stats_of(5);
    cr_assert_eq(count_of(&stats.queue_time), 5);
    cr_assert_eq(count_of(&stats.run_time), 5);
    cr_assert_gt(stats.run_time.sum_ns, 0);
    session_destroy(session);
    engine_destroy(engine);
}
