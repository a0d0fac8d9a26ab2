/* Named tensors into a file. All of them are opened first, so that the file has them as they were at about one time; then
 * they are read in pieces, and the file takes its place when all of it is on the disk. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/tensorctl/tensorctl_device.h"
#include "proto/files/new_file.h"
#include "proto/files/safetensors.h"

enum { SAVE_CHUNK_BYTES = 8 << 20 };

struct save {
    td_device *device;
    struct safetensors_entry *entries; /* their `tensor` is a handle */
    size_t count;
    uint8_t *chunk;
    struct tensorctl_progress progress;
};

static struct new_file save_file; /* for the handler */

/* What has been written so far goes with the program. */
static void save_interrupted(int number) {
    unlink(save_file.temporary);
    _exit(128 + number);
}

static void save_catch(bool on) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], on ? save_interrupted : SIG_DFL);
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit shall fail, and say so */
}

/* ---- what is saved ---- */

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

/* These names, or all there are. Of those a name that goes meanwhile is left out. */
static int save_open_all(struct save *save, const struct tensorctl_device *about, struct fault *fault) {
    td_name_info *infos = NULL;
    size_t count = (size_t)about->n_names;
    int code = about->n_names ? STATUS_OK : tensorctl_list_names(save->device, &infos, &count, fault);
    if (!code && !(save->entries = calloc(count + 1, sizeof *save->entries)))
        code = fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for %zu names", count);
    for (size_t i = 0; i < count && !code; i++) {
        code = save_open_one(save, infos ? infos[i].name : about->names[i], fault);
        if (infos && code == STATUS_UNKNOWN_ID)
            code = STATUS_OK;
    }
    free(infos);
    return code;
}

/* ---- the data ---- */

/* A named value is contiguous, so that none of this copies on the device. */
static int save_piece(struct save *save, td_tensor *flat, int64_t start, int64_t stop, struct fault *fault) {
    td_tensor *piece = td_slice(flat, 0, start, stop, 1);
    size_t bytes = td_tensor_bytes(piece);
    int code = td_fetch(piece, save->chunk, bytes) ? tensorctl_library_fault(fault)
                                                   : new_file_write(&save_file, save->chunk, bytes, fault);
    td_release(piece);
    tensorctl_progress_add(&save->progress, bytes);
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

/* As the old file, or as the user has files made. */
static mode_t save_mode(const char *path) {
    struct stat old;
    mode_t mask = umask(0);
    umask(mask);
    return stat(path, &old) == 0 ? old.st_mode & 0777 : 0666 & ~mask;
}

static int save_replace(struct save *save, const char *path, struct fault *fault) {
    int code = new_file_open(&save_file, path, save_mode(path), fault);
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

int tensorctl_save(const struct tensorctl_device *about, struct fault *fault) {
    struct save save = {.chunk = malloc(SAVE_CHUNK_BYTES), .progress.what = "saving"};
    td_connection *connection = NULL;
    int code = save.chunk ? tensorctl_open(about, &connection, &save.device, fault)
                          : fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for the data");
    if (!code)
        code = save_open_all(&save, about, fault);
    if (!code && !save.count)
        code = fault_set(fault, STATUS_UNKNOWN_ID, "there are no named tensors on %s: nothing is saved", about->device);
    for (size_t i = 0; i < save.count && !code; i++)
        save.progress.total += (uint64_t)type_bytes(&save.entries[i].type);
    if (!code)
        code = save_replace(&save, about->file, fault);
    for (size_t i = 0; i < save.count; i++)
        free(save.entries[i].name);
    free(save.entries);
    tensorctl_progress_end(&save.progress);
    if (!code)
        tensorctl_progress_tell(&save.progress, save.count, "saved to", about->file);
    free(save.chunk);
    td_close(connection);
    return code;
}
