#include "engine/device/module.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* The kind becomes part of a file's name. */
static bool module_kind_valid(const char *kind) {
    size_t length = strspn(kind, "abcdefghijklmnopqrstuvwxyz");
    return length > 0 && length < 16 && !kind[length];
}

int module_load(const char *kind, const struct device_vtable **vtable, struct fault *fault) {
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
