/* One test for each row of the operation table, named after it. */
#include <criterion/criterion.h>

#include "tests/device/cases.h"

static void operation_conforms(unsigned opcode, const char *name) {
    struct suite suite;
    const struct op_case *row = op_case_find(opcode);
    cr_assert(row, "the suite has no case for %s", name);
    suite_open_with_twins(&suite, 0x7e45 + opcode);
    row->run(&suite, row);
    suite_close(&suite);
}

#define X(name, value, text)                                                                                           \
    Test(operations, name, .timeout = 400) {                                                                           \
        operation_conforms(value, text);                                                                               \
    }
OP_LIST(X)
#undef X
