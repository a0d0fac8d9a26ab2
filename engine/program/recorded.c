/* Definitions of recorded programs: how they are checked and kept. */
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

static unsigned request_outputs(const struct op_request *request) {
    return 1 + request->further;
}

static size_t request_label_bytes(const struct op_request *request) {
    return request->label ? strnlen(request->label, OPERATION_LABEL_MAX) + 1 : 0;
}

static void body_lay_out(struct recorded_body *body, const struct recorded_definition *definition,
                         struct block *block) {
    block_take(block, 1, sizeof *body);
    void *values = block_take(block, body->n_values, sizeof *body->values);
    void *operations = block_take(block, body->n_operations, sizeof *body->operations);
    void *results = block_take(block, body->n_results, sizeof *body->results);
    void *consumed = block_take(block, body->n_parameters, sizeof *body->consumed);
    void *captures = block_take(block, body->n_captures, sizeof(struct tensor *));
    if (block->at) {
        body->values = values;
        body->operations = operations;
        body->results = results;
        body->consumed = consumed;
        body->captures = captures;
    }
    for (unsigned i = 0; i < definition->n_requests; i++) {
        const struct op_request *request = &definition->requests[i];
        void *inputs = block_take(block, request->n_inputs, sizeof(uint32_t));
        void *ints = block_take(block, request->n_ints, sizeof(int64_t));
        void *floats = block_take(block, request->n_floats, sizeof(double));
        size_t label_bytes = request_label_bytes(request);
        char *label = block_take(block, label_bytes, 1);
        if (!block->at)
            continue;
        struct recorded_operation *operation = &body->operations[i];
        operation->request = *request;
        operation->inputs = inputs;
        operation->request.inputs = NULL;
        operation->request.consume_more = NULL;
        operation->request.consume = 0;
        if (request->n_ints)
            memcpy(ints, request->ints, request->n_ints * sizeof(int64_t));
        if (request->n_floats)
            memcpy(floats, request->floats, request->n_floats * sizeof(double));
        if (label_bytes)
            memcpy(label, request->label, label_bytes - 1);
        operation->request.ints = ints;
        operation->request.floats = floats;
        operation->request.label = label_bytes ? label : NULL;
        body->label = body->label ? body->label : operation->request.label;
    }
}

static void body_unref(struct session *session, struct recorded_body *body) {
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

static int definition_counts(const struct recorded_definition *definition, struct recorded_body *counts,
                             struct fault *fault) {
    uint64_t values = (uint64_t)definition->n_parameters + definition->n_captures;
    if (definition->n_requests > RECORDED_OPERATIONS_MAX)
        return fault_set(fault, STATUS_LIMIT, "a program of %u operations, the limit is %d", definition->n_requests,
                         RECORDED_OPERATIONS_MAX);
    if (values + definition->n_results > RECORDED_VALUES_MAX)
        return fault_set(fault, STATUS_LIMIT,
                         "a program with %u parameters, %u captured tensors and %u results, the limit is %d together",
                         definition->n_parameters, definition->n_captures, definition->n_results, RECORDED_VALUES_MAX);
    if (!definition->n_results)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "a program without a result");
    for (unsigned i = 0; i < definition->n_requests; i++)
        values += request_outputs(&definition->requests[i]);
    if (values > UINT32_MAX / 2)
        return fault_set(fault, STATUS_LIMIT, "a program with %" PRIu64 " tensors", values);
    *counts = (struct recorded_body){.references = 1,
                                     .n_parameters = definition->n_parameters,
                                     .n_captures = definition->n_captures,
                                     .n_operations = definition->n_requests,
                                     .n_values = (unsigned)values,
                                     .n_results = definition->n_results};
    return STATUS_OK;
}

static struct recorded_body *body_create(struct session *session, const struct recorded_definition *definition,
                                         struct fault *fault) {
    struct recorded_body counts;
    struct block block = {0};
    if (definition_counts(definition, &counts, fault) != STATUS_OK)
        return NULL;
    body_lay_out(&counts, definition, &block);
    /* The plan keeps about as much again for each launch as for its operation. */
    counts.host_bytes = 2 * block.used;
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
    body_lay_out(body, definition, &block);
    return body;
}

/* ---- check ---- */

