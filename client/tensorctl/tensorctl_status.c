#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/tensorctl/tensorctl.h"
#include "proto/files/status_json.h"
#include "proto/ops/status.h"
#include "proto/wire/figures.h"

static const Tensord__Device *tensorctl_device(const Tensord__DeviceStatus *device) {
    static const Tensord__Device unknown = TENSORD__DEVICE__INIT;
    return device->device ? device->device : &unknown;
}

static void tensorctl_head(FILE *out, const Tensord__Status *status) {
    char up[TEXT_UNIT_MAX];
    text_line(out, "%s%s, up %s, %zu device%s, %zu session%s%s",
              strncmp(status->version, "tensord", 7) ? "tensord " : "", status->version,
              text_duration(up, status->uptime_s), status->n_devices, status->n_devices == 1 ? "" : "s",
              status->n_sessions, status->n_sessions == 1 ? "" : "s", status->draining ? ", draining" : "");
}

/* ---- a device as a block ---- */

/* "[####===.....]": in tensors, reserved by the pool and unused, free. What is there at all shows. */
static void tensorctl_bar(char *bar, unsigned width, const Tensord__DeviceStatus *device) {
    double total = device->memory_total ? (double)device->memory_total : 1;
    double live = (double)device->memory_live / total * width,
           reserved = (double)device->memory_reserved / total * width;

    if (live > 0 && live < 1)
        live = 1;
    for (unsigned i = 0; i < width; ++i)
        bar[i] = i + 0.5 < live ? '#' : i + 0.5 < reserved ? '=' : '.';
    bar[width] = 0;
}

static void tensorctl_memory(FILE *out, const Tensord__DeviceStatus *device) {
    char text[256], bar[33], live[TEXT_UNIT_MAX], reserved[TEXT_UNIT_MAX], peak[TEXT_UNIT_MAX], most[TEXT_UNIT_MAX],
        total[TEXT_UNIT_MAX];

    tensorctl_bar(bar, text_columns() < TEXT_COLUMNS ? 8 : sizeof bar - 1, device);
    text_bytes(live, (double)device->memory_live);
    text_bytes(reserved, (double)device->memory_reserved);
    text_bytes(peak, (double)device->memory_peak);
    text_bytes(most, (double)device->memory_largest_free);
    text_bytes(total, (double)device->memory_total);
    text_line(out, "  memory  [%s] %s live of %s", bar, live, total);
    snprintf(text, sizeof text, "%s reserved, %s peak, largest free block %s", reserved, peak, most);
    text_wrap(out, "          ", text);
}

/* What is beside the pool, where there is any. */
static void tensorctl_beside(FILE *out, const Tensord__DeviceStatus *device) {
    char used[TEXT_UNIT_MAX], limit[TEXT_UNIT_MAX], pinned[TEXT_UNIT_MAX], total[TEXT_UNIT_MAX], held[TEXT_UNIT_MAX];
    char takes[TEXT_UNIT_MAX], pins[TEXT_UNIT_MAX], grows[TEXT_UNIT_MAX], waiting[TEXT_UNIT_MAX], text[512];
    int length = 0;

    if (device->workspaces)
        text_line(out, "          %s workspaces of %s", text_bytes(used, (double)device->workspaces),
                  text_bytes(limit, (double)device->workspaces_limit));
    if (device->staging_reserved)
        length = snprintf(
            text, sizeof text, "%s pinned of %s, %s on its way", text_bytes(pinned, (double)device->staging_reserved),
            text_bytes(total, (double)device->staging_total), text_bytes(held, (double)device->staging_held));
    if (device->staging_reserved && device->staging_waiting)
        snprintf(text + length, sizeof text - (size_t)length, ", %s transfers wait",
                 text_count(waiting, (double)device->staging_waiting));
    if (device->staging_reserved)
        text_wrap(out, "  staging ", text);
    if (device->pinnings || device->workspace_growths) {
        snprintf(text, sizeof text, "%s for device memory, %s for pinned memory, %s for larger workspaces",
                 text_count(takes, (double)device->reservations), text_count(pins, (double)device->pinnings),
                 text_count(grows, (double)device->workspace_growths));
        text_wrap(out, "  calls   ", text);
    }
}

