#include "client/lib/stream.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/device.h"
#include "client/lib/error.h"
#include "client/lib/frame.h"
#include "proto/ops/cleanup.h"

struct td_stream {
    struct td_device *device;
    struct td_stream *next;
    uint32_t number;
};

/* The stream that a thread uses on a device. Most threads set no stream; a thread that does sets one or two. */
struct choice {
    struct choice *next;
    uint64_t device; /* its serial */
    uint32_t stream;
};

_Thread_local struct choice *stream_choices;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t exit_key;
static bool exit_key_made;

static void choices_free(void *unused) {
    (void)unused;
    while (stream_choices) {
        struct choice *choice = stream_choices;
        stream_choices = choice->next;
        free(choice);
    }
}

static void exit_key_create(void) {
    exit_key_made = !pthread_key_create(&exit_key, choices_free);
}

void streams_finish(struct streams *streams) {
    while (streams->first) {
        struct td_stream *stream = streams->first;
        streams->first = stream->next;
        free(stream);
    }
}

static bool stream_is_open(const td_device *device, uint32_t number) {
    for (const td_stream *stream = device->streams.first; stream; stream = stream->next)
        if (stream->number == number)
            return true;
    return false;
}

int stream_chosen(td_device *device, uint32_t *number) {
    for (const struct choice *choice = stream_choices; choice; choice = choice->next)
        if (choice->device == device->serial)
            *number = choice->stream;
    if (!*number || stream_is_open(device, *number))
        return 0;
    return error_set(STATUS_INVALID_ARGUMENT, "the stream that this thread has set on %s was closed", device->name);
}

static int choice_set(const td_device *device, uint32_t number) {
    struct choice **place = &stream_choices;
    while (*place && (*place)->device != device->serial)
        place = &(*place)->next;
    struct choice *choice = *place;
    if (choice && number) {
        choice->stream = number;
    } else if (choice) {
        *place = choice->next;
        free(choice);
    } else if (number) {
        choice = malloc(sizeof *choice);
        if (!choice)
            return error_set(STATUS_NO_HOST_MEMORY, "no memory for a stream's choice");
        *choice = (struct choice){.next = stream_choices, .device = device->serial, .stream = number};
        stream_choices = choice;
        pthread_once(&once, exit_key_create);
        if (exit_key_made)
            pthread_setspecific(exit_key, choice);
    }
    return 0;
}

void stream_forget_device(const td_device *device) {
    choice_set(device, 0);
}

int td_stream_open(td_device *device, int priority, td_stream **out) {
    if (!device || !out)
        return error_set(STATUS_INVALID_ARGUMENT, "the %s is NULL", device ? "place for the stream" : "device");
    CLEANUP(free) td_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for a stream");
    Tensord__StreamOpen message = TENSORD__STREAM_OPEN__INIT;
    message.priority = priority;
    pthread_mutex_lock(&device->lock);
    message.stream = device->streams.last_number + 1;
    int code = frame_push(device, FRAME_STREAM_OPEN, &message.base, 0);
    if (!code) {
        *stream = (td_stream){.device = device, .next = device->streams.first, .number = ++device->streams.last_number};
        device->streams.first = stream;
    }
    pthread_mutex_unlock(&device->lock);
    if (!code)
        *out = TAKE(stream);
    return code;
}

void td_stream_close(td_stream *stream) {
    if (!stream)
        return;
    td_device *device = stream->device;
    Tensord__StreamClose message = TENSORD__STREAM_CLOSE__INIT;
    message.stream = stream->number;
    pthread_mutex_lock(&device->lock);
    td_stream **place = &device->streams.first;
    while (*place != stream)
        place = &(*place)->next;
    *place = stream->next;
    /* If there is no room for the message, the stream stays open on the device until the session ends. */
    (void)frame_push(device, FRAME_STREAM_CLOSE, &message.base, 0);
    pthread_mutex_unlock(&device->lock);
    free(stream);
}

int td_stream_set(td_device *device, td_stream *stream) {
    if (!device)
        return error_set(STATUS_INVALID_ARGUMENT, "the device is NULL");
    if (stream && stream->device != device)
        return error_set(STATUS_DEVICE_MISMATCH, "the stream is on %s, not on %s", stream->device->name, device->name);
    return choice_set(device, stream ? stream->number : 0);
}
