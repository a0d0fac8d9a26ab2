/* Programs that run often, each time on other addresses: on a device with graphs (engine/order/replay_graph.h) they run as graphs, and their results
 * must have the bits of the same operations one by one. What cannot be in a graph stands between graphs. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "engine/device/device_impl.h"
#include "engine/memory/tenant.h"
#include "engine/program/recorded.h"
#include "tests/device/recorded_steps.h"
#include "tests/device/replayed.h"
#include "tests/device/suite.h"

enum { ROWS = 8, DEPTH = 16, COLUMNS = 12, TAKEN = 5, OPERATIONS = 24, GIVEN = 4, RESULTS_MAX = 8, RUNS = 12 };

struct graphs_program {
    struct suite *suite;
    struct tensor_type types[GIVEN + OPERATIONS];
    struct op_request requests[OPERATIONS];
    uint64_t inputs[OPERATIONS][2]; /* values, from 1; the given ones first */
    struct op_packed attributes[OPERATIONS];
    unsigned n;
    uint64_t results[RESULTS_MAX];
    unsigned n_results;
    uint64_t id;
};

static const struct {
    enum dtype dtype;
    int rank;
    int64_t shape[2];
} given_types[GIVEN] = {
    {DTYPE_F32, 2, {ROWS, DEPTH}},
    {DTYPE_F32, 2, {DEPTH, COLUMNS}},
    {DTYPE_F32, 2, {ROWS, COLUMNS}},
    {DTYPE_I64, 1, {TAKEN}},
};

static uint64_t add(struct graphs_program *program, unsigned opcode, uint64_t a, uint64_t b,
                    struct op_packed attributes) {
    unsigned k = program->n++;
    const struct tensor_type *types[2];
    struct fault fault;
    program->inputs[k][0] = a;
    program->inputs[k][1] = b;
    program->attributes[k] = attributes;
    program->requests[k] = (struct op_request){.opcode = opcode,
                                               .n_inputs = a ? b ? 2 : 1 : 0,
                                               .inputs = program->inputs[k],
                                               .ints = program->attributes[k].ints,
                                               .n_ints = program->attributes[k].n_ints,
                                               .floats = program->attributes[k].floats,
                                               .n_floats = program->attributes[k].n_floats};
    for (unsigned i = 0; i < program->requests[k].n_inputs; i++)
        types[i] = &program->types[program->inputs[k][i] - 1];
    cr_assert_eq(op_infer(opcode, types, program->requests[k].n_inputs, &program->requests[k].attributes,
                          &program->types[GIVEN + k], &fault),
                 STATUS_OK, "%s", fault.message);
    return GIVEN + program->n;
}

static void result(struct graphs_program *program, uint64_t value) {
    program->results[program->n_results++] = value;
}

static void program_begin(struct graphs_program *program, struct suite *suite) {
    *program = (struct graphs_program){.suite = suite, .id = 1};
    for (unsigned i = 0; i < GIVEN; i++) {
        program->types[i] = (struct tensor_type){.dtype = given_types[i].dtype, .rank = given_types[i].rank};
        memcpy(program->types[i].shape, given_types[i].shape, sizeof given_types[i].shape);
    }
}

/* Kernels, a product by a library, copies, memory that is set, an operation of several launches, one that may report, and a reduction by CUB. */
static void program_make(struct graphs_program *program, struct suite *suite) {
    const struct op_packed none = {.n_ints = 0};
    program_begin(program, suite);
    uint64_t twice = add(program, OP_ADD, 1, 1, none);
    uint64_t product = add(program, OP_MATMUL, twice, 2, none);
    uint64_t one =
        add(program, OP_EYE, 0, 0, SUITE_ATTRIBUTES(eye, .dtype = DTYPE_F32, .rows = ROWS, .columns = COLUMNS));
    uint64_t moved = add(program, OP_SUBTRACT, product, one, none);
    uint64_t bent = add(program, OP_RELU, moved, 0, none);
    uint64_t next = add(program, OP_ADD, bent, 3, none);
    result(program, next);
    uint64_t taken = add(program, OP_TAKE, next, 4, SUITE_ATTRIBUTES(take, .axis = 0));
    result(program, taken);
    uint64_t turned = add(program, OP_MATRIX_TRANSPOSE, next, 0, none);
    result(program, add(program, OP_COPY, turned, 0, none));
    result(program, add(program, OP_COPY, 1, 0, none));
    uint64_t soft = add(program, OP_SOFTMAX, next, 0, SUITE_ATTRIBUTES(softmax, .axis = 1));
    result(program, soft);
    uint64_t rows = add(program, OP_SUM, soft, 0, SUITE_ATTRIBUTES(reduction, .axes = SUITE_LIST(1), .keepdims = true));
    uint64_t whole = add(program, OP_SUM, next, 0, SUITE_ATTRIBUTES(reduction, .axes = SUITE_LIST(0, 1)));
    result(program, add(program, OP_MULTIPLY, rows, whole, none));
}

