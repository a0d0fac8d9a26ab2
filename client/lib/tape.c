#include "client/lib/tape.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/device.h"
#include "client/lib/error.h"

_Thread_local struct tape *tape_innermost;

static pthread_mutex_t tapes_lock = PTHREAD_MUTEX_INITIALIZER;
static struct tape *tapes;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t exit_key; /* ends the tapes of a thread that ends */
static bool exit_key_made;

/* ---- noting ---- */

/* One allocation: the node, its values, its attributes. */
static struct tape_node *node_create(const struct batch_entry *call, unsigned n_outputs) {
    unsigned n_inputs = call->n_inputs + call->n_captured;
    size_t values = (n_inputs + n_outputs) * sizeof(struct tape_value);
    size_t ints = call->n_ints * sizeof *call->ints, floats = call->n_floats * sizeof *call->floats;
    struct tape_node *node = malloc(sizeof *node + values + ints + floats);
    if (!node)
        return NULL;
    struct tape_value *inputs = (struct tape_value *)(node + 1);
    int64_t *own_ints = (int64_t *)(inputs + n_inputs + n_outputs);
    double *own_floats = (double *)(own_ints + call->n_ints);
    *node = (struct tape_node){.opcode = call->opcode,
                               .n_inputs = n_inputs,
                               .n_outputs = n_outputs,
                               .attributes = {own_ints, own_floats, call->n_ints, call->n_floats},
                               .inputs = inputs,
                               .outputs = inputs + n_inputs};
    if (ints)
        memcpy(own_ints, call->ints, ints);
    if (floats)
        memcpy(own_floats, call->floats, floats);
    return node;
}

/* Under the tapes' lock. */
static bool nodes_grow(struct tape *tape) {
    size_t room = tape->nodes_room ? 2 * tape->nodes_room : 64;
    struct tape_node **nodes = realloc(tape->nodes, room * sizeof(struct tape_node *));
    if (!nodes)
        return false;
    memset(nodes + tape->nodes_room, 0, (room - tape->nodes_room) * sizeof(struct tape_node *));
    tape->nodes = nodes;
    tape->nodes_room = room;
    return true;
}

static bool nodes_reserve(struct tape *tape) {
    if (tape->n_nodes < tape->nodes_room)
        return true;
    pthread_mutex_lock(&tapes_lock);
    bool grown = nodes_grow(tape);
    pthread_mutex_unlock(&tapes_lock);
    return grown;
}

/* The place behind the last node may have one that was made for an operation that has been refused. */
static bool reserve(struct tape *tape, const struct batch_entry *call, unsigned n_outputs) {
    if (!nodes_reserve(tape) || !slots_reserve(&tape->slots, call->n_inputs + call->n_captured + n_outputs))
        return false;
    free(tape->nodes[tape->n_nodes]);
    return (tape->nodes[tape->n_nodes] = node_create(call, n_outputs)) != NULL;
}

/* Results of other operations are constants, as are tensors that no tape knows. */
static bool is_noted(unsigned opcode) {
    return op_rows[opcode].derivative != OP_DERIVATIVE_NONE;
}

static bool keeps(uint32_t which, unsigned i) {
    return which >> (i < 31 ? i : 31) & 1;
}

static void value_note(struct tape *tape, struct tape_value *value, td_tensor *tensor, bool needed) {
    *value =
        (struct tape_value){.slot = slots_take(&tape->slots, tensor), .device = tensor->device, .type = tensor->type};
    if (needed) {
        value->tensor = tensor;
        tensor->holders++;
    }
}

static int no_memory(void) {
    return error_set(STATUS_NO_HOST_MEMORY, "no memory to note an operation on a tape");
}

static int see_inputs(struct tape *tape, const struct batch_entry *call, unsigned n_outputs) {
    int code = 0;
    for (unsigned i = 0; i < call->n_inputs && !code; i++)
        code = tape_see(tape, call->inputs[i]);
    for (unsigned i = 0; i < call->n_captured && !code; i++)
        code = tape_see(tape, call->captured[i]);
    return code ? code : slots_reserve(&tape->slots, n_outputs) ? 0 : no_memory();
}

int tape_reserve(const struct batch_entry *call, unsigned n_outputs) {
    int code = 0;
    for (struct tape *tape = tape_innermost; tape && !code; tape = tape->outer) {
        if (tape->pauses)
            continue;
        if (tape->watches)
            code = see_inputs(tape, call, n_outputs);
        else if (is_noted(call->opcode) && !reserve(tape, call, n_outputs))
            code = no_memory();
    }
    return code;
}

