#include "engine/memory/ledger.h"

#include <stdio.h>
#include <stdlib.h>

#include "engine/device/device_impl.h"
#include "engine/memory/draft.h"
#include "engine/memory/memory.h"
#include "proto/ops/status.h"

/* ---- life ---- */

void ledger_open(struct ledger *ledger, struct memory *memory, struct tenant *tenant) {
    ledger->memory = memory;
    ledger->tenant = tenant;
    ledger->payer.whole = tenant_payer(tenant);
    tenant_join(tenant);
    staging_join(ledger);
    ledger->next = memory->ledgers;
    ledger->previous = &memory->ledgers;
    if (ledger->next)
        ledger->next->previous = &ledger->next;
    memory->ledgers = ledger;
    memory->n_ledgers++;
}

void ledger_end(struct ledger *ledger) {
    staging_leave(ledger);
    tenant_end(ledger->tenant);
    *ledger->previous = ledger->next;
    if (ledger->next)
        ledger->next->previous = ledger->previous;
    ledger->memory->n_ledgers--;
}

void ledger_close(struct ledger *ledger) {
    if (ledger->tenant)
        ledger->tenant->host -= ledger->host + ledger->host_queue;
    ledger->memory->host -= ledger->host + ledger->host_queue;
    ledger->host = ledger->host_queue = 0;
    tenant_leave(ledger->tenant);
}

void ledger_refuse(struct ledger *ledger, enum ledger_refusal refusal) {
    ledger->refused = &ledger->memory->refusals[refusal];
    ++*ledger->refused;
}

/* ---- device memory ---- */

static int ledger_check(struct ledger *ledger, uint64_t bytes, struct fault *fault) {
    const struct tenant *tenant = ledger->tenant;
    char most[BYTES_TEXT_MAX], asked[BYTES_TEXT_MAX], live[BYTES_TEXT_MAX];
    if (!payer_fits(&ledger->payer, bytes)) {
        ledger_refuse(ledger, LEDGER_REFUSED_SESSION_BYTES);
        return fault_set(fault, STATUS_LIMIT, "the session's limit of %s is reached: %s asked, %s live",
                         bytes_text(most, ledger->payer.limit), bytes_text(asked, bytes),
                         bytes_text(live, ledger->payer.bytes));
    }
    if (!tenant || payer_fits(&tenant->payer, bytes))
        return STATUS_OK;
    ledger_refuse(ledger, LEDGER_REFUSED_TENANT_BYTES);
    return fault_set(fault, STATUS_LIMIT,
                     "the limit of %s, %s on this device, is reached: %s asked, %s live in %u session%s", tenant->name,
                     bytes_text(most, tenant->payer.limit), bytes_text(asked, bytes),
                     bytes_text(live, tenant->payer.bytes), tenant->sessions, tenant->sessions == 1 ? "" : "s");
}

static int ledger_out_of_memory(struct ledger *ledger, uint64_t bytes, struct fault *fault) {
    struct order *order = ledger->memory->order;
    struct pool *pool = &ledger->memory->pool;
    struct device *device = order->device;
    struct device_workspaces workspaces = {0};
    if (device->vtable->workspaces)
        device->vtable->workspaces(device, &workspaces);
    if (workspaces.bytes && bytes <= pool->total - pool->reserved) /* the device itself had no more, not the pool */
        order_trim_workspaces(order);
    char asked[BYTES_TEXT_MAX], left[BYTES_TEXT_MAX], total[BYTES_TEXT_MAX], own[BYTES_TEXT_MAX],
        others[BYTES_TEXT_MAX];
    char block[BYTES_TEXT_MAX], beside[BYTES_TEXT_MAX], more[32 + BYTES_TEXT_MAX] = "";
    if (workspaces.bytes)
        snprintf(more, sizeof more, ", workspaces take %s", bytes_text(beside, workspaces.bytes));
    uint64_t live = ledger->payer.bytes;
    return fault_set(
        fault, STATUS_OUT_OF_MEMORY,
        "out of device memory: %s asked, %s free of %s; you hold %s, others %s; the largest free block has %s%s",
        bytes_text(asked, bytes), bytes_text(left, pool->total - pool->live), bytes_text(total, pool->total),
        bytes_text(own, live), bytes_text(others, pool->live - (live - ledger->apart)),
        bytes_text(block, pool_largest_free(pool)), more);
}

