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

/* ---- slots ---- */

static size_t slot_place(const struct tape_slot *slots, size_t room, const td_device *device, uint64_t id) {
    size_t place = (size_t)((id ^ ((uintptr_t)device >> 6)) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (room - 1);
    while (slots[place].device && (slots[place].device != device || slots[place].id != id))
        place = (place + 1) & (room - 1);
    return place;
}

static bool slots_reserve(struct tape *tape, size_t more) {
    size_t room = tape->slots_room ? tape->slots_room : 64;
    while (room < 2 * (tape->n_slots + more))
        room *= 2;
    if (room == tape->slots_room)
        return true;
    struct tape_slot *slots = calloc(room, sizeof *slots);
    if (!slots)
        return false;
    for (size_t i = 0; i < tape->slots_room; i++) {
        const struct tape_slot *old = &tape->slots[i];
        if (old->device)
            slots[slot_place(slots, room, old->device, old->id)] = *old;
    }
    free(tape->slots);
    tape->slots = slots;
    tape->slots_room = room;
    return true;
}

/* There is room. */
static uint32_t slot_of(struct tape *tape, const td_tensor *tensor) {
    struct tape_slot *slot = &tape->slots[slot_place(tape->slots, tape->slots_room, tensor->device, tensor->id)];
    if (!slot->device)
        *slot = (struct tape_slot){tensor->device, tensor->id, (uint32_t)tape->n_slots++};
    return slot->slot;
}

bool tape_find(const struct tape *tape, const td_tensor *tensor, uint32_t *slot) {
    if (!tape->slots_room)
        return false;
    const struct tape_slot *found = &tape->slots[slot_place(tape->slots, tape->slots_room, tensor->device, tensor->id)];
    *slot = found->slot;
    return found->device;
}

/* ---- noting ---- */

/* One allocation: the node, its values, its attributes. */
static struct tape_node *node_create(const struct batch_entry *call, unsigned n_outputs) {
    size_t values = (call->n_inputs + n_outputs) * sizeof(struct tape_value);
    size_t ints = call->n_ints * sizeof *call->ints, floats = call->n_floats * sizeof *call->floats;
    struct tape_node *node = malloc(sizeof *node + values + ints + floats);
    if (!node)
        return NULL;
    struct tape_value *inputs = (struct tape_value *)(node + 1);
    int64_t *own_ints = (int64_t *)(inputs + call->n_inputs + n_outputs);
    double *own_floats = (double *)(own_ints + call->n_ints);
    *node = (struct tape_node){.opcode = call->opcode,
                               .n_inputs = call->n_inputs,
                               .n_outputs = n_outputs,
                               .attributes = {own_ints, own_floats, call->n_ints, call->n_floats},
                               .inputs = inputs,
                               .outputs = inputs + call->n_inputs};
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
    if (!nodes_reserve(tape) || !slots_reserve(tape, call->n_inputs + n_outputs))
        return false;
    free(tape->nodes[tape->n_nodes]);
    return (tape->nodes[tape->n_nodes] = node_create(call, n_outputs)) != NULL;
}

/* Results of other operations are constants, as are tensors that no tape knows. */
static bool is_noted(unsigned opcode) {
    return op_rows[opcode].derivative != OP_DERIVATIVE_NONE;
}

int tape_reserve(const struct batch_entry *call, unsigned n_outputs) {
    for (struct tape *tape = tape_innermost; tape; tape = tape->outer)
        if (!tape->pauses && is_noted(call->opcode) && !reserve(tape, call, n_outputs))
            return error_set(STATUS_NO_HOST_MEMORY, "no memory to note an operation on a tape");
    return 0;
}

static void value_note(struct tape *tape, struct tape_value *value, td_tensor *tensor, bool needed) {
    *value = (struct tape_value){.slot = slot_of(tape, tensor), .device = tensor->device, .type = tensor->type};
    if (needed) {
        value->tensor = tensor;
        tensor->holders++;
    }
}

void tape_note(const struct batch_entry *call, unsigned n_outputs, td_tensor *const *outputs) {
    const struct op_info *info = &op_rows[call->opcode];
    for (struct tape *tape = tape_innermost; tape; tape = tape->outer) {
        if (tape->pauses || !is_noted(call->opcode))
            continue;
        struct tape_node *node = tape->nodes[tape->n_nodes];
        node->device = outputs[0]->device;
        for (unsigned i = 0; i < call->n_inputs; i++)
            value_note(tape, &node->inputs[i], call->inputs[i], info->derivative_inputs >> (i < 31 ? i : 31) & 1);
        for (unsigned i = 0; i < n_outputs; i++)
            value_note(tape, &node->outputs[i], outputs[i], info->derivative_outputs >> (i < 31 ? i : 31) & 1);
    }
}

void tape_add(unsigned opcode) {
    if (!is_noted(opcode))
        return;
    pthread_mutex_lock(&tapes_lock);
    for (struct tape *tape = tape_innermost; tape; tape = tape->outer)
        tape->n_nodes += !tape->pauses;
    pthread_mutex_unlock(&tapes_lock);
}

/* ---- the end ---- */

static void values_let_go(struct tape_value *values, unsigned n) {
    for (unsigned i = 0; i < n; i++) {
        if (values[i].tensor)
            tensor_let_go(values[i].tensor);
        values[i].tensor = NULL;
    }
}

/* Under the tapes' lock. */
static void node_let_go(struct tape_node *node) {
    td_device *device = node->device;
    if (!device)
        return;
    pthread_mutex_lock(&device->lock);
    values_let_go(node->inputs, node->n_inputs);
    values_let_go(node->outputs, node->n_outputs);
    pthread_mutex_unlock(&device->lock);
}

static void tape_destroy(struct tape *tape) {
    pthread_mutex_lock(&tapes_lock);
    for (size_t i = 0; i < tape->n_nodes; i++)
        node_let_go(tape->nodes[i]);
    *tape->previous = tape->next;
    if (tape->next)
        tape->next->previous = tape->previous;
    pthread_mutex_unlock(&tapes_lock);
    for (size_t i = 0; i < tape->nodes_room; i++)
        free(tape->nodes[i]);
    free(tape->nodes);
    free(tape->slots);
    free(tape);
}

/* The device frees the handles' memory itself. */
static void values_forget(struct tape_value *values, unsigned n, const td_device *device) {
    for (unsigned i = 0; i < n; i++) {
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
    for (struct tape *tape = tapes; tape; tape = tape->next)
        for (size_t i = 0; i < tape->n_nodes; i++)
            node_forget(tape->nodes[i], device);
    pthread_mutex_unlock(&tapes_lock);
}

static void thread_exit(void *some) {
    (void)some;
    while (tape_innermost)
        td_tape_end();
}

static void exit_key_create(void) {
    exit_key_made = !pthread_key_create(&exit_key, thread_exit);
}

int td_tape_begin(void) {
    struct tape *tape = calloc(1, sizeof *tape);
    if (!tape)
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for a tape");
    pthread_once(&once, exit_key_create);
    if (exit_key_made)
        pthread_setspecific(exit_key, tape);
    pthread_mutex_lock(&tapes_lock);
    tape->next = tapes;
    tape->previous = &tapes;
    if (tapes)
        tapes->previous = &tape->next;
    tapes = tape;
    pthread_mutex_unlock(&tapes_lock);
    tape->outer = tape_innermost;
    tape_innermost = tape;
    return 0;
}

void td_tape_end(void) {
    struct tape *tape = tape_innermost;
    if (!tape)
        return;
    tape_innermost = tape->outer;
    tape_destroy(tape);
}

td_tensor *td_stop_gradient(td_tensor *x) {
    struct tape *tapes_of_thread = tape_innermost;
    tape_innermost = NULL;
    td_tensor *constant = td_reshape(x, td_tensor_rank(x), td_tensor_shape(x));
    tape_innermost = tapes_of_thread;
    return constant;
}
