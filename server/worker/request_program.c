/* ProgramDefine, ProgramLoop and ProgramRelease: programs that clients have recorded. */
#include <stdlib.h>

#include "engine/program/recorded.h"
#include "proto/wire/batch.h"
#include "server/worker/connection.h"
#include "server/worker/request_impl.h"

enum {
    /* Of the budget: operations that are measured in a step; steps for one that is checked, and one more for so many of its tensors. */
    PROGRAM_MEASURED = 16,
    PROGRAM_OPERATION_STEPS = 2,
    PROGRAM_TENSORS = 8,
};

/* What a definition's message has beside its operations, in the form that the engine takes. */
struct program_parts {
    struct tensor_type *parameters;
    bool *consumed;
    unsigned n_parameters;
};

/* The types of the parameters: dtype, rank and extents of each. */
static int program_parameters(const Tensord__ProgramDefine *message, struct program_parts *parts, struct fault *fault) {
    size_t left = message->n_parameters;
    const int64_t *at = message->parameters;
    while (left) {
        if (parts->n_parameters == RECORDED_VALUES_MAX)
            return fault_set(fault, STATUS_LIMIT, "a program with more than %d parameters", RECORDED_VALUES_MAX);
        if (left < 2 || at[1] < 0 || (uint64_t)at[1] > left - 2)
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "the list of parameters ends within a type");
        int code = type_make(&parts->parameters[parts->n_parameters], at[0], at + 2, (size_t)at[1], fault);
        if (code != STATUS_OK)
            return code;
        parts->n_parameters++;
        left -= 2 + (size_t)at[1];
        at += 2 + at[1];
    }
    for (size_t i = 0; i < message->n_consumed; i++) {
        if (message->consumed[i] >= parts->n_parameters)
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "parameter %u is consumed, and there are %u",
                             message->consumed[i], parts->n_parameters);
        parts->consumed[message->consumed[i]] = true;
    }
    return STATUS_OK;
}

/* What the definition has beside its operations. */
static int program_parts(const Tensord__ProgramDefine *message, struct program_parts *parts, struct fault *fault) {
    if (message->n_captures > RECORDED_VALUES_MAX || message->n_outputs > RECORDED_VALUES_MAX ||
        message->n_consumed > RECORDED_VALUES_MAX)
        return fault_set(fault, STATUS_LIMIT,
                         "a program with %zu captured tensors, %zu results and %zu consumed parameters, the limit is "
                         "%d",
                         message->n_captures, message->n_outputs, message->n_consumed, RECORDED_VALUES_MAX);
    parts->parameters = malloc(RECORDED_VALUES_MAX * sizeof *parts->parameters);
    parts->consumed = calloc(RECORDED_VALUES_MAX, sizeof *parts->consumed);
    if (!parts->parameters || !parts->consumed)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no host memory for a program");
    return program_parameters(message, parts, fault);
}

static int program_begin(struct connection *connection, const Tensord__ProgramDefine *message,
                         const struct recorded_size *size, struct fault *fault) {
    struct program_parts parts = {0};
    int code = program_parts(message, &parts, fault);
    const struct recorded_definition definition = {.id = message->program,
                                                   .parameters = parts.parameters,
                                                   .consumed = parts.consumed,
                                                   .n_parameters = parts.n_parameters,
                                                   .captures = message->captures,
                                                   .n_captures = (unsigned)message->n_captures,
                                                   .results = message->outputs,
                                                   .n_results = (unsigned)message->n_outputs};
    if (code == STATUS_OK)
        code = session_program_begin(connection->session, &definition, size, fault);
    free(parts.parameters);
    free(parts.consumed);
    return code;
}

/* STATUS_OK: all operations have been read; STATUS_PROTOCOL: the batch is malformed. */
static int program_measure(struct connection *connection, struct fault *fault) {
    struct request_definition *definition = &connection->request.definition;
    struct op_request request;
    int more;
    while ((more = batch_cursor_next(&definition->cursor, &request, fault)) > 0) {
        recorded_size_add(&definition->size, &request);
        if (budget_spent(connection->service->budget, definition->size.operations % PROGRAM_MEASURED == 0))
            return STATUS_AGAIN;
    }
    return more < 0 ? STATUS_PROTOCOL : STATUS_OK;
}

