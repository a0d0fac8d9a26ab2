#include "proto/op.h"

#define X(NAME, value, ...) _Static_assert((value) > 0 && (value) < OP_CODE_MAX, #NAME " fits the tables");
OP_TABLE(X)
#undef X

static const struct op_info op_rows[OP_CODE_MAX] = {
#define X(NAME, value, text, family, rule, inputs_min, inputs_max, ints, floats)                                       \
    [value] = {text, OP_FAMILY_##family, inputs_min, inputs_max, ints, floats},
    OP_TABLE(X)
#undef X
};

const struct op_info *op_info(unsigned opcode) {
    return opcode < OP_CODE_MAX && op_rows[opcode].name ? &op_rows[opcode] : NULL;
}
