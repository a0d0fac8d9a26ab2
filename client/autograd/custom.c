/* td_custom_gradient() and td_checkpoint(): functions of the program that are one node on the thread's tapes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/autograd/rule.h"
#include "client/lib/device.h"
#include "client/lib/error.h"
#include "client/lib/scope.h"
#include "proto/ops/cleanup.h"

struct custom {
    struct tape_rule rule;
    td_function *forward;
    int (*backward)(void *state, const td_backward *call); /* NULL: the function is run again */
    void (*destroy)(void *state);
    void *state;
    char name[64];
};

static void custom_destroy(struct tape_rule *rule) {
    struct custom *custom = (struct custom *)rule;
    if (custom->destroy)
        custom->destroy(custom->state);
    free(custom);
}

/* ---- calls of the program's functions ---- */

/* The thread's error is the function's own if it has this code. */
static int function_failed(const char *name, const char *which, int code) {
    return td_last_error()->code == code ? code : error_set((enum status)code, "%s: %s returned %d", name, which, code);
}

/* A handle that nobody else releases or has: the tensor's own if it was made in this scope and is in the list once, else a view's. */
static td_tensor *own_handle(td_tensor *const *tensors, unsigned i) {
    td_tensor *tensor = tensors[i];
    if (scope_holds(tensor) && !rule_is_among(tensors, i, tensor))
        return tensor;
    return td_reshape(tensor, tensor->type.rank, tensor->type.shape);
}

static int outputs_own(const char *name, unsigned n, td_tensor **outputs) {
    for (unsigned i = n; i-- > 0;) {
        if (!outputs[i])
            return error_of_null() ? error_of_null()
                                   : error_set(STATUS_INVALID_ARGUMENT, "%s: output %u is NULL", name, i);
        if (!(outputs[i] = own_handle(outputs, i)))
            return td_last_error()->code;
    }
    return 0;
}

/* Calls the function in a scope of its own; its outputs belong to the scope around it. After an error all are NULL. */
static int function_call(const struct custom *custom, td_tensor *const *inputs, unsigned n_outputs,
                         td_tensor **outputs) {
    struct tape *innermost = tape_innermost;
    memset(outputs, 0, n_outputs * sizeof(td_tensor *));
    td_scope_begin(NULL);
    int code = scope_thread.lost_scopes ? STATUS_NO_HOST_MEMORY : custom->forward(custom->state, inputs, outputs);
    tape_end_until(innermost);
    code = code ? function_failed(custom->name, "the function", code) : outputs_own(custom->name, n_outputs, outputs);
    for (unsigned i = 0; i < n_outputs && !code; i++)
        td_keep(outputs[i]);
    td_scope_end();
    if (code)
        memset(outputs, 0, n_outputs * sizeof(td_tensor *));
    return code;
}

/* ---- the way back by the program's rule ---- */

static bool shape_reaches(const struct tensor_type *from, const struct tensor_type *to) {
    int more = to->rank - from->rank;
    for (int i = 0; i < from->rank && more >= 0; i++)
        if (from->shape[i] != to->shape[i + more] && from->shape[i] != 1)
            return false;
    return more >= 0;
}

static int gradient_check(const struct rule_call *call, unsigned i, const td_tensor *gradient) {
    const struct tape_value *input = &call->node->inputs[i];
    const char *name = call->node->rule->name;
    if (gradient->device != input->device)
        return error_set(STATUS_DEVICE_MISMATCH, "%s: the gradient of input %u is on %s, and the input on %s", name, i,
                         gradient->device->name, input->device->name);
    if (!tape_floating(&gradient->type))
        return error_set(STATUS_DTYPE, "%s: the gradient of input %u is %s, which is no float", name, i,
                         dtype_name(gradient->type.dtype));
    if (!shape_reaches(&input->type, &gradient->type))
        return error_set(STATUS_SHAPE,
                         "%s: the gradient of input %u has neither the input's shape nor one that the input is "
                         "broadcast to",
                         name, i);
    return 0;
}

static int gradients_give(struct rule_call *call, td_tensor *const *gradients) {
    for (unsigned i = 0; i < call->node->n_inputs; i++) {
        td_tensor *gradient = gradients[i];
        if (!gradient || !rule_wants(call, i))
            continue;
        int code = gradient_check(call, i, gradient);
        if (code)
            return code;
        rule_give(call, i,
                  rule_is_among(call->g, call->node->n_outputs, gradient) ? gradient : own_handle(gradients, i));
    }
    return 0;
}

