/* The recorded programs of sessions: how they are kept, and what their runs need. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/program/ids.h"
#include "engine/program/recorded_impl.h"
#include "engine/session/host.h"

enum {
    RECORDED_MALLOC = 16,   /* what the allocator adds to a program */
    RECORDED_LOOKS = 256,   /* at released programs that may still run, in one sweep */
    RECORDED_END_STEPS = 32 /* of the budget, to free a program */
};

/* ---- what a session pays ---- */

int recorded_pay(struct recorded_account *account, uint64_t bytes, unsigned operations, struct fault *fault) {
    if (account->payer && bytes > account->bytes) {
        int code = ledger_take_host(&account->payer->ledger, bytes - account->bytes, operations,
                                    "operations of a program", fault);
        if (code != STATUS_OK)
            return code;
        account->bytes = bytes;
    }
    recorded_note(account, bytes);
    return STATUS_OK;
}

void recorded_note(struct recorded_account *account, uint64_t bytes) {
    if (!account->payer)
        return;
    if (bytes > account->bytes)
        host_note(account->payer, bytes - account->bytes);
    else
        host_give(account->payer, account->bytes - bytes);
    account->bytes = bytes;
}

/* ---- programs of a session ---- */

static unsigned table_seek(const struct recorded_table *table, uint64_t id) {
    return ids_seek(table->entries, table->count, sizeof *table->entries, id);
}

static struct recorded *table_find(const struct recorded_table *table, uint64_t id) {
    unsigned at = table ? table_seek(table, id) : 0;
    return table && at < table->count && table->entries[at].id == id ? table->entries[at].recorded : NULL;
}

static void recorded_link(struct recorded **list, struct recorded *recorded) {
    recorded->next = *list;
    recorded->previous = list;
    if (recorded->next)
        recorded->next->previous = &recorded->next;
    *list = recorded;
}

static void recorded_unlink(struct recorded *recorded) {
    *recorded->previous = recorded->next;
    if (recorded->next)
        recorded->next->previous = recorded->previous;
}

static void own_link(struct recorded **list, struct recorded *recorded) {
    recorded->own = *list;
    recorded->own_previous = list;
    if (recorded->own)
        recorded->own->own_previous = &recorded->own;
    *list = recorded;
}

static void own_unlink(struct recorded *recorded) {
    *recorded->own_previous = recorded->own;
    if (recorded->own)
        recorded->own->own_previous = recorded->own_previous;
}

void recorded_ran(struct session *session, struct recorded *recorded) {
    recorded->runs++;
    recorded->store->runs++;
    if (session->programs->recent == recorded)
        return;
    recorded_unlink(recorded);
    recorded_link(&session->programs->recent, recorded);
}

static struct recorded_table *session_table(struct session *session, struct fault *fault) {
    if (!session->programs)
        session->programs = calloc(1, sizeof *session->programs);
    if (!session->programs)
        fault_set(fault, STATUS_NO_HOST_MEMORY, "no host memory for a program");
    return session->programs;
}

/* Room for a program under this id, which must be new. */
static int table_reserve(struct recorded_table *table, uint64_t id, struct fault *fault) {
    if (id <= table->last_id)
        return fault_set(fault, STATUS_DUPLICATE_ID,
                         "program id %" PRIu64 " is not above the highest one used, %" PRIu64, id, table->last_id);
    if (table->count == SESSION_PROGRAMS_MAX) {
        table->last_id = id;
        return fault_set(fault, STATUS_LIMIT, "the session has %d programs, and may have no more",
                         SESSION_PROGRAMS_MAX);
    }
    if (table->count < table->capacity)
        return STATUS_OK;
    unsigned capacity = table->capacity ? 2 * table->capacity : 8;
    struct recorded_entry *entries = realloc(table->entries, capacity * sizeof *entries);
    if (!entries)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no host memory for a program");
    table->entries = entries;
    table->capacity = capacity;
    return STATUS_OK;
}

/* There is room for it. */
static void table_put(struct recorded_table *table, struct recorded *recorded) {
    table->last_id = recorded->id;
    table->entries[table->count++] = (struct recorded_entry){recorded->id, recorded};
    recorded_link(&table->recent, recorded);
    recorded->store->count++;
}

/* A program without a body, for which the table has room. */
static struct recorded *recorded_create(struct session *session, uint64_t id, struct fault *fault) {
    struct recorded_account account = {.payer = session};
    struct recorded_table *table = session_table(session, fault);
    if (!table || table_reserve(table, id, fault) != STATUS_OK)
        return NULL;
    if (recorded_pay(&account, sizeof(struct recorded) + RECORDED_MALLOC, 0, fault) != STATUS_OK) {
        table->last_id = id;
        return NULL;
    }
    struct recorded *recorded = calloc(1, sizeof *recorded);
    if (!recorded) {
        recorded_note(&account, 0);
        fault_set(fault, STATUS_NO_HOST_MEMORY, "no host memory for a program");
        return NULL;
    }
    recorded->id = id;
    recorded->account = account;
    recorded->store = session->sessions->program->recorded;
    return recorded;
}

