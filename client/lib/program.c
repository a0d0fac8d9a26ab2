#include "client/lib/program.h"

#include <stdlib.h>
#include <string.h>

#include "client/lib/call.h"
#include "client/lib/device.h"
#include "client/lib/error.h"
#include "client/lib/frame.h"
#include "client/lib/record.h"
#include "client/lib/scope.h"

/* A way to repeat a program, which the daemon knows by an id of its own. */
struct program_loop {
    struct program_loop *next;
    uint64_t id;
    unsigned n_carried, n_sliced, n_stacked;
    uint32_t lists[]; /* carried pairs, sliced, stacked */
};

/* ---- programs ---- */

td_program *program_create(td_device *device, unsigned n_parameters, unsigned n_results, unsigned n_consumed,
                           unsigned n_captured, unsigned n_kernels) {
    td_program *program = calloc(1, sizeof *program);
    if (!program)
        return NULL;
    *program = (td_program){.device = device,
                            .n_parameters = n_parameters,
                            .n_results = n_results,
                            .n_consumed = n_consumed,
                            .n_captured = n_captured,
                            .n_kernels = n_kernels,
                            .parameters = calloc(n_parameters + 1, sizeof(struct tensor_type)),
                            .results = calloc(n_results + 1, sizeof(struct tensor_type)),
                            .consumed = calloc(n_consumed + 1, sizeof(uint32_t)),
                            .captured = calloc(n_captured + 1, sizeof(td_tensor *)),
                            .kernels = calloc(n_kernels + 1, sizeof(td_kernel *))};
    if (program->parameters && program->results && program->consumed && program->captured && program->kernels)
        return program;
    program_destroy(program);
    return NULL;
}

void program_destroy(td_program *program) {
    if (!program)
        return;
    while (program->loops) {
        struct program_loop *loop = program->loops;
        program->loops = loop->next;
        free(loop);
    }
    free(program->parameters);
    free(program->results);
    free(program->consumed);
    free(program->captured);
    free(program->kernels);
    free(program->definition);
    free(program);
}

/* Under the device's lock: the device has the program from now on. */
static void program_enter(td_program *program) {
    struct programs *programs = &program->device->programs;
    for (unsigned i = 0; i < program->n_captured; i++)
        program->captured[i]->holders++;
    for (unsigned i = 0; i < program->n_kernels; i++)
        program->kernels[i]->holders++;
    program->id = ++programs->last_id;
    program->next = programs->first;
    if (program->next)
        program->next->previous = program;
    programs->first = program;
}

int program_define(td_program *program, Tensord__ProgramDefine *definition, uint64_t gate) {
    td_device *device = program->device;
    size_t bytes = tensord__program_define__get_packed_size(definition) + 9; /* the id */
    if (bytes > FRAME_MESSAGE_MAX)
        return error_set(STATUS_LIMIT,
                         "a program of %zu operations with %zu bytes, and a message holds %d: record less",
                         definition->operations->n_heads, bytes, FRAME_MESSAGE_MAX);
    program->definition = malloc(bytes);
    if (!program->definition)
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for a program of %zu bytes", bytes);
    program->definition_bytes = tensord__program_define__pack(definition, program->definition);
    pthread_mutex_lock(&device->lock);
    definition->program = device->programs.last_id + 1;
    int code = frame_push(device, FRAME_PROGRAM_DEFINE, &definition->base, gate);
    if (!code)
        program_enter(program);
    pthread_mutex_unlock(&device->lock);
    return code;
}

/* The device is gone, and the handles with it. */
void programs_finish(struct programs *programs) {
    while (programs->first) {
        td_program *program = programs->first;
        programs->first = program->next;
        program_destroy(program);
    }
}

/* Under the device's lock. If there is no room for the message, the daemon keeps it until the session ends. */
static void release_id(td_device *device, uint64_t id) {
    Tensord__ProgramRelease message = TENSORD__PROGRAM_RELEASE__INIT;
    message.program = id;
    (void)frame_push(device, FRAME_PROGRAM_RELEASE, &message.base, 0);
}

void td_program_release(td_program *program) {
    if (!program)
        return;
    td_device *device = program->device;
    pthread_mutex_lock(&device->lock);
    *(program->previous ? &program->previous->next : &device->programs.first) = program->next;
    if (program->next)
        program->next->previous = program->previous;
    for (const struct program_loop *loop = program->loops; loop; loop = loop->next)
        release_id(device, loop->id);
    release_id(device, program->id);
    for (unsigned i = 0; i < program->n_captured; i++)
        tensor_let_go(program->captured[i]);
    for (unsigned i = 0; i < program->n_kernels; i++)
        kernel_let_go(program->kernels[i]);
    pthread_mutex_unlock(&device->lock);
    program_destroy(program);
}

