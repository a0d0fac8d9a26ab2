/* A launch: one kernel call with everything resolved. The engine builds it on the owner thread, in a stream's queue; the
 * submitter hands it to the backend. It holds raw addresses: memory is stream-ordered, so whoever frees a block frees it
 * for what comes later in the stream.
 *
 * Normal forms, so that kernels stay simple. Nothing empty is launched: every operand has at least one element, but for
 * reductions, where the input may be empty and the result is the neutral element (max, min, argmax, argmin of nothing are
 * refused by the shape rule).
 *
 *   CREATE       output contiguous, rank 1 but for eye (rank 2); the attribute `shape` is empty
 *   ELEMENTWISE  all operands have one shape: broadcast (strides 0) and with axes merged wherever that is possible for all
 *                of them at once. Contiguous operands are rank 1 with stride 1. The output may be the very memory of an
 *                input, same layout. COPY and CAST may have a strided output. CAST has no
 *                attributes: the dtypes of its operands say it all
 *   REDUCE       input rank k + r: kept axes first, then reduced axes, each group merged where possible. Output
 *                contiguous over the kept axes, of rank k; no attributes. argmax: position counted row-major over the reduced axes in
 *                their order. MEAN's divisor is the number of reduced elements. A reduced group of one element is
 *                possible, as is k = 0
 *   SOFTMAX      both operands rank 2 to 8, same shape, the axis last, the others merged where possible
 *   MATMUL       a [batch…, m, k], b [batch…, k, n], output [batch…, m, n] contiguous; the batch axes are equal (strides 0
 *                where broadcast), and are not just more rows of a; matrices with any strides, k may be 0 (the result
 *                is 0); rank 2 to 8
 *   LINEAR       as MATMUL, b being the weight's transpose; the third input, where there is one, is the bias [n],
 *                contiguous; k = 0: activation(bias)
 *   TAKE         x [outer, n, inner], indices i64 [k], output [outer, k, inner], all contiguous
 *   TAKE_ALONG_AXIS  x [outer, n, inner], indices i64 [outer, k, inner], output the same, all contiguous
 *   TOPK         x [outer, n, inner]; values [outer, k, inner] and, as further output, positions i64 of the same shape, all
 *                contiguous; of the attributes, `axis` means nothing any more
 *   ONE_HOT      indices i64 [n], output [n, classes], contiguous
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
