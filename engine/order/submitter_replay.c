/* Runs of programs, in turns. */
#include "engine/device/device_impl.h"
#include "engine/order/replay_graph.h"
#include "engine/order/submitter.h"

enum { ITERATION_NS = 20 }; /* of a loop, besides its launches */

static bool traces(struct order *order, const struct stream *stream) {
    return trace_is_on(&order->trace) && trace_wants(&order->trace, stream->group->share, stream->session);
}

/* On a device that has compiled the launch's kernel. */
static void launch_compiled(struct order *order, struct stream *stream, const struct replay_kernel *kernel,
                            const struct fused_launch *fused) {
    struct device_stream *device_stream = NULL;
    struct fault fault;
    if (!submitter_may_launch(order, stream, &device_stream))
        return;
    submitter_count_launch(stream);
    if (order->device->vtable->fusion->launch(order->device, device_stream,
                                              atomic_load_explicit(&kernel->kernel, memory_order_acquire), fused,
                                              &fault) != STATUS_OK)
        order_latch(order, &fault);
}

static void run_launch(struct order *order, struct stream *stream, const struct record *record,
                       const struct replay_kernel *compiled, const struct launch *launch,
                       const struct fused_launch *fused, const struct kernel_launch *kernel, struct turn *turn) {
    if (kernel)
        submitter_launch_kernel(order, stream, kernel);
    else if (compiled)
        launch_compiled(order, stream, compiled, fused);
    else if (order->device->vtable->launch_part)
        turn->left = submitter_launch_part(order, stream, record, launch, fused, turn);
    else
        submitter_launch(order, stream, launch);
}

/* One launch, or a fused one, in a history and perhaps in a trace. */
static void run_one(struct order *order, struct stream *stream, const struct record *record,
                    const struct replay_step *step, struct turn *turn) {
    const struct replay *replay = record->replay.replay;
    const void *at = replay->launches + step->at;
    const struct launch *launch = step->kind == REPLAY_LAUNCH ? at : NULL;
    const struct fused_launch *fused = step->kind == REPLAY_FUSED ? at : NULL;
    const struct kernel_launch *kernel = step->kind == REPLAY_KERNEL ? at : NULL;
    const char *label = replay->names[step->name].label, *name = fused ? "fused" : kernel ? kernel->name : NULL;
    unsigned opcode = launch ? launch->opcode : 0;
    struct device_stream *device_stream = NULL;
    bool traced = traces(order, stream), waits = launch && submitter_waits(order, stream, launch);
    if (waits && (turn->moved || turn->launches)) {
        turn->left = true;
        return;
    }
    if (waits && submitter_aside_is_full(order, stream, launch)) {
        turn->waits = true;
        return;
    }
    if (!submitter_has_begun(stream))
        history_note(&order->history, &stream->completed, stream->submit.executed + 1, stream->session,
                     record->sequence, opcode, name, *label ? label : NULL);
    if (__builtin_expect(!traced && !waits, 1)) {
        run_launch(order, stream, record, step->kernel, launch, fused, kernel, turn);
        return;
    }
    const struct trace_launch trace = submitter_traced(stream, record, launch, name, *label ? label : NULL);
    if (waits) {
        turn->waits = !submitter_launch_aside(order, stream, launch, &trace, traced, turn);
    } else if (submitter_may_launch(order, stream, &device_stream)) {
        struct trace_mark mark;
        trace_before(&order->trace, device_stream, stream->submit.begun, &mark);
        run_launch(order, stream, record, step->kernel, launch, fused, kernel, turn);
        trace_after(&order->trace, &stream->trace, device_stream, &trace, &mark);
        submitter_count_trace(stream, device_stream);
    }
}

/* Small launches, with devices that have run them when launch_flat() returns. */
static void run_flat(struct order *order, struct stream *stream, const struct record *record,
                     const struct replay_step *step) {
    const struct flat_launch *launches =
        (const struct flat_launch *)(const void *)(record->replay.replay->launches + step->at);
    if (__builtin_expect(!traces(order, stream), 1)) {
        history_note(&order->history, &stream->completed, stream->submit.executed + 1, stream->session,
                     record->sequence, launches->opcode, NULL, NULL);
        order->device->vtable->launch_flat(order->device, launches, step->n);
        return;
    }
    submitter_launch_flat_traced(order, stream, record, launches, step->n, record->sequence);
}

