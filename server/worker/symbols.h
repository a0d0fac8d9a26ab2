/* Finds the name of a function by its address in a program or library. It uses the symbol table of the file, which
 * also has functions that are not exported, and reads the file with open() and mmap() only, so that a signal handler
 * may call it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `address` is relative to the file. False: the file has no such table (it is stripped), or no function at this
 * address. True: `name` is the function's name, cut at `size`, and *begin its first address. */
bool symbols_find(const char *path, uint64_t address, char *name, size_t size, uint64_t *begin);
