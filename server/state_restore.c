/* Restoring what was saved, through a session of the worker's own, as a client would upload and publish it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/safetensors.h"
#include "server/cause.h"
#include "server/log.h"
#include "server/service.h"
#include "server/state.h"

enum { STATE_ASIDE_MAX = 1000 }; /* files put aside of one name */

/* ---- values ---- */

struct restore_upload {
    struct upload upload;
    bool room; /* there is staging memory again */
};

static void restore_room(struct upload *upload) {
    ((struct restore_upload *)upload)->room = true;
}

/* Where the next bytes go; NULL: nowhere, which the upload's end will tell. */
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

static int restore_read(int fd, uint8_t *to, size_t bytes, uint64_t at, struct fault *fault) {
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(fd, to + done, bytes - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "cannot be read: %s",
                             got < 0 ? strerror(errno) : "it has been cut off");
        done += (size_t)got;
    }
    return STATUS_OK;
}

static int restore_bytes(struct state *state, struct restore_upload *restore, int fd, uint64_t from,
                         const struct tensor_type *type, struct fault *fault) {
    int64_t total = type_bytes(type);
    int code = STATUS_OK;
    for (int64_t at = 0; at < total && code == STATUS_OK; at += STATE_CHUNK_BYTES) {
        int64_t bytes = total - at < STATE_CHUNK_BYTES ? total - at : STATE_CHUNK_BYTES;
        uint8_t *place = restore_place(state, restore, at, bytes);
        if (!place)
            break;
        code = restore_read(fd, place, (size_t)bytes, from + (uint64_t)at, fault);
        /* Kernels may rely on a bool being 0 or 1. */
        if (type->dtype == DTYPE_BOOL)
            for (int64_t i = 0; i < bytes; i++)
                place[i] = place[i] != 0;
        upload_chunk_done(&restore->upload);
        state->turn(state->owner, false);
    }
    return code;
}

/* What fails on the device becomes the tensor's failure, which shows when it is held. */
static int restore_tensor(struct state *state, struct session *session, uint64_t id, int fd, uint64_t from,
                          const struct tensor_type *type, struct fault *fault) {
    struct upload_request request = {.id = id, .type = type, .sequence = id};
    struct restore_upload restore = {.room = false};
    struct failure cause;
    if (session_upload(session, &request, &restore.upload) != STATUS_OK)
        return STATUS_OK;
    restore.upload.room = restore_room;
    int code = restore_bytes(state, &restore, fd, from, type, fault);
    if (code != STATUS_OK)
        cause_set(&cause, fault);
    upload_finish(&restore.upload, code == STATUS_OK ? NULL : &cause);
    return code;
}

/* ---- one file ---- */

struct restore_hold {
    struct hold hold;
    struct restore *restore;
};

struct restore {
    struct state *state;
    const char *principal;
    struct safetensors file;
    struct session *session;
    struct restore_hold *holds;
    size_t waiting;
    struct fault fault; /* the first */
};

static void restore_held(struct hold *hold, const struct failure *failure) {
    struct restore *restore = ((struct restore_hold *)hold)->restore;
    restore->waiting--;
    if (failure && !restore->fault.code)
        fault_set(&restore->fault, failure->code, "%s", failure->message);
}

static int restore_hold_all(struct restore *restore) {
    size_t count = restore->file.count;
    restore->holds = calloc(count + 1, sizeof *restore->holds);
    if (!restore->holds)
        return fault_set(&restore->fault, STATUS_NO_HOST_MEMORY, "no memory for %zu names", count);
    restore->waiting = count;
    for (size_t i = 0; i < count; i++) {
        restore->holds[i].restore = restore;
        restore->holds[i].hold.done = restore_held;
        session_hold(restore->session, i + 1, &restore->holds[i].hold);
    }
    while (restore->waiting && !restore->state->service->failed)
        restore->state->turn(restore->state->owner, true);
    if (restore->waiting)
        return fault_set(&restore->fault, STATUS_DEVICE_LOST, "the device was lost");
    return (int)restore->fault.code;
}

/* Beyond its limits, too, as far as the device has room: a worker learns the principal's own only when it logs in, and
 * limits that become smaller take nothing away. */
