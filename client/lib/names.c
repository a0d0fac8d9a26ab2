/* Named tensors: calls that wait for their replies. */
#include <stdlib.h>
#include <string.h>

#include "client/lib/device.h"
#include "client/lib/error.h"
#include "client/lib/frame.h"
#include "client/lib/names.h"
#include "client/lib/record.h"
#include "client/lib/scope.h"
#include "proto/ops/cleanup.h"
#include "proto/wire/check.h"

_Static_assert((int)TD_TENSOR_NAME_MAX == (int)NAME_BYTES_MAX, "the public header says how long a name may be");

/* Under the lock: sends the message behind everything enqueued so far, and waits for the reply. */
static int names_ask_once(td_device *device, struct request *request, unsigned type, const ProtobufCMessage *message,
                          uint64_t gate) {
    size_t bytes = protobuf_c_message_get_packed_size(message);
    if (bytes > FRAME_MESSAGE_MAX)
        return error_set(STATUS_LIMIT, "the names are more than one message holds, %d bytes", FRAME_MESSAGE_MAX);
    CLEANUP(free) struct frame_item *frame = frame_item_create(type, message, bytes);
    if (!frame)
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for a message");
    bool asked = request->sequence; /* a request that was sent before is repeated even if the queue is full */
    int code = asked ? device_check(device) : device_admit(device, frame->item.bytes);
    if (code)
        return code;
    frame->item.gate = gate;
    pending_push_frame(device, request, TAKE(frame));
    code = pending_wait(device, request);
    if (code)
        error_store(&request->error);
    return code;
}

/* The same, until there is a reply. If the connection is lost before the reply comes, the request is sent again with the same
 * sequence: by this number the daemon knows the request, and does not carry it out twice. `repeated` (may be NULL): it was sent
 * again. */
static int names_ask(td_device *device, struct request *request, unsigned type, const ProtobufCMessage *message,
                     uint64_t gate, bool *repeated) {
    struct tensor_type *place = request->type;
    if (repeated)
        *repeated = false;
    for (;;) {
        int code = names_ask_once(device, request, type, message, gate);
        if (code || !request->again)
            return code;
        uint64_t sequence = request->sequence;
        free(request->data);
        request_init(request, REQUEST_WAITED, (enum frame_type)type, NULL);
        request->sequence = sequence;
        request->type = place;
        if (repeated)
            *repeated = true;
    }
}

static int names_check(const char *name) {
    struct fault fault;
    if (!name)
        return error_set(STATUS_INVALID_ARGUMENT, "the name is NULL");
    return name_check(name, &fault) ? error_fault(&fault, NULL, NULL) : 0;
}

/* ---- publishing ---- */

static int publish_check(size_t count, td_tensor *const *tensors, const char *const *names) {
    if (!count || !tensors || !names)
        return error_set(STATUS_INVALID_ARGUMENT, "no tensors, or no names");
    for (size_t i = 0; i < count; i++) {
        if (!tensors[i])
            return error_of_null() ? error_of_null() : error_set(STATUS_INVALID_ARGUMENT, "tensor %zu is NULL", i);
        if (tensors[i]->device != tensors[0]->device)
            return error_set(STATUS_DEVICE_MISMATCH, "tensor 0 is on %s, tensor %zu on %s", tensors[0]->device->name, i,
                             tensors[i]->device->name);
        int code = names_check(names[i]);
        if (!code)
            code = record_check("publish", tensors[i]->device, tensors[i], RECORD_RUN);
        if (code)
            return code;
    }
    return 0;
}

/* A text that may be NULL, for a message. */
static char *names_text(const char *text) {
    return (char *)(uintptr_t)(text ? text : "");
}

int names_publish(size_t count, td_tensor *const *tensors, const char *const *names, bool only_new,
                  const char *beneath) {
    struct request request;
    uint64_t gate = 0;
    int code = publish_check(count, tensors, names);
    if (code)
        return code;
    CLEANUP(free) uint64_t *ids = calloc(count, sizeof *ids);
    if (!ids)
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for %zu names", count);
    for (size_t i = 0; i < count; i++) {
        ids[i] = tensors[i]->id;
        if (tensors[i]->gate > gate)
            gate = tensors[i]->gate;
    }
    Tensord__Publish message = TENSORD__PUBLISH__INIT;
    message.n_ids = message.n_names = count;
    message.ids = ids;
    message.names = (char **)(uintptr_t)names;
    message.only_new = only_new;
    message.beneath = names_text(beneath);
    td_device *device = tensors[0]->device;
    request_init(&request, REQUEST_WAITED, FRAME_PUBLISH, NULL);
    pthread_mutex_lock(&device->lock);
    code = names_ask(device, &request, FRAME_PUBLISH, &message.base, gate, NULL);
    pthread_mutex_unlock(&device->lock);
    return code;
}

