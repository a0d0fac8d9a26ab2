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

/* `events` tell `owner` of all slots; on `lost` and `link_wanted` it calls supervisor_lost() and supervisor_answer_link(). */
int supervisor_init(struct supervisor *supervisor, uv_loop_t *loop, const struct config *config,
                    const struct worker_slot_events *events, void *owner, struct fault *fault);
/* The caller then runs the loop until its handles are closed, and calls supervisor_free(). */
void supervisor_finish(struct supervisor *supervisor);
void supervisor_free(struct supervisor *supervisor);

void supervisor_start(struct supervisor *supervisor);
/* What all workers need for TLS, now and after a restart; `fd` stays the caller's. */
void supervisor_set_credentials(struct supervisor *supervisor, int fd);
void supervisor_set_users(struct supervisor *supervisor, int fd);
/* No worker starts any more; each ends when its work is done, or is killed when drain-timeout and a little more is
 * over. */
void supervisor_drain(struct supervisor *supervisor);
void supervisor_kill(struct supervisor *supervisor);
/* Every worker has answered: ready, or quarantined. */
bool supervisor_settled(const struct supervisor *supervisor);
/* After it: changes of names are not on the disk, and the log has told which. */
bool supervisor_unsaved(const struct supervisor *supervisor);
/* No process is left (after supervisor_drain()). */
bool supervisor_stopped(const struct supervisor *supervisor);

/* The slot that a preamble's target means; NULL: none. */
struct worker_slot *supervisor_find(struct supervisor *supervisor, unsigned target);
/* To the workers of all devices: who was let in as this, by its credential, may not stay. */
void supervisor_revoke(struct supervisor *supervisor, const struct principal *principal);
/* Likewise: the limits of this principal are others; without a name, of all that are no users. */
void supervisor_set_limits(struct supervisor *supervisor, const char *name, const struct limits *limits);
/* Likewise: who may bring kernels is another list; and the workers may get more connections than before. */
void supervisor_set_kernels(struct supervisor *supervisor, const char *list);
void supervisor_set_places(struct supervisor *supervisor, uint64_t places);
/* Tells the other workers that this one's epoch is over: copies that wait for a link from there would wait for nothing, and
 * only they know who waits. */
void supervisor_lost(struct supervisor *supervisor, const struct worker_slot *lost);
/* Makes the link that a worker wants, and tells it of that or why there is none. */
void supervisor_answer_link(struct supervisor *supervisor, struct worker_slot *from,
                            const struct channel_message *wanted);
/* Reads all stats pages now. */
void supervisor_refresh(struct supervisor *supervisor);
/* Client connections of all workers, now. */
unsigned supervisor_connections(const struct supervisor *supervisor);
/* "cpu:0, cpu:1", for messages. */
void supervisor_names(const struct supervisor *supervisor, char *text, size_t size);
