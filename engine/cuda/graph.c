#include "engine/cuda/graph.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cuda/blas.h"
#include "engine/cuda/cuda_device.h"
#include "engine/cuda/driver.h"
#include "engine/cuda/library.h"

/* Launches in all graphs of a device: each node takes memory of the device that nobody has counted. */
enum { GRAPHS_LAUNCHES_MOST = 1 << 17 };
/* When a graph is made, this much device memory must be left beside the pool's. With less, CUDA may fail to load a kernel for its first
 * launch, which is a failure of the device. */
static const uint64_t graphs_leave = UINT64_C(256) << 20;
static const size_t room_smallest = (size_t)1 << 20;

struct device_graph {
    struct cuda_device *device;
    unsigned n;
    cudaGraph_t graph; /* of which `exec` was made: its nodes name those of `exec` */
    cudaGraphExec_t exec;
    struct device_event *last; /* when it is given back before it may have run: comes after its last launch */
    cudaGraphNode_t nodes[]; /* of each launch; NULL: it made none or several, or the node does not tell what it says */
};

/* Graphs have the address of what was the largest block when they were captured. */
struct device_graph_memory {
    struct graph_block {
        struct graph_block *next;
        void *memory;
        size_t bytes;
    } * blocks; /* the largest first */
};

/* ---- refusals ---- */

static int refuse(struct device_graph_outcome *outcome, unsigned launch, const char *reason) {
    snprintf(outcome->refusal, sizeof outcome->refusal, "%.127s", reason);
    outcome->refused = launch;
    return STATUS_OK;
}

/* A call has failed: a refusal, unless the device has. */
static int refuse_error(struct device_graph_outcome *outcome, unsigned launch, cudaError_t error, const char *call,
                        struct fault *fault) {
    int code = cuda_fault(fault, error, call);
    return code == STATUS_DEVICE_LOST ? code : refuse(outcome, launch, fault->message);
}

