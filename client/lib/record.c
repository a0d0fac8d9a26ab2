#include "client/lib/record.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/call.h"
#include "client/lib/device.h"
#include "client/lib/error.h"
#include "client/lib/frame.h"
#include "client/lib/program.h"
#include "client/lib/scope.h"
#include "client/lib/slots.h"
#include "client/lib/tape.h"
#include "proto/ops/cleanup.h"
#include "proto/wire/program.h"

struct parameter {
    struct tensor_type type;
    bool consumed;
};

struct recording {
    struct recording *next, **previous; /* of all recordings */
    td_device *_Atomic device;          /* NULL: it has closed */
    uint64_t serial;                    /* as it is in ids */
    struct tape *tapes;                 /* those of the thread that wait until the recording ends */
    struct batch *operations;           /* the inputs by their ids */
    uint32_t n_outputs;
    struct parameter *parameters;
    size_t n_parameters, parameters_room;
    td_tensor **captured; /* by slots; held until the definition is queued */
    size_t captured_room;
    struct slots slots;
    td_kernel **kernels; /* that are launched, held as long */
    unsigned n_kernels, kernels_room;
    uint64_t gate; /* of the captured tensors' uploads */
};

_Thread_local struct recording *record_current;

static pthread_mutex_t recordings_lock = PTHREAD_MUTEX_INITIALIZER;
static struct recording *recordings;
static atomic_uint_fast64_t serials;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t exit_key; /* cancels the recording of a thread that ends */
static bool exit_key_made;

static bool is_of(const struct recording *recording, const td_tensor *tensor) {
    return recording && (tensor->id & ~(uint64_t)UINT32_MAX) == recording->serial;
}

/* The thread's recording, if it is one on this device. */
static struct recording *recording_on(const td_device *device) {
    struct recording *recording = record_current;
    return recording && atomic_load_explicit(&recording->device, memory_order_relaxed) == device ? recording : NULL;
}

/* ---- operations ---- */

static td_tensor *refuse_input(const struct batch_entry *call, unsigned i) {
    return record_current ? call_refuse(call->opcode, STATUS_INVALID_ARGUMENT,
                                        "input %u belongs to another recording than this thread's", i)
                          : call_refuse(call->opcode, STATUS_INVALID_ARGUMENT,
                                        "input %u is recorded, and has no value until the program runs: name it as a "
                                        "result of td_record_end(), and use what a run gives",
                                        i);
}

static int recording_admits(const struct batch_entry *call, unsigned n_consumed, td_tensor *const *consumed) {
    for (unsigned i = 0; i < n_consumed; i++) {
        if (tensor_is_recorded(consumed[i]))
            continue;
        call_refuse(call->opcode, STATUS_INVALID_ARGUMENT,
                    "takes over a tensor that was there before the recording: make it a parameter");
        return STATUS_INVALID_ARGUMENT;
    }
    return 0;
}

int record_admit(td_device *device, const struct batch_entry *call, unsigned n_consumed, td_tensor *const *consumed,
                 struct recording **out) {
    struct recording *recording = recording_on(device);
    for (unsigned i = 0; i < call->n_inputs; i++) {
        if (!tensor_is_recorded(call->inputs[i]) || is_of(recording, call->inputs[i]))
            continue;
        refuse_input(call, i);
        return STATUS_INVALID_ARGUMENT;
    }
    *out = recording;
    return recording ? recording_admits(call, n_consumed, consumed) : 0;
}

bool record_is_on(const td_device *device) {
    return recording_on(device);
}

int record_admit_run(td_device *device, unsigned n_inputs, td_tensor *const *inputs, unsigned n_consumed,
                     td_tensor *const *consumed) {
    const struct batch_entry call = {.opcode = OP_PROGRAM, .n_inputs = n_inputs, .inputs = inputs};
    struct recording *recording;
    return record_admit(device, &call, n_consumed, consumed, &recording);
}

void record_room(unsigned *operations, uint64_t *bytes) {
    const struct batch *batch = record_current->operations;
    *operations = batch->heads.n < OP_PROGRAM_OPERATIONS_MAX ? OP_PROGRAM_OPERATIONS_MAX - batch->heads.n : 0;
    *bytes = batch->item.bytes < FRAME_MESSAGE_MAX ? FRAME_MESSAGE_MAX - batch->item.bytes : 0;
}

