/* The inside of a session, for the files of this room. */
#pragma once

#include "engine/device/layout.h"
#include "engine/memory/memory.h"
#include "engine/order/order.h"
#include "engine/session/session.h"
#include "engine/values/tensor.h"

/* A stream by the client's number. */
struct session_stream {
    uint32_t number;
    bool closed; /* takes no more work; given back when what is queued has run */
    struct stream *stream;
};

/* Streams for copies to and from a device that executes its work later. Work on a stream waits for the earlier work on
 * the same stream. So copies that wait for different things use different streams: otherwise copies between two devices
 * could wait for each other in a circle. */
enum transfer {
    TRANSFER_UPLOAD, /* a client's bytes: waits for the memory's users before. (Copies from elsewhere: struct upload) */
    TRANSFER_FETCH,  /* a value, enqueued behind it */
    TRANSFER_PART,   /* a part of a value that is there: waits for nothing */
    TRANSFER_STREAMS,
};

/* Why tensors have no value. Many tensors may share a failure; `sequence` is the number of the operation that failed. */
struct cause {
    struct failure *failure; /* NULL: none */
    uint64_t sequence;
};

/* A run of consecutive ids that were not bound, all for one cause. */
struct refused {
    uint64_t first, last;
    bool
        steps; /* each id belongs to an operation of its own, with consecutive numbers; false: all belong to one operation */
    struct cause cause; /* of the first id; referenced */
};

enum {
    SESSION_CAUSES = 8,   /* the newest failures, which later equal failures share */
    SESSION_REFUSED = 16, /* the newest refusals to bind ids; of the older refusals only the first is kept */
};

/* All sessions of an engine. */
struct sessions {
    struct order *order;
    struct memory *memory;
    /* Called when a session has ended: other rooms give back what they keep for it. False: the budget has ended first; to be called again. */
    bool (*ended)(struct session *session);
    struct program *program; /* engine/program/program_impl.h */
    struct slab tensors;
    unsigned count;
    struct session *list;
    struct session *ending, **ending_last; /* sessions that have ended and still have memory to give back */
    uint64_t ops_ended; /* operations that ended without the device: they failed, or needed no launch */
    uint64_t failures[STATUS_COUNT];
    bool
        rested; /* since the last session ended, streams and reports have given back the memory that they no longer need */
};

struct session {
    struct sessions *sessions;
    struct order *order;
    struct ledger ledger;
    struct session_limits limits; /* the ledger has its own */
    struct tensor_table tensors;
    struct kernel_table *kernels;            /* engine/program/kernel_impl.h; NULL: it has had none */
    struct recorded_table *programs;         /* engine/program/recorded_impl.h; NULL: it has had none */
    uint64_t last_id;                        /* highest id ever used: ids only grow */
    struct refused refused[SESSION_REFUSED]; /* ids that were not bound because of a limit, ascending: */
    unsigned n_refused;                      /* the number of entries */
    bool refused_forgotten;                  /* entries between the first two were dropped */
    uint32_t refused_stream; /* the last stream that was not opened because of the limit of streams; 0: none */

    unsigned unlisted;                      /* tensors of the program at hand that have no place in `tensors` */
    size_t tensors_paid;                    /* tensors whose host memory has been charged */
    size_t tensors_room;                    /* tensors that there may be before more are charged; at most the limit */
    struct failure *causes[SESSION_CAUSES]; /* referenced */
    unsigned next_cause;
    uint64_t device_ns_ended; /* the device's time on streams that were closed */
    uint64_t ops_ended;       /* completed operations that none of its present streams counts */
    uint64_t failures[STATUS_COUNT];
    char last_failure[SESSION_FAILURE_MAX];
    char label[OPERATION_LABEL_MAX + 1]; /* of the newest operation with a label */

    struct run_share *share; /* its own; NULL: it has a tenant */
    struct run_group *group;
    struct stream *stream;          /* number 0 */
    struct session_stream *streams; /* the others, open ones and closed ones that still run */
    uint32_t n_streams;
    struct stream *transfers[TRANSFER_STREAMS]; /* on a device that runs later; NULL until needed */
    struct upload *uploads;                     /* unfinished ones */
    struct landing *landings;
    struct pending *pending; /* fetches and waits not yet answered */

    struct drain *drain; /* engine/session/waiting.h */

    struct session *next, **previous; /* in sessions->list; an ended session: `next` alone, in sessions->ending */
    size_t ended;                     /* of a session that ends: slots of `tensors` that have been given back */
};

void sessions_init(struct sessions *sessions, struct order *order, struct memory *memory,
                   bool (*ended)(struct session *session));
/* All sessions have been given back. */
void sessions_finish(struct sessions *sessions);
/* Gives back the memory of ended sessions, as far as the owner's budget goes. False: some memory is left. */
bool sessions_end_some(struct sessions *sessions);
/* The session that has the stream now; NULL: it has ended. */
struct session *sessions_find(const struct sessions *sessions, const struct stream *stream);
/* Whether a request that failed with this code may succeed later: memory is on its way back, or the pool still looks.
 */
bool session_memory_comes(const struct session *session, int code);
/* Whether a request that failed with this code is to be made again, since the pool has not looked at all its memory, or ended
 * sessions have not given back theirs: then the request has not been refused. False: the request has failed. */
