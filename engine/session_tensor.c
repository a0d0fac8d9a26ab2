/* Ids, tensors and what becomes of them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/session_impl.h"

struct tensor *session_tensor(struct session *session, uint64_t id) {
    return tensor_table_find(&session->tensors, id);
}

int session_id_check(struct session *session, uint64_t id, struct fault *fault) {
    if (id == 0)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "0 is not a tensor id");
    if (id <= session->last_id)
        return fault_set(fault, STATUS_DUPLICATE_ID,
                         "tensor id %" PRIu64 " is not above the highest one used, %" PRIu64, id, session->last_id);
    return STATUS_OK;
}

struct tensor *session_bind(struct session *session, uint64_t id) {
    struct engine *engine = session->engine;
    if (tensor_table_reserve(&session->tensors) != STATUS_OK)
        return NULL;
    struct tensor *tensor = engine->tensors_free;
    if (tensor)
        engine->tensors_free = (struct tensor *)tensor->storage;
    else if (!(tensor = malloc(sizeof *tensor)))
        return NULL;
    tensor->id = id;
    tensor->offset = 0;
    tensor->contiguous = true;
    tensor->uploading = false;
    tensor->storage = NULL;
    tensor->failure = NULL;
    tensor->taint = NULL;
    tensor->ready = NULL;
    tensor->ready_number = 0;
    tensor->references = 1;
    tensor->type.dtype = DTYPE_INVALID;
    tensor->type.rank = 0;
    session->last_id = id;
    tensor_table_insert(&session->tensors, tensor);
    return tensor;
}

void tensor_unref(struct engine *engine, struct tensor *tensor) {
    if (--tensor->references)
        return;
    storage_unref(&engine->pool, tensor->storage);
    failure_unref(tensor->failure);
    taint_unref(tensor->taint);
    tensor->storage = (struct storage *)engine->tensors_free; /* the free list's link */
    engine->tensors_free = tensor;
}

void session_free_tensors(struct engine *engine) {
    for (struct tensor *tensor = engine->tensors_free, *next; tensor; tensor = next) {
        next = (struct tensor *)tensor->storage;
        free(tensor);
    }
    engine->tensors_free = NULL;
}

void session_unbind(struct session *session, uint64_t id) {
    struct tensor *tensor = tensor_table_remove(&session->tensors, id);
    if (tensor)
        tensor_unref(session->engine, tensor);
}

void tensor_fail(struct engine *engine, struct tensor *tensor, struct failure *failure) {
    failure_unref(tensor->failure);
    tensor->failure = failure;
    storage_unref(&engine->pool, tensor->storage);
    tensor->storage = NULL;
    taint_unref(tensor->taint);
    tensor->taint = NULL;
}

struct failure *tensor_settle(struct engine *engine, struct tensor *tensor) {
    if (!tensor->taint || tensor->failure)
        return tensor->failure;
    switch (taint_state(tensor->taint)) {
    case TAINT_OPEN:
        break;
    case TAINT_CLEAR:
        taint_unref(tensor->taint);
        tensor->taint = NULL;
        break;
    case TAINT_FAILED:
        tensor_fail(engine, tensor, check_failure(tensor->taint->cause));
        break;
    }
    return tensor->failure;
}

struct failure *session_failure(struct session *session, const struct fault *fault, const char *operation,
                                const char *label, uint64_t sequence) {
    if (fault->code > 0 && fault->code < STATUS_COUNT)
        session->failures[fault->code]++;
    bool named = label && *label;
    snprintf(session->last_failure, sizeof session->last_failure, "%.32s%s%.48s: %.100s", operation, named ? " " : "",
             named ? label : "", fault->message);
    return failure_create(fault, operation, label, sequence);
}

struct stream *session_find_stream(struct session *session, uint32_t number, struct fault *fault) {
    if (number == 0)
        return session->stream;
    for (uint32_t i = 0; i < session->n_streams; i++)
        if (session->streams[i].number == number)
            return session->streams[i].stream;
    fault_set(fault, STATUS_INVALID_ARGUMENT, "no stream %" PRIu32 " is open", number);
    return NULL;
}

bool session_type(const struct session *session, uint64_t id, struct tensor_type *type) {
    const struct tensor *tensor = tensor_table_find(&session->tensors, id);
    if (!tensor || tensor->type.dtype == DTYPE_INVALID)
        return false;
    *type = tensor->type;
    return true;
}
