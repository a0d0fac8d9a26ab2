/* tensorctl trace: receives the traces of devices and writes them to a file. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/control.h"
#include "client/tensorctl/tensorctl.h"
#include "client/tensorctl/trace_file.h"
#include "proto/wire/frame.h"

enum {
    TRACE_DEVICES_MAX = 64,
    TRACE_OPEN_MS = 10000,
    TRACE_GRACE_MS = 10000, /* how long to wait for the last frame after the end of the trace */
};

/* One device, and the trace that comes from it. */
struct source {
    char name[64];
    unsigned number;
    struct transport transport; /* its descriptor is -1 when the trace has ended */
    struct frame_reader reader;
    uint8_t *payload;         /* FRAME_CHUNK bytes */
    Tensord__TraceData *data; /* the message of the present frame */
    uint64_t dropped;
    struct trace_file *file;
};

static volatile sig_atomic_t trace_interrupted;

static void trace_interrupt(int number) {
    (void)number;
    trace_interrupted = 1;
}

/* ---- frames of a device ---- */

static int source_error(const struct frame_header *header, const uint8_t *message, struct fault *fault) {
    Tensord__Error *error = tensord__error__unpack(NULL, header->message_bytes, message);
    int code = error ? control_fault(error, fault) : fault_set(fault, STATUS_PROTOCOL, "a malformed Error");
    tensord__error__free_unpacked(error, NULL);
    return code;
}

/* The frame is complete. STATUS_CANCELLED without a message: it was the last frame. */
static int source_end(struct source *source, struct fault *fault) {
    bool last = source->data->last;
    source->dropped = source->data->dropped;
    tensord__trace_data__free_unpacked(source->data, NULL);
    source->data = NULL;
    fault->message[0] = 0;
    return last ? STATUS_CANCELLED : STATUS_OK;
}

static int source_on_message(void *owner, const struct frame_header *header, const uint8_t *message, uint8_t **sink,
                             struct fault *fault) {
    struct source *source = owner;
    if (header->type == FRAME_ERROR)
        return source_error(header, message, fault);
    if (header->type != FRAME_TRACE_DATA)
        return fault_set(fault, STATUS_PROTOCOL, "%s instead of a trace", frame_type_name(header->type));
    tensord__trace_data__free_unpacked(source->data, NULL);
    source->data = tensord__trace_data__unpack(NULL, header->message_bytes, message);
    if (!source->data)
        return fault_set(fault, STATUS_PROTOCOL, "a malformed TraceData of %u bytes", header->message_bytes);
    if (source->data->error)
        return control_fault(source->data->error, fault);
    *sink = source->payload;
    return header->payload_bytes ? STATUS_OK : source_end(source, fault);
}

static int source_on_payload(void *owner, const struct frame_header *header, struct fault *fault) {
    struct source *source = owner;
    Tensord__TraceEvents *events = tensord__trace_events__unpack(NULL, header->payload_bytes, source->payload);
    if (!events)
        return fault_set(fault, STATUS_PROTOCOL, "malformed TraceEvents of %llu bytes",
                         (unsigned long long)header->payload_bytes);
    trace_file_add(source->file, source->number, events);
    tensord__trace_events__free_unpacked(events, NULL);
    return source_end(source, fault);
}

static const struct frame_handler source_handler = {source_on_message, source_on_payload};

/* Reads once; STATUS_CANCELLED at the end. */
static int source_read(struct source *source, struct fault *fault) {
    uint8_t *place;
    size_t want;
    frame_reader_want(&source->reader, &place, &want);
    ssize_t got = transport_read(&source->transport, place, want);
    if (got < 0 && errno == EAGAIN)
        return STATUS_OK;
    if (got <= 0)
        return fault_set(fault, STATUS_CONNECTION, "the daemon closed the connection");
    return frame_reader_advance(&source->reader, (size_t)got, &source_handler, source, fault);
}

/* ---- beginning and end ---- */

static void source_close(struct source *source) {
    if (source->transport.fd < 0)
        return;
    transport_hang_up(&source->transport);
    transport_finish(&source->transport);
    frame_reader_finish(&source->reader);
    tensord__trace_data__free_unpacked(source->data, NULL);
    free(source->payload);
    source->data = NULL;
    source->payload = NULL;
}

