/* The reaper's naps between its looks at a device that runs later: how long a nap it asks for. How long one takes is the kernel's business. The
 * linker hands its calls to this file. */
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/prctl.h>

#include "tests/stand_ins/late.h"
#include "tests/unit/engine_fixture.h"

enum { SHORT_NS = 20 * 1000, LONG_NS = 500 * 1000, NAPS = 500, X = 1, HUNG = 2 };

static struct device *late;
static _Atomic unsigned long slack;    /* asked for with PR_SET_TIMERSLACK; 0: not yet */
static _Atomic uint64_t naps, longest; /* since the last call of forget() */

int __real_prctl(int option, ...);
int __wrap_prctl(int option, ...);
int __real_pthread_cond_timedwait(pthread_cond_t *changed, pthread_mutex_t *lock, const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *changed, pthread_mutex_t *lock, const struct timespec *until);

int __wrap_prctl(int option, ...) {
    unsigned long arguments[4];
    va_list list;
    va_start(list, option);
    for (int i = 0; i < 4; i++)
        arguments[i] = va_arg(list, unsigned long);
    va_end(list);
    if (option == PR_SET_TIMERSLACK)
        slack = arguments[0];
    return __real_prctl(option, arguments[0], arguments[1], arguments[2], arguments[3]);
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *changed, pthread_mutex_t *lock, const struct timespec *until) {
    uint64_t end = (uint64_t)until->tv_sec * 1000000000u + (uint64_t)until->tv_nsec, now = clock_now();
    if (end > now && end - now > longest)
        longest = end - now; /* or less than it asked for, if this thread had to wait for the processor */
    naps++;
    return __real_pthread_cond_timedwait(changed, lock, until);
}

static void await_naps(uint64_t n) {
    for (uint64_t before = naps; naps < before + n;)
        sched_yield();
}

/* The nap that is under way, and what was decided before it, do not count. */
static void forget(void) {
    await_naps(2);
    longest = 0;
}

/* A launch that does not end is on the device. */
static void start(void) {
    struct device_options options = {.memory_total = 64 << 20, .threads = 1};
    struct fault fault;
    sequence = 0;
    cr_assert_eq(late_open(&options, &late, &fault), STATUS_OK);
    cr_assert_eq(engine_create(late, &(struct engine_options){0}, &engine, &fault), STATUS_OK);
    cr_assert_eq(session_create(engine_sessions(engine), &limits, &session, &fault), STATUS_OK);
    cr_assert_eq(full(session, X, 16, 0), STATUS_OK);
    cr_assert_eq(wait_for(X), STATUS_OK);
    late_hang(late, "tanh");
    cr_assert_eq(unary(OP_TANH, HUNG, X, 0), STATUS_OK);
    engine_kick(engine);
    await_naps(1);
}

static void stop(void) {
    late_hang(late, NULL);
    session_destroy(session);
    engine_destroy(engine);
}

TestSuite(engine_reaper, .init = start, .fini = stop, .timeout = 60);

/* Else a nap of 20 us would take 70 at least. */
Test(engine_reaper, kernel_may_not_make_naps_longer) {
    cr_assert_eq(slack, 1, "a slack of %lu ns", (unsigned long)slack);
}

Test(engine_reaper, naps_are_short_while_somebody_waits) {
    struct answer answer;
    ask_wait(&answer, HUNG);
    forget();
    await_naps(NAPS);
    cr_assert_leq(longest, SHORT_NS, "a nap of %lu ns", (unsigned long)longest);
    late_hang(late, NULL);
    cr_assert(settle(&answer.times));
    cr_assert_eq(answer.code, STATUS_OK);
}

/* A device that is busy for long costs no processor meanwhile. */
Test(engine_reaper, naps_grow_while_nobody_waits) {
    while (longest <= LONG_NS / 2)
        await_naps(1);
    await_naps(NAPS);
    cr_assert_leq(longest, LONG_NS, "a nap of %lu ns", (unsigned long)longest);
}
