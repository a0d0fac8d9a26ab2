/* One look at a device through NVML. Every call may hang. */
#pragma once

#include "engine/cuda/nvml.h"
#include "engine/device/readings.h"

/* Those readings that take a call each and nothing else: all but memory and Xid. */
void nvml_sample(const struct nvml *nvml, nvml_device device, struct device_readings *readings);
/* Bytes of the device that this process uses, its context and what libraries took included; -1 where NVML does not say, or
 * does not name processes as this one does: in a container. */
int64_t nvml_own_memory(const struct nvml *nvml, nvml_device device);
