/* The session's inside, for the files of this room. */
#pragma once

#include "engine/device/layout.h"
#include "engine/engine_impl.h"
#include "engine/session/session.h"
#include "engine/session/tenant_impl.h"

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

struct session {
    struct engine *engine;
    struct session_limits limits;
    struct tensor_table tensors;
    struct kernel_table kernels;
    uint64_t last_id;                        /* highest id ever used: ids only grow */
    struct refused refused[SESSION_REFUSED]; /* ids that were not bound for a limit; ascending, */
    unsigned n_refused;                      /* so many, */
    bool refused_forgotten;                  /* and others between the first two */
    uint32_t refused_stream;                 /* the last that was not opened for the limit of streams; 0: none */

    struct pool_search search; /* for the memory of the request at hand */
    uint64_t live, peak;       /* bytes */
    uint64_t apart;            /* of the live ones, outside the pool */
    uint64_t host;             /* bytes of host memory (host.h), */
    uint64_t host_peak;        /* at most so far, */
    uint64_t host_queue;       /* and those of what is queued, as of the last look */
    size_t tensors_paid;       /* among `host`, */
    size_t tensors_room;       /* and so many there may be before more are paid for: no more than the limit */
    struct failure *causes[SESSION_CAUSES]; /* referenced */
    unsigned next_cause;
    uint64_t device_ns_ended; /* the device's time on streams that were closed */
    uint64_t ops_ended;       /* completed operations that are not counted by one of its streams now */
    uint64_t failures[STATUS_COUNT];
    char last_failure[SESSION_FAILURE_MAX];
    char label[FAILURE_LABEL_MAX + 1]; /* of the newest operation that has one */

    struct tenant *tenant;   /* NULL: none */
    struct run_share *share; /* of its own, where it has no tenant */
    struct run_group *group;
    struct stream *stream;          /* number 0 */
    struct session_stream *streams; /* the others, open ones and closed ones that still run */
    uint32_t n_streams;
    struct stream *transfers[TRANSFER_STREAMS]; /* on a device that runs later; NULL until needed */
    struct upload *uploads;                     /* unfinished ones */
    struct landing *landings;
    struct pending *pending; /* fetches and waits not yet answered */

    struct staging_account staging[STAGING_WAYS];
    struct room *room; /* engine/session/waiting.h */

    struct session *next, **previous; /* in engine->sessions_list, or by `next` in engine->ending */
    size_t ended;                     /* slots of `tensors` that have been given back, of a session that ends */
};

/* session.c */
void session_give_group(struct session *session);
/* session_end.c: gives back what ended sessions had, as far as the engine's budget goes; false: some is left. */
bool session_end_some(struct engine *engine);
/* Whether a request that failed with this code may succeed later: memory is on its way back, or the pool still looks.
 */
bool session_memory_comes(const struct session *session, int code);
/* Whether what failed with this code is worth another try, as the pool has not looked at all there is, or ended
 * sessions have not given their memory back: then it has not been refused. With any other code the request is at its
 * end. */
bool session_put_off(struct session *session, int code);
/* session_tensor.c: forgets the submission that has just bound `id`. */
void session_take_back(struct session *session, uint64_t id, uint64_t last_id);

/* session.c: memory accounts. */
void session_discharge(struct session *session, uint64_t bytes);
/* For memory outside the pool. STATUS_LIMIT, or STATUS_OUT_OF_MEMORY for more than the device has. */
int session_charge_apart(struct session *session, uint64_t bytes, struct fault *fault);
void session_discharge_apart(struct session *session, uint64_t bytes);
/* Storage charged to the session, for work on `stream` (NULL: for the host to write now). STATUS_AGAIN: the pool does
 * not know yet whether there is some; the request is to be put off. */
int session_storage(struct session *session, uint64_t bytes, struct stream *stream, struct storage **storage,
                    struct fault *fault);

/* tensors: session_tensor.c */
struct tensor *session_tensor(struct session *session, uint64_t id);
/* Why there is no such tensor. */
int session_unknown_id(const struct session *session, uint64_t id, struct fault *fault);
/* A tensor with nothing but its id, in the table: checks the id, the number of tensors and memory. */
int session_bind(struct session *session, uint64_t id, struct tensor **tensor, struct fault *fault);
void session_unbind(struct session *session, uint64_t id);
void tensor_unref(struct session *session, struct tensor *tensor);
/* Gives up the tensor's value for a cause (takes over one reference). */
void tensor_fail(struct session *session, struct tensor *tensor, struct cause cause);
/* What it may turn out to be; takes over one reference, which is charged to the session. NULL: takes it off. */
void tensor_taint(struct session *session, struct tensor *tensor, struct taint *taint);
/* Folds in what its taint has become by now. True: it has failed. */
bool tensor_settle(struct session *session, struct tensor *tensor);
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
/* The failure of a failed check, counted when it is first seen. */
struct failure *session_check_failure(struct session *session, struct check *check);
/* What the client is at, for status; `label` may be NULL. */
void session_label(struct session *session, const char *label);
/* Counts a failure that begins here, and makes it: as a cause of tensors, shared with those that are alike, */
struct cause session_cause(struct session *session, const struct fault *fault, const char *operation, const char *label,
                           uint64_t sequence);
/* or as an answer. */
struct failure *session_failure(struct session *session, const struct fault *fault, const char *operation,
                                const char *label, uint64_t sequence);
/* An operation has been enqueued: it is done with the last record that it has put on `stream` since number `before`, or
 * is done now, where there is none, or no stream. */
void session_end_operation(struct session *session, struct stream *stream, uint64_t before);
struct stream *session_find_stream(struct session *session, uint32_t number, struct fault *fault);
/* NULL out of memory. */
struct stream *session_transfer_stream(struct session *session, enum transfer transfer);
/* Whether the stream is one of the session's that take work. */
bool session_has_stream(const struct session *session, const struct stream *stream);

/* session_tensor.c: the tensors that one operation gives, with ids one after another. */
struct outputs {
    uint64_t first;
    unsigned n;
    int code;                               /* why some of them are not bound; STATUS_OK: all are */
    struct tensor *tensors[OP_OUTPUTS_MAX]; /* [n]; NULL: its id could not be bound */
};
/* Binds `n` ids from `first` on. A failure is the first one's. Where memory comes later (session_memory_comes), the others have not
 * been tried. */
int outputs_bind(struct session *session, struct outputs *outputs, struct fault *fault);
/* Whether it is one of these, so that the operation cannot read it. */
static inline bool outputs_have(const struct outputs *outputs, uint64_t id) {
    return id - outputs->first < outputs->n;
}
/* One cause for all (takes over one reference); of those that were not bound for a limit it is remembered. */
void outputs_fail(struct session *session, struct outputs *outputs, struct cause cause);
/* As if the operation had not come. */
void outputs_take_back(struct session *session, struct outputs *outputs, uint64_t last_id);

/* bind.c: a checked operation becomes launches. */
struct binding {
    struct session *session;
    struct engine *engine;
    struct stream *stream;
    const struct op_request *request;
    const struct op_info *info;
    struct op_attributes attributes;
    struct tensor **inputs; /* and their types: as many as the request has */
    const struct tensor_type **types;
    struct outputs outputs; /* all bound; types set, storage and the rest to be set */
    struct tensor *output;  /* the first one */
    struct check *check;    /* of OP_FAMILY_TAKE, or where it may take long: what its launches report to */
    struct taint *step;     /* while the taints of many inputs are settled */
    struct fault fault;
};
/* STATUS_OK with each output's storage, layout and point set; or a code with `binding->fault`, and nothing of it will run. */
int bind_operation(struct binding *binding);
