/* Backends that are loaded at run time, so that one daemon serves hosts with and without the libraries that a backend needs. The module
 * of the kind "cuda" is libtensord-cuda.so. The loader finds it beside the installed library, in the build tree, or in
 * LD_LIBRARY_PATH. It exports one symbol, `tensord_device_module`. */
#pragma once

#include "engine/device/device_impl.h"

enum { DEVICE_MODULE_ABI = 9 }; /* version of struct device_vtable and of all types in it */

struct device_module {
    uint32_t abi;
    const struct device_vtable *vtable;
};