static int source_ask(struct source *source, const struct trace_wish *wish, struct fault *fault) {
    uint8_t bytes[FRAME_HEADER_BYTES + 32];
    Tensord__TraceStart start = TENSORD__TRACE_START__INIT;
    start.milliseconds = (uint32_t)(wish->seconds * 1e3 + 0.5);
    start.session = wish->session;
    struct frame_header header = {.type = FRAME_TRACE_START, .sequence = 2};
    header.message_bytes = (uint32_t)tensord__trace_start__get_packed_size(&start);
    frame_header_encode(&header, bytes);
    tensord__trace_start__pack(&start, bytes + FRAME_HEADER_BYTES);
    ssize_t n = FRAME_HEADER_BYTES + (ssize_t)header.message_bytes;
    struct iovec part = {bytes, (size_t)n};
    /* It fits the socket, because nothing else is being sent. */
    if (transport_write(&source->transport, &part, 1) != n || transport_flush(&source->transport))
        return fault_set(fault, STATUS_CONNECTION, "cannot send to the daemon: %s", strerror(errno));
    return STATUS_OK;
}

static int source_greet(struct source *source, struct fault *fault) {
    char token[TOKEN_BYTES_MAX];
    Tensord__Welcome *welcome = NULL;
    int code = token_find(NULL, token, fault);
    if (code == STATUS_OK)
        code = control_hello(&source->transport, "tensorctl trace " TENSORD_VERSION, token, false, NULL,
                             control_now_ms() + TRACE_OPEN_MS, &welcome, fault);
    explicit_bzero(token, sizeof token);
    if (code == STATUS_OK)
        tensord__welcome__free_unpacked(welcome, NULL);
    return code;
}

static int source_open(struct source *source, const char *url, struct tls_context *tls, const Tensord__Device *device,
                       const struct trace_wish *wish, struct fault *fault) {
    snprintf(source->name, sizeof source->name, "%s", device->name);
    source->payload = malloc(FRAME_CHUNK);
    if (!source->payload || frame_reader_init(&source->reader, FRAME_HEADER_BYTES + (64 << 10))) {
        free(source->payload);
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a trace");
    }
    frame_reader_limits(&source->reader, FRAME_MESSAGE_MAX, FRAME_CHUNK);
    const struct control_dial dial = {
        .url = url, .tls = tls, .target = (uint16_t)device->target, .deadline_ms = control_now_ms() + TRACE_OPEN_MS};
    int code = control_dial(&dial, &source->transport, fault);
    if (code != STATUS_OK) {
        source->transport.fd = -1;
        frame_reader_finish(&source->reader);
        free(source->payload);
        return code;
    }
    code = source_greet(source, fault);
    if (code == STATUS_OK)
        code = source_ask(source, wish, fault);
    if (code != STATUS_OK)
        source_close(source);
    return code;
}

/* ---- all devices ---- */

struct tracing {
    struct source sources[TRACE_DEVICES_MAX];
    unsigned n;
    struct trace_file file;
    struct fault first; /* what went wrong; code 0: nothing */
};

static void tracing_blame(struct tracing *tracing, const char *device, const struct fault *fault, int code) {
    if (!tracing->first.code)
        fault_set(&tracing->first, (enum status)code, "%s: %.200s", device, fault->message);
}

static bool tracing_wants(const Tensord__Device *device, const char *const names[], int n_names) {
    for (int i = 0; i < n_names; i++)
        if (!strcmp(names[i], device->name))
            return true;
    return !n_names && !strcmp(device->state, "ready");
}

static void tracing_open(struct tracing *tracing, const char *url, struct tls_context *tls,
                         const Tensord__DeviceList *list, const char *const names[], int n_names,
                         const struct trace_wish *wish) {
    for (size_t i = 0; i < list->n_devices && tracing->n < TRACE_DEVICES_MAX && !trace_interrupted; i++) {
        struct source *source = &tracing->sources[tracing->n];
        struct fault fault = {0};
        if (!tracing_wants(list->devices[i], names, n_names))
            continue;
        *source = (struct source){.transport.fd = -1, .number = (unsigned)i, .file = &tracing->file};
        int code = source_open(source, url, tls, list->devices[i], wish, &fault);
        if (code != STATUS_OK) {
            tracing_blame(tracing, list->devices[i]->name, &fault, code);
            continue;
        }
        tracing->n++;
    }
}

