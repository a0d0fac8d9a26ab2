#include "server/front/status.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/wire/frame.h"
#include "proto/wire/tensord.pb-c.h"
#include "server/front/config.h"
#include "server/front/front.h"
#include "server/front/status_fit.h"
#include "server/front/worker_slot.h"
#include "server/process/packet.h"

/* ---- named tensors ---- */

/* One device's message parts, which must live as long as the message. */
struct status_names {
    Tensord__NameOwner owners[STATS_OWNERS_MAX], *pointers[STATS_OWNERS_MAX];
};

static void status_fill_names(const struct worker_slot *slot, struct status_names *names,
                              Tensord__DeviceStatus *status) {
    const struct stats_names *from = &slot->snapshot.device.names;
    uint64_t now = uv_hrtime();
    status->names = from->count;
    status->names_bytes = from->bytes;
    status->names_fault = (char *)from->fault;
    status->names_unsaved = from->unsaved;
    if (from->unsaved_since_ns && now > from->unsaved_since_ns)
        status->names_unsaved_s = (double)(now - from->unsaved_since_ns) / 1e9;
    status->names_failing = from->failing;
    status->names_save_fault = (char *)from->save_fault;
    status->name_owners = names->pointers;
    for (unsigned i = 0; i < from->n_owners && i < STATS_OWNERS_MAX; i++) {
        Tensord__NameOwner *owner = names->pointers[i] = &names->owners[i];
        tensord__name_owner__init(owner);
        owner->principal = (char *)from->owners[i].principal;
        owner->names = from->owners[i].count;
        owner->bytes = from->owners[i].bytes;
        owner->unsaved = from->owners[i].unsaved;
        status->n_name_owners++;
    }
}

/* ---- limits ---- */

struct status_limits {
    Tensord__LimitCount counts[REFUSAL_COUNT], *pointers[REFUSAL_COUNT];
    size_t n;
};

static void status_fill_limits(struct status_limits *limits, const uint64_t counts[REFUSAL_COUNT]) {
    limits->n = 0;
    for (unsigned i = 0; i < REFUSAL_COUNT; i++) {
        if (!counts[i])
            continue;
        Tensord__LimitCount *count = &limits->counts[limits->n];
        tensord__limit_count__init(count);
        count->key = (char *)refusal_key(i);
        count->count = counts[i];
        count->held = i > REFUSAL_LAST_HARD;
        limits->pointers[limits->n++] = count;
    }
}

/* ---- devices and sessions ---- */

static double status_seconds(uint64_t now_ns, uint64_t then_ns) {
    return now_ns > then_ns ? (double)(now_ns - then_ns) / 1e9 : 0;
}

/* Counts by code, as a message has them. */
struct status_counts {
    Tensord__FailureCount rows[STATUS_COUNT], *pointers[STATUS_COUNT];
};

static size_t status_fill_counts(const uint64_t counts[STATUS_COUNT], struct status_counts *to) {
    size_t n = 0;
    for (unsigned code = 1; code < STATUS_COUNT; code++) {
        if (!counts[code])
            continue;
        tensord__failure_count__init(&to->rows[n]);
        to->rows[n].code = code;
        to->rows[n].count = counts[code];
        to->pointers[n] = &to->rows[n];
        n++;
    }
    return n;
}

/* ---- devices ---- */

static void status_fill_device(const struct worker_slot *slot, Tensord__Device *device) {
    const struct device_info *info = &slot->snapshot.device.engine.device;
    tensord__device__init(device);
    device->name = (char *)slot->device.name;
    device->kind = (char *)slot->device.kind;
    device->target = slot->target;
    device->state = (char *)worker_state_name(slot->state);
    device->model = (char *)info->model;
    device->capability = (char *)info->capability;
    device->processors = info->processors;
    device->memory_total = info->memory_total;
    device->uuid = (char *)info->uuid;
    device->bus = (char *)info->bus;
    device->driver = (char *)info->driver;
    device->runtime = (char *)info->runtime;
    device->driver_version = (char *)slot->snapshot.device.readings.driver;
    device->memory_device = info->memory_device;
}

