/* Rules of decompositions and linear equations. */
#include "tests/unit/infer.h"

#include <criterion/criterion.h>

Test(op_decompose, squares_keep_their_shape) {
    static const struct infer_case cases[] = {
        {OP_CHOLESKY, "f32(3,3)", INTS(0), .result = "f32(3,3)"},
        {OP_CHOLESKY, "f64(7,0,0)", INTS(1), .result = "f64(7,0,0)"},
        {OP_CHOLESKY, "f32(3,3)", INTS(2), FAILS(INVALID_ARGUMENT, "upper is 2")},
        {OP_CHOLESKY, "f32(3,4)", INTS(0), FAILS(SHAPE, "the matrices of (3, 4) are not square")},
        {OP_INV, "f64(5,2,2)", .result = "f64(5,2,2)"},
        {OP_INV, "f32(2)", FAILS(SHAPE, "(2,) is no matrix")},
        {OP_INV, "f32()", FAILS(SHAPE, "() is no matrix")},
        {OP_INV, "i32(2,2)", FAILS(DTYPE, "i32")},
        {OP_INV, "bf16(2,2)", FAILS(DTYPE, "takes f32, f64 and complex numbers, not bf16")},
        {OP_INV, "c64(2,2)", .result = "c64(2,2)"},
        {OP_DET, "f32(4,3,3)", .result = "f32(4)"},
        {OP_DET, "f32(3,3)", .result = "f32()"},
        {OP_DET, "f32(0,0)", .result = "f32()"},
        {OP_DET, "f32(3,2)", FAILS(SHAPE, "not square")},
        {OP_EIGVALSH, "f32(7,3,3)", INTS(1), .result = "f32(7,3)"},
        {OP_EIGVALSH, "f64(0,0)", INTS(0), .result = "f64(0)"},
        {OP_EIGVALSH, "f32(3,4)", INTS(0), FAILS(SHAPE, "the matrices of (3, 4) are not square")},
        {OP_EIGVALSH, "f32(3,3)", INTS(2), FAILS(INVALID_ARGUMENT, "upper is 2")},
        {OP_SVDVALS, "f32(7,3,5)", .result = "f32(7,3)"},
        {OP_SVDVALS, "f64(5,0)", .result = "f64(0)"},
        {OP_EIGVALSH, "c64(3,3)", INTS(1), .result = "f32(3)"},
        {OP_SVDVALS, "c128(2,5)", .result = "f64(2)"},
        {OP_SVDVALS, "f32(5)", FAILS(SHAPE, "(5,) is no matrix")},
        {OP_SVDVALS, "i64(2,2)", FAILS(DTYPE, "i64")},
    };
    INFER_CHECK(cases);
}

Test(op_decompose, equations_broadcast_their_batches) {
    static const struct infer_case cases[] = {
        {OP_SOLVE, "f32(3,3) f32(3)", .result = "f32(3)"},
        {OP_SOLVE, "f32(3,3) f64(3,5)", .result = "f64(3,5)"},
        {OP_SOLVE, "f32(3,3) c64(3,5)", .result = "c64(3,5)"},
        {OP_SOLVE, "f32(4,3,3) f32(3)", .result = "f32(4,3)"},
        {OP_SOLVE, "f32(4,1,3,3) f32(7,3,2)", .result = "f32(4,7,3,2)"},
        {OP_SOLVE, "f32(3,3) f32(2)", FAILS(SHAPE, "(2,) has not the rows of (3, 3)")},
        {OP_SOLVE, "f32(3,3) f32()", FAILS(SHAPE, "() has not the rows of (3, 3)")},
        {OP_SOLVE, "f32(3,4) f32(3)", FAILS(SHAPE, "not square")},
        {OP_SOLVE, "f32(2,3,3) f32(4,3,1)", FAILS(SHAPE, "the batches of (2, 3, 3) and (4, 3, 1) do not broadcast")},
        {OP_TRIANGULAR_SOLVE, "f32(3,3) f32(3,0)", INTS(1, 0), .result = "f32(3,0)"},
        {OP_TRIANGULAR_SOLVE, "f32(3,3) f32(3,1)", INTS(1, 3), FAILS(INVALID_ARGUMENT, "unit_diagonal is 3")},
        {OP_LSTSQ, "f32(5,3) f32(5)", .result = "f32(3)"},
        {OP_LSTSQ, "f32(2,3,5) f32(3,4)", .result = "f32(2,5,4)"},
        {OP_LSTSQ, "f32(5,3) f32(3)", FAILS(SHAPE, "(3,) has not the rows of (5, 3)")},
        {OP_LSTSQ, "f32(5) f32(5)", FAILS(SHAPE, "(5,) is no matrix")},
    };
    INFER_CHECK(cases);
}

