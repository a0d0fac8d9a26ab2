/* Named tensors as Status has them. Front thread only. */
#pragma once

#include "proto/wire/tensord.pb-c.h"
#include "server/front/worker_slot.h"

/* One device's message parts, which must live as long as the message. */
struct status_names {
    Tensord__NameOwner owners[STATS_OWNERS_MAX], *pointers[STATS_OWNERS_MAX];
};

void status_fill_names(const struct worker_slot *slot, struct status_names *names, Tensord__DeviceStatus *status);
