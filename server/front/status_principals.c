#include "server/front/status_principals.h"

#include <stdlib.h>
#include <string.h>

#include "server/front/worker_slot.h"

/* One thing that is known of a principal: that it is connected, or what it has on a device. */
struct status_fact {
    const char *name;
    const struct roster_entry *entry; /* or */
    const struct worker_slot *slot;
    const struct stats_principal *stats;
};

static int status_fact_order(const void *a, const void *b) {
    const struct status_fact *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    if (order)
        return order;
    int at_x = x->slot ? x->slot->target : -1, at_y = y->slot ? y->slot->target : -1;
    return at_x - at_y;
}

static size_t status_count_facts(const struct front *front) {
    const struct roster_entry *entry;
    size_t count = 0;
    LIST_FOREACH(entry, &front->roster.entries, link)
    count++;
    for (unsigned i = 0; i < front->supervisor.n_slots; i++)
        count += front->supervisor.slots[i].snapshot.n_principals;
    return count;
}

static void status_collect_facts(const struct front *front, struct status_fact *facts) {
    const struct roster_entry *entry;
    LIST_FOREACH(entry, &front->roster.entries, link)
    *facts++ = (struct status_fact){.name = entry->name, .entry = entry};
    for (unsigned i = 0; i < front->supervisor.n_slots; i++) {
        const struct worker_slot *slot = &front->supervisor.slots[i];
        for (unsigned p = 0; p < slot->snapshot.n_principals; p++)
            *facts++ = (struct status_fact){slot->snapshot.principals[p].name, .slot = slot,
                                            .stats = &slot->snapshot.principals[p]};
    }
}

/* `first` is the roster's fact if the principal is in the roster; a worker may still have a principal that is not. */
static void status_fill_principal(const struct front *front, const struct status_fact *first,
                                  Tensord__PrincipalStatus *row) {
    struct limits limits;
    login_limits(&front->login, first->name, &limits);
    tensord__principal_status__init(row);
    row->name = (char *)first->name;
    row->connections = first->entry ? first->entry->connections : 0;
    row->connections_limit = (uint32_t)limits_of_places(limits.principal_connections, front->roster.places);
    row->sessions_limit = (uint32_t)limits_of_places(limits.principal_sessions, front->roster.session_places);
    row->weight = (uint32_t)limits.weight;
    row->rate_limit = limits.principal_rate;
    row->idle_timeout_s = (double)limits.idle_timeout / 1e3;
    row->operation_time_s = (double)limits.operation_time / 1e3;
    row->session_lease_s = (double)limits.session_lease / 1e3;
}

static void status_fill_principal_device(const struct front *front, const struct status_fact *fact,
                                         Tensord__PrincipalDevice *device) {
    const struct stats_principal *stats = fact->stats;
    struct limits limits;
    login_limits(&front->login, fact->name, &limits);
    tensord__principal_device__init(device);
    device->device = (char *)fact->slot->device.name;
    device->connections = stats->connections;
    device->sessions = stats->sessions;
    device->live = stats->live;
    device->live_limit = limits.principal_bytes;
    device->peak = stats->peak;
    device->ops_queued = stats->ops_queued;
    device->ops_limit = limits.principal_operations;
    device->staging = stats->staging;
    device->staging_limit = limits.principal_staging;
    device->host_bytes = stats->host;
    device->host_bytes_limit = limits.principal_host_bytes;
    device->bytes = stats->bytes;
    device->bytes_per_s = stats->bytes_per_s;
    device->ops_total = stats->ops_done;
    device->ops_per_s = stats->ops_per_s;
    device->failures = stats->failures;
    device->device_s = (double)stats->device_ns / 1e9;
    device->device_ratio = stats->device_ratio;
}

/* Facts of one name lie side by side. */
static void status_group_facts(struct status_principals *principals, const struct front *front,
                               const struct status_fact *facts, size_t n) {
    size_t next = 0;
    for (size_t i = 0; i < n; i++) {
        Tensord__PrincipalStatus *row = &principals->rows[principals->n_rows];
        if (i > 0 && !strcmp(facts[i].name, facts[i - 1].name)) {
            row--;
        } else {
            status_fill_principal(front, &facts[i], row);
            row->devices = &principals->device_pointers[next];
            principals->row_pointers[principals->n_rows++] = row;
        }
        if (!facts[i].slot)
            continue;
        status_fill_principal_device(front, &facts[i], &principals->devices[next]);
        principals->device_pointers[next] = &principals->devices[next];
        row->sessions += principals->devices[next++].sessions;
        row->n_devices++;
    }
}

int status_fill_principals(struct status_principals *principals, const struct front *front) {
    size_t n = status_count_facts(front);
    struct status_fact *facts = calloc(n + 1, sizeof *facts);
    *principals = (struct status_principals){
        .rows = calloc(n + 1, sizeof *principals->rows),
        .row_pointers = calloc(n + 1, sizeof(Tensord__PrincipalStatus *)),
        .devices = calloc(n + 1, sizeof *principals->devices),
        .device_pointers = calloc(n + 1, sizeof(Tensord__PrincipalDevice *)),
    };
    bool complete =
        facts && principals->rows && principals->row_pointers && principals->devices && principals->device_pointers;
    if (complete) {
        status_collect_facts(front, facts);
        qsort(facts, n, sizeof *facts, status_fact_order);
        status_group_facts(principals, front, facts, n);
    }
    free(facts);
    return complete ? STATUS_OK : STATUS_NO_HOST_MEMORY;
}

void status_principals_finish(struct status_principals *principals) {
    free(principals->rows);
    free(principals->row_pointers);
    free(principals->devices);
    free(principals->device_pointers);
}
