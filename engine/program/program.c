/* Operations of a client, from requests to launches. The unit of work is a *program*: operations that follow one another, made of
 * as many requests as are at hand and check well. It goes through three passes:
 *
 *   check  (program_check.c)    finds the tensors of all steps, infers the types of their results, and notes the last use of each
 *                               tensor that a later step releases. It changes only notes in tensors, and can be undone.
 *   bind   (bind*.c)            gives memory to the results, and gives operands the form that the kernel wants. It writes launches
 *                               behind the last published record of the stream. Memory is stream-ordered: a launch may take memory
 *                               that earlier records release. So bind needs the numbers of the records, and makes the records.
 *   push   (order_kick)         publishes the records of the stream. None of them runs before.
 *
 * A step that fails in check begins a program of its own. A step that fails in bind ends its program: the steps behind it are checked
 * again, since its results have no value now. So each step of a program has inputs with a value, or with a poison, and failures are
 * made in one place (program_fail.c). */
#include "engine/program/program.h"

#include <assert.h>
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
    const char *debug = getenv("TENSORD_DEBUG");
    if (!program || !signatures || !store) {
        free(program);
        free(signatures);
        free(store);
        return NULL;
    }
    program->signatures = signatures;
    store->signatures = signatures;
    store->left_last = &store->left;
    store->prints = debug && strstr(debug, "program");
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
        program_check_undo(program, 0);
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
        program_check_undo(program, done);
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
