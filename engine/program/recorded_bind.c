/* Plans, the first part: operations are bound as they would be by themselves (bind.c), into a stream that nobody runs and with draft memory. */
#include <stdlib.h>
#include <string.h>

#include "engine/order/order_impl.h"
#include "engine/program/recorded_planner.h"

enum {
    PLAN_KEPT_BYTES =
        4096, /* of a result that follows from attributes alone: larger ones rather are made anew than keep memory */
    /* A result of so few bytes in whose memory so many launches come one after another is copied out of the arena at the end: then a run need not write
     * the result's address to all of them. */
    PLAN_COPIED_BYTES = 1024,
    PLAN_COPIED_LAUNCHES = 64,
    PLAN_OPERATION_STEPS = 8, /* of the turn's budget */
    PLAN_VALUES_A_STEP = 16,
};

void planner_value_drop(struct tensor *value) {
    if (value->poison)
        poison_unref(value->poison);
    storage_unref(value->storage);
    value->poison = NULL;
    value->storage = NULL;
}

static struct draft_piece *piece_of(const struct tensor *value) {
    return (struct draft_piece *)value->storage;
}

/* A parameter or a captured tensor: contiguous memory of its own. */
static int value_given(struct planner *planner, unsigned i) {
    struct tensor *value = &planner->values[i];
    int64_t bytes = type_bytes(&planner->body->values[i].type);
    value->type = planner->body->values[i].type;
    value->references = 1;
    value->contiguous = true;
    layout_contiguous(value->type.rank, value->type.shape, value->strides);
    if (!bytes)
        return STATUS_OK;
    int code = draft_storage(&planner->draft, (uint64_t)bytes, &value->storage, planner->fault);
    if (code == STATUS_OK)
        piece_of(value)->base = i;
    return code;
}

/* Whether the value's memory may become a result's when nobody reads it any more, at operation `here`. What the run does not own stays in use, also by
 * views of it; and so does what only the first run makes. */
static bool value_is_own(const struct planner *planner, uint32_t value, uint32_t here) {
    const struct recorded_body *body = planner->body;
    if (value < body->n_parameters)
        return planner->lends[value];
    if (value < body->n_parameters + body->n_captures)
        return false;
    const struct draft_piece *piece = piece_of(&planner->values[value]);
    return planner->once[here - 1] ? !planner->stays[value] : !piece || !piece->kept;
}

/* Bit i: the operation is the last one that reads its input i, whose memory nobody else needs. */
static uint16_t operation_lends(const struct planner *planner, const struct recorded_operation *operation,
                                uint64_t *more) {
    const struct recorded_body *body = planner->body;
    uint32_t here = (uint32_t)(operation - body->operations) + 1;
    uint16_t lends = 0;
    for (unsigned i = 0; i < operation->request.n_inputs; i++) {
        uint32_t value = operation->inputs[i];
        if (body->values[value].last_use != here || !value_is_own(planner, value, here))
            continue;
        if (i < 16)
            lends |= (uint16_t)(1u << i);
        else
            more[(i - 16) / 64] |= UINT64_C(1) << (i - 16) % 64;
    }
    return lends;
}

static int planner_operation(struct planner *planner, unsigned k) {
    struct recorded_body *body = planner->body;
    struct recorded_operation *operation = &body->operations[k];
    uint64_t more[(OP_INPUTS_MAX + 63) / 64];
    struct op_request request = operation->request;
    struct signature signature;
    struct tensor_type type, *types = &type;
    unsigned n_outputs = 1 + request.further;
    if (request.n_inputs > 16)
        memset(more, 0, (request.n_inputs - 16 + 63) / 64 * sizeof *more);
    for (unsigned i = 0; i < request.n_inputs; i++) {
        planner->inputs[i] = &planner->values[operation->inputs[i]];
        planner->types[i] = &planner->inputs[i]->type;
    }
    for (unsigned i = 0; i < n_outputs; i++) {
        struct tensor *output = &planner->values[operation->first_output + i];
        planner->outputs[i] = output;
        output->type = body->values[operation->first_output + i].type;
        output->references = 1;
        output->contiguous = true;
    }
    if (n_outputs > 1 && !(types = malloc(n_outputs * sizeof *types)))
        return plan_no_memory(planner->fault);
    bool good = signature_make(planner->recorded->store->signatures, request.opcode, planner->types, request.n_inputs,
                               &request.attributes, n_outputs, types, &signature, planner->fault);
    if (types != &type)
        free(types);
    if (!good)
        return (int)planner->fault->code;
    request.sequence = k + 1;
    request.consume = operation_lends(planner, operation, more);
    request.consume_more = request.n_inputs > 16 ? more : NULL;
    struct step step = {.request = &request,
                        .info = op_info(request.opcode),
                        .session = planner->session,
                        .stream = planner->stream,
                        .inputs = planner->inputs,
                        .types = planner->types,
                        .outputs = planner->outputs,
                        .output = planner->outputs[0],
                        .n_outputs = n_outputs,
                        .lends = request.consume,
                        .planned = true,
                        .facts = signature.facts,
                        .kernel = operation->kernel,
                        .fault = planner->fault};
    planner->small[k] = signature.facts.small;
    stream_begin_operation(planner->stream, NULL, k + 1);
    int code = bind_step(&step);
    stream_begin_operation(planner->stream, NULL, 0);
    for (unsigned i = 0; i < n_outputs; i++) { /* a report fails the whole run */
        tensor_poison(planner->session, planner->outputs[i], NULL);
        if (!body->values[operation->first_output + i].last_use)
            planner_value_drop(planner->outputs[i]);
    }
    for (unsigned i = 0; i < request.n_inputs; i++)
        if (body->values[operation->inputs[i]].last_use == k + 1 && value_is_own(planner, operation->inputs[i], k + 1))
            planner_value_drop(planner->inputs[i]);
    return code;
}

