/* The part of a status that says who is connected, what each has, and what limits were met. Front thread only. */
#pragma once

#include "proto/wire/tensord.pb-c.h"
#include "server/front/front.h"

struct status_limits {
    Tensord__LimitCount counts[REFUSAL_COUNT], *pointers[REFUSAL_COUNT];
    size_t n;
};
/* Those that were met at least once. */
void status_fill_limits(struct status_limits *limits, const uint64_t counts[REFUSAL_COUNT]);

/* All that the rows point to. */
struct status_principals {
    Tensord__PrincipalStatus *rows, **row_pointers;
    size_t n_rows;
    Tensord__PrincipalDevice *devices, **device_pointers;
};
/* By name. STATUS_NO_HOST_MEMORY; either way status_principals_finish() is due. */
int status_fill_principals(struct status_principals *principals, const struct front *front);
void status_principals_finish(struct status_principals *principals);
