/* The first pass. Nothing is changed by it but what is remembered. */
#include <inttypes.h>

#include "engine/program/bind_impl.h"

/* Finds the inputs. `doubtful`: some of them may have no value. */
static int check_inputs(struct binding *binding, struct cause *cause, bool *doubtful) {
    const struct op_request *request = binding->request;
    struct session *session = binding->session;
    for (unsigned i = 0; i < request->n_inputs; i++) {
        uint64_t id = request->inputs[i];
        struct tensor *tensor = session_tensor(session, id);
        if (!tensor && session_refused(session, id, cause))
            return (int)cause->failure->code;
        if (!tensor || outputs_have(&binding->outputs, id))
            return session_unknown_id(session, id, &binding->fault);
        if (tensor->uploading)
            return fault_set(&binding->fault, STATUS_INVALID_ARGUMENT,
                             "input %u: tensor %" PRIu64 " has not been uploaded completely", i, id);
        *doubtful |= tensor->poison || tensor->failure;
        binding->inputs[i] = tensor;
        binding->types[i] = &tensor->type;
    }
    return STATUS_OK;
}

/* The first cause among the inputs, if they do not all have a value so far. */
static bool check_causes(struct binding *binding, struct cause *cause) {
    for (unsigned i = 0; i < binding->request->n_inputs; i++)
        if (tensor_settle(binding->session, binding->inputs[i])) {
            *cause = tensor_cause(binding->inputs[i]);
            return true;
        }
    for (unsigned i = 0; i < binding->request->n_inputs; i++)
        binding->poisoned |= binding->inputs[i]->poison != NULL;
    return false;
}

static __attribute__((noinline)) int check_several(struct binding *binding, struct signatures *signatures) {
    const struct op_request *request = binding->request;
    struct tensor_type types[OP_OUTPUTS_MAX];
    if (!signature_make(signatures, request->opcode, binding->types, request->n_inputs, &binding->attributes,
                        binding->outputs.n, types, &binding->own_signature, &binding->fault))
        return (int)binding->fault.code;
    for (unsigned i = 0; i < binding->outputs.n; i++)
        binding->outputs.tensors[i]->type = types[i];
    binding->signature = &binding->own_signature;
    return STATUS_OK;
}

static inline int check_signature(struct binding *binding) {
    const struct op_request *request = binding->request;
    struct signatures *signatures = binding->session->sessions->signatures;
    if (__builtin_expect(request->further || binding->info->n_outputs != 1 ||
                             !signature_is_short(request->n_inputs, &binding->attributes),
                         0))
        return check_several(binding, signatures);
    uint64_t ids[SIGNATURE_INPUTS] = {0};
    for (unsigned i = 0; i < request->n_inputs; i++) {
        struct tensor *tensor = binding->inputs[i];
        if (__builtin_expect(!tensor->type_id, 0))
            tensor->type_id = signature_type(signatures, &tensor->type);
        ids[i] = tensor->type_id;
    }
    const struct signature_query query = {request->opcode, request->n_inputs, binding->types, ids,
                                          &binding->attributes};
    const struct signature *signature = signature_find(signatures, &query, &binding->fault);
    if (!signature)
        return (int)binding->fault.code;
    struct tensor *output = binding->output;
    output->type.dtype = signature->type.dtype;
    output->type.rank = signature->type.rank;
    for (int i = 0; i < signature->type.rank; i++)
        output->type.shape[i] = signature->type.shape[i];
    output->type_id = signature->type_id;
    binding->signature = signature;
    return STATUS_OK;
}

/* In the order in which a client can use the answer: the operation, its inputs, a cause they carry, the rule. */
int check_operation(struct binding *binding, struct cause *cause) {
    const struct op_request *request = binding->request;
    bool doubtful = false;
    binding->poisoned = false;
    if (!binding->info)
        return fault_set(&binding->fault, STATUS_INVALID_ARGUMENT, "%u is not an operation", request->opcode);
    if (request->n_inputs > (unsigned)binding->info->inputs_max)
        return fault_set(&binding->fault, STATUS_INVALID_ARGUMENT, "%s takes no %u inputs", binding->info->name,
                         request->n_inputs);
    int code = check_inputs(binding, cause, &doubtful);
    if (code != STATUS_OK)
        return code;
    if (__builtin_expect(doubtful, 0) && check_causes(binding, cause))
        return (int)cause->failure->code;
    binding->stream = session_find_stream(binding->session, request->stream, &binding->fault);
    if (!binding->stream)
        return (int)binding->fault.code;
    return check_signature(binding);
}
