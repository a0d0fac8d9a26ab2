#include "tests/device/program.h"

#include <string.h>

#include "tests/device/tolerance.h"

enum { PROGRAM_ELEMENTS_MAX = 400 };

static struct sample *program_slot(struct program *program) {
    return &program->slots[suite_below(program->suite, PROGRAM_SLOTS)];
}

/* A slot that holds something, NULL after a few misses. */
static struct sample *program_full_slot(struct program *program) {
    for (int i = 0; i < 8; i++) {
        struct sample *slot = program_slot(program);
        if (slot->values)
            return slot;
    }
    return NULL;
}

static void program_check(struct program *program, struct sample *slot) {
    suite_check(program->suite, slot);
}

static void program_clear(struct program *program, struct sample *slot) {
    if (!slot->values)
        return;
    if (suite_chance(program->suite, program->check_percent))
        program_check(program, slot);
    suite_free(program->suite, slot);
}

static void program_store(struct program *program, struct sample result) {
    struct sample *slot = program_slot(program);
    program_clear(program, slot);
    if (!tolerance_exact(result.opcode, result.values))
        suite_adopt(program->suite, &result);
    *slot = result;
}

/* Runs an operation, whose inputs are slots; now and then some of them are consumed. */
static void program_apply(struct program *program, unsigned opcode, struct sample *const *inputs, unsigned n,
                          unsigned n_ints, const int64_t *ints) {
    const struct sample *pointers[8];
    uint16_t consume = 0;
    for (unsigned i = 0; i < n; i++) {
        bool again = false;
        for (unsigned j = 0; j < n; j++)
            again |= j != i && inputs[j] == inputs[i];
        pointers[i] = inputs[i];
        if (!again && suite_chance(program->suite, 20))
            consume |= (uint16_t)(1u << i);
    }
    struct suite_call call = {.opcode = opcode, .n_inputs = n, .inputs = pointers, .consume = consume};
    call.attributes.n_ints = op_ints_write(call.attributes.ints, &(struct op_ints){n_ints, ints});
    struct sample result = suite_run(program->suite, &call);
    for (unsigned i = 0; i < n; i++)
        if (consume >> i & 1)
            suite_forget(inputs[i]);
    program_store(program, result);
}

/* Real ones, which all operations of a program take. */
static enum dtype program_dtype(struct program *program) {
    enum dtype dtype;
    do
        dtype = (enum dtype)(1 + suite_below(program->suite, DTYPE_COUNT - 1));
    while (value_is_complex(dtype));
    return dtype;
}

/* Few extents, so that shapes often fit each other. */
static int program_shape(struct program *program, int64_t *shape) {
    static const int64_t extents[] = {1, 4, 4, 9, 0};
    int rank = (int)suite_below(program->suite, 4);
    for (int i = 0; i < rank; i++)
        shape[i] = extents[suite_below(program->suite, suite_chance(program->suite, 5) ? 5 : 4)];
    return rank;
}

static void step_upload(struct program *program) {
    int64_t shape[VALUES_RANK_MAX];
    int rank = program_shape(program, shape);
    struct sample x = suite_sample(program->suite, program_dtype(program), rank, shape, FILL_ANY);
    program_store(program, x);
}

static void step_create(struct program *program) {
    int64_t shape[VALUES_RANK_MAX];
    enum dtype dtype = program_dtype(program);
    struct op_scalar value = {.i = suite_below(program->suite, 2)};
    int rank = program_shape(program, shape);
    value.f = (double)suite_below(program->suite, 10) - 4.5;
    struct suite_call call = {
        .opcode = OP_FULL,
        .attributes = SUITE_ATTRIBUTES(full, .dtype = dtype, .value = value, .shape = {(unsigned)rank, shape})};
    program_store(program, suite_run(program->suite, &call));
}

static void step_unary(struct program *program) {
    static const unsigned opcodes[] = {OP_COPY, OP_LOGICAL_NOT, OP_NEGATIVE, OP_ABS, OP_SQRT, OP_RELU, OP_EXP, OP_TANH};
    struct sample *x = program_full_slot(program);
    unsigned opcode = opcodes[suite_below(program->suite, program->exact_only ? 5 : 8)];
    if (!x || (x->values->dtype == DTYPE_BOOL && opcode != OP_COPY && opcode != OP_LOGICAL_NOT && opcode != OP_SQRT))
        return;
    if (value_is_f8(x->values->dtype) && opcode != OP_COPY)
        return;
    program_apply(program, opcode, &x, 1, 0, NULL);
}

