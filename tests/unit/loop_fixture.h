/* Loops of recorded programs in the fixture's session (engine_fixture.h). Include once in a program. */
#pragma once

#include "engine/program/recorded.h"
#include "tests/unit/engine_fixture.h"

/* Program 1 has one parameter, value 1, of so many f32, and the last operation's value as its result; loop 2 carries that to the parameter. */
static inline void define_loop_of(const struct op_request *requests, uint32_t n, int64_t elements) {
    const struct tensor_type type = {.dtype = DTYPE_F32, .rank = 1, .shape = {elements}};
    const uint64_t result = n + 1;
    const struct recorded_definition definition = {.id = 1,
                                                   .parameters = &type,
                                                   .consumed = (const bool[]){false},
                                                   .n_parameters = 1,
                                                   .requests = requests,
                                                   .n_requests = n,
                                                   .results = &result,
                                                   .n_results = 1};
    const struct recorded_loop loop = {.id = 2, .body = 1, .carried = (const uint32_t[]){0, 0}, .n_carried = 2};
    struct fault fault;
    cr_assert_eq(session_program_define(session, &definition, &fault), STATUS_OK, "%s", fault.message);
    cr_assert_eq(session_program_loop(session, &loop, &fault), STATUS_OK, "%s", fault.message);
}

static inline void run_loop(int64_t times, uint64_t x, uint64_t output) {
    cr_assert_eq(submit_in(session, (struct op_request){.opcode = OP_PROGRAM,
                                                        .n_inputs = 1,
                                                        .inputs = &x,
                                                        .ints = (const int64_t[]){2, times},
                                                        .n_ints = 2,
                                                        .output = output}),
                 STATUS_OK);
    engine_kick(engine);
}
