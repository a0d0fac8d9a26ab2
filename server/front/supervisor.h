/* All workers: one slot for each configured device; the watchdog over them, the links between them, and their end.
 * Front thread only. */
#pragma once

#include "server/front/worker_slot.h"

struct supervisor {
    uv_loop_t *loop;
    const struct config *config;
    struct worker_slot *slots; /* by target */
    unsigned n_slots;
    uv_timer_t tick, patience; /* patience: bounds a drain */
    uint64_t ticked_ns;
    void (*ticked)(void *owner); /* every 250 ms; may be NULL */
    void *owner;
};

/* `events` tell `owner` about all slots. The owner calls supervisor_lost() on `lost` and supervisor_reply_link() on
 * `link_wanted`. */
int supervisor_init(struct supervisor *supervisor, uv_loop_t *loop, const struct config *config,
                    const struct worker_slot_events *events, void *owner, struct fault *fault);
/* The caller then runs the loop until its handles are closed, and calls supervisor_free(). */
void supervisor_finish(struct supervisor *supervisor);
void supervisor_free(struct supervisor *supervisor);

void supervisor_start(struct supervisor *supervisor);
/* Sends to all workers what they need for TLS, and which users there are: now and after each restart. `fd` stays the
 * caller's. */
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
/* Reads all stats pages now. */
void supervisor_refresh(struct supervisor *supervisor);
/* Client connections of all workers, now. */
unsigned supervisor_connections(const struct supervisor *supervisor);
/* "cpu:0, cpu:1", for messages. */
void supervisor_names(const struct supervisor *supervisor, char *text, size_t size);
