/* What the host has: cores, memory, the processor's name. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Cores that this process may run on; at least 1. */
unsigned host_cores(void);
/* Bytes: physical memory, or the limit of the process's control group (version 1 or 2) where that is less. */
uint64_t host_memory(void);
/* The processor's name, cut at `size`. */
void host_model(char *model, size_t size);
