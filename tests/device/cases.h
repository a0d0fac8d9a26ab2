/* One row for each operation: how the suite exercises it, and with which dtypes. */
#pragma once

#include "tests/device/suite.h"

struct op_case {
    void (*run)(struct suite *suite, const struct op_case *row);
    unsigned opcode;
    unsigned dtypes;      /* bit d: takes dtype d */
    enum suite_fill fill; /* of its inputs */
};

/* Bits for `dtypes`. */
enum {
    TAKES_BOOL = 1 << DTYPE_BOOL,
    TAKES_INTS = 1 << DTYPE_U8 | 1 << DTYPE_I8 | 1 << DTYPE_I16 | 1 << DTYPE_I32 | 1 << DTYPE_I64,
    TAKES_FLOATS = 1 << DTYPE_F16 | 1 << DTYPE_BF16 | 1 << DTYPE_F32 | 1 << DTYPE_F64,
    TAKES_NUMBERS = TAKES_INTS | TAKES_FLOATS,
    TAKES_ALL = TAKES_BOOL | TAKES_NUMBERS, /* of those that are computed with */
    TAKES_F8 = 1 << DTYPE_F8E4M3 | 1 << DTYPE_F8E5M2,
    TAKES_STORED = TAKES_ALL | TAKES_F8,
};

/* NULL for an operation that has no row. */
const struct op_case *op_case_find(unsigned opcode);
bool op_case_takes(const struct op_case *row, enum dtype dtype);
enum dtype op_case_dtype(struct suite *suite, const struct op_case *row);
/* One that promotes with `dtype`. */
enum dtype op_case_partner(struct suite *suite, const struct op_case *row, enum dtype dtype);

void case_create(struct suite *suite, const struct op_case *row);
void case_random(struct suite *suite, const struct op_case *row);
void case_cast(struct suite *suite, const struct op_case *row);
void case_unary(struct suite *suite, const struct op_case *row);
void case_binary(struct suite *suite, const struct op_case *row);
void case_where(struct suite *suite, const struct op_case *row);
void case_view(struct suite *suite, const struct op_case *row);
void case_reduce(struct suite *suite, const struct op_case *row);
void case_arg(struct suite *suite, const struct op_case *row);
void case_softmax(struct suite *suite, const struct op_case *row);
void case_matmul(struct suite *suite, const struct op_case *row);
void case_linear(struct suite *suite, const struct op_case *row);
void case_join(struct suite *suite, const struct op_case *row);
void case_take(struct suite *suite, const struct op_case *row);
void case_take_along_axis(struct suite *suite, const struct op_case *row);
void case_one_hot(struct suite *suite, const struct op_case *row);
void case_free(struct suite *suite, const struct op_case *row);

/* Lengths around the widths of vectors, and none. */
extern const int64_t case_lengths[];
extern const int case_length_count;
enum { CASE_LARGE = (1 << 20) + 17 }; /* enough for every device to use all its threads */

/* Checks a result and frees it. */
void case_settle(struct suite *suite, struct sample *result);
