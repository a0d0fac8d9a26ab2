#include "server/worker/request.h"

#include <stdio.h>
#include <string.h>

#include "engine/program/program.h"
#include "proto/wire/batch.h"
#include "proto/wire/check.h"
#include "server/process/log.h"
#include "server/users/role.h"
#include "server/worker/connection.h"
#include "server/worker/request_impl.h"

/* A batch of this size is handed to the engine at once, so that it runs while the next one is read. */
enum { REQUEST_KICK_OPERATIONS = 256 };

enum {
    /* Of a batch, the engine is given so many operations at a time, or so many inputs and what the last operation has
     * beyond: each input may become an operation in flight. */
    REQUEST_OPERATIONS = 32,
    REQUEST_INPUTS = 256,
    REQUEST_OPERATION_STEPS = 2, /* of the budget */
    REQUEST_ADMINS_PART = 16,    /* 1/16 of max-sessions are for admins alone */
    REQUEST_LARGE_BYTES = 64 << 10,
    /* The parser takes memory and time for each field of a message, also for an empty one. Each field has at least two
     * bytes. */
    REQUEST_FIELDS_MAX = 32768,
};

/* ---- Hello and what needs no session state ---- */

static int request_session(struct connection *connection, bool allow_tf32, struct fault *fault) {
    struct service *service = connection->service;
    struct worker_principal *principal = connection->principal;
    bool admin = connection->peer.principal.role == ROLE_ADMIN;
    struct session_limits limits = {
        .bytes = principal->limits.session_bytes,
        .host_bytes = principal->limits.session_host_bytes,
        .tensors = (uint32_t)principal->limits.session_tensors,
        .streams = (uint32_t)principal->limits.session_streams,
        .number = connection->number,
        .allow_tf32 = allow_tf32,
        .tenant = principal->tenant,
    };
    uint32_t kept = admin ? 0 : service->limits.sessions / REQUEST_ADMINS_PART;
    if (service->sessions >= service->limits.sessions - kept) {
        service->refusals[REFUSAL_MAX_SESSIONS]++;
        return fault_set(fault, STATUS_LIMIT, "%s has %u sessions, and may have no more (max-sessions)",
                         service->device, service->sessions);
    }
    int error = worker_principal_open_session(principal, fault);
    if (error)
        return error;
    error = session_create(engine_sessions(service->engine), &limits, &connection->session, fault);
    if (error) {
        principal->sessions--;
        return error;
    }
    service->sessions++;
    connection_count_host(connection);
    return STATUS_OK;
}

static void request_log_open(const struct connection *connection) {
    const char *cipher = transport_cipher(&connection->socket.transport);
    char number[24];
    log_event_from(LOG_LEVEL_INFO, PEER_SOURCE(&connection->peer), "session_open", "session",
                   log_text(number, sizeof number, "%lu", connection->number), "peer", connection->peer.address,
                   "principal", connection->peer.principal.name, "client", connection->client, *cipher ? "tls" : NULL,
                   cipher, NULL);
}

/* Finds out who the client is, by its token or its certificate. STATUS_AGAIN: the front has been asked, or will be
 * asked. */
static int request_login(struct connection *connection, const char *token, struct fault *fault) {
    const struct service_options *options = &connection->service->options;
    const struct principal *principal = &connection->peer.principal;
    if (connection->login == CONNECTION_STRANGER && options->login &&
        (*token || principal->role == ROLE_NONE || *connection->peer.certificate)) {
        if (options->login(options->owner, connection, token) == 0)
            connection->login = CONNECTION_LOGGING_IN;
        return STATUS_AGAIN;
    }
    connection->login = CONNECTION_LOGGED_IN;
    return role_check(ROLE_ON_DEVICE, FRAME_HELLO, principal->role, principal->name, fault);
}

