/* Ids, tensors and what becomes of them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/session_impl.h"

struct tensor *session_tensor(struct session *session, uint64_t id) {
    return tensor_table_find(&session->tensors, id);
}

static int session_tensor_limit(const struct session *session, struct fault *fault) {
    return fault_set(fault, STATUS_LIMIT, "the session's limit of %" PRIu32 " tensors is reached",
                     session->limits.tensors);
}

/* Ids that were refused are not remembered one by one: that would be a way around the limit. From the first one on,
 * what is unknown was most likely refused. */
int session_unknown_id(const struct session *session, uint64_t id, struct fault *fault) {
    if (session->refused_id && id >= session->refused_id && id <= session->last_id)
        return session_tensor_limit(session, fault);
    return fault_set(fault, STATUS_UNKNOWN_ID, "no tensor has id %" PRIu64, id);
}

static int session_id_check(struct session *session, uint64_t id, struct fault *fault) {
    if (id == 0)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "0 is not a tensor id");
    if (id <= session->last_id)
        return fault_set(fault, STATUS_DUPLICATE_ID,
                         "tensor id %" PRIu64 " is not above the highest one used, %" PRIu64, id, session->last_id);
    return STATUS_OK;
}

static struct tensor *tensor_take(struct engine *engine) {
    struct tensor *tensor = engine->tensors_free;
    if (tensor)
        engine->tensors_free = (struct tensor *)tensor->storage;
    else
        tensor = malloc(sizeof *tensor);
    return tensor;
}

static void tensor_init(struct tensor *tensor, uint64_t id) {
    tensor->id = id;
    tensor->type.dtype = DTYPE_INVALID;
    tensor->type.rank = 0;
    tensor->offset = 0;
    tensor->contiguous = true;
    tensor->uploading = false;
    tensor->storage = NULL;
    tensor->failure = NULL;
    tensor->taint = NULL;
    tensor->ready = NULL;
    tensor->ready_number = 0;
    tensor->references = 1;
}

int session_bind(struct session *session, uint64_t id, struct tensor **result, struct fault *fault) {
    int code = session_id_check(session, id, fault);
    if (code != STATUS_OK)
        return code;
    session->last_id = id;
    if (session->tensors.count >= session->limits.tensors) {
        if (!session->refused_id)
            session->refused_id = id;
        session->engine->refusals[ENGINE_REFUSED_TENSORS]++;
        return session_tensor_limit(session, fault);
    }
    struct tensor *tensor = tensor_table_reserve(&session->tensors) == STATUS_OK ? tensor_take(session->engine) : NULL;
    if (!tensor)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no host memory for a tensor");
    tensor_init(tensor, id);
    tensor_table_insert(&session->tensors, tensor);
    *result = tensor;
    return STATUS_OK;
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

void session_take_back(struct session *session, uint64_t id, uint64_t last_id) {
    session_unbind(session, id);
    session->last_id = last_id;
}

void tensor_fail(struct engine *engine, struct tensor *tensor, struct failure *failure) {
    failure_unref(tensor->failure);
    tensor->failure = failure;
    storage_unref(&engine->pool, tensor->storage);
    tensor->storage = NULL;
    taint_unref(tensor->taint);
    tensor->taint = NULL;
}

void session_label(struct session *session, const char *label) {
    if (!label)
        return;
    size_t length = strnlen(label, sizeof session->label - 1);
    memcpy(session->label, label, length);
    session->label[length] = 0;
}

/* Counts a failure that begins here. */
static void session_count_failure(struct session *session, enum status code, const char *operation, const char *label,
                                  const char *message) {
    bool named = label && *label;
    if (code > 0 && code < STATUS_COUNT)
        session->failures[code]++, session->engine->failures[code]++;
    snprintf(session->last_failure, sizeof session->last_failure, "%.32s%s%.128s: %.255s", operation, named ? " " : "",
             named ? label : "", message);
}

struct failure *session_check_failure(struct session *session, struct check *check) {
    struct failure *failure = check_failure(check);
    if (!check->counted)
        session_count_failure(session, failure->code, failure->operation, failure->label, failure->message);
    check->counted = true;
    return failure;
}

struct failure *tensor_settle(struct session *session, struct tensor *tensor) {
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
        tensor_fail(session->engine, tensor, session_check_failure(session, tensor->taint->cause));
        break;
    }
    return tensor->failure;
}

struct failure *session_failure(struct session *session, const struct fault *fault, const char *operation,
                                const char *label, uint64_t sequence) {
    session_count_failure(session, fault->code, operation, label, fault->message);
    return failure_create(fault, operation, label, sequence);
}

struct stream *session_find_stream(struct session *session, uint32_t number, struct fault *fault) {
    if (number == 0)
        return session->stream;
    for (uint32_t i = 0; i < session->n_streams; i++)
        if (session->streams[i].number == number && !session->streams[i].closed)
            return session->streams[i].stream;
    if (number == session->refused_stream)
        fault_set(fault, STATUS_LIMIT, "stream %" PRIu32 " could not be opened: the session's limit is %" PRIu32,
                  number, session->limits.streams);
    else
        fault_set(fault, STATUS_INVALID_ARGUMENT, "no stream %" PRIu32 " is open", number);
    return NULL;
}

bool session_has_stream(const struct session *session, const struct stream *stream) {
    for (uint32_t i = 0; i < session->n_streams; i++)
        if (session->streams[i].stream == stream && !session->streams[i].closed)
            return true;
    return stream == session->stream;
}

bool session_type(const struct session *session, uint64_t id, struct tensor_type *type) {
    const struct tensor *tensor = tensor_table_find(&session->tensors, id);
    if (!tensor || tensor->type.dtype == DTYPE_INVALID)
        return false;
    *type = tensor->type;
    return true;
}