void tape_note(const struct batch_entry *call, unsigned n_outputs, td_tensor *const *outputs) {
    const struct op_info *info = &op_rows[call->opcode];
    for (struct tape *tape = tape_innermost; tape; tape = tape->outer) {
        for (unsigned i = 0; i < n_outputs && tape->watches && !tape->pauses; i++)
            slots_take(&tape->slots, outputs[i]);
        if (tape->pauses || tape->watches || !is_noted(call->opcode))
            continue;
        struct tape_node *node = tape->nodes[tape->n_nodes];
        node->device = outputs[0]->device;
        for (unsigned i = 0; i < call->n_inputs; i++)
            value_note(tape, &node->inputs[i], call->inputs[i], keeps(info->derivative_inputs, i));
        for (unsigned i = 0; i < call->n_captured; i++) /* for which no operation has a derivative */
            value_note(tape, &node->inputs[call->n_inputs + i], call->captured[i], false);
        for (unsigned i = 0; i < n_outputs; i++)
            value_note(tape, &node->outputs[i], outputs[i], keeps(info->derivative_outputs, i));
    }
}

static void nodes_add(void) {
    pthread_mutex_lock(&tapes_lock);
    for (struct tape *tape = tape_innermost; tape; tape = tape->outer)
        tape->n_nodes += !tape->pauses && !tape->watches;
    pthread_mutex_unlock(&tapes_lock);
}

void tape_add(unsigned opcode) {
    if (is_noted(opcode))
        nodes_add();
}

/* ---- calls with a rule of their own ---- */

/* Their tensors may be on several devices. */
static void value_note_locked(struct tape *tape, struct tape_value *value, td_tensor *tensor, bool needed) {
    pthread_mutex_lock(&tensor->device->lock);
    value_note(tape, value, tensor, needed);
    pthread_mutex_unlock(&tensor->device->lock);
}

static void node_note_rule(struct tape *tape, struct tape_rule *rule, td_tensor *const *inputs,
                           td_tensor *const *outputs) {
    struct tape_node *node = tape->nodes[tape->n_nodes];
    node->rule = rule;
    node->device = outputs[0]->device;
    rule->users++;
    for (unsigned i = 0; i < node->n_inputs; i++)
        value_note_locked(tape, &node->inputs[i], inputs[i], keeps(rule->keeps_inputs, i));
    for (unsigned i = 0; i < node->n_outputs; i++)
        value_note_locked(tape, &node->outputs[i], outputs[i], keeps(rule->keeps_outputs, i));
}

int tape_note_rule(struct tape_rule *rule, unsigned n_inputs, td_tensor *const *inputs, unsigned n_outputs,
                   td_tensor *const *outputs) {
    const struct batch_entry call = {.n_inputs = n_inputs, .inputs = inputs};
    for (struct tape *tape = tape_innermost; tape; tape = tape->outer) {
        if (tape->pauses)
            continue;
        if (tape->watches && see_inputs(tape, &call, n_outputs))
            return td_last_error()->code;
        if (!tape->watches && !reserve(tape, &call, n_outputs))
            return no_memory();
    }
    for (struct tape *tape = tape_innermost; tape; tape = tape->outer) {
        for (unsigned i = 0; i < n_outputs && tape->watches && !tape->pauses; i++)
            slots_take(&tape->slots, outputs[i]);
        if (!tape->pauses && !tape->watches)
            node_note_rule(tape, rule, inputs, outputs);
    }
    nodes_add();
    return 0;
}

void tape_rule_drop(struct tape_rule *rule) {
    if (rule && --rule->users == 0)
        rule->destroy(rule);
}

struct tape *tapes_pause(void) {
    for (struct tape *tape = tape_innermost; tape; tape = tape->outer)
        tape->pauses++;
    return tape_innermost;
}

void tapes_resume(struct tape *innermost) {
    for (struct tape *tape = innermost; tape; tape = tape->outer)
        tape->pauses--;
}

bool tapes_note(void) {
    struct tape *tape = tape_innermost;
    while (tape && tape->pauses)
        tape = tape->outer;
    return tape;
}

/* ---- a tape that watches ---- */

/* Other threads read the list, when a device closes. */
static bool seen_grow(struct tape *tape) {
    size_t room = tape->seen_room ? 2 * tape->seen_room : 16;
    pthread_mutex_lock(&tapes_lock);
    struct tape_value *seen = realloc(tape->seen, room * sizeof *seen);
    if (seen) {
        tape->seen = seen;
        tape->seen_room = room;
    }
    pthread_mutex_unlock(&tapes_lock);
    return seen;
}

