/* OP_FAMILY_PROGRAM: a run of a recorded program becomes one record. Its inputs, captured tensors and results, its arena and its reports are the bases
 * from which the addresses in its launches follow (order/replay.h). */
#include <string.h>

#include "engine/program/kernel_impl.h"
#include "engine/program/recorded_impl.h"

enum {
    BASE_ALIGNMENT = 64,  /* as all storage has it; what a kernel chose for its plan may rely on it */
    RUN_BASES_A_STEP = 4, /* of the turn's budget */
};

/* A run while it is bound. */
struct run {
    struct step *step;
    struct recorded *recorded;
    const struct recorded_body *body;
    struct recorded_plan *plan;
    int64_t times;
    unsigned n_storages, n_kept;
    uint32_t n_moves, n_carries; /* so far */
    struct replay_run *record;   /* once it is there */
};

/* Takes over a reference until the run is enqueued. */
static void run_keep(struct run *run, struct storage *storage) {
    if (storage)
        run->plan->kept[run->n_kept++] = storage;
}

/* The run's launches use the storage. */
static void run_uses(struct run *run, struct storage *storage) {
    if (storage)
        run->plan->storages[run->n_storages++] = storage;
}

/* ---- before anything is enqueued ---- */

/* Captured tensors fail a run as its inputs do: with the first cause. */
static int capture_settle(struct step *step, struct tensor *capture) {
    if (tensor_settle(step->session, capture)) {
        *step->cause = tensor_cause(capture);
        return STATUS_INVALID_ARGUMENT; /* not the cause's code: no run waits for memory that its captured tensor did not get */
    }
    step->poisoned |= capture->poison != NULL;
    return STATUS_OK;
}

int bind_program_find(struct step *step) {
    struct recorded *recorded = step->recorded;
    int code = STATUS_OK;
    if (step->request->kernels_denied && recorded->body->n_kernels)
        return kernel_refuse(step->request->kernels_denied, step->fault);
    for (unsigned i = 0; i < recorded->body->n_captures && code == STATUS_OK; i++)
        code = capture_settle(step, recorded->body->captures[i]);
    if (code == STATUS_OK && !recorded->planned)
        code = recorded_plan(recorded, step->session, step->fault);
    return code;
}

/* ---- the bases ---- */

static bool view_is_plain(const struct view *view) {
    return layout_is_contiguous(view->rank, view->shape, view->strides) && (uintptr_t)view->data % BASE_ALIGNMENT == 0;
}

/* Contiguous memory with the tensor's value, for reading. */
static int base_read(struct run *run, const struct tensor *tensor, unsigned base) {
    struct step *step = run->step;
    struct view view;
    int code = STATUS_OK;
    view_init(&view, tensor);
    if (view.storage && !view_is_plain(&view))
        code = view_convert(&step->session->ledger, step->stream, &view, view.dtype, step->fault);
    if (code != STATUS_OK)
        return code;
    run->plan->bases[base] = view.data;
    run_uses(run, view.storage);
    if (view.temporary)
        run_keep(run, view.storage);
    return STATUS_OK;
}

/* Memory of the run's own with the input's value, to which launches write: that of the input, or a copy in `out`. */
static int base_write(struct run *run, unsigned i, struct tensor *out) {
    struct step *step = run->step;
    struct tensor *in = step->inputs[i];
    int code = STATUS_OK;
    bool lends = bind_lends(step, i);
    for (unsigned k = 0; k < step->request->n_inputs && lends; k++)
        lends = k == i || step->inputs[k] != in;
    if (lends) {
        bind_take_memory(out, in);
        code = plan_wait_memory(step->stream, out->storage, step->fault);
    } else { /* the result may have another shape or dtype, in as many bytes */
        struct tensor copy = {.type = in->type};
        struct view to, from;
        code = bind_allocate(step, &copy);
        if (code != STATUS_OK || !copy.storage)
            return code;
        view_init(&to, &copy);
        view_init(&from, in);
        code = view_copy(&step->session->ledger, step->stream, to, from, step->fault);
        bind_take_memory(out, &copy);
        storage_unref(copy.storage);
    }
    run->plan->bases[i] = out->storage ? out->storage->data : NULL;
    run_uses(run, out->storage);
    return code;
}