/* "12 tensors, 3.2 GiB (uid:1000: 8, 2.1 GiB; uid:0: 4, 1.1 GiB); 3 unsaved for 2.0 min", where there are any. */
static void tensorctl_names(FILE *out, const Tensord__DeviceStatus *device) {
    char text[1024], bytes[TEXT_UNIT_MAX], count[TEXT_UNIT_MAX];
    size_t used;

    if (*device->names_fault)
        text_wrap(out, "  names   ", device->names_fault);
    if (*device->names_save_fault) {
        snprintf(text, sizeof text, "not saved: %s", device->names_save_fault);
        text_wrap(out, "  names   ", text);
    }
    if (device->names == 0 && device->names_bytes == 0 && device->names_unsaved == 0)
        return;
    used = (size_t)snprintf(text, sizeof text, "%s tensor%s, %s", text_count(count, (double)device->names),
                            device->names == 1 ? "" : "s", text_bytes(bytes, (double)device->names_bytes));
    for (size_t i = 0; i < device->n_name_owners && used < sizeof text - 200; ++i) {
        const Tensord__NameOwner *owner = device->name_owners[i];
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%.64s: %s", i ? "; " : " (", owner->principal,
                                 text_count(count, (double)owner->names));
        if (device->n_name_owners > 1)
            used += (size_t)snprintf(text + used, sizeof text - used, ", %s", text_bytes(bytes, (double)owner->bytes));
    }
    used += (size_t)snprintf(text + used, sizeof text - used, "%s", device->n_name_owners ? ")" : "");
    if (device->names_unsaved)
        snprintf(text + used, sizeof text - used, "; %s unsaved for %s",
                 text_count(count, (double)device->names_unsaved), text_duration(bytes, device->names_unsaved_s));
    text_wrap(out, "  names   ", text);
}

/* "p50 â¤ 2.0 Âµs, p99 â¤ 64 Âµs"; what too few samples say nothing of is said to be unknown. */
static int tensorctl_quantiles(char *out, size_t size, const char *what, const Tensord__Histogram *times) {
    static const struct {
        const char *name;
        double part;
    } rows[] = {{"p50", 0.5}, {"p99", 0.99}};
    char bound[TEXT_UNIT_MAX];
    int used = snprintf(out, size, "%s", what);

    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        double value = figures_quantile(times, rows[i].part);
        if (isnan(value))
            used += snprintf(out + used, size - (size_t)used, "%s %s unknown (%" PRIu64 " sample%s)", i ? "," : "",
                             rows[i].name, times->samples, times->samples == 1 ? "" : "s");
        else if (isinf(value))
            used += snprintf(out + used, size - (size_t)used, "%s %s > %s", i ? "," : "", rows[i].name,
                             text_duration(bound, ldexp(1e-6, (int)times->n_counts - 2)));
        else
            used += snprintf(out + used, size - (size_t)used, "%s %s ≤ %s", i ? "," : "", rows[i].name,
                             text_duration(bound, value));
        if (isnan(value))
            break;
    }
    return used;
}

static void tensorctl_times(FILE *out, const Tensord__DeviceStatus *device) {
    char text[512];
    int used = 0;

    if (figures_count(device->queue_time))
        used = tensorctl_quantiles(text, sizeof text, "queue", device->queue_time);
    if (figures_count(device->run_time)) {
        used += snprintf(text + used, sizeof text - (size_t)used, "%s", used ? "; " : "");
        used += tensorctl_quantiles(text + used, sizeof text - (size_t)used, "run", device->run_time);
    }
    if (used)
        text_wrap(out, "  times   ", text);
}

