/* The messages that tell about devices and sessions, filled from the slots and their stats pages. Front thread only. */
#pragma once

#include "proto/wire/tensord.pb-c.h"
#include "server/front/front.h"

/* Each appends one frame, as packet_append(). */
int status_append_devices(struct front *front, uint64_t sequence, uint8_t **bytes, size_t *size);
int status_append(struct front *front, uint64_t sequence, const struct principal *viewer, uint8_t **bytes,
                  size_t *size);
/* Calls `use` once with all there is, which is gone when it returns; what it returns, or STATUS_NO_HOST_MEMORY without a
 * call. What a session's work is called, and the words of its failures, are its owner's: `viewer` sees its own, an admin all
 * of them, NULL none. */
int status_use(struct front *front, const struct principal *viewer,
               int (*use)(void *owner, const Tensord__Status *status), void *owner);
/* The operations, and the devices that have each. */
int status_append_operations(struct front *front, uint64_t sequence, uint8_t **bytes, size_t *size);
/* The configuration in force. */
int status_append_config(const struct config *config, uint64_t sequence, uint8_t **bytes, size_t *size);
