/* Plans: from the operations of a program to its launches. Operations are bound (recorded_bind.c), launches are put in order and fused (recorded_fuse.c), and
 * become a replay (recorded_take.c). That takes about a microsecond for an operation, so it is done in stages, which go on in the worker's next turn when
 * the time of this one is over. */
#include <stdlib.h>
#include <string.h>

#include "engine/device/device_impl.h"
#include "engine/order/order_impl.h"
#include "engine/program/fusion.h"
#include "engine/program/recorded_planner.h"

enum {
    PLAN_SMALL = 256,            /* operations: each stage then is a matter of microseconds */
    PLAN_AHEAD_BYTES = 64 << 10, /* are paid for ahead */
    /* Of a base: where its patches begin, its address in the last run and in the next one, and two storages and two that are kept. */
    PLAN_BASE_BYTES = sizeof(uint32_t) + 6 * sizeof(void *),
};

/* ---- what planning needs ---- */

static struct stream *planner_stream(struct session *session) {
    struct stream *stream = aligned_alloc(64, sizeof *stream);
    if (!stream)
        return NULL;
    memset(stream, 0, sizeof *stream);
    stream->order = session->order;
    stream->group = session->group;
    stream->session = session->group->session;
    stream->touched.listed = true; /* so it is never published */
    return stream;
}

/* The most inputs and outputs that one of the operations has. */
static void widest(const struct recorded_body *body, size_t *inputs, size_t *outputs) {
    *inputs = *outputs = 1;
    for (unsigned k = 0; k < body->n_operations; k++) {
        const struct op_request *request = &body->operations[k].request;
        *inputs = request->n_inputs > *inputs ? request->n_inputs : *inputs;
        *outputs = 1 + request->further > *outputs ? 1 + request->further : *outputs;
    }
}

static int planner_init(struct planner *planner, struct session *session) {
    const struct recorded_body *body = planner->body;
    size_t inputs, outputs, operations = body->n_operations + 1, values = body->n_values;
    widest(body, &inputs, &outputs);
    planner->order = session->order;
    planner->account.payer = session;
    planner->own_bytes = sizeof *planner + sizeof *planner->session + sizeof *planner->stream +
                         (inputs + outputs) * 2 * sizeof(void *) + 3 * operations + body->n_parameters +
                         values * (sizeof *planner->values + 2);
    int code = planner_pay(planner, 0);
    if (code != STATUS_OK)
        return code;
    planner->session = calloc(1, sizeof *planner->session);
    planner->stream = planner_stream(session);
    planner->values = calloc(values, sizeof *planner->values);
    planner->types = calloc(inputs, sizeof *planner->types);
    planner->inputs = calloc(inputs, sizeof(struct tensor *));
    planner->outputs = calloc(outputs, sizeof(struct tensor *));
    planner->lends = calloc(body->n_parameters + 1, sizeof *planner->lends);
    planner->small = calloc(operations, sizeof *planner->small);
    planner->once = calloc(operations, sizeof *planner->once);
    planner->reports = calloc(operations, sizeof *planner->reports);
    planner->once_value = calloc(values, sizeof *planner->once_value);
    planner->stays = calloc(values, sizeof *planner->stays);
    if (!planner->session || !planner->stream || !planner->values || !planner->types || !planner->inputs ||
        !planner->outputs || !planner->lends || !planner->small || !planner->once || !planner->reports ||
        !planner->once_value || !planner->stays)
        return plan_no_memory(planner->fault);
    planner->n_values = values;
    planner->session->sessions = session->sessions;
    planner->session->order = session->order;
    planner->session->limits = session->limits;
    planner->session->kernels = session->kernels;
    planner->session->ledger.memory = session->ledger.memory;
    planner->session->ledger.draft = &planner->draft;
    planner->draft.clock = &planner->stream->enqueued;
    return STATUS_OK;
}

/* ---- what it costs ---- */

