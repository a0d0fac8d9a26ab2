#include "tests/stand_ins/emulate/fused_cases.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cuda/fused_text.h"

struct maker {
    uint64_t random;
    char *base;
    struct fused_case *made;
    struct fused_operand values[FUSED_BUFFERS]; /* that operations may read */
    unsigned n_values;
    unsigned last; /* the last operation's number; its result is in memory */
    bool by_rows;  /* there may be reductions, and operations on what there is one of for each row */
};

static unsigned below(struct maker *maker, unsigned n) {
    maker->random = maker->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(maker->random >> 33) % n;
}

/* The way of an operation. */
enum way { WIDE, NARROW, REDUCES };

static bool may_read(enum way way, const struct fused_operand *operand) {
    return way == WIDE || (way == NARROW && !operand->column) ||
           (way == REDUCES && operand->column && operand->row == FUSED_FLAT);
}

static struct fused_operand in_memory(struct maker *maker, enum dtype dtype) {
    unsigned buffer = maker->made->buffers++;
    maker->made->dtypes[buffer] = (uint8_t)dtype;
    return (struct fused_operand){.data = maker->base + (size_t)buffer * FUSED_BUFFER,
                                  .row = FUSED_FLAT,
                                  .column = 1,
                                  .dtype = (uint8_t)dtype,
                                  .as = (uint8_t)dtype};
}

/* Flat, the same in every row, the same in every column, and one element. */
static void make_given(struct maker *maker) {
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16,  DTYPE_BF16, DTYPE_F64, DTYPE_I32,   DTYPE_U8,
                                        DTYPE_I64, DTYPE_BOOL, DTYPE_U32,  DTYPE_C64, DTYPE_F8E4M3};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        for (int k = 0; k < 3; k++) {
            struct fused_operand value = in_memory(maker, dtypes[i]);
            if (k == 1) {
                unsigned place = below(maker, 3);
                value.row = place == 1 ? FUSED_NEXT : FUSED_SAME;
                value.column = place == 0;
            }
            maker->values[maker->n_values++] = value;
        }
    }
    maker->made->given = maker->made->buffers;
}

/* A softmax of a value that there is. */
static bool try_softmax(struct maker *maker, struct fused_operation *operation) {
    const struct fused_operand *value = &maker->values[below(maker, maker->n_values)];
    bool few = value->dtype == DTYPE_F16 || value->dtype == DTYPE_BF16 || value->dtype == DTYPE_F32;
    if (!may_read(REDUCES, value) || !(few || value->dtype == DTYPE_F64))
        return false;
    *operation = (struct fused_operation){.opcode = below(maker, 3) ? OP_SOFTMAX : OP_LOG_SOFTMAX,
                                          .n_inputs = 1,
                                          .softmax = true,
                                          .output = {.row = FUSED_FLAT, .column = 1},
                                          .inputs = {*value}};
    operation->output.dtype = operation->output.as = value->dtype;
    return true;
}

/* A reduction of a value that there is. Its result has the value's dtype. */
static bool try_reduction(struct maker *maker, struct fused_operation *operation) {
    static const unsigned opcodes[] = {OP_SUM, OP_MEAN, OP_PROD, OP_MAX,         OP_MIN,      OP_ANY,
                                       OP_ALL, OP_VAR,  OP_STD,  OP_VECTOR_NORM, OP_LOGSUMEXP};
    static const double orders[] = {0, 1, 2, 3};
    const struct fused_operand *value = &maker->values[below(maker, maker->n_values)];
    unsigned opcode = opcodes[below(maker, sizeof opcodes / sizeof *opcodes)];
    if (!may_read(REDUCES, value) || !fused_text_reduces(opcode, (enum dtype)value->dtype))
        return false;
    *operation =
        (struct fused_operation){.opcode = (uint16_t)opcode, .n_inputs = 1, .reduces = true, .inputs = {*value}};
    if (op_info(opcode)->floats) {
        operation->n_floats = 1;
        operation->floats[0] = orders[below(maker, opcode == OP_VECTOR_NORM ? 4 : 2)];
    }
    operation->output.dtype = operation->output.as = value->dtype;
    operation->output.row = FUSED_NEXT;
    return true;
}