static void program_define(struct graphs_program *program) {
    struct fault fault;
    const struct recorded_definition definition = {.id = program->id,
                                                   .parameters = program->types,
                                                   .consumed = (const bool[GIVEN]){false},
                                                   .n_parameters = GIVEN,
                                                   .requests = program->requests,
                                                   .n_requests = program->n,
                                                   .results = program->results,
                                                   .n_results = program->n_results};
    cr_assert_eq(session_program_define(program->suite->session, &definition, &fault), STATUS_OK, "%s", fault.message);
}

static void given(struct suite *suite, uint64_t ids[GIVEN]) {
    for (unsigned i = 0; i < GIVEN; i++) /* small whole numbers, whose sums are exact in any order */
        ids[i] = suite_sample(suite, given_types[i].dtype, given_types[i].rank, given_types[i].shape, FILL_COUNT).id;
}

static void run_eagerly(struct graphs_program *program, const uint64_t *inputs, uint64_t *ids) {
    memcpy(ids, inputs, GIVEN * sizeof *ids);
    for (unsigned k = 0; k < program->n; k++) {
        struct op_request request = program->requests[k];
        uint64_t own[2];
        for (unsigned i = 0; i < request.n_inputs; i++)
            own[i] = ids[program->inputs[k][i] - 1];
        request.inputs = own;
        suite_submit(program->suite, &request, &ids[GIVEN + k]);
    }
}

static uint64_t run_recorded(struct graphs_program *program, uint64_t id, int64_t times, const uint64_t *inputs) {
    struct op_request run = {.opcode = OP_PROGRAM,
                             .n_inputs = GIVEN,
                             .inputs = inputs,
                             .ints = (const int64_t[]){(int64_t)id, times},
                             .n_ints = 2,
                             .further = program->n_results - 1};
    uint64_t outputs[RESULTS_MAX];
    suite_submit(program->suite, &run, outputs);
    return outputs[0];
}

static const struct tensor_type *result_type(const struct graphs_program *program, unsigned r) {
    return &program->types[program->results[r] - 1];
}

Test(graphs, runs_have_the_bits_of_their_operations_one_by_one, .timeout = 300) {
    struct suite suite;
    struct graphs_program program;
    struct replay_graph_figures figures;
    uint64_t inputs[RUNS][GIVEN], ids[GIVEN + OPERATIONS], outputs[RUNS];
    suite_open(&suite, 601);
    program_make(&program, &suite);
    program_define(&program);
    for (int run = 0; run < RUNS;
         run++) { /* all tensors stay, so addresses are new; every third run repeats the inputs before */
        if (run % 3 == 2)
            memcpy(inputs[run], inputs[run - 1], sizeof inputs[run]);
        else
            given(&suite, inputs[run]);
        outputs[run] = run_recorded(&program, program.id, 1, inputs[run]);
        for (unsigned r = 0; r < program.n_results && run % 2; r++) /* their memory is the next ones' */
            if (run > 4)
                suite_release(&suite, outputs[run - 4] + r);
    }
    for (int run = RUNS - 5; run < RUNS; run++) {
        if (run + 4 < RUNS && (run + 4) % 2)
            continue; /* released */
        run_eagerly(&program, inputs[run], ids);
        for (unsigned r = 0; r < program.n_results; r++)
            recorded_compare_bits(&suite, ids[program.results[r] - 1], outputs[run] + r, result_type(&program, r), 0,
                                  "result", r);
    }
    if (replayed_graphs(suite.session, program.id, &figures))
        cr_assert(figures.graphs && figures.steps && figures.launched && figures.exchanged && figures.captured,
                  "%u graphs of %u steps, launched %lu times, captured %lu, exchanged %lu: %s", figures.graphs,
                  figures.steps, (unsigned long)figures.launched, (unsigned long)figures.captured,
                  (unsigned long)figures.exchanged, figures.reason);
    suite_close(&suite);
}