int td_publish_all(size_t count, td_tensor *const *tensors, const char *const *names, bool only_new) {
    return names_publish(count, tensors, names, only_new, NULL);
}

int td_publish(td_tensor *tensor, const char *name) {
    return td_publish_all(1, &tensor, &name, false);
}

/* ---- changes ---- */

static int names_change(td_device *device, unsigned type, const ProtobufCMessage *message) {
    struct request request;
    request_init(&request, REQUEST_WAITED, (enum frame_type)type, NULL);
    pthread_mutex_lock(&device->lock);
    int code = names_ask(device, &request, type, message, 0, NULL);
    pthread_mutex_unlock(&device->lock);
    return code;
}

int names_remove(td_device *device, const char *owner, const char *name, const char *beneath) {
    Tensord__RemoveName message = TENSORD__REMOVE_NAME__INIT;
    if (!device)
        return error_set(STATUS_INVALID_ARGUMENT, "the device is NULL");
    int code = name ? names_check(name) : 0;
    if (code)
        return code;
    message.name = names_text(name);
    message.all = !name;
    message.owner = names_text(owner);
    message.beneath = names_text(beneath);
    return names_change(device, FRAME_REMOVE_NAME, &message.base);
}

int td_names_remove(td_device *device, const char *owner, const char *name) {
    return names_remove(device, owner, name, NULL);
}

int td_unpublish(td_device *device, const char *name) {
    if (device && !name)
        return names_check(name);
    return td_names_remove(device, NULL, name);
}

int td_names_move(td_device *device, const char *owner, const char *name, const char *new_owner, const char *new_name) {
    Tensord__MoveName message = TENSORD__MOVE_NAME__INIT;
    if (!device)
        return error_set(STATUS_INVALID_ARGUMENT, "the device is NULL");
    int code = name ? names_check(name) : 0;
    if (!code && new_name)
        code = names_check(new_name);
    if (code)
        return code;
    message.name = names_text(name);
    message.all = !name;
    message.owner = names_text(owner);
    message.new_name = names_text(new_name);
    message.new_owner = names_text(new_owner);
    return names_change(device, FRAME_MOVE_NAME, &message.base);
}

/* ---- opening ---- */

/* Under the lock, which it gives up while it waits. The id is used up also on failure. A request that is sent again comes
 * behind operations that other threads have enqueued meanwhile. Their ids are higher, and the daemon accepts no lower id after
 * them: it replies with TD_E_DUPLICATE_ID, and the loop makes a new request with a higher id. */
static int open_ask(td_device *device, const char *name, td_tensor *tensor) {
    struct request request;
    Tensord__OpenName message = TENSORD__OPEN_NAME__INIT;
    bool repeated;
    int code;
    message.name = (char *)(uintptr_t)name;
    do {
        /* In an open batch the next result would get the id after its last one, not after this id. */
        device_seal(device);
        message.id = tensor->id = device->batches.next_id++;
        request_init(&request, REQUEST_WAITED, FRAME_OPEN_NAME, NULL);
        request.type = &tensor->type;
        code = names_ask(device, &request, FRAME_OPEN_NAME, &message.base, 0, &repeated);
    } while (code == STATUS_DUPLICATE_ID && repeated);
    return code;
}

td_tensor *td_open(td_device *device, const char *name) {
    struct scope_part *part;
    if (!device) {
        error_set(STATUS_INVALID_ARGUMENT, "the device is NULL");
        return error_null();
    }
    if (names_check(name) || record_check("open", device, NULL, RECORD_BRING) || scope_part(device, &part))
        return error_null();
    pthread_mutex_lock(&device->lock);
    td_tensor *tensor = tensor_take(&device->tensors);
    if (!tensor) {
        error_set(STATUS_NO_HOST_MEMORY, "no memory for a tensor handle");
    } else {
        tensor->device = device;
        if (open_ask(device, name, tensor)) {
            tensor_give(&device->tensors, tensor);
            tensor = NULL;
        } else {
            tensor->known = true;
            if (part)
                scope_part_add(part, tensor);
        }
    }
    pthread_mutex_unlock(&device->lock);
    return tensor ? tensor : error_null();
}

