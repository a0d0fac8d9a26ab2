/* Programs inside of a recording: a run, or a loop of a few iterations, puts its operations into the recording. They become ordinary operations of the
 * new program, so derivatives go through them, and the daemon fuses them with what is around them. */
#include <stdlib.h>
#include <string.h>

#include "client/lib/call.h"
#include "client/lib/device.h"
#include "client/lib/error.h"
#include "client/lib/program.h"
#include "client/lib/record.h"
#include "client/lib/scope.h"
#include "proto/ops/cleanup.h"
#include "proto/wire/program.h"

/* One call. The handles in `values` that the operations have made are its own. */
struct inlining {
    td_program *program;
    const td_loop *loop;
    int64_t times;
    td_tensor *const *inputs;
    Tensord__ProgramDefine *definition;
    struct program_types types;
    td_tensor **values;   /* of one iteration: tensor number i at i - 1 */
    td_tensor **operands; /* of one operation */
    bool *given;          /* by number, too: a result is this handle */
    td_tensor **carried;  /* by parameter: what the iteration before has carried there; NULL: nothing */
    td_tensor **slices;   /* by parameter, of one iteration; NULL: it is not sliced */
    td_tensor **results;  /* of the last iteration so far */
    td_tensor ***stacks;  /* by result: those of all iterations; NULL: it is not stacked */
    const char *label;    /* of operations that have none; NULL: none */
    size_t label_bytes;
};

static void release(td_tensor **tensor) {
    td_release(*tensor);
    *tensor = NULL;
}

static void inlining_finish(struct inlining *inlining) {
    const td_program *program = inlining->program;
    for (unsigned i = 0; inlining->carried && i < program->n_parameters; i++)
        td_release(inlining->carried[i]);
    for (unsigned i = 0; inlining->slices && i < program->n_parameters; i++)
        td_release(inlining->slices[i]);
    for (unsigned i = 0; inlining->results && i < program->n_results; i++)
        td_release(inlining->results[i]);
    for (unsigned i = 0; inlining->stacks && i < program->n_results; i++) {
        for (int64_t k = 0; inlining->stacks[i] && k < inlining->times; k++)
            td_release(inlining->stacks[i][k]);
        free(inlining->stacks[i]);
    }
    tensord__program_define__free_unpacked(inlining->definition, NULL);
    program_types_finish(&inlining->types);
    free(inlining->values);
    free(inlining->operands);
    free(inlining->given);
    free(inlining->carried);
    free(inlining->slices);
    free(inlining->results);
    free(inlining->stacks);
}
CLEANUP_FINISH(struct inlining, inlining_finish)

static int no_memory(const struct inlining *inlining) {
    call_refuse(OP_PROGRAM, STATUS_NO_HOST_MEMORY, "no memory to record a program of %zu bytes",
                inlining->program->definition_bytes);
    return STATUS_NO_HOST_MEMORY;
}

/* ---- what it takes ---- */

static struct batch_entry entry_of(const struct inlining *inlining, const struct op_request *op) {
    struct batch_entry entry = {.opcode = op->opcode,
                                .n_inputs = op->n_inputs,
                                .n_ints = op->n_ints,
                                .n_floats = op->n_floats,
                                .n_outputs = op_request_outputs(op),
                                .ints = op->ints,
                                .floats = op->floats,
                                .label = op->label ? op->label : inlining->label,
                                .label_bytes = op->label ? strlen(op->label) : inlining->label_bytes};
    batch_entry_measure(&entry);
    return entry;
}

/* Whether the recording takes all iterations; *most: inputs of one operation. So little can fail once the first operation is recorded. */
static int check_room(const struct inlining *inlining, unsigned *most) {
    const td_loop *loop = inlining->loop;
    const Tensord__Batch *operations = inlining->definition->operations;
    struct batch_cursor cursor;
    struct op_request op;
    struct fault fault;
    uint64_t bytes = 0, count = operations->n_heads, room_bytes;
    unsigned room;
    *most = 0;
    batch_cursor_init(&cursor, operations);
    while (batch_cursor_next(&cursor, &op, &fault) > 0) {
        bytes += entry_of(inlining, &op).bytes;
        *most = op.n_inputs > *most ? op.n_inputs : *most;
    }
    for (int i = 0; i < loop->n_sliced; i++) { /* a slice and a reshape: heads, inputs and attributes */
        uint64_t rank = (uint64_t)inlining->program->parameters[loop->sliced[i]].rank;
        count += 2;
        bytes += 8 * (2 + 2 + 3 * (rank + 1) + rank);
    }
    record_room(&room, &room_bytes);
    if (loop->n_stacked && inlining->times > OP_INPUTS_MAX) {
        call_refuse(OP_PROGRAM, STATUS_LIMIT,
                    "results of %lld iterations are stacked, which a recording takes of %d at most",
                    (long long)inlining->times, OP_INPUTS_MAX);
        return STATUS_LIMIT;
    }
    uint64_t times = (uint64_t)inlining->times, stacks = (uint64_t)loop->n_stacked;
    if (count * times + stacks > room) { /* times is below 2^31, and count far below 2^32 */
        call_refuse(
            OP_PROGRAM, STATUS_LIMIT,
            "%lld iterations of %llu operations, of which the recording has room for %u: a program has %d at most; "
            "run the loop outside of the recording",
            (long long)inlining->times, (unsigned long long)count, room, OP_PROGRAM_OPERATIONS_MAX);
        return STATUS_LIMIT;
    }
    if (bytes * times + stacks * 8 * times > room_bytes) {
        call_refuse(
            OP_PROGRAM, STATUS_LIMIT, "%llu operations with some %llu bytes, of which the recording has room for %llu",
            (unsigned long long)(count * times), (unsigned long long)(bytes * times), (unsigned long long)room_bytes);
        return STATUS_LIMIT;
    }
    return 0;
}

