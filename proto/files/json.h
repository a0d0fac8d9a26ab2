/* A writer of JSON (RFC 8259): commas, escapes and indentation. A value within an object has a key; for a value within an
 * array the key is NULL. A text may have any bytes: bytes that are not UTF-8 become U+FFFD. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json {
    FILE *out;
    bool pretty; /* over several indented lines */
    bool first;  /* true at the start */
    int depth;
};

/* `bracket` is '{' or '[' to open, '}' or ']' to close. */
void json_open(struct json *json, const char *key, char bracket);
void json_close(struct json *json, char bracket);

void json_integer(struct json *json, const char *key, uint64_t value);
/* Writes null for a value that is not finite. */
void json_real(struct json *json, const char *key, double value);
void json_bool(struct json *json, const char *key, bool value);
void json_text(struct json *json, const char *key, const char *value);
/* Writes null for "". */
void json_text_or_null(struct json *json, const char *key, const char *value);
