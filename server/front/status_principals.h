/* The principals of a Status: who is connected, and what each has on which device. Front thread only. */
#pragma once

#include "proto/wire/tensord.pb-c.h"
#include "server/front/front.h"

/* All that the rows point to. */
struct status_principals {
    Tensord__PrincipalStatus *rows, **row_pointers;
    size_t n_rows;
    Tensord__PrincipalDevice *devices, **device_pointers;
};

/* STATUS_NO_HOST_MEMORY: finish it all the same. */
int status_fill_principals(struct status_principals *principals, const struct front *front);
void status_principals_finish(struct status_principals *principals);
