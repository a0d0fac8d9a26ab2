/* What the real cuDNN says to the descriptions that the module makes, without a GPU: it plans for a device whose properties it is told, of
 * which it takes a text (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION; here those of an H200). Of every convolution of a network's usual
 * shapes, in each way, layout and dtype, there must be a plan, whose engine and workspace the module allows. Where there is no cuDNN,
 * or one that does not know such a text, there is nothing to test (77). */
#include "engine/cuda/cudnn.c"

#include <dlfcn.h>

enum { SKIPPED = 77 };

static const char properties[] =
    "{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,"
    "\"multiProcessorCount\":132,\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,"
    "\"maxSharedMemoryPerBlockOptin\":232448,\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,"
    "\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"
    "\"supportCoopLaunch\":1,\"totalGlobalMem\":150000000000,\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,"
    "\"l2CacheSize\":62914560,\"cudaDeviceId\":0,\"deviceVer\":900,\"driverVer\":13000,\"deviceName\":\"NVIDIA H200\"}";

/* ---- a device in place of a handle ---- */

static struct cuda_cudnn cudnn;
static __typeof__(&cudnnBackendSetAttribute) real_set;
static descriptor device;

static cudnnStatus_t set_for_device(descriptor of, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                    int64_t n, const void *values) {
    if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE)
        return CUDNN_STATUS_SUCCESS;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE)
        return real_set(of, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &device);
    cudnnStatus_t status = real_set(of, name, type, n, values);
    if (status == CUDNN_STATUS_SUCCESS && name == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)
        status = real_set(of, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &device);
    return status;
}

static bool device_make(void) {
    return cudnn.BackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &device) == CUDNN_STATUS_SUCCESS &&
           real_set(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, sizeof properties,
                    properties) == CUDNN_STATUS_SUCCESS &&
           cudnn.BackendFinalize(device) == CUDNN_STATUS_SUCCESS;
}

