#include "engine/cuda/fused_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the formulas, by opcode and dtype ---- */

struct formula {
    const char *function;
    uint8_t parameters;
    bool few; /* computes in f32 with attributes of f32, whatever halves it reads */
};

/* clang-format off */
#define NUMBER(name, inputs, parameters, dtype, result) OF_##name##_##dtype,
enum {
    OF_NONE,
    OP_FORMULAS_ALL(NUMBER)
    OP_FORMULAS_ALL_HALF(NUMBER)
    OP_FORMULAS_FEW(NUMBER)
    OP_FORMULAS_FEW_HALF(NUMBER)
};

#define ALL(name, inputs, parameters, dtype, result) {"formula_" #name "_" #dtype, parameters, false},
#define ALL_HALF(name, inputs, parameters, dtype, result) {"formula_" #name "_f32", parameters, false},
#define FEW(name, inputs, parameters, dtype, result) {"formula_" #name "_" #dtype, parameters, false},
#define FEW_HALF(name, inputs, parameters, dtype, result) {"formula_" #name "_f32", parameters, true},
static const struct formula formulas[] = {
    {NULL, 0, false},
    OP_FORMULAS_ALL(ALL)
    OP_FORMULAS_ALL_HALF(ALL_HALF)
    OP_FORMULAS_FEW(FEW)
    OP_FORMULAS_FEW_HALF(FEW_HALF)
};

#define ENTRY(ID, DTYPE, formula) [OP_PLACE_##ID][DTYPE_##DTYPE] = OF_##formula,
static const uint16_t formula_of[OP_PLACES_ELEMENTWISE][DTYPE_COUNT] = {OP_FORMULA_TABLE(ENTRY)};
/* clang-format on */

static const struct formula *formula_find(unsigned opcode, enum dtype dtype) {
    const struct op_info *info = op_info(opcode);
    unsigned number = info && info->family == OP_FAMILY_ELEMENTWISE ? formula_of[op_place(opcode)][dtype] : OF_NONE;
    return number ? &formulas[number] : NULL;
}

/* The types of number.cuh. */
static const char *const types[DTYPE_COUNT] = {
    [DTYPE_BOOL] = "uint8_t",      [DTYPE_U8] = "uint8_t",   [DTYPE_I8] = "int8_t",     [DTYPE_I16] = "int16_t",
    [DTYPE_I32] = "int32_t",       [DTYPE_I64] = "int64_t",  [DTYPE_F16] = "__half",    [DTYPE_BF16] = "__nv_bfloat16",
    [DTYPE_F32] = "float",         [DTYPE_F64] = "double",   [DTYPE_F8E4M3] = "f8e4m3", [DTYPE_F8E5M2] = "f8e5m2",
    [DTYPE_U16] = "uint16_t",      [DTYPE_U32] = "uint32_t", [DTYPE_U64] = "uint64_t",  [DTYPE_C64] = "formula_c64",
    [DTYPE_C128] = "formula_c128",
};

bool fused_text_has(unsigned opcode, enum dtype from, enum dtype as, enum dtype to) {
    if (from != as && opcode != OP_CAST)
        return false;
    if (opcode == OP_CAST)
        return !dtype_is_complex(from) || dtype_is_complex(to) || to == DTYPE_BOOL;
    return opcode == OP_WHERE || formula_find(opcode, as);
}

/* ---- reductions: the classes of reduce_ops.cuh, by opcode and dtype ---- */

struct reduction {
    unsigned opcode;
    bool floats, bools; /* of all dtypes of the class, only these */
    const char *const *classes;
};

