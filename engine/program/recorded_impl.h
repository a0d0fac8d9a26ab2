/* The inside of recorded programs, for the files of this room. Owner thread. */
#pragma once

#include "engine/program/program_impl.h"
#include "engine/program/recorded.h"

/* Host memory that a session pays for. */
struct recorded_account {
    struct session *payer; /* NULL: the session has ended */
    uint64_t bytes;
};

/* A value of a program, by its number - 1. */
struct recorded_value {
    struct tensor_type type;
    uint32_t
        last_use; /* the last operation that reads it, from 1; UINT32_MAX: a result, which lives to the end; 0: nobody uses it */
};

struct recorded_operation {
    struct op_request request; /* with its attributes and label, but `inputs` as below; in memory of the program's */
    uint32_t *inputs;          /* values */
    uint32_t first_output;     /* value */
    struct kernel *kernel;     /* of a launch of a client's kernel, held; else NULL */
    bool dead;                 /* nobody uses its results, or another operation has the same: */
    uint32_t same; /* its number, from 1, or that of the operation that it has become a part of; 0: there is none */
};

/* The operations of a program, which loops over it share. */
struct recorded_body {
    unsigned references;
    unsigned n_parameters, n_captures, n_operations, n_values, n_results, n_live, n_kernels;
    struct recorded_value *values;
    struct recorded_operation *operations;
    uint32_t *results;        /* values */
    bool *consumed;           /* of each parameter */
    struct tensor **captures; /* with a reference to each */
    uint32_t *inputs;         /* those of the operations, and so on: each operation points to its own */
    int64_t *ints;
    double *floats;
    char *labels;
    uint64_t host_bytes; /* charged to its session */
    const char *label;   /* of the first operation with one; NULL: none has */
};

struct recorded_carry {
    uint32_t result, parameter;
};

enum { RECORDED_NONE = UINT32_MAX };

/* What a run needs; made with the first one. */
struct recorded_plan {
    struct replay *replay;
    uint32_t fused_seen;               /* of the steps before this one all kernels are there */
    uint64_t arena_bytes, least_bytes; /* of the arena, and of what is in use at one time */
    struct storage *arena;             /* NULL: none is needed */
    uint32_t *lender;                  /* of each result: the parameter in whose memory it is, or RECORDED_NONE */
    uint32_t *taker;                   /* of each parameter: the result that is in its memory, or RECORDED_NONE */
    bool *overwritten;                 /* of each parameter: launches write to its memory */
    uint8_t **bases;                   /* room for those of a run, */
    struct storage **storages, **kept; /* for the storage that it uses, and keeps until it is enqueued, */
    uint8_t **spares;                  /* and for the second memory of each carried result */
};

struct recorded {
    uint64_t id;
    struct recorded_store *store;
    struct recorded_body *body; /* NULL: the definition is wrong */
    struct fault fault;         /* why */
    struct recorded_plan plan;
    bool planned;
    struct planner *planner; /* while the plan is made; else NULL */
    /* of a loop */
    bool loops;
    struct recorded_carry *carries;
    unsigned n_carries;
    bool *sliced, *stacked;               /* of each parameter; of each result */
    uint64_t runs;                        /* enqueued */
    struct use_list uses;                 /* its runs */
    struct recorded_account account;      /* for all but the body */
    struct recorded *next, **previous;    /* in its session's list, or in the store's of released ones */
    struct recorded *own, **own_previous; /* of a released one: in its session's list of these */
};

struct recorded_store {
    struct order *order;
    struct kernel_store *kernels;
    struct signatures *signatures;
    bool prints;              /* each plan, to standard error: TENSORD_DEBUG contains the word program */
    struct recorded *running; /* released, and perhaps not through on the device; */
    struct recorded *look;    /* at this one the sweep looks next; NULL: at the first one */
    bool sweeps;              /* the sweep has found some, and has not looked at all the others */
    struct planner *left;     /* what plans were made with, to be taken apart in turns; */
    struct planner **left_last;
    unsigned count; /* of all sessions', without these */
    uint64_t runs;  /* enqueued since start */
};