static int request_hello(struct connection *connection, const struct frame_header *header,
                         const ProtobufCMessage *message, uint8_t **sink, struct fault *fault) {
    const Tensord__Hello *hello = (const Tensord__Hello *)message;
    (void)sink;
    if (connection->session)
        return REQUEST_PROTOCOL(fault, "a second Hello");
    if (hello->version_min > PROTOCOL_VERSION_MAX || hello->version_max < PROTOCOL_VERSION_MIN ||
        hello->version_min > hello->version_max)
        return fault_set(fault, STATUS_VERSION, "the client speaks versions %u to %u, the daemon %d to %d",
                         hello->version_min, hello->version_max, PROTOCOL_VERSION_MIN, PROTOCOL_VERSION_MAX);
    if (strlen(hello->client) > BATCH_LABEL_MAX)
        return REQUEST_PROTOCOL(fault, "the client's name has more than %d bytes", BATCH_LABEL_MAX);
    if (connection->socket.kept && !hello->resume_session) {
        connection->service->refusals[REFUSAL_MAX_CONNECTIONS]++;
        return fault_set(fault, STATUS_LIMIT,
                         "all of the daemon's places are taken, except those for sessions that come back, and this "
                         "Hello resumes none (max-connections)");
    }
    int error = request_login(connection, hello->token, fault);
    if (error)
        return error;
    if (hello->resume_session)
        return lease_claim(connection, hello, header->sequence, fault);
    error = request_session(connection, hello->allow_tf32, fault);
    if (error)
        return error;
    snprintf(connection->client, sizeof connection->client, "%s", hello->client);
    remote_find(&connection->remote, connection->socket.transport.fd, connection->socket.tcp, hello);
    connection->end.deadline_ms = 0;
    frame_reader_limits(&connection->in.reader, FRAME_MESSAGE_MAX, FRAME_PAYLOAD_MAX);
    request_log_open(connection);
    connection_greet(connection);
    lease_grant(connection, hello);
    return request_welcome(connection, hello->version_max, header->sequence);
}

int request_welcome(struct connection *connection, uint32_t version, uint64_t sequence) {
    struct service *service = connection->service;
    Tensord__Welcome welcome = TENSORD__WELCOME__INIT;
    welcome.version = version < PROTOCOL_VERSION_MAX ? version : PROTOCOL_VERSION_MAX;
    welcome.server = "tensord " TENSORD_VERSION;
    welcome.device = service->device;
    welcome.kind = service->kind;
    welcome.session = connection->number;
    welcome.epoch = service->epoch;
    welcome.batch_bytes_max = FRAME_MESSAGE_MAX;
    welcome.chunk_bytes_max = FRAME_PAYLOAD_MAX;
    lease_welcome(connection, &welcome);
    return pending_reply_message(connection, FRAME_WELCOME, sequence, &welcome.base);
}

static int request_goodbye(struct connection *connection, const struct frame_header *header,
                           const ProtobufCMessage *message, uint8_t **sink, struct fault *fault) {
    (void)header, (void)message, (void)sink, (void)fault;
    connection->lease.goodbye = true;
    return STATUS_OK;
}

static int request_ping(struct connection *connection, const struct frame_header *header,
                        const ProtobufCMessage *message, uint8_t **sink, struct fault *fault) {
    const Tensord__Pong pong = TENSORD__PONG__INIT;
    (void)message, (void)sink, (void)fault;
    return pending_reply_message(connection, FRAME_PONG, header->sequence, &pong.base);
}

static int request_stream_open(struct connection *connection, const struct frame_header *header,
                               const ProtobufCMessage *message, uint8_t **sink, struct fault *fault) {
    const Tensord__StreamOpen *open = (const Tensord__StreamOpen *)message;
    struct fault ignored; /* the caller's fault would end the connection */
    (void)header, (void)sink;
    if (open->stream == 0 || open->stream > INT32_MAX)
        return REQUEST_PROTOCOL(fault, "stream %u is not between 1 and 2147483647", open->stream);
    /* Past the limit no stream is opened, and operations that are enqueued there fail with that reason. */
    session_stream_open(connection->session, open->stream, open->priority, &ignored);
    return STATUS_OK;
}

