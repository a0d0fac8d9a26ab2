#include "engine/waiting.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- pending answers ---- */

static struct pending *pending_create(struct session *session, unsigned n_waiters) {
    struct pending *pending = calloc(1, sizeof *pending + n_waiters * sizeof *pending->waiters);
    if (!pending)
        return NULL;
    pending->session = session;
    pending->n_waiters = n_waiters;
    pending->next = session->pending;
    pending->previous = &session->pending;
    if (pending->next)
        pending->next->previous = &pending->next;
    session->pending = pending;
    return pending;
}

static void pending_destroy(struct pending *pending) {
    for (unsigned i = 0; i < pending->n_waiters; i++)
        if (pending->waiters[i])
            engine_waiter_cancel(pending->session->engine, pending->waiters[i]);
    *pending->previous = pending->next;
    if (pending->next)
        pending->next->previous = pending->previous;
    taint_unref(pending->taint);
    free(pending);
}

void pending_drop_all(struct session *session) {
    while (session->pending) {
        struct pending *pending = session->pending;
        if (pending->fetch) {
            storage_unref(&session->engine->pool, pending->fetch->storage);
            pending->fetch->storage = NULL;
            pending->fetch->pending = NULL;
        } else {
            pending->wait->pending = NULL;
        }
        pending_destroy(pending);
    }
}

static void fetch_answer(struct fetch *fetch, struct failure *failure) {
    if (failure) {
        storage_unref(&fetch->session->engine->pool, fetch->storage);
        fetch->storage = NULL;
        fetch->data = NULL;
        fetch->bytes = 0;
    }
    fetch->pending = NULL;
    fetch->done(fetch, failure);
    failure_unref(failure);
}

static void wait_answer(struct wait *wait, struct failure *failure) {
    wait->pending = NULL;
    wait->done(wait, failure);
    failure_unref(failure);
}

static struct failure *pending_failure(struct pending *pending) {
    struct fault fault;
    if (engine_fault(pending->session->engine, &fault) != STATUS_OK)
        return failure_create(&fault, "", NULL, 0);
    if (pending->taint && taint_state(pending->taint) == TAINT_FAILED)
        return session_check_failure(pending->session, pending->taint->cause);
    return NULL;
}

static void pending_reached(struct waiter *waiter) {
    struct pending *pending = waiter->owner;
    for (unsigned i = 0; i < pending->n_waiters; i++)
        if (pending->waiters[i] == waiter)
            pending->waiters[i] = NULL;
    if (--pending->left)
        return;
    struct failure *failure = pending_failure(pending);
    struct fetch *fetch = pending->fetch;
    struct wait *wait = pending->wait;
    pending_destroy(pending);
    if (fetch)
        fetch_answer(fetch, failure);
    else
        wait_answer(wait, failure);
}

/* Adds a point; STATUS_NO_HOST_MEMORY leaves it out. */
static int pending_add(struct pending *pending, unsigned i, struct stream *stream, uint64_t number) {
    if (point_reached(stream, number))
        return STATUS_OK;
    struct waiter *waiter = engine_waiter(pending->session->engine, stream, number, pending_reached, pending);
    if (!waiter)
        return STATUS_NO_HOST_MEMORY;
    pending->waiters[i] = waiter;
    pending->left++;
    return STATUS_OK;
}

static struct failure *no_memory_failure(void) {
    struct fault fault;
    fault_set(&fault, STATUS_NO_HOST_MEMORY, "the daemon is out of host memory");
    return failure_create(&fault, "", NULL, 0);
}

/* ---- fetch ---- */

static struct failure *request_failure(struct session *session, const char *operation, uint64_t id,
                                       struct tensor **tensor) {
    struct fault fault;
    if (engine_fault(session->engine, &fault) != STATUS_OK)
        return failure_create(&fault, "", NULL, 0);
    *tensor = session_tensor(session, id);
    if (!*tensor)
        fault_set(&fault, STATUS_UNKNOWN_ID, "no tensor has id %" PRIu64, id);
    else if ((*tensor)->uploading)
        fault_set(&fault, STATUS_INVALID_ARGUMENT, "tensor %" PRIu64 " has not been uploaded completely", id);
    else if (tensor_settle(session, *tensor))
        return failure_ref((*tensor)->failure);
    else
        return NULL;
    return session_failure(session, &fault, operation, NULL, 0);
}

