/* Named tensors: Publish, OpenName, ListNames, RemoveName, MoveName. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/process/log.h"
#include "server/worker/connection.h"
#include "server/worker/request_impl.h"

enum {
    REQUEST_NAMES_BYTES = 512 << 10, /* of names in one reply, */
    REQUEST_NAMES_MAX = 4096,        /* and how many */
    REQUEST_NAMES_STEPS = 5,         /* of the budget, for each of them, */
    REQUEST_OWNERS_STEPS = 1,        /* and for each owner */
};

static int request_done(struct connection *connection, uint64_t sequence, const struct fault *wrong) {
    const Tensord__Done done = TENSORD__DONE__INIT;
    if (!wrong)
        return pending_reply_message(connection, FRAME_DONE, sequence, &done.base);
    return pending_reply_fault(connection, FRAME_DONE, sequence, wrong);
}

int request_publish(struct connection *connection, const struct frame_header *header, const ProtobufCMessage *message,
                    uint8_t **sink, struct fault *fault) {
    const Tensord__Publish *publish = (const Tensord__Publish *)message;
    uint64_t most = connection->principal->limits.named_tensors;
    struct fault wrong;
    (void)sink;
    if (publish->n_ids == 0 || publish->n_ids != publish->n_names)
        return REQUEST_PROTOCOL(fault, "a Publish with %zu ids and %zu names", publish->n_ids, publish->n_names);
    if (publish->n_ids > most) { /* all names of a Publish differ, so all of them would be there afterwards */
        fault_set(&wrong, STATUS_LIMIT, "the limit of %" PRIu64 " named tensors is reached: %zu came in one Publish",
                  most, publish->n_ids);
        return request_done(connection, header->sequence, &wrong);
    }
    return request_later(connection, pending_reply_publish(connection, header->sequence, publish));
}

int request_open_name(struct connection *connection, const struct frame_header *header, const ProtobufCMessage *message,
                      uint8_t **sink, struct fault *fault) {
    const Tensord__OpenName *open = (const Tensord__OpenName *)message;
    Tensord__NameOpened opened = TENSORD__NAME_OPENED__INIT;
    struct held *held = NULL;
    struct fault wrong;
    int error = names_find(&connection->service->names, connection->principal->key, open->name, &held, &wrong);
    (void)sink, (void)fault;
    if (error == STATUS_OK)
        error = session_bind_held(connection->session, open->id, held, &wrong);
    if (error == STATUS_AGAIN)
        return request_later(connection, error);
    if (error)
        return pending_reply_fault(connection, FRAME_NAME_OPENED, header->sequence, &wrong);
    const struct tensor_type *type = held_type(held);
    opened.dtype = type->dtype;
    opened.n_shape = (size_t)type->rank;
    opened.shape = (int64_t *)(uintptr_t)type->shape;
    return pending_reply_message(connection, FRAME_NAME_OPENED, header->sequence, &opened.base);
}

/* Finds the owner whose names are meant. The names of other principals are for administrators. */
static int request_owner(const struct connection *connection, const char *words, bool given,
                         char key[PRINCIPAL_NAME_BYTES], struct fault *fault) {
    const struct principal *principal = &connection->peer.principal;
    snprintf(key, PRINCIPAL_NAME_BYTES, "%s", connection->principal->key);
    if (!*words || !strcmp(words, key) || !strcmp(words, principal->name))
        return STATUS_OK;
    if (principal->role < ROLE_ADMIN)
        return fault_set(fault, STATUS_DENIED, "names of others need the role admin; %s has %s", principal->name,
                         role_name(principal->role));
    return names_resolve(&connection->service->names, words, given, key, fault);
}

/* Sends Done when the change is on the disk (if replies wait for that), or the error. */
static int request_changed(struct connection *connection, uint64_t sequence, int status, const struct fault *wrong,
                           const char *key) {
    return status ? request_done(connection, sequence, wrong) : pending_reply_saved(connection, sequence, key);
}

