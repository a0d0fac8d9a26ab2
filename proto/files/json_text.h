/* Texts in JSON, also for files that read it with jansson, with whose names json.h cannot be included. */
#pragma once

#include <stdio.h>

/* A text by itself, in quotes. */
void json_quote(FILE *out, const char *text);
/* A parser's words have a piece of the file in them: makes them fit to be shown. */
void json_clean(char *words);
