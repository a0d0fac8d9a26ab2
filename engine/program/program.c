/* Operations of a client, from requests to launches. The unit of work is a *program*: operations that follow one another, made of
 * as many requests as are at hand and check well. It goes through three passes:
 *
 *   check  (here, signature.c)  finds the tensors of all steps, infers the types of their results, and notes the last use of each
 *                               tensor that a later step releases. It changes only notes in tensors, and can be undone.
 *   bind   (bind*.c)            gives memory to the results, and gives operands the form that the kernel wants. It writes launches
 *                               behind the last published record of the stream. Memory is stream-ordered: a launch may take memory
 *                               that earlier records release. So bind needs the numbers of the records, and makes the records.
 *   push   (order_kick)         publishes the records of the stream. None of them runs before.
 *
 * A step that fails in check begins a program of its own. A step that fails in bind ends its program: the steps behind it are checked
 * again, since its results have no value now. So each step of a program has inputs with a value, or with a poison, and failures are
 * made in one place (operation_fail). */
#include "engine/program/program.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "engine/program/program_impl.h"
#include "engine/program/recorded_impl.h"
#include "engine/session/host.h"

enum {
    /* A step of the owner's budget stands for some 100 ns. An operation takes two; one that fails, or has more tensors than there is
     * room for beside others, takes one more for so many of its tensors. */
    RUN_BUDGET_STEPS = 2,
    RUN_BUDGET_TENSORS = 8,
};
static_assert(PROGRAM_SLOTS <= TENSOR_TABLE_MIN / 2,
              "the table has room for the slots of a program, whatever it holds");

struct program *program_create(struct device *device) {
    struct program *program = calloc(1, sizeof *program);
    struct signatures *signatures = signatures_create(device);
    struct recorded_store *store = calloc(1, sizeof *store);
    if (!program || !signatures || !store) {
        free(program);
        free(signatures);
        free(store);
        return NULL;
    }
    program->signatures = signatures;
    store->signatures = signatures;
    program->recorded = store;
    for (unsigned i = 0; i < PROGRAM_STEPS; i++) {
        program->steps[i].fault = &program->fault;
        program->steps[i].cause = &program->cause;
    }
    return program;
}

void program_destroy(struct program *program) {
    if (!program)
        return;
    free(program->signatures);
    free(program->recorded);
    free(program);
}

static void program_begin(struct program *program, struct session *session) {
    program->session = session;
    program->serial += PROGRAM_STEPS;
    program->n_steps = program->n_operands = program->n_slots = 0;
    program->slots = program->few_slots;
}

static inline bool program_has(const struct program *program, uint64_t id) {
    return id - program->first_id < program->n_slots;
}

/* ---- check ---- */

/* Finds room for a step's tensors. False: there is no memory (with `fault`), or earlier steps have taken the room (without). */
static bool check_room(struct program *program, struct step *step, unsigned n_inputs, struct fault *fault) {
    unsigned n_outputs = step->n_outputs;
    if (__builtin_expect(
            n_inputs <= PROGRAM_OPERANDS - program->n_operands && n_outputs <= PROGRAM_SLOTS - program->n_slots, 1)) {
        step->inputs = program->operands + program->n_operands;
        step->types = program->types + program->n_operands;
        step->outputs = program->few_slots + program->n_slots;
        return true;
    }
    if (program->n_steps)
        return false;
    void **arrays = malloc((2 * (size_t)n_inputs + n_outputs) * sizeof *arrays);
    if (!arrays) {
        fault_set(fault, STATUS_NO_HOST_MEMORY, "no host memory for %u inputs and %u outputs", n_inputs, n_outputs);
        return false;
    }
    program->wide = arrays;
    step->inputs = (struct tensor **)arrays;
    step->types = (const struct tensor_type **)(arrays + n_inputs);
    step->outputs = program->slots = (struct tensor **)(arrays + 2 * (size_t)n_inputs);
    return true;
}

/* The rules and bind_step() need the types of the inputs; most steps need neither. */
static void step_types(struct step *step) {
    for (unsigned i = 0; i < step->request->n_inputs; i++)
        step->types[i] = &step->inputs[i]->type;
}