static bool session_has_stream(const struct session *session, const struct stream *stream) {
    for (uint32_t i = 0; i < session->n_streams; i++)
        if (session->streams[i].stream == stream && !session->streams[i].closed)
            return true;
    return stream == session->stream;
}

/* Makes the value contiguous and gives the point at which it is. */
static int fetch_prepare(struct session *session, struct tensor *tensor, struct fetch *fetch, struct stream **stream,
                         uint64_t *number, struct fault *fault) {
    *stream = tensor->ready;
    *number = tensor->ready_number;
    fetch->bytes = type_bytes(&tensor->type);
    if (!tensor->storage)
        return STATUS_OK;
    if (tensor->contiguous) {
        fetch->storage = storage_ref(tensor->storage);
        fetch->data = tensor_data(tensor);
        return STATUS_OK;
    }
    struct stream *copier = session_has_stream(session, tensor->ready) ? tensor->ready : session->stream;
    int code = bind_materialise(session, copier, tensor, &fetch->storage, fault);
    if (code != STATUS_OK)
        return code;
    fetch->data = fetch->storage->data;
    *stream = copier;
    *number = copier->enqueued;
    return STATUS_OK;
}

void session_fetch(struct session *session, uint64_t id, struct fetch *fetch) {
    fetch->session = session;
    fetch->pending = NULL;
    fetch->storage = NULL;
    fetch->data = NULL;
    fetch->bytes = 0;
    struct tensor *tensor = NULL;
    struct failure *failure = request_failure(session, "fetch", id, &tensor);
    if (failure) {
        fetch_answer(fetch, failure);
        return;
    }
    struct fault fault;
    struct stream *stream;
    uint64_t number;
    if (fetch_prepare(session, tensor, fetch, &stream, &number, &fault) != STATUS_OK) {
        fetch_answer(fetch, session_failure(session, &fault, "fetch", NULL, 0));
        return;
    }
    if (!stream || point_reached(stream, number)) {
        struct failure *late = tensor_settle(session, tensor);
        fetch_answer(fetch, late ? failure_ref(late) : NULL);
        return;
    }
    struct pending *pending = pending_create(session, 1);
    if (!pending || pending_add(pending, 0, stream, number) != STATUS_OK) {
        if (pending)
            pending_destroy(pending);
        fetch_answer(fetch, no_memory_failure());
        return;
    }
    pending->fetch = fetch;
    fetch->pending = pending;
    pending->taint = tensor->taint ? taint_ref(tensor->taint) : NULL;
    if (pending->left == 0) { /* reached between the two looks */
        struct failure *late = pending_failure(pending);
        pending_destroy(pending);
        fetch_answer(fetch, late);
    }
}

void fetch_release(struct fetch *fetch) {
    if (fetch->pending)
        pending_destroy(fetch->pending);
    fetch->pending = NULL;
    if (fetch->storage)
        storage_unref(&fetch->session->engine->pool, fetch->storage);
    fetch->storage = NULL;
}

/* ---- wait ---- */

static void wait_on(struct session *session, struct wait *wait, struct pending *pending, int code) {
    if (code != STATUS_OK) {
        if (pending)
            pending_destroy(pending);
        wait_answer(wait, no_memory_failure());
        return;
    }
    if (pending->left == 0) {
        struct failure *failure = pending_failure(pending);
        pending_destroy(pending);
        wait_answer(wait, failure);
        return;
    }
    pending->wait = wait;
    wait->pending = pending;
    (void)session;
}

static void wait_all(struct session *session, struct wait *wait) {
    struct pending *pending = pending_create(session, session->n_streams + 1);
    int code = pending ? pending_add(pending, 0, session->stream, session->stream->enqueued) : STATUS_NO_HOST_MEMORY;
    for (uint32_t i = 0; code == STATUS_OK && i < session->n_streams; i++)
        code = pending_add(pending, i + 1, session->streams[i].stream, session->streams[i].stream->enqueued);
    wait_on(session, wait, pending, code);
}

void session_wait(struct session *session, uint64_t id, struct wait *wait) {
    wait->session = session;
    wait->pending = NULL;
    if (id == 0) {
        wait_all(session, wait);
        return;
    }
    struct tensor *tensor = NULL;
    struct failure *failure = request_failure(session, "wait", id, &tensor);
    if (failure) {
        wait_answer(wait, failure);
        return;
    }
    struct pending *pending = pending_create(session, 1);
    int code = pending ? STATUS_OK : STATUS_NO_HOST_MEMORY;
    if (pending && tensor->ready)
        code = pending_add(pending, 0, tensor->ready, tensor->ready_number);
    if (pending)
        pending->taint = tensor->taint ? taint_ref(tensor->taint) : NULL;
    wait_on(session, wait, pending, code);
}

