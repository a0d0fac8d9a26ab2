#include "client/tensorctl/trace_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/files/json.h"
#include "proto/files/status_json.h"
#include "proto/ops/dtype.h"

bool trace_file_open(struct trace_file *file, const char *path) {
    *file = (struct trace_file){.out = strcmp(path, "-") != 0 ? fopen(path, "w") : stdout};
    if (file->out)
        fputs("{\"displayTimeUnit\": \"ns\", \"traceEvents\": [", file->out);
    return file->out;
}

/* Begins an event; the caller continues with `, "key": …}`. Numbers of processes and threads begin at 1. */
static void file_event(struct trace_file *file, const char *phase, unsigned device) {
    fprintf(file->out, "%s\n{\"ph\": \"%s\", \"pid\": %u", file->any ? "," : "", phase, device + 1);
    file->any = true;
}

/* Writes a text as a JSON string. */
static void file_text(struct trace_file *file, const char *text) {
    struct json json = {.out = file->out, .first = true};
    json_text(&json, NULL, text);
}

/* Writes a time in microseconds, with three decimals for the nanoseconds. */
static void file_time(struct trace_file *file, const char *key, uint64_t ns) {
    fprintf(file->out, ", \"%s\": %" PRIu64 ".%03u", key, ns / 1000, (unsigned)(ns % 1000));
}

void trace_file_device(struct trace_file *file, unsigned device, const char *name) {
    file_event(file, "M", device);
    fputs(", \"name\": \"process_name\", \"args\": {\"name\": ", file->out);
    file_text(file, name);
    fputs("}}", file->out);
}

/* The newest session with this number; NULL: there is none. */
static const struct trace_session *file_session(const struct trace_file *file, uint64_t number) {
    for (size_t i = file->n_sessions; i-- > 0;)
        if (file->sessions[i].number == number)
            return &file->sessions[i];
    return NULL;
}

static void file_add_session(struct trace_file *file, const Tensord__TraceSession *session) {
    struct trace_session *sessions = realloc(file->sessions, (file->n_sessions + 1) * sizeof *sessions);
    char program[128], *words = NULL;
    if (sessions)
        file->sessions = sessions;
    figures_program(session->client, program, sizeof program);
    if (!sessions || asprintf(&words, "%s (%s)", program, session->principal) < 0) {
        file->no_memory = true;
        return;
    }
    file->sessions[file->n_sessions++] = (struct trace_session){session->session, words};
}

/* The number of a track's thread, or of the thread with its enqueued operations. */
static size_t track_thread(size_t number, bool enqueued) {
    return 2 * number + (enqueued ? 2 : 1);
}

static void file_name_track(struct trace_file *file, size_t number, bool enqueued) {
    const struct trace_track *track = &file->tracks[number];
    static const char *const roles[] = {"uploads", "fetches", "copies from other devices"};
    file_event(file, "M", track->device);
    const struct trace_session *session = file_session(file, track->session);
    char *name = NULL;
    size_t bytes;
    FILE *out = open_memstream(&name, &bytes);
    fprintf(file->out,
            ", \"tid\": %zu, \"name\": \"thread_name\", \"args\": {\"name\": ", track_thread(number, enqueued));
    if (out) {
        fprintf(out, "session %" PRIu64 " ", track->session);
        if (track->role < 0 && track->role >= -3)
            fputs(roles[-1 - track->role], out);
        else
            fprintf(out, "stream %" PRId32, track->role);
        if (enqueued)
            fputs(", enqueued", out);
        if (session)
            fprintf(out, ": %s", session->words);
        fclose(out);
    }
    file->no_memory |= !name;
    file_text(file, name ? name : "");
    fputs("}}", file->out);
    free(name);
}

static bool track_is(const struct trace_track *track, const struct trace_track *wanted) {
    return track->device == wanted->device && track->stream == wanted->stream && track->session == wanted->session &&
           track->role == wanted->role;
}

/* The index of the track. A new track gets its name in the file. */
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
    file_name_track(file, file->last_track, false);
    return file->last_track;
}

/* "f32 (64, 784)": the operand whose extents begin at `extent`; returns where the next ones begin. The message comes from
 * elsewhere and may have too few extents. */
static size_t file_operand(struct trace_file *file, const Tensord__TraceEvent *event, size_t operand, size_t extent) {
    uint32_t dtype = event->dtypes[operand], rank = event->ranks[operand];
    fprintf(file->out, "%s (", dtype < DTYPE_COUNT ? dtype_name((enum dtype)dtype) : "unknown");
    for (uint32_t i = 0; i < rank && extent < event->n_extents; i++)
        fprintf(file->out, "%s%" PRId64, i ? ", " : "", event->extents[extent++]);
    fputs(rank == 1 ? ",)" : ")", file->out);
    return extent;
}

