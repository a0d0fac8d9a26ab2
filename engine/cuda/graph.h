/* CUDA graphs of launches that come again and again (device_async.graph_launch). Submitter's thread, but for what says otherwise.
 *
 * The launches' drivers are called while their stream captures, and the graph that comes of it is made executable once. When launches go
 * to other addresses, only these are captured again, into a graph of their own, and what its nodes say is exchanged in the executable one. Nodes of
 * libraries do not tell what they say, and a launch may have made several nodes: where one of these has other addresses, all launches are
 * captured again, and CUDA compares the graphs (cudaGraphExecUpdate). Addresses are multiples of 64 as they were before, and all else
 * of a launch stays as it is, so that drivers come to the same kernels.
 *
 * Capturing is safe because:
 * - It is this thread's alone (cudaStreamCaptureModeThreadLocal): others may allocate, free and look at events meanwhile.
 * - Between its begin and its end there are launches only: no marks, no events of traces, no waits.
 * - All launches have been made before, one by one: kernels are loaded, and libraries have their handles and plans.
 * - Scratch memory (cuda_scratch) does not grow and is not given away: a graph has its own, which lives as long as the graphs that
 *   share it. How much it needs shows while it is captured; then that begins anew.
 * - What a library or the device refuses while it is captured is not put into the graph by another way: results would have other bits than
 *   those of the same launches one by one. The launch is refused, and made by itself.
 * What cuDNN, cuFFT and cuSOLVER may compute is refused at once: cuSOLVER waits for the device in the middle, and what any of them cannot do while
 * a stream captures would show as a refusal, after which it is not asked again for a while.
 *
 * TENSORD_CUDA_GRAPHS=none switches graphs off. */
#pragma once

#include "engine/cuda/cuda.h"

struct device;
struct device_graph;
struct device_graph_memory;
struct device_graph_outcome;
struct device_step;
struct device_stream;

/* While a stream captures. */
struct cuda_capture {
    void *memory; /* scratch memory */
    size_t bytes;
    size_t wanted; /* more than that was asked for; 0: it was not */
};

int cuda_graph_launch(struct device *device, struct device_stream *stream, struct device_graph_memory **memory,
                      struct device_graph **graph, const struct device_step *steps, unsigned n, const bool *changed,
                      struct device_graph_outcome *outcome, struct fault *fault);
int cuda_graph_retire(struct device *device, struct device_stream *stream, struct device_graph *graph,
                      struct fault *fault);
/* Owner thread; another thread does what may take long. */
void cuda_graph_release(struct device *device, struct device_graph *graph);
void cuda_graph_memory_release(struct device *device, struct device_graph_memory *memory);
/* What the environment says. */
bool cuda_graphs_wanted(void);
