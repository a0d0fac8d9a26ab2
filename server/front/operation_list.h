/* The operations, and what each device says of each. Front thread only. */
#pragma once

#include "server/front/front.h"

/* Appends one frame, as packet_append() does. */
int operation_list_append(struct front *front, uint64_t sequence, uint8_t **bytes, size_t *size);
