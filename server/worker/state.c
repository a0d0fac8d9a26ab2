/* Changes of names that are not on the disk yet: who waits for them, which owner is saved next, and what is left at the
 * end. And the disk's thread. */
#include "server/worker/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/device/thread.h"
#include "engine/order/budget.h"
#include "server/process/log.h"
#include "server/worker/service.h"
#include "server/worker/state_impl.h"

enum {
    STATE_SAVES_MAX = 16,  /* in progress */
    STATE_REPLY_STEPS = 8, /* of the budget, for a reply to somebody who waited */
};

/* ---- the disk's thread ---- */

enum { DISK_STACK_BYTES = 256 << 10 };

static void *disk_main(void *owner) {
    struct disk *disk = owner;
    thread_begin("tensord disk");
    pthread_mutex_lock(&disk->lock);
    while (!disk->stopping) {
        struct disk_job *job = disk->job;
        if (!job || disk->taken) {
            pthread_cond_wait(&disk->work, &disk->lock);
            continue;
        }
        disk->taken = true;
        pthread_mutex_unlock(&disk->lock);
        job->run(job);
        pthread_mutex_lock(&disk->lock);
        disk->ran = true;
        uv_async_send(&disk->async);
    }
    pthread_mutex_unlock(&disk->lock);
    thread_end();
    return NULL;
}

static void disk_on_async(uv_async_t *async) {
    struct disk *disk = async->data;
    pthread_mutex_lock(&disk->lock);
    struct disk_job *job = disk->ran ? disk->job : NULL;
    if (job) {
        disk->job = NULL;
        disk->taken = disk->ran = false;
    }
    pthread_mutex_unlock(&disk->lock);
    if (job)
        job->done(job);
}

static bool disk_start_thread(struct disk *disk) {
    pthread_attr_t attributes;
    sigset_t before;
    if (pthread_attr_init(&attributes))
        return false;
    pthread_attr_setstacksize(&attributes, DISK_STACK_BYTES);
    thread_block_signals(&before);
    bool started = !pthread_create(&disk->thread, &attributes, disk_main, disk);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}

static int disk_init(struct disk *disk, uv_loop_t *loop, struct fault *fault) {
    *disk = (struct disk){.threaded = false};
    int error = uv_async_init(loop, &disk->async, disk_on_async);
    if (error)
        return fault_set(fault, STATUS_INTERNAL, "event loop: %s", uv_strerror(error));
    disk->async.data = disk;
    pthread_mutex_init(&disk->lock, NULL);
    pthread_cond_init(&disk->work, NULL);
    disk->threaded = disk_start_thread(disk);
    return STATUS_OK;
}

static void disk_finish(struct disk *disk) {
    pthread_mutex_lock(&disk->lock);
    disk->stopping = true;
    pthread_cond_signal(&disk->work);
    pthread_mutex_unlock(&disk->lock);
    if (disk->threaded)
        pthread_join(disk->thread, NULL);
    pthread_cond_destroy(&disk->work);
    pthread_mutex_destroy(&disk->lock);
    uv_close((uv_handle_t *)&disk->async, NULL);
}

static bool disk_busy(const struct disk *disk) {
    return disk->job;
}

void disk_start(struct disk *disk, struct disk_job *job) {
    pthread_mutex_lock(&disk->lock);
    disk->job = job;
    pthread_cond_signal(&disk->work);
    pthread_mutex_unlock(&disk->lock);
    if (disk->threaded)
        return;
    job->run(job);
    disk->ran = true;
    uv_async_send(&disk->async);
}

/* ---- saved values ---- */

struct saved_value *saved_value_create(uint64_t file, const char *key, const struct tensor_type *type, int64_t begin) {
    size_t length = strlen(key) + 1;
    struct saved_value *value = malloc(sizeof *value + length);
    if (!value)
        return NULL;
    *value = (struct saved_value){
        .references = 1, .file = file, .begin = begin, .end = begin + type_bytes(type), .type = *type};
    memcpy(value->key, key, length);
    return value;
}

void saved_value_unref(struct saved_value *value) {
    if (value && !--value->references)
        free(value);
}

/* ---- owners ---- */

struct state_owner *state_owner_create(void) {
    struct state_owner *owner = calloc(1, sizeof *owner);
    if (owner) {
        owner->next_file = 1;
        TAILQ_INIT(&owner->waits);
    }
    return owner;
}

