#include "engine/program/submit.h"

#include <inttypes.h>
#include <stdlib.h>

#include "engine/program/bind_impl.h"

static int submit_lookup(struct binding *binding, struct cause *cause) {
    const struct op_request *request = binding->request;
    for (unsigned i = 0; i < request->n_inputs; i++) {
        struct tensor *tensor = session_tensor(binding->session, request->inputs[i]);
        if (!tensor && session_refused(binding->session, request->inputs[i], cause))
            return (int)cause->failure->code;
        if (!tensor || outputs_have(&binding->outputs, request->inputs[i]))
            return session_unknown_id(binding->session, request->inputs[i], &binding->fault);
        if (tensor->uploading)
            return fault_set(&binding->fault, STATUS_INVALID_ARGUMENT,
                             "input %u: tensor %" PRIu64 " has not been uploaded completely", i, request->inputs[i]);
        binding->inputs[i] = tensor;
        binding->types[i] = &tensor->type;
    }
    return STATUS_OK;
}

/* The first cause among the inputs, if they do not all have a value so far. */
static bool submit_cause(struct binding *binding, struct cause *cause) {
    for (unsigned i = 0; i < binding->request->n_inputs; i++)
        if ((binding->inputs[i]->poison || binding->inputs[i]->failure) &&
            tensor_settle(binding->session, binding->inputs[i])) {
            *cause = tensor_cause(binding->inputs[i]);
            return true;
        }
    return false;
}

/* Why an operation failed whose ids could not be bound: for that, or, as with any result, because an input has failed before. */
static struct cause submit_refusal(const struct binding *binding) {
    struct session *session = binding->session;
    const struct op_request *request = binding->request;
    const struct fault *fault = &binding->fault;
    struct cause cause = {0};
    for (unsigned i = 0; i < request->n_inputs && !cause.failure && fault->code == STATUS_LIMIT; i++) {
        struct tensor *tensor = session_tensor(session, request->inputs[i]);
        if (!tensor)
            session_refused(session, request->inputs[i], &cause);
        else if (tensor_settle(session, tensor))
            cause = tensor_cause(tensor);
    }
    return cause.failure ? cause_ref(cause)
                         : session_cause(session, fault, binding_name(binding), request->label, request->sequence);
}

static void submit_consume(struct session *session, const struct op_request *request) {
    for (unsigned i = 0; i < request->n_inputs; i++)
        if (op_consumes(request->consume, request->consume_more, i) &&
            request->inputs[i] - request->output > request->further)
            session_unbind(session, request->inputs[i]);
}

static int submit_free(struct session *session, const struct op_request *request) {
    int code = STATUS_OK;
    for (unsigned i = 0; i < request->n_inputs; i++) {
        if (session_tensor(session, request->inputs[i])) {
            session_unbind(session, request->inputs[i]);
            continue;
        }
        struct fault fault;
        code = session_unknown_id(session, request->inputs[i], &fault);
        if (code == STATUS_LIMIT) /* it was never made, and that has been reported */
            continue;
        failure_unref(session_failure(session, &fault, "free", request->label, request->sequence));
    }
    return code;
}

static int submit_infer_several(struct binding *binding) {
    const struct op_request *request = binding->request;
    struct tensor_type types[OP_OUTPUTS_MAX];
    int code = op_infer_outputs(request->opcode, binding->types, request->n_inputs, &binding->attributes,
                                binding->outputs.n, types, &binding->fault);
    for (unsigned i = 0; i < binding->outputs.n && code == STATUS_OK; i++)
        binding->outputs.tensors[i]->type = types[i];
    return code;
}

