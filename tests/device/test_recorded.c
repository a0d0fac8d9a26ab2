/* Random programs of elementwise operations, views and reductions, recorded and run as one operation: their results must have the bits of the same
 * operations one by one. What is fused may touch memory only where that changes nothing; and what follows from captured tensors alone is computed once. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "engine/program/recorded.h"
#include "tests/device/recorded_steps.h"
#include "tests/device/suite.h"

enum { OPERATIONS = 60, GIVEN = 7, VALUES = GIVEN + OPERATIONS, RESULTS = 6 };

struct made {
    struct op_request request;
    uint64_t inputs[3];
    struct op_packed attributes;
};

struct random_program {
    struct suite *suite;
    struct made operations[OPERATIONS];
    struct tensor_type types[VALUES];
    int64_t rows, columns;
    unsigned n; /* operations so far */
};

/* Matrices with rows too short to fuse, too short to reduce in a fused launch, in one tile, in several, and with one row. */
static const int64_t shapes[][2] = {{5, 20}, {5, 40}, {9, 130}, {3, 700}, {2, 2500}, {1, 300}};
/* So many elements that the reduction of all of them may be cut. */
static const int64_t large_shapes[][2] = {{1, 140001}, {2, 66000}};

static void given_type(unsigned i, int64_t rows, int64_t columns, struct tensor_type *type) {
    const struct tensor_type types[GIVEN] = {{DTYPE_F32, 2, {rows, columns}},
                                             {DTYPE_F32, 2, {rows, columns}},
                                             {DTYPE_F32, 1, {columns}},
                                             {DTYPE_F32, 2, {rows, 1}},
                                             {DTYPE_F32, 0, {0}},
                                             {DTYPE_F64, 2, {rows, columns}},
                                             {DTYPE_F32, 1, {rows * columns}}};
    *type = types[i];
}

/* The first of those that are given; the others are captured. */
enum { PARAMETERS = 5 };

