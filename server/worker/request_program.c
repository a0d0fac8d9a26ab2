/* ProgramDefine, ProgramLoop and ProgramRelease: programs that clients have recorded. */
#include <stdlib.h>

#include "engine/program/recorded.h"
#include "proto/wire/batch.h"
#include "server/worker/connection.h"
#include "server/worker/request_impl.h"

/* What a definition's message has, in the form that the engine takes. */
struct program_parts {
    struct tensor_type *parameters;
    bool *consumed;
    struct op_request *requests;
    unsigned n_parameters, n_requests;
};

static void program_parts_free(struct program_parts *parts) {
    free(parts->parameters);
    free(parts->consumed);
    free(parts->requests);
}

/* The types of the parameters: dtype, rank and extents of each. */
static int program_parameters(const Tensord__ProgramDefine *message, struct program_parts *parts, struct fault *fault) {
    size_t left = message->n_parameters;
    const int64_t *at = message->parameters;
    while (left) {
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

/* The operations; STATUS_PROTOCOL if the batch is malformed. */
static int program_operations(const struct connection *connection, const Tensord__Batch *batch,
                              struct program_parts *parts, struct fault *fault) {
    const struct principal *principal = &connection->peer.principal;
    struct batch_cursor cursor;
    int more = 1;
    batch_cursor_init(&cursor, batch);
    while (more > 0) {
        struct op_request request = {.kernels_denied = principal->user_kernels ? NULL : principal->name};
        more = batch_cursor_next(&cursor, &request, fault);
        if (more > 0)
            parts->requests[parts->n_requests++] = request;
    }
    return more < 0 ? STATUS_PROTOCOL : STATUS_OK;
}

/* Without operations, or with more than there may be, nothing is read. */
static int program_define(struct connection *connection, const Tensord__ProgramDefine *message,
                          struct program_parts *parts, struct fault *wrong, struct fault *fault) {
    static const Tensord__Batch none = TENSORD__BATCH__INIT;
    const Tensord__Batch *batch = message->operations ? message->operations : &none;
    if (batch->n_heads > RECORDED_OPERATIONS_MAX || message->n_parameters > 32 * (size_t)RECORDED_VALUES_MAX)
        return fault_set(wrong, STATUS_LIMIT, "a program of %zu operations, the limit is %d", batch->n_heads,
                         RECORDED_OPERATIONS_MAX);
    parts->parameters = malloc((message->n_parameters / 2 + 1) * sizeof *parts->parameters);
    parts->consumed = calloc(message->n_parameters / 2 + 1, sizeof *parts->consumed);
    parts->requests = malloc((batch->n_heads + 1) * sizeof *parts->requests);
    if (!parts->parameters || !parts->consumed || !parts->requests)
        return fault_set(wrong, STATUS_NO_HOST_MEMORY, "no host memory for a program");
    if (program_operations(connection, batch, parts, fault) != STATUS_OK)
        return STATUS_PROTOCOL;
    int code = program_parameters(message, parts, wrong);
    if (code != STATUS_OK)
        return code;
    if (message->n_captures > RECORDED_VALUES_MAX || message->n_outputs > RECORDED_VALUES_MAX)
        return fault_set(wrong, STATUS_LIMIT, "a program with %zu captured tensors and %zu results, the limit is %d",
                         message->n_captures, message->n_outputs, RECORDED_VALUES_MAX);
    const struct recorded_definition definition = {.id = message->program,
                                                   .parameters = parts->parameters,
                                                   .consumed = parts->consumed,
                                                   .n_parameters = parts->n_parameters,
                                                   .captures = message->captures,
                                                   .n_captures = (unsigned)message->n_captures,
                                                   .requests = parts->requests,
                                                   .n_requests = parts->n_requests,
                                                   .results = message->outputs,
                                                   .n_results = (unsigned)message->n_outputs};
    struct fault ignored; /* without the program its runs fail, and say that it is not there */
    session_program_define(connection->session, &definition, &ignored);
    return STATUS_OK;
}

int request_program_define(struct connection *connection, const struct frame_header *header,
                           const ProtobufCMessage *message, uint8_t **sink, struct fault *fault) {
    const Tensord__ProgramDefine *define = (const Tensord__ProgramDefine *)message;
    struct program_parts parts = {0};
    struct fault wrong, ignored;
    (void)header, (void)sink;
    int code = program_define(connection, define, &parts, &wrong, fault);
    program_parts_free(&parts);
    if (code != STATUS_OK && code != STATUS_PROTOCOL)
        session_program_refuse(connection->session, define->program, &wrong, &ignored);
    return code == STATUS_PROTOCOL ? code : STATUS_OK;
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
