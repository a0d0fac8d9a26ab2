#include "server/worker/state_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/program/program.h"
#include "proto/files/file.h"
#include "server/process/log.h"
#include "server/worker/service.h"

enum {
    SAVE_PIECE_BYTES = 2 << 20,    /* that the disk's thread writes at once */
    SAVE_PART_BYTES = 1 << 20,     /* that are read from a device at once, if the host cannot see its memory */
    SAVE_GATHER_BYTES = 256 << 10, /* smaller values are put together up to here, */
    SAVE_GATHER_VALUES = 256,      /* and at most so many: in one turn of the loop */
    SAVE_SMALL_BYTES = 64 << 10,
    SAVE_SYNC_BYTES = 32 << 20, /* flushed at once, so that no other owner's flush waits for more */
    SAVE_RETRY_MS = 1000,       /* after a failure, doubled up to */
    SAVE_RETRY_MAX_MS = 60000,
};
#define SAVE_TELL_NS (UINT64_C(600) * 1000000000) /* between two log lines for the same failure */

/* ---- the end of a save ---- */

static void save_log(const struct save *save) {
    const struct state_owner *disk = save->owner->disk;
    char count[24], bytes[24];
    bool known = !save->state->closing && !disk->failures;
    log_event(known ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO, "names_saved", "principal", names_shown(save->owner), "names",
              log_text(count, sizeof count, "%zu", save->plan.count), "bytes",
              log_text(bytes, sizeof bytes, "%" PRIu64, save->plan.bytes), "folder", save->plan.folder, NULL);
}

static void save_let_entries_go(struct save *save) {
    for (size_t i = 0; i < save->plan.count; i++)
        name_entry_unref(save->plan.entries[i]);
    free(save->plan.entries);
    save->plan.entries = NULL;
}

static void save_close_value(struct save *save) {
    if (save->asked)
        fetch_part_release(&save->part);
    if (save->opened)
        fetch_release(&save->fetch);
    held_unref(save->alias);
    save->alias = NULL;
    save->opened = save->came = save->asked = save->part_came = false;
    save->offset = 0;
}

static void save_destroy(struct save *save) {
    save_close_value(save);
    session_destroy(save->session);
    save->state->n_saves--;
    save->owner->disk->save = NULL;
    save_let_entries_go(save);
    save_plan_finish(&save->plan);
    free(save->gathered);
    free(save);
}

/* The entries take over the references of the new values. */
static void save_keep_values(struct save *save) {
    struct save_plan *plan = &save->plan;
    for (size_t i = 0; i < plan->count; i++) {
        struct name_entry *entry = plan->entries[i];
        struct saved_value *value = plan->values[i];
        save->owner->disk->bound -= !entry->on_disk && entry->bound;
        entry->on_disk = true;
        if (value == entry->saved)
            continue;
        if (value && value->file != plan->number)
            value->references++;
        saved_value_unref(entry->saved);
        entry->saved = value;
    }
}

static void save_succeeded(struct save *save) {
    struct state *state = save->state;
    struct name_owner *owner = save->owner;
    struct state_owner *disk = owner->disk;
    save_keep_values(save);
    save_log(save);
    free(disk->files);
    disk->files = save->plan.keep;
    disk->n_files = save->plan.n_keep;
    save->plan.keep = NULL;
    disk->unbound -= save->unbound;
    disk->saved = save->revision;
    disk->saving_since_ns = disk->retry_ns = disk->failures = 0;
    disk->fault[0] = 0;
    if (disk->revision == disk->saved) {
        disk->bytes = 0;
        state_count_dirty(state, -1);
    }
    save_destroy(save);
    state_saved(state, owner);
}

static void save_failed(struct save *save) {
    struct state_owner *disk = save->owner->disk;
    struct save_plan *plan = &save->plan;
    struct name_owner *owner = save->owner;
    struct state *state = save->state;
    struct fault told;
    uint64_t now = clock_now_ns(), revision = save->revision;
    for (size_t i = 0; plan->values && i < plan->count; i++)
        if (plan->values[i] && plan->values[i]->file == plan->number)
            saved_value_unref(plan->values[i]);
    disk->since_ns = disk->saving_since_ns ? disk->saving_since_ns : disk->since_ns;
    disk->saving_since_ns = 0;
    unsigned shift = disk->failures < 6 ? disk->failures : 6;
    uint64_t wait_ms = (uint64_t)SAVE_RETRY_MS << shift;
    disk->retry_ns = now + (wait_ms < SAVE_RETRY_MAX_MS ? wait_ms : SAVE_RETRY_MAX_MS) * 1000000;
    disk->failures++;
    disk->bytes += save->plan.bytes;
    bool same = !strncmp(disk->fault, save->fault.message, sizeof disk->fault - 1);
    snprintf(disk->fault, sizeof disk->fault, "%.190s", save->fault.message);
    if (state->closing || !same || now - disk->told_ns >= SAVE_TELL_NS) {
        disk->told_ns = now;
        state_log_unsaved(owner, disk->fault);
    }
    save_destroy(save);
    fault_set(&told, STATUS_INTERNAL, "named, but not on the daemon's disk: %.190s", disk->fault);
    state_not_saved(state, owner, revision, &told);
}

