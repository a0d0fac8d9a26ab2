/* The backend of NVIDIA GPUs, a module (engine/device/module.h): libtensord-cuda.so. */
#include "engine/cuda/cuda_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cuda/blas.h"
#include "engine/cuda/cudnn.h"
#include "engine/cuda/cufft.h"
#include "engine/cuda/cusolver.h"
#include "engine/cuda/fused_text.h"
#include "engine/cuda/graph.h"
#include "engine/cuda/reduce.h"
#include "engine/cuda/softmax.h"
#include "engine/device/module.h"

/* Scratch memory for one launch, which is held (struct cuda_fallback): a product takes less (matmul.c). */
static const uint64_t fallback_bytes = UINT64_C(256) << 20;

/* The free memory that is left to CUDA itself. Workspaces may have a part of it, so that they and the pool never compete: products need
 * 32 MiB for each stream on Hopper. The rest is for what nobody counts: code that is loaded when it is launched first, what libraries
 * have for themselves, nodes of graphs. When it is used up, CUDA cannot load a kernel for its first launch: that
 * is a failure of the device, and the worker ends. */
static uint64_t cuda_kept(const struct cuda *cuda, uint64_t unused, uint64_t total, uint64_t *workspaces,
                          uint64_t *fallback) {
    bool libraries = false;
    for (int i = 0; i < CUDA_LIBRARIES; i++)
        libraries |= cuda_library_wanted(cuda, (enum cuda_library)i);
    uint64_t base = (UINT64_C(512) << 20) + total / 128, wanted = base / 4 * 3;
    uint64_t kept = base + fallback_bytes + (libraries ? UINT64_C(512) << 20 : 0);
    double part = 1;
    if (kept > unused / 2) {
        part = (double)(unused / 2) / (double)kept;
        kept = unused / 2;
    }
    *workspaces = (uint64_t)((double)wanted * part);
    *fallback = (uint64_t)((double)fallback_bytes * part);
    return kept;
}

/* ---- operations ---- */

struct cuda *cuda_of(struct device *device) {
    return &((struct cuda_device *)device)->cuda;
}

/* concat and stack. */
const struct cuda_kernel cuda_kernel_concat = {.base.parts = OP_PARTS_COPIES};
const struct cuda_kernel cuda_kernel_stack = {.base.parts = OP_PARTS_COPIES};

#define OTHER(ID, name) [OP_##ID] = &cuda_kernel_##name.base,
#define ELEMENTWISE(ID, inputs, flop) [OP_##ID] = &cuda_kernel_elementwise.base,
const struct op_kernel *const cuda_operations[OP_CODE_MAX] = {OP_KERNELS(OTHER) OP_ELEMENTWISE(ELEMENTWISE)};

static int cuda_launch(struct device *base, struct device_stream *stream, const struct launch *launch,
                       struct fault *fault) {
    struct cuda *cuda = &((struct cuda_device *)base)->cuda;
    cuda_driver *driver = ((const struct cuda_kernel *)cuda_operations[launch->opcode])->driver;
    int code = cuda_enter(cuda, fault);
    return code == STATUS_OK ? driver(cuda, &stream->cuda, launch, fault) : code;
}

/* ---- memory ---- */

int cuda_enter(const struct cuda *cuda, struct fault *fault) {
    static _Thread_local int entered = -1;
    if (entered == cuda->ordinal)
        return STATUS_OK;
    CUDA_TRY(fault, cudaSetDevice(cuda->ordinal));
    entered = cuda->ordinal;
    return STATUS_OK;
}

static int cuda_reserve(struct device *base, size_t bytes, void **segment, struct fault *fault) {
    return cuda_memory_reserve(&((struct cuda_device *)base)->memory, bytes, segment, fault);
}

static void cuda_release(struct device *base, void *segment, size_t bytes) {
    cuda_memory_release(&((struct cuda_device *)base)->memory, segment, bytes);
}

static int cuda_host_reserve(struct device *base, size_t bytes, void **segment, struct fault *fault) {
    return cuda_memory_pin(&((struct cuda_device *)base)->memory, bytes, segment, fault);
}

static void cuda_host_release(struct device *base, void *segment, size_t bytes) {
    cuda_memory_unpin(&((struct cuda_device *)base)->memory, segment, bytes);
}

