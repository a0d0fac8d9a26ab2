#include "server/front/kill.h"

#include <stdio.h>
#include <string.h>

#include "server/front/front.h"
#include "server/process/clock.h"

static void kill_finish(struct kill *kill, const struct fault *fault) {
    LIST_REMOVE(kill, link);
    kill->done(kill, fault);
}

static void kill_finish_unknown(struct kill *kill) {
    struct fault fault;
    if (kill->deaf)
        fault_set(&fault, STATUS_AGAIN,
                  "%s could not be asked whether it has session %llu, and no other device has it: "
                  "the daemon has no memory for more words to its worker; try again",
                  kill->deaf->device.name, (unsigned long long)kill->session);
    else
        fault_set(&fault, STATUS_INVALID_ARGUMENT, "there is no session %llu (it may just have ended)",
                  (unsigned long long)kill->session);
    kill_finish(kill, &fault);
}

/* The first device that has not replied; NULL: all have. */
static const struct worker_slot *kill_missing(const struct front *front, const struct kill *kill) {
    for (unsigned i = 0; i < front->supervisor.n_slots; i++)
        if (kill->asked[i])
            return &front->supervisor.slots[i];
    return NULL;
}

void kill_start(struct front *front, struct kill *kill, uint64_t session, const char *by, const char *reason) {
    struct channel_message message;
    memset(&message, 0, sizeof message);
    message.type = CHANNEL_KILL;
    message.kill.session = session;
    snprintf(message.kill.by, sizeof message.kill.by, "%s", by);
    snprintf(message.kill.reason, sizeof message.kill.reason, "%s", reason);
    kill->session = session;
    kill->deadline_ms = clock_now_ms() + KILL_TIMEOUT_MS;
    LIST_INSERT_HEAD(&front->kills.head, kill, link);
    kill->deaf = NULL;
    for (unsigned i = 0; i < front->supervisor.n_slots; i++) {
        int error = worker_slot_send(&front->supervisor.slots[i], &message, -1);
        kill->asked[i] = error == STATUS_OK;
        if (error == STATUS_LIMIT)
            kill->deaf = &front->supervisor.slots[i];
    }
    if (!kill_missing(front, kill))
        kill_finish_unknown(kill);
}

void kill_forget(struct kill *kill) {
    LIST_REMOVE(kill, link);
}

void kill_replied(void *owner, const struct worker_slot *slot, const struct channel_message *reply) {
    struct front *front = owner;
    const struct fault ended = {0};
    struct kill *next;
    for (struct kill *kill = LIST_FIRST(&front->kills.head); kill; kill = next) {
        next = LIST_NEXT(kill, link);
        if (kill->session != reply->kill.session || !kill->asked[slot->target])
            continue;
        kill->asked[slot->target] = false;
        if (reply->kill.found)
            kill_finish(kill, &ended);
        else if (!kill_missing(front, kill))
            kill_finish_unknown(kill);
    }
}

void kill_lost(struct front *front, const struct worker_slot *slot) {
    struct kill *next;
    for (struct kill *kill = LIST_FIRST(&front->kills.head); kill; kill = next) {
        next = LIST_NEXT(kill, link);
        bool asked = kill->asked[slot->target];
        kill->asked[slot->target] = false;
        if (asked && !kill_missing(front, kill))
            kill_finish_unknown(kill);
    }
}

void kill_tick(struct front *front) {
    uint64_t now = clock_now_ms();
    struct fault fault;
    struct kill *next;
    for (struct kill *kill = LIST_FIRST(&front->kills.head); kill; kill = next) {
        next = LIST_NEXT(kill, link);
        if (now < kill->deadline_ms)
            continue;
        fault_set(&fault, STATUS_TIMED_OUT, "%s does not answer; a session %llu of it ends as soon as it does",
                  kill_missing(front, kill)->device.name, (unsigned long long)kill->session);
        kill_finish(kill, &fault);
    }
}
