/* What the stand-ins for cuDNN, cuFFT and cuSOLVER share. Each is a shared library with the real one's file name, made twice: for the emulated
 * device, where it computes, slowly and plainly, as soon as it is called; and for fakecuda, where it puts a kernel that does
 * nothing on the stream. Both are stricter than the real ones: what a call must not be given ends the process with words.
 *
 * On the emulated device STAND_IN_FAIL makes calls fail: "cudnnBackendExecute:3" the third call of this function, "cudnnBackendExecute:3+" it
 * and all after it, "any:3+" of all functions that the libraries have. The count begins anew when the variable changes. On fakecuda
 * FAKECUDA_FAIL does. On the emulated device STAND_IN_GATE="cusolverDnXsyevd:PATH" has calls of this function wait until the FIFO at PATH has been
 * opened for writing, and closed again, as long as it is there. Calls that give something back fail as well, but give it back. A process that ends while objects are left ends with
 * words, too. */
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>

enum stand_in_outcome { STAND_IN_WORKS, STAND_IN_NO_MEMORY, STAND_IN_REFUSES, STAND_IN_FAILS };

/* Counts a call, and says how it is to end. Any thread. */
enum stand_in_outcome stand_in_call(const char *function);
/* Ends the process if the condition does not hold. */
void stand_in_expect(bool condition, const char *what);
/* An object of the library has been made (1) or given back (-1). */
void stand_in_objects(int more);
/* Puts work on a stream; false: the stream takes none. */
bool stand_in_put(cudaStream_t stream, void (*work)(void *argument), void *argument);
