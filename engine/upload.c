#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/view.h"
#include "engine/waiting.h"

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

/* Memory that the host may write now; where all that fits is still in use, the bytes go to a staging buffer, and a copy
 * is enqueued when they are complete. */
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
    session_label(session, request->label);
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
    struct stream *stream =
        session_has_stream(upload->session, upload->stream) ? upload->stream : upload->session->stream;
    int code = view_copy_staged(stream, upload->tensor, upload->staging, fault);
    if (code == STATUS_OK)
        upload->staging = NULL;
    return code;
}

/* Settles the taint that users of a waitable upload carry, and lets them run. */
static void upload_settle_outside(struct upload *upload, const struct failure *cause) {
    struct taint *const none[3] = {NULL, NULL, NULL};
    struct check *check = cause ? check_failed(cause) : NULL;
    if (check)
        check->counted = true; /* with the upload */
    taint_settle(taint_ref(upload->taint), none, check);
    engine_outside_reached(upload->session->engine, upload->outside);
}

static void upload_end(struct upload *upload) {
    tensor_unref(upload->session->engine, upload->tensor);
    upload_unlink(upload);
    upload_dispose(upload);
}

void upload_abandon(struct upload *upload) {
    const struct failure cause = {.code = STATUS_CANCELLED, .message = "the session ended"};
    if (upload->outside)
        upload_settle_outside(upload, &cause);
    upload_end(upload);
}

/* The cause as the tensor's users shall see it: where it began, or else here. */
static struct failure *upload_failure(struct upload *upload, const struct failure *cause) {
    struct fault fault = {.code = cause->code};
    snprintf(fault.message, sizeof fault.message, "%s", cause->message);
    if (cause->operation[0])
        return session_failure(upload->session, &fault, cause->operation, cause->label, cause->sequence);
    return session_failure(upload->session, &fault, upload->outside ? "copy_to" : "upload", upload->label,
                           upload->sequence);
}

void upload_finish(struct upload *upload, const struct failure *cause) {
    struct failure own = {.code = STATUS_OK};
    struct fault fault;
    if (!cause && upload->staging && upload_copy_staged(upload, &fault) != STATUS_OK) {
        own.code = fault.code;
        snprintf(own.message, sizeof own.message, "%s", fault.message);
        cause = &own;
    }
    struct failure *failure = cause ? upload_failure(upload, cause) : NULL;
    upload->tensor->uploading = false;
    if (upload->outside)
        upload_settle_outside(upload, failure);
    if (failure)
        tensor_fail(upload->session->engine, upload->tensor, failure);
    upload_end(upload);
}
