#include "engine/cuda/nvml.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

static struct nvml library;
static bool loaded;

/* Takes the place of functions that the library does not have. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define X(member, symbol, arguments)                                                                                   \
    static nvml_status missing_##member arguments {                                                                    \
        return NVML_NO_FUNCTION;                                                                                       \
    }
NVML_TABLE(X)
#undef X
#pragma GCC diagnostic pop

/* A function found by its name; an object's pointer becomes a function's by its bytes alone. */
static bool nvml_find(void *handle, const char *symbol, void *function) {
    void *address = dlsym(handle, symbol);
    if (address)
        memcpy(function, &address, sizeof address);
    return address != NULL;
}

static void nvml_open(void) {
    void *handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return;
#define X(member, symbol, arguments)                                                                                   \
    if (!nvml_find(handle, #symbol, &library.member))                                                                  \
        library.member = missing_##member;
    NVML_TABLE(X)
#undef X
    loaded = true; /* never unloaded: a call that hangs may be in it */
}

const struct nvml *nvml_load(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, nvml_open);
    return loaded ? &library : NULL;
}
