/* An accepted socket: how it is set up, and what it tells of the peer. Front thread only. */
#pragma once

#include <sys/socket.h>

#include "server/ipc/peer.h"

/* Sets the socket's options, and fills what is known of the peer before a byte is read; `peer` is zeroed memory. */
void arrival_meet(int fd, const struct sockaddr_storage *address, struct peer *peer);
