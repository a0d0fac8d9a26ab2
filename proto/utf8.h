/* Code points in UTF-8 that may come from anybody. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Takes the next code point off *text, which is not at its end: U+FFFD for bytes that are no UTF-8. */
uint32_t utf8_next(const char **text);
/* Writes a code point as UTF-8; returns its bytes. */
size_t utf8_put(uint32_t rune, char out[4]);
