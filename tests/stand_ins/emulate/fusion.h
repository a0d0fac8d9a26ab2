#pragma once

struct device_vtable;

/* Makes a CUDA device's fused launches the host's. */
void emulated_fusion_init(struct device_vtable *vtable);
