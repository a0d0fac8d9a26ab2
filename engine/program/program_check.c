/* The first pass of a program: finds the tensors of all steps, infers the types of their results, and notes the last use of each tensor that a later step
 * releases. It changes only notes in tensors, and can be undone. */
#include <inttypes.h>
#include <stdlib.h>

#include "engine/program/program_impl.h"
#include "engine/program/recorded_impl.h"

static void program_begin(struct program *program, struct session *session) {
    program->session = session;
    program->serial += PROGRAM_STEPS;
    program->n_steps = program->n_operands = program->n_slots = 0;
    program->slots = program->few_slots;
}

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

int program_check(struct program *program, struct session *session, const struct op_request *requests, unsigned n,
                  struct cause *cause) {
    int code = STATUS_OK;
    program_begin(program, session);
    for (const struct op_request *request = requests; request < requests + n; request++) {
        code = check_step(program, request, cause, &program->fault);
        if (__builtin_expect(code != STATUS_OK || program->wide, 0))
            break;
    }
    return program->n_steps ? STATUS_OK : code;
}

void program_check_undo(struct program *program, unsigned from) {
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
