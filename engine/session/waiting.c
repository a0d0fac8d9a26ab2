#include "engine/session/waiting.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>

#include "engine/device/device_impl.h"
#include "engine/session/host.h"
#include "engine/values/plan.h"

enum {
    FETCH_WHOLE_BYTES = 4 << 20, /* up to here a value is staged with the fetch, without another round */
    /* Up to so many points one who waits is charged, but not refused: a session at its limit can still be asked for what it
     * has. How many may wait is the server's to limit. */
    PENDING_USUAL = 80,
};

/* ---- pending answers ---- */

static int pending_no_memory(struct fault *fault) {
    return fault_set(fault, STATUS_NO_HOST_MEMORY, "the daemon is out of host memory");
}

static uint64_t pending_bytes(unsigned n_points) {
    return sizeof(struct pending) + n_points * sizeof(struct pending_point);
}

/* NULL with `fault`: there is no memory, or the session may have no more. */
static struct pending *pending_create(struct session *session, unsigned n_points, struct fault *fault) {
    uint64_t bytes = pending_bytes(n_points);
    if (n_points > PENDING_USUAL && host_take(session, bytes, fault) != STATUS_OK)
        return NULL;
    if (n_points <= PENDING_USUAL)
        host_note(session, bytes);
    struct pending *pending = calloc(1, sizeof *pending + n_points * sizeof *pending->points);
    if (!pending) {
        host_give(session, bytes);
        pending_no_memory(fault);
        return NULL;
    }
    pending->session = session;
    pending->n_points = n_points;
    pending->next = session->pending;
    pending->previous = &session->pending;
    if (pending->next)
        pending->next->previous = &pending->next;
    session->pending = pending;
    return pending;
}

static void pending_destroy(struct pending *pending) {
    for (unsigned i = 0; i < pending->n_points; i++)
        waiter_cancel(&pending->points[i].waiter);
    *pending->previous = pending->next;
    if (pending->next)
        pending->next->previous = pending->previous;
    poison_unref(pending->poison);
    host_give(pending->session, pending_bytes(pending->n_points));
    free(pending);
}

/* The session of a fetch that holds nothing may have gone. */
static void fetch_drop(struct fetch *fetch) {
    if (fetch->storage)
        storage_unref(fetch->storage);
    if (fetch->staging)
        staging_give(&fetch->session->ledger, STAGING_EARLY, fetch->staging);
    fetch->storage = fetch->staging = NULL;
    fetch->data = NULL;
}

static void part_drop(struct fetch_part *part) {
    staging_cancel(&part->wait);
    if (part->staging)
        staging_give(&part->fetch->session->ledger, STAGING_OUT, part->staging);
    part->staging = NULL;
    part->data = NULL;
}

void pending_drop_all(struct session *session) {
    while (session->pending) {
        struct pending *pending = session->pending;
        if (pending->fetch) {
            fetch_drop(pending->fetch);
            pending->fetch->pending = NULL;
        } else if (pending->part) {
            part_drop(pending->part);
            pending->part->pending = NULL;
        } else {
            pending->wait->pending = NULL;
        }
        pending_destroy(pending);
    }
}

static void fetch_answer(struct fetch *fetch, struct failure *failure) {
    if (failure) {
        fetch_drop(fetch);
        fetch->bytes = 0;
    }
    fetch->pending = NULL;
    fetch->done(fetch, failure);
    failure_unref(failure);
}

static void part_answer(struct fetch_part *part, struct failure *failure) {
    if (failure)
        part_drop(part);
    part->pending = NULL;
    part->done(part, failure);
    failure_unref(failure);
}

static void wait_answer(struct wait *wait, struct failure *failure) {
    wait->pending = NULL;
    wait->done(wait, failure);
    failure_unref(failure);
}

static struct failure *pending_failure(struct pending *pending) {
    struct fault fault;
    if (order_fault(pending->session->order, &fault) != STATUS_OK)
        return failure_create(&fault, "", NULL, 0);
    if (pending->poison && poison_state(pending->poison) == POISON_FAILED)
        return session_guard_failure(pending->session, pending->poison->cause);
    return NULL;
}

static void pending_reached(struct waiter *waiter) {
    struct pending *pending = ((struct pending_point *)waiter)->pending;
    if (--pending->left)
        return;
    struct failure *failure = pending_failure(pending);
    struct fetch *fetch = pending->fetch;
    struct fetch_part *part = pending->part;
    struct wait *wait = pending->wait;
    pending_destroy(pending);
    if (fetch)
        fetch_answer(fetch, failure);
    else if (part)
        part_answer(part, failure);
    else
        wait_answer(wait, failure);
}

static void pending_add(struct pending *pending, unsigned i, struct stream *stream, uint64_t number) {
    if (point_reached(stream, number))
        return;
    pending->points[i].pending = pending;
    waiter_begin(&pending->points[i].waiter, stream, number, pending_reached);
    pending->left++;
}

/* ---- fetch ---- */