/* clang-format off */
static const char *const sums[DTYPE_COUNT] = {
    [DTYPE_I64] = "sum_integer", [DTYPE_U64] = "sum_integer", [DTYPE_F16] = "sum_float<__half>", [DTYPE_BF16] = "sum_float<__nv_bfloat16>",
    [DTYPE_F32] = "sum_float<float>", [DTYPE_F64] = "sum_double",
};
static const char *const products[DTYPE_COUNT] = {
    [DTYPE_I64] = "product<uint64_t, uint64_t>", [DTYPE_U64] = "product<uint64_t, uint64_t>", [DTYPE_F16] = "product<__half, double>",
    [DTYPE_BF16] = "product<__nv_bfloat16, double>", [DTYPE_F32] = "product<float, double>", [DTYPE_F64] = "product<double, double>",
};
static const char *const extremes[DTYPE_COUNT] = {
    [DTYPE_BOOL] = "extreme<uint8_t>", [DTYPE_U8] = "extreme<uint8_t>", [DTYPE_I8] = "extreme<int8_t>", [DTYPE_I16] = "extreme<int16_t>",
    [DTYPE_I32] = "extreme<int32_t>", [DTYPE_I64] = "extreme<int64_t>", [DTYPE_F16] = "extreme<__half>", [DTYPE_BF16] = "extreme<__nv_bfloat16>",
    [DTYPE_F32] = "extreme<float>", [DTYPE_F64] = "extreme<double>", [DTYPE_U16] = "extreme<uint16_t>", [DTYPE_U32] = "extreme<uint32_t>",
    [DTYPE_U64] = "extreme<uint64_t>",
};
#define FLOATS(name) {[DTYPE_F16] = #name "<__half>", [DTYPE_BF16] = #name "<__nv_bfloat16>", [DTYPE_F32] = #name "<float>", [DTYPE_F64] = #name "<double>"}
static const char *const variances[DTYPE_COUNT] = FLOATS(variance);
static const char *const norms[DTYPE_COUNT] = FLOATS(vector_norm);
static const char *const exponentials[DTYPE_COUNT] = FLOATS(logsumexp);

static const struct reduction reductions[] = {
    {OP_SUM, false, false, sums},       {OP_MEAN, true, false, sums},     {OP_PROD, false, false, products},
    {OP_MAX, false, false, extremes},   {OP_MIN, false, false, extremes}, {OP_ANY, false, true, extremes},
    {OP_ALL, false, true, extremes},    {OP_VAR, true, false, variances}, {OP_STD, true, false, variances},
    {OP_VECTOR_NORM, true, false, norms}, {OP_LOGSUMEXP, true, false, exponentials},
};
/* clang-format on */

/* NULL: there is none. */
static const char *reduction_class(unsigned opcode, enum dtype dtype) {
    for (size_t i = 0; i < sizeof reductions / sizeof *reductions; i++) {
        const struct reduction *reduction = &reductions[i];
        if (reduction->opcode == opcode)
            return (!reduction->floats || dtype_kind(dtype) == DTYPE_KIND_FLOAT) &&
                           (!reduction->bools || dtype == DTYPE_BOOL)
                       ? reduction->classes[dtype]
                       : NULL;
    }
    return NULL;
}

bool fused_text_reduces(unsigned opcode, enum dtype dtype) {
    return reduction_class(opcode, dtype) != NULL;
}

/* ---- teams, which have a row each ---- */

static const unsigned lanes_table[] = {1, 2, 4, 8, 16, 32, 64, 128, 256};

const void *fused_lanes(unsigned lanes) {
    for (size_t i = 0; i < sizeof lanes_table / sizeof *lanes_table; i++)
        if (lanes_table[i] == lanes)
            return &lanes_table[i];
    return NULL;
}

static unsigned lanes_of(const void *kernel) {
    return *(const unsigned *)kernel;
}

/* Whether the threads of a team compute it together: a reduction or a softmax. */
static bool shares_rows(const struct fused_operation *operation) {
    return operation->reduces || operation->softmax;
}

/* How many threads a team has: as many as share a row in one of its operations. */
static unsigned launch_team(const struct fused_launch *launch) {
    unsigned team = FUSED_TEAM_MIN;
    for (uint32_t i = 0; i < launch->n; i++) {
        const struct fused_operation *operation = &launch->operations[i];
        unsigned lanes = shares_rows(operation) ? lanes_of(operation->kernel) : 0;
        team = lanes > team ? lanes : team;
    }
    return team;
}