static int request_stream_close(struct connection *connection, const struct frame_header *header,
                                const ProtobufCMessage *message, uint8_t **sink, struct fault *fault) {
    const Tensord__StreamClose *close = (const Tensord__StreamClose *)message;
    struct fault ignored; /* the caller's fault would end the connection */
    (void)header, (void)sink;
    if (close->stream == 0 || close->stream > INT32_MAX)
        return REQUEST_PROTOCOL(fault, "stream %u is not between 1 and 2147483647", close->stream);
    session_stream_close(connection->session, close->stream, &ignored);
    return STATUS_OK;
}

/* ---- operations ---- */

int request_sequence(const struct connection *connection, uint64_t sequence, struct fault *fault) {
    if (sequence == connection->operations + 1)
        return STATUS_OK;
    return REQUEST_PROTOCOL(fault, "operation number %lu came where %lu was due", sequence, connection->operations + 1);
}

int request_label(const char *label, struct fault *fault) {
    if (label && strnlen(label, BATCH_LABEL_MAX + 1) > BATCH_LABEL_MAX)
        return REQUEST_PROTOCOL(fault, "a label has more than %d bytes", BATCH_LABEL_MAX);
    return STATUS_OK;
}

int request_later(struct connection *connection, int status) {
    if (status == STATUS_AGAIN && connection->session && session_waits_for_device(connection->session))
        service_mark_waiting(connection->service, connection);
    else if (status == STATUS_AGAIN)
        service_mark_more(connection->service, connection);
    return status;
}

void request_type(struct tensor_type *type, uint32_t dtype, const int64_t *shape, size_t rank, struct fault *bad) {
    *bad = (struct fault){0};
    if (type_make(type, dtype, shape, rank, bad) != STATUS_OK)
        *type = (struct tensor_type){.dtype = DTYPE_U8, .rank = 1};
}

/* Sets the cursor to the first operation of a new batch, or to the next operation of a batch that was put off. The frame of such a
 * batch comes again, also from a client that had to reconnect meanwhile. */
static int request_batch_begin(struct connection *connection, const Tensord__Batch *message,
                               struct batch_cursor *cursor, struct fault *fault) {
    struct request_batch *batch = &connection->request.batch;
    batch_cursor_init(cursor, message);
    if (!batch->begun) {
        if (request_sequence(connection, message->first_sequence, fault))
            return STATUS_PROTOCOL;
        *batch = (struct request_batch){
            .first = message->first_sequence,
            .heads = message->n_heads,
            .sequence = message->first_sequence,
            .output = message->first_output,
        };
        return STATUS_OK;
    }
    if (batch->first != message->first_sequence || batch->heads != message->n_heads)
        return REQUEST_PROTOCOL(fault,
                                "a batch of %zu operations from number %lu came where %zu from %lu were due again",
                                message->n_heads, message->first_sequence, batch->heads, batch->first);
    *cursor = batch->cursor;
    if (!batch_cursor_follow(cursor, message))
        return REQUEST_PROTOCOL(fault, "a batch came again with less in it");
    return STATUS_OK;
}

/* The turn's time is over, there is no memory yet, or the session has as much in flight as it may: notes where the batch
 * continues in a later turn. */
static int request_batch_put_off(struct connection *connection, const struct batch_cursor *cursor,
                                 const struct op_request *next) {
    connection->request.batch.begun = true;
    connection->request.batch.cursor = *cursor;
    connection->request.batch.sequence = next->sequence;
    connection->request.batch.output = next->output;
    if (!connection->hold.room)
        return request_later(connection, STATUS_AGAIN);
    engine_kick(connection->service->engine); /* the batch continues when some of this has run */
    return STATUS_AGAIN;
}

void request_share(struct connection *connection, const struct frame_header *header) {
    struct budget *budget = connection->service->budget;
    uint64_t began_ns = budget->until_ns - SERVICE_SHARE_NS, spent_ns;
    if (header->message_bytes < REQUEST_LARGE_BYTES)
        return;
    budget_look(budget);
    spent_ns = budget->now_ns - began_ns;
    budget_go_on(budget, spent_ns > SERVICE_SHARE_NS / 2 ? spent_ns : SERVICE_SHARE_NS / 2);
}

