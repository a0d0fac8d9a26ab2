#include "proto/files/status_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/files/json.h"
#include "proto/ops/status.h"

/* ---- computed figures ---- */

enum { FIGURES_BEYOND = 2 /* samples */ };

uint64_t figures_count(const Tensord__Histogram *histogram) {
    uint64_t count = 0;
    for (size_t i = 0; histogram && i < histogram->n_counts; i++)
        count += histogram->counts[i];
    return count;
}

double figures_quantile(const Tensord__Histogram *histogram, double part) {
    uint64_t count = figures_count(histogram), below = 0;
    if (!count || (double)histogram->samples * (1 - part) < FIGURES_BEYOND)
        return NAN;
    for (size_t i = 0; i + 1 < histogram->n_counts; i++) {
        below += histogram->counts[i];
        if ((double)below >= part * (double)count)
            return ldexp(1e-6, (int)i);
    }
    return INFINITY;
}

void figures_program(const char *client, char *program, unsigned size) {
    const char *library = strstr(client, " libtensord/");
    size_t length = library ? (size_t)(library - client) : strlen(client);
    snprintf(program, size, "%.*s", (int)length, client);
}

/* ---- devices, principals and sessions as JSON ---- */

static void status_json_memory(struct json *json, const Tensord__DeviceStatus *device) {
    json_open(json, "memory", '{');
    json_integer(json, "total", device->memory_total);
    json_integer(json, "reserved", device->memory_reserved);
    json_integer(json, "live", device->memory_live);
    json_integer(json, "peak", device->memory_peak);
    json_integer(json, "largest_free", device->memory_largest_free);
    json_integer(json, "workspaces", device->workspaces);
    json_integer(json, "workspaces_limit", device->workspaces_limit);
    json_close(json, '}');
    json_open(json, "staging", '{');
    json_integer(json, "total", device->staging_total);
    json_integer(json, "reserved", device->staging_reserved);
    json_integer(json, "held", device->staging_held);
    json_integer(json, "waiting", device->staging_waiting);
    json_close(json, '}');
    json_open(json, "allocations", '{');
    json_integer(json, "reservations", device->reservations);
    json_integer(json, "releases", device->releases);
    json_integer(json, "pinnings", device->pinnings);
    json_integer(json, "unpinnings", device->unpinnings);
    json_integer(json, "workspace_growths", device->workspace_growths);
    json_close(json, '}');
}

/* Writes null if there is no reading. */
static void json_reading(struct json *json, const char *key, const Tensord__Reading *reading, double unit) {
    if (!reading)
        json_real(json, key, NAN);
    else if (unit == 1)
        json_integer(json, key, reading->value);
    else
        json_real(json, key, (double)reading->value * unit);
}

static void json_reading_bool(struct json *json, const char *key, const Tensord__Reading *reading) {
    if (reading)
        json_bool(json, key, reading->value != 0);
    else
        json_real(json, key, NAN);
}

static void status_json_readings(struct json *json, const Tensord__DeviceReadings *from) {
    static const Tensord__DeviceReadings none = TENSORD__DEVICE_READINGS__INIT;
    const Tensord__DeviceReadings *readings = from ? from : &none;
    const Tensord__Reading *xid = readings->xid && readings->xid->value ? readings->xid : NULL;

    json_open(json, "readings", '{');
    json_real(json, "age_s", from ? readings->age_s : NAN);
    json_reading(json, "utilisation_gpu_percent", readings->utilisation_gpu, 1);
    json_reading(json, "utilisation_memory_percent", readings->utilisation_memory, 1);
    json_reading(json, "temperature_c", readings->temperature, 1);
    json_reading(json, "power_draw_w", readings->power_draw, 1e-3);
    json_reading(json, "power_limit_w", readings->power_limit, 1e-3);
    json_reading(json, "clock_sm_mhz", readings->clock_sm, 1);
    json_reading(json, "clock_memory_mhz", readings->clock_memory, 1);
    json_reading_bool(json, "ecc_enabled", readings->ecc_enabled);
    json_reading(json, "ecc_corrected", readings->ecc_corrected, 1);
    json_reading(json, "ecc_uncorrected", readings->ecc_uncorrected, 1);
    json_reading(json, "memory_total", readings->memory_total, 1);
    json_reading(json, "memory_free", readings->memory_free, 1);
    json_reading(json, "memory_others", readings->memory_others, 1);
    json_bool(json, "xid_watched", readings->xid != NULL);
    json_reading(json, "xid", xid, 1);
    json_real(json, "xid_age_s", xid ? readings->xid_age_s : NAN);
    json_close(json, '}');
}

