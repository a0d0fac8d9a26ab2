/* Streams and graphs of the emulated device: what is put on a stream runs at once, or becomes a node of a graph while the stream captures.
 * Includable from C and from C++. */
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUgraph_st;

struct CUstream_st {
    struct CUgraph_st *captured; /* NULL: it does not capture */
};

/* A kernel of one kind: its arguments' sizes, and how a grid of it runs. The first argument may say which kernel it is. */
struct emulated_kernel {
    unsigned n;
    const size_t *bytes;
    void (*run)(dim3 grid, dim3 block, size_t shared, const void *const *arguments);
};

void emulated_put(cudaStream_t stream, const struct emulated_kernel *kernel, dim3 grid, dim3 block, size_t shared,
                  const void *const *arguments);

/* A function of the driver's; NULL: there is none of this name. */
void *emulated_driver(const char *name);

/* False: the stream does not capture, and the caller does the work at once. */
bool emulated_capture_copy(cudaStream_t stream, void *to, const void *from, size_t bytes);
bool emulated_capture_set(cudaStream_t stream, void *to, int value, size_t bytes);

#ifdef __cplusplus
}

#include <functional>

/* What a library does. */
void emulated_work(cudaStream_t stream, std::function<void()> work);
#endif
