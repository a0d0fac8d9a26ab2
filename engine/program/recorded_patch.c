/* What a plan's launches are written with: steps, places of addresses, and copies of single launches. */
#include <stdlib.h>
#include <string.h>

#include "engine/program/recorded_planner.h"

/* Room for one more entry. Old and new room are there at the same time. */
static int planner_grow(struct planner *planner, void *array, size_t *room, size_t used, size_t size) {
    if (used < *room)
        return STATUS_OK;
    size_t more = *room ? 2 * *room : 64;
    int code = planner_pay(planner, more * size);
    void *grown = code == STATUS_OK ? realloc(*(void **)array, more * size) : NULL;
    if (!grown)
        return code == STATUS_OK ? plan_no_memory(planner->fault) : code;
    *(void **)array = grown;
    *room = more;
    return STATUS_OK;
}

static int planner_patch_add(struct planner *planner, struct replay_patch patch) {
    struct replay *replay = planner->plan->replay;
    int code = planner_grow(planner, &replay->patches, &planner->patches_room, replay->n_patches, sizeof patch);
    if (code == STATUS_OK)
        replay->patches[replay->n_patches++] = patch;
    return code;
}

/* The pointer at this place is an address of the draft. */
int planner_patch(struct planner *planner, size_t at, const void *address) {
    const struct draft_piece *piece = draft_find(&planner->draft, address);
    if (!piece)
        return STATUS_OK; /* an empty input */
    return planner_patch_add(planner,
                             (struct replay_patch){
                                 .at = (uint32_t)at,
                                 .base = piece->base,
                                 .offset = piece->offset + (uint64_t)((const uint8_t *)address - piece->storage.data),
                             });
}

/* The same of memory to which the launch writes. */
int planner_patch_output(struct planner *planner, size_t at, const void *address) {
    const struct draft_piece *piece = draft_find(&planner->draft, address);
    if (piece && piece->base < planner->body->n_parameters)
        planner->plan->overwritten[piece->base] = true;
    return planner_patch(planner, at, address);
}

int planner_patch_report(struct planner *planner, size_t at, uint32_t report) {
    return planner_patch_add(
        planner, (struct replay_patch){.at = (uint32_t)at, .base = planner->plan->replay->first_report + report});
}

struct replay_step *planner_step(struct planner *planner, const struct record *record, enum replay_kind kind,
                                 size_t at) {
    struct replay *replay = planner->plan->replay;
    if (planner_grow(planner, &replay->steps, &planner->steps_room, replay->n_steps, sizeof *replay->steps) !=
        STATUS_OK)
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

/* Copies the launch. Its shapes, strides and attributes lie in the record behind it. */
int planner_take_launch(struct planner *planner, const struct planned_launch *planned, size_t at) {
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
        return (int)planner->fault->code;
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
