/* The stats page: one shared mapping for each worker (a memfd made by the front, inherited by the worker). The worker
 * writes it under a sequence lock; the front reads it whenever somebody asks, so there is a status even when a device
 * hangs. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/device/device.h"
#include "engine/engine.h"
#include "engine/program/recorded.h"
#include "engine/session/session.h"
#include "proto/ops/op.h"
#include "server/ipc/peer.h"
#include "server/users/principal.h"

enum {
    STATS_SESSIONS_MAX = 1024,
    STATS_OWNERS_MAX = 64,
    STATS_PRINCIPALS_MAX = 1024,
    STATS_PROGRAMS_MAX = 256,
    STATS_SESSION_PROGRAMS_MAX = 32, /* of one session */
};

/* Which operations the worker's device supports. Written once, before the worker says that it is ready, and therefore
 * outside the page's lock. */
enum { STATS_REASON_MAX = 112 };

struct stats_operations {
    struct stats_operation {
        uint32_t supported;            /* a bit for each dtype of op_presented(): 1 << DTYPE_F32 and so on */
        char reason[STATS_REASON_MAX]; /* why a dtype is missing; "": none is */
    } rows[OP_CODE_MAX];               /* by opcode */
};

/* For the worker. Touches only memory of operations that are supported or need a reason. */
void stats_operations_write(struct stats_operations *operations, struct device *device);
/* For the front, which does not rely on the texts in the page to be terminated. */
void stats_operations_read(const struct stats_operations *page, struct stats_operations *copy);

/* Limits by their keys, for counts of how often each was met. Each worker counts since its start, and the front counts what
 * it decides. */
#define REFUSAL_TABLE(X)                                                                                               \
    X(MAX_CONNECTIONS, "max-connections")                                                                              \
    X(PRINCIPAL_CONNECTIONS, "principal-connections")                                                                  \
    X(MAX_SESSIONS, "max-sessions")                                                                                    \
    X(PRINCIPAL_SESSIONS, "principal-sessions")                                                                        \
    X(SESSION_BYTES, "session-bytes")                                                                                  \
    X(PRINCIPAL_BYTES, "principal-bytes")                                                                              \
    X(SESSION_HOST_BYTES, "session-host-bytes")                                                                        \
    X(PRINCIPAL_HOST_BYTES, "principal-host-bytes")                                                                    \
    X(SESSION_TENSORS, "session-tensors")                                                                              \
    X(SESSION_STREAMS, "session-streams")                                                                              \
    X(HELLO_TIMEOUT, "hello-timeout")                                                                                  \
    X(IDLE_TIMEOUT, "idle-timeout")                                                                                    \
    X(SESSION_OPERATIONS, "session-operations")                                                                        \
    X(PRINCIPAL_OPERATIONS, "principal-operations")                                                                    \
    X(SESSION_OUT_BYTES, "session-out-bytes")                                                                          \
    X(PRINCIPAL_RATE, "principal-rate")

enum refusal {
#define X(NAME, key) REFUSAL_##NAME,
    REFUSAL_TABLE(X)
#undef X
        REFUSAL_COUNT
};

/* The limits up to this one refuse or close something; the others only delay it. */
enum { REFUSAL_LAST_HARD = REFUSAL_IDLE_TIMEOUT };

static inline const char *refusal_key(enum refusal refusal) {
    static const char *const keys[] = {
#define X(NAME, key) key,
        REFUSAL_TABLE(X)
#undef X
    };
    return keys[refusal];
}

/* Adds what the engine has counted. */
static inline void refusal_add_engine(uint64_t counts[REFUSAL_COUNT], const struct engine_stats *stats) {
    counts[REFUSAL_SESSION_BYTES] += stats->refusals[LEDGER_REFUSED_SESSION_BYTES];
    counts[REFUSAL_PRINCIPAL_BYTES] += stats->refusals[LEDGER_REFUSED_TENANT_BYTES];
    counts[REFUSAL_SESSION_HOST_BYTES] += stats->refusals[LEDGER_REFUSED_SESSION_HOST];
    counts[REFUSAL_PRINCIPAL_HOST_BYTES] += stats->refusals[LEDGER_REFUSED_TENANT_HOST];
    counts[REFUSAL_SESSION_TENSORS] += stats->refusals[LEDGER_REFUSED_TENSORS];
    counts[REFUSAL_SESSION_STREAMS] += stats->refusals[LEDGER_REFUSED_STREAMS];
}

/* Named tensors: sums, and the principals with the most bytes. */
struct stats_names {
    uint64_t count, bytes;
    char fault[256]; /* why saved tensors could not be restored; "": they were */
    /* Changes that are not on the disk, and since when; 0: there are none, or nothing is saved. */
    uint64_t unsaved, unsaved_since_ns;
    uint32_t failing;     /* owners whose last save failed */
    char save_fault[256]; /* why a save failed; "": none did */
    unsigned n_owners;
    struct stats_owner {
        char principal[PRINCIPAL_NAME_BYTES];
        uint64_t count, bytes;
        uint64_t unsaved;
    } owners[STATS_OWNERS_MAX];
};

