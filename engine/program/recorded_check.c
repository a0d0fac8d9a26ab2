/* Definitions of recorded programs: how they are checked and copied. The operations of a long one, and the trim behind them, take several turns. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/program/kernel_impl.h"
#include "engine/program/recorded_impl.h"
#include "engine/session/host.h"

/* ---- the body: one block of memory ---- */

/* The parts of a body, one behind the other. */
struct block {
    char *at; /* NULL: only measures */
    size_t used;
};

static void *block_take(struct block *block, size_t count, size_t size) {
    size_t offset = (block->used + 15) & ~(size_t)15;
    block->used = offset + count * size;
    return block->at ? block->at + offset : NULL;
}

static void body_lay_out(struct recorded_body *body, const struct recorded_size *size, struct block *block) {
    block_take(block, 1, sizeof *body);
    body->values = block_take(block, body->n_values, sizeof *body->values);
    body->operations = block_take(block, body->n_operations, sizeof *body->operations);
    body->results = block_take(block, body->n_results, sizeof *body->results);
    body->consumed = block_take(block, body->n_parameters, sizeof *body->consumed);
    body->captures = block_take(block, body->n_captures, sizeof(struct tensor *));
    body->inputs = block_take(block, size->inputs, sizeof *body->inputs);
    body->ints = block_take(block, size->ints, sizeof *body->ints);
    body->floats = block_take(block, size->floats, sizeof *body->floats);
    body->labels = block_take(block, size->label_bytes, 1);
}

void recorded_body_unref(struct session *session, struct recorded_body *body) {
    if (!body || --body->references)
        return;
    for (unsigned k = 0; k < body->n_operations && body->n_kernels; k++)
        if (body->operations[k].kernel)
            kernel_unhold(session, body->operations[k].kernel);
    for (unsigned i = 0; i < body->n_captures; i++)
        if (body->captures[i])
            tensor_unref(session, body->captures[i]);
    ledger_give_host(&session->ledger, body->host_bytes);
    free(body);
}

static int definition_counts(const struct recorded_definition *definition, const struct recorded_size *size,
                             struct recorded_body *counts, struct fault *fault) {
    uint64_t values = (uint64_t)definition->n_parameters + definition->n_captures;
    if (size->operations > RECORDED_OPERATIONS_MAX)
        return fault_set(fault, STATUS_LIMIT, "a program of %" PRIu64 " operations, the limit is %d", size->operations,
                         RECORDED_OPERATIONS_MAX);
    if (values + definition->n_results > RECORDED_VALUES_MAX)
        return fault_set(fault, STATUS_LIMIT,
                         "a program with %u parameters, %u captured tensors and %u results, the limit is %d together",
                         definition->n_parameters, definition->n_captures, definition->n_results, RECORDED_VALUES_MAX);
    if (!definition->n_results)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "a program without a result");
    values += size->outputs;
    if (values > UINT32_MAX / 2)
        return fault_set(fault, STATUS_LIMIT, "a program with %" PRIu64 " tensors", values);
    *counts = (struct recorded_body){.references = 1,
                                     .n_parameters = definition->n_parameters,
                                     .n_captures = definition->n_captures,
                                     .n_operations = (unsigned)size->operations,
                                     .n_values = (unsigned)values,
                                     .n_results = definition->n_results};
    return STATUS_OK;
}

static struct recorded_body *body_create(struct session *session, const struct recorded_definition *definition,
                                         const struct recorded_size *size, struct fault *fault) {
    struct recorded_body counts = {0};
    struct block block = {0};
    if (definition_counts(definition, size, &counts, fault) != STATUS_OK)
        return NULL;
    body_lay_out(&counts, size, &block);
    counts.host_bytes = block.used;
    if (ledger_take_host(&session->ledger, counts.host_bytes, counts.n_operations, "operations of a program", fault) !=
        STATUS_OK)
        return NULL;
    struct recorded_body *body = calloc(1, block.used);
    if (!body) {
        ledger_give_host(&session->ledger, counts.host_bytes);
        fault_set(fault, STATUS_NO_HOST_MEMORY, "no host memory for a program");
        return NULL;
    }
    *body = counts;
    block = (struct block){.at = (char *)body};
    body_lay_out(body, size, &block);
    return body;
}

