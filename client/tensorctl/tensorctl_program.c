/* What is in a saved program: as text, or as a graph. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/tensorctl/command.h"
#include "proto/files/saved_program.h"
#include "proto/ops/cleanup.h"
#include "proto/ops/utf8.h"
#include "proto/wire/batch.h"

const char *command_program_check(const struct tensorctl *ctl) {
    return strcmp(ctl->words[0], "dump") ? "program dump FILE is the only command of programs" : NULL;
}

static void print_type(FILE *out, const struct tensor_type *type) {
    char shape[SHAPE_TEXT_MAX];
    fprintf(out, "%s %s", dtype_name(type->dtype), shape_text(type, shape));
}

/* ---- text ---- */

static bool is_consumed(const Tensord__ProgramDefine *definition, unsigned parameter) {
    for (size_t i = 0; i < definition->n_consumed; i++)
        if (definition->consumed[i] == parameter)
            return true;
    return false;
}

static const char *plural(size_t n) {
    return n == 1 ? "" : "s";
}

static void write_head(FILE *out, const struct saved_program *program) {
    const Tensord__ProgramDefine *definition = program->message->definition;
    size_t n = definition->operations->n_heads, kernels = program->message->n_kernels;
    uint64_t captured = 0;
    char bytes[TEXT_UNIT_MAX];
    for (unsigned i = 0; i < program->n_captured; i++)
        captured += (uint64_t)type_bytes(saved_program_captured(program, i));
    fputs("program of ", out);
    wire_print_text(out, program->message->writer);
    fprintf(out, ": %u parameter%s, %u captured tensor%s with %s, ", program->types.n_parameters,
            plural(program->types.n_parameters), program->n_captured, plural(program->n_captured),
            text_bytes(bytes, (double)captured));
    if (kernels)
        fprintf(out, "%zu kernel%s, ", kernels, plural(kernels));
    fprintf(out, "%zu operation%s, %zu result%s\n", n, plural(n), definition->n_outputs, plural(definition->n_outputs));
}

/* All of a source, because who loads the file runs it. */
static void write_source(FILE *out, const char *source) {
    const char *indent = "      ";
    for (bool begins = true; *source;) {
        char shown[UTF8_SHOWN_MAX];
        if (begins && *source != '\n')
            fputs(indent, out);
        begins = *source == '\n';
        if (*source == '\n' || *source == '\t')
            fputc(*source++, out);
        else
            fwrite(shown, 1, utf8_show(&source, shown), out);
        if (!*source && !begins)
            fputc('\n', out);
    }
}

static void write_kernels(FILE *out, const Tensord__SavedProgram *message) {
    for (size_t i = 0; i < message->n_kernels; i++) {
        fprintf(out, "%s  %zu: ", i ? "" : "kernels\n", i + 1);
        wire_print_text(out, message->kernels[i]->name);
        fputc('\n', out);
        write_source(out, message->kernels[i]->source);
    }
}

/* "  %7, %8 = split(%3; …)  f32 (2, 5), f32 (2, 3)  [label]" */
static void write_operation(FILE *out, const struct op_request *op, const struct tensor_type *types, size_t number) {
    unsigned n = op_request_outputs(op);
    fputs("  ", out);
    for (unsigned i = 0; i < n; i++)
        fprintf(out, "%s%%%zu", i ? ", " : "", number + i);
    fputs(" = ", out);
    wire_print_call(out, op);
    for (unsigned i = 0; i < n; i++) {
        fputs(i ? ", " : "  ", out);
        print_type(out, &types[number + i - 1]);
    }
    if (op->label) {
        fputs("  [", out);
        wire_print_text(out, op->label);
        fputc(']', out);
    }
    fputc('\n', out);
}

static void write_text(FILE *out, const struct saved_program *program) {
    const Tensord__ProgramDefine *definition = program->message->definition;
    const struct tensor_type *types = program->types.types;
    struct batch_cursor cursor;
    struct op_request op;
    struct fault fault;
    size_t number = 1;
    write_head(out, program);
    for (unsigned i = 0; i < program->types.n_parameters; i++, number++) {
        fprintf(out, "%s  %%%zu  ", i ? "" : "parameters\n", number);
        print_type(out, &types[number - 1]);
        fputs(is_consumed(definition, i) ? "  consumed\n" : "\n", out);
    }
    for (unsigned i = 0; i < program->n_captured; i++, number++) {
        fprintf(out, "%s  %%%zu  ", i ? "" : "captured tensors\n", number);
        print_type(out, &types[number - 1]);
        fputc('\n', out);
    }
    write_kernels(out, program->message);
    batch_cursor_init(&cursor, definition->operations);
    for (const char *title = "operations\n"; batch_cursor_next(&cursor, &op, &fault) > 0; title = "") {
        fputs(title, out);
        write_operation(out, &op, types, number);
        number += op_request_outputs(&op);
    }
    for (size_t i = 0; i < definition->n_outputs; i++) {
        fprintf(out, "%s  %zu: %%%" PRIu64 "  ", i ? "" : "results\n", i, definition->outputs[i]);
        print_type(out, &types[definition->outputs[i] - 1]);
        fputc('\n', out);
    }
}