bool session_put_off_failed(struct session *session, int code);
static inline bool session_put_off(struct session *session, int code) {
    if (__builtin_expect(code != STATUS_OK, 0))
        return session_put_off_failed(session, code);
    session->ledger.search.on = false;
    return false;
}
/* session_tensor.c: forgets the submission that has just bound `id`. */
void session_take_back(struct session *session, uint64_t id, uint64_t last_id);

/* The number of the session's tenant; for a session without one, a number of its own. */
static inline uint64_t session_tenant_number(const struct session *session) {
    return session->limits.tenant ? session->limits.tenant->number : ~session->limits.number;
}

/* tensors: session_tensor.c */
static inline struct tensor *session_tensor(const struct session *session, uint64_t id) {
    return tensor_table_find(&session->tensors, id);
}
/* Why there is no such tensor. */
int session_unknown_id(const struct session *session, uint64_t id, struct fault *fault);
/* A tensor with nothing but its id, and one reference to it; NULL out of memory. */
static inline struct tensor *session_new_tensor(struct session *session, uint64_t id) {
    struct tensor *tensor = slab_take(&session->sessions->tensors);
    if (__builtin_expect(!tensor, 0))
        return NULL;
    tensor->id = id;
    tensor->type.dtype = DTYPE_INVALID;
    tensor->type.rank = 0;
    tensor->type_id = 0;
    tensor->offset = 0;
    tensor->contiguous = true;
    tensor->leaving = false;
    tensor->uploading = false;
    tensor->storage = NULL;
    tensor->failure = NULL;
    tensor->sequence = 0;
    tensor->poison = NULL;
    tensor->ready = NULL;
    tensor->ready_number = 0;
    tensor->references = 1;
    tensor->last_use = 0;
    return tensor;
}
/* The same, in the table: checks the id, the number of tensors and memory. */
int session_bind(struct session *session, uint64_t id, struct tensor **tensor, struct fault *fault);
/* False: no tensor has the id. */
bool session_unbind(struct session *session, uint64_t id);
/* Gives up the tensor's value for a cause (takes over one reference). */
void tensor_fail(struct session *session, struct tensor *tensor, struct cause cause);
/* Sets the tensor's poison; takes over one reference, which is charged to the session. NULL: removes the poison. */
void tensor_poison(struct session *session, struct tensor *tensor, struct poison *poison);
/* Takes no NULL. */
static inline void tensor_unref(struct session *session, struct tensor *tensor) {
    if (--tensor->references)
        return;
    storage_unref(tensor->storage);
    if (tensor->failure)
        failure_unref(tensor->failure);
    if (tensor->poison)
        tensor_poison(session, tensor, NULL);
    slab_give(&session->sessions->tensors, tensor);
}
/* Settles the tensor's poison, if that is settled by now. True: the tensor has failed. */
bool tensor_settle_doubtful(struct session *session, struct tensor *tensor);
static inline bool tensor_settle(struct session *session, struct tensor *tensor) {
    return (tensor->poison || tensor->failure) && tensor_settle_doubtful(session, tensor);
}
static inline struct cause tensor_cause(const struct tensor *tensor) {
    return (struct cause){tensor->failure, tensor->sequence};
}
/* Takes another reference to the failure. */
static inline struct cause cause_ref(struct cause cause) {
    failure_ref(cause.failure);
    return cause;
}
/* Why an id was not bound; the reference stays the session's. False: no limit has refused the id. */
bool session_refused(const struct session *session, uint64_t id, struct cause *cause);
/* Remembers that the id was not bound, and why; takes over one reference. */
void session_refuse(struct session *session, uint64_t id, struct cause cause);
void session_drop_causes(struct session *session);
/* The failure of a failed guard, counted when it is first seen. */
struct failure *session_guard_failure(struct session *session, struct guard *guard);
/* Notes what the client does now, for status; `label` may be NULL. */
void session_label(struct session *session, const char *label);
/* Counts a new failure, and makes it the cause for tensors; equal failures share one. */
struct cause session_cause(struct session *session, const struct fault *fault, const char *operation, const char *label,
                           uint64_t sequence);
/* Counts a new failure, and makes it for a reply. */
struct failure *session_failure(struct session *session, const struct fault *fault, const char *operation,
                                const char *label, uint64_t sequence);
/* An operation has been enqueued. It ends with the newest record of `stream`; `stream` NULL: it has ended. */
static inline void session_end_operation(struct session *session, struct stream *stream) {
    if (stream) {
        stream_end_operation(stream);
        return;
    }
    session->ops_ended++;
    session->sessions->ops_ended++;
}
/* session.c */
/* Operations of this session that have run there. */
static inline uint64_t stream_done(const struct stream *stream) {
    return atomic_load_explicit(&stream->ops_done, memory_order_relaxed) - stream->queue.ops_before;
}
struct stream *session_find_numbered(struct session *session, uint32_t number, struct fault *fault);
/* NULL with `fault`, which may be NULL, too. */
static inline struct stream *session_find_stream(struct session *session, uint32_t number, struct fault *fault) {
    return number ? session_find_numbered(session, number, fault) : session->stream;
}
/* NULL out of memory. */
struct stream *session_transfer_stream(struct session *session, enum transfer transfer);
/* Whether the stream belongs to the session and takes work. */
bool session_has_stream(const struct session *session, const struct stream *stream);
