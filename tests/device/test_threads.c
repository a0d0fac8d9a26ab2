/* The same bits at any number of threads: the conformance suite's cases on CPU devices with one, two and three. One test for each row of the
 * operation table. */
#include <criterion/criterion.h>

#include "tests/device/cases.h"

/* The grid of a product's rectangles follows from the number of threads, and at their edges OpenBLAS adds up in another order. */
static bool depends_on_threads(unsigned opcode) {
    return opcode == OP_MATMUL || opcode == OP_LINEAR;
}

static void operation_is_the_same(unsigned opcode, const char *name) {
    struct suite suite;
    const struct op_case *row = op_case_find(opcode);
    cr_assert(row, "the suite has no case for %s", name);
    if (depends_on_threads(opcode))
        cr_skip_test("products are rounded in another way with other numbers of threads");
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