static struct recorded *table_add(struct session *session, uint64_t id, struct fault *fault) {
    struct recorded *recorded = recorded_create(session, id, fault);
    if (recorded)
        table_put(session->programs, recorded);
    return recorded;
}

int session_program_refuse(struct session *session, uint64_t id, const struct fault *why, struct fault *fault) {
    struct recorded *recorded = table_add(session, id, fault);
    if (!recorded)
        return (int)fault->code;
    recorded->fault = *why;
    return STATUS_OK;
}

/* ---- definitions ---- */

int session_program_begin(struct session *session, const struct recorded_definition *definition,
                          const struct recorded_size *size, struct fault *fault) {
    session_program_abandon(session);
    struct recorded *recorded = recorded_create(session, definition->id, fault);
    if (!recorded)
        return (int)fault->code;
    session->programs->begun = recorded;
    session->programs->check = recorded_check_begin(session, definition, size, &recorded->fault);
    return STATUS_OK;
}

bool session_program_add(struct session *session, const struct op_request *request) {
    struct recorded_table *table = session->programs;
    if (table->check && recorded_check_add(table->check, request, &table->begun->fault) != STATUS_OK) {
        recorded_check_drop(table->check);
        table->check = NULL;
    }
    return table->check;
}

int session_program_end(struct session *session) {
    struct recorded_table *table = session->programs;
    if (table->check && recorded_check_end(table->check, &table->begun->fault) == STATUS_AGAIN)
        return STATUS_AGAIN;
    if (table->check && !table->begun->fault.code)
        table->begun->body = recorded_check_take(table->check);
    recorded_check_drop(table->check);
    table->check = NULL;
    table_put(table, table->begun);
    table->begun = NULL;
    return STATUS_OK;
}

void session_program_abandon(struct session *session) {
    struct recorded_table *table = session->programs;
    if (!table)
        return;
    recorded_check_drop(table->check);
    if (table->begun)
        recorded_note(&table->begun->account, 0);
    free(table->begun);
    table->check = NULL;
    table->begun = NULL;
}

int session_program_define(struct session *session, const struct recorded_definition *definition, struct fault *fault) {
    struct recorded_size size = {0};
    for (unsigned i = 0; i < definition->n_requests; i++)
        recorded_size_add(&size, &definition->requests[i]);
    int code = session_program_begin(session, definition, &size, fault);
    for (unsigned i = 0; i < definition->n_requests && code == STATUS_OK; i++)
        if (!session_program_add(session, &definition->requests[i]))
            break;
    while (code == STATUS_OK && session_program_end(session) == STATUS_AGAIN)
        continue;
    return code;
}

/* ---- loops ---- */

static int loop_lists(struct recorded *recorded, const struct recorded_loop *loop, struct fault *fault) {
    const struct recorded_body *body = recorded->body;
    /* Scratch: parameters and results that are carried. */
    bool *carried = recorded->sliced + body->n_parameters + body->n_results, *carried_on = carried + body->n_parameters;
    for (unsigned i = 0; i < loop->n_sliced; i++) {
        if (loop->sliced[i] >= body->n_parameters)
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "parameter %u is sliced, and there are %u",
                             loop->sliced[i], body->n_parameters);
        recorded->sliced[loop->sliced[i]] = true;
    }
    for (unsigned i = 0; i < loop->n_stacked; i++) {
        if (loop->stacked[i] >= body->n_results)
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "result %u is stacked, and there are %u", loop->stacked[i],
                             body->n_results);
        recorded->stacked[loop->stacked[i]] = true;
    }
    if (loop->n_carried % 2)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the list of carried values has half a pair");
    recorded->n_carries = loop->n_carried / 2;
    for (unsigned i = 0; i < recorded->n_carries; i++) {
        uint32_t result = loop->carried[2 * i], parameter = loop->carried[2 * i + 1];
        if (result >= body->n_results || parameter >= body->n_parameters)
            return fault_set(fault, STATUS_INVALID_ARGUMENT,
                             "result %u is carried to parameter %u, and there are %u and %u", result, parameter,
                             body->n_results, body->n_parameters);
        if (carried[parameter] || recorded->sliced[parameter])
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "parameter %u is carried twice, or sliced too", parameter);
        if (recorded->stacked[result])
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "result %u is carried and stacked", result);
        if (carried_on[result])
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "result %u is carried twice", result);
        if (!type_equal(&body->values[body->results[result]].type, &body->values[parameter].type))
            return fault_set(fault, STATUS_SHAPE,
                             "result %u and parameter %u, which it is carried to, differ in dtype or shape", result,
                             parameter);
        carried[parameter] = carried_on[result] = true;
        recorded->carries[i] = (struct recorded_carry){result, parameter};
    }
    return STATUS_OK;
}

