/* The list of devices: "auto", "cpu", "cuda:0,cuda:1". */
#include <stdio.h>
#include <string.h>

#include "server/front/config.h"
#include "server/users/config_value.h"

/* Those of one kind. Of CPU devices there are as many as there are names for: they share the processors. */
struct config_places {
    struct device_place at[DEVICE_PLACES_MAX];
    unsigned count;
};

static int config_list_devices(const struct config *config, const char *kind, struct config_places *places,
                               struct fault *fault) {
    if (strcmp(kind, "cpu") != 0 && !config->list_devices)
        return fault_set(fault, STATUS_NO_DEVICE, "there are CPU devices only");
    if (strcmp(kind, "cpu") != 0)
        return config->list_devices(kind, places->at, DEVICE_PLACES_MAX, &places->count, fault);
    for (places->count = 0; places->count < DEVICE_PLACES_MAX; places->count++)
        places->at[places->count] = (struct device_place){.index = places->count};
    return STATUS_OK;
}

static int config_add_device(struct config *config, const char *kind, const struct config_places *places,
                             unsigned number, struct fault *fault) {
    struct config_device *device = &config->devices[config->n_devices];
    if (config->n_devices == CONFIG_DEVICES_MAX)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "more than %d devices", CONFIG_DEVICES_MAX);
    snprintf(device->kind, sizeof device->kind, "%s", kind);
    snprintf(device->name, sizeof device->name, "%s:%u", kind, number);
    device->index = places->at[number].index;
    memcpy(device->environment, places->at[number].environment, sizeof device->environment);
    for (unsigned i = 0; i < config->n_devices; i++)
        if (!strcmp(config->devices[i].name, device->name))
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "device \"%s\" is named twice", device->name);
    config->n_devices++;
    return STATUS_OK;
}

/* "cpu" is cpu:0; another kind without a number is all that there are of it. */
static int config_add_devices(struct config *config, const char *text, struct fault *fault) {
    const char *colon = strchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : strlen(text);
    char kind[sizeof config->devices->kind] = "";
    struct config_places places;
    uint64_t number = 0;
    struct fault why;
    if (length < sizeof kind)
        snprintf(kind, sizeof kind, "%.*s", (int)length, text);
    if (!*kind || kind[strspn(kind, "abcdefghijklmnopqrstuvwxyz")] || !strcmp(kind, "auto"))
        return fault_set(fault, STATUS_INVALID_ARGUMENT,
                         "no device \"%s\": a device is a kind and a number, such as cpu:0; or the list is auto", text);
    if (config_list_devices(config, kind, &places, &why) != STATUS_OK)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "no device \"%s\": %s", text, why.message);
    if (colon && config_value_count(colon + 1, 0, places.count - 1, &number, NULL))
        return fault_set(fault, STATUS_INVALID_ARGUMENT,
                         "no device \"%s\" here: the number after \"%s:\" goes from 0 to %u", text, kind,
                         places.count - 1);
    if (colon || !strcmp(kind, "cpu"))
        return config_add_device(config, kind, &places, (unsigned)number, fault);
    int error = STATUS_OK;
    for (unsigned i = 0; i < places.count && !error; i++)
        error = config_add_device(config, kind, &places, i, fault);
    return error;
}

int config_set_devices(struct config *config, const char *text, struct fault *fault) {
    struct config found = *config;
    char copy[CONFIG_DEVICES_MAX * 16];
    found.devices_auto = !strcmp(text, "auto");
    found.n_devices = 0;
    if (strlen(text) >= sizeof copy)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the list is longer than %zu bytes", sizeof copy - 1);
    snprintf(copy, sizeof copy, "%s", found.devices_auto ? "cpu:0" : text);
    char *rest = copy;
    for (char *part; (part = strsep(&rest, ","));) {
        int error = config_add_devices(&found, config_value_trim(part), fault);
        if (error)
            return error;
    }
    *config = found;
    return STATUS_OK;
}

int config_find_devices(struct config *config, struct fault *fault) {
    struct config found = *config;
    struct config_places places;
    int error = config_list_devices(config, "cuda", &places, fault);
    if (!config->devices_auto || error)
        return error;
    found.n_devices = 0;
    for (unsigned i = 0; i < places.count && i < CONFIG_DEVICES_MAX; i++)
        config_add_device(&found, "cuda", &places, i, fault);
    *config = found;
    return STATUS_OK;
}