static void custom_apply(struct rule_call *call) {
    const struct tape_node *node = call->node;
    const struct custom *custom = (const struct custom *)node->rule;
    unsigned n_inputs = node->n_inputs, n_outputs = node->n_outputs;
    CLEANUP(free) td_tensor **tensors = calloc(2 * (n_inputs + n_outputs), sizeof(td_tensor *));
    CLEANUP(free) unsigned char *wanted = calloc(n_inputs + 1, 1);
    if (!tensors || !wanted) {
        error_set(STATUS_NO_HOST_MEMORY, "no memory for gradients");
        call->failed = true;
        return;
    }
    td_tensor **outputs = tensors + n_inputs, **by_output = outputs + n_outputs, **by_input = by_output + n_outputs;
    for (unsigned i = 0; i < n_inputs; i++) {
        tensors[i] = rule_input(call, i);
        wanted[i] = rule_wants(call, i);
    }
    for (unsigned i = 0; i < n_outputs; i++) {
        outputs[i] = rule_output(call, i);
        by_output[i] = tape_floating(&node->outputs[i].type) ? rule_gradient(call, i) : NULL;
        call->failed |= tape_floating(&node->outputs[i].type) && !by_output[i];
    }
    if (call->failed)
        return;
    struct tape *innermost = tape_innermost;
    int code = custom->backward(custom->state, &(td_backward){.n_inputs = (int)n_inputs,
                                                              .n_outputs = (int)n_outputs,
                                                              .inputs = tensors,
                                                              .outputs = outputs,
                                                              .output_gradients = by_output,
                                                              .wanted = wanted,
                                                              .input_gradients = by_input});
    tape_end_until(innermost);
    code = code ? function_failed(custom->name, "backward", code) : gradients_give(call, by_input);
    call->failed |= code != 0;
}

/* ---- the way back through the function, which runs again ---- */

static int outputs_check(const struct rule_call *call, td_tensor *const *again) {
    for (unsigned i = 0; i < call->node->n_outputs; i++)
        if (!type_equal(&again[i]->type, &call->node->outputs[i].type))
            return error_set(STATUS_INVALID_ARGUMENT,
                             "%s: output %u of the function had another dtype or shape when it ran first",
                             call->node->rule->name, i);
    return 0;
}

/* Under a tape of its own, of which the tapes around the one that td_gradients() goes through see ordinary operations. */
static int run_again(struct rule_call *call, td_tensor **inputs, td_tensor **again) {
    const struct tape_node *node = call->node;
    struct tape *tape = tape_begin_internal(false);
    if (!tape)
        return td_last_error()->code;
    for (unsigned i = 0; i < node->n_inputs; i++)
        inputs[i] = rule_input(call, i);
    int code = function_call((const struct custom *)node->rule, inputs, node->n_outputs, again);
    if (!code)
        code = outputs_check(call, again);
    if (!code)
        rule_go_through(call, tape, node->n_outputs, again);
    return code;
}

static void checkpoint_apply(struct rule_call *call) {
    const struct tape_node *node = call->node;
    struct tape *innermost = tape_innermost;
    CLEANUP(free) td_tensor **tensors = calloc(node->n_inputs + node->n_outputs, sizeof(td_tensor *));
    if (!tensors)
        error_set(STATUS_NO_HOST_MEMORY, "no memory for gradients");
    call->failed |= !tensors || run_again(call, tensors, tensors + node->n_inputs);
    tape_end_until(innermost);
}

/* ---- the calls ---- */

static int lists_check(const char *name, int n_inputs, td_tensor *const *inputs, int n_outputs, td_tensor **outputs) {
    if (n_inputs < 0 || n_outputs < 1 || (n_inputs && !inputs) || !outputs)
        return error_set(STATUS_INVALID_ARGUMENT,
                         "%s: %d inputs and %d outputs: there must be an output, and a place for each", name, n_inputs,
                         n_outputs);
    for (int i = 0; i < n_inputs; i++)
        if (!inputs[i])
            return error_of_null() ? error_of_null()
                                   : error_set(STATUS_INVALID_ARGUMENT, "%s: input %d is NULL", name, i);
    return 0;
}

/* Takes the state over, also on failure. */
static struct custom *custom_create(const td_gradient_rule *rule, void *state) {
    struct custom *custom = calloc(1, sizeof *custom);
    if (!custom) {
        error_set(STATUS_NO_HOST_MEMORY, "no memory for a rule");
        if (rule->destroy)
            rule->destroy(state);
        return NULL;
    }
    *custom = (struct custom){.rule = {.apply = rule->backward ? custom_apply : checkpoint_apply,
                                       .destroy = custom_destroy,
                                       .users = 1,
                                       .keeps_inputs = (uint32_t)rule->keeps_inputs,
                                       .keeps_outputs = (uint32_t)rule->keeps_outputs},
                              .forward = rule->forward,
                              .backward = rule->backward,
                              .destroy = rule->destroy,
                              .state = state};
    snprintf(custom->name, sizeof custom->name, "%s", rule->name);
    custom->rule.name = custom->name;
    return custom;
}

