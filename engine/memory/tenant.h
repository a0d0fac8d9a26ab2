/* A tenant: several sessions of an engine that together have one account of memory and one share of the device's turns
 * (engine/order/turns.h), whatever their number. A session without a tenant has its own. Owner thread. */
#pragma once

#include <stdbool.h>

#include "proto/ops/status.h"

struct memory;
struct payer;
struct run_share;
struct tenant;

enum { TENANT_NAME_MAX = 63 };

struct tenant_limits {
    uint64_t bytes;      /* live bytes of its sessions; 0: what the device has */
    uint64_t host_bytes; /* host memory that its sessions make grow (engine/session/host.h); 0: any */
    uint64_t
        staging;     /* staging memory, without the first piece of each transfer, which is always granted so that no two
                       * transfers wait for each other; 0: engine/memory/staging.h alone decides */
    uint32_t weight; /* of its share, 1 to SHARE_WEIGHT_MAX; 0: SHARE_WEIGHT_DEFAULT */
    /* An operation that has been computed for so long is stopped if the device can do that; 0: never */
    uint64_t operation_ns;
};

/* `name` is copied, and cut at TENANT_NAME_MAX bytes. Messages about the tenant's limits have it. */
int tenant_create(struct memory *memory, const char *name, const struct tenant_limits *limits, struct tenant **tenant,
                  struct fault *fault);
/* Takes effect at once for new requests; nothing is taken away. */
void tenant_set_limits(struct tenant *tenant, const struct tenant_limits *limits);
/* All its sessions must have been destroyed. Takes NULL. */
void tenant_destroy(struct tenant *tenant);
/* Its share of the turns. */
struct run_share *tenant_share(const struct tenant *tenant);
/* Whether memory of sessions that have ended is still charged to it. Takes NULL. */
bool tenant_ending(const struct tenant *tenant);
/* The account of its sessions' device memory; NULL for NULL. */
struct payer *tenant_payer(struct tenant *tenant);

struct tenant_stats {
    unsigned sessions;
    uint64_t live, peak; /* bytes */
    uint64_t staging;    /* bytes of staging memory */
    uint64_t host;       /* bytes of other host memory */
};
void tenant_stats(const struct tenant *tenant, struct tenant_stats *stats);

/* Limits for which something was refused. */
enum ledger_refusal {
    LEDGER_REFUSED_SESSION_BYTES,
    LEDGER_REFUSED_TENANT_BYTES,
    LEDGER_REFUSED_SESSION_HOST,
    LEDGER_REFUSED_TENANT_HOST,
    LEDGER_REFUSED_TENSORS,
    LEDGER_REFUSED_STREAMS,
    LEDGER_REFUSALS
};
