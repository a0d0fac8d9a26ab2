/* What recorded programs cost the others: host memory that their session pays for, and the owner's time, which is divided into turns. */
#include "engine/program/recorded_planner.h"
#include "engine/session/host.h"
#include "tests/unit/engine_fixture.h"

enum { X = 1, Y, FIRST }; /* the session's tensors, and the numbers of the parameters; then those of results */
enum { ELEMENTS = 4 };

/* A program that joins its two parameters, in so many orders, each of so many pieces, and adds up what comes of it. A piece is a launch. */
static void define_joins(uint64_t id, unsigned joins, unsigned pieces) {
    static const int64_t axis = 0;
    static const struct tensor_type types[2] = {{DTYPE_F32, 1, {ELEMENTS}}, {DTYPE_F32, 1, {ELEMENTS}}};
    struct op_request *requests = calloc(2 * joins, sizeof *requests);
    uint64_t *joined = malloc((size_t)joins * pieces * sizeof *joined), (*added)[2] = malloc(joins * sizeof *added);
    const uint64_t result = FIRST + 2 * joins - 1;
    struct fault fault;
    for (size_t i = 0; i < (size_t)joins * pieces; i++) /* no two of them are equal */
        joined[i] = i / pieces >> i % pieces % 32 & 1 ? Y : X;
    for (unsigned k = 0; k < joins; k++) {
        const uint64_t value = FIRST + 2 * k;
        added[k][0] = k ? value - 1 : value;
        added[k][1] = value;
        requests[2 * k] = (struct op_request){
            .opcode = OP_CONCAT, .n_inputs = pieces, .inputs = joined + (size_t)k * pieces, .ints = &axis, .n_ints = 1};
        requests[2 * k + 1] = (struct op_request){.opcode = OP_ADD, .n_inputs = 2, .inputs = added[k]};
    }
    const struct recorded_definition definition = {.id = id,
                                                   .parameters = types,
                                                   .consumed = (const bool[]){false, false},
                                                   .n_parameters = 2,
                                                   .requests = requests,
                                                   .n_requests = 2 * joins,
                                                   .results = &result,
                                                   .n_results = 1};
    cr_assert_eq(session_program_define(session, &definition, &fault), STATUS_OK, "%s", fault.message);
    free(requests);
    free(joined);
    free(added);
}

static int run(uint64_t program, uint64_t output) {
    return submit_in(session, (struct op_request){.opcode = OP_PROGRAM,
                                                  .n_inputs = 2,
                                                  .inputs = (const uint64_t[]){X, Y},
                                                  .ints = (const int64_t[]){(int64_t)program, 1},
                                                  .n_ints = 2,
                                                  .output = output});
}

static void loop_over(uint64_t id, uint64_t body) {
    const struct recorded_loop loop = {.id = id, .body = body};
    struct fault fault;
    cr_assert_eq(session_program_loop(session, &loop, &fault), STATUS_OK, "%s", fault.message);
}

static void let_go(uint64_t program) {
    struct fault fault;
    cr_assert_eq(session_program_release(session, program, &fault), STATUS_OK, "%s", fault.message);
}

static void open_with_tensors(uint64_t host_bytes) {
    const struct session_limits few = {.tensors = 100000, .streams = 4, .host_bytes = host_bytes};
    open_limited(64 << 20, &few);
    for (uint64_t id = X; id <= Y; id++)
        cr_assert_eq(full(session, id, ELEMENTS, 0), STATUS_OK);
    wait_for(Y);
}

/* ---- memory ---- */

/* What the plan of a loop has for each launch at the least. */
enum { PER_LAUNCH = sizeof(struct launch) + sizeof(struct replay_step) + 2 * sizeof(struct replay_patch) };