/* ---- graph: a node for each parameter, captured tensor, operation and result; an edge for each tensor that goes from one to the other ---- */

/* Inside of quotes. */
static void dot_text(FILE *out, const char *text) {
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fputc('\\', out);
        fputc(c < 0x20 || c == 0x7f ? '?' : c, out);
    }
}

/* Where a tensor comes from: a node, and which of its outputs it is. */
struct dot_source {
    size_t node;
    unsigned output, of;
};

static void dot_edge(FILE *out, const struct dot_source *source, const char *kind, size_t to) {
    fprintf(out, "  n%zu -> %s%zu", source->node, kind, to);
    if (source->of > 1)
        fprintf(out, " [label=\"output %u\"]", source->output);
    fputs(";\n", out);
}

static void dot_operation(FILE *out, const struct saved_program *program, const struct op_request *op, size_t number,
                          struct dot_source *sources) {
    const struct tensor_type *types = program->types.types;
    const struct op_info *info = op_info(op->opcode);
    unsigned n = op_request_outputs(op);
    fprintf(out, "  n%zu [label=\"%s", number, info->name);
    if (op->opcode == OP_KERNEL) { /* its first attribute is the number */
        fputs("\\n", out);
        dot_text(out, program->message->kernels[op->ints[0] - 1]->name);
    }
    for (unsigned i = 0; i < n; i++) {
        fputs("\\n", out);
        print_type(out, &types[number + i - 1]);
        sources[number + i - 1] = (struct dot_source){number, i, n};
    }
    if (op->label) {
        fputs("\\n[", out);
        dot_text(out, op->label);
        fputc(']', out);
    }
    fputs("\"];\n", out);
    for (unsigned i = 0; i < op->n_inputs; i++)
        dot_edge(out, &sources[op->inputs[i] - 1], "n", number);
}

static int write_dot(FILE *out, const struct saved_program *program, struct fault *fault) {
    const Tensord__ProgramDefine *definition = program->message->definition;
    const struct tensor_type *types = program->types.types;
    CLEANUP(free) struct dot_source *sources = calloc(program->types.n + 1, sizeof *sources);
    struct batch_cursor cursor;
    struct op_request op;
    size_t given = program->types.n_parameters + program->n_captured, number = 1;
    if (!sources)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a graph of %zu tensors", program->types.n);
    fputs("digraph program {\n  node [shape=box, fontname=\"sans-serif\"];\n", out);
    for (; number <= given; number++) {
        bool parameter = number <= program->types.n_parameters;
        fprintf(out, "  n%zu [shape=%s, label=\"%s %zu\\n", number, parameter ? "ellipse" : "cylinder",
                parameter ? "parameter" : "captured",
                parameter ? number - 1 : number - 1 - program->types.n_parameters);
        print_type(out, &types[number - 1]);
        fputs("\"];\n", out);
        sources[number - 1] = (struct dot_source){number, 0, 1};
    }
    batch_cursor_init(&cursor, definition->operations);
    for (; batch_cursor_next(&cursor, &op, fault) > 0; number += op_request_outputs(&op))
        dot_operation(out, program, &op, number, sources);
    for (size_t i = 0; i < definition->n_outputs; i++) {
        fprintf(out, "  r%zu [shape=ellipse, style=bold, label=\"result %zu\"];\n", i, i);
        dot_edge(out, &sources[definition->outputs[i] - 1], "r", i);
    }
    fputs("}\n", out);
    return STATUS_OK;
}

int tensorctl_program(struct tensorctl *ctl, struct fault *fault) {
    const char *path = ctl->words[1];
    struct saved_program program;
    struct fault cause;
    CLEANUP(close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    int code = fd < 0 ? fault_set(&cause, STATUS_INVALID_ARGUMENT, "%s", strerror(errno))
                      : saved_program_read(&program, fd, &cause);
    if (code)
        return fault_set(fault, (enum status)code, "%.120s: %.180s", path, cause.message);
    if (ctl->dot)
        code = write_dot(stdout, &program, fault);
    else
        write_text(stdout, &program);
    saved_program_finish(&program);
    return code ? code : command_flushed(fault);
}
