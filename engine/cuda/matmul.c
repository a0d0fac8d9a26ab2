/* Matrix products and linear: how a launch becomes calls of cublasLt.
 *
 * cublasLt stores matrices column after column, a launch row after row. What one calls a matrix the other calls its
 * transpose, so that c = a · b is asked for as cᵀ = bᵀ · aᵀ: cublasLt's A is our b, its B our a, its m our n. An
 * operand whose rows lie contiguous is then not transposed, one whose columns do is; any other is packed into the
 * stream's scratch first (matmul_side.c), in pieces where it is large (matmul_piece.c).
 *
 * One batch axis goes to cublasLt as a strided batch; over the others there is a loop, which is short. Integers except i8, truth values, and products that
 * cublasLt refuses go to matmul_tiled.cu, which is far slower: the device counts how often that happens to a product of floats.
 *
 * The bias of linear is cublasLt's to add where it can. Activations are a pass over the result (matmul_finish.cu), but for
 * those of which somebody has found out that cublasLt's are right (cuda_fused.c). Before such a pass results in half precision
 * are float32 in the scratch memory, so that they are rounded once; unless it is ReLU's, which rounds nothing. */
#include <math.h>
#include <string.h>

#include "engine/cuda/cuda_device.h"
#include "engine/cuda/graph.h"
#include "engine/cuda/matmul_impl.h"

static const int64_t extent_max = INT64_C(1) << 30; /* rows or columns in one call */
static const int64_t batches_max = 65535;           /* batches in one call */
static const int64_t depth_max = INT32_MAX;
/* The most scratch memory for packed operands and intermediate results: with a workspace, less than 256 MiB. The stream keeps it, so large
 * products rather use it several times. */
#ifndef MATMUL_SCRATCH_MAX /* tests have little */
#define MATMUL_SCRATCH_MAX (INT64_C(220) << 20)
#endif
static const int64_t scratch_max = MATMUL_SCRATCH_MAX;
static const double worth_a_call = 1 << 20; /* a call of its own pays for so many multiplications or more */
/* The thread that makes the calls serves all sessions, and a launch cannot be left: so it makes no more than these. */
static const double calls_max = 256;

/* ---- from a launch to a product ---- */

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
    bool linear = launch->opcode == OP_LINEAR;
    struct linear_attributes attributes = {.activation = OP_ACTIVATION_NONE};
    if (linear)
        linear_attributes_read(&launch->attributes, &attributes);
    if (dtype_is_unsigned((enum dtype)launch->output.dtype))
        attributes.activation = OP_ACTIVATION_NONE; /* relu, which changes nothing */
    *product = (struct product){.cuda = cuda,
                                .stream = stream,
                                .dtype = (enum dtype)launch->output.dtype,
                                .m = a->shape[a->rank - 2],
                                .n = b->shape[b->rank - 1],
                                .k = a->shape[a->rank - 1],
                                .batch_rank = a->rank - 2,
                                .c = launch->output.data,
                                .bias = linear && launch->n_inputs == 3 ? launch->inputs[2].data : NULL,
                                .activation = attributes.activation};
    product->tf32 = launch->tf32 && (enum dtype)a->dtype == DTYPE_F32;
    memcpy(product->batch_shape, launch->output.shape, (size_t)product->batch_rank * sizeof *product->batch_shape);
    side_init(&product->a, a, product->m, product->k);
    side_init(&product->b, b, product->k, product->n);
    product_batches(product);
}

