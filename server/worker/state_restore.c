/* Restoring saved names, through a session of the worker's own: it uploads and publishes the values as a client
 * would. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/files/file.h"
#include "proto/files/safetensors.h"
#include "proto/ops/cleanup.h"
#include "server/process/log.h"
#include "server/worker/reply.h"
#include "server/worker/service.h"
#include "server/worker/state_impl.h"

enum {
    STATE_ASIDE_MAX = 1000, /* folders of one owner that are put aside */
    STATE_CHUNK_BYTES = 1 << 20,
};

/* ---- values ---- */

struct restore_upload {
    struct upload upload;
    bool room; /* staging memory has become free */
};

static void restore_room(struct upload *upload) {
    ((struct restore_upload *)upload)->room = true;
}

/* Where the next bytes go. NULL: the upload has failed, which its end will report. */
static uint8_t *restore_place(struct state *state, struct restore_upload *restore, int64_t at, int64_t bytes) {
    uint8_t *place = upload_chunk(&restore->upload, at, bytes);
    while (!place && restore->upload.later && !state->service->failed) {
        restore->room = false;
        while (!restore->room && !state->service->failed)
            state->turn(state->owner, true);
        place = upload_chunk(&restore->upload, at, bytes);
    }
    return place;
}

static int restore_bytes(struct state *state, struct restore_upload *restore, int fd, uint64_t from,
                         const struct tensor_type *type, struct fault *fault) {
    int64_t total = type_bytes(type);
    int error = STATUS_OK;
    for (int64_t at = 0; at < total && error == STATUS_OK; at += STATE_CHUNK_BYTES) {
        int64_t bytes = total - at < STATE_CHUNK_BYTES ? total - at : STATE_CHUNK_BYTES;
        uint8_t *place = restore_place(state, restore, at, bytes);
        if (!place)
            break;
        if (!whole_read(fd, place, (size_t)bytes, from + (uint64_t)at))
            error = fault_set(fault, STATUS_INVALID_ARGUMENT, "cannot be read: %s",
                              errno ? strerror(errno) : "it has been cut off");
        /* Kernels may rely on a bool being 0 or 1. */
        if (type->dtype == DTYPE_BOOL)
            for (int64_t i = 0; i < bytes; i++)
                place[i] = place[i] != 0;
        upload_chunk_done(&restore->upload);
        state->turn(state->owner, false);
    }
    return error;
}

/* A failure of the device becomes the tensor's failure, which shows when the tensor is held. */
static int restore_tensor(struct state *state, struct session *session, uint64_t id, int fd, uint64_t from,
                          const struct tensor_type *type, struct fault *fault) {
    struct upload_request request = {.id = id, .type = type, .sequence = id};
    struct restore_upload restore = {.room = false};
    struct failure cause;
    int bound;
    while ((bound = session_upload(session, &request, &restore.upload)) == STATUS_AGAIN)
        state->turn(state->owner, false);
    if (bound != STATUS_OK)
        return STATUS_OK;
    restore.upload.ready = restore_room;
    int error = restore_bytes(state, &restore, fd, from, type, fault);
    if (error != STATUS_OK)
        cause_set(&cause, fault);
    upload_finish(&restore.upload, error == STATUS_OK ? NULL : &cause);
    return error;
}

/* ---- one owner ---- */

/* One file of values. */
struct restore_file {
    uint64_t number;
    int fd;
    struct safetensors file;
};

/* One tensor of a file, with the values of one or more names. */
struct restore_value {
    struct hold hold;
    struct restore *restore;
    const struct restore_file *file;
    const struct safetensors_entry *entry;
    struct saved_value *saved;
};

struct restore {
    struct state *state;
    const char *principal, *folder;
    struct index index;
    struct restore_file *files; /* in the order of their numbers */
    size_t n_files;
    struct restore_value *values; /* in the order of files and keys */
    size_t n_values, waiting;
    struct held **held; /* of each name */
    struct session *session;
    struct fault fault;      /* the first */
    struct state_file *kept; /* becomes the owner's list of files */
};

