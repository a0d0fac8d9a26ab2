#include "tests/stand_ins/fake_log.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "proto/ops/dtype.h"
#include "proto/ops/kernel.h"
#include "proto/wire/batch.h"
#include "proto/wire/frame.h"

enum { TENSORS = 1 << 16 };

struct connection {
    struct fake_daemon *fake;
    int fd;
    uint16_t target;
    uint64_t operations;
    uint64_t uploads_end; /* no id from here on has bytes */
    struct {
        uint8_t *bytes;
        uint64_t n, at;
        struct tensor_type type;
        bool poison;
    } tensors[TENSORS]; /* by id; the higher ones are not remembered */
};

static void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static bool receive(struct connection *connection, void *out, size_t n) {
    uint8_t *bytes = out;
    while (n) {
        while (connection->fake->hold && !connection->fake->stop)
            nap();
        struct pollfd entry = {.fd = connection->fd, .events = POLLIN};
        if (connection->fake->stop || connection->fake->hang_up)
            return false;
        if (poll(&entry, 1, 20) <= 0)
            continue;
        ssize_t got = recv(connection->fd, bytes, n, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN))
            return false;
        if (got > 0) {
            bytes += got;
            n -= (size_t)got;
        }
    }
    return true;
}

static void send_all(struct connection *connection, const uint8_t *bytes, size_t n) {
    long budget = connection->fake->budget;
    bool cut = budget >= 0 && (size_t)budget < n;
    if (cut)
        n = (size_t)budget;
    if (budget >= 0)
        connection->fake->budget -= (long)n;
    for (size_t sent = 0; sent < n;) {
        ssize_t got = send(connection->fd, bytes + sent, n - sent, MSG_NOSIGNAL);
        if (got <= 0)
            break;
        sent += (size_t)got;
    }
    if (cut)
        shutdown(connection->fd, SHUT_RDWR);
}

static void reply(struct connection *connection, unsigned type, uint64_t sequence, const ProtobufCMessage *message,
                  const uint8_t *payload, size_t payload_bytes) {
    size_t bytes = protobuf_c_message_get_packed_size(message);
    uint8_t *frame = malloc(FRAME_HEADER_BYTES + bytes + payload_bytes);
    struct frame_header header = {
        .type = (uint16_t)type, .message_bytes = (uint32_t)bytes, .payload_bytes = payload_bytes, .sequence = sequence};
    frame_header_encode(&header, frame);
    protobuf_c_message_pack(message, frame + FRAME_HEADER_BYTES);
    if (payload_bytes)
        memcpy(frame + FRAME_HEADER_BYTES + bytes, payload, payload_bytes);
    send_all(connection, frame, FRAME_HEADER_BYTES + bytes + payload_bytes);
    free(frame);
}

/* A message of the row's type; returns its bytes. */
static size_t pack_scripted(const struct fake_frame *row, uint8_t *out) {
    Tensord__Error error = TENSORD__ERROR__INIT;
    Tensord__FetchChunk chunk = TENSORD__FETCH_CHUNK__INIT;
    Tensord__Done done = TENSORD__DONE__INIT;
    Tensord__KernelCompiled compiled = TENSORD__KERNEL_COMPILED__INIT;
    Tensord__Welcome welcome = TENSORD__WELCOME__INIT;
    Tensord__DeviceList list = TENSORD__DEVICE_LIST__INIT;
    Tensord__Device device = TENSORD__DEVICE__INIT, *devices[1] = {&device};
    Tensord__NameOpened opened = TENSORD__NAME_OPENED__INIT;
    Tensord__NameList names = TENSORD__NAME_LIST__INIT;
    int64_t shape[1] = {row->extent};
    opened.dtype = row->dtype;
    opened.n_shape = 1;
    opened.shape = shape;
    names.more = row->more;
    opened.error = names.error = row->error ? &error : NULL;
    error.code = row->error == FAKE_CODE_0 ? 0 : row->error;
    chunk.offset = row->offset;
    chunk.total = row->total;
    chunk.error = done.error = compiled.error = row->error ? &error : NULL;
    welcome.version = (uint32_t)(PROTOCOL_VERSION_MAX + row->version);
    welcome.device = device.name = (char *)(uintptr_t)(row->device ? row->device : "cpu:0");
    welcome.chunk_bytes_max = row->chunk;
    device.target = row->target;
    list.n_devices = 1;
    list.devices = devices;
    switch (row->type) {
    case FRAME_FETCH_CHUNK:
        return protobuf_c_message_pack(&chunk.base, out);
    case FRAME_ERROR:
        return protobuf_c_message_pack(&error.base, out);
    case FRAME_KERNEL_COMPILED:
        return protobuf_c_message_pack(&compiled.base, out);
    case FRAME_WELCOME:
        return protobuf_c_message_pack(&welcome.base, out);
    case FRAME_DEVICE_LIST:
        return protobuf_c_message_pack(&list.base, out);
    case FRAME_NAME_OPENED:
        return protobuf_c_message_pack(&opened.base, out);
    case FRAME_NAME_LIST:
        return protobuf_c_message_pack(&names.base, out);
    default:
        return protobuf_c_message_pack(&done.base, out);
    }
}

