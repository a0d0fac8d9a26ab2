#include "proto/ops/utf8.h"

#include <string.h>

enum { RUNE_REPLACEMENT = 0xfffd };

uint32_t utf8_next(const char **text) {
    const unsigned char *byte = (const unsigned char *)*text;
    uint32_t rune = byte[0];
    unsigned more = rune < 0x80 ? 0 : rune < 0xc2 ? 4 : rune < 0xe0 ? 1 : rune < 0xf0 ? 2 : rune < 0xf5 ? 3 : 4;
    static const uint32_t mask[] = {0x7f, 0x1f, 0x0f, 0x07}, least[] = {0, 0x80, 0x800, 0x10000};

    ++*text;
    if (more == 4)
        return RUNE_REPLACEMENT;
    rune &= mask[more];
    for (unsigned i = 1; i <= more; ++i) {
        if ((byte[i] & 0xc0) != 0x80) /* the terminating NUL, too */
            return RUNE_REPLACEMENT;
        rune = rune << 6 | (byte[i] & 0x3f);
    }
    if (rune < least[more] || rune > 0x10ffff || (rune >= 0xd800 && rune <= 0xdfff))
        return RUNE_REPLACEMENT;
    *text += more;
    return rune;
}

bool utf8_is_valid(const char *text) {
    static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD itself */
    while (*text) {
        const char *before = text;
        if (utf8_next(&text) == RUNE_REPLACEMENT && strncmp(before, replacement, strlen(replacement)) != 0)
            return false;
    }
    return true;
}

size_t utf8_put(uint32_t rune, char out[4]) {
    if (rune < 0x80)
        return out[0] = (char)rune, 1;
    size_t bytes = rune < 0x800 ? 2 : rune < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = bytes - 1; i > 0; --i, rune >>= 6)
        out[i] = (char)(0x80 | (rune & 0x3f));
    out[0] = (char)(lead[bytes] | rune);
    return bytes;
}

bool utf8_is_unsafe(uint32_t rune) {
    static const struct {
        uint32_t first, last;
    } ranges[] = {
        {0, 0x1f},        {0x7f, 0x9f},       /* control characters */
        {0xad, 0xad},     {0x34f, 0x34f},     /* soft hyphen, joiner: invisible */
        {0x61c, 0x61c},   {0x115f, 0x1160},   /* a mark of direction; fillers of Hangul */
        {0x180b, 0x180f}, {0x200b, 0x200f},   /* characters without width, marks of direction */
        {0x2028, 0x202e}, {0x2060, 0x206f},   /* ends of lines and paragraphs, directions */
        {0x3164, 0x3164}, {0xfe00, 0xfe0f},   /* a filler; selectors of variants */
        {0xfeff, 0xfeff}, {0xffa0, 0xffa0},   /* byte order mark; a filler */
        {0xfff0, 0xfffb}, {0xe0000, 0xe0fff}, /* annotations, tags */
    };
    if (rune >= 0x20 && rune < 0x7f)
        return false;
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges && rune >= ranges[i].first; i++)
        if (rune <= ranges[i].last)
            return true;
    return false;
}

size_t utf8_show(const char **text, char out[UTF8_SHOWN_MAX]) {
    static const char digits[] = "0123456789abcdef";
    const unsigned char *byte = (const unsigned char *)*text;
    uint32_t rune = utf8_next(text);
    bool invalid = *byte >= 0x80 && *text == (const char *)byte + 1;
    if (!invalid && !utf8_is_unsafe(rune))
        return utf8_put(rune, out);
    if (rune == '\n')
        return memcpy(out, "\\n", 2), 2;
    uint32_t shown = invalid ? *byte : rune;
    size_t n = invalid || rune < 0x80 ? 2 : rune < 0x10000 ? 4 : 5;
    out[0] = '\\';
    out[1] = n == 2 ? 'x' : 'u';
    for (size_t i = 0; i < n; i++)
        out[2 + i] = digits[shown >> 4 * (n - 1 - i) & 15];
    return 2 + n;
}

size_t utf8_clean(char *out, size_t size, const char *text) {
    char shown[UTF8_SHOWN_MAX];
    size_t used = 0;
    while (*text) {
        size_t bytes = utf8_show(&text, shown);
        if (used + bytes >= size)
            break;
        memcpy(out + used, shown, bytes);
        used += bytes;
    }
    out[used] = 0;
    return used;
}