static void file_operands(struct trace_file *file, const Tensord__TraceEvent *event) {
    size_t n = event->n_dtypes < event->n_ranks ? event->n_dtypes : event->n_ranks, extent = 0;
    for (size_t i = 0; i < n; i++) {
        fputs(i == 0 ? ", \"output\": \"" : i == 1 ? "\", \"inputs\": \"" : ", ", file->out);
        extent = file_operand(file, event, i, extent);
    }
    fputs(n ? "\"" : "", file->out);
}

/* A slice on one of the track's threads; the caller continues with `, "args": {…}}`. */
static void file_span(struct trace_file *file, size_t track, bool enqueued, const char *category, const char *name,
                      uint64_t at_ns, uint64_t ns) {
    file_event(file, "X", file->tracks[track].device);
    fprintf(file->out, ", \"tid\": %zu, \"cat\": \"%s\", \"name\": ", track_thread(track, enqueued), category);
    file_text(file, name);
    file_time(file, "ts", at_ns);
    file_time(file, "dur", ns);
}

/* One end of the newest arrow; it belongs to the slice that begins on that thread at that time. */
static void file_arrow(struct trace_file *file, size_t track, bool enqueued, uint64_t at_ns) {
    file_event(file, enqueued ? "s" : "f", file->tracks[track].device);
    fprintf(file->out, ", \"tid\": %zu, \"cat\": \"queue\", \"name\": \"queued\", \"bp\": \"e\", \"id\": %" PRIu64,
            track_thread(track, enqueued), file->arrows);
    file_time(file, "ts", at_ns);
    fputs("}", file->out);
}

/* An arrow to the launch's slice from the slice of its enqueuing. Launches that were enqueued at the same time share that slice. */
static void file_queued(struct trace_file *file, size_t number, const Tensord__TraceEvent *event) {
    struct trace_track *track = &file->tracks[number];
    uint64_t enqueued_ns = event->begin_ns - event->queued_ns;
    if (!track->enqueued_ns)
        file_name_track(file, number, true);
    if (track->enqueued_ns != enqueued_ns) {
        file_span(file, number, true, "enqueue", "enqueue", enqueued_ns, 0);
        fputs("}", file->out);
    }
    track->enqueued_ns = enqueued_ns;
    file->arrows++;
    file_arrow(file, number, true, enqueued_ns);
    file_arrow(file, number, false, event->begin_ns);
}

static void file_slice(struct trace_file *file, unsigned device, const Tensord__TraceEvent *event) {
    const struct trace_track track = {device, event->stream, event->session, event->role, 0};
    bool queued = event->queued_ns && event->queued_ns < event->begin_ns;
    size_t number = file_track(file, &track);
    if (file->no_memory)
        return;
    file_span(file, number, false, event->role < 0 ? "copy" : "operation", event->name, event->begin_ns,
              event->duration_ns);
    fputs(", \"args\": {\"label\": ", file->out);
    file_text(file, event->label);
    fprintf(file->out, ", \"session\": %" PRIu64 ", \"sequence\": %" PRIu64 ", \"bytes\": %" PRIu64, event->session,
            event->sequence, event->bytes);
    if (queued)
        file_time(file, "queued_us", event->queued_ns);
    file_operands(file, event);
    fputs("}}", file->out);
    if (queued)
        file_queued(file, number, event);
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
    for (size_t i = 0; i < events->n_sessions; i++)
        file_add_session(file, events->sessions[i]);
    for (size_t i = 0; i < events->n_events; i++)
        file_slice(file, device, events->events[i]);
    for (size_t i = 0; i < events->n_counters; i++) {
        const Tensord__TraceCounters *counters = events->counters[i];
        if (!file->wall_ns) {
            file->at_ns = counters->at_ns;
            file->wall_ns = counters->wall_ns;
        }
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

/* ---- the end ---- */

/* The moment of the beginning by the daemon's wall clock and by the clock of this file, to compare the trace with a log. */
static void file_started(const struct trace_file *file) {
    time_t seconds = (time_t)(file->wall_ns / 1000000000);
    struct tm utc;
    char text[32];
    if (!file->wall_ns || !gmtime_r(&seconds, &utc) || !strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc))
        return;
    fprintf(file->out, ", \"otherData\": {\"started\": \"%s.%06uZ\", \"started_ts\": %" PRIu64 ".%03u}", text,
            (unsigned)(file->wall_ns % 1000000000 / 1000), file->at_ns / 1000, (unsigned)(file->at_ns % 1000));
}

bool trace_file_close(struct trace_file *file) {
    fputs("\n]", file->out);
    file_started(file);
    fputs("}\n", file->out);
    bool written = !ferror(file->out) && !file->no_memory;
    int error = file->no_memory ? ENOMEM : errno;
    if (file->out == stdout ? fflush(stdout) : fclose(file->out)) {
        written = false;
        error = errno;
    }
    free(file->tracks);
    for (size_t i = 0; i < file->n_sessions; i++)
        free(file->sessions[i].words);
    free(file->sessions);
    *file = (struct trace_file){0};
    errno = error;
    return written;
}
