/* Host memory that a session's messages make grow: counted, limited, shared where it is alike, and given back. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/memory/tenant.h"
#include "engine/session/host.h"
#include "tests/unit/engine_fixture.h"

/* More than a tensor is charged for, and less than a failure besides. */
enum { PER_TENSOR = sizeof(struct tensor) + sizeof(struct storage) + 100 };

static uint64_t host_of(struct session *of) {
    struct session_stats stats;
    session_stats(of, &stats);
    return stats.host;
}

/* The failure with which a wait for the tensor is answered. */
static struct failure told;

static void tell(struct wait *wait, const struct failure *failure) {
    (void)wait;
    told = failure ? *failure : (struct failure){.code = STATUS_OK};
}

static void ask(uint64_t id) {
    static struct wait wait;
    wait = (struct wait){.done = tell};
    told = (struct failure){.code = STATUS_INTERNAL};
    session_wait(session, id, &wait);
}

static int labelled(unsigned opcode, uint64_t id, const char *label) {
    return submit_in(session, (struct op_request){.opcode = opcode, .output = id, .label = label});
}

Test(engine_host, tensors_that_failed_alike_share_one_cause_and_keep_their_numbers) {
    enum { FAILED = 20000 };
    open_engine(1 << 20);
    uint64_t before = host_of(session);
    for (uint64_t id = 1; id <= FAILED; id++)
        cr_assert_neq(labelled(0, id, id % 2 ? "odd" : "even"), STATUS_OK);
    cr_expect_lt(host_of(session) - before, FAILED * PER_TENSOR, "each has a text of its own");
    for (uint64_t id = 7; id <= FAILED; id += 1000) {
        ask(id);
        cr_expect_eq(told.sequence, id);
        cr_expect_str_eq(told.label, id % 2 ? "odd" : "even");
        cr_expect_str_eq(told.message, "0 is not an operation");
    }
    cr_assert_eq(unary(OP_EXP, FAILED + 1, 8, 0), STATUS_INVALID_ARGUMENT);
    ask(FAILED + 1);
    cr_expect_eq(told.sequence, 8, "the first cause is number %lu", told.sequence);
    close_engine();
}

Test(engine_host, past_the_limit_operations_are_refused_until_there_is_room) {
    const struct session_limits few = {.tensors = 100000, .streams = 4, .host_bytes = 1 << 20};
    open_limited(64 << 20, &few);
    uint64_t id = 1;
    while (full(session, id, 1, 0) == STATUS_OK)
        id++;
    cr_expect_lt(id, 10000);
    ask(id);
    cr_expect_eq(told.code, STATUS_LIMIT);
    cr_expect(strstr(told.message, "1.00 MiB of host memory"), "%s", told.message);
    cr_expect(strstr(told.message, "asked") && strstr(told.message, "held"), "%s", told.message);
    cr_expect_leq(host_of(session), (1 << 20) + 2 * STREAM_CHUNK_BYTES);
    for (uint64_t old = 1; old < id; old++)
        cr_assert_eq(release(old), STATUS_OK);
    cr_expect_eq(full(session, id + 1, 1, 0), STATUS_OK);
    close_engine();
}

Test(engine_host, a_tenant_is_limited_in_all_of_its_sessions_together) {
    struct session *sessions[4];
    struct tenant_stats stats;
    struct tenant *tenant;
    struct fault fault;
    open_engine(64 << 20);
    cr_assert_eq(
        tenant_create(engine_memory(engine), "alice", &(struct tenant_limits){.host_bytes = 1 << 20}, &tenant, &fault),
        STATUS_OK);
    struct session_limits of_alice = {.tensors = 100000, .streams = 4, .tenant = tenant};
    for (int i = 0; i < 4; i++)
        cr_assert_eq(session_create(engine_sessions(engine), &of_alice, &sessions[i], &fault), STATUS_OK);
    uint64_t id = 1;
    while (full(sessions[id % 4], id, 1, 0) == STATUS_OK)
        id++;
    cr_expect(strstr(sessions[id % 4]->last_failure, "the limit of alice"), "%s", sessions[id % 4]->last_failure);
    tenant_stats(tenant, &stats);
    uint64_t sum = 0;
    for (int i = 0; i < 4; i++)
        sum += host_of(sessions[i]);
    tenant_stats(tenant, &stats);
    cr_expect_eq(stats.host, sum);
    cr_assert_eq(full(session, 1, 1, 0), STATUS_OK, "others are not concerned");
    for (int i = 0; i < 4; i++)
        session_destroy(sessions[i]);
    tenant_stats(tenant, &stats);
    cr_expect_eq(stats.host, 0);
    tenant_destroy(tenant);
    close_engine();
}

Test(engine_host, what_is_queued_and_who_waits_is_counted) {
    struct wait waits[100];
    open_engine(1 << 20);
    uint64_t before = host_of(session), id = 1;
    cr_assert_eq(full(session, id++, 4, 0), STATUS_OK);
    while (session->stream->enqueued < 1000)
        cr_assert_eq(unary(OP_NEGATIVE, id++, 1, 0), STATUS_OK);
    uint64_t queued = host_of(session);
    cr_expect_gt(session->ledger.host_queue, 64 << 10);
    for (int i = 0; i < 100; i++) {
        waits[i] = (struct wait){.done = tell};
        session_wait(session, 0, &waits[i]);
    }
    cr_expect_geq(host_of(session) - queued, 100 * sizeof(struct waiter *));
    for (int i = 0; i < 100; i++)
        wait_cancel(&waits[i]);
    cr_expect_eq(host_of(session), queued);
    while (--id)
        cr_assert_eq(release(id), STATUS_OK);
    ask(0);
    engine_kick(engine);
    for (int i = 0; i < 2000 && told.code == STATUS_INTERNAL; i++) {
        struct timespec pause = {.tv_nsec = 1000000};
        engine_poll(engine);
        nanosleep(&pause, NULL);
    }
    cr_expect_eq(told.code, STATUS_OK);
    cr_expect_leq(host_of(session), before + 2 * STREAM_CHUNK_BYTES + 1024 * PER_TENSOR, "%lu and %lu bytes", before,
                  host_of(session));
    close_engine();
}

