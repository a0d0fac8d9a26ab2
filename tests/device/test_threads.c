/* The same bits at any number of threads: the conformance suite's cases on CPU devices with one, two and three. One test for each row of the
 * operation table. */
#include <criterion/criterion.h>

#include "tests/device/cases.h"

static void operation_is_the_same(unsigned opcode, const char *name) {
    struct suite suite;
    const struct op_case *row = op_case_find(opcode);
    cr_assert(row, "the suite has no case for %s", name);
    suite_open_with_twins(&suite, 0x7843 + opcode);
    row->run(&suite, row);
    suite_close(&suite);
}

#define X(name, value, text)                                                                                           \
    Test(threads, name, .timeout = 240) {                                                                              \
        operation_is_the_same(value, text);                                                                            \
    }
OP_LIST(X)
#undef X
