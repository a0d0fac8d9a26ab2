/* What the stand-in for NVRTC makes of a source, and the stand-in for the driver of that. */
#pragma once

#include <stdint.h>

enum { CODE_PARAMETERS_MAX = 70, CODE_MAGIC = 0x45444f43 };

/* A source says in words what its kernel is to be here:
 *   "fakecuda: parameters 8 4 4;"   the sizes of its parameters
 *   "fakecuda: store;"              it writes its second argument, 4 bytes, where the first one points
 *   "fakecuda: trap;"               it does what a GPU does not survive */
struct code {
    uint32_t magic;
    char symbol[64];
    uint32_t n_parameters;
    uint32_t parameters[CODE_PARAMETERS_MAX];
    uint32_t store, trap;
};
