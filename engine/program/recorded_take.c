/* Plans, the last part: launches are copied out of the stream's records, and each draft address in them becomes an offset from a base of the run: an
 * input, a captured tensor, a result, the arena, or a report. */
#include <stdlib.h>
#include <string.h>

#include "engine/order/order_impl.h"
#include "engine/program/kernel_impl.h"
#include "engine/program/recorded_planner.h"
#include "proto/ops/kernel.h"

enum { SORTED_A_STEP = 8 /* addresses */ };

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
        return (int)planner->fault->code;
    }
    int code = planner_patch_output(planner, at + offsetof(struct flat_launch, data[0]), launch->output.data);
    for (unsigned i = 0; i < launch->n_inputs && code == STATUS_OK; i++)
        code = planner_patch(planner, at + offsetof(struct flat_launch, data) + (i + 1) * sizeof(void *),
                             launch->inputs[i].data);
    return code;
}

/* The launch of a client's kernel: its arguments are addresses where the operation says so. */
static int take_kernel(struct planner *planner, const struct planned_launch *planned, size_t at) {
    const struct record *record = planned->record;
    const struct kernel_launch *from = &record->kernel;
    const struct op_request *request = &planner->body->operations[record->sequence - 1].request;
    struct kernel_attributes attributes;
    kernel_attributes_read(&request->attributes, &attributes);
    memcpy(planner->plan->replay->launches + at, from, sizeof *from + from->n_arguments * sizeof *from->arguments);
    planner->open = NULL;
    if (!planner_step(planner, record, REPLAY_KERNEL, at))
        return (int)planner->fault->code;
    int code = STATUS_OK;
    for (unsigned i = 0; i < from->n_arguments && code == STATUS_OK; i++) {
        size_t place = at + offsetof(struct kernel_launch, arguments) + i * sizeof *from->arguments;
        const void *address = (const void *)(uintptr_t)from->arguments[i];
        if (kernel_makes(attributes.arguments.values[i]))
            code = planner_patch_output(planner, place, address);
        else if (attributes.arguments.values[i] == KERNEL_INPUT)
            code = planner_patch(planner, place, address);
    }
    if (code == STATUS_OK && from->report)
        code = planner_patch_report(planner, at + offsetof(struct kernel_launch, report), planned->report);
    return code;
}

/* How the guard's indices broadcast; 0: they do not, or there is no host memory, and positions will count in the shape that they broadcast to. */
static uint32_t list_broadcast(struct replay *replay, const struct guard *guard) {
    unsigned n = replay->n_broadcasts;
    if (!guard->broadcasts)
        return 0;
    if ((n & (n - 1)) == 0) { /* a power of two, or none: there is room for as many more */
        struct guard_broadcast *more = realloc(replay->broadcasts, (n ? 2 * n : 1) * sizeof *more);
        if (!more)
            return 0;
        replay->broadcasts = more;
    }
    replay->broadcasts[n] = guard->broadcast;
    return ++replay->n_broadcasts;
}

/* Adds the launch, or the guard, which comes behind its launches. */
static void list_record(struct planner *planner, const struct record *record, bool once) {
    struct replay *replay = planner->plan->replay;
    if (record->kind == RECORD_LAUNCH || record->kind == RECORD_KERNEL) {
        planner->n_once += once;
        planner->launches[planner->n_launches++] =
            (struct planned_launch){.record = record, .report = replay->n_guards, .fused = 1};
        planner->replay_room += record->bytes + sizeof(struct fused_operation) + sizeof(struct fused_launch);
    } else if (record->kind == RECORD_POISON && record->poison.guard) {
        const struct guard *guard = record->poison.guard;
        replay->guards[replay->n_guards++] = (struct replay_guard){.name = (uint32_t)guard->sequence,
                                                                   .broadcast = list_broadcast(replay, guard),
                                                                   .axis = guard->axis,
                                                                   .above = guard->above,
                                                                   .launch = guard->launch};
    }
}

static int list_begin(struct planner *planner) {
    size_t records = (size_t)planner->stream->enqueued;
    int code = planner_pay(planner, (records + 1) * (sizeof(struct planned_launch) + sizeof(struct replay_guard)));
    if (code != STATUS_OK)
        return code;
    struct replay *replay = planner->plan->replay = calloc(1, sizeof *replay);
    planner->launches = calloc(records + 1, sizeof *planner->launches);
    if (!replay || !planner->launches || !(replay->guards = calloc(records + 1, sizeof *replay->guards)))
        return plan_no_memory(planner->fault);
    planner->launches_room = planner->guards_room = records + 1;
    planner->cursor = planner->stream->submit.at;
    return STATUS_OK;
}