static void request_log_names(const struct connection *connection, const char *event, const char *name,
                              const char *from, const char *to, const char *new_name) {
    if (!strcmp(from, connection->principal->key) && !strcmp(to, from))
        return;
    log_event(LOG_LEVEL_INFO, event, "by", connection->principal->name, "owner", from, "name", *name ? name : "(all)",
              "new_owner", to, "new_name", new_name, NULL);
}

/* Sets *name to the name that is meant; NULL: all names. An empty name without `all` is probably a field that was
 * forgotten, so it must not mean all names. */
static int request_which(const char *text, bool all, const char **name, struct fault *fault) {
    *name = all ? NULL : text;
    if (all != !*text)
        return fault_set(fault, STATUS_INVALID_ARGUMENT,
                         all ? "a name and all names cannot both be meant" : "neither a name nor all names are meant");
    return STATUS_OK;
}

int request_remove_name(struct connection *connection, const struct frame_header *header,
                        const ProtobufCMessage *message, uint8_t **sink, struct fault *fault) {
    const Tensord__RemoveName *remove = (const Tensord__RemoveName *)message;
    const char *name;
    char key[PRINCIPAL_NAME_BYTES];
    struct fault wrong;
    int error = request_owner(connection, remove->owner, false, key, &wrong);
    (void)sink, (void)fault;
    if (error == STATUS_OK)
        error = request_which(remove->name, remove->all, &name, &wrong);
    if (error == STATUS_OK)
        error = names_remove_of(&connection->service->names, key, name, remove->beneath, &wrong);
    if (error == STATUS_OK)
        request_log_names(connection, "names_removed", remove->name, key, key, "");
    return request_changed(connection, header->sequence, error, &wrong, key);
}

int request_move_name(struct connection *connection, const struct frame_header *header, const ProtobufCMessage *message,
                      uint8_t **sink, struct fault *fault) {
    const Tensord__MoveName *move = (const Tensord__MoveName *)message;
    const char *name;
    char from[PRINCIPAL_NAME_BYTES], to[PRINCIPAL_NAME_BYTES];
    struct fault wrong;
    int error = request_owner(connection, move->owner, false, from, &wrong);
    (void)sink, (void)fault;
    memcpy(to, from, sizeof to);
    if (error == STATUS_OK && *move->new_owner)
        error = request_owner(connection, move->new_owner, true, to, &wrong);
    if (error == STATUS_OK)
        error = request_which(move->name, move->all, &name, &wrong);
    if (error == STATUS_OK && !name && *move->new_name)
        error = fault_set(&wrong, STATUS_INVALID_ARGUMENT, "all names together cannot get one new name");
    if (error == STATUS_OK)
        error =
            names_move(&connection->service->names, from, name, to, *move->new_name ? move->new_name : NULL, &wrong);
    if (error == STATUS_OK)
        request_log_names(connection, "names_moved", move->name, from, to, move->new_name);
    return request_changed(connection, header->sequence, error, &wrong, from);
}

/* ---- lists ---- */

static void request_fill_name(Tensord__Name *name, const struct name_entry *entry, bool saves, uint64_t now) {
    const struct tensor_type *type = held_type(entry->held);
    tensord__name__init(name);
    name->name = (char *)(uintptr_t)entry->name;
    name->dtype = type->dtype;
    name->n_shape = (size_t)type->rank;
    name->shape = (int64_t *)(uintptr_t)type->shape;
    name->bytes = held_bytes(entry->held);
    name->age_s = (double)(now - entry->since_ns) / 1e9;
    name->unsaved = saves && !entry->on_disk;
}

struct request_names {
    struct connection *connection;
    Tensord__Names list;
    size_t bytes; /* the packed list has at most so many */
    size_t capacity;
    bool more, starved;
};