/* Writes null if there is no limit. */
static void json_limit(struct json *json, const char *key, uint64_t limit) {
    if (limit)
        json_integer(json, key, limit);
    else
        json_real(json, key, NAN);
}

static void status_json_limits_met(struct json *json, Tensord__LimitCount *const *limits, size_t n) {
    json_open(json, "limits_met", '{');
    for (size_t i = 0; i < n; ++i)
        json_integer(json, limits[i]->key, limits[i]->count);
    json_close(json, '}');
}

static void status_json_principal_device(struct json *json, const Tensord__PrincipalDevice *device) {
    json_open(json, NULL, '{');
    json_text(json, "device", device->device);
    json_integer(json, "connections", device->connections);
    json_integer(json, "sessions", device->sessions);
    json_integer(json, "live", device->live);
    json_limit(json, "live_limit", device->live_limit);
    json_integer(json, "peak", device->peak);
    json_integer(json, "ops_queued", device->ops_queued);
    json_limit(json, "ops_limit", device->ops_limit);
    json_integer(json, "staging", device->staging);
    json_limit(json, "staging_limit", device->staging_limit);
    json_integer(json, "host_bytes", device->host_bytes);
    json_limit(json, "host_bytes_limit", device->host_bytes_limit);
    json_integer(json, "bytes", device->bytes);
    json_real(json, "bytes_per_s", device->bytes_per_s);
    json_integer(json, "ops_total", device->ops_total);
    json_real(json, "ops_per_s", device->ops_per_s);
    json_integer(json, "failures", device->failures);
    json_real(json, "device_s", device->device_s);
    json_real(json, "device_percent", device->device_ratio * 100);
    json_close(json, '}');
}

static void status_json_principal(struct json *json, const Tensord__PrincipalStatus *principal) {
    json_open(json, NULL, '{');
    json_text(json, "name", principal->name);
    json_integer(json, "connections", principal->connections);
    json_limit(json, "connections_limit", principal->connections_limit);
    json_integer(json, "sessions", principal->sessions);
    json_limit(json, "sessions_limit", principal->sessions_limit);
    json_integer(json, "weight", principal->weight);
    json_limit(json, "rate_limit", principal->rate_limit);
    json_real(json, "idle_timeout_s", principal->idle_timeout_s > 0 ? principal->idle_timeout_s : NAN);
    json_real(json, "operation_time_s", principal->operation_time_s > 0 ? principal->operation_time_s : NAN);
    json_real(json, "session_lease_s", principal->session_lease_s > 0 ? principal->session_lease_s : NAN);
    json_open(json, "devices", '[');
    for (size_t i = 0; i < principal->n_devices; ++i)
        status_json_principal_device(json, principal->devices[i]);
    json_close(json, ']');
    json_close(json, '}');
}

static void status_json_counts(struct json *json, const char *key, Tensord__FailureCount *const *counts, size_t n) {
    char number[16]; /* for a code that only a newer daemon knows */

    json_open(json, key, '{');
    for (size_t i = 0; i < n; ++i) {
        snprintf(number, sizeof number, "%" PRIu32, counts[i]->code);
        json_integer(json, counts[i]->code < STATUS_COUNT ? status_name((int)counts[i]->code) : number,
                     counts[i]->count);
    }
    json_close(json, '}');
}