/* An operation that may be wrong: the rule decides. */
static void random_operation(struct random_program *program, struct made *made) {
    static const unsigned unary[] = {OP_NEGATIVE, OP_ABS, OP_EXP, OP_RELU, OP_SQRT, OP_TANH, OP_SIGN};
    static const unsigned binary[] = {OP_ADD, OP_SUBTRACT, OP_MULTIPLY, OP_MAXIMUM, OP_LESS};
    static const unsigned reductions[] = {OP_SUM, OP_MEAN, OP_MAX,    OP_MIN,          OP_PROD,
                                          OP_ANY, OP_ALL,  OP_ARGMAX, OP_COUNT_NONZERO};
    struct suite *suite = program->suite;
    int64_t known = GIVEN + program->n, kind = suite_below(suite, 16), rows = program->rows, columns = program->columns;
    bool captured = suite_chance(suite, 10);
    memset(made, 0, sizeof *made);
    for (unsigned i = 0; i < 3; i++) /* often what is new, so that chains come about */
        made->inputs[i] = 1 + (uint64_t)(suite_chance(suite, 60) && known > 4 ? known - 1 - suite_below(suite, 4)
                                                                              : suite_below(suite, known));
    for (unsigned i = 0; i < 3 && captured; i++)
        made->inputs[i] = 1 + PARAMETERS + (uint64_t)suite_below(suite, GIVEN - PARAMETERS);
    made->request.n_inputs = 1;
    if (kind < 3) {
        made->request.opcode = unary[suite_below(suite, sizeof unary / sizeof *unary)];
    } else if (kind < 8) {
        made->request.opcode = binary[suite_below(suite, sizeof binary / sizeof *binary)];
        made->request.n_inputs = 2;
    } else if (kind == 8) {
        made->request.opcode = OP_CAST;
        made->attributes = SUITE_ATTRIBUTES(cast, .dtype = suite_chance(suite, 70) ? DTYPE_F32 : DTYPE_F64);
    } else if (kind == 9) {
        made->request.opcode = OP_RESHAPE;
        made->attributes = suite_chance(suite, 50) ? SUITE_ATTRIBUTES(reshape, .shape = SUITE_LIST(rows, columns))
                                                   : SUITE_ATTRIBUTES(reshape, .shape = SUITE_LIST(rows * columns));
    } else if (kind == 12) {
        made->request.opcode = OP_FULL;
        made->request.n_inputs = 0;
        made->attributes = SUITE_ATTRIBUTES(full, .dtype = DTYPE_F32, .value = {.f = 0.75});
    } else if (kind == 14) {
        made->request.opcode = suite_chance(suite, 50) ? OP_SOFTMAX : OP_LOG_SOFTMAX;
        made->attributes = SUITE_ATTRIBUTES(softmax, .axis = -1);
    } else if (kind == 15) { /* of two given matrices, which it mostly fits */
        made->request.opcode = OP_LINEAR;
        made->request.n_inputs = 2;
        made->attributes = SUITE_ATTRIBUTES(linear, .activation = OP_ACTIVATION_NONE);
        for (unsigned i = 0; i < 2; i++)
            made->inputs[i] = suite_chance(suite, 70) ? 1 + (uint64_t)suite_below(suite, 2) : made->inputs[i];
    } else if (kind == 10) {
        made->request.opcode = OP_BROADCAST_TO;
        made->attributes = SUITE_ATTRIBUTES(broadcast_to, .shape = SUITE_LIST(rows, columns));
    } else {
        bool keepdims = suite_chance(suite, 80);
        made->request.opcode = reductions[suite_below(suite, sizeof reductions / sizeof *reductions)];
        made->attributes = suite_chance(suite, 85)
                               ? SUITE_ATTRIBUTES(reduction, .axes = SUITE_LIST(-1), .keepdims = keepdims)
                               : SUITE_ATTRIBUTES(reduction, .keepdims = keepdims);
    }
}

/* Finishes the next operation, whose opcode, inputs and attributes are there. False: it does not obey the rules. */
static bool made_finish(struct random_program *program, struct made *made) {
    struct fault fault;
    const struct tensor_type *types[3];
    made->request.ints = made->attributes.ints;
    made->request.n_ints = made->attributes.n_ints;
    made->request.floats = made->attributes.floats;
    made->request.n_floats = made->attributes.n_floats;
    made->request.inputs = made->inputs;
    for (unsigned i = 0; i < made->request.n_inputs; i++)
        types[i] = &program->types[made->inputs[i] - 1];
    return op_infer(made->request.opcode, types, made->request.n_inputs, &made->request.attributes,
                    &program->types[GIVEN + program->n], &fault) == STATUS_OK;
}

/* Adds an operation that obeys the rules. */
static void random_add(struct random_program *program) {
    struct made *made = &program->operations[program->n];
    do {
        random_operation(program, made);
    } while (!made_finish(program, made) ||
             type_elements(&program->types[GIVEN + program->n]) > program->rows * program->columns);
    program->n++;
}

/* Runs the operations one by one on these tensors, whose list it extends. */
static void run_eagerly(struct random_program *program, uint64_t *ids) {
    for (unsigned k = 0; k < program->n; k++) {
        struct op_request request = program->operations[k].request;
        uint64_t inputs[3];
        for (unsigned i = 0; i < request.n_inputs; i++)
            inputs[i] = ids[program->operations[k].inputs[i] - 1];
        request.inputs = inputs;
        suite_submit(program->suite, &request, &ids[GIVEN + k]);
    }
}

static uint64_t programs;