/* The payload of a NAME_LIST; returns its bytes. */
static size_t pack_names(const struct fake_frame *row, uint8_t *out) {
    Tensord__Names list = TENSORD__NAMES__INIT;
    Tensord__Name names[2], *pointers[2] = {&names[0], &names[1]};
    int64_t shape[1] = {row->extent};
    list.names = pointers;
    for (int i = 0; i < 2 && row->names[i]; i++) {
        tensord__name__init(&names[i]);
        names[i].name = (char *)(uintptr_t)row->names[i];
        names[i].dtype = row->dtype;
        names[i].n_shape = 1;
        names[i].shape = shape;
        list.n_names++;
    }
    return protobuf_c_message_pack(&list.base, out);
}

/* What the script says, without regard for what was asked. */
static void reply_scripted(struct connection *connection, uint64_t sequence, const struct fake_frame *row) {
    uint8_t frame[4096] = {0};
    size_t bytes = pack_scripted(row, frame + FRAME_HEADER_BYTES);
    if (row->garbage)
        memset(frame + FRAME_HEADER_BYTES, 0xff, bytes = 9);
    size_t names = row->names[0] ? pack_names(row, frame + FRAME_HEADER_BYTES + bytes) : 0;
    struct frame_header header = {.type = (uint16_t)row->type,
                                  .message_bytes = (uint32_t)(bytes + row->more_message),
                                  .payload_bytes = row->payload + names + row->more_payload,
                                  .sequence = sequence + (uint64_t)row->sequence};
    frame_header_encode(&header, frame);
    if (row->magic)
        memcpy(frame, &row->magic, sizeof row->magic);
    send_all(connection, frame, FRAME_HEADER_BYTES + bytes + names + row->payload);
}

/* Whether there was a script, which has been played then. */
static bool played(struct connection *connection, const struct fake_frame *_Atomic *place, uint64_t sequence) {
    const struct fake_frame *script = atomic_exchange(place, NULL);
    for (int i = 0; script && i < FAKE_FRAMES_MAX && script[i].type; i++)
        reply_scripted(connection, sequence, &script[i]);
    return script;
}

static void on_hello(struct connection *connection, uint64_t sequence) {
    Tensord__Welcome welcome = TENSORD__WELCOME__INIT;
    welcome.version = PROTOCOL_VERSION_MAX;
    welcome.server = "fake";
    welcome.device = connection->target == PREAMBLE_TARGET_CONTROL ? "" : connection->target ? "cpu:1" : "cpu:0";
    welcome.kind = "cpu";
    reply(connection, FRAME_WELCOME, sequence, &welcome.base, NULL, 0);
}

