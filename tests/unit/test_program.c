/* Operations that are submitted together do what they do one by one, and tensors that come and go among them cost nothing. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "engine/device/device.h"
#include "engine/engine.h"
#include "engine/program/program.h"
#include "tests/unit/random.h"
#include "tests/unit/requests.h"

enum { REQUESTS = 100, INPUTS = 200, ROUNDS = 300, POSITIONS = 8 };

static struct engine *engine;
static uint64_t state;

static unsigned pick(unsigned below) {
    return (unsigned)(random_next(&state) >> 11) % below;
}

static void open_engine(void) {
    struct device_options options = {.threads = 1, .memory_total = 256 << 20};
    struct device *device;
    struct fault fault;
    cr_assert_eq(device_open("cpu", &options, &device, &fault), STATUS_OK);
    cr_assert_eq(engine_create(device, &(struct engine_options){0}, &engine, &fault), STATUS_OK);
}

static void close_engine(void) {
    engine_destroy(engine);
}

static struct session *session_of(uint32_t tensors) {
    struct session_limits limits = {.tensors = tensors, .streams = 4};
    struct session *session;
    struct fault fault;
    cr_assert_eq(session_create(engine_sessions(engine), &limits, &session, &fault), STATUS_OK);
    return session;
}

/* ---- what became of an id ---- */

struct outcome {
    struct fetch fetch;
    bool done;
    int code;
    char words[1024];
    size_t bytes;
    uint8_t data[1 << 16]; /* as far as it fits */
};

static void fetched(struct fetch *fetch, const struct failure *failure) {
    struct outcome *outcome = (struct outcome *)fetch;
    outcome->done = true;
    if (failure) {
        outcome->code = (int)failure->code;
        snprintf(outcome->words, sizeof outcome->words, "%s %s %llu: %s", failure->operation, failure->label,
                 (unsigned long long)failure->sequence, failure->message);
        return;
    }
    outcome->bytes = (size_t)fetch->bytes;
    memcpy(outcome->data, fetch->data, outcome->bytes < sizeof outcome->data ? outcome->bytes : sizeof outcome->data);
}

static void find_out(struct session *session, uint64_t id, struct outcome *outcome) {
    memset(outcome, 0, sizeof *outcome);
    outcome->fetch.done = fetched;
    while (session_fetch(session, id, &outcome->fetch) == STATUS_AGAIN)
        engine_poll(engine);
    engine_kick(engine);
    while (!outcome->done) {
        engine_wait(engine);
        engine_poll(engine);
    }
    fetch_release(&outcome->fetch);
}

static void waited(struct wait *wait, const struct failure *failure) {
    (void)failure;
    *(bool *)(wait + 1) = true;
}

/* Until all has run. */
static void run_out(struct session *session) {
    struct {
        struct wait wait;
        bool done;
    } all = {.wait.done = waited};
    session_wait(session, 0, &all.wait);
    engine_kick(engine);
    while (!all.done) {
        engine_wait(engine);
        engine_poll(engine);
    }
}

/* ---- random requests ---- */

static struct {
    struct op_request requests[REQUESTS];
    uint64_t inputs[REQUESTS][INPUTS], more[REQUESTS][4];
    int64_t ints[REQUESTS][4];
    unsigned n;
    uint64_t next_id, sequence; /* of the next request */
    uint64_t live[1 << 12];     /* ids that may have a value */
    unsigned n_live;
    uint64_t positions[POSITIONS]; /* some that were made as such */
    unsigned n_positions;
} made;

/* Mostly one that is there. */
static uint64_t any_id(void) {
    if (made.n_live && pick(150))
        return made.live[pick(made.n_live)];
    return pick(2) ? made.next_id + pick(3) : 1 + pick((unsigned)made.next_id);
}

static void forget(uint64_t id) {
    for (unsigned i = 0; i < made.n_live; i++)
        if (made.live[i] == id)
            made.live[i--] = made.live[--made.n_live];
    for (unsigned i = 0; i < made.n_positions; i++)
        if (made.positions[i] == id)
            made.positions[i--] = made.positions[--made.n_positions];
}

