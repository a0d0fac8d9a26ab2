/* The stand-in for cuDNN: the graph interface, as much of it as convolutions take. It offers engines that must not be chosen, such that
 * cannot be made, and such that want a workspace; and it computes in double precision, rounding once. */
#include <cudnn_graph.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/stand_ins/libraries/stand_in.h"

#define EXPECT(condition) stand_in_expect(condition, "what does not fulfil: " #condition)

enum { ATTRIBUTES_MAX = 12, AXES = 3, DIMS = 2 + AXES, WORKSPACE = 512 };

struct attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t n;
    void *values;
};

struct object {
    cudnnBackendDescriptorType_t type;
    bool final;
    int users, n_attributes;
    struct attribute attributes[ATTRIBUTES_MAX];
    int engine;           /* of a configuration, or an engine */
    struct object *graph; /* of a configuration */
};

struct cudnnContext {
    cudaStream_t stream;
};

static cudnnStatus_t outcome(const char *function) {
    switch (stand_in_call(function)) {
    case STAND_IN_WORKS:
        return CUDNN_STATUS_SUCCESS;
    case STAND_IN_NO_MEMORY:
        return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    case STAND_IN_REFUSES:
        return CUDNN_STATUS_NOT_SUPPORTED;
    default:
        return CUDNN_STATUS_EXECUTION_FAILED;
    }
}
#define BEGIN                                                                                                          \
    do {                                                                                                               \
        cudnnStatus_t begin_status = outcome(__func__);                                                                \
        if (begin_status != CUDNN_STATUS_SUCCESS)                                                                      \
            return begin_status;                                                                                       \
    } while (0)

size_t cudnnGetVersion(void) {
    return CUDNN_VERSION;
}

const char *cudnnGetErrorString(cudnnStatus_t status) {
    return status == CUDNN_STATUS_SUCCESS                    ? "CUDNN_STATUS_SUCCESS"
           : status == CUDNN_STATUS_NOT_SUPPORTED            ? "CUDNN_STATUS_NOT_SUPPORTED"
           : status == CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH ? "CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH"
           : status == CUDNN_STATUS_EXECUTION_FAILED         ? "CUDNN_STATUS_EXECUTION_FAILED"
                                                             : "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED";
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
    BEGIN;
    *handle = calloc(1, sizeof **handle);
    stand_in_objects(1);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    free(handle);
    stand_in_objects(-1);
    return outcome(__func__);
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    BEGIN;
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- descriptors ---- */

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *descriptor) {
    BEGIN;
    struct object *object = calloc(1, sizeof *object);
    object->type = type;
    stand_in_objects(1);
    *descriptor = object;
    return CUDNN_STATUS_SUCCESS;
}

static size_t size_of(cudnnBackendAttributeType_t type) {
    switch (type) {
    case CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
        return 8;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return sizeof(void *);
    default:
        return 4;
    }
}

static void use(const struct attribute *attribute, int more) {
    for (int64_t i = 0; attribute->type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < attribute->n; i++)
        ((struct object **)attribute->values)[i]->users += more;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
    struct object *object = descriptor;
    stand_in_expect(object->users == 0, "a descriptor back that others refer to");
    for (int i = 0; i < object->n_attributes; i++) {
        use(&object->attributes[i], -1);
        free(object->attributes[i].values);
    }
    if (object->graph)
        object->graph->users--;
    free(object);
    stand_in_objects(-1);
    return outcome(__func__);
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n, const void *values) {
    BEGIN;
    struct object *object = descriptor;
    stand_in_expect(!object->final, "an attribute for a finished descriptor");
    stand_in_expect(object->n_attributes < ATTRIBUTES_MAX && n > 0, "attributes without end");
    struct attribute *attribute = &object->attributes[object->n_attributes++];
    *attribute = (struct attribute){name, type, n, malloc((size_t)n * size_of(type))};
    memcpy(attribute->values, values, (size_t)n * size_of(type));
    use(attribute, 1);
    for (int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < n; i++)
        stand_in_expect(((struct object **)attribute->values)[i]->final, "a descriptor that is not finished");
    return CUDNN_STATUS_SUCCESS;
}