/* Reads up to REQUEST_OPERATIONS operations, with few inputs, and returns how many. `more`: what batch_cursor_next() returned last. */
static unsigned request_batch_read(const struct connection *connection, const struct op_request *next,
                                   struct batch_cursor *cursor, struct op_request *requests, int *more,
                                   struct fault *fault) {
    const struct principal *principal = &connection->peer.principal;
    const char *denied = principal->user_kernels ? NULL : principal->name;
    uint64_t output = next->output, sequence = next->sequence;
    uint32_t stream = cursor->batch->stream;
    struct op_request *request = requests;
    uint64_t inputs = 0;
    for (*more = 1; request < requests + REQUEST_OPERATIONS && inputs < REQUEST_INPUTS; request++) {
        int code = batch_cursor_next(cursor, request, fault);
        if (code <= 0) {
            *more = code;
            break;
        }
        request->stream = stream;
        request->output = output;
        request->sequence = sequence++;
        request->kernels_denied = denied;
        output += op_request_outputs(request);
        inputs += request->n_inputs + request->further;
    }
    return (unsigned)(request - requests);
}

static int request_batch(struct connection *connection, const struct frame_header *header,
                         const ProtobufCMessage *message, uint8_t **sink, struct fault *fault) {
    const Tensord__Batch *batch = (const Tensord__Batch *)message;
    struct budget *budget = connection->service->budget;
    struct op_request requests[REQUEST_OPERATIONS], next = {0};
    struct batch_cursor cursor;
    int more = 1;
    (void)sink;
    if (request_batch_begin(connection, batch, &cursor, fault))
        return STATUS_PROTOCOL;
    request_share(connection, header);
    next.sequence = connection->request.batch.sequence;
    next.output = connection->request.batch.output;
    while (more > 0) {
        const struct batch_cursor before = cursor;
        unsigned done = 0, n = request_batch_read(connection, &next, &cursor, requests, &more, fault);
        if (n)
            session_run(connection->session, requests, n, &done);
        next.sequence += done;
        if (done < n) {
            next.output = requests[done].output;
            cursor = before;
            fault->code = STATUS_OK; /* what is malformed behind them is found again */
            for (unsigned i = 0; i < done; i++)
                batch_cursor_next(&cursor, &requests[i], fault);
        } else if (n) {
            next.output = requests[n - 1].output + op_request_outputs(&requests[n - 1]);
        }
        if (done < n || (cursor.op < batch->n_heads &&
                         (throttle_crowded(connection) || budget_spent(budget, REQUEST_OPERATION_STEPS))))
            return request_batch_put_off(connection, &cursor, &next);
    }
    connection->request.batch.begun = false;
    connection->operations = next.sequence - 1;
    if (more < 0)
        return STATUS_PROTOCOL;
    if (batch->n_heads >= REQUEST_KICK_OPERATIONS)
        engine_kick(connection->service->engine);
    return STATUS_OK;
}

static int request_fetch(struct connection *connection, const struct frame_header *header,
                         const ProtobufCMessage *message, uint8_t **sink, struct fault *fault) {
    const Tensord__Fetch *fetch = (const Tensord__Fetch *)message;
    (void)sink, (void)fault;
    return request_later(connection, pending_reply_fetch(connection, header->sequence, fetch->id, fetch->offset));
}

static int request_wait(struct connection *connection, const struct frame_header *header,
                        const ProtobufCMessage *message, uint8_t **sink, struct fault *fault) {
    uint64_t id = ((const Tensord__Wait *)message)->id;
    struct fault unknown;
    (void)sink, (void)fault;
    if (id != 0)
        return pending_reply_wait(connection, header->sequence, id);
    fault_set(&unknown, STATUS_UNKNOWN_ID, "0 is no tensor's id");
    return pending_reply_fault(connection, FRAME_DONE, header->sequence, &unknown);
}

static int request_sync(struct connection *connection, const struct frame_header *header,
                        const ProtobufCMessage *message, uint8_t **sink, struct fault *fault) {
    (void)message, (void)sink, (void)fault;
    return pending_reply_wait(connection, header->sequence, 0);
}

/* ---- copies between devices ---- */