/* What one run reports is its own, and its inputs' fault alone. */
Test(graphs, a_wrong_index_fails_its_own_run, .timeout = 300) {
    struct suite suite;
    struct graphs_program program;
    suite_open(&suite, 602);
    program_make(&program, &suite);
    program_define(&program);
    for (int run = 0; run < RUNS; run++) {
        uint64_t inputs[GIVEN], ids[GIVEN + OPERATIONS], wrong;
        struct failure failure;
        given(&suite, inputs);
        if (run % 4 == 3) {
            struct op_packed full =
                SUITE_ATTRIBUTES(full, .dtype = DTYPE_I64, .shape = SUITE_LIST(TAKEN), .value = {.i = ROWS + run});
            struct op_request request = {.opcode = OP_FULL,
                                         .ints = full.ints,
                                         .n_ints = full.n_ints,
                                         .floats = full.floats,
                                         .n_floats = full.n_floats};
            suite_submit(&suite, &request, &wrong);
            inputs[GIVEN - 1] = wrong;
        }
        uint64_t output = run_recorded(&program, program.id, 1, inputs);
        if (run % 4 == 3) {
            cr_assert_eq(suite_outcome(&suite, output, &failure), STATUS_OUT_OF_RANGE, "run %d", run);
            continue;
        }
        run_eagerly(&program, inputs, ids);
        for (unsigned r = 0; r < program.n_results; r++)
            recorded_compare_bits(&suite, ids[program.results[r] - 1], output + r, result_type(&program, r), 0,
                                  "result", r);
    }
    suite_close(&suite);
}

/* The first result is carried to the third parameter, from one memory to another and back; the second one is stacked, at new addresses. */
Test(graphs, loops_have_the_bits_of_their_iterations_one_by_one, .timeout = 300) {
    struct suite suite;
    struct graphs_program program;
    struct replay_graph_figures figures;
    struct fault fault;
    suite_open(&suite, 603);
    program_make(&program, &suite);
    program_define(&program);
    const struct recorded_loop shape = {.id = 2,
                                        .body = program.id,
                                        .carried = (const uint32_t[]){0, 2},
                                        .n_carried = 2,
                                        .stacked = (const uint32_t[]){1},
                                        .n_stacked = 1};
    cr_assert_eq(session_program_loop(suite.session, &shape, &fault), STATUS_OK, "%s", fault.message);
    for (int64_t times = 1; times < 40; times += 1 + times / 2) {
        uint64_t inputs[GIVEN], ids[GIVEN + OPERATIONS];
        given(&suite, inputs);
        uint64_t output = run_recorded(&program, 2, times, inputs);
        for (int64_t i = 0; i < times; i++) {
            run_eagerly(&program, inputs, ids);
            inputs[2] = ids[program.results[0] - 1];
            const struct tensor_type *type = result_type(&program, 1);
            recorded_compare_bits(&suite, ids[program.results[1] - 1], output + 1, type, (size_t)(i * type_bytes(type)),
                                  "iteration", (unsigned)i);
        }
        for (unsigned r = 0; r < program.n_results; r++)
            if (r != 1)
                recorded_compare_bits(&suite, ids[program.results[r] - 1], output + r, result_type(&program, r), 0,
                                      "result", r);
    }
    if (replayed_graphs(suite.session, 2, &figures))
        cr_assert(figures.launched && figures.exchanged, "launched %lu times: %s", (unsigned long)figures.launched,
                  figures.reason);
    suite_close(&suite);
}

/* A convolution, which a library may compute. */
Test(graphs, what_is_in_no_graph_stands_between_graphs, .timeout = 300) {
    struct suite suite;
    struct graphs_program program;
    struct replay_graph_figures figures;
    const struct op_packed none = {.n_ints = 0};
    suite_open(&suite, 604);
    program_begin(&program, &suite);
    uint64_t x = 1;
    for (int i = 0; i < 6; i++)
        x = add(&program, i % 2 ? OP_ADD : OP_MAXIMUM, x, x, none);
    uint64_t images =
        add(&program, OP_RESHAPE, x, 0, SUITE_ATTRIBUTES(reshape, .shape = SUITE_LIST(1, 1, ROWS, DEPTH)));
    uint64_t weight =
        add(&program, OP_RESHAPE, 3, 0, SUITE_ATTRIBUTES(reshape, .shape = SUITE_LIST(1, 1, ROWS, COLUMNS)));
    x = add(&program, OP_CONV, images, weight, SUITE_ATTRIBUTES(conv, .groups = 1));
    result(&program, x);
    for (int i = 0; i < 6; i++)
        x = add(&program, i % 2 ? OP_ADD : OP_MAXIMUM, x, x, none);
    result(&program, x);
    program_define(&program);
    for (int run = 0; run < RUNS; run++) {
        uint64_t inputs[GIVEN], ids[GIVEN + OPERATIONS];
        given(&suite, inputs);
        uint64_t output = run_recorded(&program, program.id, 1, inputs);
        run_eagerly(&program, inputs, ids);
        for (unsigned r = 0; r < program.n_results; r++)
            recorded_compare_bits(&suite, ids[program.results[r] - 1], output + r, result_type(&program, r), 0,
                                  "result", r);
        for (unsigned r = 0; r < program.n_results; r++) /* the next run's results may have their memory */
            suite_release(&suite, output + r);
    }
    if (replayed_graphs(suite.session, program.id, &figures)) {
        cr_assert(figures.graphs && figures.launched, "%s", figures.reason);
        cr_assert(!figures.refused || strstr(figures.reason, "conv"), "%s", figures.reason);
    }
    suite_close(&suite);
}

