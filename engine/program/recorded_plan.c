/* Plans: from the operations of a program to its launches. Each operation is bound as it would be by itself (bind.c), into a stream that nobody runs and
 * with draft memory. Then the launches are copied out of the stream's records, and each draft address becomes an offset from a base of the
 * run: an input, a captured tensor, a result, the arena, or a report. */
#include <stdlib.h>
#include <string.h>

#include "engine/device/device_impl.h"
#include "engine/order/order_impl.h"
#include "engine/program/recorded_planner.h"

enum {
    PLAN_KEPT_BYTES =
        4096, /* of a result that follows from attributes alone: larger ones rather are made anew than keep memory */
    /* A result of so few bytes in whose memory so many launches come one after another is copied out of the arena at the end: then a run need not write
     * the result's address to all of them. */
    PLAN_COPIED_BYTES = 1024,
    PLAN_COPIED_LAUNCHES = 64,
};

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

static void value_drop(struct tensor *value) {
    if (value->poison)
        poison_unref(value->poison);
    storage_unref(value->storage);
    value->poison = NULL;
    value->storage = NULL;
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
        value_drop(&planner->values[i]);
    if (planner->stream)
        planner_drop_records(planner);
    draft_finish(&planner->draft);
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

/* ---- operations ---- */

static struct draft_piece *piece_of(const struct tensor *value) {
    return (struct draft_piece *)value->storage;
}

/* A parameter or a captured tensor: contiguous memory of its own. */
static int planner_given(struct planner *planner, unsigned i) {
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
        memset(more, 0, (request.n_inputs / 64 + 1) * sizeof *more);
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
                        .facts = signature.facts,
                        .fault = planner->fault};
    planner->small[k] = signature.facts.small;
    stream_begin_operation(planner->stream, NULL, k + 1);
    int code = bind_step(&step);
    stream_begin_operation(planner->stream, NULL, 0);
    for (unsigned i = 0; i < n_outputs; i++) { /* a report fails the whole run */
        poison_unref(planner->outputs[i]->poison);
        planner->outputs[i]->poison = NULL;
        if (!body->values[operation->first_output + i].last_use)
            value_drop(planner->outputs[i]);
    }
    for (unsigned i = 0; i < request.n_inputs; i++)
        if (body->values[operation->inputs[i]].last_use == k + 1 && value_is_own(planner, operation->inputs[i], k + 1))
            value_drop(planner->inputs[i]);
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
    bool lent = piece->base < body->n_parameters && planner->lends[piece->base];
    for (unsigned i = 0; i < r; i++)
        lent = lent && planner->plan->lender[i] != piece->base;
    bool whole =
        value->contiguous && value->offset == 0 && (uint64_t)type_bytes(&value->type) == piece->bytes && !piece->kept;
    bool copied = piece->bytes <= PLAN_COPIED_BYTES && planner->stream->enqueued - piece->from >= PLAN_COPIED_LAUNCHES;
    if (whole && (lent || (piece->base == arena && !copied))) {
        if (lent)
            planner->plan->lender[r] = piece->base;
        else
            piece->base = result_base;
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
    if (operation->dead || planner->reports[k]) /* a failure must be told to every run */
        return false;
    for (unsigned i = 0; i < operation->request.n_inputs; i++)
        if (!planner->once_value[operation->inputs[i]])
            return false;
    return operation->request.n_inputs ||
           (!operation->request.further &&
            type_bytes(&planner->body->values[operation->first_output].type) <= PLAN_KEPT_BYTES);
}

/* Finds the operations that need not run more than once. */
static void planner_once(struct planner *planner) {
    const struct recorded_body *body = planner->body;
    for (unsigned i = 0; i < body->n_values; i++) {
        planner->once_value[i] = i >= body->n_parameters && i < body->n_parameters + body->n_captures;
        planner->stays[i] = false;
    }
    for (unsigned k = 0; k < body->n_operations; k++) {
        const struct recorded_operation *operation = &body->operations[k];
        planner->once[k] = operation_runs_once(planner, k);
        for (unsigned i = 0; i <= operation->request.further; i++)
            planner->once_value[operation->first_output + i] = planner->once[k];
        for (unsigned i = 0; i < operation->request.n_inputs; i++)
            planner->stays[operation->inputs[i]] |= !planner->once[k] && !operation->dead;
    }
}

/* Notes which of these operations report after all. */
static bool planner_once_rightly(struct planner *planner) {
    struct record_cursor at = planner->stream->submit.at;
    bool right = true;
    for (uint64_t number = 0; number < planner->stream->enqueued; number++) {
        const struct record *record = stream_next_record(planner->stream, &at, NULL);
        uint64_t k = record->sequence;
        if (record->kind == RECORD_LAUNCH && record->launch.report && k && planner->once[k - 1]) {
            planner->reports[k - 1] = true;
            right = false;
        }
        at.used += record->bytes;
    }
    return right;
}

/* Binds everything: then the stream has the launches, and the draft the memory. What runs once comes first. */
static int planner_bind(struct planner *planner) {
    const struct recorded_body *body = planner->body;
    unsigned given = body->n_parameters + body->n_captures;
    int code = STATUS_OK;
    for (unsigned i = 0; i < given && code == STATUS_OK; i++)
        code = planner_given(planner, i);
    size_t begun = planner->draft.count;
    planner_once(planner);
    for (int once = 1; once >= 0; once--) {
        for (unsigned k = 0; k < body->n_operations && code == STATUS_OK; k++)
            if (!body->operations[k].dead && planner->once[k] == once)
                code = planner_operation(planner, k);
        if (!once)
            break;
        planner->once_end = planner->stream->enqueued;
        for (size_t i = begun; i < planner->draft.count; i++)
            planner->draft.pieces[i]->kept = planner->draft.pieces[i]->to == UINT64_MAX;
    }
    for (size_t i = begun; i < planner->draft.count; i++)
        planner->draft.pieces[i]->base = given + body->n_results;
    for (unsigned r = 0; r < body->n_results && code == STATUS_OK; r++)
        code = planner_result(planner, r);
    return code;
}

/* The memory of a parameter may be a result's if the run releases the input: in a loop, if the result is carried to this parameter. So the first
 * try lends all that are consumed, and the next one those for which that came out. */
static bool planner_lends_rightly(struct planner *planner) {
    const struct recorded *recorded = planner->recorded;
    const struct recorded_body *body = planner->body;
    bool right = true;
    for (unsigned r = 0; recorded->loops && r < body->n_results; r++) {
        uint32_t parameter = planner->plan->lender[r];
        bool carried = false;
        if (parameter == RECORDED_NONE)
            continue;
        for (unsigned i = 0; i < recorded->n_carries; i++)
            carried |= recorded->carries[i].result == r && recorded->carries[i].parameter == parameter;
        if (carried)
            continue;
        planner->lends[parameter] = false;
        right = false;
    }
    return right;
}

/* Whether a parameter's memory is overwritten by what is no result: then it cannot be lent in a loop, where it is not carried. */
static void planner_lends_first(struct planner *planner) {
    const struct recorded *recorded = planner->recorded;
    const struct recorded_body *body = planner->body;
    for (unsigned i = 0; i < body->n_parameters; i++)
        planner->lends[i] = body->consumed[i] && !recorded->loops;
    for (unsigned i = 0; i < recorded->n_carries; i++)
        planner->lends[recorded->carries[i].parameter] = body->consumed[recorded->carries[i].parameter];
}

/* ---- launches ---- */

static bool array_grow(void *array, size_t *room, size_t used, size_t size) {
    if (used < *room)
        return true;
    size_t more = *room ? 2 * *room : 64;
    void *grown = realloc(*(void **)array, more * size);
    if (!grown)
        return false;
    *(void **)array = grown;
    *room = more;
    return true;
}

/* The pointer at this place is an address of the draft. */
int planner_patch(struct planner *planner, size_t at, const void *address) {
    struct replay *replay = planner->plan->replay;
    const struct draft_piece *piece = draft_find(&planner->draft, address);
    if (!piece)
        return STATUS_OK; /* an empty input */
    if (!array_grow(&replay->patches, &planner->patches_room, replay->n_patches, sizeof *replay->patches))
        return plan_no_memory(planner->fault);
    replay->patches[replay->n_patches++] = (struct replay_patch){
        .at = (uint32_t)at,
        .base = piece->base,
        .offset = piece->offset + (uint64_t)((const uint8_t *)address - piece->storage.data),
    };
    return STATUS_OK;
}

/* The same of memory to which the launch writes. */
int planner_patch_output(struct planner *planner, size_t at, const void *address) {
    const struct draft_piece *piece = draft_find(&planner->draft, address);
    if (piece && piece->base < planner->body->n_parameters)
        planner->plan->overwritten[piece->base] = true;
    return planner_patch(planner, at, address);
}

int planner_patch_report(struct planner *planner, size_t at, uint32_t report) {
    struct replay *replay = planner->plan->replay;
    if (!array_grow(&replay->patches, &planner->patches_room, replay->n_patches, sizeof *replay->patches))
        return plan_no_memory(planner->fault);
    replay->patches[replay->n_patches++] =
        (struct replay_patch){.at = (uint32_t)at, .base = replay->first_report + report};
    return STATUS_OK;
}

struct replay_step *planner_step(struct planner *planner, const struct record *record, enum replay_kind kind,
                                 size_t at) {
    struct replay *replay = planner->plan->replay;
    if (!array_grow(&replay->steps, &planner->steps_room, replay->n_steps, sizeof *replay->steps))
        return NULL;
    struct replay_step *step = &replay->steps[replay->n_steps++];
    *step = (struct replay_step){.kind = (uint8_t)kind,
                                 .n = 1,
                                 .at = (uint32_t)at,
                                 .name = (uint32_t)record->sequence,
                                 .weight = record->weight,
                                 .sequence = record->sequence};
    replay->weight += record->weight;
    return step;
}

static bool operand_is_flat(const struct operand *operand) {
    return operand->rank <= 1 && operand->as == operand->dtype && (operand->rank == 0 || operand->strides[0] == 1);
}

static bool launch_is_flat(const struct planner *planner, const struct record *record) {
    const struct launch *launch = &record->launch;
    bool flat = record->sequence && planner->small[record->sequence - 1] && !launch->report && !launch->further &&
                !launch->attributes.n_ints && !launch->attributes.n_floats && launch->n_inputs <= 3 &&
                operand_is_flat(&launch->output);
    for (unsigned i = 0; i < launch->n_inputs && flat; i++)
        flat = operand_is_flat(&launch->inputs[i]) && (launch->inputs[i].rank == 0 ? 1 : launch->inputs[i].shape[0]) ==
                                                          (launch->output.rank == 0 ? 1 : launch->output.shape[0]);
    return flat;
}

static int take_flat(struct planner *planner, const struct record *record, size_t at) {
    struct replay *replay = planner->plan->replay;
    const struct launch *launch = &record->launch;
    struct flat_launch *flat = (struct flat_launch *)(void *)(replay->launches + at);
    *flat = (struct flat_launch){
        .opcode = launch->opcode,
        .n_inputs = launch->n_inputs,
        .dtype = launch->inputs[launch->n_inputs - 1].dtype,
        .elements = launch->output.rank == 0 ? 1 : (uint32_t)launch->output.shape[0],
        .sequence = record->sequence,
    };
    if (planner->open && planner->open->n < RECORD_FLAT_MAX) {
        planner->open->n++;
        planner->open->weight += record->weight;
        replay->weight += record->weight;
    } else if (!(planner->open = planner_step(planner, record, REPLAY_FLAT, at))) {
        return plan_no_memory(planner->fault);
    }
    int code = planner_patch_output(planner, at + offsetof(struct flat_launch, data[0]), launch->output.data);
    for (unsigned i = 0; i < launch->n_inputs && code == STATUS_OK; i++)
        code = planner_patch(planner, at + offsetof(struct flat_launch, data) + (i + 1) * sizeof(void *),
                             launch->inputs[i].data);
    return code;
}

/* Copies the launch. Its shapes, strides and attributes lie in the record behind it. */
static int take_launch(struct planner *planner, const struct planned_launch *planned, size_t at) {
    const struct record *record = planned->record;
    struct replay *replay = planner->plan->replay;
    size_t bytes = record->bytes - offsetof(struct record, launch);
    uint8_t *copy = replay->launches + at;
    const struct launch *from = &record->launch;
    memcpy(copy, from, bytes);
    struct launch *launch = (struct launch *)(void *)copy;
#define MOVED(pointer) (const void *)(copy + ((const uint8_t *)(pointer) - (const uint8_t *)from))
    if (launch->attributes.ints)
        launch->attributes.ints = MOVED(from->attributes.ints);
    if (launch->attributes.floats)
        launch->attributes.floats = MOVED(from->attributes.floats);
    unsigned n = launch->n_inputs + launch->further;
    launch->output.shape = MOVED(from->output.shape);
    launch->output.strides = MOVED(from->output.strides);
    for (unsigned i = 0; i < n; i++) {
        launch->inputs[i].shape = MOVED(from->inputs[i].shape);
        launch->inputs[i].strides = MOVED(from->inputs[i].strides);
    }
#undef MOVED
    planner->open = NULL;
    if (!planner_step(planner, record, REPLAY_LAUNCH, at))
        return plan_no_memory(planner->fault);
    int code = planner_patch_output(planner, at + offsetof(struct launch, output.data), from->output.data);
    for (unsigned i = 0; i < n && code == STATUS_OK; i++)
        code = (i < launch->n_inputs ? planner_patch : planner_patch_output)(
            planner, at + offsetof(struct launch, inputs) + i * sizeof(struct operand) + offsetof(struct operand, data),
            from->inputs[i].data);
    if (code == STATUS_OK && from->workspace)
        code = planner_patch(planner, at + offsetof(struct launch, workspace), from->workspace);
    if (code == STATUS_OK && from->report)
        code = planner_patch_report(planner, at + offsetof(struct launch, report), planned->report);
    return code;
}

/* Lists the launches and the guards. A guard's record comes behind its launches. Returns how many bytes the launches take at most. */
static size_t records_list(struct planner *planner) {
    struct replay *replay = planner->plan->replay;
    struct stream *stream = planner->stream;
    struct record_cursor cursor = stream->submit.at;
    size_t bytes = 0;
    for (uint64_t number = 1; number <= stream->enqueued; number++) {
        const struct record *record = stream_next_record(stream, &cursor, NULL);
        if (record->kind == RECORD_LAUNCH) {
            planner->n_once += number <= planner->once_end;
            planner->launches[planner->n_launches++] =
                (struct planned_launch){.record = record, .report = replay->n_guards, .fused = 1};
            bytes += record->bytes + sizeof(struct fused_operation) + sizeof(struct fused_launch);
        } else if (record->kind == RECORD_POISON && record->poison.guard) {
            const struct guard *guard = record->poison.guard;
            replay->guards[replay->n_guards++] = (struct replay_guard){
                .name = (uint32_t)guard->sequence, .axis = guard->axis, .above = guard->above, .launch = guard->launch};
        }
        cursor.used += record->bytes;
    }
    return bytes;
}

static int launches_take(struct planner *planner) {
    struct replay *replay = planner->plan->replay;
    int code = STATUS_OK;
    for (size_t i = 0; i < planner->n_launches && code == STATUS_OK; i++) {
        const struct planned_launch *planned = &planner->launches[i];
        if (i == planner->n_once) {
            planner->open = NULL;
            replay->n_once = replay->n_steps;
        }
        if (planned->fused > 1) {
            planner->open = NULL;
            size_t bytes = planner_take_fused(planner, planned, replay->bytes);
            code = bytes ? STATUS_OK : (int)planner->fault->code;
            replay->bytes += bytes;
        } else if (planned->fused && launch_is_flat(planner, planned->record)) {
            code = take_flat(planner, planned->record, replay->bytes);
            replay->bytes += sizeof(struct flat_launch);
        } else if (planned->fused) {
            code = take_launch(planner, planned, replay->bytes);
            replay->bytes += (planned->record->bytes - offsetof(struct record, launch) + 15) & ~(size_t)15;
        }
    }
    return code;
}

/* By their bases: then a run writes those alone whose bases are others than the last run's. */
static int patches_sort(struct planner *planner) {
    struct replay *replay = planner->plan->replay;
    struct replay_patch *sorted = malloc((replay->n_patches + 1) * sizeof *sorted);
    uint32_t *first = replay->first_patch = calloc(replay->n_bases + 2, sizeof *first);
    if (!sorted || !first) {
        free(sorted);
        return plan_no_memory(planner->fault);
    }
    for (unsigned i = 0; i < replay->n_patches; i++)
        first[replay->patches[i].base + 2]++;
    for (unsigned base = 0; base < replay->n_bases; base++)
        first[base + 2] += first[base + 1];
    for (unsigned i = 0; i < replay->n_patches; i++) /* then each of them is where the next base's begin */
        sorted[first[replay->patches[i].base + 1]++] = replay->patches[i];
    free(replay->patches);
    replay->patches = sorted;
    return STATUS_OK;
}

/* Name 0 is that of launches which belong to no operation: copies to results. */
static bool planner_names(struct planner *planner) {
    const struct recorded_body *body = planner->body;
    struct replay *replay = planner->plan->replay;
    replay->n_names = body->n_operations + 1; /* behind them those of fused launches */
    replay->names = calloc(replay->n_names + planner->n_launches / 2 + 1, sizeof *replay->names);
    for (unsigned k = 0; replay->names && k < body->n_operations; k++) {
        const struct op_request *request = &body->operations[k].request;
        struct replay_name *name = &replay->names[k + 1];
        strncpy(name->operation, op_info(request->opcode)->name, OPERATION_NAME_MAX);
        if (request->label)
            strncpy(name->label, request->label, OPERATION_LABEL_MAX);
    }
    return replay->names;
}

/* Lays out the arena: the pieces that are no input, captured tensor or result. */
static bool planner_arena(struct planner *planner, uint32_t base) {
    struct draft_piece **pieces = malloc((planner->draft.count + 1) * sizeof(struct draft_piece *));
    size_t count = 0;
    if (!pieces)
        return false;
    for (size_t i = 0; i < planner->draft.count; i++)
        if (planner->draft.pieces[i]->base == base && !planner->draft.pieces[i]->slot)
            pieces[count++] = planner->draft.pieces[i];
    planner->plan->arena_bytes = draft_place(pieces, count, &planner->plan->least_bytes);
    free(pieces);
    return true;
}

static int planner_replay(struct planner *planner) {
    const struct recorded_body *body = planner->body;
    struct replay *replay = planner->plan->replay = calloc(1, sizeof *replay);
    size_t records = (size_t)planner->stream->enqueued;
    planner->launches = calloc(records + 1, sizeof *planner->launches);
    if (replay)
        replay->guards = calloc(records + 1, sizeof *replay->guards);
    if (!replay || !planner->launches || !replay->guards)
        return plan_no_memory(planner->fault);
    replay->first_report = body->n_parameters + body->n_captures + body->n_results + 1;
    size_t bytes = records_list(planner);
    if (bytes > UINT32_MAX)
        return fault_set(planner->fault, STATUS_LIMIT, "the program's launches have %zu bytes", bytes);
    planner_fuse(planner);
    replay->n_bases = replay->first_report + replay->n_guards;
    replay->launches = aligned_alloc(64, (bytes + 127) & ~(size_t)63);
    replay->applied = malloc(replay->n_bases * sizeof(uint8_t *));
    if (!replay->launches || !replay->applied || !planner_names(planner) ||
        !planner_arena(planner, replay->first_report - 1))
        return plan_no_memory(planner->fault);
    memset(replay->applied, 0xff, replay->n_bases * sizeof(uint8_t *)); /* no run has these */
    int code = launches_take(planner);
    return code == STATUS_OK ? patches_sort(planner) : code;
}

int recorded_plan(struct recorded *recorded, struct session *session, struct fault *fault) {
    struct planner planner = {.recorded = recorded, .body = recorded->body, .plan = &recorded->plan, .fault = fault};
    const struct recorded_body *body = recorded->body;
    struct recorded_plan *plan = &recorded->plan;
    plan->lender = calloc(body->n_results, sizeof(uint32_t));
    plan->overwritten = calloc(body->n_parameters + 1, sizeof(bool));
    bool room = plan->lender && plan->overwritten && planner_init(&planner, session);
    int code = room ? STATUS_OK : plan_no_memory(fault);
    if (code == STATUS_OK) {
        planner_lends_first(&planner);
        code = planner_bind(&planner);
    }
    while (code == STATUS_OK && (!planner_lends_rightly(&planner) || !planner_once_rightly(&planner))) {
        planner_reset(&planner);
        planner.draft.clock = &planner.stream->enqueued;
        code = planner_bind(&planner);
    }
    if (code == STATUS_OK)
        code = planner_replay(&planner);
    if (code == STATUS_OK) {
        /* A parameter or result has its storage and perhaps a spare one; the arena. */
        plan->bases = malloc(plan->replay->n_bases * sizeof(uint8_t *));
        plan->storages = malloc((2 * plan->replay->first_report + 1) * sizeof(struct storage *));
        plan->kept = malloc((2 * plan->replay->first_report + 1) * sizeof(struct storage *));
        plan->spares = malloc((recorded->n_carries + 1) * sizeof(uint8_t *));
        code = plan->bases && plan->storages && plan->kept && plan->spares ? STATUS_OK : plan_no_memory(fault);
    }
    planner_finish(&planner);
    if (code != STATUS_OK)
        recorded_plan_finish(&recorded->plan);
    recorded->planned = code == STATUS_OK;
    return code;
}

void recorded_plan_finish(struct recorded_plan *plan) {
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
