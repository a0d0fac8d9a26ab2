/* td_gradients(): back through the innermost tape. */
#include <stdlib.h>
#include <string.h>

#include "client/autograd/rule.h"
#include "client/lib/call.h"
#include "client/lib/device.h"
#include "client/lib/error.h"
#include "client/lib/scope.h"
#include "proto/ops/cleanup.h"

/* A gradient that has been made, for all slots that have it. */
struct gradient {
    td_tensor *tensor;
    unsigned users;
    bool borrowed; /* the tensor is not released */
};

struct walk {
    struct tape *tape;
    size_t end;              /* nodes from here on came later */
    struct gradient **slots; /* NULL: zero so far */
    bool *depends;           /* of a slot: it follows from one of the xs */
};

static void gradient_drop(struct gradient *gradient) {
    if (!gradient || --gradient->users > 0)
        return;
    if (!gradient->borrowed)
        td_release(gradient->tensor);
    free(gradient);
}

/* Takes the tensor over, also on failure. */
static struct gradient *gradient_create(td_tensor *tensor) {
    struct gradient *gradient = malloc(sizeof *gradient);
    if (gradient) {
        *gradient = (struct gradient){.tensor = tensor, .users = 1};
        return gradient;
    }
    td_release(tensor);
    error_set(STATUS_NO_HOST_MEMORY, "no memory for a gradient");
    return NULL;
}

/* Adds a gradient to a slot's; takes a use of it over. */
static int slot_add(struct walk *walk, uint32_t slot, struct gradient *gradient) {
    struct gradient **place = &walk->slots[slot];
    if (!*place) {
        *place = gradient;
        return 0;
    }
    td_tensor *sum = td_add((*place)->tensor, gradient->tensor);
    gradient_drop(*place);
    gradient_drop(gradient);
    *place = sum ? gradient_create(sum) : NULL;
    return *place ? 0 : td_last_error()->code;
}

/* ---- which nodes count ---- */

static bool node_depends(const struct walk *walk, const struct tape_node *node) {
    for (unsigned i = 0; i < node->n_inputs; i++)
        if (walk->depends[node->inputs[i].slot] && tape_floating(&node->inputs[i].type))
            return true;
    return false;
}

static void mark_depends(struct walk *walk) {
    for (size_t i = 0; i < walk->end; i++) {
        const struct tape_node *node = walk->tape->nodes[i];
        bool depends = node_depends(walk, node);
        for (unsigned k = 0; k < node->n_outputs && depends; k++)
            walk->depends[node->outputs[k].slot] |= tape_floating(&node->outputs[k].type);
    }
}

static bool node_has_gradient(const struct walk *walk, const struct tape_node *node) {
    for (unsigned i = 0; i < node->n_outputs; i++)
        if (walk->slots[node->outputs[i].slot])
            return true;
    return false;
}

/* ---- one node ---- */

struct step {
    struct rule_call call;
    td_tensor **g, **given;
    bool *wanted;
};

static bool step_init(struct step *step, const struct walk *walk, const struct tape_node *node) {
    unsigned tensors = node->n_outputs + node->n_inputs;
    *step = (struct step){.g = calloc(tensors, sizeof(td_tensor *)), .wanted = calloc(node->n_inputs, 1)};
    if (!step->g || !step->wanted) {
        free(step->g);
        free(step->wanted);
        error_set(STATUS_NO_HOST_MEMORY, "no memory for gradients");
        return false;
    }
    step->given = step->g + node->n_outputs;
    for (unsigned i = 0; i < node->n_outputs; i++) {
        const struct gradient *gradient = walk->slots[node->outputs[i].slot];
        step->g[i] = gradient ? gradient->tensor : NULL;
    }
    for (unsigned i = 0; i < node->n_inputs; i++)
        step->wanted[i] = walk->depends[node->inputs[i].slot] && tape_floating(&node->inputs[i].type);
    step->call = (struct rule_call){.node = node, .g = step->g, .wanted = step->wanted, .given = step->given};
    return true;
}

