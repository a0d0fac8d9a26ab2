/* Pieces of a matrix product: each is one call of cublasLt. Usually there is one piece. There are more if an extent is too large for one
 * call, if there are several batch axes, or if operands or results that pass through scratch memory are larger than it may be. */
#include <string.h>

#include "engine/cuda/matmul_impl.h"

struct piece {
    int64_t row, column; /* of the result, where it begins */
    int64_t a, b, c;     /* where the operands' batches begin, in elements */
    int64_t m, n, batches;
};

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* ---- of the operands and the result ---- */

static struct side_part piece_part(const struct side *side, const struct product *product, const struct piece *piece,
                                   bool left) {
    int64_t batch = left ? piece->a : piece->b, first = left ? piece->row * side->row : piece->column * side->column;
    return (struct side_part){.data = side->data + (batch + first) * product_size(side->dtype),
                              .rows = left ? piece->m : product->k,
                              .columns = left ? product->k : piece->n,
                              .batches = product_stride(product, side->batch) ? piece->batches : 1};
}

static char *piece_result(const struct product *product, const struct piece *piece) {
    return product->c + (piece->c + piece->row * product->n + piece->column) * product_size(product->dtype);
}

static const char *piece_bias(const struct product *product, const struct piece *piece) {
    return product->bias ? product->bias + piece->column * product_size(product->dtype) : NULL;
}

/* The matrix that cublasLt writes: its rows are columns to cublasLt. */
static struct blas_matrix piece_target(const struct product *product, const struct piece *piece) {
    bool direct = product->made == product->dtype;
    int64_t leading = direct ? product->n : piece->n;
    int64_t stride = direct ? product_stride(product, product->c_batch) : piece->m * piece->n;
    uint64_t address = direct ? (uint64_t)(uintptr_t)piece_result(product, piece) : 0;
    if (piece->batches == 1)
        stride = 0;
    return (struct blas_matrix){.leading = leading,
                                .batch_stride = stride,
                                .dtype = (uint16_t)product->made,
                                .alignment =
                                    blas_alignment(address | (uint64_t)(stride * product_size(product->made)))};
}

/* cublasLt's A is our b, its B our a, its m our n: see matmul.c. */
static struct blas_product piece_product(const struct product *product, const struct piece *piece) {
    const struct side_part a = piece_part(&product->a, product, piece, true);
    const struct side_part b = piece_part(&product->b, product, piece, false);
    const char *bias = piece_bias(product, piece);
    struct blas_product key;
    memset(&key, 0, sizeof key);
    key.m = piece->n;
    key.n = piece->m;
    key.k = product->k;
    key.batches = piece->batches;
    key.a = side_matrix(&product->b, product, &b);
    key.b = side_matrix(&product->a, product, &a);
    key.d = piece_target(product, piece);
    key.tf32 = product->tf32;
    if (product->fused >= FUSED_BIAS)
        key.bias_alignment = bias ? blas_alignment((uint64_t)(uintptr_t)bias) : 0;
    if (product->fused == FUSED_ALL)
        key.activation = (uint16_t)product->activation;
    return key;
}

/* ---- ways to compute a piece ---- */

/* By the module's own kernel, bias and activation included. */
static int piece_tiled(const struct product *product, const struct piece *piece, struct fault *fault) {
    struct matmul_tiled tiled = product_tiled(product);
    tiled.a = piece_part(&product->a, product, piece, true).data;
    tiled.b = piece_part(&product->b, product, piece, false).data;
    tiled.c = piece_result(product, piece);
    tiled.bias = piece_bias(product, piece);
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
    product_count(product, &product->cuda->products_slow);
    return matmul_tiled_run(product->cuda, product->stream, &tiled, NULL, fault);
}

/* The last pass, as far as cublasLt has not done it. */
static int piece_finish(const struct product *product, const struct piece *piece, struct fault *fault) {
    bool direct = product->made == product->dtype;
    char *to = piece_result(product, piece);
    if (direct && (product->fused == FUSED_ALL || !product_ends(product)))
        return STATUS_OK;
    int64_t to_batch = product_stride(product, product->c_batch);
    struct matmul_finish finish = {.from = direct ? to : product->scratch + product->made_offset,
                                   .bias = product->fused ? NULL : piece_bias(product, piece),
                                   .to = to,
                                   .from_dtype = product->made,
                                   .dtype = product->dtype,
                                   .activation = product->activation,
                                   .rows = piece->m,
                                   .columns = piece->n,
                                   .batches = piece->batches,
                                   .from_row = direct ? product->n : piece->n,
                                   .from_batch = direct ? to_batch : piece->m * piece->n,
                                   .to_row = product->n,
                                   .to_batch = to_batch};
    return matmul_finish_run(product->cuda, product->stream, &finish, fault);
}

