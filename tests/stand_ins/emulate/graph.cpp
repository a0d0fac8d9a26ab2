#include "tests/stand_ins/emulate/graph.h"

#include <cuda.h>
#include <stdlib.h>
#include <string.h>
#include <utility>
#include <vector>

#include "tests/stand_ins/emulate/block.h"

/* Copies of a kernel's arguments. */
struct arguments {
    std::vector<void *> at;

    arguments() = default;
    arguments(const struct emulated_kernel *kernel, const void *const *from) {
        for (unsigned i = 0; i < kernel->n; i++) {
            at.push_back(aligned_alloc(64, (kernel->bytes[i] + 63) / 64 * 64));
            memcpy(at[i], from[i], kernel->bytes[i]);
        }
    }
    arguments(arguments &&other) : at(std::move(other.at)) {
        other.at.clear();
    }
    arguments &operator=(arguments &&other) {
        std::swap(at, other.at);
        return *this;
    }
    ~arguments() {
        for (void *argument : at)
            free(argument);
    }
};

struct CUgraphNode_st {
    cudaGraphNodeType type;
    const struct emulated_kernel *kernel = nullptr; /* null: a library's */
    dim3 grid, block;
    size_t shared = 0;
    struct arguments arguments;
    std::function<void()> work;
    void *to = nullptr;
    const void *from = nullptr;
    size_t bytes = 0;
    int value = 0;

    explicit CUgraphNode_st(cudaGraphNodeType kind) : type(kind) {
    }
    void take(const CUgraphNode_st &other) {
        kernel = other.kernel;
        grid = other.grid;
        block = other.block;
        shared = other.shared;
        arguments = kernel ? ::arguments(kernel, other.arguments.at.data()) : ::arguments();
        work = other.work;
        to = other.to;
        from = other.from;
        bytes = other.bytes;
        value = other.value;
    }
    void run() const {
        if (type == cudaGraphNodeTypeMemcpy)
            memmove(to, from, bytes);
        else if (type == cudaGraphNodeTypeMemset)
            memset(to, value, bytes);
        else if (kernel)
            kernel->run(grid, block, shared, (const void *const *)arguments.at.data());
        else
            work();
    }
};

struct CUgraph_st {
    std::vector<cudaGraphNode_t> nodes;

    cudaGraphNode_t add(cudaGraphNodeType type) {
        nodes.push_back(new CUgraphNode_st(type));
        return nodes.back();
    }
    ~CUgraph_st() {
        for (cudaGraphNode_t node : nodes)
            delete node;
    }
};

struct CUgraphExec_st {
    std::vector<cudaGraphNode_t> nodes, of; /* of: those of the graph from which it was made */

    cudaGraphNode_t find(cudaGraphNode_t node, cudaGraphNodeType type) const {
        for (size_t i = 0; i < of.size(); i++)
            if (of[i] == node && nodes[i]->type == type)
                return nodes[i];
        return nullptr;
    }
    ~CUgraphExec_st() {
        for (cudaGraphNode_t node : nodes)
            delete node;
    }
};

/* ---- what is put on streams ---- */

extern "C" void emulated_put(cudaStream_t stream, const struct emulated_kernel *kernel, dim3 grid, dim3 block,
                             size_t shared, const void *const *arguments) {
    if (!stream->captured) {
        kernel->run(grid, block, shared, arguments);
        return;
    }
    cudaGraphNode_t node = stream->captured->add(cudaGraphNodeTypeKernel);
    node->kernel = kernel;
    node->grid = grid;
    node->block = block;
    node->shared = shared;
    node->arguments = ::arguments(kernel, arguments);
}

void emulated_work(cudaStream_t stream, std::function<void()> work) {
    if (stream->captured)
        stream->captured->add(cudaGraphNodeTypeKernel)->work = std::move(work);
    else
        work();
}

extern "C" bool emulated_capture_copy(cudaStream_t stream, void *to, const void *from, size_t bytes) {
    if (!stream->captured)
        return false;
    cudaGraphNode_t node = stream->captured->add(cudaGraphNodeTypeMemcpy);
    node->to = to;
    node->from = from;
    node->bytes = bytes;
    return true;
}

extern "C" bool emulated_capture_set(cudaStream_t stream, void *to, int value, size_t bytes) {
    if (!stream->captured)
        return false;
    cudaGraphNode_t node = stream->captured->add(cudaGraphNodeTypeMemset);
    node->to = to;
    node->value = value;
    node->bytes = bytes;
    return true;
}

/* ---- streams ---- */

extern "C" cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned, int) {
    *stream = new CUstream_st{};
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    delete stream;
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    if (stream->captured)
        return cudaErrorIllegalState;
    stream->captured = new CUgraph_st;
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    *graph = stream->captured;
    stream->captured = nullptr;
    return *graph ? cudaSuccess : cudaErrorIllegalState;
}