/* Elementwise operations that become one kernel where the device compiles such: with a product before them and a reduction behind, so
 * that what is fused and what is not stand in one graph. The second result is read in the middle, the others at the end. */
static void program_make_fused(struct graphs_program *program, struct suite *suite) {
    const struct op_packed none = {.n_ints = 0};
    program_begin(program, suite);
    uint64_t product = add(program, OP_MATMUL, 1, 2, none);
    uint64_t sum = add(program, OP_ADD, product, 3, none);
    uint64_t bent = add(program, OP_TANH, sum, 0, none);
    uint64_t half = add(program, OP_CAST, bent, 0, SUITE_ATTRIBUTES(cast, .dtype = DTYPE_F16));
    uint64_t wide = add(program, OP_CAST, half, 0, SUITE_ATTRIBUTES(cast, .dtype = DTYPE_F32));
    result(program, add(program, OP_MULTIPLY, wide, 3, none));
    uint64_t rows = add(program, OP_SUM, wide, 0, SUITE_ATTRIBUTES(reduction, .axes = SUITE_LIST(1), .keepdims = true));
    result(program, wide);
    uint64_t less = add(program, OP_SUBTRACT, wide, rows, none);
    uint64_t scaled = add(program, OP_EXP, less, 0, none);
    result(program, add(program, OP_ADD, scaled, wide, none));
    result(program, add(program, OP_MATMUL, scaled, add(program, OP_MATRIX_TRANSPOSE, 2, 0, none), none));
}

static void expect_fused(struct suite *suite, uint64_t program, bool all) {
    unsigned ready, n = replayed_fused(suite->session, program, &ready);
    if (suite->engine && engine_device(suite->engine)->vtable->fusion)
        cr_assert(n >= 2 && ready == (all ? n : 0), "%u of %u fused launches", ready, n);
    else
        cr_assert_eq(n, 0);
}

/* Runs go on while kernels come, and have the same bits before and afterwards. */
Test(graphs, kernels_of_fused_launches_take_over, .timeout = 300) {
    struct suite suite;
    struct graphs_program program;
    struct fault fault;
    suite_open(&suite, 605);
    program_make_fused(&program, &suite);
    program_define(&program);
    const struct recorded_loop shape = {
        .id = 2, .body = program.id, .carried = (const uint32_t[]){0, 2}, .n_carried = 2};
    cr_assert_eq(session_program_loop(suite.session, &shape, &fault), STATUS_OK, "%s", fault.message);
    for (int run = 0; run < 2 * RUNS; run++) {
        uint64_t inputs[GIVEN], ids[GIVEN + OPERATIONS];
        int64_t times = run % 3 + 1;
        given(&suite, inputs);
        if (run == RUNS)
            replayed_compile(suite.engine);
        uint64_t output = run_recorded(&program, program.id, 1, inputs);
        run_eagerly(&program, inputs, ids);
        for (unsigned r = 0; r < program.n_results; r++)
            recorded_compare_bits(&suite, ids[program.results[r] - 1], output + r, result_type(&program, r), 0,
                                  "result", r);
        expect_fused(&suite, program.id, run >= RUNS);
        output = run_recorded(&program, 2, times, inputs);
        for (int64_t i = 0; i < times; i++) {
            run_eagerly(&program, inputs, ids);
            inputs[2] = ids[program.results[0] - 1];
        }
        for (unsigned r = 0; r < program.n_results; r++)
            recorded_compare_bits(&suite, ids[program.results[r] - 1], output + r, result_type(&program, r), 0,
                                  "a loop's result", r);
        expect_fused(&suite, 2, run >= RUNS);
    }
    suite_close(&suite);
}

