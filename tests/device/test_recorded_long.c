/* Recorded programs of thousands of operations: they are checked and planned in turns of bounded time, and what operators see of their runs. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <time.h>

#include "engine/program/recorded.h"
#include "tests/device/recorded_steps.h"
#include "tests/device/suite.h"

static uint64_t programs; /* ids that are in use */

/* ---- long programs ---- */

enum { LONG = 4000, LONG_ROWS = 3, LONG_COLUMNS = 50 };

/* Checks a definition in turns of so many nanoseconds, and returns how many that took. */
static unsigned define_in_turns(struct suite *suite, const struct recorded_definition *definition, uint64_t turn_ns) {
    struct budget *budget = engine_budget(suite->engine), before = *budget;
    struct recorded_size size = {0};
    struct fault fault;
    unsigned turns = 0;
    for (unsigned i = 0; i < definition->n_requests; i++)
        recorded_size_add(&size, &definition->requests[i]);
    cr_assert_eq(session_program_begin(suite->session, definition, &size, &fault), STATUS_OK, "%s", fault.message);
    for (unsigned i = 0; i < definition->n_requests; i++)
        cr_assert(session_program_add(suite->session, &definition->requests[i]));
    do {
        budget_begin(budget, turn_ns);
        turns++;
    } while (session_program_end(suite->session) == STATUS_AGAIN);
    *budget = before;
    return turns;
}

/* A chain of sums, in which each operation reads the last two results. `turn_ns`: 0: whatever the budget. */
static uint64_t define_long_in(struct suite *suite, const struct tensor_type *type, uint64_t turn_ns) {
    struct op_request *requests = calloc(LONG, sizeof *requests);
    uint64_t(*inputs)[2] = malloc(LONG * sizeof *inputs);
    struct fault fault;
    for (unsigned k = 0; k < LONG; k++) {
        inputs[k][0] = k + 1;
        inputs[k][1] = k + 2;
        requests[k] =
            (struct op_request){.opcode = k % 3 ? OP_SUBTRACT : OP_MAXIMUM, .n_inputs = 2, .inputs = inputs[k]};
    }
    const struct recorded_definition definition = {.id = ++programs,
                                                   .parameters = (const struct tensor_type[]){*type, *type},
                                                   .consumed = (const bool[]){false, false},
                                                   .n_parameters = 2,
                                                   .requests = requests,
                                                   .n_requests = LONG,
                                                   .results = (const uint64_t[]){LONG + 2},
                                                   .n_results = 1};
    if (turn_ns)
        cr_assert_gt(define_in_turns(suite, &definition, turn_ns), 3);
    else
        cr_assert_eq(session_program_define(suite->session, &definition, &fault), STATUS_OK, "%s", fault.message);
    free(requests);
    free(inputs);
    return programs;
}

static uint64_t define_long(struct suite *suite, const struct tensor_type *type) {
    return define_long_in(suite, type, 0);
}

Test(recorded_long, the_environment_keeps_operations_apart, .timeout = 120) {
    struct suite suite;
    suite_open(&suite, 504);
    const int64_t shape[2] = {4, 5000}; /* small launches would share a step in any case */
    const struct tensor_type type = {DTYPE_F32, 2, {4, 5000}};
    uint64_t ids[2], outputs[2];
    unsigned steps[2];
    for (unsigned i = 0; i < 2; i++)
        ids[i] = suite_sample(&suite, DTYPE_F32, 2, shape, FILL_ORDINARY).id;
    for (unsigned i = 0; i < 2; i++) {
        if (i)
            setenv("TENSORD_FUSE", "none", 1);
        uint64_t id = define_long(&suite, &type);
        struct op_request run = {
            .opcode = OP_PROGRAM, .n_inputs = 2, .inputs = ids, .ints = (const int64_t[]){(int64_t)id, 1}, .n_ints = 2};
        suite_submit(&suite, &run, &outputs[i]);
        steps[i] = recorded_steps(suite.session, id);
    }
    unsetenv("TENSORD_FUSE");
    cr_assert(!steps[1] || 2 * steps[0] < steps[1], "%u fused, %u apart", steps[0], steps[1]);
    recorded_compare(&suite, outputs[0], outputs[1], &type, 0);
    suite_close(&suite);
}