static void restore_held(struct hold *hold, const struct failure *failure) {
    struct restore *restore = ((struct restore_value *)hold)->restore;
    restore->waiting--;
    if (failure && !restore->fault.code)
        fault_set(&restore->fault, failure->code, "%s", failure->message);
}

/* ---- files ---- */

static int restore_open(struct restore *restore, struct restore_file *file) {
    char path[STATE_FILE_MAX];
    struct fault cause;
    state_file_path(restore->folder, file->number, path);
    file->fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int code = file->fd < 0 ? fault_set(&cause, STATUS_INVALID_ARGUMENT, "%s", strerror(errno))
                            : safetensors_read(&file->file, file->fd, &cause);
    if (code == STATUS_OK)
        return code;
    return fault_set(&restore->fault, (enum status)code, "%s: %.200s", strrchr(path, '/') + 1, cause.message);
}

static int restore_compare_names(const void *a, const void *b) {
    const struct index_name *x = *(const struct index_name *const *)a, *y = *(const struct index_name *const *)b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return strcmp(x->key ? x->key : "", y->key ? y->key : "");
}

static int restore_compare_keys(const void *key, const void *entry) {
    return strcmp(key, (*(const struct safetensors_entry *const *)entry)->name);
}

static int restore_compare_entries(const void *a, const void *b) {
    return strcmp((*(const struct safetensors_entry *const *)a)->name,
                  (*(const struct safetensors_entry *const *)b)->name);
}

/* The tensors of a file, sorted by their names. */
static const struct safetensors_entry **restore_sort(const struct safetensors *file) {
    const struct safetensors_entry **sorted = calloc(file->count + 1, sizeof(struct safetensors_entry *));
    for (size_t i = 0; sorted && i < file->count; i++)
        sorted[i] = &file->entries[i];
    if (sorted)
        qsort(sorted, file->count, sizeof(struct safetensors_entry *), restore_compare_entries);
    return sorted;
}

/* Checks that the bytes of a name lie within its tensor. */
static int restore_check_place(struct restore *restore, const struct index_name *name,
                               const struct safetensors_entry *entry) {
    int64_t end, bytes = type_bytes(&entry->type);
    if (!__builtin_add_overflow(name->begin, type_bytes(&name->type), &end) && end <= bytes &&
        name->begin % (int64_t)dtype_size(name->type.dtype) == 0)
        return STATUS_OK;
    return fault_set(&restore->fault, STATUS_INVALID_ARGUMENT, "\"%.100s\" lies beyond the end of its tensor",
                     name->name);
}

/* Finds the tensors of one file that hold the values of these names. */
static int restore_find(struct restore *restore, struct index_name *const names[], size_t count) {
    struct restore_file *file = &restore->files[restore->n_files++];
    *file = (struct restore_file){.number = names[0]->file};
    int error = restore_open(restore, file);
    if (error != STATUS_OK)
        return error;
    CLEANUP(free) const struct safetensors_entry **sorted = restore_sort(&file->file);
    if (!sorted)
        return fault_set(&restore->fault, STATUS_NO_HOST_MEMORY, "no memory for a list");
    for (size_t i = 0; i < count && error == STATUS_OK; i++) {
        struct restore_value *last = i ? &restore->values[restore->n_values - 1] : NULL;
        if (!last || strcmp(last->entry->name, names[i]->key) != 0) {
            const struct safetensors_entry **found =
                bsearch(names[i]->key, sorted, file->file.count, sizeof *sorted, restore_compare_keys);
            if (!found)
                return fault_set(&restore->fault, STATUS_INVALID_ARGUMENT,
                                 "\"%.100s\" is to lie in a tensor that is not in file %llu", names[i]->name,
                                 (unsigned long long)file->number);
            last = &restore->values[restore->n_values++];
            *last = (struct restore_value){.restore = restore, .file = file, .entry = *found};
        }
        names[i]->value = restore->n_values - 1;
        error = restore_check_place(restore, names[i], last->entry);
    }
    return error;
}

