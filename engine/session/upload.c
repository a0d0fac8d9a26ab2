#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/device/device_impl.h"
#include "engine/session/waiting.h"
#include "engine/values/plan.h"

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

/* The stream for chunks that are copied as work. A waitable upload has a stream of its own: it must not wait for another upload that
 * may depend on it. */
static struct stream *upload_choose_stream(struct upload *upload, const struct upload_request *request,
                                           struct stream *stream) {
    struct session *session = upload->session;
    upload->own = request->waitable;
    if (request->waitable) {
        stream = stream_take(session->order, session->group, 1);
        if (stream)
            stream->role = TRACE_COPIES;
        return stream;
    }
    return session->order->device->vtable->host_reserve ? session_transfer_stream(session, TRANSFER_UPLOAD) : stream;
}

/* Takes memory that the host may write now. If the memory that fits is still in use, or the host cannot write the device's memory,
 * chunks go through staging memory, and are copied as work on a stream. */
static int upload_memory(struct upload *upload, const struct upload_request *request, struct stream *stream,
                         struct fault *fault) {
    struct device *device = upload->session->order->device;
    struct tensor *tensor = upload->tensor;
    int code = STATUS_OUT_OF_MEMORY;
    if (!device->vtable->host_reserve)
        code = ledger_storage(&upload->session->ledger, (uint64_t)upload->bytes, NULL, &tensor->storage, fault);
    if (code == STATUS_OUT_OF_MEMORY || code == STATUS_AGAIN) {
        upload->stream = upload_choose_stream(upload, request, stream);
        if (!upload->stream)
            return fault_set(fault, STATUS_NO_HOST_MEMORY, "no host memory for an upload");
        code =
            ledger_storage(&upload->session->ledger, (uint64_t)upload->bytes, upload->stream, &tensor->storage, fault);
        upload->staged = code == STATUS_OK;
    }
    if (code != STATUS_OK)
        return code;
    upload->storage = storage_ref(tensor->storage);
    tensor->uploading = !request->waitable;
    /* Here, not with the first chunk: by then, users of the tensor may be enqueued, and they wait for these bytes. */
    return upload->staged ? plan_wait_memory(upload->stream, upload->storage, fault) : STATUS_OK;
}