static void make(void) {
    static const double one[] = {1.5};
    static const char *const labels[] = {NULL, NULL, "layer", "loss"};
    unsigned k = made.n++;
    struct op_request *request = &made.requests[k];
    int64_t *ints = made.ints[k];
    uint64_t *inputs = made.inputs[k];
    *request = (struct op_request){.inputs = inputs, .ints = ints, .floats = one, .label = labels[pick(4)]};
    switch (made.n_live < 6 ? 0 : pick(14)) {
    case 0: /* two shapes, of which one can be broadcast to the other, and one that fits none */
        request->opcode = OP_FULL;
        request->n_ints = 3;
        request->n_floats = 1;
        ints[0] = pick(4) ? DTYPE_F32 : DTYPE_I64;
        ints[1] = pick(2) ? 0 : 100; /* of i64: a position that there is, or not */
        ints[2] = pick(60) ? pick(3) ? 6 : 1 : 5;
        break;
    case 1:
    case 2:
    case 3:
    case 4:
        request->opcode = pick(2) ? OP_ADD : OP_MULTIPLY;
        request->n_inputs = pick(200) ? 2 : 1 + 2 * pick(2);
        break;
    case 5:
        request->opcode = pick(2) ? OP_NEGATIVE : OP_EXP;
        request->n_inputs = 1;
        break;
    case 6: /* a view of what it reads */
        request->opcode = OP_RESHAPE;
        request->n_inputs = 1;
        request->n_ints = 2;
        ints[0] = pick(12) ? 1 : 3;
        ints[1] = -1;
        break;
    case 7: /* two results */
        request->opcode = OP_TOPK;
        request->n_inputs = 1;
        request->n_ints = 3;
        request->further = pick(25) ? 1 : pick(3);
        ints[0] = 1 + !pick(12);
        ints[1] = 0;
        ints[2] = pick(2);
        break;
    case 8: /* positions that may be wrong, so that the result turns out to have failed */
        request->opcode = OP_TAKE;
        request->n_inputs = 2;
        request->n_ints = 1;
        ints[0] = 0;
        break;
    case 9: /* as many inputs as do not fit beside others */
        request->opcode = OP_STACK;
        request->n_inputs = pick(8) ? 1 + pick(3) : INPUTS;
        request->n_ints = 1;
        for (unsigned i = 0; i < 4; i++)
            made.more[k][i] = pick(3) ? 0 : (uint64_t)1 << pick(40);
        request->consume_more = made.more[k];
        break;
    case 10:
    case 11: /* what comes of those turns out to have failed, too */
        request->opcode = OP_NEGATIVE;
        request->n_inputs = 1;
        break;
    default:
        request->opcode = pick(60) ? OP_FREE : 250;
        request->n_inputs = 1 + !pick(3);
    }
    uint64_t same = any_id();
    for (unsigned i = 0; i < request->n_inputs; i++)
        inputs[i] = request->opcode == OP_STACK && pick(INPUTS)           ? same
                    : request->opcode == OP_TAKE && i && made.n_positions ? made.positions[pick(made.n_positions)]
                                                                          : any_id();
    if (request->opcode == OP_NEGATIVE && made.n_live && pick(2))
        inputs[0] = made.live[made.n_live - 1];
    if (request->opcode != OP_FREE && !pick(6))
        request->consume = (uint16_t)(pick(4) & ((1u << (request->n_inputs < 16 ? request->n_inputs : 15)) - 1));
    request->stream = pick(50) ? 0 : pick(2);
    request->sequence = ++made.sequence;
    request->output = made.next_id;
    if (!pick(150)) /* an id that is used, or none */
        request->output = pick(2) ? 0 : 1 + pick((unsigned)made.next_id);
    for (unsigned i = 0; i < request->n_inputs; i++)
        if (request->opcode == OP_FREE || op_consumes(request->consume, request->consume_more, i))
            forget(inputs[i]);
    for (unsigned i = 0; i < op_request_outputs(request); i++)
        if (request->output == made.next_id)
            made.live[made.n_live++] = made.next_id + i;
    if (request->opcode == OP_FULL && ints[0] == DTYPE_I64)
        made.positions[made.n_positions < POSITIONS ? made.n_positions++ : pick(POSITIONS)] = made.next_id;
    if (request->output == made.next_id)
        made.next_id += op_request_outputs(request);
    if (!pick(100)) /* ids may be left out */
        made.next_id += pick(3);
}

static unsigned failed_late; /* tensors, because a position was wrong, or an input's was */

