/* The module of the kind "emulated": the CUDA device, cuda_device.c and all that it calls, on runtime.c's CUDA. */
#include "engine/device/module.h"
#include "tests/stand_ins/emulate/fusion.h"

extern const struct device_vtable cuda_device_vtable;

static struct device_vtable emulated_vtable;

extern const struct device_module tensord_device_module;
__attribute__((visibility("default"))) const struct device_module tensord_device_module = {
    .abi = DEVICE_MODULE_ABI,
    .vtable = &emulated_vtable,
};

static int emulated_open(const struct device_options *options, struct device **device, struct fault *fault) {
    int code = cuda_device_vtable.open(options, device, fault);
    if (code == STATUS_OK)
        (*device)->vtable = &emulated_vtable;
    return code;
}

/* When the module is loaded. */
__attribute__((constructor)) static void emulated_init(void) {
    emulated_vtable = cuda_device_vtable;
    emulated_vtable.kind = "emulated";
    emulated_vtable.open = emulated_open;
    emulated_fusion_init(&emulated_vtable);
}