td_device *td_program_device(const td_program *program) {
    return program ? program->device : NULL;
}

int td_program_parameters(const td_program *program) {
    return program ? (int)program->n_parameters : 0;
}

int td_program_results(const td_program *program) {
    return program ? (int)program->n_results : 0;
}

int td_program_consumes(const td_program *program, int i) {
    for (unsigned k = 0; program && k < program->n_consumed; k++)
        if (program->consumed[k] == (unsigned)i)
            return 1;
    return 0;
}

static int type_give(const struct tensor_type *types, unsigned n, int i, const char *what, td_dtype *dtype, int *rank,
                     const int64_t **shape) {
    if (i < 0 || (unsigned)i >= n || !dtype || !rank || !shape)
        return error_set(STATUS_INVALID_ARGUMENT, "%s %d of %u%s", what, i, n,
                         dtype && rank && shape ? "" : ", or a place for its type is NULL");
    *dtype = (td_dtype)types[i].dtype;
    *rank = types[i].rank;
    *shape = types[i].shape;
    return 0;
}

int td_program_parameter_type(const td_program *program, int i, td_dtype *dtype, int *rank, const int64_t **shape) {
    return program ? type_give(program->parameters, program->n_parameters, i, "parameter", dtype, rank, shape)
                   : error_set(STATUS_INVALID_ARGUMENT, "the program is NULL");
}

int td_program_result_type(const td_program *program, int i, td_dtype *dtype, int *rank, const int64_t **shape) {
    return program ? type_give(program->results, program->n_results, i, "result", dtype, rank, shape)
                   : error_set(STATUS_INVALID_ARGUMENT, "the program is NULL");
}

/* ---- runs ---- */

enum { RUN_FEW = 64 }; /* for so many inputs or results there is room on the stack */

/* The arguments of td_program_run() and td_program_repeat(). */
struct run {
    td_program *program;
    int n_inputs, n_results;
    td_tensor *const *inputs;
    td_tensor **results;
    const struct tensor_type *parameters, *types; /* of a single input or result of the loop */
};

/* A result that is in the place of an input stays what it is. */
static int run_fail(const struct run *run) {
    if (run->results)
        for (int i = 0; i < run->n_results; i++) {
            td_tensor **place = &run->results[i];
            bool input = run->inputs && place >= (td_tensor **)(uintptr_t)run->inputs &&
                         place < (td_tensor **)(uintptr_t)run->inputs + run->n_inputs;
            if (!input)
                *place = NULL;
        }
    error_null();
    return td_last_error()->code;
}

static int check_counts(const struct run *run) {
    const td_program *program = run->program;
    if (!program)
        call_refuse(OP_PROGRAM, STATUS_INVALID_ARGUMENT, "the program is NULL");
    else if (run->n_inputs < 0 || (unsigned)run->n_inputs != program->n_parameters || (run->n_inputs && !run->inputs))
        call_refuse(OP_PROGRAM, STATUS_INVALID_ARGUMENT, "%d inputs%s, the program has %u parameters", run->n_inputs,
                    run->n_inputs && !run->inputs ? " at NULL" : "", program->n_parameters);
    else if (run->n_results < 0 || (unsigned)run->n_results != program->n_results || !run->results)
        call_refuse(OP_PROGRAM, STATUS_INVALID_ARGUMENT, "places for %d results%s, the program has %u", run->n_results,
                    run->results ? "" : " at NULL", program->n_results);
    else
        return 0;
    return td_last_error()->code;
}

static int refuse_type(const struct run *run, int i) {
    char has[SHAPE_TEXT_MAX], wants[SHAPE_TEXT_MAX];
    const struct tensor_type *input = &run->inputs[i]->type, *parameter = &run->parameters[i];
    call_refuse(OP_PROGRAM, STATUS_INVALID_ARGUMENT, "input %d is %s %s, the program's parameter is %s %s", i,
                dtype_name(input->dtype), shape_text(input, has), dtype_name(parameter->dtype),
                shape_text(parameter, wants));
    return td_last_error()->code;
}

