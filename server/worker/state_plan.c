/* What one save of an owner's names writes. Everything here runs on the disk's thread, on entries that the save holds
 * and that do not change. */
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
#include "server/worker/state_impl.h"

/* Files of at most so many bytes are merged with others. */
enum { PLAN_SMALL_BYTES = 1 << 20 };

/* One name, and where its value lies. */
struct plan_item {
    struct held_place place;
    size_t entry;
};

/* Names whose values share a storage. */
struct plan_group {
    struct plan_item *items;
    size_t count;
    int64_t begin, end;        /* bytes of the storage that the names show */
    struct saved_value *value; /* where these bytes are; NULL: they are to be written */
    bool added;                /* the value is a new one */
};

struct plan_file {
    struct state_file file;
    uint64_t live; /* bytes of it that some name needs */
    bool again;    /* its live bytes are written again */
};

struct planning {
    struct save_plan *plan;
    struct plan_item *items;
    size_t n_items;
    struct plan_group *groups;
    size_t n_groups;
    struct plan_file *files;
    struct safetensors_entry *layout;
};

/* ---- which memory is on the disk ---- */

static int plan_compare_items(const void *a, const void *b) {
    const struct held_place *x = &((const struct plan_item *)a)->place, *y = &((const struct plan_item *)b)->place;
    if (x->storage != y->storage)
        return (uintptr_t)x->storage < (uintptr_t)y->storage ? -1 : 1;
    return x->begin != y->begin ? (x->begin < y->begin ? -1 : 1) : (x->end > y->end) - (x->end < y->end);
}

static void plan_group(struct planning *planning) {
    const struct plan_item *last = NULL;
    qsort(planning->items, planning->n_items, sizeof *planning->items, plan_compare_items);
    for (size_t i = 0; i < planning->n_items; last = &planning->items[i++]) {
        struct plan_item *item = &planning->items[i];
        struct plan_group *group = planning->n_groups ? &planning->groups[planning->n_groups - 1] : NULL;
        if (!last || last->place.storage != item->place.storage) {
            group = &planning->groups[planning->n_groups++];
            *group = (struct plan_group){.items = item, .begin = item->place.begin};
        }
        group->count++;
        group->end = group->end > item->place.end ? group->end : item->place.end;
    }
}

/* Finds a saved value with all bytes of the group. Its names may have come one after the other, and each may have been
 * saved with a part of the memory. */
static void plan_find_value(const struct planning *planning, struct plan_group *group) {
    for (size_t i = 0; i < group->count; i++) {
        struct saved_value *saved = planning->plan->entries[group->items[i].entry]->saved;
        if (saved && saved->begin <= group->begin && saved->end >= group->end)
            group->value = saved;
    }
}

static struct plan_file *plan_file_of(const struct planning *planning, uint64_t number) {
    for (size_t i = 0; i < planning->plan->n_files; i++)
        if (planning->files[i].file.number == number)
            return &planning->files[i];
    return NULL;
}

/* ---- which files are written again ---- */

static int plan_compare_files(const void *a, const void *b) {
    const struct plan_file *x = a, *y = b;
    return (x->file.bytes > y->file.bytes) - (x->file.bytes < y->file.bytes);
}

/* Merges small files into the new one, from the smallest on, if they have at most twice the bytes that are written
 * anyway. So the number of files grows with the logarithm of all bytes ever written, and so does the number of times
 * that a byte is written. */
static void plan_merge(struct planning *planning, uint64_t bytes) {
    qsort(planning->files, planning->plan->n_files, sizeof *planning->files, plan_compare_files);
    for (size_t i = 0; bytes && i < planning->plan->n_files; i++) {
        struct plan_file *file = &planning->files[i];
        if (file->again || file->file.bytes > PLAN_SMALL_BYTES || file->file.bytes / 2 > bytes)
            continue;
        file->again = true;
        bytes += file->live;
    }
}

static void plan_choose_files(struct planning *planning) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < planning->plan->n_files; i++)
        planning->files[i] = (struct plan_file){.file = planning->plan->files[i]};
    for (size_t i = 0; i < planning->n_groups; i++) {
        struct plan_group *group = &planning->groups[i];
        struct plan_file *file = group->value ? plan_file_of(planning, group->value->file) : NULL;
        if (file)
            file->live += (uint64_t)(group->value->end - group->value->begin);
        else
            bytes += (uint64_t)(group->end - group->begin) + 1;
    }
    for (size_t i = 0; i < planning->plan->n_files; i++) {
        struct plan_file *file = &planning->files[i];
        file->again = file->live < file->file.bytes / 2;
        bytes += file->again ? file->live : 0;
    }
    plan_merge(planning, bytes);
}

/* ---- what is written ---- */

/* Files have no c128: its parts are stored. The index keeps the name's own type. */
static enum dtype dtype_stored(enum dtype dtype) {
    return safetensors_has(dtype) ? dtype : dtype_real(dtype);
}

