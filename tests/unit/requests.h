/* Requests that many tests make. What they point to lives as long as the block in which they are written. */
#pragma once

#include "engine/program/program.h"

/* A tensor of one axis, whose elements have this value; further fields of struct op_request follow. */
#define REQUEST_FULL(dtype, elements, number, ...)                                                                     \
    (struct op_request) {                                                                                              \
        .opcode = OP_FULL, .n_ints = 3, .ints = (const int64_t[]){dtype, 0, elements}, .n_floats = 1,                  \
        .floats = &(const double){number}, __VA_ARGS__                                                                 \
    }
