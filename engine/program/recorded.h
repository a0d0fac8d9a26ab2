/* Recorded programs: operations that a client has sent once, and runs as one operation. Owner thread.
 *
 * A definition is checked with the rules of every operation, in as many turns as that takes. Operations whose results nobody uses are dropped, and of equal ones one is kept. With the
 * first run it is planned: its operations are bound, as they would be if they came one after another, but in draft memory (memory/draft.h); the
 * launches that come of it are kept as a replay (order/replay.h), and all pieces of memory between its operations are laid out in one block, the
 * arena. The arena belongs to the program and is charged to its session, as is the host memory of a program, of its plan and of making that. Runs of one
 * program follow one another, since they share the arena.
 *
 * A loop is a program with the operations of another one, planned by itself: which parameters may lend their memory follows from what it carries. */
#pragma once

#include <string.h>

#include "engine/session/session.h"

struct recorded;
struct recorded_store;
struct session;
struct tensor;

enum {
    SESSION_PROGRAMS_MAX = 1024, /* of a session: programs and loops */
    RECORDED_OPERATIONS_MAX = OP_PROGRAM_OPERATIONS_MAX,
    RECORDED_VALUES_MAX = OP_PROGRAM_VALUES_MAX,
    RECORDED_TIMES_MAX = INT32_MAX, /* iterations of one run */
};

/* What a client says of a program. The requests name tensors by the program's own numbers: parameters from 1 on, then captured tensors, then outputs. */
struct recorded_definition {
    uint64_t id;
    const struct tensor_type *parameters;
    const bool *consumed; /* of each parameter: a run releases the input */
    unsigned n_parameters;
    const uint64_t *captures; /* ids of the session's tensors */
    unsigned n_captures;
    const struct op_request *requests; /* for session_program_define() */
    unsigned n_requests;
    const uint64_t *results; /* numbers */
    unsigned n_results;
};

/* How much its operations have, all together. */
struct recorded_size {
    uint64_t operations, inputs, ints, floats, outputs, label_bytes;
};

static inline void recorded_size_add(struct recorded_size *size, const struct op_request *request) {
    size->operations++;
    size->inputs += request->n_inputs;
    size->ints += request->n_ints;
    size->floats += request->n_floats;
    size->outputs += 1 + (uint64_t)request->further;
    size->label_bytes += request->label ? strnlen(request->label, OPERATION_LABEL_MAX) + 1 : 0;
}

struct recorded_loop {
    uint64_t id, body;
    const uint32_t *carried; /* result, parameter, result, parameter, … */
    unsigned n_carried;      /* numbers: twice as many as pairs */
    const uint32_t *sliced, *stacked;
    unsigned n_sliced, n_stacked;
};

/* Begins a program. Its id must be above all earlier ones. The operations follow, as many as `size` says, one by one; they, and what the definition
 * points to, are copied. If the definition breaks a rule, runs of the program fail with the first cause. Returns a code only if there is no such
 * program afterwards, and then nothing is to follow. */
int session_program_begin(struct session *session, const struct recorded_definition *definition,
                          const struct recorded_size *size, struct fault *fault);
/* False: the definition is wrong, and the other operations need not follow. */
bool session_program_add(struct session *session, const struct op_request *request);
/* The program takes its id. STATUS_AGAIN: the turn's time is over; to be called again in a later one. */
int session_program_end(struct session *session);
/* Forgets the program that has begun, if there is one. */
void session_program_abandon(struct session *session);
/* All of these, whatever the budget. */
int session_program_define(struct session *session, const struct recorded_definition *definition, struct fault *fault);
/* The same without a definition, which could not be read: all runs fail with `why`. */
int session_program_refuse(struct session *session, uint64_t id, const struct fault *why, struct fault *fault);
int session_program_loop(struct session *session, const struct recorded_loop *loop, struct fault *fault);
/* Runs that have been enqueued still run. */
int session_program_release(struct session *session, uint64_t id, struct fault *fault);

/* A program, for operators. */
enum { RECORDED_CAUSE_MAX = 192, RECORDED_REASON_MAX = 176 };
struct recorded_figures {
    uint64_t id;
    bool loops, planned;
    char label[OPERATION_LABEL_MAX + 1]; /* of its first operation with one */
    char cause[RECORDED_CAUSE_MAX];      /* its definition is wrong, and why; "": it is not */
    uint32_t operations, kept;           /* as defined; without those that are not needed */
    /* Once it is planned. */
    uint32_t launches, launches_once; /* of a run, and those that only the first run makes */
    uint32_t groups, grouped;         /* launches that are several in one, and the operations in these */
    uint64_t arena, arena_least;      /* bytes; those that are in use at one time */
    uint64_t runs, queued;            /* that have ended; enqueued, and not ended */
    uint64_t iterations;              /* of the ended ones */
    uint64_t run_ns, last_ns;         /* the mean and the last time of the device; of no meaning unless `timed`, */
    uint64_t timed;                   /* the runs for which timed ones count (order/replay.h) */
    uint32_t graphs, graph_steps;     /* on devices that have graphs: stretches of launches, and launches in them */
    char graph_reason[RECORDED_REASON_MAX]; /* why the device last refused one; "": it did not */
    uint32_t groups_waiting; /* on devices that compile these: of `groups`, those whose kernel is not there */
    char fused_reason[RECORDED_REASON_MAX]; /* why one of them cannot be compiled; "": it can, as far as is known */
};
/* How many programs the session has; and these of some of them, those that were defined or run last first. Returns of how many. */
unsigned session_programs(const struct session *session);
unsigned session_programs_figures(const struct session *session, struct recorded_figures *figures, unsigned capacity);

/* How many programs all sessions have, and runs that were enqueued since start. */
void recorded_store_read(const struct recorded_store *store, uint64_t *programs, uint64_t *runs);

/* For struct sessions: gives back a session's programs. False: the budget has ended first; to be called again. */
bool recorded_session_ended(struct session *session);
/* Programs that were released and have run by now are freed, and what plans were made with, as far as the budget goes. */
void recorded_sweep(struct recorded_store *store);
/* Something is left to the next sweep. */
bool recorded_sweep_due(const struct recorded_store *store);
/* All streams have run dry, or the device has failed. */
void recorded_store_finish(struct recorded_store *store);