static int run_inputs(struct run *run) {
    struct step *step = run->step;
    int code = STATUS_OK;
    for (unsigned i = 0; i < run->body->n_parameters && code == STATUS_OK; i++) {
        uint32_t result = run->plan->taker[i];
        struct tensor copy = {.type = step->inputs[i]->type};
        if (result != RECORDED_NONE)
            code = base_write(run, i, step->outputs[result]);
        else if (run->plan->overwritten[i])
            code = base_write(run, i, &copy);
        else
            code = base_read(run, step->inputs[i], i);
        run_keep(run, copy.storage);
    }
    return code;
}

static int run_captures(struct run *run) {
    int code = STATUS_OK;
    for (unsigned i = 0; i < run->body->n_captures && code == STATUS_OK; i++) {
        struct tensor *capture = run->body->captures[i];
        unsigned base = run->body->n_parameters + i;
        code = plan_wait_value(run->step->stream, capture, run->step->fault);
        if (code == STATUS_OK)
            code = base_read(run, capture, base);
    }
    return code;
}

static int run_results(struct run *run) {
    unsigned first = run->body->n_parameters + run->body->n_captures;
    int code = STATUS_OK;
    for (unsigned r = 0; r < run->body->n_results && code == STATUS_OK; r++) {
        struct tensor *out = run->step->outputs[r];
        run->plan->bases[first + r] = NULL;
        if (run->plan->lender[r] != RECORDED_NONE)
            continue;
        code = bind_allocate(run->step, out);
        if (code != STATUS_OK || !out->storage)
            continue;
        run->plan->bases[first + r] = out->storage->data;
        run_uses(run, out->storage);
    }
    return code;
}

static int run_arena(struct run *run) {
    struct step *step = run->step;
    struct recorded_plan *plan = run->plan;
    int code = STATUS_OK;
    plan->bases[plan->replay->first_report - 1] = NULL;
    if (!plan->arena_bytes)
        return STATUS_OK;
    if (!plan->arena)
        code = ledger_storage(&step->session->ledger, plan->arena_bytes, step->stream, &plan->arena, step->fault);
    if (code == STATUS_OK)
        code = plan_wait_memory(step->stream, plan->arena, step->fault);
    if (code != STATUS_OK)
        return code;
    plan->bases[plan->replay->first_report - 1] = plan->arena->data;
    run_uses(run, plan->arena);
    return STATUS_OK;
}

/* ---- loops ---- */

/* A result that is carried, and not in its parameter's memory, has memory for two iterations, which change places after each iteration but the
 * last one. The result shall end in the memory of its tensor. */
static int carry_spares(struct run *run) {
    struct step *step = run->step;
    int code = STATUS_OK;
    for (unsigned i = 0; i < run->recorded->n_carries && code == STATUS_OK; i++) {
        uint32_t result = run->recorded->carries[i].result;
        struct tensor *out = step->outputs[result], spare = {.type = out->type};
        run->plan->spares[i] = NULL;
        if (run->plan->lender[result] != RECORDED_NONE || run->times == 1 || !out->storage)
            continue;
        code = bind_allocate(step, &spare);
        if (code != STATUS_OK)
            return code;
        run_uses(run, spare.storage);
        run->plan->spares[i] = spare.storage->data;
        run->n_carries++;
        if (run->times % 2 == 0) {
            struct storage *storage = out->storage;
            out->storage = spare.storage;
            spare.storage = storage;
        }
        run_keep(run, spare.storage);
    }
    return code;
}

static void run_count_moves(struct run *run) {
    const struct recorded *recorded = run->recorded;
    if (!recorded->loops || run->times == 1)
        return;
    for (unsigned i = 0; i < run->body->n_parameters; i++)
        run->n_moves += recorded->sliced[i];
    for (unsigned r = 0; r < run->body->n_results; r++)
        run->n_moves += recorded->stacked[r];
}

static void run_fill_moves(struct run *run) {
    const struct recorded *recorded = run->recorded;
    const struct recorded_body *body = run->body;
    struct replay_move *move = replay_moves(run->record);
    if (!run->n_moves)
        return;
    for (unsigned i = 0; i < body->n_parameters; i++)
        if (recorded->sliced[i])
            *move++ = (struct replay_move){i, type_bytes(&body->values[i].type)};
    for (unsigned r = 0; r < body->n_results; r++)
        if (recorded->stacked[r])
            *move++ = (struct replay_move){body->n_parameters + body->n_captures + r,
                                           type_bytes(&body->values[body->results[r]].type)};
}

