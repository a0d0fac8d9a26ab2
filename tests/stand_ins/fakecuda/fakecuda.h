/* A stand-in for the CUDA runtime, cublasLt, NVRTC and NVML (nvml.c), as shared libraries of the same names, which the real module loads where
 * there is no GPU. Copies, memsets, events and streams really happen, on a thread for each stream; kernels and products
 * take their turn on the stream and do nothing, but for user kernels that say what they do (code.h). So it shows control flow, never results.
 *
 * Environment, read at the first call:
 *   FAKECUDA_DEVICES  how many there are, 1 by default; 0: a driver without a device, -1: no driver, -2: one that is
 *                     too old
 *   FAKECUDA_MEMORY   bytes of each, 2 GiB by default
 *   FAKECUDA_FAIL     "N:CODE": the N-th call that can fail does, with this cudaError; "cudaMalloc:N:CODE": the N-th of
 *                     this function. Errors after which CUDA wants the process to end stay for all calls to come.
 *   CUDA_VISIBLE_DEVICES  as CUDA takes it
 *   FAKECUDA_HANG     N: the N-th kernel never ends, nor does what waits for its stream
 *   FAKECUDA_LOG      1: says at exit how often each function was called
 * A cudaEventQuery() that finds the event not reached is not counted, since how often that happens is a matter of time.
 *
 * It is stricter than CUDA where that shows mistakes: a stream, an event or memory of another device than the calling
 * thread's is refused, and what is copied must lie in live memory.
 *
 * This header is for the libraries, and for tests that look inside. */
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

struct fakecuda_figures {
    unsigned long calls;   /* that can fail */
    char failed[64];       /* the function that was made to fail; "" none yet */
    uint64_t device_bytes; /* allocated now, */
    uint64_t host_bytes;   /* and of pinned memory */
    unsigned streams, events, libraries, graphs, execs;
    unsigned early;   /* executable graphs that were destroyed while they ran */
    long connections; /* CUDA_DEVICE_MAX_CONNECTIONS as it was when CUDA started; 8 where it was not set */
    unsigned long
        slow; /* calls by the first thread that wait for the device, or pin as much as staging takes at a time */
    unsigned long loaded;     /* kernels that have been brought to the device before they were launched, */
    unsigned long late;       /* and that a launch had to bring */
    unsigned long properties; /* calls of cudaGetDeviceProperties(), which takes milliseconds */
};
void fakecuda_figures(struct fakecuda_figures *figures);

/* ---- fail.c ---- */

/* Counts a call that can fail, and says with what it does; that becomes the thread's last error. */
cudaError_t fakecuda_call(const char *function);
/* The same for another library than the runtime, whose errors the runtime does not know. */
cudaError_t fakecuda_call_of_library(const char *function);
/* Returns the error after making it the thread's last one. */
cudaError_t fakecuda_error(cudaError_t error);
/* Whether the device has failed for good. */
bool fakecuda_lost(void);
/* What happens when work on a stream does what a GPU would not survive. */
void fakecuda_lose(cudaError_t error);
void fakecuda_fail_figures(struct fakecuda_figures *figures);
long fakecuda_setting(const char *name, long otherwise);

/* ---- kernel.c, driver.c ---- */

bool fakecuda_extents_fit(dim3 grid, dim3 block);
void fakecuda_driver_figures(struct fakecuda_figures *figures);
/* The driver's functions for graphs, which it has by name. */
CUresult fakecuda_kernel_node_get(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *kernel);
CUresult fakecuda_kernel_node_set(CUgraphExec exec, CUgraphNode of, const CUDA_KERNEL_NODE_PARAMS *kernel);
void fakecuda_kernel_figures(struct fakecuda_figures *figures);

/* ---- stream.c ---- */

/* One thing on a stream. */
struct fakecuda_item {
    enum { ITEM_KERNEL, ITEM_COPY, ITEM_SET, ITEM_STORE, ITEM_TRAP, ITEM_FREE, ITEM_RECORD, ITEM_WAIT, ITEM_END } kind;
    void *to;
    const void *from;
    size_t bytes;
    int value;
    cudaEvent_t event;
    uint64_t number;    /* of the record that is awaited or made */
    const void *kernel; /* of the runtime's; NULL: a library's */
    dim3 grid, block;
    _Atomic unsigned *under_way; /* to be counted down when it has run; NULL: none */
    struct fakecuda_item *next;
};
/* Takes a copy. cudaErrorInvalidResourceHandle for a stream of another device than the thread's. */
cudaError_t fakecuda_put(cudaStream_t stream, const struct fakecuda_item *item);
/* Until all streams have run dry. */
void fakecuda_drain(void);
void fakecuda_stream_figures(struct fakecuda_figures *figures);

/* ---- graph.c ---- */

/* This thread captures a stream. */
bool fakecuda_captures(void);
/* True: the stream captures it. */
bool fakecuda_capture(cudaStream_t stream, const struct fakecuda_item *item, cudaError_t *error);
/* For calls that a thread must not make while it captures: cudaSuccess if it does not. */
cudaError_t fakecuda_spoil(void);
void fakecuda_graph_figures(struct fakecuda_figures *figures);

/* ---- memory.c ---- */

int fakecuda_device(void);  /* the calling thread's */
bool fakecuda_opened(void); /* this process has made a context */
/* The host's address of memory that work on a device's stream may use; NULL where it may not. */
void *fakecuda_reach(const void *address, size_t bytes, int device);
void fakecuda_free_now(void *address);
void fakecuda_memory_figures(struct fakecuda_figures *figures);

/* ---- visible.c ---- */

enum { FAKECUDA_UUID_MAX = 48 };

/* Which device this process has as number `ordinal`; -1: none. */
int fakecuda_visible(int ordinal);
void fakecuda_uuid(int device, char text[FAKECUDA_UUID_MAX]);
/* How many MIG devices it is divided into; -1: it is whole. */
int fakecuda_parts(int device);
void fakecuda_part_uuid(int device, int part, char text[FAKECUDA_UUID_MAX]);