static const struct attribute *find(const struct object *object, cudnnBackendAttributeName_t name) {
    for (int i = 0; i < object->n_attributes; i++)
        if (object->attributes[i].name == name)
            return &object->attributes[i];
    return NULL;
}

static const void *get(const struct object *object, cudnnBackendAttributeName_t name,
                       cudnnBackendAttributeType_t type) {
    const struct attribute *attribute = find(object, name);
    stand_in_expect(attribute && attribute->type == type, "a descriptor without an attribute, or one of another type");
    return attribute->values;
}
#define INT64(of, name) (*(const int64_t *)get(of, name, CUDNN_TYPE_INT64))
#define OBJECT(of, name) (*(struct object *const *)get(of, name, CUDNN_TYPE_BACKEND_DESCRIPTOR))

/* ---- what descriptors say ---- */

struct tensor {
    int64_t id, dims[DIMS], strides[DIMS], alignment; /* axes that it has not are in front of the others */
    int n;
    cudnnDataType_t type;
    bool virtual;
};

static size_t bytes_of(cudnnDataType_t type) {
    return type == CUDNN_DATA_DOUBLE ? 8 : type == CUDNN_DATA_FLOAT ? 4 : 2;
}

static struct tensor tensor_of(const struct object *object) {
    struct tensor tensor = {.dims = {1, 1, 1, 1, 1}};
    EXPECT(object->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const struct attribute *dims = find(object, CUDNN_ATTR_TENSOR_DIMENSIONS);
    const int64_t *strides = get(object, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64);
    EXPECT(dims && (dims->n == 4 || dims->n == 5) && find(object, CUDNN_ATTR_TENSOR_STRIDES)->n == dims->n);
    tensor.n = (int)dims->n;
    for (int i = 0; i < tensor.n; i++) {
        int at = i < 2 ? i : i + DIMS - tensor.n;
        tensor.dims[at] = ((const int64_t *)dims->values)[i];
        tensor.strides[at] = strides[i];
        EXPECT(tensor.dims[at] > 0 && strides[i] > 0);
    }
    tensor.id = INT64(object, CUDNN_ATTR_TENSOR_UNIQUE_ID);
    tensor.alignment = INT64(object, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    tensor.type = *(const cudnnDataType_t *)get(object, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE);
    tensor.virtual = find(object, CUDNN_ATTR_TENSOR_IS_VIRTUAL) != NULL;
    EXPECT(tensor.alignment >= (int64_t)bytes_of(tensor.type) && tensor.alignment <= 16);
    return tensor;
}

struct geometry {
    int64_t padding[AXES], stride[AXES], dilation[AXES];
    cudnnDataType_t compute;
};

static struct geometry geometry_of(const struct object *object) {
    struct geometry geometry = {.stride = {1, 1, 1}, .dilation = {1, 1, 1}};
    int64_t axes = INT64(object, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
    const int64_t *before = get(object, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64);
    const int64_t *after = get(object, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64);
    const int64_t *stride = get(object, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64);
    const int64_t *dilation = get(object, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64);
    EXPECT(axes == 2 || axes == 3);
    for (int64_t i = 0; i < axes; i++) {
        int64_t at = i + AXES - axes;
        EXPECT(before[i] == after[i] && before[i] >= 0 && stride[i] > 0 && dilation[i] > 0);
        geometry.padding[at] = before[i];
        geometry.stride[at] = stride[i];
        geometry.dilation[at] = dilation[i];
    }
    geometry.compute = *(const cudnnDataType_t *)get(object, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE);
    EXPECT(*(const cudnnConvolutionMode_t *)get(object, CUDNN_ATTR_CONVOLUTION_CONV_MODE,
                                                CUDNN_TYPE_CONVOLUTION_MODE) == CUDNN_CROSS_CORRELATION);
    return geometry;
}

enum way { FORWARD, BACK, WEIGHT };

struct work {
    enum way way;
    struct tensor x, weight, y, bias; /* y: of the convolution, or behind the bias */
    bool biased;
    struct geometry geometry;
    int engine;
    void *data[4]; /* of x, weight, y, bias */
};

static struct work convolution_of(const struct object *object) {
    static const struct {
        cudnnBackendDescriptorType_t type;
        cudnnBackendAttributeName_t x, weight, y, geometry, alpha, beta;
    } ways[] = {
        [FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
        [BACK] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
        [WEIGHT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
    };
    struct work work = {.way = FORWARD};
    while (ways[work.way].type != object->type) {
        work.way++;
        EXPECT(work.way <= WEIGHT);
    }
    work.x = tensor_of(OBJECT(object, ways[work.way].x));
    work.weight = tensor_of(OBJECT(object, ways[work.way].weight));
    work.y = tensor_of(OBJECT(object, ways[work.way].y));
    work.geometry = geometry_of(OBJECT(object, ways[work.way].geometry));
    if (work.geometry.compute == CUDNN_DATA_DOUBLE) {
        EXPECT(*(const double *)get(object, ways[work.way].alpha, CUDNN_TYPE_DOUBLE) == 1);
        EXPECT(*(const double *)get(object, ways[work.way].beta, CUDNN_TYPE_DOUBLE) == 0);
    } else {
        EXPECT(*(const float *)get(object, ways[work.way].alpha, CUDNN_TYPE_FLOAT) == 1);
        EXPECT(*(const float *)get(object, ways[work.way].beta, CUDNN_TYPE_FLOAT) == 0);
    }
    return work;
}

static struct work work_of(const struct object *graph) {
    const struct attribute *operations = find(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    EXPECT(operations && operations->n <= 2);
    struct work work = convolution_of(((struct object **)operations->values)[0]);
    EXPECT(work.y.virtual == (operations->n == 2));
    if (operations->n == 2) {
        const struct object *add = ((struct object **)operations->values)[1];
        const struct object *kind = OBJECT(add, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
        EXPECT(work.way == FORWARD && work.y.type == CUDNN_DATA_FLOAT);
        EXPECT(*(const cudnnPointwiseMode_t *)get(kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE) ==
               CUDNN_POINTWISE_ADD);
        EXPECT(tensor_of(OBJECT(add, CUDNN_ATTR_OPERATION_POINTWISE_XDESC)).id == work.y.id);
        work.bias = tensor_of(OBJECT(add, CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
        work.y = tensor_of(OBJECT(add, CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
        work.biased = true;
        EXPECT(!work.y.virtual);
    }
    return work;
}

static bool shapes_fit(const struct work *work) {
    const struct tensor *x = &work->x, *w = &work->weight, *y = &work->y;
    bool fit = x->dims[0] == y->dims[0] && w->dims[0] == y->dims[1] && x->dims[1] % w->dims[1] == 0 &&
               y->dims[1] % (x->dims[1] / w->dims[1]) == 0 && x->n == y->n && w->n == y->n;
    for (int i = 0; i < AXES; i++) {
        int64_t reach = work->geometry.dilation[i] * (w->dims[2 + i] - 1) + 1;
        fit = fit &&
              y->dims[2 + i] == (x->dims[2 + i] + 2 * work->geometry.padding[i] - reach) / work->geometry.stride[i] + 1;
    }
    return fit && x->type == w->type && x->type == y->type &&
           work->geometry.compute == (x->type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT);
}

/* ---- engines ---- */

static const struct engine {
    cudnnBackendNumericalNote_t notes[2];
    int n_notes;
    bool broken; /* it cannot be made */
    int64_t workspace;
    bool compiles; /* when a plan is made of it; there are others that need not be compiled */
} engines[] = {
    {{CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, 2, false, 0},
    {{CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4}, 2, false, 0},
    {{CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, 1, false, WORKSPACE},
    {{CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}, 1, false, 0},
    {{0}, 0, false, 0, true},
    {{0}, 0, true, 0},
    {{0}, 0, false, INT64_C(1) << 40}, /* more than there is */
    {{CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}, 1, false, WORKSPACE},
    {{0}, 0, false, 0}, /* the only one of the second heuristic */
};
enum { ENGINES = sizeof engines / sizeof *engines };

static cudnnStatus_t offer(const struct object *heuristic, int64_t wanted, int64_t *n, void *values) {
    struct object *graph = OBJECT(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    bool second = *(const cudnnBackendHeurMode_t *)get(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE) ==
                  CUDNN_HEUR_MODE_FALLBACK;
    int first = second ? ENGINES - 1 : 0, end = second ? ENGINES : ENGINES - 1;
    *n = end - first;
    for (int i = first; i < end && i - first < wanted; i++) {
        struct object *config = ((struct object **)values)[i - first];
        EXPECT(config->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR && !config->final);
        config->engine = i;
        config->graph = graph;
        config->final = true;
        graph->users++;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted, int64_t *n, void *values) {
    BEGIN;
    const struct object *object = descriptor;
    EXPECT(object->final || name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE || name == CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE);
    switch ((int)name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        EXPECT(type == CUDNN_TYPE_BACKEND_DESCRIPTOR);
        return offer(object, wanted, n, values);
    case CUDNN_ATTR_ENGINECFG_ENGINE:
        EXPECT(type == CUDNN_TYPE_BACKEND_DESCRIPTOR && wanted == 1);
        (*(struct object **)values)->engine = object->engine;
        *n = 1;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        EXPECT(type == CUDNN_TYPE_NUMERICAL_NOTE && wanted >= 2);
        *n = engines[object->engine].n_notes;
        memcpy(values, engines[object->engine].notes, sizeof engines[object->engine].notes);
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
        EXPECT(type == CUDNN_TYPE_BEHAVIOR_NOTE && wanted >= 1);
        *n = engines[object->engine].compiles;
        *(cudnnBackendBehaviorNote_t *)values = CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        EXPECT(type == CUDNN_TYPE_INT64 && wanted == 1);
        *n = 1;
        *(int64_t *)values = engines[OBJECT(object, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->engine].workspace;
        return CUDNN_STATUS_SUCCESS;
    default:
        stand_in_expect(false, "an unknown attribute");
        return CUDNN_STATUS_BAD_PARAM;
    }
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
    BEGIN;
    struct object *object = descriptor;
    EXPECT(!object->final);
    if (object->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR)
        tensor_of(object);
    if (object->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
        struct work work = work_of(object);
        if (!shapes_fit(&work))
            return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
    }
    if (object->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
        const struct object *config = OBJECT(object, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
        const struct engine *engine = &engines[config->engine];
        stand_in_expect(config->engine != 0 && config->engine != 1 && config->engine != 3,
                        "an engine that is not deterministic, or not precise");
        stand_in_expect(!engine->compiles || getenv("STAND_IN_FAIL"),
                        "an engine is compiled, though others need not be");
        if (engine->broken)
            return CUDNN_STATUS_NOT_SUPPORTED;
    }
    object->final = true;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- execution ---- */

static double element(const struct tensor *tensor, const void *data, int64_t at) {
    uint32_t bits;
    float number;
    switch (tensor->type) {
    case CUDNN_DATA_DOUBLE:
        return ((const double *)data)[at];
    case CUDNN_DATA_FLOAT:
        return ((const float *)data)[at];
    case CUDNN_DATA_HALF:
        return (double)((const _Float16 *)data)[at];
    default:
        bits = (uint32_t)((const uint16_t *)data)[at] << 16;
        memcpy(&number, &bits, sizeof number);
        return number;
    }
}

static void store(const struct tensor *tensor, void *data, int64_t at, double value) {
    float number = (float)value;
    uint32_t bits;
    switch (tensor->type) {
    case CUDNN_DATA_DOUBLE:
        ((double *)data)[at] = value;
        return;
    case CUDNN_DATA_FLOAT:
        ((float *)data)[at] = number;
        return;
    case CUDNN_DATA_HALF:
        ((_Float16 *)data)[at] = (_Float16)number;
        return;
    default:
        memcpy(&bits, &number, sizeof bits);
        bits = number != number ? 0x7fc00000 : bits + 0x7fff + (bits >> 16 & 1);
        ((uint16_t *)data)[at] = (uint16_t)(bits >> 16);
    }
}

/* TF32: 10 bits of a float's fraction, as a tensor core reads f32. */
static double read_rounded(const struct work *work, const struct tensor *tensor, const void *data, int64_t at) {
    double value = element(tensor, data, at);
    float number = (float)value;
    uint32_t bits;
    if (work->engine != 2 || tensor->type != CUDNN_DATA_FLOAT)
        return value;
    memcpy(&bits, &number, sizeof bits);
    bits &= ~UINT32_C(0x1fff);
    memcpy(&number, &bits, sizeof bits);
    return number;
}

/* Calls `visit` for every product: the places of x, weight and y in memory. */
static void visit_products(const struct work *work, double *sums) {
    const struct tensor *x = &work->x, *w = &work->weight, *y = &work->y;
    const struct geometry *g = &work->geometry;
    int64_t groups = x->dims[1] / w->dims[1], y_channels = y->dims[1] / groups;
    for (int64_t n = 0; n < y->dims[0]; n++)
        for (int64_t k = 0; k < y->dims[1]; k++)
            for (int64_t c = 0; c < w->dims[1]; c++)
                for (int64_t place = 0; place < y->dims[2] * y->dims[3] * y->dims[4]; place++)
                    for (int64_t tap = 0; tap < w->dims[2] * w->dims[3] * w->dims[4]; tap++) {
                        int64_t p[AXES] = {place / y->dims[4] / y->dims[3], place / y->dims[4] % y->dims[3],
                                           place % y->dims[4]};
                        int64_t t[AXES] = {tap / w->dims[4] / w->dims[3], tap / w->dims[4] % w->dims[3],
                                           tap % w->dims[4]};
                        int64_t at_x = n * x->strides[0] + (k / y_channels * w->dims[1] + c) * x->strides[1];
                        int64_t at_w = k * w->strides[0] + c * w->strides[1];
                        int64_t at_y = n * y->strides[0] + k * y->strides[1];
                        bool inside = true;
                        for (int i = 0; i < AXES; i++) {
                            int64_t q = p[i] * g->stride[i] + t[i] * g->dilation[i] - g->padding[i];
                            inside = inside && q >= 0 && q < x->dims[2 + i];
                            at_x += q * x->strides[2 + i];
                            at_w += t[i] * w->strides[2 + i];
                            at_y += p[i] * y->strides[2 + i];
                        }
                        if (!inside)
                            continue;
                        if (work->way == FORWARD)
                            sums[at_y] +=
                                read_rounded(work, x, work->data[0], at_x) * read_rounded(work, w, work->data[1], at_w);
                        else if (work->way == BACK)
                            sums[at_x] +=
                                read_rounded(work, y, work->data[2], at_y) * read_rounded(work, w, work->data[1], at_w);
                        else
                            sums[at_w] +=
                                read_rounded(work, x, work->data[0], at_x) * read_rounded(work, y, work->data[2], at_y);
                    }
}

static void compute(void *argument) {
    const struct work *work = argument;
    const struct tensor *result = work->way == FORWARD ? &work->y : work->way == BACK ? &work->x : &work->weight;
    void *data = work->data[work->way == FORWARD ? 2 : work->way == BACK ? 0 : 1];
    int64_t count = 1;
    for (int i = 0; i < DIMS; i++)
        count *= result->dims[i];
    double *sums = calloc((size_t)count, sizeof *sums);
    visit_products(work, sums);
    for (int64_t at = 0; at < count; at++) {
        double bias = work->biased ? element(&work->bias, work->data[3], at / result->strides[1] % result->dims[1]) : 0;
        store(result, data, at, sums[at] + bias);
    }
    free(sums);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
    BEGIN;
    const struct object *made = plan, *given = pack;
    EXPECT(made->final && given->final);
    const struct object *config = OBJECT(made, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    struct work work = work_of(config->graph);
    const struct tensor *const tensors[] = {&work.x, &work.weight, &work.y, &work.bias};
    const struct attribute *ids = find(given, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    void *const *pointers = get(given, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR);
    EXPECT(ids && ids->n == (work.biased ? 4 : 3));
    work.engine = config->engine;
    for (int64_t i = 0; i < ids->n; i++) {
        int t = 0;
        while (tensors[t]->id != ((const int64_t *)ids->values)[i]) {
            t++;
            EXPECT(t < 4);
        }
        EXPECT(pointers[i] && (uintptr_t)pointers[i] % (uintptr_t)tensors[t]->alignment == 0);
        work.data[t] = pointers[i];
    }
    if (engines[config->engine].workspace) {
        void *workspace = *(void *const *)get(given, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR);
        EXPECT(workspace && (uintptr_t)workspace % 256 == 0);
#ifndef FAKECUDA
        memset(workspace, 0xab, (size_t)engines[config->engine].workspace);
#endif
    }
    return stand_in_put(handle->stream, compute, &work) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}
