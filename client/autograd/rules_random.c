/* Rules of random numbers. */
#include "client/autograd/rule.h"

/* The same seed drops the same elements. The library's offset is always 0. */
RULE(dropout) {
    struct dropout_attributes attributes;
    dropout_attributes_read(&call->node->attributes, &attributes);
    rule_give(call, 0, td_dropout(call->g[0], attributes.probability, attributes.seed));
}