/* Which operation is wrong, before what is wrong with it. */
static int operation_wrong(const struct recorded_body *body, unsigned k, struct fault *fault) {
    const struct op_request *request = &body->operations[k].request;
    const struct op_info *info = op_info(request->opcode);
    struct fault why = *fault;
    return fault_set(fault, why.code, "operation %u of the program, %s%s%s%s: %s", k + 1, info ? info->name : "unknown",
                     request->label ? " [" : "", request->label ? request->label : "", request->label ? "]" : "",
                     why.message);
}

/* Finds the values that the operation reads: parameters, captured tensors, and results of earlier operations. */
static int operation_inputs(const struct recorded_body *body, struct recorded_operation *operation,
                            const uint64_t *inputs, const struct tensor_type **types, uint32_t known,
                            struct fault *fault) {
    for (unsigned i = 0; i < operation->request.n_inputs; i++) {
        if (inputs[i] == 0 || inputs[i] > known)
            return fault_set(fault, STATUS_UNKNOWN_ID, "the program has no value %" PRIu64 " before it", inputs[i]);
        operation->inputs[i] = (uint32_t)(inputs[i] - 1);
        types[i] = &body->values[inputs[i] - 1].type;
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

static int operation_check(struct session *session, struct recorded_body *body, unsigned k, const uint64_t *inputs,
                           uint32_t first_output, struct fault *fault) {
    struct recorded_store *store = session->sessions->program->recorded;
    struct recorded_operation *operation = &body->operations[k];
    const struct op_request *request = &operation->request;
    const struct op_info *info = op_info(request->opcode);
    if (!info || request->opcode == OP_FREE)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%u is no operation of a program", request->opcode);
    if (info->family == OP_FAMILY_PROGRAM)
        return fault_set(fault, STATUS_UNSUPPORTED, "a program cannot have it among its operations");
    if (request->n_inputs > (unsigned)info->inputs_max)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "it takes no %u inputs", request->n_inputs);
    unsigned n_outputs = request_outputs(request);
    const struct tensor_type **types = malloc((request->n_inputs + 1) * sizeof *types);
    struct tensor_type *outputs = malloc(n_outputs * sizeof *outputs);
    struct signature signature;
    int code = types && outputs ? operation_inputs(body, operation, inputs, types, first_output, fault)
                                : fault_set(fault, STATUS_NO_HOST_MEMORY, "no host memory to check a program");
    if (code == STATUS_OK && !signature_make(store->signatures, request->opcode, types, request->n_inputs,
                                             &request->attributes, n_outputs, outputs, &signature, fault))
        code = (int)fault->code;
    if (code == STATUS_OK && info->family == OP_FAMILY_KERNEL)
        code = operation_kernel(session, body, operation, fault);
    for (unsigned i = 0; i < n_outputs && code == STATUS_OK; i++)
        body->values[first_output + i].type = outputs[i];
    operation->first_output = first_output;
    operation->request.kernels_denied = NULL; /* it is the connection's */
    free(types);
    free(outputs);
    return code;
}

static int body_captures(struct session *session, struct recorded_body *body, const uint64_t *ids,
                         struct fault *fault) {
    for (unsigned i = 0; i < body->n_captures; i++) {
        struct tensor *tensor = session_tensor(session, ids[i]);
        if (!tensor)
            return session_unknown_id(session, ids[i], fault);
        if (tensor->uploading)
            return fault_set(fault, STATUS_INVALID_ARGUMENT,
                             "captured tensor %" PRIu64 " has not been uploaded completely", ids[i]);
        tensor->references++; /* also of one that has failed: its failure becomes that of each run */
        body->captures[i] = tensor;
        body->values[body->n_parameters + i].type = tensor->type;
    }
    return STATUS_OK;
}

static int body_check(struct session *session, struct recorded_body *body, const struct recorded_definition *definition,
                      struct fault *fault) {
    for (unsigned i = 0; i < body->n_parameters; i++) {
        body->values[i].type = definition->parameters[i];
        body->consumed[i] = definition->consumed[i];
    }
    int code = body_captures(session, body, definition->captures, fault);
    uint32_t known = body->n_parameters + body->n_captures;
    for (unsigned k = 0; k < body->n_operations && code == STATUS_OK; k++) {
        code = operation_check(session, body, k, definition->requests[k].inputs, known, fault);
        if (code != STATUS_OK)
            return operation_wrong(body, k, fault);
        known += request_outputs(&body->operations[k].request);
    }
    for (unsigned i = 0; i < body->n_results && code == STATUS_OK; i++) {
        uint64_t number = definition->results[i];
        if (number == 0 || number > body->n_values)
            return fault_set(fault, STATUS_UNKNOWN_ID, "result %u: the program has no value %" PRIu64, i, number);
        body->results[i] = (uint32_t)(number - 1);
    }
    return code;
}

/* ---- programs of a session ---- */

static unsigned table_seek(const struct recorded_table *table, uint64_t id) {
    unsigned low = 0, high = table->count;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (table->entries[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct recorded *table_find(const struct recorded_table *table, uint64_t id) {
    unsigned at = table ? table_seek(table, id) : 0;
    return table && at < table->count && table->entries[at].id == id ? table->entries[at].recorded : NULL;
}

static void recorded_link(struct recorded **list, struct recorded *recorded) {
    recorded->next = *list;
    recorded->previous = list;
    if (recorded->next)
        recorded->next->previous = &recorded->next;
    *list = recorded;
}

static void recorded_unlink(struct recorded *recorded) {
    *recorded->previous = recorded->next;
    if (recorded->next)
        recorded->next->previous = recorded->previous;
}

void recorded_ran(struct session *session, struct recorded *recorded) {
    recorded->runs++;
    recorded->store->runs++;
    if (session->programs->recent == recorded)
        return;
    recorded_unlink(recorded);
    recorded_link(&session->programs->recent, recorded);
}

/* A program under a new id, without a body. */
static struct recorded *table_add(struct session *session, uint64_t id, struct fault *fault) {
    struct recorded_table *table = session->programs;
    if (!table)
        table = session->programs = calloc(1, sizeof *table);
    if (table && id <= table->last_id) {
        fault_set(fault, STATUS_DUPLICATE_ID, "program id %" PRIu64 " is not above the highest one used, %" PRIu64, id,
                  table->last_id);
        return NULL;
    }
    if (table)
        table->last_id = id;
    if (table && table->count == SESSION_PROGRAMS_MAX) {
        fault_set(fault, STATUS_LIMIT, "the session has %d programs, and may have no more", SESSION_PROGRAMS_MAX);
        return NULL;
    }
    if (table && table->count == table->capacity) {
        unsigned capacity = table->capacity ? 2 * table->capacity : 8;
        struct recorded_entry *entries = realloc(table->entries, capacity * sizeof *entries);
        if (entries) {
            table->entries = entries;
            table->capacity = capacity;
        }
    }
    struct recorded *recorded = table && table->count < table->capacity ? calloc(1, sizeof *recorded) : NULL;
    if (!recorded) {
        fault_set(fault, STATUS_NO_HOST_MEMORY, "no host memory for a program");
        return NULL;
    }
    recorded->id = id;
    recorded->store = session->sessions->program->recorded;
    table->entries[table->count++] = (struct recorded_entry){id, recorded};
    recorded_link(&table->recent, recorded);
    recorded->store->count++;
    return recorded;
}

int session_program_refuse(struct session *session, uint64_t id, const struct fault *why, struct fault *fault) {
    struct recorded *recorded = table_add(session, id, fault);
    if (!recorded)
        return (int)fault->code;
    recorded->fault = *why;
    return STATUS_OK;
}

int session_program_define(struct session *session, const struct recorded_definition *definition, struct fault *fault) {
    struct recorded *recorded = table_add(session, definition->id, fault);
    if (!recorded)
        return (int)fault->code;
    struct recorded_body *body = body_create(session, definition, &recorded->fault);
    if (body && (body_check(session, body, definition, &recorded->fault) != STATUS_OK ||
                 recorded_trim(body, session->order->device, &recorded->fault) != STATUS_OK)) {
        body_unref(session, body);
        body = NULL;
    }
    recorded->body = body;
    return STATUS_OK;
}

/* ---- loops ---- */

static int loop_lists(struct recorded *recorded, const struct recorded_loop *loop, struct fault *fault) {
    const struct recorded_body *body = recorded->body;
    bool *carried = recorded->sliced + body->n_parameters + body->n_results; /* scratch: parameters that are carried */
    for (unsigned i = 0; i < loop->n_sliced; i++) {
        if (loop->sliced[i] >= body->n_parameters)
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "parameter %u is sliced, and there are %u",
                             loop->sliced[i], body->n_parameters);
        recorded->sliced[loop->sliced[i]] = true;
    }
    for (unsigned i = 0; i < loop->n_stacked; i++) {
        if (loop->stacked[i] >= body->n_results)
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "result %u is stacked, and there are %u", loop->stacked[i],
                             body->n_results);
        recorded->stacked[loop->stacked[i]] = true;
    }
    if (loop->n_carried % 2)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the list of carried values has half a pair");
    recorded->n_carries = loop->n_carried / 2;
    for (unsigned i = 0; i < recorded->n_carries; i++) {
        uint32_t result = loop->carried[2 * i], parameter = loop->carried[2 * i + 1];
        if (result >= body->n_results || parameter >= body->n_parameters)
            return fault_set(fault, STATUS_INVALID_ARGUMENT,
                             "result %u is carried to parameter %u, and there are %u and %u", result, parameter,
                             body->n_results, body->n_parameters);
        if (carried[parameter] || recorded->sliced[parameter])
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "parameter %u is carried twice, or sliced too", parameter);
        if (recorded->stacked[result])
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "result %u is carried and stacked", result);
        for (unsigned k = 0; k < i; k++)
            if (recorded->carries[k].result == result)
                return fault_set(fault, STATUS_INVALID_ARGUMENT, "result %u is carried twice", result);
        if (!type_equal(&body->values[body->results[result]].type, &body->values[parameter].type))
            return fault_set(fault, STATUS_SHAPE,
                             "result %u and parameter %u, which it is carried to, differ in dtype or shape", result,
                             parameter);
        carried[parameter] = true;
        recorded->carries[i] = (struct recorded_carry){result, parameter};
    }
    return STATUS_OK;
}

