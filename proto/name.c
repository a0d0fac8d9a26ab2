#include "proto/name.h"

#include <stdbool.h>
#include <string.h>

/* Takes one code point off *text, which is not at its end: RFC 3629, so no overlong forms, no surrogates, nothing above
 * U+10FFFF. False: there is none. A NUL within ends it as any wrong byte does. */
static bool name_rune(const unsigned char **text, uint32_t *rune) {
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    const unsigned char *byte = *text;
    unsigned more = byte[0] < 0x80 ? 0 : byte[0] < 0xe0 ? 1 : byte[0] < 0xf0 ? 2 : 3;
    if ((byte[0] >= 0x80 && byte[0] < 0xc2) || byte[0] > 0xf4)
        return false;
    *rune = more ? byte[0] & (0x3fu >> more) : byte[0];
    for (unsigned i = 1; i <= more; i++) {
        if ((byte[i] & 0xc0) != 0x80)
            return false;
        *rune = *rune << 6 | (byte[i] & 0x3fu);
    }
    *text += more + 1;
    return *rune >= least[more] && *rune <= 0x10ffff && !(*rune >= 0xd800 && *rune <= 0xdfff);
}

int name_check(const char *name, struct fault *fault) {
    const unsigned char *at = (const unsigned char *)name;
    size_t length = strnlen(name, NAME_BYTES_MAX + 1);
    uint32_t rune;
    if (length == 0 || length > NAME_BYTES_MAX)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "a tensor's name has 1 to %d bytes, not %s", NAME_BYTES_MAX,
                         length ? "more" : "none");
    while (*at) {
        if (!name_rune(&at, &rune))
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "a tensor's name is not UTF-8");
        if (rune < 0x20 || (rune >= 0x7f && rune < 0xa0))
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "a tensor's name has the control character U+%04X", rune);
    }
    if (!strcmp(name, "__metadata__"))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "no tensor can have the name __metadata__");
    return STATUS_OK;
}