static int loop_memory(struct recorded *recorded, const struct recorded_loop *loop, struct fault *fault) {
    const struct recorded_body *body = recorded->body;
    size_t flags = 2 * ((size_t)body->n_parameters + body->n_results) + 1, carries = loop->n_carried / 2 + 1;
    int code = recorded_pay(&recorded->account,
                            recorded->account.bytes + flags * sizeof(bool) + carries * sizeof *recorded->carries,
                            body->n_operations, fault);
    if (code != STATUS_OK)
        return code;
    recorded->sliced = calloc(flags, sizeof(bool));
    recorded->stacked = recorded->sliced ? recorded->sliced + body->n_parameters : NULL;
    recorded->carries = calloc(carries, sizeof *recorded->carries);
    return recorded->sliced && recorded->carries ? STATUS_OK
                                                 : fault_set(fault, STATUS_NO_HOST_MEMORY, "no host memory for a loop");
}

int session_program_loop(struct session *session, const struct recorded_loop *loop, struct fault *fault) {
    struct recorded *of = table_find(session->programs, loop->body);
    struct recorded *recorded = table_add(session, loop->id, fault);
    if (!recorded)
        return (int)fault->code;
    recorded->loops = true;
    if (!of || of->loops) {
        fault_set(&recorded->fault, STATUS_INVALID_ARGUMENT, "no program has id %" PRIu64 ", over which it could loop",
                  loop->body);
        return STATUS_OK;
    }
    if (!of->body) {
        recorded->fault = of->fault;
        return STATUS_OK;
    }
    recorded->body = of->body;
    int code = loop_memory(recorded, loop, &recorded->fault);
    if (code == STATUS_OK)
        code = loop_lists(recorded, loop, &recorded->fault);
    if (code == STATUS_OK)
        of->body->references++;
    else
        recorded->body = NULL;
    return STATUS_OK;
}

/* ---- how they go ---- */

static void recorded_free(struct recorded *recorded) {
    recorded_plan_finish(&recorded->plan, recorded->store->kernels);
    recorded_note(&recorded->account, 0);
    free(recorded->carries);
    free(recorded->sliced);
    use_list_finish(&recorded->uses);
    free(recorded);
}

/* What it has of the device goes at once: memory is stream-ordered. The launches stay, and are paid for, until they have run. */
static void recorded_let_go(struct session *session, struct recorded *recorded) {
    struct recorded_store *store = recorded->store;
    store->count--;
    recorded_unlink(recorded);
    recorded_plan_leave(recorded);
    storage_unref(recorded->plan.arena);
    recorded->plan.arena = NULL;
    recorded_body_unref(session, recorded->body);
    recorded->body = NULL;
    if (!use_list_runs(&recorded->uses)) {
        recorded_free(recorded);
        return;
    }
    recorded_link(&store->running, recorded);
    own_link(&session->programs->running, recorded);
}

static void recorded_end(struct recorded *recorded) {
    if (recorded->store->look == recorded)
        recorded->store->look = recorded->next;
    recorded_unlink(recorded);
    if (recorded->account.payer)
        own_unlink(recorded);
    recorded_free(recorded);
}

int session_program_release(struct session *session, uint64_t id, struct fault *fault) {
    struct recorded_table *table = session->programs;
    struct recorded *recorded = table_find(table, id);
    if (!recorded)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "no program has id %" PRIu64, id);
    unsigned at = table_seek(table, id);
    table->count--;
    memmove(&table->entries[at], &table->entries[at + 1], (table->count - at) * sizeof *table->entries);
    recorded_let_go(session, recorded);
    return STATUS_OK;
}

/* None of the session's work begins any more; what still runs is nobody's. */
static bool table_leave_running(struct recorded_table *table, struct budget *budget) {
    while (table->running) {
        struct recorded *recorded = table->running;
        own_unlink(recorded);
        recorded_note(&recorded->account, 0);
        recorded->account.payer = NULL;
        if (budget_spent(budget, 1))
            return false;
    }
    return true;
}

