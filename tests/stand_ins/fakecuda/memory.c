/* Devices and their memory, which is the host's at an offset, so that the host cannot use it by accident; and what is
 * put on streams to move it. */
#include "tests/stand_ins/fakecuda/fakecuda.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* x86-64 and AArch64 programs have nothing up there. */
#define DEVICE_OFFSET (UINT64_C(1) << 62)

struct block {
    uint8_t *data; /* the host's address */
    size_t bytes;
    int device; /* -1: pinned memory of the host */
    struct block *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks;
static _Thread_local int current;
static _Atomic bool opened;
static _Atomic long connections;
static _Atomic unsigned long properties_calls, slow_calls;

enum { PROCESSORS = 16 };

/* ---- devices ---- */

int fakecuda_device(void) {
    return current;
}

bool fakecuda_opened(void) {
    return opened;
}

cudaError_t cudaGetDeviceCount(int *count) {
    int devices = (int)fakecuda_setting("FAKECUDA_DEVICES", 1);
    cudaError_t error = fakecuda_call(__func__);
    if (error == cudaSuccess && devices < 0)
        error = fakecuda_error(cudaErrorInsufficientDriver);
    devices = 0;
    while (fakecuda_visible(devices) >= 0)
        devices++;
    if (error == cudaSuccess && devices == 0)
        error = fakecuda_error(cudaErrorNoDevice);
    if (error == cudaSuccess)
        *count = devices;
    return error;
}

cudaError_t cudaSetDevice(int device) {
    cudaError_t error = fakecuda_call(__func__);
    if (error == cudaSuccess && fakecuda_visible(device) < 0)
        error = fakecuda_error(cudaErrorInvalidDevice);
    if (error == cudaSuccess) {
        current = device;
        if (!opened &&
            open("/dev/zero", O_RDONLY) >= 0) /* for good, and for whoever is started from here: as a driver may */
            opened = true;
        if (!connections)
            connections = fakecuda_setting("CUDA_DEVICE_MAX_CONNECTIONS", 8);
    }
    return error;
}

cudaError_t cudaGetDevice(int *device) {
    cudaError_t error = fakecuda_call(__func__);
    if (error == cudaSuccess)
        *device = current;
    return error;
}

/* What CUB asks for of what the properties say, too. */
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    cudaError_t error = fakecuda_call(__func__);
    if (error != cudaSuccess)
        return error;
    if (fakecuda_visible(device) < 0)
        return fakecuda_error(cudaErrorInvalidDevice);
    if (attribute != cudaDevAttrMultiProcessorCount)
        return fakecuda_error(cudaErrorInvalidValue);
    *value = PROCESSORS;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
    cudaError_t error = fakecuda_call(__func__);
    properties_calls++;
    if (error != cudaSuccess)
        return error;
    memset(properties, 0, sizeof *properties);
    snprintf(properties->name, sizeof properties->name, "stand-in %d for a GPU", fakecuda_visible(device));
    properties->uuid.bytes[15] = (char)(fakecuda_visible(device) + 1);
    properties->multiProcessorCount = PROCESSORS;
    properties->major = 9;
    properties->sharedMemPerBlock = 48 << 10;
    properties->maxThreadsPerBlock = 1024;
    for (int i = 0; i < 3; i++) {
        properties->maxGridSize[i] = i ? 65535 : INT32_MAX;
        properties->maxThreadsDim[i] = i < 2 ? 1024 : 64;
    }
    properties->sharedMemPerBlockOptin = 227 << 10;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return fakecuda_call(__func__);
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device) {
    cudaError_t error = fakecuda_call(__func__);
    if (error == cudaSuccess)
        snprintf(text, (size_t)length, "0000:%02x:00.0", fakecuda_visible(device) + 1);
    return error;
}

/* 0 where there is no driver; where there is one, it is too old for this runtime if the setting says so. */
cudaError_t cudaDriverGetVersion(int *version) {
    long devices = fakecuda_setting("FAKECUDA_DEVICES", 1);
    *version = devices == -1 ? 0 : devices < 0 ? 11080 : CUDART_VERSION;
    return fakecuda_call(__func__);
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return fakecuda_call(__func__);
}

/* ---- blocks ---- */

static uint64_t blocks_bytes(int device) {
    uint64_t bytes = 0;
    for (const struct block *block = blocks; block; block = block->next)
        bytes += block->device == device ? block->bytes : 0;
    return bytes;
}

static uint64_t device_total(void) {
    return (uint64_t)fakecuda_setting("FAKECUDA_MEMORY", 2l << 30);
}

