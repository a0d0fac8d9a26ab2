#include "engine/waiting.h"

#include <inttypes.h>
#include <stdlib.h>

#include "engine/view.h"

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
        session_unknown_id(session, id, &fault);
    else if ((*tensor)->uploading)
        fault_set(&fault, STATUS_INVALID_ARGUMENT, "tensor %" PRIu64 " has not been uploaded completely", id);
    else if (tensor_settle(session, *tensor))
        return failure_ref((*tensor)->failure);
    else
        return NULL;
    return session_failure(session, &fault, operation, NULL, 0);
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
    int code = view_materialise(session, copier, tensor, &fetch->storage, fault);
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
