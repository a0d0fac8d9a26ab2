#include "engine/device_impl.h"

#include <stdio.h>
#include <string.h>

/* The kinds of devices there are; a new backend is one row. */
extern const struct device_vtable cpu_device_vtable;
static const struct device_vtable *const device_kinds[] = {&cpu_device_vtable};

enum { DEVICE_KINDS = sizeof device_kinds / sizeof *device_kinds };

static int device_kind_unknown(const char *kind, struct fault *fault) {
    char kinds[128] = "";
    for (size_t i = 0; i < DEVICE_KINDS; i++) {
        size_t used = strlen(kinds);
        snprintf(kinds + used, sizeof kinds - used, "%s%s", i ? ", " : "", device_kinds[i]->kind);
    }
    return fault_set(fault, STATUS_NO_DEVICE, "no devices of kind '%s' here; there are: %s", kind, kinds);
}

int device_open(const char *kind, const struct device_options *options, struct device **device, struct fault *fault) {
    for (size_t i = 0; i < DEVICE_KINDS; i++)
        if (strcmp(device_kinds[i]->kind, kind) == 0)
            return device_kinds[i]->open(options, device, fault);
    return device_kind_unknown(kind, fault);
}

void device_close(struct device *device) {
    if (device)
        device->vtable->close(device);
}

void device_describe(const struct device *device, struct device_info *info) {
    device->vtable->describe(device, info);
}