static int program_operations(struct connection *connection, struct fault *fault) {
    const struct principal *principal = &connection->peer.principal;
    struct request_definition *definition = &connection->request.definition;
    struct op_request request;
    while (batch_cursor_next(&definition->cursor, &request, fault) > 0) {
        request.kernels_denied = principal->user_kernels ? NULL : principal->name;
        if (!session_program_add(connection->session, &request))
            break;
        if (budget_spent(connection->service->budget,
                         PROGRAM_OPERATION_STEPS + (int)((request.n_inputs + request.further) / PROGRAM_TENSORS)))
            return STATUS_AGAIN;
    }
    return session_program_end(connection->session);
}

/* Goes on with a definition, in `batch`. STATUS_AGAIN: the turn's time is over. STATUS_PROTOCOL: it is malformed. Any other code: there is no such
 * program, for this fault. */
static int program_define(struct connection *connection, const Tensord__ProgramDefine *message,
                          const Tensord__Batch *batch, struct fault *fault) {
    struct request_definition *definition = &connection->request.definition;
    if (!definition->begun) {
        definition->begun = true;
        batch_cursor_init(&definition->cursor, batch);
    } else if (!batch_cursor_follow(&definition->cursor, batch)) {
        return fault_set(fault, STATUS_PROTOCOL, "a definition came again with less in it");
    }
    if (!definition->measured) {
        int code = program_measure(connection, fault);
        if (code == STATUS_OK)
            code = program_begin(connection, message, &definition->size, fault);
        if (code != STATUS_OK)
            return code;
        definition->measured = true;
        batch_cursor_init(&definition->cursor, batch);
    }
    return program_operations(connection, fault);
}

int request_program_define(struct connection *connection, const struct frame_header *header,
                           const ProtobufCMessage *message, uint8_t **sink, struct fault *fault) {
    static const Tensord__Batch none = TENSORD__BATCH__INIT;
    const Tensord__ProgramDefine *define = (const Tensord__ProgramDefine *)message;
    const Tensord__Batch *batch = define->operations ? define->operations : &none;
    struct fault wrong, ignored; /* without the program its runs fail, and say that it is not there */
    (void)sink;
    request_share(connection, header);
    int code = batch->n_heads > RECORDED_OPERATIONS_MAX
                   ? fault_set(&wrong, STATUS_LIMIT, "a program of %zu operations, the limit is %d", batch->n_heads,
                               RECORDED_OPERATIONS_MAX)
                   : program_define(connection, define, batch, &wrong);
    if (code == STATUS_AGAIN)
        return request_later(connection, code);
    connection->request.definition = (struct request_definition){0};
    if (code == STATUS_PROTOCOL)
        *fault = wrong;
    else if (code != STATUS_OK)
        session_program_refuse(connection->session, define->program, &wrong, &ignored);
    return code == STATUS_PROTOCOL ? code : STATUS_OK;
}

void request_program_cut(struct connection *connection) {
    if (connection->request.definition.begun)
        session_program_abandon(connection->session);
    connection->request.definition = (struct request_definition){0};
}

int request_program_loop(struct connection *connection, const struct frame_header *header,
                         const ProtobufCMessage *message, uint8_t **sink, struct fault *fault) {
    const Tensord__ProgramLoop *loop = (const Tensord__ProgramLoop *)message;
    struct fault wrong, ignored;
    (void)header, (void)sink, (void)fault;
    if (loop->n_carried > 2 * RECORDED_VALUES_MAX || loop->n_sliced > RECORDED_VALUES_MAX ||
        loop->n_stacked > RECORDED_VALUES_MAX) {
        fault_set(&wrong, STATUS_LIMIT, "a loop that carries, slices or stacks more than %d tensors",
                  RECORDED_VALUES_MAX);
        session_program_refuse(connection->session, loop->program, &wrong, &ignored);
        return STATUS_OK;
    }
    const struct recorded_loop parts = {.id = loop->program,
                                        .body = loop->body,
                                        .carried = loop->carried,
                                        .n_carried = (unsigned)loop->n_carried,
                                        .sliced = loop->sliced,
                                        .n_sliced = (unsigned)loop->n_sliced,
                                        .stacked = loop->stacked,
                                        .n_stacked = (unsigned)loop->n_stacked};
    session_program_loop(connection->session, &parts, &ignored);
    return STATUS_OK;
}

int request_program_release(struct connection *connection, const struct frame_header *header,
                            const ProtobufCMessage *message, uint8_t **sink, struct fault *fault) {
    struct fault ignored; /* the caller's fault would end the connection */
    (void)header, (void)sink, (void)fault;
    session_program_release(connection->session, ((const Tensord__ProgramRelease *)message)->program, &ignored);
    return STATUS_OK;
}
