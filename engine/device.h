/* A device as the engine's other parts and the server see it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/shape.h"

struct device;

struct device_options {
    unsigned index;        /* the 1 of "cpu:1" */
    unsigned threads;      /* threads for one launch; 0: one for each core this process may run on */
    uint64_t memory_total; /* bytes the pool may reserve; 0: four fifths of what the host (or its cgroup) has */
};

struct device_info {
    char kind[16];       /* "cpu" */
    char model[128];     /* "Intel(R) Xeon(R) Processor" */
    char capability[32]; /* compute capability, or a CPU's vector level: "avx512" */
    unsigned processors;
    uint64_t memory_total; /* bytes that the pool may have */
    /* "" where a kind has no such thing, as have CPUs */
    char uuid[48];    /* "GPU-c4a1…", the same in all programs and after every start */
    char bus[24];     /* PCI address, "0000:3b:00.0" */
    char driver[16];  /* the newest CUDA version that the driver can run: "13.0" */
    char runtime[16]; /* the CUDA version that tensord runs: "13.0" */
};

/* How many devices of a kind this host has. Always STATUS_OK for "cpu", of which there are as many as one likes to open:
 * then 1. STATUS_NO_DEVICE says why there is none. */
int device_count(const char *kind, unsigned *count, struct fault *fault);
/* Opens "cpu" devices, and others by their modules (engine/module.h). STATUS_NO_DEVICE says why there is none. */
int device_open(const char *kind, const struct device_options *options, struct device **device, struct fault *fault);
void device_close(struct device *device);
void device_describe(const struct device *device, struct device_info *info);
