/* User kernels in the engine: what is compiled once, what is kept until it has run. On the late device, which runs functions
 * in the place of kernels. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/device/clock.h"
#include "engine/engine_impl.h"
#include "engine/program/kernel.h"
#include "engine/program/kernel_impl.h"
#include "engine/program/program.h"
#include "tests/stand_ins/late.h"
#include "tests/stand_ins/launch.h"

static struct engine *engine;
static struct session *session;
static uint64_t sequence;

static const struct session_limits limits = {.tensors = 1000, .streams = 64};

static void start(void) {
    struct device_options options = {.threads = 1, .memory_total = 64 << 20};
    struct device *device;
    struct fault fault;
    sequence = 0;
    cr_assert_eq(late_open(&options, &device, &fault), STATUS_OK);
    cr_assert_eq(engine_create(device, &(struct engine_options){0}, &engine, &fault), STATUS_OK);
    cr_assert_eq(session_create(engine_sessions(engine), &limits, &session, &fault), STATUS_OK);
}

static void stop(void) {
    session_destroy(session);
    engine_destroy(engine);
}

TestSuite(engine_kernels, .init = start, .fini = stop, .timeout = 60);

static void work(struct kernel_job *job, struct session *in) {
    if (!kernel_job_compiled(job))
        kernel_job_compile(job);
    if (kernel_job_charge(job, in) == STATUS_OK)
        kernel_job_load(job);
}

/* Whether it had to be compiled: the late device's compiler always says a word. */
static bool compile(struct session *in, uint64_t id, const char *source, const char *name) {
    struct kernel_job job;
    struct fault fault;
    cr_assert_eq(kernel_job_init(&job, engine_kernels(engine), source, name, &fault), STATUS_OK);
    cr_assert_eq(session_kernel_id(in, id, &fault), STATUS_OK, "%s", fault.message);
    work(&job, in);
    bool compiled = job.log != NULL;
    cr_assert_eq(kernel_job_bind(&job, in, id, &fault), STATUS_OK, "%s", fault.message);
    kernel_job_finish(&job);
    return compiled;
}

/* One thread of one block. */
static int launch_one(struct op_request *request, const struct kernel_attributes *given) {
    struct kernel_attributes launch = *given;
    struct launch_ints ints;
    launch.grid = launch.block = (struct op_ints)LAUNCH_LIST(1, 1, 1);
    launch_ints_write(&ints, &launch);
    request->opcode = OP_KERNEL;
    request->n_ints = ints.count;
    request->ints = ints.values;
    request->sequence = ++sequence;
    return session_submit(session, request);
}

/* x counted up; a new tensor. */
static int count_as(struct op_request *request, uint64_t kernel, uint64_t output, uint64_t input) {
    struct kernel_attributes launch = {.kernel = (int64_t)kernel,
                                       .arguments = LAUNCH_LIST(KERNEL_UPDATE, KERNEL_BITS64, KERNEL_BITS64),
                                       .numbers = LAUNCH_LIST(0, 4)};
    request->n_inputs = 1;
    request->inputs = &input;
    request->output = output;
    return launch_one(request, &launch);
}

static int count(uint64_t kernel, uint64_t output, uint64_t input, uint32_t stream) {
    return count_as(&(struct op_request){.stream = stream}, kernel, output, input);
}

static void full(uint64_t id) {
    int64_t ints[] = {DTYPE_I32, 0, 4};
    double value = 0;
    struct op_request request = {.opcode = OP_FULL,
                                 .n_ints = 3,
                                 .ints = ints,
                                 .n_floats = 1,
                                 .floats = &value,
                                 .output = id,
                                 .sequence = ++sequence};
    cr_assert_eq(session_submit(session, &request), STATUS_OK);
}

struct answer {
    struct fetch fetch;
    bool done;
    int code;
    int32_t first;
};

static void answered(struct fetch *fetch, const struct failure *failure) {
    struct answer *answer = (struct answer *)fetch;
    answer->done = true;
    answer->code = failure ? (int)failure->code : STATUS_OK;
    if (!failure)
        memcpy(&answer->first, fetch->data, sizeof answer->first);
}

