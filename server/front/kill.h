/* Ending a session on an operator's word. Only its worker knows for certain whether it is there, so all of them are asked,
 * and the first that had it, or the last that had not, is the answer. A worker that dies meanwhile had its sessions with
 * it; one that hangs is waited for within bounds. Front thread only. */
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
    /* Called once, possibly before kill_start() returns: STATUS_OK, or why it was not ended. `kill` is dead by then. */
    void (*done)(struct kill *kill, const struct fault *fault);
    /* private */
    uint64_t session, deadline_ms;
    bool asked[CONFIG_DEVICES_MAX]; /* and not yet answered, by slot */
    const struct worker_slot *deaf; /* one that could not be asked, and may have it; NULL: none */
    LIST_ENTRY(kill) link;
};

struct kill_list {
    LIST_HEAD(, kill) head;
};

/* `by` and `reason` are for the session's client and the log; either is cut where it is too long. */
void kill_start(struct front *front, struct kill *kill, uint64_t session, const char *by, const char *reason);
/* Nobody waits for it any more; there will be no call. */
void kill_forget(struct kill *kill);

/* A worker's answer (`owner`: the front); a worker that has ended; and the passing of time. */
void kill_answered(void *owner, const struct worker_slot *slot, const struct channel_message *answer);
void kill_lost(struct front *front, const struct worker_slot *slot);
void kill_tick(struct front *front);