/* ---- the device ---- */

/* What CUDA is told before it starts; it reads these variables when it is first called, which is after this module has been loaded.
 * Otherwise it puts all streams of a process into 8 hardware queues: from the third session on, one session's copies would wait for
 * another's kernels. And cuBLAS, which cuSOLVER calls, may compute other bits while several streams are in use, unless its workspaces
 * have a fixed size. */
__attribute__((constructor)) static void cuda_environment(void) {
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
}

extern const struct device_vtable cuda_device_vtable;

/* "13.0" for 13000. */
static void cuda_version_text(char *text, size_t size, int version) {
    snprintf(text, size, "%d.%d", version / 1000, version % 1000 / 10);
}

static int cuda_read_identity(struct cuda_device *device, const struct cudaDeviceProp *properties,
                              struct fault *fault) {
    struct device_info *info = &device->info;
    const uint8_t *id = (const uint8_t *)properties->uuid.bytes;
    const char *part = cuda_visible_part();
    int driver, runtime, used = snprintf(info->uuid, sizeof info->uuid, "GPU-");
    CUDA_TRY(fault, cudaDriverGetVersion(&driver));
    CUDA_TRY(fault, cudaRuntimeGetVersion(&runtime));
    cuda_version_text(info->driver, sizeof info->driver, driver);
    cuda_version_text(info->runtime, sizeof info->runtime, runtime);
    for (int i = 0; i < 16; i++) /* 8-4-4-4-12 digits, as nvidia-smi writes it */
        used += snprintf(info->uuid + used, sizeof info->uuid - (size_t)used, "%s%02x",
                         i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", id[i]);
    if (part) /* CUDA may tell the UUID of the whole GPU */
        snprintf(info->uuid, sizeof info->uuid, "%s", part);
    snprintf(info->kind, sizeof info->kind, "%s", cuda_device_vtable.kind);
    snprintf(info->model, sizeof info->model, "%.127s", properties->name);
    snprintf(info->capability, sizeof info->capability, "%d.%d", properties->major, properties->minor);
    info->processors = (unsigned)properties->multiProcessorCount;
    return STATUS_OK;
}

/* To be called before any memory of the device is taken. If there is no monitor, there are only no readings. */
static int cuda_watch(struct cuda_device *device, bool readings, struct fault *fault) {
    struct device_info *info = &device->info;
    CUDA_TRY(fault, cudaDeviceGetPCIBusId(info->bus, sizeof info->bus, device->cuda.ordinal));
    if (readings)
        device->monitor = monitor_start(info->bus, cuda_visible_part());
    monitor_wait(device->monitor);
    return STATUS_OK;
}

/* ---- rates ---- */

/* Floating-point operations of products per clock and multiprocessor, without sparsity: from CUDA's programming guide and NVIDIA's papers on
 * each architecture. */
static const struct cuda_rates {
    int capability; /* and above */
    double f8, f16, tf32, f32, f64;
} cuda_rates[] = {
    {100, 16384, 8192, 4096, 256, 128}, {90, 8192, 4096, 2048, 256, 256}, {89, 1024, 512, 256, 256, 4},
    {86, 512, 512, 256, 256, 4},        {80, 2048, 2048, 1024, 128, 128}, {70, 1024, 1024, 128, 128, 64},
    {0, 128, 128, 128, 128, 4},
};

/* The usual part of the peak rate, times the clock in GHz: cudaDeviceProp does not tell the clock any more, and all devices since 2017 run
 * at 1.4 to 2.5 GHz under load. The times that launches really take correct it. */
static const double cuda_clock = 0.6 * 1.7;

/* Gigabits a second of one memory pin: of HBM, which has wide buses, and of GDDR. */
enum { CUDA_HBM_BITS = 2048 };
static const double cuda_pin_hbm = 5, cuda_pin_gddr = 16, cuda_bytes_unknown = 500;

static void cuda_read_rates(struct cuda_device *device, const struct cudaDeviceProp *properties) {
    const struct cuda_rates *row = cuda_rates;
    int capability = properties->major * 10 + properties->minor, bits = properties->memoryBusWidth;
    while (row->capability > capability)
        row++;
    double clock = properties->multiProcessorCount * cuda_clock,
           pin = bits >= CUDA_HBM_BITS ? cuda_pin_hbm : cuda_pin_gddr;
    device->rates = (struct device_rates){.bytes = bits > 0 ? 0.8 * bits / 8 * pin : cuda_bytes_unknown,
                                          .tf32 = row->tf32 * clock,
                                          .launch_ns = 500,
                                          .product_ns = 3000};
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
        device->rates.flop[dtype] = 32 * clock; /* integers and bool: a kernel without tensor cores */
    if (capability >= 80)
        device->rates.flop[DTYPE_I8] = 2 * row->f16 * clock; /* tensor cores */
    device->rates.flop[DTYPE_F16] = device->rates.flop[DTYPE_BF16] = row->f16 * clock;
    device->rates.flop[DTYPE_F8E4M3] = device->rates.flop[DTYPE_F8E5M2] = row->f8 * clock;
    device->rates.flop[DTYPE_F32] = row->f32 * clock;
    device->rates.flop[DTYPE_F64] = row->f64 * clock;
    device->rates.flop[DTYPE_C64] = row->f32 * clock / 4; /* four products and four sums for each of theirs */
    device->rates.flop[DTYPE_C128] = row->f64 * clock / 4;
}

static int cuda_read_properties(struct cuda_device *device, struct fault *fault) {
    struct cuda *cuda = &device->cuda;
    struct cudaDeviceProp properties;
    CUDA_TRY(fault, cudaGetDeviceProperties(&properties, cuda->ordinal));
    CUDA_TRY(fault, cudaDeviceGetStreamPriorityRange(&device->priority_least, &device->priority_greatest));
    cuda->processors = properties.multiProcessorCount;
    cuda->capability = properties.major * 10 + properties.minor;
    cuda->shared_max = (int)properties.sharedMemPerBlockOptin;
    for (int i = 0; i < 3; i++) {
        cuda->grid_max[i] = (uint32_t)properties.maxGridSize[i];
        cuda->block_max[i] = (uint32_t)properties.maxThreadsDim[i];
    }
    cuda_read_rates(device, &properties);
    return cuda_read_identity(device, &properties, fault);
}

static int cuda_read_memory(struct cuda_device *device, uint64_t wanted, struct fault *fault) {
    size_t free_bytes, total_bytes;
    uint64_t fallback;
    cudaMemPool_t pool;
    uint64_t keep = UINT64_MAX;
    int depend = 0;
    CUDA_TRY(fault, cudaMemGetInfo(&free_bytes, &total_bytes));
    device->info.memory_device = total_bytes;
    uint64_t kept = cuda_kept(&device->cuda, free_bytes, total_bytes, &device->workspaces.limit, &fallback);
    device->memory_total = wanted ? wanted : free_bytes - kept;
    /* So that scratch memory that is given back stays in CUDA's pool. */
    CUDA_TRY(fault, cudaDeviceGetDefaultMemPool(&pool, device->cuda.ordinal));
    CUDA_TRY(fault, cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    /* Else one session's stream may be made to wait for another's, whose scratch memory it gets. */
    CUDA_TRY(fault, cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &depend));
    return cuda_fallback_open(device, fallback, fault);
}

static void cuda_finish_asides(struct cuda_device *device) {
    for (int i = 0; i < CUDA_LIBRARIES; i++)
        asides_finish(&device->asides[i]);
}

static int cuda_open(const struct device_options *options, struct device **result, struct fault *fault) {
    struct cuda_device *device = calloc(1, sizeof *device);
    if (!device)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a cuda device");
    device->base.vtable = &cuda_device_vtable;
    device->cuda.ordinal = (int)options->index;
    device->graphs_off = !cuda_graphs_wanted();
    cuda_fused_init(&device->cuda);
    cuda_libraries_init(&device->cuda);
    pthread_mutex_init(&device->events_lock, NULL);
    for (int i = 0; i < CUDA_LIBRARIES; i++)
        asides_init(&device->asides[i], i == CUDA_CUSOLVER ? ASIDES_MOST : 1);
    int code = cuda_watch(device, options->readings, fault);
    if (code == STATUS_OK)
        code = cuda_enter(&device->cuda, fault);
    if (code == STATUS_OK)
        code = cuda_read_properties(device, fault);
    if (code == STATUS_OK)
        code = cuda_read_memory(device, options->memory_total, fault);
    if (code != STATUS_OK) {
        monitor_stop(device->monitor);
        cuda_finish_asides(device);
        pthread_mutex_destroy(&device->events_lock);
        free(device);
        return code;
    }
    monitor_opened(device->monitor);
    cuda_memory_init(&device->memory, &device->cuda, device->monitor, options->preload);
    if (options->preload)
        preload_start(&device->preload, &device->cuda);
    *result = &device->base;
    return STATUS_OK;
}

static void cuda_close(struct device *base) {
    struct cuda_device *device = (struct cuda_device *)base;
    struct fault fault;
    preload_stop(&device->preload);
    cuda_finish_asides(device);
    if (cuda_enter(&device->cuda, &fault) == STATUS_OK) {
        blas_destroy(device->cuda.blas);
        cudnn_finish(&device->cuda);
        cufft_finish(&device->cuda);
        cusolver_finish(&device->cuda);
    }
    cuda_memory_finish(&device->memory);
    if (cuda_enter(&device->cuda, &fault) == STATUS_OK) {
        cuda_fallback_close(device);
        cuda_events_destroy(device);
    }
    monitor_stop(device->monitor);
    pthread_mutex_destroy(&device->events_lock);
    free(device);
}

static void cuda_describe(const struct device *base, struct device_info *info) {
    const struct cuda_device *device = (const struct cuda_device *)base;
    *info = device->info;
    info->memory_total = device->memory_total;
    info->products_library = __atomic_load_n(&device->cuda.products_library, __ATOMIC_RELAXED);
    cuda_libraries_describe(&device->cuda, info);
    info->products_slow = __atomic_load_n(&device->cuda.products_slow, __ATOMIC_RELAXED);
}

static void cuda_tell_rates(const struct device *base, struct device_rates *rates) {
    *rates = ((const struct cuda_device *)base)->rates;
}

static void cuda_readings(struct device *base, struct device_readings *readings) {
    monitor_read(((struct cuda_device *)base)->monitor, readings);
}

/* Elementwise operations, of which the pointer says only that there is text, and reductions and softmax, of which it says how many threads share a row. */
static const void *cuda_fused_kernel(const struct device *base, const struct launch *launch) {
    const struct cuda *cuda = &((const struct cuda_device *)base)->cuda;
    enum op_family family = op_info(launch->opcode)->family;
    bool has = family == OP_FAMILY_ELEMENTWISE || launch->opcode == OP_CAST;
    if (family == OP_FAMILY_SOFTMAX)
        return fused_lanes(softmax_lanes(cuda, launch));
    if (family == OP_FAMILY_REDUCE)
        return fused_text_reduces(launch->opcode, (enum dtype)launch->inputs[0].dtype)
                   ? fused_lanes(reduce_lanes(cuda, launch))
                   : NULL;
    for (unsigned i = 0; i < launch->n_inputs && has; i++)
        has = fused_text_has(launch->opcode, (enum dtype)launch->inputs[i].dtype, (enum dtype)launch->inputs[i].as,
                             (enum dtype)launch->output.dtype);
    return has ? cuda_operations[launch->opcode] : NULL;
}

const struct device_vtable cuda_device_vtable = {
    .kind = "cuda",
    .count = cuda_count,
    .open = cuda_open,
    .close = cuda_close,
    .describe = cuda_describe,
    .rates = cuda_tell_rates,
    .reserve = cuda_reserve,
    .release = cuda_release,
    .host_reserve = cuda_host_reserve,
    .host_release = cuda_host_release,
    .launch = cuda_launch,
    .fusion = &cuda_fusion,
    .fused_kernel = cuda_fused_kernel,
    .async = &cuda_async,
    .workspaces = cuda_workspaces,
    .operations = cuda_operations,
    .list = cuda_list,
    .readings = cuda_readings,
    .kernels = &cuda_kernels,
};

extern const struct device_module tensord_device_module;
__attribute__((visibility("default"))) const struct device_module tensord_device_module = {
    .abi = DEVICE_MODULE_ABI,
    .vtable = &cuda_device_vtable,
};
