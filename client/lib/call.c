#include "client/lib/call.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/connection.h"
#include "client/lib/device.h"
#include "client/lib/error.h"
#include "client/lib/record.h"
#include "client/lib/scope.h"
#include "client/lib/stream.h"
#include "client/lib/tape.h"
#include "proto/ops/utf8.h"

static td_tensor *refuse(const char *name, enum status code, const char *format, va_list arguments) {
    struct fault fault = {.code = code};
    vsnprintf(fault.message, sizeof fault.message, format, arguments);
    size_t bytes;
    error_fault(&fault, name, label_current(&bytes));
    label_clear();
    return error_null();
}

td_tensor *call_refuse(unsigned opcode, enum status code, const char *format, ...) {
    const struct op_info *info = op_info(opcode);
    va_list arguments;
    va_start(arguments, format);
    td_tensor *none = refuse(info ? info->name : NULL, code, format, arguments);
    va_end(arguments);
    return none;
}

td_tensor *call_refuse_function(const char *function, enum status code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    td_tensor *none = refuse(function, code, format, arguments);
    va_end(arguments);
    return none;
}

bool call_takes_shape(unsigned opcode, int rank, const int64_t *shape) {
    if (rank < 0 || rank > SHAPE_RANK_MAX)
        call_refuse(opcode, STATUS_SHAPE, "rank %d, 0 to %d are possible", rank, SHAPE_RANK_MAX);
    else if (rank && !shape)
        call_refuse(opcode, STATUS_INVALID_ARGUMENT, "no extents for rank %d: the shape is NULL", rank);
    else
        return true;
    return false;
}

bool call_takes_axes(unsigned opcode, int count, const int64_t *axes) {
    if (count < 0 || count > SHAPE_RANK_MAX)
        call_refuse(opcode, STATUS_INVALID_ARGUMENT, "%d axes, 0 to %d are possible", count, SHAPE_RANK_MAX);
    else if (count && !axes)
        call_refuse(opcode, STATUS_INVALID_ARGUMENT, "the list of %d axes is NULL", count);
    else
        return true;
    return false;
}

bool call_takes_list(unsigned opcode, const char *name, int most, int count, const void *values) {
    if (count < 0 || count > most)
        call_refuse(opcode, STATUS_INVALID_ARGUMENT, "%s has %d entries, 0 to %d are possible", name, count, most);
    else if (count && !values)
        call_refuse(opcode, STATUS_INVALID_ARGUMENT, "%s has %d entries at NULL", name, count);
    else
        return true;
    return false;
}

bool call_takes_string(unsigned opcode, const char *name, const char *string) {
    if (!string)
        call_refuse(opcode, STATUS_INVALID_ARGUMENT, "%s is NULL", name);
    else if (strnlen(string, OP_STRING_MAX + 1) > OP_STRING_MAX)
        call_refuse(opcode, STATUS_INVALID_ARGUMENT, "%s has more than %d bytes", name, OP_STRING_MAX);
    else if (!utf8_is_valid(string))
        call_refuse(opcode, STATUS_INVALID_ARGUMENT, "%s is not UTF-8", name);
    else
        return true;
    return false;
}

bool call_takes_inputs(unsigned opcode, int count, td_tensor *const *tensors) {
    if (count >= 1 && count <= OP_INPUTS_MAX && tensors)
        return true;
    call_refuse(opcode, STATUS_INVALID_ARGUMENT, "%d tensors%s, 1 to %d are possible", count, tensors ? "" : " at NULL",
                OP_INPUTS_MAX);
    return false;
}

static td_tensor *call_mismatch(const struct batch_entry *call, unsigned other) {
    const td_device *a = call->inputs[0]->device, *b = call->inputs[other]->device;
    bool same_name = !strcmp(a->name, b->name);
    if (same_name && (!a->connection || !b->connection || connection_same_daemon(a->connection, b->connection)))
        return call_refuse(call->opcode, STATUS_DEVICE_MISMATCH,
                           "input 0 and input %u belong to different sessions on %s", other, a->name);
    if (same_name)
        return call_refuse(call->opcode, STATUS_DEVICE_MISMATCH, "input 0 is on %s of %.80s, input %u on that of %.80s",
                           a->name, a->connection->url, other, b->connection->url);
    return call_refuse(call->opcode, STATUS_DEVICE_MISMATCH, "input 0 is on %s, input %u on %s", a->name, other,
                       b->name);
}

enum { CALL_FEW = 8 }; /* for so many inputs there is room on the stack */

/* Infers the types by the same rules as the daemon, which applies them again. */
static bool call_infer_types(const struct batch_entry *call, struct tensor_type *results) {
    const struct tensor_type *few[CALL_FEW], **types = few;
    few[0] = NULL; /* for an operation without inputs */
    if (call->n_inputs > CALL_FEW && !(types = malloc(call->n_inputs * sizeof *types))) {
        call_refuse(call->opcode, STATUS_NO_HOST_MEMORY, "no memory for %u inputs", call->n_inputs);
        return false;
    }
    for (unsigned i = 0; i < call->n_inputs; i++)
        types[i] = &call->inputs[i]->type;
    struct op_attributes attributes = {
        .ints = call->ints, .floats = call->floats, .n_ints = call->n_ints, .n_floats = call->n_floats};
    struct fault fault;
    int code = call->n_outputs > 1 ? op_infer_outputs(call->opcode, types, call->n_inputs, &attributes, call->n_outputs,
                                                      results, &fault)
                                   : op_infer(call->opcode, types, call->n_inputs, &attributes, results, &fault);
    if (types != few)
        free(types);
    if (!code)
        return true;
    call_refuse(call->opcode, (enum status)code, "%s", fault.message);
    return false;
}