Test(engine_programs, each_loop_pays_for_its_plan) {
    enum { LOOPS = 8, JOINS = 64, PIECES = 32, LAUNCHES = JOINS * (PIECES + 1) };
    open_with_tensors(0);
    uint64_t id = FIRST, empty = host_bytes(session);
    define_joins(1, JOINS, PIECES);
    uint64_t defined = host_bytes(session);
    for (uint64_t loop = 2; loop < 2 + LOOPS; loop++) {
        uint64_t before = host_bytes(session);
        loop_over(loop, 1);
        cr_assert_eq(run(loop, id), STATUS_OK);
        cr_expect_geq(host_bytes(session) - before, LAUNCHES * PER_LAUNCH);
        cr_assert_eq(wait_for(id++), STATUS_OK);
    }
    for (uint64_t loop = 2; loop < 2 + LOOPS; loop++)
        let_go(loop);
    engine_poll(engine);
    cr_expect_leq(host_bytes(session), defined + STREAM_CHUNK_BYTES, "%lu of %lu bytes", host_bytes(session), defined);
    let_go(1);
    engine_poll(engine);
    cr_expect_leq(host_bytes(session), empty + 2 * STREAM_CHUNK_BYTES);
    close_engine();
}

Test(engine_programs, past_the_limit_plans_are_refused_until_there_is_room) {
    enum { JOINS = 64, PIECES = 32, LIMIT = 8 << 20, PLANS_MOST = LIMIT / (JOINS * PIECES * PER_LAUNCH) };
    open_with_tensors(LIMIT);
    uint64_t id = FIRST, loop = 1;
    struct answer answer;
    define_joins(1, JOINS, PIECES);
    do {
        loop_over(++loop, 1);
        run(loop, id);
        cr_assert_leq(host_bytes(session), LIMIT + 2 * STREAM_CHUNK_BYTES);
        cr_assert_leq(loop, PLANS_MOST + 2, "%lu plans in %d bytes", loop, LIMIT);
    } while (wait_for(id++) == STATUS_OK);
    ask_wait(&answer, id - 1);
    cr_assert(settle(&answer.times));
    cr_expect_eq(answer.code, STATUS_LIMIT);
    cr_expect_gt(loop, 4, "only %lu", loop);
    let_go(2);
    engine_poll(engine);
    cr_expect_eq(run(loop, id), STATUS_OK, "there is room again");
    cr_expect_eq(wait_for(id), STATUS_OK);
    close_engine();
}

/* A definition of some hundred kilobytes, of which a million launches would come. */
Test(engine_programs, a_small_definition_of_many_launches_is_refused_as_it_grows) {
    enum { JOINS = 128, PIECES = 8192, LIMIT = 16 << 20, ONE_JOIN = PIECES * 512 };
    open_with_tensors(LIMIT);
    define_joins(1, JOINS, PIECES);
    cr_expect_eq(run(1, FIRST), STATUS_LIMIT);
    cr_expect_leq(engine_memory(engine)->host_most, LIMIT + ONE_JOIN);
    engine_poll(engine);
    let_go(1);
    cr_expect_leq(host_bytes(session), 2 * STREAM_CHUNK_BYTES, "%lu", host_bytes(session));
    cr_expect_eq(wait_for(Y), STATUS_OK, "the session goes on");
    close_engine();
}

Test(engine_programs, released_ones_are_paid_for_until_they_have_run) {
    enum { JOINS = 64, PIECES = 32, PROGRAMS = 20 };
    open_with_tensors(0);
    uint64_t id = FIRST;
    park(id++);
    uint64_t before = host_bytes(session);
    for (uint64_t program = 1; program <= PROGRAMS; program++) {
        define_joins(program, JOINS, PIECES);
        cr_assert_eq(run(program, id++), STATUS_OK);
        let_go(program);
    }
    engine_poll(engine);
    uint64_t held = host_bytes(session);
    cr_expect_geq(held - before, PROGRAMS * JOINS * PIECES * PER_LAUNCH, "%lu bytes", held - before);
    unpark();
    cr_assert_eq(wait_for(id - 1), STATUS_OK);
    for (int polls = 0; host_bytes(session) > before + STREAM_CHUNK_BYTES && polls < 100; polls++)
        engine_poll(engine);
    cr_expect_leq(host_bytes(session), before + STREAM_CHUNK_BYTES);
    close_engine();
}

