/* Frames and their messages: packing, queueing, unpacking, and printing for TENSORD_DEBUG. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/wire/frame.h"

struct frame_item;
struct td_device;

/* A frame without payload in a block of its own, which can be pushed; NULL out of memory. `message_bytes`: the size of the
 * packed message. */
struct frame_item *frame_item_create(unsigned type, const ProtobufCMessage *message, size_t message_bytes);
/* Under the device's lock: queues a message that gets no reply, behind everything enqueued so far, and wakes the I/O
 * thread. Stores the error: a lost device, no room, no memory. */
int frame_push(struct td_device *device, unsigned type, const ProtobufCMessage *message, uint64_t gate);
/* Unpacks the message of a received frame; the caller frees it with protobuf_c_message_free_unpacked(). STATUS_PROTOCOL
 * for a malformed message, STATUS_NO_HOST_MEMORY. */
int frame_unpack(const ProtobufCMessageDescriptor *descriptor, const struct frame_header *header,
                 const uint8_t *message, ProtobufCMessage **out, struct fault *fault);
/* Writes header and message to `out`; returns the number of bytes, or 0 if they exceed `capacity`. */
size_t frame_pack(uint8_t *out, size_t capacity, unsigned type, const ProtobufCMessage *message,
                  uint64_t payload_bytes);

/* TENSORD_DEBUG=wire prints every frame of this process's connections in readable form on stderr. Any thread. */
bool trace_enabled(void);
/* `arrow` is "->" for sent and "<-" for received. */
void trace_frame(const char *arrow, const struct frame_header *header, const uint8_t *message);
/* The same for whole frames, `bytes` in all, without payloads between them. */
void trace_frames(const char *arrow, const uint8_t *frames, size_t bytes);