struct failure *waiting_refusal(struct session *session, const char *operation, uint64_t id, struct tensor **tensor) {
    struct fault fault;
    if (order_fault(session->order, &fault) != STATUS_OK)
        return failure_create(&fault, "", NULL, 0);
    struct cause cause;
    *tensor = session_tensor(session, id);
    if (!*tensor && session_refused(session, id, &cause))
        return failure_numbered(cause.failure, cause.sequence);
    if (!*tensor)
        session_unknown_id(session, id, &fault);
    else if ((*tensor)->uploading)
        fault_set(&fault, STATUS_INVALID_ARGUMENT, "tensor %" PRIu64 " has not been uploaded completely", id);
    else if (tensor_settle(session, *tensor))
        return failure_numbered((*tensor)->failure, (*tensor)->sequence);
    else
        return NULL;
    return session_failure(session, &fault, operation, NULL, 0);
}

/* The point at which the fetch can be answered. */
struct arrival_point {
    struct stream *stream; /* NULL: it is there */
    uint64_t number;
};

/* Makes the value contiguous. */
static int fetch_prepare(struct session *session, struct tensor *tensor, struct fetch *fetch,
                         struct arrival_point *point, struct fault *fault) {
    point->stream = tensor->ready;
    point->number = tensor->ready_number;
    fetch->bytes = type_bytes(&tensor->type);
    if (!tensor->storage)
        return STATUS_OK;
    if (tensor->contiguous) {
        fetch->storage = storage_ref(tensor->storage);
        fetch->data = tensor_data(tensor);
        return STATUS_OK;
    }
    struct stream *copier = session_has_stream(session, tensor->ready) ? tensor->ready : session->stream;
    int code = view_materialise(&session->ledger, copier, tensor, &fetch->storage, fault);
    if (code != STATUS_OK)
        return code;
    fetch->data = fetch->storage->data;
    point->stream = copier;
    point->number = copier->enqueued;
    return STATUS_OK;
}

/* Bytes of the device's memory to a place where the host can read them. STATUS_AGAIN: there is none now. */
static int stage_out(struct session *session, struct storage *storage, int64_t offset, int64_t bytes,
                     struct staging_wait *wait, struct storage **staging, struct arrival_point *point,
                     struct fault *fault) {
    struct stream *stream = session_transfer_stream(session, wait ? TRANSFER_PART : TRANSFER_FETCH);
    if (!stream)
        return plan_no_memory(fault);
    int code = staging_take(&session->ledger, wait ? STAGING_OUT : STAGING_EARLY, (size_t)bytes, wait, staging, fault);
    if (code != STATUS_OK)
        return code;
    if (point->stream && stream_wait(stream, point->stream, point->number) != STATUS_OK)
        return plan_no_memory(fault);
    code = view_copy_bytes(&session->ledger, stream, *staging, 0, storage, offset, bytes, fault);
    point->stream = stream;
    point->number = stream->enqueued;
    return code;
}

/* A value that the host cannot read goes to staging memory: a small one at once, if there is memory, a large one in parts. */
static int fetch_stage(struct session *session, struct fetch *fetch, struct arrival_point *point, struct fault *fault) {
    if (!fetch->data || !session->order->device->vtable->host_reserve)
        return STATUS_OK;
    int64_t offset = fetch->data - fetch->storage->data;
    fetch->offset = offset;
    fetch->data = NULL;
    if (fetch->bytes > FETCH_WHOLE_BYTES || (uint64_t)fetch->bytes > session->ledger.memory->staging.pool.total / 4)
        return STATUS_OK;
    int code = stage_out(session, fetch->storage, offset, fetch->bytes, NULL, &fetch->staging, point, fault);
    if (code == STATUS_OK)
        fetch->data = fetch->staging->data;
    return code == STATUS_AGAIN ? STATUS_OK : code;
}

/* Answers one of the three when the point has been reached. */
static struct pending *pending_at(struct session *session, const struct arrival_point *point, struct fetch *fetch,
                                  struct fetch_part *part, struct poison *poison, struct fault *fault) {
    struct pending *pending = pending_create(session, 1, fault);
    if (!pending)
        return NULL;
    pending_add(pending, 0, point->stream, point->number);
    pending->fetch = fetch;
    pending->part = part;
    pending->poison = poison ? poison_ref(poison) : NULL;
    return pending;
}

int session_fetch(struct session *session, uint64_t id, struct fetch *fetch) {
    void (*done)(struct fetch *, const struct failure *) = fetch->done;
    ledger_begin(&session->ledger);
    *fetch = (struct fetch){.done = done, .session = session};
    struct tensor *tensor = NULL;
    struct failure *failure = waiting_refusal(session, "fetch", id, &tensor);
    if (failure) {
        fetch_answer(fetch, failure);
        return STATUS_OK;
    }
    struct fault fault;
    struct arrival_point point;
    int code = fetch_prepare(session, tensor, fetch, &point, &fault);
    if (session_put_off(session, code))
        return STATUS_AGAIN;
    if (code != STATUS_OK || fetch_stage(session, fetch, &point, &fault) != STATUS_OK) {
        fetch_answer(fetch, session_failure(session, &fault, "fetch", NULL, 0));
        return STATUS_OK;
    }
    if (!point.stream || point_reached(point.stream, point.number)) {
        bool failed = tensor_settle(session, tensor);
        fetch_answer(fetch, failed ? failure_numbered(tensor->failure, tensor->sequence) : NULL);
        return STATUS_OK;
    }
    struct pending *pending = pending_at(session, &point, fetch, NULL, tensor->poison, &fault);
    if (!pending) {
        fetch_answer(fetch, session_failure(session, &fault, "fetch", NULL, 0));
        return STATUS_OK;
    }
    fetch->pending = pending;
    if (pending->left == 0) { /* reached between the two looks */
        struct failure *late = pending_failure(pending);
        pending_destroy(pending);
        fetch_answer(fetch, late);
    }
    return STATUS_OK;
}

