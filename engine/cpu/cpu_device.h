/* The CPU backend's entry into the engine's table of devices; nothing else of engine/cpu/ is seen outside. */
#pragma once

#include "engine/device/device_impl.h"

extern const struct device_vtable cpu_device_vtable;