void state_owner_destroy(struct state *state, struct state_owner *owner) {
    if (!owner)
        return;
    if (owner->due)
        TAILQ_REMOVE(&state->due, owner, due_link);
    free(owner->files);
    free(owner);
}

bool state_owner_idle(const struct state_owner *owner) {
    return !owner || (owner->revision == owner->saved && !owner->save && TAILQ_EMPTY(&owner->waits) && !owner->due);
}

void state_bound(struct name_owner *owner, struct name_entry *entry) {
    if (!owner->disk)
        return;
    entry->bound = true;
    owner->disk->bound++;
    owner->disk->bytes += held_bytes(entry->held);
}

void state_unbound(struct name_owner *owner, struct name_entry *entry, bool replaced) {
    if (!owner->disk)
        return;
    owner->disk->bound -= !entry->on_disk;
    entry->bound = false;
    owner->disk->unbound += !replaced;
}

void state_count_dirty(struct state *state, int more) {
    state->dirty += (unsigned)more;
    if (state->dirty_page)
        atomic_store_explicit(state->dirty_page, state->dirty, memory_order_relaxed);
}

void state_changed(struct state *state, struct name_owner *owner) {
    struct state_owner *disk = owner->disk;
    if (!disk)
        return;
    state_count_dirty(state, disk->revision == disk->saved);
    disk->revision++;
    if (!disk->since_ns)
        disk->since_ns = clock_now_ns();
    if (!state->sync_ms)
        state_go(state);
}

unsigned state_unsaved(const struct name_owner *owner, uint64_t *since_ns) {
    const struct state_owner *disk = owner->disk;
    *since_ns = 0;
    if (!disk || disk->revision == disk->saved)
        return 0;
    *since_ns = disk->save && disk->saving_since_ns ? disk->saving_since_ns : disk->since_ns;
    return disk->bound + disk->unbound ? disk->bound + disk->unbound : 1;
}

const char *state_fault(const struct name_owner *owner) {
    return owner->disk ? owner->disk->fault : "";
}

/* Whether the owner's changes wait for those of `other`, directly or through further owners. */
static bool state_is_behind(const struct name_owner *owner, const struct name_owner *other) {
    const struct name_owner *at = owner->disk ? owner->disk->behind : NULL;
    while (at && at != other)
        at = at->disk->behind;
    return at;
}

/* Saves the owners soon that this owner waits for, whatever state-sync says: a client has been told to ask again. */
static void state_hurry(struct name_owner *owner) {
    for (struct name_owner *at = owner->disk->behind; at; at = at->disk->behind)
        at->disk->hurried = true;
}

int state_check_order(const struct state *state, struct name_owner *from, struct name_owner *to, struct fault *fault) {
    if (!state || state->sealed)
        return STATUS_OK;
    struct name_owner *waiting = NULL;
    if (from->disk->behind && from->disk->behind != to)
        waiting = from;
    else if (to && state_is_behind(to, from))
        waiting = to;
    if (!waiting)
        return STATUS_OK;
    state_hurry(waiting);
    return fault_set(fault, STATUS_AGAIN, "the last names that left %s are not on the disk yet", names_shown(waiting));
}

/* If nothing is saved any more no order is refused, so two owners could be behind each other. */
void state_order(struct name_owner *from, struct name_owner *to) {
    if (!from->disk || !to->disk || state_is_behind(to, from))
        return;
    from->disk->behind = to;
    from->disk->behind_revision = to->disk->revision;
}

void state_resume(struct state *state) {
    state->paused = false;
    if (!state->sync_ms)
        state_go(state);
}

/* ---- waiting for the disk ---- */

/* Whether the reply to a wait is known. Revisions and numbers rise along the list, so these are the first ones of it. */
static bool state_wait_is_over(const struct state_wait *wait) {
    const struct state_owner *disk = wait->disk;
    return wait->revision <= disk->saved ||
           (wait->number <= disk->failed_wait && wait->revision <= disk->failed_revision);
}

/* Whether somebody waits for the owner's next save. */
static bool state_is_awaited(const struct state_owner *disk) {
    const struct state_wait *newest = TAILQ_LAST(&disk->waits, state_waits);
    return newest && !state_wait_is_over(newest);
}

