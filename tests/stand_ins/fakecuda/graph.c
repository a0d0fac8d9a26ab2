/* Graphs: what a stream captures in place of doing it, and what is done when they are launched. A kernel's arguments are not kept, since nobody knows
 * how many they are: what is exchanged by nodes shows in copies and memsets alone. Stricter than CUDA: a stream that captures takes no
 * events and no memory from the pool, and only its thread may put something on it. */
#include "tests/stand_ins/fakecuda/fakecuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct CUgraphNode_st {
    struct fakecuda_item item;
    dim3 grid, block;
    const void *kernel; /* of a kernel of the runtime's; NULL: of a library's */
};

struct CUgraph_st {
    struct CUgraphNode_st **nodes;
    size_t n;
    bool broken; /* what was captured is no graph */
};

struct CUgraphExec_st {
    struct CUgraphNode_st *nodes;
    struct CUgraphNode_st **of; /* the nodes of the graph from which it was made */
    size_t n;
    int device;
    _Atomic unsigned *under_way; /* items on streams, which may outlive this */
};

static _Atomic int graphs, execs, early;
/* This thread's capture: CUDA allows a thread several. */
static _Thread_local struct {
    cudaStream_t stream; /* NULL: none */
    struct CUgraph_st *graph;
} capture;

void fakecuda_graph_figures(struct fakecuda_figures *figures) {
    figures->graphs = (unsigned)graphs;
    figures->execs = (unsigned)execs;
    figures->early = (unsigned)early;
}

bool fakecuda_captures(void) {
    return capture.stream;
}

cudaError_t fakecuda_spoil(void) {
    if (!capture.stream)
        return cudaSuccess;
    capture.graph->broken = true;
    return fakecuda_error(cudaErrorStreamCaptureUnsupported);
}

/* ---- capturing ---- */

bool fakecuda_capture(cudaStream_t stream, const struct fakecuda_item *item, cudaError_t *error) {
    if (!capture.stream || stream != capture.stream)
        return false;
    struct CUgraph_st *graph = capture.graph;
    bool takes = item->kind == ITEM_KERNEL || item->kind == ITEM_COPY || item->kind == ITEM_SET;
    *error = !takes          ? fakecuda_spoil()
             : graph->broken ? fakecuda_error(cudaErrorStreamCaptureInvalidated)
                             : cudaSuccess;
    if (*error != cudaSuccess)
        return true;
    struct CUgraphNode_st *node = calloc(1, sizeof *node);
    node->item = *item;
    node->kernel = item->kernel;
    node->grid = item->grid;
    node->block = item->block;
    graph->nodes = realloc(graph->nodes, (graph->n + 1) * sizeof node);
    graph->nodes[graph->n++] = node;
    return true;
}

static void graph_destroy(struct CUgraph_st *graph) {
    for (size_t i = 0; i < graph->n; i++)
        free(graph->nodes[i]);
    free(graph->nodes);
    free(graph);
    graphs--;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    cudaError_t error = fakecuda_call(__func__);
    if (error != cudaSuccess)
        return error;
    if (!stream || capture.stream || mode != cudaStreamCaptureModeThreadLocal) /* others would be disturbed */
        return fakecuda_error(cudaErrorIllegalState);
    capture.stream = stream;
    capture.graph = calloc(1, sizeof *capture.graph);
    graphs++;
    return cudaSuccess;
}

/* Ends it in any case. */
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *result) {
    cudaError_t error = fakecuda_call(__func__);
    struct CUgraph_st *graph = capture.graph;
    if (!capture.stream || stream != capture.stream)
        return fakecuda_error(cudaErrorIllegalState);
    capture.stream = NULL;
    capture.graph = NULL;
    if (error == cudaSuccess && graph->broken)
        error = fakecuda_error(cudaErrorStreamCaptureInvalidated);
    *result = error == cudaSuccess ? graph : NULL;
    if (error != cudaSuccess)
        graph_destroy(graph);
    return error;
}

#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                     cudaGraph_t *graph, const cudaGraphNode_t **before,
                                     const cudaGraphEdgeData **edges, size_t *n_before) {
    *edges = NULL;
#else
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                        unsigned long long *id, cudaGraph_t *graph, const cudaGraphNode_t **before,
                                        size_t *n_before) {
#endif
    cudaError_t error = fakecuda_call("cudaStreamGetCaptureInfo");
    (void)id;
    if (error != cudaSuccess)
        return error;
    bool captures = capture.stream && stream == capture.stream;
    *status = !captures               ? cudaStreamCaptureStatusNone
              : capture.graph->broken ? cudaStreamCaptureStatusInvalidated
                                      : cudaStreamCaptureStatusActive;
    *graph = captures ? capture.graph : NULL;
    *n_before = captures && capture.graph->n > 0;
    *before = *n_before ? &capture.graph->nodes[capture.graph->n - 1] : NULL;
    return cudaSuccess;
}

/* ---- graphs ---- */

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n) {
    cudaError_t error = fakecuda_call(__func__);
    if (error != cudaSuccess)
        return error;
    if (nodes)
        return fakecuda_error(cudaErrorNotSupported); /* nobody wants to see them */
    *n = graph->n;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    cudaError_t error = fakecuda_call(__func__);
    if (error == cudaSuccess)
        graph_destroy(graph);
    return error;
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type) {
    cudaError_t error = fakecuda_call(__func__);
    *type = node->item.kind == ITEM_KERNEL ? cudaGraphNodeTypeKernel
            : node->item.kind == ITEM_COPY ? cudaGraphNodeTypeMemcpy
                                           : cudaGraphNodeTypeMemset;
    return error;
}