static void status_json_libraries(struct json *json, Tensord__DeviceLibrary *const *libraries, size_t n) {
    json_open(json, "libraries", '[');
    for (size_t i = 0; i < n; ++i) {
        json_open(json, NULL, '{');
        json_text(json, "name", libraries[i]->name);
        json_text_or_null(json, "version", libraries[i]->version);
        json_text(json, "state", libraries[i]->state);
        json_integer(json, "launches", libraries[i]->launches);
        json_integer(json, "refused", libraries[i]->refused);
        json_text_or_null(json, "reason", libraries[i]->reason);
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void status_json_histogram(struct json *json, const char *key, const Tensord__Histogram *from) {
    static const Tensord__Histogram none = TENSORD__HISTOGRAM__INIT;
    const Tensord__Histogram *histogram = from ? from : &none;
    uint64_t count = 0;

    for (size_t i = 0; i < histogram->n_counts; ++i)
        count += histogram->counts[i];
    json_open(json, key, '{');
    json_integer(json, "count", count);
    json_integer(json, "samples", histogram->samples);
    json_real(json, "sum_s", histogram->sum_s);
    json_real(json, "p50_s", figures_quantile(histogram, 0.5));
    json_real(json, "p99_s", figures_quantile(histogram, 0.99));
    json_close(json, '}');
}

static void status_json_names(struct json *json, const Tensord__DeviceStatus *device) {
    json_open(json, "names", '{');
    json_integer(json, "count", device->names);
    json_integer(json, "bytes", device->names_bytes);
    json_text_or_null(json, "fault", device->names_fault);
    json_integer(json, "unsaved", device->names_unsaved);
    json_real(json, "unsaved_s", device->names_unsaved_s);
    json_text_or_null(json, "save_fault", device->names_save_fault);
    json_open(json, "owners", '[');
    for (size_t i = 0; i < device->n_name_owners; ++i) {
        json_open(json, NULL, '{');
        json_text(json, "principal", device->name_owners[i]->principal);
        json_integer(json, "count", device->name_owners[i]->names);
        json_integer(json, "bytes", device->name_owners[i]->bytes);
        json_integer(json, "unsaved", device->name_owners[i]->unsaved);
        json_close(json, '}');
    }
    json_close(json, ']');
    json_close(json, '}');
}

static void status_json_device(struct json *json, const Tensord__DeviceStatus *device) {
    static const Tensord__Device unknown = TENSORD__DEVICE__INIT;
    const Tensord__Device *about = device->device ? device->device : &unknown;

    json_open(json, NULL, '{');
    json_text(json, "name", about->name);
    json_text(json, "kind", about->kind);
    json_text(json, "state", about->state);
    json_text(json, "model", about->model);
    json_text(json, "capability", about->capability);
    json_integer(json, "processors", about->processors);
    json_text_or_null(json, "uuid", about->uuid);
    json_text_or_null(json, "bus", about->bus);
    json_text_or_null(json, "driver", about->driver);
    json_text_or_null(json, "runtime", about->runtime);
    json_text_or_null(json, "driver_version", about->driver_version);
    if (about->memory_device)
        json_integer(json, "memory_device", about->memory_device);
    else
        json_real(json, "memory_device", NAN);
    json_integer(json, "worker_pid", device->worker_pid);
    json_integer(json, "epoch", device->epoch);
    json_integer(json, "restarts", device->restarts);
    json_text_or_null(json, "last_fault", device->last_fault);
    json_real(json, "last_fault_age_s", *device->last_fault ? device->last_fault_age_s : NAN);
    status_json_memory(json, device);
    status_json_names(json, device);
    status_json_readings(json, device->readings);
    json_integer(json, "queue_depth", device->queue_depth);
    json_real(json, "stalled_s", device->stalled_s);
    json_integer(json, "ops_total", device->ops_total);
    json_integer(json, "programs", device->programs);
    json_integer(json, "program_runs", device->program_runs);
    json_integer(json, "products_library", device->products_library);
    json_integer(json, "products_slow", device->products_slow);
    status_json_libraries(json, device->libraries, device->n_libraries);
    json_real(json, "ops_per_s", device->ops_per_s);
    json_real(json, "busy_s", device->busy_s);
    json_real(json, "busy_percent", device->busy_ratio * 100);
    json_integer(json, "worker_memory", device->worker_memory);
    json_real(json, "worker_cpu_s", device->worker_cpu_s);
    json_integer(json, "bytes_in", device->bytes_in);
    json_integer(json, "bytes_out", device->bytes_out);
    json_real(json, "bytes_in_per_s", device->bytes_in_per_s);
    json_real(json, "bytes_out_per_s", device->bytes_out_per_s);
    json_real(json, "data_age_ms", device->data_age_ms);
    status_json_limits_met(json, device->limits_met, device->n_limits_met);
    json_integer(json, "faults", device->faults);
    status_json_counts(json, "failures", device->failures, device->n_failures);
    json_integer(json, "connections", device->connections);
    status_json_counts(json, "rejections", device->rejections, device->n_rejections);
    status_json_histogram(json, "queue_time", device->queue_time);
    status_json_histogram(json, "run_time", device->run_time);
    status_json_histogram(json, "fetch_time", device->fetch_time);
    json_close(json, '}');
}

static void status_json_session(struct json *json, const Tensord__SessionStatus *session) {
    json_open(json, NULL, '{');
    json_integer(json, "id", session->id);
    json_text(json, "principal", session->principal);
    json_text(json, "peer", session->peer);
    json_text(json, "client", session->client);
    json_text(json, "device", session->device);
    json_real(json, "age_s", session->age_s);
    json_integer(json, "tensors", session->tensors);
    json_integer(json, "programs", session->programs);
    json_integer(json, "live", session->live);
    json_integer(json, "peak", session->peak);
    json_integer(json, "ops_queued", session->ops_queued);
    json_integer(json, "ops_done", session->ops_done);
    json_real(json, "ops_per_s", session->ops_per_s);
    json_real(json, "device_s", session->device_s);
    json_real(json, "device_percent", session->device_ratio * 100);
    json_limit(json, "pid", session->pid);
    json_bool(json, "pid_claimed", session->pid_claimed);
    json_text_or_null(json, "host", session->host);
    status_json_counts(json, "failures", session->failures, session->n_failures);
    json_text_or_null(json, "last_failure", session->last_failure);
    json_text_or_null(json, "label", session->label);
    json_bool(json, "allow_tf32", session->allow_tf32);
    json_bool(json, "detached", session->detached);
    json_real(json, "lease_left_s", session->detached ? session->lease_left_s : 0);
    json_integer(json, "reconnects", session->reconnects);
    json_limit(json, "live_limit", session->live_limit);
    json_limit(json, "tensors_limit", session->tensors_limit);
    json_limit(json, "ops_limit", session->ops_limit);
    json_integer(json, "host_bytes", session->host_bytes);
    json_limit(json, "host_bytes_limit", session->host_bytes_limit);
    json_text_or_null(json, "role", session->role);
    json_text_or_null(json, "credential", session->credential);
    json_text_or_null(json, "tls", session->tls ? session->tls->cipher : "");
    json_bool(json, "tls_resumed", session->tls && session->tls->resumed);
    json_close(json, '}');
}

/* What is known only once the program is planned, or a run was timed, is null before. */
static void status_json_program(struct json *json, const Tensord__ProgramStatus *program) {
    const struct {
        const char *key;
        uint64_t value;
    } planned[] = {
        {"launches", program->launches}, {"launches_once", program->launches_once},
        {"fused", program->fused},       {"fused_launches", program->fused_launches},
        {"arena", program->arena},       {"arena_least", program->arena_least},
    };
    json_open(json, NULL, '{');
    json_integer(json, "session", program->session);
    json_text(json, "principal", program->principal);
    json_text(json, "device", program->device);
    json_integer(json, "id", program->id);
    json_bool(json, "loops", program->loops);
    json_text_or_null(json, "label", program->label);
    json_text_or_null(json, "cause", program->cause);
    json_integer(json, "operations", program->operations);
    json_integer(json, "operations_kept", program->operations_kept);
    json_bool(json, "planned", program->planned);
    for (size_t i = 0; i < sizeof planned / sizeof *planned; ++i) {
        if (program->planned)
            json_integer(json, planned[i].key, planned[i].value);
        else
            json_real(json, planned[i].key, NAN);
    }
    json_integer(json, "runs", program->runs);
    json_integer(json, "runs_queued", program->runs_queued);
    json_integer(json, "iterations", program->iterations);
    json_integer(json, "runs_timed", program->runs_timed);
    json_real(json, "mean_run_s", program->runs_timed ? program->mean_run_s : NAN);
    json_real(json, "last_run_s", program->runs_timed ? program->last_run_s : NAN);
    json_integer(json, "graphs", program->graphs);
    json_integer(json, "graph_launches", program->graph_launches);
    json_text_or_null(json, "graph_reason", program->graph_reason);
    json_integer(json, "fused_waiting", program->fused_waiting);
    json_text_or_null(json, "fused_reason", program->fused_reason);
    json_close(json, '}');
}

static void status_json_logins(struct json *json, const Tensord__LoginStatus *logins) {
    if (!logins)
        return;
    json_open(json, "logins", '{');
    json_integer(json, "granted", logins->granted);
    json_integer(json, "no_token", logins->no_token);
    json_integer(json, "malformed", logins->malformed);
    json_integer(json, "unknown", logins->unknown);
    json_integer(json, "wrong", logins->wrong);
    json_integer(json, "put_off", logins->put_off);
    json_integer(json, "turned_away", logins->turned_away);
    json_close(json, '}');
}

void status_json_write(FILE *out, const Tensord__Status *status, enum status_json_view view, bool pretty) {
    struct json json = {.out = out, .pretty = pretty, .first = true};

    json_open(&json, NULL, '{');
    if (view == STATUS_JSON_ALL) {
        json_text(&json, "version", status->version);
        json_real(&json, "uptime_s", status->uptime_s);
        json_bool(&json, "draining", status->draining);
        json_integer(&json, "sessions_left_out", status->sessions_left_out);
        status_json_logins(&json, status->logins);
        json_integer(&json, "connections", status->connections);
        json_integer(&json, "connections_accepted", status->connections_accepted);
        status_json_counts(&json, "rejections", status->rejections, status->n_rejections);
    }
    if (view == STATUS_JSON_ALL || view == STATUS_JSON_DEVICES) {
        json_open(&json, "devices", '[');
        for (size_t i = 0; i < status->n_devices; ++i)
            status_json_device(&json, status->devices[i]);
        json_close(&json, ']');
    }
    if (view == STATUS_JSON_ALL || view == STATUS_JSON_SESSIONS) {
        json_open(&json, "sessions", '[');
        for (size_t i = 0; i < status->n_sessions; ++i)
            status_json_session(&json, status->sessions[i]);
        json_close(&json, ']');
    }
    if (view == STATUS_JSON_ALL || view == STATUS_JSON_PROGRAMS) {
        json_open(&json, "programs", '[');
        for (size_t i = 0; i < status->n_programs; ++i)
            status_json_program(&json, status->programs[i]);
        json_close(&json, ']');
    }
    if (view == STATUS_JSON_ALL) {
        json_open(&json, "principals", '[');
        for (size_t i = 0; i < status->n_principals; ++i)
            status_json_principal(&json, status->principals[i]);
        json_close(&json, ']');
        status_json_limits_met(&json, status->limits_met, status->n_limits_met);
    }
    json_close(&json, '}');
    fputc('\n', out);
}

/* ---- operations ---- */

static void json_dtypes(struct json *json, const char *key, const Tensord__OperationList *list, const uint32_t *dtypes,
                        size_t n) {
    json_open(json, key, '[');
    for (size_t i = 0; i < n; ++i)
        json_text(json, NULL, dtypes[i] < list->n_dtypes ? list->dtypes[dtypes[i]] : "");
    json_close(json, ']');
}

static void status_json_operation(struct json *json, const Tensord__OperationList *list,
                                  const Tensord__Operation *operation) {
    json_open(json, NULL, '{');
    json_text(json, "name", operation->name);
    json_integer(json, "opcode", operation->opcode);
    json_dtypes(json, "takes", list, operation->taken, operation->n_taken);
    json_dtypes(json, "dtypes", list, operation->dtypes, operation->n_dtypes);
    json_open(json, "devices", '{');
    for (size_t i = 0; i < list->n_devices && i < operation->n_support; ++i) {
        const Tensord__OperationSupport *support = operation->support[i];
        if (!list->devices[i]->known)
            continue;
        json_open(json, list->devices[i]->name, '{');
        json_bool(json, "complete", support->n_dtypes == operation->n_dtypes);
        json_dtypes(json, "dtypes", list, support->dtypes, support->n_dtypes);
        json_text_or_null(json, "reason", support->reason);
        json_close(json, '}');
    }
    json_close(json, '}');
    json_close(json, '}');
}

void status_json_write_operations(FILE *out, const Tensord__OperationList *list) {
    struct json json = {.out = out, .pretty = true, .first = true};

    json_open(&json, NULL, '{');
    json_open(&json, "devices", '[');
    for (size_t i = 0; i < list->n_devices; ++i) {
        json_open(&json, NULL, '{');
        json_text(&json, "name", list->devices[i]->name);
        json_bool(&json, "known", list->devices[i]->known);
        json_text_or_null(&json, "reason", list->devices[i]->reason);
        json_close(&json, '}');
    }
    json_close(&json, ']');
    json_open(&json, "operations", '[');
    for (size_t i = 0; i < list->n_operations; ++i)
        status_json_operation(&json, list, list->operations[i]);
    json_close(&json, ']');
    json_close(&json, '}');
    fputc('\n', out);
}
