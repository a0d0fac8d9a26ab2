/* Labels and scopes of the calling thread.
 *
 * A scope has one part for each device that it holds handles of; the handles in a part are under that device's lock, so
 * that making and releasing a handle needs no second one. The scopes' lock (one of the process) guards which parts a
 * device has: taken when a part is made, when a scope ends and when a device closes. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "client/tensord.h"

struct scope_part {
    struct td_device *_Atomic device; /* NULL once that has closed */
    struct scope_part *next;          /* of the scope; its thread's alone */
    struct scope_part *device_next;   /* of the device; under the scopes' lock */
    struct td_tensor *tensors;        /* under the device's lock */
};

struct scope;

/* What every operation asks, so it is small and near: the initial-exec model saves a call of __tls_get_addr. */
struct scope_thread {
    struct scope *scope;  /* the innermost one */
    bool labelled;        /* td_label() waits for its tensor */
    unsigned lost_scopes; /* begun without memory for them: their ends must not end others */
};
extern _Thread_local __attribute__((tls_model("initial-exec"))) struct scope_thread scope_thread;

/* Most operations have neither scope nor label. */
static inline bool scope_is_bare(void) {
    return !scope_thread.scope && !scope_thread.labelled;
}

/* The innermost scope's part for the device, made where it is missing. *part is NULL where there is no scope. Without
 * the device's lock. Fails only out of memory. */
int scope_part(td_device *device, struct scope_part **part);
/* Under the device's lock. */
void scope_part_add(struct scope_part *part, td_tensor *tensor);
void scope_part_remove(td_tensor *tensor);
/* Takes the parts of a closing device out of their scopes. Without the device's lock. */
void scope_forget_device(td_device *device);

/* The label of the thread's next tensor with its scopes, or the scopes' names alone, and its length; NULL: neither.
 * Valid until the next call. */
const char *label_current(size_t *bytes);
/* It has been used, or its call has failed. */
void label_clear(void);