/* A definition whose first values are parameters, and the others captured tensors. */
static uint64_t define(struct random_program *program, const uint64_t *given, const bool *consumed,
                       const uint64_t *results) {
    struct op_request requests[OPERATIONS];
    struct fault fault;
    for (unsigned k = 0; k < program->n; k++)
        requests[k] = program->operations[k].request;
    const struct recorded_definition definition = {.id = ++programs,
                                                   .parameters = program->types,
                                                   .consumed = consumed,
                                                   .n_parameters = PARAMETERS,
                                                   .captures = given + PARAMETERS,
                                                   .n_captures = GIVEN - PARAMETERS,
                                                   .requests = requests,
                                                   .n_requests = program->n,
                                                   .results = results,
                                                   .n_results = RESULTS};
    cr_assert_eq(session_program_define(program->suite->session, &definition, &fault), STATUS_OK, "%s", fault.message);
    return programs;
}

/* A program without operations. */
static void program_init(struct suite *suite, struct random_program *program, const int64_t *shape, uint64_t *given) {
    *program = (struct random_program){.suite = suite, .rows = shape[0], .columns = shape[1]};
    for (unsigned i = 0; i < GIVEN; i++) {
        struct tensor_type *type = &program->types[i];
        given_type(i, shape[0], shape[1], type);
        given[i] = suite_sample(suite, type->dtype, type->rank, type->shape, FILL_ORDINARY).id;
        if (type_bytes(type) > 1 << 20)
            suite_sync(suite); /* there is no room to upload several that are so large */
    }
}

static void random_program(struct suite *suite, struct random_program *program, const int64_t *shape, uint64_t *given) {
    program_init(suite, program, shape, given);
    while (program->n < OPERATIONS)
        random_add(program);
}

static void run_recorded(struct suite *suite, uint64_t id, int64_t times, const uint64_t *inputs, uint16_t consume,
                         uint64_t *outputs) {
    struct op_request run = {.opcode = OP_PROGRAM,
                             .n_inputs = PARAMETERS,
                             .inputs = inputs,
                             .ints = (const int64_t[]){(int64_t)id, times},
                             .n_ints = 2,
                             .consume = consume,
                             .further = RESULTS - 1};
    suite_submit(suite, &run, outputs);
    for (unsigned r = 1; r < RESULTS; r++)
        outputs[r] = outputs[0] + r;
}

static void random_programs(uint64_t seed, int rounds, const int64_t (*of)[2], int n_shapes) {
    struct suite suite;
    suite_open(&suite, seed);
    for (int round = 0; round < rounds; round++) {
        struct random_program program;
        uint64_t ids[VALUES], results[RESULTS], outputs[RESULTS];
        bool consumed[PARAMETERS];
        uint16_t consume = 0;
        random_program(&suite, &program, of[suite_below(&suite, n_shapes)], ids);
        for (unsigned r = 0; r < RESULTS; r++)
            results[r] = 1 + (uint64_t)(suite_chance(&suite, 20) ? suite_below(&suite, VALUES)
                                                                 : VALUES - 1 - suite_below(&suite, 20));
        for (unsigned i = 0; i < PARAMETERS; i++)
            consumed[i] = suite_chance(&suite, 40);
        run_eagerly(&program, ids);
        uint64_t id = define(&program, ids, consumed, results);
        for (int run = 0; run < 3; run++) { /* the last one gives its inputs away */
            for (unsigned i = 0; i < PARAMETERS && run == 2; i++)
                consume |= (uint16_t)(consumed[i] << i);
            run_recorded(&suite, id, 1, ids, consume, outputs);
            for (unsigned r = 0; r < RESULTS; r++) {
                bool gone = run == 2 && results[r] <= PARAMETERS && consumed[results[r] - 1];
                if (!gone)
                    recorded_compare(&suite, ids[results[r] - 1], outputs[r], &program.types[results[r] - 1], r);
            }
        }
        struct fault fault;
        session_program_release(suite.session, id, &fault);
        suite_restart(&suite);
        programs = 0;
    }
    suite_close(&suite);
}