/* The value is a tensor of a name's type if one name shows all of it; otherwise it is one row. */
static int plan_new_value(struct planning *planning, struct plan_group *group, struct fault *fault) {
    const struct plan_item *item = &group->items[0];
    const struct tensor_type *first = held_type(planning->plan->entries[item->entry]->held);
    bool alike = true;
    for (size_t i = 0; i < group->count; i++) {
        const struct plan_item *at = &group->items[i];
        alike = alike && held_type(planning->plan->entries[at->entry]->held)->dtype == first->dtype;
        if (at->place.begin == group->begin && at->place.end == group->end)
            item = at;
    }
    const struct name_entry *entry = planning->plan->entries[item->entry];
    struct tensor_type type = *held_type(entry->held);
    bool whole = item->place.end - item->place.begin == group->end - group->begin;
    if (!whole || !safetensors_has(type.dtype)) {
        enum dtype dtype = alike ? dtype_stored(type.dtype) : DTYPE_U8;
        int64_t elements = (group->end - group->begin) / (int64_t)dtype_size(dtype);
        int error = type_make(&type, dtype, &elements, 1, fault);
        if (error != STATUS_OK)
            return error;
    }
    group->value = saved_value_create(planning->plan->number, entry->name, &type, group->begin);
    if (!group->value)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a value's place");
    group->added = true;
    planning->layout[planning->plan->n_writes] = (struct safetensors_entry){
        .name = group->value->key, .type = type, .tensor = &planning->plan->writes[planning->plan->n_writes]};
    planning->plan->writes[planning->plan->n_writes++] = (struct save_write){group->value, entry};
    return STATUS_OK;
}

static int plan_choose_values(struct planning *planning, struct fault *fault) {
    int error = STATUS_OK;
    for (size_t i = 0; i < planning->n_groups && error == STATUS_OK; i++) {
        struct plan_group *group = &planning->groups[i];
        const struct plan_file *file = group->value ? plan_file_of(planning, group->value->file) : NULL;
        if (!file || file->again)
            error = plan_new_value(planning, group, fault);
        for (size_t k = 0; k < group->count && error == STATUS_OK; k++) {
            planning->plan->values[group->items[k].entry] = group->value;
            group->value->references += group->added && k; /* nobody else has the new value yet */
        }
    }
    return error;
}

static int plan_fault(const char *path, struct fault *fault) {
    int error = errno;
    return fault_set(fault, STATUS_INVALID_ARGUMENT, "%.150s: %s", path, strerror(error));
}

static int plan_open(struct planning *planning, struct fault *fault) {
    struct save_plan *plan = planning->plan;
    CLEANUP(free) struct save_write *writes = calloc(plan->n_writes + 1, sizeof *writes);
    CLEANUP(free) uint8_t *head = NULL;
    char path[STATE_FILE_MAX];
    size_t head_bytes = 0;
    if (!writes)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a save");
    int error = safetensors_lay_out(planning->layout, plan->n_writes, &head, &head_bytes, fault);
    if (error != STATUS_OK)
        return error;
    for (size_t i = 0; i < plan->n_writes; i++)
        writes[i] = *(const struct save_write *)planning->layout[i].tensor; /* in the order of the file */
    free(plan->writes);
    plan->writes = TAKE(writes);
    plan->bytes = head_bytes + planning->layout[plan->n_writes - 1].end;
    state_file_path(plan->folder, plan->number, path);
    plan->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (plan->fd < 0)
        return plan_fault(path, fault);
    return whole_write(plan->fd, head, head_bytes) ? STATUS_OK : plan_fault(plan->folder, fault);
}

static int plan_keep(struct planning *planning, struct fault *fault) {
    struct save_plan *plan = planning->plan;
    plan->keep = calloc(plan->n_files + 1, sizeof *plan->keep);
    if (!plan->keep)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a save");
    for (size_t i = 0; i < plan->n_files; i++)
        if (!planning->files[i].again && planning->files[i].live)
            plan->keep[plan->n_keep++] = planning->files[i].file;
    if (plan->n_writes)
        plan->keep[plan->n_keep++] = (struct state_file){plan->number, planning->layout[plan->n_writes - 1].end};
    return STATUS_OK;
}

/* Makes the folder. Files are on the disk only if their folder is, so its parent is flushed; also if the folder exists
 * without files, because a save may have failed after making it. */
static int plan_make_folder(const struct save_plan *plan, struct fault *fault) {
    char parent[sizeof plan->folder];
    if (mkdir(plan->folder, 0700) && errno != EEXIST)
        return plan_fault(plan->folder, fault);
    if (plan->n_files)
        return STATUS_OK;
    snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(plan->folder, '/') - plan->folder), plan->folder);
    return state_sync_folder(parent, fault);
}

