#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "engine/device/module.h"

/* ---- modules ---- */

/* The kind becomes part of a file's name. */
static bool module_kind_valid(const char *kind) {
    size_t length = strspn(kind, "abcdefghijklmnopqrstuvwxyz");
    return length > 0 && length < 16 && !kind[length];
}

/* Loads the module of a kind; it stays loaded. STATUS_NO_DEVICE where there is none, with the loader's words. */
static int module_load(const char *kind, const struct device_vtable **vtable, struct fault *fault) {
    char name[48];
    if (!module_kind_valid(kind))
        return fault_set(fault, STATUS_NO_DEVICE, "'%.32s' is no kind of device", kind);
    snprintf(name, sizeof name, "libtensord-%s.so", kind);
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library)
        return fault_set(fault, STATUS_NO_DEVICE, "%s", dlerror());
    const struct device_module *module = dlsym(library, "tensord_device_module");
    if (!module || module->abi != DEVICE_MODULE_ABI || strcmp(module->vtable->kind, kind)) {
        fault_set(fault, STATUS_NO_DEVICE, "%s is no module of this version of tensord", name);
        dlclose(library);
        return (int)fault->code;
    }
    *vtable = module->vtable;
    return STATUS_OK;
}

/* ---- kinds ---- */

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
    if (code == STATUS_OK)
        code = vtable->open(options, device, fault);
    if (code == STATUS_OK)
        device_note_dtypes(*device);
    return code;
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

void device_note_dtypes(struct device *device) {
    for (unsigned opcode = 0; opcode < OP_CODE_MAX; opcode++) {
        const struct op_kernel *kernel = device->vtable->operations[opcode];
        if (!kernel || kernel->reason)
            device->dtypes[opcode] = 0;
        else
            device->dtypes[opcode] = kernel->dtypes ? kernel->dtypes(device, opcode) : UINT32_MAX;
        for (enum dtype dtype = DTYPE_C64; dtype <= DTYPE_C128 && device_takes_parts(opcode); dtype++)
            device->dtypes[opcode] |= (device->dtypes[opcode] >> dtype_real(dtype) & 1) << dtype;
    }
}

int device_has_kernel(const struct device *device, unsigned opcode, enum dtype dtype, struct fault *fault) {
    const struct op_info *info = op_info(opcode);
    const struct op_kernel *kernel = info ? device->vtable->operations[opcode] : NULL;
    if (!info)
        return fault_set(fault, STATUS_UNSUPPORTED, "%u is no operation", opcode);
    if (!kernel || kernel->parts || device->dtypes[opcode] >> dtype & 1)
        return STATUS_OK;
    const char *kind = device->vtable->kind;
    if (kernel->reason)
        return fault_set(fault, STATUS_UNSUPPORTED, "a %s device has no %s: %s", kind, info->name, kernel->reason);
    return fault_set(fault, STATUS_UNSUPPORTED, "a %s device has no kernel for %s of %s", kind, info->name,
                     dtype_name(dtype));
}
