#include "tests/stand_ins/fakecuda/traced.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/device/clock.h"
#include "engine/engine_impl.h"
#include "engine/watch/trace.h"

enum {
    TRACED_STREAMS_MAX = 256,
    TRACED_LATE_NS = 100 * 1000 * 1000 /* for so long a trace waits to read both clocks */
};

__attribute__((format(printf, 2, 3))) static void traced_wrong(struct traced *traced, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (!*traced->wrong)
        vsnprintf(traced->wrong, sizeof traced->wrong, format, arguments);
    va_end(arguments);
}

void traced_begin(struct traced *traced, struct engine *engine) {
    struct fault fault;
    *traced = (struct traced){.began_ns = clock_now()};
    if (engine_trace_start(engine, NULL, 0, &fault) != STATUS_OK)
        traced_wrong(traced, "no trace: %s", fault.message);
}

/* On a stream one thing runs after the other, and all of it since the trace began. The clocks of device and host are read
 * one after the other, which moves all of a stream's times alike. */
static void traced_time(struct traced *traced, const struct trace_event *event, uint64_t ends[TRACED_STREAMS_MAX]) {
    uint64_t *end = &ends[event->stream % TRACED_STREAMS_MAX];
    if (event->stream >= TRACED_STREAMS_MAX)
        traced_wrong(traced, "stream %u", event->stream);
    if (event->begin_ns < traced->began_ns || event->begin_ns < *end || event->end_ns < event->begin_ns ||
        event->end_ns > clock_now() + TRACED_LATE_NS)
        traced_wrong(traced, "%s of operation %" PRIu64 " from %" PRIu64 " to %" PRIu64 ", after one up to %" PRIu64,
                     event->name, event->sequence, event->begin_ns, event->end_ns, *end);
    *end = event->end_ns;
}

/* How often each of the job's launches is there. */
static void traced_count(const struct job *job, const struct trace_event *event, unsigned times[JOB_LAUNCHED_MAX]) {
    for (unsigned i = 0; i < job->n_launched; i++)
        if (job->launched[i].sequence == event->sequence && !strcmp(job->launched[i].name, event->name))
            times[i]++;
}

void traced_end(struct traced *traced, struct engine *engine, const struct job *job, bool whole) {
    uint64_t ends[TRACED_STREAMS_MAX] = {0}, dropped = trace_dropped(engine_trace(engine));
    unsigned times[JOB_LAUNCHED_MAX] = {0};
    struct trace_event event;
    trace_stop(engine_trace(engine));
    while (trace_next(engine_trace(engine), &event)) {
        traced->events++;
        traced->kernels += !strcmp(event.name, "store");
        traced_time(traced, &event, ends);
        traced_count(job, &event, times);
    }
    for (unsigned i = 0; i < job->n_launched; i++)
        if (times[i] > 1 || (whole && times[i] != 1))
            traced_wrong(traced, "%s, operation %" PRIu64 ", is there %u times", job->launched[i].name,
                         job->launched[i].sequence, times[i]);
    if (whole && (dropped || traced->events < job->n_launched || traced->kernels != JOB_KERNELS))
        traced_wrong(traced, "%" PRIu64 " events, %" PRIu64 " of them of clients' kernels, and %" PRIu64 " dropped",
                     traced->events, traced->kernels, dropped);
}