static void tensorctl_work(FILE *out, const Tensord__DeviceStatus *device) {
    char rate[TEXT_UNIT_MAX], queue[TEXT_UNIT_MAX], done[TEXT_UNIT_MAX], busy[TEXT_UNIT_MAX];
    char in[TEXT_UNIT_MAX], in_rate[TEXT_UNIT_MAX], sent[TEXT_UNIT_MAX], sent_rate[TEXT_UNIT_MAX];
    char memory[TEXT_UNIT_MAX], cpu[TEXT_UNIT_MAX], text[512];

    snprintf(text, sizeof text, "%.0f %% busy (%s in all), %s op/s, %s queued, %s done", device->busy_ratio * 100,
             text_duration(busy, device->busy_s), text_count(rate, device->ops_per_s),
             text_count(queue, (double)device->queue_depth), text_count(done, (double)device->ops_total));
    text_wrap(out, "  work    ", text);
    tensorctl_times(out, device);
    snprintf(text, sizeof text, "in %s/s (%s in all), out %s/s (%s in all)",
             text_bytes(in_rate, device->bytes_in_per_s), text_bytes(in, (double)device->bytes_in),
             text_bytes(sent_rate, device->bytes_out_per_s), text_bytes(sent, (double)device->bytes_out));
    text_wrap(out, "  bytes   ", text);
    snprintf(text, sizeof text, "process %" PRIu32 ", %s of host memory, %s of processor time", device->worker_pid,
             text_bytes(memory, (double)device->worker_memory), text_duration(cpu, device->worker_cpu_s));
    if (device->worker_pid)
        text_wrap(out, "  worker  ", text);
}

/* One line, or two where the name is long. */
static void tensorctl_title(FILE *out, const Tensord__DeviceStatus *device) {
    const Tensord__Device *about = tensorctl_device(device);
    char age[TEXT_UNIT_MAX], title[256], worker[256];

    snprintf(title, sizeof title, "%s  %s", about->name, about->state);
    snprintf(worker, sizeof worker, "%s, epoch %" PRIu64 ", %" PRIu32 " restart%s, data %s old", about->kind,
             device->epoch, device->restarts, device->restarts == 1 ? "" : "s",
             text_duration(age, device->data_age_ms / 1e3));
    if (text_width(title) + 2 + text_width(worker) <= text_columns())
        return text_line(out, "%s  %s", title, worker);
    text_line(out, "%s", title);
    text_wrap(out, "  kind    ", worker);
}

static void tensorctl_device_block(FILE *out, const Tensord__DeviceStatus *device) {
    char age[TEXT_UNIT_MAX], fault[512];

    tensorctl_title(out, device);
    tensorctl_gpu_write(out, device);
    tensorctl_memory(out, device);
    tensorctl_beside(out, device);
    tensorctl_names(out, device);
    tensorctl_work(out, device);
    if (device->stalled_s >= 1)
        text_line(out, "  stalled nothing has completed for %s", text_duration(age, device->stalled_s));
    if (*device->last_fault) {
        snprintf(fault, sizeof fault, "%s ago: %s", text_duration(age, device->last_fault_age_s), device->last_fault);
        text_wrap(out, "  fault   ", fault);
    }
    tensorctl_limits_write(out, "  limits  ", device->limits_met, device->n_limits_met);
}

/* ---- devices as a table ---- */

static void tensorctl_devices(FILE *out, const Tensord__Status *status) {
    static const struct table_column columns[] = {{"DEVICE", .flexible = true},
                                                  {"KIND"},
                                                  {"STATE"},
                                                  {"MODEL", .flexible = true},
                                                  {"LEVEL", .flexible = true},
                                                  {"PROCESSORS", .right = true, .spare = 1},
                                                  {"MEMORY", .right = true},
                                                  {"LIVE", .right = true},
                                                  {"BUSY", .right = true}};
    struct table table;
    char text[TEXT_UNIT_MAX];

    if (!table_init(&table, columns, sizeof columns / sizeof *columns, status->n_devices))
        return text_line(out, "out of memory");
    for (size_t i = 0; i < status->n_devices; ++i) {
        const Tensord__DeviceStatus *device = status->devices[i];
        const Tensord__Device *about = tensorctl_device(device);
        table_set(&table, i, 0, about->name);
        table_set(&table, i, 1, about->kind);
        table_set(&table, i, 2, about->state);
        table_set(&table, i, 3, about->model);
        table_set(&table, i, 4, about->capability);
        table_set(&table, i, 5, text_count(text, about->processors));
        table_set(&table, i, 6, text_bytes(text, (double)device->memory_total));
        table_set(&table, i, 7, text_bytes(text, (double)device->memory_live));
        snprintf(text, sizeof text, "%.0f %%", device->busy_ratio * 100);
        table_set(&table, i, 8, text);
    }
    table_head(&table, out);
    for (size_t i = 0; i < status->n_devices; ++i)
        table_row(&table, i, out);
    table_finish(&table);
    for (size_t i = 0; i < status->n_devices; ++i)
        if (*tensorctl_device(status->devices[i])->uuid) {
            fputc('\n', out);
            text_line(out, "%s", tensorctl_device(status->devices[i])->name);
            tensorctl_gpu_write(out, status->devices[i]);
        }
}

