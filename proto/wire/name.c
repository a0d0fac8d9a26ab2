#include "proto/wire/name.h"

#include <string.h>

#include "proto/ops/utf8.h"

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD, which also stands for what is no UTF-8 */

int name_check(const char *name, struct fault *fault) {
    const char *at = name;
    size_t length = strnlen(name, NAME_BYTES_MAX + 1);
    if (length == 0 || length > NAME_BYTES_MAX)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "a tensor's name has 1 to %d bytes, not %s", NAME_BYTES_MAX,
                         length ? "more" : "none");
    while (*at) {
        const char *before = at;
        uint32_t rune = utf8_next(&at);
        if (rune == 0xfffd && strncmp(before, replacement, strlen(replacement)) != 0)
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "a tensor's name is not UTF-8");
        if (rune < 0x20 || (rune >= 0x7f && rune < 0xa0))
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "a tensor's name has the control character U+%04X", rune);
    }
    if (!strcmp(name, "__metadata__"))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "no tensor can have the name __metadata__");
    return STATUS_OK;
}
