/* Fusion: launches on the same elements become one launch, for devices that take such launches (struct fused_launch): elementwise ones, reductions and softmax
 * of rows, and what is elementwise on their results. It computes tile by tile, or row by row: all of them for some elements before any of them for the next ones. So of
 * what one of them writes, the others may touch only what they have at the same place; and no memory may be used twice within it, though it would be free for
 * the later ones of these launches. What nobody reads outside of the launch needs no memory: it lies in a slot.
 *
 * Where the device can do that, launches on one row may have reductions of all elements among them, which run last. So nobody in the group reads their results, or writes
 * what they read; but if that is made in the group, and somebody else then writes something else to its memory, it gets a slot of its own (`renamed`).
 *
 * The launches of a group need not follow one another: what stands between them, and touches nothing of theirs, goes before them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/device/device_impl.h"
#include "engine/order/stream.h"
#include "engine/program/fusion.h"
#include "engine/program/kernel_impl.h"
#include "engine/program/recorded_planner.h"

enum {
    FUSE_COLUMNS_MIN = 32,  /* in shorter rows calls would cost more than what they compute, */
    FUSE_REDUCED_MIN = 128, /* and calls for single elements, where rows are reduced */
    FUSE_SLOT_ELEMENTS_MIN =
        1024,          /* the pieces of fewer elements lie in the arena, and in the first-level cache all the same */
    FUSE_OPERANDS = 4, /* of a launch: the output and up to three inputs */
    FUSE_BETWEEN_MAX = 16, /* launches that stand between those of a group */
    FUSE_STEPS = 8,        /* of the turn's budget, for a group */
};

/* How an operand's elements lie in the group's matrix. */
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
    bool ends; /* when the others have run */
};

struct group {
    struct planner *planner;
    uint64_t number; /* in marks of pieces */
    struct matrix matrix;
    bool by_rows;             /* one of them reduces rows, or is their softmax: so the matrix is what it is */
    unsigned whole, segments; /* reductions of all elements, and how they are cut */
    unsigned renamed;         /* pieces of which one content has a slot of its own */
    size_t count;
    struct planned_launch members[FUSED_OPERATIONS_MAX];
};

static const struct operand *launch_operand(const struct launch *launch, unsigned i) {
    return i == 0 ? &launch->output : &launch->inputs[i - 1];
}

/* ---- which launches ---- */

static bool operand_is_contiguous(const struct operand *operand) {
    int64_t next = 1;
    for (unsigned i = operand->rank; i-- > 0; next *= operand->shape[i])
        if (operand->strides[i] != next)
            return false;
    return true;
}

