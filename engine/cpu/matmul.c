/* Matrix products. Each batch's result is cut into a grid of rectangles. The grid, and into which steps the depth is cut, follow from the shapes
 * alone, since libraries add up in another order at other edges: so results are the same at any number of threads. A rectangle of f32, f64 or complex numbers is "direct" if BLAS can
 * read its operands as they are. Any other rectangle is computed block by block from packed copies: matrices with odd strides or
 * with extents beyond an int; f16, bf16 and f8, in f32; integers and bool, in the device's own kernels; bf16 as it is by oneDNN, where the
 * processor has instructions for it.
 *
 * Linear is a product with one more pass over each piece, or over each block while it is still in f32, which adds the bias and applies the
 * activation. */
#include "engine/cpu/cpu.h"
#include "engine/cpu/dnnl.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK_ROWS = 256,
    BLOCK_COLUMNS = 512,
    BLOCK_DEPTH = 384,
    BLOCK_DEPTH_MOST = 4096, /* of blocks with few rows and columns */
    BF16_DEPTH = 512,        /* most of blocks of bf16 */
    BF16_SIDE = 8,           /* fewer rows or columns are not worth oneDNN's packing */
    DIRECT_SIDE = 2048,      /* most rows and columns of a rectangle that goes to BLAS as it is */
    DIRECT_GRID = 4,         /* so many such rectangles are enough, for threads also share their strips */
    PACKED_GRID = 8,         /* so many others are enough, which have no strips */
    /* The least depth of its pieces: on most processors OpenBLAS packs blocks that are about so deep. */
    DIRECT_DEPTH = 320,
    DIRECT_DEPTH_F64 = 256,
    /* A strip's rows are a multiple of this, and of what BLAS takes at a time: so sums come out the same however many strips it is given. */
    STRIP_ROWS = 48,
    /* Multiplications of a step of a strip, at least: of less, OpenBLAS computes in other ways, which differ in their sums. */
    STRIP_WORK = 1 << 23,
    INTEGER_DEPTH = 64,    /* of a piece in the device's own kernels */
    VECTOR_SIDE = 1 << 14, /* most columns or rows of a rectangle with one row or column */
    RECTANGLE_WORK = 1024, /* what a rectangle costs besides its arithmetic, as bytes of memory traffic */
};
/* Multiplications of a rectangle that is worth a place in the grid; of a step of a small one, about 1 ms; and of what is computed of a large
 * one between two looks whether to stop, while others have the device by turns: about 3 ms, of f64 half as many. */
static const double grid_work = 1 << 19;
static const int64_t step_work = INT64_C(1) << 25, turn_work = INT64_C(5) << 25;
/* For about so long BLAS computes between two looks where nobody else has the device. A product of 2048 takes 2 % longer with pieces of 12 ms,
 * and as long as in one call with pieces of 25 to 30. */
static const double piece_ns = 30e6;

struct matrix {
    char *data;
    int64_t rows, columns;
    int64_t row_stride, column_stride; /* in elements */
};