int session_program_loop(struct session *session, const struct recorded_loop *loop, struct fault *fault) {
    struct recorded *of = table_find(session->programs, loop->body);
    struct recorded *recorded = table_add(session, loop->id, fault);
    if (!recorded)
        return (int)fault->code;
    recorded->loops = true;
    if (!of || of->loops) {
        fault_set(&recorded->fault, STATUS_INVALID_ARGUMENT, "no program has id %" PRIu64 ", over which it could loop",
                  loop->body);
        return STATUS_OK;
    }
    if (!of->body) {
        recorded->fault = of->fault;
        return STATUS_OK;
    }
    recorded->body = of->body;
    size_t flags = 2 * (size_t)of->body->n_parameters + of->body->n_results;
    recorded->sliced = calloc(flags + 1, sizeof(bool));
    recorded->stacked = recorded->sliced ? recorded->sliced + of->body->n_parameters : NULL;
    recorded->carries = calloc(loop->n_carried / 2 + 1, sizeof *recorded->carries);
    int code = recorded->sliced && recorded->carries
                   ? loop_lists(recorded, loop, &recorded->fault)
                   : fault_set(&recorded->fault, STATUS_NO_HOST_MEMORY, "no host memory for a loop");
    if (code == STATUS_OK)
        of->body->references++;
    else
        recorded->body = NULL;
    return STATUS_OK;
}

