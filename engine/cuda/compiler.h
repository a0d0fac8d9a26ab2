/* CUDA C++ to code, by NVRTC, which is loaded when it is first needed: hosts without it run all but user kernels. Needs no
 * GPU. Any thread. */
#pragma once

#include "engine/device_kernels.h"

struct compiler_request {
    const char *source, *name;
    int capability; /* 90: the code is for devices of compute capability 9.0 */
    const _Atomic bool *cancelled;
};

enum {
    COMPILER_SECONDS_MAX = 120
}; /* for one source; templates and constant expressions can keep a compiler for ever */

/* *log (NULL: none) is the caller's, also on failure. STATUS_INVALID_ARGUMENT: the source is wrong, with the first of
 * the compiler's words. STATUS_UNSUPPORTED: there is no NVRTC here. */
int compiler_run(const struct compiler_request *request, struct device_code **code, char **log, struct fault *fault);

/* Whether the source includes nothing but headers by relative names between angle brackets, which are looked for among
 * CUDA's own alone: a compiler that opened any file would show its lines in its log, to somebody who may not read it.
 * Stricter than the language in places where nobody is. */
int compiler_check_includes(const char *source, struct fault *fault);