/* Functions with this mark are compiled twice: for the usual operation, which has one output, and for any number of outputs. */
#define CALL_INLINE static inline __attribute__((always_inline))

/* The types of the results, which are in `results` or are an input's; NULL with the error set. The usual operation has the same type
 * for all inputs and the result. */
CALL_INLINE const struct tensor_type *call_infer(const struct batch_entry *call, struct tensor_type *results) {
    const struct op_info *info = &op_rows[call->opcode];
    if (call->n_inputs && info->keeps >> call->inputs[0]->type.dtype & 1) {
        const struct tensor_type *type = &call->inputs[0]->type;
        unsigned alike = 1;
        while (alike < call->n_inputs && type_equal(type, &call->inputs[alike]->type))
            alike++;
        if (alike == call->n_inputs)
            return type;
    }
    return call_infer_types(call, results) ? results : NULL;
}

/* The upload that must have been sent before an operation on these inputs; 0: none. */
CALL_INLINE uint64_t call_gate(const struct queue *queue, const struct batch_entry *call) {
    uint64_t ticket = 0;
    if (queue->tickets == queue->tickets_sent)
        return 0;
    for (unsigned i = 0; i < call->n_inputs; i++)
        if (call->inputs[i]->gate > ticket)
            ticket = call->inputs[i]->gate;
    return queue_gate(queue, ticket);
}

/* Under the lock: appends the operation and makes its outputs. On failure nothing has changed. */
CALL_INLINE int call_push(td_device *device, const struct batch_entry *call, unsigned n_outputs,
                          const struct tensor_type *results, td_tensor **outputs) {
    struct batches *batches = &device->batches;
    uint32_t stream;
    int code = device_check(device);
    if (!code)
        code = stream_current(device, &stream);
    if (code)
        return code;
    if (tensor_any_gone(&device->tensors))
        tensor_drain(device);
    if (!batches_room(batches, call->bytes))
        return device_no_room(device, call->bytes);
    struct batch *open = batches_open(batches, stream, call_gate(&device->queue, call));
    if (!open)
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for a batch of operations");
    if (!batch_reserve(open, call))
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for an operation");
    if (!tensors_take(&device->tensors, n_outputs, outputs))
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for a tensor handle");
    batch_append(open, call);
    for (unsigned i = 0; i < n_outputs; i++) {
        outputs[i]->device = device;
        outputs[i]->id = batches->next_id++;
        outputs[i]->type = results[i];
    }
    return 0;
}

/* The device of all inputs, or NULL with the error set. `ids` gets the inputs' ids, all in one number, for record_concerns(). */
CALL_INLINE td_device *call_device(td_device *device, const struct batch_entry *call, uint64_t *ids) {
    uint64_t all = 0;
    for (unsigned i = 0; i < call->n_inputs; i++) {
        if (!call->inputs[i]) {
            if (error_of_null())
                label_clear();
            else
                call_refuse(call->opcode, STATUS_INVALID_ARGUMENT, "input %u is NULL", i);
            return NULL;
        }
        if (call->inputs[i]->device != call->inputs[0]->device) {
            call_mismatch(call, i);
            return NULL;
        }
        all |= call->inputs[i]->id;
    }
    *ids = all;
    if (call->n_inputs)
        return call->inputs[0]->device;
    if (!device)
        call_refuse(call->opcode, STATUS_INVALID_ARGUMENT, "the device is NULL");
    return device;
}

/* `recording`: it takes the operation, which does not run; NULL: the open batch takes it. */
CALL_INLINE int append_to(struct recording *recording, td_device *device, struct batch_entry *call, unsigned n_outputs,
                          const struct tensor_type *results, td_tensor **outputs, unsigned n_consumed,
                          td_tensor *const *consumed) {
    struct scope_part *part = NULL;
    if (!scope_is_bare()) {
        if (scope_part(device, &part))
            return td_last_error()->code;
        if (!call->label)
            call->label = label_current(&call->label_bytes);
    }
    bool noted = __builtin_expect(tape_any(), 0);
    if (noted && tape_reserve(call, n_outputs))
        return td_last_error()->code;
    batch_entry_measure(call);
    bool wake = false;
    pthread_mutex_lock(&device->lock);
    int code = recording ? record_push(recording, call, n_outputs, results, outputs)
                         : call_push(device, call, n_outputs, results, outputs);
    if (!code) {
        for (unsigned i = 0; part && i < n_outputs; i++)
            scope_part_add(part, outputs[i]);
        if (noted)
            tape_note(call, n_outputs, outputs);
        wake = !recording && io_opened(&device->io);
        for (unsigned i = 0; i < n_consumed; i++)
            wake |= tensor_release(consumed[i]);
        if (batches_full(&device->batches))
            wake |= device_seal_full(device);
    }
    pthread_mutex_unlock(&device->lock);
    if (wake)
        io_wake(&device->io);
    if (noted && !code)
        tape_add(call->opcode);
    if (call->label && code != STATUS_AGAIN && code != STATUS_NO_HOST_MEMORY)
        label_clear();
    return code;
}

