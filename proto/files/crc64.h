/* The checksum CRC-64/XZ: the polynomial of ECMA-182, reflected, as in .xz files. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The checksum of bytes behind others that have the checksum `before`; 0: there are none before. Any thread. */
uint64_t crc64(uint64_t before, const void *data, size_t bytes);
