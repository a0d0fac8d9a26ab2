/* The slot of one device's worker: the process that runs in it now, when the next one is started, and the last good
 * copy of the stats page. Front thread only. */
#pragma once

#include <uv.h>

#include "server/front/arrival.h"
#include "server/front/config.h"
#include "server/front/worker_process.h"

enum worker_state {
    WORKER_STARTING, /* the first process is not ready yet */
    WORKER_READY,
    WORKER_RESTARTING,  /* between a failure and the next READY */
    WORKER_LOST,        /* the process still runs, but its device is lost */
    WORKER_QUARANTINED, /* the worker failed too often, and is not started again */
    WORKER_STOPPED,     /* the worker has ended in a drain */
};

/* The last good copy of a stats page. */
struct worker_snapshot {
    struct stats_device device;
    struct stats_session *sessions; /* STATS_SESSIONS_MAX of them */
    unsigned n_sessions;
    struct stats_principal *principals; /* STATS_PRINCIPALS_MAX of them */
    unsigned n_principals;
    struct stats_program *programs; /* STATS_PROGRAMS_MAX of them */
    unsigned n_programs;
    uint64_t written_ns; /* CLOCK_MONOTONIC */
};

struct worker_slot;
struct worker_slot_events {
    /* The slot's state has changed, or `taken` has, or it takes connections again. */
    void (*changed)(void *owner);
    /* The process has ended: the sessions of its epoch are gone. */
    void (*lost)(void *owner, const struct worker_slot *slot);
    /* The worker could not take the connection that was handed to it under this session number. */
    void (*refused)(void *owner, const struct worker_slot *slot, uint64_t session);
    /* The worker has replied to CHANNEL_KILL. */
    void (*killed)(void *owner, const struct worker_slot *slot, const struct channel_message *message);
    /* The connection of this session number has ended; 0: all connections of this worker have. */
    void (*ended)(void *owner, const struct worker_slot *slot, uint64_t session);
    /* The client of this session number has said Hello. */
    void (*greeted)(void *owner, const struct worker_slot *slot, uint64_t session);
    /* A client of the worker wants to log in; the receiver replies with worker_slot_send(). */
    void (*login)(void *owner, struct worker_slot *slot, const struct channel_message *message);
    /* The worker wants a link; the receiver replies with worker_slot_send(). */
    void (*link_wanted)(void *owner, struct worker_slot *slot, const struct channel_message *message);
    /* The worker takes links from message->link.device again. */
    void (*link_room)(void *owner, struct worker_slot *slot, const struct channel_message *message);
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
    bool unsaved; /* a process ended with changes of names that were not on the disk; the log says which */
    struct worker_process *process; /* NULL: none runs */
    uv_timer_t restart;
    uint64_t epoch; /* number of the present start; the first is 1 */
    uint32_t restarts;
    uint64_t started_ns, ready_ns, lost_ns, watched_ns;
    uint64_t backoff_ms;                         /* before the next restart */
    uint64_t failures_ns[CONFIG_QUARANTINE_MAX]; /* when the worker failed last; a ring */
    unsigned n_failures;                         /* since the daemon started */
    char cause[256];                             /* why the process will end, if that is known before it does */
    char last_fault[256];                        /* "": there was none */
    uint64_t last_fault_ns;
    uint64_t xid, xid_ns;                /* the last Xid that any process reported; 0: none */
    struct stats_operations *operations; /* as the last ready process wrote them */
    bool operations_known;
    struct worker_snapshot snapshot;
    uint64_t handed;      /* connections handed to this process, */
    uint64_t handed_kept; /* and those of them in kept places; */
    uint64_t ended;       /* those of whose end the process has told */
    /* How many of them the process has taken from the channel; the number stays until the next process starts. */
    uint64_t taken;
    uint64_t taken_on_page; /* as the stats page had it at the last tick */
    int credentials;        /* a descriptor for CHANNEL_CREDENTIALS, borrowed; -1: none */
    int users;              /* a descriptor for CHANNEL_USERS, borrowed; -1: none */
};

const char *worker_state_name(enum worker_state state);

int worker_slot_init(struct worker_slot *slot, uv_loop_t *loop, const struct config *config, unsigned number,
                     const struct worker_slot_events *events, void *owner, struct fault *fault);
/* Kills the process, if one runs. The caller then runs the loop until its handles are closed. */
void worker_slot_finish(struct worker_slot *slot);
void worker_slot_start(struct worker_slot *slot);

/* Hands a client's socket to the worker; takes `fd`, also on failure. `kept`: the connection has a kept place
 * (places.h). STATUS_LIMIT, STATUS_DEVICE_LOST. */
int worker_slot_connect(struct worker_slot *slot, int fd, uint64_t session, bool kept, const struct peer *peer);
/* Whether a connection may be handed over now. Not while many are under way, because the channel refuses more than a few
 * hundred; and not while the process has to tell of the end of many. Otherwise clients that come and go faster than the
 * front hears of it would have it keep more and more connections that are gone. */
bool worker_slot_takes(const struct worker_slot *slot);
/* Sends the credentials for TLS (credentials_open()), now and at each start; `fd` stays the caller's. */
void worker_slot_set_credentials(struct worker_slot *slot, int fd);
/* Sends the list of users, likewise. */
void worker_slot_set_users(struct worker_slot *slot, int fd);
/* As worker_process_send(); STATUS_DEVICE_LOST where no process is ready. */
int worker_slot_send(struct worker_slot *slot, const struct channel_message *message, int fd);
/* Sends max-connections, so that the worker raises its limit of descriptors; the worker gets it again when it is
 * ready. */
void worker_slot_offer_places(struct worker_slot *slot, uint64_t places);
/* Ends the worker: after it has finished its work if it is ready, otherwise at once. */
void worker_slot_drain(struct worker_slot *slot);
void worker_slot_kill(struct worker_slot *slot, const char *cause);

/* Every 250 ms: refreshes the snapshot, and kills a worker that has given no sign of life for too long. `late`: the
 * front itself did not run for a while, so the age of the worker's heartbeat means nothing. */
void worker_slot_tick(struct worker_slot *slot, bool late);
/* Copies the stats page into the snapshot; if that fails the old copy stays. */
void worker_slot_refresh(struct worker_slot *slot);
/* How many client connections the worker has, as far as the front knows. */
unsigned worker_slot_connections(const struct worker_slot *slot);
