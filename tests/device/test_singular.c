/* Matrices that cannot be factored show on the device only: they poison what is computed from them, and nothing else. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/device/suite.h"

/* Three matrices of three rows. Of the one in the middle, the elimination ends in row 2; `lower`: its lower triangle
 * is neither regular nor a part of a positive definite matrix. */
static struct sample matrices(struct suite *suite, enum dtype dtype, bool lower) {
    static const double regular[9] = {2, 1, 0, 1, 3, 1, 0, 1, 4};
    static const double singular[9] = {1, 0, 0, 0, 1, 0, 1, 1, 0}, triangle[9] = {2, 0, 0, 1, 3, 0, 1, 2, 0};
    struct values *values = values_create(dtype, 3, (int64_t[]){3, 3, 3});
    for (int64_t k = 0; k < values->count; k++)
        values->f[k] = k / 9 != 1 ? regular[k % 9] : lower ? triangle[k % 9] : singular[k % 9];
    return suite_upload(suite, values);
}

static const struct {
    unsigned opcode;
    int64_t ints[2];
    unsigned n_ints, n_inputs;
    bool lower;
} rows[] = {
    {OP_INV, {0}, 0, 1, false},
    {OP_SOLVE, {0}, 0, 2, false},
    {OP_LSTSQ, {0}, 0, 2, false},
    {OP_CHOLESKY, {0}, 1, 1, true},
    {OP_TRIANGULAR_SOLVE, {0, 0}, 2, 2, true},
};

Test(singular, one_matrix_poisons_the_result_and_is_named) {
    for (size_t i = 0; i < 4 * sizeof rows / sizeof *rows; i++) {
        static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F64, DTYPE_C64, DTYPE_C128};
        enum dtype dtype = dtypes[i % 4];
        struct suite suite;
        struct failure failure;
        uint64_t result, after;
        suite_open(&suite, 8);
        struct sample x = matrices(&suite, dtype, rows[i / 4].lower);
        struct sample b = suite_sample(&suite, dtype, 2, (int64_t[]){3, 2}, FILL_NEAR_ONE);
        struct op_request request = {.opcode = rows[i / 4].opcode,
                                     .n_inputs = rows[i / 4].n_inputs,
                                     .inputs = (uint64_t[]){x.id, b.id},
                                     .ints = rows[i / 4].ints,
                                     .n_ints = rows[i / 4].n_ints,
                                     .label = "step"};
        cr_assert_eq(suite_submit(&suite, &request, &result), STATUS_OK, "row %zu: only the device can know", i);
        uint64_t sequence = suite.sequence;
        cr_assert_eq(
            suite_submit(&suite, &(struct op_request){.opcode = OP_EXP, .n_inputs = 1, .inputs = &result}, &after),
            STATUS_OK);
        cr_assert_eq(suite_outcome(&suite, after, &failure), STATUS_SINGULAR, "row %zu", i);
        cr_assert(strstr(failure.message, "matrix 1 of the batch"), "row %zu: %s", i, failure.message);
        cr_assert(strstr(failure.message, "row 2"), "row %zu: %s", i, failure.message);
        cr_assert_str_eq(failure.operation, op_info(rows[i / 4].opcode)->name);
        cr_assert_str_eq(failure.label, "step");
        cr_assert_eq(failure.sequence, sequence);
        suite_check(&suite, &x);
        suite_close(&suite);
    }
}

static double number(struct suite *suite, uint64_t id) {
    struct suite_fetch fetch;
    double value;
    suite_fetch_start(suite, id, &fetch);
    suite_fetch_wait(suite, &fetch);
    cr_assert(!fetch.failed && fetch.fetch.bytes == 3 * sizeof value);
    uint8_t bytes[3 * sizeof value];
    suite_read(suite, &fetch.fetch, bytes);
    memcpy(&value, bytes + sizeof value, sizeof value);
    fetch_release(&fetch.fetch);
    return value;
}

Test(singular, determinants_say_so_and_are_no_errors) {
    struct suite suite;
    uint64_t determinant, sign;
    suite_open(&suite, 8);
    struct sample x = matrices(&suite, DTYPE_F64, false);
    struct op_request request = {.opcode = OP_DET, .n_inputs = 1, .inputs = &x.id};
    cr_assert_eq(suite_submit(&suite, &request, &determinant), STATUS_OK);
    request.opcode = OP_SLOGDET;
    request.further = 1;
    cr_assert_eq(suite_submit(&suite, &request, &sign), STATUS_OK);
    cr_expect_eq(number(&suite, determinant), 0);
    cr_expect_eq(number(&suite, sign), 0);
    double logarithm = number(&suite, sign + 1);
    cr_expect(logarithm < -1e300, "%g", logarithm);
    suite_close(&suite);
}
