#include "proto/wire/program.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "proto/ops/cleanup.h"
#include "proto/wire/batch.h"

/* ---- lists of types ---- */

int program_types_read(const int64_t *list, size_t n, struct tensor_type *types, unsigned *count, struct fault *fault) {
    *count = 0;
    while (n) {
        if (n < 2 || list[1] < 0 || (uint64_t)list[1] > n - 2)
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "a list of types ends within a type");
        size_t rank = (size_t)list[1];
        int code = type_make(&types[*count], list[0], list + 2, rank, fault);
        if (code != STATUS_OK)
            return code;
        ++*count;
        n -= 2 + rank;
        list += 2 + rank;
    }
    return STATUS_OK;
}

size_t program_type_write(const struct tensor_type *type, int64_t *out) {
    size_t rank = (size_t)type->rank;
    out[0] = type->dtype;
    out[1] = type->rank;
    for (size_t i = 0; i < rank; i++)
        out[2 + i] = type->shape[i];
    return 2 + rank;
}

/* ---- the tensors of a program ---- */

void program_types_finish(struct program_types *types) {
    free(types->types);
}

static int no_memory(struct fault *fault) {
    return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory to check a program");
}

static int types_reserve(struct program_types *types, size_t more, struct fault *fault) {
    size_t room = types->room ? types->room : 64;
    while (room < types->n + more)
        room *= 2;
    if (room == types->room)
        return STATUS_OK;
    struct tensor_type *grown = realloc(types->types, room * sizeof *grown);
    if (!grown)
        return no_memory(fault);
    types->types = grown;
    types->room = room;
    return STATUS_OK;
}

static int check_parameters(struct program_types *types, const Tensord__ProgramDefine *message, struct fault *fault) {
    size_t most = (size_t)(2 + SHAPE_RANK_MAX) * OP_PROGRAM_VALUES_MAX;
    if (message->n_parameters > most || message->n_captures > OP_PROGRAM_VALUES_MAX ||
        message->n_outputs > OP_PROGRAM_VALUES_MAX)
        return fault_set(fault, STATUS_LIMIT, "more than %d parameters, captured tensors and results",
                         OP_PROGRAM_VALUES_MAX);
    int code = types_reserve(types, message->n_parameters / 2 + message->n_captures, fault);
    if (code == STATUS_OK)
        code =
            program_types_read(message->parameters, message->n_parameters, types->types, &types->n_parameters, fault);
    if (code != STATUS_OK)
        return code;
    types->n = types->n_parameters;
    if (types->n + message->n_captures + message->n_outputs > OP_PROGRAM_VALUES_MAX)
        return fault_set(fault, STATUS_LIMIT, "%u parameters, %zu captured tensors and %zu results, the limit is %d",
                         types->n_parameters, message->n_captures, message->n_outputs, OP_PROGRAM_VALUES_MAX);
    for (size_t i = 0; i < message->n_consumed; i++)
        if (message->consumed[i] >= types->n_parameters || (i && message->consumed[i] <= message->consumed[i - 1]))
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "the list of consumed parameters is wrong at entry %zu",
                             i);
    return STATUS_OK;
}

/* Appends the types of the outputs. */
static int infer(struct program_types *types, const struct op_request *op, struct fault *fault) {
    const struct op_info *info = op_info(op->opcode);
    unsigned n_outputs = op_request_outputs(op);
    if (!info || op->opcode == OP_FREE)
        return fault_set(fault, STATUS_UNSUPPORTED, "this version has no operation %u for programs", op->opcode);
    if (op->opcode == OP_PROGRAM)
        return fault_set(fault, STATUS_UNSUPPORTED, "a program has no runs of others among its operations");
    int code = types_reserve(types, n_outputs, fault);
    if (code != STATUS_OK)
        return code;
    CLEANUP(free) const struct tensor_type **inputs = malloc((op->n_inputs + 1) * sizeof *inputs);
    if (!inputs)
        return no_memory(fault);
    for (unsigned i = 0; i < op->n_inputs; i++) {
        if (op->inputs[i] == 0 || op->inputs[i] > types->n)
            return fault_set(fault, STATUS_UNKNOWN_ID, "the program has no tensor %" PRIu64 " before it",
                             op->inputs[i]);
        inputs[i] = &types->types[op->inputs[i] - 1];
    }
    code =
        op_infer_outputs(op->opcode, inputs, op->n_inputs, &op->attributes, n_outputs, types->types + types->n, fault);
    if (code == STATUS_OK)
        types->n += n_outputs;
    return code;
}

/* Which operation is wrong, before what is wrong with it. */
static int operation_wrong(const struct op_request *op, size_t number, struct fault *fault) {
    const struct op_info *info = op_info(op->opcode);
    struct fault why = *fault;
    return fault_set(fault, why.code, "operation %zu of the program%s%s%s%s%s: %s", number, info ? ", " : "",
                     info ? info->name : "", op->label ? " [" : "", op->label ? op->label : "", op->label ? "]" : "",
                     why.message);
}

static int check_operations(struct program_types *types, const Tensord__Batch *batch, struct fault *fault) {
    struct batch_cursor cursor;
    struct op_request op;
    int more, code = STATUS_OK;
    if (batch->n_heads > OP_PROGRAM_OPERATIONS_MAX)
        return fault_set(fault, STATUS_LIMIT, "a program of %zu operations, the limit is %d", batch->n_heads,
                         OP_PROGRAM_OPERATIONS_MAX);
    if (batch->first_output != types->n + 1)
        return fault_set(fault, STATUS_INVALID_ARGUMENT,
                         "the first output has number %" PRIu64 ", and %zu tensors are before it", batch->first_output,
                         types->n);
    batch_cursor_init(&cursor, batch);
    while ((more = batch_cursor_next(&cursor, &op, fault)) > 0) {
        code = infer(types, &op, fault);
        if (code != STATUS_OK)
            return operation_wrong(&op, cursor.op, fault);
    }
    if (more < 0)
        fault->code = STATUS_INVALID_ARGUMENT; /* not the connection's protocol is wrong, but the program */
    return more < 0 ? STATUS_INVALID_ARGUMENT : STATUS_OK;
}

static int check_results(const struct program_types *types, const Tensord__ProgramDefine *message,
                         struct fault *fault) {
    if (!message->n_outputs)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "a program without a result");
    for (size_t i = 0; i < message->n_outputs; i++)
        if (message->outputs[i] == 0 || message->outputs[i] > types->n)
            return fault_set(fault, STATUS_UNKNOWN_ID, "result %zu: the program has no tensor %" PRIu64, i,
                             message->outputs[i]);
    return STATUS_OK;
}

int program_types_init(struct program_types *types, const Tensord__ProgramDefine *message,
                       const struct tensor_type *captured, struct fault *fault) {
    *types = (struct program_types){.types = NULL};
    int code = check_parameters(types, message, fault);
    for (size_t i = 0; code == STATUS_OK && i < message->n_captures; i++)
        types->types[types->n++] = captured[i];
    if (code == STATUS_OK && message->operations)
        code = check_operations(types, message->operations, fault);
    if (code == STATUS_OK)
        code = check_results(types, message, fault);
    if (code != STATUS_OK)
        program_types_finish(types);
    return code;
}