/* The elements on which the launch computes: of a reduction, those of its input. */
static bool launch_matrix(const struct launch *launch, bool reduces, struct matrix *matrix) {
    const struct operand *of = reduces ? &launch->inputs[0] : &launch->output;
    if (of->rank > 2)
        return false;
    matrix->rows = of->rank == 2 ? of->shape[0] : 1;
    matrix->columns = of->rank ? of->shape[of->rank - 1] : 1;
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

/* The place in the matrix of a launch's operand. */
static enum place launch_place(const struct launch *launch, enum fused_way way, unsigned i) {
    const struct operand *operand = launch_operand(launch, i);
    struct matrix own = {1, 1};
    if (way == FUSED_REDUCES || way == FUSED_WHOLE)
        return i != 0 ? PLACE_FLAT : way == FUSED_WHOLE ? PLACE_ONE : PLACE_COLUMN;
    if (way == FUSED_SOFTMAX)
        return PLACE_FLAT;
    launch_matrix(launch, false, &own);
    enum place place = operand_place(operand, &own);
    if (way == FUSED_NARROW)
        return place == PLACE_FLAT ? PLACE_COLUMN : place == PLACE_ONE ? PLACE_ONE : PLACE_NONE;
    return place;
}

/* What it may be in a fused launch of the device, whatever else is in that. FUSED_WIDE: or FUSED_NARROW. FUSED_REDUCES: or FUSED_WHOLE. */
static enum fused_way launch_way(const struct device *device, const struct launch *launch) {
    const struct op_info *info = op_info(launch->opcode);
    enum fused_way way = info->family == OP_FAMILY_ELEMENTWISE ? FUSED_WIDE
                         : info->family == OP_FAMILY_REDUCE    ? FUSED_REDUCES
                         : info->family == OP_FAMILY_SOFTMAX   ? FUSED_SOFTMAX
                                                               : FUSED_NOT;
    if (way == FUSED_NOT || launch->further || launch->workspace || launch->attributes.n_ints || launch->n_inputs < 1 ||
        launch->n_inputs + launch->attributes.n_floats > 3)
        return FUSED_NOT;
    const struct operand *in = &launch->inputs[0], *out = &launch->output;
    if (way != FUSED_WIDE &&
        (launch->n_inputs != 1 || !in->data || in->rank < 1 || in->rank > 2 ||
         in->rank != out->rank + (way == FUSED_REDUCES) || !operand_is_contiguous(in) || !operand_is_contiguous(out)))
        return FUSED_NOT;
    return device->vtable->fused_kernel(device, launch) ? way : FUSED_NOT;
}

/* ---- groups ---- */

/* The launch touches memory that the group touches, too: if one of them writes there, both touch each element at the same place. */
static bool touch_agrees(const struct group *group, const struct touch *touch) {
    const struct draft_mark *mark = touch->piece ? &touch->piece->mark : NULL;
    if (!mark || mark->group != group->number || (!mark->written && !touch->writes))
        return true;
    bool renames =
        mark->made && !touch->piece->renamed && group->renamed < FUSED_WHOLE_SLOTS && touch->size <= FUSED_SLOT_ELEMENT;
    return (!mark->ends || !touch->writes || renames) && mark->uniform && mark->data == touch->data &&
           mark->size == touch->size && mark->place == touch->place &&
           (touch->place == PLACE_FLAT || touch->place == PLACE_COLUMN);
}

static void touch_mark(struct group *group, const struct touch *touch) {
    struct draft_mark *mark = touch->piece ? &touch->piece->mark : NULL;
    if (!mark)
        return;
    if (mark->group != group->number)
        *mark = (struct draft_mark){.group = group->number,
                                    .data = touch->data,
                                    .size = (uint8_t)touch->size,
                                    .place = (uint8_t)touch->place,
                                    .uniform = true};
    if (mark->ends && touch->writes) {
        touch->piece->renamed = true;
        group->renamed++;
        mark->ends = false;
    }
    mark->made = touch->ends ? mark->written : mark->made;
    mark->written |= touch->writes;
    mark->ends |= touch->ends;
    mark->uniform &= mark->data == touch->data && mark->size == touch->size && mark->place == touch->place;
}

/* Whether the launch touches memory that one of the group writes, or writes what one of them touches. */
static bool group_meets(const struct group *group, const struct launch *launch) {
    const struct draft *draft = &group->planner->draft;
    unsigned n = 1u + launch->n_inputs + launch->further;
    for (unsigned i = 0; i <= n; i++) {
        const void *data = i == n ? launch->workspace : launch_operand(launch, i)->data;
        const struct draft_piece *piece = data ? draft_find(draft, data) : NULL;
        bool writes = i == 0 || i > launch->n_inputs;
        if (piece && piece->mark.group == group->number && (piece->mark.written || writes))
            return true;
    }
    return false;
}

/* Into how many segments the launch, a reduction, cuts its rows. */
static unsigned launch_segments(const struct device *device, const struct launch *launch) {
    return device->vtable->fused_segments ? device->vtable->fused_segments(device, launch) : 1;
}

/* Whether the reduction of all elements may be part of the group. */
static bool group_takes_whole(const struct group *group, const struct matrix *own, unsigned segments) {
    bool first = !group->count;
    return own->rows == 1 && group->whole < FUSED_WHOLE_MAX && (!group->whole || group->segments == segments) &&
           (first || (!group->by_rows && group->matrix.rows == 1 && group->matrix.columns == own->columns));
}

/* How the launch would be part of the group; sets the group's matrix with it. */
static enum fused_way group_way(const struct group *group, const struct launch *launch, struct matrix *matrix) {
    const struct device *device = group->planner->session->order->device;
    enum fused_way way = launch_way(device, launch);
    struct matrix own;
    *matrix = group->matrix;
    if (way == FUSED_NOT || group->count == FUSED_OPERATIONS_MAX || !launch_matrix(launch, way == FUSED_REDUCES, &own))
        return FUSED_NOT;
    unsigned segments = way == FUSED_REDUCES ? launch_segments(device, launch) : 1;
    if (segments > 1) {
        if (!group_takes_whole(group, &own, segments))
            return FUSED_NOT;
        *matrix = own;
        return FUSED_WHOLE;
    }
    bool by_rows = way != FUSED_WIDE;
    if (group->whole && (by_rows || own.rows > 1))
        return FUSED_NOT;
    if (by_rows && (own.columns < FUSE_REDUCED_MIN || own.columns > FUSED_ROW_MAX))
        return FUSED_NOT;
    bool compiled = device->vtable->fusion; /* then it calls nothing */
    if (own.rows > 1 && own.columns < FUSE_COLUMNS_MIN && !compiled)
        return FUSED_NOT;
    if (group->by_rows && own.rows == 1 && own.columns == group->matrix.rows)
        return by_rows ? FUSED_NOT : FUSED_NARROW;
    if (group->count && matrix_elements(&own) != matrix_elements(&group->matrix))
        return FUSED_NOT;
    bool decides = own.rows > 1 || by_rows, decided = group->count && (group->matrix.rows > 1 || group->by_rows);
    if (decides && decided && own.rows != group->matrix.rows)
        return FUSED_NOT;
    if (!group->count || decides)
        *matrix = own;
    return way;
}

/* Adds the launch to the group. False: it cannot be in it. */
static bool group_add(struct group *group, const struct planned_launch *planned) {
    if (planned->record->kind != RECORD_LAUNCH)
        return false;
    const struct launch *launch = &planned->record->launch;
    struct touch touches[FUSE_OPERANDS];
    struct matrix matrix;
    enum fused_way way = group_way(group, launch, &matrix);
    bool follows = way != FUSED_NARROW;
    if (way == FUSED_NOT)
        return false;
    for (unsigned i = 0; i <= launch->n_inputs; i++) {
        const struct operand *operand = launch_operand(launch, i);
        struct touch *touch = &touches[i];
        *touch = (struct touch){.piece = draft_find(&group->planner->draft, operand->data),
                                .data = operand->data,
                                .size = dtype_size((enum dtype)operand->dtype),
                                .place = launch_place(launch, way, i),
                                .writes = i == 0,
                                .ends = way == FUSED_WHOLE && i > 0};
        if (matrix.rows == 1 && touch->place == PLACE_ONE && way != FUSED_WHOLE)
            touch->place = PLACE_COLUMN; /* the same, and the result of a reduction may be so */
        enum place out = way == FUSED_WIDE || way == FUSED_SOFTMAX ? PLACE_FLAT
                         : way == FUSED_WHOLE                      ? PLACE_ONE
                                                                   : PLACE_COLUMN;
        if (touch->place == PLACE_NONE || (i == 0 && touch->place != out) || !touch_agrees(group, touch))
            return false;
        for (unsigned k = 0; k < i; k++)
            if (touch->piece && touch->piece == touches[k].piece && touches[k].writes &&
                (touch->data != touches[k].data || touch->size != touches[k].size || touch->place != touches[k].place))
                return false;
        follows |= touch->piece && touch->piece->mark.group == group->number && touch->piece->mark.written;
    }
    if (!follows) /* by itself it has better vectors than by single elements */
        return false;
    for (unsigned i = 0; i <= launch->n_inputs; i++)
        touch_mark(group, &touches[i]);
    group->matrix = matrix;
    group->by_rows |= way == FUSED_REDUCES || way == FUSED_SOFTMAX;
    if (way == FUSED_WHOLE) {
        group->segments = launch_segments(group->planner->session->order->device, launch);
        group->whole++;
    }
    group->members[group->count] = *planned;
    group->members[group->count++].way = (uint8_t)way;
    return true;
}

/* Makes groups of the launches from `begin` to `end`, beginning with the first one each time. */
static int fuse_range(struct planner *planner, size_t begin, size_t end, bool in_turns) {
    struct planned_launch *launches = planner->launches, between[FUSE_BETWEEN_MAX];
    while (begin < end) {
        if (in_turns && budget_spent(&planner->session->order->budget, FUSE_STEPS))
            break;
        struct group group = {.planner = planner, .number = ++planner->groups};
        size_t at = begin, n = 0,
               before = 0; /* launches between, and those of them that stand before the group's last one */
        if (!group_add(&group, &launches[at++])) {
            begin++;
            continue;
        }
        for (; at < end; at++) {
            if (group_add(&group, &launches[at])) {
                before = n;
                continue;
            }
            if (n == FUSE_BETWEEN_MAX || launches[at].record->kind != RECORD_LAUNCH ||
                group_meets(&group, &launches[at].record->launch))
                break;
            between[n++] = launches[at];
        }
        memcpy(&launches[begin], between, before * sizeof *launches);
        memcpy(&launches[begin + before], group.members, group.count * sizeof *launches);
        memcpy(&launches[begin + before + group.count], between + before, (n - before) * sizeof *launches);
        fuse_range(planner, begin, begin + before, false);
        begin += before;
        for (size_t i = 0; i < group.count; i++)
            launches[begin + i].fused = i ? 0 : (uint32_t)group.count;
        planner->fused += group.count > 1;
        begin += group.count;
    }
    planner->at = in_turns ? begin : planner->at;
    return begin < end ? STATUS_AGAIN : STATUS_OK;
}

bool recorded_fuses(const struct device *device) {
    const char *word = getenv("TENSORD_FUSE");
    return (device->vtable->launch_fused || device->vtable->fusion) && !(word && strcmp(word, "none") == 0);
}

int planner_fuse(struct planner *planner) {
    int code = STATUS_OK;
    if (!recorded_fuses(planner->session->order->device))
        return STATUS_OK;
    if (planner->at < planner->n_once)
        code = fuse_range(planner, planner->at, planner->n_once, true);
    return code == STATUS_OK ? fuse_range(planner, planner->at, planner->n_launches, true) : code;
}

/* ---- when memory is in use ---- */

static void piece_used(struct planner *planner, const void *data, uint64_t from, uint64_t to) {
    struct draft_piece *piece = data ? draft_find(&planner->draft, data) : NULL;
    if (!piece || piece->kept)
        return;
    piece->from = piece->from < from ? piece->from : from;
    piece->to = piece->to > to ? piece->to : to;
}

static void launch_uses(struct planner *planner, const struct launch *launch, uint64_t from, uint64_t to) {
    for (unsigned i = 0; i <= (unsigned)launch->n_inputs + launch->further; i++)
        piece_used(planner, launch_operand(launch, i)->data, from, to);
    piece_used(planner, launch->workspace, from, to);
}

/* A number that happens to be an address of the draft only lets a piece live longer. */
static void kernel_uses(struct planner *planner, const struct kernel_launch *launch, uint64_t from, uint64_t to) {
    for (unsigned i = 0; i < launch->n_arguments; i++)
        piece_used(planner, (const void *)(uintptr_t)launch->arguments[i], from, to);
}

static void piece_begins(struct draft_piece *piece) {
    piece->from = piece->kept ? 0 : UINT64_MAX;
    piece->to = piece->kept ? UINT64_MAX : 0;
}

/* Returns how many operands it has. */
static int launch_times(struct planner *planner, size_t i) {
    const struct record *record = planner->launches[i].record;
    if (record->kind == RECORD_KERNEL) {
        kernel_uses(planner, &record->kernel, i, i + 1);
        return (int)record->kernel.n_arguments;
    }
    launch_uses(planner, &record->launch, i, i + 1);
    return 1 + record->launch.n_inputs + record->launch.further;
}

/* The pieces are in use from the first launch that touches them to the last one, in the order that launches have now. */
int planner_time(struct planner *planner) {
    struct budget *budget = &planner->order->budget;
    size_t pieces = planner->draft.count, launches = planner->n_launches;
    for (int steps = 1; planner->at < 2 * pieces + launches; planner->at++) {
        if (budget_spent(budget, steps))
            return STATUS_AGAIN;
        steps = 1;
        if (planner->at < pieces) {
            piece_begins(planner->draft.pieces[planner->at]);
        } else if (planner->at < pieces + launches) {
            steps = launch_times(planner, planner->at - pieces);
        } else {
            struct draft_piece *piece = planner->draft.pieces[planner->at - pieces - launches];
            if (piece->from == UINT64_MAX) /* nobody touches it */
                piece->from = piece->to = 0;
        }
    }
    return STATUS_OK;
}

/* ---- slots ---- */

/* Slots in a compiled kernel: registers, but for whole rows memory that the threads of a row share. */
static unsigned slots_compiled(const struct device *device, const struct planned_launch *first,
                               const struct fused_shape *shape) {
    unsigned most = FUSED_SLOTS_MAX;
    size_t size = 1;
    for (uint32_t i = 0; i < first->fused; i++) {
        size_t own = dtype_size((enum dtype)first[i].record->launch.output.dtype);
        size = own > size && own <= FUSED_SLOT_ELEMENT ? own : size;
    }
    for (uint32_t i = 0; i < first->fused; i++) {
        bool shared = first[i].way == FUSED_REDUCES || first[i].way == FUSED_SOFTMAX;
        const void *kernel = shared ? device->vtable->fused_kernel(device, &first[i].record->launch) : NULL;
        unsigned own = kernel ? device->vtable->fusion->row_slots(kernel, shape->columns, size) : most;
        most = own < most ? own : most;
    }
    return most;
}

static unsigned slots_most(const struct planner *planner, const struct planned_launch *first,
                           const struct fused_shape *shape) {
    const struct device *device = planner->session->order->device;
    if (device->vtable->fusion)
        return slots_compiled(device, first, shape);
    if (shape->rows * shape->columns < FUSE_SLOT_ELEMENTS_MIN)
        return 0;
    if (!shape->whole_rows)
        return FUSED_SLOTS_MAX;
    int64_t most = FUSED_SLOTS_BYTES / ((shape->columns * FUSED_SLOT_ELEMENT + 63) & ~(int64_t)63);
    return most < FUSED_SLOTS_MAX ? (unsigned)most : FUSED_SLOTS_MAX;
}

/* The next launch, from `from` on, that reduces all elements of the piece; `end`: there is none. */
static size_t piece_ends(const struct planner *planner, const struct draft_piece *piece, size_t from, size_t end) {
    for (; from < end; from++) {
        const struct planned_launch *planned = &planner->launches[from];
        if (planned->way == FUSED_WHOLE && draft_find(&planner->draft, planned->record->launch.inputs[0].data) == piece)
            break;
    }
    return from;
}

static bool launch_writes(const struct planner *planner, size_t i, const struct draft_piece *piece) {
    return draft_find(&planner->draft, planner->launches[i].record->launch.output.data) == piece;
}

/* Gives slots to the contents of pieces that are reduced when something else has been written there; returns how many. */
static unsigned slots_rename(struct planner *planner, size_t first, size_t end) {
    unsigned renamed = 0;
    for (size_t i = first; i < end; i++) {
        struct draft_piece *piece = draft_find(&planner->draft, planner->launches[i].record->launch.output.data);
        size_t reduces = piece && piece->renamed && !piece->early_slot ? piece_ends(planner, piece, i + 1, end) : end;
        size_t to = reduces;
        while (to < end && !launch_writes(planner, to, piece))
            to++;
        if (to == end)
            continue;
        piece->early_from = i;
        for (size_t k = i + 1; k < reduces; k++) /* the last one that writes it before that */
            piece->early_from = launch_writes(planner, k, piece) ? k : piece->early_from;
        piece->early_to = to;
        piece->early_slot = (uint8_t)(FUSED_SLOTS_MAX + ++renamed);
    }
    return renamed;
}

static bool piece_early(const struct draft_piece *piece, size_t i, unsigned operand) {
    return piece->early_slot && (i > piece->early_from || (i == piece->early_from && operand == 0)) &&
           (i < piece->early_to || (i == piece->early_to && operand > 0));
}

unsigned planner_slot(const struct planner *planner, const struct planned_launch *planned, unsigned operand,
                      const struct draft_piece *piece) {
    return piece_early(piece, (size_t)(planned - planner->launches), operand) ? piece->early_slot : piece->slot;
}

/* Slots for pieces that nothing outside of these launches uses. */
static void slots_give(struct planner *planner, size_t first, size_t end, unsigned most) {
    const struct recorded_body *body = planner->body;
    uint32_t arena = body->n_parameters + body->n_captures + body->n_results;
    const struct draft_piece *taken[FUSED_SLOTS_MAX] = {0};
    unsigned for_whole = FUSED_SLOTS_MAX + slots_rename(planner, first, end);
    for (size_t i = first; i < end; i++) {
        const struct operand *out = &planner->launches[i].record->launch.output;
        struct draft_piece *piece = draft_find(&planner->draft, out->data);
        unsigned slot = 0;
        while (slot < most && taken[slot])
            slot++;
        if (piece && !piece->slot && !piece->kept && piece->base == arena && piece->from >= first && piece->to <= end &&
            dtype_size((enum dtype)out->dtype) <= FUSED_SLOT_ELEMENT && planner->launches[i].way != FUSED_WHOLE &&
            !piece_early(piece, i, 0)) {
            bool ends = piece_ends(planner, piece, i + 1, end) < end;
            if (ends && for_whole < FUSED_SLOTS_MAX + FUSED_WHOLE_SLOTS) {
                piece->slot = (uint8_t)++for_whole;
            } else if (!ends && slot < most) {
                taken[slot] = piece;
                piece->slot = (uint8_t)(slot + 1);
            }
        }
        for (unsigned k = 0; k < most; k++)
            if (taken[k] && taken[k]->to <= i + 1)
                taken[k] = NULL;
    }
}

/* The matrix of a group. */
static struct fused_shape fused_shape(const struct planned_launch *first) {
    struct fused_shape shape = {1, 1, false};
    struct matrix own;
    for (uint32_t i = 0; i < first->fused; i++) {
        bool reduces = first[i].way == FUSED_REDUCES || first[i].way == FUSED_WHOLE;
        if (first[i].way == FUSED_NARROW || !launch_matrix(&first[i].record->launch, reduces, &own))
            continue;
        if (i == 0 || own.rows > 1)
            shape.rows = own.rows, shape.columns = own.columns;
        shape.whole_rows |= first[i].way == FUSED_REDUCES || first[i].way == FUSED_SOFTMAX;
    }
    return shape;
}

int planner_slots(struct planner *planner) {
    while (planner->at < planner->n_launches) {
        size_t i = planner->at, end = i + planner->launches[i].fused;
        planner->at = end > i ? end : i + 1;
        if (end > i + 1) {
            struct fused_shape shape = fused_shape(&planner->launches[i]);
            slots_give(planner, i, end, slots_most(planner, &planner->launches[i], &shape));
            for (size_t k = i; k < end; k++)
                launch_uses(planner, &planner->launches[k].record->launch, i, end);
        }
        if (budget_spent(&planner->session->order->budget, (int)(planner->at - i)))
            return STATUS_AGAIN;
    }
    return STATUS_OK;
}

/* ---- the launch ---- */

static struct fused_operand fused_operand(const struct planned_launch *planned, unsigned i) {
    const struct launch *launch = &planned->record->launch;
    const struct operand *operand = launch_operand(launch, i);
    enum place place = launch_place(launch, planned->way, i);
    return (struct fused_operand){
        .data = operand->data,
        .row = place == PLACE_FLAT     ? FUSED_FLAT
               : place == PLACE_COLUMN ? FUSED_NEXT
                                       : FUSED_SAME,
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

static int take_operation(struct planner *planner, const struct planned_launch *planned, struct fused_launch *fused,
                          struct fused_operation *operation) {
    const struct launch *launch = &planned->record->launch;
    const struct device *device = planner->session->order->device;
    const uint8_t *launches = planner->plan->replay->launches;
    int code = STATUS_OK;
    *operation = (struct fused_operation){.kernel = device->vtable->fused_kernel(device, launch),
                                          .opcode = launch->opcode,
                                          .n_inputs = launch->n_inputs,
                                          .n_floats = (uint8_t)launch->attributes.n_floats,
                                          .softmax = planned->way == FUSED_SOFTMAX,
                                          .reduces = planned->way == FUSED_REDUCES || planned->way == FUSED_WHOLE,
                                          .whole = planned->way == FUSED_WHOLE};
    if (operation->whole) {
        fused->segments = launch_segments(device, launch);
        fused->plain = false;
    }
    if (launch->attributes.n_floats)
        memcpy(operation->floats, launch->attributes.floats, launch->attributes.n_floats * sizeof(double));
    for (unsigned k = 0; k <= launch->n_inputs && code == STATUS_OK; k++) {
        const struct operand *operand = launch_operand(launch, k);
        struct fused_operand *to = k == 0 ? &operation->output : &operation->inputs[k - 1];
        const struct draft_piece *piece = draft_find(&planner->draft, operand->data);
        *to = fused_operand(planned, k);
        unsigned slot = piece ? planner_slot(planner, planned, k, piece) : 0;
        to->in_slot = slot;
        to->slot = (uint8_t)(slot ? slot - 1 : 0);
        if (slot > fused->n_slots && slot <= FUSED_SLOTS_MAX)
            fused->n_slots = slot;
        fused->plain &= !to->in_slot && (k == 0 || to->as == to->dtype || launch->opcode == OP_CAST);
        if (!to->in_slot)
            code = (k == 0 ? planner_patch_output : planner_patch)(planner, (size_t)((uint8_t *)&to->data - launches),
                                                                   operand->data);
    }
    return code;
}

/* The same launches one by one behind a fused one, whose kernel has to be compiled: at `at`, of which they take *bytes. */
static int take_singly(struct planner *planner, const struct planned_launch *first, const struct fused_launch *fused,
                       size_t at, size_t *bytes) {
    struct replay *replay = planner->plan->replay;
    unsigned number = replay->n_steps - 1;
    uint64_t weight = replay->weight;
    int code = STATUS_OK;
    *bytes = 0;
    for (uint32_t i = 0; i < first->fused && code == STATUS_OK; i++) {
        code = planner_take_launch(planner, &first[i], at + *bytes);
        *bytes += (first[i].record->bytes - offsetof(struct record, launch) + 15) & ~(size_t)15;
    }
    if (code != STATUS_OK)
        return code;
    struct replay_step *step = &replay->steps[number];
    replay->weight = weight;
    replay->n_singly++;
    step->skipped = true;
    step->singly = (uint16_t)first->fused;
    step->kernel = fusion_hold(planner->recorded->store->kernels, fused, session_tenant_number(planner->session));
    replay->n_compiled += step->kernel != NULL;
    replay->came = &planner->recorded->store->kernels->fusions_came;
    replay->came_seen = UINT64_MAX; /* it has not looked */
    return STATUS_OK;
}

size_t planner_take_fused(struct planner *planner, const struct planned_launch *first, size_t at) {
    struct replay *replay = planner->plan->replay;
    struct fused_launch *fused = (struct fused_launch *)(void *)(replay->launches + at);
    struct fused_shape shape = fused_shape(first);
    uint64_t weight = 0;
    int code = STATUS_OK;
    *fused = (struct fused_launch){.rows = shape.rows,
                                   .columns = shape.columns,
                                   .whole_rows = shape.whole_rows,
                                   .n = first->fused,
                                   .plain = shape.rows == 1 && !shape.whole_rows};
    for (uint32_t i = 0; i < first->fused && code == STATUS_OK; i++) {
        const struct launch *launch = &first[i].record->launch;
        weight += first[i].record->weight;
        code = take_operation(planner, &first[i], fused, &fused->operations[i]);
        if (code == STATUS_OK && launch->report && !fused->report) {
            fused->report = launch->report;
            code = planner_patch_report(planner, at + offsetof(struct fused_launch, report), first[i].report);
        }
    }
    const struct device *device = planner->session->order->device;
    if (code == STATUS_OK && device->vtable->fused_ready)
        device->vtable->fused_ready(device, fused);
    struct replay_step *step = code == STATUS_OK ? planner_step(planner, first->record, REPLAY_FUSED, at) : NULL;
    if (!step)
        return 0;
    step->name = fused_name(planner, first);
    replay->weight += weight - step->weight;
    step->weight = weight;
    size_t bytes = (sizeof *fused + first->fused * sizeof fused->operations[0] + 15) & ~(size_t)15, singly = 0;
    if (device->vtable->fusion)
        code = take_singly(planner, first, fused, at + bytes, &singly);
    return code == STATUS_OK ? bytes + singly : 0;
}
