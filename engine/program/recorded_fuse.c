/* Fusion: elementwise launches that follow one another and have the same elements become one launch, for devices that take such launches
 * (struct fused_launch). It computes tile by tile: all of them for some elements before any of them for the next ones. So of what one of them
 * writes, the others may touch only the element at the same place; and no memory may be used twice within it, though it would be free for the
 * later ones of these launches. What nobody reads outside of the launch needs no memory: it lies in a slot. */
#include <stdio.h>
#include <string.h>

#include "engine/device/device_impl.h"
#include "engine/order/stream.h"
#include "engine/program/recorded_planner.h"

enum {
    FUSE_COLUMNS_MIN = 32, /* in shorter rows calls would cost more than what they compute */
    FUSE_OPERANDS = 4,     /* of a launch: the output and up to three inputs */
};

/* How an operand's elements lie in the matrix. */
enum place { PLACE_NONE, PLACE_FLAT, PLACE_ROW, PLACE_COLUMN, PLACE_ONE };

struct matrix {
    int64_t rows, columns;
};

static int64_t matrix_elements(const struct matrix *matrix) {
    return matrix->rows * matrix->columns;
}

/* What a launch touches. */
struct touch {
    struct draft_piece *piece;
    const void *data;
    size_t size;
    enum place place;
    bool writes;
};

struct group {
    const struct device *device;
    struct matrix matrix;
    size_t count; /* launches */
    struct touch touches[FUSED_OPERATIONS_MAX * FUSE_OPERANDS];
    size_t n_touches;
};

static const struct operand *launch_operand(const struct launch *launch, unsigned i) {
    return i == 0 ? &launch->output : &launch->inputs[i - 1];
}

static bool launch_matrix(const struct launch *launch, struct matrix *matrix) {
    const struct operand *out = &launch->output;
    if (out->rank > 2)
        return false;
    matrix->rows = out->rank == 2 ? out->shape[0] : 1;
    matrix->columns = out->rank ? out->shape[out->rank - 1] : 1;
    return true;
}

static enum place operand_place(const struct operand *operand, const struct matrix *matrix) {
    if (operand->rank == 0)
        return matrix_elements(matrix) == 1 ? PLACE_FLAT : PLACE_NONE;
    int64_t column = operand->strides[operand->rank - 1], row = operand->rank == 2 ? operand->strides[0] : 0;
    if (operand->rank == 1)
        return column == 1 ? PLACE_FLAT : column == 0 ? PLACE_ONE : PLACE_NONE;
    if (column == 1)
        return row == matrix->columns ? PLACE_FLAT : row == 0 ? PLACE_ROW : PLACE_NONE;
    return column != 0 ? PLACE_NONE : row == 1 ? PLACE_COLUMN : row == 0 ? PLACE_ONE : PLACE_NONE;
}

/* Whether the device can compute it in a fused launch, whatever else is in that. */
static bool launch_fuses(const struct device *device, const struct launch *launch) {
    const struct op_info *info = op_info(launch->opcode);
    if (info->family != OP_FAMILY_ELEMENTWISE || launch->further || launch->workspace || launch->attributes.n_ints ||
        launch->n_inputs < 1 || launch->n_inputs + launch->attributes.n_floats > 3)
        return false;
    for (unsigned i = 0; i < launch->n_inputs; i++) {
        const struct operand *input = &launch->inputs[i];
        if (!device->vtable->fuses(device, launch->opcode, (enum dtype)input->dtype, (enum dtype)input->as,
                                   (enum dtype)launch->output.dtype))
            return false;
    }
    return true;
}

/* Two launches of a group touch the same memory: if one of them writes there, both touch each element at the same place. */
static bool touches_agree(const struct touch *a, const struct touch *b) {
    if (!a->piece || a->piece != b->piece || (!a->writes && !b->writes))
        return true;
    return a->place == PLACE_FLAT && b->place == PLACE_FLAT && a->data == b->data && a->size == b->size;
}

