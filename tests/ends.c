/* What comes behind a test's last assertion counts, too. Criterion prints assertions that fail in a fixture's end (.fini), but
 * calls the test passed; of a process that exits there it does not even say so much. */
#include <criterion/criterion.h>
#include <criterion/hooks.h>
#include <stdio.h>

static unsigned tests, fixtures; /* that have come to their ends */
static bool all_done;            /* in the process that runs them */

ReportHook(POST_TEST)(struct criterion_test_stats *stats) {
    (void)stats;
    tests++;
}

ReportHook(POST_FINI)(struct criterion_test_stats *stats) {
    (void)stats;
    fixtures++;
}

static bool ends_failed(const struct criterion_test_stats *test) {
    return test->test_status == CR_STATUS_PASSED && !test->crashed && test->failed_asserts > 0;
}

static void ends_count_one(struct criterion_global_stats *stats, struct criterion_suite_stats *suite) {
    stats->tests_failed++;
    stats->tests_passed--;
    suite->tests_failed++;
    suite->tests_passed--;
}

ReportHook(POST_ALL)(struct criterion_global_stats *stats) {
    all_done = true;
    for (struct criterion_suite_stats *suite = stats->suites; suite; suite = suite->next)
        for (struct criterion_test_stats *test = suite->tests; test; test = test->next)
            if (ends_failed(test)) {
                fprintf(stderr, "[FAIL] %s::%s: in its fixture's end\n", suite->suite->name, test->test->name);
                ends_count_one(stats, suite);
            }
    if (fixtures != tests && !stats->tests_failed && !stats->tests_crashed) {
        fprintf(stderr, "[FAIL] the fixtures of %u tests had no end\n", tests - fixtures);
        ends_count_one(stats, stats->suites);
    }
}

/* ---- the sanitizers' end ---- */

#ifndef __has_feature
#define __has_feature(feature) 0
#endif
#if defined __SANITIZE_ADDRESS__ || __has_feature(address_sanitizer)
const char *__asan_default_options(void);
int __lsan_is_turned_off(void);

/* What is found when a test's process exits ends it by a signal: of its exit status Criterion says nothing. */
__attribute__((visibility("default"), used)) const char *__asan_default_options(void) {
    return "abort_on_error=1";
}

/* What the process that runs the tests keeps is Criterion's. */
__attribute__((visibility("default"), used)) int __lsan_is_turned_off(void) {
    return all_done;
}
#endif