/* Finds the inputs. `doubtful`: some of them may have no value. */
static inline int check_inputs(struct program *program, struct step *step, bool *doubtful, struct cause *cause,
                               struct fault *fault) {
    const struct op_request *request = step->request;
    struct session *session = step->session;
    uint64_t use = program->serial + program->n_steps;
    struct tensor **inputs = step->inputs;
    for (unsigned i = 0, n = request->n_inputs; i < n; i++) {
        uint64_t id = request->inputs[i];
        struct tensor *tensor =
            program_has(program, id) ? program->slots[id - program->first_id] : session_tensor(session, id);
        if (__builtin_expect(!tensor, 0) && session_refused(session, id, cause))
            return (int)cause->failure->code;
        if (__builtin_expect(!tensor || tensor->leaving, 0))
            return session_unknown_id(session, id, fault);
        if (__builtin_expect(tensor->uploading, 0))
            return fault_set(fault, STATUS_INVALID_ARGUMENT,
                             "input %u: tensor %" PRIu64 " has not been uploaded completely", i, id);
        if (__builtin_expect(tensor->poison || tensor->failure, 0))
            *doubtful = true;
        tensor->last_use = use;
        inputs[i] = tensor;
    }
    return STATUS_OK;
}

/* The first cause among the inputs, if they do not all have a value so far. Only the first step of a program settles its inputs: an
 * earlier step may read the same tensor, and a tensor that has failed has no storage. What a later step does not settle poisons it. */
static bool check_causes(const struct program *program, struct step *step, struct cause *cause) {
    for (unsigned i = 0; i < step->request->n_inputs; i++) {
        struct tensor *tensor = step->inputs[i];
        if (program->n_steps ? tensor->failure != NULL : tensor_settle(step->session, tensor)) {
            *cause = tensor_cause(tensor);
            return true;
        }
    }
    return false;
}

static inline struct tensor *check_output(struct step *step, unsigned i, struct fault *fault) {
    struct tensor *tensor = session_new_tensor(step->session, step->request->output + i);
    step->outputs[i] = tensor;
    if (__builtin_expect(tensor != NULL, 1))
        return tensor;
    while (i--)
        tensor_unref(step->session, step->outputs[i]);
    fault_set(fault, STATUS_NO_HOST_MEMORY, "no host memory for a tensor");
    return NULL;
}

static __attribute__((noinline)) int check_several(struct program *program, struct step *step, struct fault *fault) {
    enum { FEW = 4 };
    const struct op_request *request = step->request;
    unsigned n = step->n_outputs;
    struct tensor_type few[FEW], *types = n <= FEW ? few : malloc(n * sizeof *types);
    struct signature signature;
    if (!types)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no host memory for the types of %u outputs", n);
    step_types(step);
    bool good;
    if (step->info->family == OP_FAMILY_PROGRAM) {
        signature.facts = (struct signature_facts){.elements = 1};
        step->recorded = recorded_find(step->session, request, fault);
        good = step->recorded && recorded_check(step->recorded, request, step->types, n, types, fault) == STATUS_OK;
    } else {
        good = signature_make(program->signatures, request->opcode, step->types, request->n_inputs,
                              &step->request->attributes, n, types, &signature, fault);
    }
    for (unsigned i = 0; i < n && good; i++) {
        good = check_output(step, i, fault);
        if (good)
            step->outputs[i]->type = types[i];
    }
    if (types != few)
        free(types);
    if (!good)
        return (int)fault->code;
    step->facts = signature.facts;
    step->output = step->outputs[0];
    return STATUS_OK;
}

/* Infers the types of the outputs, and makes the outputs. */
static inline int check_signature(struct program *program, struct step *step, struct fault *fault) {
    const struct op_request *request = step->request;
    struct signatures *signatures = program->signatures;
    if (__builtin_expect(request->further || step->info->n_outputs != 1 || request->opcode == OP_PROGRAM ||
                             !signature_is_short(request->n_inputs, &step->request->attributes),
                         0))
        return check_several(program, step, fault);
    uint64_t ids[SIGNATURE_INPUTS] = {0};
    for (unsigned i = 0, n = request->n_inputs; i < n; i++) {
        struct tensor *tensor = step->inputs[i];
        if (__builtin_expect(!tensor->type_id, 0))
            tensor->type_id = signature_type(signatures, &tensor->type);
        ids[i] = tensor->type_id;
    }
    struct signature *home = signature_home(signatures, request->opcode, ids, &request->attributes);
    const struct signature *signature = home;
    if (__builtin_expect(!signature_is(home, request->opcode, ids, &request->attributes), 0)) {
        step_types(step);
        signature = signature_add(
            signatures, home,
            &(struct signature_query){request->opcode, request->n_inputs, step->types, ids, &request->attributes},
            fault);
    }
    struct tensor *output = signature ? check_output(step, 0, fault) : NULL;
    if (!output)
        return (int)fault->code;
    step->output = output;
    output->type.dtype = signature->type.dtype;
    output->type.rank = signature->type.rank;
    for (int i = 0; i < signature->type.rank; i++)
        output->type.shape[i] = signature->type.shape[i];
    output->type_id = signature->type_id;
    step->facts = signature->facts;
    return STATUS_OK;
}

