// gpu-probe [ORDINAL]: what no stand-in can tell of a GPU, in some 20 s: what calls cost, what waits for what, and whether
// cublasLt's epilogues are right. Its last lines say what to set. Calls CUDA alone, nothing of tensord's.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void check(cudaError_t error, const char *call) {
    if (error != cudaSuccess) {
        printf("FAILED %s: %s\n", call, cudaGetErrorString(error));
        exit(1);
    }
}
#define CHECK(call) check((call), #call)

cudaStream_t stream_create() {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0));
    return stream;
}

void synchronise(cudaStream_t stream) {
    CHECK(cudaStreamSynchronize(stream));
}

/* ---- memory ---- */

double ms_of(cudaError_t error, double begin, const char *call) {
    check(error, call);
    return (now() - begin) * 1e3;
}

void memory_costs() {
    void *memory;
    double begin = now();
    printf("pin 32 MiB: %.2f ms",
           ms_of(cudaHostAlloc(&memory, 32 << 20, cudaHostAllocPortable), begin, "cudaHostAlloc"));
    begin = now();
    printf(", unpin %.2f ms", ms_of(cudaFreeHost(memory), begin, "cudaFreeHost"));
    begin = now();
    printf("; cudaMalloc of 1 GiB %.2f ms", ms_of(cudaMalloc(&memory, 1 << 30), begin, "cudaMalloc"));
    begin = now();
    printf(", cudaFree %.2f ms\n", ms_of(cudaFree(memory), begin, "cudaFree"));
}

/* ---- launches ---- */

struct small_arguments {
    float *x, *b;
};
struct flat_arguments { /* as large as tensord's for operands without gaps, */
    float *x, *b;
    char rest[32];
};
struct wide_arguments { /* and for others */
    float *x, *b;
    char rest[432];
};

template <class Arguments> __global__ void add16(const __grid_constant__ Arguments p) {
    if (threadIdx.x < 16) {
        p.x[threadIdx.x] += p.b[threadIdx.x];
    }
}

struct launches {
    int events;  /* one for so many launches; 0: none */
    bool polled; /* by another thread, all the time */
};

/* Microseconds of one of many launches, each after the one before. */
template <class Arguments> double launch_cost(cudaStream_t stream, float *memory, const launches &how) {
    enum { COUNT = 20000, EVENTS = 64 };
    std::vector<cudaEvent_t> events(EVENTS);
    std::atomic<int> newest{-1};
    std::atomic<bool> end{false};
    Arguments arguments = {};
    void *list[] = {&arguments};
    arguments.x = memory;
    arguments.b = memory + 16;
    for (auto &event : events) {
        CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    }
    std::thread poller([&] {
        while (how.polled && !end) {
            int i = newest;
            if (i >= 0) {
                cudaEventQuery(events[(size_t)i % EVENTS]);
            }
        }
    });
    double us = 0;
    for (int round = 0; round < 2; round++) { /* the first warms up */
        synchronise(stream);
        double begin = now();
        for (int i = 0; i < COUNT; i++) {
            CHECK(cudaLaunchKernel((const void *)add16<Arguments>, dim3(1), dim3(256), list, 0, stream));
            if (how.events && i % how.events == how.events - 1) {
                CHECK(cudaEventRecord(events[(size_t)(i / how.events) % EVENTS], stream));
                newest = i / how.events;
            }
        }
        synchronise(stream);
        us = (now() - begin) / COUNT * 1e6;
    }
    end = true;
    poller.join();
    for (auto &event : events) {
        cudaEventDestroy(event);
    }
    return us;
}

