/* Products of what BLAS cannot read as it is, block by block from packed copies; and the last pass of linear. */
#include <string.h>

#include "engine/cpu/matmul.h"

enum {
    BLOCK_DEPTH_MOST = 4096, /* of blocks with few rows and columns */
    BF16_DEPTH = 512,        /* most of blocks of bf16 */
};

static int64_t magnitude(int64_t stride) {
    return stride < 0 ? -stride : stride;
}

/* Transposes a block of 8 rows of 8 elements of 2 bytes: three times the vectors of the first half are interleaved with those of the second
 * half, and then vector i has what was element i of each. */
static inline void turn_8(const char *x, int64_t x_stride, char *out, int64_t out_stride) {
    typedef uint16_t vector __attribute__((vector_size(16), aligned(2), may_alias));
    vector a[8], b[8];
    _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) {
        a[i] = *(const vector *)(const void *)(x + i * x_stride);
    }
    _Pragma("GCC unroll 3") for (int step = 0; step < 3; step++) {
        _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++) {
            b[2 * i] = __builtin_shufflevector(a[i], a[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
            b[2 * i + 1] = __builtin_shufflevector(a[i], a[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
        }
        _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) {
            a[i] = b[i];
        }
    }
    _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) {
        *(vector *)(void *)(out + i * out_stride) = a[i];
    }
}

/* Writes rows of x of 2-byte elements to columns of out. Some columns of x at a time, so that the lines of out that they are written to stay in
 * the first-level cache until all rows have added to them. */
static void turn_halves(const struct matrix *x, const struct matrix *out) {
    enum { SIDE = 8, TILE = 32, BYTES = 2 };
    const int64_t x_stride = x->row_stride * BYTES, out_stride = out->column_stride * BYTES;
    for (int64_t begin = 0; begin < x->columns; begin += TILE) {
        const int64_t end = least(begin + TILE, x->columns);
        for (int64_t i = 0; i < x->rows; i += SIDE) {
            const bool whole = i + SIDE <= x->rows;
            int64_t k = begin;
            for (; whole && k + SIDE <= end; k += SIDE) {
                turn_8(x->data + i * x_stride + k * BYTES, x_stride, out->data + k * out_stride + i * BYTES,
                       out_stride);
            }
            for (; k < end; k++) {
                for (int64_t row = i; row < least(i + SIDE, x->rows); row++) {
                    memcpy(out->data + k * out_stride + row * BYTES, x->data + row * x_stride + k * BYTES, BYTES);
                }
            }
        }
    }
}

void matrix_convert(const struct cpu *cpu, enum dtype from, const struct matrix *x, enum dtype to,
                    const struct matrix *out) {
    cpu_row_function *row = cpu->kernels->cast[from][to];
    int64_t size = (int64_t)dtype_size(from), out_size = (int64_t)dtype_size(to);
    bool across = magnitude(x->row_stride) < magnitude(x->column_stride);
    struct matrix source = across ? matrix_transposed(x) : *x, target = across ? matrix_transposed(out) : *out;
    if (from == to && size == 2 && source.column_stride == 1 && target.row_stride == 1 && target.column_stride != 1) {
        turn_halves(&source, &target);
        return;
    }
    struct cpu_row run = {.n = source.columns, .stride = {target.column_stride, source.column_stride}};
    for (int64_t i = 0; i < source.rows; i++) {
        run.data[0] = target.data + i * target.row_stride * out_size;
        run.data[1] = source.data + i * source.row_stride * size;
        row(&run);
    }
}

/* Packs `x`, a part of `operand`, with `stride` elements from row to row. */
static struct matrix pack(const struct matmul_job *job, const struct operand *operand, const struct matrix *x, char *to,
                          int64_t stride) {
    struct matrix packed = {to, x->rows, x->columns, stride, 1};
    matrix_convert(job->base.cpu, (enum dtype)operand->dtype, x, job->packed, &packed);
    return packed;
}

