/* Functions whose derivatives are tested: at least one for each operation that has a rule. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/tensord.h"

enum { AUTOGRAD_INPUTS = 8 };

/* A function of f64 inputs, which are random numbers between `low` and `high`. */
struct autograd_case {
    unsigned opcode;  /* the operation whose rule it is about */
    const char *what; /* the expression */
    td_tensor *(*function)(td_tensor **x);
    double low, high;
    bool smooth; /* the second derivative is tested, too */
    int n_inputs;
    int rank[AUTOGRAD_INPUTS];
    int64_t shape[AUTOGRAD_INPUTS][TD_RANK_MAX];
};

extern const struct autograd_case *const autograd_cases[];
extern const int autograd_case_count;