static int request_ticket(const ProtobufCBinaryData *ticket, struct fault *fault) {
    if (ticket->len == LINK_TICKET_BYTES)
        return STATUS_OK;
    return REQUEST_PROTOCOL(fault, "a ticket has %d bytes, not %zu", LINK_TICKET_BYTES, ticket->len);
}

static int request_copy_out(struct connection *connection, const struct frame_header *header,
                            const ProtobufCMessage *message, uint8_t **sink, struct fault *fault) {
    const Tensord__CopyOut *copy = (const Tensord__CopyOut *)message;
    size_t length = strlen(copy->device);
    (void)header, (void)sink;
    if (request_ticket(&copy->ticket, fault))
        return STATUS_PROTOCOL;
    if (length == 0 || length > LINK_DEVICE_MAX)
        return REQUEST_PROTOCOL(fault, "a device's name has 1 to %d bytes, not %zu", LINK_DEVICE_MAX, length);
    return request_later(connection, link_out_send(connection, copy->id, copy->device, copy->ticket.data));
}

static int request_copy_in(struct connection *connection, const struct frame_header *header,
                           const ProtobufCMessage *message, uint8_t **sink, struct fault *fault) {
    const Tensord__CopyIn *copy = (const Tensord__CopyIn *)message;
    size_t length = strlen(copy->source);
    struct tensor_type type;
    struct fault bad;
    struct upload_request request = {
        .id = copy->id,
        .type = &type,
        .stream = copy->stream,
        .sequence = copy->sequence,
        .label = copy->label[0] ? copy->label : NULL,
        .waitable = true,
    };
    (void)header, (void)sink;
    if (request_ticket(&copy->ticket, fault) || request_sequence(connection, copy->sequence, fault) ||
        request_label(copy->label, fault))
        return STATUS_PROTOCOL;
    if (length > LINK_DEVICE_MAX)
        return REQUEST_PROTOCOL(fault, "a device's name has 1 to %d bytes, not %zu", LINK_DEVICE_MAX, length);
    request_type(&type, copy->dtype, copy->shape, copy->n_shape, &bad);
    if (link_in_expect(connection, &request, copy->source, copy->ticket.data, bad.code ? &bad : NULL))
        return request_later(connection, STATUS_AGAIN);
    connection->operations++;
    return STATUS_OK;
}

static int request_trace_start(struct connection *connection, const struct frame_header *header,
                               const ProtobufCMessage *message, uint8_t **sink, struct fault *fault) {
    const Tensord__TraceStart *start = (const Tensord__TraceStart *)message;
    struct fault refused;
    (void)sink, (void)fault;
    if (trace_feed_start(connection, header->sequence, start->milliseconds, start->session, &refused) == STATUS_OK)
        return STATUS_OK;
    return pending_reply_fault(connection, FRAME_TRACE_DATA, header->sequence, &refused);
}

/* ---- dispatch ---- */

struct request_row {
    const ProtobufCMessageDescriptor *descriptor;
    int (*handle)(struct connection *connection, const struct frame_header *header, const ProtobufCMessage *message,
                  uint8_t **sink, struct fault *fault);
    bool replied; /* it has a reply, so it needs a sequence number */
    bool payload; /* it may have a payload */
    bool counted; /* it counts for a lease (request_counted()) */
    bool once;    /* it changes something: a repeated request gets the same reply, and is not carried out again */
};