/* Room for tensors that may all be new. */
static bool captures_reserve(struct recording *recording, size_t more) {
    size_t room = recording->captured_room ? recording->captured_room : 64;
    while (room < recording->slots.n + more)
        room *= 2;
    if (room > recording->captured_room) {
        td_tensor **captured = realloc(recording->captured, room * sizeof(td_tensor *));
        if (!captured)
            return false;
        recording->captured = captured;
        recording->captured_room = room;
    }
    return slots_reserve(&recording->slots, more);
}

/* There is room. */
static void capture(struct recording *recording, td_tensor *tensor) {
    size_t before = recording->slots.n;
    uint32_t slot = tensor_is_recorded(tensor) ? 0 : slots_take(&recording->slots, tensor);
    if (recording->slots.n == before)
        return;
    recording->captured[slot] = tensor;
    tensor->holders++;
    if (tensor->gate > recording->gate)
        recording->gate = tensor->gate;
}

/* Finds the kernel of a launch, and makes room for it. On failure nothing has changed but the room. */
static int kernels_reserve(struct recording *recording, const td_device *device, uint64_t id, td_kernel **kernel) {
    *kernel = kernels_find(&device->kernels, id);
    if (!*kernel)
        return error_set(STATUS_INVALID_ARGUMENT, "no kernel has id %llu", (unsigned long long)id);
    if (recording->n_kernels < recording->kernels_room)
        return 0;
    unsigned room = recording->kernels_room ? 2 * recording->kernels_room : 16;
    td_kernel **kernels = realloc(recording->kernels, room * sizeof(td_kernel *));
    if (!kernels)
        return error_set(STATUS_NO_HOST_MEMORY, "no memory to record a launch");
    recording->kernels = kernels;
    recording->kernels_room = room;
    return 0;
}

/* There is room. */
static void kernels_hold(struct recording *recording, td_kernel *kernel) {
    for (unsigned i = recording->n_kernels; i > 0; i--) /* most launch the one that came last */
        if (recording->kernels[i - 1] == kernel)
            return;
    recording->kernels[recording->n_kernels++] = kernel;
    kernel->holders++;
}

static void handle_init(const struct recording *recording, td_tensor *tensor, const struct tensor_type *type,
                        uint64_t number) {
    tensor->device = recording->device;
    tensor->id = recording->serial | number;
    tensor->type = *type;
}

int record_push(struct recording *recording, const struct batch_entry *call, unsigned n_outputs,
                const struct tensor_type *types, td_tensor **outputs) {
    td_device *device = recording->device;
    struct batch *operations = recording->operations;
    int code = device_check(device);
    if (code)
        return code;
    if (tensor_any_gone(&device->tensors))
        tensor_drain(device);
    if (operations->heads.n == OP_PROGRAM_OPERATIONS_MAX)
        return error_set(STATUS_LIMIT, "a program has %d operations at most: record less", OP_PROGRAM_OPERATIONS_MAX);
    if (operations->item.bytes + call->bytes > FRAME_MESSAGE_MAX)
        return error_set(STATUS_LIMIT, "a program of %u operations with %zu bytes, and a message holds %d: record less",
                         operations->heads.n + 1, operations->item.bytes + call->bytes, FRAME_MESSAGE_MAX);
    if (!captures_reserve(recording, call->n_inputs) || !batch_reserve(operations, call))
        return error_set(STATUS_NO_HOST_MEMORY, "no memory to record an operation");
    td_kernel *kernel = NULL;
    if (call->opcode == OP_KERNEL && (code = kernels_reserve(recording, device, (uint64_t)call->ints[0], &kernel)))
        return code;
    if (!tensors_take(&device->tensors, n_outputs, outputs))
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for a tensor handle");
    batch_append(operations, call);
    if (kernel)
        kernels_hold(recording, kernel);
    for (unsigned i = 0; i < call->n_inputs; i++)
        capture(recording, call->inputs[i]);
    for (unsigned i = 0; i < n_outputs; i++)
        handle_init(recording, outputs[i], &types[i], ++recording->n_outputs);
    return 0;
}

/* ---- calls that cannot be recorded ---- */

int record_refuse(const char *operation, const td_device *device, const td_tensor *tensor, const char *instead) {
    struct fault fault;
    if (tensor && tensor_is_recorded(tensor))
        fault_set(&fault, STATUS_INVALID_ARGUMENT,
                  "the tensor is recorded, and has no value until the program runs: %s", instead);
    else if (recording_on(device))
        fault_set(&fault, STATUS_INVALID_ARGUMENT, "this cannot be recorded: %s", tensor ? RECORD_SYNC : instead);
    else
        return 0;
    return error_fault(&fault, operation, NULL);
}