static int plan_reserve(struct planning *planning, struct fault *fault) {
    struct save_plan *plan = planning->plan;
    plan->values = calloc(plan->count + 1, sizeof(struct saved_value *));
    plan->writes = calloc(plan->count + 1, sizeof *plan->writes);
    planning->items = calloc(plan->count + 1, sizeof *planning->items);
    planning->groups = calloc(plan->count + 1, sizeof *planning->groups);
    planning->layout = calloc(plan->count + 1, sizeof *planning->layout);
    planning->files = calloc(plan->n_files + 1, sizeof *planning->files);
    if (plan->values && plan->writes && planning->items && planning->groups && planning->layout && planning->files)
        return STATUS_OK;
    return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a save of %zu names", plan->count);
}

static void plan_place(struct planning *planning) {
    for (size_t i = 0; i < planning->plan->count; i++) {
        const struct held_place place = held_place(planning->plan->entries[i]->held);
        if (place.storage)
            planning->items[planning->n_items++] = (struct plan_item){place, i};
    }
    plan_group(planning);
    for (size_t i = 0; i < planning->n_groups; i++)
        plan_find_value(planning, &planning->groups[i]);
}

int save_plan_make(struct save_plan *plan, struct fault *fault) {
    struct planning planning = {.plan = plan};
    plan->fd = -1;
    int error = plan->count ? plan_make_folder(plan, fault) : STATUS_OK;
    if (error == STATUS_OK)
        error = plan_reserve(&planning, fault);
    if (error == STATUS_OK) {
        plan_place(&planning);
        plan_choose_files(&planning);
        error = plan_choose_values(&planning, fault);
    }
    if (error == STATUS_OK && plan->n_writes)
        error = plan_open(&planning, fault);
    if (error == STATUS_OK)
        error = plan_keep(&planning, fault);
    free(planning.items);
    free(planning.groups);
    free(planning.files);
    free(planning.layout);
    return error;
}

/* ---- the end ---- */

static char *plan_print_index(const struct save_plan *plan, size_t *bytes) {
    CLEANUP(free) struct index_name *names = calloc(plan->count + 1, sizeof *names);
    for (size_t i = 0; names && i < plan->count; i++) {
        const struct saved_value *value = plan->values[i];
        names[i] = (struct index_name){.name = plan->entries[i]->name, .type = *held_type(plan->entries[i]->held)};
        if (!value)
            continue;
        names[i].file = value->file;
        names[i].key = (char *)(uintptr_t)value->key;
        names[i].begin = held_place(plan->entries[i]->held).begin - value->begin;
    }
    return names ? index_print(plan->device, names, plan->count, bytes) : NULL;
}

static int plan_write_index(struct save_plan *plan, struct fault *fault) {
    size_t bytes = 0;
    CLEANUP(free) struct new_file *file = malloc(sizeof *file); /* it has two long paths */
    CLEANUP(free) char *text = plan_print_index(plan, &bytes);
    char path[STATE_FILE_MAX];
    if (!file || !text)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a save");
    state_index_path(plan->folder, path);
    int error = new_file_open(file, path, 0600, fault);
    if (error != STATUS_OK)
        return error;
    error = new_file_write(file, text, bytes, fault);
    if (error == STATUS_OK) {
        error = new_file_commit(file, fault);
        plan->committed = file->fd < 0;
    }
    new_file_abandon(file);
    return error;
}

/* Removes the folder of an owner without names. The index goes first: without it the other files mean nothing. */
static int plan_remove(struct save_plan *plan, struct fault *fault) {
    char path[STATE_FILE_MAX], parent[sizeof plan->folder];
    state_index_path(plan->folder, path);
    if (unlink(path) && errno != ENOENT)
        return plan_fault(path, fault);
    if (access(plan->folder, F_OK))
        return STATUS_OK;
    int error = state_sync_folder(plan->folder, fault);
    if (error != STATUS_OK)
        return error;
    plan->committed = true;
    state_sweep_folder(plan->folder, NULL, 0);
    snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(plan->folder, '/') - plan->folder), plan->folder);
    return state_sync_folder(parent, fault);
}

int save_plan_commit(struct save_plan *plan, struct fault *fault) {
    if (!plan->count)
        return plan_remove(plan, fault);
    if (plan->fd >= 0 && fsync(plan->fd))
        return plan_fault(plan->folder, fault);
    int error = plan->fd >= 0 ? state_sync_folder(plan->folder, fault) : STATUS_OK;
    if (error == STATUS_OK)
        error = plan_write_index(plan, fault);
    if (error == STATUS_OK)
        state_sweep_folder(plan->folder, plan->keep, plan->n_keep);
    return error;
}

void save_plan_abandon(struct save_plan *plan) {
    char path[STATE_FILE_MAX];
    if (plan->committed || plan->fd < 0)
        return; /* names.json needs the file, though it may not be there after a crash of the system */
    state_file_path(plan->folder, plan->number, path);
    unlink(path);
}

void save_plan_finish(struct save_plan *plan) {
    if (plan->fd >= 0)
        close(plan->fd);
    free(plan->values);
    free(plan->writes);
    free(plan->keep);
}
