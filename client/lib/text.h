/* Labels as the protocol takes them. */
#pragma once

#include <stddef.h>

/* Copies what fits of `text` to `out` as valid UTF-8: cut between characters, each invalid byte as '?'. No 0 at the
 * end; returns the bytes. */
size_t text_clean(char *out, size_t capacity, const char *text);
