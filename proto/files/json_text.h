/* Texts in JSON. A header of its own, because files that include jansson.h cannot include json.h: some names are in both. */
#pragma once

#include <stdio.h>

/* Writes a text in quotes. */
void json_quote(FILE *out, const char *text);
/* Makes a parser's message safe to show, because it may have a piece of the parsed file in it. */
void json_clean(char *words);
