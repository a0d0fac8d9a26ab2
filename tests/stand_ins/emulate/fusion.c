/* Kernels of fused launches on the emulated device, while a test runs: the host's compiler in the place of NVRTC, and the loader in the place of the
 * driver. A kernel becomes a library of its own, which has its own threads of blocks (block.c). Clients' kernels are not for this device. */
#include "tests/stand_ins/emulate/fusion.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/cuda/cuda_device.h"
#include "engine/cuda/fused_text.h"
#include "tests/stand_ins/emulate/graph.h"

typedef void start_function(const void *arguments, unsigned blocks, unsigned shared);

struct host_kernel {
    struct device_kernel base;
    void *library;
    int fd; /* open as long as the library, for the loader knows one by its path */
    start_function *start;
};

static const char head[] = "#include \"tests/stand_ins/emulate/kernel.h\"\n";
/* What starts the kernel of this name. */
static const char tail[] = "static CUstream_st stream;\n"
                           "extern \"C\" const unsigned argument_bytes;\n"
                           "const unsigned argument_bytes = sizeof(%1$s_arguments);\n"
                           "extern \"C\" void start(const void *p, unsigned blocks, unsigned shared) {\n"
                           "    emulate(dim3(blocks), dim3(%2$d), shared, &stream, [](const auto &...a) { %1$s(a...); "
                           "})(*(const %1$s_arguments *)p);\n"
                           "}\n";

static bool write_source(const char *path, const struct kernel_source *source) {
    FILE *file = fopen(path, "w");
    if (!file)
        return false;
    fprintf(file, "%s%s", head, source->text);
    fprintf(file, tail, source->name, FUSED_THREADS);
    return fclose(file) == 0;
}

static struct device_code *read_code(const char *path) {
    FILE *file = fopen(path, "r");
    struct device_code *code = NULL;
    long bytes = file && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : 0;
    if (bytes > 0 && (code = malloc(sizeof *code + (size_t)bytes + 1))) {
        rewind(file);
        code->bytes = fread(code->code, 1, (size_t)bytes, file);
        code->code[bytes] = 0;
        code->symbol = (const char *)code->code + bytes;
    }
    if (file)
        fclose(file);
    return code;
}

static int host_compile(const struct kernel_source *source, const _Atomic bool *cancelled, struct device_code **code,
                        char **log, struct fault *fault) {
    char folder[] = "/tmp/emulated-XXXXXX", from[64], to[64], command[4096];
    (void)cancelled;
    *log = NULL;
    if (!mkdtemp(folder))
        return fault_set(fault, STATUS_INTERNAL, "no folder to compile in");
    snprintf(from, sizeof from, "%s/kernel.cpp", folder);
    snprintf(to, sizeof to, "%s/kernel.so", folder);
    snprintf(command, sizeof command, "%s -o %s %s %s", EMULATED_COMPILER, to, from, EMULATED_BLOCKS);
    *code = write_source(from, source) && system(command) == 0 ? read_code(to) : NULL;
    unlink(from);
    unlink(to);
    rmdir(folder);
    return *code ? STATUS_OK : fault_set(fault, STATUS_INVALID_ARGUMENT, "the source does not compile");
}

static int host_measure(const struct device_code *code, uint64_t *bytes, struct fault *fault) {
    (void)fault;
    *bytes = code->bytes;
    return STATUS_OK;
}

static void host_release(struct device *device, struct device_kernel *released) {
    struct host_kernel *kernel = (struct host_kernel *)released;
    (void)device;
    dlclose(kernel->library);
    close(kernel->fd);
    free(kernel);
}

static int host_load(struct device *device, const struct device_code *code, struct device_kernel **result,
                     struct fault *fault) {
    struct host_kernel *kernel = calloc(1, sizeof *kernel);
    int fd = memfd_create("kernel", MFD_CLOEXEC);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    (void)device;
    if (kernel && fd >= 0 && write(fd, code->code, code->bytes) == (ssize_t)code->bytes)
        kernel->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const unsigned *bytes = kernel && kernel->library ? dlsym(kernel->library, "argument_bytes") : NULL;
    void *start = bytes ? dlsym(kernel->library, "start") : NULL;
    if (!start) {
        free(kernel);
        close(fd);
        return fault_set(fault, STATUS_INTERNAL, "the library cannot be loaded: %s", dlerror());
    }
    memcpy(&kernel->start, &start, sizeof start);
    kernel->fd = fd;
    kernel->base.n_parameters = 1;
    kernel->base.parameter_bytes[0] = *bytes;
    *result = &kernel->base;
    return STATUS_OK;
}

static uint32_t host_target(const struct device *device) {
    (void)device;
    return 0;
}

static struct device_kernels host_kernels = {
    .target = host_target,
    .compile = host_compile,
    .measure = host_measure,
    .load = host_load,
    .release = host_release,
};

/* ---- launches ---- */

struct fused_argument {
    char bytes[FUSED_ARGUMENTS_MAX] __attribute__((aligned(16)));
};

static void fused_run(dim3 grid, dim3 block, size_t shared, const void *const *arguments) {
    start_function *start;
    (void)block;
    memcpy(&start, arguments[0], sizeof start);
    start(arguments[1], grid.x, (unsigned)shared);
}

static int host_launch(struct device *device, struct device_stream *stream, const struct device_kernel *kernel,
                       const struct fused_launch *launch, struct fault *fault) {
    static const size_t sizes[] = {sizeof(start_function *), sizeof(struct fused_argument)};
    static const struct emulated_kernel kind = {2, sizes, fused_run};
    struct fused_argument argument = {0};
    size_t bytes = fused_arguments(launch, argument.bytes);
    const void *const list[] = {&((const struct host_kernel *)kernel)->start, &argument};
    (void)device;
    if (kernel->parameter_bytes[0] != bytes)
        return fault_set(fault, STATUS_INTERNAL, "the kernel takes %u bytes, not %zu", kernel->parameter_bytes[0],
                         bytes);
    emulated_put(stream->cuda.stream, &kind, (dim3){2, 1, 1}, (dim3){FUSED_THREADS, 1, 1}, fused_shared(launch), list);
    return STATUS_OK;
}

void emulated_fusion_init(struct device_vtable *vtable) {
    static struct device_fusion fusion;
    fusion = *vtable->fusion;
    fusion.launch = host_launch;
    vtable->fusion = &fusion;
    host_kernels.launch = vtable->kernels->launch;
    vtable->kernels = &host_kernels;
}
