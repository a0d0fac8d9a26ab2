/* Runs of recorded programs. What a run gives is known to the client and to the session that have the program, and follows from nothing here. */
#include "proto/ops/op_rules.h"

int op_rule_program(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    (void)call, (void)out;
    return fault_set(fault, STATUS_INVALID_ARGUMENT, "the results of a program follow from the program alone");
}