static void on_list(struct connection *connection, uint64_t sequence) {
    Tensord__Device devices[2] = {TENSORD__DEVICE__INIT, TENSORD__DEVICE__INIT};
    Tensord__Device *list[2] = {&devices[0], &devices[1]};
    for (unsigned i = 0; i < 2; i++) {
        devices[i].name = i ? "cpu:1" : "cpu:0";
        devices[i].kind = "cpu";
        devices[i].state = "ready";
        devices[i].target = i;
    }
    Tensord__DeviceList message = TENSORD__DEVICE_LIST__INIT;
    message.n_devices = 2;
    message.devices = list;
    reply(connection, FRAME_DEVICE_LIST, sequence, &message.base, NULL, 0);
}

static void on_status(struct connection *connection, const struct frame_header *header, const uint8_t *message) {
    struct fake_daemon *fake = connection->fake;
    unsigned all = atomic_load(&fake->sessions), room = atomic_load(&fake->room), left = 0;
    Tensord__GetStatus *request = tensord__get_status__unpack(NULL, header->message_bytes, message);
    Tensord__SessionStatus rows[FAKE_SESSIONS_MAX], *list[FAKE_SESSIONS_MAX];
    Tensord__PrincipalStatus alice = TENSORD__PRINCIPAL_STATUS__INIT, *principals[] = {&alice};
    Tensord__Status status = TENSORD__STATUS__INIT;
    for (unsigned i = 1; i <= all; i++) {
        unsigned char ended = atomic_load(&fake->ended[i]);
        if (ended == 1)
            atomic_store(&fake->ended[i], 2);
        if (ended == 2)
            continue;
        left++;
        if ((*request->principal && strcmp(request->principal, "alice") != 0) || status.n_sessions == room)
            continue;
        Tensord__SessionStatus *row = list[status.n_sessions] = &rows[status.n_sessions];
        tensord__session_status__init(row);
        row->id = i;
        row->principal = (char *)"alice";
        row->device = (char *)"cpu:0";
        status.n_sessions++;
    }
    if (!*request->principal || !strcmp(request->principal, "alice"))
        status.sessions_left_out = left - (unsigned)status.n_sessions;
    alice.name = (char *)"alice";
    alice.sessions = left;
    status.version = (char *)"fake";
    status.sessions = list;
    status.principals = principals;
    status.n_principals = 1;
    tensord__get_status__free_unpacked(request, NULL);
    reply(connection, FRAME_STATUS, header->sequence, &status.base, NULL, 0);
}

static void on_kill(struct connection *connection, const struct frame_header *header, const uint8_t *message) {
    struct fake_daemon *fake = connection->fake;
    Tensord__KillSession *request = tensord__kill_session__unpack(NULL, header->message_bytes, message);
    Tensord__Done done = TENSORD__DONE__INIT;
    fake_log_note(fake, "kill %llu\n", (unsigned long long)request->session);
    if (request->session && request->session <= atomic_load(&fake->sessions))
        atomic_store(&fake->ended[request->session], 1);
    tensord__kill_session__free_unpacked(request, NULL);
    reply(connection, FRAME_DONE, header->sequence, &done.base, NULL, 0);
}

/* Of all inputs, or of those that the operation consumes: as many as there is room for. */
static size_t list_ids(char *text, size_t size, const char *before, const struct op_request *op, bool all) {
    size_t used = 0;
    bool any = false;
    for (unsigned i = 0; i < op->n_inputs && used + 24 < size; i++) {
        if (!all && !op_consumes(op->consume, op->consume_more, i))
            continue;
        used +=
            (size_t)snprintf(text + used, size - used, "%s%llu", any ? "," : before, (unsigned long long)op->inputs[i]);
        any = true;
    }
    text[used] = 0;
    return used;
}