Test(recorded, random_programs_have_the_bits_of_their_operations_one_by_one, .timeout = 300) {
    random_programs(501, SUITE_REPEAT(1500), shapes, sizeof shapes / sizeof *shapes);
}

Test(recorded, random_programs_on_many_elements_have_the_bits_of_their_operations_one_by_one, .timeout = 300) {
    random_programs(509, SUITE_REPEAT(40), large_shapes, sizeof large_shapes / sizeof *large_shapes);
}

/* Adds the operation that was given, with the number of its result: that of the first value is 1. */
static uint64_t fixed_add(struct random_program *program, unsigned opcode, unsigned n_inputs, uint64_t a, uint64_t b,
                          struct op_packed attributes) {
    struct made *made = &program->operations[program->n];
    *made = (struct made){.request = {.opcode = (uint16_t)opcode, .n_inputs = (uint16_t)n_inputs},
                          .inputs = {a, b},
                          .attributes = attributes};
    cr_assert(made_finish(program, made), "%s", op_info(opcode)->name);
    return GIVEN + ++program->n;
}

/* Runs the operations one by one; recorded; and recorded once more with parameter 0 given away. Returns the program's id. */
static uint64_t fixed_run(struct random_program *program, uint64_t *ids, const uint64_t *results) {
    const bool consumed[PARAMETERS] = {true};
    uint64_t outputs[RESULTS];
    run_eagerly(program, ids);
    uint64_t id = define(program, ids, consumed, results);
    for (uint16_t consume = 0; consume < 2; consume++) {
        run_recorded(program->suite, id, 1, ids, consume, outputs);
        for (unsigned r = 0; r < RESULTS; r++)
            recorded_compare(program->suite, ids[results[r] - 1], outputs[r], &program->types[results[r] - 1], r);
    }
    return id;
}

/* Results so large that a device may write them past its caches: of one row, of rows that begin with a cache line, and of others. One is
 * read again in the same pass, one is converted, one takes the memory of an input, one is seen row by row. */
Test(recorded, results_beyond_the_caches_have_the_bits_of_the_operations_one_by_one, .timeout = 120) {
    static const int64_t large[][2] = {{1, 4200003}, {2051, 2048}, {65, 65001}};
    static const struct op_packed none;
    struct suite suite;
    suite_open(&suite, 507);
    for (unsigned i = 0; i < sizeof large / sizeof *large; i++) {
        struct random_program program;
        uint64_t ids[VALUES];
        program_init(&suite, &program, large[i], ids);
        uint64_t scaled = fixed_add(&program, OP_MULTIPLY, 2, 1, 5, none);
        uint64_t sum = fixed_add(&program, OP_ADD, 2, scaled, 3, none);
        uint64_t power = fixed_add(&program, OP_TANH, 1, sum, 0, none);
        uint64_t most = fixed_add(&program, OP_MAX, 1, power, 0,
                                  SUITE_ATTRIBUTES(reduction, .axes = SUITE_LIST(-1), .keepdims = true));
        uint64_t less = fixed_add(&program, OP_SUBTRACT, 2, power, most, none);
        uint64_t half = fixed_add(&program, OP_CAST, 1, less, 0, SUITE_ATTRIBUTES(cast, .dtype = DTYPE_BF16));
        uint64_t mixed = fixed_add(&program, OP_ADD, 2, half, 2, none);
        uint64_t wide = fixed_add(&program, OP_MULTIPLY, 2, 6, 4, none);
        const uint64_t results[RESULTS] = {sum, power, less, half, mixed, wide};
        uint64_t id = fixed_run(&program, ids, results);
        struct fault fault;
        session_program_release(suite.session, id, &fault);
        suite_restart(&suite);
        programs = 0;
    }
    suite_close(&suite);
}

/* A loss and what else is made of the same differences, in one launch where the device can do that. The last result may take the memory of what
 * others reduce, and is not in that launch then. */
