/* A launch: one kernel call with everything resolved. The engine builds it on the owner thread, in a stream's queue; the
 * submitter hands it to the backend. It holds raw addresses: memory is stream-ordered, so whoever frees a block frees it
 * for what comes later in the stream.
 *
 * Normal forms, so that kernels stay simple. Nothing empty is launched: every operand has at least one element, but for
 * reductions, where the input may be empty and the result is the neutral element (max, min, argmax, argmin of nothing are
 * refused by the shape rule). What else holds stands at each family's name in enum op_family (proto/ops/operations.h,
 * made of the descriptions).
 *
 * dtypes: inputs as op_operand_dtype() says, output as op_infer() says. Of a product that is one dtype for all, or f8 of
 * either format for a and b, and f32 for the output. Where the device says that it converts an operation's inputs as it
 * reads them (op_kernel.converts), they come as they are, and operand.as is the dtype that op_operand_dtype() says. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/ops/op.h"

/* Kernels in C++ see a plain word, which they write with atomics of their own. */
#ifdef __cplusplus
typedef uint32_t report_code;
#else
#include <stdatomic.h>
typedef _Atomic uint32_t report_code;
#endif

/* Of what records, checks and failures say of an operation: its name, and the label that the client has given it. */
enum { OPERATION_NAME_MAX = 31, OPERATION_LABEL_MAX = 128 };

struct operand {
    void *data;             /* first element, offset applied */
    const int64_t *shape;   /* [rank] */
    const int64_t *strides; /* [rank], in elements; may be 0 or negative */
    uint8_t dtype;          /* enum dtype: of the elements in memory */
    uint8_t as;             /* of an input: what the kernel computes on */
    uint8_t rank;
};

/* Where a kernel writes what is wrong with the data it met. The first writer wins; the owner reads it after the stream
 * has passed this launch. */
struct report {
    report_code code; /* enum status; STATUS_OK until something is wrong */
    int64_t value;    /* OUT_OF_RANGE: the index found, LIMIT: milliseconds */
    int64_t position; /* its position, counted row-major in the index tensor, */
    int64_t limit;    /* and the extent it should be below */
};

struct launch {
    uint16_t opcode;
    uint16_t factor; /* by which the estimate of its time was corrected, in 256ths */
    uint8_t n_inputs;
    uint8_t further;       /* outputs after the first */
    bool tf32;             /* MATMUL and LINEAR of f32: inputs may be rounded to TF32 */
    struct report *report; /* not NULL for OP_FAMILY_TAKE, and where the launch may be stopped for the time it takes */
    struct op_attributes attributes; /* what the kernel needs of them, for NAME_attributes_read() */
    void *workspace; /* as many bytes as op_kernel.workspace says, of any content, aligned to 64; NULL: none */
    struct operand output;
    struct operand inputs[]; /* [n_inputs], at most 3; behind them the outputs after the first */
};

/* Output number i, from 1 on; the first one is launch->output. */
static inline const struct operand *launch_further(const struct launch *launch, unsigned i) {
    return &launch->inputs[launch->n_inputs + i - 1];
}

/* Of the last input, or of the first output where there is none: the dtype by which kernels are looked up, and by which estimates of
 * their time are corrected. */
static inline unsigned launch_dtype(const struct launch *launch) {
    return launch->n_inputs ? launch->inputs[launch->n_inputs - 1].dtype : launch->output.dtype;
}
