/* The status of devices for people: each as a block of lines, or all of them in one table. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "client/tensorctl/tensorctl.h"
#include "proto/files/status_json.h"

static const Tensord__Device *tensorctl_device(const Tensord__DeviceStatus *device) {
    static const Tensord__Device unknown = TENSORD__DEVICE__INIT;
    return device->device ? device->device : &unknown;
}

/* ---- a GPU: the facts that nvidia-smi and torch.cuda show ---- */

enum { GPU_TEXT_MAX = 256 };

static const char gpu_unknown[] = "not available";

/* "37 %"; "not available" if there is no reading. */
static const char *gpu_number(char text[TEXT_UNIT_MAX], const Tensord__Reading *reading, const char *unit) {
    if (!reading)
        return gpu_unknown;
    snprintf(text, TEXT_UNIT_MAX, "%" PRIu64 "%s", reading->value, unit);
    return text;
}

static const char *gpu_bytes(char text[TEXT_UNIT_MAX], const Tensord__Reading *reading) {
    return reading ? text_bytes(text, (double)reading->value) : gpu_unknown;
}

static const char *gpu_watts(char text[TEXT_UNIT_MAX], const Tensord__Reading *reading) {
    if (!reading)
        return gpu_unknown;
    snprintf(text, TEXT_UNIT_MAX, "%.1f W", (double)reading->value / 1e3);
    return text;
}

static void gpu_identity(FILE *out, const Tensord__Device *about) {
    char text[GPU_TEXT_MAX];
    snprintf(text, sizeof text, "%s at %s", about->uuid, about->bus);
    text_wrap(out, "  uuid    ", text);
    if (*about->model) {
        snprintf(text, sizeof text, "%s, %" PRIu32 " multiprocessors", about->model, about->processors);
        text_wrap(out, "  model   ", text);
    }
    snprintf(text, sizeof text, "compute capability %s, driver %s for CUDA %s, runtime %s", about->capability,
             *about->driver_version ? about->driver_version : "(version not available)", about->driver, about->runtime);
    text_wrap(out, "  cuda    ", text);
}

static void gpu_memory(FILE *out, const Tensord__Device *about, const Tensord__DeviceReadings *readings) {
    char text[GPU_TEXT_MAX], total[TEXT_UNIT_MAX], all[TEXT_UNIT_MAX], unused[TEXT_UNIT_MAX], others[TEXT_UNIT_MAX];
    text_bytes(all, (double)about->memory_device);
    if (readings->memory_total)
        snprintf(text, sizeof text, "%s (%s for CUDA), %s free, %s used by others",
                 gpu_bytes(total, readings->memory_total), all, gpu_bytes(unused, readings->memory_free),
                 gpu_bytes(others, readings->memory_others));
    else
        snprintf(text, sizeof text, "%s for CUDA; what is free and what others use: %s", all, gpu_unknown);
    text_wrap(out, "  device  ", text);
}

static void gpu_load(FILE *out, const Tensord__DeviceReadings *readings) {
    char text[GPU_TEXT_MAX], gpu[TEXT_UNIT_MAX], memory[TEXT_UNIT_MAX], celsius[TEXT_UNIT_MAX];
    char draw[TEXT_UNIT_MAX], limit[TEXT_UNIT_MAX], sm[TEXT_UNIT_MAX], bus[TEXT_UNIT_MAX];
    snprintf(text, sizeof text, "GPU %s, memory %s; temperature %s", gpu_number(gpu, readings->utilisation_gpu, " %"),
             gpu_number(memory, readings->utilisation_memory, " %"),
             gpu_number(celsius, readings->temperature,
                        " \xc2\xb0"
                        "C"));
    text_wrap(out, "  load    ", text);
    snprintf(text, sizeof text, "%s of %s; clocks: SM %s, memory %s", gpu_watts(draw, readings->power_draw),
             gpu_watts(limit, readings->power_limit), gpu_number(sm, readings->clock_sm, " MHz"),
             gpu_number(bus, readings->clock_memory, " MHz"));
    text_wrap(out, "  power   ", text);
}

static void gpu_health(FILE *out, const Tensord__DeviceReadings *readings) {
    char text[GPU_TEXT_MAX], corrected[TEXT_UNIT_MAX], uncorrected[TEXT_UNIT_MAX], ago[TEXT_UNIT_MAX];
    char xid[2 * TEXT_UNIT_MAX];
    const Tensord__Reading *on = readings->ecc_enabled;
    if (!readings->xid)
        snprintf(xid, sizeof xid, "%s", gpu_unknown);
    else if (!readings->xid->value)
        snprintf(xid, sizeof xid, "none");
    else
        snprintf(xid, sizeof xid, "%" PRIu64 ", %s ago", readings->xid->value, text_duration(ago, readings->xid_age_s));
    snprintf(text, sizeof text, "ECC %s, errors: corrected %s, uncorrected %s; last Xid: %s",
             !on         ? gpu_unknown
             : on->value ? "on"
                         : "off",
             gpu_number(corrected, readings->ecc_corrected, ""), gpu_number(uncorrected, readings->ecc_uncorrected, ""),
             xid);
    text_wrap(out, "  health  ", text);
}

static void gpu_write(FILE *out, const Tensord__DeviceStatus *device) {
    static const Tensord__DeviceReadings none = TENSORD__DEVICE_READINGS__INIT;
    const Tensord__DeviceReadings *readings = device->readings;
    char age[TEXT_UNIT_MAX];
    if (!device->device || !*device->device->uuid)
        return;
    gpu_identity(out, device->device);
    gpu_memory(out, device->device, readings ? readings : &none);
    if (!readings)
        return text_line(out, "  nvml    %s", gpu_unknown);
    gpu_load(out, readings);
    gpu_health(out, readings);
    text_line(out, "  nvml    read %s ago", text_duration(age, readings->age_s));
}

/* ---- a device as a block ---- */

/* "[####===.....]": '#' is in tensors, '=' is reserved by the pool and unused, '.' is free. Any live memory shows as one '#' at
 * least. */
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

/* Memory beside the pool, and calls that take memory, if there are any. */
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

/* "12 tensors, 3.2 GiB (uid:1000: 8, 2.1 GiB; uid:0: 4, 1.1 GiB); 3 unsaved for 2.0 min", if there are any. */
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

/* "queue p50 ≤ 2.0 µs, p99 ≤ 64 µs"; says "unknown" if there are too few samples. */
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

/* One line, or two lines if the name is long. */
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

void tensorctl_device_write(FILE *out, const Tensord__DeviceStatus *device) {
    char age[TEXT_UNIT_MAX], fault[512];

    tensorctl_title(out, device);
    gpu_write(out, device);
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

void tensorctl_devices_write(FILE *out, const Tensord__Status *status) {
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
    table_write(&table, out);
    for (size_t i = 0; i < status->n_devices; ++i)
        if (*tensorctl_device(status->devices[i])->uuid) {
            fputc('\n', out);
            text_line(out, "%s", tensorctl_device(status->devices[i])->name);
            gpu_write(out, status->devices[i]);
        }
}
