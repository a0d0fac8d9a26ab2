/* Names of functions by their place in a program or library, from the symbol table of its file, which also has those that
 * are not exported. It reads the file with open() and mmap() alone, so a signal handler may ask. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `address` as the file counts it. False where the file has no such table (it is stripped) or no function there; else
 * `name` gets the function's, cut at `size`, and *begin its first address. */
bool symbols_find(const char *path, uint64_t address, char *name, size_t size, uint64_t *begin);
