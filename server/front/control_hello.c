/* The beginning of a control connection: Hello, and who says it. */
#include <openssl/crypto.h>
#include <string.h>

#include "proto/wire/message_fields.h"
#include "server/front/control_impl.h"
#include "server/front/front.h"
#include "server/users/role.h"

enum { CONTROL_CLIENT_MAX = 128 /* bytes of Hello's client */ };

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

/* It is this principal's from now on, and counts for it. */
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

/* The other end is who it says; Hello is looked at again. */
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

/* Who it is, by the token in Hello. STATUS_AGAIN: that will be told later. */
static int control_login(struct control *control, const char *token, struct fault *fault) {
    struct login_request request = {
        .peer = &control->peer, .token = token, .done = control_logged_in, .owner = control};
    struct principal principal;
    if (control->login != CONTROL_STRANGER)
        return control->login == CONTROL_LOGGING_IN ? STATUS_AGAIN : STATUS_OK;
    int status = login_check(&control->front->login, &request, &principal, fault);
    if (status == STATUS_AGAIN)
        control->login = CONTROL_LOGGING_IN;
    if (status)
        return status;
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
    return control_answer(control, FRAME_WELCOME, header->sequence, &welcome.base, fault);
}

int control_hello(struct control *control, const struct frame_header *header, const uint8_t *bytes,
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