static int inlining_allocate(struct inlining *inlining, unsigned most) {
    const td_program *program = inlining->program;
    size_t values = inlining->types.n, n = program->n_parameters + 1, m = program->n_results + 1;
    inlining->values = calloc(values + 1, sizeof(td_tensor *));
    inlining->given = calloc(values + 1, sizeof(bool));
    inlining->operands = calloc(most + 1, sizeof(td_tensor *));
    inlining->carried = calloc(n, sizeof(td_tensor *));
    inlining->slices = calloc(n, sizeof(td_tensor *));
    inlining->results = calloc(m, sizeof(td_tensor *));
    inlining->stacks = calloc(m, sizeof(td_tensor **));
    if (!inlining->values || !inlining->given || !inlining->operands || !inlining->carried || !inlining->slices ||
        !inlining->results || !inlining->stacks)
        return no_memory(inlining);
    for (int i = 0; i < inlining->loop->n_stacked; i++) {
        td_tensor ***stack = &inlining->stacks[inlining->loop->stacked[i]];
        if (!*stack && !(*stack = calloc((size_t)inlining->times, sizeof(td_tensor *))))
            return no_memory(inlining);
    }
    return 0;
}

static int inlining_init(struct inlining *inlining) {
    td_program *program = inlining->program;
    struct fault fault;
    unsigned most = 0;
    inlining->definition = tensord__program_define__unpack(NULL, program->definition_bytes, program->definition);
    size_t n = program->n_captured;
    CLEANUP(free) struct tensor_type *captured = calloc(n + 1, sizeof *captured);
    if (!inlining->definition || !captured)
        return no_memory(inlining);
    for (size_t i = 0; i < n; i++)
        captured[i] = program->captured[i]->type;
    if (program_types_init(&inlining->types, inlining->definition, captured, &fault)) {
        inlining->types = (struct program_types){.types = NULL};
        call_refuse(OP_PROGRAM, fault.code, "%s", fault.message);
        return (int)fault.code;
    }
    int code = check_room(inlining, &most);
    return code ? code : inlining_allocate(inlining, most);
}

/* ---- an iteration ---- */

/* The same tensor as another one, which costs nothing: a view. */
static int identity(const struct inlining *inlining, td_tensor *tensor, td_tensor **out) {
    struct batch_entry entry = {.opcode = OP_RESHAPE,
                                .n_inputs = 1,
                                .inputs = &tensor,
                                .n_ints = (unsigned)tensor->type.rank,
                                .ints = tensor->type.shape,
                                .label = inlining->label,
                                .label_bytes = inlining->label_bytes};
    return call_append(inlining->program->device, &entry, 1, &tensor->type, out, 0, NULL);
}

static int record_operations(struct inlining *inlining) {
    struct batch_cursor cursor;
    struct op_request op;
    struct fault fault;
    size_t output = inlining->types.n_parameters + inlining->program->n_captured;
    batch_cursor_init(&cursor, inlining->definition->operations);
    while (batch_cursor_next(&cursor, &op, &fault) > 0) {
        struct batch_entry entry = entry_of(inlining, &op);
        for (unsigned i = 0; i < op.n_inputs; i++)
            inlining->operands[i] = inlining->values[op.inputs[i] - 1];
        entry.inputs = inlining->operands;
        int code = call_append(inlining->program->device, &entry, entry.n_outputs, inlining->types.types + output,
                               inlining->values + output, 0, NULL);
        if (code)
            return code;
        output += entry.n_outputs;
    }
    return 0;
}

/* A result that is no operation's own, or that comes twice, gets another handle for its tensor. */
static int take_results(struct inlining *inlining) {
    size_t first = inlining->types.n_parameters + inlining->program->n_captured;
    for (unsigned i = 0; i < inlining->program->n_results; i++) {
        size_t at = (size_t)inlining->definition->outputs[i] - 1;
        if (at >= first && !inlining->given[at]) {
            inlining->given[at] = true;
            inlining->results[i] = inlining->values[at];
            continue;
        }
        int code = identity(inlining, inlining->values[at], &inlining->results[i]);
        if (code)
            return code;
    }
    return 0;
}

