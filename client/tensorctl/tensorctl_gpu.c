/* What a GPU is and how it does: what nvidia-smi and torch.cuda would say. */
#include <inttypes.h>
#include <string.h>

#include "client/tensorctl/tensorctl.h"

enum { GPU_TEXT_MAX = 256 };

static const char gpu_unknown[] = "not available";

/* "37 %"; "not available" where there is no reading. */
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

void tensorctl_gpu_write(FILE *out, const Tensord__DeviceStatus *device) {
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