static int check_inputs(const struct run *run) {
    for (int i = 0; i < run->n_inputs; i++) {
        const td_tensor *input = run->inputs[i];
        if (!input) {
            if (error_of_null())
                label_clear();
            else
                call_refuse(OP_PROGRAM, STATUS_INVALID_ARGUMENT, "input %d is NULL", i);
            return td_last_error()->code;
        }
        if (input->device != run->program->device) {
            call_refuse(OP_PROGRAM, STATUS_DEVICE_MISMATCH, "the program is on %s, input %d on %s%s",
                        run->program->device->name, i, input->device->name,
                        strcmp(input->device->name, run->program->device->name) ? "" : " of another session");
            return td_last_error()->code;
        }
        if (!type_equal(&input->type, &run->parameters[i]))
            return refuse_type(run, i);
    }
    return 0;
}

/* A handle can be released once. Marks are in the link of released handles, among which those of the caller are not. */
int program_take_consumed(const td_program *program, td_tensor *const *inputs, td_tensor **consumed) {
    unsigned n = 0, twice = program->n_consumed;
    for (; n < program->n_consumed && twice == program->n_consumed; n++) {
        td_tensor *tensor = consumed[n] = inputs[program->consumed[n]];
        if (tensor->next_released == tensor)
            twice = n;
        tensor->next_released = tensor;
    }
    while (n-- > 0)
        consumed[n]->next_released = NULL;
    if (twice == program->n_consumed)
        return 0;
    call_refuse(OP_PROGRAM, STATUS_INVALID_ARGUMENT, "input %u is released by the run, and comes twice among those",
                program->consumed[twice]);
    return td_last_error()->code;
}

/* The lists are apart from the caller's, whose list of results may be the one of inputs. */
static int run_append(const struct run *run, const int64_t ints[2], td_tensor **lists) {
    td_program *program = run->program;
    td_tensor **consumed = lists + program->n_results;
    int code = program_take_consumed(program, run->inputs, consumed);
    if (code)
        return code;
    struct batch_entry entry = {.opcode = OP_PROGRAM,
                                .n_inputs = program->n_parameters,
                                .inputs = run->inputs,
                                .n_ints = 2,
                                .ints = ints,
                                .n_captured = program->n_captured,
                                .captured = program->captured};
    code = call_append(program->device, &entry, program->n_results, run->types, lists, program->n_consumed, consumed);
    if (!code)
        memcpy(run->results, lists, program->n_results * sizeof(td_tensor *));
    return code;
}

static int run_enqueue(const struct run *run, uint64_t id, int64_t times) {
    const td_program *program = run->program;
    const int64_t ints[2] = {(int64_t)id, times};
    td_tensor *few[2 * RUN_FEW], **lists = few;
    size_t n = (size_t)program->n_results + program->n_consumed;
    if (n > 2 * RUN_FEW && !(lists = malloc(n * sizeof(td_tensor *)))) {
        call_refuse(OP_PROGRAM, STATUS_NO_HOST_MEMORY, "no memory for %u results", program->n_results);
        return STATUS_NO_HOST_MEMORY;
    }
    int code = run_append(run, ints, lists);
    if (lists != few)
        free(lists);
    return code;
}

static const td_loop no_loop; /* nothing is carried, sliced or stacked */

int td_program_run(td_program *program, int n_inputs, td_tensor *const *inputs, int n_results, td_tensor **results) {
    struct run run = {
        .program = program, .n_inputs = n_inputs, .n_results = n_results, .inputs = inputs, .results = results};
    int code = check_counts(&run);
    if (!code) {
        run.parameters = program->parameters;
        run.types = program->results;
        code = check_inputs(&run);
    }
    if (!code)
        code = record_is_on(program->device) ? program_inline(program, 1, &no_loop, inputs, results)
                                             : run_enqueue(&run, program->id, 1);
    return code ? run_fail(&run) : 0;
}

/* ---- loops ---- */

static int refuse_loop(const char *what, int number, unsigned most, const char *kind) {
    call_refuse(OP_PROGRAM, STATUS_INVALID_ARGUMENT, "%s %d is %s, and the program has %u", what, number, kind, most);
    return td_last_error()->code;
}

static int loop_lists(const td_loop *loop) {
    bool whole = loop->n_carried >= 0 && loop->n_sliced >= 0 && loop->n_stacked >= 0 &&
                 (loop->carried || !loop->n_carried) && (loop->sliced || !loop->n_sliced) &&
                 (loop->stacked || !loop->n_stacked);
    if (!whole)
        call_refuse(OP_PROGRAM, STATUS_INVALID_ARGUMENT,
                    "a list of the loop is NULL, or its length is negative: %d carried, %d sliced, %d stacked",
                    loop->n_carried, loop->n_sliced, loop->n_stacked);
    return whole ? 0 : td_last_error()->code;
}