/* Number 11 is the first that the limit of tensors refuses; by the time that its result is used there is room again. */
Test(engine_host, past_the_limit_of_tensors_the_first_cause_travels) {
    const struct session_limits few = {.tensors = 10, .streams = 1};
    const int64_t ints[] = {DTYPE_F32, 0, 4};
    const double value = 0;
    struct op_request request = {.opcode = OP_FULL, .n_ints = 3, .ints = ints, .n_floats = 1, .floats = &value};
    open_limited(1 << 20, &few);
    for (uint64_t id = 1; id <= 10; id++)
        cr_assert_eq(full(session, id, 4, 0), STATUS_OK);
    request.label = "loss";
    request.output = 11;
    cr_assert_eq(submit_in(session, request), STATUS_LIMIT);
    cr_assert_eq(binary(12, 1, 11, 0, 0), STATUS_LIMIT);
    for (uint64_t id = 3; id <= 10; id++)
        cr_assert_eq(release(id), STATUS_OK);
    cr_assert_eq(binary(13, 1, 11, 0, 0), STATUS_LIMIT);
    cr_assert_eq(unary(OP_EXP, 14, 13, 0), STATUS_LIMIT);
    for (uint64_t id = 11; id <= 14; id++) {
        ask(id);
        cr_expect_eq(told.code, STATUS_LIMIT);
        cr_expect_str_eq(told.operation, "full", "of %lu", id);
        cr_expect_str_eq(told.label, "loss");
        cr_expect_eq(told.sequence, 11);
        cr_expect(strstr(told.message, "limit of 10 tensors"), "%s", told.message);
    }
    cr_assert_eq(release(10), STATUS_UNKNOWN_ID, "that one has been, and was released");
    close_engine();
}

Test(engine_host, refusals_by_the_thousand_are_told_apart_or_by_the_first) {
    const struct session_limits few = {.tensors = 1, .streams = 1};
    open_limited(1 << 20, &few);
    cr_assert_eq(full(session, 1, 4, 0), STATUS_OK);
    for (uint64_t id = 2; id <= 3000; id++) {
        char label[16];
        snprintf(label, sizeof label, "%lu", id / 100);
        labelled(id % 500 < 250 ? OP_FULL : OP_ARANGE, id, label);
    }
    ask(2950);
    cr_expect_eq(told.sequence, 2950);
    cr_expect_str_eq(told.label, "29");
    ask(2);
    cr_expect_eq(told.sequence, 2);
    cr_expect_str_eq(told.label, "0");
    ask(1000);
    cr_expect_eq(told.code, STATUS_LIMIT);
    close_engine();
}

/* ---- rest ---- */

static unsigned trims;
int __real_malloc_trim(size_t pad);
int __wrap_malloc_trim(size_t pad);
int __wrap_malloc_trim(size_t pad) {
    trims++;
    return __real_malloc_trim(pad);
}

static uint64_t resident(void) {
    unsigned long pages = 0, all;
    FILE *file = fopen("/proc/self/statm", "r");
    cr_assert(file && fscanf(file, "%lu %lu", &all, &pages) == 2);
    fclose(file);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void run_all(void) {
    ask(0);
    engine_kick(engine);
    for (int i = 0; i < 20000 && told.code == STATUS_INTERNAL; i++) {
        struct timespec pause = {.tv_nsec = 1000000};
        engine_poll(engine);
        nanosleep(&pause, NULL);
    }
    cr_assert_eq(told.code, STATUS_OK);
    engine_poll(engine);
}

/* As the worker's loop does, which also looks at each session's figures then. */
static void tick(int times) {
    while (times--) {
        engine_tick(engine);
        host_of(session);
    }
}

/* A session that lives on is idle, and another one has had much in its queue. */
Test(engine_host, memory_that_was_freed_goes_back_beside_a_session_that_lives_on) {
    const struct session_limits any = {.tensors = 1u << 20, .streams = 1};
    struct session *idle;
    struct fault fault;
    open_engine(1 << 20);
    cr_assert_eq(session_create(engine_sessions(engine), &any, &idle, &fault), STATUS_OK);
    cr_assert_eq(full(session, 1, 4, 0), STATUS_OK);
    tick(2 * ENGINE_REST_TICKS);
    cr_assert_eq(trims, 0, "little has been freed");
    for (uint64_t id = 2; host_of(session) < 128 << 20; id++)
        cr_assert(unary(OP_NEGATIVE, id, 1, 0) == STATUS_OK && release(id) == STATUS_OK);
    void *above = malloc(100); /* so that the heap's end stays where it is */
    run_all();
    uint64_t before = resident();
    tick(ENGINE_REST_TICKS - 1);
    cr_assert_eq(trims, 0, "it has not been quiet for long");
    cr_assert_eq(unary(OP_NEGATIVE, session->last_id + 1, 1, 0), STATUS_OK);
    run_all();
    tick(ENGINE_REST_TICKS - 1);
    cr_assert_eq(trims, 0, "something ran meanwhile");
    tick(2 * ENGINE_REST_TICKS);
    cr_assert_eq(trims, 1);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    cr_assert_leq(resident() + (64 << 20), before, "%lu bytes, and %lu before", resident(), before);
#endif
    free(above);
    session_destroy(idle);
    close_engine();
}