/* ---- one operation ---- */

/* Which operation is wrong, before what is wrong with it. */
static int operation_wrong(const struct op_request *request, uint64_t number, struct fault *fault) {
    const struct op_info *info = op_info(request->opcode);
    struct fault why = *fault;
    return fault_set(fault, why.code, "operation %" PRIu64 " of the program, %s%s%s%s: %s", number,
                     info ? info->name : "unknown", request->label ? " [" : "", request->label ? request->label : "",
                     request->label ? "]" : "", why.message);
}

/* Whether it fits the room that there is. */
static bool operation_fits(const struct recorded_check *check, const struct op_request *request) {
    const struct recorded_size *size = &check->size;
    struct recorded_size used = check->used;
    recorded_size_add(&used, request);
    return used.operations <= size->operations && used.inputs <= size->inputs && used.ints <= size->ints &&
           used.floats <= size->floats && used.outputs <= size->outputs && used.label_bytes <= size->label_bytes;
}

/* Copies the operation, but for its inputs. */
static struct recorded_operation *operation_copy(const struct recorded_check *check, const struct op_request *request) {
    struct recorded_body *body = check->body;
    const struct recorded_size *used = &check->used;
    struct recorded_operation *operation = &body->operations[used->operations];
    int64_t *ints = body->ints + used->ints;
    double *floats = body->floats + used->floats;
    char *label = request->label ? body->labels + used->label_bytes : NULL;
    operation->request = *request;
    operation->request.inputs = NULL;
    operation->request.consume_more = NULL;
    operation->request.consume = 0;
    operation->inputs = body->inputs + used->inputs;
    operation->first_output = check->known;
    if (request->n_ints)
        memcpy(ints, request->ints, request->n_ints * sizeof *ints);
    if (request->n_floats)
        memcpy(floats, request->floats, request->n_floats * sizeof *floats);
    if (label)
        memcpy(label, request->label, strnlen(request->label, OPERATION_LABEL_MAX));
    operation->request.ints = ints;
    operation->request.floats = floats;
    operation->request.label = label;
    body->label = body->label ? body->label : label;
    return operation;
}

/* Finds the values that the operation reads: parameters, captured tensors, and results of earlier operations. */
static int operation_inputs(const struct recorded_check *check, struct recorded_operation *operation,
                            const uint64_t *inputs, const struct tensor_type **types, struct fault *fault) {
    for (unsigned i = 0; i < operation->request.n_inputs; i++) {
        if (inputs[i] == 0 || inputs[i] > check->known)
            return fault_set(fault, STATUS_UNKNOWN_ID, "the program has no value %" PRIu64 " before it", inputs[i]);
        operation->inputs[i] = (uint32_t)(inputs[i] - 1);
        types[i] = &check->body->values[inputs[i] - 1].type;
    }
    return STATUS_OK;
}

/* The launch's attributes have been checked. */
static int operation_kernel(struct session *session, struct recorded_body *body, struct recorded_operation *operation,
                            struct fault *fault) {
    struct kernel_attributes launch;
    if (operation->request.kernels_denied)
        return kernel_refuse(operation->request.kernels_denied, fault);
    kernel_attributes_read(&operation->request.attributes, &launch);
    struct kernel *kernel = kernel_table_find(session->kernels, (uint64_t)launch.kernel);
    if (!kernel)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "no kernel has id %" PRIu64, (uint64_t)launch.kernel);
    kernel_hold(kernel);
    operation->kernel = kernel;
    body->n_kernels++;
    return STATUS_OK;
}