void launch_costs(cudaStream_t stream) {
    float *memory;
    CHECK(cudaMalloc((void **)&memory, 128));
    CHECK(cudaMemsetAsync(memory, 0, 128, stream));
    printf("us per launch: 16 bytes of arguments %.2f, 48 bytes %.2f, 448 bytes %.2f\n",
           launch_cost<small_arguments>(stream, memory, {}), launch_cost<flat_arguments>(stream, memory, {}),
           launch_cost<wide_arguments>(stream, memory, {}));
    printf("  with an event each 256 launches %.2f, and a thread that polls %.2f; with an event each launch %.2f, "
           "polled %.2f\n",
           launch_cost<flat_arguments>(stream, memory, {256, false}),
           launch_cost<flat_arguments>(stream, memory, {256, true}),
           launch_cost<flat_arguments>(stream, memory, {1, false}),
           launch_cost<flat_arguments>(stream, memory, {1, true}));
    CHECK(cudaFree(memory));
}

/* ---- what waits for what ---- */

__global__ void spin(volatile int *stop, long long ns) {
#ifdef __CUDA_ARCH__
    long long begin, t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    } while (!*stop && t - begin < ns);
#endif
}
template <int> __global__ void fresh() { /* each of these is launched for the first time once */
}

void waits() {
    enum { STREAMS = 32, DEEP = 5000 };
    int *stop, through = 0, deep = 0;
    double begin, call, longest = 0;
    CHECK(cudaHostAlloc((void **)&stop, sizeof *stop, cudaHostAllocMapped));
    *stop = 0;
    std::vector<cudaStream_t> streams;
    std::vector<cudaEvent_t> events(STREAMS);
    for (int i = 0; i < STREAMS; i++) {
        streams.push_back(stream_create());
        CHECK(cudaEventCreateWithFlags(&events[(size_t)i], cudaEventDisableTiming));
    }
    spin<<<1, 1, 0, streams[0]>>>(stop, 1000);
    synchronise(streams[0]);

    spin<<<1, 1, 0, streams[0]>>>(stop, 1000000000);
    begin = now();
    fresh<0><<<1, 1, 0, streams[1]>>>();
    call = now() - begin;
    synchronise(streams[1]);
    printf("a kernel's first launch beside one that runs for a second: the call took %.1f ms, done after %.1f ms%s\n",
           call * 1e3, (now() - begin) * 1e3, now() - begin > 0.5 ? " (it waits: kernels must be preloaded)" : "");
    synchronise(streams[0]);

    spin<<<1, 1, 0, streams[0]>>>(stop, 500000000);
    begin = now();
    for (size_t i = 1; i < STREAMS; i++) {
        fresh<0><<<1, 1, 0, streams[i]>>>();
        CHECK(cudaEventRecord(events[i], streams[i]));
    }
    while (now() - begin < 0.2) {
    }
    for (size_t i = 1; i < STREAMS; i++) {
        through += cudaEventQuery(events[i]) == cudaSuccess;
    }
    cudaGetLastError();
    printf("of 31 streams beside a busy one %d get through (CUDA_DEVICE_MAX_CONNECTIONS=%s)\n", through,
           getenv("CUDA_DEVICE_MAX_CONNECTIONS") ? getenv("CUDA_DEVICE_MAX_CONNECTIONS") : "not set");
    synchronise(streams[0]);

    spin<<<1, 1, 0, streams[0]>>>(stop, 1000000000);
    for (; deep < DEEP && longest < 0.05; deep++) {
        begin = now();
        fresh<0><<<1, 1, 0, streams[0]>>>();
        longest = fmax(longest, now() - begin);
    }
    printf("launches on one stream until one blocks: %d%s\n", deep, deep == DEEP ? " or more" : "");
    synchronise(streams[0]);
    for (size_t i = 0; i < STREAMS; i++) {
        cudaStreamDestroy(streams[i]);
        cudaEventDestroy(events[i]);
    }
    cudaFreeHost(stop);
}

/* ---- epilogues ---- */

