/* The requests of a control connection, and their replies. */
#include "server/front/control.h"

#include <openssl/crypto.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/ops/cleanup.h"
#include "proto/wire/check.h"
#include "proto/wire/tensord.pb-c.h"
#include "server/front/control_impl.h"
#include "server/front/front.h"
#include "server/front/status.h"
#include "server/process/log.h"
#include "server/process/packet.h"
#include "server/users/role.h"

enum { CONTROL_CLIENT_MAX = 128 /* bytes of Hello's client */ };

/* ---- Hello ---- */

/* An allocator whose data is a bool that becomes true when there is no memory: otherwise a malformed message and a
 * message without memory look the same. */
static void *control_allocate(void *starved, size_t bytes) {
    void *memory = malloc(bytes);
    if (!memory)
        *(bool *)starved = true;
    return memory;
}

static void control_free(void *starved, void *memory) {
    (void)starved;
    free(memory);
}

int control_reply(struct control *control, enum frame_type type, uint64_t sequence, const ProtobufCMessage *message,
                  struct fault *fault) {
    int error = packet_append(&control->out, &control->out_size, type, sequence, message);
    return error ? fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a reply") : STATUS_OK;
}

static int control_check_hello(const struct control *control, const Tensord__Hello *hello, struct fault *fault) {
    if (control->welcomed)
        return fault_set(fault, STATUS_PROTOCOL, "a second Hello");
    if (hello->version_min > PROTOCOL_VERSION_MAX || hello->version_max < PROTOCOL_VERSION_MIN ||
        hello->version_min > hello->version_max)
        return fault_set(fault, STATUS_VERSION, "the client speaks versions %u to %u, the daemon %d to %d",
                         hello->version_min, hello->version_max, PROTOCOL_VERSION_MIN, PROTOCOL_VERSION_MAX);
    if (strlen(hello->client) > CONTROL_CLIENT_MAX)
        return fault_set(fault, STATUS_PROTOCOL, "the client's name has %zu bytes, the limit is %d",
                         strlen(hello->client), CONTROL_CLIENT_MAX);
    return STATUS_OK;
}

/* From now on the connection belongs to this principal, and counts for it. */
static int control_identify(struct control *control, const struct principal *principal, struct fault *fault) {
    struct front *front = control->front;
    int error = control_find_place(control, principal, fault);
    if (error)
        return error;
    error = roster_move(&front->roster, &control->entry, principal->name, &principal->limits, fault);
    if (error) {
        front->refusals[REFUSAL_PRINCIPAL_CONNECTIONS] += error == STATUS_LIMIT;
        return error;
    }
    control->peer.principal = *principal;
    control->login = CONTROL_LOGGED_IN;
    return STATUS_OK;
}

/* The login has ended; if it succeeded Hello is handled again. */
static void control_logged_in(void *owner, uint64_t number, int status, const struct principal *principal,
                              const struct fault *fault) {
    struct control *control = owner;
    struct fault why = {0};
    (void)number;
    if (status) {
        control_refuse(control, fault);
        return;
    }
    if (control_identify(control, principal, &why)) {
        control_refuse(control, &why);
        return;
    }
    control_go_on(control, frame_reader_resume(&control->reader, &control_handler, control, &why), &why);
}

/* Logs the client in with the token in Hello. STATUS_AGAIN: control_logged_in() will be called. */
static int control_login(struct control *control, const char *token, struct fault *fault) {
    struct login_request request = {
        .peer = &control->peer, .token = token, .done = control_logged_in, .owner = control};
    struct principal principal;
    if (control->login != CONTROL_STRANGER)
        return control->login == CONTROL_LOGGING_IN ? STATUS_AGAIN : STATUS_OK;
    int error = login_check(&control->front->login, &request, &principal, fault);
    if (error == STATUS_AGAIN)
        control->login = CONTROL_LOGGING_IN;
    if (error)
        return error;
    return control_identify(control, &principal, fault);
}

static int control_welcome(struct control *control, const struct frame_header *header, uint32_t version_max,
                           struct fault *fault) {
    Tensord__Welcome welcome = TENSORD__WELCOME__INIT;
    welcome.version = version_max < PROTOCOL_VERSION_MAX ? version_max : PROTOCOL_VERSION_MAX;
    welcome.server = "tensord " TENSORD_VERSION;
    control->welcomed = true;
    control_count_stranger(control, false);
    lobby_leave(&control->front->roster.lobby, &control->waiting);
    frame_reader_limits(&control->reader, CONTROL_MESSAGE_MAX, 0);
    uv_timer_stop(&control->timer);
    return control_reply(control, FRAME_WELCOME, header->sequence, &welcome.base, fault);
}

