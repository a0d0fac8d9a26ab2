/* What both ends set on a connected stream socket. */
#pragma once

#include <stdbool.h>

/* Unix and TCP sockets; other families stay as they are. A setting that the system refuses is left: each only makes the
 * socket faster, or the end of its peer known sooner. */
void socket_tune(int fd);

bool socket_is_tcp(int fd);
/* Whether the other end is on this host. False for sockets that are neither Unix nor TCP. */
bool socket_is_local(int fd);