struct epilogue {
    cublasLtHandle_t handle;
    cudaStream_t stream;
    void *a, *b, *bias, *d, *workspace;
    void *host; /* pinned, for any one of them */
    int tried;  /* algorithms */
};
enum { EXTENT_MAX = 1024, WORKSPACE = 32 << 20, ALGORITHMS = 8 };

/* D [m, n] = activation(A [m, k] · B [k, n] + bias [m]), of whose B each column picks one of A's. False: no such product. */
struct shape {
    int m, n, k;
};
const shape shapes[] = {{64, 64, 64}, {1024, 16, 256}, {16, 1024, 1024}, {512, 512, 512}, {256, 1024, 64}};

template <class T> double value_of(int i) { /* from -8 to 8 */
    return (double)(float)T(-8.0f + 16.0f * (float)(i % 4096) / 4096.0f);
}

double gelu(double x) {
    double u = 0.7978845608028654 * (x + 0.044715 * x * x * x);
    return x / (1 + exp(-2 * u));
}

/* The worst of all elements, in units of what the conformance suite allows; infinity where a NaN is lost, or made. */
template <class T> double epilogue_error(const epilogue &e, const shape &s, bool relu, double ulp) {
    const T *d = (const T *)e.host;
    CHECK(cudaMemcpyAsync(e.host, e.d, (size_t)s.m * (size_t)s.n * sizeof(T), cudaMemcpyDefault, e.stream));
    synchronise(e.stream);
    double worst = 0;
    for (int j = 0; j < s.n; j++) {
        for (int i = 0; i < s.m; i++) {
            double x = value_of<T>(i + j % s.k * s.m), got = (double)(float)d[(size_t)i + (size_t)j * (size_t)s.m];
            double want = i == 3 ? NAN : relu ? (x < 0 ? 0 : x) : gelu(x);
            double allowed = ulp * fabs(want) * 4 + 12 * 0x1p-24 * (fabs(x) + 1);
            double off = std::isnan(want) != std::isnan(got) ? INFINITY
                         : std::isnan(want)                  ? 0
                                                             : fabs(got - want) / allowed;
            worst = off > worst ? off : worst;
        }
    }
    return worst;
}

template <class T, class Value> void epilogue_fill(const epilogue &e, void *to, int n, Value value) {
    for (int i = 0; i < n; i++) {
        ((T *)e.host)[i] = T((float)value(i));
    }
    CHECK(cudaMemcpyAsync(to, e.host, (size_t)n * sizeof(T), cudaMemcpyDefault, e.stream));
    synchronise(e.stream);
}

template <class T> double epilogue_try(epilogue &e, const shape &s, cudaDataType type, bool relu, double ulp) {
    cublasLtMatmulDescOpaque_t description;
    cublasLtMatrixLayoutOpaque_t a, b, d;
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t results[ALGORITHMS];
    const float one = 1, zero = 0;
    uint32_t kind = relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_GELU_BIAS;
    size_t workspace = WORKSPACE;
    int found = 0;
    double worst = 0;
    epilogue_fill<T>(e, e.a, s.m * s.k, [](int i) { return value_of<T>(i); });
    epilogue_fill<T>(e, e.b, s.k * s.n, [&](int i) { return i % s.k == i / s.k % s.k ? 1.0 : 0.0; });
    epilogue_fill<T>(e, e.bias, s.m, [](int i) { return i == 3 ? NAN : 0.0; });
    cublasLtMatmulDescInit(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(&description, CUBLASLT_MATMUL_DESC_EPILOGUE, &kind, sizeof kind);
    cublasLtMatmulDescSetAttribute(&description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &e.bias, sizeof e.bias);
    cublasLtMatrixLayoutInit(&a, type, (uint64_t)s.m, (uint64_t)s.k, s.m);
    cublasLtMatrixLayoutInit(&b, type, (uint64_t)s.k, (uint64_t)s.n, s.k);
    cublasLtMatrixLayoutInit(&d, type, (uint64_t)s.m, (uint64_t)s.n, s.m);
    cublasLtMatmulPreferenceInit(&preference);
    cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                         sizeof workspace);
    memset(results, 0, sizeof results);
    cublasLtMatmulAlgoGetHeuristic(e.handle, &description, &a, &b, &d, &d, &preference, ALGORITHMS, results, &found);
    for (int i = 0; i < found; i++) {
        if (results[i].state != CUBLAS_STATUS_SUCCESS ||
            cublasLtMatmul(e.handle, &description, &one, e.a, &a, e.b, &b, &zero, e.d, &d, e.d, &d, &results[i].algo,
                           e.workspace, workspace, e.stream) != CUBLAS_STATUS_SUCCESS) {
            continue;
        }
        e.tried++;
        worst = fmax(worst, epilogue_error<T>(e, s, relu, ulp));
    }
    return worst;
}

