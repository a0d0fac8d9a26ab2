#include "client/trace_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json.h"

bool trace_file_open(struct trace_file *file, const char *path) {
    *file = (struct trace_file){.out = strcmp(path, "-") != 0 ? fopen(path, "w") : stdout};
    if (file->out)
        fputs("{\"displayTimeUnit\": \"ns\", \"traceEvents\": [", file->out);
    return file->out;
}

bool trace_file_close(struct trace_file *file) {
    fputs("\n]}\n", file->out);
    bool written = !ferror(file->out) && !file->no_memory;
    int error = file->no_memory ? ENOMEM : errno;
    if (file->out == stdout ? fflush(stdout) : fclose(file->out)) {
        written = false;
        error = errno;
    }
    free(file->tracks);
    *file = (struct trace_file){0};
    errno = error;
    return written;
}

/* Begins an event; the caller goes on with `, "key": …}`. Numbers of processes and threads begin at 1. */
static void file_event(struct trace_file *file, const char *phase, unsigned device) {
    fprintf(file->out, "%s\n{\"ph\": \"%s\", \"pid\": %u", file->any ? "," : "", phase, device + 1);
    file->any = true;
}

/* As a string. */
static void file_text(struct trace_file *file, const char *text) {
    struct json json = {.out = file->out, .first = true};
    json_text(&json, NULL, text);
}

/* Microseconds, with all nanoseconds. */
static void file_time(struct trace_file *file, const char *key, uint64_t ns) {
    fprintf(file->out, ", \"%s\": %" PRIu64 ".%03u", key, ns / 1000, (unsigned)(ns % 1000));
}

void trace_file_device(struct trace_file *file, unsigned device, const char *name) {
    file_event(file, "M", device);
    fputs(", \"name\": \"process_name\", \"args\": {\"name\": ", file->out);
    file_text(file, name);
    fputs("}}", file->out);
}

static void file_name_track(struct trace_file *file, size_t number) {
    const struct trace_track *track = &file->tracks[number];
    static const char *const roles[] = {"uploads", "fetches", "copies from other devices"};
    file_event(file, "M", track->device);
    fprintf(file->out, ", \"tid\": %zu, \"name\": \"thread_name\", \"args\": {\"name\": \"session %" PRIu64 " ",
            number + 1, track->session);
    if (track->role < 0 && track->role >= -3)
        fputs(roles[-1 - track->role], file->out);
    else
        fprintf(file->out, "stream %" PRId32, track->role);
    fputs("\"}}", file->out);
}

static bool track_is(const struct trace_track *track, const struct trace_track *wanted) {
    return track->device == wanted->device && track->stream == wanted->stream && track->session == wanted->session &&
           track->role == wanted->role;
}

/* The track's place; a new one is named in the file. */
static size_t file_track(struct trace_file *file, const struct trace_track *wanted) {
    if (file->n_tracks && track_is(&file->tracks[file->last_track], wanted))
        return file->last_track;
    for (size_t i = 0; i < file->n_tracks; i++)
        if (track_is(&file->tracks[i], wanted))
            return file->last_track = i;
    struct trace_track *tracks = realloc(file->tracks, (file->n_tracks + 1) * sizeof *tracks);
    if (!tracks) {
        file->no_memory = true;
        return file->last_track;
    }
    file->tracks = tracks;
    file->last_track = file->n_tracks++;
    file->tracks[file->last_track] = *wanted;
    file_name_track(file, file->last_track);
    return file->last_track;
}

static void file_slice(struct trace_file *file, unsigned device, const Tensord__TraceEvent *event) {
    const struct trace_track track = {device, event->stream, event->session, event->role};
    size_t number = file_track(file, &track);
    file_event(file, "X", device);
    fprintf(file->out, ", \"tid\": %zu, \"cat\": \"%s\", \"name\": ", number + 1,
            event->role < 0 ? "copy" : "operation");
    file_text(file, event->name);
    file_time(file, "ts", event->begin_ns);
    file_time(file, "dur", event->duration_ns);
    fputs(", \"args\": {\"label\": ", file->out);
    file_text(file, event->label);
    fprintf(file->out, ", \"session\": %" PRIu64 ", \"sequence\": %" PRIu64 ", \"bytes\": %" PRIu64 "}}",
            event->session, event->sequence, event->bytes);
    file->events++;
}

static void file_counter(struct trace_file *file, unsigned device, const char *name, uint64_t at_ns, const char *unit,
                         uint64_t value) {
    file_event(file, "C", device);
    fprintf(file->out, ", \"name\": \"%s\"", name);
    file_time(file, "ts", at_ns);
    fprintf(file->out, ", \"args\": {\"%s\": %" PRIu64 "}}", unit, value);
}

void trace_file_add(struct trace_file *file, unsigned device, const Tensord__TraceEvents *events) {
    for (size_t i = 0; i < events->n_events; i++)
        file_slice(file, device, events->events[i]);
    for (size_t i = 0; i < events->n_counters; i++) {
        const Tensord__TraceCounters *counters = events->counters[i];
        file_counter(file, device, "memory live", counters->at_ns, "bytes", counters->memory_live);
        file_counter(file, device, "queue depth", counters->at_ns, "operations", counters->queue_depth);
    }
}

void trace_file_dropped(struct trace_file *file, unsigned device, uint64_t dropped) {
    if (!dropped)
        return;
    file_event(file, "M", device);
    fprintf(file->out, ", \"name\": \"process_labels\", \"args\": {\"labels\": \"%" PRIu64 " events are missing\"}}",
            dropped);
}
