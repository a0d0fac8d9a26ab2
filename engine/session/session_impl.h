/* The session's inside, for the files of this room. */
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

/* Why tensors have no value: what is alike in many failures, and the number of the operation that failed first. */
struct cause {
    struct failure *failure; /* NULL: none */
    uint64_t sequence;
};

/* Ids one after another that were not bound, for one cause; of the operations with as many numbers. */
struct refused {
    uint64_t first, last;
    bool steps;         /* the operations' numbers go up with the ids; else one has failed for all of them */
    struct cause cause; /* of the first of them; referenced */
};

enum {
    SESSION_CAUSES = 8,   /* the newest failures, for the next ones that are alike to share */
    SESSION_REFUSED = 16, /* the newest refusals to bind ids; of older ones the first is known */
};

/* All sessions of an engine. */
struct sessions {
    struct order *order;
    struct memory *memory;
    /* A session has ended: what other rooms keep for it goes. */
    void (*ended)(struct session *session);
    struct program *program; /* engine/program/program_impl.h */
    struct slab tensors;
    unsigned count;
    struct session *list;
    struct session *ending, **ending_last; /* those that have ended, and whose memory is still to be given back */
    uint64_t
        ops_ended; /* operations that came to their end here: with a failure, or with nothing for the device to do */
    uint64_t failures[STATUS_COUNT];
    bool rested; /* since the last session went what streams and reports need no more has been given back */
};

struct session {
    struct sessions *sessions;
    struct order *order;
    struct ledger ledger;
    struct session_limits limits; /* the ledger has its own */
    struct tensor_table tensors;
    struct kernel_table *kernels;            /* engine/program/kernel_impl.h; NULL: it has had none */
    uint64_t last_id;                        /* highest id ever used: ids only grow */
    struct refused refused[SESSION_REFUSED]; /* ids that were not bound for a limit; ascending, */
    unsigned n_refused;                      /* so many, */
    bool refused_forgotten;                  /* and others between the first two */
    uint32_t refused_stream;                 /* the last that was not opened for the limit of streams; 0: none */

    unsigned unlisted;   /* tensors of the program at hand that have no place in `tensors` */
    size_t tensors_paid; /* among the host memory, */
    size_t tensors_room; /* and so many there may be before more are paid for: no more than the limit */
    struct failure *causes[SESSION_CAUSES]; /* referenced */
    unsigned next_cause;
    uint64_t device_ns_ended; /* the device's time on streams that were closed */
    uint64_t ops_ended;       /* completed operations that are not counted by one of its streams now */
    uint64_t failures[STATUS_COUNT];
    char last_failure[SESSION_FAILURE_MAX];
    char label[OPERATION_LABEL_MAX + 1]; /* of the newest operation that has one */

    struct run_share *share; /* of its own, where it has no tenant */
    struct run_group *group;
    struct stream *stream;          /* number 0 */
    struct session_stream *streams; /* the others, open ones and closed ones that still run */
    uint32_t n_streams;
    struct stream *transfers[TRANSFER_STREAMS]; /* on a device that runs later; NULL until needed */
    struct upload *uploads;                     /* unfinished ones */
    struct landing *landings;
    struct pending *pending; /* fetches and waits not yet answered */

    struct drain *drain; /* engine/session/waiting.h */

    struct session *next, **previous; /* in sessions->list, or by `next` in sessions->ending */
    size_t ended;                     /* slots of `tensors` that have been given back, of a session that ends */
};

void sessions_init(struct sessions *sessions, struct order *order, struct memory *memory,
                   void (*ended)(struct session *session));
/* All of them have been given back. */
void sessions_finish(struct sessions *sessions);
/* Gives back what ended sessions had, as far as the owner's budget goes; false: some is left. */
bool sessions_end_some(struct sessions *sessions);
/* The one that has the stream now; NULL: it has ended. */
struct session *sessions_find(const struct sessions *sessions, const struct stream *stream);
/* Whether a request that failed with this code may succeed later: memory is on its way back, or the pool still looks.
 */
bool session_memory_comes(const struct session *session, int code);
/* Whether what failed with this code is worth another try, as the pool has not looked at all there is, or ended
 * sessions have not given their memory back: then it has not been refused. With any other code the request is at its
 * end. */
bool session_put_off_failed(struct session *session, int code);
static inline bool session_put_off(struct session *session, int code) {
    if (__builtin_expect(code != STATUS_OK, 0))
        return session_put_off_failed(session, code);
    session->ledger.search.on = false;
    return false;
}
/* session_tensor.c: forgets the submission that has just bound `id`. */
void session_take_back(struct session *session, uint64_t id, uint64_t last_id);

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
/* False: there is none. */
bool session_unbind(struct session *session, uint64_t id);
/* Gives up the tensor's value for a cause (takes over one reference). */
void tensor_fail(struct session *session, struct tensor *tensor, struct cause cause);
/* What it may turn out to be; takes over one reference, which is charged to the session. NULL: takes it off. */
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
/* Folds in what its poison has become by now. True: it has failed. */
bool tensor_settle_doubtful(struct session *session, struct tensor *tensor);
static inline bool tensor_settle(struct session *session, struct tensor *tensor) {
    return (tensor->poison || tensor->failure) && tensor_settle_doubtful(session, tensor);
}
static inline struct cause tensor_cause(const struct tensor *tensor) {
    return (struct cause){tensor->failure, tensor->sequence};
}
/* Another reference to its failure. */
static inline struct cause cause_ref(struct cause cause) {
    failure_ref(cause.failure);
    return cause;
}
/* Why an id was not bound; the reference stays the session's. False: it was not refused for a limit. */
bool session_refused(const struct session *session, uint64_t id, struct cause *cause);
/* Remembers that; takes over one reference. */
void session_refuse(struct session *session, uint64_t id, struct cause cause);
void session_drop_causes(struct session *session);
/* The failure of a failed guard, counted when it is first seen. */
struct failure *session_guard_failure(struct session *session, struct guard *guard);
/* What the client is at, for status; `label` may be NULL. */
void session_label(struct session *session, const char *label);
/* Counts a failure that begins here, and makes it: as a cause of tensors, shared with those that are alike, */
struct cause session_cause(struct session *session, const struct fault *fault, const char *operation, const char *label,
                           uint64_t sequence);
/* or as an answer. */
struct failure *session_failure(struct session *session, const struct fault *fault, const char *operation,
                                const char *label, uint64_t sequence);
/* An operation has been enqueued: it is done with the newest record of `stream`; or is done now, where that is NULL. */
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
/* Whether the stream is one of the session's that take work. */
bool session_has_stream(const struct session *session, const struct stream *stream);