/* What still runs of a session that has ended costs its tenant nothing. */
Test(engine_programs, a_tenant_pays_as_long_as_the_session_is_there) {
    const struct tenant_limits tenant_limits = {.bytes = 1 << 26};
    struct session_limits own = limits;
    struct tenant_stats stats;
    struct fault fault;
    open_engine(64 << 20);
    struct session *first = session;
    cr_assert_eq(tenant_create(engine_memory(engine), "anna", &tenant_limits, &own.tenant, &fault), STATUS_OK);
    cr_assert_eq(session_create(engine_sessions(engine), &own, &session, &fault), STATUS_OK);
    for (uint64_t id = X; id <= Y; id++)
        cr_assert_eq(full(session, id, ELEMENTS, 0), STATUS_OK);
    park(FIRST);
    for (uint64_t program = 1; program <= 4; program++) {
        define_joins(program, 16, 32);
        cr_assert_eq(run(program, FIRST + program), STATUS_OK);
        if (program % 2)
            let_go(program);
    }
    tenant_stats(own.tenant, &stats);
    cr_expect_gt(stats.host, 4 * 16 * 32 * PER_LAUNCH);
    session_destroy(session);
    engine_poll(engine);
    tenant_stats(own.tenant, &stats);
    cr_expect_eq(stats.host, 0, "%lu", stats.host);
    unpark();
    tenant_destroy(own.tenant);
    session = first;
    close_engine();
}

/* ---- turns ---- */

static uint64_t now_ns;

/* Each look at the clock costs a microsecond, so that a turn is a number of looks. */
static uint64_t ticking(void) {
    return now_ns += 1000;
}

enum { LOOKS = 10, TURN_NS = LOOKS * 1000, A_TURN = BUDGET_STEPS * (LOOKS + 3) };

static struct budget *ticking_budget(void) {
    struct budget *budget = engine_budget(engine);
    budget->clock = ticking;
    return budget;
}

static const struct planner *planner_of(uint64_t program) {
    const struct op_request request = {
        .opcode = OP_PROGRAM, .ints = (const int64_t[]){(int64_t)program, 1}, .n_ints = 2};
    struct fault fault;
    struct recorded *recorded = recorded_find(session, &request, &fault);
    cr_assert_not_null(recorded);
    return recorded->planner;
}

/* Runs the program in turns. left[n]: in how many turns stage n was left in the middle. Returns how many turns that took. */
static unsigned plan_in_turns(uint64_t program, uint64_t output, unsigned *left, unsigned most) {
    struct budget *budget = ticking_budget();
    unsigned turns = 0;
    int code = STATUS_AGAIN;
    for (; code == STATUS_AGAIN && turns < most; turns++) {
        uint64_t looks = budget->looks;
        budget_begin(budget, TURN_NS);
        code = run(program, output);
        cr_assert_leq(budget->looks - looks, LOOKS + 3);
        if (code == STATUS_AGAIN && planner_of(program)->at)
            left[planner_of(program)->stage]++;
    }
    budget_begin(budget, BUDGET_UNLIMITED);
    return turns;
}

/* Some stages look at all launches, pieces of memory or addresses, and others at all operations with their inputs. */
Test(engine_programs, each_stage_of_a_plan_is_divided) {
    enum { JOINS = 600, PIECES = 50, LAUNCHES = JOINS * (PIECES + 1) };
    static const uint8_t of_launches[] = {STAGE_BIND,  STAGE_JUDGE, STAGE_LIST, STAGE_TIME,
                                          STAGE_SLOTS, STAGE_ARENA, STAGE_TAKE, STAGE_SORT};
    unsigned left[STAGES] = {0};
    open_with_tensors(0);
    define_joins(1, JOINS, PIECES);
    plan_in_turns(1, FIRST, left, UINT32_MAX);
    cr_assert_eq(wait_for(FIRST), STATUS_OK);
    for (size_t i = 0; i < sizeof of_launches; i++)
        cr_expect_geq(left[of_launches[i]], LAUNCHES / A_TURN / 3, "stage %u was left in %u turns", of_launches[i],
                      left[of_launches[i]]);
    cr_expect(left[STAGE_ONCE] && left[STAGE_NAMES], "%u and %u turns", left[STAGE_ONCE], left[STAGE_NAMES]);
    close_engine();
}

