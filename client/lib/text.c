#include "client/lib/text.h"

#include <stdint.h>
#include <string.h>

/* Bytes of the character that begins here; 0: none does (RFC 3629: no overlong forms, no surrogates, to U+10FFFF). */
static size_t character(const unsigned char *text) {
    static const struct {
        unsigned char first, last, second_min, second_max;
        size_t bytes;
    } rows[] = {
        {0x01, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (text[0] < rows[i].first || text[0] > rows[i].last)
            continue;
        if (rows[i].bytes > 1 && (text[1] < rows[i].second_min || text[1] > rows[i].second_max))
            return 0;
        for (size_t k = 2; k < rows[i].bytes; k++)
            if (text[k] < 0x80 || text[k] > 0xbf)
                return 0;
        return rows[i].bytes;
    }
    return 0;
}

size_t text_clean(char *out, size_t capacity, const char *text) {
    size_t n = 0;
    while (*text) {
        size_t bytes = character((const unsigned char *)text);
        if (n + (bytes ? bytes : 1) > capacity)
            break;
        if (bytes)
            memcpy(out + n, text, bytes);
        else
            out[n] = '?';
        n += bytes ? bytes : 1;
        text += bytes ? bytes : 1;
    }
    return n;
}