static void remember(struct connection *connection, const struct op_request *op, uint64_t id) {
    const struct tensor_type *types[OP_INPUTS_MAX];
    struct tensor_type results[OP_OUTPUTS_MAX];
    if (id + op_request_outputs(op) > TENSORS || op->opcode == OP_PROGRAM)
        return;
    for (unsigned i = 0; i < op->n_inputs; i++)
        types[i] = &connection->tensors[op->inputs[i] < TENSORS ? op->inputs[i] : 0].type;
    struct op_attributes attributes = {
        .ints = op->ints, .floats = op->floats, .n_ints = op->n_ints, .n_floats = op->n_floats};
    struct fault fault;
    int code = op_infer_outputs(op->opcode, types, op->n_inputs, &attributes, op_request_outputs(op), results, &fault);
    if (code)
        fake_log_note(connection->fake, "bad operation: %s\n", fault.message);
    for (unsigned i = 0; i < op_request_outputs(op); i++) {
        if (!code) {
            connection->tensors[id + i].type = results[i];
            connection->tensors[id + i].n = (uint64_t)type_bytes(&results[i]);
        }
        connection->tensors[id + i].poison = op->label && !strcmp(op->label, "poison");
    }
}

/* "kernel 1 (7,2,1)x(32,1,4)+99: 2=2 1:1 3:1=3 4:ffffffff": kinds of arguments, ids of inputs, bits of numbers, outputs. */
static void note_launch(struct fake_daemon *fake, const struct op_request *op, uint64_t output) {
    const struct op_attributes attributes = {.ints = op->ints, .n_ints = op->n_ints};
    struct kernel_attributes launch;
    kernel_attributes_read(&attributes, &launch);
    const int64_t *grid = launch.grid.values, *block = launch.block.values, *number = launch.numbers.values;
    const uint64_t *input = op->inputs;
    fake_log_note(fake, "kernel %lld (%lld,%lld,%lld)x(%lld,%lld,%lld)+%lld%s%s:", (long long)launch.kernel,
                  (long long)grid[0], (long long)grid[1], (long long)grid[2], (long long)block[0], (long long)block[1],
                  (long long)block[2], (long long)launch.shared, op->label ? " " : "", op->label ? op->label : "");
    for (unsigned i = 0; i < launch.arguments.count; i++) {
        int64_t kind = launch.arguments.values[i];
        fake_log_note(fake, " %lld", (long long)kind);
        if (kernel_reads(kind))
            fake_log_note(fake, ":%llu", (unsigned long long)*input++);
        if (kernel_makes(kind))
            fake_log_note(fake, "=%llu", (unsigned long long)output++);
        if (!kernel_reads(kind) && !kernel_makes(kind))
            fake_log_note(fake, ":%llx", (unsigned long long)*number++);
    }
}

/* The operations of a batch or a program, one a line. A program has no sequence numbers, and nothing is remembered of its tensors. */
static void note_operations(struct connection *connection, const Tensord__Batch *batch, bool run) {
    struct fake_daemon *fake = connection->fake;
    struct batch_cursor cursor;
    struct op_request op;
    struct fault fault;
    int more;
    batch_cursor_init(&cursor, batch);
    uint64_t id = batch->first_output;
    while ((more = batch_cursor_next(&cursor, &op, &fault)) == 1) {
        char inputs[256], consumed[128], output[32] = "", run_of[64] = "";
        list_ids(inputs, sizeof inputs, "", &op, true);
        list_ids(consumed, sizeof consumed, " free ", &op, false);
        for (unsigned i = 0; i < op.n_inputs; i++)
            if (op.opcode == OP_FREE || op_consumes(op.consume, op.consume_more, i))
                atomic_fetch_add(&fake->released, 1);
        if (op.opcode == OP_PROGRAM && op.n_ints == 2)
            snprintf(run_of, sizeof run_of, " %lld x%lld", (long long)op.ints[0], (long long)op.ints[1]);
        if (op.opcode != OP_FREE) {
            snprintf(output, sizeof output, "=%llu", (unsigned long long)id);
            if (run)
                remember(connection, &op, id);
            id += op_request_outputs(&op);
        }
        if (op.opcode == OP_KERNEL) {
            note_launch(fake, &op, id - op_request_outputs(&op));
            fake_log_note(fake, "%s\n", consumed);
        } else
            fake_log_note(fake, "%s%s(%s)%s%s%s%s%s\n", op_info(op.opcode)->name, run_of, inputs, output, consumed,
                          op.label ? " [" : "", op.label ? op.label : "", op.label ? "]" : "");
        if (run) {
            connection->operations++;
            atomic_fetch_add(&fake->operations, 1);
        }
    }
    if (more < 0)
        fake_log_note(fake, "bad batch: %s\n", fault.message);
}

