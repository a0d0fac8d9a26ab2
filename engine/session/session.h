/* A session in the engine: a space of ids and their tensors, streams, and an account of memory. Owner thread only.
 *
 * Nothing a caller passes ends the process: every bad id, shape or attribute is the failure of that one operation. */
#pragma once

#include "engine/memory/staging_wait.h"
#include "engine/values/failure.h"
#include "proto/ops/op.h"

struct session;
struct sessions; /* those of one engine: engine_sessions() */
struct tenant;

enum { SESSION_FAILURE_MAX = 448 }; /* operation, label and message of a failure, in one line */

struct session_limits {
    uint64_t bytes;        /* live bytes; 0: what the device has */
    uint64_t host_bytes;   /* host memory that it makes grow (engine/session/host.h); 0: the tenant's */
    uint32_t tensors;      /* live ids; an operation above it binds nothing, and its id is used up */
    uint32_t streams;      /* open streams besides the default one */
    uint64_t number;       /* for operators: traces and reports name the session by it */
    bool allow_tf32;       /* of precision: float32 products may be computed in TF32 */
    struct tenant *tenant; /* the session's tenant (engine/memory/tenant.h), which outlives it; NULL: none */
};

/* With its default stream, number 0. */
int session_create(struct sessions *sessions, const struct session_limits *limits, struct session **session,
                   struct fault *fault);
/* Cancels what is queued and gives back all memory: at once as far as the owner's budget goes, the rest in engine_poll(),
 * of which engine_due() tells. Unfinished uploads are zeroed, unanswered fetches and waits forgotten without a call; fetches
 * that were answered must have been released before. Takes NULL. */
void session_destroy(struct session *session);

/* Whether its last request was put off because the device has not got back yet what was given back there: then it need not be made again
 * at once. */
bool session_waits_for_device(const struct session *session);

/* As in struct session_limits. The session keeps what it has beyond them. */
void session_set_limits(struct session *session, uint64_t bytes, uint64_t host_bytes, uint32_t tensors,
                        uint32_t streams);

int session_stream_open(struct session *session, uint32_t stream, int priority, struct fault *fault);
/* Queued work of the stream still runs. */
int session_stream_close(struct session *session, uint32_t stream, struct fault *fault);

/* Binding an id to bytes from outside, which come in chunks. */
struct upload {
    int64_t bytes; /* 0 also where the upload failed at once */
    /* Set by an owner that can wait for staging memory, after session_upload(): called once, from engine_poll(), after
     * upload_chunk() has left `later` set; then the owner makes the same call again. NULL: what has no memory at once
     * fails. */
    void (*ready)(struct upload *upload);
    bool later; /* upload_chunk() has no memory now: the owner waits for `ready`, and receives nothing meanwhile */
    /* private to the engine */
    struct session *session;
    struct tensor *tensor;
    struct storage *storage; /* the tensor's, referenced */
    bool staged;             /* chunks pass through host memory: the host cannot write the tensor's own, or not yet */
    struct storage *chunk;   /* staged: the one being written, */
    int64_t chunk_offset, chunk_bytes;
    struct stream *stream;  /* the stream that copies it, */
    bool own;               /* which is its own, */
    uint64_t copied;        /* and the point at which all that have come are copied */
    struct stream *outside; /* waitable: reached when the bytes are there, */
    struct poison *poison;  /* and settled just before */
    struct staging_wait wait;
    struct fault fault; /* why a chunk could not be taken */
    uint64_t sequence;
    char label[OPERATION_LABEL_MAX + 1];
    struct upload *next, **previous;
};
struct upload_request {
    uint64_t id;
    const struct tensor_type *type;
    uint32_t stream;
    uint64_t sequence;
    const char *label;
    /* false: an operation that uses the id before upload_finish() fails. true: it waits; for bytes that come by another
     * way than the operations do. */
    bool waitable;
};
/* On failure the id is poisoned (unless it is bad) and `upload` is zeroed: its data need not and cannot be delivered.
 * STATUS_AGAIN as by session_submit() (engine/program/program.h). */
int session_upload(struct session *session, const struct upload_request *request, struct upload *upload);
/* Returns where the owner writes `bytes` of the tensor from `offset` on; then, before the next call, the owner calls
 * upload_chunk_done(). NULL with upload->later set: there is no memory now. NULL otherwise: there is no memory, upload_finish() will
 * report it, and the owner may drop the bytes. */
