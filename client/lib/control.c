#include "client/lib/control.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/lib/frame.h"
#include "client/lib/resume.h"

struct control {
    struct transport transport;
    unsigned timeout_ms;
    uint64_t sequence;
    char *server;
    struct tls_context *tls;
};

static const struct {
    unsigned type;
    const ProtobufCMessageDescriptor *descriptor;
} replies[] = {
    {FRAME_WELCOME, &tensord__welcome__descriptor},
    {FRAME_ERROR, &tensord__error__descriptor},
    {FRAME_PONG, &tensord__pong__descriptor},
    {FRAME_DONE, &tensord__done__descriptor},
    {FRAME_DEVICE_LIST, &tensord__device_list__descriptor},
    {FRAME_STATUS, &tensord__status__descriptor},
    {FRAME_OPERATION_LIST, &tensord__operation_list__descriptor},
    {FRAME_CONFIG, &tensord__config__descriptor},
};

int control_wait(int fd, short events, int64_t deadline_ms, struct fault *fault) {
    for (;;) {
        int64_t left = deadline_ms - control_now_ms();
        struct pollfd entry = {.fd = fd, .events = events};
        int n = left > 0 ? poll(&entry, 1, (int)left) : 0;
        if (n > 0)
            return 0;
        if (n == 0)
            return fault_set(fault, STATUS_TIMED_OUT, "the daemon did not answer in time");
        if (errno != EINTR)
            return fault_set(fault, STATUS_CONNECTION, "poll: %s", strerrordesc_np(errno));
    }
}

/* The fault of a call that failed with this errno; the connection has ended. */
static int transport_failed(struct transport *transport, const char *what, int error, struct fault *fault) {
    struct fault cause = {0};
    const char *reason = transport_reason(transport, error, &cause);
    return fault_set(fault, cause.code ? cause.code : STATUS_CONNECTION, "%s: %s", what, reason);
}

static int send_all(struct transport *transport, const uint8_t *bytes, size_t n, int64_t deadline_ms,
                    struct fault *fault) {
    for (;;) {
        struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = n};
        ssize_t sent = n ? transport_write(transport, &part, 1) : 0;
        int error = sent < 0 ? errno : n ? 0 : transport_flush(transport);
        if (sent > 0) {
            bytes += sent;
            n -= (size_t)sent;
        } else if (error == EPIPE || error == ECONNRESET) {
            return 0; /* the daemon may have said why: receiving will find its Error, or the end */
        } else if (error && error != EAGAIN) {
            return transport_failed(transport, "cannot send to the daemon", error, fault);
        } else if (!error && !n) {
            return 0;
        } else {
            int code = control_wait(transport->fd, POLLOUT, deadline_ms, fault);
            if (code)
                return code;
        }
    }
    return 0;
}

static int receive_all(struct transport *transport, uint8_t *bytes, size_t n, int64_t deadline_ms,
                       struct fault *fault) {
    while (n) {
        ssize_t got = transport_read(transport, bytes, n);
        if (got > 0) {
            bytes += got;
            n -= (size_t)got;
        } else if (got == 0 || errno == ECONNRESET) {
            return fault_set(fault, STATUS_CONNECTION, "the daemon closed the connection");
        } else if (errno != EAGAIN) {
            return transport_failed(transport, "cannot receive from the daemon", errno, fault);
        } else {
            int code = control_wait(transport->fd, POLLIN, deadline_ms, fault);
            if (code)
                return code;
        }
    }
    return 0;
}

static int send_frame(struct transport *transport, unsigned type, const ProtobufCMessage *message, uint64_t sequence,
                      int64_t deadline_ms, struct fault *fault) {
    size_t bytes = protobuf_c_message_get_packed_size(message);
    if (bytes > FRAME_MESSAGE_MAX)
        return fault_set(fault, STATUS_LIMIT, "a message of %zu bytes, at most %d are possible", bytes,
                         FRAME_MESSAGE_MAX);
    uint8_t *frame = malloc(FRAME_HEADER_BYTES + bytes);
    if (!frame)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a message of %zu bytes", bytes);
    struct frame_header header = {.type = (uint16_t)type, .message_bytes = (uint32_t)bytes, .sequence = sequence};
    frame_header_encode(&header, frame);
    protobuf_c_message_pack(message, frame + FRAME_HEADER_BYTES);
    trace_frame("->", &header, frame + FRAME_HEADER_BYTES);
    int code = send_all(transport, frame, FRAME_HEADER_BYTES + bytes, deadline_ms, fault);
    explicit_bzero(frame, FRAME_HEADER_BYTES + bytes); /* a Hello has a token */
    free(frame);
    return code;
}

