/* Named tensors on disk. A worker saves them while it runs, when the operator's setting (state-sync) says so, and
 * saves the rest at the end of a drain. It restores them when it starts. Each owner of names has a folder for each
 * device:
 *
 *     cpu:0@uid%3A1000/names.json      the index: for each name its dtype, its shape, and where its bytes are
 *     cpu:0@uid%3A1000/17.safetensors  values that were saved together, in the safetensors format
 *
 * names.json is replaced in one step, and a change is saved at that moment: files of values are written before, under
 * new numbers, and files that no name needs any more are removed afterwards. However the process ends, the folder
 * therefore holds the state before a change or after it. Memory that several names show is written once. When more
 * than half of a file has no name any more, the rest of it is written again in a new file, and small files are merged. So
 * an owner's files have at most about twice the bytes that the owner is charged for, and their number grows with the
 * logarithm of its changes.
 *
 * A folder that cannot be restored is renamed to "….refused" and never overwritten.
 *
 * A thread does the disk's work (struct disk), in pieces. Owners take turns piece by piece, and every second turn goes to
 * the owner that has least to write, so that an owner with gigabytes does not delay the others. Loop thread only. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

#include "server/process/state_directory.h"
#include "server/worker/names.h"

struct budget;
struct service;

enum { STATE_NAME_MAX = 255, STATE_FILE_MAX = STATE_PATH_MAX + STATE_NAME_MAX + 64 };

struct disk_job {
    void (*run)(struct disk_job *job);  /* called on the disk's thread */
    void (*done)(struct disk_job *job); /* called on the loop after that */
};

/* A thread for work that waits for a disk, one job at a time, so that the loop does not wait. If no thread can be
 * started the loop does the work. */
struct disk {
    uv_async_t async;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;
    bool threaded, stopping;
    struct disk_job *job; /* in progress, or done and waiting for the call of `done`; NULL: none */
    bool taken, ran;      /* under the lock */
};

struct state {
    char directory[STATE_PATH_MAX]; /* "": nothing is saved */
    uint64_t sync_ms, timeout_ms;   /* state-sync, state-timeout */
    struct service *service;
    /* Runs the loop for one turn, so that the engine makes progress and the front gets a sign of life. `wait`: waits
     * for an event. */
    void (*turn)(void *owner, bool wait);
    void *owner;
    /* A folder could be neither restored nor renamed: nothing is saved, so that nothing in it is overwritten. */
    bool sealed;
    bool paused;  /* several changes belong together: no save begins between them */
    bool closing; /* all that is left is saved now, and failures are not tried again */
    struct disk disk;
    TAILQ_HEAD(, state_owner) due; /* owners with waits that are over; they get their replies one in turn */
    unsigned n_saves;              /* in progress */
    unsigned turns;                /* number of jobs that the disk has been given */
    unsigned dirty;                /* owners with changes that are not on the disk; */
    _Atomic uint32_t *dirty_page;  /* the same number on the stats page; NULL: there is no page */
};

/* Waits until a change is on the disk. Embedded in the object that waits, at a fixed address until done or
 * cancelled. */
struct state_wait {
    /* Called once, by state_reply_some(). `fault` NULL: the change is on the disk. */
    void (*done)(struct state_wait *wait, const struct fault *fault);
    /* private */
    TAILQ_ENTRY(state_wait) link;
    struct state_owner *disk; /* in whose list it is; NULL: in none */
    uint64_t revision;        /* the change that it waits for */
    uint64_t number;          /* among the owner's waits */
};

/* `directory` "": nothing is saved, and the functions below do nothing. */
int state_init(struct state *state, struct service *service, const char *directory, struct fault *fault);
/* Call it after names_finish(). The caller then runs the loop until the handles are closed. */
void state_finish(struct state *state);

/* Call it before the first connection. Errors are logged, and shown in names->fault. */
void state_restore(struct state *state);
/* At each tick of the service. */
void state_tick(struct state *state);
/* Part of a turn: calls those whose wait is over, as far as the budget goes, but at least one of them. An owner's waits
 * are called in the order in which they began, and owners take turns. */
void state_reply_some(struct state *state, struct budget *budget);
/* Whether state_reply_some() has more to do. */
static inline bool state_has_replies(const struct state *state) {
    return !TAILQ_EMPTY(&state->due);
}
/* After the last connection: saves what is not saved, within state-timeout. Errors are logged, and the old files stay.
 * False: some change is not on the disk. */
bool state_save(struct state *state);

/* ---- for names.c ---- */

/* NULL without memory. */
struct state_owner *state_owner_create(void);
/* Nobody may wait for the owner. Takes NULL. */
void state_owner_destroy(struct state *state, struct state_owner *owner);
/* Whether nothing is to be saved or being saved, and nobody waits, so that an owner without names may be destroyed. */
bool state_owner_idle(const struct state_owner *owner);
/* A name of the owner has been bound; a name has been removed, or `replaced` by another entry. */
void state_bound(struct name_owner *owner, struct name_entry *entry);
void state_unbound(struct name_owner *owner, struct name_entry *entry, bool replaced);
/* Ends a change, which consists of the calls above. */
void state_changed(struct state *state, struct name_owner *owner);
void saved_value_unref(struct saved_value *value);

/* Checks, before anything is moved, that state_order() is possible. `to` NULL: a new owner. STATUS_AGAIN: `from`
 * already waits for another owner, or `to` waits for `from`. */
int state_check_order(const struct state *state, struct name_owner *from, struct name_owner *to, struct fault *fault);
/* The changes of `to` are saved before those of `from`, so a name that moves is always in at least one of the two
 * folders. Call it between setting `paused` and state_resume(). */
void state_order(struct name_owner *from, struct name_owner *to);
void state_resume(struct state *state);

/* The number of the owner's changes that are not on the disk, and since when (0: there are none). */
unsigned state_unsaved(const struct name_owner *owner, uint64_t *since_ns);
/* Why the last save failed; "": it did not. */
const char *state_fault(const struct name_owner *owner);

/* True: the reply to the owner's last change must wait for the disk, or for replies to earlier changes that have not
 * been sent yet, and `wait` will be called. */
bool state_wait(struct state *state, struct name_owner *owner, struct state_wait *wait);
void state_wait_cancel(struct state_wait *wait);