/* Shared memory for one slot of a block's rows. */
static size_t slot_bytes(int64_t columns, size_t size, unsigned team) {
    return ((size_t)columns * size * (FUSED_THREADS / team) + 15) & ~(size_t)15;
}

unsigned fused_row_slots(const void *kernel, int64_t columns, size_t size) {
    unsigned lanes = lanes_of(kernel), team = lanes < FUSED_TEAM_MIN ? FUSED_TEAM_MIN : lanes;
    size_t most = FUSED_SHARED_MAX / slot_bytes(columns, size, team);
    return most < FUSED_SLOTS_MAX ? (unsigned)most : FUSED_SLOTS_MAX;
}

int64_t fused_blocks(const struct fused_launch *launch) {
    int64_t elements = launch->rows * launch->columns, together = FUSED_THREADS / launch_team(launch);
    return launch->whole_rows ? (launch->rows + together - 1) / together
                              : (elements + FUSED_THREADS - 1) / FUSED_THREADS;
}

/* ---- text ---- */

struct text {
    char *text;
    size_t used, room;
    bool failed; /* there was no memory */
};

__attribute__((format(printf, 2, 3))) static void write_text(struct text *text, const char *format, ...) {
    enum { LINE_MAX_BYTES = 512 };
    va_list arguments;
    if (text->failed)
        return;
    if (text->room - text->used < LINE_MAX_BYTES) {
        size_t room = 2 * text->room + 4 * LINE_MAX_BYTES;
        char *grown = realloc(text->text, room);
        text->failed = !grown;
        if (!grown)
            return;
        text->text = grown;
        text->room = room;
    }
    va_start(arguments, format);
    text->used += (size_t)vsnprintf(text->text + text->used, LINE_MAX_BYTES, format, arguments);
    va_end(arguments);
}

/* ---- operands ---- */

/* Where an element is in memory. */
static const char *operand_at(const struct fused_operand *operand) {
    if (operand->column)
        return operand->row == FUSED_FLAT ? "at" : "column";
    return operand->row == FUSED_NEXT ? "row" : "0";
}

static bool launch_has_place(const struct fused_launch *launch, const char *place) {
    for (uint32_t i = 0; i < launch->n; i++)
        for (unsigned k = 0; k < launch->operations[i].n_inputs; k++) {
            const struct fused_operand *input = &launch->operations[i].inputs[k];
            if (!input->in_slot && !strcmp(operand_at(input), place))
                return true;
        }
    return false;
}

/* Numbers of what is in the arguments, in their order: of each operation the output, then the inputs, those that are in memory. */
static unsigned count_data(const struct fused_launch *launch) {
    unsigned n = 0;
    for (uint32_t i = 0; i < launch->n; i++) {
        n += !launch->operations[i].output.in_slot;
        for (unsigned k = 0; k < launch->operations[i].n_inputs; k++)
            n += !launch->operations[i].inputs[k].in_slot;
    }
    return n;
}

static unsigned count_parameters(const struct fused_launch *launch) {
    unsigned n = 0;
    for (uint32_t i = 0; i < launch->n; i++)
        n += launch->operations[i].n_floats;
    return n;
}

/* ---- operations ---- */

struct writer {
    struct text text;
    const struct fused_launch *launch;
    unsigned data, parameters, lanes; /* used so far */
    unsigned slots[FUSED_SLOTS_MAX];  /* the operation whose result is in it */
    bool stale;                       /* one thread of a team has written what the others may read */
};

/* Elementwise, on all elements of the row. */
static bool is_wide(const struct fused_operation *operation) {
    return !shares_rows(operation) && operation->output.column;
}

/* Whether the team goes through its row once for both operations, and all between them. */
static bool same_pass(const struct fused_launch *launch, uint32_t i, uint32_t k) {
    bool same = true;
    for (; i <= k; i++)
        same &= is_wide(&launch->operations[i]);
    return same;
}

/* Whether operation i reads the result of operation `from`, which is in a slot, from shared memory: it has come in another pass. */
static bool is_in_room(const struct fused_launch *launch, uint32_t from, uint32_t i) {
    return launch->whole_rows && launch->operations[from].output.column && !same_pass(launch, from, i);
}

