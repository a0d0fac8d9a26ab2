/* Checks of what others send or store, beyond what the parsers check. Pure functions: any thread. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/ops/status.h"

enum message_fields {
    MESSAGE_FIELDS_FINE,
    MESSAGE_FIELDS_MANY, /* more fields than allowed */
    MESSAGE_FIELDS_NUL,  /* a text has a NUL byte: protobuf-c ends a text at its first NUL byte and reports no error */
};

/* Looks at the fields of a packed message, which may have at most `most`. If the message is malformed the look ends there;
 * the parser will refuse the message. */
enum message_fields message_fields_look(const ProtobufCMessageDescriptor *descriptor, const uint8_t *message,
                                        size_t bytes, size_t most);

/* Whether a text in the packed message, or in a message within it, has a NUL byte. Messages contain each other as deep as the schema says. */
bool message_has_nul(const ProtobufCMessageDescriptor *descriptor, const uint8_t *message, size_t bytes);

/* Unpacks a message, which the caller frees with protobuf_c_message_free_unpacked(). NULL: it is malformed, or there was no memory for it. */
ProtobufCMessage *message_unpack(const ProtobufCMessageDescriptor *descriptor, const uint8_t *message, size_t bytes,
                                 bool *no_memory);

enum { NAME_BYTES_MAX = 255 };

/* The name of a tensor: STATUS_INVALID_ARGUMENT unless it has 1 to NAME_BYTES_MAX bytes of UTF-8 without control characters,
 * and is not "__metadata__", a key that safetensors files use themselves. `name` ends with a NUL. */
int name_check(const char *name, struct fault *fault);