/* Room for all launches, with what they become at most, and for the bases. */
static int list_end(struct planner *planner) {
    const struct recorded_body *body = planner->body;
    struct replay *replay = planner->plan->replay;
    if (planner->replay_room > UINT32_MAX)
        return fault_set(planner->fault, STATUS_LIMIT, "the program's launches have %zu bytes", planner->replay_room);
    struct replay_guard *guards = realloc(replay->guards, (replay->n_guards + 1) * sizeof *guards);
    replay->guards = guards ? guards : replay->guards;
    planner->guards_room = guards ? replay->n_guards + 1 : planner->guards_room;
    struct guard_broadcast *broadcasts = realloc(replay->broadcasts, (replay->n_broadcasts + 1) * sizeof *broadcasts);
    replay->broadcasts = broadcasts ? broadcasts : replay->broadcasts;
    planner->replay_room = (planner->replay_room + 127) & ~(size_t)63;
    replay->first_report = body->n_parameters + body->n_captures + body->n_results + 1;
    replay->n_bases = replay->first_report + replay->n_guards;
    int code = planner_pay(planner, 0);
    if (code != STATUS_OK)
        return code;
    replay->launches = aligned_alloc(64, planner->replay_room);
    replay->applied = malloc(replay->n_bases * sizeof(uint8_t *));
    if (!replay->launches || !replay->applied)
        return plan_no_memory(planner->fault);
    memset(replay->applied, 0xff, replay->n_bases * sizeof(uint8_t *)); /* no run has these */
    return STATUS_OK;
}

int planner_list(struct planner *planner) {
    struct stream *stream = planner->stream;
    int code = planner->at == 0 ? list_begin(planner) : STATUS_OK;
    if (code != STATUS_OK)
        return code;
    for (; planner->at < stream->enqueued; planner->at++) {
        if (planner->at && budget_spent(&planner->order->budget, 1))
            return STATUS_AGAIN;
        const struct record *record = stream_next_record(stream, &planner->cursor, NULL);
        list_record(planner, record, planner->at < planner->once_end);
        planner->cursor.used += record->bytes;
    }
    return list_end(planner);
}

/* Name 0 is that of launches which belong to no operation: copies to results. Behind those of operations come those of fused launches. */
int planner_names(struct planner *planner) {
    const struct recorded_body *body = planner->body;
    struct replay *replay = planner->plan->replay;
    if (planner->at == 0) {
        planner->names_room = body->n_operations + 1 + planner->fused;
        int code = planner_pay(planner, 0);
        if (code != STATUS_OK)
            return code;
        replay->n_names = body->n_operations + 1;
        replay->names = calloc(planner->names_room, sizeof *replay->names);
        if (!replay->names)
            return plan_no_memory(planner->fault);
    }
    for (; planner->at < body->n_operations; planner->at++) {
        if (planner->at && budget_spent(&planner->order->budget, 1))
            return STATUS_AGAIN;
        const struct recorded_operation *operation = &body->operations[planner->at];
        const struct op_request *request = &operation->request;
        struct replay_name *name = &replay->names[planner->at + 1];
        strncpy(name->operation, operation->kernel ? operation->kernel->name : op_info(request->opcode)->name,
                OPERATION_NAME_MAX);
        if (request->label)
            strncpy(name->label, request->label, OPERATION_LABEL_MAX);
    }
    return STATUS_OK;
}