static int control_hello(struct control *control, const struct frame_header *header, const uint8_t *bytes,
                         struct fault *fault) {
    bool starved = false;
    ProtobufCAllocator allocator = {control_allocate, control_free, &starved};
    Tensord__Hello *hello = tensord__hello__unpack(&allocator, header->message_bytes, bytes);
    if (!hello && starved)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory to read Hello");
    if (!hello)
        return fault_set(fault, STATUS_PROTOCOL, "malformed Hello of %u bytes", header->message_bytes);
    uint32_t version_max = hello->version_max;
    int error = control_check_hello(control, hello, fault);
    if (!error &&
        message_fields_look(hello->base.descriptor, bytes, header->message_bytes, SIZE_MAX) == MESSAGE_FIELDS_NUL)
        error = fault_set(fault, STATUS_PROTOCOL, "HELLO: a text with a NUL byte");
    if (!error)
        error = control_login(control, hello->token, fault);
    OPENSSL_cleanse(hello->token, strlen(hello->token));
    tensord__hello__free_unpacked(hello, &allocator);
    if (!error)
        error =
            role_check(ROLE_ON_CONTROL, FRAME_HELLO, control->peer.principal.role, control->peer.principal.name, fault);
    return error ? error : control_welcome(control, header, version_max, fault);
}

/* ---- the list of operations ---- */

/* The message and all that it points to. An operation has an entry for each of n_slots devices in `support`. */
struct operations_message {
    Tensord__OperationList list;
    char *dtypes[DTYPE_COUNT];
    Tensord__OperationDevice *devices, **device_pointers;
    Tensord__Operation *operations, **operation_pointers;
    Tensord__OperationSupport *support, **support_pointers;
    uint32_t *numbers; /* dtypes: those of each operation, and those that each device supports of it */
    size_t n_numbers;
};

/* Masks of dtypes. They never change, and are computed when they are first needed. */
struct operations_masks {
    uint32_t presented, taken;
};

static struct operations_masks operations_masks(unsigned opcode) {
    static struct operations_masks masks[OP_CODE_MAX];
    static bool known;
    for (unsigned i = 0; !known && i < OP_CODE_MAX; i++)
        masks[i] = (struct operations_masks){op_presented(i), op_taken(i)};
    known = true;
    return masks[opcode];
}

/* Writes a mask as a list. */
static size_t operations_dtypes(struct operations_message *message, uint32_t mask, uint32_t **numbers) {
    size_t n = 0;
    *numbers = message->numbers + message->n_numbers;
    for (uint32_t dtype = DTYPE_INVALID + 1; dtype < DTYPE_COUNT; dtype++)
        if (mask >> dtype & 1)
            (*numbers)[n++] = dtype;
    message->n_numbers += n;
    return n;
}

static void operations_fill_devices(struct operations_message *message, const struct supervisor *supervisor) {
    for (unsigned i = 0; i < supervisor->n_slots; i++) {
        const struct worker_slot *slot = &supervisor->slots[i];
        Tensord__OperationDevice *device = &message->devices[i];
        tensord__operation_device__init(device);
        device->name = (char *)slot->device.name;
        device->known = slot->operations_known;
        if (!device->known)
            device->reason = slot->last_fault[0] ? (char *)slot->last_fault : "its worker is not ready yet";
        message->device_pointers[i] = device;
    }
    message->list.n_devices = supervisor->n_slots;
    message->list.devices = message->device_pointers;
}

static void operations_fill(struct operations_message *message, const struct supervisor *supervisor, unsigned opcode) {
    size_t row = message->list.n_operations++, n_slots = supervisor->n_slots;
    Tensord__Operation *operation = &message->operations[row];
    struct operations_masks masks = operations_masks(opcode);
    tensord__operation__init(operation);
    operation->opcode = opcode;
    operation->name = (char *)op_info(opcode)->name;
    operation->n_dtypes = operations_dtypes(message, masks.presented, &operation->dtypes);
    operation->n_taken = operations_dtypes(message, masks.taken, &operation->taken);
    operation->n_support = n_slots;
    operation->support = &message->support_pointers[row * n_slots];
    for (size_t i = 0; i < n_slots; i++) {
        const struct stats_operation *of = &supervisor->slots[i].operations->rows[opcode];
        Tensord__OperationSupport *support = &message->support[row * n_slots + i];
        tensord__operation_support__init(support);
        support->n_dtypes = operations_dtypes(message, of->supported & masks.presented, &support->dtypes);
        if (of->reason[0])
            support->reason = (char *)of->reason;
        operation->support[i] = support;
    }
    message->operation_pointers[row] = operation;
}

