#include "client/call.h"

#define UNARY(name, OPCODE)                                                                                            \
    td_tensor *td_##name(td_tensor *x) {                                                                               \
        return call_one(OP_##OPCODE, x, NULL, 0);                                                                      \
    }
#define BINARY(name, OPCODE)                                                                                           \
    td_tensor *td_##name(td_tensor *a, td_tensor *b) {                                                                 \
        return call_two(OP_##OPCODE, a, b, NULL, 0);                                                                   \
    }

BINARY(add, ADD)
BINARY(subtract, SUBTRACT)
BINARY(multiply, MULTIPLY)
BINARY(divide, DIVIDE)
BINARY(pow, POW)
BINARY(maximum, MAXIMUM)
BINARY(minimum, MINIMUM)
BINARY(equal, EQUAL)
BINARY(not_equal, NOT_EQUAL)
BINARY(less, LESS)
BINARY(less_equal, LESS_EQUAL)
BINARY(greater, GREATER)
BINARY(greater_equal, GREATER_EQUAL)
BINARY(logical_and, LOGICAL_AND)
BINARY(logical_or, LOGICAL_OR)
UNARY(logical_not, LOGICAL_NOT)
UNARY(negative, NEGATIVE)
UNARY(abs, ABS)
UNARY(exp, EXP)
UNARY(log, LOG)
UNARY(sqrt, SQRT)
UNARY(tanh, TANH)
UNARY(sigmoid, SIGMOID)
UNARY(relu, RELU)

td_tensor *td_where(td_tensor *condition, td_tensor *a, td_tensor *b) {
    return call_enqueue(NULL, &(struct batch_entry){
                                  .opcode = OP_WHERE, .n_inputs = 3, .inputs = (td_tensor *const[]){condition, a, b}});
}