/* By cublasLt. */
static int piece_multiply(struct product *product, const struct piece *piece, struct blas_plan *plan, bool *refused,
                          struct fault *fault) {
    const struct side_part a = piece_part(&product->a, product, piece, true);
    const struct side_part b = piece_part(&product->b, product, piece, false);
    const char *a_data, *b_data;
    int code = side_fill(&product->a, product, &a, &a_data, fault);
    if (code == STATUS_OK)
        code = side_fill(&product->b, product, &b, &b_data, fault);
    if (code != STATUS_OK)
        return code;
    bool direct = product->made == product->dtype;
    struct blas_operands operands = {
        .a = b_data,
        .b = a_data,
        .bias = product->fused ? piece_bias(product, piece) : NULL,
        .d = direct ? piece_result(product, piece) : product->scratch + product->made_offset,
    };
    char *workspace = product->scratch ? product->scratch + product->workspace_offset : NULL;
    code = blas_multiply(product->cuda->blas, plan, &operands, workspace, product->stream->stream, refused, fault);
    if (code != STATUS_OK || *refused)
        return code;
    product_count(product, &product->cuda->products_library);
    return piece_finish(product, piece, fault);
}

static int piece_run(struct product *product, const struct piece *piece, struct fault *fault) {
    const struct blas_product key = piece_product(product, piece);
    struct blas_plan *plan;
    bool refused = false;
    int code = blas_plan_find(product->cuda->blas, &key, &plan, fault);
    if (code == STATUS_OK && plan)
        code = piece_multiply(product, piece, plan, &refused, fault);
    return code == STATUS_OK && (!plan || refused) ? piece_tiled(product, piece, fault) : code;
}

/* ---- all pieces ---- */

/* The rows and columns of some batches. */
static int piece_run_matrices(struct product *product, struct piece at, struct fault *fault) {
    for (at.row = 0; at.row < product->m; at.row += product->m_most) {
        at.m = least(product->m - at.row, product->m_most);
        for (at.column = 0; at.column < product->n; at.column += product->n_most) {
            at.n = least(product->n - at.column, product->n_most);
            int code = piece_run(product, &at, fault);
            if (code != STATUS_OK)
                return code;
        }
    }
    return STATUS_OK;
}

/* The strided batch that begins at some place on the other batch axes. */
static int piece_run_batch(struct product *product, const struct piece *origin, struct fault *fault) {
    int64_t batches = product->strided < 0 ? 1 : product->batch_shape[product->strided];
    for (int64_t first = 0; first < batches; first += product->batches_most) {
        struct piece at = {.a = origin->a + first * product_stride(product, product->a.batch),
                           .b = origin->b + first * product_stride(product, product->b.batch),
                           .c = origin->c + first * product_stride(product, product->c_batch),
                           .batches = least(batches - first, product->batches_most)};
        int code = piece_run_matrices(product, at, fault);
        if (code != STATUS_OK)
            return code;
    }
    return STATUS_OK;
}

int piece_run_all(struct product *product, struct fault *fault) {
    int64_t index[BATCH_RANK_MAX] = {0};
    for (;;) {
        struct piece origin = {0};
        int axis = product->batch_rank - 1;
        for (int i = 0; i < product->batch_rank; i++) {
            origin.a += index[i] * product->a.batch[i];
            origin.b += index[i] * product->b.batch[i];
            origin.c += index[i] * product->c_batch[i];
        }
        int code = piece_run_batch(product, &origin, fault);
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

int piece_ask(const struct product *product, bool *taken, int64_t *workspace, struct fault *fault) {
    int64_t batches = product->strided < 0 ? 1 : product->batch_shape[product->strided];
    const struct piece piece = {.m = product->m_most, .n = product->n_most, .batches = product->batches_most};
    const struct blas_product key = piece_product(product, &piece);
    struct blas_plan *plan;
    int code = blas_plan_find(product->cuda->blas, &key, &plan, fault);
    if (code != STATUS_OK)
        return code;
    bool single = piece.m == product->m && piece.n == product->n && piece.batches == batches;
    for (int i = 0; i < product->batch_rank; i++) /* later pieces may be less aligned, and be computed in another way */
        single &= i == product->strided || product->batch_shape[i] == 1;
    *taken = plan != NULL;
    *workspace = (int64_t)(plan && single ? blas_plan_workspace(plan) : blas_workspace_max(product->cuda->blas));
    return STATUS_OK;
}