/* Adds the product of packed blocks to a packed c; `first`: c counts as zero. */
static void block_multiply(const struct matmul_job *job, const struct matrix *a, const struct matrix *b,
                           const struct matrix *c, bool first) {
    if (!job->product) {
        matrix_multiply(&job->base.cpu->blas, job->packed, a, b, c, !first);
        return;
    }
    if (first) {
        memset(c->data, 0, (size_t)(c->rows * c->columns * job->summed_size));
    }
    job->product(a->rows, b->columns, a->columns, a->data, b->data, c->data, c->row_stride);
}

/* The bias from number `column` on, in the dtype of the last pass; if it has to be converted, in `room`. Without a bias, a number that
 * changes nothing, not even a zero's sign. */
static const void *finish_bias(const struct matmul_job *job, int64_t column, int64_t columns, char *room) {
    static const float none_f32 = -0.0F;
    static const double none_f64 = -0.0;
    static const int64_t none_integer = 0;
    if (!job->bias) {
        return job->finished == DTYPE_F32   ? (const void *)&none_f32
               : job->finished == DTYPE_F64 ? (const void *)&none_f64
                                            : &none_integer;
    }
    enum dtype dtype = (enum dtype)job->bias->dtype;
    char *data = (char *)job->bias->data + column * (int64_t)dtype_size(dtype);
    if (dtype == job->finished) {
        return data;
    }
    struct matrix slice = {data, 1, columns, columns, 1}, target = {room, 1, columns, columns, 1};
    matrix_convert(job->base.cpu, dtype, &slice, job->finished, &target);
    return room;
}

void matmul_finish(const struct matmul_job *job, const struct matrix *c, int64_t column) {
    _Alignas(8) char room[BLOCK_COLUMNS * sizeof(double)];
    const void *bias = finish_bias(job, column, c->columns, room);
    struct cpu_row run = {.n = c->columns, .stride = {1, 1, job->bias != NULL}};
    for (int64_t i = 0; i < c->rows; i++) {
        run.data[0] = run.data[1] = c->data + i * c->row_stride * (int64_t)dtype_size(job->finished);
        run.data[2] = (char *)(uintptr_t)bias;
        job->finish(&run);
    }
}

int64_t matmul_block_depth(const struct matmul_job *job, int64_t rows, int64_t columns) {
    if (job->packed == DTYPE_BF16) {
        int64_t blocks = divided_up(job->k, BF16_DEPTH);
        return divided_up(divided_up(job->k, blocks), 32) * 32;
    }
    int64_t deepest = least((int64_t)BLOCK_ROWS * BLOCK_DEPTH / rows, (int64_t)BLOCK_DEPTH * BLOCK_COLUMNS / columns);
    return least(deepest, BLOCK_DEPTH_MOST);
}

/* The same of a block of bf16, filled up with zeros to the rows and columns that each has. */
static void pack_bf16(const struct matmul_job *job, const struct operand *operand, const struct matrix *x, char *to,
                      int64_t rows, int64_t columns) {
    if (x->rows < rows || x->columns < columns) {
        memset(to, 0, (size_t)(rows * columns * job->packed_size));
    }
    pack(job, operand, x, to, columns);
}

/* Whether the matrix of bf16 is what packing it would make of it. */
static bool matrix_is_block(const struct matrix *x, int64_t rows, int64_t columns) {
    return x->rows == rows && x->columns == columns && x->row_stride == columns && x->column_stride == 1;
}

/* A block's rows by twos: of each two, the elements of a column lie side by side. `columns` is a multiple of 8. */
static void pair_rows(const char *x, int64_t stride, int64_t columns, char *out) {
    typedef uint16_t vector __attribute__((vector_size(16), aligned(2), may_alias));
    for (int64_t i = 0; i < DNNL_PAIRED; i += 2) {
        const vector *even = (const void *)(x + i * stride), *odd = (const void *)(x + (i + 1) * stride);
        vector *pairs = (void *)(out + i * columns * (int64_t)sizeof(uint16_t));
        for (int64_t k = 0; k < columns / 8; k++) {
            pairs[2 * k] = __builtin_shufflevector(even[k], odd[k], 0, 8, 1, 9, 2, 10, 3, 11);
            pairs[2 * k + 1] = __builtin_shufflevector(even[k], odd[k], 4, 12, 5, 13, 6, 14, 7, 15);
        }
    }
}