/* The first element; or the code of its failure, negative. */
static int32_t fetched(uint64_t id) {
    struct answer answer = {.fetch.done = answered};
    session_fetch(session, id, &answer.fetch);
    engine_kick(engine);
    while (!answer.done)
        engine_wait(engine);
    fetch_release(&answer.fetch);
    return answer.code ? -answer.code : answer.first;
}

Test(engine_kernels, equal_sources_are_compiled_once) {
    struct session *other;
    struct fault fault;
    cr_assert_eq(session_create(engine_sessions(engine), &limits, &other, &fault), STATUS_OK);
    cr_assert(compile(session, 1, "a", "count"));
    cr_assert(!compile(session, 2, "a", "count"));
    cr_assert(!compile(other, 1, "a", "count"));
    cr_assert(compile(session, 3, "b", "count"));
    cr_assert(compile(session, 4, "a", "saxpy"));
    cr_assert_neq(kernel_table_find(session->kernels, 1)->device_kernel,
                  kernel_table_find(other->kernels, 1)->device_kernel);
    session_destroy(other);
    cr_assert(!compile(session, 5, "a", "count"));
}

static int full_of(struct session *in, uint64_t id, int64_t elements) {
    int64_t ints[] = {DTYPE_I32, 0, elements};
    double value = 0;
    struct op_request request = {.opcode = OP_FULL,
                                 .n_ints = 3,
                                 .ints = ints,
                                 .n_floats = 1,
                                 .floats = &value,
                                 .output = id,
                                 .sequence = ++sequence};
    return session_submit(in, &request);
}

/* Nothing of a launch is there that has been put off, and it is made later with the same ids. */
Test(engine_kernels, launches_wait_for_the_memory_of_an_ended_session) {
    struct session *ended;
    struct session_stats stats;
    struct fault fault;
    uint64_t n = 0;
    cr_assert(compile(session, 1, "a", "count"));
    cr_assert_eq(full_of(session, 1, 4 << 20), STATUS_OK);
    cr_assert_eq(session_create(engine_sessions(engine), &limits, &ended, &fault), STATUS_OK);
    while (full_of(ended, n + 1, 50 << 10) == STATUS_OK)
        n++;
    cr_assert_gt(n, 128);
    budget_begin(engine_budget(engine), 1);
    session_destroy(ended);
    cr_assert_eq(count(1, 2, 1, 0), STATUS_AGAIN);
    session_stats(session, &stats);
    cr_assert_eq(stats.tensors, 1);
    cr_assert_eq(stats.failures[STATUS_OUT_OF_MEMORY], 0);
    budget_begin(engine_budget(engine), BUDGET_UNLIMITED);
    int code;
    while ((code = count(1, 2, 1, 0)) == STATUS_AGAIN) {
        engine_kick(engine);
        engine_poll(engine);
    }
    cr_assert_eq(code, STATUS_OK);
    session_stats(session, &stats);
    cr_assert_eq(stats.tensors, 2);
}

static uint64_t live(struct session *of) {
    struct session_stats stats;
    session_stats(of, &stats);
    return stats.live;
}

/* Each for itself; and nothing for a job that comes to nothing, nor for a session that has no room. */
Test(engine_kernels, sessions_pay_for_what_they_have_on_the_device) {
    struct session *other;
    struct kernel_job job;
    struct fault fault;
    cr_assert_eq(session_create(engine_sessions(engine), &limits, &other, &fault), STATUS_OK);
    compile(session, 1, "a", "count");
    uint64_t each = live(session);
    cr_assert(each > 0);
    compile(session, 2, "a", "count");
    compile(other, 1, "a", "count");
    cr_assert(live(session) == 2 * each && live(other) == each);
    cr_assert_eq(session_kernel_release(session, 1, &fault), STATUS_OK);
    cr_assert_eq(live(session), each);
    for (int discharged = 0; discharged < 2; discharged++) {
        cr_assert_eq(kernel_job_init(&job, engine_kernels(engine), "a", "count", &fault), STATUS_OK);
        work(&job, session);
        cr_assert_eq(live(session), 2 * each);
        if (discharged) /* by one who waits no more; once is enough */
            kernel_job_discharge(&job);
        kernel_job_finish(&job);
        cr_assert_eq(live(session), each);
    }
    session_set_limits(session, 2 * each - 1, 0, 1000, 64);
    cr_assert_eq(kernel_job_init(&job, engine_kernels(engine), "a", "count", &fault), STATUS_OK);
    work(&job, session);
    cr_assert_eq(job.status, STATUS_LIMIT);
    cr_assert_eq(kernel_job_bind(&job, session, 3, &fault), STATUS_LIMIT);
    kernel_job_finish(&job);
    cr_assert_eq(live(session), each);
    session_destroy(other);
}

