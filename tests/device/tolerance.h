/* How far a device's result may be from the reference. */
#pragma once

#include "tests/device/values.h"

struct tolerance {
    double ulps[6];    /* f16, bf16, f32, f64, f8e4m3, f8e5m2: units in the last place of the correctly rounded result */
    double complex_ulps[2]; /* c64, c128: of the larger part of the result */
    double accumulate; /* rounding errors of the accumulator (f32, of f64: f64) for each sqrt(terms), times the scale */
    bool zero_signs;   /* -0 and +0 are told apart */
};

/* Rows by opcode, from the operations' descriptions. */
extern const struct tolerance tolerances[];
/* The row of an operation; one without a tolerance is exact. */
const struct tolerance *tolerance_of(unsigned opcode);
/* The result is bit for bit determined: values may be computed further without drifting apart. */
bool tolerance_exact(unsigned opcode, const struct values *result);
/* Whether element `k` of `got` will do for that of `expected`. */
bool tolerance_holds(unsigned opcode, const struct values *expected, const struct values *got, int64_t k);
