/* The destination's side of copies between devices: the ids that wait for their bytes, and the links that bring them.
 * Loop thread only. */
#pragma once

#include "engine/session/session.h"
#include "server/worker/link.h"

/* CopyIn: binds request->id to what a link with this ticket brings from the device `source`. Where `refused` is not
 * NULL, or nothing can be expected, the id is poisoned. STATUS_AGAIN: nothing has been done, there is no memory yet. */
int link_in_expect(struct connection *connection, const struct upload_request *request, const char *source,
                   const uint8_t ticket[LINK_TICKET_BYTES], const struct fault *refused);
/* From the front, for a copy of this principal. Takes over `fd`; -1 says that this process had no room for it. */
void link_in_accept(struct service *service, const char *device, const char *principal,
                    const uint8_t ticket[LINK_TICKET_BYTES], int fd);
/* The worker of `device` has ended: fails what waits for a link from it. A link that has come shows that by itself. */
void link_in_peer_lost(struct service *service, const char *device);

/* This side's part of what link.h has. */
void link_in_tick(struct service *service, uint64_t now_ms);
bool link_in_drop_connection(struct connection *connection);
/* The client has gone or come back: its copies have their whole time to begin from now on, a lease included. */
void link_in_extend(struct connection *connection);
bool link_in_busy(const struct connection *connection);
void link_in_finish(struct service *service);
