/* Saving what has names. Values are read through a session of the worker's own, as a client reads them, so that this works
 * on every device. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/new_file.h"
#include "proto/safetensors.h"
#include "server/log.h"
#include "server/service.h"
#include "server/state.h"

/* A value on its way into a file. */
struct save_fetch {
    struct fetch fetch;
    struct fetch_part part;
    bool came;
    struct failure failure; /* code 0: none */
};

static void save_answer(struct save_fetch *save, const struct failure *failure) {
    save->came = true;
    if (failure)
        save->failure = *failure;
}

static void save_came(struct fetch *fetch, const struct failure *failure) {
    save_answer((struct save_fetch *)fetch, failure);
}

static void save_part_came(struct fetch_part *part, const struct failure *failure) {
    save_answer((struct save_fetch *)((char *)part - offsetof(struct save_fetch, part)), failure);
}

static int save_wait(struct state *state, struct save_fetch *save, struct fault *fault) {
    while (!save->came && !state->service->failed)
        state->turn(state->owner, true);
    if (save->came && !save->failure.code)
        return STATUS_OK;
    return fault_set(fault, STATUS_DEVICE_LOST, "%s", save->came ? save->failure.message : "the device was lost");
}

/* The bytes from `offset` on, from the device's memory or straight from the value. */
static int save_chunk(struct state *state, struct save_fetch *save, struct new_file *file, int64_t offset,
                      int64_t bytes, struct fault *fault) {
    if (save->fetch.data)
        return new_file_write(file, save->fetch.data + offset, (size_t)bytes, fault);
    save->came = false;
    save->part.done = save_part_came;
    fetch_read(&save->fetch, offset, bytes, &save->part);
    int code = save_wait(state, save, fault);
    if (code == STATUS_OK)
        code = new_file_write(file, save->part.data, (size_t)bytes, fault);
    fetch_part_release(&save->part);
    return code;
}

static int save_value(struct state *state, struct session *session, uint64_t id, struct new_file *file,
                      struct fault *fault) {
    struct save_fetch save = {.fetch.done = save_came};
    session_fetch(session, id, &save.fetch);
    int code = save_wait(state, &save, fault);
    for (int64_t at = 0; code == STATUS_OK && at < save.fetch.bytes; at += STATE_CHUNK_BYTES) {
        int64_t left = save.fetch.bytes - at;
        code = save_chunk(state, &save, file, at, left < STATE_CHUNK_BYTES ? left : STATE_CHUNK_BYTES, fault);
        state->turn(state->owner, false);
    }
    fetch_release(&save.fetch);
    return code;
}

/* ---- one principal ---- */

static struct safetensors_entry *save_entries(const struct name_owner *owner) {
    struct safetensors_entry *entries = calloc(owner->count, sizeof *entries);
    for (unsigned i = 0; entries && i < owner->count; i++)
        entries[i] = (struct safetensors_entry){.name = owner->entries[i]->name,
                                                .type = *held_type(owner->entries[i]->held),
                                                .tensor = owner->entries[i]->held};
    return entries;
}

static int save_values(struct state *state, const struct name_owner *owner, const struct safetensors_entry *entries,
                       struct new_file *file, struct fault *fault) {
    struct session_limits limits = {.tensors = 1};
    struct session *session = NULL;
    int code = session_create(state->service->engine, &limits, &session, fault);
    for (unsigned i = 0; i < owner->count && code == STATUS_OK; i++) {
        struct op_request release = {.opcode = OP_FREE, .n_inputs = 1, .inputs = (const uint64_t[]){i + 1}};
        code = session_bind_held(session, i + 1, entries[i].tensor, fault);
        if (code == STATUS_OK)
            code = save_value(state, session, i + 1, file, fault);
        session_submit(session, &release);
    }
    session_destroy(session);
    return code;
}

static int save_file(struct state *state, const struct name_owner *owner, const char *path, struct fault *fault) {
    struct safetensors_entry *entries = save_entries(owner);
    static struct new_file file; /* two long paths */
    uint8_t *head = NULL;
    size_t head_bytes = 0;
    if (!entries)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for %u names", owner->count);
    file.fd = -1;
    int code = safetensors_lay_out(entries, owner->count, &head, &head_bytes, fault);
    if (code == STATUS_OK)
        code = new_file_open(&file, path, 0600, fault);
    if (code == STATUS_OK)
        code = new_file_write(&file, head, head_bytes, fault);
    if (code == STATUS_OK)
        code = save_values(state, owner, entries, &file, fault);
    if (code == STATUS_OK)
        code = new_file_commit(&file, fault);
    new_file_abandon(&file);
    free(head);
    free(entries);
    return code;
}

static void save_owner(struct state *state, const struct name_owner *owner) {
    char name[STATE_NAME_MAX + 1], path[STATE_PATH_MAX + sizeof name + 1], count[16], bytes[24];
    struct fault fault;
    state_file_name(state, owner->account->name, name);
    state_path(state, name, path, sizeof path);
    if (save_file(state, owner, path, &fault) == STATUS_OK)
        log_event(LOG_LEVEL_INFO, "names_saved", "principal", owner->account->name, "names",
                  log_text(count, sizeof count, "%u", owner->count), "bytes",
                  log_text(bytes, sizeof bytes, "%lu", owner->bytes.bytes), "file", path, NULL);
    else
        log_event(LOG_LEVEL_ERROR, "names_not_saved", "principal", owner->account->name, "names",
                  log_text(count, sizeof count, "%u", owner->count), "file", path, "cause", fault.message, NULL);
}

/* ---- the end of files ---- */

/* Files of principals that have no names any more. All of them were restored when this worker started. */
static void save_remove_old(struct state *state) {
    DIR *directory = opendir(state->directory);
    struct dirent *entry;
    while (directory && (entry = readdir(directory))) {
        char principal[PRINCIPAL_NAME_BYTES], path[STATE_PATH_MAX + STATE_NAME_MAX + 2];
        if (!state_file_principal(state, entry->d_name, principal))
            continue;
        const struct name_owner *owner = names_owner(&state->service->names, principal);
        if (owner && owner->count)
            continue;
        state_path(state, entry->d_name, path, sizeof path);
        if (unlink(path))
            log_event(LOG_LEVEL_ERROR, "names_not_removed", "file", path, "cause", strerror(errno), NULL);
    }
    if (directory)
        closedir(directory);
}

void state_save(struct state *state) {
    if (!*state->directory)
        return;
    if (state->sealed) {
        log_event(LOG_LEVEL_ERROR, "names_not_saved", "cause",
                  "a file that was not restored could not be put aside, and would be written over", NULL);
        return;
    }
    for (const struct name_owner *owner = state->service->names.owners; owner; owner = owner->next)
        if (owner->count)
            save_owner(state, owner);
    save_remove_old(state);
}