static int refuse_carried(const td_program *program, td_carry carry) {
    char has[SHAPE_TEXT_MAX], wants[SHAPE_TEXT_MAX];
    const struct tensor_type *result = &program->results[carry.result],
                             *parameter = &program->parameters[carry.parameter];
    call_refuse(OP_PROGRAM, STATUS_INVALID_ARGUMENT,
                "result %d is %s %s, and parameter %d, which it is carried to, %s %s", carry.result,
                dtype_name(result->dtype), shape_text(result, has), carry.parameter, dtype_name(parameter->dtype),
                shape_text(parameter, wants));
    return td_last_error()->code;
}

enum { IS_CARRIED = 1, IS_SLICED = 2, IS_STACKED = 4 };

/* Checks the loop, and marks what happens to each parameter and each result. */
static int loop_mark(const td_program *program, const td_loop *loop, uint8_t *parameters, uint8_t *results) {
    for (int i = 0; i < loop->n_sliced; i++) {
        int number = loop->sliced[i];
        if (number < 0 || (unsigned)number >= program->n_parameters)
            return refuse_loop("parameter", number, program->n_parameters, "sliced");
        parameters[number] |= IS_SLICED;
    }
    for (int i = 0; i < loop->n_stacked; i++) {
        int number = loop->stacked[i];
        if (number < 0 || (unsigned)number >= program->n_results)
            return refuse_loop("result", number, program->n_results, "stacked");
        results[number] |= IS_STACKED;
    }
    for (int i = 0; i < loop->n_carried; i++) {
        td_carry carry = loop->carried[i];
        if (carry.result < 0 || (unsigned)carry.result >= program->n_results)
            return refuse_loop("result", carry.result, program->n_results, "carried");
        if (carry.parameter < 0 || (unsigned)carry.parameter >= program->n_parameters)
            return refuse_loop("parameter", carry.parameter, program->n_parameters, "carried");
        if (parameters[carry.parameter])
            return refuse_loop("parameter", carry.parameter, program->n_parameters, "carried twice, or sliced too");
        if (results[carry.result])
            return refuse_loop("result", carry.result, program->n_results,
                               "carried twice, or stacked too (td_record_end() may name a result twice)");
        if (!type_equal(&program->results[carry.result], &program->parameters[carry.parameter]))
            return refuse_carried(program, carry);
        parameters[carry.parameter] |= IS_CARRIED;
        results[carry.result] |= IS_CARRIED;
    }
    return 0;
}

/* The type with an axis for the iterations in front. */
static int stack_type(const struct tensor_type *type, int64_t times, const char *what, unsigned i,
                      struct tensor_type *stacked) {
    int64_t shape[SHAPE_RANK_MAX + 1] = {times};
    struct fault fault;
    memcpy(shape + 1, type->shape, (size_t)type->rank * sizeof *shape);
    int code = type->rank < SHAPE_RANK_MAX ? type_make(stacked, type->dtype, shape, (size_t)type->rank + 1, &fault)
                                           : fault_set(&fault, STATUS_SHAPE, "it has rank %d already", SHAPE_RANK_MAX);
    if (code)
        call_refuse(OP_PROGRAM, fault.code, "%s %u of %lld iterations: %s", what, i, (long long)times, fault.message);
    return code;
}

/* The types of the loop's inputs and results. */
static int loop_types(const td_program *program, int64_t times, const uint8_t *marks, struct tensor_type *types) {
    unsigned n = program->n_parameters;
    int code = 0;
    memcpy(types, program->parameters, n * sizeof *types);
    memcpy(types + n, program->results, program->n_results * sizeof *types);
    for (unsigned i = 0; i < n && !code; i++)
        if (marks[i] & IS_SLICED)
            code = stack_type(&program->parameters[i], times, "the slices of input", i, &types[i]);
    for (unsigned i = 0; i < program->n_results && !code; i++)
        if (marks[n + i] & IS_STACKED)
            code = stack_type(&program->results[i], times, "stacked result", i, &types[n + i]);
    return code;
}

