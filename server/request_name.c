/* Named tensors: Publish, OpenName, ListNames, RemoveName. */
#include <stdlib.h>
#include <string.h>

#include "server/connection.h"
#include "server/request_impl.h"

enum { REQUEST_NAMES_BYTES = 512 << 10 }; /* of names in one reply */

static int request_done(struct connection *connection, uint64_t sequence, const struct fault *wrong) {
    const Tensord__Done done = TENSORD__DONE__INIT;

    if (!wrong)
        return answer_message(connection, FRAME_DONE, sequence, &done.base);
    return answer_fault(connection, FRAME_DONE, sequence, wrong) ? STATUS_OK : STATUS_NO_HOST_MEMORY;
}

int request_publish(struct connection *connection, const struct frame_header *header, const ProtobufCMessage *message,
                    uint8_t **sink, struct fault *fault) {
    const Tensord__Publish *publish = (const Tensord__Publish *)message;

    (void)sink;
    if (publish->n_ids == 0 || publish->n_ids != publish->n_names)
        return REQUEST_PROTOCOL(fault, "a Publish with %zu ids and %zu names", publish->n_ids, publish->n_names);
    return answer_publish(connection, header->sequence, publish);
}

int request_open_name(struct connection *connection, const struct frame_header *header, const ProtobufCMessage *message,
                      uint8_t **sink, struct fault *fault) {
    const Tensord__OpenName *open = (const Tensord__OpenName *)message;
    Tensord__NameOpened opened = TENSORD__NAME_OPENED__INIT;
    const struct tensor_type *type;
    struct held *held = NULL;
    struct fault wrong;
    int status = names_find(&connection->service->names, connection->peer.principal.name, open->name, &held, &wrong);

    (void)sink, (void)fault;
    if (status == STATUS_OK)
        status = session_bind_held(connection->session, open->id, held, &wrong);
    if (status)
        return answer_fault(connection, FRAME_NAME_OPENED, header->sequence, &wrong) ? STATUS_OK
                                                                                     : STATUS_NO_HOST_MEMORY;
    type = held_type(held);
    opened.dtype = type->dtype;
    opened.n_shape = (size_t)type->rank;
    opened.shape = (int64_t *)(uintptr_t)type->shape;
    return answer_message(connection, FRAME_NAME_OPENED, header->sequence, &opened.base);
}

int request_remove_name(struct connection *connection, const struct frame_header *header,
                        const ProtobufCMessage *message, uint8_t **sink, struct fault *fault) {
    struct fault wrong;
    int status = names_remove(&connection->service->names, connection->peer.principal.name,
                              ((const Tensord__RemoveName *)message)->name, &wrong);

    (void)sink, (void)fault;
    return status ? request_done(connection, header->sequence, &wrong)
                  : answer_saved(connection, header->sequence, connection->peer.principal.name);
}

/* ---- lists ---- */

static void request_fill_name(Tensord__Name *name, const struct name_entry *entry, uint64_t now) {
    const struct tensor_type *type = held_type(entry->held);

    tensord__name__init(name);
    name->name = (char *)(uintptr_t)entry->name;
    name->dtype = type->dtype;
    name->n_shape = (size_t)type->rank;
    name->shape = (int64_t *)(uintptr_t)type->shape;
    name->bytes = held_bytes(entry->held);
    name->age_s = (double)(now - entry->since_ns) / 1e9;
}

/* The entries from `first` on, as many as one reply takes, in the arena; false without memory. */
static bool request_pick_names(struct connection *connection, const struct name_owner *owner, unsigned first,
                               Tensord__Names *names, bool *more) {
    struct arena *arena = &connection->service->arena;
    size_t left = owner ? owner->count - first : 0, bytes = 0;
    uint64_t now = service_now_ns();

    names->names = arena_allocate(arena, (left + 1) * sizeof(Tensord__Name *));
    for (size_t i = 0; names->names && i < left && bytes < REQUEST_NAMES_BYTES; i++) {
        Tensord__Name *name = arena_allocate(arena, sizeof *name);

        if (!name)
            return false;
        request_fill_name(name, owner->entries[first + i], now);
        names->names[names->n_names++] = name;
        bytes += tensord__name__get_packed_size(name) + 8;
    }
    *more = left > names->n_names;
    return names->names;
}

int request_list_names(struct connection *connection, const struct frame_header *header,
                       const ProtobufCMessage *message, uint8_t **sink, struct fault *fault) {
    const char *after = ((const Tensord__ListNames *)message)->after;
    const struct name_owner *owner = names_owner(&connection->service->names, connection->peer.principal.name);
    Tensord__Names names = TENSORD__NAMES__INIT;
    Tensord__NameList list = TENSORD__NAME_LIST__INIT;
    bool more = false,
         picked = request_pick_names(connection, owner, owner ? names_after(owner, after) : 0, &names, &more);
    size_t bytes = tensord__names__get_packed_size(&names);
    uint8_t *data = picked ? malloc(bytes + 1) : NULL;

    (void)sink, (void)fault;
    if (!data)
        return STATUS_NO_HOST_MEMORY;
    tensord__names__pack(&names, data);
    list.more = more;
    return answer_data(connection, FRAME_NAME_LIST, header->sequence, &list.base, data, bytes);
}
