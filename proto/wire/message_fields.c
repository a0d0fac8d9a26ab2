#include "proto/wire/message_fields.h"

#include <stdbool.h>
#include <string.h>

static bool message_varint(const uint8_t **at, const uint8_t *end, uint64_t *value) {
    *value = 0;
    for (unsigned shift = 0; shift < 64 && *at < end; shift += 7) {
        uint8_t byte = *(*at)++;

        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

/* Steps over one field of a message. True: the descriptor says that the field is a text, which is [*text, *at). Where the
 * message is malformed *at becomes the end. */
static bool message_field(const ProtobufCMessageDescriptor *descriptor, const uint8_t **at, const uint8_t *end,
                          const uint8_t **text) {
    enum { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 };
    const ProtobufCFieldDescriptor *field;
    uint64_t tag, bytes = 0;

    if (!message_varint(at, end, &tag))
        goto malformed;
    if ((tag & 7) == VARINT)
        return message_varint(at, end, &bytes) ? false : (*at = end, false);
    if ((tag & 7) == LENGTH && !message_varint(at, end, &bytes))
        goto malformed;
    if ((tag & 7) == FIXED64 || (tag & 7) == FIXED32)
        bytes = (tag & 7) == FIXED64 ? 8 : 4;
    else if ((tag & 7) != LENGTH)
        goto malformed;
    if (bytes > (uint64_t)(end - *at))
        goto malformed;
    *text = *at;
    *at += bytes;
    field = (tag & 7) == LENGTH && tag >> 3 <= UINT32_MAX
                ? protobuf_c_message_descriptor_get_field(descriptor, (unsigned)(tag >> 3))
                : NULL;
    return field && field->type == PROTOBUF_C_TYPE_STRING;
malformed:
    *at = end;
    return false;
}

enum message_fields message_fields_look(const ProtobufCMessageDescriptor *descriptor, const uint8_t *message,
                                        size_t bytes, size_t most) {
    const uint8_t *at = message, *end = message + bytes, *text;
    enum message_fields found = MESSAGE_FIELDS_FINE;

    for (size_t n = 0; at < end; n++) {
        if (n == most)
            return MESSAGE_FIELDS_MANY;
        if (message_field(descriptor, &at, end, &text) && memchr(text, 0, (size_t)(at - text)))
            found = MESSAGE_FIELDS_NUL;
    }
    return found;
}
