/* Matrix products: how a launch becomes calls of cublasLt.
 *
 * cublasLt stores matrices column after column, a launch row after row. What one calls a matrix the other calls its
 * transpose, so that c = a · b is asked for as cᵀ = bᵀ · aᵀ: cublasLt's A is our b, its B our a, its m our n. An
 * operand whose rows lie contiguous is then not transposed, one whose columns do is; any other is packed into the
 * stream's scratch first.
 *
 * One batch axis goes to cublasLt as a strided batch, others are looped over. Batches that share b and whose rows of a
 * follow one another are just more rows. Integers, truth values and what cublasLt refuses go to matmul_tiled.cu. */
#include "engine/cuda/blas.h"
#include "engine/cuda/matmul_tiled.h"

#include <string.h>

enum { BATCH_RANK_MAX = MATMUL_BATCH_RANK_MAX, ALIGNMENT = 256 };
static const int64_t piece_max = INT64_C(1) << 30; /* rows or columns in one call */
static const int64_t batches_max = 65535;          /* batches in one call */
static const int64_t depth_max = INT32_MAX;
static const int64_t pack_max = INT64_C(4) << 30; /* bytes; scratch is kept, so more is rather computed slowly */

/* One operand. Strides are in elements. */
struct side {
    const char *data;
    int64_t rows, columns, row, column;
    int64_t batch[BATCH_RANK_MAX];
    struct blas_matrix matrix; /* but for the batch stride */
    bool packed;               /* from what `pack` says into scratch, at `offset` */
    struct side_pack {
        const char *data;
        int rank;
        int64_t shape[SHAPE_RANK_MAX], strides[SHAPE_RANK_MAX];
    } pack;
    int64_t offset, bytes;
};

struct product {
    struct cuda *cuda;
    struct cuda_stream *stream;
    enum dtype dtype;
    bool tf32;
    int64_t size; /* of an element */
    int64_t m, n, k;
    int batch_rank, strided; /* the batch axis that cublasLt counts; -1: none */
    int64_t batch_shape[BATCH_RANK_MAX], c_batch[BATCH_RANK_MAX];
    struct side a, b;
    char *c;
    char *workspace;
};

bool cuda_matmul_has(enum dtype dtype) {
    return dtype_valid((int)dtype);
}

/* ---- sides ---- */

/* How cublasLt would have to be told of a matrix; false where it cannot. The stride of an axis of one element does not
 * matter. */
static bool side_find(struct side *side) {
    bool single_row = side->rows == 1, single_column = side->columns == 1;
    if ((side->column == 1 || single_column) && (single_row || side->row >= side->columns)) {
        side->matrix = (struct blas_matrix){.leading = single_row ? side->columns : side->row};
        return true;
    }
    if ((side->row == 1 || single_row) && (single_column || side->column >= side->rows)) {
        side->matrix = (struct blas_matrix){.leading = single_column ? side->rows : side->column, .transposed = 1};
        return true;
    }
    return false;
}

static int64_t magnitude(int64_t stride) {
    return stride < 0 ? -stride : stride;
}

/* Adds an axis inside of those there are, to the last one where both lie as one. */
static void pack_axis(struct side_pack *pack, int64_t extent, int64_t stride) {
    int last = pack->rank - 1;
    if (extent == 1)
        return;
    if (last >= 0 && pack->strides[last] == stride * extent) {
        pack->shape[last] *= extent;
        pack->strides[last] = stride;
        return;
    }
    pack->shape[pack->rank] = extent;
    pack->strides[pack->rank++] = stride;
}

/* Plans a contiguous copy of all batches that differ, in the order of the axes in which the matrix is read best.
 * Returns false where that would take too much scratch. */
static bool side_plan_pack(struct side *side, const struct product *product) {
    bool across = magnitude(side->row) < magnitude(side->column);
    int64_t elements;
    if (__builtin_mul_overflow(side->rows, side->columns, &elements)) /* of a broadcast matrix */
        return false;
    side->pack = (struct side_pack){.data = side->data};
    for (int i = 0; i < product->batch_rank; i++)
        if (side->batch[i] != 0)
            pack_axis(&side->pack, product->batch_shape[i], side->batch[i]);
    pack_axis(&side->pack, across ? side->columns : side->rows, across ? side->column : side->row);
    pack_axis(&side->pack, across ? side->rows : side->columns, across ? side->row : side->column);
    side->row = across ? 1 : side->columns;
    side->column = across ? side->rows : 1;
    for (int i = product->batch_rank - 1; i >= 0; i--) {
        if (side->batch[i] == 0)
            continue;
        side->batch[i] = elements;
        if (__builtin_mul_overflow(elements, product->batch_shape[i], &elements))
            return false;
    }
    side->packed = true;
    return !__builtin_mul_overflow(elements, product->size, &side->bytes) && side->bytes <= pack_max && side_find(side);
}

