#include "server/config_value.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_DEVICE_INDEX_MAX = 255 };

/* Kinds that this build can open. */
static const char *const config_device_kinds[] = {"cpu"};

struct config_unit {
    const char *suffix;
    uint64_t factor;
};

char *config_value_trim(char *text) {
    text += strspn(text, " \t");
    size_t length = strlen(text);
    while (length && isspace((unsigned char)text[length - 1]))
        text[--length] = 0;
    return text;
}

/* Digits, then one of the suffixes. -1 where the text is something else or too large for 64 bits. */
static int config_value_scaled(const char *text, int base, const struct config_unit *units, uint64_t *value) {
    char *end;
    if (!isdigit((unsigned char)*text))
        return -1;
    errno = 0;
    unsigned long long number = strtoull(text, &end, base);
    if (errno)
        return -1;
    for (const struct config_unit *unit = units; unit->suffix; unit++)
        if (!strcmp(end, unit->suffix))
            return __builtin_mul_overflow((uint64_t)number, unit->factor, value) ? -1 : 0;
    return -1;
}

int config_value_count(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *value, struct fault *fault) {
    static const struct config_unit units[] = {{"", 1}, {NULL, 0}};
    uint64_t number;
    if (config_value_scaled(text, 10, units, &number) || number < minimum || number > maximum)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "\"%s\" is no number from %" PRIu64 " to %" PRIu64, text,
                         minimum, maximum);
    *value = number;
    return STATUS_OK;
}

int config_value_octal(const char *text, uint64_t maximum, uint64_t *value, struct fault *fault) {
    static const struct config_unit units[] = {{"", 1}, {NULL, 0}};
    uint64_t number;
    if (config_value_scaled(text, 8, units, &number) || number > maximum)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "\"%s\" is no octal mode up to %" PRIo64, text, maximum);
    *value = number;
    return STATUS_OK;
}

int config_value_bytes(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *value, struct fault *fault) {
    static const struct config_unit units[] = {{"", 1}, {"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {NULL, 0}};
    uint64_t number;
    if (config_value_scaled(text, 10, units, &number) || number < minimum || number > maximum)
        return fault_set(fault, STATUS_INVALID_ARGUMENT,
                         "\"%s\" is no size such as 512M, from %" PRIu64 " to %" PRIu64 " bytes", text, minimum,
                         maximum);
    *value = number;
    return STATUS_OK;
}

int config_value_duration(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *value, struct fault *fault) {
    static const struct config_unit units[] = {{"ms", 1}, {"s", 1000}, {NULL, 0}};
    uint64_t number;
    if (!strcmp(text, "0"))
        text = "0s";
    if (config_value_scaled(text, 10, units, &number) || number < minimum || number > maximum)
        return fault_set(fault, STATUS_INVALID_ARGUMENT,
                         "\"%s\" is no duration such as 250ms or 5s, from %" PRIu64 " to %" PRIu64 " ms", text, minimum,
                         maximum);
    *value = number;
    return STATUS_OK;
}

static bool config_device_kind_known(const char *kind) {
    for (size_t i = 0; i < sizeof config_device_kinds / sizeof *config_device_kinds; i++)
        if (!strcmp(kind, config_device_kinds[i]))
            return true;
    return false;
}

static int config_value_device(const char *text, struct config_device *device, struct fault *fault) {
    const char *colon = strchr(text, ':');
    int length = colon ? (int)(colon - text) : (int)strlen(text);
    uint64_t index = 0;
    *device = (struct config_device){.name = ""};
    if (length < (int)sizeof device->kind)
        snprintf(device->kind, sizeof device->kind, "%.*s", length, text);
    if (!config_device_kind_known(device->kind))
        return fault_set(fault, STATUS_INVALID_ARGUMENT,
                         "no device \"%s\" here; this build has CPU devices: auto, cpu, or cpu:N with N up to %d", text,
                         CONFIG_DEVICE_INDEX_MAX);
    if (colon && config_value_count(colon + 1, 0, CONFIG_DEVICE_INDEX_MAX, &index, NULL))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "no device \"%s\": the number after \"%s:\" goes from 0 to %d",
                         text, device->kind, CONFIG_DEVICE_INDEX_MAX);
    device->index = (uint32_t)index;
    snprintf(device->name, sizeof device->name, "%s:%u", device->kind, device->index);
    return STATUS_OK;
}

static int config_value_add_device(struct config_device *devices, unsigned *count, const char *text,
                                   struct fault *fault) {
    struct config_device device;
    int error = config_value_device(text, &device, fault);
    if (error)
        return error;
    for (unsigned i = 0; i < *count; i++)
        if (!strcmp(devices[i].name, device.name))
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "device \"%s\" is named twice", device.name);
    if (*count == CONFIG_DEVICES_MAX)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "more than %d devices", CONFIG_DEVICES_MAX);
    devices[(*count)++] = device;
    return STATUS_OK;
}

int config_value_devices(struct config *config, const char *text, struct fault *fault) {
    struct config_device devices[CONFIG_DEVICES_MAX];
    unsigned count = 0;
    char copy[CONFIG_DEVICES_MAX * 16];
    bool automatic = !strcmp(text, "auto");
    if (strlen(text) >= sizeof copy)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the list is longer than %zu bytes", sizeof copy - 1);
    snprintf(copy, sizeof copy, "%s", automatic ? "cpu:0" : text);
    char *rest = copy;
    for (char *part; (part = strsep(&rest, ","));) {
        int error = config_value_add_device(devices, &count, config_value_trim(part), fault);
        if (error)
            return error;
    }
    memcpy(config->devices, devices, sizeof devices);
    config->n_devices = count;
    config->devices_auto = automatic;
    return STATUS_OK;
}
