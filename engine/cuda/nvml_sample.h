/* One look at a device through NVML. Every call may hang. */
#pragma once

#include "engine/cuda/nvml.h"
#include "engine/device/readings.h"

/* The readings that take one call each: all except memory and Xid. */
void nvml_sample(const struct nvml *nvml, nvml_device device, struct device_readings *readings);
/* Bytes of the device that this process uses, with its context and its libraries' memory; -1: NVML does not tell, or process numbers here
 * are not the host's, as in a container. */
int64_t nvml_own_memory(const struct nvml *nvml, nvml_device device);