/* The largest power of two that divides all addresses of the operand's matrices. Pieces begin at multiples of piece_max
 * rows or columns and do not matter. */
static uint32_t addresses_alignment(uint64_t address, const struct product *product, const int64_t *batch) {
    uint64_t bits = address | ALIGNMENT;
    for (int i = 0; i < product->batch_rank; i++)
        if (product->batch_shape[i] > 1)
            bits |= (uint64_t)batch[i] * (uint64_t)product->size;
    return (uint32_t)(bits & -bits);
}

static void side_align(struct side *side, const struct product *product) {
    uint64_t address = side->packed ? (uint64_t)side->offset : (uint64_t)(uintptr_t)side->data;
    side->matrix.alignment = addresses_alignment(address, product, side->batch);
}

/* Enqueues the copy into scratch. */
static int side_fill(struct side *side, const struct product *product, char *scratch, struct fault *fault) {
    const struct side_pack *pack = &side->pack;
    _Alignas(struct launch) char room[sizeof(struct launch) + sizeof(struct operand)] = {0};
    struct launch *launch = (struct launch *)(void *)room;
    int64_t contiguous[SHAPE_RANK_MAX], stride = 1;
    for (int i = pack->rank - 1; i >= 0; i--) {
        contiguous[i] = stride;
        stride *= pack->shape[i];
    }
    side->data = scratch + side->offset;
    launch->opcode = OP_COPY;
    launch->n_inputs = 1;
    launch->output = (struct operand){.data = scratch + side->offset,
                                      .shape = pack->shape,
                                      .strides = contiguous,
                                      .dtype = (uint8_t)product->dtype,
                                      .rank = (uint8_t)pack->rank};
    launch->inputs[0] = launch->output;
    launch->inputs[0].data = (void *)(uintptr_t)pack->data;
    launch->inputs[0].strides = pack->strides;
    return cuda_copy(product->cuda, product->stream, launch, fault);
}

static void side_init(struct side *side, const struct operand *x, int64_t rows, int64_t columns) {
    *side = (struct side){.data = x->data,
                          .rows = rows,
                          .columns = columns,
                          .row = x->strides[x->rank - 2],
                          .column = x->strides[x->rank - 1]};
    for (int i = 0; i < x->rank - 2; i++)
        side->batch[i] = x->strides[i];
}

/* ---- the product ---- */

/* Makes batches that share b more rows of a. */
static void product_fold(struct product *product) {
    while (product->batch_rank > 0) {
        int last = product->batch_rank - 1;
        int64_t batches = product->batch_shape[last], stride = product->a.batch[last];
        if (batches > 1 && (product->b.batch[last] != 0 || (product->m > 1 && stride != product->m * product->a.row)))
            return;
        if (product->m == 1)
            product->a.row = stride;
        product->m *= batches;
        product->a.rows = product->m;
        product->batch_rank--;
    }
}

static void product_batches(struct product *product) {
    int64_t stride = product->m * product->n, most = 1;
    product->strided = -1;
    for (int i = product->batch_rank - 1; i >= 0; i--) {
        product->c_batch[i] = stride;
        stride *= product->batch_shape[i];
        if (product->batch_shape[i] > most && product->a.batch[i] >= 0 && product->b.batch[i] >= 0) {
            most = product->batch_shape[i];
            product->strided = i;
        }
    }
}

static void product_init(struct product *product, struct cuda *cuda, struct cuda_stream *stream,
                         const struct launch *launch) {
    const struct operand *a = &launch->inputs[0], *b = &launch->inputs[1];
    *product = (struct product){.cuda = cuda,
                                .stream = stream,
                                .dtype = (enum dtype)a->dtype,
                                .size = (int64_t)dtype_size((enum dtype)a->dtype),
                                .m = a->shape[a->rank - 2],
                                .n = b->shape[b->rank - 1],
                                .k = a->shape[a->rank - 1],
                                .batch_rank = a->rank - 2,
                                .c = launch->output.data};
    memcpy(product->batch_shape, launch->output.shape, (size_t)product->batch_rank * sizeof *product->batch_shape);
    side_init(&product->a, a, product->m, product->k);
    side_init(&product->b, b, product->k, product->n);
    product_fold(product);
    product_batches(product);
}

