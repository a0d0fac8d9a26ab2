/* Labels and scopes of the calling thread.
 *
 * A scope has one part for each device whose handles it holds. The handles in a part are under that device's lock, so
 * making and releasing a handle needs no second lock. The scopes' lock (one for the process) guards the list of a device's
 * parts: it is taken when a part is made, when a scope ends, and when a device closes. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "client/tensord.h"

struct scope_part {
    struct td_device *_Atomic device; /* NULL: it has closed */
    struct scope_part *next;          /* of the scope; only the scope's thread uses it */
    struct scope_part *device_next;   /* of the device; under the scopes' lock */
    struct td_tensor *tensors;        /* under the device's lock */
};

struct scope;

/* Every operation reads this, so it is small, and the initial-exec model saves a call of __tls_get_addr. */
struct scope_thread {
    struct scope *scope;  /* the innermost one */
    bool labelled;        /* a label is set for the next tensor */
    unsigned lost_scopes; /* scopes that were begun without memory for them: their ends must not end other scopes */
};
extern _Thread_local __attribute__((tls_model("initial-exec"))) struct scope_thread scope_thread;

/* Most operations have neither scope nor label. */
static inline bool scope_is_bare(void) {
    return !scope_thread.scope && !scope_thread.labelled;
}

/* The innermost scope's part for the device, which is made if it is missing. *part is NULL if there is no scope. Without
 * the device's lock. Fails only out of memory. */
int scope_part(td_device *device, struct scope_part **part);
/* Under the device's lock. */
void scope_part_add(struct scope_part *part, td_tensor *tensor);
void scope_part_remove(td_tensor *tensor);
/* Takes the parts of a closing device out of their scopes. Without the device's lock. */
void scope_forget_device(td_device *device);

/* Whether the thread's innermost scope will release the handle. */
bool scope_holds(td_tensor *tensor);

/* The label of the thread's next tensor, with the scopes' names before it, or these names alone, and the length; NULL: there
 * is neither. Valid until the next call. */
const char *label_current(size_t *bytes);
/* The label has been used, or the call that would have used it has failed. */
void label_clear(void);
/* A call that would use the label has ended with this code: clears the label, unless the program can try the call again. */
static inline void label_used(int code) {
    if (code != TD_E_AGAIN && code != TD_E_NO_HOST_MEMORY)
        label_clear();
}
