/* Upload and UploadChunk. */
#include <assert.h>
#include <search.h>
#include <stddef.h>
#include <stdlib.h>

#include "engine/session/host.h"
#include "server/worker/connection.h"
#include "server/worker/reply.h"
#include "server/worker/request.h"
#include "server/worker/request_impl.h"

enum {
    REQUEST_UPLOADS_MAX = 4096, /* of one session, begun and not complete */
    REQUEST_UPLOAD_STEPS = 8,   /* of the budget, for an upload that is dropped */
};

struct request_upload {
    struct request_upload *next, **previous;
    struct request_upload *older; /* an upload with the same id, which must have failed; chunks are for the newest */
    struct connection *connection;
    uint64_t id;
    int64_t total, received; /* bytes */
    enum dtype dtype;
    uint8_t *place; /* where the present chunk goes, */
    uint64_t chunk; /* and its bytes */
    bool bound;     /* false: it failed, and its data is dropped */
    struct upload upload;
};

/* Charged to the session for each: an entry with its node in the tree. */
enum { REQUEST_UPLOAD_BYTES = sizeof(struct request_upload) + 4 * sizeof(void *) };

static int request_upload_compare(const void *a, const void *b) {
    uint64_t id = ((const struct request_upload *)a)->id, other = ((const struct request_upload *)b)->id;
    return (id > other) - (id < other);
}

/* False: out of memory. */
static bool request_upload_add(struct connection *connection, struct request_upload *upload) {
    struct request_upload **found = tsearch(upload, &connection->request.uploads_by_id, request_upload_compare);
    if (!found)
        return false;
    upload->older = *found != upload ? *found : NULL;
    *found = upload;
    upload->next = connection->request.uploads;
    upload->previous = &connection->request.uploads;
    if (upload->next)
        upload->next->previous = &upload->next;
    connection->request.uploads = upload;
    connection->request.n_uploads++;
    host_note(connection->session, REQUEST_UPLOAD_BYTES);
    return true;
}

/* The newest upload with the id; NULL: there is none. */
static struct request_upload *request_upload_find(const struct connection *connection, uint64_t id) {
    const struct request_upload key = {.id = id};
    struct request_upload **found = tfind(&key, &connection->request.uploads_by_id, request_upload_compare);
    return found ? *found : NULL;
}

/* The upload must be the newest with its id. */
static void request_upload_remove(struct connection *connection, struct request_upload *upload) {
    struct request_upload **found = tfind(upload, &connection->request.uploads_by_id, request_upload_compare);
    assert(found && *found == upload);
    if (upload->older)
        *found = upload->older;
    else
        tdelete(upload, &connection->request.uploads_by_id, request_upload_compare);
    *upload->previous = upload->next;
    if (upload->next)
        upload->next->previous = upload->previous;
    connection->request.n_uploads--;
    host_give(connection->session, REQUEST_UPLOAD_BYTES);
    free(upload);
}

/* There is memory for the chunk that has been put off. */
static void request_upload_room(struct upload *upload) {
    throttle_on_staging(
        ((struct request_upload *)((char *)upload - offsetof(struct request_upload, upload)))->connection);
}

static void request_upload_end(struct request_upload *upload, const struct failure *cause) {
    if (upload->bound)
        upload_finish(&upload->upload, cause);
    upload->bound = false;
}

/* Binds the id. If the type is bad nobody knows how many bytes will come: all of them are dropped. False: there is no
 * memory yet. */
static bool request_upload_bind(struct connection *connection, const Tensord__Upload *message,
                                struct request_upload *upload) {
    struct tensor_type type;
    struct failure cause;
    struct fault bad;
    struct upload_request request = {
        .id = message->id,
        .type = &type,
        .stream = message->stream,
        .sequence = message->sequence,
        .label = message->label[0] ? message->label : NULL,
    };
    request_type(&type, message->dtype, message->shape, message->n_shape, &bad);
    upload->dtype = type.dtype;
    upload->total = bad.code ? INT64_MAX : type_bytes(&type);
    int error = session_upload(connection->session, &request, &upload->upload);
    if (error == STATUS_AGAIN)
        return false;
    connection->operations++;
    upload->bound = error == STATUS_OK;
    upload->upload.ready = request_upload_room;
    if (bad.code) {
        cause_set(&cause, &bad);
        request_upload_end(upload, &cause);
    }
    return true;
}

/* Prepares for the `payload` bytes that follow (0: none). STATUS_AGAIN: there is no place for them now; the same frame
 * comes again when there is. */