static struct matmul_tiled product_tiled(const struct product *product) {
    struct matmul_tiled tiled = {.a = product->a.data,
                                 .b = product->b.data,
                                 .c = product->c,
                                 .dtype = product->dtype,
                                 .batch_rank = product->batch_rank,
                                 .m = product->m,
                                 .n = product->n,
                                 .k = product->k,
                                 .a_row = product->a.row,
                                 .a_column = product->a.column,
                                 .b_row = product->b.row,
                                 .b_column = product->b.column,
                                 .c_row = product->n,
                                 .c_column = 1};
    memcpy(tiled.batch_shape, product->batch_shape, sizeof tiled.batch_shape);
    memcpy(tiled.a_batch, product->a.batch, sizeof tiled.a_batch);
    memcpy(tiled.b_batch, product->b.batch, sizeof tiled.b_batch);
    memcpy(tiled.c_batch, product->c_batch, sizeof tiled.c_batch);
    return tiled;
}

/* ---- pieces: what one call of cublasLt does ---- */

struct piece {
    int64_t a, b, c; /* first elements */
    int64_t m, n, batches;
};

static struct blas_product piece_product(const struct product *product, const struct piece *piece) {
    struct blas_product key;
    memset(&key, 0, sizeof key);
    key.m = piece->n;
    key.n = piece->m;
    key.k = product->k;
    key.batches = piece->batches;
    key.a = product->b.matrix;
    key.b = product->a.matrix;
    key.d.leading = product->n;
    key.d.alignment = addresses_alignment((uint64_t)(uintptr_t)product->c, product, product->c_batch);
    if (piece->batches > 1) {
        key.a.batch_stride = product->b.batch[product->strided];
        key.b.batch_stride = product->a.batch[product->strided];
        key.d.batch_stride = product->c_batch[product->strided];
    }
    key.dtype = product->dtype;
    key.tf32 = product->tf32;
    return key;
}

static int piece_tiled(const struct product *product, const struct piece *piece, struct fault *fault) {
    struct matmul_tiled tiled = product_tiled(product);
    tiled.a = (const char *)tiled.a + piece->a * product->size;
    tiled.b = (const char *)tiled.b + piece->b * product->size;
    tiled.c = (char *)tiled.c + piece->c * product->size;
    tiled.m = piece->m;
    tiled.n = piece->n;
    tiled.batch_rank = 0;
    if (piece->batches > 1) {
        tiled.batch_rank = 1;
        tiled.batch_shape[0] = piece->batches;
        tiled.a_batch[0] = product->a.batch[product->strided];
        tiled.b_batch[0] = product->b.batch[product->strided];
        tiled.c_batch[0] = product->c_batch[product->strided];
    }
    return matmul_tiled_run(product->cuda, product->stream, &tiled, false, fault);
}

