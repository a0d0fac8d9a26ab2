#include "proto/files/json.h"

#include <inttypes.h>
#include <math.h>

#include "proto/files/json_text.h"
#include "proto/ops/utf8.h"

void json_quote(FILE *out, const char *text) {
    char utf8[4];
    fputc('"', out);
    while (*text) {
        uint32_t rune = utf8_next(&text);
        if (rune == '"' || rune == '\\')
            fprintf(out, "\\%c", (int)rune);
        else if (utf8_is_unsafe(rune) && rune > 0xffff)
            fprintf(out, "\\u%04x\\u%04x", 0xd7c0 + (unsigned)(rune >> 10), 0xdc00 + (unsigned)(rune & 0x3ff));
        else if (utf8_is_unsafe(rune))
            fprintf(out, "\\u%04x", (unsigned)rune);
        else
            fwrite(utf8, 1, utf8_put(rune, utf8), out);
    }
    fputc('"', out);
}

void json_clean(char *words) {
    for (; *words; words++)
        if ((unsigned char)*words < 0x20 || (unsigned char)*words > 0x7e)
            *words = '?';
}

static void json_line(struct json *json) {
    if (json->pretty)
        fprintf(json->out, "\n%*s", json->depth * 2, "");
}

static void json_key(struct json *json, const char *key) {
    if (!json->first)
        fputs(json->pretty ? "," : ", ", json->out);
    if (json->depth > 0)
        json_line(json);
    json->first = false;
    if (key) {
        json_quote(json->out, key);
        fputs(": ", json->out);
    }
}

void json_open(struct json *json, const char *key, char bracket) {
    json_key(json, key);
    fputc(bracket, json->out);
    ++json->depth;
    json->first = true;
}

void json_close(struct json *json, char bracket) {
    --json->depth;
    if (!json->first)
        json_line(json);
    fputc(bracket, json->out);
    json->first = false;
}

void json_integer(struct json *json, const char *key, uint64_t value) {
    json_key(json, key);
    fprintf(json->out, "%" PRIu64, value);
}

/* JSON has no NaN and no infinity. No program here sets LC_NUMERIC, so the decimal point is a point. */
void json_real(struct json *json, const char *key, double value) {
    json_key(json, key);
    if (isfinite(value))
        fprintf(json->out, "%.15g", value);
    else
        fputs("null", json->out);
}

void json_bool(struct json *json, const char *key, bool value) {
    json_key(json, key);
    fputs(value ? "true" : "false", json->out);
}

void json_text(struct json *json, const char *key, const char *value) {
    json_key(json, key);
    json_quote(json->out, value);
}

void json_text_or_null(struct json *json, const char *key, const char *value) {
    json_key(json, key);
    if (*value)
        json_quote(json->out, value);
    else
        fputs("null", json->out);
}
