/* The rows of the operations' benchmark: an operation and what it is measured on. */
#pragma once

#include "tests/bench/bench.h"

enum { OPS_OPERANDS = 6 };

/* An operation's operands, for one dtype and size. */
struct ops_case {
    td_device *device;
    td_dtype dtype;
    int64_t n, side; /* elements of an operand, and the extent of a square matrix with as many */
    td_tensor *x[OPS_OPERANDS];
};

struct ops_row {
    const char *name;
    void (*open)(struct ops_case *at);
    td_tensor *(*run)(struct ops_case *at);
    double (*measure)(const struct ops_case *at); /* microseconds; NULL: of one `run` among many */
};

extern const struct ops_row ops_rows[];
extern const size_t ops_row_count;
