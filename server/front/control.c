#include "server/front/control.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/wire/message_fields.h"
#include "proto/wire/tensord.pb-c.h"
#include "server/front/front.h"
#include "server/front/status.h"
#include "server/process/log.h"
#include "server/process/packet.h"
#include "server/users/role.h"

enum {
    CONTROL_CONNECTIONS_MAX = 256,
    CONTROL_STRANGERS_MAX = 128,                         /* so that others find a place */
    CONTROL_ADMINS_KEPT = 32,                            /* of all of them: for admins alone */
    CONTROL_PRINCIPAL_MAX = CONTROL_CONNECTIONS_MAX / 4, /* of one principal, if it is no admin */
    CONTROL_MESSAGE_MAX = 16 << 10,
    CONTROL_CLIENT_MAX = 128, /* bytes of Hello's client */
    CONTROL_IDLE_S = 60,
    CONTROL_SEND_TIMEOUT_MS = 10000,
    CONTROL_TURN_REQUESTS = 8, /* handled in one turn, before others have theirs */
};

static const struct frame_handler control_handler;

/* ---- ends ---- */

static void control_closed(uv_handle_t *handle) {
    struct control *control = handle->data;
    if (--control->handles)
        return;
    frame_reader_finish(&control->reader);
    free(control->out);
    free(control);
}

static void control_count_stranger(struct control *control, bool stranger) {
    struct control_list *list = &control->front->controls;
    list->strangers = list->strangers + stranger - control->stranger;
    control->stranger = stranger;
}

/* Gives the socket away; the connection is dead afterwards. Where a thread takes a step of the handshake, the socket is
 * left to that step, and there is none to give. */
static struct transport control_release(struct control *control) {
    struct transport transport = control->handshake ? (struct transport){.fd = -1} : control->transport;
    LIST_REMOVE(control, link);
    lobby_leave(&control->front->roster.lobby, &control->waiting);
    control->front->controls.count--;
    control->front->controls.operators -= control->reserved;
    control_count_stranger(control, false);
    if (control->killing)
        kill_forget(&control->kill);
    if (control->login == CONTROL_LOGGING_IN)
        login_forget(&control->front->login, control, 0);
    roster_leave(control->entry);
    control->entry = NULL;
    uv_close((uv_handle_t *)&control->poll, control_closed);
    uv_close((uv_handle_t *)&control->timer, control_closed);
    if (control->handshake)
        handshake_leave(&control->front->handshakes, control->handshake);
    control->handshake = NULL;
    return transport;
}

static void control_end(struct control *control) {
    struct transport transport = control_release(control);
    if (transport.fd >= 0)
        transport_end(&transport);
    transport_finish(&transport);
}

static void control_refuse(struct control *control, const struct fault *fault) {
    struct front *front = control->front;
    /* Inside a half-sent reply an Error frame would only be garbage. */
    bool clean =
        !control->handshake && control->out_sent == control->out_size && !transport_unsent(&control->transport);
    if (!control->welcomed)
        front->rejections[fault->code]++;
    /* Failed logins are logged as such, and not as often as strangers like. */
    bool told = fault->code == STATUS_DENIED && !control->welcomed;
    log_event_from(told ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO, PEER_SOURCE(&control->peer), "control_closed", "peer",
                   control->peer.address, "principal", control->peer.principal.name, "code",
                   status_name((int)fault->code), "cause", fault->message, NULL);
    struct transport transport = control_release(control);
    if (transport.fd >= 0)
        farewell_say_over(&front->farewells, &transport, clean ? fault : NULL);
}

/* ---- bytes in and out ---- */

static void control_polled(uv_poll_t *poll, int status, int events);

static void control_timed_out(uv_timer_t *timer) {
    struct control *control = timer->data;
    struct fault fault;
    if (control->welcomed)
        fault_set(&fault, STATUS_TIMED_OUT, "a reply was not read within %d ms", CONTROL_SEND_TIMEOUT_MS);
    else if (control->login == CONTROL_LOGGING_IN)
        fault_set(&fault, STATUS_TIMED_OUT, "the login took longer than %llu ms",
                  (unsigned long long)control->front->config->hello_timeout);
    else
        fault_set(&fault, STATUS_TIMED_OUT, "no Hello came within %llu ms",
                  (unsigned long long)control->front->config->hello_timeout);
    control_refuse(control, &fault);
}

/* 1: all has left. 0: the socket is full. -1: the peer is gone. */
static int control_flush(struct control *control) {
    while (control->out_sent < control->out_size) {
        struct iovec part = {control->out + control->out_sent, control->out_size - control->out_sent};
        ssize_t sent = transport_write(&control->transport, &part, 1);
        if (sent < 0)
            return errno == EAGAIN ? 0 : -1;
        control->out_sent += (size_t)sent;
    }
    int error = transport_flush(&control->transport);
    if (error)
        return error == EAGAIN ? 0 : -1;
    free(control->out);
    control->out = NULL;
    control->out_size = control->out_sent = 0;
    return 1;
}