/* The message and all that it points to. */
struct status_readings {
    Tensord__DeviceReadings message;
    Tensord__Reading values[READING_COUNT];
};

static Tensord__Reading *status_fill_reading(const struct device_readings *from, enum reading reading,
                                             struct status_readings *to) {
    if (!device_readings_has(from, reading))
        return NULL;
    tensord__reading__init(&to->values[reading]);
    to->values[reading].value = from->values[reading];
    return &to->values[reading];
}

/* NULL: the device has no readings. */
static Tensord__DeviceReadings *status_fill_readings(const struct worker_slot *slot, uint64_t now,
                                                     struct status_readings *to) {
    const struct device_readings *from = &slot->snapshot.device.readings;
    Tensord__DeviceReadings *message = &to->message;
    if (!from->at_ns && !slot->xid)
        return NULL;
    tensord__device_readings__init(message);
    message->age_s = status_seconds(now, from->at_ns ? from->at_ns : slot->xid_ns);
#define X(NAME, field) message->field = status_fill_reading(from, READING_##NAME, to);
    READING_TABLE(X)
#undef X
    if (slot->xid) { /* it may be from an earlier process */
        message->xid = &to->values[READING_XID];
        tensord__reading__init(message->xid);
        message->xid->value = slot->xid;
        message->xid_age_s = status_seconds(now, slot->xid_ns);
    }
    return message;
}

struct status_libraries {
    Tensord__DeviceLibrary rows[DEVICE_LIBRARIES_MAX], *pointers[DEVICE_LIBRARIES_MAX];
};

static size_t status_fill_libraries(const struct device_info *info, struct status_libraries *to) {
    size_t n = 0;
    while (n < DEVICE_LIBRARIES_MAX && info->libraries[n].state != DEVICE_LIBRARY_NONE) {
        const struct device_library *from = &info->libraries[n];
        Tensord__DeviceLibrary *row = &to->rows[n];
        tensord__device_library__init(row);
        row->name = (char *)from->name;
        row->version = (char *)from->version;
        row->state = (char *)device_library_state_name(from->state);
        row->launches = from->launches;
        row->refused = from->refused;
        row->reason = (char *)from->reason;
        to->pointers[n++] = row;
    }
    return n;
}

/* Memory that is not the pool's. */
static void status_fill_memory(const struct engine_stats *stats, Tensord__DeviceStatus *status) {
    status->stalled_s = (double)stats->stalled_ns / 1e9;
    status->workspaces = stats->workspaces;
    status->workspaces_limit = stats->workspaces_limit;
    status->staging_total = stats->staging_total;
    status->staging_reserved = stats->staging_reserved;
    status->staging_held = stats->staging_held;
    status->staging_waiting = stats->staging_waiting;
    status->reservations = stats->reservations;
    status->releases = stats->releases;
    status->pinnings = stats->pinnings;
    status->unpinnings = stats->unpinnings;
    status->workspace_growths = stats->workspace_growths;
}

/* Times and counts that a device's message points to. */
struct status_times {
    Tensord__Histogram queue, run, fetch;
    struct status_counts failures, rejections;
    struct status_libraries libraries;
};

static Tensord__Histogram *status_fill_histogram(const struct histogram *from, Tensord__Histogram *to) {
    tensord__histogram__init(to);
    to->counts = (uint64_t *)from->counts;
    to->n_counts = HISTOGRAM_BUCKETS;
    to->sum_s = (double)from->sum_ns / 1e9;
    to->samples = from->samples;
    return to;
}