static bool library_find(void) {
    static const char *const files[] = {"libcudnn.so.9", "/usr/local/cuda/lib64/libcudnn.so.9",
                                        "/usr/local/cuda/lib/libcudnn.so.9"};
    void *handle = NULL;
    for (size_t i = 0; i < sizeof files / sizeof *files && !handle; i++)
        handle = dlopen(files[i], RTLD_NOW);
    bool whole = handle;
#define FIND(name)                                                                                                     \
    if (whole) {                                                                                                       \
        void *symbol = dlsym(handle, "cudnn" #name);                                                                   \
        whole = symbol;                                                                                                \
        memcpy(&cudnn.name, &symbol, sizeof symbol);                                                                   \
    }
    CUDNN_FUNCTIONS(FIND)
#undef FIND
    return whole;
}

/* ---- what cudnn.c calls ---- */

bool cuda_library_wanted(const struct cuda *cuda, enum cuda_library library) {
    (void)cuda, (void)library;
    return false;
}
bool cuda_library_is_aside(const struct cuda *cuda, enum cuda_library library) {
    (void)cuda, (void)library;
    return false;
}
void cuda_library_begin(enum cuda_library library) {
    (void)library;
}
void cuda_library_end(enum cuda_library library) {
    (void)library;
}
bool cuda_plans_has(const struct cuda_plans *plans, const void *key) {
    (void)plans, (void)key;
    return false;
}
void *cuda_library_load(struct cuda *cuda, enum cuda_library library, const char *file,
                        const struct cuda_symbol *symbols, unsigned n) {
    (void)cuda, (void)library, (void)file, (void)symbols, (void)n;
    return NULL;
}
void cuda_library_loaded(struct cuda *cuda, enum cuda_library library, const char *version) {
    (void)cuda, (void)library, (void)version;
}
void cuda_library_missing(struct cuda *cuda, enum cuda_library library, const char *reason) {
    (void)cuda, (void)library, (void)reason;
}

void cuda_library_put_off(struct cuda *cuda, enum cuda_library library, const char *reason) {
    (void)cuda, (void)library, (void)reason;
}

bool cuda_library_due(struct cuda *cuda, enum cuda_library library) {
    return cuda_library_wanted(cuda, library);
}
void cuda_library_computed(struct cuda *cuda, enum cuda_library library) {
    (void)cuda, (void)library;
}
int cuda_library_refused(struct cuda *cuda, enum cuda_library library, const char *call, const char *reason,
                         struct fault *fault) {
    (void)cuda, (void)library, (void)call, (void)reason, (void)fault;
    return STATUS_OK;
}
int cuda_survives(const char *call, struct fault *fault) {
    (void)call, (void)fault;
    return STATUS_OK;
}
struct cuda_plans *cuda_plans_create(unsigned room, size_t plan_bytes, size_t key_at, size_t key_bytes,
                                     void (*finish)(void *context, struct cuda_plan *plan), void *context) {
    (void)room, (void)plan_bytes, (void)key_at, (void)key_bytes, (void)finish, (void)context;
    return NULL;
}
void cuda_plans_destroy(struct cuda_plans *plans) {
    (void)plans;
}
struct cuda_plan *cuda_plans_find(struct cuda_plans *plans, const void *key, bool *made) {
    (void)plans, (void)key, (void)made;
    return NULL;
}

/* ---- convolutions ---- */

static const struct shape {
    int axes;
    int64_t batch, groups, channels, filters, extent, kernel, stride, padding;
} shapes[] = {
    {2, 32, 1, 64, 64, 56, 3, 1, 1},  {2, 32, 1, 256, 64, 56, 1, 1, 0}, {2, 32, 1, 128, 128, 56, 3, 2, 1},
    {2, 32, 1, 512, 512, 7, 3, 1, 1}, {2, 32, 1, 3, 64, 224, 7, 2, 3},  {2, 32, 64, 64, 64, 56, 3, 1, 1},
    {1, 8, 1, 16, 32, 100, 5, 1, 2},  {3, 4, 1, 16, 16, 16, 3, 1, 1},
};
static const struct type {
    enum dtype dtype;
    bool tf32;
    const char *name;
} types[] = {{DTYPE_F32, false, "f32"},
             {DTYPE_F32, true, "tf32"},
             {DTYPE_F16, false, "f16"},
             {DTYPE_BF16, false, "bf16"},
             {DTYPE_F64, false, "f64"}};

static struct cudnn_convolution key_of(const struct shape *shape, const struct type *type, int way, bool last,
                                       bool bias) {
    struct cudnn_convolution key;
    memset(&key, 0, sizeof key);
    struct convolution *c = &key.convolution;
    c->axes = shape->axes;
    c->channels_last = last;
    c->batch = shape->batch;
    c->groups = shape->groups;
    c->x_channels = shape->channels;
    c->y_channels = shape->filters;
    for (int i = 0; i < CONVOLUTION_AXES; i++) {
        bool there = i >= CONVOLUTION_AXES - c->axes;
        c->x[i] = there ? shape->extent : 1;
        c->kernel[i] = there ? shape->kernel : 1;
        c->stride[i] = there ? shape->stride : 1;
        c->padding[i] = there ? shape->padding : 0;
        c->dilation[i] = 1;
        c->y[i] = (c->x[i] + 2 * c->padding[i] - c->kernel[i]) / c->stride[i] + 1;
    }
    key.way = (uint16_t)way;
    key.dtype = (uint16_t)type->dtype;
    key.tf32 = type->tf32;
    key.bias = bias;
    key.x_alignment = key.weight_alignment = key.y_alignment = key.bias_alignment = 16;
    return key;
}

int main(void) {
    unsigned planned = 0, without = 0;
    if (!library_find()) {
        printf("there is no cuDNN\n");
        return SKIPPED;
    }
    real_set = cudnn.BackendSetAttribute;
    cudnn.BackendSetAttribute = set_for_device;
    if (!device_make()) {
        printf("cuDNN %zu does not plan for a device that is not here\n", cudnn.GetVersion());
        return SKIPPED;
    }
    for (unsigned i = 0; i < sizeof shapes / sizeof *shapes * (sizeof types / sizeof *types) * 12; i++) {
        const struct shape *shape = &shapes[i / 60];
        const struct type *type = &types[i / 12 % 5];
        int way = (int)(i % 3);
        bool last = i / 3 % 2, bias = i / 6 % 2;
        if (bias && (way != CUDNN_WAY_FORWARD || dtype_size(type->dtype) != 2))
            continue;
        struct cudnn_plan plan = {.key = key_of(shape, type, way, last, bias)};
        cudnnStatus_t status = plan_begin(&cudnn, &plan);
        bool right = status == CUDNN_STATUS_SUCCESS && plan.base.ready && plan.workspace <= cudnn_workspace(&plan.key);
        planned++;
        without += !right;
        if (!right)
            printf("%s, shape %u, way %d%s%s: %s in %s\n", type->name, i / 60, way, last ? ", channels last" : "",
                   bias ? ", with a bias" : "", cudnn.GetErrorString(status), cudnn.call);
        plan_finish(&cudnn, &plan.base);
    }
    cudnn.BackendDestroyDescriptor(device);
    printf("cuDNN %zu: %u convolutions, %u of them without a plan\n", cudnn.GetVersion(), planned, without);
    return without != 0;
}
