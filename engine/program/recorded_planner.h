/* A plan while it is made, for the files recorded_*.c. Owner thread. */
#pragma once

#include <stdio.h>

#include "engine/memory/draft.h"
#include "engine/program/recorded_impl.h"

/* What a launch is in a fused one: elementwise on all elements, a reduction of rows, a softmax of rows, elementwise with an element for each row, a
 * reduction of all elements. */
enum fused_way { FUSED_NOT, FUSED_WIDE, FUSED_REDUCES, FUSED_SOFTMAX, FUSED_NARROW, FUSED_WHOLE };

/* In this order; what is bound wrongly is dropped, and bound again. */
enum stage {
    STAGE_EMPTY,
    STAGE_GIVEN,
    STAGE_ONCE,
    STAGE_BIND_ONCE,
    STAGE_KEEP,
    STAGE_BIND,
    STAGE_BIND_END,
    STAGE_JUDGE,
    STAGE_LIST,
    STAGE_FUSE,
    STAGE_NAMES,
    STAGE_TIME,
    STAGE_SLOTS,
    STAGE_ARENA,
    STAGE_TAKE,
    STAGE_SORT,
    STAGE_ROOM,
    STAGES
};

/* A launch in the stream's records. */
struct planned_launch {
    const struct record *record;
    uint32_t report; /* the guard to which it reports */
    uint32_t fused;  /* how many launches from this one on are one; 0: it belongs to one that began before */
    uint8_t way;     /* enum fused_way */
};

struct fused_shape {
    int64_t rows, columns;
    bool whole_rows;
};

struct planner {
    struct recorded *recorded;
    struct recorded_body *body;
    struct recorded_plan *plan;
    struct session *session;         /* has the session's order, limits and kernels, and a ledger that charges nobody */
    struct recorded_account account; /* what the session pays for all this, and for the plan as long as it is made */
    uint64_t own_bytes;              /* of what is taken at the beginning */
    struct order *order;
    struct stream *stream; /* is in no list of the order's */
    struct draft draft;
    struct tensor *values;
    size_t n_values;
    const struct tensor_type **types; /* of one operation's inputs */
    struct tensor **inputs, **outputs;
    bool *lends; /* of each parameter: its memory may be used for a result */
    bool *small; /* of each operation: its launch may be flat */
    /* Of each operation: it depends on captured tensors and attributes alone, so it need not run more than once; and one of its launches reports. */
    bool *once, *reports;
    /* Of each value: it is captured, or a result of such an operation; and another operation reads it, in every run. */
    bool *once_value, *stays;
    uint64_t once_end;           /* records of such operations */
    uint8_t stage;               /* that is under way, */
    size_t at;                   /* and how far it has come; 0 at its beginning */
    struct record_cursor cursor; /* of stages that go through the stream's records */
    bool now_once;               /* operations that run once are bound; the others later */
    bool wrong;                  /* something has not come out as was taken for granted */
    size_t given;                /* pieces of the draft that are parameters and captured tensors */
    struct fault *fault;
    size_t patches_room, steps_room, launches_room, guards_room, names_room, replay_room;
    struct planned_launch *launches;
    size_t n_launches, n_once;   /* those that only the first run makes come first */
    uint64_t groups;             /* so far, */
    size_t fused;                /* and those of them that have several launches */
    struct replay_step *open;    /* flat launches may join it; NULL: none */
    struct draft_piece **pieces; /* that lie in the arena */
    struct draft_placing placing;
    struct replay_patch *sorted;
    size_t dropped; /* while it is taken apart: values, */
    uint64_t dropped_records;
    struct planner *next; /* in the store's list */
};

/* Charges the session for what the planner has by now, and for `more` that it will take. STATUS_LIMIT: the session may not have so much. */
int planner_pay(struct planner *planner, uint64_t more);

/* Stages return STATUS_AGAIN if they are to go on in a later turn. */

/* recorded_bind.c: finds what need not run more than once, and binds the operations, first those. Then the stream has the launches, and the draft
 * the memory. At last it is known whether planner->lends and planner->once are right. */
int planner_given(struct planner *planner);
int planner_once(struct planner *planner);
int planner_bind(struct planner *planner);
int planner_keep(struct planner *planner);
int planner_bind_end(struct planner *planner);
int planner_judge(struct planner *planner);
/* Which parameters may lend their memory, as is taken for granted first. */
void planner_lends_first(struct planner *planner);
void planner_value_drop(struct tensor *value);

/* recorded_fuse.c: puts the launches in order, says of each how many are fused with it; when which memory is in use; and what lies in slots. */
int planner_fuse(struct planner *planner);
int planner_time(struct planner *planner);
int planner_slots(struct planner *planner);
/* The slot, counted from 1, in which the launch has this operand, which is in the piece; 0: it is in memory. */
unsigned planner_slot(const struct planner *planner, const struct planned_launch *planned, unsigned operand,
                      const struct draft_piece *piece);
/* Writes the launches from `first` on as one, at `at`, and adds its step; returns how many bytes it takes, or 0 with a fault. */
size_t planner_take_fused(struct planner *planner, const struct planned_launch *first, size_t at);

/* recorded_take.c: lists the launches; names the operations; lays out the arena, which has the pieces that are no input, captured tensor or result;
 * writes the replay; and sorts the places of addresses by their bases, so that a run writes those alone whose bases are others than the last run's. */
int planner_list(struct planner *planner);
int planner_names(struct planner *planner);
int planner_arena(struct planner *planner);
int planner_take(struct planner *planner);
int planner_sort(struct planner *planner);
/* recorded_print.c: the plan in readable form. */
void recorded_print(const struct planner *planner, FILE *out);

/* recorded_patch.c: what the replay is written with. */
/* The pointer at this place is an address of the draft. */
int planner_patch(struct planner *planner, size_t at, const void *address);
/* The same of memory to which the launch writes. */
int planner_patch_output(struct planner *planner, size_t at, const void *address);
/* Copies the launch to `at`. */
int planner_take_launch(struct planner *planner, const struct planned_launch *planned, size_t at);
int planner_patch_report(struct planner *planner, size_t at, uint32_t report);
struct replay_step *planner_step(struct planner *planner, const struct record *record, enum replay_kind kind,
                                 size_t at);
