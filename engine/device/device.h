/* A device as the engine's other parts and the server see it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/device/libraries.h"
#include "engine/device/readings.h"
#include "proto/ops/shape.h"

struct device;

struct device_options {
    unsigned index;   /* the 1 of "cpu:1" */
    unsigned threads; /* threads for one launch; 0: one for each core this process may run on */
    uint64_t
        memory_total; /* bytes that the pool may reserve; 0: four fifths of the memory of the host (or its cgroup), */
    unsigned sharers; /* divided by the number of devices that share it; 0: 1 */
    bool readings;    /* keep device_readings() up to date; takes a thread if the device has readings */
    bool preload;     /* now, by threads, load kernels and pin host memory, which would delay work at first use */
    bool measure;     /* measure the device's rates where its properties do not tell them, when it has nothing to do */
};

struct device_info {
    char kind[16];       /* "cpu" */
    char model[128];     /* "Intel(R) Xeon(R) Processor" */
    char capability[32]; /* compute capability, or a CPU's vector level: "avx512" */
    unsigned processors;
    uint64_t memory_total; /* bytes that the pool may have */
    /* Products of floats since the device was opened: products that a library has computed, and products that the library refused and
     * a far slower kernel of the device's own has computed. 0 for kinds of devices with only one way. */
    uint64_t products_library, products_slow;
    /* "" for kinds of devices that have no such thing, such as CPUs */
    char uuid[96];          /* "GPU-c4a1…", "MIG-5f3e…", the same in all programs and after every start */
    char bus[24];           /* PCI address, "0000:3b:00.0" */
    char driver[16];        /* the newest CUDA version that the driver can run: "13.0" */
    char runtime[16];       /* the CUDA version that tensord runs: "13.0" */
    uint64_t memory_device; /* bytes that the device has in all, as its runtime tells; 0 if they are the host's */
    struct device_library libraries[DEVICE_LIBRARIES_MAX]; /* the first ones */
};

/* How a process gets at the device that it is to open. Some devices can only be chosen by an environment variable with which the process
 * starts. */
enum { DEVICE_PLACES_MAX = 256, DEVICE_ENVIRONMENT_MAX = 128 };
struct device_place {
    unsigned index;                           /* struct device_options */
    char environment[DEVICE_ENVIRONMENT_MAX]; /* "NAME=value"; "" as it is */
};

/* The devices of a kind on this host, `capacity` of them at most. For "cpu", of which any number can be opened, always STATUS_OK and one
 * device. STATUS_NO_DEVICE says why there is none. */
int device_list(const char *kind, struct device_place *places, unsigned capacity, unsigned *count, struct fault *fault);
/* How many devices of a kind this host has. For "cpu", of which any number can be opened, always STATUS_OK and 1. STATUS_NO_DEVICE says
 * why there is none. */
int device_count(const char *kind, unsigned *count, struct fault *fault);
/* Opens a "cpu" device, or another kind by its module (engine/device/module.h). STATUS_NO_DEVICE says why there is none. */
int device_open(const char *kind, const struct device_options *options, struct device **device, struct fault *fault);
void device_close(struct device *device);
void device_describe(const struct device *device, struct device_info *info);
/* The latest readings of the device (device_options.readings). Waits for nothing: if their source does not answer any more, the readings
 * grow old. */
void device_readings(struct device *device, struct device_readings *readings);
/* STATUS_OK if the device has a kernel for the operation with this presented dtype (op_kernel.dtypes), or needs none; else
 * STATUS_UNSUPPORTED with the reason. */
int device_has_kernel(const struct device *device, unsigned opcode, enum dtype dtype, struct fault *fault);