/* ---- how they go ---- */

static void recorded_free(struct recorded *recorded) {
    recorded_plan_finish(&recorded->plan, recorded->store->kernels);
    free(recorded->carries);
    free(recorded->sliced);
    use_list_finish(&recorded->uses);
    free(recorded);
}

/* What it has of the session's goes at once: memory is stream-ordered. The launches stay until they have run. */
static void recorded_let_go(struct session *session, struct recorded *recorded) {
    struct recorded_store *store = recorded->store;
    store->count--;
    recorded_unlink(recorded);
    recorded_plan_leave(recorded);
    storage_unref(recorded->plan.arena);
    recorded->plan.arena = NULL;
    body_unref(session, recorded->body);
    recorded->body = NULL;
    if (!use_list_runs(&recorded->uses)) {
        recorded_free(recorded);
        return;
    }
    recorded_link(&store->running, recorded);
}

static void recorded_end(struct recorded *recorded) {
    recorded_unlink(recorded);
    recorded_free(recorded);
}

int session_program_release(struct session *session, uint64_t id, struct fault *fault) {
    struct recorded_table *table = session->programs;
    struct recorded *recorded = table_find(table, id);
    if (!recorded)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "no program has id %" PRIu64, id);
    unsigned at = table_seek(table, id);
    table->count--;
    memmove(&table->entries[at], &table->entries[at + 1], (table->count - at) * sizeof *table->entries);
    recorded_let_go(session, recorded);
    return STATUS_OK;
}