static uint64_t plan_bytes(const struct planner *planner) {
    const struct replay *replay = planner->plan->replay;
    const struct recorded_body *body = planner->body;
    uint64_t bytes = body->n_results * sizeof(uint32_t) + body->n_parameters * (sizeof(uint32_t) + sizeof(bool)) +
                     planner->recorded->n_carries * sizeof(uint8_t *);
    if (!replay)
        return bytes;
    return bytes + sizeof *replay + planner->replay_room + planner->steps_room * sizeof *replay->steps +
           planner->patches_room * sizeof *replay->patches + planner->guards_room * sizeof *replay->guards +
           (replay->n_broadcasts + 1) * sizeof *replay->broadcasts + planner->names_room * sizeof *replay->names +
           replay->n_bases * PLAN_BASE_BYTES;
}

static uint64_t planner_bytes(const struct planner *planner) {
    uint64_t chunks = planner->stream ? atomic_load_explicit(&planner->stream->chunks, memory_order_relaxed) : 0;
    return planner->own_bytes + stream_chunk_bytes(chunks) + draft_host_bytes(&planner->draft) +
           planner->launches_room * sizeof *planner->launches;
}

int planner_pay(struct planner *planner, uint64_t more) {
    uint64_t bytes = planner_bytes(planner) + plan_bytes(planner) + more;
    unsigned operations = planner->body->n_operations;
    if (bytes <= planner->account.bytes)
        return STATUS_OK;
    struct fault fault;
    if (recorded_pay(&planner->account, bytes + PLAN_AHEAD_BYTES, operations, &fault) == STATUS_OK)
        return STATUS_OK;
    return recorded_pay(&planner->account, bytes, operations, planner->fault);
}

/* ---- how it goes ---- */

/* Gives back the records, with what they refer to. */
static bool planner_drop_records(struct planner *planner) {
    struct stream *stream = planner->stream;
    struct stream_chunk *done = NULL;
    bool over = false;
    for (; planner->dropped_records < stream->enqueued && !over; planner->dropped_records++) {
        struct record *record = stream_next_record(stream, &stream->submit.at, &done);
        if (record->kind == RECORD_POISON) {
            poison_unref(record->poison.result);
            for (int i = 0; i < 3; i++)
                poison_unref(record->poison.inputs[i]);
            if (record->poison.guard)
                guard_unref(record->poison.guard);
        }
        stream->submit.at.used += record->bytes;
        over = budget_spent(&planner->order->budget, 1);
    }
    if (!over && stream->queue.tail.chunk) {
        stream->queue.tail.chunk->next = done;
        done = stream->queue.tail.chunk;
    }
    pthread_mutex_lock(&planner->order->lock); /* for a turn's chunks at most */
    chunks_give(planner->order, done);
    pthread_mutex_unlock(&planner->order->lock);
    if (over)
        return false;
    stream->queue.tail.chunk = stream->submit.at.chunk = NULL;
    stream->queue.tail.used = 0;
    stream->enqueued = planner->dropped_records = 0;
    atomic_store_explicit(&stream->chunks, 0, memory_order_relaxed);
    return true;
}

/* Drops what has been bound. False: the budget has ended first. */
static bool planner_empty(struct planner *planner) {
    struct budget *budget = &planner->order->budget;
    for (; planner->dropped < planner->n_values; planner->dropped++) {
        if (budget_spent(budget, 1))
            return false;
        planner_value_drop(&planner->values[planner->dropped]);
    }
    if (planner->stream && !planner_drop_records(planner))
        return false;
    if (!draft_finish(&planner->draft, budget))
        return false;
    planner->dropped = 0;
    planner->once_end = 0;
    return true;
}

/* It is empty. */
static void planner_free(struct planner *planner) {
    recorded_note(&planner->account, 0);
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
    free(planner->pieces);
    free(planner->sorted);
    draft_place_end(&planner->placing);
    free(planner);
}

bool recorded_plans_drop(struct recorded_store *store) {
    while (store->left) {
        struct planner *planner = store->left;
        if (!planner_empty(planner))
            return false;
        store->left = planner->next;
        if (!store->left)
            store->left_last = &store->left;
        planner_free(planner);
    }
    return true;
}