/* The bytes of an element, for each slot that has to be in shared memory. */
static void launch_rooms(const struct fused_launch *launch, uint8_t sizes[FUSED_SLOTS_MAX]) {
    uint32_t from[FUSED_SLOTS_MAX] = {0};
    memset(sizes, 0, FUSED_SLOTS_MAX);
    for (uint32_t i = 0; i < launch->n && launch->whole_rows; i++) {
        const struct fused_operation *operation = &launch->operations[i];
        for (unsigned k = 0; k < operation->n_inputs; k++) {
            const struct fused_operand *input = &operation->inputs[k];
            size_t size = dtype_size((enum dtype)input->dtype);
            if (input->in_slot && is_in_room(launch, from[input->slot], i) && size > sizes[input->slot])
                sizes[input->slot] = (uint8_t)size;
        }
        const struct fused_operand *output = &operation->output;
        size_t size = dtype_size((enum dtype)output->dtype);
        if (output->in_slot && operation->softmax && size > sizes[output->slot]) /* whether anybody reads it or not */
            sizes[output->slot] = (uint8_t)size;
        if (output->in_slot)
            from[output->slot] = i;
    }
}

size_t fused_shared(const struct fused_launch *launch) {
    uint8_t sizes[FUSED_SLOTS_MAX];
    unsigned team = launch_team(launch);
    size_t bytes = 0;
    launch_rooms(launch, sizes);
    for (unsigned slot = 0; slot < FUSED_SLOTS_MAX; slot++)
        bytes += slot_bytes(launch->columns, sizes[slot], team);
    return bytes;
}

/* "const T x = …;" for each input, named after operation and input. */
static void write_inputs(struct writer *writer, uint32_t i) {
    const struct fused_operation *operation = &writer->launch->operations[i];
    for (unsigned k = 0; k < operation->n_inputs; k++) {
        const struct fused_operand *input = &operation->inputs[k];
        const char *type = types[input->dtype];
        unsigned from = input->in_slot ? writer->slots[input->slot] : 0;
        if (input->in_slot && is_in_room(writer->launch, from, i))
            write_text(&writer->text, "        const %s x%u_%u = ((const %s *)room_%u)[own];\n", type, i, k, type,
                       input->slot);
        else if (input->in_slot)
            write_text(&writer->text, "        const %s x%u_%u = y%u;\n", type, i, k, from);
        else
            write_text(&writer->text, "        const %s x%u_%u = ((const %s *)p.data[%u])[%s];\n", type, i, k, type,
                       writer->data++, operand_at(input));
    }
}

static void write_formula(struct writer *writer, uint32_t i) {
    const struct fused_operation *operation = &writer->launch->operations[i];
    const struct fused_operand *last = &operation->inputs[operation->n_inputs - 1];
    const struct formula *formula = formula_find(operation->opcode, (enum dtype)last->dtype);
    const char *to = types[operation->output.dtype];
    if (operation->opcode == OP_WHERE) {
        write_text(&writer->text, "x%u_0 ? x%u_1 : x%u_2", i, i, i);
    } else if (operation->opcode == OP_CAST && operation->output.dtype == DTYPE_BOOL) {
        write_text(&writer->text, "(uint8_t)number_truth(number_widen(x%u_0))", i);
    } else if (operation->opcode == OP_CAST) {
        write_text(&writer->text, "number_cast<%s>::from(number_widen(x%u_0))", to, i);
    } else {
        write_text(&writer->text, "number_store<%s>::from(%s(", to, formula->function);
        for (unsigned k = 0; k < operation->n_inputs; k++)
            write_text(&writer->text, "%snumber_widen(x%u_%u)", k ? ", " : "", i, k);
        for (unsigned k = 0; k < operation->n_floats; k++)
            write_text(&writer->text, ", number_widen((%s)p.parameter[%u])",
                       formula->few ? "float" : types[last->dtype], writer->parameters++);
        write_text(&writer->text, "))");
    }
}

