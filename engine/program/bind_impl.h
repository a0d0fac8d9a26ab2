/* What the files of these steps share. */
#pragma once

#include "engine/program/kernel_impl.h"
#include "engine/program/program.h"
#include "engine/program/signature.h"
#include "engine/session/session_impl.h"
#include "engine/values/plan.h"
#include "engine/values/view_copy.h"

/* An operation on its way through check and bind. */
struct binding {
    struct session *session;
    struct order *order;
    struct stream *stream;
    const struct op_request *request;
    const struct op_info *info;
    struct kernel *kernel;             /* of OP_FAMILY_KERNEL, once it is found */
    const struct signature *signature; /* once it has been checked */
    struct signature own_signature;    /* where it could not be remembered */
    struct op_attributes attributes;
    struct tensor **inputs; /* and their types: as many as the request has */
    const struct tensor_type **types;
    bool poisoned;          /* some of them may turn out to have failed */
    struct outputs outputs; /* all bound; types set, storage and the rest to be set */
    struct tensor *output;  /* the first one */
    struct guard *guard;    /* of OP_FAMILY_TAKE, or where it may take long: what its launches report to */
    struct poison *step;    /* while the poisons of many inputs are settled */
    struct fault fault;
};
/* What failures call the operation. */
static inline const char *binding_name(const struct binding *binding) {
    return binding->kernel ? binding->kernel->name : binding->info ? binding->info->name : "";
}
/* STATUS_OK with inputs, stream, signature and the types of the outputs; or a code, with `binding->fault`, or with a cause that an
 * input has brought. */
int check_operation(struct binding *binding, struct cause *cause);
/* STATUS_OK with each output's storage, layout and point set; or a code with `binding->fault`, and nothing of it will run. */
int bind_operation(struct binding *binding);

/* ---- what every family needs; short ones here, for they are on the way of every operation (bind_operand.c) ---- */

/* The stream waits for the inputs' values. */
static inline int bind_wait(struct binding *binding) {
    for (unsigned i = 0; i < binding->request->n_inputs; i++) {
        int code = plan_wait_value(binding->stream, binding->inputs[i], &binding->fault);
        if (code != STATUS_OK)
            return code;
    }
    return STATUS_OK;
}

/* Memory of its own for an output, whose type is set. */
int bind_allocate(struct binding *binding, struct tensor *out);
/* Whether the operation releases input i and nobody else has its memory, so that an output of as many bytes may take it. */
bool bind_lends(const struct binding *binding, unsigned i);
void bind_take_memory(struct tensor *out, const struct tensor *in);

/* Whether kernels take an input of this dtype as it is, and convert it as they read it. */
bool bind_converts(const struct binding *binding, enum dtype from, enum dtype to);
/* A view of input i that the kernel takes: in the dtype that it wants, or in one that it converts. */
int bind_input(struct binding *binding, unsigned i, struct view *view);
static inline void bind_finish_views(struct view *views, unsigned count) {
    for (unsigned i = 0; i < count; i++)
        view_finish(&views[i]);
}

static inline struct plan bind_plan(const struct binding *binding, struct view *out, struct view *views,
                                    unsigned n_inputs) {
    struct plan plan = {
        .opcode = binding->request->opcode, .ledger = &binding->session->ledger, .n_inputs = n_inputs, .out = out};
    for (unsigned i = 0; i < n_inputs; i++)
        plan.inputs[i] = &views[i];
    return plan;
}

/* bind_FAMILY, for each family; the output has its storage, and every operand has elements. */
typedef int bind_function(struct binding *binding);
#define BIND_FAMILY(FAMILY, name) bind_function bind_##name;
OP_KERNEL_FAMILIES(BIND_FAMILY)
#undef BIND_FAMILY

/* OP_FAMILY_KERNEL: finds the kernel, and checks that it and the device take the launch. */
int bind_kernel_find(struct binding *binding);
/* Outputs with memory, and the launch. */
int bind_kernel(struct binding *binding);