static void step_cast(struct program *program) {
    struct sample *x = program_full_slot(program);
    if (x)
        program_apply(program, OP_CAST, &x, 1, 1, (int64_t[]){program_dtype(program)});
}

static void step_binary(struct program *program) {
    static const unsigned opcodes[] = {OP_ADD,         OP_SUBTRACT,   OP_MULTIPLY,      OP_DIVIDE,
                                       OP_EQUAL,       OP_LESS,       OP_GREATER_EQUAL, OP_NOT_EQUAL,
                                       OP_LOGICAL_AND, OP_LOGICAL_OR, OP_MAXIMUM,       OP_POW};
    struct sample *inputs[] = {program_full_slot(program), program_full_slot(program)};
    unsigned opcode = opcodes[suite_below(program->suite, program->exact_only ? 10 : 12)];
    int rank;
    int64_t shape[VALUES_RANK_MAX];
    if (!inputs[0] || !inputs[1])
        return;
    const struct values *a = inputs[0]->values, *b = inputs[1]->values;
    if (!reference_broadcast(a->rank, a->shape, b->rank, b->shape, &rank, shape))
        return;
    if (reference_promote(a->dtype, b->dtype) == DTYPE_BOOL && (opcode == OP_SUBTRACT || opcode == OP_POW))
        return;
    if (value_is_f8(a->dtype) || value_is_f8(b->dtype))
        return;
    bool logical = opcode == OP_LOGICAL_AND || opcode == OP_LOGICAL_OR;
    if (reference_promote(a->dtype, b->dtype) == DTYPE_INVALID && !logical)
        return;
    program_apply(program, opcode, inputs, 2, 0, NULL);
}

static void step_where(struct program *program) {
    struct sample *inputs[] = {program_full_slot(program), program_full_slot(program), program_full_slot(program)};
    int rank;
    int64_t shape[VALUES_RANK_MAX];
    if (!inputs[0] || !inputs[1] || !inputs[2] || inputs[0]->values->dtype != DTYPE_BOOL)
        return;
    const struct values *c = inputs[0]->values, *a = inputs[1]->values, *b = inputs[2]->values;
    if (reference_promote(a->dtype, b->dtype) != DTYPE_INVALID &&
        reference_broadcast(a->rank, a->shape, b->rank, b->shape, &rank, shape) &&
        reference_broadcast(c->rank, c->shape, rank, shape, &rank, shape))
        program_apply(program, OP_WHERE, inputs, 3, 0, NULL);
}

static void step_reduce(struct program *program) {
    static const unsigned opcodes[] = {OP_ANY, OP_ALL, OP_SUM, OP_PROD, OP_ARGMAX, OP_ARGMIN, OP_MAX, OP_MIN};
    struct sample *x = program_full_slot(program);
    unsigned opcode = opcodes[suite_below(program->suite, 8)];
    if (!x || value_is_f8(x->values->dtype))
        return;
    if (x->values->count == 0 || (program->exact_only && x->values->f && opcode != OP_ANY && opcode != OP_ALL))
        return;
    if (x->values->f && opcode == OP_PROD) /* overflow on the way depends on the order */
        return;
    if (x->values->f && opcode == OP_SUM)
        for (int64_t k = 0; k < x->values->count; k++)
            if (!(x->values->f[k] < 1000 && x->values->f[k] > -1000))
                return;
    int64_t ints[] = {suite_below(program->suite, 2), suite_below(program->suite, 3)};
    program_apply(program, opcode, &x, 1, ints[1] < x->values->rank ? 2 : 1, ints);
}

static void step_matmul(struct program *program) {
    struct sample *inputs[] = {program_full_slot(program), program_full_slot(program)};
    if (!inputs[0] || !inputs[1])
        return;
    const struct values *a = inputs[0]->values, *b = inputs[1]->values;
    enum dtype dtype = reference_promote(a->dtype, b->dtype);
    /* Floats would need numbers that do not overflow. */
    if (a->rank != 2 || b->rank != 2 || a->shape[1] != b->shape[0] || dtype <= DTYPE_BOOL || value_is_float(dtype))
        return;
    program_apply(program, OP_MATMUL, inputs, 2, 0, NULL);
}

