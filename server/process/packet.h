/* A whole frame without payload, as bytes to send. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/wire/frame.h"

/* Appends a frame to *bytes (malloc'ed, *size long; the caller frees it). STATUS_NO_HOST_MEMORY leaves both as they
 * were. */
int packet_append(uint8_t **bytes, size_t *size, enum frame_type type, uint64_t sequence,
                  const ProtobufCMessage *message);
/* Writes an Error frame that is no reply to a request, and returns its size. It allocates nothing, so that it can also
 * report that there is no memory. */
enum { PACKET_ERROR_MAX = FRAME_HEADER_BYTES + 16 + sizeof(((struct fault *)0)->message) };
size_t packet_error(uint8_t bytes[PACKET_ERROR_MAX], const struct fault *fault);