/* An operation on values that there are; false: it is none. */
static bool try_operation(struct maker *maker, struct fused_operation *operation) {
    unsigned opcode = below(maker, OP_CODE_MAX), chance = maker->by_rows ? below(maker, 100) : 100;
    enum way way = chance < 30 ? NARROW : WIDE;
    if (chance < 15)
        return (chance < 4 ? try_softmax : try_reduction)(maker, operation);
    const struct op_info *info = op_info(opcode);
    const struct tensor_type *types[3];
    struct tensor_type inputs[3], output;
    static const double floats[2] = {-0.75, 0.625};
    int64_t ints[1];
    struct fault fault;
    if (!info || info->family != OP_FAMILY_ELEMENTWISE || info->floats > 2)
        return false;
    *operation = (struct fused_operation){
        .opcode = (uint16_t)opcode, .n_inputs = (uint8_t)(1 + below(maker, 3)), .n_floats = (uint8_t)info->floats};
    for (unsigned k = 0; k < operation->n_inputs; k++) {
        unsigned recent = below(maker, 100) < 60 && maker->n_values > 5 ? maker->n_values - 5 : 0;
        operation->inputs[k] = maker->values[recent + below(maker, maker->n_values - recent)];
        if (!may_read(way, &operation->inputs[k]))
            return false;
        inputs[k] = (struct tensor_type){.dtype = operation->inputs[k].dtype, .rank = 1, .shape = {1}};
        types[k] = &inputs[k];
    }
    struct op_attributes attributes = {.floats = floats, .n_floats = operation->n_floats};
    if (opcode == OP_CAST) {
        ints[0] = 1 + below(maker, DTYPE_COUNT - 1);
        attributes = (struct op_attributes){.ints = ints, .n_ints = 1};
        operation->n_floats = 0;
    }
    if (op_infer(opcode, types, operation->n_inputs, &attributes, &output, &fault) != STATUS_OK)
        return false;
    memcpy(operation->floats, floats, operation->n_floats * sizeof *floats);
    for (unsigned k = 0; k < operation->n_inputs; k++) /* no conversion, as launches on CUDA devices have none */
        if (op_operand_dtype(opcode, types, k, &output) != operation->inputs[k].dtype ||
            !fused_text_has(opcode, (enum dtype)operation->inputs[k].dtype, (enum dtype)operation->inputs[k].dtype,
                            (enum dtype)output.dtype))
            return false;
    operation->output.dtype = operation->output.as = (uint8_t)output.dtype;
    operation->output.row = way == NARROW ? FUSED_NEXT : FUSED_FLAT;
    operation->output.column = way != NARROW;
    return true;
}

/* The output's dtype and place in the row are known. */
static void place_output(struct maker *maker, struct fused_operand *output) {
    enum dtype dtype = (enum dtype)output->dtype;
    uint8_t row = output->row, column = output->column;
    unsigned slot = below(maker, FUSED_SLOTS_MAX);
    if (below(maker, 100) < 40 || maker->made->launch->n == maker->last || dtype_size(dtype) > FUSED_SLOT_ELEMENT) {
        *output = in_memory(maker, dtype);
    } else {
        for (unsigned i = 0; i < maker->n_values;) /* what the slot held is gone */
            if (maker->values[i].in_slot && maker->values[i].slot == slot)
                maker->values[i] = maker->values[--maker->n_values];
            else
                i++;
        *output = (struct fused_operand){
            .in_slot = true, .slot = (uint8_t)slot, .dtype = (uint8_t)dtype, .as = (uint8_t)dtype};
    }
    output->row = row;
    output->column = column;
    maker->values[maker->n_values++] = *output;
}

void fused_case_make(struct fused_case *made, unsigned number, char *base) {
    struct maker maker = {.random = number * UINT64_C(0x9e3779b97f4a7c15) + 1, .base = base, .made = made};
    *made = (struct fused_case){
        .launch = calloc(1, sizeof(struct fused_launch) + FUSED_OPERATIONS_MAX * sizeof(struct fused_operation))};
    struct fused_launch *launch = made->launch;
    unsigned n = 2 + below(&maker, number % 10 == 9 ? FUSED_OPERATIONS_MAX - 2 : 12);
    maker.last = n;
    launch->rows = number % 3 == 0 ? 1 : FUSED_ROWS;
    launch->whole_rows = maker.by_rows = number % 4 == 1;
    launch->columns = FUSED_COLUMNS;
    launch->n_slots = FUSED_SLOTS_MAX;
    make_given(&maker);
    while (launch->n < n) {
        struct fused_operation *operation = &launch->operations[launch->n];
        if (!try_operation(&maker, operation))
            continue;
        launch->n++;
        place_output(&maker, &operation->output);
    }
}

void fused_case_free(struct fused_case *made) {
    free(made->launch);
}
