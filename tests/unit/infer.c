#include "tests/unit/infer.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum dtype parse_dtype(const char *text, size_t length) {
    for (int dtype = 1; dtype < DTYPE_COUNT; dtype++) {
        const char *name = dtype_name((enum dtype)dtype);
        if (strlen(name) == length && memcmp(name, text, length) == 0) {
            return (enum dtype)dtype;
        }
    }
    cr_assert_fail("no dtype in \"%s\"", text);
    return DTYPE_INVALID;
}

/* Returns what follows the type. */
static const char *parse_type(const char *text, struct tensor_type *type) {
    int64_t shape[SHAPE_RANK_MAX];
    size_t rank = 0, name = strcspn(text, "(");
    enum dtype dtype = parse_dtype(text, name);
    char *at = (char *)text + name + 1;
    while (*at != ')') {
        cr_assert_lt(rank, (size_t)SHAPE_RANK_MAX);
        shape[rank++] = strtoll(at, &at, 10);
        at += *at == ',';
    }
    cr_assert_eq(type_make(type, dtype, shape, rank, NULL), STATUS_OK, "%s", text);
    return at[1] == ' ' ? at + 2 : at + 1;
}

static void check_result(const struct infer_case *row, size_t i, const struct tensor_type *out) {
    struct tensor_type wanted;
    char text[SHAPE_TEXT_MAX];
    parse_type(row->result, &wanted);
    cr_assert(type_equal(&wanted, out), "row %zu: %s of %s is %s%s, not %s", i, op_info(row->opcode)->name, row->inputs,
              dtype_name(out->dtype), shape_text(out, text), row->result);
}

static void check_failure(const struct infer_case *row, size_t i, int status, const struct fault *fault) {
    cr_assert_eq(status, (int)row->status, "row %zu: %s of %s gives %s (%s), not %s", i, op_info(row->opcode)->name,
                 row->inputs, status_name(status), fault->message, status_name((int)row->status));
    cr_assert_eq(fault->code, row->status);
    cr_assert(!row->words || strstr(fault->message, row->words), "row %zu: \"%s\" lacks \"%s\"", i, fault->message,
              row->words);
}

static void check_row(const struct infer_case *row, size_t i) {
    struct tensor_type types[OP_INPUTS_MAX + 1], before[OP_OUTPUTS_NAMED], out[OP_OUTPUTS_NAMED];
    const struct tensor_type *inputs[OP_INPUTS_MAX + 1];
    struct op_attributes attributes = {row->ints, row->floats, row->n_ints, row->n_floats};
    struct fault fault = {.message = ""};
    unsigned n = 0;
    for (const char *text = row->inputs; *text; n++) {
        text = parse_type(text, &types[n]);
        inputs[n] = &types[n];
    }
    memset(out, 0x5a, sizeof out);
    memcpy(before, out, sizeof out);
    int status = op_infer(row->opcode, inputs, n, &attributes, out, &fault);
    if (!row->result) {
        check_failure(row, i, status, &fault);
        cr_assert_eq(memcmp(out, before, sizeof out), 0, "row %zu: the output was touched", i);
        return;
    }
    cr_assert_eq(status, STATUS_OK, "row %zu: %s of %s: %s", i, op_info(row->opcode)->name, row->inputs, fault.message);
    check_result(row, i, out);
    for (unsigned k = 0; k < n && op_info(row->opcode)->n_outputs == 1;
         k++) { /* a single output may be one of the inputs */
        struct tensor_type saved = types[k];
        cr_assert_eq(op_infer(row->opcode, inputs, n, &attributes, &types[k], &fault), STATUS_OK);
        check_result(row, i, &types[k]);
        types[k] = saved;
    }
}

void infer_check(const struct infer_case *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        check_row(&cases[i], i);
    }
}
