/* What each operation refuses: counts, dtypes, shapes and attributes; each is the failure of that operation alone. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/device/cases.h"

enum { NONE = STATUS_COUNT }; /* any failure will do */

/* The session's tensors, by the letters in a row's `inputs`. */
struct operand_row {
    char letter;
    enum dtype dtype;
    int rank;
    int64_t shape[VALUES_RANK_MAX];
};
static const struct operand_row operand_rows[] = {
    {'f', DTYPE_F32, 2, {3, 4}},  {'g', DTYPE_F32, 2, {4, 3}}, {'h', DTYPE_F32, 1, {5}},
    {'b', DTYPE_BOOL, 2, {3, 4}}, {'i', DTYPE_I32, 2, {3, 4}}, {'j', DTYPE_I64, 1, {2}},
    {'s', DTYPE_F32, 0, {0}},     {'e', DTYPE_F32, 2, {0, 4}}, {'8', DTYPE_F32, 8, {1, 1, 1, 1, 1, 1, 1, 1}},
    {'c', DTYPE_C64, 2, {3, 4}},
};

struct refusal {
    unsigned opcode;
    const char *inputs;
    unsigned n_ints;
    int64_t ints[33];
    unsigned n_floats;
    double floats[5];
    int code;
};

#define BIG ((int64_t)1 << 62)
static const struct refusal refusals[] = {
    {0, "", .code = NONE},
    {60000, "f", .code = NONE},
    {65535, "f", .code = NONE},
    {OP_ADD, "f", .code = STATUS_INVALID_ARGUMENT},
    {OP_ADD, "fff", .code = STATUS_INVALID_ARGUMENT},
    {OP_ADD, "ff", 1, {0}, .code = STATUS_INVALID_ARGUMENT},
    {OP_ADD, "ff", .n_floats = 1, .code = STATUS_INVALID_ARGUMENT},
    {OP_ADD, "fg", .code = STATUS_SHAPE},
    {OP_ADD, "fh", .code = STATUS_SHAPE},
    {OP_SUBTRACT, "bb", .code = STATUS_DTYPE},
    {OP_POW, "bb", .code = STATUS_DTYPE},
    {OP_NEGATIVE, "b", .code = STATUS_DTYPE},
    {OP_ABS, "b", .code = STATUS_DTYPE},
    {OP_RELU, "b", .code = STATUS_DTYPE},
    {OP_WHERE, "fff", .code = STATUS_DTYPE},
    {OP_SIN, "ff", .code = STATUS_INVALID_ARGUMENT},
    {OP_SIN, "f", .n_floats = 1, .code = STATUS_INVALID_ARGUMENT},
    {OP_LEAKY_RELU, "f", .code = STATUS_INVALID_ARGUMENT},
    {OP_SOFTPLUS, "f", .n_floats = 1, .code = STATUS_INVALID_ARGUMENT},
    {OP_CLIP, "ff", .code = STATUS_INVALID_ARGUMENT},
    {OP_CLIP, "bbb", .code = STATUS_DTYPE},
    {OP_CLIP, "fgf", .code = STATUS_SHAPE},
    {OP_BITWISE_AND, "fi", .code = STATUS_DTYPE},
    {OP_BITWISE_INVERT, "f", .code = STATUS_DTYPE},
    {OP_BITWISE_LEFT_SHIFT, "bb", .code = STATUS_DTYPE},
    {OP_NEXTAFTER, "ii", .code = STATUS_DTYPE},
    {OP_FLOOR_DIVIDE, "bb", .code = STATUS_DTYPE},
    {OP_SIGN, "b", .code = STATUS_DTYPE},
    {OP_LESS, "cf", .code = STATUS_DTYPE},
    {OP_CLIP, "cff", .code = STATUS_DTYPE},
    {OP_FLOOR, "c", .code = STATUS_DTYPE},
    {OP_SIGNBIT, "c", .code = STATUS_DTYPE},
    {OP_GELU, "c", .code = STATUS_DTYPE},
    {OP_IMAG, "f", .code = STATUS_DTYPE},
    {OP_CAST, "c", 1, {DTYPE_F64}, .code = STATUS_DTYPE},
    {OP_VAR, "c", 1, {0}, 1, {0}, STATUS_DTYPE},
    {OP_ARGMAX, "c", 2, {0, 0}, .code = STATUS_DTYPE},
    {OP_CUMMAX, "c", 1, {0}, .code = NONE},
    {OP_SORT, "c", 2, {0, 0}, .code = STATUS_DTYPE},
    {OP_SEARCHSORTED, "hc", 1, {0}, .code = STATUS_DTYPE},
    {OP_HISTOGRAM, "c", 1, {3}, 2, {0, 1}, STATUS_DTYPE},
    {OP_WHERE, "bfg", .code = STATUS_SHAPE},
    {OP_CAST, "f", 1, {0}, .code = NONE},
    {OP_CAST, "f", 1, {99}, .code = NONE},
    {OP_CAST, "f", .code = STATUS_INVALID_ARGUMENT},
    {OP_FULL, "", 2, {99, 0}, 1, {0}, NONE},
    {OP_FULL, "", 1, {DTYPE_F32}, 1, {0}, STATUS_INVALID_ARGUMENT},
    {OP_FULL, "", 3, {DTYPE_F32, 0, -1}, 1, {0}, NONE},
    {OP_FULL, "", 4, {DTYPE_F32, 0, BIG, 8}, 1, {0}, NONE},
    {OP_FULL, "", 11, {DTYPE_F32, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 1, {0}, NONE},
    {OP_FULL, "", 3, {DTYPE_U8, 256, 1}, 1, {0}, STATUS_INVALID_ARGUMENT},
    {OP_FULL, "f", 2, {DTYPE_F32, 0}, 1, {0}, STATUS_INVALID_ARGUMENT},
    {OP_ARANGE, "", 4, {DTYPE_I32, 0, 5, 0}, 3, {0}, STATUS_INVALID_ARGUMENT},
    {OP_ARANGE, "", 4, {DTYPE_F32}, 3, {0, 5, 0}, STATUS_INVALID_ARGUMENT},
    {OP_ARANGE, "", 4, {DTYPE_F32}, 3, {0, __builtin_nan(""), 1}, STATUS_INVALID_ARGUMENT},
    {OP_ARANGE, "", 4, {DTYPE_F32}, 3, {0, 1e300, 1e-300}, NONE},
    {OP_ARANGE, "", 4, {DTYPE_I64, INT64_MIN, INT64_MAX, 1}, 3, {0}, NONE},
    {OP_ARANGE, "", 4, {DTYPE_BOOL, 0, 2, 1}, 3, {0}, STATUS_DTYPE},
    {OP_EYE, "", 4, {DTYPE_F32, -1, 2, 0}, .code = NONE},
    {OP_UNIFORM, "", 4, {DTYPE_I32, 1, 0, 5}, 2, {0, 1}, STATUS_DTYPE},
    {OP_UNIFORM, "", 4, {DTYPE_F32, 1, 0, 5}, 2, {1, 0}, STATUS_INVALID_ARGUMENT},
    {OP_NORMAL, "", 4, {DTYPE_F32, 1, 0, 5}, 2, {0, -1}, STATUS_INVALID_ARGUMENT},
    {OP_NORMAL, "", 2, {DTYPE_F32, 1}, 2, {0, 1}, STATUS_INVALID_ARGUMENT},
    {OP_RESHAPE, "f", 2, {5, 2}, .code = STATUS_SHAPE},
    {OP_RESHAPE, "f", 2, {-1, -1}, .code = NONE},
    {OP_RESHAPE, "f", 2, {-1, 5}, .code = STATUS_SHAPE},
    {OP_RESHAPE, "f", 2, {-3, -4}, .code = NONE},
    {OP_RESHAPE, "e", 2, {-1, 0}, .code = NONE},
    {OP_RESHAPE, "f", 3, {BIG, 4, 12}, .code = NONE},
    {OP_PERMUTE_DIMS, "f", 1, {0}, .code = NONE},
    {OP_PERMUTE_DIMS, "f", 2, {0, 0}, .code = NONE},
    {OP_PERMUTE_DIMS, "f", 2, {0, 2}, .code = NONE},
    {OP_MATRIX_TRANSPOSE, "h", .code = STATUS_SHAPE},
    {OP_SLICE, "f", 3, {0, 1, 1}, .code = STATUS_INVALID_ARGUMENT},
    {OP_SLICE, "f", 6, {0, 1, 1, 0, 1, 0}, .code = STATUS_INVALID_ARGUMENT},
    {OP_BROADCAST_TO, "f", 1, {4}, .code = STATUS_SHAPE},
    {OP_BROADCAST_TO, "f", 2, {6, 4}, .code = STATUS_SHAPE},
    {OP_BROADCAST_TO, "s", 3, {BIG, BIG, BIG}, .code = NONE},
    {OP_SQUEEZE, "f", 1, {0}, .code = STATUS_SHAPE},
    {OP_SQUEEZE, "8", 2, {0, -8}, .code = NONE},
    {OP_SQUEEZE, "8", 1, {8}, .code = NONE},
    {OP_EXPAND_DIMS, "8", 1, {0}, .code = NONE},
    {OP_EXPAND_DIMS, "f", 1, {4}, .code = NONE},
    {OP_SUM, "f", .code = STATUS_INVALID_ARGUMENT},
    {OP_SUM, "f", 1, {2}, .code = STATUS_INVALID_ARGUMENT},
    {OP_SUM, "f", 2, {0, 2}, .code = NONE},
    {OP_SUM, "f", 3, {0, 1, -1}, .code = NONE},
    {OP_MAX, "e", 1, {0}, .code = STATUS_SHAPE},
    {OP_ARGMIN, "e", 2, {0, 0}, .code = STATUS_SHAPE},
    {OP_ARGMAX, "f", 3, {0, 0, 1}, .code = STATUS_INVALID_ARGUMENT},
    {OP_SOFTMAX, "i", 1, {0}, .code = STATUS_DTYPE},
    {OP_SOFTMAX, "f", 1, {2}, .code = NONE},
    {OP_LOG_SOFTMAX, "s", 1, {0}, .code = NONE},
    {OP_MATMUL, "ff", .code = STATUS_SHAPE},
    {OP_MATMUL, "fs", .code = STATUS_SHAPE},
    {OP_MATMUL, "bb", .code = NONE},
    {OP_LINEAR, "ff", 1, {3}, .code = STATUS_INVALID_ARGUMENT},
    {OP_LINEAR, "ff", 0, .code = STATUS_INVALID_ARGUMENT},
    {OP_LINEAR, "fff", 1, {0}, .code = STATUS_SHAPE},
    {OP_LINEAR, "fs", 1, {0}, .code = STATUS_SHAPE},
    {OP_LINEAR, "bb", 1, {1}, .code = NONE},
    {OP_LINEAR, "f", 1, {0}, .code = STATUS_INVALID_ARGUMENT},
    {OP_CONCAT, "", 1, {0}, .code = STATUS_INVALID_ARGUMENT},
    {OP_CONCAT, "fg", 1, {0}, .code = STATUS_SHAPE},
    {OP_CONCAT, "ss", 1, {0}, .code = NONE},
    {OP_STACK, "fg", 1, {0}, .code = STATUS_SHAPE},
    {OP_STACK, "88", 1, {0}, .code = NONE},
    {OP_TAKE, "ff", 1, {0}, .code = STATUS_DTYPE},
    {OP_TAKE, "fi", 1, {0}, .code = STATUS_SHAPE},
    {OP_TAKE, "fj", 1, {2}, .code = NONE},
    {OP_TAKE, "sj", 1, {0}, .code = NONE},
    {OP_TAKE, "ej", 1, {0}, .code = STATUS_OUT_OF_RANGE},
    {OP_TAKE_ALONG_AXIS, "fj", 1, {0}, .code = STATUS_SHAPE},
    {OP_TAKE_ALONG_AXIS, "fb", 1, {0}, .code = STATUS_DTYPE},
    {OP_ONE_HOT, "f", 2, {3, DTYPE_F32}, .code = STATUS_DTYPE},
    {OP_ONE_HOT, "j", 2, {0, DTYPE_F32}, .code = NONE},
    {OP_ONE_HOT, "j", 2, {-1, DTYPE_F32}, .code = NONE},
    {OP_ONE_HOT, "j", 2, {3, 42}, .code = NONE},
    {OP_TOPK, "f", 3, {1, 0, 1}, .code = STATUS_INVALID_ARGUMENT}, /* one output where there are two */
};

static uint64_t operand_id(const struct sample *samples, char letter) {
    for (size_t i = 0; i < sizeof operand_rows / sizeof *operand_rows; i++)
        if (operand_rows[i].letter == letter)
            return samples[i].id;
    return 0;
}

Test(refusals, each_is_the_failure_of_one_operation) {
    enum { OPERANDS = sizeof operand_rows / sizeof *operand_rows };
    struct suite suite;
    struct sample samples[OPERANDS];
    suite_open(&suite, 9);
    for (int i = 0; i < OPERANDS; i++)
        samples[i] =
            suite_sample(&suite, operand_rows[i].dtype, operand_rows[i].rank, operand_rows[i].shape, FILL_COUNT);
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *row = &refusals[i];
        const struct op_info *info = op_info(row->opcode);
        uint64_t ids[3], result;
        struct failure failure = {0};
        unsigned n = (unsigned)strlen(row->inputs);
        for (unsigned j = 0; j < n; j++)
            ids[j] = operand_id(samples, row->inputs[j]);
        struct op_request request = {.opcode = row->opcode,
                                     .n_inputs = n,
                                     .inputs = ids,
                                     .n_ints = row->n_ints,
                                     .ints = row->ints,
                                     .n_floats = row->n_floats,
                                     .floats = row->floats};
        int code = suite_submit(&suite, &request, &result);
        const char *name = info ? info->name : "nothing";
        if (code == STATUS_OK || (row->code != NONE && code != row->code))
            suite_fail(&suite, "row %zu, %s of '%s': got %s, expected %s", i, name, row->inputs, status_name(code),
                       row->code == NONE ? "a failure" : status_name(row->code));
        cr_assert_eq(suite_outcome(&suite, result, &failure), code, "row %zu", i);
        cr_assert_gt(strlen(failure.message), 0, "row %zu has no words", i);
    }
    for (int i = 0; i < OPERANDS; i++)
        suite_check(&suite, &samples[i]);
    suite_close(&suite);
}

