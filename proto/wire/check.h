/* Checks of what others send or store, beyond what the parsers check. Pure functions: any thread. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/ops/status.h"

enum message_fields {
    MESSAGE_FIELDS_FINE,
    MESSAGE_FIELDS_MANY, /* more than were allowed */
    MESSAGE_FIELDS_NUL,  /* a text has a NUL byte: protobuf-c ends a text at its first NUL byte and reports no error */
};

/* Looks through the fields of a packed message, of which there may be at most `most`. Where the message is malformed the
 * look ends, and the parser is left to refuse the message. */
enum message_fields message_fields_look(const ProtobufCMessageDescriptor *descriptor, const uint8_t *message,
                                        size_t bytes, size_t most);

enum { NAME_BYTES_MAX = 255 };

/* STATUS_INVALID_ARGUMENT unless it has 1 to NAME_BYTES_MAX bytes of UTF-8 without control characters, and is not the key
 * that safetensors files keep for themselves. `name` ends with a NUL. */
int name_check(const char *name, struct fault *fault);