static int custom_call(struct custom *custom, int n_inputs, td_tensor *const *inputs, int n_outputs,
                       td_tensor **outputs) {
    struct tape *innermost = tapes_pause();
    int code = function_call(custom, inputs, (unsigned)n_outputs, outputs);
    tapes_resume(innermost);
    return !code && tapes_note()
               ? tape_note_rule(&custom->rule, (unsigned)n_inputs, inputs, (unsigned)n_outputs, outputs)
               : code;
}

/* Notes the node, whose inputs are the call's and then those that the tape has seen besides. */
static int checkpoint_note(struct custom *custom, const struct tape *watch, size_t first, int n_inputs,
                           td_tensor *const *inputs, int n_outputs, td_tensor **outputs) {
    unsigned n = (unsigned)n_inputs;
    CLEANUP(free) td_tensor **all = calloc(n + watch->n_seen + 1, sizeof(td_tensor *));
    if (!all)
        return error_set(STATUS_NO_HOST_MEMORY, "no memory to note a function on a tape");
    for (unsigned i = 0; i < n; i++)
        all[i] = inputs[i];
    for (size_t i = first; i < watch->n_seen; i++)
        if (watch->seen[i].tensor)
            all[n++] = watch->seen[i].tensor;
    return tape_note_rule(&custom->rule, n, all, (unsigned)n_outputs, outputs);
}

static int checkpoint_call(struct custom *custom, int n_inputs, td_tensor *const *inputs, int n_outputs,
                           td_tensor **outputs) {
    if (!tapes_note())
        return function_call(custom, inputs, (unsigned)n_outputs, outputs);
    struct tape *innermost = tapes_pause(), *watch = tape_begin_internal(true);
    int code = watch ? 0 : td_last_error()->code;
    for (int i = 0; i < n_inputs && !code; i++)
        code = tape_see(watch, inputs[i]);
    size_t first = watch ? watch->n_seen : 0;
    if (!code)
        code = function_call(custom, inputs, (unsigned)n_outputs, outputs);
    tapes_resume(innermost);
    if (!code)
        code = checkpoint_note(custom, watch, first, n_inputs, inputs, n_outputs, outputs);
    tape_end_until(innermost);
    return code;
}

static int call_end(struct custom *custom, int code, int n_outputs, td_tensor **outputs) {
    if (custom)
        tape_rule_drop(&custom->rule);
    for (int i = 0; i < n_outputs && outputs && code; i++) {
        if (custom)
            td_release(outputs[i]);
        outputs[i] = NULL;
    }
    if (code)
        error_null(); /* the outputs are NULL because of this error */
    return code;
}

int td_custom_gradient(const td_gradient_rule *rule, void *state, int n_inputs, td_tensor *const *inputs, int n_outputs,
                       td_tensor **outputs) {
    int code = 0;
    if (!rule || !rule->name || !rule->forward || !rule->backward)
        code =
            error_set(STATUS_INVALID_ARGUMENT, "custom_gradient: the rule, its name or one of its functions is NULL");
    if (!code)
        code = lists_check(rule->name, n_inputs, inputs, n_outputs, outputs);
    if (code && rule && rule->destroy)
        rule->destroy(state);
    if (code)
        return call_end(NULL, code, n_outputs, outputs);
    struct custom *custom = custom_create(rule, state);
    code = custom ? 0 : td_last_error()->code;
    if (custom)
        memset(outputs, 0, (size_t)n_outputs * sizeof(td_tensor *));
    return call_end(custom, custom ? custom_call(custom, n_inputs, inputs, n_outputs, outputs) : code, n_outputs,
                    outputs);
}

int td_checkpoint(td_function *function, void *state, void (*destroy)(void *state), int n_inputs,
                  td_tensor *const *inputs, int n_outputs, td_tensor **outputs) {
    const td_gradient_rule rule = {
        .name = "checkpoint", .forward = function, .destroy = destroy, .keeps_inputs = TD_KEEP_ALL};
    int code = function ? lists_check(rule.name, n_inputs, inputs, n_outputs, outputs)
                        : error_set(STATUS_INVALID_ARGUMENT, "checkpoint: the function is NULL");
    if (code && destroy)
        destroy(state);
    if (code)
        return call_end(NULL, code, n_outputs, outputs);
    struct custom *custom = custom_create(&rule, state);
    if (custom)
        memset(outputs, 0, (size_t)n_outputs * sizeof(td_tensor *));
    return call_end(custom,
                    custom ? checkpoint_call(custom, n_inputs, inputs, n_outputs, outputs) : td_last_error()->code,
                    n_outputs, outputs);
}
