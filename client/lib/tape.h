/* A tape notes the operations that a thread enqueues, so that td_gradients() can go back through them.
 *
 * Each thread has a stack of tapes; an operation is noted on all of them that do not pause. A tape holds the handles that rules will need
 * (struct op_info says which): a handle that the program releases meanwhile lives on until the tape ends. Tensors are known by slots: a slot is
 * given to each tensor that is an input or output of a noted operation.
 *
 * What td_custom_gradient() and td_checkpoint() run is one node, with a rule of its own, for the tapes that pause meanwhile. For td_checkpoint() there
 * is also a tape that watches: it notes no operations, but which tensors they take from outside.
 *
 * A tape belongs to the thread that began it, or that is between td_tape_enter() and td_tape_leave(). Others see two things: the handles that it holds, which are under their device's lock; and the list of
 * all tapes with their nodes, through which a device that closes takes its handles back. That is under the tapes' lock, which comes first. */
#pragma once

#include "client/lib/batch.h"
#include "client/lib/slots.h"
#include "client/lib/tensor.h"
#include "proto/ops/op.h"

struct tape_value {
    uint32_t slot;
    td_device *device; /* NULL: it has closed */
    td_tensor *tensor; /* held; NULL: no rule needs it, or its device has closed */
    struct tensor_type type;
};

struct rule_call;

/* A rule that operations do not have: of one call of a function that brings it. */
struct tape_rule {
    const char *name;
    void (*apply)(struct rule_call *call);
    void (*destroy)(struct tape_rule *rule);
    unsigned users;                       /* nodes, and the call while it runs: the last one destroys the rule */
    uint32_t keeps_inputs, keeps_outputs; /* as in struct op_info: bit 31 stands for all from there on */
};

struct tape_node {
    struct tape_rule *rule; /* NULL: the operation's */
    unsigned opcode, n_inputs, n_outputs;
    td_device *device; /* of its first output; NULL: it has closed */
    struct op_attributes attributes;
    struct tape_value *inputs, *outputs;
};

struct tape {
    struct tape *outer;            /* of the thread */
    struct tape *next, **previous; /* of all tapes */
    unsigned pauses;               /* how many calls that run want it to */
    bool internal;                 /* the program neither ends nor uses it */
    bool watches;
    struct tape_node **nodes;
    size_t n_nodes, nodes_room;
    struct slots slots;
    struct tape_value *seen; /* of a tape that watches: the floats that came from outside, held */
    size_t n_seen, seen_room;
};

/* As the scopes' state, for the same reason. */
extern _Thread_local __attribute__((tls_model("initial-exec"))) struct tape *tape_innermost;

/* What derivatives can be by, and of. */
static inline bool tape_floating(const struct tensor_type *type) {
    enum dtype_kind kind = dtype_kind(type->dtype);
    return kind == DTYPE_KIND_FLOAT || kind == DTYPE_KIND_COMPLEX;
}

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
/* Notes a call with a rule of its own; 0 or the error's code. Without a device's lock. */
int tape_note_rule(struct tape_rule *rule, unsigned n_inputs, td_tensor *const *inputs, unsigned n_outputs,
                   td_tensor *const *outputs);
void tape_rule_drop(struct tape_rule *rule);
/* The thread's tapes note nothing until tapes_resume(), which gets the innermost tape of now, too. */
struct tape *tapes_pause(void);
void tapes_resume(struct tape *innermost);
/* Whether a tape of the thread notes what it enqueues. */
bool tapes_note(void);
/* Begins a tape that the program neither ends nor uses. NULL out of memory. */
struct tape *tape_begin_internal(bool watches);
/* A tape that watches takes this tensor as one from outside; 0 or the error's code. */
int tape_see(struct tape *tape, td_tensor *tensor);
/* Ends the thread's tapes that were begun after this one, which may be NULL. */
void tape_end_until(struct tape *tape);
/* The slot of a tensor; false: no operation that was noted has it as input or output. */
static inline bool tape_find(const struct tape *tape, const td_tensor *tensor, uint32_t *slot) {
    return slots_find(&tape->slots, tensor, slot);
}
/* Drops the nodes for which `keep` is false, and the slots that only they have; 0 or the error's code, and then nothing has changed. Without the
 * lock of a device. */
int tape_retain(struct tape *tape, const bool *keep);
/* A closing device takes its handles back. Without the device's lock. */
void tape_forget_device(td_device *device);