/* ---- begin and end ---- */

static void tapes_end(void) {
    while (tape_innermost)
        td_tape_end();
}

static void recording_destroy(struct recording *recording) {
    if (recording->operations)
        batch_destroy(recording->operations);
    free(recording->parameters);
    free(recording->captured);
    free(recording->kernels);
    slots_finish(&recording->slots);
    free(recording);
}

/* Ends the thread's recording, and lets go what it has captured. */
static void recording_finish(struct recording *recording) {
    tapes_end();
    tape_innermost = recording->tapes;
    record_current = NULL;
    pthread_mutex_lock(&recordings_lock);
    td_device *device = recording->device;
    if (device) {
        pthread_mutex_lock(&device->lock);
        for (size_t i = 0; i < recording->slots.n; i++)
            tensor_let_go(recording->captured[i]);
        for (unsigned i = 0; i < recording->n_kernels; i++)
            kernel_let_go(recording->kernels[i]);
        pthread_mutex_unlock(&device->lock);
    }
    *recording->previous = recording->next;
    if (recording->next)
        recording->next->previous = recording->previous;
    pthread_mutex_unlock(&recordings_lock);
    recording_destroy(recording);
}

void record_forget_device(td_device *device) {
    pthread_mutex_lock(&recordings_lock);
    for (struct recording *recording = recordings; recording; recording = recording->next)
        if (recording->device == device)
            recording->device = NULL;
    pthread_mutex_unlock(&recordings_lock);
}

/* The tapes that waited for the recording have lost their own handler's call. */
static void thread_exit(void *some) {
    (void)some;
    if (record_current)
        recording_finish(record_current);
    tapes_end();
}

static void exit_key_create(void) {
    exit_key_made = !pthread_key_create(&exit_key, thread_exit);
}

static struct recording *recording_create(td_device *device) {
    struct recording *recording = calloc(1, sizeof *recording);
    if (!recording)
        return NULL;
    recording->operations = batch_create();
    if (!recording->operations) {
        recording_destroy(recording);
        return NULL;
    }
    recording->device = device;
    recording->serial = TENSOR_RECORDED | atomic_fetch_add(&serials, 1) << 32;
    return recording;
}

static void recording_enter(struct recording *recording) {
    pthread_mutex_lock(&recordings_lock);
    recording->next = recordings;
    recording->previous = &recordings;
    if (recordings)
        recordings->previous = &recording->next;
    recordings = recording;
    pthread_mutex_unlock(&recordings_lock);
    pthread_once(&once, exit_key_create);
    if (exit_key_made)
        pthread_setspecific(exit_key, recording);
    record_current = recording;
}

static int begin_check(td_device *device) {
    if (!device)
        return error_set(STATUS_INVALID_ARGUMENT, "the device is NULL");
    if (record_current && !record_current->device)
        recording_finish(record_current);
    if (record_current)
        return error_set(STATUS_INVALID_ARGUMENT, "this thread records on %s already, and recordings do not nest",
                         record_current->device->name);
    pthread_mutex_lock(&device->lock);
    int code = device_check(device);
    pthread_mutex_unlock(&device->lock);
    return code;
}

int td_record_begin(td_device *device) {
    int code = begin_check(device);
    if (code)
        return code;
    struct recording *recording = recording_create(device);
    if (!recording)
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for a recording");
    recording->tapes = tape_innermost;
    tape_innermost = NULL;
    code = td_tape_begin();
    if (!code) {
        recording_enter(recording);
        return 0;
    }
    tape_innermost = recording->tapes;
    recording_destroy(recording);
    return code;
}

void td_record_cancel(td_device *device) {
    struct recording *recording = device ? recording_on(device) : NULL;
    if (recording)
        recording_finish(recording);
}

/* ---- parameters ---- */

static int parameter_check(const struct recording *recording, td_dtype dtype, int rank, const int64_t *shape,
                           struct tensor_type *type, struct fault *fault) {
    if (!recording || !recording->device)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the thread does not record: td_record_begin() comes first");
    if (recording->n_parameters == OP_INPUTS_MAX)
        return fault_set(fault, STATUS_LIMIT, "more than %d parameters", OP_INPUTS_MAX);
    if (rank < 0 || rank > SHAPE_RANK_MAX)
        return fault_set(fault, STATUS_SHAPE, "rank %d, 0 to %d are possible", rank, SHAPE_RANK_MAX);
    if (rank && !shape)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "no extents for rank %d: the shape is NULL", rank);
    return type_make(type, call_enum(dtype), shape, (size_t)rank, fault);
}

