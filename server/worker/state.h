/* Named tensors on disk. A worker saves them while it runs, by the rule that the operator chose (state-sync), and what is
 * left when it has drained; it restores them when it starts. Each owner of names has a folder on each device:
 *
 *     cpu:0@uid%3A1000/names.json      its names: for each dtype, shape, and where its bytes lie
 *     cpu:0@uid%3A1000/17.safetensors  values that were saved together, in the safetensors format
 *
 * names.json is replaced in one step, and that is the moment at which a change counts: files of values are written before,
 * under new numbers, and those that no name needs any more are removed after it. So whatever ends the process, what is found
 * is the state before a change or after it. Memory that several names show is written once. A file is written again, less
 * what is no longer named, when more than half of it is not, and small ones are merged, so that an owner's files have at most
 * about twice the bytes that it is charged for, and their number grows with the logarithm of its changes.
 *
 * A folder that cannot be restored is put aside as "….refused" and never written over.
 *
 * The disk's work is done by a thread (disk.h), in pieces; owners take turns piece by piece, every other time the one that
 * has least to write, so that nobody's gigabytes keep another's bytes from the disk. Loop thread only. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "server/process/state_directory.h"
#include "server/worker/disk.h"
#include "server/worker/names.h"

struct service;

enum { STATE_NAME_MAX = 255, STATE_FILE_MAX = STATE_PATH_MAX + STATE_NAME_MAX + 64 };

struct state {
    char directory[STATE_PATH_MAX]; /* "": nothing is saved */
    uint64_t sync_ms, timeout_ms;   /* state-sync, state-timeout */
    struct service *service;
    /* Lets the loop turn once, so that the engine gets on and the front hears of this process; waits for something to happen
     * if told to. */
    void (*turn)(void *owner, bool wait);
    void *owner;
    bool sealed;  /* a folder could be neither restored nor put aside: nothing is saved over what is there */
    bool paused;  /* several changes are one: nothing is begun between them */
    bool closing; /* all that is left is saved now, and what fails is not tried again */
    struct disk disk;
    struct save *saves; /* under way */
    unsigned n_saves;
    unsigned turns;               /* of the disk */
    unsigned dirty;               /* owners with changes that are not on the disk, */
    _Atomic uint32_t *dirty_page; /* which is told here at once; NULL: nowhere */
};

/* A change that is not told before it is on the disk. Embedded by whoever waits; it must stay put until done or
 * cancelled. */
struct state_wait {
    /* Called once, and not before state_wait() has returned. `fault` NULL: the change is on the disk. */
    void (*done)(struct state_wait *wait, const struct fault *fault);
    /* private */
    struct state_wait *next, **previous; /* previous NULL: in no list */
    uint64_t revision;
};

/* `directory` "": nothing is saved, and nothing below does anything. */
int state_init(struct state *state, struct service *service, const char *directory, struct fault *fault);
/* The names have gone. The caller runs the loop until the handles are closed. */
void state_finish(struct state *state);

/* Before the first connection. What goes wrong is logged, and told by names->fault. */
void state_restore(struct state *state);
/* At each tick of the service. */
void state_tick(struct state *state);
/* After the last connection: saves what is not yet saved, within state-timeout. What goes wrong is logged, and the old files
 * stay. False: some change is not on the disk. */
bool state_save(struct state *state);

/* ---- for names.c ---- */

/* What is on the disk of an owner's names; NULL without memory. */
struct state_owner *state_owner_create(void);
/* Takes NULL. It is idle. */
void state_owner_destroy(struct state_owner *owner);
/* Nothing is to be saved or under way, so that an owner without names may go. */
bool state_owner_idle(const struct state_owner *owner);
/* A name of the owner's has been bound; or is bound to `entry` no more, but `replaced` by another. */
void state_bound(struct name_owner *owner, struct name_entry *entry);
void state_unbound(struct name_owner *owner, struct name_entry *entry, bool replaced);
/* All of these that make one change have been told. */
void state_changed(struct state *state, struct name_owner *owner);
void saved_value_unref(struct saved_value *value);

/* Before anything is moved; `to` NULL: it is new. STATUS_AGAIN where state_order() could not hold: `from` is behind another
 * one already, or `to` is behind `from`. */
int state_check_order(const struct state *state, struct name_owner *from, struct name_owner *to, struct fault *fault);
/* What leaves `from` is on the disk of `to` before it is gone from its own: who waits for `from` has waited for both.
 * Between pausing and state_resume(). */
void state_order(struct name_owner *from, struct name_owner *to);
void state_resume(struct state *state);

/* Changes of the owner's that are not on the disk, and since when (0: there is none). */
unsigned state_unsaved(const struct name_owner *owner, uint64_t *since_ns);
/* Why they could not be saved; "". */
const char *state_fault(const struct name_owner *owner);

/* True where the owner's last change is to be told only when it is on the disk: then `wait` is called. */
bool state_wait(struct state *state, struct name_owner *owner, struct state_wait *wait);
void state_wait_cancel(struct state_wait *wait);