/* Adds the owner's entries from `first` on to the list, in the arena, as far as there is room. */
static void request_pick_names(struct request_names *names, const struct name_owner *owner, unsigned first, bool all) {
    struct arena *arena = &names->connection->service->arena;
    bool orphan = owner->principal->orphan;
    uint64_t now = clock_now_ns();
    for (unsigned i = first; i < owner->count && !names->starved; i++) {
        Tensord__Name *name;
        names->more = names->bytes >= REQUEST_NAMES_BYTES || names->list.n_names == names->capacity;
        if (names->more)
            return;
        name = arena_allocate(arena, sizeof *name);
        names->starved = !name;
        if (!name)
            return;
        request_fill_name(name, owner->entries[i], owner->disk, now);
        if (all) {
            name->orphan = orphan;
            name->owner = (char *)(uintptr_t)owner->shown;
            name->user = orphan ? name->owner : owner->principal->name;
        }
        names->list.names[names->list.n_names++] = name;
        names->bytes += tensord__name__get_packed_size(name) + 8;
    }
}

static int request_compare_owners(const void *a, const void *b) {
    return strcmp((*(struct name_owner *const *)a)->shown, (*(struct name_owner *const *)b)->shown);
}

/* Adds the names of all owners, in the order of owners and names, after this name of this owner. */
static void request_pick_all(struct request_names *picked, const struct names *names, const char *after_owner,
                             const char *after) {
    struct name_owner **owners =
        arena_allocate(&picked->connection->service->arena, (names->n_owners + 1) * sizeof *owners);
    unsigned n = 0;
    picked->starved = !owners;
    for (struct name_owner *owner = names->owners; owner && owners; owner = owner->next)
        if (strcmp(owner->shown, after_owner) >= 0)
            owners[n++] = owner;
    if (owners)
        qsort(owners, n, sizeof *owners, request_compare_owners);
    for (unsigned i = 0; i < n && !picked->more && !picked->starved; i++) {
        bool begun = !strcmp(owners[i]->shown, after_owner);
        request_pick_names(picked, owners[i], begun ? names_after(owners[i], after) : 0, true);
    }
    names_charge(names, n, REQUEST_OWNERS_STEPS);
}

static int request_reply_names(const struct request_names *names, uint64_t sequence) {
    Tensord__NameList list = TENSORD__NAME_LIST__INIT;
    uint8_t *data = names->starved ? NULL : malloc(names->bytes + 1);
    if (!data)
        return STATUS_NO_HOST_MEMORY;
    size_t bytes = tensord__names__pack(&names->list, data);
    names_charge(&names->connection->service->names, (unsigned)names->list.n_names, REQUEST_NAMES_STEPS);
    list.more = names->more;
    return pending_reply_data(names->connection, FRAME_NAME_LIST, sequence, &list.base, data, bytes);
}

static int request_deny_names(struct connection *connection, uint64_t sequence) {
    const struct principal *principal = &connection->peer.principal;
    Tensord__NameList list = TENSORD__NAME_LIST__INIT;
    Tensord__Error error = TENSORD__ERROR__INIT;
    struct fault wrong;
    fault_set(&wrong, STATUS_DENIED, "names of others need the role admin; %s has %s", principal->name,
              role_name(principal->role));
    error.code = wrong.code;
    error.message = wrong.message;
    list.error = &error;
    return pending_reply_message(connection, FRAME_NAME_LIST, sequence, &list.base);
}

int request_list_names(struct connection *connection, const struct frame_header *header,
                       const ProtobufCMessage *message, uint8_t **sink, struct fault *fault) {
    const Tensord__ListNames *request = (const Tensord__ListNames *)message;
    struct service *service = connection->service;
    const struct name_owner *owner = names_owner(&service->names, connection->principal->key);
    struct request_names names = {
        .connection = connection, .list = TENSORD__NAMES__INIT, .capacity = REQUEST_NAMES_MAX};
    (void)sink, (void)fault;
    if (request->all && connection->peer.principal.role < ROLE_ADMIN)
        return request_deny_names(connection, header->sequence);
    names.list.names = arena_allocate(&service->arena, REQUEST_NAMES_MAX * sizeof(Tensord__Name *));
    names.starved = !names.list.names;
    if (names.starved)
        return STATUS_NO_HOST_MEMORY;
    if (request->all)
        request_pick_all(&names, &service->names, request->after_owner, request->after);
    else if (owner)
        request_pick_names(&names, owner, names_after(owner, request->after), false);
    return request_reply_names(&names, header->sequence);
}
