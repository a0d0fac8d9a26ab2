/* Named tensors to a file, and from a file. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/tensorctl/command.h"
#include "proto/files/file.h"
#include "proto/files/safetensors.h"
#include "proto/ops/cleanup.h"

/* ---- how far a transfer is: one line of a terminal, which is written over; nothing elsewhere, or for few bytes ---- */

struct progress {
    const char *what; /* "saving" */
    uint64_t total, done, shown;
};

enum { PROGRESS_LEAST_BYTES = 64 << 20, PROGRESS_STEP_BYTES = 16 << 20 };

static void progress_add(struct progress *progress, size_t bytes) {
    char done[TEXT_UNIT_MAX], total[TEXT_UNIT_MAX];
    progress->done += bytes;
    if (progress->total < PROGRESS_LEAST_BYTES || progress->done - progress->shown < PROGRESS_STEP_BYTES ||
        !isatty(STDERR_FILENO))
        return;
    progress->shown = progress->done;
    fprintf(stderr, "\r%s: %s of %s, %.0f %%\033[K", progress->what, text_bytes(done, (double)progress->done),
            text_bytes(total, (double)progress->total), 100 * (double)progress->done / (double)progress->total);
    fflush(stderr);
}

/* Clears the line. */
static void progress_end(struct progress *progress) {
    if (progress->shown)
        fputs("\r\033[K", stderr);
    progress->shown = 0;
}

/* "16 tensors, 1.30 KiB, saved to FILE" */
static void progress_tell(const struct progress *progress, size_t tensors, const char *done, const char *file) {
    char bytes[TEXT_UNIT_MAX];
    printf("%zu tensor%s, %s, %s %s\n", tensors, tensors == 1 ? "" : "s", text_bytes(bytes, (double)progress->total),
           done, file);
}

/* ---- saving ----
 *
 * The command opens all tensors first, so that the file has the values of about one moment. Then it fetches them in pieces. The new
 * file replaces an old one when all of it is on the disk. */

enum { SAVE_CHUNK_BYTES = 8 << 20 };

struct save {
    td_device *device;
    struct safetensors_entry *entries; /* the member `tensor` of each is a handle */
    size_t count;
    uint8_t *chunk;
    struct progress progress;
};

static struct new_file save_file; /* global, because the signal handler needs it */

/* The program ends: removes what has been written so far. */
static void save_interrupted(int number) {
    unlink(save_file.temporary);
    _exit(128 + number);
}

static void save_catch(bool on) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], on ? save_interrupted : SIG_DFL);
    signal(SIGXFSZ, SIG_IGN); /* so that a write beyond the limit of file sizes fails with an error */
}

/* ---- the names ---- */

static int save_open_one(struct save *save, const char *name, struct fault *fault) {
    struct safetensors_entry *entry = &save->entries[save->count];
    td_tensor *tensor = td_open(save->device, name);
    if (!tensor)
        return tensorctl_library_fault(fault);
    entry->tensor = tensor;
    entry->name = strdup(name);
    if (!entry->name)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a name");
    save->count++;
    return type_make(&entry->type, (int64_t)td_tensor_dtype(tensor), td_tensor_shape(tensor),
                     (size_t)td_tensor_rank(tensor), fault);
}

/* Opens the names of the command line, or all names. In the list of all names, a name that disappears meanwhile is left out. */
static int save_open_all(struct save *save, const struct tensorctl *ctl, struct fault *fault) {
    td_name_info *infos = NULL;
    size_t count = (size_t)ctl->n_words - 2;
    int code = count ? STATUS_OK : tensorctl_list_names(save->device, &infos, &count, fault);
    if (!code && !(save->entries = calloc(count + 1, sizeof *save->entries)))
        code = fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for %zu names", count);
    for (size_t i = 0; i < count && !code; i++) {
        code = save_open_one(save, infos ? infos[i].name : ctl->words[2 + i], fault);
        if (infos && code == STATUS_UNKNOWN_ID)
            code = STATUS_OK;
    }
    free(infos);
    return code;
}

/* ---- the data ---- */

/* A named value is contiguous, so neither reshape nor slice copies on the device. */
static int save_piece(struct save *save, td_tensor *flat, int64_t start, int64_t stop, struct fault *fault) {
    td_tensor *piece = td_slice(flat, 0, start, stop, 1);
    size_t bytes = td_tensor_bytes(piece);
    int code = td_fetch(piece, save->chunk, bytes) ? tensorctl_library_fault(fault)
                                                   : new_file_write(&save_file, save->chunk, bytes, fault);
    td_release(piece);
    progress_add(&save->progress, bytes);
    return code;
}

