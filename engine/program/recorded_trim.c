/* Which operations of a program need not run: those that nobody uses, those that do what another does, and those that become part of
 * another. Each stage goes over all operations or values, and goes on in a later turn when the time of this one is over. */
#include <stdlib.h>
#include <string.h>

#include "engine/device/device_impl.h"
#include "engine/program/recorded_impl.h"
#include "engine/program/signature.h"
#include "proto/ops/operations.h"

enum {
    TRIM_NUMBERS = 64,  /* written in a step of the budget */
    TRIM_OPERANDS = 16, /* of one operation, likewise */
};

static int operation_steps(const struct recorded_operation *operation) {
    return 1 + (int)((operation->request.n_inputs + operation->request.further) / TRIM_OPERANDS);
}

/* Takes so many steps. True: what comes next is for a later turn. It is not if nothing has been done in this one. */
static bool trim_is_late(struct recorded_check *check, int steps) {
    bool over = budget_spent(&check->session->order->budget, steps);
    bool first = check->first;
    check->first = false;
    return over && !first;
}

/* ---- equal operations ---- */

static uint64_t operation_hash(const struct recorded_operation *operation) {
    const struct op_request *request = &operation->request;
    uint64_t hash = request->opcode;
    for (unsigned i = 0; i < request->n_inputs; i++)
        hash = signature_hash(hash, operation->inputs[i]);
    for (unsigned i = 0; i < request->n_ints; i++)
        hash = signature_hash(hash, (uint64_t)request->ints[i]);
    return signature_hash(hash, hash >> 29);
}

/* The same inputs and attributes make the same results: also of random operations, which have their keys among these. Of clients' kernels nobody
 * knows. */
static bool operation_same(const struct recorded_operation *a, const struct recorded_operation *b) {
    const struct op_request *x = &a->request, *y = &b->request;
    return !a->kernel && x->opcode == y->opcode && x->n_inputs == y->n_inputs && x->further == y->further &&
           x->n_ints == y->n_ints && x->n_floats == y->n_floats &&
           (!x->n_inputs || !memcmp(a->inputs, b->inputs, x->n_inputs * sizeof *a->inputs)) &&
           (!x->n_ints || !memcmp(x->ints, y->ints, x->n_ints * sizeof *x->ints)) &&
           (!x->n_floats || !memcmp(x->floats, y->floats, x->n_floats * sizeof *x->floats));
}

/* Each value stands for itself, and no operation is known. */
static int trim_begin(struct recorded_check *check) {
    uint32_t *same = check->numbers, *table = same + check->body->n_values;
    size_t values = check->body->n_values;
    for (; check->at < values + check->places; check->at++) {
        if (trim_is_late(check, check->at % TRIM_NUMBERS == 0))
            return STATUS_AGAIN;
        if (check->at < values)
            same[check->at] = (uint32_t)check->at;
        else
            table[check->at - values] = RECORDED_NONE;
    }
    return STATUS_OK;
}

/* Of equal operations keeps the first one. `same` has the value that stands for each value. */
static int trim_join(struct recorded_check *check) {
    struct recorded_body *body = check->body;
    uint32_t *same = check->numbers, *table = same + body->n_values;
    int looks = 0; /* for the last operation */
    for (; check->at < body->n_operations; check->at++) {
        struct recorded_operation *operation = &body->operations[check->at];
        if (trim_is_late(check, looks + operation_steps(operation)))
            return STATUS_AGAIN;
        for (unsigned i = 0; i < operation->request.n_inputs; i++)
            operation->inputs[i] = same[operation->inputs[i]];
        size_t place = operation_hash(operation) & (check->places - 1);
        for (looks = 0; table[place] != RECORDED_NONE && !operation_same(&body->operations[table[place]], operation);
             looks++)
            place = (place + 1) & (check->places - 1);
        if (table[place] == RECORDED_NONE) {
            table[place] = (uint32_t)check->at;
            continue;
        }
        operation->dead = true;
        operation->same = table[place] + 1;
        for (unsigned i = 0; i < op_request_outputs(&operation->request); i++)
            same[operation->first_output + i] = body->operations[table[place]].first_output + i;
    }
    for (unsigned i = 0; i < body->n_results; i++)
        body->results[i] = same[body->results[i]];
    return STATUS_OK;
}

/* ---- linear with its activation ---- */

/* For each value: the value that stands for it, how often it is read, and the linear operation whose result it is, if that may take relu over. */
struct fold {
    uint32_t *stands, *counts, *makers;
};

static struct fold trim_fold(const struct recorded_check *check) {
    uint32_t *numbers = check->numbers;
    size_t n = check->body->n_values;
    return (struct fold){numbers, numbers + n, numbers + 2 * n};
}

static int trim_fold_begin(struct recorded_check *check) {
    struct fold fold = trim_fold(check);
    for (; check->at < check->body->n_values; check->at++) {
        if (trim_is_late(check, check->at % TRIM_NUMBERS == 0))
            return STATUS_AGAIN;
        fold.stands[check->at] = (uint32_t)check->at;
        fold.counts[check->at] = 0;
        fold.makers[check->at] = RECORDED_NONE;
    }
    return STATUS_OK;
}

