/* Clients' kernels of the device "late" (late.h): functions of late_kernels.c, by name. A source says nothing but whether it compiles. */
#pragma once

#include "engine/device/device_impl.h"

/* What is added to real addresses: x86-64 and AArch64 programs have nothing up there. */
#define LATE_OFFSET (UINT64_C(1) << 62)

static inline void *late_real_address(void *data) {
    return (uintptr_t)data >= LATE_OFFSET ? (uint8_t *)data - LATE_OFFSET : data;
}

/* For the table of kernels that a device has (struct device_kernels). */
uint32_t late_kernel_target(const struct device *device);
int late_kernel_measure(const struct device_code *code, uint64_t *bytes, struct fault *fault);
int late_kernel_compile(const struct kernel_source *source, const _Atomic bool *cancelled, struct device_code **code,
                        char **log, struct fault *fault);
int late_kernel_load(struct device *device, const struct device_code *code, struct device_kernel **result,
                     struct fault *fault);
void late_kernel_release(struct device *device, struct device_kernel *kernel);

/* False: a launch of it is the device's end. */
bool late_kernel_survives(const struct device_kernel *kernel);
/* Runs it, on the thread of its stream. */
void late_kernel_run(const struct kernel_launch *launch);
