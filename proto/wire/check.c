#include "proto/wire/check.h"

#include <stdlib.h>
#include <string.h>

#include "proto/ops/utf8.h"

/* ---- fields of a message ---- */

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

/* Steps over one field of a message. Returns the field if it has a length and the descriptor knows it: its value is [*value, *at). NULL: another field,
 * or the message is malformed, and then *at becomes the end. */
static const ProtobufCFieldDescriptor *message_field(const ProtobufCMessageDescriptor *descriptor, const uint8_t **at,
                                                     const uint8_t *end, const uint8_t **value) {
    enum { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 };
    uint64_t tag, bytes = 0;

    if (!message_varint(at, end, &tag))
        goto malformed;
    if ((tag & 7) == VARINT)
        return message_varint(at, end, &bytes) ? NULL : (*at = end, NULL);
    if ((tag & 7) == LENGTH && !message_varint(at, end, &bytes))
        goto malformed;
    if ((tag & 7) == FIXED64 || (tag & 7) == FIXED32)
        bytes = (tag & 7) == FIXED64 ? 8 : 4;
    else if ((tag & 7) != LENGTH)
        goto malformed;
    if (bytes > (uint64_t)(end - *at))
        goto malformed;
    *value = *at;
    *at += bytes;
    return (tag & 7) == LENGTH && tag >> 3 <= UINT32_MAX
               ? protobuf_c_message_descriptor_get_field(descriptor, (unsigned)(tag >> 3))
               : NULL;
malformed:
    *at = end;
    return NULL;
}

static bool message_text_has_nul(const ProtobufCFieldDescriptor *field, const uint8_t *value, const uint8_t *end) {
    return field && field->type == PROTOBUF_C_TYPE_STRING && memchr(value, 0, (size_t)(end - value));
}

enum message_fields message_fields_look(const ProtobufCMessageDescriptor *descriptor, const uint8_t *message,
                                        size_t bytes, size_t most) {
    const uint8_t *at = message, *end = message + bytes, *value = message;
    enum message_fields found = MESSAGE_FIELDS_FINE;

    for (size_t n = 0; at < end; n++) {
        if (n == most)
            return MESSAGE_FIELDS_MANY;
        const ProtobufCFieldDescriptor *field = message_field(descriptor, &at, end, &value);
        if (message_text_has_nul(field, value, at))
            found = MESSAGE_FIELDS_NUL;
    }
    return found;
}

bool message_has_nul(const ProtobufCMessageDescriptor *descriptor, const uint8_t *message, size_t bytes) {
    const uint8_t *at = message, *end = message + bytes, *value = message;
    while (at < end) {
        const ProtobufCFieldDescriptor *field = message_field(descriptor, &at, end, &value);
        if (message_text_has_nul(field, value, at))
            return true;
        if (field && field->type == PROTOBUF_C_TYPE_MESSAGE &&
            message_has_nul(field->descriptor, value, (size_t)(at - value)))
            return true;
    }
    return false;
}

/* ---- unpacking ---- */

/* For protobuf-c a malformed message and missing memory are the same failure: an allocator that notes its own. */
static void *unpack_allocate(void *failed, size_t bytes) {
    void *memory = malloc(bytes);
    if (!memory)
        *(bool *)failed = true;
    return memory;
}

static void unpack_free(void *failed, void *memory) {
    (void)failed;
    free(memory);
}

ProtobufCMessage *message_unpack(const ProtobufCMessageDescriptor *descriptor, const uint8_t *message, size_t bytes,
                                 bool *no_memory) {
    ProtobufCAllocator allocator = {.alloc = unpack_allocate, .free = unpack_free, .allocator_data = no_memory};
    *no_memory = false;
    return protobuf_c_message_unpack(descriptor, &allocator, bytes, message);
}

/* ---- names of tensors ---- */

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
