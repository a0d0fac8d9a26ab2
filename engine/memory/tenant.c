#include <stdio.h>
#include <stdlib.h>

#include "engine/memory/memory.h"
#include "engine/memory/tenant_impl.h"

static uint32_t tenant_weight(const struct tenant_limits *limits) {
    if (!limits->weight)
        return SHARE_WEIGHT_DEFAULT;
    return limits->weight < SHARE_WEIGHT_MAX ? limits->weight : SHARE_WEIGHT_MAX;
}

int tenant_create(struct memory *memory, const char *name, const struct tenant_limits *limits, struct tenant **result,
                  struct fault *fault) {
    struct tenant *tenant = calloc(1, sizeof *tenant);
    if (tenant)
        tenant->share = share_take(memory->order, tenant_weight(limits), limits->operation_ns);
    if (!tenant || !tenant->share) {
        free(tenant);
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a tenant");
    }
    tenant->memory = memory;
    tenant->limits = *limits;
    tenant->payer.limit = limits->bytes;
    snprintf(tenant->name, sizeof tenant->name, "%s", name);
    *result = tenant;
    return STATUS_OK;
}

void tenant_set_limits(struct tenant *tenant, const struct tenant_limits *limits) {
    tenant->limits = *limits;
    tenant->payer.limit = limits->bytes;
    tenant->memory->staging.moved = true; /* those who wait may have more now */
    share_set(tenant->memory->order, tenant->share, tenant_weight(limits), limits->operation_ns);
}

void tenant_destroy(struct tenant *tenant) {
    if (!tenant)
        return;
    share_give(tenant->memory->order, tenant->share);
    tenant->gone = true;
    if (!tenant->ending)
        free(tenant);
}

struct run_share *tenant_share(const struct tenant *tenant) {
    return tenant->share;
}

bool tenant_ending(const struct tenant *tenant) {
    return tenant && tenant->ending;
}

struct payer *tenant_payer(struct tenant *tenant) {
    return tenant ? &tenant->payer : NULL;
}

void tenant_join(struct tenant *tenant) {
    if (tenant)
        tenant->sessions++;
}

void tenant_end(struct tenant *tenant) {
    if (tenant)
        tenant->sessions--, tenant->ending++;
}

void tenant_leave(struct tenant *tenant) {
    if (tenant && --tenant->ending == 0 && tenant->gone)
        free(tenant);
}

void tenant_stats(const struct tenant *tenant, struct tenant_stats *stats) {
    *stats = (struct tenant_stats){
        .sessions = tenant->sessions,
        .live = tenant->payer.bytes,
        .peak = tenant->payer.peak,
        .staging = tenant->staging,
        .host = tenant->host,
    };
}