static void on_batch(struct connection *connection, const uint8_t *message, size_t bytes) {
    struct fake_daemon *fake = connection->fake;
    Tensord__Batch *batch = tensord__batch__unpack(NULL, bytes, message);
    if (batch->first_sequence != connection->operations + 1)
        fake_log_note(fake, "bad sequence\n");
    fake_log_note(fake, "batch stream %u\n", batch->stream);
    note_operations(connection, batch, true);
    tensord__batch__free_unpacked(batch, NULL);
}

static void note_numbers(struct fake_daemon *fake, const char *name, size_t n, const uint32_t *numbers) {
    for (size_t i = 0; i < n; i++)
        fake_log_note(fake, "%s%u", i ? "," : name, numbers[i]);
}

static void note_ids(struct fake_daemon *fake, const char *name, size_t n, const uint64_t *ids) {
    for (size_t i = 0; i < n; i++)
        fake_log_note(fake, "%s%llu", i ? "," : name, (unsigned long long)ids[i]);
}

/* "program 1 parameters 9:1:3 consumed 0 captures 7 outputs 4", the operations, each in a line, and "end 1". */
static void on_define(struct connection *connection, const uint8_t *message, size_t bytes) {
    struct fake_daemon *fake = connection->fake;
    Tensord__ProgramDefine *define = tensord__program_define__unpack(NULL, bytes, message);
    fake_log_note(fake, "program %llu", (unsigned long long)define->program);
    for (size_t i = 0; i < define->n_parameters; i++)
        fake_log_note(fake, "%s%lld", i ? ":" : " parameters ", (long long)define->parameters[i]);
    note_numbers(fake, " consumed ", define->n_consumed, define->consumed);
    note_ids(fake, " captures ", define->n_captures, define->captures);
    note_ids(fake, " outputs ", define->n_outputs, define->outputs);
    fake_log_note(fake, "\n");
    note_operations(connection, define->operations, false);
    fake_log_note(fake, "end %llu\n", (unsigned long long)define->program);
    tensord__program_define__free_unpacked(define, NULL);
}

static void on_loop(struct connection *connection, const uint8_t *message, size_t bytes) {
    struct fake_daemon *fake = connection->fake;
    Tensord__ProgramLoop *loop = tensord__program_loop__unpack(NULL, bytes, message);
    fake_log_note(fake, "loop %llu of %llu", (unsigned long long)loop->program, (unsigned long long)loop->body);
    note_numbers(fake, " carried ", loop->n_carried, loop->carried);
    note_numbers(fake, " sliced ", loop->n_sliced, loop->sliced);
    note_numbers(fake, " stacked ", loop->n_stacked, loop->stacked);
    fake_log_note(fake, "\n");
    tensord__program_loop__free_unpacked(loop, NULL);
}

static void on_program_release(struct connection *connection, const uint8_t *message, size_t bytes) {
    Tensord__ProgramRelease *release = tensord__program_release__unpack(NULL, bytes, message);
    fake_log_note(connection->fake, "release program %llu\n", (unsigned long long)release->program);
    tensord__program_release__free_unpacked(release, NULL);
}

static void on_upload(struct connection *connection, const uint8_t *message, size_t bytes, const uint8_t *payload,
                      size_t payload_bytes) {
    Tensord__Upload *upload = tensord__upload__unpack(NULL, bytes, message);
    struct tensor_type type;
    uint64_t id = upload->id;
    if (!type_make(&type, upload->dtype, upload->shape, upload->n_shape, NULL) && id < TENSORS) {
        connection->tensors[id].type = type;
        connection->tensors[id].n = (uint64_t)type_bytes(&type);
        connection->tensors[id].bytes = malloc(connection->tensors[id].n + 1);
        connection->uploads_end = id + 1 > connection->uploads_end ? id + 1 : connection->uploads_end;
        if (payload_bytes)
            memcpy(connection->tensors[id].bytes, payload, payload_bytes);
        connection->tensors[id].at = payload_bytes;
    }
    connection->operations++;
    fake_log_note(connection->fake, "upload %llu %zu/%llu%s%s\n", (unsigned long long)id, payload_bytes,
                  (unsigned long long)type_bytes(&type), *upload->label ? " " : "", upload->label);
    tensord__upload__free_unpacked(upload, NULL);
}