/* Of a session; made with its first program. */
struct recorded_table {
    struct recorded_entry {
        uint64_t id;
        struct recorded *recorded;
    } * entries; /* ascending ids */
    unsigned count, capacity;
    uint64_t last_id;
    struct recorded *recent;      /* all of them, the one that was defined or run last first */
    struct recorded *running;     /* released ones, for which the session still pays */
    struct recorded *begun;       /* whose definition is being checked, with room among the entries; NULL: none */
    struct recorded_check *check; /* of that definition; NULL: it is wrong */
};

/* The check of a definition. */
struct recorded_check {
    struct session *session;
    struct recorded_body *body;
    struct recorded_size used; /* by the operations that have been added */
    struct recorded_size size; /* as has been said */
    uint32_t known;            /* values so far */
    /* Then of the trim: the stage that is under way, and how far it has come; and its memory. */
    uint8_t stage;
    bool first; /* nothing has been done in this turn */
    size_t at, places;
    uint32_t *numbers;
};

/* recorded_check.c: NULL with `fault`: the definition is wrong. */
struct recorded_check *recorded_check_begin(struct session *session, const struct recorded_definition *definition,
                                            const struct recorded_size *size, struct fault *fault);
int recorded_check_add(struct recorded_check *check, const struct op_request *request, struct fault *fault);
/* STATUS_AGAIN: the turn's time is over. Else the check has ended, with a code if the definition is wrong. */
int recorded_check_end(struct recorded_check *check, struct fault *fault);
/* The body of a check that has ended well. */
struct recorded_body *recorded_check_take(struct recorded_check *check);
/* Takes NULL. */
void recorded_check_drop(struct recorded_check *check);
void recorded_body_unref(struct session *session, struct recorded_body *body);

/* Finds the operations of a checked program that need not run, and the last use of each value. STATUS_AGAIN: the turn's time is over. */
int recorded_trim(struct recorded_check *check, struct fault *fault);
/* Whether operations become parts of others on this device: the environment may say no. */
bool recorded_fuses(const struct device *device);
/* The program that a request runs. NULL with `fault`: the session has no such program, or its definition is wrong. */
struct recorded *recorded_find(struct session *session, const struct op_request *request, struct fault *fault);
/* A run has been enqueued. */
void recorded_ran(struct session *session, struct recorded *recorded);
/* Checks the inputs of a run, and sets the types of its results. */
int recorded_check(struct recorded *recorded, const struct op_request *request, const struct tensor_type *const types[],
                   unsigned n_outputs, struct tensor_type *outputs, struct fault *fault);
/* Makes the plan, without memory for its arena. STATUS_AGAIN: the turn's time is over; to be called again in a later one. */
int recorded_plan(struct recorded *recorded, struct session *session, struct fault *fault);
/* What a plan is made with is no longer needed: it is taken apart in later turns. */
void recorded_plan_leave(struct recorded *recorded);
void recorded_plan_finish(struct recorded_plan *plan, struct kernel_store *kernels);
/* Takes apart what plans have left. False: the budget has ended first. */
bool recorded_plans_drop(struct recorded_store *store);
/* The session ends, and no longer pays for what its plans have left. */
void recorded_plans_unpaid(struct recorded_store *store, const struct session *session);

/* The account has so many bytes now. STATUS_LIMIT: they are more, which the session may not have. `operations`: of the program, for the words. */
int recorded_pay(struct recorded_account *account, uint64_t bytes, unsigned operations, struct fault *fault);
/* The same beyond any limit: for bytes that have been paid for elsewhere. */
void recorded_note(struct recorded_account *account, uint64_t bytes);

/* OP_FAMILY_PROGRAM: finds the program, plans it, and says whether its launches may report. */
int bind_program_find(struct step *step);
/* Results with memory, and the run. */
int bind_program(struct step *step);