/* How often a run had to be put off, in turns of so many nanoseconds. At most `most` turns; *ran: it was not put off any more. */
static int run_in_turns(struct suite *suite, const struct op_request *request, uint64_t turn_ns, int most, bool *ran) {
    struct budget *budget = engine_budget(suite->engine), before = *budget;
    int turns = 0, code = STATUS_AGAIN;
    unsigned done;
    for (; turns < most && code == STATUS_AGAIN; turns++) {
        budget_begin(budget, turn_ns);
        code = session_run(suite->session, request, 1, &done);
    }
    cr_assert(code == STATUS_OK || (code == STATUS_AGAIN && done == 0));
    *ran = code == STATUS_OK;
    *budget = before;
    return turns - *ran;
}

Test(recorded_long, plans_are_made_in_turns, .timeout = 120) {
    struct suite suite;
    suite_open(&suite, 503);
    const int64_t shape[2] = {LONG_ROWS, LONG_COLUMNS};
    const struct tensor_type type = {DTYPE_F32, 2, {LONG_ROWS, LONG_COLUMNS}};
    uint64_t ids[2], last[3], run_id;
    bool ran;
    for (unsigned i = 0; i < 2; i++)
        ids[i] = last[i] = suite_sample(&suite, DTYPE_F32, 2, shape, FILL_ORDINARY).id;
    struct op_request run = {.opcode = OP_PROGRAM, .n_inputs = 2, .inputs = ids, .n_ints = 2};
    /* One is left in the middle, and released. */
    uint64_t id = define_long(&suite, &type);
    run.ints = (const int64_t[]){(int64_t)id, 1};
    run.output = suite.next_id + 1;
    cr_assert_eq(run_in_turns(&suite, &run, 20 * 1000, 3, &ran), 3);
    cr_assert_not(ran);
    struct fault fault;
    cr_assert_eq(session_program_release(suite.session, id, &fault), STATUS_OK);
    /* The other one is made to the end. */
    id = define_long(&suite, &type);
    run.ints = (const int64_t[]){(int64_t)id, 1};
    run_id = run.output = ++suite.next_id;
    cr_assert_geq(run_in_turns(&suite, &run, 20 * 1000, INT32_MAX, &ran), 3);
    cr_assert(ran);
    for (unsigned k = 0; k < LONG; k++) {
        struct op_request request = {
            .opcode = k % 3 ? OP_SUBTRACT : OP_MAXIMUM, .n_inputs = 2, .inputs = (const uint64_t[]){last[0], last[1]}};
        suite_submit(&suite, &request, &last[2]);
        last[0] = last[1];
        last[1] = last[2];
    }
    recorded_compare(&suite, last[1], run_id, &type, 0);
    /* A third one is left in the middle when the session ends. */
    id = define_long(&suite, &type);
    run.ints = (const int64_t[]){(int64_t)id, 1};
    run.output = suite.next_id + 1;
    run_in_turns(&suite, &run, 20 * 1000, 3, &ran);
    cr_assert_not(ran);
    suite_close(&suite);
}

