/* Compiles CUDA C++ by NVRTC, which is loaded when it is first needed: hosts without it run everything except user kernels. Needs no GPU.
 * Any thread.
 *
 * A source can crash NVRTC, keep it busy for ever, or make it take all memory: so tensord compiles in a process of its own
 * (server/worker/compile_process.h). Only programs that trust their sources, such as tests, compile in their own process. */
#pragma once

#include "engine/device/device_kernels.h"

/* device_kernels.compile(): the target 90 is compute capability 9.0. STATUS_INVALID_ARGUMENT: the source is wrong; the message is the
 * compiler's first error. STATUS_UNSUPPORTED: there is no NVRTC here. */
int compiler_run(const struct kernel_source *source, const _Atomic bool *cancelled, struct device_code **code,
                 char **log, struct fault *fault);
/* device_kernels.compiler(): version and size of NVRTC, and what it is asked for. */
void compiler_words(char words[KERNEL_COMPILER_MAX]);
/* device_kernels.measure(): the bytes of a cubin's segments, or of the text and variables of PTX. */
int compiler_measure(const struct device_code *code, uint64_t *bytes, struct fault *fault);

/* Whether the source includes only headers by relative names in angle brackets, which are searched only among CUDA's own: else the
 * compiler could open any file and show its lines in the log, to a client who may not read the file. In some rare cases stricter
 * than the language. */
int compiler_check_includes(const char *source, struct fault *fault);