void wait_cancel(struct wait *wait) {
    if (wait->pending)
        pending_destroy(wait->pending);
    wait->pending = NULL;
}

/* ---- room ---- */

static void room_destroy(struct session *session) {
    struct room *room = session->room;
    session->room = NULL;
    for (uint32_t i = 0; room && i < room->n_waiters; i++)
        if (room->waiters[i])
            engine_waiter_cancel(session->engine, room->waiters[i]);
    free(room);
}

static void room_reached(struct waiter *waiter) {
    struct session *session = waiter->owner;
    struct room *room = session->room;
    for (uint32_t i = 0; i < room->n_waiters; i++)
        if (room->waiters[i] == waiter)
            room->waiters[i] = NULL;
    void (*told)(void *) = room->told;
    void *owner = room->owner;
    if (session_queued(session) > room->low) {
        session_notify_room(session, room->low, told, owner);
        return;
    }
    room_destroy(session);
    told(owner);
}

static struct stream *room_stream(struct session *session, uint32_t i) {
    return i ? session->streams[i - 1].stream : session->stream;
}

/* Watches a stream for its share of what must go, or for its end. An idle session is told at the next poll. */
static void room_watch(struct session *session, struct room *room, uint32_t i, uint64_t share) {
    struct stream *stream = room_stream(session, i);
    uint64_t completed = atomic_load_explicit(&stream->completed, memory_order_acquire);
    uint64_t queued = stream->enqueued - completed;
    if (queued == 0 && share > 0)
        return;
    uint64_t number = completed + (queued < share ? queued : share);
    room->waiters[i] = engine_waiter(session->engine, stream, number, room_reached, session);
    /* Without memory for a waiter the owner may be told late: it looks again when anything else wakes it. */
}

void session_notify_room(struct session *session, uint64_t low, void (*told)(void *owner), void *owner) {
    room_destroy(session);
    uint32_t streams = session->n_streams + 1;
    struct room *room = told ? calloc(1, sizeof *room + streams * sizeof *room->waiters) : NULL;
    if (!room)
        return;
    *room = (struct room){.session = session, .told = told, .owner = owner, .low = low, .n_waiters = streams};
    session->room = room;
    uint64_t queued = session_queued(session);
    uint64_t share = queued > low ? (queued - low + streams - 1) / streams : 0;
    for (uint32_t i = 0; i < (share ? streams : 1); i++)
        room_watch(session, room, i, share);
}

/* ---- uploads ---- */

static void upload_link(struct session *session, struct upload *upload) {
    upload->next = session->uploads;
    upload->previous = &session->uploads;
    if (upload->next)
        upload->next->previous = &upload->next;
    session->uploads = upload;
}

static void upload_unlink(struct upload *upload) {
    *upload->previous = upload->next;
    if (upload->next)
        upload->next->previous = upload->previous;
}

/* Memory that the host may write now; where all that fits is still in use, the bytes go to a staging buffer, and a copy is
 * enqueued when they are complete. */
static int upload_memory(struct upload *upload, const struct upload_request *request, struct stream *stream,
                         struct fault *fault) {
    struct tensor *tensor = upload->tensor;
    int code = session_storage(upload->session, (uint64_t)upload->bytes, NULL, &tensor->storage, fault);
    if (code == STATUS_OUT_OF_MEMORY && !request->waitable) {
        code = session_storage(upload->session, (uint64_t)upload->bytes, stream, &tensor->storage, fault);
        if (code == STATUS_OK && !(upload->staging = malloc((size_t)upload->bytes)))
            code = fault_set(fault, STATUS_NO_HOST_MEMORY, "no host memory to stage an upload");
    }
    if (code != STATUS_OK)
        return code;
    upload->data = upload->staging ? upload->staging : tensor->storage->data;
    upload->stream = stream;
    tensor->uploading = !request->waitable;
    return STATUS_OK;
}

static int upload_waitable(struct upload *upload, struct fault *fault) {
    upload->outside = engine_outside_take(upload->session->engine);
    upload->taint = taint_create();
    if (!upload->outside || !upload->taint)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no host memory for an upload");
    upload->outside->enqueued++;
    upload->tensor->ready = upload->outside;
    upload->tensor->ready_number = upload->outside->enqueued;
    upload->tensor->taint = taint_ref(upload->taint);
    return STATUS_OK;
}