struct stats_session {
    uint64_t id;
    struct principal principal;
    char peer[64];
    char client[64];
    uint64_t started_ns; /* CLOCK_MONOTONIC */
    uint64_t tensors, live, peak, ops_queued, ops_done;
    uint64_t device_ns;             /* how long the device has computed for it */
    double ops_per_s, device_ratio; /* over the last second or so */
    struct remote remote;
    uint64_t failures[STATUS_COUNT];
    char last_failure[SESSION_FAILURE_MAX];
    char label[OPERATION_LABEL_MAX + 1];
    bool allow_tf32;
    char tls_cipher[32]; /* "": in the clear */
    bool tls_resumed;
    uint64_t lease_until_ns; /* CLOCK_MONOTONIC: it has no connection and waits for one until then; 0: it has one */
    uint64_t reconnects;
    uint32_t programs;
    uint64_t host;                                             /* bytes of the host's memory */
    uint64_t live_limit, tensors_limit, ops_limit, host_limit; /* 0: none */
};

/* A recorded program. */
struct stats_program {
    uint64_t session;
    struct principal principal;
    struct recorded_figures figures;
};

/* What a principal has on the device. */
struct stats_principal {
    char name[64];
    uint32_t connections, sessions;
    uint64_t live, peak, staging, host, ops_queued;
    /* In and out, and of all its sessions, since start. */
    uint64_t bytes, ops_done, device_ns, failures;
    double bytes_per_s, ops_per_s, device_ratio;
};

struct stats_device {
    struct engine_stats engine;
    uint64_t connections;         /* open now */
    uint64_t bytes_in, bytes_out; /* tensor bytes since start */
    /* Over the last second or so; busy: the part of it in which the device had something to do. */
    double ops_per_s, bytes_in_per_s, bytes_out_per_s, busy_ratio;
    uint64_t worker_memory, worker_cpu_ns; /* of the process: resident bytes, and processor time since start */
    struct device_readings readings;
    uint64_t refusals[REFUSAL_COUNT]; /* since start */
    struct histogram fetch_time;
    uint64_t rejections[STATUS_COUNT];
    struct stats_names names;
};

/* Copies the figures that only grow within an epoch. */
void stats_device_copy_counters(struct stats_device *to, const struct stats_device *from);

/* The worker's connections and the places that they take (server/front/places.h). Each change is written at once,
 * because thousands of connections may come and go between two writes of the page. If two numbers change, they are
 * written in an order in which meanwhile too many places seem to be taken, not too few. */
struct stats_places {
    _Atomic uint64_t departed; /* connections that have ended */
    _Atomic uint64_t settled;  /* connections from kept places that have continued a session, or ended */
    _Atomic uint64_t detached; /* sessions that have no connection now and keep a place for one */
};

struct stats_page {
    _Atomic uint32_t sequence;   /* odd while the worker writes */
    _Atomic uint64_t written_ns; /* CLOCK_MONOTONIC of the last write: the worker's heartbeat */
    /* Connections taken from the channel, counted before a byte is read from them: if the worker dies, nothing has
     * been read from the others. Outside the lock. */
    _Atomic uint64_t taken;
    struct stats_places places;   /* outside the lock */
    _Atomic uint32_t names_dirty; /* owners of names with changes that are not on the disk; outside the lock */
    /* CLOCK_MONOTONIC: since when the worker's loop is in a call that takes or gives back memory of the device, or reads
     * names from the disk; 0: it is not. Outside the lock. */
    _Atomic uint64_t device_call_ns;
    /* When the last such call ended: a sign of life, before the next write. Set before device_call_ns is 0. */
    _Atomic uint64_t device_called_ns;
    /* When the worker's loop last looked at the clock during its work (engine/order/budget.h): a sign of life even if
     * one turn takes long. Outside the lock. */
    _Atomic uint64_t alive_ns;
    /* Written by a crash (server/worker/crash.c): the last operation, if the device had not finished it, as "matmul
     * (forward/logits) of session 4". Outside the lock. */
    char crash[192];
    struct stats_operations operations; /* complete when the worker is ready; outside the lock */
    struct stats_device device;
    uint32_t n_sessions;
    struct stats_session sessions[STATS_SESSIONS_MAX];
    uint32_t n_principals; /* at most STATS_PRINCIPALS_MAX; more have no row */
    struct stats_principal principals[STATS_PRINCIPALS_MAX];
    uint32_t n_programs;
    struct stats_program programs[STATS_PROGRAMS_MAX];
};

/* Writer: one thread. */
void stats_page_begin(struct stats_page *page);
void stats_page_end(struct stats_page *page);
/* What a reader copies from the page, all of it of one moment. */
struct stats_copy {
    uint64_t written_ns;
    struct stats_device device;
    struct stats_session *sessions;     /* of the reader, with room for `sessions_room` */
    struct stats_principal *principals; /* likewise, */
    struct stats_program *programs;     /* and likewise */
    unsigned sessions_room, principals_room, programs_room;
    unsigned n_sessions, n_principals, n_programs; /* on the page: those beyond the room were not copied */
};
/* Reader. False: the writer did not finish within a millisecond (it died or was stopped while writing). Then the copy is torn:
 * read into a scratch copy, and keep the last good one. */
bool stats_page_read(const struct stats_page *page, struct stats_copy *copy);
