#include <string.h>

#include "engine/module.h"

/* The kinds that are part of the program; others come as modules. */
extern const struct device_vtable cpu_device_vtable;
static const struct device_vtable *const device_kinds[] = {&cpu_device_vtable};

static int device_find(const char *kind, const struct device_vtable **vtable, struct fault *fault) {
    for (size_t i = 0; i < sizeof device_kinds / sizeof *device_kinds; i++)
        if (strcmp(device_kinds[i]->kind, kind) == 0) {
            *vtable = device_kinds[i];
            return STATUS_OK;
        }
    return module_load(kind, vtable, fault);
}

int device_find_kernels(const char *kind, const struct device_kernels **kernels, struct fault *fault) {
    const struct device_vtable *vtable;
    int code = device_find(kind, &vtable, fault);
    if (code != STATUS_OK)
        return code;
    if (!vtable->kernels)
        return fault_set(fault, STATUS_UNSUPPORTED, "a %s device takes no user kernels", kind);
    *kernels = vtable->kernels;
    return STATUS_OK;
}

int device_count(const char *kind, unsigned *count, struct fault *fault) {
    const struct device_vtable *vtable;
    *count = 0;
    int code = device_find(kind, &vtable, fault);
    return code == STATUS_OK ? vtable->count(count, fault) : code;
}

int device_list(const char *kind, struct device_place *places, unsigned capacity, unsigned *count,
                struct fault *fault) {
    const struct device_vtable *vtable;
    *count = 0;
    int code = device_find(kind, &vtable, fault);
    if (code != STATUS_OK)
        return code;
    if (vtable->list)
        return vtable->list(places, capacity, count, fault);
    unsigned found;
    code = vtable->count(&found, fault);
    if (code != STATUS_OK)
        return code;
    *count = found < capacity ? found : capacity;
    for (unsigned i = 0; i < *count; i++)
        places[i] = (struct device_place){.index = i};
    return STATUS_OK;
}

int device_open(const char *kind, const struct device_options *options, struct device **device, struct fault *fault) {
    const struct device_vtable *vtable;
    int code = device_find(kind, &vtable, fault);
    return code == STATUS_OK ? vtable->open(options, device, fault) : code;
}

void device_close(struct device *device) {
    if (device)
        device->vtable->close(device);
}

void device_describe(const struct device *device, struct device_info *info) {
    device->vtable->describe(device, info);
}

void device_readings(struct device *device, struct device_readings *readings) {
    *readings = (struct device_readings){0};
    if (device->vtable->readings)
        device->vtable->readings(device, readings);
}

int device_has_kernel(struct device *device, unsigned opcode, enum dtype dtype, struct fault *fault) {
    const struct device_vtable *vtable = device->vtable;
    return (vtable->has_kernel ? vtable->has_kernel : vtable->supports)(device, opcode, dtype, fault);
}
