#include "tests/device/cases.h"

const struct op_case *op_case_find(unsigned opcode) {
#define ELEMENTWISE(ID, inputs, flop) {case_elementwise_##inputs, OP_##ID, FILL_ANY},
    static const struct op_case elementwise[] = {OP_ELEMENTWISE(ELEMENTWISE)};
#define OTHER(ID, name) [OP_##ID] = &op_case_##name,
    static const struct op_case *const others[OP_CODE_MAX] = {OP_OTHERS(OTHER)};
    for (size_t i = 0; i < sizeof elementwise / sizeof *elementwise; i++)
        if (elementwise[i].opcode == opcode)
            return &elementwise[i];
    return others[opcode];
}

bool op_case_takes(const struct op_case *row, enum dtype dtype) {
    return op_info(row->opcode)->dtypes >> dtype & 1;
}

enum dtype op_case_dtype(struct suite *suite, const struct op_case *row) {
    for (;;) {
        enum dtype dtype = (enum dtype)(1 + suite_below(suite, DTYPE_COUNT - 1));
        if (op_case_takes(row, dtype))
            return dtype;
    }
}

enum dtype op_case_partner(struct suite *suite, const struct op_case *row, enum dtype dtype) {
    for (;;) {
        enum dtype partner = op_case_dtype(suite, row);
        if (reference_promote(dtype, partner) != DTYPE_INVALID)
            return partner;
    }
}

const int64_t case_lengths[] = {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 1000};
const int case_length_count = sizeof case_lengths / sizeof *case_lengths;

void case_settle(struct suite *suite, struct sample *result) {
    suite_check(suite, result);
    suite_free(suite, result);
}
