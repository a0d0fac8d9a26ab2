#include "server/http/http_history.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "proto/files/json.h"
#include "server/front/supervisor.h"
#include "server/http/http_impl.h"

/* As doubles, which is what JSON's readers make of them anyway. */
struct http_sample {
    double live, reserved, sessions, queue, ops, in, out, busy, utilisation, faults;
};

static const struct http_series {
    const char *name;
    size_t offset;
} http_series[] = {
    {"live", offsetof(struct http_sample, live)},
    {"reserved", offsetof(struct http_sample, reserved)},
    {"sessions", offsetof(struct http_sample, sessions)},
    {"queue_depth", offsetof(struct http_sample, queue)},
    {"ops_per_s", offsetof(struct http_sample, ops)},
    {"bytes_in_per_s", offsetof(struct http_sample, in)},
    {"bytes_out_per_s", offsetof(struct http_sample, out)},
    {"busy_percent", offsetof(struct http_sample, busy)},
    {"utilisation_percent", offsetof(struct http_sample, utilisation)}, /* null: not known */
    {"faults", offsetof(struct http_sample, faults)},                   /* since the daemon's start */
};
enum { HTTP_SERIES = sizeof http_series / sizeof *http_series };

int http_history_init(struct http_history *history, unsigned n_devices, struct fault *fault) {
    *history = (struct http_history){.n_devices = n_devices};
    history->samples = calloc((size_t)n_devices * HTTP_HISTORY_SAMPLES, sizeof *history->samples);
    return history->samples ? STATUS_OK : fault_set(fault, STATUS_NO_HOST_MEMORY, "http: no memory for a history");
}

void http_history_finish(struct http_history *history) {
    free(history->samples);
    history->samples = NULL;
}

static struct http_sample http_sample_of(const struct worker_slot *slot) {
    const struct stats_device *device = &slot->snapshot.device;
    const struct device_readings *readings = &device->readings;
    return (struct http_sample){
        .live = (double)device->engine.memory_live,
        .reserved = (double)device->engine.memory_reserved,
        .sessions = slot->snapshot.n_sessions,
        .queue = (double)device->engine.queue_depth,
        .ops = device->ops_per_s,
        .in = device->bytes_in_per_s,
        .out = device->bytes_out_per_s,
        .busy = device->busy_ratio * 100,
        .utilisation = device_readings_has(readings, READING_UTILISATION_GPU)
                           ? (double)readings->values[READING_UTILISATION_GPU]
                           : NAN,
        .faults = slot->n_failures,
    };
}

void http_history_sample(struct http_history *history, const struct supervisor *supervisor) {
    for (unsigned i = 0; i < history->n_devices; i++)
        history->samples[i * HTTP_HISTORY_SAMPLES + history->next] = http_sample_of(&supervisor->slots[i]);
    history->next = (history->next + 1) % HTTP_HISTORY_SAMPLES;
    if (history->count < HTTP_HISTORY_SAMPLES)
        history->count++;
}

static void http_history_write_series(const struct http_history *history, unsigned device,
                                      const struct http_series *series, struct json *json) {
    const struct http_sample *samples = history->samples + (size_t)device * HTTP_HISTORY_SAMPLES;
    unsigned first = (history->next + HTTP_HISTORY_SAMPLES - history->count) % HTTP_HISTORY_SAMPLES;
    json_open(json, series->name, '[');
    for (unsigned i = 0; i < history->count; i++) {
        const struct http_sample *sample = &samples[(first + i) % HTTP_HISTORY_SAMPLES];
        json_real(json, NULL, *(const double *)((const char *)sample + series->offset));
    }
    json_close(json, ']');
}

void http_history_write(const struct http_history *history, const struct supervisor *supervisor, FILE *out) {
    struct json json = {.out = out, .first = true};
    json_open(&json, NULL, '{');
    json_real(&json, "step_s", HTTP_HISTORY_STEP_MS / 1e3);
    json_open(&json, "devices", '[');
    for (unsigned i = 0; i < history->n_devices; i++) {
        json_open(&json, NULL, '{');
        json_text(&json, "name", supervisor->slots[i].device.name);
        for (unsigned s = 0; s < HTTP_SERIES; s++)
            http_history_write_series(history, i, &http_series[s], &json);
        json_close(&json, '}');
    }
    json_close(&json, ']');
    json_close(&json, '}');
    fputc('\n', out);
}
