/* Text in UTF-8 that may come from anybody. This is the one place that decides which characters may be shown unchanged. Any
 * thread, and signal handlers, may call these functions. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { UTF8_SHOWN_MAX = 8 };

/* Takes the next code point off *text, which is not at its end. A byte that is not UTF-8 gives U+FFFD. */
uint32_t utf8_next(const char **text);
/* Writes a code point as UTF-8; returns the number of bytes. */
size_t utf8_put(uint32_t rune, char out[4]);

/* Whether all of the text is UTF-8. */
bool utf8_is_valid(const char *text);

/* Whether this code point may do harm in a terminal, a browser or a log: control characters (C0, DEL, C1), separators
 * of lines and paragraphs, invisible characters, and characters that change the direction of the text behind them. */
bool utf8_is_unsafe(uint32_t rune);
/* Takes the next character off *text, as utf8_next() does, and writes the form in which it is shown: unchanged, or, if it is
 * unsafe or not UTF-8, in digits: "\x1b", "\u202e", "\xff" ("\n" for the end of a line). Writes no zero at the end; returns
 * the number of bytes. */
size_t utf8_show(const char **text, char out[UTF8_SHOWN_MAX]);
/* Writes `text` in the form of utf8_show(), as far as it fits, cut between two characters; returns the number of bytes without
 * the zero at the end. Cleaning a text that has been cleaned before does not change it. */
size_t utf8_clean(char *out, size_t size, const char *text);
