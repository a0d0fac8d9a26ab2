/* Where a client runs: its process and its host, for whoever looks at a status. A Unix socket knows its peer's process; what
 * comes over TCP can only say what it is. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/wire/tensord.pb-c.h"

enum { REMOTE_HOST_BYTES = 64 };

struct remote {
    uint32_t pid;                 /* 0: not known */
    bool claimed;                 /* by the client alone */
    char host[REMOTE_HOST_BYTES]; /* as the client calls it; "": this one, or not known */
};

void remote_find(struct remote *remote, int fd, bool tcp, const Tensord__Hello *hello);