Test(recorded, reductions_of_all_elements_run_with_what_they_reduce, .timeout = 120) {
    static const int64_t shape[2] = {1, 1100003};
    static const struct op_packed none;
    const struct op_packed all = SUITE_ATTRIBUTES(reduction, .keepdims = false);
    struct suite suite;
    suite_open(&suite, 508);
    struct random_program program;
    uint64_t ids[VALUES];
    program_init(&suite, &program, shape, ids);
    uint64_t less = fixed_add(&program, OP_SUBTRACT, 2, 1, 2, none);
    uint64_t square = fixed_add(&program, OP_MULTIPLY, 2, less, less, none);
    uint64_t loss = fixed_add(&program, OP_MEAN, 1, square, 0, all);
    uint64_t most = fixed_add(&program, OP_ARGMAX, 1, less, 0, all);
    uint64_t sum = fixed_add(&program, OP_SUM, 1, 1, 0, all);
    uint64_t power = fixed_add(&program, OP_TANH, 1, less, 0, none);
    uint64_t half = fixed_add(&program, OP_CAST, 1, power, 0, SUITE_ATTRIBUTES(cast, .dtype = DTYPE_BF16));
    uint64_t halves = fixed_add(&program, OP_SUM, 1, half, 0, all);
    uint64_t twice = fixed_add(&program, OP_ADD, 2, 1, 1, none);
    const uint64_t results[RESULTS] = {loss, most, sum, half, halves, twice};
    unsigned steps = recorded_steps(suite.session, fixed_run(&program, ids, results));
    cr_assert(steps <= 2, "%u launches", steps); /* those of all but the last result, and that */
    suite_close(&suite);
    programs = 0;
}

/* Values that a result may be carried to parameter 0 from: of its type. */
/* Views are copied when they are carried, and a product adds up in another order if its operands are views. */
static bool carries_to_first(const struct random_program *program, uint64_t value) {
    unsigned opcode = value > GIVEN ? program->operations[value - GIVEN - 1].request.opcode : OP_ADD;
    return type_equal(&program->types[value - 1], &program->types[0]) && opcode != OP_BROADCAST_TO &&
           opcode != OP_RESHAPE;
}

Test(recorded, loops_have_the_bits_of_their_iterations_one_by_one, .timeout = 300) {
    struct suite suite;
    suite_open(&suite, 502);
    for (int round = 0; round < SUITE_REPEAT(800); round++) {
        struct random_program program;
        uint64_t ids[VALUES], results[RESULTS], outputs[RESULTS];
        bool consumed[PARAMETERS] = {suite_chance(&suite, 50), suite_chance(&suite, 50)};
        int64_t times = 1 + suite_below(&suite, 6);
        random_program(&suite, &program, shapes[suite_below(&suite, sizeof shapes / sizeof *shapes)], ids);
        for (unsigned r = 0; r < RESULTS; r++)
            results[r] = 1 + (uint64_t)(VALUES - 1 - suite_below(&suite, VALUES - GIVEN));
        for (int tries = 0; tries < 200 && !carries_to_first(&program, results[0]); tries++)
            results[0] = 1 + (uint64_t)suite_below(&suite, VALUES);
        if (!carries_to_first(&program, results[0]))
            results[0] = 1;
        uint64_t id = define(&program, ids, consumed, results), loop = ++programs;
        const struct recorded_loop shape = {.id = loop,
                                            .body = id,
                                            .carried = (const uint32_t[]){0, 0},
                                            .n_carried = 2,
                                            .stacked = (const uint32_t[]){1},
                                            .n_stacked = 1};
        struct fault fault;
        cr_assert_eq(session_program_loop(suite.session, &shape, &fault), STATUS_OK);
        run_recorded(&suite, loop, times, ids, 0, outputs);
        for (int64_t i = 0; i < times; i++) {
            run_eagerly(&program, ids);
            if (i + 1 < times)
                ids[0] = ids[results[0] - 1];
        }
        for (unsigned r = 0; r < RESULTS; r++)
            if (r != 1 && results[r] != 1)
                recorded_compare(&suite, ids[results[r] - 1], outputs[r], &program.types[results[r] - 1], r);
        suite_restart(&suite);
        programs = 0;
    }
    suite_close(&suite);
}