static int unpack_reply(const struct frame_header *header, const uint8_t *message, ProtobufCMessage **reply,
                        struct fault *fault) {
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) {
        if (replies[i].type != header->type)
            continue;
        return frame_unpack(replies[i].descriptor, header, message, reply, fault);
    }
    return fault_set(fault, STATUS_PROTOCOL, "unexpected %s", frame_type_name(header->type));
}

static int receive_frame(struct transport *transport, int64_t deadline_ms, struct frame_header *header,
                         ProtobufCMessage **reply, struct fault *fault) {
    uint8_t head[FRAME_HEADER_BYTES];
    int code = receive_all(transport, head, sizeof head, deadline_ms, fault);
    if (!code)
        code = frame_header_decode(head, FRAME_MESSAGE_MAX, 0, header, fault);
    if (code)
        return code;
    uint8_t *message = malloc(header->message_bytes + 1);
    if (!message)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a message of %u bytes", header->message_bytes);
    code = receive_all(transport, message, header->message_bytes, deadline_ms, fault);
    if (!code) {
        trace_frame("<-", header, message);
        code = unpack_reply(header, message, reply, fault);
    }
    free(message);
    return code;
}

int control_fault(const Tensord__Error *error, struct fault *fault) {
    enum status code = error->code > 0 && error->code < STATUS_COUNT ? (enum status)error->code : STATUS_INTERNAL;
    return fault_set(fault, code, "%s", error->message && *error->message ? error->message : status_text((int)code));
}

int control_refusal(int fd, int64_t deadline_ms, struct fault *fault) {
    struct transport transport = {.fd = fd};
    struct frame_header header;
    ProtobufCMessage *reply;
    int code = receive_frame(&transport, deadline_ms, &header, &reply, fault);
    if (code)
        return code;
    code = header.type == FRAME_ERROR ? control_fault((const Tensord__Error *)reply, fault)
                                      : fault_set(fault, STATUS_PROTOCOL, "%s in the clear, where TLS was asked for",
                                                  frame_type_name(header.type));
    protobuf_c_message_free_unpacked(reply, NULL);
    return code;
}

int control_exchange(struct transport *transport, unsigned type, const ProtobufCMessage *request, uint64_t sequence,
                     int64_t deadline_ms, unsigned reply_type, ProtobufCMessage **out, struct fault *fault) {
    struct frame_header header;
    ProtobufCMessage *reply = NULL;
    int code = send_frame(transport, type, request, sequence, deadline_ms, fault);
    if (!code)
        code = receive_frame(transport, deadline_ms, &header, &reply, fault);
    if (code)
        return code;
    const Tensord__Error *error = header.type == FRAME_DONE ? ((const Tensord__Done *)reply)->error : NULL;
    if (header.type == FRAME_ERROR)
        code = control_fault((const Tensord__Error *)reply, fault);
    else if (error && header.sequence == sequence)
        code = control_fault(error, fault); /* Done can replace any reply: the role does not allow the request */
    else if (header.type != reply_type || header.sequence != sequence)
        code =
            fault_set(fault, STATUS_PROTOCOL, "%s %llu instead of %s %llu", frame_type_name(header.type),
                      (unsigned long long)header.sequence, frame_type_name(reply_type), (unsigned long long)sequence);
    if (code) {
        protobuf_c_message_free_unpacked(reply, NULL);
        return code;
    }
    *out = reply;
    return 0;
}

int control_hello(struct transport *transport, const char *client_name, const char *token, bool allow_tf32,
                  const struct resume *resume, int64_t deadline_ms, Tensord__Welcome **welcome, struct fault *fault) {
    char name[129];
    snprintf(name, sizeof name, "%.100s libtensord/" TENSORD_VERSION,
             client_name ? client_name : program_invocation_short_name);
    /* The field is UTF-8, but a program's name may have any bytes. */
    for (char *c = name; *c; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7e)
            *c = '?';
    char host[64] = "";
    if (gethostname(host, sizeof host - 1))
        host[0] = 0;
    Tensord__Hello hello = TENSORD__HELLO__INIT;
    hello.version_min = PROTOCOL_VERSION_MIN;
    hello.version_max = PROTOCOL_VERSION_MAX;
    hello.client = name;
    hello.allow_tf32 = allow_tf32;
    hello.token = (char *)token;
    hello.process = (uint32_t)getpid();
    hello.host = host;
    if (resume)
        resume_hello(resume, &hello);
    ProtobufCMessage *reply;
    int code = control_exchange(transport, FRAME_HELLO, &hello.base, 1, deadline_ms, FRAME_WELCOME, &reply, fault);
    if (code)
        return code;
    *welcome = (Tensord__Welcome *)reply;
    if ((*welcome)->version >= PROTOCOL_VERSION_MIN && (*welcome)->version <= PROTOCOL_VERSION_MAX)
        return 0;
    code = fault_set(fault, STATUS_VERSION, "the daemon speaks protocol version %u, this library %d to %d",
                     (*welcome)->version, PROTOCOL_VERSION_MIN, PROTOCOL_VERSION_MAX);
    tensord__welcome__free_unpacked(*welcome, NULL);
    *welcome = NULL;
    return code;
}