static const struct request_row request_rows[] = {
    [FRAME_HELLO] = {&tensord__hello__descriptor, request_hello},
    [FRAME_PING] = {&tensord__ping__descriptor, request_ping, .replied = true},
    [FRAME_BATCH] = {&tensord__batch__descriptor, request_batch, .counted = true},
    [FRAME_UPLOAD] = {&tensord__upload__descriptor, request_upload, .payload = true, .counted = true},
    [FRAME_UPLOAD_CHUNK] = {&tensord__upload_chunk__descriptor, request_upload_chunk, .payload = true, .counted = true},
    [FRAME_FETCH] = {&tensord__fetch__descriptor, request_fetch, .replied = true},
    [FRAME_WAIT] = {&tensord__wait__descriptor, request_wait, .replied = true},
    [FRAME_SYNC] = {&tensord__sync__descriptor, request_sync, .replied = true},
    [FRAME_STREAM_OPEN] = {&tensord__stream_open__descriptor, request_stream_open, .counted = true},
    [FRAME_STREAM_CLOSE] = {&tensord__stream_close__descriptor, request_stream_close, .counted = true},
    [FRAME_COPY_OUT] = {&tensord__copy_out__descriptor, request_copy_out, .counted = true},
    [FRAME_COPY_IN] = {&tensord__copy_in__descriptor, request_copy_in, .counted = true},
    [FRAME_GOODBYE] = {&tensord__goodbye__descriptor, request_goodbye},
    [FRAME_KERNEL_COMPILE] = {&tensord__kernel_compile__descriptor, request_kernel_compile, .replied = true},
    [FRAME_KERNEL_RELEASE] = {&tensord__kernel_release__descriptor, request_kernel_release, .counted = true},
    [FRAME_PROGRAM_DEFINE] = {&tensord__program_define__descriptor, request_program_define, .counted = true},
    [FRAME_PROGRAM_LOOP] = {&tensord__program_loop__descriptor, request_program_loop, .counted = true},
    [FRAME_PROGRAM_RELEASE] = {&tensord__program_release__descriptor, request_program_release, .counted = true},
    [FRAME_PUBLISH] = {&tensord__publish__descriptor, request_publish, .replied = true, .once = true},
    [FRAME_OPEN_NAME] = {&tensord__open_name__descriptor, request_open_name, .replied = true, .once = true},
    [FRAME_LIST_NAMES] = {&tensord__list_names__descriptor, request_list_names, .replied = true},
    [FRAME_REMOVE_NAME] = {&tensord__remove_name__descriptor, request_remove_name, .replied = true, .once = true},
    [FRAME_MOVE_NAME] = {&tensord__move_name__descriptor, request_move_name, .replied = true, .once = true},
    [FRAME_TRACE_START] = {&tensord__trace_start__descriptor, request_trace_start, .replied = true},
};

bool request_counted(unsigned type) {
    return type < sizeof request_rows / sizeof request_rows[0] && request_rows[type].counted;
}

/* Finds the row for this frame, and checks everything that does not need the message itself. NULL with `fault`. */
static const struct request_row *request_row(const struct connection *connection, const struct frame_header *header,
                                             struct fault *fault) {
    const struct request_row *row = NULL;
    if (header->type < sizeof request_rows / sizeof request_rows[0] && request_rows[header->type].handle)
        row = &request_rows[header->type];
    if (!row)
        REQUEST_PROTOCOL(fault, "%s is not for a client to send to a device", frame_type_name(header->type));
    else if (!connection->session && header->type != FRAME_HELLO)
        REQUEST_PROTOCOL(fault, "%s came before Hello", frame_type_name(header->type));
    else if (connection->session && role_check(ROLE_ON_DEVICE, header->type, connection->peer.principal.role,
                                               connection->peer.principal.name, fault))
        return NULL;
    else if (row->replied && header->sequence == 0)
        REQUEST_PROTOCOL(fault, "%s needs a sequence number for its reply", frame_type_name(header->type));
    else if (!row->payload && header->payload_bytes > 0)
        REQUEST_PROTOCOL(fault, "%s takes no payload, and %lu bytes came", frame_type_name(header->type),
                         header->payload_bytes);
    else
        return row;
    return NULL;
}

/* Handles a request that changes something: a client that did not get the reply may repeat it. */
static int request_once(struct connection *connection, const struct request_row *row, const struct frame_header *header,
                        const ProtobufCMessage *message, uint8_t **sink, struct fault *fault) {
    struct lease *lease = &connection->lease;
    const struct outcome *outcome = lease->granted ? outcome_find(&lease->outcomes, header->sequence) : NULL;
    char principal[PRINCIPAL_NAME_BYTES];
    if (outcome && !outcome->changed)
        return pending_reply_outcome(connection, outcome);
    if (outcome)
        snprintf(principal, sizeof principal, "%s", (const char *)outcome->frame);
    lease->once = lease->granted;
    int error = outcome ? pending_reply_saved(connection, header->sequence, principal)
                        : row->handle(connection, header, message, sink, fault);
    connection->lease.once = false;
    return error;
}

