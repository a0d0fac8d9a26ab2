#include "server/http/http_library.h"

#include <dlfcn.h>
#include <stddef.h>

#define HTTP_LIBRARY_FILE "libmicrohttpd.so.12"

int http_library_load(struct http_library *library, struct fault *fault) {
    static const struct {
        const char *name;
        size_t offset;
    } symbols[] = {
#define X(name) {"MHD_" #name, offsetof(struct http_library, name)},
        HTTP_LIBRARY_TABLE(X)
#undef X
    };
    void *file = dlopen(HTTP_LIBRARY_FILE, RTLD_NOW | RTLD_LOCAL);
    if (!file)
        return fault_set(fault, STATUS_UNSUPPORTED, "http: it needs libmicrohttpd: %s", dlerror());
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(file, symbols[i].name);
        if (!address)
            return fault_set(fault, STATUS_UNSUPPORTED, "http: %s has no %s: it is too old", HTTP_LIBRARY_FILE,
                             symbols[i].name);
        *(void **)((char *)library + symbols[i].offset) = address;
    }
    return STATUS_OK;
}
