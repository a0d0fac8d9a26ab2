/* Rules of recurrent layers. */
#include "client/autograd/rule.h"
#include "client/lib/error.h"

/* The results that are there for the gradient have none themselves. */
static bool check(struct rule_call *call, unsigned from) {
    for (unsigned i = from; i < call->node->n_outputs && !call->failed; i++) {
        struct fault fault;
        if (call->g[i]) {
            fault_set(&fault, STATUS_UNSUPPORTED,
                      "derivatives go through the results and the last states, and not through result %u", i);
            error_fault(&fault, op_rows[call->node->opcode].name, NULL);
            call->failed = true;
        }
    }
    return !call->failed;
}

static void give_all(struct rule_call *call, unsigned count, td_tensor *const *gradients) {
    for (unsigned i = 0; i < count; i++)
        if (rule_wants(call, i))
            rule_give(call, i, gradients[i]);
}

/* One gradient for both biases. */
RULE(lstm) {
    struct recurrent_attributes at;
    td_tensor *by[6] = {NULL, NULL, NULL, NULL, NULL, NULL};
    if (!check(call, 3))
        return;
    recurrent_attributes_read(&call->node->attributes, &at);
    td_lstm_grad(rule_gradient(call, 0), rule_gradient(call, 1), rule_gradient(call, 2), rule_input(call, 0),
                 rule_input(call, 1), rule_input(call, 2), rule_input(call, 3), rule_input(call, 4),
                 rule_output(call, 0), rule_output(call, 3), rule_output(call, 4), at.reverse, &by[0], &by[1], &by[2],
                 &by[3], &by[4], &by[5]);
    give_all(call, 6, by);
    if (rule_wants(call, 6)) /* a handle of its own: input 5 has the other one */
        rule_give_reshaped(call, 6, by[5]);
}

RULE(gru) {
    struct recurrent_attributes at;
    td_tensor *by[6] = {NULL, NULL, NULL, NULL, NULL, NULL};
    if (!check(call, 2))
        return;
    recurrent_attributes_read(&call->node->attributes, &at);
    td_gru_grad(rule_gradient(call, 0), rule_gradient(call, 1), rule_input(call, 0), rule_input(call, 1),
                rule_input(call, 2), rule_input(call, 3), rule_output(call, 0), rule_output(call, 2), at.reverse,
                &by[0], &by[1], &by[2], &by[3], &by[4], &by[5]);
    give_all(call, 6, by);
}
