/* The tenant's inside. Owner thread, but for `share`. */
#pragma once

#include "engine/memory/payer.h"
#include "engine/memory/tenant.h"
#include "engine/order/turns.h"

struct tenant {
    struct memory *memory;
    char name[TENANT_NAME_MAX + 1];
    struct tenant_limits limits;
    struct run_share *share;
    unsigned sessions;
    unsigned ending; /* sessions that have ended, and whose memory is still charged here */
    bool gone;       /* destroyed; freed when those have given it back */
    struct payer payer;
    uint64_t staging;
    uint64_t host;
};

/* A session comes, ends, and has given back everything. Each takes NULL. */
void tenant_join(struct tenant *tenant);
void tenant_end(struct tenant *tenant);
void tenant_leave(struct tenant *tenant);