static void on_chunk(struct connection *connection, const uint8_t *message, size_t bytes, const uint8_t *payload,
                     size_t payload_bytes) {
    Tensord__UploadChunk *chunk = tensord__upload_chunk__unpack(NULL, bytes, message);
    uint64_t id = chunk->id;
    if (id < TENSORS && chunk->offset == connection->tensors[id].at) {
        memcpy(connection->tensors[id].bytes + chunk->offset, payload, payload_bytes);
        connection->tensors[id].at += payload_bytes;
    }
    fake_log_note(connection->fake, "chunk %llu at %llu\n", (unsigned long long)id, (unsigned long long)chunk->offset);
    tensord__upload_chunk__free_unpacked(chunk, NULL);
}

static Tensord__Error poison(void) {
    Tensord__Error error = TENSORD__ERROR__INIT;
    error.code = STATUS_OUT_OF_RANGE;
    error.message = "index 9 at 0, the extent is 3";
    error.operation = "take";
    error.label = "poison";
    error.sequence = 7;
    return error;
}

static void on_fetch(struct connection *connection, uint64_t sequence, uint64_t id) {
    Tensord__FetchChunk chunk = TENSORD__FETCH_CHUNK__INIT;
    Tensord__Error error = poison();
    uint64_t n = id < TENSORS ? connection->tensors[id].n : 64;
    if (id < TENSORS && connection->tensors[id].poison) {
        chunk.error = &error;
        reply(connection, FRAME_FETCH_CHUNK, sequence, &chunk.base, NULL, 0);
        return;
    }
    uint8_t *bytes = malloc(n + 1);
    memset(bytes, (int)(id & 0xff), n);
    if (id < TENSORS && connection->tensors[id].bytes)
        memcpy(bytes, connection->tensors[id].bytes, n);
    chunk.total = n;
    do {
        size_t part = n - chunk.offset < FRAME_CHUNK ? n - chunk.offset : FRAME_CHUNK;
        reply(connection, FRAME_FETCH_CHUNK, sequence, &chunk.base, bytes + chunk.offset, part);
        chunk.offset += part;
    } while (chunk.offset < n);
    free(bytes);
}

static void on_question(struct connection *connection, const struct frame_header *header, const uint8_t *message) {
    Tensord__Wait *wait = tensord__wait__unpack(NULL, header->message_bytes, message);
    const char *name = header->type == FRAME_FETCH ? "fetch" : header->type == FRAME_WAIT ? "wait" : "sync";
    fake_log_note(connection->fake, "%s %llu\n", name, (unsigned long long)wait->id);
    Tensord__Done done = TENSORD__DONE__INIT;
    Tensord__Error error = poison();
    if (wait->id < TENSORS && connection->tensors[wait->id].poison)
        done.error = &error;
    if (connection->fake->mute || played(connection, &connection->fake->script, header->sequence))
        ;
    else if (header->type == FRAME_FETCH)
        on_fetch(connection, header->sequence, wait->id);
    else
        reply(connection, FRAME_DONE, header->sequence, &done.base, NULL, 0);
    tensord__wait__free_unpacked(wait, NULL);
}

static void on_copy(struct connection *connection, const struct frame_header *header, const uint8_t *message) {
    if (header->type == FRAME_COPY_OUT) {
        Tensord__CopyOut *out = tensord__copy_out__unpack(NULL, header->message_bytes, message);
        fake_log_note(connection->fake, "copy_out %llu to %s ticket %02x%02x%02x%02x\n", (unsigned long long)out->id,
                      out->device, out->ticket.data[0], out->ticket.data[1], out->ticket.data[2], out->ticket.data[3]);
        tensord__copy_out__free_unpacked(out, NULL);
        return;
    }
    Tensord__CopyIn *in = tensord__copy_in__unpack(NULL, header->message_bytes, message);
    connection->operations++;
    fake_log_note(connection->fake, "copy_in %llu ticket %02x%02x%02x%02x\n", (unsigned long long)in->id,
                  in->ticket.data[0], in->ticket.data[1], in->ticket.data[2], in->ticket.data[3]);
    tensord__copy_in__free_unpacked(in, NULL);
}