static int operation_check(struct recorded_check *check, struct recorded_operation *operation, const uint64_t *inputs,
                           struct fault *fault) {
    struct recorded_body *body = check->body;
    struct recorded_store *store = check->session->sessions->program->recorded;
    const struct op_request *request = &operation->request;
    const struct op_info *info = op_info(request->opcode);
    if (!info || request->opcode == OP_FREE)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%u is no operation of a program", request->opcode);
    if (info->family == OP_FAMILY_PROGRAM)
        return fault_set(fault, STATUS_UNSUPPORTED, "a program cannot have it among its operations");
    if (request->n_inputs > (unsigned)info->inputs_max)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "it takes no %u inputs", request->n_inputs);
    unsigned n_outputs = op_request_outputs(request);
    const struct tensor_type **types = malloc((request->n_inputs + 1) * sizeof *types);
    struct tensor_type *outputs = malloc(n_outputs * sizeof *outputs);
    struct signature signature;
    int code = types && outputs ? operation_inputs(check, operation, inputs, types, fault)
                                : fault_set(fault, STATUS_NO_HOST_MEMORY, "no host memory to check a program");
    if (code == STATUS_OK && !signature_make(store->signatures, request->opcode, types, request->n_inputs,
                                             &request->attributes, n_outputs, outputs, &signature, fault))
        code = (int)fault->code;
    if (code == STATUS_OK && info->family == OP_FAMILY_KERNEL)
        code = operation_kernel(check->session, body, operation, fault);
    for (unsigned i = 0; i < n_outputs && code == STATUS_OK; i++)
        body->values[operation->first_output + i].type = outputs[i];
    operation->request.kernels_denied = NULL; /* it is the connection's */
    free(types);
    free(outputs);
    return code;
}

int recorded_check_add(struct recorded_check *check, const struct op_request *request, struct fault *fault) {
    if (!operation_fits(check, request))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the program's operations have more in them than was said");
    struct recorded_operation *operation = operation_copy(check, request);
    int code = operation_check(check, operation, request->inputs, fault);
    if (code != STATUS_OK)
        return operation_wrong(&operation->request, check->used.operations + 1, fault);
    recorded_size_add(&check->used, request);
    check->known += op_request_outputs(request);
    return STATUS_OK;
}

/* ---- the whole ---- */

static int check_captures(struct recorded_check *check, const uint64_t *ids, struct fault *fault) {
    struct recorded_body *body = check->body;
    for (unsigned i = 0; i < body->n_captures; i++) {
        struct tensor *tensor = session_tensor(check->session, ids[i]);
        if (!tensor)
            return session_unknown_id(check->session, ids[i], fault);
        if (tensor->uploading)
            return fault_set(fault, STATUS_INVALID_ARGUMENT,
                             "captured tensor %" PRIu64 " has not been uploaded completely", ids[i]);
        tensor->references++; /* also of one that has failed: its failure becomes that of each run */
        body->captures[i] = tensor;
        body->values[body->n_parameters + i].type = tensor->type;
    }
    return STATUS_OK;
}

static int check_given(struct recorded_check *check, const struct recorded_definition *definition,
                       struct fault *fault) {
    struct recorded_body *body = check->body;
    for (unsigned i = 0; i < body->n_parameters; i++) {
        body->values[i].type = definition->parameters[i];
        body->consumed[i] = definition->consumed[i];
    }
    for (unsigned i = 0; i < body->n_results; i++) {
        uint64_t number = definition->results[i];
        if (number == 0 || number > body->n_values)
            return fault_set(fault, STATUS_UNKNOWN_ID, "result %u: the program has no value %" PRIu64, i, number);
        body->results[i] = (uint32_t)(number - 1);
    }
    check->known = body->n_parameters + body->n_captures;
    return check_captures(check, definition->captures, fault);
}

struct recorded_check *recorded_check_begin(struct session *session, const struct recorded_definition *definition,
                                            const struct recorded_size *size, struct fault *fault) {
    struct recorded_check *check = calloc(1, sizeof *check);
    if (!check) {
        fault_set(fault, STATUS_NO_HOST_MEMORY, "no host memory to check a program");
        return NULL;
    }
    check->session = session;
    check->size = *size;
    check->body = body_create(session, definition, size, fault);
    if (check->body && check_given(check, definition, fault) == STATUS_OK)
        return check;
    recorded_check_drop(check);
    return NULL;
}

int recorded_check_end(struct recorded_check *check, struct fault *fault) {
    if (check->used.operations < check->size.operations)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the program has fewer operations than was said");
    return recorded_trim(check, fault);
}

struct recorded_body *recorded_check_take(struct recorded_check *check) {
    struct recorded_body *body = check->body;
    check->body = NULL;
    return body;
}

void recorded_check_drop(struct recorded_check *check) {
    if (!check)
        return;
    recorded_body_unref(check->session, check->body);
    free(check->numbers);
    free(check);
}
