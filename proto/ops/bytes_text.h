/* Bytes for people: "512 B", "1.42 GiB". */
#pragma once

#include <stdint.h>

enum { BYTES_TEXT_MAX = 16 };

/* Three digits, rounded; returns `out`. */
char *bytes_text(char out[BYTES_TEXT_MAX], uint64_t bytes);
