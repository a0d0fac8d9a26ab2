/* Rules of operations that move elements: the gradient moves back. */
#include "client/autograd/rule.h"

RULE(reshape) {
    rule_give_reshaped(call, 0, call->g[0]);
}