int tape_see(struct tape *tape, td_tensor *tensor) {
    uint32_t slot;
    if (tape_find(tape, tensor, &slot) || !tape_floating(&tensor->type))
        return 0;
    if (!slots_reserve(&tape->slots, 1) || (tape->n_seen == tape->seen_room && !seen_grow(tape)))
        return no_memory();
    value_note_locked(tape, &tape->seen[tape->n_seen], tensor, true);
    pthread_mutex_lock(&tapes_lock);
    tape->n_seen++;
    pthread_mutex_unlock(&tapes_lock);
    return 0;
}

/* ---- the end ---- */

/* Under the tapes' lock, as a device that closes takes its handles back. */
static void values_let_go(struct tape_value *values, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!values[i].tensor)
            continue;
        pthread_mutex_lock(&values[i].device->lock);
        tensor_let_go(values[i].tensor);
        pthread_mutex_unlock(&values[i].device->lock);
        values[i].tensor = NULL;
    }
}

static void node_destroy(struct tape_node *node) {
    if (node)
        tape_rule_drop(node->rule);
    free(node);
}

static void tape_destroy(struct tape *tape) {
    pthread_mutex_lock(&tapes_lock);
    for (size_t i = 0; i < tape->n_nodes; i++) {
        values_let_go(tape->nodes[i]->inputs, tape->nodes[i]->n_inputs);
        values_let_go(tape->nodes[i]->outputs, tape->nodes[i]->n_outputs);
    }
    values_let_go(tape->seen, tape->n_seen);
    *tape->previous = tape->next;
    if (tape->next)
        tape->next->previous = tape->previous;
    pthread_mutex_unlock(&tapes_lock);
    for (size_t i = 0; i < tape->nodes_room; i++)
        node_destroy(tape->nodes[i]);
    free(tape->nodes);
    free(tape->seen);
    slots_finish(&tape->slots);
    free(tape);
}

/* The numbers that the slots of kept nodes get, in their order; UINT32_MAX for the others. */
static uint32_t slots_number(const struct tape *tape, const bool *keep, uint32_t *numbers) {
    uint32_t n = 0;
    memset(numbers, 0xff, tape->slots.n * sizeof *numbers);
    for (size_t i = 0; i < tape->n_nodes; i++) {
        const struct tape_node *node = tape->nodes[i];
        for (unsigned k = 0; keep[i] && k < node->n_inputs + node->n_outputs;
             k++) /* the outputs are behind the inputs */
            if (numbers[node->inputs[k].slot] == UINT32_MAX)
                numbers[node->inputs[k].slot] = n++;
    }
    return n;
}

/* Under the tapes' lock. Dropped nodes go to the other list; the result is their number. */
static size_t nodes_part(struct tape *tape, const bool *keep, const uint32_t *numbers, struct tape_node **dropped) {
    size_t kept = 0, n_dropped = 0;
    for (size_t i = 0; i < tape->n_nodes; i++) {
        struct tape_node *node = tape->nodes[i];
        unsigned n = node->n_inputs + node->n_outputs;
        tape->nodes[i] = NULL;
        if (!keep[i])
            values_let_go(node->inputs, n);
        for (unsigned k = 0; k < n && keep[i]; k++)
            node->inputs[k].slot = numbers[node->inputs[k].slot];
        if (keep[i])
            tape->nodes[kept++] = node;
        else
            dropped[n_dropped++] = node;
    }
    if (tape->n_nodes < tape->nodes_room && tape->nodes[tape->n_nodes]) { /* one of an operation that was refused */
        dropped[n_dropped++] = tape->nodes[tape->n_nodes];
        tape->nodes[tape->n_nodes] = NULL;
    }
    tape->n_nodes = kept;
    return n_dropped;
}

int tape_retain(struct tape *tape, const bool *keep) {
    uint32_t *numbers = malloc((tape->slots.n + 1) * sizeof *numbers);
    struct tape_node **dropped = malloc((tape->n_nodes + 1) * sizeof(struct tape_node *));
    struct slots slots;
    if (!numbers || !dropped || !slots_renumber(&tape->slots, numbers, slots_number(tape, keep, numbers), &slots)) {
        free(numbers);
        free(dropped);
        return error_set(STATUS_NO_HOST_MEMORY, "no memory to shorten a tape of %zu operations", tape->n_nodes);
    }
    pthread_mutex_lock(&tapes_lock);
    size_t n = nodes_part(tape, keep, numbers, dropped);
    pthread_mutex_unlock(&tapes_lock);
    slots_finish(&tape->slots);
    tape->slots = slots;
    for (size_t i = 0; i < n; i++)
        node_destroy(dropped[i]);
    free(numbers);
    free(dropped);
    return 0;
}

