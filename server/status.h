/* The messages that tell about devices and sessions, filled from the slots and their stats pages. Front thread only. */
#pragma once

#include "server/front.h"

/* Each appends one frame, as packet_append(). */
int status_append_devices(struct front *front, uint64_t sequence, uint8_t **bytes, size_t *size);
int status_append(struct front *front, uint64_t sequence, uint8_t **bytes, size_t *size);