/* Returns from a function that has `outcome`, `n` and `fault`. */
#define GRAPH_TRY(call)                                                                                                \
    do {                                                                                                               \
        cudaError_t graph_try_error = (call);                                                                          \
        if (graph_try_error != cudaSuccess)                                                                            \
            return refuse_error(outcome, n, graph_try_error, #call, fault);                                            \
    } while (0)

/* Calls that come later look at the thread's last error. */
static void captured_destroy(cudaGraph_t graph) {
    cudaGraphDestroy(graph);
    cudaGetLastError();
}

/* ---- capturing ---- */

/* Launches while they are captured. */
struct taking {
    struct cuda_device *device;
    struct device_stream *stream;
    const struct device_step *steps;
    unsigned n;
    const bool *only;       /* NULL: all of them */
    cudaGraphNode_t *nodes; /* [n]: as in struct device_graph */
    size_t nodes_so_far;
};

/* How often libraries have refused so far. */
static uint64_t refusals(const struct cuda *cuda) {
    return blas_refusals(cuda->blas) + cuda_libraries_refused(cuda);
}

/* What the stream has captured so far: how many nodes, and the one that the next would follow. */
static cudaError_t capture_look(cudaStream_t stream, size_t *nodes, cudaGraphNode_t *last) {
    enum cudaStreamCaptureStatus status;
    const cudaGraphNode_t *before = NULL;
    cudaGraph_t graph;
    size_t n_before = 0;
#if CUDART_VERSION >= 13000
    const cudaGraphEdgeData *edges = NULL;
    cudaError_t error = cudaStreamGetCaptureInfo(stream, &status, NULL, &graph, &before, &edges, &n_before);
#else
    cudaError_t error = cudaStreamGetCaptureInfo_v2(stream, &status, NULL, &graph, &before, &n_before);
#endif
    if (error != cudaSuccess)
        return error;
    if (status != cudaStreamCaptureStatusActive)
        return cudaErrorStreamCaptureInvalidated;
    *last = n_before == 1 ? before[0] : NULL;
    return cudaGraphGetNodes(graph, NULL, nodes);
}

/* Whether a library that may compute operations of the family has been loaded. */
static bool capture_refuses(const struct cuda *cuda, enum op_family family) {
    enum cuda_library library = family == OP_FAMILY_CONVOLUTION ? CUDA_CUDNN
                                : family == OP_FAMILY_FFT       ? CUDA_CUFFT
                                : family == OP_FAMILY_DECOMPOSE ? CUDA_CUSOLVER
                                                                : CUDA_LIBRARIES;
    return library != CUDA_LIBRARIES && cuda_library_in_use(cuda, library);
}

static int capture_launch(struct taking *taking, const struct device_step *step, struct fault *fault) {
    struct device *base = &taking->device->base;
    const struct launch *launch = step->launch;
    if (step->fused)
        return base->vtable->fusion->launch(base, taking->stream, step->kernel, step->fused, fault);
    const struct cuda_kernel *kernel = (const struct cuda_kernel *)cuda_operations[launch->opcode];
    return kernel->driver(&taking->device->cuda, &taking->stream->cuda, launch, fault);
}

static int capture_one(struct taking *taking, unsigned i, struct device_graph_outcome *outcome, struct fault *fault) {
    struct cuda *cuda = &taking->device->cuda;
    const struct device_step *step = &taking->steps[i];
    size_t nodes = 0;
    cudaGraphNode_t last = NULL;
    if (step->launch && capture_refuses(cuda, op_info(step->launch->opcode)->family))
        return refuse(outcome, i, "it is a library's");
    uint64_t refused = refusals(cuda);
    int code = capture_launch(taking, step, fault);
    if (code == STATUS_DEVICE_LOST)
        return code;
    if (taking->stream->cuda.capture->wanted)
        return refuse(outcome, i, "no memory for its workspace");
    if (code != STATUS_OK)
        return refuse(outcome, i, fault->message);
    if (refusals(cuda) != refused)
        return refuse(outcome, i, "a library has refused it");
    cudaError_t error = capture_look(taking->stream->cuda.stream, &nodes, &last);
    if (error != cudaSuccess)
        return refuse_error(outcome, i, error, "cudaStreamGetCaptureInfo", fault);
    taking->nodes[i] = nodes == taking->nodes_so_far + 1 ? last : NULL;
    taking->nodes_so_far = nodes;
    return STATUS_OK;
}

/* *graph NULL: refused. */
static int capture_once(struct taking *taking, struct cuda_capture *capture, cudaGraph_t *graph,
                        struct device_graph_outcome *outcome, struct fault *fault) {
    cudaStream_t stream = taking->stream->cuda.stream;
    unsigned n = taking->n;
    int code = STATUS_OK;
    *graph = NULL;
    taking->nodes_so_far = 0;
    GRAPH_TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    taking->stream->cuda.capture = capture;
    for (unsigned i = 0; i < n && code == STATUS_OK && !*outcome->refusal; i++)
        if (!taking->only || taking->only[i])
            code = capture_one(taking, i, outcome, fault);
    taking->stream->cuda.capture = NULL;
    cudaError_t error = cudaStreamEndCapture(stream, graph);
    if (error != cudaSuccess)
        *graph = NULL;
    if (code == STATUS_OK && !*outcome->refusal && error != cudaSuccess)
        return refuse_error(outcome, n, error, "cudaStreamEndCapture", fault);
    if (code == STATUS_OK && !*outcome->refusal)
        return STATUS_OK;
    if (*graph)
        captured_destroy(*graph);
    cudaGetLastError(); /* clears what drivers and the end of a broken capture have left */
    *graph = NULL;
    return code;
}

/* ---- scratch memory ---- */

/* A larger block for graphs to come. Half of the room stays with launches that are made by themselves, which give way to one another, while graphs keep
 * what they have. False, and the launch that wants it is refused: there is none. */
static bool memory_grow(struct cuda_device *device, struct device_graph_memory *memory, size_t wanted) {
    struct cuda_workspaces *workspaces = &device->workspaces;
    struct graph_block *block = malloc(sizeof *block);
    struct fault fault;
    size_t bytes = room_smallest;
    while (bytes < wanted)
        bytes *= 2;
    uint64_t graphs = atomic_load(&device->graph_bytes) + bytes, all = atomic_load(&workspaces->bytes) + bytes;
    if (!block || graphs > workspaces->limit / 2 || all > workspaces->limit ||
        cuda_memory_reserve(&device->memory, bytes, &block->memory, &fault) != STATUS_OK) {
        cudaGetLastError();
        free(block);
        return false;
    }
    atomic_fetch_add(&workspaces->bytes, bytes);
    atomic_fetch_add(&device->graph_bytes, bytes);
    block->bytes = bytes;
    block->next = memory->blocks;
    memory->blocks = block;
    return true;
}

/* Captures the launches, again and again while they want more scratch memory than there is. */
static int capture(struct taking *taking, struct device_graph_memory *memory, cudaGraph_t *graph,
                   struct device_graph_outcome *outcome, struct fault *fault) {
    for (;;) {
        struct cuda_capture capture = {.memory = memory->blocks ? memory->blocks->memory : NULL,
                                       .bytes = memory->blocks ? memory->blocks->bytes : 0};
        int code = capture_once(taking, &capture, graph, outcome, fault);
        if (code != STATUS_OK || !capture.wanted || !memory_grow(taking->device, memory, capture.wanted))
            return code;
        *outcome = (struct device_graph_outcome){.refused = taking->n};
    }
}

/* ---- making and updating ---- */

static void graph_free(struct device_graph *graph) {
    if (graph->exec)
        cudaGraphExecDestroy(graph->exec);
    if (graph->graph)
        cudaGraphDestroy(graph->graph);
    cudaGetLastError();
    atomic_fetch_sub(&graph->device->graph_launches, graph->n);
    free(graph);
}

/* The memory thread calls this. It sleeps until the graph's last launch has run (cudaEventBlockingSync): CUDA does not say that an
 * executable graph may be destroyed while it runs. */
static void graph_drop(void *dropped) {
    struct device_graph *graph = dropped;
    struct device *base = &graph->device->base;
    if (graph->last) {
        cudaEventSynchronize(graph->last->event);
        cudaGetLastError();
        base->vtable->async->event_release(base, graph->last);
    }
    graph_free(graph);
}

/* Gives back a graph that was perhaps launched on the stream before. */
static int graph_retire(struct device_graph *graph, struct device_stream *stream, struct fault *fault) {
    struct device *base = &graph->device->base;
    struct fault ignored;
    int code = base->vtable->async->event_record(base, stream, &graph->last, &ignored);
    if (code != STATUS_OK)
        graph->last = NULL;
    if (code == STATUS_DEVICE_LOST)
        *fault = ignored;
    cuda_memory_drop(&graph->device->memory, graph_drop, graph);
    return code == STATUS_DEVICE_LOST ? code : STATUS_OK;
}

/* Refuses if little memory would be left when the pool has taken all that it may. */
static int graph_check_memory(struct cuda_device *device, unsigned n, struct device_graph_outcome *outcome,
                              struct fault *fault) {
    size_t unused, total;
    GRAPH_TRY(cudaMemGetInfo(&unused, &total));
    uint64_t taken = atomic_load(&device->memory.reserved);
    uint64_t coming = device->memory_total > taken ? device->memory_total - taken : 0;
    return unused < coming + graphs_leave ? refuse(outcome, n, "little memory of the device is left for graphs")
                                          : STATUS_OK;
}

static int graph_instantiate(struct device_graph *graph, struct device_graph_outcome *outcome, struct fault *fault) {
    unsigned n = graph->n;
    GRAPH_TRY(cudaGraphInstantiate(&graph->exec, graph->graph, 0));
    return STATUS_OK;
}

static int graph_make(struct taking *taking, struct device_graph_memory *memory, struct device_graph **result,
                      struct device_graph_outcome *outcome, struct fault *fault) {
    struct cuda_device *device = taking->device;
    unsigned n = taking->n;
    struct device_graph *graph = calloc(1, sizeof *graph + n * sizeof(cudaGraphNode_t));
    if (!graph)
        return refuse(outcome, n, "no host memory for a graph");
    int code = graph_check_memory(device, n, outcome, fault);
    if (code != STATUS_OK || *outcome->refusal) {
        free(graph);
        return code;
    }
    graph->device = device;
    graph->n = n;
    if (atomic_fetch_add(&device->graph_launches, n) + n > GRAPHS_LAUNCHES_MOST) {
        graph_free(graph);
        return refuse(outcome, n, "there are as many launches in graphs as may be");
    }
    taking->nodes = graph->nodes;
    code = capture(taking, memory, &graph->graph, outcome, fault);
    if (code == STATUS_OK && !*outcome->refusal)
        code = graph_instantiate(graph, outcome, fault);
    if (code != STATUS_OK || *outcome->refusal) {
        graph_free(graph);
        return code;
    }
    outcome->captured = true;
    *result = graph;
    return STATUS_OK;
}

/* Makes the graph anew, of what was captured, which it takes over. */
static int graph_replace(struct device_graph *graph, struct device_stream *stream, cudaGraph_t captured,
                         const cudaGraphNode_t *nodes, struct device_graph_outcome *outcome, struct fault *fault) {
    struct device_graph *old = calloc(1, sizeof *old);
    if (!old) {
        captured_destroy(captured);
        return refuse(outcome, graph->n, "no host memory for a graph");
    }
    *old = (struct device_graph){.device = graph->device, .graph = graph->graph, .exec = graph->exec};
    graph->exec = NULL;
    graph->graph = captured;
    memcpy(graph->nodes, nodes, graph->n * sizeof *nodes);
    int code = graph_retire(old, stream, fault);
    return code == STATUS_OK ? graph_instantiate(graph, outcome, fault) : code;
}

/* Another capture of the same launches. If CUDA finds that more than what nodes say is different, the graph is made of it anew. */
static int graph_update_all(struct device_graph *graph, struct taking *taking, struct device_graph_memory *memory,
                            struct device_graph_outcome *outcome, struct fault *fault) {
    cudaGraphExecUpdateResultInfo info;
    cudaGraphNode_t *nodes = calloc(graph->n, sizeof *nodes);
    cudaGraph_t captured = NULL;
    if (!nodes)
        return refuse(outcome, graph->n, "no host memory for a graph");
    taking->only = NULL;
    taking->nodes = nodes;
    int code = capture(taking, memory, &captured, outcome, fault);
    if (code != STATUS_OK || *outcome->refusal) {
        free(nodes);
        return code;
    }
    outcome->captured = true;
    cudaError_t error = cudaGraphExecUpdate(graph->exec, captured, &info);
    if (error == cudaSuccess) {
        captured_destroy(captured);
    } else if (cuda_fault(fault, error, "cudaGraphExecUpdate") == STATUS_DEVICE_LOST) {
        captured_destroy(captured);
        code = STATUS_DEVICE_LOST;
    } else {
        code = graph_replace(graph, taking->stream, captured, nodes, outcome, fault);
    }
    free(nodes);
    return code;
}

/* The driver's functions for nodes of kernels. The runtime's functions do not know kernels of other libraries, such as cublasLt's. */
static struct {
    pthread_once_t once;
    CUresult (*get)(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *parameters);
    CUresult (*set)(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *parameters);
} kernel_nodes = {.once = PTHREAD_ONCE_INIT};

static void kernel_nodes_find(void) {
    void *get, *set;
    if (cuda_driver_find("cuGraphKernelNodeGetParams", 12000, &get) == cudaSuccess &&
        cuda_driver_find("cuGraphExecKernelNodeSetParams", 12000, &set) == cudaSuccess && get && set) {
        memcpy(&kernel_nodes.get, &get, sizeof get);
        memcpy(&kernel_nodes.set, &set, sizeof set);
    }
    cudaGetLastError();
}

static cudaError_t kernel_node_exchange(cudaGraphExec_t exec, cudaGraphNode_t node, cudaGraphNode_t from) {
    CUDA_KERNEL_NODE_PARAMS parameters;
    pthread_once(&kernel_nodes.once, kernel_nodes_find);
    if (!kernel_nodes.get)
        return cudaErrorNotSupported;
    CUresult result = kernel_nodes.get(from, &parameters);
    if (result == CUDA_SUCCESS)
        result = kernel_nodes.set(exec, node, &parameters);
    return (cudaError_t)result;
}

/* Makes a node of the executable graph say what `from` says. *same: it does. */
static cudaError_t node_exchange(cudaGraphExec_t exec, cudaGraphNode_t node, cudaGraphNode_t from, bool *same) {
    enum cudaGraphNodeType type, other;
    struct cudaMemcpy3DParms copy;
    struct cudaMemsetParams set;
    cudaError_t error = cudaGraphNodeGetType(node, &type);
    if (error == cudaSuccess)
        error = cudaGraphNodeGetType(from, &other);
    *same = false;
    if (error != cudaSuccess || type != other)
        return error;
    switch (type) {
    case cudaGraphNodeTypeKernel:
        error = kernel_node_exchange(exec, node, from);
        break;
    case cudaGraphNodeTypeMemcpy:
        error = cudaGraphMemcpyNodeGetParams(from, &copy);
        if (error == cudaSuccess)
            error = cudaGraphExecMemcpyNodeSetParams(exec, node, &copy);
        break;
    case cudaGraphNodeTypeMemset:
        error = cudaGraphMemsetNodeGetParams(from, &set);
        if (error == cudaSuccess)
            error = cudaGraphExecMemsetNodeSetParams(exec, node, &set);
        break;
    default:
        return cudaSuccess;
    }
    *same = error == cudaSuccess;
    return error;
}

/* *done: all launches that `changed` names have been given their addresses. A node with which that does not work is not tried again. */
static int graph_exchange(struct device_graph *graph, struct taking *taking, struct device_graph_memory *memory,
                          const bool *changed, bool *done, struct device_graph_outcome *outcome, struct fault *fault) {
    cudaGraphNode_t *nodes = calloc(graph->n, sizeof *nodes);
    cudaGraph_t captured = NULL;
    *done = false;
    if (!nodes)
        return refuse(outcome, graph->n, "no host memory for a graph");
    taking->only = changed;
    taking->nodes = nodes;
    int code = capture(taking, memory, &captured, outcome, fault);
    bool same = code == STATUS_OK && !*outcome->refusal;
    for (unsigned i = 0; i < graph->n && same && code == STATUS_OK; i++) {
        if (!changed[i])
            continue;
        cudaError_t error =
            nodes[i] ? node_exchange(graph->exec, graph->nodes[i], nodes[i], &same) : cudaErrorInvalidValue;
        same = same && nodes[i] && error == cudaSuccess;
        if (!same)
            graph->nodes[i] = NULL;
        if (error != cudaSuccess &&
            cuda_fault(fault, error, "exchanging what a graph's node says") == STATUS_DEVICE_LOST)
            code = STATUS_DEVICE_LOST;
        outcome->exchanged += same;
    }
    if (captured)
        captured_destroy(captured);
    free(nodes);
    *done = same;
    return code;
}

static int graph_update(struct device_graph *graph, struct taking *taking, struct device_graph_memory *memory,
                        const bool *changed, struct device_graph_outcome *outcome, struct fault *fault) {
    bool tells = true, done = false;
    int code = STATUS_OK;
    for (unsigned i = 0; i < graph->n; i++)
        tells = tells && (!changed[i] || graph->nodes[i]);
    if (tells)
        code = graph_exchange(graph, taking, memory, changed, &done, outcome, fault);
    if (code != STATUS_OK || *outcome->refusal || done)
        return code;
    return graph_update_all(graph, taking, memory, outcome, fault);
}

/* ---- the backend's functions ---- */

int cuda_graph_launch(struct device *base, struct device_stream *stream, struct device_graph_memory **memory,
                      struct device_graph **graph, const struct device_step *steps, unsigned n, const bool *changed,
                      struct device_graph_outcome *outcome, struct fault *fault) {
    struct cuda_device *device = (struct cuda_device *)base;
    struct taking taking = {.device = device, .stream = stream, .steps = steps, .n = n};
    *outcome = (struct device_graph_outcome){.refused = n};
    int code = cuda_enter(&device->cuda, fault);
    if (code != STATUS_OK)
        return code;
    if (device->graphs_off)
        return refuse(outcome, n, "TENSORD_CUDA_GRAPHS switches graphs off");
    if (!*memory && !(*memory = calloc(1, sizeof **memory)))
        return refuse(outcome, n, "no host memory for a graph");
    if (!*graph)
        code = graph_make(&taking, *memory, graph, outcome, fault);
    else if (changed)
        code = graph_update(*graph, &taking, *memory, changed, outcome, fault);
    if (code == STATUS_OK && !*outcome->refusal) {
        cudaError_t error = cudaGraphLaunch((*graph)->exec, stream->cuda.stream);
        if (error != cudaSuccess)
            code = refuse_error(outcome, n, error, "cudaGraphLaunch", fault);
    }
    if (*graph && (code != STATUS_OK ||
                   *outcome->refusal)) { /* some of its nodes may have other addresses than the caller notes */
        struct fault other;
        int retired = graph_retire(*graph, stream, code == STATUS_OK ? fault : &other);
        code = code == STATUS_OK ? retired : code;
        *graph = NULL;
    }
    return code;
}

int cuda_graph_retire(struct device *base, struct device_stream *stream, struct device_graph *graph,
                      struct fault *fault) {
    int code = cuda_enter(&((struct cuda_device *)base)->cuda, fault);
    return code == STATUS_OK ? graph_retire(graph, stream, fault) : code;
}

/* Making a graph takes milliseconds; so may this. */
void cuda_graph_release(struct device *base, struct device_graph *graph) {
    cuda_memory_drop(&((struct cuda_device *)base)->memory, graph_drop, graph);
}

void cuda_graph_memory_release(struct device *base, struct device_graph_memory *memory) {
    struct cuda_device *device = (struct cuda_device *)base;
    for (struct graph_block *block = memory->blocks, *next; block; block = next) {
        next = block->next;
        cuda_memory_release(&device->memory, block->memory, block->bytes);
        atomic_fetch_sub(&device->workspaces.bytes, block->bytes);
        atomic_fetch_sub(&device->graph_bytes, block->bytes);
        free(block);
    }
    free(memory);
}

bool cuda_graphs_wanted(void) {
    const char *list = getenv("TENSORD_CUDA_GRAPHS");
    return !list || strcmp(list, "none") != 0;
}
