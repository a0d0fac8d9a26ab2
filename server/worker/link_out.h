/* The source's side of copies between devices: tensors that wait for a link or are on their way. Loop thread only. */
#pragma once

#include "proto/ops/status.h"
#include "server/worker/link.h"

/* CopyOut: sends tensor `id`, or the cause of its failure, to `device`. STATUS_AGAIN: nothing has been done, because
 * there is no memory yet. */
int link_out_send(struct connection *connection, uint64_t id, const char *device,
                  const uint8_t ticket[LINK_TICKET_BYTES]);
/* The front's reply. Takes over `fd`; -1: there is no link, and `fault` says why. */
void link_out_granted(struct service *service, const uint8_t ticket[LINK_TICKET_BYTES], int fd,
                      const struct fault *fault);

/* This side's part of the functions in link.h. */
void link_out_tick(struct service *service, uint64_t now_ms);
bool link_out_drop_connection(struct connection *connection);
bool link_out_busy(const struct connection *connection);
/* Call it after the connections have ended. */
void link_out_finish(struct service *service);
