/* The place of one device's worker: which process fills it now, when it is started again, and what its stats page said
 * last. Front thread only. */
#pragma once

#include <uv.h>

#include "server/front/arrival.h"
#include "server/front/config.h"
#include "server/front/worker_process.h"

enum worker_state {
    WORKER_STARTING, /* its first process is not ready yet */
    WORKER_READY,
    WORKER_RESTARTING,  /* between a failure and the next READY */
    WORKER_LOST,        /* the process is still there, but the device is not */
    WORKER_QUARANTINED, /* failed too often */
    WORKER_STOPPED,     /* ended by a drain */
};

/* The last good copy of a stats page. */
struct worker_snapshot {
    struct stats_device device;
    struct stats_session *sessions; /* STATS_SESSIONS_MAX of them */
    unsigned n_sessions;
    struct stats_principal *principals; /* STATS_PRINCIPALS_MAX of them */
    unsigned n_principals;
    uint64_t written_ns; /* CLOCK_MONOTONIC */
};

struct worker_slot;
struct worker_slot_events {
    /* A slot's state is another one, or `taken` is. */
    void (*changed)(void *owner);
    /* No session of the epochs before this one will send anything any more. */
    void (*lost)(void *owner, const struct worker_slot *slot);
    /* The worker could not take the connection that it was handed as this session. */
    void (*refused)(void *owner, const struct worker_slot *slot, uint64_t session);
    /* The worker has answered CHANNEL_KILL. */
    void (*killed)(void *owner, const struct worker_slot *slot, const struct channel_message *message);
    /* The connection that was handed over as this session is gone; 0: all of this worker's are. */
    void (*ended)(void *owner, const struct worker_slot *slot, uint64_t session);
    /* Its connection of this session has said Hello. */
    void (*greeted)(void *owner, const struct worker_slot *slot, uint64_t session);
    /* A client of the worker wants to log in; answered likewise. */
    void (*login)(void *owner, struct worker_slot *slot, const struct channel_message *message);
    /* The worker wants a link; answered with worker_slot_send(). */
    void (*link_wanted)(void *owner, struct worker_slot *slot, const struct channel_message *message);
};

struct worker_slot {
    uv_loop_t *loop;
    const struct config *config;
    struct config_device device;
    uint16_t target;
    const struct worker_slot_events *events;
    void *owner;

    enum worker_state state;
    bool draining;
    bool unsaved; /* changes of names were lost when one of its processes ended: the log tells which */
    struct worker_process *process; /* NULL: none runs */
    uv_timer_t restart;
    uint64_t epoch; /* counts starts; the first is 1 */
    uint32_t restarts;
    uint64_t started_ns, ready_ns, lost_ns, watched_ns;
    uint64_t backoff_ms;                         /* before the next restart */
    uint64_t failures_ns[CONFIG_QUARANTINE_MAX]; /* a ring */
    unsigned n_failures;                         /* ever */
    char cause[256];                             /* why this process ends, as far as known before it does */
    char last_fault[256];                        /* "" while there was none */
    uint64_t last_fault_ns;
    uint64_t xid, xid_ns;                /* the last one that any of its processes was told; 0: none */
    struct stats_operations *operations; /* as the last process that was ready wrote them down */
    bool operations_known;
    struct worker_snapshot snapshot;
    uint64_t handed;      /* connections given to this process, */
    uint64_t handed_kept; /* and these in places that are kept */
    uint64_t taken; /* of these, what the process has taken out of its channel; the last one's until the next start */
    uint64_t taken_on_page; /* as the page said at the last tick */
    int credentials;        /* for TLS; borrowed; -1: none */
    int users;              /* for CHANNEL_USERS; likewise */
};

const char *worker_state_name(enum worker_state state);

int worker_slot_init(struct worker_slot *slot, uv_loop_t *loop, const struct config *config, unsigned number,
                     const struct worker_slot_events *events, void *owner, struct fault *fault);
/* Kills what runs. The caller then runs the loop until its handles are closed. */
void worker_slot_finish(struct worker_slot *slot);
void worker_slot_start(struct worker_slot *slot);

/* Hands a client's socket over (takes `fd`, also on failure). `kept`: it has a place that is kept for one that comes back.
 * STATUS_LIMIT, STATUS_DEVICE_LOST. */
int worker_slot_connect(struct worker_slot *slot, int fd, uint64_t session, bool kept, const struct peer *peer);
/* What workers need for TLS (credentials.h), now and at each start; `fd` stays the caller's. */
void worker_slot_set_credentials(struct worker_slot *slot, int fd);
/* The users that there are, likewise. */
void worker_slot_set_users(struct worker_slot *slot, int fd);
/* As worker_process_send(); STATUS_DEVICE_LOST where no process is ready. */
int worker_slot_send(struct worker_slot *slot, const struct channel_message *message, int fd);
/* Says how many connections there may be in all, so that the worker makes room for as many descriptors. It hears it again
 * when it is ready. */
void worker_slot_offer_places(struct worker_slot *slot, uint64_t places);
/* Ends the worker: a ready one after it has finished its work, any other one at once. */
void worker_slot_drain(struct worker_slot *slot);
void worker_slot_kill(struct worker_slot *slot, const char *cause);

/* Every 250 ms: refreshes the snapshot, and kills a worker that has given no sign of life for too long. `late`: the
 * front itself did not run for a while, so the heartbeat's age says nothing. */
void worker_slot_tick(struct worker_slot *slot, bool late);
/* Reads the page now; where that fails the last copy stays. */
void worker_slot_refresh(struct worker_slot *slot);
/* Client connections that this worker has, as far as the front can know. */
unsigned worker_slot_connections(const struct worker_slot *slot);