/* How many integers the attributes have at least: each list but the last one has its count. */
static unsigned ints_least(const struct op_info *info) {
    unsigned lists = 0;
    for (unsigned i = 0; i < info->n_attributes; i++)
        lists += info->attributes[i].type >= OP_ATTRIBUTE_SHAPE;
    return info->ints_min + (lists > 1 ? lists - 1 : 0);
}

/* Whatever the suite does not run with the f8 formats refuses them, as inputs and as the result, and asks for a cast. */
Test(refusals, f8_is_not_computed_in) {
    struct suite suite;
    unsigned refused = 0;
    suite_open(&suite, 10);
    for (enum dtype dtype = DTYPE_F8E4M3; dtype <= DTYPE_F8E5M2; dtype++) {
        struct sample x = suite_sample(&suite, dtype, 2, (int64_t[]){3, 3}, FILL_COUNT);
        for (unsigned opcode = 1; opcode < OP_CODE_MAX; opcode++) {
            const struct op_info *info = op_info(opcode);
            if (!info || op_case_takes(op_case_find(opcode), dtype))
                continue;
            uint64_t ids[16], result;
            cr_assert_leq((size_t)info->inputs_min, sizeof ids / sizeof *ids);
            for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
                ids[i] = x.id;
            struct failure failure = {0};
            int64_t create[OP_PACKED_INTS] = {dtype, 0, 0, 5, 6}, first[OP_PACKED_INTS] = {0};
            bool creates = info->family == OP_FAMILY_CREATE;
            struct op_request request = {.opcode = opcode,
                                         .n_inputs = (unsigned)info->inputs_min,
                                         .inputs = ids,
                                         .n_ints = info->ints != OP_VARIES ? (unsigned)info->ints
                                                   : !creates              ? ints_least(info)
                                                   : info->ints_min > 4    ? info->ints_min
                                                                           : 4,
                                         .ints = creates ? create : first,
                                         .n_floats = (unsigned)info->floats,
                                         .floats = (double[OP_PACKED_FLOATS]){0, 1, 1},
                                         .further = info->n_outputs > 1 ? info->n_outputs - 1 : 0};
            int code = suite_submit(&suite, &request, &result);
            cr_assert_eq(code, STATUS_DTYPE, "%s: %s", info->name, status_name(code));
            cr_assert_eq(suite_outcome(&suite, result, &failure), STATUS_DTYPE);
            cr_assert(strstr(failure.message, value_name(dtype)) && strstr(failure.message, "cast"), "%s: %s",
                      info->name, failure.message);
            refused++;
        }
        suite_check(&suite, &x);
    }
    cr_assert_gt(refused, 70u);
    suite_close(&suite);
}