/* The result is y, of one element; the number of its data, if it is in memory. */
static unsigned write_result(struct writer *writer, uint32_t i) {
    const struct fused_operand *output = &writer->launch->operations[i].output;
    unsigned data = output->in_slot ? 0 : writer->data++;
    write_inputs(writer, i);
    write_text(&writer->text, "        const %s y%u = fused_keep(", types[output->dtype], i);
    write_formula(writer, i);
    write_text(&writer->text, ", p.zero);\n");
    if (output->in_slot)
        writer->slots[output->slot] = i;
    return data;
}

static void write_operation(struct writer *writer, uint32_t i, const uint8_t *rooms) {
    const struct fused_operand *output = &writer->launch->operations[i].output;
    const char *type = types[output->dtype];
    unsigned data = write_result(writer, i);
    if (!output->in_slot)
        write_text(&writer->text, "        ((%s *)p.data[%u])[at] = y%u;\n", type, data, i);
    else if (rooms[output->slot])
        write_text(&writer->text, "        ((%s *)room_%u)[own] = y%u;\n", type, output->slot, i);
}

/* ---- whole rows ---- */

static void write_sync(struct writer *writer, bool always) {
    if (always || writer->stale)
        write_text(&writer->text, "        __syncthreads();\n");
    writer->stale = false;
}

/* One thread of the team writes what there is one of for the row. */
static void write_narrow(struct writer *writer, uint32_t i, unsigned data) {
    const struct fused_operand *output = &writer->launch->operations[i].output;
    if (output->in_slot)
        return;
    write_text(&writer->text,
               "        if (live && lane == 0) {\n            ((%s *)p.data[%u])[row] = y%u;\n        }\n",
               types[output->dtype], data, i);
    writer->stale = true;
}

/* An operation on what there is one of for the row. No other thread reads its inputs any more when it writes. */
static void write_one(struct writer *writer, uint32_t i) {
    write_sync(writer, false);
    unsigned data = write_result(writer, i);
    if (!writer->launch->operations[i].output.in_slot)
        write_sync(writer, true);
    write_narrow(writer, i, data);
}

/* struct reduce_numbers, as reduce.cu has them for such a launch. */
static void write_numbers(struct writer *writer, const struct fused_operation *operation) {
    struct text *text = &writer->text;
    unsigned parameter = writer->parameters, opcode = operation->opcode;
    writer->parameters += operation->n_floats;
    if (opcode == OP_VAR || opcode == OP_STD)
        write_text(text, "(double)p.columns > p.parameter[%u] ? (double)p.columns - p.parameter[%u] : 0, ", parameter,
                   parameter);
    else
        write_text(text, "%s, ", opcode == OP_MEAN ? "(double)p.columns" : "1");
    if (operation->n_floats)
        write_text(text, "p.parameter[%u], ", parameter);
    else
        write_text(text, "0, ");
    write_text(text, "0, %s, %s", opcode == OP_STD ? "true" : "false",
               opcode == OP_MIN || opcode == OP_ALL ? "true" : "false");
}

static void write_reduction(struct writer *writer, uint32_t i) {
    struct text *text = &writer->text;
    const struct fused_operation *operation = &writer->launch->operations[i];
    const struct fused_operand *input = &operation->inputs[0], *output = &operation->output;
    unsigned data = output->in_slot ? 0 : writer->data++;
    write_sync(writer, true);
    write_text(text, "        %s y%u;\n        {\n            typedef %s op_class;\n", types[output->dtype], i,
               reduction_class(operation->opcode, (enum dtype)input->dtype));
    write_text(text, "            const op_class op(reduce_numbers{");
    write_numbers(writer, operation);
    write_text(text, "});\n");
    if (input->in_slot) /* in memory, rows would lie behind an aligned address */
        write_text(text,
                   "            const op_class::T *x = (const op_class::T *)room_%u + group * p.columns;\n"
                   "            const uint64_t place = (uint64_t)(row * p.columns) * sizeof *x;\n",
                   input->slot);
    else
        write_text(text,
                   "            const op_class::T *x = (const op_class::T *)p.data[%u] + row * p.columns;\n"
                   "            const uint64_t place = (uint64_t)x;\n",
                   writer->data++);
    write_text(text, "            const int lanes = (int)p.lanes[%u];\n", writer->lanes++);
    write_text(
        text,
        "            y%u = fused_keep((%s)fused_reduce(op, x, p.columns, place, live, lane, group, lanes), p.zero);\n"
        "        }\n",
        i, types[output->dtype]);
    if (output->in_slot)
        writer->slots[output->slot] = i;
    write_narrow(writer, i, data);
}

