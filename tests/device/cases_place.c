/* Operations that put x's elements in other places, or a value in their place. */
#include <string.h>

#include "tests/device/cases.h"

static void pad_once(struct suite *suite, struct sample *x, enum op_pad_mode mode) {
    int64_t widths[2 * VALUES_RANK_MAX];
    int rank = x->values->rank;
    for (int i = 0; i < 2 * rank; i++) {
        int64_t extent = x->values->shape[i / 2], most = 4;
        if (mode == OP_PAD_MODE_REFLECT)
            most = extent > 0 ? extent - 1 : 0;
        else if (mode == OP_PAD_MODE_WRAP || extent == 0)
            most = mode == OP_PAD_MODE_CONSTANT ? 4 : extent;
        widths[i] = suite_below(suite, (most < 4 ? most : 4) + 1);
    }
    struct op_scalar value = {suite_below(suite, 2), (double)suite_below(suite, 9) - 4};
    if (value_is_complex(x->values->dtype)) /* the imaginary part */
        memcpy(&value.i, &(double){2.5}, sizeof value.i);
    struct sample result =
        suite_attributes(suite, OP_PAD, x,
                         SUITE_ATTRIBUTES(pad, .mode = mode, .value = value, .widths = {(unsigned)(2 * rank), widths}));
    case_settle(suite, &result);
}

static void case_pad(struct suite *suite, const struct op_case *row) {
    for (int i = 0; i < SUITE_REPEAT(400); i++) {
        int64_t shape[VALUES_RANK_MAX];
        int rank = suite_shape(suite, 4, shape);
        struct sample x = suite_input(suite, op_case_dtype(suite, row), rank, shape, row->fill);
        for (enum op_pad_mode mode = OP_PAD_MODE_CONSTANT; mode < OP_PAD_MODE_COUNT; mode++)
            pad_once(suite, &x, mode);
        suite_free(suite, &x);
    }
    struct sample x = suite_sample(suite, DTYPE_F32, 3, (int64_t[]){4, SUITE_REPEAT(100), 301}, row->fill);
    pad_once(suite, &x, OP_PAD_MODE_CONSTANT);
    suite_free(suite, &x);
}

static void case_triangle(struct suite *suite, const struct op_case *row) {
    for (int i = 0; i < SUITE_REPEAT(400); i++) {
        int64_t shape[VALUES_RANK_MAX];
        int rank = suite_shape(suite, 4, shape);
        if (rank < 2)
            continue;
        int64_t diagonal = suite_chance(suite, 5)   ? INT64_MIN
                           : suite_chance(suite, 5) ? INT64_MAX
                                                    : suite_below(suite, 20) - 10;
        struct sample x = suite_input(suite, op_case_dtype(suite, row), rank, shape, row->fill);
        struct sample result = suite_attributes(suite, row->opcode, &x, /* triu has the same attributes */
                                                SUITE_ATTRIBUTES(tril, .diagonal = diagonal));
        case_settle(suite, &result);
        suite_free(suite, &x);
    }
}

const struct op_case op_case_pad = {case_pad, OP_PAD, FILL_ANY};
const struct op_case op_case_tril = {case_triangle, OP_TRIL, FILL_ANY};
const struct op_case op_case_triu = {case_triangle, OP_TRIU, FILL_ANY};