static void has_shape(const struct tensor_type *type, int64_t rows, int64_t columns) {
    cr_expect_eq(type->rank, 3);
    cr_expect_eq(type->shape[0], 7);
    cr_expect_eq(type->shape[1], rows);
    cr_expect_eq(type->shape[2], columns);
    cr_expect_eq(type->dtype, DTYPE_F64);
}

Test(op_decompose, factors_share_the_lesser_extent) {
    const int64_t complete = OP_QR_MODE_COMPLETE, reduced = OP_QR_MODE_REDUCED;
    for (int64_t m = 0; m < 5; m++) {
        for (int64_t n = 0; n < 5; n++) {
            const struct tensor_type x = {.dtype = DTYPE_F64, .rank = 3, .shape = {7, m, n}}, *input = &x;
            int64_t k = m < n ? m : n;
            struct tensor_type out[3];
            struct fault fault;
            cr_assert_eq(op_infer(OP_LU, &input, 1, &(struct op_attributes){0}, out, &fault), STATUS_OK, "%s",
                         fault.message);
            has_shape(&out[0], m, m);
            has_shape(&out[1], m, k);
            has_shape(&out[2], k, n);
            cr_assert_eq(
                op_infer(OP_QR, &input, 1, &(struct op_attributes){.ints = &reduced, .n_ints = 1}, out, &fault),
                STATUS_OK, "%s", fault.message);
            has_shape(&out[0], m, k);
            has_shape(&out[1], k, n);
            cr_assert_eq(
                op_infer(OP_QR, &input, 1, &(struct op_attributes){.ints = &complete, .n_ints = 1}, out, &fault),
                STATUS_OK, "%s", fault.message);
            has_shape(&out[0], m, m);
            has_shape(&out[1], m, n);
        }
    }
}

static void infer_all(unsigned opcode, int64_t attribute, const struct tensor_type *x, struct tensor_type *out) {
    struct fault fault;
    cr_assert_eq(op_infer(opcode, &x, 1, &(struct op_attributes){.ints = &attribute, .n_ints = 1}, out, &fault),
                 STATUS_OK, "%s", fault.message);
}

Test(op_decompose, eigenvectors_are_square_and_singular_vectors_full_or_not) {
    for (int64_t m = 0; m < 5; m++) {
        for (int64_t n = 0; n < 5; n++) {
            const struct tensor_type x = {.dtype = DTYPE_F64, .rank = 3, .shape = {7, m, n}};
            int64_t k = m < n ? m : n;
            struct tensor_type out[3];
            infer_all(OP_SVD, 0, &x, out);
            has_shape(&out[0], m, k);
            has_shape(&out[2], k, n);
            cr_expect(out[1].rank == 2 && out[1].shape[0] == 7 && out[1].shape[1] == k);
            infer_all(OP_SVD, 1, &x, out);
            has_shape(&out[0], m, m);
            has_shape(&out[2], n, n);
            if (m == n) {
                infer_all(OP_EIGH, 1, &x, out);
                cr_expect(out[0].rank == 2 && out[0].shape[1] == n && out[0].dtype == DTYPE_F64);
                has_shape(&out[1], n, n);
            }
        }
    }
}

Test(op_decompose, slogdet_gives_two_numbers_for_each_matrix) {
    const struct tensor_type x = {.dtype = DTYPE_F32, .rank = 3, .shape = {7, 3, 3}}, *input = &x;
    struct tensor_type out[2];
    struct fault fault;
    cr_assert_eq(op_infer(OP_SLOGDET, &input, 1, &(struct op_attributes){0}, out, &fault), STATUS_OK, "%s",
                 fault.message);
    for (int i = 0; i < 2; i++)
        cr_assert(out[i].rank == 1 && out[i].shape[0] == 7 && out[i].dtype == DTYPE_F32);
}
