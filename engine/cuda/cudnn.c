#include "engine/cuda/cudnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t elements_of(int64_t images, int64_t channels, const int64_t *extents) {
    return (uint64_t)images * (uint64_t)channels * (uint64_t)convolution_volume(extents);
}

/* Copies of the operands in another order, and parts of sums: what the algorithms that are worth having need. */
uint64_t cudnn_workspace(const struct cudnn_convolution *this) {
    const struct convolution *c = &this->convolution;
    const uint64_t most = UINT64_C(64) << 20;
    uint64_t elements = elements_of(c->batch, c->x_channels, c->x) + elements_of(c->batch, c->y_channels, c->y) +
                        elements_of(c->y_channels, c->x_channels / c->groups, c->kernel);
    uint64_t bytes = elements * dtype_size((enum dtype)this->dtype);
    return bytes + (8 * bytes < most ? 8 * bytes : most);
}

#ifdef CUDA_HAS_CUDNN
#include <cudnn_graph.h>

/* ---- the library ---- */

#define CUDNN_FUNCTIONS(X)                                                                                             \
    X(GetVersion)                                                                                                      \
    X(GetErrorString)                                                                                                  \
    X(Create)                                                                                                          \
    X(Destroy)                                                                                                         \
    X(SetStream)                                                                                                       \
    X(BackendCreateDescriptor)                                                                                         \
    X(BackendDestroyDescriptor)                                                                                        \
    X(BackendFinalize)                                                                                                 \
    X(BackendSetAttribute)                                                                                             \
    X(BackendGetAttribute)                                                                                             \
    X(BackendExecute)

/* So many convolutions are kept: a network has some dozens, three ways each. Of each, so many algorithms that cuDNN offers are
 * looked at, and so many kept. */
enum { KEPT = 256, OFFERED = 128, CONFIGS = 6, DESCRIPTORS = 16, DIMS = 2 + CONVOLUTION_AXES };
enum { ID_X = 1, ID_WEIGHT, ID_Y, ID_BIAS, ID_SUM };

typedef cudnnBackendDescriptor_t descriptor;

struct cuda_cudnn {
    cudnnHandle_t handle;
    struct cuda_plans *plans;
    const char *call; /* the last one, in words for a refusal */
#define CUDNN_MEMBER(name) __typeof__(&cudnn##name) name;
    CUDNN_FUNCTIONS(CUDNN_MEMBER)
#undef CUDNN_MEMBER
};

#define CUDNN_TRY(cudnn, name, ...)                                                                                    \
    do {                                                                                                               \
        cudnnStatus_t cudnn_try_status = (cudnn)->name(__VA_ARGS__);                                                   \
        if (cudnn_try_status != CUDNN_STATUS_SUCCESS) {                                                                \
            (cudnn)->call = "cudnn" #name;                                                                             \
            return cudnn_try_status;                                                                                   \
        }                                                                                                              \
    } while (0)
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        cudnnStatus_t try_status = (call);                                                                             \
        if (try_status != CUDNN_STATUS_SUCCESS)                                                                        \
            return try_status;                                                                                         \
    } while (0)

/* A convolution's algorithms, and all that describes it, which is kept as long: cuDNN does not say what a plan refers to. */
struct cudnn_plan {
    struct cuda_plan base;
    struct cudnn_convolution key;
    unsigned n_descriptors, n_configs, config; /* `config` is the one of `plan`, from which on they have not failed */
    unsigned n_built;                          /* of the configurations, those that need no compiler; they come first */
    descriptor descriptors[DESCRIPTORS], configs[CONFIGS], plan;
    uint64_t workspace;
};

static void plan_finish(void *context, struct cuda_plan *base) {
    const struct cuda_cudnn *cudnn = context;
    struct cudnn_plan *plan = (struct cudnn_plan *)base;
    if (plan->plan)
        cudnn->BackendDestroyDescriptor(plan->plan);
    while (plan->n_configs)
        cudnn->BackendDestroyDescriptor(plan->configs[--plan->n_configs]);
    while (plan->n_descriptors)
        cudnn->BackendDestroyDescriptor(plan->descriptors[--plan->n_descriptors]);
    plan->plan = NULL;
    plan->base.ready = false;
    plan->n_built = 0;
}

