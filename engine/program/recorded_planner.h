/* A plan while it is made, for recorded_plan.c and recorded_fuse.c. Owner thread. */
#pragma once

#include "engine/memory/draft.h"
#include "engine/program/recorded_impl.h"

/* A launch in the stream's records. */
struct planned_launch {
    const struct record *record;
    uint64_t number; /* of the record, from 1 */
    uint32_t report; /* the guard to which it reports */
    uint32_t fused;  /* how many launches from this one on are one; 0: it belongs to one that began before */
};

struct planner {
    struct recorded *recorded;
    struct recorded_body *body;
    struct recorded_plan *plan;
    struct session *session; /* has the session's order, limits and kernels, and a ledger that charges nobody */
    struct stream *stream;   /* is in no list of the order's */
    struct draft draft;
    struct tensor *values;
    const struct tensor_type **types; /* of one operation's inputs */
    struct tensor **inputs, **outputs;
    bool *lends; /* of each parameter: its memory may be used for a result */
    bool *small; /* of each operation: its launch may be flat */
    struct fault *fault;
    size_t patches_room, steps_room;
    struct planned_launch *launches;
    size_t n_launches;
    struct replay_step *open; /* flat launches may join it; NULL: none */
    unsigned operation;       /* the one that is bound, from 1 */
};

/* Says of each launch how many are fused with it, and lengthens the use of their memory. */
void planner_fuse(struct planner *planner);
/* Writes the launches from `first` on as one, at `at`, and adds its step; returns how many bytes it takes, or 0 with a fault. */
size_t planner_take_fused(struct planner *planner, const struct planned_launch *first, size_t at);

/* recorded_plan.c: the pointer at this place is an address of the draft. */
int planner_patch(struct planner *planner, size_t at, const void *address);
/* The same of memory to which the launch writes. */
int planner_patch_output(struct planner *planner, size_t at, const void *address);
int planner_patch_report(struct planner *planner, size_t at, uint32_t report);
struct replay_step *planner_step(struct planner *planner, const struct record *record, enum replay_kind kind,
                                 size_t at);
