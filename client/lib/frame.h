/* Frames as messages: small ones that want no reply, and what comes back; and their printing for TENSORD_DEBUG. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/wire/frame.h"

struct frame_item;
struct td_device;

/* A frame in a block of its own, without payload, ready to be pushed; NULL out of memory. `message_bytes`: what the message
 * comes to when it is packed. */
struct frame_item *frame_item_create(unsigned type, const ProtobufCMessage *message, size_t message_bytes);
/* Under the device's lock: queues the message behind everything enqueued so far and wakes the I/O thread. Stores the
 * error: a lost device, no room, no memory. */
int frame_push(struct td_device *device, unsigned type, const ProtobufCMessage *message, uint64_t gate);
/* The message of a received frame, to be freed with protobuf_c_message_free_unpacked(). STATUS_PROTOCOL for a malformed
 * one, STATUS_NO_HOST_MEMORY. */
int frame_unpack(const ProtobufCMessageDescriptor *descriptor, const struct frame_header *header,
                 const uint8_t *message, ProtobufCMessage **out, struct fault *fault);
/* Writes header and message to `out`; returns the bytes, or 0 where they exceed `capacity`. */
size_t frame_pack(uint8_t *out, size_t capacity, unsigned type, const ProtobufCMessage *message,
                  uint64_t payload_bytes);

/* TENSORD_DEBUG=wire: every frame of this process's connections, readably, on stderr. Any thread. */
bool trace_enabled(void);
/* `arrow` is "->" for sent and "<-" for received. */
void trace_frame(const char *arrow, const struct frame_header *header, const uint8_t *message);
/* The same for `bytes` of whole frames without payloads between them. */
void trace_frames(const char *arrow, const uint8_t *frames, size_t bytes);
