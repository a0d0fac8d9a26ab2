/* CUDA C++ to code, by NVRTC, which is loaded when it is first needed: hosts without it run all but user kernels. Needs no
 * GPU. Any thread.
 *
 * A source can crash NVRTC, or keep it for ever, or make it take all memory: so tensord runs this in a process of its own
 * (server/worker/compile_process.h). In the caller's process it is for programs whose sources are theirs, such as tests. */
#pragma once

#include "engine/device/device_kernels.h"

/* device_kernels.compile(): the target 90 is compute capability 9.0. STATUS_INVALID_ARGUMENT: the source is wrong, with
 * the first of the compiler's words. STATUS_UNSUPPORTED: there is no NVRTC here. */
int compiler_run(const struct kernel_source *source, const _Atomic bool *cancelled, struct device_code **code,
                 char **log, struct fault *fault);
/* device_kernels.measure(): what the segments of a cubin take, or the text and variables of PTX. */
int compiler_measure(const struct device_code *code, uint64_t *bytes, struct fault *fault);

/* Whether the source includes nothing but headers by relative names between angle brackets, which are looked for among
 * CUDA's own alone: a compiler that opened any file would show its lines in its log, to somebody who may not read it.
 * Stricter than the language in places where nobody is. */
int compiler_check_includes(const char *source, struct fault *fault);