void fetch_release(struct fetch *fetch) {
    if (fetch->pending)
        pending_destroy(fetch->pending);
    fetch->pending = NULL;
    fetch_drop(fetch);
}

/* Answers at once or later; or the part waits for staging memory, to come here again. */
static void part_stage(struct fetch_part *part) {
    struct fetch *fetch = part->fetch;
    struct session *session = fetch->session;
    struct arrival_point point = {0};
    struct fault fault;
    int code = stage_out(session, fetch->storage, fetch->offset + part->offset, part->bytes, &part->wait,
                         &part->staging, &point, &fault);
    if (code == STATUS_AGAIN)
        return;
    if (code != STATUS_OK) {
        part_answer(part, session_failure(session, &fault, "fetch", NULL, 0));
        return;
    }
    part->data = part->staging->data;
    struct pending *pending = pending_at(session, &point, NULL, part, NULL, &fault);
    if (!pending) {
        part_answer(part, session_failure(session, &fault, "fetch", NULL, 0));
        return;
    }
    part->pending = pending;
    if (pending->left == 0) {
        struct failure *late = pending_failure(pending);
        pending_destroy(pending);
        part_answer(part, late);
    }
}

static void part_ready(struct staging_wait *wait) {
    part_stage((struct fetch_part *)((char *)wait - offsetof(struct fetch_part, wait)));
}

void fetch_read(struct fetch *fetch, int64_t offset, int64_t bytes, struct fetch_part *part) {
    *part = (struct fetch_part){.done = part->done, .fetch = fetch, .offset = offset, .bytes = bytes};
    part->wait.ready = part_ready;
    part_stage(part);
}

void fetch_part_release(struct fetch_part *part) {
    if (part->pending)
        pending_destroy(part->pending);
    part->pending = NULL;
    part_drop(part);
}

/* ---- wait ---- */

/* `pending` NULL: there is no memory for it, as the fault says. */
static void wait_on(struct session *session, struct wait *wait, struct pending *pending, const struct fault *fault) {
    if (!pending) {
        wait_answer(wait, session_failure(session, fault, "wait", NULL, 0));
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
}

static void wait_all(struct session *session, struct wait *wait) {
    struct stream *uploader = session->transfers[TRANSFER_UPLOAD];
    unsigned n = session->n_streams + 2;
    for (struct upload *upload = session->uploads; upload; upload = upload->next)
        n++;
    for (struct landing *landing = session->landings; landing; landing = landing->next)
        n++;
    struct fault fault;
    struct pending *pending = pending_create(session, n, &fault);
    n = 0;
    if (pending) {
        pending_add(pending, n++, session->stream, session->stream->enqueued);
        for (uint32_t i = 0; i < session->n_streams; i++)
            pending_add(pending, n++, session->streams[i].stream, session->streams[i].stream->enqueued);
        if (uploader)
            pending_add(pending, n++, uploader, uploader->enqueued);
        for (struct upload *upload = session->uploads; upload; upload = upload->next)
            if (upload->outside)
                pending_add(pending, n++, upload->outside, upload->outside->enqueued);
        for (struct landing *landing = session->landings; landing; landing = landing->next)
            pending_add(pending, n++, landing->outside, landing->outside->enqueued);
    }
    wait_on(session, wait, pending, &fault);
}

void wait_at(struct session *session, struct stream *stream, uint64_t number, struct poison *poison,
             struct wait *wait) {
    wait->session = session;
    wait->pending = NULL;
    struct fault fault;
    struct pending *pending = pending_create(session, 1, &fault);
    if (pending && stream)
        pending_add(pending, 0, stream, number);
    if (pending)
        pending->poison = poison ? poison_ref(poison) : NULL;
    wait_on(session, wait, pending, &fault);
}

void session_wait(struct session *session, uint64_t id, struct wait *wait) {
    wait->session = session;
    wait->pending = NULL;
    if (id == 0) {
        wait_all(session, wait);
        return;
    }
    struct tensor *tensor = NULL;
    struct failure *failure = waiting_refusal(session, "wait", id, &tensor);
    if (failure) {
        wait_answer(wait, failure);
        return;
    }
    wait_at(session, tensor->ready, tensor->ready_number, tensor->poison, wait);
}

void wait_cancel(struct wait *wait) {
    if (wait->pending)
        pending_destroy(wait->pending);
    wait->pending = NULL;
}