static struct program_loop *loop_create(const td_loop *loop) {
    size_t n = 2 * (size_t)loop->n_carried + (size_t)loop->n_sliced + (size_t)loop->n_stacked;
    struct program_loop *own = malloc(sizeof *own + n * sizeof *own->lists);
    if (!own)
        return NULL;
    *own = (struct program_loop){.n_carried = 2 * (unsigned)loop->n_carried,
                                 .n_sliced = (unsigned)loop->n_sliced,
                                 .n_stacked = (unsigned)loop->n_stacked};
    uint32_t *out = own->lists;
    for (int i = 0; i < loop->n_carried; i++) {
        *out++ = (uint32_t)loop->carried[i].result;
        *out++ = (uint32_t)loop->carried[i].parameter;
    }
    for (int i = 0; i < loop->n_sliced; i++)
        *out++ = (uint32_t)loop->sliced[i];
    for (int i = 0; i < loop->n_stacked; i++)
        *out++ = (uint32_t)loop->stacked[i];
    return own;
}

static bool loop_equal(const struct program_loop *a, const struct program_loop *b) {
    size_t n = a->n_carried + a->n_sliced + a->n_stacked;
    return a->n_carried == b->n_carried && a->n_sliced == b->n_sliced && a->n_stacked == b->n_stacked &&
           !memcmp(a->lists, b->lists, n * sizeof *a->lists);
}

/* Under the lock: sends a loop that the daemon does not know yet. */
static int loop_send(td_program *program, struct program_loop *loop) {
    td_device *device = program->device;
    Tensord__ProgramLoop message = TENSORD__PROGRAM_LOOP__INIT;
    message.program = device->programs.last_id + 1;
    message.body = program->id;
    message.n_carried = loop->n_carried;
    message.carried = loop->lists;
    message.n_sliced = loop->n_sliced;
    message.sliced = loop->lists + loop->n_carried;
    message.n_stacked = loop->n_stacked;
    message.stacked = loop->lists + loop->n_carried + loop->n_sliced;
    int code = frame_push(device, FRAME_PROGRAM_LOOP, &message.base, 0);
    if (code)
        return code;
    loop->id = ++device->programs.last_id;
    loop->next = program->loops;
    program->loops = loop;
    return 0;
}

/* The id of the program's loop with these lists, which is sent when it comes first. */
static int loop_id(td_program *program, const td_loop *loop, uint64_t *id) {
    td_device *device = program->device;
    struct program_loop *own = loop_create(loop);
    if (!own)
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for a loop");
    pthread_mutex_lock(&device->lock);
    struct program_loop *known = program->loops;
    while (known && !loop_equal(known, own))
        known = known->next;
    int code = known ? 0 : loop_send(program, own);
    if (!code)
        *id = known ? known->id : own->id;
    pthread_mutex_unlock(&device->lock);
    if (known || code)
        free(own);
    return code;
}

/* `types` and `marks` have room for all parameters and results. */
static int repeat(struct run *run, int64_t times, const td_loop *loop, struct tensor_type *types, uint8_t *marks) {
    td_program *program = run->program;
    uint64_t id = 0;
    int code = loop_mark(program, loop, marks, marks + program->n_parameters);
    if (!code)
        code = loop_types(program, times, marks, types);
    run->parameters = types;
    run->types = types + program->n_parameters;
    if (!code)
        code = check_inputs(run);
    if (!code && record_is_on(program->device))
        return program_inline(program, times, loop, run->inputs, run->results);
    if (!code)
        code = loop_id(program, loop, &id);
    return code ? code : run_enqueue(run, id, times);
}

int td_program_repeat(td_program *program, int64_t times, const td_loop *loop, int n_inputs, td_tensor *const *inputs,
                      int n_results, td_tensor **results) {
    struct run run = {
        .program = program, .n_inputs = n_inputs, .n_results = n_results, .inputs = inputs, .results = results};
    int code = check_counts(&run);
    loop = loop ? loop : &no_loop;
    if (!code)
        code = loop_lists(loop);
    if (!code && (times < 1 || times > INT32_MAX)) {
        call_refuse(OP_PROGRAM, STATUS_INVALID_ARGUMENT, "%lld iterations, 1 to %d are possible", (long long)times,
                    INT32_MAX);
        code = td_last_error()->code;
    }
    if (code)
        return run_fail(&run);
    size_t n = (size_t)program->n_parameters + program->n_results;
    struct tensor_type *types = calloc(n, sizeof *types);
    uint8_t *marks = calloc(n, 1);
    if (types && marks) {
        code = repeat(&run, times, loop, types, marks);
    } else {
        call_refuse(OP_PROGRAM, STATUS_NO_HOST_MEMORY, "no memory for a loop over %zu inputs and results", n);
        code = td_last_error()->code;
    }
    free(types);
    free(marks);
    return code ? run_fail(&run) : 0;
}
