/* All of the bytes, however many calls of the system that takes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* False with errno: some of them could not be written. */
bool whole_write(int fd, const void *data, size_t bytes);
/* From a place in the file. False with errno; 0: the file ends before. */
bool whole_read(int fd, void *to, size_t bytes, uint64_t at);