static bool operations_allocate(struct operations_message *message, size_t n, size_t n_slots) {
    message->devices = calloc(n_slots, sizeof *message->devices);
    message->device_pointers = calloc(n_slots, sizeof(Tensord__OperationDevice *));
    message->operations = calloc(n, sizeof *message->operations);
    message->operation_pointers = calloc(n, sizeof(Tensord__Operation *));
    message->support = calloc(n * n_slots, sizeof *message->support);
    message->support_pointers = calloc(n * n_slots, sizeof(Tensord__OperationSupport *));
    message->numbers = calloc(n * (n_slots + 2) * DTYPE_COUNT, sizeof *message->numbers);
    return message->devices && message->device_pointers && message->operations && message->operation_pointers &&
           message->support && message->support_pointers && message->numbers;
}

static void operations_free(struct operations_message *message) {
    free(message->devices);
    free(message->device_pointers);
    free(message->operations);
    free(message->operation_pointers);
    free(message->support);
    free(message->support_pointers);
    free(message->numbers);
}
CLEANUP_FINISH(struct operations_message, operations_free)

/* Whether the table of kernels of a device says if it supports the operation. What a client brings is not in
 * the table. */
static bool operations_listed(unsigned opcode) {
    const struct op_info *info = op_info(opcode);
    return info && !op_is_clients(info);
}

static int control_list_operations(struct control *control, const struct frame_header *header, const uint8_t *bytes,
                                   struct fault *fault) {
    const struct supervisor *supervisor = &control->front->supervisor;
    CLEANUP(operations_free) struct operations_message message = {.list = TENSORD__OPERATION_LIST__INIT};
    size_t n = 0;
    (void)bytes;
    for (unsigned opcode = 0; opcode < OP_CODE_MAX; opcode++)
        n += operations_listed(opcode);
    if (!operations_allocate(&message, n, supervisor->n_slots))
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a list of operations");
    operations_fill_devices(&message, supervisor);
    message.list.operations = message.operation_pointers;
    for (unsigned opcode = 0; opcode < OP_CODE_MAX; opcode++)
        if (operations_listed(opcode))
            operations_fill(&message, supervisor, opcode);
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
        message.dtypes[dtype] = (char *)dtype_name((enum dtype)dtype);
    message.list.n_dtypes = DTYPE_COUNT;
    message.list.dtypes = message.dtypes;
    return control_reply(control, FRAME_OPERATION_LIST, header->sequence, &message.list.base, fault);
}

/* ---- other requests ---- */

static int control_ping(struct control *control, const struct frame_header *header, const uint8_t *bytes,
                        struct fault *fault) {
    Tensord__Pong pong = TENSORD__PONG__INIT;
    (void)bytes;
    return control_reply(control, FRAME_PONG, header->sequence, &pong.base, fault);
}

static int control_list_devices(struct control *control, const struct frame_header *header, const uint8_t *bytes,
                                struct fault *fault) {
    (void)bytes;
    if (status_append_devices(control->front, header->sequence, &control->out, &control->out_size))
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a list of devices");
    return STATUS_OK;
}

static int control_status(struct control *control, const struct frame_header *header, const uint8_t *bytes,
                          struct fault *fault) {
    bool starved = false;
    ProtobufCAllocator allocator = {control_allocate, control_free, &starved};
    Tensord__GetStatus *request = tensord__get_status__unpack(&allocator, header->message_bytes, bytes);
    if (!request && starved)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory to read GetStatus");
    if (!request)
        return fault_set(fault, STATUS_PROTOCOL, "malformed GetStatus of %u bytes", header->message_bytes);
    int error = status_append(control->front, header->sequence, &control->peer.principal, request->principal,
                              &control->out, &control->out_size);
    tensord__get_status__free_unpacked(request, &allocator);
    return error ? fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a status") : STATUS_OK;
}

static int control_config(struct control *control, const struct frame_header *header, const uint8_t *bytes,
                          struct fault *fault) {
    (void)bytes;
    if (status_append_config(control->front->config, header->sequence, &control->out, &control->out_size))
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for the configuration");
    return STATUS_OK;
}

/* Replies with Done, with an error if `said` has one. */
static int control_done(struct control *control, uint64_t sequence, const struct fault *said, struct fault *fault) {
    Tensord__Done done = TENSORD__DONE__INIT;
    Tensord__Error error = TENSORD__ERROR__INIT;
    error.code = said->code;
    error.message = (char *)(uintptr_t)said->message;
    if (said->code)
        done.error = &error;
    return control_reply(control, FRAME_DONE, sequence, &done.base, fault);
}