/* ---- reading ---- */

static void save_advance(struct save *save);

static void save_resume(struct save *save, const struct failure *failure) {
    if (failure)
        save->failure = *failure;
    if (save->inside)
        return;
    save_advance(save);
    state_go(save->state);
}

static void save_came(struct fetch *fetch, const struct failure *failure) {
    struct save *save = (struct save *)((char *)fetch - offsetof(struct save, fetch));
    save->came = true;
    save_resume(save, failure);
}

static void save_part_came(struct fetch_part *part, const struct failure *failure) {
    struct save *save = (struct save *)((char *)part - offsetof(struct save, part));
    save->part_came = true;
    save_resume(save, failure);
}

static void save_give_up(struct save *save, const struct fault *fault) {
    save->fault = *fault;
    save->phase = SAVE_ABANDON;
    save->ready = true;
}

/* Binds the value to an id of the session, and asks for it. */
static void save_open_value(struct save *save) {
    const struct save_write *write = &save->plan.writes[save->at];
    const struct session_limits limits = {.tensors = 2};
    struct fault fault;
    int error = STATUS_OK;
    if (!save->session)
        error = session_create(engine_sessions(save->state->service->engine), &limits, &save->session, &fault);
    if (error == STATUS_OK)
        error = held_alias(write->entry->held, &write->value->type, write->value->begin, &save->alias, &fault);
    if (error == STATUS_OK)
        error = session_bind_held(save->session, save->at + 1, save->alias, &fault);
    if (error != STATUS_OK) {
        save_give_up(save, &fault);
        return;
    }
    save->fetch.done = save_came;
    save->opened = true;
    session_fetch(save->session, save->at + 1, &save->fetch); /* done at once, because a named value is contiguous */
}

static void save_next_value(struct save *save) {
    const uint64_t id = save->at + 1;
    const struct op_request release = {.opcode = OP_FREE, .n_inputs = 1, .inputs = &id};
    save_close_value(save);
    session_submit(save->session, &release);
    save->at++;
}

static void save_write(struct save *save, const uint8_t *data, size_t bytes) {
    save->data = data;
    save->bytes = bytes;
    save->phase = SAVE_WRITE;
    save->ready = true;
}

/* Puts a small value to the gathered ones. False: these must be written first. */
static bool save_gather(struct save *save) {
    size_t bytes = (size_t)save->fetch.bytes;
    if (bytes > SAVE_GATHER_BYTES - save->n_gathered || save->values_gathered == SAVE_GATHER_VALUES)
        return false;
    memcpy(save->gathered + save->n_gathered, save->fetch.data, bytes);
    save->n_gathered += bytes;
    save->values_gathered++;
    save_next_value(save);
    return true;
}

/* Asks for the next piece, or hands it to the disk. False: it has not come yet. */
static bool save_take_piece(struct save *save) {
    int64_t left = save->fetch.bytes - save->offset;
    int64_t bytes = left < SAVE_PIECE_BYTES ? left : SAVE_PIECE_BYTES;
    if (save->fetch.data && save->fetch.bytes <= SAVE_SMALL_BYTES && save_gather(save))
        return true;
    if (save->n_gathered) {
        save_write(save, save->gathered, save->n_gathered);
    } else if (save->fetch.data) {
        save_write(save, save->fetch.data + save->offset, (size_t)bytes);
    } else if (!save->asked) {
        save->part = (struct fetch_part){.done = save_part_came};
        save->asked = true;
        save->bytes = (size_t)(bytes < SAVE_PART_BYTES ? bytes : SAVE_PART_BYTES);
        fetch_read(&save->fetch, save->offset, (int64_t)save->bytes, &save->part);
        return save->part_came;
    } else if (save->part_came) {
        save_write(save, save->part.data, save->bytes);
    }
    return save->ready;
}