static void status_fill_times(const struct worker_slot *slot, struct status_times *times,
                              Tensord__DeviceStatus *status) {
    const struct stats_device *stats = &slot->snapshot.device;
    status->queue_time = status_fill_histogram(&stats->engine.queue_time, &times->queue);
    status->run_time = status_fill_histogram(&stats->engine.run_time, &times->run);
    status->fetch_time = status_fill_histogram(&stats->fetch_time, &times->fetch);
    status->n_failures = status_fill_counts(stats->engine.failures, &times->failures);
    status->failures = times->failures.pointers;
    status->n_rejections = status_fill_counts(stats->rejections, &times->rejections);
    status->rejections = times->rejections.pointers;
    status->faults = slot->n_failures;
    status->n_libraries = status_fill_libraries(&stats->engine.device, &times->libraries);
    status->libraries = times->libraries.pointers;
    status->connections = worker_slot_connections(slot);
}

static void status_fill_device_status(const struct worker_slot *slot, uint64_t now, Tensord__Device *device,
                                      struct status_readings *readings, Tensord__DeviceStatus *status) {
    const struct stats_device *stats = &slot->snapshot.device;
    tensord__device_status__init(status);
    status_fill_device(slot, device);
    status->device = device;
    status->readings = status_fill_readings(slot, now, readings);
    status->worker_pid = slot->process ? (uint32_t)slot->process->process.pid : 0;
    status->epoch = slot->epoch;
    status->restarts = slot->restarts;
    status->last_fault = (char *)slot->last_fault;
    status->last_fault_age_s = slot->last_fault[0] ? status_seconds(now, slot->last_fault_ns) : 0;
    status->memory_total = stats->engine.memory_total ? stats->engine.memory_total : stats->engine.device.memory_total;
    status->memory_reserved = stats->engine.memory_reserved;
    status->memory_live = stats->engine.memory_live;
    status->memory_peak = stats->engine.memory_peak;
    status->memory_largest_free = stats->engine.memory_largest_free;
    status_fill_memory(&stats->engine, status);
    status->queue_depth = stats->engine.queue_depth;
    status->ops_total = stats->engine.ops_total;
    status->programs = stats->engine.programs;
    status->program_runs = stats->engine.program_runs;
    status->products_library = stats->engine.device.products_library;
    status->products_slow = stats->engine.device.products_slow;
    status->bytes_in = stats->bytes_in;
    status->bytes_out = stats->bytes_out;
    status->ops_per_s = stats->ops_per_s;
    status->busy_s = (double)stats->engine.busy_ns / 1e9;
    status->busy_ratio = stats->busy_ratio;
    status->worker_memory = stats->worker_memory;
    status->worker_cpu_s = (double)stats->worker_cpu_ns / 1e9;
    status->bytes_in_per_s = stats->bytes_in_per_s;
    status->bytes_out_per_s = stats->bytes_out_per_s;
    status->data_age_ms = status_seconds(now, slot->snapshot.written_ns) * 1e3;
}

int status_append_devices(struct front *front, uint64_t sequence, uint8_t **bytes, size_t *size) {
    const struct supervisor *supervisor = &front->supervisor;
    Tensord__Device devices[CONFIG_DEVICES_MAX], *pointers[CONFIG_DEVICES_MAX];
    Tensord__DeviceList list = TENSORD__DEVICE_LIST__INIT;
    for (unsigned i = 0; i < supervisor->n_slots; i++) {
        worker_slot_refresh(&supervisor->slots[i]);
        status_fill_device(&supervisor->slots[i], &devices[i]);
        pointers[i] = &devices[i];
    }
    list.devices = pointers;
    list.n_devices = supervisor->n_slots;
    return packet_append(bytes, size, FRAME_DEVICE_LIST, sequence, &list.base);
}

/* ---- sessions ---- */

/* One session's message and all that it points to. */
struct status_session {
    Tensord__SessionStatus status;
    Tensord__TlsStatus tls;
    struct status_counts failures;
};

