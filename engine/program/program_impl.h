/* The inside of a program, for the files of this room. */
#pragma once

#include "engine/program/kernel_impl.h"
#include "engine/program/program.h"
#include "engine/program/signature.h"
#include "engine/session/session_impl.h"
#include "engine/values/plan.h"

/* An operation that has been checked, on its way to its launches. */
struct step {
    const struct op_request *request;
    const struct op_info *info;
    struct session *session;
    struct stream *stream;
    struct tensor **inputs;           /* as many as the request has */
    const struct tensor_type **types; /* of the inputs; set for bind_step() */
    struct tensor **outputs;          /* check sets their types, bind the rest */
    struct tensor *output;            /* the first one */
    unsigned n_outputs;
    uint16_t lends; /* bit i: nothing reads input i after this step, so that an output may take its memory */
    bool poisoned;  /* some inputs have a poison */
    bool planned;   /* it is bound for a recorded program, and runs later */
    struct signature_facts facts;
    /* while it is bound */
    struct kernel *kernel;     /* of OP_FAMILY_KERNEL, once it is found */
    struct recorded *recorded; /* of OP_FAMILY_PROGRAM, from its check on */
    struct guard *guard; /* its launches report to it; of families with a report (launch.h), and of long operations */
    struct poison *settled; /* while the poisons of many inputs are settled */
    struct fault *fault;    /* why it cannot be bound: the program's; */
    struct cause *cause;    /* and if something that it needs has failed before: that failure, borrowed */
};

enum {
    PROGRAM_STEPS = 32, /* few enough that their data stays in the first-level cache */
    PROGRAM_OPERANDS = 4 * PROGRAM_STEPS,
    PROGRAM_SLOTS = 2 * PROGRAM_STEPS,
};

/* Steps that follow one another, with a slot for each tensor that they make. The ids of the slots follow one another, too. A slot
 * whose id is released by a later step of the same program never comes into the session's table. */
struct program {
    struct signatures *signatures;
    struct recorded_store *recorded;
    struct session *session;
    uint64_t serial; /* grows by PROGRAM_STEPS with each program; step k notes serial + k in the tensors that it uses */
    uint64_t first_id; /* of the first slot */
    unsigned n_steps, n_operands, n_slots;
    struct tensor **slots; /* `few_slots`, or as `wide` has them */
    void *wide;            /* arrays of its only step, which has more tensors than there is room for; else NULL */
    struct fault fault;    /* why the first step has failed its check, or the last one cannot be bound; */
    struct cause cause;    /* of the latter */
    struct step steps[PROGRAM_STEPS];
    struct tensor *operands[PROGRAM_OPERANDS];
    const struct tensor_type *types[PROGRAM_OPERANDS];
    struct tensor *few_slots[PROGRAM_SLOTS];
};

/* The operation's name in failures. */
static inline const char *step_name(const struct step *step) {
    return step->kernel ? step->kernel->name : step->info->name;
}

static inline bool program_has(const struct program *program, uint64_t id) {
    return id - program->first_id < program->n_slots;
}

/* The rules and bind_step() need the types of the inputs; most steps need neither. */
static inline void step_types(struct step *step) {
    for (unsigned i = 0; i < step->request->n_inputs; i++)
        step->types[i] = &step->inputs[i]->type;
}

/* program_check.c: makes a program of the first requests: of as many as check well, up to `n`. Returns a code, with `cause` or program->fault, if the first
 * request does not check well. */
int program_check(struct program *program, struct session *session, const struct op_request *requests, unsigned n,
                  struct cause *cause);
/* Undoes the check of the steps from `from` on, and gives back what the program has taken. */
void program_check_undo(struct program *program, unsigned from);

/* program_fail.c: fails an operation of which nothing is bound yet: for `cause`, or, if that has no failure, for `fault`. */
int operation_fail(struct session *session, const struct op_request *request, const char *name, struct cause cause,
                   struct fault *fault);
/* The first request has failed its check. */
int operation_refuse(struct program *program, struct session *session, const struct op_request *request,
                     struct cause cause);

/* STATUS_OK with each output's storage, layout and point set; or a code with `step->fault`, and nothing of it will run. */
int bind_step(struct step *step);
/* The same for a small step without a label. Its launch shares a record with others. */
enum { BIND_NOT_SMALL = -1 }; /* nothing has been done: bind_step() must bind the step */
int bind_small(struct step *step);

/* ---- bind*.c: what every family needs ---- */

/* The stream waits for the inputs' values. */
static inline int bind_wait(struct step *step) {
    for (unsigned i = 0; i < step->request->n_inputs; i++) {
        int code = plan_wait_value(step->stream, step->inputs[i], step->fault);
        if (code != STATUS_OK)
            return code;
    }
    return STATUS_OK;
}

/* Takes new memory for an output, whose type is set. */
int bind_allocate(struct step *step, struct tensor *out);
/* Whether an output of as many bytes may take the memory of input i: nothing else uses it. */
bool bind_lends(const struct step *step, unsigned i);
void bind_take_memory(struct tensor *out, const struct tensor *in);

/* Whether kernels take an input of this dtype as it is, and convert it as they read it. */
bool bind_converts(const struct step *step, enum dtype from, enum dtype to);
/* A view of input i that the kernel takes: in the dtype that it wants, or in one that it converts. */
int bind_input(struct step *step, unsigned i, struct view *view);
/* Makes indices, with whatever strides, of a dtype that the kernel reads. */
int bind_indices(const struct step *step, struct view *view);
static inline void bind_finish_views(struct view *views, unsigned count) {
    for (unsigned i = 0; i < count; i++)
        view_finish(&views[i]);
}

static inline struct plan bind_plan(const struct step *step, struct view *out, struct view *views, unsigned n_inputs) {
    struct plan plan = {
        .opcode = step->request->opcode, .ledger = &step->session->ledger, .n_inputs = n_inputs, .out = out};
    for (unsigned i = 0; i < n_inputs; i++)
        plan.inputs[i] = &views[i];
    return plan;
}

/* Enqueues a record that settles `result` from up to three poisons of inputs (NULL: none) and a guard (may be NULL). On success it takes
 * over one reference to the guard. */
int bind_push_poison(struct stream *stream, struct poison *result, struct poison *const inputs[3], struct guard *guard,
                     struct fault *fault);

/* bind_FAMILY, for each family; the output has its storage, and every operand has elements. */
typedef int bind_function(struct step *step);
#define BIND_FAMILY(FAMILY, name) bind_function bind_##name;
OP_KERNEL_FAMILIES(BIND_FAMILY)
#undef BIND_FAMILY

/* OP_FAMILY_KERNEL: finds the kernel, and checks that it and the device take the launch. */
int bind_kernel_find(struct step *step);
/* Outputs with memory, and the launch. */
int bind_kernel(struct step *step);