/* Each result has memory of its own: what shares memory with something else is copied. The memory of a parameter that lends is the result's, too. */
static int planner_result(struct planner *planner, unsigned r) {
    const struct recorded_body *body = planner->body;
    const struct tensor *value = &planner->values[body->results[r]];
    uint32_t result_base = body->n_parameters + body->n_captures + r,
             arena = body->n_parameters + body->n_captures + body->n_results;
    planner->plan->lender[r] = RECORDED_NONE;
    if (!value->storage)
        return STATUS_OK;
    struct draft_piece *piece = piece_of(value);
    bool lent = piece->base < body->n_parameters && planner->lends[piece->base] &&
                planner->plan->taker[piece->base] == RECORDED_NONE;
    bool whole =
        value->contiguous && value->offset == 0 && (uint64_t)type_bytes(&value->type) == piece->bytes && !piece->kept;
    bool copied = piece->bytes <= PLAN_COPIED_BYTES && planner->stream->enqueued - piece->from >= PLAN_COPIED_LAUNCHES;
    if (whole && (lent || (piece->base == arena && !copied))) {
        if (lent) {
            planner->plan->lender[r] = piece->base;
            planner->plan->taker[piece->base] = r;
        } else {
            piece->base = result_base;
        }
        return STATUS_OK;
    }
    struct storage *storage;
    int code = view_materialise(&planner->session->ledger, planner->stream, value, &storage, planner->fault);
    if (code == STATUS_OK) { /* it lives to the end: its last reference goes with the draft */
        ((struct draft_piece *)storage)->base = result_base;
    }
    return code;
}

static bool operation_runs_once(const struct planner *planner, unsigned k) {
    const struct recorded_operation *operation = &planner->body->operations[k];
    if (operation->dead || operation->kernel || planner->reports[k]) /* a failure must be told to every run */
        return false;
    for (unsigned i = 0; i < operation->request.n_inputs; i++)
        if (!planner->once_value[operation->inputs[i]])
            return false;
    return operation->request.n_inputs ||
           (!operation->request.further &&
            type_bytes(&planner->body->values[operation->first_output].type) <= PLAN_KEPT_BYTES);
}

int planner_given(struct planner *planner) {
    const struct recorded_body *body = planner->body;
    int code = STATUS_OK;
    for (unsigned i = 0; i < body->n_parameters + body->n_captures && code == STATUS_OK; i++)
        code = value_given(planner, i);
    planner->given = planner->draft.count;
    planner->draft.base = body->n_parameters + body->n_captures + body->n_results;
    planner->now_once = true;
    return code;
}

static void operation_once(struct planner *planner, unsigned k) {
    const struct recorded_operation *operation = &planner->body->operations[k];
    planner->once[k] = operation_runs_once(planner, k);
    for (unsigned i = 0; i <= operation->request.further; i++)
        planner->once_value[operation->first_output + i] = planner->once[k];
    for (unsigned i = 0; i < operation->request.n_inputs; i++)
        planner->stays[operation->inputs[i]] |= !planner->once[k] && !operation->dead;
}