/* ---- sessions ---- */

enum session_column {
    SESSION_ID,
    SESSION_USER,
    SESSION_PROGRAM,
    SESSION_PID,
    SESSION_FROM,
    SESSION_DEVICE,
    SESSION_AGE,
    SESSION_SHARE,
    SESSION_RATE,
    SESSION_QUEUED,
    SESSION_DONE,
    SESSION_LIVE,
    SESSION_PEAK,
    SESSION_TENSORS,
    SESSION_COLUMNS
};

/* "gpu7 (10.0.0.7:40212)": a name that a client claims stands beside the address that it has. */
static void tensorctl_session_from(char *out, size_t size, const Tensord__SessionStatus *session) {
    if (*session->host)
        snprintf(out, size, "%s (%s)", session->host, session->peer);
    else
        snprintf(out, size, "%s", session->peer);
}

static void tensorctl_session_row(struct table *table, size_t row, const Tensord__SessionStatus *session) {
    char text[256], unit[TEXT_UNIT_MAX];

    snprintf(text, sizeof text, "%" PRIu64, session->id);
    table_set(table, row, SESSION_ID, text);
    table_set(table, row, SESSION_USER, session->principal);
    figures_program(session->client, text, sizeof text);
    table_set(table, row, SESSION_PROGRAM, text);
    snprintf(text, sizeof text, "%" PRIu32, session->pid);
    table_set(table, row, SESSION_PID, session->pid ? text : "");
    tensorctl_session_from(text, sizeof text, session);
    table_set(table, row, SESSION_FROM, text);
    table_set(table, row, SESSION_DEVICE, session->device);
    table_set(table, row, SESSION_AGE, text_duration(unit, session->age_s));
    snprintf(text, sizeof text, "%.0f %%", session->device_ratio * 100);
    table_set(table, row, SESSION_SHARE, text);
    table_set(table, row, SESSION_RATE, text_count(unit, session->ops_per_s));
    table_set(table, row, SESSION_QUEUED, text_count(unit, (double)session->ops_queued));
    table_set(table, row, SESSION_DONE, text_count(unit, (double)session->ops_done));
    table_set(table, row, SESSION_LIVE, text_bytes(unit, (double)session->live));
    table_set(table, row, SESSION_PEAK, text_bytes(unit, (double)session->peak));
    table_set(table, row, SESSION_TENSORS, text_count(unit, (double)session->tensors));
}

/* "SHAPE 2, OUT_OF_MEMORY 1; last: matmul forward/logits: shapes do not fit: …" */
static void tensorctl_session_failures(FILE *out, const Tensord__SessionStatus *session) {
    char text[1024], count[TEXT_UNIT_MAX];
    size_t used = 0;

    for (size_t i = 0; i < session->n_failures && used < sizeof text / 2; ++i) {
        const Tensord__FailureCount *failure = session->failures[i];
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %s", i ? ", " : "",
                                 status_name((int)failure->code), text_count(count, (double)failure->count));
    }
    if (used > 0)
        snprintf(text + used, sizeof text - used, "%s%s", *session->last_failure ? "; last: " : "",
                 session->last_failure);
    if (used > 0)
        text_wrap(out, "    failed: ", text);
}

/* "detached, 41.0 s left; reconnected 2 times" */
static void tensorctl_session_link(FILE *out, const Tensord__SessionStatus *session) {
    char left[TEXT_UNIT_MAX], times[TEXT_UNIT_MAX], detached[TEXT_UNIT_MAX + 32] = "";

    if (session->detached)
        snprintf(detached, sizeof detached, "detached, %s left%s", text_duration(left, session->lease_left_s),
                 session->reconnects ? "; " : "");
    if (session->reconnects)
        text_line(out, "    %sreconnected %s time%s", detached, text_count(times, (double)session->reconnects),
                  session->reconnects == 1 ? "" : "s");
    else if (session->detached)
        text_line(out, "    %s", detached);
}

