/* A device on which everything happens later and elsewhere, as on a GPU: it runs the CPU device's kernels on threads of its
 * own, one for each stream, and its memory lies at addresses that the host cannot use. For tests of what the engine does
 * with such devices. */
#pragma once

#include "engine/device/device_impl.h"

/* Opens "late" around a CPU device with these options. Kernels of the operation that TENSORD_LATE_HANG names, such as
 * "tanh", never end; launches of the one that TENSORD_LATE_CRASH names end the process with SIGSEGV. */
int late_open(const struct device_options *options, struct device **device, struct fault *fault);
/* From now on kernels of this operation ("user kernels": those of clients) do not end; NULL: all do. */
void late_hang(struct device *device, const char *operation);
/* From now on the call that launches this operation waits until the launch has run, as some calls of libraries do; NULL: none does. Or
 * TENSORD_LATE_WAIT names it. */
void late_wait(struct device *device, const char *operation);
/* Launches that are on the device and have not run. */
unsigned late_launches(struct device *device);
/* Of these, those whose kernels hang: all that is before them in their streams has run. */
unsigned late_hung(struct device *device);
/* Nothing runs any more, and what hangs ends: before the end of an engine that has given the device up, which keeps no
 * launches for it. */
void late_lose(struct device *device);
