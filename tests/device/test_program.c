/* Random programs on one stream and on several: the device and the reference must agree on every value. */
#include <criterion/criterion.h>

#include "tests/device/program.h"

static void program_agrees(uint64_t seed, int steps, unsigned streams, bool exact_only, int check_percent) {
    struct suite suite;
    struct program program = {
        .suite = &suite, .streams = streams, .exact_only = exact_only, .check_percent = check_percent};
    suite_open(&suite, seed);
    for (unsigned i = 1; i < streams; i++) {
        struct fault fault;
        cr_assert_eq(session_stream_open(suite.session, i, (int)i % 3 - 1, &fault), STATUS_OK, "%s", fault.message);
    }
    program_run(&program, steps);
    suite_sync(&suite);
    struct session_stats stats;
    session_stats(suite.session, &stats);
    cr_assert_eq(stats.live, 0, "%lu bytes are left", (unsigned long)stats.live);
    cr_assert_eq(stats.tensors, 0, "%lu tensors are left", (unsigned long)stats.tensors);
    for (int code = 0; code < STATUS_COUNT; code++)
        cr_assert_eq(stats.failures[code], 0, "%lu failures %s", (unsigned long)stats.failures[code],
                     status_name(code));
    suite_close(&suite);
}

Test(program, small_operations_checked_often, .timeout = 120) {
    program_agrees(101, SUITE_REPEAT(40000), 1, false, 30);
}

Test(program, small_operations_in_a_deep_queue, .timeout = 120) {
    program_agrees(102, SUITE_REPEAT(60000), 1, true, 1);
}

Test(program, tensors_cross_streams, .timeout = 120) {
    for (int i = 0; i < 20; i++)
        program_agrees(200 + (uint64_t)i, SUITE_REPEAT(1500), 2 + (unsigned)i % 6, i % 2, i % 2);
}
