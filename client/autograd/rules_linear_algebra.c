/* Rules of products. */
#include "client/autograd/rule.h"

/* x with an axis of extent 1 more, `behind` of x's axes from the end. */
static td_tensor *with_axis(td_tensor *x, int behind) {
    int64_t shape[TD_RANK_MAX];
    if (!x)
        return NULL;
    int rank = td_tensor_rank(x), place = rank - behind;
    for (int i = 0; i <= rank; i++)
        shape[i] = i == place ? 1 : td_tensor_shape(x)[i - (i > place)];
    return td_reshape(x, rank + 1, shape);
}

/* All rows of all matrices as one matrix; a vector is a row. */
static td_tensor *as_rows(td_tensor *x) {
    int rank = x ? td_tensor_rank(x) : 2;
    if (rank == 2)
        return x;
    int64_t rows = 1;
    for (int i = 0; i < rank - 1; i++)
        rows *= td_tensor_shape(x)[i];
    return td_reshape(x, TD_SHAPE(rows, td_tensor_shape(x)[rank - 1]));
}

/* An operand of a product with a gradient: f8, whose products are f32, does not promote; a complex one is conjugated. */
static td_tensor *operand(const struct rule_call *call, unsigned i) {
    td_tensor *x = rule_conjugate(rule_input(call, i));
    return dtype_is_f8(rule_type(call, i)->dtype) ? td_cast(x, td_tensor_dtype(call->g[0])) : x;
}

/* gradient · bᵀ and aᵀ · gradient, in which a vector a is a row and a vector b a column, and batches that were broadcast add up. A b
 * without batches has one product of all rows, not one of each batch of a and their sum. */
RULE(matmul) {
    td_tensor *g = call->g[0];
    bool row = rule_type(call, 0)->rank == 1, column = rule_type(call, 1)->rank == 1;
    if (column)
        g = with_axis(g, 0);
    if (row)
        g = with_axis(g, 1);
    if (rule_wants(call, 0))
        rule_give(call, 0, td_matmul(g, column ? with_axis(operand(call, 1), 1) : td_transpose(operand(call, 1))));
    if (rule_wants(call, 1) && rule_type(call, 1)->rank <= 2)
        rule_give_reshaped(call, 1, td_matmul(td_transpose(as_rows(operand(call, 0))), as_rows(g)));
    else if (rule_wants(call, 1))
        rule_give(call, 1, td_matmul(row ? with_axis(operand(call, 0), 0) : td_transpose(operand(call, 0)), g));
}

/* The gradient by what the activation was applied to: for GELU that is computed again. */
static td_tensor *before_activation(const struct rule_call *call) {
    struct linear_attributes attributes;
    td_tensor *g = call->g[0], *y = rule_output(call, 0);
    linear_attributes_read(&call->node->attributes, &attributes);
    if (attributes.activation == OP_ACTIVATION_NONE)
        return g;
    if (attributes.activation == OP_ACTIVATION_RELU)
        return td_where(td_greater(y, rule_number(y, 0)), g, rule_number(g, 0));
    td_tensor *sum = td_linear(rule_input(call, 0), rule_input(call, 1), rule_optional(call, 2), TD_ACTIVATION_NONE);
    return td_multiply(g, rule_gelu_tanh_slope(sum));
}

/* With all rows as one matrix: gradient · weight, gradientᵀ · x, and the sum of the rows. A weight that is a vector has one row. */
RULE(linear) {
    td_tensor *g = before_activation(call);
    if (rule_wants(call, 2))
        rule_give(call, 2, g);
    bool one = rule_type(call, 1)->rank == 1;
    g = as_rows(one ? with_axis(g, 0) : g);
    if (rule_wants(call, 0))
        rule_give_reshaped(call, 0, td_matmul(g, one ? with_axis(operand(call, 1), 1) : operand(call, 1)));
    if (rule_wants(call, 1))
        rule_give_reshaped(call, 1, td_matmul(td_transpose(g), as_rows(operand(call, 0))));
}

/* Of x1 × x2 with the gradient g: x2 × g and g × x1. */
RULE(cross) {
    struct cross_attributes attributes;
    cross_attributes_read(&call->node->attributes, &attributes);
    const int axis = (int)attributes.axis;
    if (rule_wants(call, 0))
        rule_give(call, 0, td_cross(rule_conjugate(rule_input(call, 1)), call->g[0], axis));
    if (rule_wants(call, 1))
        rule_give(call, 1, td_cross(call->g[0], rule_conjugate(rule_input(call, 0)), axis));
}