/* A later step releases the tensor: the one that used it last may give its memory away. */
static inline void check_last_use(struct program *program, struct tensor *tensor) {
    uint64_t k = tensor->last_use - program->serial;
    if (k >= program->n_steps)
        return;
    struct step *step = &program->steps[k];
    unsigned n = step->request->n_inputs < 16 ? step->request->n_inputs : 16, lends = 0;
    for (unsigned i = 0; i < n; i++)
        lends |= (unsigned)(step->inputs[i] == tensor) << i;
    step->lends |= (uint16_t)lends;
}

/* Without a fault: operation_free() reports what is wrong. */
static inline int check_free(struct program *program, struct step *step) {
    const struct op_request *request = step->request;
    step->n_outputs = 0;
    if (request->n_inputs > PROGRAM_OPERANDS - program->n_operands)
        return STATUS_LIMIT;
    step->inputs = program->operands + program->n_operands;
    for (unsigned i = 0; i < request->n_inputs; i++) {
        uint64_t id = request->inputs[i];
        struct tensor *tensor =
            program_has(program, id) ? program->slots[id - program->first_id] : session_tensor(step->session, id);
        if (!tensor || tensor->leaving) {
            while (i--)
                step->inputs[i]->leaving = false;
            return STATUS_UNKNOWN_ID;
        }
        tensor->leaving = true;
        check_last_use(program, tensor);
        step->inputs[i] = tensor;
    }
    program->n_operands += request->n_inputs;
    program->n_steps++;
    return STATUS_OK;
}

static inline void check_consumed(struct step *step) {
    const struct op_request *request = step->request;
    for (unsigned i = 0; i < request->n_inputs; i++)
        if (op_consumes(request->consume, request->consume_more, i))
            step->inputs[i]->leaving = true;
}

/* Adds a step. Otherwise returns a code, with `fault`, or with the cause why an input has no value. The first of these is reported: an
 * unknown operation, an unknown input, an input without a value, a broken rule. */
static inline int check_step(struct program *program, const struct op_request *request, struct cause *cause,
                             struct fault *fault) {
    struct step *step = &program->steps[program->n_steps];
    struct session *session = program->session;
    bool doubtful = false;
    step->request = request;
    step->session = session;
    if (request->opcode == OP_FREE)
        return check_free(program, step);
    step->info = op_info(request->opcode);
    if (__builtin_expect(!step->info, 0))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%u is not an operation", request->opcode);
    if (__builtin_expect(request->n_inputs > (unsigned)step->info->inputs_max, 0))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s takes no %u inputs", step->info->name, request->n_inputs);
    if (__builtin_expect(request->further >= OP_OUTPUTS_MAX, 0))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s has no %u outputs", step->info->name,
                         request->further + 1);
    step->n_outputs = 1 + request->further;
    if (!program->n_slots)
        program->first_id = request->output;
    if (__builtin_expect(program->n_slots ? request->output != program->first_id + program->n_slots
                                          : request->output <= session->last_id,
                         0) ||
        request->output + request->further < request->output)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%" PRIu64 " cannot be bound", request->output);
    if (!check_room(program, step, request->n_inputs, fault))
        return STATUS_NO_HOST_MEMORY;
    int code = check_inputs(program, step, &doubtful, cause, fault);
    if (code != STATUS_OK)
        return code;
    if (__builtin_expect(doubtful, 0) && check_causes(program, step, cause))
        return (int)cause->failure->code;
    step->stream = session_find_stream(session, request->stream, fault);
    if (!step->stream)
        return STATUS_INVALID_ARGUMENT;
    code = check_signature(program, step, fault);
    if (code != STATUS_OK)
        return code;
    step->kernel = NULL;
    step->lends = request->consume;
    if (request->consume || request->consume_more)
        check_consumed(step);
    program->n_operands += request->n_inputs;
    program->n_slots += step->n_outputs;
    program->n_steps++;
    return STATUS_OK;
}

