/* Rules of sorting: the gradient goes back to the positions that the elements came from. */
#include "client/autograd/rule.h"

RULE(topk) {
    struct topk_attributes attributes;
    topk_attributes_read(&call->node->attributes, &attributes);
    rule_give(call, 0, rule_put_back(call, rule_type(call, 0), rule_output(call, 1), attributes.axis));
}

/* The sort is stable, so that argsort gives its positions. */
RULE(sort) {
    struct sort_attributes attributes;
    sort_attributes_read(&call->node->attributes, &attributes);
    td_tensor *positions = td_argsort(rule_input(call, 0), (int)attributes.axis, attributes.descending);
    rule_give(call, 0, rule_put_back(call, rule_type(call, 0), positions, attributes.axis));
}