static int trim_count(struct recorded_check *check) {
    const struct recorded_body *body = check->body;
    uint32_t *counts = trim_fold(check).counts;
    for (; check->at < body->n_operations; check->at++) {
        const struct recorded_operation *operation = &body->operations[check->at];
        if (trim_is_late(check, operation_steps(operation)))
            return STATUS_AGAIN;
        for (unsigned i = 0; i < operation->request.n_inputs && !operation->dead; i++)
            counts[operation->inputs[i]]++;
    }
    for (unsigned i = 0; i < body->n_results; i++)
        counts[body->results[i]]++;
    return STATUS_OK;
}

/* Whether it is a linear operation that may take relu over. Halves may not: by itself such an operation rounds first. */
static bool operation_takes_relu(const struct recorded_body *body, const struct recorded_operation *operation) {
    enum dtype dtype = body->values[operation->first_output].type.dtype;
    struct linear_attributes attributes;
    if (operation->dead || operation->request.opcode != OP_LINEAR ||
        !(dtype == DTYPE_F32 || dtype == DTYPE_F64 || dtype_kind(dtype) == DTYPE_KIND_INT))
        return false;
    linear_attributes_read(&operation->request.attributes, &attributes);
    return attributes.activation == OP_ACTIVATION_NONE;
}

/* The relu of a linear operation, whose result nobody else reads, becomes that operation's activation. */
static int trim_take_relu(struct recorded_check *check) {
    static const int64_t RELU[] = {OP_ACTIVATION_RELU};
    struct recorded_body *body = check->body;
    struct fold fold = trim_fold(check);
    for (; check->at < body->n_operations; check->at++) {
        struct recorded_operation *operation = &body->operations[check->at];
        if (trim_is_late(check, operation_steps(operation)))
            return STATUS_AGAIN;
        for (unsigned i = 0; i < operation->request.n_inputs; i++)
            operation->inputs[i] = fold.stands[operation->inputs[i]];
        if (operation_takes_relu(body, operation))
            fold.makers[operation->first_output] = (uint32_t)check->at;
        uint32_t maker = operation->request.opcode == OP_RELU && !operation->dead ? fold.makers[operation->inputs[0]]
                                                                                  : RECORDED_NONE;
        if (maker == RECORDED_NONE || fold.counts[operation->inputs[0]] != 1)
            continue;
        body->operations[maker].request.ints = RELU;
        fold.makers[operation->inputs[0]] = RECORDED_NONE;
        operation->dead = true;
        operation->same = maker + 1;
        fold.stands[operation->first_output] = operation->inputs[0];
    }
    for (unsigned i = 0; i < body->n_results; i++)
        body->results[i] = fold.stands[body->results[i]];
    return STATUS_OK;
}

/* ---- what is not needed ---- */

/* Drops operations whose results nobody uses, and notes the last use of every value. From the last operation to the first. */
static int trim_uses(struct recorded_check *check) {
    struct recorded_body *body = check->body;
    for (unsigned i = 0; i < body->n_results && check->at == 0; i++)
        body->values[body->results[i]].last_use = UINT32_MAX;
    for (; check->at < body->n_operations; check->at++) {
        uint32_t k = body->n_operations - 1 - (uint32_t)check->at;
        struct recorded_operation *operation = &body->operations[k];
        bool used = false;
        if (trim_is_late(check, operation_steps(operation)))
            return STATUS_AGAIN;
        for (unsigned i = 0; i < op_request_outputs(&operation->request); i++)
            used |= body->values[operation->first_output + i].last_use != 0;
        operation->dead |= !used;
        if (operation->dead)
            continue;
        body->n_live++;
        for (unsigned i = 0; i < operation->request.n_inputs; i++) {
            uint32_t *last = &body->values[operation->inputs[i]].last_use;
            *last = *last ? *last : k + 1;
        }
    }
    return STATUS_OK;
}

/* ---- the whole ---- */

static int trim_memory(struct recorded_check *check, struct fault *fault) {
    size_t values = check->body->n_values, places = 16;
    while (places < 2 * (size_t)check->body->n_operations)
        places *= 2;
    /* For one value each, and the table; then for three values each. */
    check->numbers = malloc((values + (places > 2 * values ? places : 2 * values)) * sizeof *check->numbers);
    check->places = places;
    return check->numbers ? STATUS_OK : fault_set(fault, STATUS_NO_HOST_MEMORY, "no host memory to check a program");
}

typedef int trim_stage(struct recorded_check *check);

int recorded_trim(struct recorded_check *check, struct fault *fault) {
    static trim_stage *const plain[] = {trim_begin, trim_join, trim_uses, NULL};
    static trim_stage *const folding[] = {trim_begin, trim_join, trim_fold_begin, trim_count, trim_take_relu,
                                          trim_uses,  NULL};
    const struct device *device = check->session->order->device;
    trim_stage *const *stages = device->vtable->exact_activations && recorded_fuses(device) ? folding : plain;
    if (!check->numbers && trim_memory(check, fault) != STATUS_OK)
        return (int)fault->code;
    check->first = true;
    while (stages[check->stage]) {
        if (stages[check->stage](check) == STATUS_AGAIN)
            return STATUS_AGAIN;
        check->stage++;
        check->at = 0;
    }
    return STATUS_OK;
}
