/* From a typed function to an operation in the open batch. */
#pragma once

#include "client/lib/batch.h"
#include "client/tensord.h"
#include "proto/ops/op.h"

/* Completes the entry (label, bytes) and appends it. An operation without inputs runs on `device`; other operations
 * ignore `device`. NULL with the thread's error set, or with the earlier error that has made an input NULL. */
td_tensor *call_enqueue(td_device *device, struct batch_entry *call);
/* The same for an operation with several outputs: outputs[i] says where the handle of output i goes. Returns 0, or the error's
 * code with all outputs NULL. */
int call_enqueue_several(td_device *device, struct batch_entry *call, unsigned n_outputs, td_tensor **const outputs[]);
/* The same for a caller who has checked the operation: its inputs are on `device`, and `results` are the types of the outputs. The
 * operation releases the inputs in `consumed`. */
int call_append(td_device *device, struct batch_entry *call, unsigned n_outputs, const struct tensor_type *results,
                td_tensor **outputs, unsigned n_consumed, td_tensor *const *consumed);
/* The same for an operation that releases some of its inputs. Returns 0 with the handles of its outputs in `outputs`, or the error's
 * code, and then it has released nothing. */
int call_enqueue_taking(struct batch_entry *call, unsigned n_outputs, td_tensor **outputs, unsigned n_consumed,
                        td_tensor *const *consumed);
/* Sets the outputs of a call that has been refused to NULL, and returns the code. */
int call_none(unsigned n_outputs, td_tensor **const outputs[]);
/* Refuses a call before it enqueues anything: stores the error with the thread's label. Returns NULL. */
td_tensor *call_refuse(unsigned opcode, enum status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same for a function that operations make up, by the function's name. */
td_tensor *call_refuse_function(const char *function, enum status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Releases a tensor that only `result` was made of. */
static inline td_tensor *made_of(td_tensor *part, td_tensor *result) {
    td_release(part);
    return result;
}

/* These check an argument of a call; false with the error set. A list is given as count and address. */
bool call_takes_shape(unsigned opcode, int rank, const int64_t *shape);
bool call_takes_axes(unsigned opcode, int count, const int64_t *axes);
bool call_takes_list(unsigned opcode, const char *name, int most, int count, const void *values);
/* A text that is an attribute: UTF-8 of at most OP_STRING_MAX bytes. */
bool call_takes_string(unsigned opcode, const char *name, const char *string);
bool call_takes_inputs(unsigned opcode, int count, td_tensor *const *tensors);

/* The value of an enumeration of the public header. Compilers give these an unsigned type, so a negative value must get its
 * sign back. */
static inline int64_t call_enum(unsigned value) {
    return (int32_t)value;
}