static void tensorctl_session_label(FILE *out, const Tensord__SessionStatus *session) {
    tensorctl_session_link(out, session);
    if (*session->label)
        text_wrap(out, "    at: ", session->label);
    if (session->allow_tf32)
        text_line(out, "    allows TF32");
}

static int tensorctl_by_live(const void *a, const void *b) {
    const Tensord__SessionStatus *x = *(Tensord__SessionStatus *const *)a, *y = *(Tensord__SessionStatus *const *)b;
    if (x->live != y->live)
        return x->live < y->live ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Puts the message's sessions in order, too. */
static void tensorctl_sessions(FILE *out, const Tensord__Status *status) {
    static const struct table_column columns[SESSION_COLUMNS] = {
        [SESSION_ID] = {"ID", .right = true, .flexible = true},
        [SESSION_USER] = {"USER", .flexible = true},
        [SESSION_PROGRAM] = {"PROGRAM", .flexible = true},
        [SESSION_PID] = {"PID", .right = true, .spare = 4},
        [SESSION_FROM] = {"FROM", .flexible = true, .spare = 5},
        [SESSION_DEVICE] = {"DEVICE", .flexible = true},
        [SESSION_AGE] = {"AGE", .right = true, .spare = 3},
        [SESSION_SHARE] = {"TIME", .right = true},
        [SESSION_RATE] = {"OP/S", .right = true},
        [SESSION_QUEUED] = {"QUEUED", .right = true, .spare = 1},
        [SESSION_DONE] = {"DONE", .right = true, .spare = 2},
        [SESSION_LIVE] = {"LIVE", .right = true},
        [SESSION_PEAK] = {"PEAK", .right = true, .spare = 6},
        [SESSION_TENSORS] = {"TENSORS", .right = true, .spare = 7},
    };
    struct table table;
    size_t count = status->n_sessions;

    if (count == 0)
        return text_line(out, "no sessions");
    if (!table_init(&table, columns, sizeof columns / sizeof *columns, count))
        return text_line(out, "out of memory");
    qsort(status->sessions, count, sizeof *status->sessions, tensorctl_by_live);
    for (size_t i = 0; i < count; ++i)
        tensorctl_session_row(&table, i, status->sessions[i]);
    table_head(&table, out);
    for (size_t i = 0; i < count; ++i) {
        table_row(&table, i, out);
        tensorctl_session_label(out, status->sessions[i]);
        tensorctl_session_failures(out, status->sessions[i]);
    }
    table_finish(&table);
}

/* A line where some failed. */
static void tensorctl_logins(FILE *out, const Tensord__LoginStatus *logins) {
    uint64_t denied = logins ? logins->no_token + logins->malformed + logins->unknown + logins->wrong : 0;
    if (denied || (logins && logins->turned_away))
        text_line(out, "logins: %llu ok, %llu failed, %llu delayed, %llu rate-limited",
                  (unsigned long long)logins->granted, (unsigned long long)denied, (unsigned long long)logins->put_off,
                  (unsigned long long)logins->turned_away);
}

void tensorctl_status_write(FILE *out, const Tensord__Status *status, enum tensorctl_view view) {
    if (view == TENSORCTL_DEVICES)
        return tensorctl_devices(out, status);
    if (view == TENSORCTL_SESSIONS)
        return tensorctl_sessions(out, status);
    tensorctl_head(out, status);
    tensorctl_logins(out, status->logins);
    for (size_t i = 0; i < status->n_devices; ++i) {
        fputc('\n', out);
        tensorctl_device_block(out, status->devices[i]);
    }
    fputc('\n', out);
    tensorctl_sessions(out, status);
    tensorctl_principals_write(out, status);
    tensorctl_limits_write(out, "limits met: ", status->limits_met, status->n_limits_met);
}

void tensorctl_json_write(FILE *out, const Tensord__Status *status, enum tensorctl_view view, bool pretty) {
    static const enum status_json_view views[] = {
        [TENSORCTL_STATUS] = STATUS_JSON_ALL,
        [TENSORCTL_DEVICES] = STATUS_JSON_DEVICES,
        [TENSORCTL_SESSIONS] = STATUS_JSON_SESSIONS,
    };
    status_json_write(out, status, views[view], pretty);
}
