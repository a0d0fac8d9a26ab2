#include "engine/cuda/compiler.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

/* ---- NVRTC ---- */

/* NVRTC's header is a package of its own, so the declarations that are used stand here. */
typedef struct nvrtc_program *nvrtc_program;
enum { NVRTC_OK = 0, NVRTC_OUT_OF_MEMORY = 1, NVRTC_COMPILATION = 6, NVRTC_NO_SUCH_NAME = 10, NVRTC_CANCELLED = 16 };

static struct {
    pthread_once_t once;
    void *library;
    char why[200];
    char includes[2][PATH_MAX + 64]; /* options that name CUDA's headers; "" where they were not found */
    const char *(*error_string)(int);
    int (*count_archs)(int *);
    int (*archs)(int *);
    int (*create)(nvrtc_program *, const char *, const char *, int, const char *const *, const char *const *);
    int (*destroy)(nvrtc_program *);
    int (*add_name)(nvrtc_program, const char *);
    int (*lowered_name)(nvrtc_program, const char *, const char **);
    int (*compile)(nvrtc_program, int, const char *const *);
    int (*log_size)(nvrtc_program, size_t *);
    int (*log)(nvrtc_program, char *);
    int (*cubin_size)(nvrtc_program, size_t *);
    int (*cubin)(nvrtc_program, char *);
    int (*ptx_size)(nvrtc_program, size_t *);
    int (*ptx)(nvrtc_program, char *);
    int (*set_callback)(nvrtc_program, int (*)(void *, void *), void *); /* NULL before CUDA 12.9 */
} nvrtc = {.once = PTHREAD_ONCE_INIT};

static const struct {
    const char *name;
    void *place; /* of a pointer to a function */
    bool optional;
} nvrtc_symbols[] = {
    {"nvrtcGetErrorString", &nvrtc.error_string, false}, {"nvrtcGetNumSupportedArchs", &nvrtc.count_archs, false},
    {"nvrtcGetSupportedArchs", &nvrtc.archs, false},     {"nvrtcCreateProgram", &nvrtc.create, false},
    {"nvrtcDestroyProgram", &nvrtc.destroy, false},      {"nvrtcAddNameExpression", &nvrtc.add_name, false},
    {"nvrtcGetLoweredName", &nvrtc.lowered_name, false}, {"nvrtcCompileProgram", &nvrtc.compile, false},
    {"nvrtcGetProgramLogSize", &nvrtc.log_size, false},  {"nvrtcGetProgramLog", &nvrtc.log, false},
    {"nvrtcGetCUBINSize", &nvrtc.cubin_size, false},     {"nvrtcGetCUBIN", &nvrtc.cubin, false},
    {"nvrtcGetPTXSize", &nvrtc.ptx_size, false},         {"nvrtcGetPTX", &nvrtc.ptx, false},
    {"nvrtcSetFlowCallback", &nvrtc.set_callback, true},
};

static bool nvrtc_find_symbols(void) {
    for (size_t i = 0; i < sizeof nvrtc_symbols / sizeof *nvrtc_symbols; i++) {
        void *symbol = dlsym(nvrtc.library, nvrtc_symbols[i].name);
        if (!symbol && !nvrtc_symbols[i].optional) {
            snprintf(nvrtc.why, sizeof nvrtc.why, "NVRTC without %s", nvrtc_symbols[i].name);
            return false;
        }
        memcpy(nvrtc_symbols[i].place, &symbol, sizeof symbol);
    }
    return true;
}

/* The directory of the file from which this address is loaded, links resolved; "": it is not known. */
static void library_directory(const void *address, char directory[PATH_MAX]) {
    Dl_info info;
    char *slash = NULL;
    directory[0] = 0;
    if (dladdr(address, &info) && info.dli_fname && realpath(info.dli_fname, directory))
        slash = strrchr(directory, '/');
    if (slash)
        *slash = 0;
    else
        directory[0] = 0;
}

/* Makes an option for a folder of headers, if the folder has this header. */
static bool nvrtc_add_headers(const char *libraries, const char *folder, const char *header, char *option) {
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/../%s/%s", libraries, folder, header);
    if (access(path, R_OK) != 0)
        return false;
    snprintf(option, sizeof nvrtc.includes[0], "-I%s/../%s", libraries, folder);
    return true;
}