/* Replies with Done and the denial, whatever the reply of the request would be: a denied request does not end the
 * connection. */
static int control_deny(struct control *control, const struct frame_header *header, const struct fault *denial,
                        struct fault *fault) {
    log_event_from(LOG_LEVEL_INFO, PEER_SOURCE(&control->peer), "request_denied", "peer", control->peer.address,
                   "principal", control->peer.principal.name, "cause", denial->message, NULL);
    return control_done(control, header->sequence, denial, fault);
}

static int control_drain(struct control *control, const struct frame_header *header, const uint8_t *bytes,
                         struct fault *fault) {
    char why[128];
    (void)bytes, (void)fault;
    control->draining = true;
    control->drain_sequence = header->sequence;
    log_text(why, sizeof why, "asked by %s", control->peer.principal.name);
    front_drain(control->front, why);
    return STATUS_OK;
}

static void control_killed(struct kill *kill, const struct fault *said) {
    struct control *control = (struct control *)((char *)kill - offsetof(struct control, kill));
    char session[24];
    struct fault fault;
    log_event(LOG_LEVEL_INFO, "session_kill", "session",
              log_text(session, sizeof session, "%llu", (unsigned long long)kill->session), "principal",
              control->peer.principal.name, "result", status_name((int)said->code), NULL);
    control->killing = false;
    int error = control_done(control, control->kill_sequence, said, &fault);
    if (!control->kill_starting)
        control_go_on(control, error, &fault);
}

static int control_kill(struct control *control, const struct frame_header *header, const uint8_t *bytes,
                        struct fault *fault) {
    bool starved = false;
    ProtobufCAllocator allocator = {control_allocate, control_free, &starved};
    Tensord__KillSession *request = tensord__kill_session__unpack(&allocator, header->message_bytes, bytes);
    if (!request && starved)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory to read KillSession");
    if (!request)
        return fault_set(fault, STATUS_PROTOCOL, "malformed KillSession of %u bytes", header->message_bytes);
    if (strlen(request->reason) >= KILL_REASON_MAX) {
        tensord__kill_session__free_unpacked(request, &allocator);
        return fault_set(fault, STATUS_PROTOCOL, "the reason has more than %d bytes", KILL_REASON_MAX - 1);
    }
    control->killing = control->kill_starting = true;
    control->kill_sequence = header->sequence;
    control->kill.done = control_killed;
    kill_start(&control->front->supervisor, &control->kill, request->session, control->peer.principal.name,
               request->reason);
    control->kill_starting = false;
    tensord__kill_session__free_unpacked(request, &allocator);
    return STATUS_OK;
}

static const struct control_request {
    enum frame_type type;
    int (*handle)(struct control *control, const struct frame_header *header, const uint8_t *bytes,
                  struct fault *fault);
} control_requests[] = {
    {FRAME_HELLO, control_hello},
    {FRAME_PING, control_ping},
    {FRAME_LIST_DEVICES, control_list_devices},
    {FRAME_GET_STATUS, control_status},
    {FRAME_DRAIN, control_drain},
    {FRAME_LIST_OPERATIONS, control_list_operations},
    {FRAME_KILL_SESSION, control_kill},
    {FRAME_GET_CONFIG, control_config},
};

static int control_on_message(void *owner, const struct frame_header *header, const uint8_t *message, uint8_t **sink,
                              struct fault *fault) {
    struct control *control = owner;
    const struct control_request *request = control_requests;
    const struct control_request *end = request + sizeof control_requests / sizeof *control_requests;
    struct fault denial;
    (void)sink;
    while (request < end && request->type != header->type)
        request++;
    if (request == end)
        return fault_set(fault, STATUS_PROTOCOL, "%s does not belong on a control connection",
                         frame_type_name(header->type));
    if (header->type != FRAME_HELLO && !control->welcomed)
        return fault_set(fault, STATUS_PROTOCOL, "%s came before Hello", frame_type_name(header->type));
    frame_reader_pause(&control->reader);
    control->used_ns = uv_hrtime();
    if (header->type != FRAME_HELLO &&
        role_check(ROLE_ON_CONTROL, header->type, control->peer.principal.role, control->peer.principal.name, &denial))
        return control_deny(control, header, &denial, fault);
    return request->handle(control, header, message, fault);
}

static int control_on_payload(void *owner, const struct frame_header *header, struct fault *fault) {
    (void)owner;
    (void)header;
    (void)fault;
    return STATUS_OK;
}

const struct frame_handler control_handler = {
    .on_message = control_on_message,
    .on_payload = control_on_payload,
};