/* Waits until the socket takes more bytes; unread requests stay in the socket meanwhile. If the peer has gone the
 * socket becomes writable and the next attempt fails; a peer that has only shut down its sending side still gets its
 * replies. */
static void control_wait_for_room(struct control *control) {
    if (!uv_is_active((uv_handle_t *)&control->timer))
        uv_timer_start(&control->timer, control_timed_out, CONTROL_SEND_TIMEOUT_MS, 0);
    control->reading = false;
    uv_poll_start(&control->poll, UV_WRITABLE, control_polled);
}

static void control_wait_for_requests(struct control *control) {
    if (control->welcomed)
        uv_timer_stop(&control->timer);
    control->reading = true;
    /* What the transport has read ahead, and what it still has to send, show with a socket that has room. */
    bool ahead = transport_more(&control->transport) || transport_unsent(&control->transport);
    uv_poll_start(&control->poll, UV_READABLE | (ahead ? UV_WRITABLE : 0), control_polled);
}

/* For a bounded time: then there is a reply to send, and a peer that has gone is noticed. */
static void control_wait_for_worker(struct control *control) {
    control->reading = false;
    uv_timer_stop(&control->timer);
    uv_poll_stop(&control->poll);
}

/* The socket has room, so this is called for in the loop's next turn. */
static void control_wait_for_turn(struct control *control) {
    control->reading = false;
    uv_poll_start(&control->poll, UV_WRITABLE, control_polled);
}

/* Goes on after a step of the reader: sends its replies and lets it handle what is buffered, until one of the two has
 * to wait, or it has had its share. The connection may be dead afterwards. */
static void control_go_on(struct control *control, int error, struct fault *fault) {
    for (unsigned handled = 1; !error; handled++) {
        int flushed = control_flush(control);
        if (flushed < 0) {
            control_end(control);
            return;
        }
        if (!flushed) {
            control_wait_for_room(control);
            return;
        }
        if (control->killing) {
            control_wait_for_worker(control);
            return;
        }
        if (control->login == CONTROL_LOGGING_IN) {
            uv_poll_start(&control->poll, UV_DISCONNECT, control_polled);
            return;
        }
        if (!control->reader.paused) {
            control_wait_for_requests(control);
            return;
        }
        if (handled == CONTROL_TURN_REQUESTS) {
            control_wait_for_turn(control);
            return;
        }
        error = frame_reader_resume(&control->reader, &control_handler, control, fault);
    }
    control_refuse(control, fault);
}

/* TLS has failed, by the client's fault or by its alert. The daemon's own alert may be on its way. */
static void control_fail(struct control *control, int error) {
    struct front *front = control->front;
    struct fault fault;
    log_event_from(LOG_LEVEL_INFO, PEER_SOURCE(&control->peer),
                   control->welcomed ? "control_closed" : "connection_refused", "peer", control->peer.address,
                   "principal", control->peer.principal.name, "cause",
                   transport_reason(&control->transport, error, &fault), NULL);
    struct transport transport = control_release(control);
    farewell_say_over(&front->farewells, &transport, NULL);
}

static void control_read(struct control *control) {
    struct fault fault;
    uint8_t *place;
    size_t room;
    frame_reader_want(&control->reader, &place, &room);
    ssize_t got = transport_read(&control->transport, place, room);
    if (got < 0 && errno == EAGAIN) {
        control_wait_for_requests(control);
        return;
    }
    if (got < 0 && errno == EPROTO) {
        control_fail(control, errno);
        return;
    }
    if (got == 0 && control->draining) {
        uv_poll_stop(&control->poll); /* it says nothing more, and waits to be told of the end */
        return;
    }
    if (got <= 0) {
        control_end(control);
        return;
    }
    int error = frame_reader_advance(&control->reader, (size_t)got, &control_handler, control, &fault);
    control_go_on(control, error, &fault);
}

/* The handshake may have brought a certificate: finds its principal. */
static void control_meet(struct control *control) {
    const char *name = transport_peer_name(&control->transport);
    if (!*name)
        return;
    snprintf(control->peer.certificate, sizeof control->peer.certificate, "%s", name);
    login_certify(&control->front->login, &control->peer);
}

/* The handshake has gone as far as the received bytes allow. */
static void control_opened(void *owner, int error) {
    struct control *control = owner;
    control->handshake = NULL;
    if (error == EAGAIN) {
        control_wait_for_requests(control);
    } else if (error == EPROTO) {
        control_fail(control, error);
    } else if (error) {
        control_end(control);
    } else {
        control_meet(control);
        control_read(control); /* Hello may have come along, and will not show again */
    }
}