static void cudnn_open(struct cuda *cuda) {
    struct cuda_cudnn *cudnn = calloc(1, sizeof *cudnn);
    char file[32], text[160];
    if (!cudnn) {
        cuda_library_put_off(cuda, CUDA_CUDNN, "no host memory");
        return;
    }
#define CUDNN_SYMBOL(name) {"cudnn" #name, &cudnn->name},
    const struct cuda_symbol symbols[] = {CUDNN_FUNCTIONS(CUDNN_SYMBOL)};
#undef CUDNN_SYMBOL
    snprintf(file, sizeof file, "libcudnn.so.%d", CUDNN_MAJOR);
    if (!cuda_library_load(cuda, CUDA_CUDNN, file, symbols, sizeof symbols / sizeof *symbols)) {
        free(cudnn);
        return;
    }
    size_t version = cudnn->GetVersion();
    cudnn->plans = cuda_plans_create(KEPT, sizeof(struct cudnn_plan), offsetof(struct cudnn_plan, key),
                                     sizeof(struct cudnn_convolution), plan_finish, cudnn);
    cudnnStatus_t status = cudnn->plans ? cudnn->Create(&cudnn->handle) : CUDNN_STATUS_INTERNAL_ERROR;
    if (status != CUDNN_STATUS_SUCCESS) {
        snprintf(text, sizeof text, "cudnnCreate: %.140s", cudnn->GetErrorString(status));
        cuda_library_put_off(cuda, CUDA_CUDNN, text);
        cuda_plans_destroy(cudnn->plans);
        free(cudnn);
        return;
    }
    snprintf(text, sizeof text, "%zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
    cuda_library_loaded(cuda, CUDA_CUDNN, text);
    cuda->cudnn = cudnn;
}

void cudnn_finish(struct cuda *cuda) {
    struct cuda_cudnn *cudnn = cuda->cudnn;
    if (!cudnn)
        return;
    cuda_plans_destroy(cudnn->plans);
    cudnn->Destroy(cudnn->handle);
    free(cudnn);
    cuda->cudnn = NULL;
}

/* ---- descriptions ---- */

static cudnnStatus_t plan_make(struct cuda_cudnn *cudnn, struct cudnn_plan *plan, cudnnBackendDescriptorType_t type,
                               descriptor *out) {
    CUDNN_TRY(cudnn, BackendCreateDescriptor, type, out);
    plan->descriptors[plan->n_descriptors++] = *out;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t set(struct cuda_cudnn *cudnn, descriptor of, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t n, const void *values) {
    CUDNN_TRY(cudnn, BackendSetAttribute, of, name, type, n, values);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize(struct cuda_cudnn *cudnn, descriptor of) {
    CUDNN_TRY(cudnn, BackendFinalize, of);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnDataType_t type_of(enum dtype dtype) {
    return dtype == DTYPE_F16    ? CUDNN_DATA_HALF
           : dtype == DTYPE_BF16 ? CUDNN_DATA_BFLOAT16
           : dtype == DTYPE_F64  ? CUDNN_DATA_DOUBLE
                                 : CUDNN_DATA_FLOAT;
}

/* cuDNN knows two and three axes: of one, the axis before it has an extent of 1. */
static int axes_of(const struct convolution *c) {
    return c->axes == 1 ? 2 : c->axes;
}
static const int64_t *last_axes(const struct convolution *c, const int64_t *axes) {
    return axes + CONVOLUTION_AXES - axes_of(c);
}

struct tensor_description {
    int64_t id, first, channels; /* extents of its first two dimensions */
    const int64_t *extents;
    cudnnDataType_t type;
    int64_t alignment;
    bool virtual; /* it is never in memory */
};

static cudnnStatus_t make_tensor(struct cuda_cudnn *cudnn, struct cudnn_plan *plan,
                                 const struct tensor_description *tensor, descriptor *out) {
    const struct convolution *c = &plan->key.convolution;
    int axes = axes_of(c), n = 2 + axes;
    int64_t dims[DIMS] = {tensor->first, tensor->channels}, strides[DIMS], stride = 1;
    memcpy(dims + 2, last_axes(c, tensor->extents), (size_t)axes * sizeof *dims);
    if (c->channels_last) {
        strides[1] = 1;
        stride = dims[1];
    }
    for (int i = n - 1; i >= 2; i--) {
        strides[i] = stride;
        stride *= dims[i];
    }
    if (!c->channels_last) {
        strides[1] = stride;
        stride *= dims[1];
    }
    strides[0] = stride;
    TRY(plan_make(cudnn, plan, CUDNN_BACKEND_TENSOR_DESCRIPTOR, out));
    TRY(set(cudnn, *out, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &tensor->id));
    TRY(set(cudnn, *out, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &tensor->type));
    TRY(set(cudnn, *out, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, n, dims));
    TRY(set(cudnn, *out, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, n, strides));
    TRY(set(cudnn, *out, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &tensor->alignment));
    if (tensor->virtual)
        TRY(set(cudnn, *out, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &tensor->virtual));
    return finalize(cudnn, *out);
}

static cudnnStatus_t make_geometry(struct cuda_cudnn *cudnn, struct cudnn_plan *plan, cudnnDataType_t compute,
                                   descriptor *out) {
    const struct convolution *c = &plan->key.convolution;
    const int64_t axes = axes_of(c), *padding = last_axes(c, c->padding);
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    TRY(plan_make(cudnn, plan, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, out));
    TRY(set(cudnn, *out, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &axes));
    TRY(set(cudnn, *out, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute));
    TRY(set(cudnn, *out, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
    TRY(set(cudnn, *out, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, axes, padding));
    TRY(set(cudnn, *out, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, axes, padding));
    TRY(set(cudnn, *out, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, axes, last_axes(c, c->stride)));
    TRY(set(cudnn, *out, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, axes, last_axes(c, c->dilation)));
    return finalize(cudnn, *out);
}

/* What the three operations call their parts. */
static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t geometry, x, weight, y, alpha, beta;
} ways[] = {
    [CUDNN_WAY_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [CUDNN_WAY_BACK] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [CUDNN_WAY_WEIGHT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

static cudnnStatus_t make_convolution(struct cuda_cudnn *cudnn, struct cudnn_plan *plan, cudnnDataType_t compute,
                                      descriptor x, descriptor weight, descriptor y, descriptor *out) {
    static const float one = 1, zero = 0;
    static const double wide_one = 1, wide_zero = 0;
    const bool wide = compute == CUDNN_DATA_DOUBLE;
    const cudnnBackendAttributeType_t scale = wide ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
    const int way = plan->key.way;
    descriptor geometry;
    TRY(make_geometry(cudnn, plan, compute, &geometry));
    TRY(plan_make(cudnn, plan, ways[way].type, out));
    TRY(set(cudnn, *out, ways[way].geometry, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &geometry));
    TRY(set(cudnn, *out, ways[way].x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x));
    TRY(set(cudnn, *out, ways[way].weight, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &weight));
    TRY(set(cudnn, *out, ways[way].y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y));
    TRY(set(cudnn, *out, ways[way].alpha, scale, 1, wide ? (const void *)&wide_one : &one));
    TRY(set(cudnn, *out, ways[way].beta, scale, 1, wide ? (const void *)&wide_zero : &zero));
    return finalize(cudnn, *out);
}

/* y = sum + bias, in f32. */
static cudnnStatus_t make_bias(struct cuda_cudnn *cudnn, struct cudnn_plan *plan, descriptor sum, descriptor bias,
                               descriptor y, descriptor *out) {
    const cudnnPointwiseMode_t mode = CUDNN_POINTWISE_ADD;
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    descriptor add;
    TRY(plan_make(cudnn, plan, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, &add));
    TRY(set(cudnn, add, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode));
    TRY(set(cudnn, add, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute));
    TRY(finalize(cudnn, add));
    TRY(plan_make(cudnn, plan, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, out));
    TRY(set(cudnn, *out, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &add));
    TRY(set(cudnn, *out, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &sum));
    TRY(set(cudnn, *out, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &bias));
    TRY(set(cudnn, *out, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y));
    return finalize(cudnn, *out);
}

static cudnnStatus_t make_graph(struct cuda_cudnn *cudnn, struct cudnn_plan *plan, descriptor *graph) {
    static const int64_t one[CONVOLUTION_AXES] = {1, 1, 1};
    const struct cudnn_convolution *key = &plan->key;
    const struct convolution *c = &key->convolution;
    const cudnnDataType_t type = type_of((enum dtype)key->dtype);
    const cudnnDataType_t compute = type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    const struct tensor_description tensors[] = {
        {ID_X, c->batch, c->x_channels, c->x, type, key->x_alignment, false},
        {ID_WEIGHT, c->y_channels, c->x_channels / c->groups, c->kernel, type, key->weight_alignment, false},
        {ID_Y, c->batch, c->y_channels, c->y, type, key->y_alignment, false},
        {ID_BIAS, 1, c->y_channels, one, type, key->bias_alignment, false},
        {ID_SUM, c->batch, c->y_channels, c->y, compute, 16, true},
    };
    descriptor tensor[5], operations[2];
    const int n_tensors = key->bias ? 5 : 3, n_operations = key->bias ? 2 : 1;
    for (int i = 0; i < n_tensors; i++)
        TRY(make_tensor(cudnn, plan, &tensors[i], &tensor[i]));
    TRY(make_convolution(cudnn, plan, compute, tensor[0], tensor[1], key->bias ? tensor[4] : tensor[2],
                         &operations[0]));
    if (key->bias)
        TRY(make_bias(cudnn, plan, tensor[4], tensor[3], tensor[2], &operations[1]));
    TRY(plan_make(cudnn, plan, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, graph));
    TRY(set(cudnn, *graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &cudnn->handle));
    TRY(set(cudnn, *graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n_operations, operations));
    return finalize(cudnn, *graph);
}

/* ---- algorithms ---- */

/* Whether the engine's kernels are compiled when a plan is made of it, which takes long. */
static bool engine_compiles(const struct cuda_cudnn *cudnn, descriptor engine) {
    cudnnBackendBehaviorNote_t notes[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    int64_t n = 0;
    if (cudnn->BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                   CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &n, notes) != CUDNN_STATUS_SUCCESS)
        return false;
    bool compiles = false;
    for (int64_t i = 0; i < n && i < CUDNN_BEHAVIOR_NOTE_TYPE_COUNT; i++)
        compiles |= notes[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
    return compiles;
}

/* Whether the notes of the engine behind a configuration allow it (cudnn.h). */
static cudnnStatus_t config_allowed(struct cuda_cudnn *cudnn, const struct cudnn_plan *plan, descriptor config,
                                    bool *allowed, bool *compiles) {
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    const bool f32 = plan->key.dtype == DTYPE_F32;
    int64_t n = 0;
    descriptor engine;
    *allowed = false;
    CUDNN_TRY(cudnn, BackendCreateDescriptor, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine);
    cudnnStatus_t status =
        cudnn->BackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                            CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, notes);
    *compiles = status == CUDNN_STATUS_SUCCESS && engine_compiles(cudnn, engine);
    cudnn->BackendDestroyDescriptor(engine);
    cudnn->call = "cudnnBackendGetAttribute";
    *allowed = status == CUDNN_STATUS_SUCCESS && n <= CUDNN_NUMERICAL_NOTE_TYPE_COUNT;
    for (int64_t i = 0; i < n && *allowed; i++)
        *allowed = notes[i] == CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP ||
                   (notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE && (!f32 || plan->key.tf32));
    return status;
}

/* In the order in which they are offered, but what needs a compiler comes last. */
static void plan_add_config(struct cudnn_plan *plan, descriptor config, bool compiles) {
    unsigned at = compiles ? plan->n_configs : plan->n_built;
    memmove(&plan->configs[at + 1], &plan->configs[at], (plan->n_configs - at) * sizeof(descriptor));
    plan->configs[at] = config;
    plan->n_configs++;
    plan->n_built += !compiles;
}

/* Adds the allowed configurations that one heuristic offers. A heuristic that fails offers none. */
static cudnnStatus_t plan_add_configs(struct cuda_cudnn *cudnn, struct cudnn_plan *plan, descriptor graph,
                                      cudnnBackendHeurMode_t mode) {
    descriptor heuristic, offered[OFFERED];
    int64_t n = 0, made = 0;
    TRY(plan_make(cudnn, plan, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristic));
    TRY(set(cudnn, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph));
    TRY(set(cudnn, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
    TRY(finalize(cudnn, heuristic));
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    for (; made < OFFERED && status == CUDNN_STATUS_SUCCESS; made++) {
        status = cudnn->BackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &offered[made]);
        cudnn->call = "cudnnBackendCreateDescriptor";
        made -= status != CUDNN_STATUS_SUCCESS;
    }
    if (status == CUDNN_STATUS_SUCCESS) {
        status = cudnn->BackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                            OFFERED, &n, offered);
        cudnn->call = "cudnnBackendGetAttribute";
    }
    for (int64_t i = 0; i < made; i++) {
        bool keep = false, compiles = false;
        if (status == CUDNN_STATUS_SUCCESS && i < n && plan->n_configs < CONFIGS)
            status = config_allowed(cudnn, plan, offered[i], &keep, &compiles);
        if (keep)
            plan_add_config(plan, offered[i], compiles);
        else
            cudnn->BackendDestroyDescriptor(offered[i]);
    }
    return status;
}

/* Makes the execution plan of a configuration. */
static cudnnStatus_t plan_try(struct cuda_cudnn *cudnn, struct cudnn_plan *plan, descriptor config) {
    int64_t n = 0, bytes = 0;
    CUDNN_TRY(cudnn, BackendCreateDescriptor, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan->plan);
    TRY(set(cudnn, plan->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &cudnn->handle));
    TRY(set(cudnn, plan->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config));
    TRY(finalize(cudnn, plan->plan));
    CUDNN_TRY(cudnn, BackendGetAttribute, plan->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n,
              &bytes);
    plan->workspace = bytes > 0 ? (uint64_t)bytes : 0;
    if (plan->workspace <= cudnn_workspace(&plan->key))
        return CUDNN_STATUS_SUCCESS;
    cudnn->call = "more workspace than a launch may have";
    return CUDNN_STATUS_NOT_SUPPORTED;
}

/* The first configuration from plan->config on that works. */
static cudnnStatus_t plan_choose(struct cuda_cudnn *cudnn, struct cudnn_plan *plan) {
    cudnnStatus_t status = CUDNN_STATUS_NOT_SUPPORTED;
    cudnn->call = plan->n_configs ? "no algorithm is left" : "no algorithm is deterministic and as precise as promised";
    for (; plan->config < plan->n_configs; plan->config++) {
        status = plan_try(cudnn, plan, plan->configs[plan->config]);
        plan->base.ready = status == CUDNN_STATUS_SUCCESS;
        if (plan->base.ready)
            return status;
        if (plan->plan)
            cudnn->BackendDestroyDescriptor(plan->plan);
        plan->plan = NULL;
    }
    return status;
}

/* A refusal for good: of this convolution alone. */
static bool status_lasts(cudnnStatus_t status) {
    cudnnStatus_t category = CUDNN_STATUS_CATEGORY(status);
    return category == CUDNN_STATUS_NOT_SUPPORTED || category == CUDNN_STATUS_BAD_PARAM;
}

static cudnnStatus_t plan_begin(struct cuda_cudnn *cudnn, struct cudnn_plan *plan) {
    descriptor graph;
    plan->config = 0;
    cudnnStatus_t status = make_graph(cudnn, plan, &graph);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    status = plan_add_configs(cudnn, plan, graph, CUDNN_HEUR_MODE_A);
    if (plan->n_configs < CONFIGS)
        status = plan_add_configs(cudnn, plan, graph, CUDNN_HEUR_MODE_FALLBACK);
    return plan->n_configs || status == CUDNN_STATUS_SUCCESS ? plan_choose(cudnn, plan) : status;
}

/* ---- execution ---- */

static cudnnStatus_t pack_set(struct cuda_cudnn *cudnn, descriptor pack, const struct cudnn_plan *plan,
                              const struct cudnn_operands *operands) {
    const int64_t ids[] = {ID_X, ID_WEIGHT, ID_Y, ID_BIAS};
    void *const data[] = {operands->x, operands->weight, operands->y, operands->bias};
    const int64_t n = plan->key.bias ? 4 : 3;
    TRY(set(cudnn, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids));
    TRY(set(cudnn, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, data));
    if (plan->workspace)
        TRY(set(cudnn, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &operands->workspace));
    return finalize(cudnn, pack);
}

static cudnnStatus_t plan_execute(struct cuda_cudnn *cudnn, const struct cudnn_plan *plan,
                                  const struct cudnn_operands *operands, cudaStream_t stream) {
    descriptor pack;
    CUDNN_TRY(cudnn, SetStream, cudnn->handle, stream); /* each time: a stream may have a former one's address */
    CUDNN_TRY(cudnn, BackendCreateDescriptor, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    cudnnStatus_t status = pack_set(cudnn, pack, plan, operands);
    if (status == CUDNN_STATUS_SUCCESS) {
        cudnn->call = "cudnnBackendExecute";
        status = cudnn->BackendExecute(cudnn->handle, plan->plan, pack);
    }
    cudnn->BackendDestroyDescriptor(pack);
    return status;
}

/* As cudnn_convolve(), with the library for this thread. */
static int plan_convolve(struct cuda *cuda, const struct cudnn_convolution *key, const struct cudnn_operands *operands,
                         cudaStream_t stream, bool *refused, struct fault *fault) {
    if (!cuda->cudnn && cuda_library_due(cuda, CUDA_CUDNN))
        cudnn_open(cuda);
    struct cuda_cudnn *cudnn = cuda->cudnn;
    if (!cudnn)
        return STATUS_OK;
    bool make;
    struct cudnn_plan *plan = (struct cudnn_plan *)cuda_plans_find(cudnn->plans, key, &make);
    if (!plan)
        return cuda_library_refused(cuda, CUDA_CUDNN, "a plan", "no host memory", fault);
    cudnnStatus_t status = make ? plan_begin(cudnn, plan) : CUDNN_STATUS_SUCCESS;
    if (status == CUDNN_STATUS_SUCCESS && !plan->base.ready)
        return cuda_library_refused(cuda, CUDA_CUDNN, "", NULL, fault);
    while (status == CUDNN_STATUS_SUCCESS) {
        status = plan_execute(cudnn, plan, operands, stream);
        if (status == CUDNN_STATUS_SUCCESS) {
            *refused = false;
            cuda_library_computed(cuda, CUDA_CUDNN);
            return STATUS_OK;
        }
        if (!status_lasts(status) && CUDNN_STATUS_CATEGORY(status) != CUDNN_STATUS_EXECUTION_FAILED)
            break;
        /* This algorithm does not work for this convolution: the next one takes its place. */
        int code = cuda_survives(cudnn->call, fault);
        if (code != STATUS_OK)
            return code;
        cudnn->BackendDestroyDescriptor(plan->plan);
        plan->plan = NULL;
        plan->base.ready = false;
        plan->config++;
        status = plan_choose(cudnn, plan);
    }
    char text[120];
    snprintf(text, sizeof text, "%s", cudnn->GetErrorString(status));
    if (!plan->base.ready) {
        plan_finish(cudnn, &plan->base);
        plan->base.put_off = !status_lasts(status);
    }
    return cuda_library_refused(cuda, CUDA_CUDNN, cudnn->call, text, fault);
}

int cudnn_convolve(struct cuda *cuda, const struct cudnn_convolution *key, const struct cudnn_operands *operands,
                   cudaStream_t stream, bool *refused, struct fault *fault) {
    *refused = true;
    cuda_library_begin(CUDA_CUDNN);
    int code = plan_convolve(cuda, key, operands, stream, refused, fault);
    cuda_library_end(CUDA_CUDNN);
    return code;
}

bool cudnn_ready(const struct cuda *cuda, const struct cudnn_convolution *key) {
    return !cuda_library_is_aside(cuda, CUDA_CUDNN) && cuda->cudnn && cuda_plans_has(cuda->cudnn->plans, key);
}

#else

bool cudnn_ready(const struct cuda *cuda, const struct cudnn_convolution *key) {
    (void)cuda, (void)key;
    return true;
}

int cudnn_convolve(struct cuda *cuda, const struct cudnn_convolution *key, const struct cudnn_operands *operands,
                   cudaStream_t stream, bool *refused, struct fault *fault) {
    (void)key, (void)operands, (void)stream, (void)fault;
    if (cuda_library_due(cuda, CUDA_CUDNN))
        cuda_library_missing(cuda, CUDA_CUDNN, "this module was built without cuDNN's headers");
    *refused = true;
    return STATUS_OK;
}

void cudnn_finish(struct cuda *cuda) {
    (void)cuda;
}

#endif
