/* The daemon's figures in Prometheus' text format (0.0.4). */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "proto/ops/status.h"
#include "proto/ops/utf8.h"
#include "server/front/status.h"
#include "server/http/http_impl.h"

/* What is not part of a Status. */
struct metrics_extra {
    double now_s;             /* seconds since 1970 */
    const uint64_t *requests; /* HTTP_CODES of them: responded by HTTP, by the first digit of the code */
};

/* ---- the format ---- */

static void metrics_head(FILE *out, const char *name, const char *type, const char *help) {
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Writes a label. Its value may come from outside: it always stays within the quotes, and is text. */
static void metrics_label(FILE *out, const char *name, const char *value) {
    char utf8[4], shown[UTF8_SHOWN_MAX];
    fprintf(out, "%s=\"", name);
    while (*value) {
        const char *at = value;
        uint32_t rune = utf8_next(&value);
        if (rune == '\n')
            fputs("\\n", out);
        else if (rune == '"' || rune == '\\')
            fprintf(out, "\\%c", (int)rune);
        else if (utf8_is_unsafe(rune)) /* the format knows no other escapes: the backslash stands for itself */
            fprintf(out, "\\%.*s", (int)utf8_show(&at, shown), shown);
        else
            fwrite(utf8, 1, utf8_put(rune, utf8), out);
    }
    fputc('"', out);
}

static void metrics_value(FILE *out, double value) {
    if (isnan(value))
        fputs(" NaN\n", out);
    else if (isinf(value))
        fputs(value > 0 ? " +Inf\n" : " -Inf\n", out);
    else if (value == rint(value) && fabs(value) < 1e15)
        fprintf(out, " %.0f\n", value);
    else
        fprintf(out, " %.15g\n", value);
}

/* The beginning of a line, with one label, or with two if `key` is not NULL. */
static void metrics_line(FILE *out, const char *name, const char *device, const char *key, const char *value) {
    fprintf(out, "%s{", name);
    metrics_label(out, "device", device);
    if (key) {
        fputc(',', out);
        metrics_label(out, key, value);
    }
    fputc('}', out);
}

/* ---- tables: a row is a metric ---- */

struct metrics_row {
    const char *name, *type, *help;
    size_t offset; /* of the field in its message */
    enum { METRICS_UINT32, METRICS_UINT64, METRICS_DOUBLE, METRICS_MILLI } kind;
};

static double metrics_field(const void *message, const struct metrics_row *row) {
    const void *field = (const char *)message + row->offset;
    switch (row->kind) {
    case METRICS_UINT32:
        return *(const uint32_t *)field;
    case METRICS_UINT64:
        return (double)*(const uint64_t *)field;
    case METRICS_DOUBLE:
        return *(const double *)field;
    case METRICS_MILLI:
        return *(const double *)field / 1e3;
    }
    return NAN;
}

#define DEVICE(field) offsetof(Tensord__DeviceStatus, field)
#define PRINCIPAL(field) offsetof(Tensord__PrincipalDevice, field)
#define READING(field) offsetof(Tensord__DeviceReadings, field)
#define STATUS(field) offsetof(Tensord__Status, field)

static const struct metrics_row metrics_devices[] = {
    {"tensord_device_memory_total_bytes", "gauge", "Bytes that the device's pool may take.", DEVICE(memory_total),
     METRICS_UINT64},
    {"tensord_device_memory_reserved_bytes", "gauge", "Bytes that the pool has taken from the device.",
     DEVICE(memory_reserved), METRICS_UINT64},
    {"tensord_device_memory_live_bytes", "gauge", "Bytes in tensors.", DEVICE(memory_live), METRICS_UINT64},
    {"tensord_device_memory_peak_bytes", "gauge", "Highest live bytes since the worker's start.", DEVICE(memory_peak),
     METRICS_UINT64},
    {"tensord_device_memory_largest_free_bytes", "gauge", "Largest tensor that fits now.", DEVICE(memory_largest_free),
     METRICS_UINT64},
    {"tensord_device_names", "gauge", "Named tensors.", DEVICE(names), METRICS_UINT64},
    {"tensord_device_names_bytes", "gauge", "Live bytes that are charged to named tensors.", DEVICE(names_bytes),
     METRICS_UINT64},
    {"tensord_device_names_unsaved", "gauge", "Changes of named tensors that are not on the disk.",
     DEVICE(names_unsaved), METRICS_UINT64},
    {"tensord_device_names_unsaved_seconds", "gauge", "Age of the oldest of them.", DEVICE(names_unsaved_s),
     METRICS_DOUBLE},
    {"tensord_device_names_failing", "gauge", "Owners of named tensors whose last saving failed.",
     DEVICE(names_failing), METRICS_UINT32},
    {"tensord_device_workspace_bytes", "gauge", "Bytes that kernels and libraries hold outside the pool.",
     DEVICE(workspaces), METRICS_UINT64},
    {"tensord_device_staging_total_bytes", "gauge", "Host memory for copies to and from the device.",
     DEVICE(staging_total), METRICS_UINT64},
    {"tensord_device_staging_held_bytes", "gauge", "Of it, on its way.", DEVICE(staging_held), METRICS_UINT64},
    {"tensord_device_staging_waiting", "gauge", "Transfers that wait for staging memory.", DEVICE(staging_waiting),
     METRICS_UINT64},
    {"tensord_device_queue_depth", "gauge", "Operations enqueued and not yet run.", DEVICE(queue_depth),
     METRICS_UINT64},
    {"tensord_device_stalled_seconds", "gauge", "How long the device has completed nothing of its work.",
     DEVICE(stalled_s), METRICS_DOUBLE},
    {"tensord_device_operations_total", "counter",
     "Operations completed, failed ones and releases included, since the worker's start.", DEVICE(ops_total),
     METRICS_UINT64},
    {"tensord_device_programs", "gauge", "Recorded programs that sessions have.", DEVICE(programs), METRICS_UINT64},
    {"tensord_device_program_runs_total", "counter",
     "Runs of recorded programs enqueued, a loop's as one, since the worker's start.", DEVICE(program_runs),
     METRICS_UINT64},
    {"tensord_device_busy_seconds_total", "counter",
     "Time in which the device had something to do, since the worker's start.", DEVICE(busy_s), METRICS_DOUBLE},
    {"tensord_device_busy_ratio", "gauge", "The part of the last second that it was busy.", DEVICE(busy_ratio),
     METRICS_DOUBLE},
    {"tensord_device_worker_memory_bytes", "gauge", "Resident host memory of the device's worker.",
     DEVICE(worker_memory), METRICS_UINT64},
    {"tensord_device_worker_cpu_seconds_total", "counter", "Processor time of the device's worker, since its start.",
     DEVICE(worker_cpu_s), METRICS_DOUBLE},
    {"tensord_device_slow_products_total", "counter", "Matrix products that the vendor's library did not take.",
     DEVICE(products_slow), METRICS_UINT64},
    {"tensord_device_received_bytes_total", "counter", "Tensor bytes uploaded, since the worker's start.",
     DEVICE(bytes_in), METRICS_UINT64},
    {"tensord_device_sent_bytes_total", "counter", "Tensor bytes fetched, since the worker's start.", DEVICE(bytes_out),
     METRICS_UINT64},
    {"tensord_device_connections", "gauge", "Client connections open.", DEVICE(connections), METRICS_UINT64},
    {"tensord_device_data_age_seconds", "gauge",
     "Age of the device's figures: it grows where a worker has stopped responding.", DEVICE(data_age_ms),
     METRICS_MILLI},
    {"tensord_device_epoch", "gauge", "Counts the starts of the device's worker.", DEVICE(epoch), METRICS_UINT64},
    {"tensord_device_restarts_total", "counter", "Restarts of the device's worker, since the daemon's start.",
     DEVICE(restarts), METRICS_UINT32},
    {"tensord_device_faults_total", "counter", "Failures of the device or its worker, since the daemon's start.",
     DEVICE(faults), METRICS_UINT64},
};

/* By principal only: names of sessions, programs and labels come and go with clients, and would make series without
 * end. */
static const struct metrics_row metrics_principals[] = {
    {"tensord_principal_sessions", "gauge", "Sessions of the principal on the device.", PRINCIPAL(sessions),
     METRICS_UINT32},
    {"tensord_principal_memory_live_bytes", "gauge", "Bytes in its tensors.", PRINCIPAL(live), METRICS_UINT64},
    {"tensord_principal_memory_limit_bytes", "gauge", "Limit of these bytes; 0: as many as the device has.",
     PRINCIPAL(live_limit), METRICS_UINT64},
    {"tensord_principal_host_bytes", "gauge", "Host memory for its tensors, causes of failures and queues.",
     PRINCIPAL(host_bytes), METRICS_UINT64},
    {"tensord_principal_queue_depth", "gauge", "Its operations enqueued and not yet run.", PRINCIPAL(ops_queued),
     METRICS_UINT64},
    {"tensord_principal_operations_total", "counter", "Its operations completed, failed ones and releases included.",
     PRINCIPAL(ops_total), METRICS_UINT64},
    {"tensord_principal_failures_total", "counter", "Its operations that failed by themselves.", PRINCIPAL(failures),
     METRICS_UINT64},
    {"tensord_principal_device_seconds_total", "counter", "Time that the device has been at its work.",
     PRINCIPAL(device_s), METRICS_DOUBLE},
    {"tensord_principal_transferred_bytes_total", "counter", "All bytes that its connections have sent and received.",
     PRINCIPAL(bytes), METRICS_UINT64},
};

static const struct metrics_row metrics_front[] = {
    {"tensord_uptime_seconds", "gauge", "Time since the daemon's start.", STATUS(uptime_s), METRICS_DOUBLE},
    {"tensord_connections", "gauge", "Connections open, to devices and to the daemon itself.", STATUS(connections),
     METRICS_UINT32},
    {"tensord_connections_accepted_total", "counter", "Connections that came, those refused included.",
     STATUS(connections_accepted), METRICS_UINT64},
};

/* What the driver tells of a GPU, in base units. */
static const struct metrics_reading {
    const char *name, *type, *help;
    size_t offset;
    double unit;
} metrics_readings[] = {
    {"tensord_gpu_utilisation_ratio", "gauge", "Share of time in which some kernel ran.", READING(utilisation_gpu),
     1e-2},
    {"tensord_gpu_memory_utilisation_ratio", "gauge", "Share of time in which device memory was read or written.",
     READING(utilisation_memory), 1e-2},
    {"tensord_gpu_temperature_celsius", "gauge", "Temperature.", READING(temperature), 1},
    {"tensord_gpu_power_watts", "gauge", "Power drawn.", READING(power_draw), 1e-3},
    {"tensord_gpu_power_limit_watts", "gauge", "Power limit enforced now.", READING(power_limit), 1e-3},
    {"tensord_gpu_clock_hertz", "gauge", "Clock of the multiprocessors.", READING(clock_sm), 1e6},
    {"tensord_gpu_memory_clock_hertz", "gauge", "Clock of the memory.", READING(clock_memory), 1e6},
    {"tensord_gpu_ecc_corrected_total", "counter", "Corrected ECC errors since the driver was loaded.",
     READING(ecc_corrected), 1},
    {"tensord_gpu_ecc_uncorrected_total", "counter", "Uncorrected ECC errors since the driver was loaded.",
     READING(ecc_uncorrected), 1},
    {"tensord_gpu_memory_total_bytes", "gauge", "Memory of the GPU, as nvidia-smi shows it.", READING(memory_total), 1},
    {"tensord_gpu_memory_free_bytes", "gauge", "Memory of the GPU that nobody has.", READING(memory_free), 1},
    {"tensord_gpu_memory_others_bytes", "gauge", "Memory of the GPU that other processes have.", READING(memory_others),
     1},
    {"tensord_gpu_xid", "gauge", "The driver's last error report since the daemon's start; 0: none.", READING(xid), 1},
};

#define LENGTH(rows) (sizeof(rows) / sizeof *(rows))

/* ---- devices ---- */

static const char *metrics_name(const Tensord__DeviceStatus *device) {
    return device->device->name;
}

static void metrics_write_devices(FILE *out, const Tensord__Status *status) {
    for (const struct metrics_row *row = metrics_devices; row < metrics_devices + LENGTH(metrics_devices); row++) {
        metrics_head(out, row->name, row->type, row->help);
        for (size_t i = 0; i < status->n_devices; i++) {
            metrics_line(out, row->name, metrics_name(status->devices[i]), NULL, NULL);
            metrics_value(out, metrics_field(status->devices[i], row));
        }
    }
}

static void metrics_write_info(FILE *out, const Tensord__Status *status) {
    metrics_head(out, "tensord_device_info", "gauge", "What the device is.");
    for (size_t i = 0; i < status->n_devices; i++) {
        const Tensord__Device *device = status->devices[i]->device;
        fputs("tensord_device_info{", out);
        metrics_label(out, "device", device->name);
        fputc(',', out);
        metrics_label(out, "kind", device->kind);
        fputc(',', out);
        metrics_label(out, "model", device->model);
        fputc(',', out);
        metrics_label(out, "uuid", device->uuid);
        fputs("} 1\n", out);
    }
}

static void metrics_write_state(FILE *out, const Tensord__Status *status) {
    static const char name[] = "tensord_device_state";
    metrics_head(out, name, "gauge", "1 for the state that the device is in, 0 for the others.");
    for (size_t i = 0; i < status->n_devices; i++) {
        for (int state = WORKER_STARTING; state <= WORKER_STOPPED; state++) {
            const char *text = worker_state_name((enum worker_state)state);
            metrics_line(out, name, metrics_name(status->devices[i]), "state", text);
            metrics_value(out, !strcmp(text, status->devices[i]->device->state));
        }
    }
}

static void metrics_write_last_fault(FILE *out, const Tensord__Status *status, double now_s) {
    static const char name[] = "tensord_device_last_fault_timestamp_seconds";
    metrics_head(out, name, "gauge", "When the device or its worker failed last; 0: never since the daemon's start.");
    for (size_t i = 0; i < status->n_devices; i++) {
        const Tensord__DeviceStatus *device = status->devices[i];
        metrics_line(out, name, metrics_name(device), NULL, NULL);
        metrics_value(out, *device->last_fault ? now_s - device->last_fault_age_s : 0);
    }
}

/* A line for every code: rate() does not see the first increment of a counter that begins with it. */
static void metrics_counts(FILE *out, const char *name, const char *device, Tensord__FailureCount *const *counts,
                           size_t n) {
    for (uint32_t code = 1; code < STATUS_COUNT; code++) {
        uint64_t count = 0;
        for (size_t i = 0; i < n; i++)
            count += counts[i]->code == code ? counts[i]->count : 0;
        if (device)
            metrics_line(out, name, device, "code", status_name((int)code));
        else
            fprintf(out, "%s{code=\"%s\"}", name, status_name((int)code));
        metrics_value(out, (double)count);
    }
}

static void metrics_write_counts(FILE *out, const Tensord__Status *status) {
    metrics_head(out, "tensord_device_failures_total", "counter",
                 "Operations that failed by themselves, by code, since the worker's start.");
    for (size_t i = 0; i < status->n_devices; i++)
        metrics_counts(out, "tensord_device_failures_total", metrics_name(status->devices[i]),
                       status->devices[i]->failures, status->devices[i]->n_failures);
    metrics_head(out, "tensord_device_rejections_total", "counter",
                 "Connections that the worker ended before their session began, by code, since its start.");
    for (size_t i = 0; i < status->n_devices; i++)
        metrics_counts(out, "tensord_device_rejections_total", metrics_name(status->devices[i]),
                       status->devices[i]->rejections, status->devices[i]->n_rejections);
    metrics_head(out, "tensord_rejections_total", "counter", "Connections that the daemon refused, by code.");
    metrics_counts(out, "tensord_rejections_total", NULL, status->rejections, status->n_rejections);
}

/* Limits by their keys in the configuration. */
static void metrics_write_limits(FILE *out, const Tensord__Status *status) {
    metrics_head(out, "tensord_device_limits_met_total", "counter",
                 "How often a limit was met on the device, by its key, since the worker's start.");
    for (size_t i = 0; i < status->n_devices; i++) {
        const Tensord__DeviceStatus *device = status->devices[i];
        for (size_t k = 0; k < device->n_limits_met; k++) {
            metrics_line(out, "tensord_device_limits_met_total", metrics_name(device), "limit",
                         device->limits_met[k]->key);
            metrics_value(out, (double)device->limits_met[k]->count);
        }
    }
    metrics_head(out, "tensord_limits_met_total", "counter", "How often the daemon itself met a limit, by its key.");
    for (size_t k = 0; k < status->n_limits_met; k++) {
        fputs("tensord_limits_met_total{", out);
        metrics_label(out, "limit", status->limits_met[k]->key);
        fputc('}', out);
        metrics_value(out, (double)status->limits_met[k]->count);
    }
}

static const Tensord__Reading *metrics_reading_of(const Tensord__DeviceStatus *device,
                                                  const struct metrics_reading *row) {
    if (!device->readings)
        return NULL;
    return *(Tensord__Reading *const *)((const char *)device->readings + row->offset);
}

/* Leaves out metrics that no device has, and devices that do not have a metric. */
static void metrics_write_readings(FILE *out, const Tensord__Status *status) {
    for (const struct metrics_reading *row = metrics_readings; row < metrics_readings + LENGTH(metrics_readings);
         row++) {
        bool begun = false;
        for (size_t i = 0; i < status->n_devices; i++) {
            const Tensord__Reading *reading = metrics_reading_of(status->devices[i], row);
            if (!reading)
                continue;
            if (!begun)
                metrics_head(out, row->name, row->type, row->help);
            begun = true;
            metrics_line(out, row->name, metrics_name(status->devices[i]), NULL, NULL);
            metrics_value(out, (double)reading->value * row->unit);
        }
    }
}

/* ---- histograms ---- */

static void metrics_histogram(FILE *out, const char *name, const char *device, const Tensord__Histogram *histogram) {
    char line[80], bound[32];
    uint64_t count = 0;
    for (size_t i = 0; i < histogram->n_counts; i++) {
        count += histogram->counts[i];
        if (i + 1 < histogram->n_counts)
            snprintf(bound, sizeof bound, "%.9g", ldexp(1e-6, (int)i));
        else
            snprintf(bound, sizeof bound, "+Inf");
        snprintf(line, sizeof line, "%s_bucket", name);
        metrics_line(out, line, device, "le", bound);
        metrics_value(out, (double)count);
    }
    snprintf(line, sizeof line, "%s_sum", name);
    metrics_line(out, line, device, NULL, NULL);
    metrics_value(out, histogram->sum_s);
    snprintf(line, sizeof line, "%s_count", name);
    metrics_line(out, line, device, NULL, NULL);
    metrics_value(out, (double)count);
}

static void metrics_write_histograms(FILE *out, const Tensord__Status *status) {
    static const struct {
        const char *name, *help;
        size_t offset;
    } rows[] = {
        {"tensord_device_queue_seconds", "Of launches, by weighted samples: from enqueued to launched.",
         DEVICE(queue_time)},
        {"tensord_device_run_seconds", "Of launches, by weighted samples: from launched to completed.",
         DEVICE(run_time)},
        {"tensord_device_fetch_seconds", "Of all fetches: from asked for to all bytes sent.", DEVICE(fetch_time)},
    };
    for (size_t r = 0; r < LENGTH(rows); r++) {
        metrics_head(out, rows[r].name, "histogram", rows[r].help);
        for (size_t i = 0; i < status->n_devices; i++) {
            const Tensord__DeviceStatus *device = status->devices[i];
            Tensord__Histogram *histogram = *(Tensord__Histogram *const *)((const char *)device + rows[r].offset);
            if (histogram)
                metrics_histogram(out, rows[r].name, metrics_name(device), histogram);
        }
    }
}

/* ---- sessions and principals ---- */

static void metrics_write_session_count(FILE *out, const Tensord__Status *status) {
    metrics_head(out, "tensord_device_sessions", "gauge", "Sessions open.");
    size_t next = 0; /* sessions come in the order of their devices */
    for (size_t i = 0; i < status->n_devices; i++) {
        size_t first = next;
        while (next < status->n_sessions && !strcmp(status->sessions[next]->device, metrics_name(status->devices[i])))
            next++;
        metrics_line(out, "tensord_device_sessions", metrics_name(status->devices[i]), NULL, NULL);
        metrics_value(out, (double)(next - first));
    }
}

static void metrics_write_principals(FILE *out, const Tensord__Status *status) {
    for (const struct metrics_row *row = metrics_principals; row < metrics_principals + LENGTH(metrics_principals);
         row++) {
        metrics_head(out, row->name, row->type, row->help);
        for (size_t i = 0; i < status->n_principals; i++) {
            const Tensord__PrincipalStatus *principal = status->principals[i];
            for (size_t d = 0; d < principal->n_devices; d++) {
                metrics_line(out, row->name, principal->devices[d]->device, "principal", principal->name);
                metrics_value(out, metrics_field(principal->devices[d], row));
            }
        }
    }
}

/* ---- the daemon ---- */

static void metrics_write_front(FILE *out, const Tensord__Status *status, const struct metrics_extra *extra) {
    metrics_head(out, "tensord_build_info", "gauge", "The daemon's version.");
    fputs("tensord_build_info{", out);
    metrics_label(out, "version", status->version);
    fputs("} 1\n", out);
    metrics_head(out, "tensord_draining", "gauge", "1 while the daemon takes no new work and is about to end.");
    fprintf(out, "tensord_draining %d\n", status->draining);
    for (const struct metrics_row *row = metrics_front; row < metrics_front + LENGTH(metrics_front); row++) {
        metrics_head(out, row->name, row->type, row->help);
        fputs(row->name, out);
        metrics_value(out, metrics_field(status, row));
    }
    metrics_head(out, "tensord_http_requests_total", "counter", "HTTP requests responded, by the class of their code.");
    for (int i = 2; i < HTTP_CODES; i++)
        fprintf(out, "tensord_http_requests_total{code=\"%dxx\"} %" PRIu64 "\n", i, extra->requests[i]);
}

/* All are 0 if nobody can log in. */
static void metrics_write_logins(FILE *out, const Tensord__LoginStatus *logins) {
    static const Tensord__LoginStatus none = TENSORD__LOGIN_STATUS__INIT;
    logins = logins ? logins : &none;
    const struct {
        const char *result;
        uint64_t count;
    } rows[] = {{"granted", logins->granted}, {"no_token", logins->no_token}, {"malformed", logins->malformed},
                {"unknown", logins->unknown}, {"wrong", logins->wrong},       {"turned_away", logins->turned_away}};
    metrics_head(out, "tensord_logins_total", "counter", "Logins by token, by their result.");
    for (size_t i = 0; i < LENGTH(rows); i++) {
        fputs("tensord_logins_total{", out);
        metrics_label(out, "result", rows[i].result);
        fputc('}', out);
        metrics_value(out, (double)rows[i].count);
    }
    metrics_head(out, "tensord_logins_put_off_total", "counter", "Failed logins whose reply was delayed.");
    fputs("tensord_logins_put_off_total", out);
    metrics_value(out, (double)logins->put_off);
}

static void metrics_write(FILE *out, const Tensord__Status *status, const struct metrics_extra *extra) {
    metrics_write_front(out, status, extra);
    metrics_write_logins(out, status->logins);
    metrics_write_info(out, status);
    metrics_write_state(out, status);
    metrics_write_devices(out, status);
    metrics_write_last_fault(out, status, extra->now_s);
    metrics_write_counts(out, status);
    metrics_write_limits(out, status);
    metrics_write_histograms(out, status);
    metrics_write_readings(out, status);
    metrics_write_session_count(out, status);
    metrics_write_principals(out, status);
}

/* ---- as a response ---- */

struct metrics_use {
    FILE *out;
    struct metrics_extra extra;
};

static int metrics_use_status(void *owner, const Tensord__Status *status) {
    const struct metrics_use *use = owner;
    metrics_write(use->out, status, &use->extra);
    return STATUS_OK;
}

unsigned http_write_metrics(struct http *http, FILE *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct metrics_use use = {
        .out = out,
        .extra = {.now_s = (double)now.tv_sec + (double)now.tv_nsec / 1e9, .requests = http->requests},
    };
    return status_use(http->front, NULL, metrics_use_status, &use) == STATUS_OK ? MHD_HTTP_OK : 0;
}
