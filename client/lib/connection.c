#include "client/lib/connection.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/device.h"
#include "client/lib/error.h"
#include "client/lib/resume.h"
#include "proto/wire/frame.h"

/* The default holds some 170,000 small operations. A queue that is larger than the processor's caches goes to memory and back:
 * measured with 10 M operations, 64 MiB made each operation 25 % slower. */
enum { QUEUE_BYTES = 4 << 20, QUEUE_BYTES_MIN = 64 << 10 };

/* All open connections with their devices: so closing one twice is noticed and does no harm. */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static td_connection *open_first;

static void open_add(td_connection *connection) {
    pthread_mutex_lock(&open_lock);
    connection->next = open_first;
    open_first = connection;
    pthread_mutex_unlock(&open_lock);
}

static void open_add_device(td_connection *connection, td_device *device) {
    pthread_mutex_lock(&open_lock);
    device->next = connection->devices;
    connection->devices = device;
    pthread_mutex_unlock(&open_lock);
}

/* False: the connection is not in the list. */
static bool open_remove(td_connection *connection) {
    pthread_mutex_lock(&open_lock);
    td_connection **place = &open_first;
    while (*place && *place != connection)
        place = &(*place)->next;
    bool found = *place;
    if (found)
        *place = connection->next;
    pthread_mutex_unlock(&open_lock);
    return found;
}

/* The device's connection; NULL: the device is not in the list. */
static td_connection *open_remove_device(const td_device *device) {
    pthread_mutex_lock(&open_lock);
    td_connection *connection = open_first;
    for (; connection; connection = connection->next) {
        td_device **place = &connection->devices;
        while (*place && *place != device)
            place = &(*place)->next;
        if (*place) {
            *place = device->next;
            break;
        }
    }
    pthread_mutex_unlock(&open_lock);
    return connection;
}

bool connection_same_daemon(const td_connection *a, const td_connection *b) {
    return a == b || !strcmp(a->url, b->url);
}

static void connection_free(td_connection *connection) {
    control_close(connection->control);
    pthread_mutex_destroy(&connection->lock);
    tls_context_release(connection->tls);
    free(connection->client_name);
    explicit_bzero(connection->token, sizeof connection->token);
    free(connection);
}

static int connection_control(td_connection *connection, struct fault *fault) {
    if (connection->control)
        return 0;
    return control_open(connection->url, connection->tls, connection->timeout_ms, connection->client_name,
                        connection->token, &connection->control, fault);
}

int td_connect(const char *url, const td_options *options, td_connection **out) {
    static const td_options defaults;
    options = options ? options : &defaults;
    if (!out)
        return error_set(STATUS_INVALID_ARGUMENT, "the place for the connection is NULL");
    td_connection *connection = calloc(1, sizeof *connection);
    if (!connection)
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for a connection");
    pthread_mutex_init(&connection->lock, NULL);
    connection->timeout_ms = options->timeout_ms ? options->timeout_ms : CONTROL_TIMEOUT_MS;
    connection->queue_bytes = options->queue_bytes ? options->queue_bytes : QUEUE_BYTES;
    connection->allow_tf32 = options->allow_tf32;
    connection->reconnect_ms = options->reconnect_ms;
    connection->heartbeat_ms = options->heartbeat_ms;
    if (connection->queue_bytes < QUEUE_BYTES_MIN)
        connection->queue_bytes = QUEUE_BYTES_MIN;
    struct fault fault = {0};
    int code = control_url(url, connection->url, &fault);
    if (!code)
        code = token_find(options->token, connection->token, &fault);
    if (!code && options->client_name && !(connection->client_name = strdup(options->client_name)))
        code = fault_set(&fault, STATUS_NO_HOST_MEMORY, "no memory for a connection");
    if (!code)
        code = secure_create(connection->url,
                             &(struct secure_files){options->ca_file, options->cert_file, options->key_file},
                             &connection->tls, &fault);
    if (!code)
        code = connection_control(connection, &fault);
    if (code) {
        connection_free(connection);
        return error_fault(&fault, NULL, NULL);
    }
    open_add(connection);
    *out = connection;
    return 0;
}

void td_close(td_connection *connection) {
    if (!connection)
        return;
    if (!open_remove(connection)) {
        error_set(STATUS_INVALID_ARGUMENT, "the connection is closed already");
        return;
    }
    int64_t deadline_ms = control_now_ms() + connection->timeout_ms;
    while (connection->devices) {
        td_device *device = connection->devices;
        connection->devices = device->next;
        int64_t left = deadline_ms - control_now_ms();
        device_destroy(device, left > 0 ? (unsigned)left : 0);
    }
    connection_free(connection);
}

/* Under the lock. If the control connection has ended (the daemon was restarted), it is opened again, once. */
static int list_devices(td_connection *connection, Tensord__DeviceList **list, struct fault *fault) {
    Tensord__ListDevices request = TENSORD__LIST_DEVICES__INIT;
    for (int attempt = 0;; attempt++) {
        ProtobufCMessage *reply;
        bool fresh = !connection->control;
        int code = connection_control(connection, fault);
        if (!code)
            code =
                control_call(connection->control, FRAME_LIST_DEVICES, &request.base, FRAME_DEVICE_LIST, &reply, fault);
        if (!code) {
            *list = (Tensord__DeviceList *)reply;
            return 0;
        }
        control_close(connection->control);
        connection->control = NULL;
        if (fresh || attempt || code != STATUS_CONNECTION)
            return code;
    }
}