/* Makes a program of the first requests: of as many as check well, up to `n`. Returns a code, with `cause` or program->fault, if the first
 * request does not check well. */
static __attribute__((noinline)) int program_check(struct program *program, struct session *session,
                                                   const struct op_request *requests, unsigned n, struct cause *cause) {
    int code = STATUS_OK;
    program_begin(program, session);
    for (const struct op_request *request = requests; request < requests + n; request++) {
        code = check_step(program, request, cause, &program->fault);
        if (__builtin_expect(code != STATUS_OK || program->wide, 0))
            break;
    }
    return program->n_steps ? STATUS_OK : code;
}

/* ---- bind ---- */

/* Takes the first `n` outputs out of the table again. */
static __attribute__((noinline)) void step_unlist(struct step *step, unsigned n, uint64_t last_id) {
    struct session *session = step->session;
    for (unsigned i = 0; i < n; i++)
        if (step->outputs[i]->leaving)
            session->unlisted--;
        else
            tensor_table_remove(&session->tensors, step->outputs[i]->id);
    session->last_id = last_id;
}

/* Puts the outputs into the session's table, except those that a later step releases. All of them, or none. */
static int step_list(struct step *step, struct fault *fault) {
    struct session *session = step->session;
    uint64_t last_id = session->last_id;
    int code = STATUS_OK;
    unsigned i = 0;
    for (; i < step->n_outputs && code == STATUS_OK; i++) {
        struct tensor *tensor = step->outputs[i];
        session->last_id = tensor->id;
        if (__builtin_expect(session->tensors.count + session->unlisted >= session->tensors_room, 0))
            code = host_take_tensors(session, fault);
        if (code == STATUS_OK && __builtin_expect(tensor_table_reserve(&session->tensors) != STATUS_OK, 0))
            code = fault_set(fault, STATUS_NO_HOST_MEMORY, "no host memory for a tensor");
        if (code != STATUS_OK)
            break;
        if (tensor->leaving)
            session->unlisted++;
        else
            tensor_table_insert(&session->tensors, tensor);
    }
    if (__builtin_expect(code != STATUS_OK, 0)) {
        step_unlist(step, i, last_id);
        ledger_pardon(&session->ledger); /* operation_fail() is refused the same */
    }
    return code;
}

/* The id goes, and with it the session's reference. */
static inline void step_release(const struct program *program, struct tensor *tensor, uint64_t id) {
    struct session *session = program->session;
    if (program_has(program, id))
        session->unlisted--;
    else
        tensor_table_remove(&session->tensors, id);
    tensor_unref(session, tensor);
}

static void step_consume(const struct program *program, const struct step *step) {
    const struct op_request *request = step->request;
    for (unsigned i = 0; i < request->n_inputs; i++)
        if (op_consumes(request->consume, request->consume_more, i)) {
            if (step->inputs[i]->leaving)
                step->inputs[i]->leaving = false;
            else
                step->inputs[i] = NULL; /* an earlier input is the same tensor, which is released once */
        }
    for (unsigned i = 0; i < request->n_inputs; i++)
        if (op_consumes(request->consume, request->consume_more, i) && step->inputs[i])
            step_release(program, step->inputs[i], request->inputs[i]);
}

static int step_run(struct program *program, struct step *step) {
    const struct op_request *request = step->request;
    struct session *session = step->session;
    const char *label = request->label;
    ledger_begin(&session->ledger);
    if (__builtin_expect(label != NULL, 0))
        session_label(session, label);
    if (!step->n_outputs) { /* free */
        session_end_operation(session, NULL);
        for (unsigned i = 0; i < request->n_inputs; i++)
            step_release(program, step->inputs[i], request->inputs[i]);
        return STATUS_OK;
    }
    uint64_t last_id = session->last_id;
    struct stream *stream = step->stream;
    uint64_t before = stream->enqueued;
    int code = step_list(step, step->fault);
    bool shares = false; /* a record with others */
    if (code == STATUS_OK) {
        code = step->facts.small && !label ? bind_small(step) : BIND_NOT_SMALL;
        shares = code == STATUS_OK;
        if (code == BIND_NOT_SMALL) {
            step->poisoned = false; /* an earlier step may have poisoned them */
            for (unsigned i = 0; i < request->n_inputs; i++)
                step->poisoned |= step->inputs[i]->poison != NULL;
            step_types(step);
            stream_begin_operation(stream, label, request->sequence);
            code = bind_step(step);
            stream_begin_operation(stream, NULL, 0);
        }
        if (__builtin_expect(code != STATUS_OK, 0))
            step_unlist(step, step->n_outputs, last_id);
    }
    if (session_put_off(session, code))
        return STATUS_AGAIN;
    if (code != STATUS_OK)
        return code;
    session_end_operation(session, shares || stream->enqueued != before ? stream : NULL);
    if (request->consume || request->consume_more)
        step_consume(program, step);
    return STATUS_OK;
}