struct matmul_tiled product_tiled(const struct product *product) {
    struct matmul_tiled tiled = {.a = product->a.data,
                                 .b = product->b.data,
                                 .bias = product->bias,
                                 .c = product->c,
                                 .a_dtype = product->a.dtype,
                                 .b_dtype = product->b.dtype,
                                 .activation = product->activation,
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

/* A product of depth 0 is zero; the result of a linear operation is activation(bias) then. */
static int product_of_nothing(const struct product *product, struct fault *fault) {
    int64_t rows = product->m, size = product_size(product->dtype);
    for (int i = 0; i < product->batch_rank; i++)
        rows *= product->batch_shape[i];
    CUDA_TRY(fault, cudaMemsetAsync(product->c, 0, (size_t)(rows * product->n * size), product->stream->stream));
    if (!product_ends(product))
        return STATUS_OK;
    struct matmul_finish finish = {.from = product->c,
                                   .bias = product->bias,
                                   .to = product->c,
                                   .from_dtype = product->dtype,
                                   .dtype = product->dtype,
                                   .activation = product->activation,
                                   .rows = rows,
                                   .columns = product->n,
                                   .batches = 1,
                                   .from_row = product->n,
                                   .to_row = product->n};
    return matmul_finish_run(product->cuda, product->stream, &finish, fault);
}

/* ---- ways to compute the product by cublasLt, the best first ---- */

struct way {
    enum dtype a, b; /* that cublasLt gets */
    enum dtype made; /* that cublasLt writes */
    enum side_order a_order, b_order;
    enum product_fused fused;
    bool pack; /* all operands are put in scratch memory: at aligned addresses cublasLt refuses fewer products */
};
enum { WAYS = 3 };

/* Products of fp8 are tensor cores' own from compute capability 8.9 on, unless both are e5m2: of matrices that lie along
 * the depth, whose extents are multiples of 16. Others are f16 products, in which every fp8 number and every product of
 * two is exact. Bias and activation are left to a pass: with a float32 result cublasLt takes none. */
static int product_ways_fp8(const struct product *product, struct way ways[WAYS]) {
    enum dtype a = product->a.dtype, b = product->b.dtype;
    int count = 0;
    if (product->cuda->capability >= 89 && (a == DTYPE_F8E4M3 || b == DTYPE_F8E4M3) && product->k % 16 == 0 &&
        product->n % 16 == 0)
        ways[count++] =
            (struct way){.a = a, .b = b, .made = DTYPE_F32, .a_order = SIDE_ALONG_ROWS, .b_order = SIDE_ALONG_COLUMNS};
    ways[count++] = (struct way){.a = DTYPE_F16, .b = DTYPE_F16, .made = DTYPE_F32};
    return count;
}

/* Products of i8 are tensor cores' own, of matrices as those of fp8. Their sums are 32 bits wide and may stop at the ends
 * where ours wrap: so only sums that cannot come that far, which wrap in the pass. */
static int product_ways_i8(const struct product *product, struct way ways[WAYS]) {
    enum { DEPTH_MAX = (1 << 17) - 1 }; /* (-128)² · 2^17 = 2^31 */
    if (product->k > DEPTH_MAX || product->k % 16 || product->n % 16 || product->cuda->capability < 80)
        return 0;
    ways[0] = (struct way){
        .a = DTYPE_I8, .b = DTYPE_I8, .made = DTYPE_I32, .a_order = SIDE_ALONG_ROWS, .b_order = SIDE_ALONG_COLUMNS};
    return 1;
}

/* cublasLt says that it takes a bias' alignment from its address. Its users found kernels that take 16 bytes for granted, and
 * what they lose by that is the device. */
static bool product_bias_aligned(const struct product *product, int64_t columns) {
    bool whole = columns >= product->n || columns * product_size(product->dtype) % 16 == 0;
    return !product->bias || ((uintptr_t)product->bias % 16 == 0 && whole);
}

/* cublasLt has no bias and no activation for float64. */
static int product_ways(const struct product *product, struct way ways[WAYS]) {
    enum dtype dtype = product->dtype;
    bool ends = product_ends(product);
    if (dtype_is_f8(product->a.dtype))
        return product_ways_fp8(product, ways);
    if (dtype == DTYPE_I8)
        return product_ways_i8(product, ways);
    struct way way = {.a = dtype, .b = dtype, .made = ends && product_size(dtype) == 2 ? DTYPE_F32 : dtype};
    bool all = product->activation == OP_ACTIVATION_NONE || cuda_fuses(product->cuda, product->activation, dtype);
    bool relu = product->activation == OP_ACTIVATION_RELU && product_size(dtype) == 2 && product->bias;
    int count = 0;
    if (ends && (all || relu) && dtype != DTYPE_F64 && product_bias_aligned(product, product->n))
        ways[count++] = (struct way){.a = dtype, .b = dtype, .made = dtype, .fused = all ? FUSED_ALL : FUSED_BIAS};
    ways[count++] = way;
    way.pack = true;
    ways[count++] = way;
    return count;
}

/* ---- room, and the way of a launch ---- */

static double product_calls(const struct product *product) {
    double calls =
        ceil((double)product->m / (double)product->m_most) * ceil((double)product->n / (double)product->n_most);
    for (int i = 0; i < product->batch_rank; i++)
        calls *= i == product->strided ? ceil((double)product->batch_shape[i] / (double)product->batches_most)
                                       : (double)product->batch_shape[i];
    return calls;
}

static int64_t half_of(int64_t extent) {
    int64_t half = (extent + 1) / 2;
    return half > 64 ? (half + 63) / 64 * 64 : half;
}

/* Bytes for results that pass through scratch memory. */
static int64_t product_made_bytes(const struct product *product) {
    int64_t bytes = product_size(product->made);
    if (product->made == product->dtype)
        return 0;
    if (__builtin_mul_overflow(bytes, product->m_most, &bytes) ||
        __builtin_mul_overflow(bytes, product->n_most, &bytes) ||
        __builtin_mul_overflow(bytes, product->batches_most, &bytes) ||
        __builtin_add_overflow(bytes, ALIGNMENT - 1, &bytes))
        return INT64_MAX;
    return bytes / ALIGNMENT * ALIGNMENT;
}

/* Makes pieces so small that the scratch memory is enough for one, and places everything in it. False: not even one row and one column
 * fit. */
static bool product_cut(struct product *product) {
    product->m_most = product->m < extent_max ? product->m : extent_max;
    product->n_most = product->n < extent_max ? product->n : extent_max;
    product->batches_most = product->strided < 0 ? 1 : product->batch_shape[product->strided];
    product->batches_most = product->batches_most < batches_max ? product->batches_most : batches_max;
    for (;;) {
        int64_t a = side_bytes(&product->a, product, product->m_most, product->k, product->batches_most);
        int64_t b = side_bytes(&product->b, product, product->k, product->n_most, product->batches_most);
        int64_t made = product_made_bytes(product);
        if (a <= scratch_max && b <= scratch_max - a && made <= scratch_max - a - b) {
            product->b.offset = a;
            product->made_offset = a + b;
            product->workspace_offset = a + b + made;
            return true;
        }
        bool rows = made > a && made > b ? product->m_most >= product->n_most : a >= b;
        if (product->batches_most > 1)
            product->batches_most = (product->batches_most + 1) / 2;
        else if (product->m_most > 1 && (rows || product->n_most == 1))
            product->m_most = half_of(product->m_most);
        else if (product->n_most > 1)
            product->n_most = half_of(product->n_most);
        else
            return false;
    }
}

/* Prepares the product for one way; *taken: cublasLt takes it. */
static int product_try(struct product *product, const struct way *way, bool *taken, int64_t *workspace,
                       struct fault *fault) {
    product->made = way->made;
    product->fused = way->fused;
    side_choose(&product->a, product, way->a, way->a_order, way->pack);
    side_choose(&product->b, product, way->b, way->b_order, way->pack);
    *taken = false;
    if (!product_cut(product) || (way->fused && !product_bias_aligned(product, product->n_most)))
        return STATUS_OK;
    int code = piece_ask(product, taken, workspace, fault);
    double work = (double)product->m_most * (double)product->n_most * (double)product->k;
    if (code == STATUS_OK && !*taken && !way->fused && product->batches_most > 1 && work >= worth_a_call) {
        product->batches_most = 1; /* cublasLt may take batches one by one that it refuses together */
        code = piece_ask(product, taken, workspace, fault);
    }
    *taken = *taken && product_calls(product) <= calls_max;
    return code;
}

/* *taken becomes false if the device never gives so much to a launch: that is no failure, and another way is tried, the same one each
 * time. */
static int product_scratch(struct product *product, int64_t workspace, bool *taken, struct fault *fault) {
    int64_t bytes = product->workspace_offset + workspace;
    product->scratch = NULL;
    if (bytes == 0)
        return STATUS_OK;
    product->scratch = cuda_scratch(product->stream, (size_t)bytes, fault);
    if (product->scratch)
        return STATUS_OK;
    *taken = false;
    cudaGetLastError(); /* clears the error, which has been handled */
    return fault->code == STATUS_OUT_OF_MEMORY ? STATUS_OK : (int)fault->code;
}

/* Whether the launch is being captured and lacked scratch memory. It will be captured again with more, so no other way is tried now. */
static bool product_comes_again(const struct product *product) {
    return product->stream->capture && product->stream->capture->wanted;
}

/* Computes the product by cublasLt, in the first way that it takes. */
static int product_library(struct product *product, bool *taken, struct fault *fault) {
    struct way ways[WAYS];
    int64_t workspace = 0;
    struct cuda *cuda = product->cuda;
    int code = STATUS_OK, count = product->k <= depth_max ? product_ways(product, ways) : 0;
    *taken = false;
    if (!cuda->blas && !(cuda->blas = blas_create(cuda)))
        return STATUS_OK;
    for (int i = 0; i < count && code == STATUS_OK && !*taken && !product_comes_again(product); i++) {
        code = product_try(product, &ways[i], taken, &workspace, fault);
        if (code == STATUS_OK && *taken)
            code = product_scratch(product, workspace, taken, fault);
    }
    return code == STATUS_OK && *taken ? piece_run_all(product, fault) : code;
}

static bool product_for_library(const struct product *product) {
    return dtype_kind(product->dtype) >= DTYPE_KIND_FLOAT || product->dtype == DTYPE_I8;
}

/* Computes the product by the module's own kernel, with its sums cut if a launch may have the memory for that on this device. */
static int product_by_tiles(const struct product *product, void *workspace, struct fault *fault) {
    const struct matmul_tiled tiled = product_tiled(product);
    if (product_for_library(product)) { /* for which it was not asked when it was bound */
        size_t bytes = matmul_tiled_bytes(product->cuda, &tiled);
        workspace = bytes ? cuda_scratch(product->stream, bytes, fault) : NULL;
        if (bytes && !workspace) {
            if (fault->code != STATUS_OUT_OF_MEMORY)
                return (int)fault->code;
            cudaGetLastError(); /* clears the error: without memory the kernel is only slower */
        }
    }
    return matmul_tiled_run(product->cuda, product->stream, &tiled, workspace, fault);
}

static int matmul_accepts(struct device *device, const struct launch *launch, struct fault *fault) {
    (void)device;
    enum dtype a = (enum dtype)launch->inputs[0].dtype, b = (enum dtype)launch->inputs[1].dtype;
    if (matmul_tiled_has(a, b))
        return STATUS_OK;
    return fault_set(fault, STATUS_UNSUPPORTED, "a cuda device does not multiply %s by %s", dtype_name(a),
                     dtype_name(b));
}

/* How much memory cublasLt needs is known only when the submitter's thread asks it (cuda_scratch). */
static uint64_t matmul_workspace(struct device *device, const struct launch *launch) {
    struct cuda *cuda = cuda_of(device);
    struct product product;
    product_init(&product, cuda, NULL, launch);
    if (product.k == 0 || product_for_library(&product))
        return 0;
    const struct matmul_tiled tiled = product_tiled(&product);
    return matmul_tiled_bytes(cuda, &tiled);
}

/* How many batches are calls of their own. */
static double product_batches_apart(const struct product *product) {
    double apart = 1;
    for (int i = 0; i < product->batch_rank; i++)
        apart *= i == product->strided ? 1 : (double)product->batch_shape[i];
    return apart;
}

/* The estimate takes all products for the library's, and those of i8 for products of tensor cores. The module's own kernel does about a third of
 * what the plain cores can: an estimate that no device has confirmed. */
static uint64_t matmul_weight(struct device *device, const struct launch *launch, uint64_t ns) {
    const double *flop = ((const struct cuda_device *)device)->rates.flop;
    struct way ways[WAYS];
    struct product product;
    enum dtype dtype = (enum dtype)launch->output.dtype;
    double slower = 1;
    product_init(&product, cuda_of(device), NULL, launch);
    if (dtype == DTYPE_I8 && !product_ways_i8(&product, ways))
        slower = flop[DTYPE_I8] / flop[DTYPE_I32];
    else if (product_for_library(&product) && product_batches_apart(&product) > calls_max)
        slower = 3 * flop[dtype] / (flop[dtype] < flop[DTYPE_F32] ? flop[dtype] : flop[DTYPE_F32]);
    return ns < UINT64_MAX >> 16 ? (uint64_t)((double)ns * slower) : ns;
}

static int matmul_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch, struct fault *fault) {
    struct product product;
    bool taken = false;
    int code = STATUS_OK;
    product_init(&product, cuda, stream, launch);
    if (product.k == 0)
        return product_of_nothing(&product, fault);
    if (product_for_library(&product)) {
        code = product_library(&product, &taken, fault);
        if (code == STATUS_OK && !taken && product_comes_again(&product))
            return STATUS_OUT_OF_MEMORY; /* the fault is cuda_scratch()'s */
        if (code == STATUS_OK && !taken)
            product_count(&product, &cuda->products_slow);
    }
    if (code != STATUS_OK || taken)
        return code;
    return product_by_tiles(&product, launch->workspace, fault);
}

static bool matmul_walk(cuda_kernel_seen *seen, void *context) {
    return matmul_finish_walk(seen, context) && matmul_tiled_walk(seen, context);
}

#define PRODUCT                                                                                                        \
    {                                                                                                                  \
        {.accepts = matmul_accepts, .workspace = matmul_workspace, .weight = matmul_weight, .batches_apart = 64},      \
            matmul_run, matmul_walk                                                                                    \
    }
const struct cuda_kernel cuda_kernel_matmul = PRODUCT;
const struct cuda_kernel cuda_kernel_linear = PRODUCT;
