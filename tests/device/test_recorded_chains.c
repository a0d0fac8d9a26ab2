/* Random programs of f32 elementwise operations that may be chains, as formulas that users write out are: some of their results are used long after they
 * were made, divisors are one number, one for each row or one for each element, and rows end within a block. The results have the bits of the same operations one by one. */
#include <criterion/criterion.h>
#include <string.h>

#include "engine/program/recorded.h"
#include "tests/device/recorded_steps.h"
#include "tests/device/suite.h"

enum { GIVEN = 6, OPERATIONS = 24, VALUES = GIVEN + OPERATIONS, RESULTS = 2 };

static const unsigned unary[] = {OP_NEGATIVE, OP_ABS,  OP_SQRT,  OP_RELU,  OP_RECIPROCAL, OP_SQUARE, OP_EXP,
                                 OP_EXP2,     OP_LOG,  OP_LOG2,  OP_LOG1P, OP_EXPM1,      OP_TANH,   OP_ERF,
                                 OP_SIGMOID,  OP_SILU, OP_RSQRT, OP_GELU,  OP_GELU_TANH};
static const unsigned binary[] = {OP_ADD, OP_SUBTRACT, OP_MULTIPLY, OP_DIVIDE, OP_MAXIMUM, OP_MINIMUM};

/* Rows of some blocks and a part of one; one row of several tiles; rows that are as long as a tile; and rows that are written past the caches. */
static const int64_t shapes[][2] = {{4, 300}, {3, 1000}, {1, 5000}, {17, 1024}, {2, 2500}};
static const int64_t large_shapes[][2] = {{1, 4200003}, {2051, 2048}};

struct chain_program {
    struct op_request requests[OPERATIONS];
    uint64_t inputs[OPERATIONS][2];
    struct tensor_type types[VALUES];
};

static void given_types(const int64_t *shape, struct tensor_type *types) {
    const struct tensor_type given[GIVEN] = {{DTYPE_F32, 2, {shape[0], shape[1]}},
                                             {DTYPE_F32, 2, {shape[0], shape[1]}},
                                             {DTYPE_F32, 1, {shape[1]}},
                                             {DTYPE_F32, 2, {shape[0], 1}},
                                             {DTYPE_F32, 0, {0}},
                                             {DTYPE_F32, 0, {0}}};
    memcpy(types, given, sizeof given);
}

/* The first operand is mostly what is newest, so that chains come about; results are as large as the matrices. */
static void program_make(struct suite *suite, struct chain_program *program) {
    for (unsigned k = 0; k < OPERATIONS; k++) {
        uint64_t newest = GIVEN + k, *inputs = program->inputs[k];
        bool one = suite_chance(suite, 50);
        inputs[0] = k && suite_chance(suite, 80) ? newest : 1 + (uint64_t)suite_below(suite, 2);
        inputs[1] = 1 + (uint64_t)suite_below(suite, (int64_t)newest);
        if (!one && suite_chance(suite, 20)) {
            uint64_t swapped = inputs[0];
            inputs[0] = inputs[1];
            inputs[1] = swapped;
        }
        unsigned opcode = one ? unary[suite_below(suite, sizeof unary / sizeof *unary)]
                              : binary[suite_below(suite, sizeof binary / sizeof *binary)];
        program->requests[k] =
            (struct op_request){.opcode = (uint16_t)opcode, .n_inputs = one ? 1 : 2, .inputs = inputs};
        program->types[GIVEN + k] = program->types[0];
    }
}

static void chains(uint64_t seed, int rounds, const int64_t (*of)[2], int n_shapes) {
    struct suite suite;
    uint64_t programs = 0;
    suite_open(&suite, seed);
    for (int round = 0; round < rounds; round++) {
        struct chain_program program = {0};
        const int64_t *shape = of[suite_below(&suite, n_shapes)];
        uint64_t ids[VALUES], outputs[RESULTS];
        const uint64_t results[RESULTS] = {VALUES, VALUES - 1 - (uint64_t)suite_below(&suite, OPERATIONS - 1)};
        const bool consumed[GIVEN] = {true};
        struct fault fault;
        given_types(shape, program.types);
        for (unsigned i = 0; i < GIVEN; i++) {
            ids[i] = suite_sample(&suite, DTYPE_F32, program.types[i].rank, program.types[i].shape, FILL_ORDINARY).id;
            suite_sync(&suite);
        }
        program_make(&suite, &program);
        for (unsigned k = 0; k < OPERATIONS; k++) {
            struct op_request request = program.requests[k];
            const uint64_t inputs[2] = {ids[program.inputs[k][0] - 1], ids[program.inputs[k][1] - 1]};
            request.inputs = inputs;
            suite_submit(&suite, &request, &ids[GIVEN + k]);
        }
        const struct recorded_definition definition = {.id = ++programs,
                                                       .parameters = program.types,
                                                       .consumed = consumed,
                                                       .n_parameters = GIVEN,
                                                       .requests = program.requests,
                                                       .n_requests = OPERATIONS,
                                                       .results = results,
                                                       .n_results = RESULTS};
        cr_assert_eq(session_program_define(suite.session, &definition, &fault), STATUS_OK, "%s", fault.message);
        for (uint16_t consume = 0; consume < 2; consume++) { /* the second run may write into an input */
            struct op_request run = {.opcode = OP_PROGRAM,
                                     .n_inputs = GIVEN,
                                     .inputs = ids,
                                     .ints = (const int64_t[]){(int64_t)programs, 1},
                                     .n_ints = 2,
                                     .consume = consume,
                                     .further = RESULTS - 1};
            suite_submit(&suite, &run, outputs);
            outputs[1] = outputs[0] + 1;
            for (unsigned r = 0; r < RESULTS; r++)
                recorded_compare(&suite, ids[results[r] - 1], outputs[r], &program.types[0], r);
        }
        session_program_release(suite.session, programs, &fault);
        suite_restart(&suite);
        programs = 0;
    }
    suite_close(&suite);
}

Test(recorded_chains, programs_have_the_bits_of_their_operations_one_by_one, .timeout = 300) {
    chains(601, SUITE_REPEAT(300), shapes, sizeof shapes / sizeof *shapes);
}

Test(recorded_chains, programs_on_many_elements_have_the_bits_of_their_operations_one_by_one, .timeout = 300) {
    chains(602, SUITE_REPEAT(4), large_shapes, sizeof large_shapes / sizeof *large_shapes);
}