static int restore_find_all(struct restore *restore) {
    size_t count = restore->index.count, first = 0;
    CLEANUP(free) struct index_name **sorted = calloc(count + 1, sizeof *sorted);
    int error = STATUS_OK;
    restore->files = calloc(count + 1, sizeof *restore->files);
    restore->values = calloc(count + 1, sizeof *restore->values);
    restore->held = calloc(count + 1, sizeof *restore->held);
    restore->kept = calloc(count + 1, sizeof *restore->kept);
    if (!sorted || !restore->files || !restore->values || !restore->held || !restore->kept)
        return fault_set(&restore->fault, STATUS_NO_HOST_MEMORY, "no memory for %zu names", count);
    for (size_t i = 0; i < count; i++)
        sorted[i] = &restore->index.names[i];
    qsort(sorted, count, sizeof *sorted, restore_compare_names);
    while (first < count && error == STATUS_OK) {
        size_t next = first + 1;
        while (next < count && sorted[next]->file == sorted[first]->file)
            next++;
        if (sorted[first]->file)
            error = restore_find(restore, sorted + first, next - first);
        first = next;
    }
    return error;
}

/* ---- values ---- */

static int restore_upload_all(struct restore *restore) {
    size_t count = restore->index.count;
    struct session_limits limits = {.tensors = (uint32_t)(restore->n_values + count) + 1};
    int error =
        session_create(engine_sessions(restore->state->service->engine), &limits, &restore->session, &restore->fault);
    for (size_t i = 0; i < restore->n_values && error == STATUS_OK; i++) {
        const struct restore_value *value = &restore->values[i];
        error = restore_tensor(restore->state, restore->session, i + 1, value->file->fd,
                               value->file->file.data + value->entry->begin, &value->entry->type, &restore->fault);
    }
    return error;
}

static int restore_hold_all(struct restore *restore) {
    restore->waiting = restore->n_values;
    for (size_t i = 0; i < restore->n_values; i++) {
        restore->values[i].hold.done = restore_held;
        session_hold(restore->session, i + 1, &restore->values[i].hold); /* done at once: the value is contiguous */
    }
    while (restore->waiting && !restore->state->service->failed)
        restore->state->turn(restore->state->owner, true);
    if (restore->waiting)
        return fault_set(&restore->fault, STATUS_DEVICE_LOST, "the device was lost");
    return (int)restore->fault.code;
}

/* The hold of a value without elements, which lies in no file. */
struct restore_empty {
    struct hold hold;
    struct restore *restore;
    bool came;
};

static void restore_empty_held(struct hold *hold, const struct failure *failure) {
    struct restore_empty *empty = (struct restore_empty *)hold;
    empty->came = true;
    if (failure && !empty->restore->fault.code)
        fault_set(&empty->restore->fault, failure->code, "%s", failure->message);
}

static int restore_make_empty(struct restore *restore, size_t at) {
    const struct index_name *name = &restore->index.names[at];
    struct restore_empty empty = {.hold.done = restore_empty_held, .restore = restore};
    uint64_t id = restore->n_values + at + 1;
    int error = restore_tensor(restore->state, restore->session, id, -1, 0, &name->type, &restore->fault);
    if (error != STATUS_OK)
        return error;
    session_hold(restore->session, id, &empty.hold); /* done at once */
    while (!empty.came && !restore->state->service->failed)
        restore->state->turn(restore->state->owner, true);
    restore->held[at] = empty.hold.held;
    return restore->held[at] ? STATUS_OK : STATUS_DEVICE_LOST;
}

static bool restore_same_type(const struct tensor_type *a, const struct tensor_type *b) {
    return a->dtype == b->dtype && a->rank == b->rank &&
           !memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape);
}