/* Whether a message has a text: a text that was sent is not the default value, even if it is empty. */
static bool request_has_text(const ProtobufCMessage *message) {
    const ProtobufCMessageDescriptor *descriptor = message->descriptor;
    const char *members = (const char *)message;
    for (unsigned i = 0; i < descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
        if (field->type != PROTOBUF_C_TYPE_STRING)
            continue;
        if (field->label == PROTOBUF_C_LABEL_REPEATED
                ? *(const size_t *)(members + field->quantifier_offset) > 0
                : *(const void *const *)(members + field->offset) != field->default_value)
            return true;
    }
    return false;
}

/* Parses the message. Its fields on the wire are checked only if necessary, and once: those of a large message before
 * it is parsed, those of any other message with texts afterwards. NULL with `fault`. */
static ProtobufCMessage *request_read(const struct connection *connection, const ProtobufCMessageDescriptor *descriptor,
                                      const struct frame_header *header, const uint8_t *message, struct fault *fault) {
    struct arena *arena = &connection->service->arena;
    bool large = header->message_bytes / 2 > REQUEST_FIELDS_MAX;
    enum message_fields fields = MESSAGE_FIELDS_FINE;
    ProtobufCMessage *unpacked;
    if (large)
        fields = message_fields_look(descriptor, message, header->message_bytes, REQUEST_FIELDS_MAX);
    if (fields == MESSAGE_FIELDS_MANY) {
        REQUEST_PROTOCOL(fault, "%s: more than %d fields in one message", frame_type_name(header->type),
                         REQUEST_FIELDS_MAX);
        return NULL;
    }
    if (connection->service->wire && !request_is_put_off(&connection->request))
        wire_print(stderr, "<-", header, message);
    arena_reset(arena);
    unpacked = protobuf_c_message_unpack(descriptor, &arena->allocator, header->message_bytes, message);
    if (!unpacked && arena->starved) {
        fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory to read %s of %u bytes", frame_type_name(header->type),
                  header->message_bytes);
        return NULL;
    }
    if (!unpacked) {
        REQUEST_PROTOCOL(fault, "%s: %u bytes that are no such message", frame_type_name(header->type),
                         header->message_bytes);
        return NULL;
    }
    if (!large && request_has_text(unpacked))
        fields = message_fields_look(descriptor, message, header->message_bytes, REQUEST_FIELDS_MAX);
    if (fields != MESSAGE_FIELDS_FINE) {
        REQUEST_PROTOCOL(fault, "%s: a text with a NUL byte", frame_type_name(header->type));
        return NULL;
    }
    return unpacked;
}

int request_handle(struct connection *connection, const struct frame_header *header, const uint8_t *message,
                   uint8_t **sink, struct fault *fault) {
    const struct request_row *row = request_row(connection, header, fault);
    const struct arena *arena = &connection->service->arena;
    ProtobufCMessage *unpacked = connection->request.message_at == arena->resets ? connection->request.message : NULL;
    if (!row)
        return (int)fault->code;
    /* A Publish that has been put off has copied its message: parsing it again each turn would cost more than the
     * values. */
    if (connection->request.publishing)
        return request_later(connection, pending_reply_publish_on(connection));
    if (!unpacked)
        unpacked = request_read(connection, row->descriptor, header, message, fault);
    connection->request.message = NULL;
    if (!unpacked)
        return (int)fault->code;
    int error = row->once ? request_once(connection, row, header, unpacked, sink, fault)
                          : row->handle(connection, header, unpacked, sink, fault);
    if (error == STATUS_AGAIN && request_is_put_off(&connection->request)) {
        connection->request.message = unpacked;
        connection->request.message_at = arena->resets;
    }
    if (error == STATUS_NO_HOST_MEMORY && fault && !fault->code)
        fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory to reply to %s", frame_type_name(header->type));
    return error;
}