void recorded_session_ended(struct session *session) {
    struct recorded_table *table = session->programs;
    if (!table)
        return;
    for (unsigned i = 0; i < table->count; i++)
        recorded_let_go(session, table->entries[i].recorded);
    free(table->entries);
    free(table);
    session->programs = NULL;
}

void recorded_sweep(struct recorded_store *store) {
    for (struct recorded *recorded = store->running, *next; recorded; recorded = next) {
        next = recorded->next;
        if (!use_list_runs(&recorded->uses))
            recorded_end(recorded);
    }
}

void recorded_store_finish(struct recorded_store *store) {
    while (store->running)
        recorded_end(store->running);
}

/* ---- runs ---- */

struct recorded *recorded_find(struct session *session, const struct op_request *request, struct fault *fault) {
    if (request->n_ints != 2 || request->n_floats) {
        fault_set(fault, STATUS_INVALID_ARGUMENT, "a run has 2 whole numbers as attributes, not %u", request->n_ints);
        return NULL;
    }
    uint64_t id = (uint64_t)request->ints[0];
    struct recorded *recorded = table_find(session->programs, id);
    if (!recorded)
        fault_set(fault, STATUS_INVALID_ARGUMENT, "no program has id %" PRIu64, id);
    else if (recorded->body)
        return recorded;
    else
        *fault = recorded->fault;
    return NULL;
}

/* The type with another axis in front. */
static int type_stack(struct tensor_type *type, int64_t times, struct fault *fault) {
    int64_t shape[SHAPE_RANK_MAX + 1] = {times};
    memcpy(shape + 1, type->shape, (size_t)type->rank * sizeof *shape);
    return type_make(type, (int64_t)type->dtype, shape, (size_t)type->rank + 1, fault);
}

static int check_input(const struct recorded *recorded, unsigned i, const struct tensor_type *input, int64_t times,
                       struct fault *fault) {
    struct tensor_type type = recorded->body->values[i].type;
    int code = recorded->loops && recorded->sliced[i] ? type_stack(&type, times, fault) : STATUS_OK;
    if (code != STATUS_OK || type_equal(input, &type))
        return code;
    char has[SHAPE_TEXT_MAX], wants[SHAPE_TEXT_MAX];
    return fault_set(fault, STATUS_SHAPE, "input %u is %s %s, the program's parameter is %s %s", i,
                     dtype_name(input->dtype), shape_text(input, has), dtype_name(type.dtype),
                     shape_text(&type, wants));
}

int recorded_check(struct recorded *recorded, const struct op_request *request, const struct tensor_type *const types[],
                   unsigned n_outputs, struct tensor_type *outputs, struct fault *fault) {
    const struct recorded_body *body = recorded->body;
    int64_t times = request->ints[1];
    if (times < 1 || times > RECORDED_TIMES_MAX || (times > 1 && !recorded->loops))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "a %s runs 1 to %d times, not %" PRId64,
                         recorded->loops ? "loop" : "program", recorded->loops ? RECORDED_TIMES_MAX : 1, times);
    if (request->n_inputs != body->n_parameters || n_outputs != body->n_results)
        return fault_set(fault, STATUS_INVALID_ARGUMENT,
                         "the program has %u parameters and %u results, and the run %u inputs and %u outputs",
                         body->n_parameters, body->n_results, request->n_inputs, n_outputs);
    int code = STATUS_OK;
    for (unsigned i = 0; i < body->n_parameters && code == STATUS_OK; i++)
        code = check_input(recorded, i, types[i], times, fault);
    for (unsigned i = 0; i < n_outputs && code == STATUS_OK; i++) {
        outputs[i] = body->values[body->results[i]].type;
        if (recorded->loops && recorded->stacked[i])
            code = type_stack(&outputs[i], times, fault);
    }
    return code;
}