static int save_tensor(struct save *save, const struct safetensors_entry *entry, struct fault *fault) {
    int64_t elements = type_elements(&entry->type);
    int64_t step = SAVE_CHUNK_BYTES / (int64_t)dtype_size(entry->type.dtype);
    int code = STATUS_OK;
    if (elements == 0)
        return STATUS_OK;
    td_tensor *flat = td_reshape(entry->tensor, TD_SHAPE(elements));
    for (int64_t at = 0; at < elements && !code; at += step)
        code = save_piece(save, flat, at, at + step < elements ? at + step : elements, fault);
    td_release(flat);
    return code;
}

static int save_write(struct save *save, struct fault *fault) {
    uint8_t *head = NULL;
    size_t head_bytes = 0;
    int code = safetensors_lay_out(save->entries, save->count, &head, &head_bytes, fault);
    if (!code)
        code = new_file_write(&save_file, head, head_bytes, fault);
    free(head);
    for (size_t i = 0; i < save->count && !code; i++)
        code = save_tensor(save, &save->entries[i], fault);
    return code;
}

static int save_replace(struct save *save, const char *path, struct fault *fault) {
    int code = new_file_open(&save_file, path, new_file_mode(path), fault);
    if (code)
        return code;
    save_catch(true);
    code = save_write(save, fault);
    if (!code)
        code = new_file_commit(&save_file, fault);
    new_file_abandon(&save_file);
    save_catch(false);
    return code;
}

int tensorctl_save(struct tensorctl *ctl, struct fault *fault) {
    struct save save = {.chunk = malloc(SAVE_CHUNK_BYTES), .progress.what = "saving"};
    td_connection *connection = NULL;
    int code = save.chunk ? tensorctl_open(ctl, &connection, &save.device, fault)
                          : fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for the data");
    if (!code)
        code = save_open_all(&save, ctl, fault);
    if (!code && !save.count)
        code = fault_set(fault, STATUS_UNKNOWN_ID, "there are no named tensors on %s: nothing is saved", ctl->words[0]);
    for (size_t i = 0; i < save.count && !code; i++)
        save.progress.total += (uint64_t)type_bytes(&save.entries[i].type);
    if (!code)
        code = save_replace(&save, ctl->words[1], fault);
    for (size_t i = 0; i < save.count; i++)
        free(save.entries[i].name);
    free(save.entries);
    progress_end(&save.progress);
    if (!code)
        progress_tell(&save.progress, save.count, "saved to", ctl->words[1]);
    free(save.chunk);
    td_close(connection);
    return code;
}

/* ---- loading ----
 *
 * The command uploads all tensors of the file, and then names them in one step. It maps the file, so the file is read piece by
 * piece as the socket takes the bytes. */

/* Bytes of names in one step: they fit a message, and other limits of the daemon. */
enum { LOAD_STEP_BYTES = 768 << 10 };

struct load {
    td_device *device;
    struct safetensors file;
    const uint8_t *map;
    size_t map_bytes;
    td_tensor **tensors;
    struct progress progress;
};

/* Another program has cut off the mapped file, or the disk has failed. No tensor has been named yet. */
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

/* If the send queue is full of earlier uploads, it waits. */
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
        progress_add(&load->progress, (size_t)type_bytes(&load->file.entries[i].type));
    }
    return STATUS_OK;
}

/* The number of entries from `first` on that go in one step. */
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

int tensorctl_load(struct tensorctl *ctl, struct fault *fault) {
    struct load load = {.progress.what = "loading"};
    td_connection *connection = NULL;
    signal(SIGBUS, load_lost);
    int code = load_map(&load, ctl->words[1], fault);
    if (!code)
        code = tensorctl_open(ctl, &connection, &load.device, fault);
    if (!code)
        code = load_upload_all(&load, fault);
    if (!code)
        code = load_publish(&load, ctl->replace, fault);
    progress_end(&load.progress);
    if (!code)
        progress_tell(&load.progress, load.file.count, "loaded from", ctl->words[1]);
    td_close(connection);
    if (load.map)
        munmap((void *)(uintptr_t)load.map, load.map_bytes);
    safetensors_finish(&load.file);
    free(load.tensors);
    return code;
}