/* Makes the value of a name, in the memory of its tensor. */
static int restore_cut(struct restore *restore, size_t at) {
    const struct index_name *name = &restore->index.names[at];
    if (!name->file)
        return restore_make_empty(restore, at);
    struct restore_value *value = &restore->values[name->value];
    if (!value->saved)
        value->saved = saved_value_create(name->file, name->key, &value->entry->type, 0);
    if (!value->saved)
        return fault_set(&restore->fault, STATUS_NO_HOST_MEMORY, "no memory for a value's place");
    if (name->begin == 0 && restore_same_type(&name->type, &value->entry->type)) {
        restore->held[at] = value->hold.held;
        held_ref(restore->held[at]);
        return STATUS_OK;
    }
    return held_alias(value->hold.held, &name->type, name->begin, &restore->held[at], &restore->fault);
}

/* ---- names ---- */

/* Publishes all names, as far as the device has room, also beyond the principal's limits: a worker learns these only
 * when the principal logs in, and smaller limits take nothing away. */
static int restore_publish(struct restore *restore) {
    struct limits limits = restore->state->service->limits.each;
    size_t count = restore->index.count;
    CLEANUP(free) const char **names = calloc(count + 1, sizeof *names);
    int error = names ? STATUS_OK : fault_set(&restore->fault, STATUS_NO_HOST_MEMORY, "no memory for %zu names", count);
    for (size_t i = 0; i < count && error == STATUS_OK; i++) {
        names[i] = restore->index.names[i].name;
        error = restore_cut(restore, i);
    }
    limits.named_bytes = 0;
    limits.named_tensors = LIMITS_NAMED_TENSORS_MAX;
    if (error == STATUS_OK && count)
        error = names_publish(&restore->state->service->names, restore->principal, &limits, restore->held, names,
                              (unsigned)count, true, &restore->fault);
    return error;
}

/* Notes that all of this is on the disk. */
static void restore_mark(struct restore *restore) {
    struct name_owner *owner = names_owner(&restore->state->service->names, restore->principal);
    struct state_owner *disk = owner ? owner->disk : NULL;
    if (!disk)
        return;
    for (size_t i = 0; i < restore->index.count; i++) {
        const struct index_name *name = &restore->index.names[i];
        struct name_entry *entry = names_entry(owner, name->name);
        entry->on_disk = true;
        entry->saved = name->file ? restore->values[name->value].saved : NULL;
        if (entry->saved)
            entry->saved->references++;
    }
    disk->files = restore->kept;
    restore->kept = NULL;
    for (size_t i = 0; i < restore->n_files; i++) {
        const struct safetensors *file = &restore->files[i].file;
        uint64_t bytes = file->count ? file->entries[file->count - 1].end : 0;
        disk->files[disk->n_files++] = (struct state_file){restore->files[i].number, bytes};
        if (restore->files[i].number >= disk->next_file)
            disk->next_file = restore->files[i].number + 1;
    }
    disk->saved = disk->revision;
    state_count_dirty(restore->state, -1);
    disk->bound = disk->unbound = 0;
    disk->since_ns = disk->bytes = 0;
    state_sweep_folder(restore->folder, disk->files, disk->n_files);
}

static void restore_finish(struct restore *restore) {
    for (size_t i = 0; restore->held && i < restore->index.count; i++)
        held_unref(restore->held[i]);
    for (size_t i = 0; restore->values && i < restore->n_values; i++) {
        if (restore->values[i].hold.session)
            hold_cancel(&restore->values[i].hold);
        saved_value_unref(restore->values[i].saved);
    }
    for (size_t i = 0; restore->files && i < restore->n_files; i++) {
        safetensors_finish(&restore->files[i].file);
        if (restore->files[i].fd >= 0)
            close(restore->files[i].fd);
    }
    session_destroy(restore->session);
    free(restore->held);
    free(restore->values);
    free(restore->files);
    free(restore->kept);
    index_finish(&restore->index);
}