/* Undoes the check of the steps from `from` on, and gives back what the program has taken. */
static void program_end(struct program *program, unsigned from) {
    struct session *session = program->session;
    unsigned kept = program->n_slots;
    for (unsigned k = program->n_steps; k-- > from;) {
        const struct step *step = &program->steps[k];
        kept -= step->n_outputs;
    }
    for (unsigned k = from; k < program->n_steps; k++) {
        const struct step *step = &program->steps[k];
        const struct op_request *request = step->request;
        bool all = !step->n_outputs;
        for (unsigned i = 0; i < request->n_inputs; i++) {
            struct tensor *tensor = step->inputs[i];
            if (!tensor->leaving || !(all || op_consumes(request->consume, request->consume_more, i)))
                continue;
            tensor->leaving = false;
            if (request->inputs[i] - program->first_id >= kept)
                continue;
            session->unlisted--; /* a step that has run has made it, and its release comes later */
            tensor_table_reserve(&session->tensors);
            tensor_table_insert(&session->tensors, tensor);
        }
    }
    for (unsigned i = kept; i < program->n_slots; i++)
        tensor_unref(session, program->slots[i]);
    free(program->wide);
    program->wide = NULL;
}

/* ---- operations that fail ---- */

/* Why an operation failed whose ids could not be bound. An input that has failed before comes first, as with all failures. */
static struct cause operation_refusal(struct session *session, const struct op_request *request,
                                      const struct fault *fault, const char *name) {
    struct cause cause = {0};
    for (unsigned i = 0; i < request->n_inputs && !cause.failure && fault->code == STATUS_LIMIT; i++) {
        struct tensor *tensor = session_tensor(session, request->inputs[i]);
        if (!tensor)
            session_refused(session, request->inputs[i], &cause);
        else if (tensor_settle(session, tensor))
            cause = tensor_cause(tensor);
    }
    return cause.failure ? cause_ref(cause) : session_cause(session, fault, name, request->label, request->sequence);
}

/* Binds ids from `first` on, as many as can be. Returns the first failure. If memory comes later, none is bound. */
static int operation_bind(struct session *session, uint64_t first, unsigned n, struct fault *fault) {
    uint64_t last_id = session->last_id;
    struct fault here;
    int first_code = STATUS_OK;
    for (unsigned i = 0; i < n; i++) {
        struct tensor *tensor;
        int code = session_bind(session, first + i, &tensor, &here);
        if (code == STATUS_OK)
            continue;
        if (first_code == STATUS_OK) {
            first_code = code;
            *fault = here;
        }
        if (!session_memory_comes(session, code))
            continue;
        while (i--)
            if (first + i > last_id)
                session_unbind(session, first + i);
        session->last_id = last_id;
        return code;
    }
    return first_code;
}

/* Fails an operation of which nothing is bound yet: for `cause`, or, if that has no failure, for `fault`. */
static int operation_fail(struct session *session, const struct op_request *request, const char *name,
                          struct cause cause, struct fault *fault) {
    uint64_t last_id = session->last_id;
    unsigned n = request->further < OP_OUTPUTS_MAX ? 1 + request->further : OP_OUTPUTS_MAX;
    struct fault refusal;
    if (cause.failure) /* it belongs to a tensor that this operation may release */
        cause_ref(cause);
    int code = operation_bind(session, request->output, n, &refusal);
    if (session_put_off(session, code)) {
        failure_unref(cause.failure);
        return STATUS_AGAIN;
    }
    session_end_operation(session, NULL);
    if (code != STATUS_OK) {
        failure_unref(cause.failure);
        cause = operation_refusal(session, request, &refusal, name);
    } else if (!cause.failure) {
        cause = session_cause(session, fault, name, request->label, request->sequence);
    }
    for (unsigned i = 0; i < n; i++) {
        uint64_t id = request->output + i;
        struct tensor *tensor = id > last_id ? session_tensor(session, id) : NULL;
        if (tensor)
            tensor_fail(session, tensor, cause_ref(cause));
        else if (code == STATUS_LIMIT)
            session_refuse(session, id, cause_ref(cause));
    }
    code = (int)cause.failure->code;
    failure_unref(cause.failure);
    for (unsigned i = 0; i < request->n_inputs; i++)
        if (op_consumes(request->consume, request->consume_more, i) &&
            request->inputs[i] - request->output > request->further)
            session_unbind(session, request->inputs[i]);
    return code;
}