static bool parameters_reserve(struct recording *recording) {
    if (recording->n_parameters < recording->parameters_room)
        return true;
    size_t room = recording->parameters_room ? 2 * recording->parameters_room : 16;
    struct parameter *parameters = realloc(recording->parameters, room * sizeof *parameters);
    if (!parameters)
        return false;
    recording->parameters = parameters;
    recording->parameters_room = room;
    return true;
}

static td_tensor *parameter_make(struct recording *recording, const struct tensor_type *type, bool consumed) {
    td_device *device = recording->device;
    struct scope_part *part;
    td_tensor *tensor;
    if (scope_part(device, &part))
        return error_null();
    pthread_mutex_lock(&device->lock);
    bool made = parameters_reserve(recording) && tensors_take(&device->tensors, 1, &tensor);
    if (made) {
        recording->parameters[recording->n_parameters++] = (struct parameter){*type, consumed};
        handle_init(recording, tensor, type, RECORD_PARAMETER | recording->n_parameters);
        if (part)
            scope_part_add(part, tensor);
    }
    pthread_mutex_unlock(&device->lock);
    if (made)
        return tensor;
    error_set(STATUS_NO_HOST_MEMORY, "no memory for a parameter");
    return error_null();
}

static td_tensor *parameter(td_dtype dtype, int rank, const int64_t *shape, bool consumed) {
    struct tensor_type type;
    struct fault fault;
    label_clear();
    if (!parameter_check(record_current, dtype, rank, shape, &type, &fault))
        return parameter_make(record_current, &type, consumed);
    error_fault(&fault, "parameter", NULL);
    return error_null();
}

td_tensor *td_parameter(td_dtype dtype, int rank, const int64_t *shape) {
    return parameter(dtype, rank, shape, false);
}

td_tensor *td_parameter_consumed(td_dtype dtype, int rank, const int64_t *shape) {
    return parameter(dtype, rank, shape, true);
}

/* ---- the definition ---- */

static int results_check(const struct recording *recording, int count, td_tensor *const *results) {
    const td_device *device = recording->device;
    if (count < 1 || count > OP_OUTPUTS_MAX || !results)
        return error_set(STATUS_INVALID_ARGUMENT, "%d results%s, 1 to %d are possible", count,
                         results ? "" : " at NULL", OP_OUTPUTS_MAX);
    for (int i = 0; i < count; i++) {
        if (!results[i])
            return error_of_null() ? error_of_null() : error_set(STATUS_INVALID_ARGUMENT, "result %d is NULL", i);
        if (results[i]->device != device)
            return error_set(STATUS_DEVICE_MISMATCH, "the recording is on %s, result %d on %s", device->name, i,
                             results[i]->device->name);
        if (tensor_is_recorded(results[i]) && !is_of(recording, results[i]))
            return error_set(STATUS_INVALID_ARGUMENT, "result %d belongs to another recording", i);
    }
    return 0;
}

/* A result may be a tensor that no operation has used. */
static int capture_results(struct recording *recording, int count, td_tensor *const *results) {
    if (!captures_reserve(recording, (size_t)count))
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for %d results", count);
    pthread_mutex_lock(&recording->device->lock);
    for (int i = 0; i < count; i++)
        capture(recording, results[i]);
    pthread_mutex_unlock(&recording->device->lock);
    return 0;
}

/* The program's number of a tensor, by its id. */
static uint64_t number_of(const struct recording *recording, uint64_t id) {
    uint64_t number = id & (RECORD_PARAMETER - 1);
    uint32_t slot;
    if (id & TENSOR_RECORDED)
        return id & RECORD_PARAMETER ? number : recording->n_parameters + recording->slots.n + number;
    slots_find_id(&recording->slots, recording->device, id, &slot);
    return recording->n_parameters + 1 + slot;
}