/* Finds the operations that need not run more than once. */
int planner_once(struct planner *planner) {
    const struct recorded_body *body = planner->body;
    struct budget *budget = &planner->order->budget;
    for (; planner->at < body->n_values; planner->at++) {
        if (budget_spent(budget, planner->at % PLAN_VALUES_A_STEP == 0))
            return STATUS_AGAIN;
        planner->once_value[planner->at] =
            planner->at >= body->n_parameters && planner->at < body->n_parameters + body->n_captures;
        planner->stays[planner->at] = false;
    }
    for (; planner->at - body->n_values < body->n_operations; planner->at++) {
        unsigned k = (unsigned)(planner->at - body->n_values);
        const struct op_request *request = &body->operations[k].request;
        if (budget_spent(budget, 1 + (int)(request->n_inputs + request->further) / PLAN_VALUES_A_STEP))
            return STATUS_AGAIN;
        operation_once(planner, k);
    }
    return STATUS_OK;
}

int planner_bind(struct planner *planner) {
    const struct recorded_body *body = planner->body;
    struct budget *budget = &planner->order->budget;
    int code = STATUS_OK;
    for (; planner->at < body->n_operations && code == STATUS_OK; planner->at++) {
        const struct recorded_operation *operation = &body->operations[planner->at];
        if (operation->dead || planner->once[planner->at] != planner->now_once)
            continue;
        if (budget_spent(budget,
                         PLAN_OPERATION_STEPS + (int)(operation->request.n_inputs + operation->request.further)))
            return STATUS_AGAIN;
        code = planner_operation(planner, (unsigned)planner->at);
        if (code == STATUS_OK)
            code = planner_pay(planner, 0);
    }
    return code;
}

/* What operations that run once have bound, and what still is in use, is kept. */
int planner_keep(struct planner *planner) {
    struct draft *draft = &planner->draft;
    for (; planner->at < draft->count; planner->at++) {
        if (budget_spent(&planner->order->budget, 1))
            return STATUS_AGAIN;
        draft->pieces[planner->at]->kept =
            planner->at >= planner->given && draft->pieces[planner->at]->to == UINT64_MAX;
    }
    planner->once_end = planner->stream->enqueued;
    planner->now_once = false;
    return STATUS_OK;
}

int planner_bind_end(struct planner *planner) {
    const struct recorded_body *body = planner->body;
    int code = STATUS_OK;
    for (unsigned i = 0; i < body->n_parameters; i++)
        planner->plan->taker[i] = RECORDED_NONE;
    for (unsigned r = 0; r < body->n_results && code == STATUS_OK; r++)
        code = planner_result(planner, r);
    return code;
}

/* The memory of a parameter may be a result's if the run releases the input: in a loop, if the result is carried to this parameter. So the first
 * try lends all that are consumed, and the next one those for which that came out. */
static int judge_lends(struct planner *planner) {
    const struct recorded *recorded = planner->recorded;
    const uint32_t *taker = planner->plan->taker;
    unsigned n = planner->body->n_parameters;
    bool *carried = recorded->loops ? calloc(n + 1, sizeof *carried) : NULL;
    if (!recorded->loops)
        return STATUS_OK;
    if (!carried)
        return plan_no_memory(planner->fault);
    for (unsigned i = 0; i < recorded->n_carries; i++)
        carried[recorded->carries[i].parameter] = taker[recorded->carries[i].parameter] == recorded->carries[i].result;
    for (unsigned i = 0; i < n; i++) {
        if (taker[i] == RECORDED_NONE || carried[i])
            continue;
        planner->lends[i] = false;
        planner->wrong = true;
    }
    free(carried);
    return STATUS_OK;
}

/* Whether a parameter's memory is overwritten by what is no result: then it cannot be lent in a loop, where it is not carried. */
void planner_lends_first(struct planner *planner) {
    const struct recorded *recorded = planner->recorded;
    const struct recorded_body *body = planner->body;
    for (unsigned i = 0; i < body->n_parameters; i++)
        planner->lends[i] = body->consumed[i] && !recorded->loops;
    for (unsigned i = 0; i < recorded->n_carries; i++)
        planner->lends[recorded->carries[i].parameter] = body->consumed[recorded->carries[i].parameter];
}

/* Operations that report after all run every time. */
int planner_judge(struct planner *planner) {
    struct budget *budget = &planner->order->budget;
    if (planner->at == 0) {
        planner->cursor = planner->stream->submit.at;
        planner->wrong = false;
        int code = judge_lends(planner);
        if (code != STATUS_OK)
            return code;
    }
    for (; planner->at < planner->stream->enqueued; planner->at++) {
        if (planner->at && budget_spent(budget, 1))
            return STATUS_AGAIN;
        const struct record *record = stream_next_record(planner->stream, &planner->cursor, NULL);
        uint64_t k = record->sequence;
        planner->cursor.used += record->bytes;
        if (record->kind != RECORD_LAUNCH || !record->launch.report || !k || !planner->once[k - 1])
            continue;
        planner->reports[k - 1] = true;
        planner->wrong = true;
    }
    return STATUS_OK;
}