void recorded_plans_unpaid(struct recorded_store *store, const struct session *session) {
    for (struct planner *planner = store->left; planner; planner = planner->next) {
        if (planner->account.payer != session)
            continue;
        recorded_note(&planner->account, 0);
        planner->account.payer = NULL;
    }
}

/* ---- stages ---- */

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
    case STAGE_EMPTY:
        return planner_empty(planner) ? STATUS_OK : STATUS_AGAIN;
    case STAGE_GIVEN:
        return planner_given(planner);
    case STAGE_ONCE:
        return planner_once(planner);
    case STAGE_KEEP:
        return planner_keep(planner);
    case STAGE_BIND_ONCE:
    case STAGE_BIND:
        return planner_bind(planner);
    case STAGE_BIND_END:
        return planner_bind_end(planner);
    case STAGE_JUDGE:
        return planner_judge(planner);
    case STAGE_LIST:
        return planner_list(planner);
    case STAGE_FUSE:
        return planner_fuse(planner);
    case STAGE_NAMES:
        return planner_names(planner);
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
    struct budget *budget = &planner->order->budget;
    while (planner->stage < STAGES) {
        int code = planner_stage(planner);
        if (code == STATUS_OK)
            code = planner_pay(planner, 0);
        if (code != STATUS_OK)
            return code;
        bool again = planner->stage == STAGE_JUDGE && planner->wrong;
        planner->at = 0;
        planner->stage = again ? STAGE_EMPTY : planner->stage + 1;
        if (planner->body->n_operations > PLAN_SMALL && budget_look(budget) && planner->stage < STAGES)
            return STATUS_AGAIN;
    }
    return STATUS_OK;
}

static int planner_create(struct recorded *recorded, struct session *session, struct fault *fault) {
    const struct recorded_body *body = recorded->body;
    struct recorded_plan *plan = &recorded->plan;
    struct planner *planner = recorded->planner = calloc(1, sizeof *planner);
    if (!planner)
        return plan_no_memory(fault);
    *planner = (struct planner){.recorded = recorded, .body = recorded->body, .plan = plan, .fault = fault};
    int code = planner_init(planner, session);
    plan->lender = calloc(body->n_results, sizeof(uint32_t));
    plan->overwritten = calloc(body->n_parameters + 1, sizeof(bool));
    plan->taker = malloc((body->n_parameters + 1) * sizeof(uint32_t));
    if (code == STATUS_OK && plan->lender && plan->overwritten && plan->taker)
        planner_lends_first(planner);
    else if (code == STATUS_OK)
        code = plan_no_memory(fault);
    return code;
}

int recorded_plan(struct recorded *recorded, struct session *session, struct fault *fault) {
    int code = recorded->planner ? STATUS_OK : planner_create(recorded, session, fault);
    struct planner *planner = recorded->planner;
    if (code == STATUS_OK) {
        planner->fault = fault;
        planner->session->kernels = session->kernels;
        code = planner_run(planner);
    }
    if (code == STATUS_AGAIN)
        return code;
    if (code == STATUS_OK && recorded->store->prints)
        recorded_print(planner, stderr);
    if (code == STATUS_OK) {
        uint64_t bytes = plan_bytes(planner);
        recorded_note(&planner->account, planner_bytes(planner));
        recorded_note(&recorded->account, recorded->account.bytes + bytes);
    } else {
        recorded_plan_finish(&recorded->plan, recorded->store->kernels);
    }
    recorded_plan_leave(recorded);
    recorded->planned = code == STATUS_OK;
    return code;
}

void recorded_plan_leave(struct recorded *recorded) {
    struct planner *planner = recorded->planner;
    struct recorded_store *store = recorded->store;
    if (!planner)
        return;
    planner->recorded = NULL;
    planner->body = NULL;
    planner->plan = NULL;
    recorded->planner = NULL;
    *store->left_last = planner;
    store->left_last = &planner->next;
    recorded_plans_drop(store);
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
    free(plan->taker);
    free(plan->bases);
    free(plan->storages);
    free(plan->kept);
    free(plan->spares);
    *plan = (struct recorded_plan){0};
}