template <class T>
void epilogue_both(epilogue &e, const char *name, cudaDataType type, double ulp, std::string &right) {
    for (bool relu : {true, false}) {
        double worst = 0;
        e.tried = 0;
        for (const shape &s : shapes) {
            worst = fmax(worst, epilogue_try<T>(e, s, type, relu, ulp));
        }
        bool fine = e.tried > 0 && worst <= 1;
        printf("  %s of %s: %d algorithms, worst error %.3g of what is allowed%s%s\n", relu ? "relu" : "gelu", name,
               e.tried, worst, std::isinf(worst) ? " (a NaN is lost)" : "", fine ? "" : ": not to be used");
        if (fine) {
            right += (right.empty() ? "" : ",") + std::string(relu ? "relu_" : "gelu_") + name;
        }
    }
}

std::string epilogues(cudaStream_t stream) {
    epilogue e = {};
    std::string right;
    const size_t most = (size_t)EXTENT_MAX * EXTENT_MAX * sizeof(float);
    e.stream = stream;
    if (cublasLtCreate(&e.handle) != CUBLAS_STATUS_SUCCESS) {
        printf("cublasLt cannot be had\n");
        return right;
    }
    for (void **memory : {&e.a, &e.b, &e.d, &e.bias}) {
        CHECK(cudaMalloc(memory, most));
    }
    CHECK(cudaMalloc(&e.workspace, WORKSPACE));
    CHECK(cudaHostAlloc(&e.host, most, cudaHostAllocPortable));
    printf("epilogues of cublasLt:\n");
    epilogue_both<float>(e, "f32", CUDA_R_32F, 0x1p-24, right);
    epilogue_both<__half>(e, "f16", CUDA_R_16F, 0x1p-11, right);
    epilogue_both<__nv_bfloat16>(e, "bf16", CUDA_R_16BF, 0x1p-8, right);
    for (void *memory : {e.a, e.b, e.d, e.bias, e.workspace}) {
        cudaFree(memory);
    }
    cudaFreeHost(e.host);
    cublasLtDestroy(e.handle);
    return right;
}

} // namespace

int main(int argc, char **argv) {
    int driver = 0, runtime = 0, ordinal = argc > 1 ? atoi(argv[1]) : 0;
    cudaDeviceProp properties;
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); /* as tensord does */
    setvbuf(stdout, nullptr, _IOLBF, 0);
    double begin = now();
    CHECK(cudaSetDevice(ordinal));
    CHECK(cudaFree(nullptr));
    CHECK(cudaGetDeviceProperties(&properties, ordinal));
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    printf("%s, %d processors, driver %d, runtime %d, context %.0f ms\n", properties.name,
           properties.multiProcessorCount, driver, runtime, (now() - begin) * 1e3);
    cudaStream_t stream = stream_create();
    memory_costs();
    launch_costs(stream);
    std::string right = epilogues(stream);
    waits();
    printf("to be set, after test_device_operations has passed with it: TENSORD_CUDA_FUSED=%s\n",
           right.empty() ? "none" : right.c_str());
    return 0;
}