/* Turns of the engine alone, until nothing is due. */
static unsigned turns_until_idle(void) {
    struct budget *budget = ticking_budget();
    unsigned turns = 0;
    for (; engine_due(engine) && turns < 1000000; turns++) {
        uint64_t looks = budget->looks;
        budget_begin(budget, TURN_NS);
        engine_poll(engine);
        cr_assert_leq(budget->looks - looks, LOOKS + 3);
    }
    budget_begin(budget, BUDGET_UNLIMITED);
    return turns;
}

Test(engine_programs, what_a_plan_was_made_with_goes_in_turns) {
    enum { JOINS = 600, PIECES = 50, LAUNCHES = JOINS * (PIECES + 1) };
    unsigned left[STAGES] = {0};
    open_with_tensors(0);
    uint64_t before = host_bytes(session);
    for (uint64_t program = 1; program <= 2; program++) {
        unsigned turns = 0, stage = 0;
        define_joins(program, JOINS, PIECES);
        for (; stage < STAGE_BIND_END && turns < 1000000; turns++) { /* the launches are bound */
            plan_in_turns(program, FIRST, left, 1);
            stage = planner_of(program)->stage;
        }
        budget_begin(ticking_budget(), 1000);
        if (program == 1)
            let_go(program);
        else
            session_destroy(session);
        cr_expect_gt(turns_until_idle(), LAUNCHES / A_TURN);
        if (program == 1)
            cr_expect_leq(host_bytes(session), before + 2 * STREAM_CHUNK_BYTES);
    }
    session = NULL;
    close_engine();
}

Test(engine_programs, many_programs_end_in_many_turns) {
    enum { PROGRAMS = 500 };
    open_with_tensors(0);
    for (uint64_t program = 1; program <= PROGRAMS; program++) {
        define_joins(program, 1, 2);
        cr_assert_eq(run(program, FIRST + program), STATUS_OK);
    }
    budget_begin(ticking_budget(), 1000);
    session_destroy(session);
    session = NULL;
    cr_expect_gt(turns_until_idle(), PROGRAMS / 8 / LOOKS);
    close_engine();
}

/* The sweep does not look at all of them in each turn. */
Test(engine_programs, many_that_still_run_cost_little) {
    enum { PROGRAMS = 1000, POLLS = 20 };
    open_with_tensors(0);
    uint64_t id = FIRST;
    park(id++);
    for (uint64_t program = 1; program <= PROGRAMS; program++) {
        define_joins(program, 1, 2);
        cr_assert_eq(run(program, id++), STATUS_OK);
        let_go(program);
    }
    struct budget *budget = ticking_budget();
    for (int poll = 0; poll < POLLS; poll++) {
        uint64_t looks = budget->looks;
        budget_begin(budget, BUDGET_UNLIMITED);
        engine_poll(engine);
        cr_expect_leq(budget->looks - looks, 6, "%lu looks at the clock in a poll", budget->looks - looks);
    }
    cr_expect_not(recorded_sweep_due(engine->program->recorded), "who waits for the device does not poll");
    unpark();
    cr_assert_eq(wait_for(id - 1), STATUS_OK);
    turns_until_idle();
    uint64_t held = host_bytes(session);
    engine_poll(engine);
    cr_expect_eq(host_bytes(session), held, "nothing is left");
    close_engine();
}