static int complex_check(const struct tape_node *node) {
    bool any = false;
    for (unsigned i = 0; i < node->n_inputs; i++)
        any |= dtype_is_complex(node->inputs[i].type.dtype);
    for (unsigned i = 0; i < node->n_outputs; i++)
        any |= dtype_is_complex(node->outputs[i].type.dtype);
    return any ? rule_unsupported(node, "has no derivative by complex numbers here") : 0;
}

static int node_check(const struct tape_node *node) {
    if (!node->rule && !rule_of(node->opcode))
        return rule_unsupported(node,
                                "has no derivative here, so the gradient through it would be wrong: td_stop_gradient() "
                                "takes its inputs, or its result, as constants; td_custom_gradient() gives it one");
    for (unsigned i = 0; i < node->n_outputs; i++)
        if (!node->outputs[i].device)
            return rule_unsupported(node, "the device of this operation has been closed");
    for (unsigned i = 0; i < node->n_inputs; i++) {
        if (!node->inputs[i].device)
            return rule_unsupported(node, "the device of this operation has been closed");
    }
    return node->rule || rule_takes_complex(node->opcode) ? 0 : complex_check(node);
}

/* The gradient that the rule gave for input i, of which an output's own gradient has one user more. */
static struct gradient *step_take(const struct step *step, const struct walk *walk, unsigned i) {
    const struct tape_node *node = step->call.node;
    for (unsigned k = 0; k < node->n_outputs; k++) {
        struct gradient *own = walk->slots[node->outputs[k].slot];
        if (own && own->tensor == step->given[i]) {
            own->users++;
            return own;
        }
    }
    return gradient_create(step->given[i]);
}

/* Adds what the rule gave to the inputs' slots, or drops it after a failure. */
static int step_end(const struct step *step, struct walk *walk, int code) {
    const struct tape_node *node = step->call.node;
    for (unsigned i = 0; i < node->n_inputs; i++) {
        struct gradient *gradient = step->given[i] ? step_take(step, walk, i) : NULL;
        if (step->given[i] && !gradient)
            code = td_last_error()->code;
        else if (code)
            gradient_drop(gradient);
        else if (gradient)
            code = slot_add(walk, node->inputs[i].slot, gradient);
    }
    return code;
}

static int node_apply(struct walk *walk, const struct tape_node *node) {
    struct step step;
    int code = node_check(node);
    if (code || !step_init(&step, walk, node))
        return td_last_error()->code;
    td_scope_begin(NULL);
    if (scope_thread.lost_scopes) /* nothing would release what the rule makes */
        step.call.failed = true;
    else
        (node->rule ? node->rule->apply : rule_of(node->opcode))(&step.call);
    for (unsigned i = 0; i < node->n_inputs; i++)
        if (step.given[i])
            td_keep(step.given[i]);
    td_scope_end();
    code = step_end(&step, walk, step.call.failed ? td_last_error()->code : 0);
    free(step.g);
    free(step.wanted);
    return code;
}

/* A gradient of an inner node is needed once only, unless it is also one of the xs. */
static void node_drop(struct walk *walk, const struct tape_node *node, const bool *asked) {
    for (unsigned i = 0; i < node->n_outputs; i++) {
        uint32_t slot = node->outputs[i].slot;
        if (!asked[slot]) {
            gradient_drop(walk->slots[slot]);
            walk->slots[slot] = NULL;
        }
    }
}

static int walk_back(struct walk *walk, const bool *asked) {
    for (size_t i = walk->end; i-- > 0;) {
        const struct tape_node *node = walk->tape->nodes[i];
        if (!node_has_gradient(walk, node))
            continue;
        int code = node_depends(walk, node) ? node_apply(walk, node) : 0;
        if (code)
            return code;
        node_drop(walk, node, asked);
    }
    return 0;
}

