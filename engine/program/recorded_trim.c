/* Which operations of a program need not run: those that nobody uses, those that do what another does, and those that become part of
 * another. */
#include <stdlib.h>
#include <string.h>

#include "engine/device/device_impl.h"
#include "engine/program/recorded_impl.h"
#include "engine/program/signature.h"
#include "proto/ops/operations.h"

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

/* Of equal operations keeps the first one. `same` has the value that stands for each value. */
static void body_join(struct recorded_body *body, uint32_t *same, uint32_t *table, size_t places) {
    for (unsigned i = 0; i < body->n_values; i++)
        same[i] = i;
    memset(table, 0xff, places * sizeof *table);
    for (unsigned k = 0; k < body->n_operations; k++) {
        struct recorded_operation *operation = &body->operations[k];
        for (unsigned i = 0; i < operation->request.n_inputs; i++)
            operation->inputs[i] = same[operation->inputs[i]];
        size_t place = operation_hash(operation) & (places - 1);
        while (table[place] != RECORDED_NONE && !operation_same(&body->operations[table[place]], operation))
            place = (place + 1) & (places - 1);
        if (table[place] == RECORDED_NONE) {
            table[place] = k;
            continue;
        }
        operation->dead = true;
        operation->same = table[place] + 1;
        for (unsigned i = 0; i < op_request_outputs(&operation->request); i++)
            same[operation->first_output + i] = body->operations[table[place]].first_output + i;
    }
    for (unsigned i = 0; i < body->n_results; i++)
        body->results[i] = same[body->results[i]];
}

/* ---- linear with its activation ---- */

static void body_count(const struct recorded_body *body, uint32_t *counts) {
    memset(counts, 0, body->n_values * sizeof *counts);
    for (unsigned k = 0; k < body->n_operations; k++) {
        const struct recorded_operation *operation = &body->operations[k];
        for (unsigned i = 0; i < operation->request.n_inputs && !operation->dead; i++)
            counts[operation->inputs[i]]++;
    }
    for (unsigned i = 0; i < body->n_results; i++)
        counts[body->results[i]]++;
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

/* The relu of a linear operation, whose result nobody else reads, becomes that operation's activation. `stands` gets the value that
 * stands for each value; `counts` and `makers` are room for as many numbers. */
static void body_fold(struct recorded_body *body, uint32_t *stands, uint32_t *counts, uint32_t *makers) {
    static const int64_t RELU[] = {OP_ACTIVATION_RELU};
    body_count(body, counts);
    for (unsigned i = 0; i < body->n_values; i++) {
        stands[i] = i;
        makers[i] = RECORDED_NONE; /* the linear operation whose result the value is, if it may take relu over */
    }
    for (unsigned k = 0; k < body->n_operations; k++) {
        struct recorded_operation *operation = &body->operations[k];
        for (unsigned i = 0; i < operation->request.n_inputs; i++)
            operation->inputs[i] = stands[operation->inputs[i]];
        if (operation_takes_relu(body, operation))
            makers[operation->first_output] = k;
        uint32_t maker =
            operation->request.opcode == OP_RELU && !operation->dead ? makers[operation->inputs[0]] : RECORDED_NONE;
        if (maker == RECORDED_NONE || counts[operation->inputs[0]] != 1)
            continue;
        body->operations[maker].request.ints = RELU;
        makers[operation->inputs[0]] = RECORDED_NONE;
        operation->dead = true;
        operation->same = maker + 1;
        stands[operation->first_output] = operation->inputs[0];
    }
    for (unsigned i = 0; i < body->n_results; i++)
        body->results[i] = stands[body->results[i]];
}

/* ---- what is not needed ---- */

/* Drops operations whose results nobody uses, and notes the last use of every value. */
static void body_uses(struct recorded_body *body) {
    for (unsigned i = 0; i < body->n_results; i++)
        body->values[body->results[i]].last_use = UINT32_MAX;
    for (unsigned k = body->n_operations; k-- > 0;) {
        struct recorded_operation *operation = &body->operations[k];
        bool used = false;
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
}

int recorded_trim(struct recorded_body *body, const struct device *device, struct fault *fault) {
    size_t places = 16;
    while (places < 2 * (size_t)body->n_operations)
        places *= 2;
    /* For one value each, and the table; then for three values each. */
    size_t numbers = body->n_values + (places > 2 * (size_t)body->n_values ? places : 2 * (size_t)body->n_values);
    uint32_t *memory = malloc(numbers * sizeof *memory);
    if (!memory)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no host memory to check a program");
    body_join(body, memory, memory + body->n_values, places);
    if (device->vtable->exact_activations && recorded_fuses(device))
        body_fold(body, memory, memory + body->n_values, memory + 2 * (size_t)body->n_values);
    body_uses(body);
    free(memory);
    return STATUS_OK;
}