static int piece_run(const struct product *product, const struct piece *piece, struct fault *fault) {
    struct cuda_blas *blas = product->cuda->blas;
    const struct blas_product key = piece_product(product, piece);
    struct blas_plan *plan;
    bool refused = false;
    int code = blas_plan_find(blas, &key, &plan, fault);
    if (code == STATUS_OK && plan)
        code = blas_multiply(blas, plan, product->b.data + piece->b * product->size,
                             product->a.data + piece->a * product->size, product->c + piece->c * product->size,
                             product->workspace, product->stream->stream, &refused, fault);
    return code == STATUS_OK && (!plan || refused) ? piece_tiled(product, piece, fault) : code;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* The rows and columns of some batches. */
static int product_run_matrices(const struct product *product, struct piece at, struct fault *fault) {
    for (int64_t i = 0; i < product->m; i += piece_max) {
        for (int64_t j = 0; j < product->n; j += piece_max) {
            struct piece piece = {.a = at.a + i * product->a.row,
                                  .b = at.b + j * product->b.column,
                                  .c = at.c + i * product->n + j,
                                  .m = least(product->m - i, piece_max),
                                  .n = least(product->n - j, piece_max),
                                  .batches = at.batches};
            int code = piece_run(product, &piece, fault);
            if (code != STATUS_OK)
                return code;
        }
    }
    return STATUS_OK;
}

/* The strided batch that begins at some place on the other batch axes. */
static int product_run_batch(const struct product *product, const struct piece *origin, struct fault *fault) {
    if (product->strided < 0)
        return product_run_matrices(product, *origin, fault);
    int s = product->strided;
    for (int64_t first = 0; first < product->batch_shape[s]; first += batches_max) {
        struct piece at = {.a = origin->a + first * product->a.batch[s],
                           .b = origin->b + first * product->b.batch[s],
                           .c = origin->c + first * product->c_batch[s],
                           .batches = least(product->batch_shape[s] - first, batches_max)};
        int code = product_run_matrices(product, at, fault);
        if (code != STATUS_OK)
            return code;
    }
    return STATUS_OK;
}

static int product_run(const struct product *product, struct fault *fault) {
    int64_t index[BATCH_RANK_MAX] = {0};
    for (;;) {
        struct piece origin = {.batches = 1};
        int axis = product->batch_rank - 1;
        for (int i = 0; i < product->batch_rank; i++) {
            origin.a += index[i] * product->a.batch[i];
            origin.b += index[i] * product->b.batch[i];
            origin.c += index[i] * product->c_batch[i];
        }
        int code = product_run_batch(product, &origin, fault);
        if (code != STATUS_OK)
            return code;
        for (; axis >= 0; axis--) {
            if (axis == product->strided)
                continue;
            if (++index[axis] < product->batch_shape[axis])
                break;
            index[axis] = 0;
        }
        if (axis < 0)
            return STATUS_OK;
    }
}

/* ---- scratch, and the way of a launch ---- */

static int64_t rounded(int64_t bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* The first piece, which is the only one as a rule, says whether cublasLt takes the product at all, and what workspace
 * it wants. */
static int product_ask(const struct product *product, bool *taken, int64_t *workspace, struct fault *fault) {
    int s = product->strided;
    int64_t batches = s < 0 ? 1 : product->batch_shape[s];
    struct piece piece = {
        .m = least(product->m, piece_max), .n = least(product->n, piece_max), .batches = least(batches, batches_max)};
    const struct blas_product key = piece_product(product, &piece);
    struct blas_plan *plan;
    int code = blas_plan_find(product->cuda->blas, &key, &plan, fault);
    if (code != STATUS_OK)
        return code;
    bool single = piece.m == product->m && piece.n == product->n && piece.batches == batches;
    *taken = plan != NULL;
    *workspace = (int64_t)(plan && single ? blas_plan_workspace(plan) : blas_workspace_max(product->cuda->blas));
    return STATUS_OK;
}

/* Enqueues the copies; *taken becomes false where there is no memory for them, which is no failure of the device. */
static int product_scratch(struct product *product, int64_t workspace, bool *taken, struct fault *fault) {
    int64_t packed = rounded(product->a.bytes) + rounded(product->b.bytes), bytes = packed + workspace;
    int code = STATUS_OK;
    if (bytes == 0)
        return STATUS_OK;
    char *scratch = cuda_scratch(product->stream, (size_t)bytes, fault);
    if (!scratch) {
        *taken = false;
        cudaGetLastError(); /* it has been dealt with */
        return fault->code == STATUS_OUT_OF_MEMORY ? STATUS_OK : (int)fault->code;
    }
    if (product->a.packed)
        code = side_fill(&product->a, product, scratch, fault);
    if (code == STATUS_OK && product->b.packed)
        code = side_fill(&product->b, product, scratch, fault);
    product->workspace = scratch + packed;
    return code;
}

/* Lays the operands out for cublasLt; *taken: it takes the product. */
static int product_prepare(struct product *product, bool *taken, struct fault *fault) {
    int64_t workspace = 0;
    *taken = product->k <= depth_max && (side_find(&product->a) || side_plan_pack(&product->a, product)) &&
             (side_find(&product->b) || side_plan_pack(&product->b, product));
    if (!*taken)
        return STATUS_OK;
    product->b.offset = rounded(product->a.bytes);
    side_align(&product->a, product);
    side_align(&product->b, product);
    int code = product_ask(product, taken, &workspace, fault);
    return code == STATUS_OK && *taken ? product_scratch(product, workspace, taken, fault) : code;
}

int cuda_matmul(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch, struct fault *fault) {
    struct product product;
    bool taken = false;
    int code = STATUS_OK;
    product_init(&product, cuda, stream, launch);
    product.tf32 = launch->tf32 && product.dtype == DTYPE_F32;
    const struct matmul_tiled tiled = product_tiled(&product);
    if (product.k == 0) {
        int64_t elements = product.m * product.n;
        for (int i = 0; i < product.batch_rank; i++)
            elements *= product.batch_shape[i];
        CUDA_TRY(fault, cudaMemsetAsync(product.c, 0, (size_t)(elements * product.size), stream->stream));
        return STATUS_OK;
    }
    if (dtype_kind(product.dtype) == DTYPE_KIND_FLOAT) {
        code = cuda->blas ? STATUS_OK : blas_create(cuda, &cuda->blas, fault);
        if (code == STATUS_OK)
            code = product_prepare(&product, &taken, fault);
        if (code == STATUS_OK && taken)
            code = product_run(&product, fault);
    }
    return code == STATUS_OK && !taken ? matmul_tiled_run(cuda, stream, &tiled, true, fault) : code;
}