/* Has turns reply to the waits that are over now. */
static void state_reply(struct state *state, struct state_owner *disk) {
    const struct state_wait *oldest = TAILQ_FIRST(&disk->waits);
    if (disk->due || !oldest || !state_wait_is_over(oldest))
        return;
    disk->due = true;
    TAILQ_INSERT_TAIL(&state->due, disk, due_link);
}

/* Has turns reply with the fault to all who wait for this revision or an earlier one now. */
static void state_reply_fault(struct state *state, struct state_owner *disk, uint64_t revision,
                              const struct fault *fault) {
    if (revision < disk->failed_revision) /* an older save, of which less is said than is known */
        return;
    disk->failed_wait = disk->waited;
    disk->failed_revision = revision;
    disk->verdict = *fault;
    state_reply(state, disk);
}

bool state_wait(struct state *state, struct name_owner *owner, struct state_wait *wait) {
    struct state_owner *disk = owner->disk;
    if (!disk || state->sync_ms || (disk->revision == disk->saved && TAILQ_EMPTY(&disk->waits)))
        return false;
    wait->disk = disk;
    wait->revision = disk->revision;
    wait->number = ++disk->waited;
    TAILQ_INSERT_TAIL(&disk->waits, wait, link);
    return true;
}

void state_wait_cancel(struct state_wait *wait) {
    if (!wait->disk)
        return;
    TAILQ_REMOVE(&wait->disk->waits, wait, link);
    wait->disk = NULL;
}

/* The owner is out of the queue: calls the oldest of its waits, if that is over. */
static void state_reply_one(struct state *state, struct state_owner *disk) {
    struct state_wait *oldest = TAILQ_FIRST(&disk->waits);
    if (!oldest || !state_wait_is_over(oldest))
        return;
    bool saved = oldest->revision <= disk->saved;
    state_wait_cancel(oldest);
    oldest->done(oldest, saved ? NULL : &disk->verdict);
    state_reply(state, disk);
}

void state_reply_some(struct state *state, struct budget *budget) {
    struct state_owner *disk;
    while ((disk = TAILQ_FIRST(&state->due))) {
        TAILQ_REMOVE(&state->due, disk, due_link);
        disk->due = false;
        state_reply_one(state, disk);
        if (TAILQ_EMPTY(&state->due))
            names_let_go(&state->service->names);
        if (budget_spent(budget, STATE_REPLY_STEPS))
            break;
    }
}

/* Owners that waited for this owner's changes wait no more. */
static void state_let_pass(struct state *state, const struct name_owner *owner) {
    for (struct name_owner *at = state->service->names.owners; at; at = at->next)
        if (at->disk && at->disk->behind == owner && at->disk->behind_revision <= owner->disk->saved)
            at->disk->behind = NULL;
}

void state_saved(struct state *state, const struct name_owner *owner) {
    state_let_pass(state, owner);
    state_reply(state, owner->disk);
    names_let_go(&state->service->names);
}

void state_not_saved(struct state *state, const struct name_owner *owner, uint64_t revision,
                     const struct fault *fault) {
    state_reply_fault(state, owner->disk, revision, fault);
    for (struct name_owner *at = state->service->names.owners; at; at = at->next)
        if (state_is_behind(at, owner)) /* changes that wait for this owner's are not saved, either */
            state_reply_fault(state, at->disk, at->disk->revision, fault);
}

void state_log_unsaved(const struct name_owner *owner, const char *reason) {
    char count[24], bytes[24], age[24];
    uint64_t since;
    unsigned unsaved = state_unsaved(owner, &since);
    log_event(LOG_LEVEL_ERROR, "names_not_saved", "principal", names_shown(owner), "names",
              log_text(count, sizeof count, "%u", unsaved), "bytes",
              log_text(bytes, sizeof bytes, "%" PRIu64, owner->disk->bytes), "since_s",
              log_text(age, sizeof age, "%.1f", since ? (double)(clock_now_ns() - since) / 1e9 : 0.0), "cause", reason,
              NULL);
}

/* ---- turns ---- */