/* A source that begins with "wrong" does not compile, and has a log of some length. */
static void on_compile(struct connection *connection, const struct frame_header *header, const uint8_t *message) {
    Tensord__KernelCompile *compile = tensord__kernel_compile__unpack(NULL, header->message_bytes, message);
    Tensord__KernelCompiled compiled = TENSORD__KERNEL_COMPILED__INIT;
    Tensord__Error error = TENSORD__ERROR__INIT;
    static uint8_t log[100000];
    bool wrong = !strncmp(compile->source, "wrong", 5);
    fake_log_note(connection->fake, "compile %llu %s, %zu bytes\n", (unsigned long long)compile->kernel, compile->name,
                  strlen(compile->source));
    memset(log, 'l', sizeof log);
    error.code = STATUS_INVALID_ARGUMENT;
    error.message = "line 1";
    error.operation = "kernel";
    compiled.error = wrong ? &error : NULL;
    if (!played(connection, &connection->fake->script, header->sequence))
        reply(connection, FRAME_KERNEL_COMPILED, header->sequence, &compiled.base, log, wrong ? sizeof log : 0);
    tensord__kernel_compile__free_unpacked(compile, NULL);
}

/* Publish, RemoveName and MoveName are done, every name opens a tensor of two floats, and there are none to list. */
static void on_names(struct connection *connection, const struct frame_header *header) {
    struct fake_frame frame = {.type = FRAME_DONE, .dtype = DTYPE_F32, .extent = 2};
    fake_log_note(connection->fake, "%s\n", frame_type_name(header->type));
    if (header->type == FRAME_OPEN_NAME)
        frame.type = FRAME_NAME_OPENED;
    else if (header->type == FRAME_LIST_NAMES)
        frame.type = FRAME_NAME_LIST;
    if (!played(connection, &connection->fake->script, header->sequence))
        reply_scripted(connection, header->sequence, &frame);
}

static void on_frame(struct connection *connection, const struct frame_header *header, const uint8_t *message,
                     const uint8_t *payload) {
    size_t bytes = header->message_bytes, payload_bytes = (size_t)header->payload_bytes;
    switch (header->type) {
    case FRAME_HELLO:
        if (!connection->fake->silent && !played(connection, &connection->fake->greeting, header->sequence))
            on_hello(connection, header->sequence);
        break;
    case FRAME_LIST_DEVICES:
        if (!connection->fake->silent && !played(connection, &connection->fake->listing, header->sequence))
            on_list(connection, header->sequence);
        break;
    case FRAME_GET_STATUS:
        on_status(connection, header, message);
        break;
    case FRAME_KILL_SESSION:
        on_kill(connection, header, message);
        break;
    case FRAME_BATCH:
        if (!connection->fake->quiet)
            on_batch(connection, message, bytes);
        break;
    case FRAME_UPLOAD:
        on_upload(connection, message, bytes, payload, payload_bytes);
        break;
    case FRAME_UPLOAD_CHUNK:
        on_chunk(connection, message, bytes, payload, payload_bytes);
        break;
    case FRAME_FETCH:
    case FRAME_WAIT:
    case FRAME_SYNC:
        on_question(connection, header, message);
        break;
    case FRAME_PUBLISH:
    case FRAME_OPEN_NAME:
    case FRAME_LIST_NAMES:
    case FRAME_REMOVE_NAME:
    case FRAME_MOVE_NAME:
        on_names(connection, header);
        break;
    case FRAME_KERNEL_COMPILE:
        on_compile(connection, header, message);
        break;
    case FRAME_PROGRAM_DEFINE:
        on_define(connection, message, bytes);
        break;
    case FRAME_PROGRAM_LOOP:
        on_loop(connection, message, bytes);
        break;
    case FRAME_PROGRAM_RELEASE:
        on_program_release(connection, message, bytes);
        break;
    case FRAME_COPY_IN:
    case FRAME_COPY_OUT:
        on_copy(connection, header, message);
        break;
    default:
        fake_log_note(connection->fake, "%s\n", frame_type_name(header->type));
    }
}