/* A kernel's memory is not the pool's. */
Test(engine_kernels, want_of_memory_is_told_in_figures_that_are_true) {
    struct storage *storage;
    struct fault fault;
    compile(session, 1, "a", "count");
    cr_assert_eq(ledger_storage(&session->ledger, UINT64_C(1) << 60, NULL, &storage, &fault), STATUS_OUT_OF_MEMORY);
    cr_assert(strstr(fault.message, "others 0 B"), "%s", fault.message);
}

Test(engine_kernels, cache_forgets_what_was_asked_for_least_lately) {
    enum { BYTES = 1 << 20, SOURCES = KERNEL_CACHE_BYTES / BYTES + 8 };
    char *source = malloc(BYTES + 1);
    memset(source, ' ', BYTES);
    source[BYTES] = 0;
    cr_assert(compile(session, 1, "kept", "count"));
    for (int i = 0; i < SOURCES; i++) {
        snprintf(source, 12, "%011d", i);
        source[11] = ' ';
        cr_assert(compile(session, (uint64_t)(2 * i + 2), source, "count"));
        cr_assert(!compile(session, (uint64_t)(2 * i + 3), "kept", "count"));
        cr_assert(engine->kernels.bytes <= KERNEL_CACHE_BYTES);
    }
    cr_assert(!compile(session, 1000, source, "count"));
    snprintf(source, 12, "%011d", 0);
    source[11] = ' ';
    cr_assert(compile(session, 1001, source, "count"));
    free(source);
}

Test(engine_kernels, jobs_that_overtake_each_other_keep_their_ids) {
    struct kernel_job jobs[3];
    struct fault fault;
    for (uint64_t i = 0; i < 3; i++) {
        cr_assert_eq(kernel_job_init(&jobs[i], engine_kernels(engine), "a", i == 1 ? "saxpy" : "count", &fault),
                     STATUS_OK);
        cr_assert_eq(session_kernel_id(session, i + 1, &fault), STATUS_OK);
        work(&jobs[i], session);
    }
    for (uint64_t i = 3; i-- > 0;) {
        cr_assert_eq(kernel_job_bind(&jobs[i], session, i + 1, &fault), STATUS_OK, "%s", fault.message);
        kernel_job_finish(&jobs[i]);
    }
    cr_assert_str_eq(kernel_table_find(session->kernels, 2)->name, "saxpy");
    cr_assert_eq(session_kernel_id(session, 3, &fault), STATUS_DUPLICATE_ID);
    cr_assert_eq(session_kernel_release(session, 2, &fault), STATUS_OK);
    cr_assert_eq(session_kernel_release(session, 2, &fault), STATUS_INVALID_ARGUMENT);
    full(1);
    cr_assert_eq(count(2, 2, 1, 0), STATUS_INVALID_ARGUMENT);
    cr_assert_eq(count(3, 3, 1, 0), STATUS_OK);
    cr_assert_eq(fetched(2), -STATUS_INVALID_ARGUMENT);
    cr_assert_eq(fetched(3), 1);
}

