/* The tenant's inside, for the files of this room. Owner thread, but for `share`. */
#pragma once

#include "engine/order/turns.h"
#include "engine/session/tenant.h"

struct tenant {
    struct engine *engine;
    char name[TENANT_NAME_MAX + 1];
    struct tenant_limits limits;
    struct run_share *share;
    unsigned sessions;
    unsigned ending; /* sessions that have ended, and whose memory is still charged here */
    bool gone;       /* destroyed; freed when those have given it back */
    uint64_t live, peak;
    uint64_t staging;
    uint64_t host;
};

/* Whether it may have so many bytes more; else the fault says whose limit that is, what is used, and by how many
 * sessions. Takes NULL. */
int tenant_check(const struct tenant *tenant, uint64_t bytes, struct fault *fault);
/* A session that has ended has given back everything. */
void tenant_leave(struct tenant *tenant);
void tenant_charge(struct tenant *tenant, uint64_t bytes);
void tenant_discharge(struct tenant *tenant, uint64_t bytes);