/* Packs a part of b in the blocks that oneDNN wants, which are filled up with zeros. */
static void pack_paired(const struct matmul_job *job, const struct matrix *x, char *to, int64_t depth) {
    enum { SIZE = sizeof(uint16_t) };
    _Alignas(64) char room[DNNL_PAIRED * DNNL_PAIRED_COLUMNS * SIZE];
    const struct dnnl_order *order = &job->bf16_order;
    if (x->rows < depth || x->columns < job->bf16_columns) {
        memset(to, 0, order->bytes);
    }
    for (int64_t column = 0; column < x->columns; column += order->columns) {
        int64_t columns = least(order->columns, x->columns - column);
        for (int64_t row = 0; row < x->rows; row += DNNL_PAIRED) {
            int64_t rows = least(DNNL_PAIRED, x->rows - row);
            bool whole = rows == DNNL_PAIRED && columns == order->columns;
            struct matrix part = matrix_part(x, row, rows, column, columns, SIZE);
            char *block = to + (row / DNNL_PAIRED * order->down + column / order->columns * order->across) * SIZE;
            if (whole && part.column_stride == 1) {
                pair_rows(part.data, part.row_stride * SIZE, order->columns, block);
                continue;
            }
            struct matrix packed = {room, rows, columns, order->columns, 1};
            if (!whole) {
                memset(room, 0, sizeof room);
            }
            matrix_convert(job->base.cpu, DTYPE_BF16, &part, DTYPE_BF16, &packed);
            pair_rows(room, order->columns * SIZE, order->columns, block);
        }
    }
}

void matmul_multiply_packed(struct matmul_job *job, const struct matrix *a, const struct matrix *b,
                            const struct matrix *c, int64_t begin, int64_t end, bool kept, char *blocks) {
    const struct dnnl_order *order = &job->bf16_order;
    struct matrix result = {blocks + job->c_block, c->rows, c->columns, c->columns, 1};
    int64_t deepest = matmul_block_depth(job, c->rows, c->columns);
    for (int64_t l = begin; l < end; l += deepest) {
        int64_t depth = least(deepest, end - l);
        struct matrix left = matrix_part(a, 0, c->rows, l, depth, operand_size(job->a));
        struct matrix right = matrix_part(b, l, depth, 0, c->columns, operand_size(job->b));
        if (job->bf16) {
            char *packed = blocks + job->b_block + (job->bf16_keeps ? l / deepest * (int64_t)order->bytes : 0);
            const char *rows = blocks;
            if (matrix_is_block(&left, job->bf16_rows, deepest)) {
                rows = left.data;
            } else {
                pack_bf16(job, job->a, &left, blocks, job->bf16_rows, deepest);
            }
            if (!kept && order->columns) {
                pack_paired(job, &right, packed, deepest);
            } else if (!kept) {
                pack_bf16(job, job->b, &right, packed, deepest, job->bf16_columns);
            }
            if (!dnnl_product_run(job->bf16, rows, packed, result.data, l > 0, blocks + job->scratch)) {
                cpu_job_fail(&job->base);
            }
            continue;
        }
        left = pack(job, job->a, &left, blocks, depth);
        right = pack(job, job->b, &right, blocks + job->b_block, c->columns);
        block_multiply(job, &left, &right, &result, l == 0);
    }
}

void matmul_finish_packed(const struct matmul_job *job, const struct matrix *c, int64_t first_column, char *c_block) {
    struct matrix result = {c_block, c->rows, c->columns, job->bf16 ? job->bf16_columns : c->columns, 1};
    bool wide = job->finish && job->finished == job->summed;
    if (wide) {
        matmul_finish(job, &result, first_column);
    }
    matrix_convert(job->base.cpu, job->summed, &result, job->dtype, c);
    if (job->finish && !wide) {
        matmul_finish(job, c, first_column);
    }
}
