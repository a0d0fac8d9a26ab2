/* The reference: every operation as plain loops over indices, in int64_t or long double, with its own rules of shape,
 * dtype and promotion. It shares nothing with proto/ops/op_infer.c and the backends but the numbers of operations. Results
 * are rounded once to the result's dtype. */
#pragma once

#include "proto/ops/op.h"
#include "tests/device/values.h"

struct reference_request {
    unsigned opcode, n_inputs;
    unsigned output; /* which of the results is wanted */
    const struct values *const *inputs;
    struct op_attributes attributes; /* as NAME_attributes_read() reads them */
};

/* NULL for what the operation refuses, an index out of range included. The caller destroys the result. */
struct values *reference_run(const struct reference_request *request);

/* Says that there is no reference for the operation, and ends the program. */
_Noreturn void reference_lacks(unsigned opcode);

/* DTYPE_INVALID: they do not. */
enum dtype reference_promote(enum dtype a, enum dtype b);
struct values *reference_cast(const struct values *x, enum dtype dtype);
/* Result shape of broadcasting; false where the shapes do not fit. */
bool reference_broadcast(int rank_a, const int64_t *a, int rank_b, const int64_t *b, int *rank, int64_t *shape);
/* Elements of x at offset + index·strides for every index of the shape. */
struct values *reference_gather(const struct values *x, int rank, const int64_t *shape, const int64_t *strides,
                                int64_t offset);
struct values *reference_broadcast_to(const struct values *x, int rank, const int64_t *shape);
/* -rank … rank-1 to 0 … rank-1; -1 where out of range. */
int reference_axis(int64_t axis, int rank);

/* reference_FAMILY, for each family; the linker names one that is missing. */
typedef struct values *reference_function(const struct reference_request *request);
#define REFERENCE_FAMILY(FAMILY, name) reference_function reference_##name;
OP_FAMILIES(REFERENCE_FAMILY)
#undef REFERENCE_FAMILY

/* Of these families, what stands in files of its own: linear; uniform and normal, after the mapping that
 * engine/device/philox.h documents; eigenvalues and singular values. */
reference_function reference_linear, reference_random, reference_spectral;

/* Of complex numbers: one element of an operation with two inputs, and an operation with one. */
void reference_complex_binary(unsigned opcode, const struct values *a, const struct values *b, struct values *out,
                              int64_t k);
/* The magnitudes to which errors of powers are proportional. */
void reference_complex_pow_scale(const struct values *a, const struct values *b, struct values *out);
struct values *reference_complex_unary(unsigned opcode, const struct values *x);

/* Widens what is allowed of a product of f8 tensors on GPUs, but for whole numbers: tensor cores add a few products up with
 * some 14 bits before they go on in float32. `out` has a scale. */
void reference_loosen_f8(struct values *out, const struct values *a, const struct values *b);