/* CUDA's headers lie beside its libraries; <cuda/std/...> is in a folder of its own from CUDA 13 on. */
static void nvrtc_find_headers(void) {
    char directory[PATH_MAX];
    library_directory(dlsym(nvrtc.library, "nvrtcCompileProgram"), directory);
    const char *const places[] = {directory, "/usr/local/cuda/lib64"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (nvrtc_add_headers(places[i], "include", "cuda_fp16.h", nvrtc.includes[0])) {
            nvrtc_add_headers(places[i], "include/cccl", "cuda/std/version", nvrtc.includes[1]);
            return;
        }
}

/* Looks first in the directory of the CUDA runtime that is in use, then where the loader looks. NVRTC must have the runtime's major version:
 * code from a later NVRTC would need a later driver. */
static void *nvrtc_open(char why[200]) {
    char directory[PATH_MAX], name[32], path[PATH_MAX + 40];
    void *library = NULL;
    snprintf(name, sizeof name, "libnvrtc.so.%d", CUDART_VERSION / 1000);
    library_directory((const void *)(uintptr_t)cudaRuntimeGetVersion, directory);
    snprintf(path, sizeof path, "%s/%s", directory, name);
    if (*directory)
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    const char *error = library ? NULL : dlerror();
    if (!library)
        snprintf(why, 200, "%.190s", error ? error : name);
    return library;
}

static void nvrtc_load(void) {
    nvrtc.library = nvrtc_open(nvrtc.why);
    if (!nvrtc.library)
        return;
    if (nvrtc_find_symbols())
        nvrtc_find_headers();
}

/* ---- one compilation ---- */

struct compilation {
    const struct kernel_source *source;
    const _Atomic bool *cancelled;
    nvrtc_program program;
    char architecture[40]; /* an option */
    bool ptx;              /* NVRTC does not know the device: code that the driver translates */
};

static int compiler_fault(struct fault *fault, int error, const char *call) {
    enum status code = error == NVRTC_OUT_OF_MEMORY ? STATUS_NO_HOST_MEMORY : STATUS_INTERNAL;
    return fault_set(fault, code, "%s: %s", call, nvrtc.error_string(error));
}

/* Called by any of NVRTC's threads. 1: NVRTC is to give up; from then on it always returns 1. */
static int compiler_asks(void *payload, void *unused) {
    const struct compilation *compilation = payload;
    (void)unused;
    return atomic_load(compilation->cancelled);
}

/* The newest architecture that NVRTC knows and the device can run. */
static int compiler_architecture(struct compilation *compilation, struct fault *fault) {
    int known[256], count = 0, best = 0, capability = (int)compilation->source->target;
    int error = nvrtc.count_archs(&count);
    if (!error && count > (int)(sizeof known / sizeof *known))
        count = 0;
    if (!error && count > 0)
        error = nvrtc.archs(known);
    if (error)
        return compiler_fault(fault, error, "nvrtcGetSupportedArchs");
    for (int i = 0; i < count; i++)
        if (known[i] <= capability && known[i] > best)
            best = known[i];
    if (!best)
        return fault_set(fault, STATUS_UNSUPPORTED, "this NVRTC compiles nothing for compute capability %d.%d",
                         capability / 10, capability % 10);
    compilation->ptx = best != capability;
    /* From Hopper on, instructions that only one architecture has (wgmma, setmaxnreg, tcgen05) need the suffix "a". Such code runs on no
     * other architecture, which is fine: it is compiled for this device. */
    snprintf(compilation->architecture, sizeof compilation->architecture, "--gpu-architecture=%s_%d%s",
             compilation->ptx ? "compute" : "sm", best, !compilation->ptx && best >= 90 ? "a" : "");
    return STATUS_OK;
}

static char *compiler_log(nvrtc_program program) {
    size_t bytes = 0;
    char *log;
    if (nvrtc.log_size(program, &bytes) || bytes < 2 || !(log = malloc(bytes + 1)))
        return NULL;
    log[bytes] = 0;
    if (nvrtc.log(program, log)) {
        free(log);
        return NULL;
    }
    return log;
}

/* The message is the first line of the log that has an error. */
static int compiler_refuses(const struct compilation *compilation, const char *log, struct fault *fault) {
    const char *line = log ? strstr(log, "error") : NULL;
    while (line && line > log && line[-1] != '\n')
        line--;
    if (atomic_load(compilation->cancelled))
        return fault_set(fault, STATUS_CANCELLED, "nobody waits for it any more");
    enum status code =
        log && strstr(log, "catastrophic error: out of memory") ? STATUS_NO_HOST_MEMORY : STATUS_INVALID_ARGUMENT;
    return fault_set(fault, code, "%.*s", line ? (int)strcspn(line, "\n") : 100,
                     line ? line : "the source does not compile");
}

static struct device_code *code_create(size_t bytes, const char *symbol) {
    size_t name = strlen(symbol) + 1;
    struct device_code *code = malloc(sizeof *code + bytes + name);
    if (!code)
        return NULL;
    code->bytes = bytes;
    code->symbol = memcpy(code->code + bytes, symbol, name);
    return code;
}

static int compiler_take(const struct compilation *compilation, struct device_code **result, struct fault *fault) {
    nvrtc_program program = compilation->program;
    const char *name = compilation->source->name, *symbol = NULL;
    size_t bytes = 0;
    int error = nvrtc.lowered_name(program, name, &symbol);
    if (error && error != NVRTC_NO_SUCH_NAME)
        return compiler_fault(fault, error, "nvrtcGetLoweredName");
    if (error)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the source has no kernel %.100s: %s", name,
                         nvrtc.error_string(error));
    error = compilation->ptx ? nvrtc.ptx_size(program, &bytes) : nvrtc.cubin_size(program, &bytes);
    if (error)
        return compiler_fault(fault, error, "nvrtcGetCUBINSize");
    struct device_code *code = code_create(bytes, symbol);
    if (!code)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for %zu bytes of code", bytes);
    error = compilation->ptx ? nvrtc.ptx(program, (char *)code->code) : nvrtc.cubin(program, (char *)code->code);
    if (error) {
        free(code);
        return compiler_fault(fault, error, "nvrtcGetCUBIN");
    }
    *result = code;
    return STATUS_OK;
}

