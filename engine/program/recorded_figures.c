/* What operators see of recorded programs. */
#include <stdio.h>

#include "engine/order/replay_graph.h"
#include "engine/program/fusion.h"
#include "engine/program/recorded_impl.h"

static uint64_t figure(const _Atomic uint64_t *value) {
    return atomic_load_explicit(value, memory_order_relaxed);
}

static void figures_of_body(const struct recorded_body *body, struct recorded_figures *figures) {
    figures->operations = body->n_operations;
    figures->kept = body->n_live;
    snprintf(figures->label, sizeof figures->label, "%s", body->label ? body->label : "");
}

static void figures_of_fused(const struct replay *replay, struct recorded_figures *figures) {
    for (unsigned i = 0; i < replay->n_steps; i++) {
        const struct replay_step *step = &replay->steps[i];
        const char *cause = step->singly ? fusion_cause(step->kernel) : NULL;
        figures->groups_waiting += cause != NULL;
        if (cause && !*figures->fused_reason)
            snprintf(figures->fused_reason, sizeof figures->fused_reason, "%s", cause);
        i += step->singly;
    }
}

static void figures_of_replay(const struct replay *replay, struct recorded_figures *figures) {
    struct replay_graph_figures graphs;
    figures->launches = replay->figures.launches;
    figures->launches_once = replay->figures.once;
    figures->groups = replay->figures.groups;
    figures->grouped = replay->figures.grouped;
    figures_of_fused(replay, figures);
    figures->runs = figure(&replay->times.runs);
    figures->iterations = figure(&replay->times.iterations);
    figures->timed = figure(&replay->times.counted);
    figures->last_ns = figure(&replay->times.last_ns);
    figures->run_ns = figures->timed ? figure(&replay->times.ns) / figures->timed : 0;
    if (!replay_graph_read(replay, &graphs))
        return;
    figures->graphs = graphs.graphs;
    figures->graph_steps = graphs.steps;
    snprintf(figures->graph_reason, sizeof figures->graph_reason, "%s", graphs.reason);
}

static void figures_of(const struct recorded *recorded, struct recorded_figures *figures) {
    *figures = (struct recorded_figures){.id = recorded->id, .loops = recorded->loops, .planned = recorded->planned};
    if (recorded->body)
        figures_of_body(recorded->body, figures);
    else
        snprintf(figures->cause, sizeof figures->cause, "%.*s", RECORDED_CAUSE_MAX - 1, recorded->fault.message);
    if (!recorded->planned)
        return;
    figures_of_replay(recorded->plan.replay, figures);
    figures->arena = recorded->plan.arena_bytes;
    figures->arena_least = recorded->plan.least_bytes;
    figures->queued = recorded->runs > figures->runs ? recorded->runs - figures->runs : 0;
}

void recorded_store_read(const struct recorded_store *store, uint64_t *programs, uint64_t *runs) {
    *programs = store->count;
    *runs = store->runs;
}

unsigned session_programs(const struct session *session) {
    return session->programs ? session->programs->count : 0;
}

unsigned session_programs_figures(const struct session *session, struct recorded_figures *figures, unsigned capacity) {
    unsigned n = 0;
    const struct recorded *recorded = session->programs ? session->programs->recent : NULL;
    for (; recorded && n < capacity; recorded = recorded->next)
        figures_of(recorded, &figures[n++]);
    return n;
}