static void run_fill_carries(struct run *run) {
    struct replay_carry *carry = replay_carries(run->record);
    unsigned first = run->body->n_parameters + run->body->n_captures;
    for (unsigned i = 0; i < run->recorded->n_carries && run->n_carries; i++) {
        const struct recorded_carry *pair = &run->recorded->carries[i];
        if (run->plan->spares[i])
            *carry++ = (struct replay_carry){first + pair->result, pair->parameter, run->plan->spares[i]};
    }
}

/* ---- the whole ---- */

/* The poison of captured tensors is the run's, like that of its inputs. */
static int run_poison(struct run *run) {
    struct step *step = run->step;
    int code = STATUS_OK;
    for (unsigned i = 0; i < run->body->n_captures && code == STATUS_OK; i++) {
        struct poison *inputs[3] = {step->settled, run->body->captures[i]->poison, NULL};
        if (!inputs[1])
            continue;
        struct poison *so_far = poison_create();
        code = so_far ? bind_push_poison(step->stream, so_far, inputs, NULL, step->fault) : plan_no_memory(step->fault);
        poison_unref(step->settled);
        step->settled = so_far;
    }
    return code;
}

static int run_push(struct run *run) {
    struct step *step = run->step;
    struct recorded_plan *plan = run->plan;
    struct replay *replay = plan->replay;
    struct reports *reports = &step->session->order->reports;
    struct record *record;
    unsigned taken = 0;
    int code = STATUS_OK;
    for (; taken < replay->n_guards; taken++) {
        struct report *report = reports_take(reports);
        if (!report)
            break;
        plan->bases[replay->first_report + taken] = (uint8_t *)report;
    }
    if (taken < replay->n_guards)
        code = plan_no_memory(step->fault);
    run_count_moves(run);
    if (code == STATUS_OK)
        code = plan_push_replay(step->stream, plan->storages, run->n_storages,
                                replay_run_bytes(replay, run->n_moves, run->n_carries), replay->weight,
                                (uint64_t)run->times, &record, step->fault);
    if (code != STATUS_OK) {
        while (taken--)
            reports_give(reports, (struct report *)(void *)plan->bases[replay->first_report + taken]);
        return code;
    }
    run->record = &record->replay;
    *run->record = (struct replay_run){.replay = replay,
                                       .times = (uint64_t)run->times,
                                       .guard = step->guard ? guard_ref(step->guard) : NULL,
                                       .reports = reports,
                                       .n_moves = run->n_moves,
                                       .n_carries = run->n_carries};
    run_fill_moves(run);
    run_fill_carries(run);
    step->session->order->budget.steps -= (int)(replay->n_bases / RUN_BASES_A_STEP);
    memcpy(replay_bases(run->record), plan->bases, replay->n_bases * sizeof(uint8_t *));
    use_list_note(&run->recorded->uses, step->stream, step->stream->enqueued);
    recorded_ran(step->session, run->recorded);
    for (unsigned k = 0; k < run->body->n_operations && run->body->n_kernels; k++)
        if (run->body->operations[k].kernel)
            kernel_use(run->body->operations[k].kernel, step->stream, step->stream->enqueued);
    return STATUS_OK;
}

static int run_bind(struct run *run) {
    int code = bind_wait(run->step);
    if (code == STATUS_OK)
        code = run_inputs(run);
    if (code == STATUS_OK)
        code = run_captures(run);
    if (code == STATUS_OK)
        code = run_results(run);
    if (code == STATUS_OK)
        code = carry_spares(run);
    if (code == STATUS_OK)
        code = run_arena(run);
    if (code == STATUS_OK)
        code = run_poison(run);
    return code == STATUS_OK ? run_push(run) : code;
}

int bind_program(struct step *step) {
    struct run run = {.step = step,
                      .recorded = step->recorded,
                      .body = step->recorded->body,
                      .plan = &step->recorded->plan,
                      .times = step->request->ints[1]};
    int code = run_bind(&run);
    while (run.n_kept)
        storage_unref(run.plan->kept[--run.n_kept]);
    for (unsigned r = 0; r < step->n_outputs; r++) {
        step->outputs[r]->ready = step->stream;
        step->outputs[r]->ready_number = step->stream->enqueued;
    }
    return code;
}