int control_open(const char *url, struct tls_context *tls, unsigned timeout_ms, const char *client_name,
                 const char *token, struct control **out, struct fault *fault) {
    char text[CONTROL_URL_MAX], shown[TOKEN_BYTES_MAX];
    int code = control_url(url, text, fault);
    if (!code)
        code = token_find(token, shown, fault);
    if (code)
        return code;
    struct control *control = calloc(1, sizeof *control);
    if (!control)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a connection");
    control->transport.fd = -1;
    control->tls = tls ? tls_context_hold(tls) : NULL;
    control->timeout_ms = timeout_ms ? timeout_ms : CONTROL_TIMEOUT_MS;
    int64_t deadline_ms = control_now_ms() + control->timeout_ms;
    Tensord__Welcome *welcome = NULL;
    const struct control_dial dial = {
        .url = text, .tls = tls, .target = PREAMBLE_TARGET_CONTROL, .deadline_ms = deadline_ms};
    code = control_dial(&dial, &control->transport, fault);
    if (!code)
        code = control_hello(&control->transport, client_name, shown, false, NULL, deadline_ms, &welcome, fault);
    explicit_bzero(shown, sizeof shown);
    if (code) {
        control_close(control);
        return code;
    }
    control->sequence = 1;
    control->server = strdup(welcome->server);
    tensord__welcome__free_unpacked(welcome, NULL);
    *out = control;
    return 0;
}

void control_close(struct control *control) {
    if (!control)
        return;
    if (control->transport.fd >= 0)
        transport_hang_up(&control->transport);
    transport_finish(&control->transport);
    tls_context_release(control->tls);
    free(control->server);
    free(control);
}

struct tls_context *control_tls(const struct control *control) {
    return control->tls;
}

const char *control_server(const struct control *control) {
    return control->server ? control->server : "";
}

int control_call(struct control *control, unsigned request_type, const ProtobufCMessage *request, unsigned reply_type,
                 ProtobufCMessage **reply, struct fault *fault) {
    int64_t deadline_ms = control_now_ms() + control->timeout_ms;
    return control_exchange(&control->transport, request_type, request, ++control->sequence, deadline_ms, reply_type,
                            reply, fault);
}

int control_status(struct control *control, Tensord__Status **status, struct fault *fault) {
    return control_status_of(control, "", status, fault);
}

int control_status_of(struct control *control, const char *principal, Tensord__Status **status, struct fault *fault) {
    Tensord__GetStatus request = TENSORD__GET_STATUS__INIT;
    request.principal = (char *)(uintptr_t)principal;
    return control_call(control, FRAME_GET_STATUS, &request.base, FRAME_STATUS, (ProtobufCMessage **)status, fault);
}

int control_kill(struct control *control, uint64_t session, const char *reason, struct fault *fault) {
    Tensord__KillSession request = TENSORD__KILL_SESSION__INIT;
    ProtobufCMessage *done;
    request.session = session;
    request.reason = (char *)(uintptr_t)reason;
    int code = control_call(control, FRAME_KILL_SESSION, &request.base, FRAME_DONE, &done, fault);
    if (!code)
        protobuf_c_message_free_unpacked(done, NULL);
    return code;
}

int control_no_device(const char *name, Tensord__Device *const *devices, size_t n, struct fault *fault) {
    char names[160] = "";
    size_t used = 0;
    for (size_t i = 0; i < n && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", devices[i]->name);
    return fault_set(fault, STATUS_NO_DEVICE, "no device \"%.48s\"; there %s %s", name, n == 1 ? "is" : "are",
                     n ? names : "none");
}

int control_check_names(const char *const names[], int n_names, Tensord__Device *const *devices, size_t n,
                        struct fault *fault) {
    for (int i = 0; i < n_names; i++) {
        size_t at = 0;
        while (at < n && strcmp(devices[at]->name, names[i]) != 0)
            at++;
        if (at == n)
            return control_no_device(names[i], devices, n, fault);
    }
    return 0;
}