/* Adds the launch to the group. False: it cannot be in it. */
static bool group_add(struct planner *planner, struct group *group, const struct launch *launch) {
    struct matrix matrix;
    struct touch touches[FUSE_OPERANDS];
    if (group->count == FUSED_OPERATIONS_MAX || !launch_matrix(launch, &matrix) || !launch_fuses(group->device, launch))
        return false;
    if (matrix.rows > 1 && matrix.columns < FUSE_COLUMNS_MIN)
        return false;
    for (unsigned i = 0; i <= launch->n_inputs; i++) {
        const struct operand *operand = launch_operand(launch, i);
        touches[i] = (struct touch){.piece = draft_find(&planner->draft, operand->data),
                                    .data = operand->data,
                                    .size = dtype_size((enum dtype)operand->dtype),
                                    .place = operand_place(operand, &matrix),
                                    .writes = i == 0};
        if (touches[i].place == PLACE_NONE || (i == 0 && touches[i].place != PLACE_FLAT))
            return false;
        for (size_t k = 0; k < group->n_touches; k++)
            if (!touches_agree(&touches[i], &group->touches[k]))
                return false;
        for (unsigned k = 0; k < i; k++)
            if (!touches_agree(&touches[i], &touches[k]))
                return false;
    }
    if (group->count && (matrix_elements(&matrix) != matrix_elements(&group->matrix) ||
                         (matrix.rows > 1 && group->matrix.rows > 1 && matrix.rows != group->matrix.rows)))
        return false;
    if (!group->count || matrix.rows > 1)
        group->matrix = matrix;
    memcpy(group->touches + group->n_touches, touches, (launch->n_inputs + 1) * sizeof *touches);
    group->n_touches += launch->n_inputs + 1;
    group->count++;
    return true;
}

/* ---- slots ---- */

/* Which pieces have which slots, while the launches are gone through. */
struct slots {
    struct draft_piece *pieces[FUSED_SLOTS_MAX];
    size_t last[FUSED_SLOTS_MAX]; /* the last launch that touches it */
};

/* Gives the piece a slot, if one is free; launch number i writes it first. */
static void slots_take(struct planner *planner, struct slots *slots, const struct planned_launch *first, size_t count,
                       size_t i, struct draft_piece *piece) {
    int free_slot = 0;
    while (free_slot < FUSED_SLOTS_MAX && slots->pieces[free_slot])
        free_slot++;
    if (free_slot == FUSED_SLOTS_MAX)
        return;
    slots->pieces[free_slot] = piece;
    slots->last[free_slot] = i;
    piece->slot = (uint8_t)(free_slot + 1);
    for (; i < count; i++) {
        const struct launch *launch = &first[i].record->launch;
        for (unsigned k = 0; k <= launch->n_inputs; k++)
            if (draft_find(&planner->draft, launch_operand(launch, k)->data) == piece)
                slots->last[free_slot] = i;
    }
}

/* Slots for pieces that nothing outside of these launches uses. */
static void slots_give(struct planner *planner, const struct planned_launch *first, size_t count) {
    const struct recorded_body *body = planner->body;
    uint32_t arena = body->n_parameters + body->n_captures + body->n_results;
    uint64_t from = first->number - 1, to = first[count - 1].number;
    struct slots slots = {0};
    for (size_t i = 0; i < count; i++) {
        const struct operand *out = &first[i].record->launch.output;
        struct draft_piece *piece = draft_find(&planner->draft, out->data);
        if (piece && !piece->slot && piece->base == arena && piece->from >= from && piece->to <= to &&
            dtype_size((enum dtype)out->dtype) <= FUSED_SLOT_ELEMENT)
            slots_take(planner, &slots, first, count, i, piece);
        for (int k = 0; k < FUSED_SLOTS_MAX; k++)
            if (slots.pieces[k] && slots.last[k] <= i)
                slots.pieces[k] = NULL;
    }
}

/* ---- groups ---- */

/* The group's launches are one. All its memory is in use from the first of them to the last. */
static void group_close(struct planner *planner, struct group *group, size_t end) {
    size_t count = group->count;
    if (count > 1) {
        struct planned_launch *first = &planner->launches[end - count];
        uint64_t from = first->number - 1, to = first[count - 1].number;
        slots_give(planner, first, count);
        for (size_t i = 0; i < count; i++)
            first[i].fused = i ? 0 : (uint32_t)count;
        for (size_t i = 0; i < group->n_touches; i++) {
            struct draft_piece *piece = group->touches[i].piece;
            if (!piece)
                continue;
            piece->from = piece->from < from ? piece->from : from;
            piece->to = piece->to > to ? piece->to : to;
        }
    }
    group->count = group->n_touches = 0;
}

