/* Shared by the files of matrix products: matmul.c chooses how a product is computed, matmul_side.c brings its operands into a form that
 * cublasLt takes, matmul_piece.c computes it piece by piece. Only the submitter's thread. */
#pragma once

#include "engine/cuda/blas.h"
#include "engine/cuda/matmul_finish.h"
#include "engine/cuda/matmul_tiled.h"

enum {
    BATCH_RANK_MAX = MATMUL_BATCH_RANK_MAX,
    ALIGNMENT = 256,     /* bytes, of matrices in scratch memory */
    PACK_ALIGNMENT = 16, /* bytes, of the rows or columns of a packed matrix: cublasLt's fastest kernels need it */
};

/* ---- operands ---- */

/* How the elements of a matrix must lie: along its rows or its columns, one after another. */
enum side_order { SIDE_ANY, SIDE_ALONG_ROWS, SIDE_ALONG_COLUMNS };

/* Some of an operand's rows or columns, of some batches. */
struct side_part {
    const char *data;
    int64_t rows, columns, batches;
};

/* One operand. Strides are in elements. */
struct side {
    const char *data;
    enum dtype dtype;
    int64_t rows, columns, row, column;
    int64_t batch[BATCH_RANK_MAX];
    /* how cublasLt gets it, by side_choose() */
    enum dtype given;
    bool packed, along_columns;
    int64_t leading;         /* if it is not packed */
    int64_t offset;          /* if it is packed: in scratch memory */
    struct side_part filled; /* the part that is in scratch memory now */
};

struct product;

void side_init(struct side *side, const struct operand *x, int64_t rows, int64_t columns);
/* `given`: the dtype that cublasLt shall get. `pack`: the operand is to be in scratch memory, whatever its strides. Else it is taken as it
 * is, if cublasLt can read it. */
void side_choose(struct side *side, const struct product *product, enum dtype given, enum side_order order, bool pack);
/* Bytes of scratch memory for so large a part; INT64_MAX: too many. */
int64_t side_bytes(const struct side *side, const struct product *product, int64_t rows, int64_t columns,
                   int64_t batches);
/* The description of the part for cublasLt. */
struct blas_matrix side_matrix(const struct side *side, const struct product *product, const struct side_part *part);
/* Enqueues the copy into scratch memory, if one is needed and the part is not there yet. *data: where the part lies. */
int side_fill(struct side *side, const struct product *product, const struct side_part *part, const char **data,
              struct fault *fault);

/* ---- products ---- */

/* How much of the last pass of a linear operation cublasLt does. */
enum product_fused { FUSED_NOTHING, FUSED_BIAS, FUSED_ALL };

struct product {
    struct cuda *cuda;
    struct cuda_stream *stream;
    enum dtype dtype; /* of the result */
    bool tf32;
    int64_t m, n, k;
    int batch_rank, strided; /* the batch axis that cublasLt counts; -1: none */
    int64_t batch_shape[BATCH_RANK_MAX], c_batch[BATCH_RANK_MAX];
    struct side a, b;
    char *c;
    const char *bias;    /* NULL: none */
    unsigned activation; /* enum op_activation */
    /* how it is computed */
    enum product_fused fused;
    enum dtype made; /* that cublasLt writes; if it is not `dtype`, into scratch memory at `made_offset` */
    int64_t m_most, n_most, batches_most; /* extents of the largest piece */
    int64_t made_offset, workspace_offset;
    char *scratch;
};

static inline int64_t product_size(enum dtype dtype) {
    return (int64_t)dtype_size(dtype);
}

/* Whether the product has a bias or an activation. */
static inline bool product_ends(const struct product *product) {
    return product->bias || product->activation != OP_ACTIVATION_NONE;
}

/* The stride of the batch axis that cublasLt counts; 0: there is none. */
static inline int64_t product_stride(const struct product *product, const int64_t *batch) {
    return product->strided < 0 ? 0 : batch[product->strided];
}

/* Counts only products of floats and complex numbers. */
static inline void product_count(const struct product *product, uint64_t *counter) {
    if (dtype_kind(product->dtype) >= DTYPE_KIND_FLOAT)
        cuda_count_up(counter);
}

struct matmul_tiled product_tiled(const struct product *product);

/* ---- pieces ---- */

/* Says whether cublasLt takes the first piece, which usually is the only one, and how large a workspace the pieces need. */
int piece_ask(const struct product *product, bool *taken, int64_t *workspace, struct fault *fault);
/* Enqueues the product, piece by piece. If cublasLt refuses a piece after all, the module's own kernel computes it. */
int piece_run_all(struct product *product, struct fault *fault);