/* The operations of one iteration, whose inputs are in `values`. All but its results is released. */
static int inline_once(struct inlining *inlining) {
    const td_program *program = inlining->program;
    size_t first = inlining->types.n_parameters + program->n_captured;
    memset(inlining->given, 0, inlining->types.n * sizeof(bool));
    for (unsigned i = 0; i < program->n_captured; i++)
        inlining->values[program->n_parameters + i] = program->captured[i];
    int code = record_operations(inlining);
    if (!code)
        code = take_results(inlining);
    for (size_t i = first; i < inlining->types.n; i++) {
        if (!inlining->given[i])
            td_release(inlining->values[i]);
        inlining->values[i] = NULL;
    }
    return code;
}

/* ---- loops ---- */

static int slice(struct inlining *inlining, int parameter, int64_t i) {
    const struct tensor_type *type = &inlining->program->parameters[parameter];
    if (inlining->slices[parameter]) /* it is listed twice */
        return 0;
    td_tensor *part = td_slice(inlining->inputs[parameter], 0, i, i + 1, 1);
    td_tensor *row = made_of(part, td_reshape(part, type->rank, type->shape));
    inlining->slices[parameter] = inlining->values[parameter] = row;
    return row ? 0 : td_last_error()->code;
}

/* The inputs of iteration i. */
static int inputs_of(struct inlining *inlining, int64_t i) {
    const td_loop *loop = inlining->loop;
    int code = 0;
    for (unsigned k = 0; k < inlining->program->n_parameters; k++)
        inlining->values[k] = inlining->carried[k] ? inlining->carried[k] : inlining->inputs[k];
    for (int k = 0; k < loop->n_sliced && !code; k++)
        code = slice(inlining, loop->sliced[k], i);
    return code;
}

/* After iteration i: what it was given goes, and its results go where the loop says. */
static void results_of(struct inlining *inlining, int64_t i) {
    const td_loop *loop = inlining->loop;
    bool last = i + 1 == inlining->times;
    for (unsigned k = 0; k < inlining->program->n_parameters; k++) {
        release(&inlining->slices[k]);
        release(&inlining->carried[k]);
    }
    for (unsigned k = 0; k < inlining->program->n_results; k++)
        if (inlining->stacks[k]) {
            inlining->stacks[k][i] = inlining->results[k];
            inlining->results[k] = NULL;
        }
    for (int k = 0; k < loop->n_carried && !last; k++) {
        td_carry carry = loop->carried[k];
        inlining->carried[carry.parameter] = inlining->results[carry.result];
        inlining->results[carry.result] = NULL;
    }
    for (unsigned k = 0; k < inlining->program->n_results && !last; k++)
        release(&inlining->results[k]);
}

static int stack_results(struct inlining *inlining) {
    for (unsigned k = 0; k < inlining->program->n_results; k++)
        if (inlining->stacks[k] && !(inlining->results[k] = td_stack(inlining->stacks[k], (int)inlining->times, 0)))
            return td_last_error()->code;
    return 0;
}

static int inline_all(struct inlining *inlining) {
    int code = inlining_init(inlining);
    for (int64_t i = 0; i < inlining->times && !code; i++) {
        code = inputs_of(inlining, i);
        if (!code)
            code = inline_once(inlining);
        if (!code)
            results_of(inlining, i);
    }
    return code ? code : stack_results(inlining);
}

int program_inline(td_program *program, int64_t times, const td_loop *loop, td_tensor *const *inputs,
                   td_tensor **results) {
    CLEANUP(free) td_tensor **consumed = calloc(program->n_consumed + 1, sizeof(td_tensor *));
    char label[TD_LABEL_MAX + 1];
    CLEANUP(inlining_finish)
    struct inlining inlining = {.program = program, .loop = loop, .times = times, .inputs = inputs};
    if (!consumed)
        return no_memory(&inlining);
    int code = program_take_consumed(program, inputs, consumed);
    if (!code)
        code = record_admit_run(program->device, program->n_parameters, inputs, program->n_consumed, consumed);
    if (code)
        return code;
    const char *current = scope_is_bare() ? NULL : label_current(&inlining.label_bytes);
    if (current)
        inlining.label = memcpy(label, current, inlining.label_bytes + 1);
    code = inline_all(&inlining);
    label_used(code);
    if (code)
        return code;
    for (unsigned i = 0; i < program->n_consumed; i++)
        td_release(consumed[i]);
    for (unsigned i = 0; i < program->n_results; i++) {
        results[i] = inlining.results[i];
        inlining.results[i] = NULL;
    }
    return 0;
}
