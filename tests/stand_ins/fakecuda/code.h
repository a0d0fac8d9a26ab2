/* What the stand-in for NVRTC makes of a source, and the stand-in for the driver of that. */
#pragma once

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CODE_PARAMETERS_MAX = 70, CODE_MAGIC = 0x45444f43 };

/* A source says in words what its kernel is to be here:
 *   "fakecuda: parameters 8 4 4;"   the sizes of its parameters
 *   "fakecuda: store;"              it writes its second argument, 4 bytes, where the first one points
 *   "fakecuda: trap;"               it does what a GPU does not survive
 *   "fakecuda: variables 1000;"     the bytes of its variables
 *   "fakecuda: slow;"               the driver takes its time to load it
 *   "fakecuda: torn;"               its code says that it is longer than it is
 * and what the compiler is to do about it (misdeeds.c):
 *   "fakecuda: fail nvrtcGetCUBIN;" this call runs out of memory
 *   "fakecuda: crash;"              it ends by SIGSEGV
 *   "fakecuda: exit;"               it ends without a word
 *   "fakecuda: hang;"               it waits for ever
 *   "fakecuda: spin;"               it computes for ever
 *   "fakecuda: greedy;"             it takes memory until there is no more, and says so
 *   "fakecuda: reckless;"           it takes memory until there is no more, and ends by SIGABRT
 *   "fakecuda: orphan;"             it starts a process that hangs, and hangs itself
 *   "fakecuda: tell;"               it does not compile: its log tells of the process
 *   "fakecuda: lie N;"              it gives the worker answer N of its own, which is none (misdeeds.c)
 * The code is a file of the right form: a header and a segment, which is all of it. */
struct code {
    Elf64_Ehdr header;
    Elf64_Phdr segment;
    uint32_t magic;
    char symbol[64];
    uint32_t n_parameters;
    uint32_t parameters[CODE_PARAMETERS_MAX];
    uint32_t store, trap, slow;
};

/* What a source makes the compiler do besides. `log` is written where it does not compile. True: there is no memory. */
bool misdeeds(const char *source, char *log, size_t size);
