#include "client/lib/frame.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/device.h"
#include "client/lib/error.h"
#include "proto/ops/cleanup.h"
#include "proto/wire/batch.h"
#include "proto/wire/check.h"

static void frame_write(uint8_t *out, unsigned type, const ProtobufCMessage *message, size_t message_bytes,
                        uint64_t payload_bytes) {
    struct frame_header header = {
        .type = (uint16_t)type, .message_bytes = (uint32_t)message_bytes, .payload_bytes = payload_bytes};
    frame_header_encode(&header, out);
    protobuf_c_message_pack(message, out + FRAME_HEADER_BYTES);
}

size_t frame_pack(uint8_t *out, size_t capacity, unsigned type, const ProtobufCMessage *message,
                  uint64_t payload_bytes) {
    size_t bytes = protobuf_c_message_get_packed_size(message);
    if (FRAME_HEADER_BYTES + bytes > capacity)
        return 0;
    frame_write(out, type, message, bytes, payload_bytes);
    return FRAME_HEADER_BYTES + bytes;
}

int frame_unpack(const ProtobufCMessageDescriptor *descriptor, const struct frame_header *header,
                 const uint8_t *message, ProtobufCMessage **out, struct fault *fault) {
    bool failed;
    *out = message_unpack(descriptor, message, header->message_bytes, &failed);
    if (*out)
        return 0;
    return failed
               ? fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a message of %u bytes", header->message_bytes)
               : fault_set(fault, STATUS_PROTOCOL, "malformed %s", frame_type_name(header->type));
}

struct frame_item *frame_item_create(unsigned type, const ProtobufCMessage *message, size_t message_bytes) {
    size_t bytes = FRAME_HEADER_BYTES + message_bytes;
    struct frame_item *frame = malloc(sizeof *frame + bytes);
    if (!frame)
        return NULL;
    frame_write(frame->bytes, type, message, message_bytes, 0);
    frame->item = (struct item){
        .kind = ITEM_FRAME_OWNED, .bytes = sizeof *frame + bytes, .frame = frame->bytes, .frame_bytes = bytes};
    return frame;
}

int frame_push(td_device *device, unsigned type, const ProtobufCMessage *message, uint64_t gate) {
    CLEANUP(free)
    struct frame_item *frame = frame_item_create(type, message, protobuf_c_message_get_packed_size(message));
    if (!frame)
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for a message");
    int code = device_admit(device, frame->item.bytes);
    if (code)
        return code;
    frame->item.gate = gate;
    device_seal(device);
    queue_push(&device->queue, &TAKE(frame)->item);
    if (io_opened(&device->io))
        io_wake(&device->io);
    return 0;
}

/* ---- TENSORD_DEBUG ---- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool enabled;

/* The variable is a comma-separated list, so that later versions can add words. */
static void trace_init(void) {
    const char *word = getenv("TENSORD_DEBUG");
    while (word && *word) {
        size_t n = strcspn(word, ",");
        if (n == 4 && !memcmp(word, "wire", 4))
            enabled = true;
        word += n + (word[n] == ',');
    }
}

bool trace_enabled(void) {
    pthread_once(&once, trace_init);
    return enabled;
}

void trace_frame(const char *arrow, const struct frame_header *header, const uint8_t *message) {
    if (!trace_enabled())
        return;
    flockfile(stderr);
    wire_print(stderr, arrow, header, message);
    funlockfile(stderr);
}

void trace_frames(const char *arrow, const uint8_t *frames, size_t bytes) {
    if (!trace_enabled())
        return;
    while (bytes >= FRAME_HEADER_BYTES) {
        struct frame_header header;
        if (frame_header_decode(frames, FRAME_MESSAGE_MAX, FRAME_PAYLOAD_MAX, &header, NULL))
            return;
        trace_frame(arrow, &header, frames + FRAME_HEADER_BYTES);
        size_t whole = FRAME_HEADER_BYTES + (size_t)header.message_bytes;
        if (whole > bytes)
            return;
        frames += whole;
        bytes -= whole;
    }
}
