/* Rules of products and of linear algebra. */
#include "client/autograd/rule.h"

static td_tensor *transposed(td_tensor *x) {
    return td_transpose(x);
}

/* gradient · bᵀ and aᵀ · gradient; batches that were broadcast add up. */
RULE(matmul) {
    td_tensor *g = call->g[0];
    if (rule_wants(call, 0))
        rule_give(call, 0, td_matmul(g, transposed(rule_input(call, 1))));
    if (rule_wants(call, 1))
        rule_give(call, 1, td_matmul(transposed(rule_input(call, 0)), g));
}
