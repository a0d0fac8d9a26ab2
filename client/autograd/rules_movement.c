/* Rules of operations that move elements: the gradient moves back. */
#include "client/autograd/rule.h"

RULE(reshape) {
    rule_give_reshaped(call, 0, call->g[0]);
}

RULE(broadcast_to) {
    rule_give(call, 0, call->g[0]);
}

RULE(matrix_transpose) {
    rule_give(call, 0, td_transpose(call->g[0]));
}