static void compare(struct session *one, struct session *many) {
    static struct outcome single, together;
    for (uint64_t id = 1; id < made.next_id; id++) {
        struct tensor_type a = {0}, b = {0};
        bool here = session_type(one, id, &a);
        cr_assert_eq(here, session_type(many, id, &b), "tensor %llu", (unsigned long long)id);
        cr_assert(!here || type_equal(&a, &b));
        find_out(one, id, &single);
        find_out(many, id, &together);
        cr_assert_eq(single.code, together.code, "tensor %llu: %s, and %s", (unsigned long long)id, single.words,
                     together.words);
        cr_assert(single.code == STATUS_OUT_OF_MEMORY || strcmp(single.words, together.words) == 0, "%s, and %s",
                  single.words, together.words); /* how much others have may differ */
        failed_late += single.code == STATUS_OUT_OF_RANGE;
        cr_assert_eq(single.bytes, together.bytes);
        cr_assert_eq(memcmp(single.data, together.data, sizeof single.data), 0, "tensor %llu", (unsigned long long)id);
    }
}

static uint64_t ticks;

static uint64_t ticking(void) {
    return ticks += 1000;
}

/* Some at a time, and as far as a budget goes that ends at any operation. */
static void run_together(struct session *session, bool brief) {
    struct budget *budget = engine_budget(engine);
    for (unsigned at = 0; at < made.n;) {
        unsigned n = 1 + pick(made.n - at), done;
        if (brief) {
            budget_begin(budget, 1);
            budget->steps = (int)pick(64);
        }
        int code = session_run(session, &made.requests[at], n, &done);
        cr_assert_leq(done, n);
        cr_assert(brief || done == n);
        cr_assert(done < n ? code == STATUS_AGAIN : code != STATUS_AGAIN);
        at += done;
    }
    budget_begin(budget, BUDGET_UNLIMITED);
}

static void run_rounds(uint32_t tensors, bool brief) {
    uint64_t (*clock)(void) = engine_budget(engine)->clock;
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct session *one = session_of(tensors), *many = session_of(tensors);
        struct session_stats a, b;
        state = round;
        made.next_id = 1;
        made.sequence = made.n_live = made.n_positions = 0;
        for (unsigned batch = 0; batch < 3; batch++) {
            for (made.n = 0; made.n < REQUESTS;)
                make();
            for (unsigned i = 0; i < made.n; i++)
                session_submit(one, &made.requests[i]);
            engine_budget(engine)->clock = brief ? ticking : clock;
            run_together(many, brief);
            engine_budget(engine)->clock = clock;
        }
        run_out(one);
        run_out(many);
        session_stats(one, &a);
        session_stats(many, &b);
        cr_assert_eq(a.tensors, b.tensors);
        compare(one, many);
        session_stats(one, &a);
        session_stats(many, &b);
        cr_assert_eq(a.ops_done, b.ops_done, "round %u: %llu, and %llu", round, (unsigned long long)a.ops_done,
                     (unsigned long long)b.ops_done);
        cr_assert_eq(memcmp(a.failures, b.failures, sizeof a.failures), 0);
        cr_assert_str_eq(a.last_failure, b.last_failure);
        cr_assert_str_eq(a.label, b.label);
        cr_assert_eq(a.live, b.live, "%llu bytes, and %llu", (unsigned long long)a.live, (unsigned long long)b.live);
        cr_assert_leq(b.peak, a.peak, "what goes in the same program lends its memory");
        session_destroy(one);
        session_destroy(many);
    }
    cr_assert(tensors < 100 || failed_late > ROUNDS);
}

Test(program, does_what_its_operations_do_one_by_one, .init = open_engine, .fini = close_engine) {
    run_rounds(100000, false);
}

Test(program, may_end_behind_any_operation, .init = open_engine, .fini = close_engine) {
    run_rounds(100000, true);
}

Test(program, meets_the_limit_of_tensors_where_its_operations_do, .init = open_engine, .fini = close_engine) {
    run_rounds(20, false);
    run_rounds(20, true);
}