static int compiler_compile(struct compilation *compilation, struct device_code **code, char **log,
                            struct fault *fault) {
    const char *options[] = {compilation->architecture, "--std=c++17", nvrtc.includes[0], nvrtc.includes[1]};
    int n = !*nvrtc.includes[0] ? 2 : !*nvrtc.includes[1] ? 3 : 4;
    int error = nvrtc.add_name(compilation->program, compilation->source->name);
    if (error)
        return compiler_fault(fault, error, "nvrtcAddNameExpression");
    if (nvrtc.set_callback)
        nvrtc.set_callback(compilation->program, compiler_asks, compilation);
    error = nvrtc.compile(compilation->program, n, options);
    *log = compiler_log(compilation->program);
    if (error == NVRTC_COMPILATION || error == NVRTC_CANCELLED || error == NVRTC_NO_SUCH_NAME)
        return compiler_refuses(compilation, *log, fault);
    if (error)
        return compiler_fault(fault, error, "nvrtcCompileProgram");
    return compiler_take(compilation, code, fault);
}

/* NVRTC writes the name into a line of the source, after a directive of its own. A name with a newline would add lines to the source, and
 * these could include files of the host. */
static int compiler_check_name(const char *name, struct fault *fault) {
    for (const char *at = name; *at; at++)
        if (*at < 0x20 || *at > 0x7e || strchr("#%\\\"?", *at))
            return fault_set(fault, STATUS_INVALID_ARGUMENT,
                             "byte %d of the kernel's name is 0x%02x, which no name or template argument needs",
                             (int)(at - name), (unsigned)(unsigned char)*at);
    return STATUS_OK;
}

int compiler_run(const struct kernel_source *source, const _Atomic bool *cancelled, struct device_code **code,
                 char **log, struct fault *fault) {
    struct compilation compilation = {.source = source, .cancelled = cancelled};
    *log = NULL;
    pthread_once(&nvrtc.once, nvrtc_load);
    if (*nvrtc.why)
        return fault_set(fault, STATUS_UNSUPPORTED, "user kernels need NVRTC: %.180s", nvrtc.why);
    int status = compiler_check_includes(source->text, fault);
    if (status == STATUS_OK)
        status = compiler_check_name(source->name, fault);
    if (status == STATUS_OK)
        status = compiler_architecture(&compilation, fault);
    if (status != STATUS_OK)
        return status;
    int error = nvrtc.create(&compilation.program, source->text, "kernel.cu", 0, NULL, NULL);
    if (error)
        return compiler_fault(fault, error, "nvrtcCreateProgram");
    status = compiler_compile(&compilation, code, log, fault);
    nvrtc.destroy(&compilation.program);
    return status;
}

/* Versions of one number differ by their size. The library does not stay: it takes 30 MB, and others compile by it. */
void compiler_words(char words[KERNEL_COMPILER_MAX]) {
    char why[200];
    struct stat file;
    Dl_info info;
    int major = 0, minor = 0;
    int (*version)(int *, int *) = NULL;
    void *library = nvrtc_open(why), *symbol = library ? dlsym(library, "nvrtcVersion") : NULL;
    *words = 0;
    memcpy(&version, &symbol, sizeof symbol);
    if (symbol && !version(&major, &minor) && dladdr(symbol, &info) && !stat(info.dli_fname, &file))
        snprintf(words, KERNEL_COMPILER_MAX, "NVRTC %d.%d of %lld bytes, C++17", major, minor, (long long)file.st_size);
    if (library)
        dlclose(library);
}