static void status_fill_session(const struct worker_slot *slot, const struct stats_session *session, uint64_t now,
                                struct status_session *row) {
    Tensord__SessionStatus *status = &row->status;
    tensord__session_status__init(status);
    status->id = session->id;
    status->principal = (char *)session->principal.name;
    status->role = (char *)role_name(session->principal.role);
    status->credential = (char *)session->principal.credential;
    status->peer = (char *)session->peer;
    status->client = (char *)session->client;
    status->device = (char *)slot->device.name;
    status->age_s = status_seconds(now, session->started_ns);
    status->tensors = session->tensors;
    status->live = session->live;
    status->peak = session->peak;
    status->ops_queued = session->ops_queued;
    status->ops_done = session->ops_done;
    status->ops_per_s = session->ops_per_s;
    status->device_s = (double)session->device_ns / 1e9;
    status->device_ratio = session->device_ratio;
    status->pid = session->remote.pid;
    status->pid_claimed = session->remote.claimed;
    status->host = (char *)session->remote.host;
    status->last_failure = (char *)session->last_failure;
    status->label = (char *)session->label;
    status->allow_tf32 = session->allow_tf32;
    status->programs = session->programs;
    if (session->tls_cipher[0]) {
        tensord__tls_status__init(&row->tls);
        row->tls.cipher = (char *)session->tls_cipher;
        row->tls.resumed = session->tls_resumed;
        status->tls = &row->tls;
    }
    status->detached = session->lease_until_ns != 0;
    status->lease_left_s = status_seconds(session->lease_until_ns, now);
    status->reconnects = session->reconnects;
    status->live_limit = session->live_limit;
    status->host_bytes = session->host;
    status->host_bytes_limit = session->host_limit;
    status->tensors_limit = session->tensors_limit;
    status->ops_limit = session->ops_limit;
    status->n_failures = status_fill_counts(session->failures, &row->failures);
    status->failures = row->failures.pointers;
}

/* ---- principals: who is connected, and what each has on which device ---- */

/* All that the rows point to. */
struct status_principals {
    Tensord__PrincipalStatus *rows, **row_pointers;
    size_t n_rows;
    Tensord__PrincipalDevice *devices, **device_pointers;
};

/* A fact about a principal: it is connected (`entry`), or it has something on a device (`slot` and `stats`). */
struct status_fact {
    const char *name;
    const struct roster_entry *entry;
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
                                  const struct limits *limits, Tensord__PrincipalStatus *row) {
    tensord__principal_status__init(row);
    row->name = (char *)first->name;
    row->connections = first->entry ? first->entry->connections : 0;
    row->connections_limit = (uint32_t)limits_of_places(limits->principal_connections, front->roster.places);
    row->sessions_limit = (uint32_t)limits_of_places(limits->principal_sessions, front->roster.session_places);
    row->weight = (uint32_t)limits->weight;
    row->rate_limit = limits->principal_rate;
    row->idle_timeout_s = (double)limits->idle_timeout / 1e3;
    row->operation_time_s = (double)limits->operation_time / 1e3;
    row->session_lease_s = (double)limits->session_lease / 1e3;
}

static void status_fill_principal_device(const struct status_fact *fact, const struct limits *limits,
                                         Tensord__PrincipalDevice *device) {
    const struct stats_principal *stats = fact->stats;
    tensord__principal_device__init(device);
    device->device = (char *)fact->slot->device.name;
    device->connections = stats->connections;
    device->sessions = stats->sessions;
    device->live = stats->live;
    device->live_limit = limits->principal_bytes;
    device->peak = stats->peak;
    device->ops_queued = stats->ops_queued;
    device->ops_limit = limits->principal_operations;
    device->staging = stats->staging;
    device->staging_limit = limits->principal_staging;
    device->host_bytes = stats->host;
    device->host_bytes_limit = limits->principal_host_bytes;
    device->bytes = stats->bytes;
    device->bytes_per_s = stats->bytes_per_s;
    device->ops_total = stats->ops_done;
    device->ops_per_s = stats->ops_per_s;
    device->failures = stats->failures;
    device->device_s = (double)stats->device_ns / 1e9;
    device->device_ratio = stats->device_ratio;
}

