/* The operands of a matrix product, as cublasLt takes them. */
#include <string.h>

#include "engine/cuda/matmul_impl.h"

static int64_t magnitude(int64_t stride) {
    return stride < 0 ? -stride : stride;
}

void side_init(struct side *side, const struct operand *x, int64_t rows, int64_t columns) {
    *side = (struct side){.data = x->data,
                          .dtype = (enum dtype)x->dtype,
                          .rows = rows,
                          .columns = columns,
                          .row = x->strides[x->rank - 2],
                          .column = x->strides[x->rank - 1]};
    for (int i = 0; i < x->rank - 2; i++)
        side->batch[i] = x->strides[i];
}

/* Whether cublasLt can read the matrix as it is. The stride of an axis of one element does not matter. */
static bool side_find(struct side *side, enum side_order order) {
    bool single_row = side->rows == 1, single_column = side->columns == 1;
    if (order != SIDE_ALONG_COLUMNS && (side->column == 1 || single_column) &&
        (single_row || side->row >= side->columns)) {
        side->leading = single_row ? side->columns : side->row;
        side->along_columns = false;
        return true;
    }
    if (order != SIDE_ALONG_ROWS && (side->row == 1 || single_row) && (single_column || side->column >= side->rows)) {
        side->leading = single_column ? side->rows : side->column;
        side->along_columns = true;
        return true;
    }
    return false;
}

/* fp8 matrices must begin, and their rows must, at multiples of 16 bytes. */
static bool side_aligned(const struct side *side, const struct product *product) {
    uint64_t bits = (uint64_t)(uintptr_t)side->data | (uint64_t)(side->leading * product_size(side->dtype));
    for (int i = 0; i < product->batch_rank; i++)
        bits |= (uint64_t)side->batch[i] * (uint64_t)product_size(side->dtype);
    return bits % PACK_ALIGNMENT == 0;
}

void side_choose(struct side *side, const struct product *product, enum dtype given, enum side_order order, bool pack) {
    side->given = given;
    side->filled = (struct side_part){0};
    side->packed = pack || given != side->dtype || !side_find(side, order) ||
                   (product_size(given) == 1 && !side_aligned(side, product));
    if (side->packed) /* in the order in which it is read fastest */
        side->along_columns =
            order == SIDE_ANY ? magnitude(side->row) < magnitude(side->column) : order == SIDE_ALONG_COLUMNS;
}

/* ---- packed parts: each row, or column, lies without gaps and is filled up to a multiple of 16 bytes ---- */

static int64_t part_leading(const struct side *side, int64_t rows, int64_t columns) {
    int64_t inner = side->along_columns ? rows : columns, step = PACK_ALIGNMENT / product_size(side->given);
    return (inner + step - 1) / step * step;
}

static int64_t part_batch(const struct side *side, int64_t rows, int64_t columns) {
    return part_leading(side, rows, columns) * (side->along_columns ? columns : rows);
}

int64_t side_bytes(const struct side *side, const struct product *product, int64_t rows, int64_t columns,
                   int64_t batches) {
    int64_t bytes = part_leading(side, rows, columns), outer = side->along_columns ? columns : rows;
    if (!side->packed)
        return 0;
    if (__builtin_mul_overflow(bytes, outer, &bytes) ||
        __builtin_mul_overflow(bytes, product_size(side->given), &bytes) ||
        __builtin_mul_overflow(bytes, product_stride(product, side->batch) ? batches : 1, &bytes) ||
        __builtin_add_overflow(bytes, ALIGNMENT - 1, &bytes))
        return INT64_MAX;
    return bytes / ALIGNMENT * ALIGNMENT;
}

struct blas_matrix side_matrix(const struct side *side, const struct product *product, const struct side_part *part) {
    int64_t stride = product_stride(product, side->batch), leading = side->leading;
    uint64_t bits = 0;
    if (side->packed) {
        leading = part_leading(side, part->rows, part->columns);
        stride = stride ? part_batch(side, part->rows, part->columns) : 0;
    } else {
        bits = (uint64_t)(uintptr_t)part->data;
    }
    if (part->batches == 1)
        stride = 0;
    bits |= (uint64_t)(stride * product_size(side->given));
    return (struct blas_matrix){.leading = leading,
                                .batch_stride = stride,
                                .dtype = (uint16_t)side->given,
                                .transposed = side->along_columns,
                                .alignment = blas_alignment(bits)};
}

/* The axes of a copy; axes that can be merged are. */
struct side_copy {
    int rank;
    int64_t shape[3], from[3], to[3];
};

/* Adds an axis as the new innermost one. */
static void copy_axis(struct side_copy *copy, int64_t extent, int64_t from, int64_t to) {
    int last = copy->rank - 1;
    if (extent == 1)
        return;
    if (last >= 0 && copy->from[last] == from * extent && copy->to[last] == to * extent) {
        copy->shape[last] *= extent;
        copy->from[last] = from;
        copy->to[last] = to;
        return;
    }
    copy->shape[copy->rank] = extent;
    copy->from[copy->rank] = from;
    copy->to[copy->rank++] = to;
}

static struct side_copy copy_make(const struct side *side, const struct product *product,
                                  const struct side_part *part) {
    struct side_copy copy = {.rank = 0};
    int64_t stride = product_stride(product, side->batch), leading = part_leading(side, part->rows, part->columns);
    copy_axis(&copy, stride ? part->batches : 1, stride, part_batch(side, part->rows, part->columns));
    if (side->along_columns) {
        copy_axis(&copy, part->columns, side->column, leading);
        copy_axis(&copy, part->rows, side->row, 1);
    } else {
        copy_axis(&copy, part->rows, side->row, leading);
        copy_axis(&copy, part->columns, side->column, 1);
    }
    if (copy.rank == 0) {
        copy.shape[0] = copy.from[0] = copy.to[0] = 1;
        copy.rank = 1;
    }
    return copy;
}

static bool part_equal(const struct side_part *a, const struct side_part *b) {
    return a->data == b->data && a->rows == b->rows && a->columns == b->columns && a->batches == b->batches;
}

int side_fill(struct side *side, const struct product *product, const struct side_part *part, const char **data,
              struct fault *fault) {
    *data = side->packed ? product->scratch + side->offset : part->data;
    if (!side->packed || part_equal(&side->filled, part))
        return STATUS_OK;
    struct side_copy copy = copy_make(side, product, part);
    _Alignas(struct launch) char room[sizeof(struct launch) + sizeof(struct operand)] = {0};
    struct launch *launch = (struct launch *)(void *)room;
    launch->opcode = side->given == side->dtype ? OP_COPY : OP_CAST;
    launch->n_inputs = 1;
    launch->output = (struct operand){.data = product->scratch + side->offset,
                                      .shape = copy.shape,
                                      .strides = copy.to,
                                      .dtype = (uint8_t)side->given,
                                      .rank = (uint8_t)copy.rank};
    launch->inputs[0] = (struct operand){.data = (void *)(uintptr_t)part->data,
                                         .shape = copy.shape,
                                         .strides = copy.from,
                                         .dtype = (uint8_t)side->dtype,
                                         .rank = (uint8_t)copy.rank};
    side->filled = *part;
    const struct cuda_kernel *kernel = launch->opcode == OP_COPY ? &cuda_kernel_copy : &cuda_kernel_cast;
    return kernel->driver(product->cuda, product->stream, launch, fault);
}
