#include "server/process/packet.h"

#include <stdlib.h>

#include "proto/wire/tensord.pb-c.h"

int packet_append(uint8_t **bytes, size_t *size, enum frame_type type, uint64_t sequence,
                  const ProtobufCMessage *message) {
    size_t packed = protobuf_c_message_get_packed_size(message);
    struct frame_header header = {.type = (uint16_t)type, .message_bytes = (uint32_t)packed, .sequence = sequence};
    size_t total;
    if (packed > UINT32_MAX || __builtin_add_overflow(*size, packed + FRAME_HEADER_BYTES, &total))
        return STATUS_NO_HOST_MEMORY;
    uint8_t *grown = realloc(*bytes, total);
    if (!grown)
        return STATUS_NO_HOST_MEMORY;
    frame_header_encode(&header, grown + *size);
    protobuf_c_message_pack(message, grown + *size + FRAME_HEADER_BYTES);
    *bytes = grown;
    *size = total;
    return STATUS_OK;
}

size_t packet_error(uint8_t bytes[PACKET_ERROR_MAX], const struct fault *fault) {
    Tensord__Error error = TENSORD__ERROR__INIT;
    error.code = (uint32_t)fault->code;
    error.message = (char *)fault->message;
    size_t packed = protobuf_c_message_pack(&error.base, bytes + FRAME_HEADER_BYTES);
    frame_header_encode(&(struct frame_header){.type = FRAME_ERROR, .message_bytes = (uint32_t)packed}, bytes);
    return FRAME_HEADER_BYTES + packed;
}