static void step_view(struct program *program) {
    struct sample *x = program_full_slot(program);
    int64_t ints[3 * VALUES_RANK_MAX];
    if (!x)
        return;
    const struct values *v = x->values;
    unsigned rank = (unsigned)v->rank;
    switch (suite_below(program->suite, 5)) {
    case 0:
        program_apply(program, OP_RESHAPE, &x, 1, 1, (int64_t[]){v->count ? -1 : 0});
        break;
    case 1:
        for (unsigned i = 0; i < rank; i++)
            ints[i] = rank - 1 - i;
        program_apply(program, OP_PERMUTE_DIMS, &x, 1, rank, ints);
        break;
    case 2:
        for (unsigned i = 0; i < rank; i++) {
            ints[3 * i] = suite_chance(program->suite, 70) ? OP_SLICE_NONE : suite_below(program->suite, 3);
            ints[3 * i + 1] = OP_SLICE_NONE;
            ints[3 * i + 2] = suite_chance(program->suite, 50) ? 1 : -1;
        }
        program_apply(program, OP_SLICE, &x, 1, 3 * rank, ints);
        break;
    case 3:
        if (rank < 5)
            program_apply(program, OP_EXPAND_DIMS, &x, 1, 1, (int64_t[]){suite_below(program->suite, rank + 1)});
        break;
    default:
        if (rank < 4 && v->count * 4 <= PROGRAM_ELEMENTS_MAX) {
            ints[0] = 4;
            memcpy(ints + 1, v->shape, rank * sizeof *ints);
            program_apply(program, OP_BROADCAST_TO, &x, 1, rank + 1, ints);
        }
    }
}

static void step_join(struct program *program) {
    struct sample *inputs[] = {program_full_slot(program), program_full_slot(program), program_full_slot(program)};
    if (!inputs[0] || !inputs[1] || !inputs[2])
        return;
    const struct values *first = inputs[0]->values;
    enum dtype both = first->dtype;
    for (int i = 1; i < 3; i++) {
        both = reference_promote(both, inputs[i]->values->dtype);
        if (!values_same_type(inputs[i]->values, inputs[i]->values->dtype, first->rank, first->shape) ||
            both == DTYPE_INVALID)
            return;
    }
    if (first->count * 3 > PROGRAM_ELEMENTS_MAX || first->rank > 4)
        return;
    unsigned opcode = first->rank && suite_chance(program->suite, 50) ? OP_CONCAT : OP_STACK;
    program_apply(program, opcode, inputs, 3, 1, (int64_t[]){-1});
}

static void step_take(struct program *program) {
    struct sample *x = program_full_slot(program);
    if (!x || x->values->rank == 0 || x->values->shape[0] == 0)
        return;
    struct values *values = values_create(DTYPE_I32, 1, (int64_t[]){3});
    for (int i = 0; i < 3; i++)
        values->i[i] = suite_below(program->suite, x->values->shape[0]);
    struct sample indices = suite_upload(program->suite, values);
    struct sample *inputs[] = {x, &indices};
    program_apply(program, OP_TAKE, inputs, 2, 1, (int64_t[]){0});
    if (indices.values)
        suite_free(program->suite, &indices);
}

static void step_free(struct program *program) {
    struct sample *slot = program_slot(program);
    if (slot->values && slot->values->count > PROGRAM_ELEMENTS_MAX / 4)
        program_clear(program, slot);
}

static void (*const program_steps[])(struct program *program) = {
    step_upload, step_create, step_unary, step_unary, step_cast,   step_binary, step_binary, step_binary, step_binary,
    step_where,  step_reduce, step_view,  step_view,  step_matmul, step_join,   step_take,   step_free,   step_free,
};

void program_run(struct program *program, int steps) {
    struct suite *suite = program->suite;
    for (int i = 0; i < steps; i++) {
        suite->stream = (uint32_t)suite_below(suite, program->streams);
        program_steps[suite_below(suite, sizeof program_steps / sizeof *program_steps)](program);
        if (i % 64 == 63)
            engine_kick(suite->engine);
    }
    suite->stream = 0;
    for (int i = 0; i < PROGRAM_SLOTS; i++) {
        if (!program->slots[i].values)
            continue;
        program_check(program, &program->slots[i]);
        suite_free(suite, &program->slots[i]);
    }
}