/* Makes a row from the facts of each name, which stand side by side. */
static void status_group_facts(struct status_principals *principals, const struct front *front,
                               const struct status_fact *facts, size_t n) {
    size_t next = 0;
    struct limits limits; /* of the present name */
    for (size_t i = 0; i < n; i++) {
        Tensord__PrincipalStatus *row = &principals->rows[principals->n_rows];
        if (i > 0 && !strcmp(facts[i].name, facts[i - 1].name)) {
            row--;
        } else {
            login_limits(&front->login, facts[i].name, &limits);
            status_fill_principal(front, &facts[i], &limits, row);
            row->devices = &principals->device_pointers[next];
            principals->row_pointers[principals->n_rows++] = row;
        }
        if (!facts[i].slot)
            continue;
        status_fill_principal_device(&facts[i], &limits, &principals->devices[next]);
        principals->device_pointers[next] = &principals->devices[next];
        row->sessions += principals->devices[next++].sessions;
        row->n_devices++;
    }
}

/* STATUS_NO_HOST_MEMORY: call status_principals_finish() all the same. */
static int status_fill_principals(struct status_principals *principals, const struct front *front) {
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

static void status_principals_finish(struct status_principals *principals) {
    free(principals->rows);
    free(principals->row_pointers);
    free(principals->devices);
    free(principals->device_pointers);
}

/* ---- the whole ---- */

static void status_fill_logins(const struct login_counts *counts, Tensord__LoginStatus *logins) {
    tensord__login_status__init(logins);
    logins->granted = counts->granted;
    logins->no_token = counts->no_token;
    logins->malformed = counts->malformed;
    logins->unknown = counts->unknown;
    logins->wrong = counts->wrong;
    logins->put_off = counts->put_off;
    logins->turned_away = counts->turned_away;
}

static size_t status_count_sessions(const struct supervisor *supervisor) {
    size_t count = 0;
    for (unsigned i = 0; i < supervisor->n_slots; i++)
        count += supervisor->slots[i].snapshot.n_sessions;
    return count;
}

static bool status_may_see(const struct principal *viewer, const struct principal *owner) {
    return viewer && (viewer->role == ROLE_ADMIN || !strcmp(viewer->name, owner->name));
}

static void status_fill_sessions(const struct supervisor *supervisor, const struct principal *viewer, uint64_t now,
                                 struct status_session *rows, Tensord__SessionStatus **pointers) {
    size_t next = 0;
    for (unsigned i = 0; i < supervisor->n_slots; i++) {
        const struct worker_slot *slot = &supervisor->slots[i];
        for (unsigned s = 0; s < slot->snapshot.n_sessions; s++, next++) {
            status_fill_session(slot, &slot->snapshot.sessions[s], now, &rows[next]);
            pointers[next] = &rows[next].status;
            if (!status_may_see(viewer, &slot->snapshot.sessions[s].principal))
                rows[next].status.label = rows[next].status.last_failure = (char *)"";
        }
    }
}

/* ---- recorded programs ---- */

static void status_fill_program(const struct worker_slot *slot, const struct stats_program *from, bool visible,
                                Tensord__ProgramStatus *program) {
    const struct recorded_figures *figures = &from->figures;
    tensord__program_status__init(program);
    program->session = from->session;
    program->principal = (char *)from->principal.name;
    program->device = (char *)slot->device.name;
    program->id = figures->id;
    program->loops = figures->loops;
    program->label = visible ? (char *)figures->label : (char *)"";
    program->cause = visible ? (char *)figures->cause : (char *)"";
    program->operations = figures->operations;
    program->operations_kept = figures->kept;
    program->planned = figures->planned;
    program->launches = figures->launches;
    program->launches_once = figures->launches_once;
    program->fused = figures->groups;
    program->fused_launches = figures->grouped;
    program->arena = figures->arena;
    program->arena_least = figures->arena_least;
    program->runs = figures->runs;
    program->runs_queued = figures->queued;
    program->iterations = figures->iterations;
    program->runs_timed = figures->timed;
    program->mean_run_s = (double)figures->run_ns / 1e9;
    program->last_run_s = (double)figures->last_ns / 1e9;
    program->graphs = figures->graphs;
    program->graph_launches = figures->graph_steps;
    program->graph_reason = visible ? (char *)figures->graph_reason : (char *)"";
    program->fused_waiting = figures->groups_waiting;
    program->fused_reason = visible ? (char *)figures->fused_reason : (char *)"";
}

enum { STATUS_PROGRAMS_MAX = 256 }; /* in a message, which may have 1 MiB in all */

/* All that the rows point to. */
struct status_programs {
    Tensord__ProgramStatus *rows, **pointers;
    size_t n;
};

/* How many programs of each device are shown: all, if there are no more than a message should have. Else devices with few programs show all of
 * them, and the others equally many. */
static size_t status_share_programs(const struct supervisor *supervisor, unsigned shown[CONFIG_DEVICES_MAX]) {
    size_t total = 0, before;
    memset(shown, 0, CONFIG_DEVICES_MAX * sizeof *shown);
    do {
        before = total;
        for (unsigned i = 0; i < supervisor->n_slots && total < STATUS_PROGRAMS_MAX; i++) {
            bool more = shown[i] < supervisor->slots[i].snapshot.n_programs;
            shown[i] += more;
            total += more;
        }
    } while (total > before);
    return total;
}

/* STATUS_NO_HOST_MEMORY: call status_programs_finish() all the same. */
static int status_fill_programs(const struct supervisor *supervisor, const struct principal *viewer,
                                struct status_programs *programs) {
    unsigned shown[CONFIG_DEVICES_MAX];
    size_t count = status_share_programs(supervisor, shown);
    *programs = (struct status_programs){.rows = calloc(count + 1, sizeof *programs->rows),
                                         .pointers = calloc(count + 1, sizeof(Tensord__ProgramStatus *))};
    if (!programs->rows || !programs->pointers)
        return STATUS_NO_HOST_MEMORY;
    for (unsigned i = 0; i < supervisor->n_slots; i++) {
        const struct worker_slot *slot = &supervisor->slots[i];
        for (unsigned p = 0; p < shown[i]; p++) {
            const struct stats_program *from = &slot->snapshot.programs[p];
            Tensord__ProgramStatus *row = programs->pointers[programs->n] = &programs->rows[programs->n];
            status_fill_program(slot, from, status_may_see(viewer, &from->principal), row);
            programs->n++;
        }
    }
    return STATUS_OK;
}

static void status_programs_finish(struct status_programs *programs) {
    free(programs->rows);
    free(programs->pointers);
}

int status_use(struct front *front, const struct principal *viewer,
               int (*use)(void *owner, const Tensord__Status *status), void *owner) {
    const struct supervisor *supervisor = &front->supervisor;
    Tensord__Device devices[CONFIG_DEVICES_MAX];
    Tensord__DeviceStatus states[CONFIG_DEVICES_MAX], *pointers[CONFIG_DEVICES_MAX];
    struct status_readings readings[CONFIG_DEVICES_MAX];
    static struct status_limits limits[CONFIG_DEVICES_MAX + 1];
    struct status_principals principals;
    struct status_programs programs;
    static struct status_times times[CONFIG_DEVICES_MAX]; /* too large for the stack; front thread only */
    struct status_counts rejections;
    Tensord__Status status = TENSORD__STATUS__INIT;
    Tensord__LoginStatus logins;
    supervisor_refresh(&front->supervisor);
    uint64_t now = uv_hrtime();
    for (unsigned i = 0; i < supervisor->n_slots; i++) {
        status_fill_device_status(&supervisor->slots[i], now, &devices[i], &readings[i], &states[i]);
        status_fill_limits(&limits[i], supervisor->slots[i].snapshot.device.refusals);
        states[i].limits_met = limits[i].pointers;
        states[i].n_limits_met = limits[i].n;
        status_fill_times(&supervisor->slots[i], &times[i], &states[i]);
        pointers[i] = &states[i];
    }
    status_fill_limits(&limits[supervisor->n_slots], front->refusals);
    size_t sessions = status_count_sessions(supervisor);
    struct status_session *rows = calloc(sessions + 1, sizeof *rows);
    Tensord__SessionStatus **row_pointers = calloc(sessions + 1, sizeof(Tensord__SessionStatus *));
    struct status_names *names = calloc(supervisor->n_slots, sizeof *names);
    int error = status_fill_principals(&principals, front);
    if (status_fill_programs(supervisor, viewer, &programs) || !rows || !row_pointers || !names)
        error = STATUS_NO_HOST_MEMORY;
    if (!error) {
        for (unsigned i = 0; i < supervisor->n_slots; i++)
            status_fill_names(&supervisor->slots[i], &names[i], &states[i]);
        status_fill_sessions(supervisor, viewer, now, rows, row_pointers);
        status.version = TENSORD_VERSION;
        status.uptime_s = status_seconds(now, front->started_ns);
        status.draining = front->draining;
        status.devices = pointers;
        status.n_devices = supervisor->n_slots;
        status.sessions = row_pointers;
        status.n_sessions = sessions;
        status.principals = principals.row_pointers;
        status.n_principals = principals.n_rows;
        status.programs = programs.pointers;
        status.n_programs = programs.n;
        status.limits_met = limits[supervisor->n_slots].pointers;
        status.n_limits_met = limits[supervisor->n_slots].n;
        status_fill_logins(&front->login.counts, &logins);
        status.logins = front->login.users ? &logins : NULL;
        status.connections = arrival_count(front) + front->controls.count + supervisor_connections(&front->supervisor);
        status.connections_accepted = front->accepted;
        status.n_rejections = status_fill_counts(front->rejections, &rejections);
        status.rejections = rejections.pointers;
        error = use(owner, &status);
    }
    free(names);
    status_programs_finish(&programs);
    status_principals_finish(&principals);
    free(row_pointers);
    free(rows);
    return error;
}

struct status_packet {
    uint64_t sequence;
    const char *of; /* a principal; "": all */
    uint8_t **bytes;
    size_t *size;
};

static int status_pack(void *owner, const Tensord__Status *status) {
    const struct status_packet *packet = owner;
    Tensord__Status shown = *status;
    if (*packet->of)
        status_keep(&shown, packet->of);
    status_fit(&shown, FRAME_MESSAGE_MAX);
    return packet_append(packet->bytes, packet->size, FRAME_STATUS, packet->sequence, &shown.base);
}

int status_append(struct front *front, uint64_t sequence, const struct principal *viewer, const char *of,
                  uint8_t **bytes, size_t *size) {
    struct status_packet packet = {sequence, of, bytes, size};
    return status_use(front, viewer, status_pack, &packet);
}

/* ---- the configuration ---- */

/* The message and the rows that it points to. */
struct config_message {
    struct config_row rows[CONFIG_ROWS_MAX];
    Tensord__ConfigRow messages[CONFIG_ROWS_MAX], *pointers[CONFIG_ROWS_MAX];
};

int status_append_config(const struct config *config, uint64_t sequence, uint8_t **bytes, size_t *size) {
    Tensord__Config reply = TENSORD__CONFIG__INIT;
    struct config_message *message = malloc(sizeof *message);
    if (!message)
        return STATUS_NO_HOST_MEMORY;
    for (unsigned i = 0; config_row(config, i, &message->rows[i]); i++) {
        Tensord__ConfigRow *row = message->pointers[i] = &message->messages[i];
        tensord__config_row__init(row);
        row->key = (char *)(uintptr_t)message->rows[i].key;
        row->value = message->rows[i].value;
        row->origin = (char *)(uintptr_t)config_origin_text(config, message->rows[i].origin);
        row->reloadable = message->rows[i].reloadable;
        reply.n_rows = i + 1;
    }
    reply.rows = message->pointers;
    int error = packet_append(bytes, size, FRAME_CONFIG, sequence, &reply.base);
    free(message);
    return error;
}
