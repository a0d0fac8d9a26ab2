/* Random fused launches, always the same ones: their kernels are made and compiled before the test runs that launches them. */
#pragma once

#include "engine/device/launch.h"

enum {
    FUSED_CASES = 160,
    FUSED_ROWS = 5,
    FUSED_COLUMNS = 70,
    FUSED_BUFFERS = 256,
    FUSED_BUFFER = FUSED_ROWS * FUSED_COLUMNS * 16
};

/* Where an operand in memory has its elements: data is number - 1 of a buffer, times FUSED_BUFFER bytes, behind `base`. The first `given` buffers
 * are read only, and hold values of `dtypes`. Of a reduction only the device knows what fused_operation.kernel is to be. */
struct fused_case {
    unsigned given, buffers;
    uint8_t dtypes[FUSED_BUFFERS];
    struct fused_launch *launch;
};
void fused_case_make(struct fused_case *made, unsigned number, char *base);
void fused_case_free(struct fused_case *made);