/* "T *x = …;", where the row is, and whether rows would begin at addresses for vectors. */
static void write_place(struct writer *writer, const struct fused_operand *operand, const char *name) {
    const char *type = types[operand->dtype];
    if (operand->in_slot)
        write_text(
            &writer->text,
            "            %s *%s = (%s *)room_%u + group * p.columns;\n            const bool %s_aligned = true;\n",
            type, name, type, operand->slot, name);
    else
        write_text(&writer->text,
                   "            %s *%s = (%s *)p.data[%u] + row * p.columns;\n"
                   "            const bool %s_aligned = (uint64_t)p.data[%u] %% 16 == 0;\n",
                   type, name, type, writer->data, name, writer->data);
    writer->data += !operand->in_slot;
}

static void write_softmax(struct writer *writer, uint32_t i) {
    const struct fused_operation *operation = &writer->launch->operations[i];
    const struct fused_operand *output = &operation->output;
    write_sync(writer, true);
    write_text(&writer->text, "        {\n");
    write_place(writer, output, "out");
    write_place(writer, &operation->inputs[0], "x");
    write_text(
        &writer->text,
        "            fused_softmax<%s>(x, out, x_aligned && out_aligned, p.columns, live, lane, group * team / 32, "
        "(int)p.lanes[%u], %s);\n        }\n",
        types[output->dtype], writer->lanes++, operation->opcode == OP_LOG_SOFTMAX ? "true" : "false");
    if (output->in_slot)
        writer->slots[output->slot] = i;
    writer->stale = true;
}

/* The operations from i on that are computed in one pass; returns the next one. */
static uint32_t write_pass(struct writer *writer, uint32_t i, const uint8_t *rooms) {
    const struct fused_launch *launch = writer->launch;
    write_sync(writer, false);
    write_text(&writer->text,
               "        for (int64_t column = lane; live && column < p.columns; column += team) {\n"
               "        const int64_t at = row * p.columns + column, own = group * p.columns + column;\n");
    for (; i < launch->n && is_wide(&launch->operations[i]); i++)
        write_operation(writer, i, rooms);
    write_text(&writer->text, "        }\n");
    return i;
}

static void write_rows(struct writer *writer) {
    struct text *text = &writer->text;
    const struct fused_launch *launch = writer->launch;
    uint8_t rooms[FUSED_SLOTS_MAX];
    const char *behind = "(uint8_t *)shared";
    char name[64];
    launch_rooms(launch, rooms);
    write_text(text,
               "    DYNAMIC_SHARED(shared);\n"
               "    const int team = (int)p.team, lane = (int)threadIdx.x %% team, group = (int)threadIdx.x / team;\n"
               "    const int64_t together = %d / team;\n",
               FUSED_THREADS);
    for (unsigned slot = 0; slot < FUSED_SLOTS_MAX; slot++) {
        if (!rooms[slot])
            continue;
        write_text(text, "    uint8_t *const room_%u = %s;\n", slot, behind);
        snprintf(name, sizeof name, "room_%u + ((p.columns * together * %u + 15) & ~(int64_t)15)", slot, rooms[slot]);
        behind = name;
    }
    write_text(text, "    for (int64_t first = (int64_t)blockIdx.x * together; first < p.rows; first += "
                     "(int64_t)gridDim.x * together) {\n"
                     "        const bool live = first + group < p.rows;\n"
                     "        const int64_t row = live ? first + group : p.rows - 1;\n");
    for (uint32_t i = 0; i < launch->n;) {
        const struct fused_operation *operation = &launch->operations[i];
        if (is_wide(operation)) {
            i = write_pass(writer, i, rooms);
            continue;
        }
        (operation->reduces ? write_reduction : operation->softmax ? write_softmax : write_one)(writer, i++);
    }
    write_sync(writer, false); /* before the next row */
    write_text(text, "    }\n");
}

