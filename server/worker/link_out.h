/* The source's side of copies between devices: tensors that wait for a link, and those on their way. Loop thread only. */
#pragma once

#include "proto/ops/status.h"
#include "server/worker/link.h"

/* CopyOut: sends tensor `id`, or the cause of its failure, to `device`. STATUS_AGAIN: nothing has been done, there is no memory
 * yet. */
int link_out_send(struct connection *connection, uint64_t id, const char *device,
                  const uint8_t ticket[LINK_TICKET_BYTES]);
/* From the front. Takes over `fd`; -1 stands for a refusal with `fault`. */
void link_out_granted(struct service *service, const uint8_t ticket[LINK_TICKET_BYTES], int fd,
                      const struct fault *fault);

/* This side's part of what link.h has. */
void link_out_tick(struct service *service, uint64_t now_ms);
bool link_out_drop_connection(struct connection *connection);
bool link_out_busy(const struct connection *connection);
/* The source's ends have gone with their connections. */
void link_out_finish(struct service *service);