bool recorded_session_ended(struct session *session) {
    struct recorded_table *table = session->programs;
    struct budget *budget = &session->order->budget;
    if (!table)
        return true;
    session_program_abandon(session);
    while (table->count) {
        struct recorded *recorded = table->entries[--table->count].recorded;
        int steps = RECORDED_END_STEPS + (recorded->body ? (int)recorded->body->n_captures : 0);
        recorded_let_go(session, recorded);
        if (budget_spent(budget, steps))
            return false;
    }
    if (!table_leave_running(table, budget))
        return false;
    recorded_plans_unpaid(session->sessions->program->recorded, session);
    free(table->entries);
    free(table);
    session->programs = NULL;
    return true;
}

/* Goes round the released programs. */
static void sweep_running(struct recorded_store *store, struct budget *budget) {
    struct recorded *recorded = store->look ? store->look : store->running;
    bool round = recorded == store->running, found = false; /* a whole round, if it comes to the end */
    for (int looks = 0; recorded && looks < RECORDED_LOOKS; looks++) {
        struct recorded *next = recorded->next;
        bool runs = use_list_runs(&recorded->uses);
        if (!runs)
            recorded_end(recorded);
        found |= !runs;
        recorded = next;
        if (budget_spent(budget, runs ? 1 : RECORDED_END_STEPS))
            break;
    }
    store->look = recorded;
    store->sweeps = found && (recorded || !round);
}

void recorded_sweep(struct recorded_store *store) {
    struct budget *budget = &store->order->budget;
    if (recorded_plans_drop(store) && store->running)
        sweep_running(store, budget);
}

bool recorded_sweep_due(const struct recorded_store *store) {
    return store->left || store->sweeps;
}

void recorded_store_finish(struct recorded_store *store) {
    while (store->running)
        recorded_end(store->running);
    while (!recorded_plans_drop(store))
        continue;
}

/* ---- runs ---- */

struct recorded *recorded_find(struct session *session, const struct op_request *request, struct fault *fault) {
    if (request->n_ints != 2 || request->n_floats) {
        fault_set(fault, STATUS_INVALID_ARGUMENT, "a run has 2 whole numbers as attributes, not %u", request->n_ints);
        return NULL;
    }
    uint64_t id = (uint64_t)request->ints[0];
    struct recorded *recorded = table_find(session->programs, id);
    if (!recorded)
        fault_set(fault, STATUS_INVALID_ARGUMENT, "no program has id %" PRIu64, id);
    else if (recorded->body)
        return recorded;
    else
        *fault = recorded->fault;
    return NULL;
}

/* The type with another axis in front. */
static int type_stack(struct tensor_type *type, int64_t times, struct fault *fault) {
    int64_t shape[SHAPE_RANK_MAX + 1] = {times};
    memcpy(shape + 1, type->shape, (size_t)type->rank * sizeof *shape);
    return type_make(type, (int64_t)type->dtype, shape, (size_t)type->rank + 1, fault);
}

static int check_input(const struct recorded *recorded, unsigned i, const struct tensor_type *input, int64_t times,
                       struct fault *fault) {
    struct tensor_type type = recorded->body->values[i].type;
    int code = recorded->loops && recorded->sliced[i] ? type_stack(&type, times, fault) : STATUS_OK;
    if (code != STATUS_OK || type_equal(input, &type))
        return code;
    char has[SHAPE_TEXT_MAX], wants[SHAPE_TEXT_MAX];
    return fault_set(fault, STATUS_SHAPE, "input %u is %s %s, the program's parameter is %s %s", i,
                     dtype_name(input->dtype), shape_text(input, has), dtype_name(type.dtype),
                     shape_text(&type, wants));
}

int recorded_check(struct recorded *recorded, const struct op_request *request, const struct tensor_type *const types[],
                   unsigned n_outputs, struct tensor_type *outputs, struct fault *fault) {
    const struct recorded_body *body = recorded->body;
    int64_t times = request->ints[1];
    if (times < 1 || times > RECORDED_TIMES_MAX || (times > 1 && !recorded->loops))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "a %s runs 1 to %d times, not %" PRId64,
                         recorded->loops ? "loop" : "program", recorded->loops ? RECORDED_TIMES_MAX : 1, times);
    if (request->n_inputs != body->n_parameters || n_outputs != body->n_results)
        return fault_set(fault, STATUS_INVALID_ARGUMENT,
                         "the program has %u parameters and %u results, and the run %u inputs and %u outputs",
                         body->n_parameters, body->n_results, request->n_inputs, n_outputs);
    int code = STATUS_OK;
    for (unsigned i = 0; i < body->n_parameters && code == STATUS_OK; i++)
        code = check_input(recorded, i, types[i], times, fault);
    for (unsigned i = 0; i < n_outputs && code == STATUS_OK; i++) {
        outputs[i] = body->values[body->results[i]].type;
        if (recorded->loops && recorded->stacked[i])
            code = type_stack(&outputs[i], times, fault);
    }
    return code;
}