static int upload_start(struct upload *upload, const struct upload_request *request, struct fault *fault) {
    struct session *session = upload->session;
    struct tensor *tensor = upload->tensor;
    int code = type_check(request->type, fault);
    if (code != STATUS_OK)
        return code;
    tensor->type = *request->type;
    layout_contiguous(tensor->type.rank, tensor->type.shape, tensor->strides);
    upload->bytes = type_bytes(request->type);
    struct stream *stream = session_find_stream(session, request->stream, fault);
    if (!stream)
        return (int)fault->code;
    if (upload->bytes == 0 && !request->waitable)
        return STATUS_OK;
    code = upload->bytes ? upload_memory(upload, request, stream, fault) : STATUS_OK;
    if (code == STATUS_OK && request->waitable)
        code = upload_waitable(upload, fault);
    return code;
}

static void upload_dispose(struct upload *upload) {
    free(upload->staging);
    taint_unref(upload->taint);
    if (upload->outside)
        engine_outside_give(upload->session->engine, upload->outside);
    memset(upload, 0, sizeof *upload);
}

int session_upload(struct session *session, const struct upload_request *request, struct upload *upload) {
    struct fault fault;
    memset(upload, 0, sizeof *upload);
    session->ops_submitted++;
    session->engine->ops_submitted++;
    struct tensor *tensor = NULL;
    int code = session_bind(session, request->id, &tensor, &fault);
    if (code != STATUS_OK) {
        failure_unref(session_failure(session, &fault, "upload", request->label, request->sequence));
        return code;
    }
    upload->session = session;
    upload->tensor = tensor;
    upload->sequence = request->sequence;
    snprintf(upload->label, sizeof upload->label, "%s", request->label ? request->label : "");
    code = upload_start(upload, request, &fault);
    if (code != STATUS_OK) {
        tensor_fail(session->engine, tensor,
                    session_failure(session, &fault, "upload", request->label, request->sequence));
        tensor->uploading = false;
        tensor->ready = NULL;
        upload_dispose(upload);
        return code;
    }
    tensor->references++;
    upload_link(session, upload);
    return STATUS_OK;
}

/* The staged bytes go to their place as work on the upload's stream. */
static int upload_copy_staged(struct upload *upload, struct fault *fault) {
    /* The stream that it was to go to may have been closed meanwhile, and be another session's by now. */
    struct stream *stream = session_has_stream(upload->session, upload->stream) ? upload->stream
                                                                                : upload->session->stream;
    int code = bind_staged(stream, upload->tensor, upload->staging, fault);
    if (code == STATUS_OK)
        upload->staging = NULL;
    return code;
}

/* Settles the taint that users of a waitable upload carry, and lets them run. */
static void upload_settle_outside(struct upload *upload, const struct fault *cause) {
    struct taint *const none[3] = {NULL, NULL, NULL};
    struct check *check = cause ? check_failed(cause, "copy_to", upload->label, upload->sequence) : NULL;
    taint_settle(taint_ref(upload->taint), none, check);
    engine_outside_reached(upload->session->engine, upload->outside);
}

static void upload_end(struct upload *upload) {
    tensor_unref(upload->session->engine, upload->tensor);
    upload_unlink(upload);
    upload_dispose(upload);
}

void upload_abandon(struct upload *upload) {
    struct fault fault;
    fault_set(&fault, STATUS_CANCELLED, "the session ended");
    if (upload->outside)
        upload_settle_outside(upload, &fault);
    upload_end(upload);
}

void upload_finish(struct upload *upload, const struct fault *cause) {
    struct session *session = upload->session;
    struct tensor *tensor = upload->tensor;
    struct fault fault;
    int code = STATUS_OK;
    if (cause) {
        fault = *cause;
        code = (int)cause->code;
    } else if (upload->staging) {
        code = upload_copy_staged(upload, &fault);
    }
    tensor->uploading = false;
    if (upload->outside)
        upload_settle_outside(upload, code == STATUS_OK ? NULL : &fault);
    if (code != STATUS_OK)
        tensor_fail(session->engine, tensor,
                    session_failure(session, &fault, upload->outside ? "copy_to" : "upload", upload->label,
                                    upload->sequence));
    upload_end(upload);
}
