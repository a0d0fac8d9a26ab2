/* An operation of a client, from the request to its launches, in three steps:
 *
 *   check   (check.c, signature.c)  finds its inputs, and what it is by their types; it changes no tensor and no stream
 *   bind    (bind*.c)               gives its results memory, and its operands the form that the kernel wants
 *   push    (../values/plan.c)      puts a launch into the stream; called by bind, once for each launch
 *
 * Afterwards the inputs that it releases are released. If it fails its results fail with the first cause. */
#include "engine/program/program.h"

#include <stdlib.h>

#include "engine/program/bind_impl.h"

/* Why an operation failed whose ids could not be bound: for that, or, as with any result, because an input has failed before. */
static struct cause program_refusal(const struct binding *binding) {
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

static void program_consume(struct session *session, const struct op_request *request) {
    for (unsigned i = 0; i < request->n_inputs; i++)
        if (op_consumes(request->consume, request->consume_more, i) &&
            request->inputs[i] - request->output > request->further)
            session_unbind(session, request->inputs[i]);
}

static int program_free(struct session *session, const struct op_request *request) {
    int code = STATUS_OK;
    session_end_operation(session, NULL, 0);
    for (unsigned i = 0; i < request->n_inputs; i++) {
        if (session_unbind(session, request->inputs[i]))
            continue;
        struct fault fault;
        code = session_unknown_id(session, request->inputs[i], &fault);
        if (code == STATUS_LIMIT) /* it was never made, and that has been reported */
            continue;
        failure_unref(session_failure(session, &fault, "free", request->label, request->sequence));
    }
    return code;
}

/* The steps, with all outputs bound. */
static int program_operation(struct binding *binding, struct cause *cause) {
    struct session *session = binding->session;
    binding->output = binding->outputs.tensors[0];
    int code = check_operation(binding, cause);
    if (code != STATUS_OK) {
        session_end_operation(session, NULL, 0);
        return code;
    }
    struct stream *stream = binding->stream;
    uint64_t before = stream->enqueued;
    stream_begin_operation(stream, binding->request->label, binding->request->sequence);
    code = bind_operation(binding);
    stream_begin_operation(stream, NULL, 0);
    if (session_put_off(session, code))
        return STATUS_AGAIN;
    session_end_operation(session, code == STATUS_OK ? stream : NULL, before);
    return code;
}

enum { PROGRAM_FEW = 8 }; /* inputs, for which there is room on the stack */

/* With room for more of them. */
static __attribute__((noinline)) int program_wide(struct binding *binding, struct cause *cause) {
    unsigned n = binding->request->n_inputs;
    void **arrays = malloc(2 * (size_t)n * sizeof *arrays);
    if (!arrays) {
        session_end_operation(binding->session, NULL, 0);
        return fault_set(&binding->fault, STATUS_NO_HOST_MEMORY, "no host memory for %u inputs", n);
    }
    binding->inputs = (struct tensor **)arrays;
    binding->types = (const struct tensor_type **)(arrays + n);
    int code = program_operation(binding, cause);
    free(arrays);
    return code;
}

static int program_run(struct session *session, const struct op_request *request) {
    uint64_t last_id = session->last_id;
    struct tensor *inputs[PROGRAM_FEW];
    const struct tensor_type *types[PROGRAM_FEW];
    struct binding binding;
    struct cause cause = {0};
    binding.inputs = inputs;
    binding.types = types;
    binding.session = session;
    binding.order = session->order;
    binding.request = request;
    binding.info = op_info(request->opcode);
    binding.attributes = (struct op_attributes){request->ints, request->floats, request->n_ints, request->n_floats};
    binding.kernel = NULL;
    binding.outputs.first = request->output;
    binding.outputs.n = request->further < OP_OUTPUTS_MAX ? 1 + request->further : OP_OUTPUTS_MAX;
    int code = outputs_bind(session, &binding.outputs, &binding.fault);
    if (code == STATUS_OK)
        code = request->n_inputs <= PROGRAM_FEW ? program_operation(&binding, &cause) : program_wide(&binding, &cause);
    else if (session_put_off(session, code))
        code = STATUS_AGAIN;
    else
        session_end_operation(session, NULL, 0);
    if (code == STATUS_AGAIN) {
        outputs_take_back(session, &binding.outputs, last_id);
        return code;
    }
    if (__builtin_expect(code != STATUS_OK, 0)) {
        cause = cause.failure ? cause_ref(cause) : program_refusal(&binding);
        code = (int)cause.failure->code;
        outputs_fail(session, &binding.outputs, cause);
    }
    if (request->consume || request->consume_more)
        program_consume(session, request);
    return code;
}

int session_submit(struct session *session, const struct op_request *request) {
    ledger_begin(&session->ledger);
    if (request->label)
        session_label(session, request->label);
    return request->opcode == OP_FREE ? program_free(session, request) : program_run(session, request);
}