int ledger_storage(struct ledger *ledger, uint64_t bytes, struct stream *stream, struct storage **result,
                   struct fault *fault) {
    if (__builtin_expect(ledger->draft != NULL, 0))
        return draft_storage(ledger->draft, bytes, result, fault);
    struct pool *pool = &ledger->memory->pool;
    size_t rounded = pool_rounded(bytes);
    ledger->waits = false;
    if (!rounded || rounded > pool->total)
        return ledger_out_of_memory(ledger, bytes, fault);
    int code = ledger_check(ledger, rounded, fault); /* before it is taken */
    if (code != STATUS_OK)
        return code;
    struct storage *storage;
    code = pool_take(pool, rounded, stream, stream ? &ledger->search : NULL, &storage);
    ledger->waits = code == STATUS_AGAIN && pool->coming;
    if (code == STATUS_AGAIN)
        return fault_set(fault, STATUS_AGAIN, "device memory is being looked for");
    if (code == STATUS_NO_HOST_MEMORY)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no host memory to keep account of device memory");
    if (code != STATUS_OK)
        return ledger_out_of_memory(ledger, bytes, fault);
    storage->payer = &ledger->payer;
    payer_charge(storage->payer, storage->charged);
    *result = storage;
    return STATUS_OK;
}

int ledger_take_apart(struct ledger *ledger, uint64_t bytes, struct fault *fault) {
    if (bytes > ledger->memory->pool.total)
        return ledger_out_of_memory(ledger, bytes, fault);
    int code = ledger_check(ledger, bytes, fault);
    if (code == STATUS_OK) {
        payer_charge(&ledger->payer, bytes);
        ledger->apart += bytes;
    }
    return code;
}

void ledger_give_apart(struct ledger *ledger, uint64_t bytes) {
    ledger->apart -= bytes;
    payer_discharge(&ledger->payer, bytes);
}

/* ---- host memory ---- */

static bool host_fits(uint64_t limit, uint64_t has, uint64_t bytes) {
    return !limit || (bytes <= limit && has <= limit - bytes);
}

bool ledger_has_host(const struct ledger *ledger, uint64_t bytes) {
    const struct tenant *tenant = ledger->tenant;
    return host_fits(ledger->host_limit, ledger->host + ledger->host_queue, bytes) &&
           (!tenant || host_fits(tenant->limits.host_bytes, tenant->host, bytes));
}

static int ledger_refuse_host(struct ledger *ledger, uint64_t bytes, size_t n, const char *kind, struct fault *fault) {
    const struct tenant *tenant = ledger->tenant;
    uint64_t limit = ledger->host_limit, has = ledger->host + ledger->host_queue;
    char most[BYTES_TEXT_MAX], asked[BYTES_TEXT_MAX], now[BYTES_TEXT_MAX];
    if (!host_fits(limit, has, bytes)) {
        ledger_refuse(ledger, LEDGER_REFUSED_SESSION_HOST);
        return fault_set(fault, STATUS_LIMIT,
                         "the session's limit of %s of host memory is reached: %s asked, %s held, with %zu %s",
                         bytes_text(most, limit), bytes_text(asked, bytes), bytes_text(now, has), n, kind);
    }
    ledger_refuse(ledger, LEDGER_REFUSED_TENANT_HOST);
    return fault_set(fault, STATUS_LIMIT,
                     "the limit of %s, %s of host memory on this device, is reached: %s asked, %s held in %u session%s",
                     tenant->name, bytes_text(most, tenant->limits.host_bytes), bytes_text(asked, bytes),
                     bytes_text(now, tenant->host), tenant->sessions, tenant->sessions == 1 ? "" : "s");
}

int ledger_take_host(struct ledger *ledger, uint64_t bytes, size_t n, const char *kind, struct fault *fault) {
    if (!ledger_has_host(ledger, bytes))
        return ledger_refuse_host(ledger, bytes, n, kind, fault);
    ledger_note_host(ledger, bytes);
    return STATUS_OK;
}

void ledger_note_host(struct ledger *ledger, uint64_t bytes) {
    ledger->host += bytes;
    memory_count_host(ledger->memory, bytes);
    if (ledger->tenant)
        ledger->tenant->host += bytes;
}

void ledger_give_host(struct ledger *ledger, uint64_t bytes) {
    ledger->host -= bytes;
    memory_count_host(ledger->memory, -bytes);
    if (ledger->tenant)
        ledger->tenant->host -= bytes;
}

void ledger_set_queue(struct ledger *ledger, uint64_t bytes) {
    if (ledger->tenant)
        ledger->tenant->host += bytes - ledger->host_queue;
    memory_count_host(ledger->memory, bytes - ledger->host_queue);
    ledger->host_queue = bytes;
}

/* ---- tenants ---- */

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
    tenant->number = ++memory->last_tenant;
    tenant->limits = *limits;
    tenant->payer.limit = limits->bytes;
    snprintf(tenant->name, sizeof tenant->name, "%s", name);
    *result = tenant;
    return STATUS_OK;
}

void tenant_set_limits(struct tenant *tenant, const struct tenant_limits *limits) {
    tenant->limits = *limits;
    tenant->payer.limit = limits->bytes;
    tenant->memory->staging.moved = true; /* transfers that wait may have more now */
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
