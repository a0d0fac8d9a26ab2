/* Text in UTF-8 that may come from anybody, and the one place that says what of it is shown as it is. Plain functions,
 * any thread, and signal handlers too. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { UTF8_SHOWN_MAX = 8 };

/* Takes the next code point off *text, which is not at its end: U+FFFD for bytes that are no UTF-8. */
uint32_t utf8_next(const char **text);
/* Writes a code point as UTF-8; returns its bytes. */
size_t utf8_put(uint32_t rune, char out[4]);

/* Whether all of the text is UTF-8. */
bool utf8_is_valid(const char *text);

/* Whether this code point may do harm in a terminal, a browser or a log: control characters (C0, DEL, C1), separators
 * of lines and paragraphs, invisible characters, and characters that change the direction of the text behind them. */
bool utf8_is_unsafe(uint32_t rune);
/* Takes the next character off *text, as utf8_next() does, and writes it as it is shown: as it is, or, where it is
 * unsafe or no UTF-8, in digits: "\x1b", "\u202e", "\xff" ("\n" for the end of a line). No zero at the end; returns the
 * bytes. */
size_t utf8_show(const char **text, char out[UTF8_SHOWN_MAX]);
/* All of `text`, so shown, as far as it fits, cut between two characters; returns its bytes without the zero at the
 * end. It leaves its own output unchanged, so it may be called for text that has been cleaned before. */
size_t utf8_clean(char *out, size_t size, const char *text);
