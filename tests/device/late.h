/* A device on which everything happens later and elsewhere, as on a GPU: it runs the CPU device's kernels on threads of its
 * own, one for each stream, and its memory lies at addresses that the host cannot use. For tests of what the engine does
 * with such devices. */
#pragma once

#include "engine/device_impl.h"

/* Opens "late" around a CPU device with these options. */
int late_open(const struct device_options *options, struct device **device, struct fault *fault);