/* The run's next steps as one graph, on a device that has them. False: the next one is to be launched by itself. */
static bool run_graph(struct order *order, struct stream *stream, struct record *record, struct turn *turn) {
    struct replay_run *run = &record->replay;
    struct device_stream *device_stream = NULL;
    struct fault fault;
    unsigned steps = 0;
    if (!order->device->vtable->async || traces(order, stream) || !submitter_may_launch(order, stream, &device_stream))
        return false;
    if (replay_graph_launch(run, order->device, device_stream, &steps, &fault) != STATUS_OK)
        order_latch(order, &fault);
    if (!steps)
        return false;
    history_note(&order->history, &stream->completed, stream->submit.executed + 1, stream->session, record->sequence, 0,
                 "graph", NULL);
    for (; steps; steps--) {
        const struct replay_step *step = &run->replay->steps[run->step++];
        turn->cost += step->skipped ? 0 : step->weight;
    }
    submitter_count_launch(stream);
    turn->launches++;
    return true;
}

/* A step of a run. False: it was left in the middle, or before its begin, or it waits for a call. */
static bool run_step(struct order *order, struct stream *stream, struct record *record, struct turn *turn) {
    struct replay_run *run = &record->replay;
    const struct replay_step *step = &run->replay->steps[run->step];
    uint64_t cost = turn->cost;
    if (step->kind == REPLAY_FLAT)
        run_flat(order, stream, record, step);
    else
        run_one(order, stream, record, step, turn);
    if (turn->left || turn->waits)
        return false;
    if (turn->cost == cost)
        turn->cost += step->weight;
    turn->launches++;
    return true;
}

/* As much of a run as belongs to one turn; a turn that leaves it goes on with it later. The device's launches have run when they return, or a
 * launch may wait here for room on the device. */
static void run_turn(struct order *order, struct stream *stream, struct record *record, struct turn *turn) {
    struct replay_run *run = &record->replay;
    bool async = order->device->vtable->async, more = stream->submit.aside.call || !submitter_skips(order, stream);
    if (more && !run->begun)
        replay_begin(run);
    run->begun = true;
    while (more) {
        if (turn->cost >= SUBMITTER_TURN_NS || (async && turn->launches >= SUBMITTER_PART_LAUNCHES)) {
            atomic_fetch_add_explicit(&order->pieces, 1, memory_order_relaxed);
            turn->left = true;
            return;
        }
        if (run->step < run->replay->n_steps) {
            if (!stream->submit.aside.call && run_graph(order, stream, record, turn))
                continue;
            if (!run->replay->steps[run->step].skipped && !run_step(order, stream, record, turn))
                return;
            replay_stepped(run);
            continue;
        }
        turn->cost += ITERATION_NS;
        more = !submitter_skips(order, stream);
        if (more && async)
            replay_graphs_pass(run->replay);
        more = more && replay_next(run, !async);
        if (more)
            replay_apply(run);
    }
    submitter_abandon(order, stream);
    if (!async) /* else the reaper does it */
        replay_end(run, true);
}

void submitter_replay(struct order *order, struct stream *stream, struct record *record, struct turn *turn) {
    struct replay_run *run = &record->replay;
    bool async = order->device->vtable->async;
    if (!run->begun && !turn->full) /* else its mark would be joined to an earlier one */
        replay_time_begin(run);
    uint64_t began_ns = run->counts ? clock_now() : 0;
    if (!run->begun)
        run->began_ns = began_ns;
    run_turn(order, stream, record, turn);
    if (async) /* the reaper tells how long it ran */
        return;
    if (run->counts)
        run->ran_ns += clock_now() - began_ns;
    if (!turn->left && !submitter_skips(order, stream))
        replay_count(run, run->ran_ns);
}