static int restore_folder(struct state *state, const char *folder, const char *principal, struct fault *fault) {
    struct restore restore = {.state = state, .principal = principal, .folder = folder};
    char path[STATE_FILE_MAX], count[24];
    state_index_path(folder, path);
    int error = index_read(&restore.index, path, &restore.fault);
    if (error == STATUS_OK)
        error = restore_find_all(&restore);
    if (error == STATUS_OK)
        error = restore_upload_all(&restore);
    if (error == STATUS_OK)
        error = restore_hold_all(&restore);
    if (error == STATUS_OK)
        error = restore_publish(&restore);
    if (error == STATUS_OK) {
        restore_mark(&restore);
        log_event(LOG_LEVEL_INFO, "names_restored", "principal", principal, "names",
                  log_text(count, sizeof count, "%zu", restore.index.count), "folder", folder, NULL);
    } else {
        *fault = restore.fault;
    }
    restore_finish(&restore);
    return error;
}

/* ---- folders that cannot be restored ---- */

/* Renames the folder to a name that does not exist. */
static bool restore_put_aside(const char *path, char *aside, size_t size) {
    for (unsigned i = 1; i <= STATE_ASIDE_MAX; i++) {
        if (i == 1)
            snprintf(aside, size, "%s.refused", path);
        else
            snprintf(aside, size, "%s.refused.%u", path, i);
        if (renameat2(AT_FDCWD, path, AT_FDCWD, aside, RENAME_NOREPLACE) == 0)
            return true;
        if (errno != EEXIST)
            return false;
    }
    return false;
}

static void restore_refuse(struct state *state, const char *path, const char *principal, const struct fault *why) {
    char aside[STATE_PATH_MAX + STATE_NAME_MAX + 32];
    bool moved = restore_put_aside(path, aside, sizeof aside);
    struct names *names = &state->service->names;
    log_event(LOG_LEVEL_ERROR, "names_refused", "principal", principal, "folder", path, "cause", why->message, "kept",
              moved ? aside : path, NULL);
    state->sealed = state->sealed || !moved;
    if (!*names->fault)
        snprintf(names->fault, sizeof names->fault, "those of %s are not restored: %.130s", principal, why->message);
}

/* ---- all of them ---- */

/* Whether a folder has no index: it is left of a save that did not end, or of an owner without names. */
static bool restore_is_leftover(const char *folder) {
    char path[STATE_FILE_MAX];
    state_index_path(folder, path);
    return access(path, F_OK) && errno == ENOENT;
}

static void restore_entry(struct state *state, const char *name) {
    char principal[PRINCIPAL_NAME_BYTES], path[STATE_PATH_MAX + STATE_NAME_MAX + 2];
    struct stat stat_now;
    struct fault fault;
    state_path(state, name, path, sizeof path);
    if (!state_folder_principal(state, name, principal) || lstat(path, &stat_now) || !S_ISDIR(stat_now.st_mode))
        return;
    if (restore_is_leftover(path))
        state_sweep_folder(path, NULL, 0);
    else if (restore_folder(state, path, principal, &fault) != STATUS_OK &&
             !state->service->failed) /* a lost device is not the folder's fault: the next worker tries again */
        restore_refuse(state, path, principal, &fault);
}

void state_restore(struct state *state) {
    DIR *directory;
    struct dirent *entry;
    uint64_t sync_ms = state->sync_ms;
    if (!*state->directory)
        return;
    directory = opendir(state->directory);
    if (!directory) {
        state->sealed = true;
        log_event(LOG_LEVEL_ERROR, "names_refused", "folder", state->directory, "cause", strerror(errno), NULL);
        snprintf(state->service->names.fault, sizeof state->service->names.fault, "none are restored: %.100s: %s",
                 state->directory, strerror(errno));
        return;
    }
    state->sync_ms = STATE_SYNC_DRAIN; /* restored names are on the disk already */
    while (!state->service->failed && (entry = readdir(directory)))
        restore_entry(state, entry->d_name);
    state->sync_ms = sync_ms;
    closedir(directory);
}