#if CUDART_VERSION >= 13000
extern "C" cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus *status,
                                                unsigned long long *, cudaGraph_t *graph,
                                                const cudaGraphNode_t **before, const cudaGraphEdgeData **,
                                                size_t *n_before) {
#else
extern "C" cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, cudaStreamCaptureStatus *status,
                                                   unsigned long long *, cudaGraph_t *graph,
                                                   const cudaGraphNode_t **before, size_t *n_before) {
#endif
    *graph = stream->captured;
    *status = *graph ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    *n_before = *graph && !(*graph)->nodes.empty();
    *before = *n_before ? &(*graph)->nodes.back() : nullptr;
    return cudaSuccess;
}

/* ---- graphs ---- */

extern "C" cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n) {
    if (nodes)
        block_die("somebody wants to see a graph's nodes");
    *n = graph->nodes.size();
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType *type) {
    *type = node->type;
    return cudaSuccess;
}

/* What a library does is in `kern`. */
static CUresult kernel_node_get(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *kernel) {
    *kernel = {};
    kernel->func = (CUfunction)node->kernel;
    kernel->gridDimX = node->grid.x;
    kernel->gridDimY = node->grid.y;
    kernel->gridDimZ = node->grid.z;
    kernel->blockDimX = node->block.x;
    kernel->blockDimY = node->block.y;
    kernel->blockDimZ = node->block.z;
    kernel->sharedMemBytes = (unsigned)node->shared;
    kernel->kernelParams = node->arguments.at.data();
    kernel->kern = node->kernel ? nullptr : (CUkernel)node;
    return CUDA_SUCCESS;
}

extern "C" cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, cudaMemcpy3DParms *copy) {
    *copy = {};
    copy->srcPtr.ptr = (void *)node->from;
    copy->dstPtr.ptr = node->to;
    copy->extent.width = node->bytes;
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node, cudaMemsetParams *set) {
    *set = {};
    set->dst = node->to;
    set->value = (unsigned)node->value;
    set->width = node->bytes;
    return cudaSuccess;
}

/* ---- executable ones ---- */

extern "C" cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long) {
    *exec = new CUgraphExec_st;
    for (cudaGraphNode_t node : graph->nodes) {
        (*exec)->nodes.push_back(new CUgraphNode_st(node->type));
        (*exec)->nodes.back()->take(*node);
        (*exec)->of.push_back(node);
    }
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    delete exec;
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                           cudaGraphExecUpdateResultInfo *info) {
    bool same = exec->nodes.size() == graph->nodes.size();
    for (size_t i = 0; i < exec->nodes.size() && same; i++)
        same = exec->nodes[i]->type == graph->nodes[i]->type;
    info->result = same ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorTopologyChanged;
    if (!same)
        return cudaErrorGraphExecUpdateFailure;
    for (size_t i = 0; i < exec->nodes.size(); i++)
        exec->nodes[i]->take(*graph->nodes[i]);
    return cudaSuccess;
}

static CUresult kernel_node_set(CUgraphExec exec, CUgraphNode of, const CUDA_KERNEL_NODE_PARAMS *kernel) {
    cudaGraphNode_t node = exec->find(of, cudaGraphNodeTypeKernel);
    if (!node)
        return CUDA_ERROR_INVALID_VALUE;
    node->kernel = (const struct emulated_kernel *)kernel->func;
    if (!node->kernel) {
        node->work = ((CUgraphNode)kernel->kern)->work;
        node->arguments = ::arguments();
        return CUDA_SUCCESS;
    }
    node->grid = dim3(kernel->gridDimX, kernel->gridDimY, kernel->gridDimZ);
    node->block = dim3(kernel->blockDimX, kernel->blockDimY, kernel->blockDimZ);
    node->shared = kernel->sharedMemBytes;
    node->arguments = ::arguments(node->kernel, (const void *const *)kernel->kernelParams);
    return CUDA_SUCCESS;
}

void *emulated_driver(const char *name) {
    return !strcmp(name, "cuGraphKernelNodeGetParams")       ? (void *)kernel_node_get
           : !strcmp(name, "cuGraphExecKernelNodeSetParams") ? (void *)kernel_node_set
                                                             : nullptr;
}

extern "C" cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t of,
                                                        const cudaMemcpy3DParms *copy) {
    cudaGraphNode_t node = exec->find(of, cudaGraphNodeTypeMemcpy);
    if (!node)
        return cudaErrorInvalidValue;
    node->from = copy->srcPtr.ptr;
    node->to = copy->dstPtr.ptr;
    node->bytes = copy->extent.width;
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t of,
                                                        const cudaMemsetParams *set) {
    cudaGraphNode_t node = exec->find(of, cudaGraphNodeTypeMemset);
    if (!node)
        return cudaErrorInvalidValue;
    node->to = set->dst;
    node->value = (int)set->value;
    node->bytes = set->width;
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    if (stream->captured)
        block_die("a graph is launched while its stream captures");
    for (cudaGraphNode_t node : exec->nodes)
        node->run();
    return cudaSuccess;
}
