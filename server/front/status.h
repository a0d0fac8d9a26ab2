/* The messages with which the front reports devices, sessions, principals and its configuration. They are filled from
 * the slots and their stats pages. Front thread only. */
#pragma once

#include "proto/wire/tensord.pb-c.h"
#include "server/front/front.h"

/* Each of these appends one frame, as packet_append() does. */
int status_append_devices(struct front *front, uint64_t sequence, uint8_t **bytes, size_t *size);
/* `of`: the name of a principal, to append its sessions and programs alone; "": all. */
int status_append(struct front *front, uint64_t sequence, const struct principal *viewer, const char *of,
                  uint8_t **bytes, size_t *size);
/* Calls `use` once with a whole Status, which is freed when `use` returns. Returns what `use` returns;
 * STATUS_NO_HOST_MEMORY: it was not called. Labels and messages of failures are shown only to the session's owner and
 * to admins; `viewer` NULL: to nobody. */
int status_use(struct front *front, const struct principal *viewer,
               int (*use)(void *owner, const Tensord__Status *status), void *owner);
/* The configuration in force. */
int status_append_config(const struct config *config, uint64_t sequence, uint8_t **bytes, size_t *size);
