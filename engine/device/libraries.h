/* What a device says of the libraries that it uses. */
#pragma once

#include <stdint.h>

/* A library that a device uses for some operations, where it is installed, instead of kernels of its own, which take over what the library
 * refuses. */
enum device_library_state {
    DEVICE_LIBRARY_NONE,    /* no such entry */
    DEVICE_LIBRARY_OFF,     /* the operator does not want it */
    DEVICE_LIBRARY_UNUSED,  /* it has not been needed yet */
    DEVICE_LIBRARY_LOADED,  /* since it was needed first */
    DEVICE_LIBRARY_MISSING, /* it could not be loaded */
};
static inline const char *device_library_state_name(uint32_t state) {
    return state == DEVICE_LIBRARY_OFF       ? "off"
           : state == DEVICE_LIBRARY_UNUSED  ? "unused"
           : state == DEVICE_LIBRARY_LOADED  ? "loaded"
           : state == DEVICE_LIBRARY_MISSING ? "missing"
                                             : "";
}

enum { DEVICE_LIBRARIES_MAX = 4 };
struct device_library {
    char name[16], version[16];
    uint32_t state;    /* enum device_library_state */
    uint64_t launches; /* that it has computed since the device was opened, */
    uint64_t refused;  /* and that kernels of the device's own had to */
    char reason[160];  /* why it is missing, or why it refused a launch the last time; "" */
};