/* Has the next step of the handshake taken by a thread. Meanwhile the poll handle reports the end of both sides
 * alone. */
static void control_open(struct control *control) {
    uv_poll_start(&control->poll, UV_PRIORITIZED, control_polled);
    control->handshake = handshake_begin(&control->front->handshakes, &control->transport, control_opened, control);
    if (!control->handshake) /* without memory for that, here */
        control_opened(control, transport_handshake(&control->transport));
}

static void control_polled(uv_poll_t *poll, int status, int events) {
    struct control *control = poll->data;
    struct fault fault;
    if (status == 0 && !control->handshake && transport_opening(&control->transport) && !(events & UV_PRIORITIZED))
        control_open(control);
    else if (status == 0 && control->login == CONTROL_LOGGING_IN && !(events & UV_PRIORITIZED))
        /* It has said all it wants, which would be told again and again; the end of both sides is reported as what is
         * asked for. */
        uv_poll_start(poll, UV_PRIORITIZED, control_polled);
    else if (status == 0 && (events & UV_READABLE || (events & UV_WRITABLE && control->reading)))
        control_read(control);
    else if (status == 0 && events & UV_WRITABLE)
        control_go_on(control, STATUS_OK, &fault);
    else
        control_end(control);
}

/* ---- places ---- */

static bool control_is_idle(const struct control *control) {
    return control->welcomed && !control->draining && !control->killing && control->out_sent == control->out_size;
}

/* The connection whose last request is longest ago: of this principal (NULL: of all), and of admins only if
 * `admins`. */
static struct control *control_find_idle(struct front *front, const char *principal, bool admins) {
    struct control *control, *found = NULL;
    LIST_FOREACH(control, &front->controls.head, link)
    if (control_is_idle(control) && (!principal || !strcmp(principal, control->peer.principal.name)) &&
        (admins || control->peer.principal.role != ROLE_ADMIN) && (!found || control->used_ns < found->used_ns))
        found = control;
    return found;
}

static unsigned control_count(const struct front *front, const struct control *but, const char *principal) {
    const struct control *control;
    unsigned count = 0;
    LIST_FOREACH(control, &front->controls.head, link)
    count += control != but && control->welcomed && !strcmp(principal, control->peer.principal.name);
    return count;
}

static int control_find_place(struct control *control, const struct principal *principal, struct fault *fault) {
    struct front *front = control->front;
    bool admin = principal->role == ROLE_ADMIN;
    unsigned most = CONTROL_CONNECTIONS_MAX - (admin ? 0 : CONTROL_ADMINS_KEPT);
    struct control *idle = NULL;
    if (control->reserved && !admin && !places_open(front, principal->role))
        return fault_set(fault, STATUS_LIMIT,
                         "all of the daemon's %llu places for connections are taken (max-connections)",
                         (unsigned long long)front->config->max_connections);
    if (!admin && control_count(front, control, principal->name) >= CONTROL_PRINCIPAL_MAX) {
        idle = control_find_idle(front, principal->name, false);
        if (!idle)
            return fault_set(fault, STATUS_LIMIT, "%s has %d control connections, and may have no more",
                             principal->name, CONTROL_PRINCIPAL_MAX);
    } else if (front->controls.count > most) {
        idle = control_find_idle(front, NULL, false);
        if (!idle && admin)
            idle = control_find_idle(front, NULL, true);
        if (!idle)
            return fault_set(fault, STATUS_LIMIT, "the daemon has %u control connections", front->controls.count);
    }
    if (idle)
        control_end(idle);
    return STATUS_OK;
}

void control_evict(struct lobby_entry *waiting) {
    struct control *control = (struct control *)((char *)waiting - offsetof(struct control, waiting));
    struct fault fault;
    fault_set(&fault, STATUS_LIMIT, "%s", CHANNEL_EVICTED);
    control_refuse(control, &fault);
}

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

static int control_reply(struct control *control, enum frame_type type, uint64_t sequence,
                         const ProtobufCMessage *message, struct fault *fault) {
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

/* ---- requests ---- */

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
    (void)bytes;
    if (status_append(control->front, header->sequence, &control->peer.principal, &control->out, &control->out_size))
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a status");
    return STATUS_OK;
}

static int control_list_operations(struct control *control, const struct frame_header *header, const uint8_t *bytes,
                                   struct fault *fault) {
    (void)bytes;
    if (status_append_operations(control->front, header->sequence, &control->out, &control->out_size))
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a list of operations");
    return STATUS_OK;
}