/* Checks in the order in which a client can use the answer: the operation, its inputs, a cause they carry, the rule. */
static int submit_check(struct binding *binding, struct cause *cause) {
    const struct op_request *request = binding->request;
    if (!binding->info)
        return fault_set(&binding->fault, STATUS_INVALID_ARGUMENT, "%u is not an operation", request->opcode);
    if (request->n_inputs > (unsigned)binding->info->inputs_max)
        return fault_set(&binding->fault, STATUS_INVALID_ARGUMENT, "%s takes no %u inputs", binding->info->name,
                         request->n_inputs);
    int code = submit_lookup(binding, cause);
    if (code != STATUS_OK)
        return code;
    if (submit_cause(binding, cause))
        return (int)cause->failure->code;
    binding->stream = session_find_stream(binding->session, request->stream, &binding->fault);
    if (!binding->stream)
        return (int)binding->fault.code;
    if (request->further || binding->info->n_outputs != 1)
        return submit_infer_several(binding);
    return op_infer(request->opcode, binding->types, request->n_inputs, &binding->attributes, &binding->output->type,
                    &binding->fault);
}

/* With all outputs bound. */
static int submit_operation(struct binding *binding, struct cause *cause) {
    const struct op_request *request = binding->request;
    struct session *session = binding->session;
    binding->output = binding->outputs.tensors[0];
    int code = submit_check(binding, cause);
    if (code != STATUS_OK) {
        session_end_operation(session, NULL, 0);
        return code;
    }
    uint64_t before = binding->stream->enqueued;
    stream_begin_operation(binding->stream, request->label, request->sequence);
    code = bind_operation(binding);
    stream_begin_operation(binding->stream, NULL, 0);
    if (session_put_off(session, code))
        return STATUS_AGAIN;
    session_end_operation(session, code == STATUS_OK ? binding->stream : NULL, before);
    return code;
}

enum { SUBMIT_FEW = 8 }; /* inputs, for which there is room on the stack */

/* With room for more of them. */
static __attribute__((noinline)) int submit_many(struct binding *binding, struct cause *cause) {
    unsigned n = binding->request->n_inputs;
    void **arrays = malloc(2 * (size_t)n * sizeof *arrays);
    if (!arrays) {
        session_end_operation(binding->session, NULL, 0);
        return fault_set(&binding->fault, STATUS_NO_HOST_MEMORY, "no host memory for %u inputs", n);
    }
    binding->inputs = (struct tensor **)arrays;
    binding->types = (const struct tensor_type **)(arrays + n);
    int code = submit_operation(binding, cause);
    free(arrays);
    return code;
}

int session_submit(struct session *session, const struct op_request *request) {
    uint64_t last_id = session->last_id;
    ledger_begin(&session->ledger);
    session_label(session, request->label);
    if (request->opcode == OP_FREE) {
        session_end_operation(session, NULL, 0);
        return submit_free(session, request);
    }
    struct tensor *inputs[SUBMIT_FEW];
    const struct tensor_type *types[SUBMIT_FEW];
    struct binding binding;
    struct cause cause = {0};
    binding.inputs = inputs;
    binding.types = types;
    binding.session = session;
    binding.order = session->order;
    binding.request = request;
    binding.info = op_info(request->opcode);
    binding.attributes = (struct op_attributes){request->ints, request->floats, request->n_ints, request->n_floats};
    binding.check = NULL;
    binding.kernel = NULL;
    binding.outputs.first = request->output;
    binding.outputs.n = request->further < OP_OUTPUTS_MAX ? 1 + request->further : OP_OUTPUTS_MAX;
    int code = outputs_bind(session, &binding.outputs, &binding.fault);
    if (code == STATUS_OK)
        code = request->n_inputs <= SUBMIT_FEW ? submit_operation(&binding, &cause) : submit_many(&binding, &cause);
    else if (session_put_off(session, code))
        code = STATUS_AGAIN;
    else
        session_end_operation(session, NULL, 0);
    if (code == STATUS_AGAIN) {
        outputs_take_back(session, &binding.outputs, last_id);
        return code;
    }
    if (code != STATUS_OK) {
        cause = cause.failure ? cause_ref(cause) : submit_refusal(&binding);
        code = (int)cause.failure->code;
        outputs_fail(session, &binding.outputs, cause);
    }
    if (request->consume || request->consume_more)
        submit_consume(session, request);
    return code;
}