int planner_take(struct planner *planner) {
    struct replay *replay = planner->plan->replay;
    struct budget *budget = &planner->order->budget;
    int code = STATUS_OK;
    for (; planner->at < planner->n_launches && code == STATUS_OK; planner->at++) {
        const struct planned_launch *planned = &planner->launches[planner->at];
        if (budget_spent(budget, 1))
            return STATUS_AGAIN;
        if (planner->at == planner->n_once) {
            planner->open = NULL;
            replay->n_once = replay->n_steps;
        }
        if (planned->fused) {
            ++*(planner->at < planner->n_once ? &replay->figures.once : &replay->figures.launches);
            replay->figures.groups += planned->fused > 1;
            replay->figures.grouped += planned->fused > 1 ? planned->fused : 0;
        }
        if (planned->record->kind == RECORD_KERNEL) {
            code = take_kernel(planner, planned, replay->bytes);
            replay->bytes += (planned->record->bytes - offsetof(struct record, kernel) + 15) & ~(size_t)15;
        } else if (planned->fused > 1) {
            planner->open = NULL;
            size_t bytes = planner_take_fused(planner, planned, replay->bytes);
            code = bytes ? STATUS_OK : (int)planner->fault->code;
            replay->bytes += bytes;
            budget->steps -= (int)planned->fused;
        } else if (planned->fused && launch_is_flat(planner, planned->record)) {
            code = take_flat(planner, planned->record, replay->bytes);
            replay->bytes += sizeof(struct flat_launch);
        } else if (planned->fused) {
            code = planner_take_launch(planner, planned, replay->bytes);
            replay->bytes += (planned->record->bytes - offsetof(struct record, launch) + 15) & ~(size_t)15;
        }
    }
    if (planner->n_once == planner->n_launches)
        replay->n_once = replay->n_steps;
    return code;
}

static int sort_begin(struct planner *planner) {
    struct replay *replay = planner->plan->replay;
    size_t bytes = (replay->n_patches + 1) * sizeof *planner->sorted;
    int code = planner_pay(planner, bytes);
    if (code != STATUS_OK)
        return code;
    planner->sorted = malloc(bytes);
    replay->first_patch = calloc(replay->n_bases + 2, sizeof *replay->first_patch);
    return planner->sorted && replay->first_patch ? STATUS_OK : plan_no_memory(planner->fault);
}

/* By counting: how many patches each base has, where they begin, and all to their places. */
int planner_sort(struct planner *planner) {
    struct replay *replay = planner->plan->replay;
    size_t patches = replay->n_patches, bases = replay->n_bases;
    int code = planner->at == 0 ? sort_begin(planner) : STATUS_OK;
    if (code != STATUS_OK)
        return code;
    for (uint32_t *first = replay->first_patch; planner->at < 2 * patches + bases; planner->at++) {
        if (planner->at && planner->at % SORTED_A_STEP == 0 && budget_spent(&planner->order->budget, 1))
            return STATUS_AGAIN;
        if (planner->at < patches) {
            first[replay->patches[planner->at].base + 2]++;
        } else if (planner->at < patches + bases) {
            size_t base = planner->at - patches;
            first[base + 2] += first[base + 1];
        } else { /* then each of them is where the next base's begin */
            const struct replay_patch *patch = &replay->patches[planner->at - patches - bases];
            planner->sorted[first[patch->base + 1]++] = *patch;
        }
    }
    free(replay->patches);
    replay->patches = planner->sorted;
    planner->sorted = NULL;
    planner->patches_room = patches + 1;
    return STATUS_OK;
}

static int arena_begin(struct planner *planner) {
    size_t count = planner->draft.count + 1;
    int code =
        planner_pay(planner, count * sizeof(struct draft_piece *) + draft_place_bytes(count, planner->n_launches));
    if (code != STATUS_OK)
        return code;
    planner->pieces = malloc(count * sizeof(struct draft_piece *));
    return planner->pieces ? STATUS_OK : plan_no_memory(planner->fault);
}

int planner_arena(struct planner *planner) {
    struct draft_placing *placing = &planner->placing;
    struct budget *budget = &planner->order->budget;
    uint32_t base = planner->draft.base;
    bool singly = planner->order->device->vtable->fusion; /* until its kernel is there, a slot is memory */
    int code = planner->at == 0 ? arena_begin(planner) : STATUS_OK;
    if (code != STATUS_OK)
        return code;
    for (; planner->at < planner->draft.count; planner->at++) {
        struct draft_piece *piece = planner->draft.pieces[planner->at];
        if (planner->at && budget_spent(budget, 1))
            return STATUS_AGAIN;
        if (piece->base == base && (singly || !piece->slot))
            planner->pieces[placing->n++] = piece;
    }
    placing->pieces = planner->pieces;
    code = draft_place(placing, budget);
    if (code != STATUS_OK)
        return code == STATUS_AGAIN ? code : plan_no_memory(planner->fault);
    planner->plan->arena_bytes = placing->bytes;
    planner->plan->least_bytes = placing->least;
    draft_place_end(placing);
    free(planner->pieces);
    planner->pieces = NULL;
    return STATUS_OK;
}