struct job {
    struct cpu_job base;
    const struct operand *a, *b, *c;
    enum dtype dtype, packed, summed; /* of the result, of packed blocks of the operands, and of blocks of sums */
    int64_t size, packed_size, summed_size;
    const struct dnnl_product *bf16; /* which multiplies blocks; NULL: they are not bf16 */
    int64_t bf16_rows, bf16_columns; /* of such a block, which ends in zeros where there are less */
    cpu_product_function *product;   /* NULL: BLAS */
    cpu_row_function *finish;        /* the last pass of linear; NULL: there is none */
    const struct operand *bias;      /* NULL: none */
    enum dtype finished;             /* of the last pass: integers have their own dtype, since relu is not modular */
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

/* ---- BLAS as it is ---- */

struct layout {
    CBLAS_TRANSPOSE transpose;
    int leading;
};

/* How to describe a matrix to BLAS; false: BLAS cannot read it. Strides of an axis with one element do not matter. */
static bool layout_find(const struct matrix *matrix, struct layout *layout) {
    int64_t row = matrix->row_stride, column = matrix->column_stride;
    if (matrix->rows > INT_MAX || matrix->columns > INT_MAX) {
        return false;
    }
    bool single_row = matrix->rows == 1, single_column = matrix->columns == 1;
    if ((column == 1 || single_column) && (single_row || (row >= matrix->columns && row <= INT_MAX))) {
        *layout = (struct layout){CblasNoTrans, (int)(single_row ? matrix->columns : row)};
        return true;
    }
    if ((row == 1 || single_row) && (single_column || (column >= matrix->rows && column <= INT_MAX))) {
        *layout = (struct layout){CblasTrans, (int)(single_column ? matrix->rows : column)};
        return true;
    }
    return false;
}

/* y = A · x, or y += A · x, where x and y have strides; A as stored is `transpose`d. */
static void blas_vector(const struct blas *blas, enum dtype dtype, const struct matrix *a, struct layout layout,
                        const char *x, int x_stride, char *y, int y_stride, bool add) {
    int rows = (int)(layout.transpose == CblasNoTrans ? a->rows : a->columns);
    int columns = (int)(layout.transpose == CblasNoTrans ? a->columns : a->rows);
    blas_multiply_vector(blas, &(struct blas_product){.dtype = dtype,
                                                      .add = add,
                                                      .a_transpose = layout.transpose,
                                                      .m = rows,
                                                      .n = columns,
                                                      .a_stride = layout.leading,
                                                      .b_stride = x_stride,
                                                      .c_stride = y_stride,
                                                      .a = a->data,
                                                      .b = x,
                                                      .c = y});
}

static bool vector_stride(int64_t stride, int64_t length, int *out) {
    *out = length == 1 ? 1 : (int)stride;
    return length == 1 || (stride > 0 && stride <= INT_MAX);
}

static struct matrix transposed(const struct matrix *a) {
    return (struct matrix){a->data, a->columns, a->rows, a->column_stride, a->row_stride};
}

/* A product with a single row or column, for which gemm is slow. False: it is no such product, or has odd strides. */
static bool blas_by_vector(const struct blas *blas, enum dtype dtype, const struct matrix *a, const struct matrix *b,
                           const struct matrix *c, bool add) {
    int x_stride, y_stride;
    struct layout layout;
    if (b->columns == 1 && layout_find(a, &layout) && vector_stride(b->row_stride, b->rows, &x_stride) &&
        vector_stride(c->row_stride, c->rows, &y_stride)) {
        blas_vector(blas, dtype, a, layout, b->data, x_stride, c->data, y_stride, add);
        return true;
    }
    struct matrix across = transposed(b);
    if (a->rows == 1 && layout_find(&across, &layout) && vector_stride(a->column_stride, a->columns, &x_stride)) {
        blas_vector(blas, dtype, &across, layout, a->data, x_stride, c->data, 1, add);
        return true;
    }
    return false;
}

static bool blas_multiply(const struct blas *blas, enum dtype dtype, const struct matrix *a, const struct matrix *b,
                          const struct matrix *c, bool add) {
    struct layout left, right;
    if (blas_by_vector(blas, dtype, a, b, c, add)) {
        return true;
    }
    if (!layout_find(a, &left) || !layout_find(b, &right) || c->row_stride > INT_MAX) {
        return false;
    }
    blas_multiply_matrices(blas, &(struct blas_product){.dtype = dtype,
                                                        .add = add,
                                                        .a_transpose = left.transpose,
                                                        .b_transpose = right.transpose,
                                                        .m = (int)a->rows,
                                                        .n = (int)b->columns,
                                                        .k = (int)a->columns,
                                                        .a_stride = left.leading,
                                                        .b_stride = right.leading,
                                                        .c_stride = (int)c->row_stride,
                                                        .a = a->data,
                                                        .b = b->data,
                                                        .c = c->data});
    return true;
}

/* ---- blocks ---- */

static struct matrix matrix_part(const struct matrix *a, int64_t row, int64_t rows, int64_t column, int64_t columns,
                                 int64_t size) {
    return (struct matrix){a->data + (row * a->row_stride + column * a->column_stride) * size, rows, columns,
                           a->row_stride, a->column_stride};
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t divided_up(int64_t n, int64_t by) {
    return n / by + (n % by != 0);
}

static int64_t magnitude(int64_t stride) {
    return stride < 0 ? -stride : stride;
}

/* Converts a matrix to another dtype and place; reads along the axis whose elements are closer to each other. */
static void convert(const struct cpu *cpu, enum dtype from, const struct matrix *x, enum dtype to,
                    const struct matrix *out) {
    cpu_row_function *row = cpu->kernels->cast[from][to];
    int64_t size = (int64_t)dtype_size(from), out_size = (int64_t)dtype_size(to);
    bool across = magnitude(x->row_stride) < magnitude(x->column_stride);
    struct matrix source = across ? transposed(x) : *x, target = across ? transposed(out) : *out;
    struct cpu_row run = {.n = source.columns, .stride = {target.column_stride, source.column_stride}};
    for (int64_t i = 0; i < source.rows; i++) {
        run.data[0] = target.data + i * target.row_stride * out_size;
        run.data[1] = source.data + i * source.row_stride * size;
        row(&run);
    }
}

static int64_t operand_size(const struct operand *operand) {
    return (int64_t)dtype_size((enum dtype)operand->dtype);
}

/* Packs `x`, a part of `operand`, with `stride` elements from row to row. */
static struct matrix pack(const struct job *job, const struct operand *operand, const struct matrix *x, char *to,
                          int64_t stride) {
    struct matrix packed = {to, x->rows, x->columns, stride, 1};
    convert(job->base.cpu, (enum dtype)operand->dtype, x, job->packed, &packed);
    return packed;
}

/* Adds the product of packed blocks to a packed c; `first`: c counts as zero. */
static void block_multiply(const struct job *job, const struct matrix *a, const struct matrix *b,
                           const struct matrix *c, bool first) {
    if (!job->product) {
        blas_multiply(&job->base.cpu->blas, job->packed, a, b, c, !first);
        return;
    }
    if (first) {
        memset(c->data, 0, (size_t)(c->rows * c->columns * job->summed_size));
    }
    job->product(a->rows, b->columns, a->columns, a->data, b->data, c->data, c->row_stride);
}

/* The bias from number `column` on, in the dtype of the last pass; if it has to be converted, in `room`. Without a bias, a number that
 * changes nothing, not even a zero's sign. */
static const void *finish_bias(const struct job *job, int64_t column, int64_t columns, char *room) {
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
    convert(job->base.cpu, dtype, &slice, job->finished, &target);
    return room;
}

/* The last pass of linear, in place. `c` has the result's columns from number `column` on; if the bias has to be converted, BLOCK_COLUMNS
 * of them at most. */
static void finish(const struct job *job, const struct matrix *c, int64_t column) {
    _Alignas(8) char room[BLOCK_COLUMNS * sizeof(double)];
    const void *bias = finish_bias(job, column, c->columns, room);
    struct cpu_row run = {.n = c->columns, .stride = {1, 1, job->bias != NULL}};
    for (int64_t i = 0; i < c->rows; i++) {
        run.data[0] = run.data[1] = c->data + i * c->row_stride * (int64_t)dtype_size(job->finished);
        run.data[2] = (char *)(uintptr_t)bias;
        job->finish(&run);
    }
}

/* The depth of blocks of operands whose product has so many rows and columns. That of bf16 follows from the product's depth alone, as sums are
 * rounded at each block's end. */
static int64_t block_depth(const struct job *job, int64_t rows, int64_t columns) {
    if (job->packed == DTYPE_BF16) {
        int64_t blocks = divided_up(job->k, BF16_DEPTH);
        return divided_up(divided_up(job->k, blocks), 32) * 32;
    }
    int64_t deepest = least((int64_t)BLOCK_ROWS * BLOCK_DEPTH / rows, (int64_t)BLOCK_DEPTH * BLOCK_COLUMNS / columns);
    return least(deepest, BLOCK_DEPTH_MOST);
}

/* The same of a block of bf16, filled up with zeros to the rows and columns that each has. */
static void pack_bf16(const struct job *job, const struct operand *operand, const struct matrix *x, char *to,
                      int64_t rows, int64_t columns) {
    if (x->rows < rows || x->columns < columns) {
        memset(to, 0, (size_t)(rows * columns * job->packed_size));
    }
    pack(job, operand, x, to, columns);
}

/* Adds the products of depth `begin` to `end` - 1 to the block of `c`, which has the sum up to `begin`. `c` is a rectangle of a block's
 * size at most. */
static void multiply_packed(struct job *job, const struct matrix *a, const struct matrix *b, const struct matrix *c,
                            int64_t begin, int64_t end, char *blocks) {
    struct matrix result = {blocks + job->c_block, c->rows, c->columns, c->columns, 1};
    int64_t deepest = block_depth(job, c->rows, c->columns);
    for (int64_t l = begin; l < end; l += deepest) {
        int64_t depth = least(deepest, end - l);
        struct matrix left = matrix_part(a, 0, c->rows, l, depth, operand_size(job->a));
        struct matrix right = matrix_part(b, l, depth, 0, c->columns, operand_size(job->b));
        if (job->bf16) {
            pack_bf16(job, job->a, &left, blocks, job->bf16_rows, deepest);
            pack_bf16(job, job->b, &right, blocks + job->b_block, deepest, job->bf16_columns);
            if (!dnnl_product_run(job->bf16, blocks, blocks + job->b_block, result.data, l > 0,
                                  blocks + job->scratch)) {
                cpu_job_fail(&job->base);
            }
            continue;
        }
        left = pack(job, job->a, &left, blocks, depth);
        right = pack(job, job->b, &right, blocks + job->b_block, c->columns);
        block_multiply(job, &left, &right, &result, l == 0);
    }
}

static void finish_packed(const struct job *job, const struct matrix *c, int64_t first_column, char *c_block) {
    struct matrix result = {c_block, c->rows, c->columns, job->bf16 ? job->bf16_columns : c->columns, 1};
    bool wide = job->finish && job->finished == job->summed;
    if (wide) {
        finish(job, &result, first_column);
    }
    convert(job->base.cpu, job->summed, &result, job->dtype, c);
    if (job->finish && !wide) {
        finish(job, c, first_column);
    }
}

/* ---- sharing out ---- */

/* The matrix of an operand in batch number `batch`, counted over the axes before the last two. */
static struct matrix batch_matrix(const struct operand *operand, int64_t batch) {
    int last = operand->rank - 1;
    int64_t offset = 0;
    for (int i = last - 2; i >= 0; i--) {
        offset += batch % operand->shape[i] * operand->strides[i];
        batch /= operand->shape[i];
    }
    return (struct matrix){(char *)operand->data + offset * operand_size(operand), operand->shape[last - 1],
                           operand->shape[last], operand->strides[last - 1], operand->strides[last]};
}

/* Where row or column number `at` of a grid begins. */
static int64_t job_edge(int64_t n, int64_t at, int64_t grid) {
    return n / grid * at + least(at, n % grid);
}

/* A piece of a run of strips, from *position on; moves that on. BLAS can read the operands. */
static void piece_direct(const struct job *job, const struct matrix *a, const struct matrix *b, const struct matrix *c,
                         int64_t first_column, int64_t run, int64_t *position) {
    int64_t first = job_edge(job->strips, run, job->runs), strips = job_edge(job->strips, run + 1, job->runs) - first;
    int64_t step = *position / strips, strip = *position % strips;
    int64_t taken = least(cpu_job_shares(&job->base) ? job->apart : job->together, strips - strip);
    int64_t at = step * job->depth, depth = step + 1 < job->steps ? job->depth : job->k - at;
    int64_t row = (first + strip) * job->strip;
    int64_t rows = first + strip + taken < job->strips ? taken * job->strip : c->rows - row;
    *position += taken;
    struct matrix left = matrix_part(a, row, rows, at, depth, job->size);
    struct matrix right = matrix_part(b, at, depth, 0, b->columns, job->size);
    struct matrix result = matrix_part(c, row, rows, 0, c->columns, job->size);
    blas_multiply(&job->base.cpu->blas, job->dtype, &left, &right, &result, at > 0);
    if (step + 1 == job->steps && job->finish) {
        finish(job, &result, first_column);
    }
}

/* The same of a rectangle that is packed. */
static void piece_packed(struct job *job, const struct matrix *a, const struct matrix *b, const struct matrix *c,
                         int64_t first_column, char *blocks, int64_t *position) {
    int64_t at = *position * job->depth;
    bool last = ++*position == job->steps;
    multiply_packed(job, a, b, c, at, last ? job->k : at + job->depth, blocks);
    if (last) {
        finish_packed(job, c, first_column, blocks + job->c_block);
    }
}

/* One run of a rectangle's strips, from *position on, which counts their steps. False: it is left there. */
static bool job_run(struct job *job, int64_t number, struct cpu_lane *lane, int64_t *position) {
    int64_t run = number % job->runs, rectangle = number / job->runs;
    int64_t column = rectangle % job->grid_columns, line = rectangle / job->grid_columns;
    int64_t row = line % job->grid_rows, batch = line / job->grid_rows;
    int64_t strips = job_edge(job->strips, run + 1, job->runs) - job_edge(job->strips, run, job->runs);
    int64_t i = job_edge(job->m, row, job->grid_rows), i_end = job_edge(job->m, row + 1, job->grid_rows);
    int64_t j = job_edge(job->n, column, job->grid_columns), j_end = job_edge(job->n, column + 1, job->grid_columns);
    struct matrix a = batch_matrix(job->a, batch), b = batch_matrix(job->b, batch), c = batch_matrix(job->c, batch);
    c.row_stride = job->n; /* of one row the stride may be anything */
    c.column_stride = 1;
    a = matrix_part(&a, i, i_end - i, 0, job->k, operand_size(job->a));
    b = matrix_part(&b, 0, job->k, j, j_end - j, operand_size(job->b));
    c = matrix_part(&c, i, i_end - i, j, j_end - j, job->size);
    for (int64_t end = job->steps * strips; *position < end;) {
        if (job->direct) {
            piece_direct(job, &a, &b, &c, j, run, position);
        } else {
            piece_packed(job, &a, &b, &c, j, job->workspace + lane->number * job->blocks, position);
        }
        if (*position < end && cpu_job_stops(&job->base)) {
            return false;
        }
    }
    *position = 0;
    return true;
}

/* The runs of a part. lane->position counts the steps of the strips of all of them. */
static bool job_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    int64_t runs = job->batches * job->grid_rows * job->grid_columns * job->runs;
    int64_t begin = cpu_part_begin(runs, lane->part, base->parts);
    int64_t end = cpu_part_begin(runs, lane->part + 1, base->parts);
    int64_t whole = job->steps * divided_up(job->strips, job->runs), position = lane->position % whole;
    for (int64_t i = begin + lane->position / whole; i < end; i++) {
        if (!job_run(job, i, lane, &position)) {
            lane->position = (i - begin) * whole + position;
            return false;
        }
    }
    return true;
}

static double grid_rectangles(const struct job *job) {
    return (double)job->batches * (double)job->grid_rows * (double)job->grid_columns;
}

/* As few rectangles as have at most so many rows and columns; then more, until there are `enough`, but not so many that they are less than
 * side_least wide and high or are not worth it. As square as possible, since each operand is packed once for each row or column of the grid. */
static void job_grid(struct job *job, int64_t height_most, int64_t width_most, int64_t side_least, double enough) {
    job->grid_rows = divided_up(job->m, height_most);
    job->grid_columns = divided_up(job->n, width_most);
    while (grid_rectangles(job) < enough) {
        int64_t height = job->m / job->grid_rows, width = job->n / job->grid_columns;
        if ((height < 2 * side_least && width < 2 * side_least) ||
            (double)height * (double)width * (double)job->k < 2 * grid_work) {
            return;
        }
        *(height >= width ? &job->grid_rows : &job->grid_columns) *= 2;
    }
}

/* Whether so many runs leave some threads idle for more than a tenth of the time. */
static bool runs_uneven(double runs, unsigned threads) {
    return runs < 0.9 * threads * ceil(runs / threads);
}

/* As few runs of strips as give each thread its share. */
static void job_runs(struct job *job) {
    double rectangles = grid_rectangles(job);
    while (job->runs < job->strips && runs_uneven(rectangles * (double)job->runs, job->threads)) {
        job->runs++;
    }
}

/* `bf16`: bf16 is multiplied as it is. */
static void job_type(struct job *job, bool bf16) {
    static const struct {
        enum dtype packed;
        size_t product; /* offset in struct cpu_kernels; 0: BLAS */
    } types[DTYPE_COUNT] = {
        [DTYPE_BOOL] = {DTYPE_I32, offsetof(struct cpu_kernels, product_bool)},
        [DTYPE_U8] = {DTYPE_I32, offsetof(struct cpu_kernels, product_u32)},
        [DTYPE_I8] = {DTYPE_I32, offsetof(struct cpu_kernels, product_u32)},
        [DTYPE_I16] = {DTYPE_I32, offsetof(struct cpu_kernels, product_u32)},
        [DTYPE_I32] = {DTYPE_I32, offsetof(struct cpu_kernels, product_u32)},
        [DTYPE_I64] = {DTYPE_I64, offsetof(struct cpu_kernels, product_u64)},
        [DTYPE_U16] = {DTYPE_I32, offsetof(struct cpu_kernels, product_u32)},
        [DTYPE_U32] = {DTYPE_I32, offsetof(struct cpu_kernels, product_u32)},
        [DTYPE_U64] = {DTYPE_I64, offsetof(struct cpu_kernels, product_u64)},
        [DTYPE_F16] = {DTYPE_F32, 0},
        [DTYPE_BF16] = {DTYPE_F32, 0},
        [DTYPE_F32] = {DTYPE_F32, 0},
        [DTYPE_F64] = {DTYPE_F64, 0},
        [DTYPE_C64] = {DTYPE_C64, 0},
        [DTYPE_C128] = {DTYPE_C128, 0},
    };
    size_t offset = types[job->dtype].product;
    job->packed = types[job->dtype].packed;
    job->summed = job->packed;
    if (job->dtype == DTYPE_BF16 && job->a->dtype == DTYPE_BF16 && job->b->dtype == DTYPE_BF16 &&
        least(job->m, least(job->n, job->k)) >= BF16_SIDE && bf16) {
        job->packed = DTYPE_BF16;
    }
    job->packed_size = (int64_t)dtype_size(job->packed);
    job->summed_size = (int64_t)dtype_size(job->summed);
    if (offset) {
        memcpy(&job->product, (const char *)job->base.cpu->kernels + offset, sizeof job->product);
    }
}

static void job_linear(struct job *job, const struct launch *launch) {
    bool integers = dtype_kind(job->dtype) == DTYPE_KIND_INT;
    job->bias = launch->n_inputs == 3 ? &launch->inputs[2] : NULL;
    job->finished = integers ? job->dtype : job->summed;
    struct linear_attributes attributes;
    linear_attributes_read(&launch->attributes, &attributes);
    if (job->bias || attributes.activation != OP_ACTIVATION_NONE) {
        job->finish = job->base.cpu->kernels->linear[attributes.activation][job->finished];
    }
}

static void job_init(struct job *job, struct cpu *cpu, const struct launch *launch) {
    const struct operand *a = &launch->inputs[0], *b = &launch->inputs[1], *c = &launch->output;
    *job = (struct job){.base.cpu = cpu, .a = a, .b = b, .c = c, .dtype = (enum dtype)c->dtype, .batches = 1};
    job->size = (int64_t)dtype_size(job->dtype);
    job->m = a->shape[a->rank - 2];
    job->k = a->shape[a->rank - 1];
    job->n = b->shape[b->rank - 1];
    for (int i = 0; i < c->rank - 2; i++) {
        job->batches *= c->shape[i];
    }
    job_type(job, false);
    if (launch->opcode == OP_LINEAR) {
        job_linear(job, launch);
    }
}

/* A product of depth 0: zeros, and of linear activation(bias) in each row. */
static bool fill_part(struct cpu_job *base, struct cpu_lane *lane) {
    _Alignas(8) char block[BLOCK_COLUMNS * sizeof(double)];
    struct job *job = (struct job *)base;
    int64_t columns = (job->n + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS, blocks = job->batches * job->m * columns;
    int64_t end = cpu_part_begin(blocks, lane->part + 1, base->parts);
    for (int64_t i = cpu_part_begin(blocks, lane->part, base->parts); i < end; i++) {
        int64_t row = i / columns, j = i % columns * BLOCK_COLUMNS, width = least(BLOCK_COLUMNS, job->n - j);
        struct matrix made = {block, 1, width, width, 1};
        struct matrix target = {(char *)job->c->data + (row * job->n + j) * job->size, 1, width, width, 1};
        memset(block, 0, sizeof block);
        if (job->finish) {
            finish(job, &made, j);
            convert(job->base.cpu, job->finished, &made, job->dtype, &target);
        } else {
            memset(target.data, 0, (size_t)(width * job->size));
        }
    }
    return true;
}

static void job_fill(struct job *job, struct cpu_job **begun) {
    int64_t blocks = job->batches * job->m * ((job->n + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS);
    double work = (double)blocks * (BLOCK_COLUMNS * 16 + 256);
    job->base.run = fill_part;
    job->base.parts = cpu_parts(job->base.cpu, work);
    job->base.parts = blocks < job->base.parts ? (unsigned)blocks : job->base.parts;
    cpu_job_begin(&job->base, sizeof *job, work, begun);
}

static bool job_is_direct(const struct job *job) {
    struct matrix a = batch_matrix(job->a, 0), b = batch_matrix(job->b, 0);
    struct layout layout;
    return job->packed != DTYPE_BF16 && job->packed == (enum dtype)job->a->dtype && !job->product &&
           layout_find(&a, &layout) && layout_find(&b, &layout) && job->n <= INT_MAX;
}

static int64_t rounded(int64_t bytes) {
    return (bytes + 63) & ~INT64_C(63);
}

/* Sizes of the blocks of rectangles that have so many rows and columns, or one less: these may have deeper blocks. */
static void job_blocks(struct job *job, int64_t height, int64_t width) {
    int64_t depth = least(job->k, block_depth(job, height > 1 ? height - 1 : 1, width > 1 ? width - 1 : 1));
    int64_t a = least((int64_t)BLOCK_ROWS * BLOCK_DEPTH, height * depth);
    int64_t b = least((int64_t)BLOCK_DEPTH * BLOCK_COLUMNS, depth * width);
    if (job->packed == DTYPE_BF16) {
        depth = block_depth(job, height, width);
        a = height * depth;
        b = depth * width;
    }
    job->b_block = rounded(a * job->packed_size);
    job->c_block = job->b_block + rounded(b * job->packed_size);
    job->blocks = job->c_block + rounded(height * width * job->summed_size);
}

/* How many times as long as a product of f32 one takes. */
static int64_t dtype_slow(enum dtype dtype) {
    return dtype == DTYPE_F64 ? 2 : dtype == DTYPE_C64 ? 4 : dtype == DTYPE_C128 ? 8 : 1;
}

/* So many strips at once as take `work`, of a rectangle's in equal pieces. */
static int64_t strips_of(const struct job *job, int64_t width, double work) {
    double strips = work / ((double)job->strip * (double)width * (double)job->depth);
    return strips < 2 ? 1 : divided_up(job->strips, divided_up(job->strips, (int64_t)strips));
}

static void job_strips(struct job *job, int64_t width) {
    int64_t height = job->m / job->grid_rows, last = job->k - (job->steps - 1) * job->depth;
    int64_t work = width * (job->steps > 1 ? least(job->depth, last) : last);
    job->strip = divided_up(divided_up(STRIP_WORK, work), STRIP_ROWS) * STRIP_ROWS;
    job->strips = height < job->strip ? 1 : height / job->strip;
    job->together = strips_of(job, width, job->base.cpu->rates.flop[job->dtype] / 2 * piece_ns);
    job->apart = strips_of(job, width, (double)turn_work / (double)dtype_slow(job->dtype));
}

/* Rectangles, and pieces of them. */
static void job_divide(struct job *job) {
    bool vector = job->m == 1 || job->n == 1;
    int64_t side = vector ? VECTOR_SIDE : DIRECT_SIDE;
    if (job->direct) {
        job_grid(job, side, side, 16, vector ? PACKED_GRID : DIRECT_GRID);
    } else {
        job_grid(job, BLOCK_ROWS, BLOCK_COLUMNS, 128, PACKED_GRID);
    }
    int64_t height = divided_up(job->m, job->grid_rows), width = divided_up(job->n, job->grid_columns);
    int64_t direct_depth = job->size >= 8 ? DIRECT_DEPTH_F64 : DIRECT_DEPTH;
    int64_t least_depth = job->direct ? direct_depth : job->product ? INTEGER_DEPTH : block_depth(job, height, width);
    job->depth = step_work / (height * width * (job->product ? 8 : 1) + (height + width) * 16);
    job->depth = job->depth > least_depth ? job->depth / least_depth * least_depth : least_depth; /* whole blocks */
    job->steps = job->k / job->depth + (job->k % job->depth > job->depth / 2); /* a small rest goes with the last one */
    job->steps = job->steps > 0 ? job->steps : 1;
    job->strips = job->runs = job->together = job->apart = 1;
    job->strip = height;
    if (job->direct && !vector) {
        job_strips(job, width);
    }
    if (!job->direct) {
        job_blocks(job, height, width);
    }
}

/* The cost, as bytes of memory traffic: some 4 multiplications take as long as moving a byte, and each operand is read. In double, since
 * it may be more than 2^63. */
static double job_work(const struct job *job) {
    double m = (double)job->m, n = (double)job->n, k = (double)job->k;
    double packing = job->direct ? 1 : 12; /* by the element */
    double read = (m * k + k * n) * packing + m * n * packing;
    return (double)job->batches * (m * n * k * (job->product ? 1 : 0.25) + read + RECTANGLE_WORK);
}

/* Has bf16 multiplied as it is, if oneDNN can do so. To be called before job_plan(); the caller calls job_done(). */
static void job_find_bf16(struct job *job) {
    job_type(job, true);
    if (job->packed != DTYPE_BF16) {
        return;
    }
    job_divide(job);
    job->bf16_rows = divided_up(job->m, job->grid_rows);
    job->bf16_columns = divided_up(job->n, job->grid_columns);
    job->bf16 = dnnl_product_find(job->base.cpu->dnnl, job->bf16_rows, job->bf16_columns, block_depth(job, 1, 1));
    if (!job->bf16) {
        job_type(job, false);
    }
}

static void job_done(struct cpu_job *base) {
    struct job *job = (struct job *)base;
    dnnl_product_release(job->bf16);
    job->bf16 = NULL;
}

/* Decides how a product of depth 1 or more is computed. */
static void job_plan(struct job *job) {
    job->direct = job_is_direct(job);
    job->work = job_work(job);
    unsigned parts = cpu_parts(job->base.cpu, job->work), most = job->base.cpu->team.threads;
    job->threads = parts < most ? parts : most;
    job_divide(job);
    job_runs(job);
    if (job->bf16) {
        job->scratch = job->blocks;
        job->blocks += (int64_t)dnnl_product_scratch_bytes(job->bf16);
    }
    double runs = grid_rectangles(job) * (double)job->runs;
    job->base.run = job_part;
    job->base.done = job_done;
    job->base.parts = runs < parts ? (unsigned)runs : parts;
    job->threads = job->threads < job->base.parts ? job->threads : job->base.parts;
    job->base.lanes_most = job->direct ? 0 : job->threads;
}

static int matmul_accepts(struct device *device, const struct launch *launch, struct fault *fault) {
    struct job job;
    job_init(&job, (struct cpu *)device, launch);
    if (job.packed && job.base.cpu->kernels->cast[job.a->dtype][job.packed] &&
        job.base.cpu->kernels->cast[job.b->dtype][job.packed]) {
        return STATUS_OK;
    }
    return fault_set(fault, STATUS_UNSUPPORTED, "a cpu device does not multiply %s by %s",
                     dtype_name((enum dtype)job.a->dtype), dtype_name((enum dtype)job.b->dtype));
}

static uint64_t matmul_workspace(struct device *device, const struct launch *launch) {
    struct job job;
    job_init(&job, (struct cpu *)device, launch);
    if (job.k == 0) {
        return 0;
    }
    job_plan(&job);
    uint64_t bytes = (uint64_t)job.blocks * job.threads, bf16 = 0;
    job_find_bf16(&job);
    if (job.bf16) {
        job_plan(&job);
        bf16 = (uint64_t)job.blocks * job.threads;
        job_done(&job.base);
    }
    return bytes > bf16 ? bytes : bf16; /* when the launch runs, oneDNN may have no memory any more */
}

static int matmul_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    struct job job;
    (void)fault;
    job_init(&job, cpu, launch);
    if (job.k == 0) {
        job_fill(&job, begun);
        return STATUS_OK;
    }
    job_find_bf16(&job);
    job_plan(&job);
    job.workspace = launch->workspace;
    if (cpu_job_keep(&job.base, sizeof job, job.work, begun)) {
        if (*begun == &cpu->waiting) {
            job_done(&job.base);
        }
        return STATUS_OK;
    }
    job.base.parts =
        job.base.parts < job.threads ? job.base.parts : job.threads; /* each part has the blocks of one thread */
    cpu_job_run(&job.base);
    return STATUS_OK;
}

int cpu_needs_blas(struct cpu *cpu, struct fault *fault) {
    if (cpu->blas.library) {
        return STATUS_OK;
    }
    int code = blas_load(&cpu->blas, fault);
    if (code == STATUS_OK) {
        cpu_rates_of_blas(cpu);
    }
    return code;
}

void cpu_seeks_dnnl(struct cpu *cpu) {
    if (!cpu->dnnl_sought) {
        cpu->dnnl_sought = true;
        cpu->dnnl = dnnl_load();
    }
}

/* Products of floats and complex numbers need OpenBLAS. */
static int matmul_needs(struct device *device, enum dtype dtype, struct fault *fault) {
    if (dtype == DTYPE_BF16) {
        cpu_seeks_dnnl((struct cpu *)device);
    }
    return dtype_kind(dtype) >= DTYPE_KIND_FLOAT ? cpu_needs_blas((struct cpu *)device, fault) : STATUS_OK;
}

#define PRODUCT                                                                                                        \
    { {.needs = matmul_needs, .accepts = matmul_accepts, .workspace = matmul_workspace}, matmul_run }
const struct cpu_kernel cpu_kernel_matmul = PRODUCT;
const struct cpu_kernel cpu_kernel_linear = PRODUCT;