/* ---- the kernel ---- */

static const char keep_text[] = "#ifndef FUSED_KEEP\n"
                                "#define FUSED_KEEP\n"
                                "template <class T> FORMULA_FUNCTION T fused_keep(T x, int64_t) {\n"
                                "    return x;\n"
                                "}\n"
                                "FORMULA_FUNCTION float fused_keep(float x, int64_t zero) {\n"
                                "    return __int_as_float(__float_as_int(x) ^ (int)zero);\n"
                                "}\n"
                                "FORMULA_FUNCTION double fused_keep(double x, int64_t zero) {\n"
                                "    return __longlong_as_double(__double_as_longlong(x) ^ zero);\n"
                                "}\n"
                                "FORMULA_FUNCTION formula_c64 fused_keep(formula_c64 x, int64_t zero) {\n"
                                "    return formula_make_c64(fused_keep(x.re, zero), fused_keep(x.im, zero));\n"
                                "}\n"
                                "FORMULA_FUNCTION formula_c128 fused_keep(formula_c128 x, int64_t zero) {\n"
                                "    return formula_make_c128(fused_keep(x.re, zero), fused_keep(x.im, zero));\n"
                                "}\n"
                                "#endif\n";

/* fused_reduce: a row of n elements from x on, the first of which would lie at the address `place` in memory, by the first `lanes` threads of a
 * team. fused_softmax: the same of a row from x to out. All threads of the block call them; those of the team get the result. */
static const char rows_text[] =
    "#ifndef FUSED_REDUCE\n"
    "#define FUSED_REDUCE\n"
    "#ifndef DYNAMIC_SHARED\n"
    "#define DYNAMIC_SHARED(name) extern __shared__ uint4 name[]\n"
    "#endif\n"
    "template <class Op>\n"
    "__device__ inline typename Op::R fused_reduce(const Op &op, const typename Op::T *x, int64_t n, uint64_t place, "
    "bool live,\n"
    "                                              int lane, int group, int lanes) {\n"
    "    typedef typename Op::A A;\n"
    "    typedef typename Op::T T;\n"
    "    __shared__ uint64_t parts[32], results[8];\n"
    "    static_assert(sizeof(A) <= sizeof parts / 8 && sizeof(typename Op::R) <= sizeof *results, \"their room\");\n"
    "    const int64_t head = (int64_t)((0 - place) % sizeof(typename reduce_vector<T>::type) / sizeof(T));\n"
    "    A a = op.neutral();\n"
    "    if (live && lane < lanes) {\n"
    "        reduce_elements(op, a, x, n, head, lane, lanes);\n"
    "    }\n"
    "    reduce_group(op, a, lanes, (A *)parts);\n"
    "    if (lane == 0) {\n"
    "        ((typename Op::R *)results)[group] = op.finish(a);\n"
    "    }\n"
    "    __syncthreads();\n"
    "    return ((const typename Op::R *)results)[group];\n"
    "}\n"
    "template <class C> struct fused_group {\n"
    "    int wide, first;\n"
    "    C *shared;\n"
    "    template <class Merge> __device__ C merge(C value) const {\n"
    "        return softmax_along<Merge>(value, wide, first, shared);\n"
    "    }\n"
    "};\n"
    "template <class T>\n"
    "__device__ inline void fused_softmax(const T *x, T *out, bool aligned, int64_t columns, bool live, int lane, int "
    "first,\n"
    "                                     int wide, bool logarithm) {\n"
    "    typedef typename softmax_type<T>::C C;\n"
    "    __shared__ C shared[8];\n"
    "    const fused_group<C> group = {wide, first, shared};\n"
    "    const int n = live && lane < wide ? (int)columns : 0;\n"
    "    if (aligned && columns % softmax_type<T>::vector == 0) {\n"
    "        softmax_hold<T, true, softmax_store>(x, 1, out, 1, wide, lane, n, logarithm, group);\n"
    "    } else {\n"
    "        softmax_hold<T, false, softmax_store>(x, 1, out, 1, wide, lane, n, logarithm, group);\n"
    "    }\n"
    "}\n"
    "#endif\n";

