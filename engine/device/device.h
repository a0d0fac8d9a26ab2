/* A device as the engine's other parts and the server see it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/device/readings.h"
#include "proto/ops/shape.h"

struct device;

struct device_options {
    unsigned index;        /* the 1 of "cpu:1" */
    unsigned threads;      /* threads for one launch; 0: one for each core this process may run on */
    uint64_t memory_total; /* bytes the pool may reserve; 0: four fifths of what the host (or its cgroup) has, */
    unsigned sharers;      /* divided among so many devices whose memory that is; 0: 1 */
    bool readings;         /* keep device_readings() up to date, which takes a thread where the device has any */
    bool preload;          /* do now, by threads, what would hold up work at first use: load kernels, pin host memory */
    bool measure; /* measure the device's rates where its properties do not tell them, when it has nothing to do */
};

struct device_info {
    char kind[16];       /* "cpu" */
    char model[128];     /* "Intel(R) Xeon(R) Processor" */
    char capability[32]; /* compute capability, or a CPU's vector level: "avx512" */
    unsigned processors;
    uint64_t memory_total; /* bytes that the pool may have */
    /* Products of floats since the device was opened: those that a library has computed, and those that it would not take,
     * so that a far slower kernel of the device's own had to. 0 where a kind has only one way. */
    uint64_t products_library, products_slow;
    /* "" where a kind has no such thing, as have CPUs */
    char uuid[96];          /* "GPU-c4a1…", "MIG-5f3e…", the same in all programs and after every start */
    char bus[24];           /* PCI address, "0000:3b:00.0" */
    char driver[16];        /* the newest CUDA version that the driver can run: "13.0" */
    char runtime[16];       /* the CUDA version that tensord runs: "13.0" */
    uint64_t memory_device; /* bytes that the device has in all, as its runtime tells; 0 where that is the host's */
};

/* How the process that is to open a device gets at it: some can be told apart only by what the process has in its
 * environment when it starts. */
enum { DEVICE_PLACES_MAX = 256, DEVICE_ENVIRONMENT_MAX = 128 };
struct device_place {
    unsigned index;                           /* struct device_options */
    char environment[DEVICE_ENVIRONMENT_MAX]; /* "NAME=value"; "" as it is */
};

/* The devices of a kind on this host, up to `capacity` of them. Always STATUS_OK for "cpu", of which there are as many as
 * one likes to open: then one. STATUS_NO_DEVICE says why there is none. */
int device_list(const char *kind, struct device_place *places, unsigned capacity, unsigned *count, struct fault *fault);
/* How many devices of a kind this host has. Always STATUS_OK for "cpu", of which there are as many as one likes to open:
 * then 1. STATUS_NO_DEVICE says why there is none. */
int device_count(const char *kind, unsigned *count, struct fault *fault);
/* Opens "cpu" devices, and others by their modules (engine/device/module.h). STATUS_NO_DEVICE says why there is none. */
int device_open(const char *kind, const struct device_options *options, struct device **device, struct fault *fault);
void device_close(struct device *device);
void device_describe(const struct device *device, struct device_info *info);
/* What the device says of itself now and then (device_options.readings). Waits for nothing: where the source of them does
 * not answer any more, they grow old. */
void device_readings(struct device *device, struct device_readings *readings);
/* Whether the device has a kernel for the operation with this dtype presented (op_kernel.dtypes), or none is needed: STATUS_OK, or
 * STATUS_UNSUPPORTED with the reason. */
int device_has_kernel(const struct device *device, unsigned opcode, enum dtype dtype, struct fault *fault);
