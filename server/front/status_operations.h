/* The message that tells which operations there are, and which device has them. Front thread only. */
#pragma once

#include "server/front/front.h"

/* Appends one frame, as packet_append(). */
int status_append_operations(struct front *front, uint64_t sequence, uint8_t **bytes, size_t *size);
