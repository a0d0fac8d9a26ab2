/* Rules of derivatives: for each operation that has one, how the gradients of its inputs follow from the gradients of its outputs. A rule
 * enqueues ordinary operations, in the reverse mode: the gradient of an output is that of the sum that is differentiated.
 *
 * A rule is written as RULE(name) in a file for its kind; which inputs and outputs it reads is in the operation's description
 * (`derivative`), from which the table is generated. Rules run inside a scope of their own, so they release nothing. A td_ function that fails
 * returns NULL, and so do those that are given it: rule_give() notes that. */
#pragma once

#include "client/lib/tape.h"
#include "client/tensord.h"

struct rule_call {
    const struct tape_node *node;
    td_tensor *const
        *g; /* the gradient of each output; of those that nobody has used, zeros that rule_gradient() makes */
    const bool *wanted; /* of each input: whether its gradient is */
    td_tensor **given;  /* of each input: its gradient; NULL: none, which counts as zeros */
    bool failed;        /* the thread's error says why */
};

typedef void rule_function(struct rule_call *call);

/* Gradients by complex numbers are as PyTorch's: that by re + im·i is that by re, and i times that by im. So a function with the complex slope s
 * gives gradient · conj(s). */
bool rule_takes_complex(unsigned opcode);
/* NULL: the operation has no rule. */
rule_function *rule_of(unsigned opcode);

#define RULE(name)                                                                                                     \
    rule_function rule_##name;                                                                                         \
    void rule_##name(struct rule_call *call)

static inline td_tensor *rule_input(const struct rule_call *call, unsigned i) {
    return call->node->inputs[i].tensor;
}
static inline td_tensor *rule_output(const struct rule_call *call, unsigned i) {
    return call->node->outputs[i].tensor;
}
static inline const struct tensor_type *rule_type(const struct rule_call *call, unsigned i) {
    return &call->node->inputs[i].type;
}
/* The input in the dtype of the result, to which the operation promotes its inputs: integers may not hold what a rule computes of them, and bools and
 * integers are no operands of some functions. */
td_tensor *rule_operand(const struct rule_call *call, unsigned i);
/* NULL: the call does not have this input, which is optional. */
static inline td_tensor *rule_optional(const struct rule_call *call, unsigned i) {
    return i < call->node->n_inputs ? rule_input(call, i) : NULL;
}
static inline bool rule_wants(const struct rule_call *call, unsigned i) {
    return i < call->node->n_inputs && call->wanted[i];
}

static inline bool rule_is_among(td_tensor *const *tensors, unsigned n, const td_tensor *tensor) {
    for (unsigned i = 0; i < n; i++)
        if (tensors[i] == tensor)
            return true;
    return false;
}

/* The gradient of input i: `gradient` is added up over the axes along which the input was broadcast, and cast to its dtype. NULL: a function
 * has failed. */
void rule_give(struct rule_call *call, unsigned i, td_tensor *gradient);
/* The same of one that has the input's number of elements, in another shape. */
void rule_give_reshaped(struct rule_call *call, unsigned i, td_tensor *gradient);
/* The gradient of output i, which may be zeros. */
td_tensor *rule_gradient(struct rule_call *call, unsigned i);
td_tensor *rule_zeros(const struct rule_call *call, const struct tensor_type *type);
/* The gradient of x for a result x[…, indices, …] on an axis, with indices as td_take_along_axis() has them: zeros of `type`, to which the
 * result's gradient is added where its elements came from. */
td_tensor *rule_put_back(struct rule_call *call, const struct tensor_type *type, td_tensor *indices, int64_t axis);
/* A tensor of rank 0 with the dtype of `like`, which other rules may have, too. */
td_tensor *rule_number(const td_tensor *like, double value);
/* x times, or plus, a number, in x's dtype. */
td_tensor *rule_scale(td_tensor *x, double factor);
td_tensor *rule_shift(td_tensor *x, double term);
/* x, but 1 where it is 0: a divisor for a quotient that td_where() leaves out there, and whose derivatives would be no numbers there. */
td_tensor *rule_divisor(td_tensor *x);
/* The conjugate of a complex x; else x itself. */
td_tensor *rule_conjugate(td_tensor *x);
/* The conjugate transpose of matrices; of real ones the transpose. */
td_tensor *rule_adjoint(td_tensor *x);
/* x in the dtype in which operations compute: halves as f32. */
td_tensor *rule_widen(td_tensor *x);

/* The derivative that is asked for does not exist, or is not known here: an error with this reason. */
int rule_unsupported(const struct tape_node *node, const char *why);
void rule_refuse(struct rule_call *call, const char *why);

/* The derivative of GELU by its approximation with tanh. */
td_tensor *rule_gelu_tanh_slope(td_tensor *x);

/* What gradients_through() makes these numbers for. */
enum { RULE_NUMBERS_MAX = 16 };
struct rule_number {
    td_tensor *tensor;
    double value;
};
struct rule_numbers {
    struct rule_numbers *outer; /* of the thread: rules may go through tapes themselves */
    unsigned n;
    struct rule_number all[RULE_NUMBERS_MAX];
};
void rule_numbers_begin(struct rule_numbers *numbers);
void rule_numbers_end(void);

/* Of Σ ys[k] · seeds[k] by the xs, as td_gradients() has them, except that a gradient is NULL where the sum does not depend on an x. */
struct gradients_call {
    unsigned n_ys;
    td_tensor *const *ys;
    td_tensor *const *seeds; /* NULL: this y does not count */
    int count;
    td_tensor *const *xs;
    td_tensor **gradients;
};
int gradients_through(struct tape *tape, const struct gradients_call *call);
/* For a rule that has made the outputs again, the first n_ys of them, under a tape of its own: gives the gradients that go back through that tape. */
void rule_go_through(struct rule_call *call, struct tape *tape, unsigned n_ys, td_tensor *const *ys);