/* A softmax, a layer norm and the deviations of rows, written out, and a softmax as one operation. */
static void program_make_rows(struct graphs_program *program, struct suite *suite) {
    const struct op_packed none = {.n_ints = 0};
    const struct op_packed each = SUITE_ATTRIBUTES(reduction, .axes = SUITE_LIST(1), .keepdims = true);
    const struct op_packed spread =
        SUITE_ATTRIBUTES(variance, .axes = SUITE_LIST(1), .keepdims = true, .correction = 1);
    program_begin(program, suite);
    uint64_t row = add(program, OP_RESHAPE, 1, 0, SUITE_ATTRIBUTES(reshape, .shape = SUITE_LIST(1, ROWS * DEPTH)));
    uint64_t column =
        add(program, OP_RESHAPE, 2, 0, SUITE_ATTRIBUTES(reshape, .shape = SUITE_LIST(DEPTH * COLUMNS, 1)));
    uint64_t matrix = add(program, OP_MATMUL, column, row, none);
    uint64_t less = add(program, OP_SUBTRACT, matrix, add(program, OP_MAX, matrix, 0, each), none);
    uint64_t grown = add(program, OP_EXP, less, 0, none);
    result(program, add(program, OP_DIVIDE, grown, add(program, OP_SUM, grown, 0, each), none));
    uint64_t centred = add(program, OP_SUBTRACT, matrix, add(program, OP_MEAN, matrix, 0, each), none);
    uint64_t squares = add(program, OP_MULTIPLY, centred, centred, none);
    uint64_t root = add(program, OP_SQRT, add(program, OP_MEAN, squares, 0, each), 0, none);
    result(program, add(program, OP_DIVIDE, centred, root, none));
    uint64_t half = add(program, OP_CAST, matrix, 0, SUITE_ATTRIBUTES(cast, .dtype = DTYPE_F16));
    uint64_t deviation = add(program, OP_VAR, half, 0, spread);
    result(program, deviation);
    result(program, add(program, OP_ADD, half, deviation, none));
    uint64_t soft =
        add(program, OP_SOFTMAX, add(program, OP_TANH, matrix, 0, none), 0, SUITE_ATTRIBUTES(softmax, .axis = 1));
    result(program, add(program, OP_MULTIPLY, soft, matrix, none));
}

/* Where the device compiles kernels of fused launches, those reduce rows, too. */
Test(graphs, kernels_of_fused_launches_reduce_rows, .timeout = 300) {
    struct suite suite;
    struct graphs_program program;
    suite_open(&suite, 607);
    program_make_rows(&program, &suite);
    program_define(&program);
    for (int run = 0; run < RUNS; run++) {
        uint64_t inputs[GIVEN], ids[GIVEN + OPERATIONS];
        given(&suite, inputs);
        if (run == RUNS / 2)
            replayed_compile(suite.engine);
        uint64_t output = run_recorded(&program, program.id, 1, inputs);
        run_eagerly(&program, inputs, ids);
        for (unsigned r = 0; r < program.n_results; r++)
            recorded_compare_bits(&suite, ids[program.results[r] - 1], output + r, result_type(&program, r), 0,
                                  "result", r);
    }
    unsigned rows = replayed_by_rows(suite.session, program.id);
    if (engine_device(suite.engine)->vtable->fusion)
        cr_assert_eq(rows, 6, "%u reductions and softmaxes are in kernels of fused launches", rows);
    suite_close(&suite);
}

/* So that many sessions of a principal have the same places, and the same turns of the compiler, as one. */
Test(graphs, kernels_of_fused_launches_belong_to_the_principal) {
    struct suite suite;
    struct graphs_program program;
    struct tenant *tenant;
    struct fault fault;
    uint64_t inputs[GIVEN];
    unsigned n, own;
    suite_open(&suite, 606);
    struct session *alone = suite.session;
    cr_assert_eq(tenant_create(engine_memory(suite.engine), "", &(struct tenant_limits){0}, &tenant, &fault),
                 STATUS_OK);
    const struct session_limits limits = {.tensors = 1 << 20, .streams = 16, .number = 77, .tenant = tenant};
    cr_assert_eq(session_create(engine_sessions(suite.engine), &limits, &suite.session, &fault), STATUS_OK);
    program_make_fused(&program, &suite);
    program_define(&program);
    given(&suite, inputs);
    run_recorded(&program, program.id, 1, inputs);
    n = replayed_give_up(suite.engine, suite.session, &own);
    cr_assert_eq(own, n, "%u of %u kernels belong to the session's tenant", own, n);
    cr_assert(n > 0 || !engine_device(suite.engine)->vtable->fusion);
    session_destroy(suite.session);
    tenant_destroy(tenant);
    suite.session = alone;
    suite_close(&suite);
}
