/* All workers: a slot for each configured device. It has the watchdog over the workers, the links between them, their
 * end, and the end of a session by an operator's request. Front thread only. */
#pragma once

#include <sys/queue.h>

#include "server/front/worker_slot.h"

enum { KILL_REASON_MAX = 128, KILL_TIMEOUT_MS = 5000 };

struct kill {
    /* Called once, possibly before kill_start() returns: STATUS_OK, or why the session was not ended. `kill` is
     * finished by then. */
    void (*done)(struct kill *kill, const struct fault *fault);
    /* private */
    uint64_t session, deadline_ms;
    bool asked[CONFIG_DEVICES_MAX]; /* by slot: it was asked and has not replied */
    const struct worker_slot *deaf; /* a worker that could not be asked and may have the session; else NULL */
    LIST_ENTRY(kill) link;
};

struct supervisor {
    uv_loop_t *loop;
    const struct config *config;
    struct worker_slot *slots; /* by target */
    unsigned n_slots;
    uv_timer_t tick, patience; /* patience: bounds a drain */
    uint64_t ticked_ns;
    LIST_HEAD(, kill) kills;
    void (*ticked)(void *owner); /* every 250 ms; may be NULL */
    void *owner;
};

/* `events` tell `owner` about all slots. The owner calls supervisor_lost() on `lost`, supervisor_reply_link() on
 * `link_wanted`, and supervisor_link_room() on `link_room`. */
int supervisor_init(struct supervisor *supervisor, uv_loop_t *loop, const struct config *config,
                    const struct worker_slot_events *events, void *owner, struct fault *fault);
/* The caller then runs the loop until its handles are closed, and calls supervisor_free(). */
void supervisor_finish(struct supervisor *supervisor);
void supervisor_free(struct supervisor *supervisor);

void supervisor_start(struct supervisor *supervisor);
/* Sends to all workers their credentials for TLS (credentials_open()), and the list of users: now and after each
 * restart. `fd` stays the caller's. */
void supervisor_set_credentials(struct supervisor *supervisor, int fd);
void supervisor_set_users(struct supervisor *supervisor, int fd);
/* No worker starts any more. Each ends when its work is done, or is killed a little after drain-timeout. */
void supervisor_drain(struct supervisor *supervisor);
void supervisor_kill(struct supervisor *supervisor);
/* Whether each worker is ready or quarantined. */
bool supervisor_settled(const struct supervisor *supervisor);
/* After a drain: whether changes of names are not on the disk; the log says which. */
bool supervisor_unsaved(const struct supervisor *supervisor);
/* Whether no process is left (after supervisor_drain()). */
bool supervisor_stopped(const struct supervisor *supervisor);

/* The slot that a preamble's target means; NULL: none. */
struct worker_slot *supervisor_find(struct supervisor *supervisor, unsigned target);
/* Tells all workers to end the connections that logged in as this principal with this credential. */
void supervisor_revoke(struct supervisor *supervisor, const struct principal *principal);
/* Tells all workers the new limits of this principal; without a name, those of all principals that are no users. */
void supervisor_set_limits(struct supervisor *supervisor, const char *name, const struct limits *limits);
/* Tells all workers the new list of user-kernels; and the new max-connections. */
void supervisor_set_kernels(struct supervisor *supervisor, const char *list);
void supervisor_set_places(struct supervisor *supervisor, uint64_t places);
/* Tells the other workers that this worker's epoch is over, so that copies which wait for a link from it fail. */
void supervisor_lost(struct supervisor *supervisor, const struct worker_slot *lost);
/* Makes the link that a worker wants, and sends it the link or the reason why there is none. */
void supervisor_reply_link(struct supervisor *supervisor, struct worker_slot *from,
                           const struct channel_message *wanted);
/* Tells the worker of message->link.device that `to` takes links again. */
void supervisor_link_room(struct supervisor *supervisor, const struct worker_slot *to,
                          const struct channel_message *message);
/* Reads all stats pages now. */
void supervisor_refresh(struct supervisor *supervisor);
/* Client connections of all workers, now. */
unsigned supervisor_connections(const struct supervisor *supervisor);
/* "cpu:0, cpu:1", for messages. */
void supervisor_names(const struct supervisor *supervisor, char *text, size_t size);

/* Ends a session by an operator's request. Only a worker knows for certain whether it has the session, so all workers are
 * asked. The request succeeds with the first worker that had the session, and fails when no worker had it. The sessions
 * of a worker that dies end with it; a worker that hangs is waited for until KILL_TIMEOUT_MS.
 * `by` and `reason` are for the session's client and the log; each is cut if it is too long. */
void kill_start(struct supervisor *supervisor, struct kill *kill, uint64_t session, const char *by, const char *reason);
/* The caller waits no longer: `done` will not be called. */
void kill_forget(struct kill *kill);

/* A worker's CHANNEL_KILLED. */
void kill_replied(struct supervisor *supervisor, const struct worker_slot *slot, const struct channel_message *reply);
