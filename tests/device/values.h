/* Tensor values on the host, for the reference: every element as an int64_t or a long double, row-major. Independent of
 * proto/ and engine/ but for the numbers of the dtypes. Memory that runs out ends the test process. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/ops/dtype.h"

enum { VALUES_RANK_MAX = 8, VALUES_TEXT_MAX = 160 };

struct values {
    enum dtype dtype;
    int rank;
    int64_t shape[VALUES_RANK_MAX];
    int64_t count;
    int64_t *i;      /* bool and integers, u64 modulo 2^64; NULL for floats */
    long double *f;  /* floats, each one representable in the dtype, and the real parts of complex numbers */
    long double *im; /* their imaginary parts; NULL for other dtypes */
    /* Results of accumulation: the magnitudes that went into each element, and how many terms they were. Rounding
     * errors are proportional to these, not to the result. NULL and 0 where an element depends on one rounding only. */
    long double *scale;
    double terms;
    enum dtype of;                   /* of real results of complex numbers: the dtype of these, else DTYPE_INVALID */
    struct values *next, **previous; /* all there are */
};

struct values *values_create(enum dtype dtype, int rank, const int64_t *shape);
struct values *values_copy(const struct values *values);
/* Takes NULL. */
void values_destroy(struct values *values);
/* Of one test nothing is left to the next, and no leak hides another one. */
void values_destroy_all(void);
/* Puts element `from` of x, which has the same dtype, in the place of element `at`. */
void values_put(struct values *values, int64_t at, const struct values *x, int64_t from);
void values_scaled(struct values *values, double terms);

/* To and from the bytes that a device keeps. */
size_t values_bytes(const struct values *values);
void values_encode(const struct values *values, void *bytes);
void values_decode(struct values *values, const void *bytes);

/* "f32 (2, 3)" */
const char *values_text(const struct values *values, char text[VALUES_TEXT_MAX]);
bool values_same_type(const struct values *values, enum dtype dtype, int rank, const int64_t *shape);

/* Row-major strides in elements, and an odometer over a shape: false after the last index. */
void values_strides(int rank, const int64_t *shape, int64_t *strides);
bool values_next(int rank, const int64_t *shape, int64_t *index);
int64_t values_offset(int rank, const int64_t *index, const int64_t *strides);

/* ---- dtypes ---- */

bool value_is_float(enum dtype dtype);
bool value_is_f8(enum dtype dtype);
bool value_is_complex(enum dtype dtype); /* such a dtype is a float, too: for the functions below that of its parts */
size_t value_size(enum dtype dtype);
const char *value_name(enum dtype dtype);
int value_bits(enum dtype dtype); /* of an integer dtype */
bool value_is_unsigned(enum dtype dtype);
/* An element of `i` as a number, and the order of two: -1, 0 or 1. */
long double value_number(enum dtype dtype, int64_t element);
int value_order(enum dtype dtype, int64_t a, int64_t b);
/* Smallest and largest integer of an integer dtype, as elements of `i`. */
int64_t value_low(enum dtype dtype);
int64_t value_high(enum dtype dtype);
/* Modulo 2^bits; bool: 0 or 1. */
int64_t value_wrap(enum dtype dtype, int64_t value);
/* To nearest, ties to even, in one step; beyond the range infinity, or NaN in a format that has none. */
long double value_round(enum dtype dtype, long double value);
/* Distance to the next representable number at this magnitude; that of the denormals below the normal range. */
long double value_ulp(enum dtype dtype, long double value);
long double value_max(enum dtype dtype);        /* largest finite */
long double value_min_normal(enum dtype dtype); /* smallest normal */
int value_exponent_max(enum dtype dtype);       /* of 1.xxx * 2^e */
long double value_power(int exponent);          /* 2^exponent, of any exponent that a format has */