static __attribute__((noinline)) int append_carefully(td_device *device, struct batch_entry *call, unsigned n_outputs,
                                                      const struct tensor_type *results, td_tensor **outputs,
                                                      unsigned n_consumed, td_tensor *const *consumed) {
    struct recording *recording;
    int code = record_admit(device, call, n_consumed, consumed, &recording);
    return code ? code : append_to(recording, device, call, n_outputs, results, outputs, n_consumed, consumed);
}

CALL_INLINE int append(td_device *device, struct batch_entry *call, uint64_t ids, unsigned n_outputs,
                       const struct tensor_type *results, td_tensor **outputs, unsigned n_consumed,
                       td_tensor *const *consumed) {
    return __builtin_expect(record_concerns(ids), 0)
               ? append_carefully(device, call, n_outputs, results, outputs, n_consumed, consumed)
               : append_to(NULL, device, call, n_outputs, results, outputs, n_consumed, consumed);
}

/* Infers the types and appends the operation. `results` has room for the types of all outputs. */
CALL_INLINE int call_enqueue_all(td_device *device, struct batch_entry *call, unsigned n_outputs,
                                 struct tensor_type *results, td_tensor **outputs) {
    uint64_t ids;
    device = call_device(device, call, &ids);
    const struct tensor_type *types = device ? call_infer(call, results) : NULL;
    return types ? append(device, call, ids, n_outputs, types, outputs, 0, NULL) : td_last_error()->code;
}

td_tensor *call_enqueue(td_device *device, struct batch_entry *call) {
    struct tensor_type type;
    td_tensor *tensor = NULL;
    return call_enqueue_all(device, call, 1, &type, &tensor) ? error_null() : tensor;
}

int call_none(unsigned n_outputs, td_tensor **const outputs[]) {
    for (unsigned i = 0; i < n_outputs; i++)
        if (outputs[i])
            *outputs[i] = NULL;
    error_null();
    return td_last_error()->code;
}

int call_enqueue_several(td_device *device, struct batch_entry *call, unsigned n_outputs, td_tensor **const outputs[]) {
    enum { FEW = 4 };
    struct tensor_type few_types[FEW], *types = few_types;
    td_tensor *few[FEW], **tensors = few;
    call->n_outputs = n_outputs;
    for (unsigned i = 0; i < n_outputs; i++) {
        if (outputs[i])
            continue;
        call_refuse(call->opcode, STATUS_INVALID_ARGUMENT, "there is no place for output %u: the pointer is NULL", i);
        return call_none(n_outputs, outputs);
    }
    if (n_outputs > FEW) {
        types = malloc(n_outputs * sizeof *types);
        tensors = malloc(n_outputs * sizeof(td_tensor *));
    }
    int code = STATUS_NO_HOST_MEMORY;
    if (types && tensors)
        code = call_enqueue_all(device, call, n_outputs, types, tensors);
    else
        call_refuse(call->opcode, STATUS_NO_HOST_MEMORY, "no memory for %u outputs", n_outputs);
    for (unsigned i = 0; i < n_outputs && !code; i++)
        *outputs[i] = tensors[i];
    if (n_outputs > FEW) {
        free(types);
        free(tensors);
    }
    return code ? call_none(n_outputs, outputs) : 0;
}

int call_enqueue_taking(struct batch_entry *call, unsigned n_outputs, td_tensor **outputs, unsigned n_consumed,
                        td_tensor *const *consumed) {
    call->n_outputs = n_outputs;
    struct tensor_type *results = malloc(n_outputs * sizeof *results);
    if (!results) {
        call_refuse(call->opcode, STATUS_NO_HOST_MEMORY, "no memory for %u outputs", n_outputs);
        return td_last_error()->code;
    }
    uint64_t ids;
    td_device *device = call_device(NULL, call, &ids);
    const struct tensor_type *types = device ? call_infer(call, results) : NULL;
    int code =
        types ? append(device, call, ids, n_outputs, types, outputs, n_consumed, consumed) : td_last_error()->code;
    free(results);
    if (code)
        error_null(); /* who passes NULL on instead of a parameter gets this error */
    return code;
}

int call_append(td_device *device, struct batch_entry *call, unsigned n_outputs, const struct tensor_type *results,
                td_tensor **outputs, unsigned n_consumed, td_tensor *const *consumed) {
    uint64_t ids = 0;
    for (unsigned i = 0; i < call->n_inputs; i++)
        ids |= call->inputs[i]->id;
    call->n_outputs = n_outputs;
    return append(device, call, ids, n_outputs, results, outputs, n_consumed, consumed);
}