/* On more streams than storage remembers uses of; released while all of them have something to do. */
Test(engine_kernels, released_kernel_runs_what_was_enqueued) {
    enum { STREAMS = 40, EACH = 25 };
    struct fault fault;
    uint64_t next = 2;
    compile(session, 1, "a", "count");
    full(1);
    for (uint32_t s = 1; s <= STREAMS; s++)
        cr_assert_eq(session_stream_open(session, s, 0, &fault), STATUS_OK);
    uint64_t last[STREAMS];
    for (uint32_t s = 0; s < STREAMS; s++)
        last[s] = 1;
    for (int i = 0; i < EACH; i++)
        for (uint32_t s = 0; s < STREAMS; s++) {
            cr_assert_eq(count(1, next, last[s], s + 1), STATUS_OK);
            if (last[s] != 1)
                cr_assert_eq(session_submit(session, &(struct op_request){.opcode = OP_FREE,
                                                                          .n_inputs = 1,
                                                                          .inputs = &last[s],
                                                                          .sequence = ++sequence}),
                             STATUS_OK);
            last[s] = next++;
        }
    cr_assert_eq(session_kernel_release(session, 1, &fault), STATUS_OK);
    cr_assert(engine->kernels.running);
    for (uint32_t s = 0; s < STREAMS; s++)
        cr_assert_eq(fetched(last[s]), EACH, "stream %u", s + 1);
    while (engine->kernels.running)
        engine_poll(engine);
    cr_assert(engine->kernels.unused);
    compile(session, 2, "b", "count"); /* takes it off the device */
    cr_assert_null(engine->kernels.unused);
}

/* Memory of the device, and at most as many again as a session may have. */
Test(engine_kernels, released_ones_are_paid_for_and_counted_until_they_have_run) {
    enum { WAITING = SESSION_KERNELS_MAX };
    struct fault fault;
    full(1);
    cr_assert_eq(fetched(1), 0);
    uint64_t before = live(session), each = 0;
    late_hang(engine->device, "user kernels");
    for (uint64_t i = 1; i <= WAITING; i++) {
        compile(session, i, "a", "count");
        each = each ? each : live(session) - before;
        cr_assert_eq(count(i, i + 1, 1, 0), STATUS_OK);
        cr_assert_eq(session_kernel_release(session, i, &fault), STATUS_OK);
    }
    cr_assert(each > 0);
    cr_assert_geq(live(session), before + WAITING * each);
    for (uint64_t i = 0; i < SESSION_KERNELS_MAX; i++)
        compile(session, WAITING + 1 + i, "a", "count");
    cr_assert_eq(session_kernel_release(session, WAITING + 1, &fault), STATUS_OK); /* it never ran */
    compile(session, 2 * WAITING + 1, "a", "count");
    cr_assert_eq(count(2 * WAITING + 1, WAITING + 2, 1, 0), STATUS_OK);
    cr_assert_eq(session_kernel_release(session, 2 * WAITING + 1, &fault), STATUS_OK);
    cr_assert_eq(session_kernel_id(session, 2 * WAITING + 2, &fault), STATUS_LIMIT);
    cr_assert(strstr(fault.message, "released ones still run"), "%s", fault.message);
    late_hang(engine->device, NULL);
    cr_assert_eq(fetched(WAITING + 2), 1);
    while (engine->kernels.running)
        engine_poll(engine);
    cr_assert_eq(live(session), before + (SESSION_KERNELS_MAX - 1) * each + (WAITING + 1) * POOL_ALIGNMENT);
    compile(session, 2 * WAITING + 2, "a", "count");
}

Test(engine_kernels, session_that_ends_leaves_none_behind) {
    struct session *other = session;
    struct fault fault;
    compile(session, 1, "a", "count");
    full(1);
    for (uint64_t i = 0; i < 100; i++)
        cr_assert_eq(count(1, i + 2, 1, 0), STATUS_OK);
    engine_kick(engine);
    cr_assert_eq(session_create(engine_sessions(engine), &limits, &session, &fault), STATUS_OK);
    session_destroy(other);
    while (engine->kernels.running)
        engine_poll(engine);
    struct engine_stats stats;
    engine_stats(engine, &stats);
    cr_assert_eq(stats.memory_live, 0);
    struct device_kernel *unused = kernel_unused_take(engine_kernels(engine)); /* without another compilation */
    cr_assert(unused && !unused->next);
    cr_assert_null(engine->kernels.unused);
    kernel_unused_release(engine_kernels(engine), unused);
}

