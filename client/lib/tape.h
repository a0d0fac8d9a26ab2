/* A tape notes the operations that a thread enqueues, so that td_gradients() can go back through them.
 *
 * Each thread has a stack of tapes; an operation is noted on all of them that do not pause. A tape holds the handles that rules will need
 * (struct op_info says which): a handle that the program releases meanwhile lives on until the tape ends. Tensors are known by slots: a slot is
 * given to each tensor that is an input or output of a noted operation.
 *
 * A tape belongs to the thread that began it. Others see two things: the handles that it holds, which are under their device's lock; and the list of
 * all tapes with their nodes, through which a device that closes takes its handles back. That is under the tapes' lock, which comes first. */
#pragma once

#include "client/lib/batch.h"
#include "client/lib/tensor.h"
#include "proto/ops/op.h"

struct tape_value {
    uint32_t slot;
    td_device *device; /* NULL: it has closed */
    td_tensor *tensor; /* held; NULL: no rule needs it, or its device has closed */
    struct tensor_type type;
};

struct tape_node {
    unsigned opcode, n_inputs, n_outputs;
    td_device *device; /* of its outputs, and of all that is held; NULL: it has closed */
    struct op_attributes attributes;
    struct tape_value *inputs, *outputs;
};

/* From a tensor to its slot: a table with open addressing. */
struct tape_slot {
    const td_device *device; /* NULL: an empty place */
    uint64_t id;
    uint32_t slot;
};

struct tape {
    struct tape *outer;            /* of the thread */
    struct tape *next, **previous; /* of all tapes */
    bool pauses;                   /* td_gradients() goes through it */
    struct tape_node **nodes;
    size_t n_nodes, nodes_room;
    struct tape_slot *slots;
    size_t n_slots, slots_room; /* places are a power of two, at most half of them taken */
};

/* As the scopes' state, for the same reason. */
extern _Thread_local __attribute__((tls_model("initial-exec"))) struct tape *tape_innermost;

/* Whether the thread's operations are to be noted. */
static inline bool tape_any(void) {
    return tape_innermost != NULL;
}

/* An operation is noted in three steps. Makes room on each of the thread's tapes; 0 or the error's code. Without the device's lock. */
int tape_reserve(const struct batch_entry *call, unsigned n_outputs);
/* Writes the operation into that room and holds the handles. Under the device's lock. */
void tape_note(const struct batch_entry *call, unsigned n_outputs, td_tensor *const *outputs);
/* The tapes have one operation more. Without the device's lock. */
void tape_add(unsigned opcode);
/* The slot of a tensor; false: no operation that was noted has it as input or output. */
bool tape_find(const struct tape *tape, const td_tensor *tensor, uint32_t *slot);
/* A closing device takes its handles back. Without the device's lock. */
void tape_forget_device(td_device *device);
