/* A look at the fields of a protobuf message as it was sent: for what protobuf-c does not refuse by itself. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

enum message_fields {
    MESSAGE_FIELDS_FINE,
    MESSAGE_FIELDS_MANY, /* more than were allowed */
    MESSAGE_FIELDS_NUL,  /* a text has a NUL byte: protobuf-c ends a text at its first NUL byte and reports no error */
};

/* Looks through the fields of a packed message, of which there may be at most `most`. Where the message is malformed the
 * look ends, and the parser is left to refuse the message. */
enum message_fields message_fields_look(const ProtobufCMessageDescriptor *descriptor, const uint8_t *message,
                                        size_t bytes, size_t most);