Test(engine_kernels, loss_of_the_device_names_the_kernel) {
    struct kernel_attributes launch = {
        .kernel = 1, .arguments = LAUNCH_LIST(KERNEL_OUTPUT), .results = LAUNCH_LIST(DTYPE_I32, 1, 4)};
    struct op_request request = {.output = 1, .label = "label of it"};
    struct fault fault;
    compile(session, 1, "a", "crash");
    cr_assert_eq(launch_one(&request, &launch), STATUS_OK);
    cr_assert_eq(fetched(1), -STATUS_DEVICE_LOST);
    cr_assert_eq(engine_fault(engine, &fault), STATUS_DEVICE_LOST);
    cr_assert(strstr(fault.message, "illegal memory access") && strstr(fault.message, "user kernel ran: crash") &&
                  strstr(strstr(fault.message, "the device was at"), "user kernel crash"),
              "%s", fault.message); /* with the launch before it, where nobody has seen that end */
}

/* Each look is made half a second after the last one, as far as the engine can tell. */
static bool stalled(struct engine_stall *stall) {
    for (int i = 0; i < 2000; i++) {
        engine->order.watch.looked_ns = clock_now() - 500 * 1000 * 1000;
        if (engine_stalled(engine, UINT64_C(5000) * 1000 * 1000, stall))
            return true;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* until the submitter has put it on the device */
    }
    return false;
}

Test(engine_kernels, endless_one_is_noticed_and_named) {
    struct engine_stall stall;
    full(1);
    compile(session, 1, "a", "count");
    cr_assert_eq(fetched(1), 0);
    late_hang(engine->device, "user kernels");
    cr_assert_eq(count_as(&(struct op_request){.label = "mine"}, 1, 2, 1), STATUS_OK);
    engine_kick(engine);
    cr_assert(stalled(&stall), "never noticed");
    cr_assert(strstr(stall.operation, "user kernel count"), "%s", stall.operation);
    cr_assert_eq(stall.session, session);
    late_hang(engine->device, NULL);
    cr_assert_eq(fetched(2), 1);
}

/* The watch over the device sees events alone, and nobody knows how long a client's kernels run. */
Test(engine_kernels, few_share_an_event) {
    enum {
        LAUNCHES = 200,
        MARKS = 20,
        SHARE = 2 * 8 + 1 /* each makes a copy of what it updates, and the next one's may come along */
    };
    full(1);
    compile(session, 1, "a", "count");
    cr_assert_eq(fetched(1), 0);
    late_hang(engine->device, "user kernels");
    for (uint64_t i = 1; i <= LAUNCHES; i++)
        cr_assert_eq(count(1, i + 1, i, 0), STATUS_OK);
    engine_kick(engine);
    unsigned marks = 0, most = 0;
    for (int i = 0; i < 30000 && marks < MARKS; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* the submitter comes to it */
        pthread_mutex_lock(&engine->order.lock);
        marks = session->stream->marks.count;
        for (unsigned k = 0; k < marks; k++) {
            uint64_t launches = marks_at(&session->stream->marks, k)->span.launches;
            most = launches > most ? (unsigned)launches : most;
        }
        pthread_mutex_unlock(&engine->order.lock);
    }
    cr_expect_geq(marks, MARKS);
    cr_expect(most > 0 && most <= SHARE, "%u launches share an event", most);
    late_hang(engine->device, NULL);
    cr_assert_eq(fetched(LAUNCHES + 1), LAUNCHES, "what waited for room goes on");
}

/* It fails like any operation. */
Test(engine_kernels, principals_may_be_denied) {
    full(1);
    compile(session, 1, "a", "count");
    cr_assert_eq(count_as(&(struct op_request){.kernels_denied = "uid:7"}, 1, 2, 1), STATUS_DENIED);
    cr_assert_eq(fetched(2), -STATUS_DENIED);
    cr_assert(strstr(session->last_failure, "uid:7"), "%s", session->last_failure);
    cr_assert_eq(count(1, 3, 2, 0), STATUS_DENIED);
    cr_assert_eq(count(1, 4, 1, 0), STATUS_OK);
    cr_assert_eq(fetched(4), 1);
}