static int upload_waitable(struct upload *upload, struct fault *fault) {
    upload->outside = outside_take(upload->session->order);
    upload->poison = poison_create();
    if (!upload->outside || !upload->poison)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no host memory for an upload");
    upload->outside->enqueued++;
    upload->tensor->ready = upload->outside;
    upload->tensor->ready_number = upload->outside->enqueued;
    tensor_poison(upload->session, upload->tensor, poison_ref(upload->poison));
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

static enum staging_way upload_way(const struct upload *upload) {
    return upload->outside ? STAGING_LINK : STAGING_IN;
}

static void upload_dispose(struct upload *upload) {
    staging_cancel(&upload->wait);
    staging_give(&upload->session->ledger, upload_way(upload), upload->chunk);
    storage_unref(upload->storage);
    poison_unref(upload->poison);
    if (upload->outside)
        outside_give(upload->outside);
    if (upload->own && upload->stream)
        stream_give(upload->stream);
    memset(upload, 0, sizeof *upload);
}

int session_upload(struct session *session, const struct upload_request *request, struct upload *upload) {
    struct fault fault;
    uint64_t last_id = session->last_id;
    ledger_begin(&session->ledger);
    memset(upload, 0, sizeof *upload);
    session_label(session, request->label);
    struct tensor *tensor = NULL;
    int code = session_bind(session, request->id, &tensor, &fault);
    if (session_put_off(session, code)) {
        session->last_id = last_id;
        return STATUS_AGAIN;
    }
    if (code != STATUS_OK) {
        struct cause cause = session_cause(session, &fault, "upload", request->label, request->sequence);
        if (code == STATUS_LIMIT)
            session_refuse(session, request->id, cause);
        else
            failure_unref(cause.failure);
        session_end_operation(session, NULL);
        return code;
    }
    upload->session = session;
    upload->tensor = tensor;
    upload->sequence = request->sequence;
    snprintf(upload->label, sizeof upload->label, "%s", request->label ? request->label : "");
    code = upload_start(upload, request, &fault);
    if (session_put_off(session, code)) {
        upload_dispose(upload);
        session_take_back(session, request->id, last_id);
        return STATUS_AGAIN;
    }
    if (code != STATUS_OK) {
        tensor_fail(session, tensor, session_cause(session, &fault, "upload", request->label, request->sequence));
        tensor->uploading = false;
        tensor->ready = NULL;
        upload_dispose(upload);
        session_end_operation(session, NULL);
        return code;
    }
    tensor->references++;
    upload_link(session, upload);
    return STATUS_OK;
}

/* ---- chunks ---- */

static void upload_ready(struct staging_wait *wait) {
    struct upload *upload = (struct upload *)((char *)wait - offsetof(struct upload, wait));
    upload->ready(upload);
}

uint8_t *upload_chunk(struct upload *upload, int64_t offset, int64_t bytes) {
    upload->later = false;
    if (bytes == 0 || !upload->storage)
        return NULL;
    if (!upload->staged)
        return upload->storage->data + offset;
    if (upload->fault.code)
        return NULL;
    upload->wait.ready = upload_ready;
    upload->wait.first = upload->outside && (!upload->copied || point_reached(upload->stream, upload->copied));
    int code = staging_take(&upload->session->ledger, upload_way(upload), (size_t)bytes,
                            upload->ready ? &upload->wait : NULL, &upload->chunk, &upload->fault);
    if (code == STATUS_AGAIN && !upload->ready)
        fault_set(&upload->fault, STATUS_NO_HOST_MEMORY, "no %lld bytes of staging memory now", (long long)bytes);
    upload->later = code == STATUS_AGAIN && upload->ready;
    if (code != STATUS_OK)
        return NULL;
    upload->chunk_offset = offset;
    upload->chunk_bytes = bytes;
    return upload->chunk->data;
}

/* The stream that copies. The first choice may have been closed meanwhile, and may belong to another session now. */
static int upload_stream(struct upload *upload, struct stream **stream) {
    struct session *session = upload->session;
    int code = STATUS_OK;
    if (!upload->own && upload->stream != session->transfers[TRANSFER_UPLOAD] &&
        !session_has_stream(session, upload->stream)) {
        upload->stream = session->stream;
        code = plan_wait_memory(upload->stream, upload->storage, &upload->fault);
    }
    *stream = upload->stream;
    return code;
}

/* Copies the written chunk to its place, as work on the stream. */
void upload_chunk_done(struct upload *upload) {
    struct storage *chunk = upload->chunk;
    struct stream *stream;
    if (!chunk)
        return;
    int code = upload_stream(upload, &stream);
    stream_begin_operation(stream, *upload->label ? upload->label : NULL, upload->sequence);
    if (code == STATUS_OK)
        code = view_copy_bytes(&upload->session->ledger, stream, upload->storage, upload->chunk_offset, chunk, 0,
                               upload->chunk_bytes, &upload->fault);
    (void)code; /* upload->fault says it */
    stream_begin_operation(stream, NULL, 0);
    upload->copied = stream->enqueued;
    upload->chunk = NULL;
    staging_give(&upload->session->ledger, upload_way(upload), chunk);
    if (upload->outside)
        return;
    upload->tensor->ready = stream;
    upload->tensor->ready_number = stream->enqueued;
}

/* ---- ends ---- */

/* Settles the poison of a waitable upload, and so that of its users, and lets them run. */
static void outside_settle(struct stream *outside, struct poison *poison, const struct failure *cause) {
    struct poison *const none[3] = {NULL, NULL, NULL};
    struct guard *guard = NULL;
    if (cause) {
        struct fault fault = {.code = cause->code};
        memcpy(fault.message, cause->message, sizeof fault.message);
        guard = guard_failed(&fault, cause->operation, cause->label, cause->sequence);
    }
    if (guard)
        guard->counted = true; /* with the upload */
    poison_settle(poison_ref(poison), none, guard);
    outside_reached(outside);
}

static void upload_end(struct upload *upload) {
    tensor_unref(upload->session, upload->tensor);
    upload_unlink(upload);
    upload_dispose(upload);
}

void upload_cancel_streams(struct session *session) {
    for (struct upload *upload = session->uploads; upload; upload = upload->next)
        if (upload->own)
            atomic_store(&upload->stream->cancelled, true);
    for (struct landing *landing = session->landings; landing; landing = landing->next)
        atomic_store(&landing->stream->cancelled, true);
}

void upload_abandon(struct upload *upload) {
    const struct failure cause = {.code = STATUS_CANCELLED, .message = "the session ended"};
    if (upload->outside)
        outside_settle(upload->outside, upload->poison, &cause);
    upload_end(upload);
}

static void landing_end(struct landing *landing, const struct failure *cause) {
    outside_settle(landing->outside, landing->poison, cause);
    outside_give(landing->outside);
    stream_give(landing->stream);
    poison_unref(landing->poison);
    *landing->previous = landing->next;
    if (landing->next)
        landing->next->previous = landing->previous;
    free(landing);
}

static void landing_reached(struct waiter *waiter) {
    landing_end((struct landing *)waiter, NULL);
}

void landing_abandon(struct landing *landing) {
    const struct failure cause = {.code = STATUS_CANCELLED, .message = "the session ended"};
    waiter_cancel(&landing->waiter);
    landing_end(landing, &cause);
}

/* A waitable upload whose last chunks are still being copied: its users run after that. */
static int upload_land(struct upload *upload, struct fault *fault) {
    struct session *session = upload->session;
    struct landing *landing = malloc(sizeof *landing);
    if (!landing)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no host memory for the end of an upload");
    *landing = (struct landing){.session = session,
                                .stream = upload->stream,
                                .outside = upload->outside,
                                .poison = upload->poison,
                                .next = session->landings,
                                .previous = &session->landings};
    waiter_begin(&landing->waiter, upload->stream, upload->copied, landing_reached);
    if (landing->next)
        landing->next->previous = &landing->next;
    session->landings = landing;
    upload->stream = NULL;
    upload->outside = NULL;
    upload->poison = NULL;
    return STATUS_OK;
}

/* The cause as the tensor's users see it: the operation where it began, or this upload. */
static struct cause upload_cause(struct upload *upload, const struct failure *cause) {
    struct fault fault = {.code = cause->code};
    snprintf(fault.message, sizeof fault.message, "%s", cause->message);
    if (cause->operation[0])
        return session_cause(upload->session, &fault, cause->operation, cause->label, cause->sequence);
    return session_cause(upload->session, &fault, upload->outside ? "copy_to" : "upload", upload->label,
                         upload->sequence);
}

void upload_finish(struct upload *upload, const struct failure *cause) {
    struct failure own;
    session_end_operation(upload->session, NULL); /* all bytes have come; the stream copies them in its turn */
    if (!cause && !upload->fault.code && upload->outside && upload->staged &&
        !point_reached(upload->stream, upload->copied) && upload_land(upload, &upload->fault) == STATUS_OK) {
        upload_end(upload);
        return;
    }
    if (!cause && upload->fault.code) {
        own = (struct failure){.code = upload->fault.code};
        snprintf(own.message, sizeof own.message, "%s", upload->fault.message);
        cause = &own;
    }
    struct cause begun = cause ? upload_cause(upload, cause) : (struct cause){0};
    upload->tensor->uploading = false;
    if (upload->outside) {
        struct failure *failure = cause ? failure_numbered(begun.failure, begun.sequence) : NULL;
        outside_settle(upload->outside, upload->poison, failure);
        failure_unref(failure);
    }
    if (cause)
        tensor_fail(upload->session, upload->tensor, begun);
    upload_end(upload);
}
