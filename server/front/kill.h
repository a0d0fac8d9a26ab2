/* Ending a session by an operator's request. Only a worker knows for certain whether it has the session, so all
 * workers are asked. The request succeeds with the first worker that had the session, and fails when no worker did.
 * The sessions of a worker that dies end with it; a worker that hangs is waited for until KILL_TIMEOUT_MS. Front
 * thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "server/front/config.h"
#include "server/ipc/channel.h"

struct front;
struct worker_slot;

enum { KILL_REASON_MAX = 128, KILL_TIMEOUT_MS = 5000 };

struct kill {
    /* Called once, possibly before kill_start() returns: STATUS_OK, or why the session was not ended. `kill` is
     * finished by then. */
    void (*done)(struct kill *kill, const struct fault *fault);
    /* private */
    uint64_t session, deadline_ms;
    bool asked[CONFIG_DEVICES_MAX]; /* and no reply yet, by slot */
    const struct worker_slot *deaf; /* a worker that could not be asked and may have the session; else NULL */
    LIST_ENTRY(kill) link;
};

struct kill_list {
    LIST_HEAD(, kill) head;
};

/* `by` and `reason` are for the session's client and the log; each is cut if it is too long. */
void kill_start(struct front *front, struct kill *kill, uint64_t session, const char *by, const char *reason);
/* The caller waits no longer: `done` will not be called. */
void kill_forget(struct kill *kill);

/* A worker's reply (`owner`: the front); a worker has ended; time has passed. */
void kill_replied(void *owner, const struct worker_slot *slot, const struct channel_message *reply);
void kill_lost(struct front *front, const struct worker_slot *slot);
void kill_tick(struct front *front);