Test(program, makes_a_chain_in_the_memory_of_one_tensor, .init = open_engine, .fini = close_engine) {
    enum { LENGTH = 40, ELEMENTS = 1000 };
    struct session *session = session_of(2);
    struct op_request requests[2 * LENGTH];
    uint64_t inputs[2 * LENGTH][2];
    struct session_stats before, stats;
    static struct outcome outcome;
    unsigned done;
    cr_assert_eq(session_submit(session, &REQUEST_FULL(DTYPE_F32, ELEMENTS, 1, .output = 1, .sequence = 1)), STATUS_OK);
    session_stats(session, &before);
    for (unsigned i = 0; i < LENGTH; i++) {
        inputs[2 * i][0] = inputs[2 * i][1] = inputs[2 * i + 1][0] = 1 + i;
        requests[2 * i] = (struct op_request){
            .opcode = OP_ADD, .n_inputs = 2, .inputs = inputs[2 * i], .output = 2 + i, .sequence = 2 + 2 * i};
        requests[2 * i + 1] =
            (struct op_request){.opcode = OP_FREE, .n_inputs = 1, .inputs = inputs[2 * i + 1], .sequence = 3 + 2 * i};
    }
    cr_assert_eq(session_run(session, requests, 2 * LENGTH, &done), STATUS_OK);
    cr_assert_eq(done, 2 * LENGTH);
    session_stats(session, &stats);
    cr_assert_eq(stats.tensors, 1);
    cr_assert_eq(stats.peak, before.peak, "each result takes the memory of its input");
    for (unsigned i = 1; i <= LENGTH; i++) {
        struct tensor_type type;
        cr_assert(!session_type(session, i, &type));
    }
    float expected = 1;
    for (unsigned i = 0; i < LENGTH; i++)
        expected += expected;
    find_out(session, 1 + LENGTH, &outcome);
    cr_assert_eq(outcome.bytes, ELEMENTS * sizeof(float));
    cr_assert_eq(((float *)outcome.data)[ELEMENTS - 1], expected);
    session_destroy(session);
}

/* Whoever reads a tensor that goes in the same program must have read it first. */
Test(program, takes_no_memory_that_others_still_read, .init = open_engine, .fini = close_engine) {
    static const uint64_t one[] = {1}, two[] = {2}, both[] = {2, 3};
    static const int64_t shape[] = {8};
    struct session *session = session_of(10);
    static struct outcome outcome;
    unsigned done;
    const struct op_request requests[] = {
        REQUEST_FULL(DTYPE_F32, 8, 3, .output = 1, .sequence = 1),
        {.opcode = OP_RESHAPE, .n_inputs = 1, .inputs = one, .n_ints = 1, .ints = shape, .output = 2, .sequence = 2},
        {.opcode = OP_NEGATIVE, .n_inputs = 1, .inputs = one, .output = 3, .sequence = 3},
        {.opcode = OP_FREE, .n_inputs = 1, .inputs = one, .sequence = 4},
        {.opcode = OP_ADD, .n_inputs = 2, .inputs = both, .output = 4, .sequence = 5},
        {.opcode = OP_FREE, .n_inputs = 1, .inputs = two, .sequence = 6},
    };
    cr_assert_eq(session_run(session, requests, 6, &done), STATUS_OK);
    find_out(session, 4, &outcome);
    cr_assert_eq(((float *)outcome.data)[7], 0);
    find_out(session, 3, &outcome);
    cr_assert_eq(((float *)outcome.data)[7], -3);
    session_destroy(session);
}

/* Far more than there is room for beside other steps. */
Test(program, one_cause_poisons_any_number_of_outputs, .init = open_engine, .fini = close_engine) {
    static const uint64_t inputs[] = {1, OP_OUTPUTS_MAX}; /* of which the second one is among them */
    struct session *session = session_of(2 * OP_OUTPUTS_MAX);
    static struct outcome first, last;
    struct session_stats stats;
    unsigned done;
    const struct op_request requests[] = {
        REQUEST_FULL(DTYPE_F32, 8, 3, .output = 1, .sequence = 1),
        {.opcode = OP_NEGATIVE,
         .n_inputs = 1,
         .inputs = inputs,
         .further = OP_OUTPUTS_MAX - 1,
         .output = 2,
         .sequence = 2},
        {.opcode = OP_ADD, .n_inputs = 2, .inputs = inputs, .output = OP_OUTPUTS_MAX + 2, .sequence = 3},
    };
    cr_assert_eq(session_run(session, requests, 3, &done), STATUS_INVALID_ARGUMENT);
    cr_assert_eq(done, 3);
    session_stats(session, &stats);
    cr_assert_eq(stats.tensors, OP_OUTPUTS_MAX + 2);
    cr_assert_eq(stats.failures[STATUS_INVALID_ARGUMENT], 1);
    find_out(session, 2, &first);
    cr_assert_str_eq(first.words, "negative  2: negative has 1 outputs, not 8192");
    for (unsigned i = 1; i <= OP_OUTPUTS_MAX; i++) {
        find_out(session, 2 + i, &last);
        cr_assert_str_eq(last.words, first.words);
    }
    session_destroy(session);
}