static void write_lines(struct text *text, const char *lines) {
    for (const char *at = lines; *at; at += strcspn(at, "\n") + 1)
        write_text(text, "%.*s\n", (int)strcspn(at, "\n"), at);
}

static unsigned count_lanes(const struct fused_launch *launch) {
    unsigned n = 0;
    for (uint32_t i = 0; i < launch->n; i++)
        n += shares_rows(&launch->operations[i]);
    return n;
}

/* A thread has all operations of an element. */
static void write_elements(struct writer *writer) {
    static const uint8_t no_rooms[FUSED_SLOTS_MAX];
    const struct fused_launch *launch = writer->launch;
    struct text *text = &writer->text;
    write_text(text, "    const int64_t n = p.rows * p.columns, step = (int64_t)gridDim.x * %d;\n", FUSED_THREADS);
    write_text(text, "    for (int64_t at = (int64_t)blockIdx.x * %d + threadIdx.x; at < n; at += step) {\n",
               FUSED_THREADS);
    bool column = launch_has_place(launch, "column");
    if (column || launch_has_place(launch, "row")) /* a division of 32 bits takes a third of the time */
        write_text(
            text,
            "        const int64_t row = n <= UINT32_MAX ? (uint32_t)at / (uint32_t)p.columns : at / p.columns;\n");
    if (column)
        write_text(text, "        const int64_t column = at - row * p.columns;\n");
    for (uint32_t i = 0; i < launch->n; i++)
        write_operation(writer, i, no_rooms);
    write_text(text, "    }\n");
}

char *fused_text(const struct fused_launch *launch, const char *name) {
    struct writer writer = {.launch = launch};
    struct text *text = &writer.text;
    unsigned parameters = count_parameters(launch);
    write_lines(text, keep_text);
    if (launch->whole_rows)
        write_lines(text, rows_text);
    write_text(text, "struct %s_arguments {\n    int64_t rows, columns, zero", name);
    if (launch->whole_rows)
        write_text(text, ", team, lanes[%u]", count_lanes(launch));
    write_text(text, ";\n    char *data[%u];\n", count_data(launch));
    if (parameters)
        write_text(text, "    double parameter[%u];\n", parameters);
    write_text(text, "};\n");
    write_text(text,
               "extern \"C\" __global__ void __launch_bounds__(%d) %s(const __grid_constant__ %s_arguments p) {\n",
               FUSED_THREADS, name, name);
    (launch->whole_rows ? write_rows : write_elements)(&writer);
    write_text(text, "}\n");
    if (!text->failed)
        return text->text;
    free(text->text);
    return NULL;
}

/* ---- arguments ---- */

size_t fused_arguments(const struct fused_launch *launch, char to[FUSED_ARGUMENTS_MAX]) {
    int64_t head[4 + FUSED_OPERATIONS_MAX] = {launch->rows, launch->columns, 0, launch_team(launch)};
    size_t n = launch->whole_rows ? 4 : 3;
    for (uint32_t i = 0; i < launch->n; i++)
        if (shares_rows(&launch->operations[i]))
            head[n++] = lanes_of(launch->operations[i].kernel);
    size_t used = n * sizeof *head;
    memcpy(to, head, used);
    for (uint32_t i = 0; i < launch->n; i++)
        for (unsigned k = 0; k <= launch->operations[i].n_inputs; k++) {
            const struct fused_operation *operation = &launch->operations[i];
            const struct fused_operand *operand = k ? &operation->inputs[k - 1] : &operation->output;
            if (operand->in_slot)
                continue;
            memcpy(to + used, &operand->data, sizeof operand->data);
            used += sizeof operand->data;
        }
    for (uint32_t i = 0; i < launch->n; i++) {
        memcpy(to + used, launch->operations[i].floats, launch->operations[i].n_floats * sizeof(double));
        used += launch->operations[i].n_floats * sizeof(double);
    }
    return used;
}