static void serve_frames(struct connection *connection) {
    uint8_t head[FRAME_HEADER_BYTES];
    struct frame_header header;
    struct fault fault;
    while (receive(connection, head, sizeof head)) {
        if (frame_header_decode(head, FRAME_MESSAGE_MAX, FRAME_PAYLOAD_MAX, &header, &fault)) {
            fake_log_note(connection->fake, "bad frame: %s\n", fault.message);
            return;
        }
        uint8_t *message = malloc(header.message_bytes + 1), *payload = malloc(header.payload_bytes + 1);
        bool whole = receive(connection, message, header.message_bytes) &&
                     receive(connection, payload, (size_t)header.payload_bytes);
        bool refused = whole && header.type != FRAME_HELLO && atomic_exchange(&connection->fake->refuse, false);
        if (refused) {
            Tensord__Error error = TENSORD__ERROR__INIT;
            error.code = STATUS_LIMIT;
            error.message = "the session has too many tensors";
            reply(connection, FRAME_ERROR, 0, &error.base, NULL, 0);
        } else if (whole) {
            on_frame(connection, &header, message, payload);
        }
        free(message);
        free(payload);
        if (refused || !whole)
            return;
    }
}

static void *serve(void *argument) {
    struct connection *connection = argument;
    struct fake_daemon *fake = connection->fake;
    uint8_t preamble[PREAMBLE_BYTES];
    if (receive(connection, preamble, sizeof preamble) && !preamble_decode(preamble, &connection->target, NULL))
        serve_frames(connection);
    close(connection->fd);
    for (size_t i = 0; i < connection->uploads_end; i++)
        free(connection->tensors[i].bytes);
    munmap(connection, sizeof *connection);
    atomic_fetch_sub(&fake->connections, 1);
    return NULL;
}

static void *accept_all(void *argument) {
    struct fake_daemon *fake = argument;
    while (!fake->stop) {
        struct pollfd entry = {.fd = fake->listener, .events = POLLIN};
        if (poll(&entry, 1, 20) <= 0)
            continue;
        /* 7 MiB, of which little is touched: zero without being written, which calloc() is not where MALLOC_PERTURB_ is set. */
        struct connection *connection =
            mmap(NULL, sizeof *connection, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (connection == MAP_FAILED)
            abort();
        connection->fake = fake;
        connection->fd = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC);
        atomic_fetch_add(&fake->connections, 1);
        pthread_t thread;
        pthread_create(&thread, NULL, serve, connection);
        pthread_detach(thread);
    }
    return NULL;
}

void fake_daemon_start(struct fake_daemon *fake) {
    static atomic_int count;
    memset(fake, 0, sizeof *fake);
    fake->budget = -1;
    pthread_mutex_init(&fake->lock, NULL);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "/tmp/tensord-fake-%d-%d.sock", (int)getpid(),
             atomic_fetch_add(&count, 1));
    unlink(address.sun_path);
    fake->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(fake->listener, (struct sockaddr *)&address, sizeof address) || listen(fake->listener, 16)) {
        perror(address.sun_path);
        exit(1);
    }
    snprintf(fake->url, sizeof fake->url, "unix:%s", address.sun_path);
    pthread_create(&fake->thread, NULL, accept_all, fake);
}

void fake_daemon_stop(struct fake_daemon *fake) {
    fake->stop = true;
    pthread_join(fake->thread, NULL);
    while (fake->connections)
        nap();
    close(fake->listener);
    unlink(fake->url + strlen("unix:"));
    free(fake->log);
    pthread_mutex_destroy(&fake->lock);
}
