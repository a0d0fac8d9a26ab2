/* A file of tensors onto a device: all of them are uploaded, and then named in one step. The file is mapped, so that it is
 * read piece by piece as the socket takes it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/tensorctl/tensorctl_device.h"
#include "proto/files/safetensors.h"
#include "proto/ops/cleanup.h"

/* Of names in one step: what fits a message, and leaves room for other limits of the daemon. */
enum { LOAD_STEP_BYTES = 768 << 10 };

struct load {
    td_device *device;
    struct safetensors file;
    const uint8_t *map;
    size_t map_bytes;
    td_tensor **tensors;
    struct tensorctl_progress progress;
};

/* A mapped file that another program cuts off meanwhile, or a disk that fails. Nothing has been named by then. */
static void load_lost(int number) {
    static const char words[] = "tensorctl: the file can no longer be read\n";
    (void)number;
    (void)!write(STDERR_FILENO, words, sizeof words - 1);
    _exit(EXIT_FAILURE);
}

static int load_map(struct load *load, const char *path, struct fault *fault) {
    struct fault cause;
    struct stat stat;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%.180s: %s", path, strerror(errno));
    int code = safetensors_read(&load->file, fd, &cause);
    if (!code && fstat(fd, &stat))
        code = fault_set(&cause, STATUS_INVALID_ARGUMENT, "%s", strerror(errno));
    if (!code) {
        load->map_bytes = (size_t)stat.st_size;
        void *map = mmap(NULL, load->map_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map == MAP_FAILED)
            code = fault_set(&cause, STATUS_INVALID_ARGUMENT, "%s", strerror(errno));
        else
            load->map = map;
    }
    close(fd);
    return code ? fault_set(fault, (enum status)code, "%.120s: %.130s", path, cause.message) : STATUS_OK;
}

/* The send queue may be full of what was uploaded before. */
static td_tensor *load_upload(struct load *load, const struct safetensors_entry *entry) {
    for (;;) {
        td_tensor *tensor = td_upload(load->device, (td_dtype)entry->type.dtype, entry->type.rank, entry->type.shape,
                                      load->map + load->file.data + entry->begin);
        if (tensor || td_last_error()->code != TD_E_AGAIN || td_sync(load->device))
            return tensor;
    }
}

static int load_upload_all(struct load *load, struct fault *fault) {
    size_t count = load->file.count;
    load->tensors = calloc(count + 1, sizeof(td_tensor *));
    if (!load->tensors)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for %zu tensors", count);
    for (size_t i = 0; i < count; i++)
        load->progress.total += (uint64_t)type_bytes(&load->file.entries[i].type);
    for (size_t i = 0; i < count; i++) {
        if (!(load->tensors[i] = load_upload(load, &load->file.entries[i])))
            return tensorctl_library_fault(fault);
        tensorctl_progress_add(&load->progress, (size_t)type_bytes(&load->file.entries[i].type));
    }
    return STATUS_OK;
}

/* As many from `first` on as go in one step. */
static size_t load_step(const struct load *load, size_t first) {
    size_t bytes = 0, i = first;
    while (i < load->file.count && bytes < LOAD_STEP_BYTES)
        bytes += strlen(load->file.entries[i++].name) + 16;
    return i - first;
}

static int load_publish(struct load *load, bool replace, struct fault *fault) {
    CLEANUP(free) const char **names = calloc(load->file.count + 1, sizeof *names);
    if (!names)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for the names");
    for (size_t i = 0; i < load->file.count; i++)
        names[i] = load->file.entries[i].name;
    for (size_t first = 0, n; first < load->file.count; first += n) {
        n = load_step(load, first);
        if (td_publish_all(n, load->tensors + first, names + first, !replace))
            return tensorctl_library_fault(fault);
    }
    return STATUS_OK;
}

int tensorctl_load(const struct tensorctl_device *about, struct fault *fault) {
    struct load load = {.progress.what = "loading"};
    td_connection *connection = NULL;
    signal(SIGBUS, load_lost);
    int code = load_map(&load, about->file, fault);
    if (!code)
        code = tensorctl_open(about, &connection, &load.device, fault);
    if (!code)
        code = load_upload_all(&load, fault);
    if (!code)
        code = load_publish(&load, about->replace, fault);
    tensorctl_progress_end(&load.progress);
    if (!code)
        tensorctl_progress_tell(&load.progress, load.file.count, "loaded from", about->file);
    td_close(connection);
    if (load.map)
        munmap((void *)(uintptr_t)load.map, load.map_bytes);
    safetensors_finish(&load.file);
    free(load.tensors);
    return code;
}
