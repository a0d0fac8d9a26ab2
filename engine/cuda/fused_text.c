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
    unsigned data, parameters;       /* used so far */
    unsigned slots[FUSED_SLOTS_MAX]; /* the operation whose result is in it */
};

/* "const T x = …;" for each input, named after operation and input. */
static void write_inputs(struct writer *writer, uint32_t i) {
    const struct fused_operation *operation = &writer->launch->operations[i];
    for (unsigned k = 0; k < operation->n_inputs; k++) {
        const struct fused_operand *input = &operation->inputs[k];
        const char *type = types[input->dtype];
        if (input->in_slot)
            write_text(&writer->text, "        const %s x%u_%u = y%u;\n", type, i, k, writer->slots[input->slot]);
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

static void write_operation(struct writer *writer, uint32_t i) {
    const struct fused_operand *output = &writer->launch->operations[i].output;
    const char *type = types[output->dtype];
    unsigned data = output->in_slot ? 0 : writer->data++;
    write_inputs(writer, i);
    write_text(&writer->text, "        const %s y%u = fused_keep(", type, i);
    write_formula(writer, i);
    write_text(&writer->text, ", p.zero);\n");
    if (output->in_slot)
        writer->slots[output->slot] = i;
    else
        write_text(&writer->text, "        ((%s *)p.data[%u])[at] = y%u;\n", type, data, i);
}

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

char *fused_text(const struct fused_launch *launch, const char *name) {
    struct writer writer = {.launch = launch};
    struct text *text = &writer.text;
    unsigned parameters = count_parameters(launch);
    for (const char *at = keep_text; *at; at += strcspn(at, "\n") + 1)
        write_text(text, "%.*s\n", (int)strcspn(at, "\n"), at);
    write_text(text, "struct %s_arguments {\n    int64_t rows, columns, zero;\n    char *data[%u];\n", name,
               count_data(launch));
    if (parameters)
        write_text(text, "    double parameter[%u];\n", parameters);
    write_text(text, "};\n");
    write_text(text,
               "extern \"C\" __global__ void __launch_bounds__(%d) %s(const __grid_constant__ %s_arguments p) {\n"
               "    const int64_t n = p.rows * p.columns, step = (int64_t)gridDim.x * %d;\n",
               FUSED_THREADS, name, name, FUSED_THREADS);
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
        write_operation(&writer, i);
    write_text(text, "    }\n}\n");
    if (!text->failed)
        return text->text;
    free(text->text);
    return NULL;
}

/* ---- arguments ---- */

size_t fused_arguments(const struct fused_launch *launch, char to[FUSED_ARGUMENTS_MAX]) {
    const int64_t head[] = {launch->rows, launch->columns, 0};
    size_t used = sizeof head;
    memcpy(to, head, sizeof head);
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
