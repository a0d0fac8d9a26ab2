/* How a product is computed (matmul.c): its plan, and what the files about it share. */
#pragma once

#include "engine/cpu/cpu.h"
#include "engine/cpu/dnnl.h"

/* The most rows and columns of what is computed from packed copies, and their depth. */
enum { BLOCK_ROWS = 256, BLOCK_COLUMNS = 512, BLOCK_DEPTH = 384 };

struct matrix {
    char *data;
    int64_t rows, columns;
    int64_t row_stride, column_stride; /* in elements */
};

struct matmul_job {
    struct cpu_job base;
    const struct operand *a, *b, *c;
    enum dtype dtype, packed, summed; /* of the result, of packed blocks of the operands, and of blocks of sums */
    int64_t size, packed_size, summed_size;
    const struct dnnl_product *bf16; /* which multiplies blocks; NULL: they are not bf16 */
    int64_t bf16_rows, bf16_columns; /* of such a block, which ends in zeros where there are less */
    struct dnnl_order bf16_order;    /* of b's */
    bool bf16_keeps; /* A thread's room for b is for all of its depth, so that the next rectangle may find it there */
    cpu_product_function *product; /* NULL: BLAS */
    cpu_row_function *finish;      /* the last pass of linear; NULL: there is none */
    const struct operand *bias;    /* NULL: none */
    enum dtype finished;           /* of the last pass: integers have their own dtype, since relu is not modular */
    int64_t m, n, k;
    int64_t batches;
    int64_t grid_rows, grid_columns;
    bool direct;
    unsigned threads; /* that take part */
    double work;
    /* A thread's blocks in the workspace: where the block of b begins, the block of c, oneDNN's scratch memory, and the next thread's. */
    int64_t b_block, c_block, scratch, blocks;
    char *workspace;
    /* A rectangle is computed in steps of its depth, and a step of what goes to BLAS as it is in strips of rows, of which the last has the
     * rest. Threads share rectangles out, or runs of their strips. The more strips BLAS is given at once, the less often it packs the
     * same elements of b: so `together` of them, or `apart` while others have the device by turns. */
    int64_t depth, strip;
    int64_t steps, strips; /* of a rectangle */
    int64_t runs;          /* of each rectangle's strips */
    int64_t together, apart;
};

static inline int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t divided_up(int64_t n, int64_t by) {
    return n / by + (n % by != 0);
}

static inline int64_t operand_size(const struct operand *operand) {
    return (int64_t)dtype_size((enum dtype)operand->dtype);
}

static inline struct matrix matrix_transposed(const struct matrix *a) {
    return (struct matrix){a->data, a->columns, a->rows, a->column_stride, a->row_stride};
}

static inline struct matrix matrix_part(const struct matrix *a, int64_t row, int64_t rows, int64_t column,
                                        int64_t columns, int64_t size) {
    return (struct matrix){a->data + (row * a->row_stride + column * a->column_stride) * size, rows, columns,
                           a->row_stride, a->column_stride};
}

/* ---- BLAS as it is (matmul_blas.c) ---- */

/* Whether BLAS can read it. */
bool matrix_is_plain(const struct matrix *matrix);
/* c = a · b, or c += a · b. False: BLAS cannot read one of them. */
bool matrix_multiply(const struct blas *blas, enum dtype dtype, const struct matrix *a, const struct matrix *b,
                     const struct matrix *c, bool add);

/* ---- blocks of packed copies (matmul_block.c) ---- */

/* Converts a matrix to another dtype and place; reads along the axis whose elements are closer to each other. */
void matrix_convert(const struct cpu *cpu, enum dtype from, const struct matrix *x, enum dtype to,
                    const struct matrix *out);
/* The last pass of linear, in place. `c` has the result's columns from number `column` on; if the bias has to be converted, BLOCK_COLUMNS
 * of them at most. */
void matmul_finish(const struct matmul_job *job, const struct matrix *c, int64_t column);
/* The depth of blocks of operands whose product has so many rows and columns. That of bf16 follows from the product's depth alone, as sums are
 * rounded at each block's end. */
int64_t matmul_block_depth(const struct matmul_job *job, int64_t rows, int64_t columns);
/* Adds the products of depth `begin` to `end` - 1 to the block of `c`, which has the sum up to `begin`. `c` is a rectangle of a block's
 * size at most. `kept`: b is packed there, as the last rectangle's was the same (job->bf16_keeps). */
void matmul_multiply_packed(struct matmul_job *job, const struct matrix *a, const struct matrix *b,
                            const struct matrix *c, int64_t begin, int64_t end, bool kept, char *blocks);
/* Writes a block of sums, whose columns begin with number first_column, to c. */
void matmul_finish_packed(const struct matmul_job *job, const struct matrix *c, int64_t first_column, char *c_block);

/* ---- the plan (matmul_plan.c) ---- */

/* What is known before there is a plan. */
void matmul_init(struct matmul_job *job, struct cpu *cpu, const struct launch *launch);
/* Has bf16 multiplied as it is, if oneDNN can do so. To be called before matmul_plan(); the caller releases job->bf16. */
void matmul_find_bf16(struct matmul_job *job);
/* Decides how a product of depth 1 or more is computed; all of the job but its functions. */
void matmul_plan(struct matmul_job *job);
/* The matrix of an operand in batch number `batch`, counted over the axes before the last two. */
struct matrix matmul_batch(const struct operand *operand, int64_t batch);