/* A free that has failed its check: some ids are unknown, or there are many. */
static int operation_free(struct session *session, const struct op_request *request) {
    int code = STATUS_OK;
    session_end_operation(session, NULL);
    for (unsigned i = 0; i < request->n_inputs; i++) {
        if (session_unbind(session, request->inputs[i]))
            continue;
        struct fault fault;
        code = session_unknown_id(session, request->inputs[i], &fault);
        if (code == STATUS_LIMIT) /* the tensor was never made, and its operation has reported that */
            continue;
        failure_unref(session_failure(session, &fault, "free", request->label, request->sequence));
    }
    return code;
}

/* The first request has failed its check. */
static int operation_refuse(struct program *program, struct session *session, const struct op_request *request,
                            struct cause cause) {
    const struct op_info *info = op_info(request->opcode);
    ledger_begin(&session->ledger);
    if (request->label)
        session_label(session, request->label);
    return request->opcode == OP_FREE
               ? operation_free(session, request)
               : operation_fail(session, request, info ? info->name : "", cause, &program->fault);
}

/* ---- the whole ---- */

/* The budget's steps are spent: looks at the clock. True: the time is over. */
static bool run_look(struct budget *budget, int *spent) {
    *spent = 0;
    return budget_look(budget);
}

/* Makes a program of the first requests and runs it. Returns how many requests are done; the program ends early if a step fails or the
 * budget is spent. `result` is the code of the last request that is done; or STATUS_AGAIN: nothing of the next one has been done. */
static unsigned program_run(struct program *program, struct session *session, const struct op_request *requests,
                            unsigned n, int *result) {
    struct budget *budget = &session->order->budget;
    struct cause cause = {0};
    int code = program_check(program, session, requests, n, &cause);
    if (__builtin_expect(code != STATUS_OK, 0)) {
        program_end(program, 0);
        budget->steps -= (int)((requests->n_inputs + requests->further) / RUN_BUDGET_TENSORS);
        *result = operation_refuse(program, session, requests, cause);
        return *result != STATUS_AGAIN;
    }
    struct step *step = program->steps, *end = step + program->n_steps;
    int spent = 0;
    do {
        code = step_run(program, step);
        if (__builtin_expect(code != STATUS_OK, 0))
            break;
        spent += RUN_BUDGET_STEPS;
        step++;
    } while (step < end && (spent < budget->steps || !run_look(budget, &spent)));
    budget->steps -= spent;
    unsigned done = (unsigned)(step - program->steps);
    if (__builtin_expect(program->wide != NULL, 0))
        budget->steps -= (int)((requests->n_inputs + requests->further) / RUN_BUDGET_TENSORS);
    if (__builtin_expect(step < end || program->wide, 0))
        program_end(program, done);
    if (__builtin_expect(code != STATUS_OK && code != STATUS_AGAIN, 0)) {
        struct cause known = program->cause;
        program->cause = (struct cause){0};
        code = operation_fail(session, step->request, step_name(step), known, &program->fault);
        done += code != STATUS_AGAIN;
    }
    *result = code;
    return done;
}

int session_run(struct session *session, const struct op_request *requests, unsigned n, unsigned *done) {
    struct program *program = session->sessions->program;
    unsigned width = PROGRAM_STEPS; /* small while operations fail: requests behind a failure are checked again */
    int code = STATUS_OK;
    for (*done = 0; *done < n;) {
        unsigned left = n - *done;
        if (*done && budget_spent(&session->order->budget, RUN_BUDGET_STEPS))
            return STATUS_AGAIN;
        *done += program_run(program, session, requests + *done, left < width ? left : width, &code);
        if (code == STATUS_AGAIN)
            return code;
        width = code != STATUS_OK ? 1 : 2 * width < PROGRAM_STEPS ? 2 * width : PROGRAM_STEPS;
    }
    return code;
}

int session_submit(struct session *session, const struct op_request *request) {
    unsigned done;
    return session_run(session, request, 1, &done);
}