static cudaError_t block_create(void **address, size_t bytes, int device) {
    struct block *block = malloc(sizeof *block);
    *block = (struct block){.bytes = (bytes + 4095) & ~(size_t)4095, .device = device};
    pthread_mutex_lock(&lock);
    bool fits = device < 0 || blocks_bytes(device) + block->bytes <= device_total();
    void *data =
        fits ? mmap(NULL, block->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
             : MAP_FAILED;
    if (data != MAP_FAILED) {
        block->data = data;
        block->next = blocks;
        blocks = block;
    }
    pthread_mutex_unlock(&lock);
    if (data == MAP_FAILED) {
        free(block);
        return fakecuda_error(cudaErrorMemoryAllocation);
    }
    *address = block->data + (device < 0 ? 0 : DEVICE_OFFSET);
    return cudaSuccess;
}

static uint8_t *host_address(const void *address) {
    uintptr_t number = (uintptr_t)address;
    return (uint8_t *)(number >= DEVICE_OFFSET ? number - DEVICE_OFFSET : number);
}

void *fakecuda_reach(const void *address, size_t bytes, int device) {
    const uint8_t *data = host_address(address);
    int owner = (uintptr_t)address >= DEVICE_OFFSET ? device : -1;
    const struct block *found = NULL;
    pthread_mutex_lock(&lock);
    for (const struct block *block = blocks; block && !found; block = block->next)
        if (block->device == owner && data >= block->data && data - block->data <= (ptrdiff_t)block->bytes &&
            bytes <= block->bytes - (size_t)(data - block->data))
            found = block;
    pthread_mutex_unlock(&lock);
    return found ? host_address(address) : NULL;
}

/* Whether there was such a block. */
static bool block_destroy(void *address) {
    const uint8_t *data = host_address(address);
    pthread_mutex_lock(&lock);
    struct block **link = &blocks;
    while (*link && (*link)->data != data)
        link = &(*link)->next;
    struct block *block = *link;
    if (block)
        *link = block->next;
    pthread_mutex_unlock(&lock);
    if (!block)
        return false;
    munmap(block->data, block->bytes);
    free(block);
    return true;
}

void fakecuda_free_now(void *address) {
    if (!block_destroy(address))
        fakecuda_lose(cudaErrorIllegalAddress);
}

void fakecuda_memory_figures(struct fakecuda_figures *figures) {
    pthread_mutex_lock(&lock);
    figures->device_bytes = 0;
    for (const struct block *block = blocks; block; block = block->next)
        figures->device_bytes += block->device < 0 ? 0 : block->bytes;
    figures->host_bytes = blocks_bytes(-1);
    figures->connections = connections;
    figures->properties = properties_calls;
    figures->slow = slow_calls;
    pthread_mutex_unlock(&lock);
}

void fakecuda_figures(struct fakecuda_figures *figures) {
    fakecuda_fail_figures(figures);
    fakecuda_stream_figures(figures);
    fakecuda_memory_figures(figures);
    fakecuda_driver_figures(figures);
    fakecuda_kernel_figures(figures);
    fakecuda_graph_figures(figures);
}

/* ---- memory ---- */

cudaError_t cudaMemGetInfo(size_t *unused, size_t *total) {
    pthread_mutex_lock(&lock);
    *total = device_total();
    *unused = *total - blocks_bytes(current);
    pthread_mutex_unlock(&lock);
    return fakecuda_call(__func__);
}

cudaError_t cudaMalloc(void **address, size_t bytes) {
    cudaError_t error = fakecuda_call(__func__);
    if (error == cudaSuccess)
        error = fakecuda_spoil();
    return error == cudaSuccess ? block_create(address, bytes, current) : error;
}

/* The first thread serves clients, and should not make such calls. */
static void count_slow(bool slow) {
    slow_calls += slow && gettid() == getpid();
}

/* Waits for the device, as CUDA's does. */
cudaError_t cudaFree(void *address) {
    cudaError_t error = fakecuda_call(__func__);
    count_slow(true);
    if (error == cudaSuccess)
        error = fakecuda_spoil();
    if (error != cudaSuccess || !address)
        return error;
    fakecuda_drain();
    return block_destroy(address) ? cudaSuccess : fakecuda_error(cudaErrorInvalidValue);
}

cudaError_t cudaHostAlloc(void **address, size_t bytes, unsigned int flags) {
    cudaError_t error = fakecuda_call(__func__);
    (void)flags;
    count_slow(bytes >= 32 << 20);
    if (error == cudaSuccess)
        error = fakecuda_spoil();
    return error == cudaSuccess ? block_create(address, bytes, -1) : error;
}

cudaError_t cudaFreeHost(void *address) {
    cudaError_t error = fakecuda_call(__func__);
    count_slow(true);
    if (error == cudaSuccess)
        error = fakecuda_spoil();
    if (error != cudaSuccess || !address)
        return error;
    fakecuda_drain();
    return block_destroy(address) ? cudaSuccess : fakecuda_error(cudaErrorInvalidValue);
}

cudaError_t cudaMallocAsync(void **address, size_t bytes, cudaStream_t stream) {
    cudaError_t error = fakecuda_call(__func__);
    (void)stream;
    if (error == cudaSuccess)
        error = fakecuda_spoil();
    return error == cudaSuccess ? block_create(address, bytes, current) : error;
}

cudaError_t cudaFreeAsync(void *address, cudaStream_t stream) {
    cudaError_t error = fakecuda_call(__func__);
    return error == cudaSuccess ? fakecuda_put(stream, &(struct fakecuda_item){.kind = ITEM_FREE, .to = address})
                                : error;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
    static char pools[64];
    *pool = (cudaMemPool_t)(void *)&pools[device & 63];
    return fakecuda_call(__func__);
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
    (void)pool, (void)attribute, (void)value;
    return fakecuda_call(__func__);
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) {
    (void)pool, (void)keep;
    return fakecuda_call(__func__);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    cudaError_t error = fakecuda_call(__func__);
    (void)kind;
    if (error != cudaSuccess)
        return error;
    return fakecuda_put(stream, &(struct fakecuda_item){.kind = ITEM_COPY, .to = to, .from = from, .bytes = bytes});
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    cudaError_t error = fakecuda_call(__func__);
    if (error != cudaSuccess)
        return error;
    return fakecuda_put(stream, &(struct fakecuda_item){.kind = ITEM_SET, .to = to, .value = value, .bytes = bytes});
}
