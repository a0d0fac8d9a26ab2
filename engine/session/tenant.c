#include <stdio.h>
#include <stdlib.h>

#include "engine/engine_impl.h"
#include "engine/session/tenant_impl.h"
#include "proto/ops/bytes_text.h"

static uint32_t tenant_weight(const struct tenant_limits *limits) {
    if (!limits->weight)
        return SHARE_WEIGHT_DEFAULT;
    return limits->weight < SHARE_WEIGHT_MAX ? limits->weight : SHARE_WEIGHT_MAX;
}

int tenant_create(struct engine *engine, const char *name, const struct tenant_limits *limits, struct tenant **result,
                  struct fault *fault) {
    struct tenant *tenant = calloc(1, sizeof *tenant);
    if (tenant)
        tenant->share = engine_share_take(engine, tenant_weight(limits));
    if (!tenant || !tenant->share) {
        free(tenant);
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a tenant");
    }
    tenant->engine = engine;
    tenant->limits = *limits;
    tenant->share->operation_ns = limits->operation_ns; /* nobody has it in a queue yet */
    snprintf(tenant->name, sizeof tenant->name, "%s", name);
    *result = tenant;
    return STATUS_OK;
}

void tenant_set_limits(struct tenant *tenant, const struct tenant_limits *limits) {
    struct engine *engine = tenant->engine;
    tenant->limits = *limits;
    engine->staging.moved = true; /* those who wait may have more now */
    pthread_mutex_lock(&engine->lock);
    tenant->share->weight = tenant_weight(limits);
    tenant->share->operation_ns = limits->operation_ns;
    pthread_mutex_unlock(&engine->lock);
}

void tenant_destroy(struct tenant *tenant) {
    if (!tenant)
        return;
    engine_share_give(tenant->engine, tenant->share);
    tenant->gone = true;
    if (!tenant->ending)
        free(tenant);
}

void tenant_leave(struct tenant *tenant) {
    if (--tenant->ending == 0 && tenant->gone)
        free(tenant);
}

/* ---- memory ---- */

int tenant_check(const struct tenant *tenant, uint64_t bytes, struct fault *fault) {
    uint64_t limit = tenant ? tenant->limits.bytes : 0;
    if (!limit || (bytes <= limit && tenant->live <= limit - bytes))
        return STATUS_OK;
    char most[BYTES_TEXT_MAX], asked[BYTES_TEXT_MAX], live[BYTES_TEXT_MAX];
    return fault_set(fault, STATUS_LIMIT,
                     "the limit of %s, %s on this device, is reached: %s asked, %s live in %u session%s", tenant->name,
                     bytes_text(most, limit), bytes_text(asked, bytes), bytes_text(live, tenant->live),
                     tenant->sessions, tenant->sessions == 1 ? "" : "s");
}

void tenant_charge(struct tenant *tenant, uint64_t bytes) {
    if (!tenant)
        return;
    tenant->live += bytes;
    if (tenant->live > tenant->peak)
        tenant->peak = tenant->live;
}

void tenant_discharge(struct tenant *tenant, uint64_t bytes) {
    if (tenant)
        tenant->live -= bytes;
}

void tenant_stats(const struct tenant *tenant, struct tenant_stats *stats) {
    *stats = (struct tenant_stats){
        .sessions = tenant->sessions,
        .live = tenant->live,
        .peak = tenant->peak,
        .staging = tenant->staging,
        .host = tenant->host,
    };
}