/* Continues until there is a job for the disk, or something to wait for. */
static void save_advance(struct save *save) {
    save->inside = true;
    while (!save->ready) {
        if (save->failure.code) {
            struct fault fault;
            fault_set(&fault, (enum status)save->failure.code, "%s", save->failure.message);
            save_give_up(save, &fault);
        } else if (save->at == save->plan.n_writes) {
            save->phase = SAVE_COMMIT;
            save->ready = true;
            if (save->n_gathered)
                save_write(save, save->gathered, save->n_gathered);
        } else if (!save->opened) {
            save_open_value(save);
        } else if (!save->came) {
            break;
        } else if (save->offset >= save->fetch.bytes) {
            save_next_value(save);
        } else if (!save_take_piece(save)) {
            break;
        }
    }
    save->inside = false;
}

/* A piece has been written. */
static void save_wrote(struct save *save) {
    save->left -= save->bytes < save->left ? save->bytes : save->left;
    if (save->n_gathered) {
        save->n_gathered = save->values_gathered = 0;
    } else {
        save->offset += (int64_t)save->bytes;
        if (save->asked)
            fetch_part_release(&save->part);
        save->asked = save->part_came = false;
    }
    save_advance(save);
}

/* ---- the disk's part ---- */

static int save_run_write(struct save *save) {
    bool good = whole_write(save->plan.fd, save->data, save->bytes);
    save->unsynced += save->bytes;
    if (good && save->unsynced >= SAVE_SYNC_BYTES) {
        save->unsynced = 0;
        good = fdatasync(save->plan.fd) == 0;
    }
    return good ? STATUS_OK
                : fault_set(&save->fault, STATUS_INVALID_ARGUMENT, "%.150s: %s", save->plan.folder, strerror(errno));
}

static void save_run(struct disk_job *job) {
    struct save *save = (struct save *)job;
    int error = STATUS_OK;
    if (save->phase == SAVE_PLAN)
        error = save_plan_make(&save->plan, &save->fault);
    else if (save->phase == SAVE_WRITE)
        error = save_run_write(save);
    else if (save->phase == SAVE_COMMIT)
        error = save_plan_commit(&save->plan, &save->fault);
    if (error != STATUS_OK || save->phase == SAVE_ABANDON) {
        save->phase = SAVE_ABANDON;
        save_plan_abandon(&save->plan);
    }
}

static void save_ran(struct disk_job *job) {
    struct save *save = (struct save *)job;
    struct state *state = save->state;
    service_busy(state->service);
    if (save->phase == SAVE_ABANDON) {
        save_failed(save);
    } else if (save->phase == SAVE_COMMIT) {
        save_succeeded(save);
    } else if (save->phase == SAVE_PLAN) {
        save->left = save->plan.bytes;
        save_advance(save);
    } else {
        save_wrote(save);
    }
    state_go(state);
}

/* ---- turns ---- */

struct save *save_create(struct state *state, struct name_owner *owner) {
    struct state_owner *disk = owner->disk;
    struct save *save = calloc(1, sizeof *save);
    char name[STATE_NAME_MAX + 1];
    if (save) {
        save->plan.entries = calloc(owner->count + 1, sizeof(struct name_entry *));
        save->gathered = malloc(SAVE_GATHER_BYTES);
    }
    if (!save || !save->plan.entries || !save->gathered) {
        if (save) {
            free(save->plan.entries);
            free(save->gathered);
        }
        free(save);
        disk->retry_ns = clock_now_ns() + (uint64_t)SAVE_RETRY_MS * 1000000;
        return NULL;
    }
    save->job = (struct disk_job){save_run, save_ran};
    save->state = state;
    save->owner = owner;
    save->phase = SAVE_PLAN;
    save->ready = true;
    save->revision = disk->revision;
    save->unbound = disk->unbound;
    save->began_ns = clock_now_ns();
    save->left = disk->bytes;
    state_folder_name(state, owner->key, name);
    state_path(state, name, save->plan.folder, sizeof save->plan.folder);
    save->plan.device = state->service->device;
    save->plan.files = disk->files;
    save->plan.n_files = disk->n_files;
    save->plan.number = disk->next_file++;
    save->plan.fd = -1;
    for (; save->plan.count < owner->count; save->plan.count++) {
        save->plan.entries[save->plan.count] = owner->entries[save->plan.count];
        owner->entries[save->plan.count]->references++;
    }
    disk->saving_since_ns = disk->since_ns;
    disk->since_ns = 0;
    disk->bytes = 0;
    disk->hurried = false;
    disk->save = save;
    state->n_saves++;
    return save;
}
