/* One row for each operation: how the suite exercises it. With which dtypes, its description says. */
#pragma once

#include "tests/device/suite.h"

struct op_case {
    void (*run)(struct suite *suite, const struct op_case *row);
    unsigned opcode;
    enum suite_fill fill; /* of its inputs */
};

/* NULL for an operation that has no row. */
const struct op_case *op_case_find(unsigned opcode);
bool op_case_takes(const struct op_case *row, enum dtype dtype);
enum dtype op_case_dtype(struct suite *suite, const struct op_case *row);
/* One that promotes with `dtype`. */
enum dtype op_case_partner(struct suite *suite, const struct op_case *row, enum dtype dtype);

/* op_case_NAME for each operation that is not made of a formula, beside its function; the linker names one that is missing. */
#define OP_CASE(ID, name) extern const struct op_case op_case_##name;
OP_OTHERS(OP_CASE)
#undef OP_CASE

/* For those that are: of one input, two, three. */
void case_elementwise_1(struct suite *suite, const struct op_case *row);
void case_elementwise_2(struct suite *suite, const struct op_case *row);
void case_elementwise_3(struct suite *suite, const struct op_case *row);

/* Lengths around the widths of vectors, and none. */
extern const int64_t case_lengths[];
extern const int case_length_count;
enum { CASE_LARGE = (1 << 20) + 17 }; /* enough for every device to use all its threads */

/* Checks a result and frees it. */
void case_settle(struct suite *suite, struct sample *result);