/* ---- all ---- */

/* A handle of its own for the program; others may have the same gradient. NULL without an error: y does not depend on x. */
static int result_of(struct walk *walk, uint32_t slot, td_tensor *x, td_tensor **result) {
    struct gradient *gradient = walk->slots[slot];
    *result = NULL;
    if (!gradient)
        return 0;
    if (gradient->users > 1 || gradient->borrowed) {
        *result = td_reshape(gradient->tensor, x->type.rank, x->type.shape);
        return *result ? 0 : td_last_error()->code;
    }
    *result = gradient->tensor;
    walk->slots[slot] = NULL;
    free(gradient);
    return 0;
}

static int results_make(struct walk *walk, int count, td_tensor *const *xs, td_tensor **gradients) {
    int made = 0, code = 0;
    for (; made < count && !code; made++) {
        uint32_t slot;
        int first = 0;
        gradients[made] = NULL;
        while (xs[first] != xs[made])
            first++;
        if (first == made) {
            if (tape_find(walk->tape, xs[made], &slot))
                code = result_of(walk, slot, xs[made], &gradients[made]);
        } else if (gradients[first]) {
            gradients[made] = td_reshape(gradients[first], xs[made]->type.rank, xs[made]->type.shape);
            code = gradients[made] ? 0 : td_last_error()->code;
        }
    }
    for (int i = 0; i < made && code; i++)
        td_release(gradients[i]);
    return code;
}

static int walk_begin(struct walk *walk, const struct gradients_call *call) {
    int code = 0;
    for (unsigned k = 0; k < call->n_ys && !code; k++) {
        uint32_t slot;
        if (!call->seeds[k] || !tape_find(walk->tape, call->ys[k], &slot))
            continue;
        struct gradient *gradient = malloc(sizeof *gradient);
        if (!gradient)
            return error_set(STATUS_NO_HOST_MEMORY, "no memory for a gradient");
        *gradient = (struct gradient){.tensor = call->seeds[k], .users = 1, .borrowed = true};
        code = slot_add(walk, slot, gradient);
    }
    return code;
}

static int walk_all(struct walk *walk, const struct gradients_call *call, bool *asked) {
    uint32_t slot;
    int code = walk_begin(walk, call);
    for (int i = 0; i < call->count; i++)
        if (tape_find(walk->tape, call->xs[i], &slot))
            asked[slot] = walk->depends[slot] = true;
    mark_depends(walk);
    if (!code)
        code = walk_back(walk, asked);
    return code ? code : results_make(walk, call->count, call->xs, call->gradients);
}

int gradients_through(struct tape *tape, const struct gradients_call *call) {
    size_t n = tape->slots.n;
    struct walk walk = {.tape = tape,
                        .end = tape->n_nodes,
                        .slots = calloc(n + 1, sizeof(struct gradient *)),
                        .depends = calloc(n + 1, 1)};
    bool *asked = calloc(n + 1, 1);
    int code;
    if (walk.slots && walk.depends && asked) {
        struct rule_numbers numbers;
        rule_numbers_begin(&numbers);
        tape->pauses++;
        code = walk_all(&walk, call, asked);
        tape->pauses--;
        rule_numbers_end();
        for (size_t i = 0; i < n; i++)
            gradient_drop(walk.slots[i]);
    } else {
        code = error_set(STATUS_NO_HOST_MEMORY, "gradients: no memory for %zu tensors", n);
    }
    for (int i = 0; i < call->count && code; i++)
        call->gradients[i] = NULL;
    free(walk.slots);
    free(walk.depends);
    free(asked);
    return code;
}