uint8_t *upload_chunk(struct upload *upload, int64_t offset, int64_t bytes);
void upload_chunk_done(struct upload *upload);
/* Ends the upload: all bytes have come, or, with `cause`, the rest never will. `cause` is copied; a cause without an operation is the
 * upload's own. `upload` may not be used afterwards. */
void upload_finish(struct upload *upload, const struct failure *cause);

/* A callback for a tensor's value. Embedded in the caller's object; it may not move until it is done or cancelled. */
struct fetch {
    /* Called once, possibly before session_fetch() returns. failure (borrowed) is NULL on success, and then `bytes` is
     * the value's size, and data its contiguous bytes, valid until fetch_release(). data is NULL for a large value on a
     * device whose memory the host cannot read: that is read with fetch_read(). */
    void (*done)(struct fetch *fetch, const struct failure *failure);
    const uint8_t *data;
    int64_t bytes;
    /* private to the engine */
    struct pending *pending;
    struct storage *storage, *staging;
    int64_t offset; /* of the value in `storage` */
    struct session *session;
};
/* STATUS_AGAIN as by session_submit(), for a value that is copied first; `done` is not called then. */
int session_fetch(struct session *session, uint64_t id, struct fetch *fetch);
/* Gives the value back, or cancels a fetch that has not been called yet. All parts of it have been released. */
void fetch_release(struct fetch *fetch);

/* A part of a fetched value without `data`, on its way to the host. */
struct fetch_part {
    /* Called once, possibly before fetch_read() returns; then the bytes lie at `data` until fetch_part_release(). */
    void (*done)(struct fetch_part *part, const struct failure *failure);
    const uint8_t *data;
    /* private to the engine */
    struct fetch *fetch;
    struct pending *pending;
    struct storage *staging;
    int64_t offset, bytes;
    struct staging_wait wait;
};
/* Several parts may be on their way; they come in the order of the calls. A part waits while there is no staging memory for it, and
 * later parts of the session wait behind it. So an owner that keeps parts and waits for more of them may wait for ever. */
void fetch_read(struct fetch *fetch, int64_t offset, int64_t bytes, struct fetch_part *part);
void fetch_part_release(struct fetch_part *part);

/* A callback for completion. id 0: of everything enqueued in the session so far. */
struct wait {
    void (*done)(struct wait *wait, const struct failure *failure);
    /* private to the engine */
    struct pending *pending;
    struct session *session;
};
void session_wait(struct session *session, uint64_t id, struct wait *wait);
void wait_cancel(struct wait *wait);

/* The type of a live id; false for an unknown one. */
bool session_type(const struct session *session, uint64_t id, struct tensor_type *type);

struct session_stats {
    uint64_t tensors;                /* live ids */
    uint64_t live, peak;             /* bytes */
    uint64_t host;                   /* bytes of host memory (engine/session/host.h) */
    uint64_t ops_queued;             /* enqueued and not yet run */
    uint64_t ops_done;               /* completed, failed ones included; never falls */
    uint64_t device_ns;              /* time that the device has worked for it; never falls */
    uint64_t failures[STATUS_COUNT]; /* operations that failed by themselves, by code; copies of a cause do not count */
    char last_failure[SESSION_FAILURE_MAX]; /* "matmul forward/logits: shapes do not fit: …" */
    char label[OPERATION_LABEL_MAX + 1];    /* of the newest operation with a label */
    bool allow_tf32;
};
void session_stats(struct session *session, struct session_stats *stats);
/* Operations enqueued and not yet run, cheap enough to ask after every batch. */
uint64_t session_queued(const struct session *session);
/* Whether so much is in flight that nothing more should be enqueued before some of it has ended: more than so many
 * operations, or queues with which the session's host memory is full. Then *low is for session_notify_drained(). */
bool session_is_crowded(struct session *session, uint64_t operations, uint64_t *low);
/* Whether the session's host memory, or its tenant's, is full. Not while an upload is unfinished: what holds the memory may
 * wait for the rest of it. */
bool session_host_is_full(struct session *session);
/* Calls `drained` (from engine_poll) once, when session_queued() has fallen to `low` or below. NULL takes it back. */
void session_notify_drained(struct session *session, uint64_t low, void (*drained)(void *owner), void *owner);