static int restore_publish(struct restore *restore) {
    struct limits limits = restore->state->service->limits.each;
    size_t count = restore->file.count;
    struct held **values = calloc(count + 1, sizeof *values);
    const char **names = calloc(count + 1, sizeof *names);
    int code = values && names ? STATUS_OK
                               : fault_set(&restore->fault, STATUS_NO_HOST_MEMORY, "no memory for %zu names", count);
    for (size_t i = 0; i < count && code == STATUS_OK; i++) {
        values[i] = restore->holds[i].hold.held;
        names[i] = restore->file.entries[i].name;
    }
    limits.named_bytes = 0;
    limits.named_tensors = NAMES_COUNT_MAX;
    if (code == STATUS_OK && count)
        code = names_publish(&restore->state->service->names, restore->principal, &limits, values, names,
                             (unsigned)count, true, &restore->fault);
    free(values);
    free(names);
    return code;
}

static int restore_all(struct restore *restore, int fd) {
    struct session_limits limits = {.tensors = (uint32_t)restore->file.count + 1};
    int code = session_create(restore->state->service->engine, &limits, &restore->session, &restore->fault);
    for (size_t i = 0; i < restore->file.count && code == STATUS_OK; i++)
        code = restore_tensor(restore->state, restore->session, i + 1, fd,
                              restore->file.data + restore->file.entries[i].begin, &restore->file.entries[i].type,
                              &restore->fault);
    if (code == STATUS_OK)
        code = restore_hold_all(restore);
    if (code == STATUS_OK)
        code = restore_publish(restore);
    for (size_t i = 0; restore->holds && i < restore->file.count; i++)
        hold_cancel(&restore->holds[i].hold);
    free(restore->holds);
    session_destroy(restore->session);
    return code;
}

static int restore_file(struct state *state, const char *path, const char *principal, struct fault *fault) {
    struct restore restore = {.state = state, .principal = principal};
    char count[24];
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int code = fd < 0 ? fault_set(&restore.fault, STATUS_INVALID_ARGUMENT, "%s", strerror(errno))
                      : safetensors_read(&restore.file, fd, &restore.fault);
    if (code == STATUS_OK)
        code = restore_all(&restore, fd);
    if (code == STATUS_OK)
        log_event(LOG_LEVEL_INFO, "names_restored", "principal", principal, "names",
                  log_text(count, sizeof count, "%zu", restore.file.count), "file", path, NULL);
    else
        *fault = restore.fault;
    safetensors_finish(&restore.file);
    if (fd >= 0)
        close(fd);
    return code;
}

/* ---- what is refused ---- */

/* Under a name that nothing has. */
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
    log_event(LOG_LEVEL_ERROR, "names_refused", "principal", principal, "file", path, "cause", why->message, "kept",
              moved ? aside : path, NULL);
    state->sealed = state->sealed || !moved;
    if (!*names->fault)
        snprintf(names->fault, sizeof names->fault, "those of %s are not restored: %.150s", principal, why->message);
}

/* ---- all files ---- */

/* What a worker that was killed while it saved left behind. */
static bool restore_is_leftover(const struct state *state, const char *name) {
    size_t device = strlen(state->service->device);
    return name[0] == '.' && !strncmp(name + 1, state->service->device, device) && name[1 + device] == '@';
}

static void restore_entry(struct state *state, const char *name) {
    char principal[PRINCIPAL_NAME_BYTES], path[STATE_PATH_MAX + STATE_NAME_MAX + 2];
    struct fault fault;
    state_path(state, name, path, sizeof path);
    if (restore_is_leftover(state, name))
        unlink(path);
    else if (state_file_principal(state, name, principal) &&
             restore_file(state, path, principal, &fault) != STATUS_OK &&
             !state->service->failed) /* a lost device is not the file's fault: the next worker tries again */
        restore_refuse(state, path, principal, &fault);
}

void state_restore(struct state *state) {
    DIR *directory;
    struct dirent *entry;
    if (!*state->directory)
        return;
    directory = opendir(state->directory);
    if (!directory) {
        state->sealed = true;
        log_event(LOG_LEVEL_ERROR, "names_refused", "file", state->directory, "cause", strerror(errno), NULL);
        snprintf(state->service->names.fault, sizeof state->service->names.fault, "none are restored: %.100s: %s",
                 state->directory, strerror(errno));
        return;
    }
    while (!state->service->failed && (entry = readdir(directory)))
        restore_entry(state, entry->d_name);
    closedir(directory);
}