static void info_fill(td_device_info *info, const Tensord__Device *device) {
    memset(info, 0, sizeof *info);
    snprintf(info->name, sizeof info->name, "%s", device->name);
    snprintf(info->kind, sizeof info->kind, "%s", device->kind);
    snprintf(info->state, sizeof info->state, "%s", device->state);
    snprintf(info->model, sizeof info->model, "%s", device->model);
    snprintf(info->capability, sizeof info->capability, "%s", device->capability);
    info->processors = device->processors;
    info->memory_total = device->memory_total;
    snprintf(info->uuid, sizeof info->uuid, "%s", device->uuid);
}

int td_devices(td_connection *connection, td_device_info *infos, size_t capacity, size_t *count) {
    if (!connection || !count || (capacity && !infos))
        return error_set(STATUS_INVALID_ARGUMENT, "the connection or a place for the result is NULL");
    Tensord__DeviceList *list;
    struct fault fault = {0};
    pthread_mutex_lock(&connection->lock);
    int code = list_devices(connection, &list, &fault);
    pthread_mutex_unlock(&connection->lock);
    if (code)
        return error_fault(&fault, NULL, NULL);
    for (size_t i = 0; i < list->n_devices && i < capacity; i++)
        info_fill(&infos[i], list->devices[i]);
    *count = list->n_devices;
    tensord__device_list__free_unpacked(list, NULL);
    return 0;
}

/* Name and target of the device with this name (NULL: the daemon's first device). */
static int resolve(td_connection *connection, const char *name, char found_name[TD_NAME_MAX], uint16_t *target,
                   struct fault *fault) {
    Tensord__DeviceList *list;
    pthread_mutex_lock(&connection->lock);
    int code = list_devices(connection, &list, fault);
    pthread_mutex_unlock(&connection->lock);
    if (code)
        return code;
    const Tensord__Device *found = NULL;
    for (size_t i = 0; i < list->n_devices && !found; i++)
        if (!name || !strcmp(list->devices[i]->name, name))
            found = list->devices[i];
    if (!found) {
        code = control_no_device(name ? name : "", list->devices, list->n_devices, fault);
    } else if (found->target >= PREAMBLE_TARGET_DEFAULT || strlen(found->name) >= TD_NAME_MAX) {
        code = fault_set(fault, STATUS_PROTOCOL, "device \"%.80s\" cannot be target %u", found->name, found->target);
    } else {
        *target = (uint16_t)found->target;
        strcpy(found_name, found->name);
    }
    tensord__device_list__free_unpacked(list, NULL);
    return code;
}

static int open_session(td_connection *connection, const char *name, uint16_t target, td_device **device,
                        struct fault *fault) {
    int64_t deadline_ms = control_now_ms() + connection->timeout_ms;
    Tensord__Welcome *welcome;
    struct transport transport;
    const struct control_dial dial = {
        .url = connection->url, .tls = connection->tls, .target = target, .deadline_ms = deadline_ms};
    int code = control_dial(&dial, &transport, fault);
    if (code)
        return code;
    struct resume resume;
    resume_init(&resume, connection, target);
    code = control_hello(&transport, connection->client_name, connection->token, connection->allow_tf32, &resume,
                         deadline_ms, &welcome, fault);
    if (code) {
        transport_finish(&transport);
        return code;
    }
    uint64_t chunk_bytes = welcome->chunk_bytes_max;
    if (!chunk_bytes || chunk_bytes > FRAME_CHUNK)
        chunk_bytes = FRAME_CHUNK;
    /* Targets are numbers: a daemon that was restarted meanwhile may have given the number to another device. */
    if (strcmp(welcome->device, name) != 0)
        code =
            fault_set(fault, STATUS_NO_DEVICE, "the daemon opened \"%.64s\" instead of \"%s\"", welcome->device, name);
    resume_welcome(&resume, welcome, transport.fd);
    if (code)
        transport_finish(&transport);
    else
        code = device_create(&transport, name, connection->queue_bytes, (size_t)chunk_bytes, &resume, device, fault);
    tensord__welcome__free_unpacked(welcome, NULL);
    return code;
}

int td_device_open(td_connection *connection, const char *name, td_device **out) {
    if (!connection || !out)
        return error_set(STATUS_INVALID_ARGUMENT, "the connection or the place for the device is NULL");
    struct fault fault = {0};
    char found[TD_NAME_MAX];
    uint16_t target = 0;
    td_device *device = NULL;
    int code = resolve(connection, name, found, &target, &fault);
    if (!code)
        code = open_session(connection, found, target, &device, &fault);
    if (code)
        return error_fault(&fault, NULL, NULL);
    device->connection = connection;
    open_add_device(connection, device);
    *out = device;
    return 0;
}

void td_device_close(td_device *device) {
    if (!device)
        return;
    const td_connection *connection = open_remove_device(device);
    if (connection)
        device_destroy(device, connection->timeout_ms);
    else
        error_set(STATUS_INVALID_ARGUMENT, "the device is closed already");
}

const char *td_version(void) {
    return TENSORD_VERSION;
}
