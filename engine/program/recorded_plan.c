/* Plans: from the operations of a program to its launches. Operations are bound (recorded_bind.c), launches are put in order and fused (recorded_fuse.c), and
 * become a replay (recorded_take.c). That takes about a microsecond for an operation, so it is done in stages, which go on in the worker's next turn when
 * the time of this one is over. */
#include <stdlib.h>
#include <string.h>

#include "engine/device/device_impl.h"
#include "engine/order/order_impl.h"
#include "engine/program/fusion.h"
#include "engine/program/recorded_planner.h"

enum { PLAN_SMALL = 256 /* operations: each stage then is a matter of microseconds */ };

/* ---- what planning needs ---- */

static struct stream *planner_stream(struct session *session, const struct draft *draft) {
    struct stream *stream = aligned_alloc(64, sizeof *stream);
    (void)draft;
    if (!stream)
        return NULL;
    memset(stream, 0, sizeof *stream);
    stream->order = session->order;
    stream->group = session->group;
    stream->session = session->group->session;
    stream->touched.listed = true; /* so it is never published */
    return stream;
}

static bool planner_init(struct planner *planner, struct session *session) {
    const struct recorded_body *body = planner->body;
    size_t inputs = 1, outputs = 1;
    for (unsigned k = 0; k < body->n_operations; k++) {
        const struct op_request *request = &body->operations[k].request;
        inputs = request->n_inputs > inputs ? request->n_inputs : inputs;
        outputs = 1 + request->further > outputs ? 1 + request->further : outputs;
    }
    planner->session = calloc(1, sizeof *planner->session);
    planner->stream = planner_stream(session, &planner->draft);
    planner->values = calloc(body->n_values, sizeof *planner->values);
    planner->types = calloc(inputs, sizeof *planner->types);
    planner->inputs = calloc(inputs, sizeof(struct tensor *));
    planner->outputs = calloc(outputs, sizeof(struct tensor *));
    planner->lends = calloc(body->n_parameters + 1, sizeof *planner->lends);
    planner->small = calloc(body->n_operations + 1, sizeof *planner->small);
    planner->once = calloc(body->n_operations + 1, sizeof *planner->once);
    planner->reports = calloc(body->n_operations + 1, sizeof *planner->reports);
    planner->once_value = calloc(body->n_values, sizeof *planner->once_value);
    planner->stays = calloc(body->n_values, sizeof *planner->stays);
    if (!planner->session || !planner->stream || !planner->values || !planner->types || !planner->inputs ||
        !planner->outputs || !planner->lends || !planner->small || !planner->once || !planner->reports ||
        !planner->once_value || !planner->stays)
        return false;
    planner->session->sessions = session->sessions;
    planner->session->order = session->order;
    planner->session->limits = session->limits;
    planner->session->kernels = session->kernels;
    planner->session->ledger.memory = session->ledger.memory;
    planner->session->ledger.draft = &planner->draft;
    planner->draft.clock = &planner->stream->enqueued;
    return true;
}

/* Gives back the records, with what they refer to. */
static void planner_drop_records(struct planner *planner) {
    struct stream *stream = planner->stream;
    struct record_cursor at = stream->submit.at;
    struct stream_chunk *done = NULL;
    for (uint64_t number = 0; number < stream->enqueued; number++) {
        struct record *record = stream_next_record(stream, &at, &done);
        if (record->kind == RECORD_POISON) {
            poison_unref(record->poison.result);
            for (int i = 0; i < 3; i++)
                poison_unref(record->poison.inputs[i]);
            if (record->poison.guard)
                guard_unref(record->poison.guard);
        }
        at.used += record->bytes;
    }
    if (stream->queue.tail.chunk) {
        stream->queue.tail.chunk->next = done;
        done = stream->queue.tail.chunk;
    }
    pthread_mutex_lock(&stream->order->lock);
    chunks_give(stream->order, done);
    pthread_mutex_unlock(&stream->order->lock);
    stream->queue.tail.chunk = stream->submit.at.chunk = NULL;
    stream->queue.tail.used = 0;
    stream->enqueued = 0;
}

static void planner_reset(struct planner *planner) {
    for (unsigned i = 0; planner->values && i < planner->body->n_values; i++)
        planner_value_drop(&planner->values[i]);
    if (planner->stream)
        planner_drop_records(planner);
    draft_finish(&planner->draft);
    planner->once_end = 0;
}

static void planner_finish(struct planner *planner) {
    planner_reset(planner);
    free(planner->session);
    free(planner->stream);
    free(planner->values);
    free(planner->types);
    free(planner->inputs);
    free(planner->outputs);
    free(planner->lends);
    free(planner->small);
    free(planner->once);
    free(planner->reports);
    free(planner->once_value);
    free(planner->stays);
    free(planner->launches);
}

/* ---- stages ---- */

