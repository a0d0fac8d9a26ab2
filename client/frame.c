#include "client/frame.h"

#include <stdlib.h>

#include "client/device.h"
#include "client/error.h"
#include "proto/frame.h"

size_t frame_pack(uint8_t *out, size_t capacity, unsigned type, const ProtobufCMessage *message,
                  uint64_t payload_bytes) {
    size_t bytes = protobuf_c_message_get_packed_size(message);
    if (FRAME_HEADER_BYTES + bytes > capacity)
        return 0;
    struct frame_header header = {
        .type = (uint16_t)type, .message_bytes = (uint32_t)bytes, .payload_bytes = payload_bytes};
    frame_header_encode(&header, out);
    protobuf_c_message_pack(message, out + FRAME_HEADER_BYTES);
    return FRAME_HEADER_BYTES + bytes;
}

struct frame_item *frame_item_create(unsigned type, const ProtobufCMessage *message, uint64_t payload_bytes) {
    size_t bytes = FRAME_HEADER_BYTES + protobuf_c_message_get_packed_size(message);
    struct frame_item *frame = malloc(sizeof *frame + bytes);
    if (!frame)
        return NULL;
    frame_pack(frame->bytes, bytes, type, message, payload_bytes);
    frame->item = (struct item){
        .kind = ITEM_FRAME_OWNED, .bytes = sizeof *frame + bytes, .frame = frame->bytes, .frame_bytes = bytes};
    return frame;
}

int frame_push(td_device *device, unsigned type, const ProtobufCMessage *message, uint64_t gate) {
    int code = device_check(device);
    if (code)
        return code;
    struct frame_item *frame = frame_item_create(type, message, 0);
    if (!frame)
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for a message");
    if (!queue_room(&device->queue, frame->item.bytes)) {
        free(frame);
        return error_set(STATUS_AGAIN, "the send queue of %s holds %zu bytes, try again", device->name,
                         device->queue.bytes);
    }
    frame->item.gate = gate;
    device_seal(device);
    queue_push(&device->queue, &frame->item);
    if (io_opened(device))
        io_wake(device);
    return 0;
}
