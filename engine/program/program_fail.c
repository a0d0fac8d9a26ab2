/* Operations that fail, in their check or when they are bound: their outputs are bound all the same, and have the first cause. */
#include "engine/program/program_impl.h"

/* Why an operation failed whose ids could not be bound. An input that has failed before comes first, as with all failures. */
static struct cause operation_refusal(struct session *session, const struct op_request *request,
                                      const struct fault *fault, const char *name) {
    struct cause cause = {0};
    for (unsigned i = 0; i < request->n_inputs && !cause.failure && fault->code == STATUS_LIMIT; i++) {
        struct tensor *tensor = session_tensor(session, request->inputs[i]);
        if (!tensor)
            session_refused(session, request->inputs[i], &cause);
        else if (tensor_settle(session, tensor))
            cause = tensor_cause(tensor);
    }
    return cause.failure ? cause_ref(cause) : session_cause(session, fault, name, request->label, request->sequence);
}

/* Binds ids from `first` on, as many as can be. Returns the first failure. If memory comes later, none is bound. */
static int operation_bind(struct session *session, uint64_t first, unsigned n, struct fault *fault) {
    uint64_t last_id = session->last_id;
    struct fault here;
    int first_code = STATUS_OK;
    for (unsigned i = 0; i < n; i++) {
        struct tensor *tensor;
        int code = session_bind(session, first + i, &tensor, &here);
        if (code == STATUS_OK)
            continue;
        if (first_code == STATUS_OK) {
            first_code = code;
            *fault = here;
        }
        if (!session_memory_comes(session, code))
            continue;
        while (i--)
            if (first + i > last_id)
                session_unbind(session, first + i);
        session->last_id = last_id;
        return code;
    }
    return first_code;
}

int operation_fail(struct session *session, const struct op_request *request, const char *name, struct cause cause,
                   struct fault *fault) {
    uint64_t last_id = session->last_id;
    unsigned n = request->further < OP_OUTPUTS_MAX ? 1 + request->further : OP_OUTPUTS_MAX;
    struct fault refusal;
    if (cause.failure) /* it belongs to a tensor that this operation may release */
        cause_ref(cause);
    int code = operation_bind(session, request->output, n, &refusal);
    if (session_put_off(session, code)) {
        failure_unref(cause.failure);
        return STATUS_AGAIN;
    }
    session_end_operation(session, NULL);
    if (code != STATUS_OK) {
        failure_unref(cause.failure);
        cause = operation_refusal(session, request, &refusal, name);
    } else if (!cause.failure) {
        cause = session_cause(session, fault, name, request->label, request->sequence);
    }
    for (unsigned i = 0; i < n; i++) {
        uint64_t id = request->output + i;
        struct tensor *tensor = id > last_id ? session_tensor(session, id) : NULL;
        if (tensor)
            tensor_fail(session, tensor, cause_ref(cause));
        else if (code == STATUS_LIMIT)
            session_refuse(session, id, cause_ref(cause));
    }
    code = (int)cause.failure->code;
    failure_unref(cause.failure);
    for (unsigned i = 0; i < request->n_inputs; i++)
        if (op_consumes(request->consume, request->consume_more, i) &&
            request->inputs[i] - request->output > request->further)
            session_unbind(session, request->inputs[i]);
    return code;
}

/* A free that has failed its check: some ids are unknown, or there are many. */
static int operation_free(struct session *session, const struct op_request *request) {
    int code = STATUS_OK;
    session_end_operation(session, NULL);
    for (unsigned i = 0; i < request->n_inputs; i++) {
        if (session_unbind(session, request->inputs[i]))
            continue;
        struct fault fault;
        code = session_unknown_id(session, request->inputs[i], &fault);
        if (code == STATUS_LIMIT) /* the tensor was never made, and its operation has reported that */
            continue;
        failure_unref(session_failure(session, &fault, "free", request->label, request->sequence));
    }
    return code;
}

int operation_refuse(struct program *program, struct session *session, const struct op_request *request,
                     struct cause cause) {
    const struct op_info *info = op_info(request->opcode);
    ledger_begin(&session->ledger);
    if (request->label)
        session_label(session, request->label);
    return request->opcode == OP_FREE
               ? operation_free(session, request)
               : operation_fail(session, request, info ? info->name : "", cause, &program->fault);
}