/* In this order; what is bound wrongly is bound again. */
enum stage {
    STAGE_BIND_BEGIN,
    STAGE_BIND,
    STAGE_BIND_END,
    STAGE_LIST,
    STAGE_FUSE,
    STAGE_TIME,
    STAGE_SLOTS,
    STAGE_ARENA,
    STAGE_TAKE,
    STAGE_SORT,
    STAGE_ROOM,
    STAGES
};

/* What runs need: a parameter or result has its storage and perhaps a spare one; the arena. */
static int planner_room(struct planner *planner) {
    struct recorded_plan *plan = planner->plan;
    plan->bases = malloc(plan->replay->n_bases * sizeof(uint8_t *));
    plan->storages = malloc((2 * plan->replay->first_report + 1) * sizeof(struct storage *));
    plan->kept = malloc((2 * plan->replay->first_report + 1) * sizeof(struct storage *));
    plan->spares = malloc((planner->recorded->n_carries + 1) * sizeof(uint8_t *));
    return plan->bases && plan->storages && plan->kept && plan->spares ? STATUS_OK : plan_no_memory(planner->fault);
}

static int planner_stage(struct planner *planner) {
    switch ((enum stage)planner->stage) {
    case STAGE_BIND_BEGIN:
        return planner_bind_begin(planner);
    case STAGE_BIND:
        return planner_bind(planner);
    case STAGE_BIND_END:
        return planner_bind_end(planner);
    case STAGE_LIST:
        return planner_list(planner);
    case STAGE_FUSE:
        return planner_fuse(planner);
    case STAGE_TIME:
        return planner_time(planner);
    case STAGE_SLOTS:
        return planner_slots(planner);
    case STAGE_ARENA:
        return planner_arena(planner);
    case STAGE_TAKE:
        return planner_take(planner);
    case STAGE_SORT:
        return planner_sort(planner);
    default:
        return planner_room(planner);
    }
}

static int planner_run(struct planner *planner) {
    struct budget *budget = &planner->session->order->budget;
    while (planner->stage < STAGES) {
        int code = planner_stage(planner);
        if (code != STATUS_OK)
            return code;
        planner->at = 0;
        planner->stage++;
        if (planner->stage == STAGE_LIST && !planner_bound_rightly(planner)) {
            planner_reset(planner);
            planner->stage = STAGE_BIND_BEGIN;
        }
        if (planner->body->n_operations > PLAN_SMALL && budget_look(budget) && planner->stage < STAGES)
            return STATUS_AGAIN;
    }
    return STATUS_OK;
}

static struct planner *planner_create(struct recorded *recorded, struct session *session, struct fault *fault) {
    const struct recorded_body *body = recorded->body;
    struct recorded_plan *plan = &recorded->plan;
    struct planner *planner = recorded->planner = calloc(1, sizeof *planner);
    plan->lender = calloc(body->n_results, sizeof(uint32_t));
    plan->overwritten = calloc(body->n_parameters + 1, sizeof(bool));
    if (planner)
        *planner = (struct planner){.recorded = recorded, .body = recorded->body, .plan = plan};
    if (planner && plan->lender && plan->overwritten && planner_init(planner, session)) {
        planner_lends_first(planner);
        return planner;
    }
    plan_no_memory(fault);
    return NULL;
}

int recorded_plan(struct recorded *recorded, struct session *session, struct fault *fault) {
    struct planner *planner = recorded->planner ? recorded->planner : planner_create(recorded, session, fault);
    int code = (int)STATUS_NO_HOST_MEMORY;
    if (planner) {
        planner->fault = fault;
        planner->session->kernels = session->kernels;
        code = planner_run(planner);
    }
    if (code == STATUS_AGAIN)
        return code;
    if (code == STATUS_OK && recorded->store->prints)
        recorded_print(planner, stderr);
    recorded_plan_leave(recorded);
    if (code != STATUS_OK)
        recorded_plan_finish(&recorded->plan, recorded->store->kernels);
    recorded->planned = code == STATUS_OK;
    return code;
}

void recorded_plan_leave(struct recorded *recorded) {
    if (recorded->planner)
        planner_finish(recorded->planner);
    free(recorded->planner);
    recorded->planner = NULL;
}

void recorded_plan_finish(struct recorded_plan *plan, struct kernel_store *kernels) {
    const struct replay *replay = plan->replay;
    for (unsigned i = 0; replay && replay->n_compiled && i < replay->n_steps; i++)
        if (replay->steps[i].kernel)
            fusion_let_go(kernels, replay->steps[i].kernel);
    replay_destroy(plan->replay);
    storage_unref(plan->arena);
    free(plan->lender);
    free(plan->overwritten);
    free(plan->bases);
    free(plan->storages);
    free(plan->kept);
    free(plan->spares);
    *plan = (struct recorded_plan){0};
}
