/* Steps of optimisers: the results take the places of the tensors that they are made of. */
#include <stdlib.h>
#include <string.h>

#include "client/lib/call.h"

enum { LISTS_MOST = 4 };

/* The lists of a step, in the order of the wire: the second one is not replaced. */
struct step {
    unsigned opcode, lists;
    int count;
    td_tensor **list[LISTS_MOST];
    struct op_packed packed;
};

static bool step_check(const struct step *step) {
    if (step->count < 1 || step->count > OP_INPUTS_MAX / (int)step->lists) {
        call_refuse(step->opcode, STATUS_INVALID_ARGUMENT, "%d parameters, 1 to %d are possible", step->count,
                    OP_INPUTS_MAX / (int)step->lists);
        return false;
    }
    for (unsigned i = 0; i < step->lists; i++) {
        if (step->list[i])
            continue;
        call_refuse(step->opcode, STATUS_INVALID_ARGUMENT, "array %u of tensors is NULL", i);
        return false;
    }
    return true;
}

/* Puts the results where the tensors were that they replace. */
static void step_replace(const struct step *step, td_tensor **results) {
    size_t bytes = (size_t)step->count * sizeof *results;
    for (unsigned i = 0; i < step->lists; i++) {
        if (i == 1)
            continue;
        memcpy(step->list[i], results, bytes);
        results += step->count;
        for (int k = 0; k < step->count; k++)
            td_keep(step->list[i][k]);
    }
}

/* A handle can be released once. Marks are in the link of released handles, among which those of the caller are not. */
static bool listed_twice(const struct step *step, size_t n, td_tensor *const *consumed) {
    size_t marked = 0;
    bool twice = false;
    for (; marked < n && !twice; marked++) {
        td_tensor *tensor = consumed[marked];
        twice = tensor && tensor->next_released == tensor;
        if (tensor)
            tensor->next_released = tensor;
    }
    if (twice)
        call_refuse(step->opcode, STATUS_INVALID_ARGUMENT, "a tensor comes twice among those that the step replaces");
    while (marked-- > 0)
        if (consumed[marked])
            consumed[marked]->next_released = NULL;
    return twice;
}

/* All tensors are in one array: the inputs, those of them that are released, and the results. */
static int step_run(struct step *step) {
    if (!step_check(step))
        return td_last_error()->code;
    size_t n = (size_t)step->count, replaced = (step->lists - 1) * n;
    td_tensor **inputs = malloc((step->lists * n + 2 * replaced) * sizeof(td_tensor *));
    if (!inputs) {
        call_refuse(step->opcode, STATUS_NO_HOST_MEMORY, "no memory for %d parameters", step->count);
        return td_last_error()->code;
    }
    td_tensor **consumed = inputs + step->lists * n, **results = consumed + replaced;
    for (unsigned i = 0; i < step->lists; i++) {
        memcpy(inputs + i * n, step->list[i], n * sizeof *inputs);
        if (i != 1)
            memcpy(consumed + (i > 1 ? i - 1 : 0) * n, step->list[i], n * sizeof *inputs);
    }
    struct batch_entry entry = {.opcode = step->opcode,
                                .n_inputs = (unsigned)(step->lists * n),
                                .inputs = inputs,
                                .ints = step->packed.ints,
                                .n_ints = step->packed.n_ints,
                                .floats = step->packed.floats,
                                .n_floats = step->packed.n_floats};
    int code = listed_twice(step, replaced, consumed)
                   ? td_last_error()->code
                   : call_enqueue_taking(&entry, (unsigned)replaced, results, (unsigned)replaced, consumed);
    if (!code)
        step_replace(step, results);
    free(inputs);
    return code;
}

/* No function changes the handles in the list of gradients. */
static td_tensor **unchanged(td_tensor *const *list) {
    return (td_tensor **)(uintptr_t)list;
}

int td_sgd(int count, td_tensor **parameters, td_tensor *const *gradients, td_tensor **velocities, double rate,
           double momentum, double weight_decay, int nesterov) {
    struct step step = {
        OP_SGD, momentum != 0 ? 3 : 2, count, {parameters, unchanged(gradients), velocities}, {.n_ints = 0}};
    struct sgd_attributes attributes = {
        .nesterov = nesterov != 0, .rate = rate, .momentum = momentum, .weight_decay = weight_decay};
    sgd_attributes_write(&attributes, &step.packed);
    return step_run(&step);
}

int td_adam(int count, td_tensor **parameters, td_tensor *const *gradients, td_tensor **first, td_tensor **second,
            int64_t number, double rate, double beta1, double beta2, double epsilon, double weight_decay) {
    struct step step = {OP_ADAM, 4, count, {parameters, unchanged(gradients), first, second}, {.n_ints = 0}};
    struct adam_attributes attributes = {number, rate, beta1, beta2, epsilon, weight_decay};
    adam_attributes_write(&attributes, &step.packed);
    return step_run(&step);
}

int td_adamw(int count, td_tensor **parameters, td_tensor *const *gradients, td_tensor **first, td_tensor **second,
             int64_t number, double rate, double beta1, double beta2, double epsilon, double weight_decay) {
    struct step step = {OP_ADAMW, 4, count, {parameters, unchanged(gradients), first, second}, {.n_ints = 0}};
    struct adamw_attributes attributes = {number, rate, beta1, beta2, epsilon, weight_decay};
    adamw_attributes_write(&attributes, &step.packed);
    return step_run(&step);
}

int td_rmsprop(int count, td_tensor **parameters, td_tensor *const *gradients, td_tensor **squares, double rate,
               double alpha, double epsilon, double weight_decay) {
    struct step step = {OP_RMSPROP, 3, count, {parameters, unchanged(gradients), squares}, {.n_ints = 0}};
    struct rmsprop_attributes attributes = {rate, alpha, epsilon, weight_decay};
    rmsprop_attributes_write(&attributes, &step.packed);
    return step_run(&step);
}

int td_adagrad(int count, td_tensor **parameters, td_tensor *const *gradients, td_tensor **squares, double rate,
               double epsilon, double weight_decay) {
    struct step step = {OP_ADAGRAD, 3, count, {parameters, unchanged(gradients), squares}, {.n_ints = 0}};
    struct adagrad_attributes attributes = {rate, epsilon, weight_decay};
    adagrad_attributes_write(&attributes, &step.packed);
    return step_run(&step);
}

int td_moving_average(int count, td_tensor **averages, td_tensor *const *values, double decay) {
    struct step step = {OP_MOVING_AVERAGE, 2, count, {averages, unchanged(values)}, {.n_ints = 0}};
    struct moving_average_attributes attributes = {decay};
    moving_average_attributes_write(&attributes, &step.packed);
    return step_run(&step);
}
