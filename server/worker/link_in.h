/* The destination's side of copies between devices: the ids that wait for their bytes, and the links that bring them.
 * Loop thread only. */
#pragma once

#include "engine/session/session.h"
#include "server/worker/link.h"

/* CopyIn: binds request->id to the bytes that a link with this ticket will bring from the device `source`. The id is
 * poisoned if `refused` is not NULL or the copy cannot be expected. STATUS_AGAIN: nothing has been done, because there
 * is no memory yet. */
int link_in_expect(struct connection *connection, const struct upload_request *request, const char *source,
                   const uint8_t ticket[LINK_TICKET_BYTES], const struct fault *refused);
/* A link from the front, for a copy of this principal. Takes over `fd`; -1: this process had no free descriptor for
 * it. */
void link_in_accept(struct service *service, const char *device, const char *principal,
                    const uint8_t ticket[LINK_TICKET_BYTES], int fd);
/* The worker of `device` has ended: fails copies that wait for a link from it. A link that has come ends by itself. */
void link_in_peer_lost(struct service *service, const char *device);

/* This side's part of the functions in link.h. */
void link_in_tick(struct service *service, uint64_t now_ms);
bool link_in_drop_connection(struct connection *connection);
/* The client has gone or come back: its copies get their whole time to begin again, and the time of a lease besides. */
void link_in_extend(struct connection *connection);
bool link_in_busy(const struct connection *connection);
void link_in_finish(struct service *service);
