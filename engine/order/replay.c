#include "engine/order/replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/order/poison.h"
#include "engine/order/replay_graph.h"

/* A kernel that has come is used from the next iteration on. */
static void replay_choose(struct replay *replay, uint64_t came) {
    unsigned ready = 0;
    replay->came_seen = came;
    for (unsigned i = 0; i < replay->n_steps; i++) {
        struct replay_step *step = &replay->steps[i];
        if (!step->kernel || !atomic_load_explicit(&step->kernel->kernel, memory_order_acquire))
            continue;
        ready++;
        step->skipped = false;
        for (unsigned k = 1; k <= step->singly; k++)
            step[k].skipped = true;
    }
    if (ready != replay->n_ready)
        replay_graphs_forget(replay);
    replay->n_ready = ready;
}

void replay_apply(struct replay_run *run) {
    struct replay *replay = run->replay;
    uint8_t *const *bases = replay_bases(run);
    if (replay->n_ready != replay->n_compiled) {
        uint64_t came = atomic_load_explicit(replay->came, memory_order_acquire);
        if (came != replay->came_seen)
            replay_choose(replay, came);
    }
    if (!memcmp(replay->applied, bases, replay->n_bases * sizeof(uint8_t *)))
        return;
    for (unsigned base = 0; base < replay->n_bases; base++) {
        if (replay->applied[base] == bases[base])
            continue;
        replay->applied[base] = bases[base];
        for (uint32_t i = replay->first_patch[base]; i < replay->first_patch[base + 1]; i++) {
            uint8_t *address = bases[base] + replay->patches[i].offset;
            memcpy(replay->launches + replay->patches[i].at, &address, sizeof address);
        }
    }
}

void replay_begin(struct replay_run *run) {
    run->step = run->replay->once ? run->replay->n_once : 0;
    replay_apply(run);
}

/* Passes the first report on, in the words of its operation. */
static bool replay_failed(struct replay_run *run) {
    const struct replay *replay = run->replay;
    uint8_t *const *bases = replay_bases(run);
    for (unsigned i = 0; i < replay->n_guards; i++) {
        const struct report *report = (const struct report *)bases[replay->first_report + i];
        const struct replay_guard *words = &replay->guards[i];
        struct guard *guard = run->guard;
        if (atomic_load_explicit(&report->code, memory_order_relaxed) == STATUS_OK)
            continue;
        memcpy(guard->operation, replay->names[words->name].operation, sizeof guard->operation);
        if (replay->names[words->name].label[0])
            memcpy(guard->label, replay->names[words->name].label, sizeof guard->label);
        guard->axis = words->axis;
        guard->above = words->above;
        guard->launch = words->launch;
        guard->broadcasts = words->broadcast != 0;
        if (guard->broadcasts)
            guard->broadcast = replay->broadcasts[words->broadcast - 1];
        guard->iteration = run->times > 1 ? run->iteration + 1 : 0;
        guard->report->value = report->value;
        guard->report->position = report->position;
        guard->report->limit = report->limit;
        atomic_store_explicit(&guard->report->code, atomic_load_explicit(&report->code, memory_order_relaxed),
                              memory_order_relaxed);
        return true;
    }
    return false;
}

bool replay_next(struct replay_run *run, bool ran) {
    uint8_t **bases = replay_bases(run);
    if (run->iteration + 1 == run->times || (ran && run->guard && replay_failed(run)))
        return false;
    run->iteration++;
    for (uint32_t i = 0; i < run->n_moves; i++)
        bases[replay_moves(run)[i].base] += replay_moves(run)[i].bytes;
    for (uint32_t i = 0; i < run->n_carries; i++) {
        struct replay_carry *carry = &replay_carries(run)[i];
        uint8_t *result = bases[carry->result];
        bases[carry->parameter] = result;
        bases[carry->result] = carry->spare;
        carry->spare = result;
    }
    run->step = run->replay->n_once;
    return true;
}

void replay_end(struct replay_run *run, bool ran) {
    const struct replay *replay = run->replay;
    uint8_t **bases = replay_bases(run);
    if (ran && run->guard)
        replay_failed(run);
    for (unsigned i = 0; i < replay->n_guards; i++)
        reports_give(run->reports, (struct report *)bases[replay->first_report + i]);
    if (run->guard)
        guard_unref(run->guard);
    run->guard = NULL;
}

/* ---- times ---- */

static bool replay_is_long(const struct replay *replay, uint64_t times) {
    return replay->weight >= REPLAY_LONG_NS || times * replay->weight >= REPLAY_LONG_NS;
}

bool replay_timed(const struct replay *replay, uint64_t times) {
    return replay_is_long(replay, times) || !replay->times.left;
}

void replay_time_begin(struct replay_run *run) {
    struct replay_times *times = &run->replay->times;
    bool is_long = replay_is_long(run->replay, run->times);
    run->counts = is_long ? 1 : times->left ? 0 : times->since + 1;
    if (is_long)
        return;
    times->since = run->counts ? 0 : times->since + 1;
    times->left = run->counts ? REPLAY_TIMED_GAP - 1 : times->left - 1;
}

static void count_add(_Atomic uint64_t *count, uint64_t more) {
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + more, memory_order_relaxed);
}

void replay_count(struct replay_run *run, uint64_t ns) {
    struct replay_times *times = &run->replay->times;
    count_add(&times->runs, 1);
    count_add(&times->iterations, run->iteration + 1);
    if (!run->counts)
        return;
    count_add(&times->ns, ns * run->counts);
    count_add(&times->counted, run->counts);
    atomic_store_explicit(&times->last_ns, ns, memory_order_relaxed);
}

void replay_destroy(struct replay *replay) {
    if (!replay)
        return;
    replay_graphs_destroy(atomic_load(&replay->graphs));
    free(replay->launches);
    free(replay->steps);
    free(replay->patches);
    free(replay->guards);
    free(replay->broadcasts);
    free(replay->names);
    free(replay->first_patch);
    free(replay->applied);
    free(replay);
}
