/* Tables of cases for op_infer(): types are written "f32(2,3)", a list of them with blanks between. */
#pragma once

#include "proto/ops/op.h"

struct infer_case {
    unsigned opcode;
    const char *inputs; /* "f32(2,3) i64(3)"; "" for none */
    unsigned n_ints, n_floats;
    int64_t ints[OP_PACKED_INTS];
    double floats[OP_PACKED_FLOATS];
    const char *result; /* of the first output: "f32(2,3)", or NULL where it must fail */
    const char *words;  /* its message has them; NULL: any */
    enum status status; /* with this code */
};

#define INTS(...) .n_ints = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .ints = {__VA_ARGS__}
#define FLOATS(...) .n_floats = sizeof((double[]){__VA_ARGS__}) / sizeof(double), .floats = {__VA_ARGS__}
#define FAILS(code, text) .status = STATUS_##code, .words = text

/* Fails the running test where a row does not hold. */
void infer_check(const struct infer_case *cases, size_t count);
#define INFER_CHECK(cases) infer_check(cases, sizeof(cases) / sizeof((cases)[0]))