static int control_config(struct control *control, const struct frame_header *header, const uint8_t *bytes,
                          struct fault *fault) {
    (void)bytes;
    if (status_append_config(control->front->config, header->sequence, &control->out, &control->out_size))
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for the configuration");
    return STATUS_OK;
}

/* Done, with an error where `said` has one. */
static int control_done(struct control *control, uint64_t sequence, const struct fault *said, struct fault *fault) {
    Tensord__Done done = TENSORD__DONE__INIT;
    Tensord__Error error = TENSORD__ERROR__INIT;
    error.code = said->code;
    error.message = (char *)(uintptr_t)said->message;
    if (said->code)
        done.error = &error;
    return control_reply(control, FRAME_DONE, sequence, &done.base, fault);
}

/* Whatever the reply is otherwise: a request that is not allowed does not end the connection. */
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
    kill_start(control->front, &control->kill, request->session, control->peer.principal.name, request->reason);
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

static const struct frame_handler control_handler = {
    .on_message = control_on_message,
    .on_payload = control_on_payload,
};

/* ---- start, drain, end ---- */

static struct control *control_create(struct front *front, int fd, const struct peer *peer, struct roster_entry *entry,
                                      bool reserved, struct fault *fault) {
    struct control *control = calloc(1, sizeof *control);
    fault_set(fault, STATUS_NO_HOST_MEMORY, "the daemon has no memory for another control connection");
    if (!control)
        return NULL;
    if (transport_init(&control->transport, fd, peer->tls ? front->tls.now.context : NULL, fault) ||
        frame_reader_init(&control->reader, FRAME_HEADER_BYTES + CONTROL_MESSAGE_MAX) ||
        uv_poll_init(&front->loop, &control->poll, fd)) {
        frame_reader_finish(&control->reader);
        control->transport.fd = -1; /* the caller's still */
        transport_finish(&control->transport);
        free(control);
        return NULL;
    }
    uv_timer_init(&front->loop, &control->timer);
    control->poll.data = control->timer.data = control;
    control->handles = 2;
    control->front = front;
    control->peer = *peer;
    control->entry = entry;
    control_count_stranger(control, peer->principal.role == ROLE_NONE);
    LIST_INSERT_HEAD(&front->controls.head, control, link);
    front->controls.count++;
    control->reserved = reserved;
    front->controls.operators += reserved;
    control->used_ns = uv_hrtime();
    lobby_enter(&front->roster.lobby, &control->waiting, LOBBY_CONTROL, &peer->source);
    return control;
}

/* Without an Error frame, which the client might take for the reply to its next request. */
void control_tick(struct front *front) {
    struct control *control;
    while ((control = control_find_idle(front, NULL, true)) &&
           uv_hrtime() - control->used_ns > CONTROL_IDLE_S * UINT64_C(1000000000))
        control_end(control);
}

void control_start(struct front *front, int fd, const struct peer *peer, struct roster_entry *entry, bool reserved) {
    struct fault fault;
    struct control *control = control_create(front, fd, peer, entry, reserved, &fault);
    if (!control) {
        roster_leave(entry);
        front->rejections[fault.code]++;
        farewell_say(&front->farewells, fd, &fault);
        return;
    }
    if (front->controls.strangers > CONTROL_STRANGERS_MAX) {
        struct lobby_entry *oldest = lobby_oldest(&front->roster.lobby, NULL, LOBBY_CONTROL);
        if (oldest && oldest != &control->waiting)
            control_evict(oldest);
    }
    uv_timer_start(&control->timer, control_timed_out, front->config->hello_timeout, 0);
    control_wait_for_requests(control);
}

void control_revoke(struct front *front, const struct principal *principal) {
    struct control *next;
    struct fault fault;
    fault_set(&fault, STATUS_DENIED, "%s's token or role was revoked or changed", principal->name);
    for (struct control *control = LIST_FIRST(&front->controls.head); control; control = next) {
        next = LIST_NEXT(control, link);
        if (principal_same_login(&control->peer.principal, principal))
            control_refuse(control, &fault);
    }
}

void control_drained(struct front *front) {
    Tensord__Done done = TENSORD__DONE__INIT;
    struct fault fault;
    struct control *next;
    for (struct control *control = LIST_FIRST(&front->controls.head); control; control = next) {
        next = LIST_NEXT(control, link);
        if (!control->draining)
            continue;
        control->draining = false;
        control_go_on(control, control_reply(control, FRAME_DONE, control->drain_sequence, &done.base, &fault), &fault);
    }
}

bool control_busy(const struct front *front) {
    const struct control *control;
    LIST_FOREACH(control, &front->controls.head, link)
    if (control->out_sent < control->out_size)
        return true;
    return false;
}

void control_list_finish(struct control_list *list) {
    while (!LIST_EMPTY(&list->head))
        control_end(LIST_FIRST(&list->head));
}