/* Of libraries' kernels, too, which have no address here. */
CUresult fakecuda_kernel_node_get(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *kernel) {
    static void *arguments[1];
    cudaError_t error = fakecuda_call("cuGraphKernelNodeGetParams");
    if (error == cudaSuccess)
        *kernel = (CUDA_KERNEL_NODE_PARAMS){.func = (CUfunction)(uintptr_t)node->kernel,
                                            .gridDimX = node->grid.x,
                                            .gridDimY = node->grid.y,
                                            .gridDimZ = node->grid.z,
                                            .blockDimX = node->block.x,
                                            .blockDimY = node->block.y,
                                            .blockDimZ = node->block.z,
                                            .kernelParams = arguments};
    return (CUresult)error;
}

cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, struct cudaMemcpy3DParms *copy) {
    cudaError_t error = fakecuda_call(__func__);
    size_t bytes = node->item.bytes;
    if (error == cudaSuccess)
        *copy = (struct cudaMemcpy3DParms){.srcPtr = {(void *)(uintptr_t)node->item.from, bytes, bytes, 1},
                                           .dstPtr = {node->item.to, bytes, bytes, 1},
                                           .extent = {bytes, 1, 1},
                                           .kind = cudaMemcpyDefault};
    return error;
}

cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node, struct cudaMemsetParams *set) {
    cudaError_t error = fakecuda_call(__func__);
    if (error == cudaSuccess)
        *set = (struct cudaMemsetParams){.dst = node->item.to,
                                         .value = (unsigned)node->item.value,
                                         .elementSize = 1,
                                         .width = node->item.bytes,
                                         .height = 1};
    return error;
}

/* ---- executable ones ---- */

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *result, cudaGraph_t graph, unsigned long long flags) {
    cudaError_t error = fakecuda_call(__func__);
    (void)flags;
    if (error != cudaSuccess)
        return error;
    struct CUgraphExec_st *exec = calloc(1, sizeof *exec);
    exec->n = graph->n;
    exec->under_way = calloc(1, sizeof *exec->under_way);
    exec->device = fakecuda_device();
    exec->nodes = calloc(graph->n + 1, sizeof *exec->nodes);
    exec->of = calloc(graph->n + 1, sizeof *exec->of);
    for (size_t i = 0; i < graph->n; i++) {
        exec->nodes[i] = *graph->nodes[i];
        exec->of[i] = graph->nodes[i];
    }
    execs++;
    *result = exec;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    cudaError_t error = fakecuda_call(__func__);
    if (error != cudaSuccess)
        return error;
    if (!*exec->under_way)
        free((void *)(uintptr_t)exec->under_way);
    else
        early += !fakecuda_lost();
    free(exec->nodes);
    free(exec->of);
    free(exec);
    execs--;
    return cudaSuccess;
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *info) {
    cudaError_t error = fakecuda_call(__func__);
    if (error != cudaSuccess)
        return error;
    bool same = exec->n == graph->n;
    for (size_t i = 0; i < exec->n && same; i++)
        same = exec->nodes[i].item.kind == graph->nodes[i]->item.kind;
    info->result = same ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorTopologyChanged;
    if (!same)
        return fakecuda_error(cudaErrorGraphExecUpdateFailure);
    for (size_t i = 0; i < exec->n; i++)
        exec->nodes[i] = *graph->nodes[i];
    return cudaSuccess;
}

/* NULL, and the error is set: the graph had no such node. */
static struct CUgraphNode_st *exec_node(cudaGraphExec_t exec, cudaGraphNode_t node, int kind, cudaError_t *error) {
    for (size_t i = 0; i < exec->n && *error == cudaSuccess; i++)
        if (exec->of[i] == node && (int)node->item.kind == kind)
            return &exec->nodes[i];
    if (*error == cudaSuccess)
        *error = fakecuda_error(cudaErrorInvalidValue);
    return NULL;
}

CUresult fakecuda_kernel_node_set(CUgraphExec exec, CUgraphNode of, const CUDA_KERNEL_NODE_PARAMS *kernel) {
    cudaError_t error = fakecuda_call("cuGraphExecKernelNodeSetParams");
    struct CUgraphNode_st *node = exec_node(exec, of, ITEM_KERNEL, &error);
    if (node) {
        node->kernel = kernel->func;
        node->grid = (dim3){kernel->gridDimX, kernel->gridDimY, kernel->gridDimZ};
        node->block = (dim3){kernel->blockDimX, kernel->blockDimY, kernel->blockDimZ};
    }
    return (CUresult)error;
}

cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t of,
                                             const struct cudaMemcpy3DParms *copy) {
    cudaError_t error = fakecuda_call(__func__);
    struct CUgraphNode_st *node = exec_node(exec, of, ITEM_COPY, &error);
    if (node) {
        node->item.to = copy->dstPtr.ptr;
        node->item.from = copy->srcPtr.ptr;
        node->item.bytes = copy->extent.width;
    }
    return error;
}

cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t of,
                                             const struct cudaMemsetParams *set) {
    cudaError_t error = fakecuda_call(__func__);
    struct CUgraphNode_st *node = exec_node(exec, of, ITEM_SET, &error);
    if (node) {
        node->item.to = set->dst;
        node->item.value = (int)set->value;
        node->item.bytes = set->width;
    }
    return error;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    cudaError_t error = fakecuda_call(__func__);
    if (error == cudaSuccess && capture.stream)
        error = fakecuda_spoil();
    if (error == cudaSuccess && exec->device != fakecuda_device())
        error = fakecuda_error(cudaErrorInvalidResourceHandle);
    for (size_t i = 0; i < exec->n && error == cudaSuccess; i++) {
        struct fakecuda_item item = exec->nodes[i].item;
        item.under_way = exec->under_way;
        ++*exec->under_way;
        error = fakecuda_put(stream, &item);
        *exec->under_way -= error != cudaSuccess;
    }
    return error;
}
