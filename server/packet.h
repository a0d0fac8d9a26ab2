/* A whole frame without payload, as bytes to send. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/frame.h"

/* Appends a frame to *bytes (malloc'ed, *size long; the caller frees it). STATUS_NO_HOST_MEMORY leaves both as they
 * were. */
int packet_append(uint8_t **bytes, size_t *size, enum frame_type type, uint64_t sequence,
                  const ProtobufCMessage *message);
/* The same for an Error frame. */
int packet_append_error(uint8_t **bytes, size_t *size, uint64_t sequence, const struct fault *fault);
