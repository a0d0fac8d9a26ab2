#include "proto/utf8.h"

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