void planner_fuse(struct planner *planner) {
    struct group group = {.device = planner->session->order->device};
    if (!group.device->vtable->launch_fused)
        return;
    for (size_t i = 0; i < planner->n_launches; i++) {
        const struct launch *launch = &planner->launches[i].record->launch;
        if (group_add(planner, &group, launch))
            continue;
        group_close(planner, &group, i);
        group_add(planner, &group, launch);
        if (!group.count)
            planner->launches[i].fused = 1;
    }
    group_close(planner, &group, planner->n_launches);
}

/* ---- the launch ---- */

static struct fused_operand fused_operand(const struct operand *operand, const struct matrix *own,
                                          const struct matrix *matrix) {
    enum place place = operand_place(operand, own);
    return (struct fused_operand){
        .row = place == PLACE_FLAT     ? matrix->columns
               : place == PLACE_COLUMN ? 1
                                       : 0,
        .column = place == PLACE_FLAT || place == PLACE_ROW,
        .dtype = operand->dtype,
        .as = operand->as,
    };
}

/* "add, multiply, exp": as much as fits. */
static uint32_t fused_name(struct planner *planner, const struct planned_launch *first) {
    struct replay *replay = planner->plan->replay;
    struct replay_name *name = &replay->names[replay->n_names];
    size_t used = 0;
    snprintf(name->operation, sizeof name->operation, "fused");
    for (uint32_t i = 0; i < first->fused && used < sizeof name->label; i++)
        used += (size_t)snprintf(name->label + used, sizeof name->label - used, "%s%s", i ? ", " : "",
                                 op_info(first[i].record->launch.opcode)->name);
    return replay->n_names++;
}

size_t planner_take_fused(struct planner *planner, const struct planned_launch *first, size_t at) {
    struct replay *replay = planner->plan->replay;
    struct fused_launch *fused = (struct fused_launch *)(void *)(replay->launches + at);
    struct matrix matrix = {0};
    uint64_t weight = 0;
    int code = STATUS_OK;
    for (uint32_t i = 0; i < first->fused; i++) {
        struct matrix own = {1, 1};
        launch_matrix(&first[i].record->launch, &own);
        if (i == 0 || own.rows > 1)
            matrix = own;
    }
    *fused = (struct fused_launch){.rows = matrix.rows, .columns = matrix.columns, .n = first->fused};
    for (uint32_t i = 0; i < first->fused && code == STATUS_OK; i++) {
        const struct launch *launch = &first[i].record->launch;
        struct fused_operation *operation = &fused->operations[i];
        struct matrix own = {1, 1};
        launch_matrix(launch, &own);
        weight += first[i].record->weight;
        *operation = (struct fused_operation){
            .opcode = launch->opcode, .n_inputs = launch->n_inputs, .n_floats = (uint8_t)launch->attributes.n_floats};
        if (launch->attributes.n_floats)
            memcpy(operation->floats, launch->attributes.floats, launch->attributes.n_floats * sizeof(double));
        for (unsigned k = 0; k <= launch->n_inputs && code == STATUS_OK; k++) {
            const struct operand *operand = launch_operand(launch, k);
            struct fused_operand *to = k == 0 ? &operation->output : &operation->inputs[k - 1];
            struct draft_piece *piece = draft_find(&planner->draft, operand->data);
            *to = fused_operand(operand, &own, &matrix);
            to->in_slot = piece && piece->slot;
            to->slot = to->in_slot ? piece->slot - 1 : 0;
            if (to->in_slot && fused->n_slots < piece->slot)
                fused->n_slots = piece->slot;
            if (!to->in_slot)
                code = (k == 0 ? planner_patch_output : planner_patch)(
                    planner, (size_t)((uint8_t *)&to->data - replay->launches), operand->data);
        }
        if (code == STATUS_OK && launch->report && !fused->report) {
            fused->report = launch->report;
            code = planner_patch_report(planner, at + offsetof(struct fused_launch, report), first[i].report);
        }
    }
    struct replay_step *step = code == STATUS_OK ? planner_step(planner, first->record, REPLAY_FUSED, at) : NULL;
    if (!step)
        return plan_no_memory(planner->fault), (size_t)0;
    step->name = fused_name(planner, first);
    replay->weight += weight - step->weight;
    step->weight = weight;
    return (sizeof *fused + first->fused * sizeof fused->operations[0] + 15) & ~(size_t)15;
}