/* ---- linear and its activation ---- */

/* relu(linear(x, weight, bias)), eagerly and recorded, and with the product as a second result if `both`. Returns the steps of the
 * recorded program. */
static unsigned linear_relu(struct suite *suite, enum dtype dtype, bool biased, bool both) {
    enum { ROWS = 20, DEPTH = 24, COLUMNS = 12 };
    const struct tensor_type types[] = {
        {dtype, 2, {ROWS, DEPTH}}, {dtype, 2, {COLUMNS, DEPTH}}, {dtype, 1, {COLUMNS}}, {dtype, 2, {ROWS, COLUMNS}}};
    const struct op_packed none = SUITE_ATTRIBUTES(linear, .activation = OP_ACTIVATION_NONE);
    unsigned n = biased ? 3 : 2;
    uint64_t inputs[3], product, eager, outputs[2];
    for (unsigned i = 0; i < n; i++)
        inputs[i] = suite_sample(suite, dtype, types[i].rank, types[i].shape, FILL_ORDINARY).id;
    struct op_request requests[] = {
        {.opcode = OP_LINEAR, .n_inputs = n, .ints = none.ints, .n_ints = none.n_ints},
        {.opcode = OP_RELU, .n_inputs = 1},
    };
    requests[0].inputs = inputs;
    suite_submit(suite, &requests[0], &product);
    requests[1].inputs = &product;
    suite_submit(suite, &requests[1], &eager);
    requests[0].inputs = (const uint64_t[]){1, 2, 3};
    requests[1].inputs = (const uint64_t[]){n + 1};
    const struct recorded_definition definition = {.id = ++programs,
                                                   .parameters = types,
                                                   .consumed = (const bool[3]){false},
                                                   .n_parameters = n,
                                                   .requests = requests,
                                                   .n_requests = 2,
                                                   .results = (const uint64_t[]){n + 2, n + 1},
                                                   .n_results = both ? 2 : 1};
    struct fault fault;
    cr_assert_eq(session_program_define(suite->session, &definition, &fault), STATUS_OK, "%s", fault.message);
    struct op_request run = {.opcode = OP_PROGRAM,
                             .n_inputs = n,
                             .inputs = inputs,
                             .ints = (const int64_t[]){(int64_t)programs, 1},
                             .n_ints = 2,
                             .further = both};
    suite_submit(suite, &run, outputs);
    recorded_compare(suite, eager, outputs[0], &types[3], 0);
    if (both)
        recorded_compare(suite, product, outputs[0] + 1, &types[3], 1);
    return recorded_steps(suite->session, programs);
}

Test(recorded, relu_becomes_the_activation_of_the_linear_operation_before_it) {
    struct suite suite;
    suite_open(&suite, 506);
    for (unsigned biased = 0; biased < 2; biased++) {
        static const enum dtype exact[] = {DTYPE_F32, DTYPE_F64, DTYPE_I8, DTYPE_I32, DTYPE_U8};
        for (unsigned i = 0; i < sizeof exact / sizeof *exact; i++)
            cr_expect_leq(linear_relu(&suite, exact[i], biased, false), 1, "%s", dtype_name(exact[i]));
        unsigned steps = linear_relu(&suite, DTYPE_F16, biased, false);
        cr_expect(!steps || steps == 2, "halves are rounded before relu: %u steps", steps);
        steps = linear_relu(&suite, DTYPE_F32, biased, true);
        cr_expect(!steps || steps == 2, "the product is a result, too: %u steps", steps);
    }
    suite_close(&suite);
}