static void tracing_read(struct tracing *tracing, struct source *source) {
    struct fault fault = {0};
    int code;
    do
        code = source_read(source, &fault);
    while (code == STATUS_OK && transport_more(&source->transport)); /* poll() does not report data that TLS has read */
    if (code == STATUS_OK)
        return;
    if (code != STATUS_CANCELLED || *fault.message)
        tracing_blame(tracing, source->name, &fault, code);
    trace_file_dropped(&tracing->file, source->number, source->dropped);
    if (source->dropped)
        fprintf(stderr, "tensorctl: %s: %llu events are missing, for they came faster than they could be sent\n",
                source->name, (unsigned long long)source->dropped);
    source_close(source);
}

/* Runs until all traces have ended, the user interrupts, or the time is long over. */
static void tracing_run(struct tracing *tracing, double seconds) {
    int64_t deadline_ms = control_now_ms() + (int64_t)(seconds * 1e3) + TRACE_GRACE_MS;
    while (!trace_interrupted) {
        struct pollfd polls[TRACE_DEVICES_MAX];
        unsigned open = 0;
        int64_t left = deadline_ms - control_now_ms();
        for (unsigned i = 0; i < tracing->n; i++) {
            polls[i] = (struct pollfd){.fd = tracing->sources[i].transport.fd, .events = POLLIN};
            open += tracing->sources[i].transport.fd >= 0;
        }
        if (!open)
            return;
        if (left <= 0 || (poll(polls, tracing->n, (int)left) < 0 && errno != EINTR))
            break;
        for (unsigned i = 0; i < tracing->n; i++)
            if (polls[i].fd >= 0 && polls[i].revents)
                tracing_read(tracing, &tracing->sources[i]);
    }
    const struct fault late = {.message = "its trace did not end in time"};
    for (unsigned i = 0; i < tracing->n; i++)
        if (tracing->sources[i].transport.fd >= 0) {
            if (!trace_interrupted)
                tracing_blame(tracing, tracing->sources[i].name, &late, STATUS_TIMED_OUT);
            source_close(&tracing->sources[i]);
        }
}

static int tracing_do(struct tracing *tracing, const char *url, struct tls_context *tls,
                      const Tensord__DeviceList *list, const struct trace_wish *wish, const char *const names[],
                      int n_names, struct fault *fault) {
    char text[CONTROL_URL_MAX];
    int code = control_url(url, text, fault);
    if (code == STATUS_OK)
        code = control_check_names(names, n_names, list->devices, list->n_devices, fault);
    if (code != STATUS_OK)
        return code;
    const char *path = wish->path;
    sigaction(SIGINT, &(struct sigaction){.sa_handler = trace_interrupt}, NULL);
    tracing_open(tracing, text, tls, list, names, n_names, wish);
    if (tracing->n == 0 && tracing->first.code) { /* there is no trace: an older file stays as it is */
        *fault = tracing->first;
        return (int)fault->code;
    }
    if (!trace_file_open(&tracing->file, path)) {
        code = fault_set(fault, STATUS_INVALID_ARGUMENT, "cannot write %.150s: %s", path, strerror(errno));
        for (unsigned i = 0; i < tracing->n; i++)
            source_close(&tracing->sources[i]);
        return code;
    }
    for (unsigned i = 0; i < tracing->n; i++)
        trace_file_device(&tracing->file, tracing->sources[i].number, tracing->sources[i].name);
    tracing_run(tracing, wish->seconds);
    unsigned long long events = tracing->file.events;
    if (!trace_file_close(&tracing->file))
        return fault_set(fault, STATUS_INTERNAL, "cannot write %.150s: %s", path, strerror(errno));
    if (tracing->first.code) {
        *fault = tracing->first;
        return (int)fault->code;
    }
    fprintf(strcmp(path, "-") != 0 ? stdout : stderr, "%s: %llu events of %u device%s\n", path, events, tracing->n,
            tracing->n == 1 ? "" : "s");
    return STATUS_OK;
}

int tensorctl_trace(struct control *control, const char *url, const struct trace_wish *wish,
                    const char *const devices[], int n_devices, struct fault *fault) {
    Tensord__ListDevices request = TENSORD__LIST_DEVICES__INIT;
    Tensord__DeviceList *list;
    int code =
        control_call(control, FRAME_LIST_DEVICES, &request.base, FRAME_DEVICE_LIST, (ProtobufCMessage **)&list, fault);
    if (code != STATUS_OK)
        return code;
    struct tracing *tracing = calloc(1, sizeof *tracing);
    code = tracing ? tracing_do(tracing, url, control_tls(control), list, wish, devices, n_devices, fault)
                   : fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a trace");
    free(tracing);
    tensord__device_list__free_unpacked(list, NULL);
    return code;
}