Test(recorded_long, definitions_are_checked_in_turns, .timeout = 120) {
    struct suite suite;
    suite_open(&suite, 507);
    const int64_t shape[2] = {LONG_ROWS, LONG_COLUMNS};
    const struct tensor_type type = {DTYPE_F32, 2, {LONG_ROWS, LONG_COLUMNS}};
    uint64_t ids[2], outputs[2];
    for (unsigned i = 0; i < 2; i++)
        ids[i] = suite_sample(&suite, DTYPE_F32, 2, shape, FILL_ORDINARY).id;
    for (unsigned i = 0; i < 2; i++) {
        uint64_t id = define_long_in(&suite, &type, i);
        struct op_request run = {
            .opcode = OP_PROGRAM, .n_inputs = 2, .inputs = ids, .ints = (const int64_t[]){(int64_t)id, 1}, .n_ints = 2};
        suite_submit(&suite, &run, &outputs[i]);
    }
    recorded_compare(&suite, outputs[0], outputs[1], &type, 0);
    suite_close(&suite);
}

/* ---- what operators see ---- */

/* Enqueues a run and waits for its result. */
static void run_long(struct suite *suite, uint64_t id, int64_t times, const uint64_t *inputs) {
    struct op_request run = {.opcode = OP_PROGRAM,
                             .n_inputs = 2,
                             .inputs = inputs,
                             .ints = (const int64_t[]){(int64_t)id, times},
                             .n_ints = 2};
    struct suite_fetch fetch;
    uint64_t output;
    suite_submit(suite, &run, &output);
    suite_fetch_start(suite, output, &fetch);
    suite_fetch_wait(suite, &fetch);
    cr_assert_not(fetch.failed, "%s", fetch.failure.message);
    fetch_release(&fetch.fetch);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* All these runs are long, so that each is timed: one after the other, so their times together are no longer than it took. */
Test(recorded_long, runs_are_counted_and_timed, .timeout = 120) {
    struct suite suite;
    suite_open(&suite, 505);
    const int64_t shape[2] = {LONG_ROWS, LONG_COLUMNS};
    const struct tensor_type type = {DTYPE_F32, 2, {LONG_ROWS, LONG_COLUMNS}};
    struct recorded_figures figures[3];
    struct fault fault;
    uint64_t ids[2];
    for (unsigned i = 0; i < 2; i++)
        ids[i] = suite_sample(&suite, DTYPE_F32, 2, shape, FILL_ORDINARY).id;
    cr_assert_eq(session_programs(suite.session), 0);
    uint64_t id = define_long(&suite, &type), loop = ++programs;
    const struct recorded_loop carried = {.id = loop, .body = id, .carried = (const uint32_t[]){0, 0}, .n_carried = 2};
    cr_assert_eq(session_program_loop(suite.session, &carried, &fault), STATUS_OK);
    cr_assert_eq(session_programs_figures(suite.session, figures, 3), 2);
    for (unsigned i = 0; i < 2; i++)
        cr_assert(!figures[i].planned && !figures[i].runs && figures[i].operations == LONG && figures[i].kept == LONG);
    uint64_t began_ns = now_ns();
    run_long(&suite, loop, 4, ids);
    for (int i = 0; i < 5; i++)
        run_long(&suite, id, 1, ids);
    uint64_t took_ns = now_ns() - began_ns;
    cr_assert_eq(session_programs_figures(suite.session, figures, 3), 2);
    cr_assert(figures[0].id == id && figures[1].id == loop && figures[1].loops);
    cr_assert(figures[0].runs == 5 && figures[0].iterations == 5 && figures[0].timed == 5 && !figures[0].queued);
    cr_assert(figures[1].runs == 1 && figures[1].iterations == 4 && figures[1].timed == 1 && !figures[1].queued);
    cr_assert(figures[0].run_ns > 0 && figures[0].last_ns > 0 && figures[1].run_ns == figures[1].last_ns);
    cr_assert(5 * figures[0].run_ns + figures[1].run_ns <= took_ns, "%lu and %lu ns of %lu", figures[0].run_ns,
              figures[1].run_ns, took_ns);
    for (unsigned i = 0; i < 2; i++) {
        unsigned parts = figures[i].launches - figures[i].groups + figures[i].grouped;
        cr_assert(figures[i].planned && figures[i].arena >= figures[i].arena_least);
        cr_assert(parts == LONG || parts == LONG + 1, "%u", parts); /* the result may be copied out */
    }
    suite_close(&suite);
    programs = 0;
}

Test(recorded_long, wrong_definitions_are_shown_with_their_causes) {
    struct suite suite;
    struct recorded_figures figures[2];
    struct fault fault, why;
    suite_open(&suite, 506);
    fault_set(&why, STATUS_INVALID_ARGUMENT, "nobody can read it");
    cr_assert_eq(session_program_refuse(suite.session, 1, &why, &fault), STATUS_OK);
    const struct recorded_loop loop = {.id = 2, .body = 7};
    cr_assert_eq(session_program_loop(suite.session, &loop, &fault), STATUS_OK);
    cr_assert_eq(session_programs_figures(suite.session, figures, 2), 2);
    cr_assert_str_eq(figures[0].cause, "no program has id 7, over which it could loop");
    cr_assert_str_eq(figures[1].cause, "nobody can read it");
    cr_assert(figures[0].loops && !figures[0].planned && !figures[0].runs && !figures[0].operations);
    suite_close(&suite);
}

/* ---- wide runs ---- */

enum { WIDE = 12000, WIDE_ELEMENTS = 4 };

/* A chain of lookups, each of which reports indices that are out of range: the record of a run names as many reports. */
Test(recorded_long, a_run_may_take_more_than_a_chunk_of_its_stream, .timeout = 120) {
    struct suite suite;
    suite_open(&suite, 506);
    struct op_request *requests = calloc(WIDE, sizeof *requests);
    uint64_t(*inputs)[2] = malloc(WIDE * sizeof *inputs), ids[2], both[2], result = WIDE + 2;
    const int64_t axis = 0, shape[1] = {WIDE_ELEMENTS};
    struct fault fault;
    for (unsigned k = 0; k < WIDE; k++) {
        inputs[k][0] = k ? k + 2 : 1;
        inputs[k][1] = 2;
        requests[k] =
            (struct op_request){.opcode = OP_TAKE, .n_inputs = 2, .inputs = inputs[k], .ints = &axis, .n_ints = 1};
    }
    const struct tensor_type types[2] = {{DTYPE_F32, 1, {WIDE_ELEMENTS}}, {DTYPE_I64, 1, {WIDE_ELEMENTS}}};
    const struct recorded_definition definition = {.id = ++programs,
                                                   .parameters = types,
                                                   .consumed = (const bool[]){false, false},
                                                   .n_parameters = 2,
                                                   .requests = requests,
                                                   .n_requests = WIDE,
                                                   .results = &result,
                                                   .n_results = 1};
    cr_assert_eq(session_program_define(suite.session, &definition, &fault), STATUS_OK, "%s", fault.message);
    ids[0] = suite_sample(&suite, DTYPE_F32, 1, shape, FILL_ORDINARY).id;
    /* integers, and then the same as floats, of which none is used */
    struct op_request arange = {.opcode = OP_ARANGE,
                                .ints = (const int64_t[]){DTYPE_I64, WIDE_ELEMENTS - 1, -1, -1},
                                .n_ints = 4,
                                .floats = (const double[]){WIDE_ELEMENTS - 1, -1, -1},
                                .n_floats = 3};
    suite_submit(&suite, &arange, &ids[1]);
    for (unsigned run = 0; run < 3; run++) {
        struct op_request request = {.opcode = OP_PROGRAM,
                                     .n_inputs = 2,
                                     .inputs = ids,
                                     .ints = (const int64_t[]){(int64_t)programs, 1},
                                     .n_ints = 2};
        suite_submit(&suite, &request, &both[1]);
        both[0] = ids[0]; /* an even number of times back to front */
        recorded_compare(&suite, both[0], both[1], &types[0], 0);
    }
    free(requests);
    free(inputs);
    suite_close(&suite);
    programs = 0;
}
