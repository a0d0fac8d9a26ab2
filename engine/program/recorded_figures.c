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

/* Every look at the daemon's status asks, for every program: so steps whose kernels are there are not looked at again. */
static void figures_of_fused(struct recorded_plan *plan, struct recorded_figures *figures) {
    const struct replay *replay = plan->replay;
    const char *cause = NULL;
    while (replay->n_singly && plan->fused_seen < replay->n_steps) {
        const struct replay_step *step = &replay->steps[plan->fused_seen];
        if (step->singly && (cause = fusion_cause(step->kernel)))
            break;
        plan->fused_seen += 1 + step->singly;
    }
    if (!cause)
        return;
    unsigned waiting = replay->n_singly - atomic_load_explicit(&replay->n_ready, memory_order_relaxed);
    figures->groups_waiting = waiting ? waiting : 1;
    snprintf(figures->fused_reason, sizeof figures->fused_reason, "%s", cause);
}

static void figures_of_replay(const struct replay *replay, struct recorded_figures *figures) {
    struct replay_graph_figures graphs;
    figures->launches = replay->figures.launches;
    figures->launches_once = replay->figures.once;
    figures->groups = replay->figures.groups;
    figures->grouped = replay->figures.grouped;
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

static void figures_of(struct recorded *recorded, struct recorded_figures *figures) {
    *figures = (struct recorded_figures){.id = recorded->id, .loops = recorded->loops, .planned = recorded->planned};
    if (recorded->body)
        figures_of_body(recorded->body, figures);
    else
        snprintf(figures->cause, sizeof figures->cause, "%.*s", RECORDED_CAUSE_MAX - 1, recorded->fault.message);
    if (!recorded->planned)
        return;
    figures_of_replay(recorded->plan.replay, figures);
    figures_of_fused(&recorded->plan, figures);
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
    struct recorded *recorded = session->programs ? session->programs->recent : NULL;
    for (; recorded && n < capacity; recorded = recorded->next)
        figures_of(recorded, &figures[n++]);
    return n;
}