static int request_upload_expect(struct connection *connection, struct request_upload *upload, uint64_t payload,
                                 uint8_t **sink, struct fault *fault) {
    if (payload > (uint64_t)(upload->total - upload->received))
        return REQUEST_PROTOCOL(fault, "upload %lu: %lu bytes came where %ld of %ld were due", upload->id, payload,
                                upload->total - upload->received, upload->total);
    if (upload->place && payload != upload->chunk)
        return REQUEST_PROTOCOL(fault, "upload %lu: %lu bytes came where a chunk of %lu had been cut", upload->id,
                                payload, upload->chunk);
    if (payload > 0 && !upload->place) {
        upload->place = upload->bound ? upload_chunk(&upload->upload, upload->received, (int64_t)payload) : NULL;
        connection->hold.staging = upload->bound && upload->upload.later;
        connection->request.again = connection->hold.staging ? upload : NULL;
        if (connection->hold.staging)
            return STATUS_AGAIN;
    }
    connection->request.again = NULL;
    if (payload > 0) {
        upload->chunk = payload;
        connection->request.receiving = upload;
        *sink = upload->place;
    } else if (upload->total == 0) {
        request_upload_end(upload, NULL);
        request_upload_remove(connection, upload);
    }
    return STATUS_OK;
}

int request_upload(struct connection *connection, const struct frame_header *header, const ProtobufCMessage *message,
                   uint8_t **sink, struct fault *fault) {
    const Tensord__Upload *upload = (const Tensord__Upload *)message;
    struct request_upload *entry = connection->request.again;
    if (entry && entry->id != upload->id)
        return REQUEST_PROTOCOL(fault, "upload %lu came where %lu was due again", upload->id, entry->id);
    if (entry) /* it has begun, and waited for staging memory, or was cut */
        return request_upload_expect(connection, entry, header->payload_bytes, sink, fault);
    if (request_sequence(connection, upload->sequence, fault) || request_label(upload->label, fault))
        return STATUS_PROTOCOL;
    if (connection->request.n_uploads >= REQUEST_UPLOADS_MAX)
        return fault_set(fault, STATUS_LIMIT, "%d uploads are under way already", REQUEST_UPLOADS_MAX);
    entry = calloc(1, sizeof *entry);
    if (!entry)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory to begin an upload");
    entry->connection = connection;
    entry->id = upload->id;
    if (!request_upload_add(connection, entry)) {
        free(entry);
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory to begin an upload");
    }
    if (!request_upload_bind(connection, upload, entry)) {
        request_upload_remove(connection, entry);
        return request_later(connection, STATUS_AGAIN);
    }
    return request_upload_expect(connection, entry, header->payload_bytes, sink, fault);
}

int request_upload_chunk(struct connection *connection, const struct frame_header *header,
                         const ProtobufCMessage *message, uint8_t **sink, struct fault *fault) {
    const Tensord__UploadChunk *chunk = (const Tensord__UploadChunk *)message;
    struct request_upload *upload = request_upload_find(connection, chunk->id);
    if (!upload)
        return REQUEST_PROTOCOL(fault, "a chunk came for %lu, which is not being uploaded", chunk->id);
    if (chunk->offset != (uint64_t)upload->received)
        return REQUEST_PROTOCOL(fault, "upload %lu: a chunk for offset %lu came where %ld was due", chunk->id,
                                chunk->offset, upload->received);
    if (header->payload_bytes == 0)
        return REQUEST_PROTOCOL(fault, "upload %lu: a chunk without data", chunk->id);
    return request_upload_expect(connection, upload, header->payload_bytes, sink, fault);
}

int request_payload(struct connection *connection, const struct frame_header *header, struct fault *fault) {
    struct request_upload *upload = connection->request.receiving;
    uint64_t bytes = header->payload_bytes;
    (void)fault;
    connection->request.receiving = NULL;
    connection->service->bytes_in += bytes;
    /* Kernels may rely on a bool being 0 or 1. */
    if (upload->dtype == DTYPE_BOOL && upload->place)
        for (uint8_t *at = upload->place, *end = at + bytes; at < end; at++)
            *at = *at != 0;
    if (upload->place)
        upload_chunk_done(&upload->upload);
    upload->place = NULL;
    upload->received += (int64_t)bytes;
    if (upload->received < upload->total)
        return STATUS_OK;
    request_upload_end(upload, NULL);
    request_upload_remove(connection, upload);
    return STATUS_OK;
}

void request_cut(struct connection *connection) {
    if (connection->request.receiving)
        connection->request.again = connection->request.receiving;
    connection->request.receiving = NULL;
    request_program_cut(connection);
}

bool request_drop_uploads(struct connection *connection) {
    const struct failure gone = {.code = STATUS_CANCELLED, .message = "the connection ended before the data had come"};
    bool over = false;
    while (connection->request.uploads && !over) {
        request_upload_end(connection->request.uploads, &gone);
        request_upload_remove(connection, connection->request.uploads);
        over = budget_spent(connection->service->budget, REQUEST_UPLOAD_STEPS);
    }
    if (connection->request.uploads)
        return false;
    connection->request.receiving = connection->request.again = NULL;
    connection->hold.staging = false;
    return true;
}