static bool state_due(const struct state *state, const struct name_owner *owner, uint64_t now) {
    const struct state_owner *disk = owner->disk;
    if (!disk || disk->save || disk->behind || disk->revision == disk->saved)
        return false;
    if (state->closing)
        return !disk->failures;
    if (now < disk->retry_ns && !state_is_awaited(disk))
        return false; /* with a client waiting, the save is tried at once */
    if (!state->sync_ms || disk->hurried)
        return true;
    return state->sync_ms != STATE_SYNC_DRAIN && now - disk->since_ns >= state->sync_ms * 1000000;
}

/* The owner whose turn it is: every second time the owner with the least to write, otherwise the owner that has waited
 * longest. */
static struct name_owner *state_pick(struct state *state) {
    bool least = state->turns++ % 2 == 0;
    uint64_t now = clock_now_ns(), best = UINT64_MAX;
    struct name_owner *picked = NULL;
    for (struct name_owner *owner = state->service->names.owners; owner; owner = owner->next) {
        const struct save *save = owner->disk ? owner->disk->save : NULL;
        if (save ? !save->ready : state->n_saves >= STATE_SAVES_MAX || !state_due(state, owner, now))
            continue;
        uint64_t rank =
            least ? (save ? save->left : owner->disk->bytes) : (save ? save->began_ns : owner->disk->since_ns);
        if (!picked || rank < best) {
            picked = owner;
            best = rank;
        }
    }
    return picked;
}

void state_go(struct state *state) {
    if (!*state->directory || state->paused || state->sealed || state->service->failed || disk_busy(&state->disk))
        return;
    struct name_owner *owner = state_pick(state);
    struct save *save = owner ? owner->disk->save : NULL;
    if (owner && !save)
        save = save_create(state, owner);
    if (!save)
        return;
    save->ready = false;
    disk_start(&state->disk, &save->job);
}

/* Nothing is saved any more, so nobody may wait for it. */
static void state_reply_sealed(struct state *state) {
    struct fault fault;
    fault_set(&fault, STATUS_INTERNAL, "named, but not on the daemon's disk: some names there could not be restored");
    for (struct name_owner *owner = state->service->names.owners; owner; owner = owner->next)
        if (owner->disk && state_is_awaited(owner->disk))
            state_reply_fault(state, owner->disk, owner->disk->revision, &fault);
}

void state_tick(struct state *state) {
    if (state->sealed)
        state_reply_sealed(state);
    state_go(state);
}

/* ---- the end ---- */

static bool state_has_work(const struct state *state) {
    if (state->n_saves)
        return true;
    for (const struct name_owner *owner = state->service->names.owners; owner; owner = owner->next)
        if (state_due(state, owner, 0))
            return true;
    return false;
}

/* Logs the changes that are left. False: there are none. */
static bool state_tell_left(const struct state *state, const char *reason) {
    bool left = false;
    uint64_t since;
    for (const struct name_owner *owner = state->service->names.owners; owner; owner = owner->next) {
        if (!state_unsaved(owner, &since))
            continue;
        left = true;
        if (!owner->disk->failures) /* failures have been logged */
            state_log_unsaved(owner, reason);
    }
    return left;
}

bool state_save(struct state *state) {
    char reason[96] = "the device was lost";
    uint64_t deadline = clock_now_ms() + state->timeout_ms;
    if (!*state->directory)
        return true;
    for (struct name_owner *owner = state->service->names.owners; owner; owner = owner->next)
        owner->disk->failures = 0; /* each owner's save is tried once more */
    state->closing = true;
    state_go(state);
    while (!state->sealed && !state->service->failed && state_has_work(state) && clock_now_ms() < deadline)
        state->turn(state->owner, true);
    if (state->sealed)
        snprintf(reason, sizeof reason, "a folder that was not restored could not be put aside");
    else if (!state->service->failed)
        snprintf(reason, sizeof reason, "state-timeout: not done within %.1f s", (double)state->timeout_ms / 1e3);
    return !state_tell_left(state, reason);
}

/* ---- life ---- */

int state_init(struct state *state, struct service *service, const char *directory, struct fault *fault) {
    state->service = service;
    TAILQ_INIT(&state->due);
    if (!*directory)
        return STATUS_OK;
    int error = disk_init(&state->disk, service->loop, fault);
    if (error != STATUS_OK)
        return error;
    snprintf(state->directory, sizeof state->directory, "%s", directory);
    service->names.state = state;
    return STATUS_OK;
}

void state_finish(struct state *state) {
    if (*state->directory)
        disk_finish(&state->disk);
}