/* The device frees the handles' memory itself. */
static void values_forget(struct tape_value *values, size_t n, const td_device *device) {
    for (size_t i = 0; i < n; i++) {
        if (values[i].device == device) {
            values[i].device = NULL;
            values[i].tensor = NULL;
        }
    }
}

static void node_forget(struct tape_node *node, const td_device *device) {
    if (node->device == device)
        node->device = NULL;
    values_forget(node->inputs, node->n_inputs, device);
    values_forget(node->outputs, node->n_outputs, device);
}

void tape_forget_device(td_device *device) {
    pthread_mutex_lock(&tapes_lock);
    for (struct tape *tape = tapes; tape; tape = tape->next) {
        for (size_t i = 0; i < tape->n_nodes; i++)
            node_forget(tape->nodes[i], device);
        values_forget(tape->seen, tape->n_seen, device);
    }
    pthread_mutex_unlock(&tapes_lock);
}

void tape_end_until(struct tape *outer) {
    while (tape_innermost != outer) {
        struct tape *tape = tape_innermost;
        tape_innermost = tape->outer;
        tape_destroy(tape);
    }
}

static void thread_exit(void *some) {
    (void)some;
    tape_end_until(NULL);
}

static void exit_key_create(void) {
    exit_key_made = !pthread_key_create(&exit_key, thread_exit);
}

static struct tape *tape_create(void) {
    struct tape *tape = calloc(1, sizeof *tape);
    if (!tape) {
        error_set(STATUS_NO_HOST_MEMORY, "no memory for a tape");
        return NULL;
    }
    pthread_mutex_lock(&tapes_lock);
    tape->next = tapes;
    tape->previous = &tapes;
    if (tapes)
        tapes->previous = &tape->next;
    tapes = tape;
    pthread_mutex_unlock(&tapes_lock);
    return tape;
}

static struct tape *tape_begin(void) {
    struct tape *tape = tape_create();
    if (!tape)
        return NULL;
    pthread_once(&once, exit_key_create);
    if (exit_key_made)
        pthread_setspecific(exit_key, tape);
    tape->outer = tape_innermost;
    tape_innermost = tape;
    return tape;
}

struct tape *tape_begin_internal(bool watches) {
    struct tape *tape = tape_begin();
    if (tape) {
        tape->internal = true;
        tape->watches = watches;
    }
    return tape;
}

int td_tape_begin(void) {
    return tape_begin() ? 0 : td_last_error()->code;
}

void td_tape_end(void) {
    struct tape *tape = tape_innermost;
    if (tape && !tape->internal && !tape->pauses)
        tape_end_until(tape->outer);
}

/* Tapes that watch go on, for the results are not from outside. */
td_tape *td_tape_suspend(void) {
    for (struct tape *tape = tape_innermost; tape; tape = tape->outer)
        tape->pauses += !tape->watches;
    return (td_tape *)(void *)tape_innermost;
}

void td_tape_resume(td_tape *suspended) {
    for (struct tape *tape = (struct tape *)(void *)suspended; tape; tape = tape->outer)
        tape->pauses -= !tape->watches;
}

td_tensor *td_stop_gradient(td_tensor *x) {
    td_tape *suspended = td_tape_suspend();
    td_tensor *constant = td_reshape(x, td_tensor_rank(x), td_tensor_shape(x));
    td_tape_resume(suspended);
    return constant;
}

/* ---- tapes that are on for some operations ---- */

td_tape *td_tape_create(void) {
    return (td_tape *)(void *)tape_create();
}

void td_tape_destroy(td_tape *tape) {
    if (tape)
        tape_destroy((struct tape *)(void *)tape);
}

void td_tape_enter(td_tape *given) {
    struct tape *tape = (struct tape *)(void *)given;
    tape->outer = tape_innermost;
    tape_innermost = tape;
}

void td_tape_leave(td_tape *given) {
    struct tape *tape = (struct tape *)(void *)given;
    if (tape_innermost == tape)
        tape_innermost = tape->outer;
}