/* Of an input that is there twice the first place has it all. */
void rule_go_through(struct rule_call *call, struct tape *tape, unsigned n_ys, td_tensor *const *ys) {
    unsigned n = 0, n_inputs = call->node->n_inputs;
    CLEANUP(free) td_tensor **xs = calloc(2 * n_inputs + 1, sizeof(td_tensor *));
    if (!xs) {
        error_set(STATUS_NO_HOST_MEMORY, "no memory for gradients");
        call->failed = true;
        return;
    }
    td_tensor **gradients = xs + n_inputs;
    for (unsigned i = 0; i < n_inputs; i++)
        if (rule_wants(call, i) && !rule_is_among(xs, n, rule_input(call, i)))
            xs[n++] = rule_input(call, i);
    const struct gradients_call through = {
        .n_ys = n_ys, .ys = ys, .seeds = call->g, .count = (int)n, .xs = xs, .gradients = gradients};
    call->failed |= gradients_through(tape, &through) != 0;
    for (unsigned i = 0, k = 0; k < n && !call->failed; i++)
        if (rule_wants(call, i) && rule_input(call, i) == xs[k])
            call->given[i] = gradients[k++];
}

/* ---- the program's call ---- */

static td_tensor *filled(td_tensor *like, double value) {
    return td_full(like->device, (td_dtype)like->type.dtype, like->type.rank, like->type.shape, value);
}

static int check(const struct tape *tape, td_tensor *y, int count, td_tensor *const *xs, td_tensor **gradients) {
    uint32_t slot;
    if (!tape || tape->internal || tape->pauses)
        return error_set(STATUS_INVALID_ARGUMENT,
                         "gradients: no tape: td_tape_begin() has to come before what is to be differentiated");
    if (!y && error_of_null())
        return error_of_null();
    if (!y || count < 0 || (count && (!xs || !gradients)))
        return error_set(STATUS_INVALID_ARGUMENT, "gradients: y is NULL, or the lists of %d tensors are", count);
    if (dtype_kind(y->type.dtype) != DTYPE_KIND_FLOAT)
        return error_set(STATUS_DTYPE, "gradients: y is %s, only floats can be differentiated",
                         dtype_name(y->type.dtype));
    for (int i = 0; i < count; i++) {
        if (!xs[i])
            return error_of_null() ? error_of_null()
                                   : error_set(STATUS_INVALID_ARGUMENT, "gradients: x number %d is NULL", i);
        if (!tape_floating(&xs[i]->type))
            return error_set(STATUS_DTYPE, "gradients: x number %d is %s, a derivative is by floats or complex numbers",
                             i, dtype_name(xs[i]->type.dtype));
    }
    if (!tape_find(tape, y, &slot))
        return error_set(STATUS_INVALID_ARGUMENT, "gradients: y was not computed on the innermost tape");
    return 0;
}

/* Zeros for those that y does not depend on. */
static int gradients_fill(int count, td_tensor *const *xs, td_tensor **gradients) {
    int code = 0;
    for (int i = 0; i < count && !code; i++)
        if (!gradients[i] && !(gradients[i] = filled(xs[i], 0)))
            code = td_last_error()->code;
    for (int i = 0; i < count && code; i++) {
        td_release(gradients[i]);
        gradients[i] = NULL;
    }
    return code;
}

int td_gradients(td_tensor *y, int count, td_tensor *const *xs, td_tensor **gradients) {
    struct tape *tape = tape_innermost;
    int code = check(tape, y, count, xs, gradients);
    for (int i = 0; i < count && gradients; i++)
        gradients[i] = NULL;
    if (!code) {
        td_scope_begin_label("gradients");
        tape->pauses++;
        td_tensor *ones = filled(y, 1);
        const struct gradients_call call = {
            .n_ys = 1, .ys = &y, .seeds = &ones, .count = count, .xs = xs, .gradients = gradients};
        code = ones ? gradients_through(tape, &call) : td_last_error()->code;
        if (!code)
            code = gradients_fill(count, xs, gradients);
        td_release(ones);
        tape->pauses--;
        td_scope_end();
    }
    if (code)
        error_null(); /* who passes NULL on instead of a gradient gets this error */
    return code;
}
