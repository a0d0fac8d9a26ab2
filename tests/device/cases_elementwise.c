#include "tests/device/cases.h"
#include "tests/device/tolerance.h"

/* Complex numbers are ordinary ones where results are not exact: where a part is beyond all bounds, or far smaller than the other one,
 * the way to compute it decides. test_complex.c has the special values. */
static enum suite_fill fill_of(const struct op_case *row, enum dtype dtype) {
    bool exact = value_is_complex(dtype) && tolerance_of(row->opcode)->complex_ulps[dtype - DTYPE_C64] == 0;
    return !value_is_complex(dtype) || exact ? row->fill : FILL_ORDINARY;
}

/* Values for the attributes of a formula. */
static struct op_packed case_attributes(struct suite *suite, unsigned opcode) {
    static const double values[] = {0.01, 0.25, 1, 1.7, 20};
    struct op_packed packed = {.n_floats = (unsigned)op_info(opcode)->floats};
    for (unsigned i = 0; i < packed.n_floats; i++)
        packed.floats[i] = values[suite_below(suite, sizeof values / sizeof *values)];
    return packed;
}

/* An operation with one of its inputs consumed must give what it gives otherwise, and must not touch what others hold.
 */
static void consumed_alone_and_shared(struct suite *suite, unsigned opcode, enum suite_fill fill,
                                      const enum dtype *dtypes, unsigned n, int rank, const int64_t *shape) {
    for (unsigned which = 0; which < n; which++) {
        for (int shared = 0; shared < 2; shared++) {
            struct sample inputs[3], holder = {0};
            const struct sample *pointers[3];
            for (unsigned i = 0; i < n; i++) {
                inputs[i] = suite_sample(suite, dtypes[i], rank, shape, fill);
                pointers[i] = &inputs[i];
            }
            if (shared)
                holder = suite_attributes(suite, OP_RESHAPE, &inputs[which],
                                          SUITE_ATTRIBUTES(reshape, .shape = SUITE_LIST(-1)));
            struct sample result = suite_run(suite, &(struct suite_call){.opcode = opcode,
                                                                         .n_inputs = n,
                                                                         .inputs = pointers,
                                                                         .attributes = case_attributes(suite, opcode),
                                                                         .consume = (uint16_t)(1u << which)});
            case_settle(suite, &result);
            if (shared)
                case_settle(suite, &holder);
            for (unsigned i = 0; i < n; i++) {
                if (i == which) {
                    suite_forget(&inputs[i]);
                } else {
                    suite_check(suite, &inputs[i]);
                    suite_free(suite, &inputs[i]);
                }
            }
        }
    }
}

/* A consumed tensor of fewer elements than the result cannot be its storage. */
static void consumed_and_broadcast(struct suite *suite, const struct op_case *row, enum dtype dtype) {
    int64_t wide[] = {5, 33}, narrow[] = {1, 33};
    struct sample a = suite_sample(suite, dtype, 2, narrow, fill_of(row, dtype)),
                  b = suite_sample(suite, dtype, 2, wide, fill_of(row, dtype));
    const struct sample *inputs[] = {&a, &b};
    struct sample result =
        suite_run(suite, &(struct suite_call){.opcode = row->opcode, .n_inputs = 2, .inputs = inputs, .consume = 3});
    case_settle(suite, &result);
    suite_forget(&a);
    suite_forget(&b);
}

static void unary_once(struct suite *suite, const struct op_case *row, struct sample *x) {
    struct sample result = suite_attributes(suite, row->opcode, x, case_attributes(suite, row->opcode));
    case_settle(suite, &result);
    suite_free(suite, x);
}

void case_elementwise_1(struct suite *suite, const struct op_case *row) {
    for (enum dtype dtype = DTYPE_BOOL; dtype < DTYPE_COUNT; dtype++) {
        if (!op_case_takes(row, dtype))
            continue;
        for (int i = 0; i < case_length_count; i++) {
            struct sample x = suite_sample(suite, dtype, 1, &case_lengths[i], fill_of(row, dtype));
            unary_once(suite, row, &x);
        }
        for (int i = 0; i < SUITE_REPEAT(24); i++) {
            int64_t shape[VALUES_RANK_MAX];
            int rank = suite_shape(suite, 5, shape);
            struct sample x = suite_view(suite, dtype, rank, shape, fill_of(row, dtype));
            unary_once(suite, row, &x);
        }
        consumed_alone_and_shared(suite, row->opcode, fill_of(row, dtype), &dtype, 1, 2, (int64_t[]){3, 37});
    }
    int64_t large = SUITE_REPEAT(CASE_LARGE);
    enum dtype most = op_case_takes(row, DTYPE_F32) ? DTYPE_F32 : op_case_takes(row, DTYPE_I32) ? DTYPE_I32 : DTYPE_C64;
    struct sample x = suite_sample(suite, most, 1, &large, fill_of(row, most));
    unary_once(suite, row, &x);
}

static void binary_once(struct suite *suite, unsigned opcode, struct sample *a, struct sample *b) {
    struct sample result = suite_binary(suite, opcode, a, b);
    case_settle(suite, &result);
    suite_free(suite, a);
    suite_free(suite, b);
}

static void binary_lengths(struct suite *suite, const struct op_case *row, enum dtype dtype) {
    for (int i = 0; i < case_length_count; i++) {
        for (int scalar = 0; scalar < 3; scalar++) { /* none, the left, the right operand is one number */
            struct sample a = suite_sample(suite, dtype, scalar != 1, &case_lengths[i], fill_of(row, dtype));
            struct sample b = suite_sample(suite, dtype, scalar != 2, &case_lengths[i], fill_of(row, dtype));
            binary_once(suite, row->opcode, &a, &b);
        }
    }
}

