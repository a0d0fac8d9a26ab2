/* The rows of the operations' benchmark: an operation and what it is measured on. */
#pragma once

#include "tests/bench/bench.h"

enum { OPS_OPERANDS = 12, OPS_RESULTS = 6 };

/* An operation's operands, for one dtype and size. */
struct ops_case {
    td_device *device;
    td_dtype dtype;
    int64_t n, side; /* elements of an operand, and the extent of a square matrix with as many */
    int seeds;       /* how many operands have random numbers so far */
    td_tensor *x[OPS_OPERANDS];
};

struct ops_row {
    const char *name;
    void (*open)(struct ops_case *at);
    td_tensor *(*run)(struct ops_case *at);
    double (*measure)(const struct ops_case *at); /* microseconds; NULL: of one `run` among many */
};

/* Rows of a kind. */
struct ops_rows {
    const struct ops_row *rows;
    size_t count;
};
extern const struct ops_rows ops_rows, ops_rows_of_elements, ops_rows_of_arrays, ops_rows_of_layers;

/* A list as an argument, of one integer. */
#define LIST(n)                                                                                                        \
    1, (const int64_t[]) {                                                                                             \
        n                                                                                                              \
    }

/* A row as OPS_RUN and OPS_ROW take it is (id, name, operands, expression). The expression may use `at`, its operands `x`, and `made` for
 * the results of a function that has several. */
#define OPS_RUN(id, name, operands, expression)                                                                        \
    static td_tensor *run_##id(struct ops_case *at) {                                                                  \
        td_tensor **x = at->x, *made[OPS_RESULTS];                                                                     \
        (void)x;                                                                                                       \
        (void)made;                                                                                                    \
        return expression;                                                                                             \
    }
#define OPS_ROW(id, name, operands, expression) {name, operands_##operands, run_##id, NULL},

/* The first of the `count` results that a function made; NULL if its code says that there are none. */
td_tensor *ops_first(int code, int count, td_tensor *const *made);
/* The same for an operation that replaces operands, of which nothing may hold the old values: a view of another operand. */
td_tensor *ops_replaced(int code, td_tensor *other);
