/* Kernels of fused launches on the host: their results have the bits of the operations launched one by one on the emulated device, each with all
 * of its results in memory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cuda/fused_text.h"
#include "engine/device/device_impl.h"
#include "tests/stand_ins/emulate/fused_cases.h"

extern void (*const fused_starts[])(const void *arguments, unsigned blocks, unsigned shared);

static uint64_t next_random;

static uint32_t random_word(void) {
    next_random = next_random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(next_random >> 32);
}

/* Ordinary numbers for the most part, and any bits. A bool is 0 or 1. */
static void fill(char *data, enum dtype dtype) {
    size_t size = dtype_size(dtype);
    for (size_t at = 0; at < FUSED_BUFFER / size; at++) {
        uint32_t words[4] = {random_word(), random_word(), random_word(), random_word()};
        if (dtype == DTYPE_BOOL)
            words[0] &= 1;
        if (dtype == DTYPE_F32 && at % 8) {
            float ordinary = (float)((int32_t)words[1] % 1000) / 250;
            memcpy(words, &ordinary, sizeof ordinary);
        } else if (dtype == DTYPE_F64 && at % 8) {
            double ordinary = (double)((int32_t)words[1] % 1000) / 250;
            memcpy(words, &ordinary, sizeof ordinary);
        }
        memcpy(data + at * size, words, size);
    }
}

/* The operand in a launch by itself; of a slot, in memory of its own. `narrow`: there is one for each row. */
static struct operand operand_of(const struct fused_operand *fused, const struct fused_launch *launch, bool narrow,
                                 int64_t *numbers, char (*slots)[FUSED_BUFFER]) {
    numbers[0] = launch->rows;
    numbers[1] = launch->columns;
    numbers[2] = fused->row == FUSED_FLAT ? launch->columns : fused->row;
    numbers[3] = fused->column;
    return (struct operand){.data = fused->in_slot ? slots[fused->slot] : fused->data,
                            .shape = numbers,
                            .strides = numbers + 2,
                            .dtype = fused->dtype,
                            .as = fused->as,
                            .rank = narrow ? 1 : 2};
}

/* Launches an operation by itself. *kernel: what it is in a fused launch. */
static int launch_one(struct device *device, struct device_stream *stream, const struct fused_launch *fused, uint32_t i,
                      char (*slots)[FUSED_BUFFER], const void **kernel, struct fault *fault) {
    const struct fused_operation *operation = &fused->operations[i];
    bool narrow = !operation->output.column;
    int64_t numbers[4][4], dtype = operation->output.dtype;
    struct launch *launch = calloc(1, sizeof *launch + 3 * sizeof(struct operand));
    launch->opcode = operation->opcode;
    launch->n_inputs = operation->n_inputs;
    launch->attributes = (struct op_attributes){.floats = operation->floats, .n_floats = operation->n_floats};
    if (operation->opcode == OP_CAST)
        launch->attributes = (struct op_attributes){.ints = &dtype, .n_ints = 1};
    launch->output = operand_of(&operation->output, fused, narrow, numbers[0], slots);
    for (unsigned k = 0; k < operation->n_inputs; k++)
        launch->inputs[k] =
            operand_of(&operation->inputs[k], fused, narrow && !operation->reduces, numbers[k + 1], slots);
    *kernel = device->vtable->fused_kernel(device, launch);
    int code = *kernel ? device->vtable->launch(device, stream, launch, fault)
                       : fault_set(fault, STATUS_UNSUPPORTED, "the device does not take it into a fused launch");
    free(launch);
    return code;
}

/* Whether the bytes are the same, or both a NaN: its sign and its lower bits follow from the order of a sum's operands on the host, which the
 * compiler chooses. */
static bool same(enum dtype dtype, const char *a, const char *b) {
    size_t size = dtype_size(dtype) / (dtype_is_complex(dtype) ? 2 : 1);
    bool equal = true;
    for (size_t at = 0; at < dtype_size(dtype); at += size) {
        float x[2];
        double y[2];
        if (!memcmp(a + at, b + at, size))
            continue;
        memcpy(&x[0], a + at, size == sizeof *x ? size : 0);
        memcpy(&x[1], b + at, size == sizeof *x ? size : 0);
        memcpy(&y[0], a + at, size == sizeof *y ? size : 0);
        memcpy(&y[1], b + at, size == sizeof *y ? size : 0);
        bool floats = dtype == DTYPE_F32 || dtype == DTYPE_C64, doubles = dtype == DTYPE_F64 || dtype == DTYPE_C128;
        equal &= (floats && isnan(x[0]) && isnan(x[1])) || (doubles && isnan(y[0]) && isnan(y[1]));
    }
    return equal;
}

/* The first wrong operation's name; NULL: all is right. */
static const char *compare(const struct fused_case *made, const char *one_by_one, const char *together) {
    const struct fused_launch *launch = made->launch;
    for (uint32_t i = 0; i < launch->n; i++) {
        const struct fused_operand *output = &launch->operations[i].output;
        size_t at = output->in_slot ? 0 : (size_t)((char *)output->data - one_by_one);
        size_t size = dtype_size((enum dtype)output->dtype);
        size_t end = (size_t)(launch->rows * (output->column ? launch->columns : 1)) * size;
        for (size_t e = 0; e < end && !output->in_slot; e += size)
            if (!same((enum dtype)output->dtype, one_by_one + at + e, together + at + e))
                return op_info(launch->operations[i].opcode)->name;
    }
    return NULL;
}

int main(void) {
    static _Alignas(64) char one_by_one[FUSED_BUFFERS][FUSED_BUFFER], together[FUSED_BUFFERS][FUSED_BUFFER];
    static _Alignas(64) char slots[FUSED_SLOTS_MAX][FUSED_BUFFER];
    struct device *device;
    struct device_stream *stream;
    struct fault fault;
    unsigned wrong = 0, operations = 0;
    if (device_open("emulated", &(struct device_options){0}, &device, &fault) != STATUS_OK ||
        device->vtable->async->stream_create(device, 0, &stream, &fault) != STATUS_OK) {
        printf("no emulated device: %s\n", fault.message);
        return 1;
    }
    for (unsigned number = 0; number < FUSED_CASES; number++) {
        struct fused_case made, copy;
        char arguments[FUSED_ARGUMENTS_MAX] __attribute__((aligned(16)));
        fused_case_make(&made, number, one_by_one[0]);
        fused_case_make(&copy, number, together[0]);
        for (unsigned i = 0; i < made.buffers; i++) {
            fill(one_by_one[i], (enum dtype)made.dtypes[i]);
            memcpy(together[i], one_by_one[i], FUSED_BUFFER);
        }
        for (uint32_t i = 0; i < made.launch->n; i++, operations++)
            if (launch_one(device, stream, made.launch, i, slots, &copy.launch->operations[i].kernel, &fault) !=
                STATUS_OK) {
                printf("%s: %s\n", op_info(made.launch->operations[i].opcode)->name, fault.message);
                return 1;
            }
        fused_arguments(copy.launch, arguments);
        fused_starts[number](arguments, 1 + number % 3, (unsigned)fused_shared(copy.launch));
        const char *name = compare(&made, one_by_one[0], together[0]);
        if (name)
            printf("fused_%u: the result of %s has other bits than by itself\n", number, name);
        wrong += name != NULL;
        fused_case_free(&made);
        fused_case_free(&copy);
    }
    device->vtable->async->stream_destroy(device, stream);
    device_close(device);
    printf("%d launches of %u operations, %u wrong\n", FUSED_CASES, operations, wrong);
    return wrong != 0;
}