static void binary_broadcast(struct suite *suite, const struct op_case *row, enum dtype dtype_a, enum dtype dtype_b) {
    int64_t shape[VALUES_RANK_MAX], shape_a[VALUES_RANK_MAX], shape_b[VALUES_RANK_MAX];
    int rank = suite_shape(suite, 5, shape);
    int rank_a = suite_narrower(suite, rank, shape, shape_a), rank_b = suite_narrower(suite, rank, shape, shape_b);
    enum suite_fill fill = fill_of(row, reference_promote(dtype_a, dtype_b));
    struct sample a = suite_input(suite, dtype_a, rank_a, shape_a, fill);
    struct sample b = suite_input(suite, dtype_b, rank_b, shape_b, fill);
    binary_once(suite, row->opcode, &a, &b);
}

static void binary_with_itself(struct suite *suite, const struct op_case *row, enum dtype dtype) {
    struct sample x = suite_sample(suite, dtype, 1, (int64_t[]){77}, fill_of(row, dtype));
    struct sample result = suite_binary(suite, row->opcode, &x, &x);
    case_settle(suite, &result);
    suite_free(suite, &x);
}

void case_elementwise_2(struct suite *suite, const struct op_case *row) {
    for (enum dtype a = DTYPE_BOOL; a < DTYPE_COUNT; a++) {
        for (enum dtype b = DTYPE_BOOL; b < DTYPE_COUNT; b++) {
            /* A pair with one boolean is promoted to a number, so every operation takes it. */
            if (!op_case_takes(row, reference_promote(a, b)))
                continue;
            for (int i = 0; i < SUITE_REPEAT(a == b ? 24 : 5); i++)
                binary_broadcast(suite, row, a, b);
            enum dtype both[] = {a, b};
            consumed_alone_and_shared(suite, row->opcode, fill_of(row, reference_promote(a, b)), both, 2, 2,
                                      (int64_t[]){2, 19});
        }
        if (!op_case_takes(row, a))
            continue;
        binary_lengths(suite, row, a);
        binary_with_itself(suite, row, a);
        consumed_and_broadcast(suite, row, a);
    }
    int64_t large = SUITE_REPEAT(CASE_LARGE);
    enum dtype dtype = op_case_takes(row, DTYPE_F32) ? DTYPE_F32 : DTYPE_I32;
    struct sample a = suite_sample(suite, dtype, 1, &large, row->fill);
    struct sample b = suite_sample(suite, dtype, 1, &large, row->fill);
    binary_once(suite, row->opcode, &a, &b);
}

static void case_cast(struct suite *suite, const struct op_case *row) {
    for (enum dtype from = DTYPE_BOOL; from < DTYPE_COUNT; from++) {
        for (enum dtype to = DTYPE_BOOL; to < DTYPE_COUNT; to++) {
            if (value_is_complex(from) && !value_is_complex(to) && to != DTYPE_BOOL)
                continue;
            for (int i = 0; i < SUITE_REPEAT(12); i++) {
                int64_t shape[VALUES_RANK_MAX];
                int rank = suite_shape(suite, 5, shape);
                struct sample x = i == 0 ? suite_sample(suite, from, 1, (int64_t[]){1000}, row->fill)
                                         : suite_input(suite, from, rank, shape, row->fill);
                struct sample result = suite_attributes(suite, OP_CAST, &x, SUITE_ATTRIBUTES(cast, .dtype = to));
                case_settle(suite, &result);
                suite_free(suite, &x);
            }
        }
    }
}

/* where's first input is a bool; clip's promotes with the others. */
static void ternary_once(struct suite *suite, const struct op_case *row, int rank, const int64_t *shape) {
    int64_t narrow[VALUES_RANK_MAX];
    struct sample inputs[3];
    const struct sample *pointers[3];
    enum dtype dtype = op_case_dtype(suite, row);
    bool where = row->opcode == OP_WHERE;
    enum dtype first = where ? DTYPE_BOOL : op_case_partner(suite, row, dtype);
    enum dtype both = where ? dtype : reference_promote(first, dtype);
    enum dtype dtypes[] = {first, dtype, op_case_partner(suite, row, both)};
    for (int i = 0; i < 3; i++) {
        int narrow_rank = suite_narrower(suite, rank, shape, narrow);
        inputs[i] = suite_input(suite, dtypes[i], narrow_rank, narrow, row->fill);
        pointers[i] = &inputs[i];
    }
    struct sample result =
        suite_run(suite, &(struct suite_call){.opcode = row->opcode, .n_inputs = 3, .inputs = pointers});
    case_settle(suite, &result);
    for (int i = 0; i < 3; i++)
        suite_free(suite, &inputs[i]);
}

void case_elementwise_3(struct suite *suite, const struct op_case *row) {
    for (int i = 0; i < case_length_count; i++)
        ternary_once(suite, row, 1, &case_lengths[i]);
    for (int i = 0; i < SUITE_REPEAT(300); i++) {
        int64_t shape[VALUES_RANK_MAX];
        ternary_once(suite, row, suite_shape(suite, 5, shape), shape);
    }
    for (enum dtype dtype = DTYPE_BOOL; dtype < DTYPE_COUNT; dtype++) {
        enum dtype dtypes[] = {row->opcode == OP_WHERE ? DTYPE_BOOL : dtype, dtype, dtype};
        if (op_case_takes(row, dtype))
            consumed_alone_and_shared(suite, row->opcode, FILL_ANY, dtypes, 3, 1, (int64_t[]){65});
    }
    ternary_once(suite, row, 1, (int64_t[]){SUITE_REPEAT(CASE_LARGE)});
}

const struct op_case op_case_cast = {case_cast, OP_CAST, FILL_ANY};
const struct op_case op_case_copy = {case_elementwise_1, OP_COPY, FILL_ANY};