static struct td_program *program_of(const struct recording *recording, int count, td_tensor *const *results) {
    unsigned consumed = 0, n = (unsigned)recording->n_parameters;
    for (unsigned i = 0; i < n; i++)
        consumed += recording->parameters[i].consumed;
    td_program *program = program_create(recording->device, n, (unsigned)count, consumed, (unsigned)recording->slots.n,
                                         recording->n_kernels);
    if (!program)
        return NULL;
    consumed = 0;
    for (unsigned i = 0; i < n; i++) {
        program->parameters[i] = recording->parameters[i].type;
        if (recording->parameters[i].consumed)
            program->consumed[consumed++] = i;
    }
    for (int i = 0; i < count; i++)
        program->results[i] = results[i]->type;
    for (size_t i = 0; i < recording->slots.n; i++)
        program->captured[i] = recording->captured[i];
    for (unsigned i = 0; i < recording->n_kernels; i++)
        program->kernels[i] = recording->kernels[i];
    return program;
}

/* What the message points to, beside the program and the recording. One allocation for each. */
struct definition {
    Tensord__ProgramDefine message;
    Tensord__Batch operations;
    char **labels;
    int64_t *parameters;
    uint64_t *inputs, *captures, *outputs;
};

static void definition_finish(struct definition *definition) {
    free(definition->labels);
    free(definition->parameters);
    free(definition->inputs);
    free(definition->captures);
    free(definition->outputs);
}
CLEANUP_FINISH(struct definition, definition_finish)

static bool definition_allocate(struct definition *definition, const struct recording *recording, int count) {
    const struct batch *operations = recording->operations;
    definition->labels = calloc(operations->labels.n + 1, sizeof(char *));
    definition->parameters = calloc(recording->n_parameters * (2 + SHAPE_RANK_MAX) + 1, sizeof(int64_t));
    definition->inputs = calloc(operations->inputs.n + 1, sizeof(uint64_t));
    definition->captures = calloc(recording->slots.n + 1, sizeof(uint64_t));
    definition->outputs = calloc((size_t)count, sizeof(uint64_t));
    return definition->labels && definition->parameters && definition->inputs && definition->captures &&
           definition->outputs;
}

static size_t parameters_write(const struct recording *recording, int64_t *out) {
    size_t n = 0;
    for (size_t i = 0; i < recording->n_parameters; i++)
        n += program_type_write(&recording->parameters[i].type, out + n);
    return n;
}

/* Fills the message, but for the program's id. */
static void definition_fill(struct definition *definition, const struct recording *recording, const td_program *program,
                            td_tensor *const *results) {
    Tensord__ProgramDefine *message = &definition->message;
    struct batch *operations = recording->operations;
    tensord__program_define__init(message);
    message->n_parameters = parameters_write(recording, definition->parameters);
    message->parameters = definition->parameters;
    message->n_consumed = program->n_consumed;
    message->consumed = program->consumed;
    message->n_captures = recording->slots.n;
    message->captures = definition->captures;
    for (size_t i = 0; i < recording->slots.n; i++)
        definition->captures[i] = recording->captured[i]->id;
    batch_message(operations, definition->labels, &definition->operations);
    definition->operations.first_output = recording->n_parameters + recording->slots.n + 1;
    definition->operations.inputs = definition->inputs;
    for (uint32_t i = 0; i < operations->inputs.n; i++)
        definition->inputs[i] = number_of(recording, operations->inputs.data[i]);
    message->operations = &definition->operations;
    message->n_outputs = program->n_results;
    message->outputs = definition->outputs;
    for (unsigned i = 0; i < program->n_results; i++)
        definition->outputs[i] = number_of(recording, results[i]->id);
}

static int define(struct recording *recording, int count, td_tensor *const *results, td_program **out) {
    CLEANUP(definition_finish) struct definition definition = {.labels = NULL};
    int code = results_check(recording, count, results);
    if (!code)
        code = capture_results(recording, count, results);
    if (code)
        return code;
    td_program *program = program_of(recording, count, results);
    if (!program || !definition_allocate(&definition, recording, count)) {
        program_destroy(program);
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for a program of %u operations",
                         recording->operations->heads.n);
    }
    definition_fill(&definition, recording, program, results);
    code = program_define(program, &definition.message, recording->gate);
    if (code)
        program_destroy(program);
    else
        *out = program;
    return code;
}

int td_record_end(td_device *device, int count, td_tensor *const *results, td_program **program) {
    if (!device)
        return error_set(STATUS_INVALID_ARGUMENT, "the device is NULL");
    struct recording *recording = recording_on(device);
    if (!recording)
        return error_set(STATUS_INVALID_ARGUMENT, "this thread does not record on %s", device->name);
    int code = program ? define(recording, count, results, program)
                       : error_set(STATUS_INVALID_ARGUMENT, "the place for the program is NULL");
    if (code != STATUS_AGAIN)
        recording_finish(recording);
    return code;
}