/* ---- lists ---- */

static int info_fill(td_name_info *info, const Tensord__Name *name) {
    struct tensor_type type;
    struct fault fault;
    if (strlen(name->name) >= sizeof info->name || type_make(&type, name->dtype, name->shape, name->n_shape, &fault))
        return error_set(STATUS_PROTOCOL, "the daemon lists a name that is no tensor's");
    *info =
        (td_name_info){.dtype = (td_dtype)type.dtype, .rank = type.rank, .bytes = name->bytes, .age_s = name->age_s};
    if (strlen(name->user) >= sizeof info->user || strlen(name->owner) >= sizeof info->owner)
        return error_set(STATUS_PROTOCOL, "the daemon lists an owner of names that is none");
    strcpy(info->user, name->user);
    strcpy(info->owner, name->owner);
    info->orphan = name->orphan;
    info->unsaved = name->unsaved;
    strcpy(info->name, name->name);
    memcpy(info->shape, type.shape, (size_t)type.rank * sizeof *info->shape);
    return 0;
}

/* A list that is being received. */
struct names_list {
    td_name_info *infos;
    size_t capacity, count;
    bool all, more;
    char owner[TD_OWNER_MAX + 1], after[TD_TENSOR_NAME_MAX + 1]; /* owner and name of the last entry so far */
};

/* Puts the names of one reply into the list. */
static int names_take(struct names_list *list, const Tensord__Names *names) {
    for (size_t i = 0; i < names->n_names; i++) {
        td_name_info info;
        int code = info_fill(&info, names->names[i]);
        if (code)
            return code;
        int order = strcmp(info.owner, list->owner);
        if (order < 0 || (order == 0 && strcmp(info.name, list->after) <= 0))
            return error_set(STATUS_PROTOCOL, "the daemon lists names out of order");
        strcpy(list->owner, info.owner);
        strcpy(list->after, info.name);
        if (list->count < list->capacity)
            list->infos[list->count] = info;
        list->count++;
    }
    return 0;
}

static int names_page(td_device *device, struct names_list *list) {
    struct request request;
    Tensord__ListNames message = TENSORD__LIST_NAMES__INIT;
    message.after = list->after;
    message.after_owner = list->owner;
    message.all = list->all;
    request_init(&request, REQUEST_WAITED, FRAME_LIST_NAMES, NULL);
    pthread_mutex_lock(&device->lock);
    int code = names_ask(device, &request, FRAME_LIST_NAMES, &message.base, 0, NULL);
    pthread_mutex_unlock(&device->lock);
    if (!code) {
        const struct frame_header header = {.type = FRAME_NAME_LIST, .message_bytes = (uint32_t)request.bytes};
        ProtobufCMessage *names = NULL;
        struct fault fault;
        code = frame_unpack(&tensord__names__descriptor, &header, request.data, &names, &fault);
        list->more = names && request.more && ((Tensord__Names *)names)->n_names;
        code = code ? error_set(fault.code, "%s", fault.message) : names_take(list, (Tensord__Names *)names);
        tensord__names__free_unpacked((Tensord__Names *)names, NULL);
    }
    free(request.data);
    return code;
}

static int names_list(td_device *device, bool all, td_name_info *infos, size_t capacity, size_t *count) {
    struct names_list list = {.infos = infos, .capacity = capacity, .all = all, .more = true};
    int code = 0;
    if (!device || !count || (capacity && !infos))
        return error_set(STATUS_INVALID_ARGUMENT, "the device or a place for the result is NULL");
    while (list.more && !code)
        code = names_page(device, &list);
    if (!code)
        *count = list.count;
    return code;
}

int td_names(td_device *device, td_name_info *infos, size_t capacity, size_t *count) {
    return names_list(device, false, infos, capacity, count);
}

int td_names_all(td_device *device, td_name_info *infos, size_t capacity, size_t *count) {
    return names_list(device, true, infos, capacity, count);
}
