#include "proto/wire/name.h"

#include <string.h>

#include "proto/ops/utf8.h"

int name_check(const char *name, struct fault *fault) {
    const char *at = name;
    size_t length = strnlen(name, NAME_BYTES_MAX + 1);
    if (length == 0 || length > NAME_BYTES_MAX)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "a tensor's name has 1 to %d bytes, not %s", NAME_BYTES_MAX,
                         length ? "more" : "none");
    if (!utf8_is_valid(name))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "a tensor's name is not UTF-8");
    while (*at) {
        uint32_t rune = utf8_next(&at);
        if (rune < 0x20 || (rune >= 0x7f && rune < 0xa0))
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "a tensor's name has the control character U+%04X", rune);
    }
    if (!strcmp(name, "__metadata__"))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "no tensor can have the name __metadata__");
    return STATUS_OK;
}
