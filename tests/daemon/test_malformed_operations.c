/* Operations that name what is not there, or whose attributes, shapes and values make no sense: each fails by itself,
 * with words, and its session goes on. */
#include <criterion/criterion.h>
#include <math.h>

#include "tests/daemon/hostile.h"

TestSuite(malformed_operations, .timeout = 240);

enum { KEPT = HOSTILE_KEPT, SPARE = HOSTILE_SPARE, INDICES = HOSTILE_INDICES, NEXT = HOSTILE_NEXT };

/* One operation that binds NEXT and must poison it. */
#define FAILS(name, code, opcode, ...)                                                                                 \
    {                                                                                                                  \
        name, HOSTILE_SESSION, NULL, HOSTILE_FAILS, code, NEXT, &(const struct wire_op) {                              \
            opcode, NEXT, NEXT, __VA_ARGS__                                                                            \
        }                                                                                                              \
    }
/* One where the connection may be closed just as well. */
#define EITHER(name, opcode, ...)                                                                                      \
    {                                                                                                                  \
        name, HOSTILE_SESSION, NULL, HOSTILE_EITHER, 0, NEXT, &(const struct wire_op) {                                \
            opcode, NEXT, NEXT, __VA_ARGS__                                                                            \
        }                                                                                                              \
    }
#define LIVES(name, opcode, ...)                                                                                       \
    {                                                                                                                  \
        name, HOSTILE_SESSION, NULL, HOSTILE_LIVES, 0, NEXT, &(const struct wire_op) {                                 \
            opcode, NEXT, NEXT, __VA_ARGS__                                                                            \
        }                                                                                                              \
    }
/* FULL with these extents after dtype and value. */
#define FULL(name, dtype, ...) FAILS(name, 0, OP_FULL, WIRE_INTS(dtype, 0, __VA_ARGS__), WIRE_FLOATS(0))

#define BIG INT64_MAX
#define TEN(x) x, x, x, x, x, x, x, x, x, x

static const struct hostile_row rows[] = {
    /* ids */
    FAILS("unknown input", STATUS_UNKNOWN_ID, OP_ADD, WIRE_INPUTS(KEPT, 999)),
    FAILS("zero as input", STATUS_UNKNOWN_ID, OP_ADD, WIRE_INPUTS(0, 0)),
    FAILS("largest id as input", STATUS_UNKNOWN_ID, OP_ADD, WIRE_INPUTS(UINT64_MAX, KEPT)),
    FAILS("another session's id as input", STATUS_UNKNOWN_ID, OP_ADD, WIRE_INPUTS(KEPT, HOSTILE_FOREIGN)),
    FAILS("its own output as input", STATUS_UNKNOWN_ID, OP_ADD, WIRE_INPUTS(NEXT, KEPT)),
    FAILS("its own output as only input", STATUS_UNKNOWN_ID, OP_COPY, WIRE_INPUTS(NEXT)),
    LIVES("free of an unknown id", OP_FREE, WIRE_INPUTS(999)),
    LIVES("free of zero", OP_FREE, WIRE_INPUTS(0)),
    LIVES("free of another session's id", OP_FREE, WIRE_INPUTS(HOSTILE_FOREIGN)),
    LIVES("free of one id twice at once", OP_FREE, WIRE_INPUTS(SPARE, SPARE)),
    LIVES("one input consumed twice", OP_ADD, WIRE_INPUTS(SPARE, SPARE), .consume = 3),
    EITHER("consume mask beyond the inputs", OP_ADD, WIRE_INPUTS(SPARE, SPARE), .consume = 0x8000),
    EITHER("free that also consumes", OP_FREE, WIRE_INPUTS(SPARE), .consume = 1),
    /* shapes */
    FULL("negative extent", DTYPE_F32, -1),
    FULL("most negative extent", DTYPE_F32, INT64_MIN),
    FULL("extent whose bytes overflow", DTYPE_F64, INT64_C(1) << 61),
    FULL("largest extent", DTYPE_BOOL, BIG),
    FULL("product that overflows to zero", DTYPE_F32, INT64_C(1) << 32, INT64_C(1) << 32),
    FULL("product that overflows to a small number", DTYPE_U8, (INT64_C(1) << 32) + 1, (INT64_C(1) << 32) + 1),
    FULL("rank 9", DTYPE_F32, 1, 1, 1, 1, 1, 1, 1, 1, 1),
    FULL("rank 40", DTYPE_F32, TEN(1), TEN(1), TEN(1), TEN(1)),
    FULL("more memory than there is", DTYPE_F32, INT64_C(1) << 45),
    EITHER("overflowing product with a zero in it", OP_FULL, WIRE_INTS(DTYPE_F32, 0, 0, BIG, BIG), WIRE_FLOATS(0)),
    FAILS("reshape to more elements", 0, OP_RESHAPE, WIRE_INPUTS(KEPT), WIRE_INTS(5)),
    FAILS("reshape with two unknown extents", 0, OP_RESHAPE, WIRE_INPUTS(KEPT), WIRE_INTS(-1, -1)),
    FAILS("reshape whose product overflows to four", 0, OP_RESHAPE, WIRE_INPUTS(KEPT),
          WIRE_INTS(INT64_C(1) << 62, 4, 4, 1)),
    FAILS("reshape around an unknown extent that overflows", 0, OP_RESHAPE, WIRE_INPUTS(KEPT), WIRE_INTS(-1, BIG, BIG)),
    FAILS("reshape with zero and unknown", 0, OP_RESHAPE, WIRE_INPUTS(KEPT), WIRE_INTS(-1, 0)),
    FAILS("broadcast_to a huge shape that does not fit", 0, OP_BROADCAST_TO, WIRE_INPUTS(KEPT), WIRE_INTS(BIG, BIG, 4)),
    FAILS("broadcast_to a lower rank", 0, OP_BROADCAST_TO, WIRE_INPUTS(KEPT), .n_ints = 0),
    FAILS("permute with an axis twice", 0, OP_PERMUTE_DIMS, WIRE_INPUTS(KEPT), WIRE_INTS(0, 0)),
    FAILS("permute with an axis that is not there", 0, OP_PERMUTE_DIMS, WIRE_INPUTS(KEPT), WIRE_INTS(1)),
    FAILS("permute with a huge axis", 0, OP_PERMUTE_DIMS, WIRE_INPUTS(KEPT), WIRE_INTS(INT64_C(1) << 32)),
    FAILS("transpose of rank 1", 0, OP_MATRIX_TRANSPOSE, WIRE_INPUTS(KEPT)),
    FAILS("squeeze of an extent that is not 1", 0, OP_SQUEEZE, WIRE_INPUTS(KEPT), WIRE_INTS(0)),
    FAILS("squeeze of the most negative axis", 0, OP_SQUEEZE, WIRE_INPUTS(KEPT), WIRE_INTS(INT64_MIN)),
    FAILS("expand_dims at the largest axis", 0, OP_EXPAND_DIMS, WIRE_INPUTS(KEPT), WIRE_INTS(BIG)),
    FAILS("expand_dims at the most negative axis", 0, OP_EXPAND_DIMS, WIRE_INPUTS(KEPT), WIRE_INTS(INT64_MIN)),
    FAILS("slice with step 0", 0, OP_SLICE, WIRE_INPUTS(KEPT), WIRE_INTS(0, 4, 0)),
    FAILS("slice with too few numbers", 0, OP_SLICE, WIRE_INPUTS(KEPT), WIRE_INTS(0, 4)),
    FAILS("slice with too many numbers", 0, OP_SLICE, WIRE_INPUTS(KEPT), WIRE_INTS(0, 4, 1, 0, 4, 1)),
    FAILS("slice of an unknown tensor", 0, OP_SLICE, WIRE_INPUTS(999), WIRE_INTS(0, 4, 1)),
    LIVES("slice far outside", OP_SLICE, WIRE_INPUTS(KEPT), WIRE_INTS(BIG - 1, BIG, BIG)),
    LIVES("slice far outside backwards", OP_SLICE, WIRE_INPUTS(KEPT), WIRE_INTS(BIG, INT64_MIN + 1, INT64_MIN + 1)),
    LIVES("slice with the most negative step", OP_SLICE, WIRE_INPUTS(KEPT),
          WIRE_INTS(OP_SLICE_NONE, OP_SLICE_NONE, INT64_MIN)),
    FAILS("shapes that do not broadcast", 0, OP_ADD, WIRE_INPUTS(KEPT, INDICES)),
    FAILS("matmul of shapes that do not fit", 0, OP_MATMUL, WIRE_INPUTS(KEPT, INDICES)),
    FAILS("concat along an axis that is not there", 0, OP_CONCAT, WIRE_INPUTS(KEPT, KEPT), WIRE_INTS(3)),
    FAILS("stack of different shapes", 0, OP_STACK, WIRE_INPUTS(KEPT, INDICES), WIRE_INTS(0)),
    FAILS("stack along a huge axis", 0, OP_STACK, WIRE_INPUTS(KEPT, KEPT), WIRE_INTS(INT64_C(1) << 33)),
    FAILS("softmax along an axis that is not there", 0, OP_SOFTMAX, WIRE_INPUTS(KEPT), WIRE_INTS(1)),
    /* enum values */
    FULL("dtype 0", 0, 4),
    FULL("a dtype beyond the last", DTYPE_COUNT, 4),
    FULL("dtype -1", -1, 4),
    FULL("dtype that is f32 modulo 2^32", (INT64_C(1) << 32) + DTYPE_F32, 4),
    FAILS("cast to no dtype", 0, OP_CAST, WIRE_INPUTS(KEPT), WIRE_INTS(0)),
    FAILS("cast to a huge dtype", 0, OP_CAST, WIRE_INPUTS(KEPT), WIRE_INTS(BIG)),
    FAILS("one_hot to no dtype", 0, OP_ONE_HOT, WIRE_INPUTS(INDICES), WIRE_INTS(4, 99)),
    EITHER("opcode 0", 0, WIRE_INPUTS(KEPT)),
    EITHER("opcode in a gap", 200, WIRE_INPUTS(KEPT)),
    EITHER("opcode over the table", 256, WIRE_INPUTS(KEPT)),
    EITHER("largest opcode", 65535, WIRE_INPUTS(KEPT)),
    EITHER("keepdims 7", OP_SUM, WIRE_INPUTS(KEPT), WIRE_INTS(7)),
    /* arity and attributes */
    FAILS("add of one", 0, OP_ADD, WIRE_INPUTS(KEPT)),
    FAILS("add of three", 0, OP_ADD, WIRE_INPUTS(KEPT, KEPT, KEPT)),
    FAILS("matmul of nothing", 0, OP_MATMUL, .n_inputs = 0),
    FAILS("where without its last input", 0, OP_WHERE, WIRE_INPUTS(KEPT, KEPT)),
    FAILS("full with an input", 0, OP_FULL, WIRE_INPUTS(KEPT), WIRE_INTS(DTYPE_F32, 0, 4), WIRE_FLOATS(0)),
    FAILS("concat of nothing", 0, OP_CONCAT, WIRE_INTS(0)),
    FAILS("concat of 40 that do not fit", 0, OP_CONCAT, WIRE_INPUTS(TEN(KEPT), TEN(KEPT), TEN(KEPT), TEN(INDICES), 999),
          WIRE_INTS(0)),
    LIVES("free of nothing", OP_FREE, .n_inputs = 0),
    FAILS("full without attributes", 0, OP_FULL, .n_ints = 0),
    FAILS("full without its value", 0, OP_FULL, WIRE_INTS(DTYPE_F32, 0, 4)),
    FAILS("full with two values", 0, OP_FULL, WIRE_INTS(DTYPE_F32, 0, 4), WIRE_FLOATS(0, 0)),
    FAILS("cast without dtype", 0, OP_CAST, WIRE_INPUTS(KEPT)),
    FAILS("cast with two dtypes", 0, OP_CAST, WIRE_INPUTS(KEPT), WIRE_INTS(DTYPE_F32, DTYPE_F64)),
    FAILS("add with attributes", 0, OP_ADD, WIRE_INPUTS(KEPT, KEPT), WIRE_INTS(1), WIRE_FLOATS(1)),
    FAILS("arange without floats", 0, OP_ARANGE, WIRE_INTS(DTYPE_I32, 0, 4, 1)),
    FAILS("sum without keepdims", 0, OP_SUM, WIRE_INPUTS(KEPT)),
    FAILS("sum over one axis twice", 0, OP_SUM, WIRE_INPUTS(KEPT), WIRE_INTS(0, 0, 0)),
    FAILS("sum over an axis that is not there", 0, OP_SUM, WIRE_INPUTS(KEPT), WIRE_INTS(0, 1)),
    FAILS("sum over the most negative axis", 0, OP_SUM, WIRE_INPUTS(KEPT), WIRE_INTS(0, INT64_MIN)),
    FAILS("sum over 40 axes", 0, OP_SUM, WIRE_INPUTS(KEPT), WIRE_INTS(TEN(0), TEN(0), TEN(0), TEN(0))),
    FAILS("argmax over two axes", 0, OP_ARGMAX, WIRE_INPUTS(KEPT), WIRE_INTS(0, 0, -1)),
    FAILS("condition that is not bool", 0, OP_WHERE, WIRE_INPUTS(KEPT, KEPT, KEPT)),
    FAILS("take with float indices", 0, OP_TAKE, WIRE_INPUTS(KEPT, KEPT), WIRE_INTS(0)),
    FAILS("take along an axis that is not there", 0, OP_TAKE, WIRE_INPUTS(KEPT, INDICES), WIRE_INTS(5)),
    /* values */
    FAILS("take of an index out of range", STATUS_OUT_OF_RANGE, OP_TAKE, WIRE_INPUTS(KEPT, INDICES), WIRE_INTS(0)),
    FAILS("take_along_axis out of range", STATUS_OUT_OF_RANGE, OP_TAKE_ALONG_AXIS, WIRE_INPUTS(KEPT, INDICES),
          WIRE_INTS(0)),
    FAILS("one_hot out of range", STATUS_OUT_OF_RANGE, OP_ONE_HOT, WIRE_INPUTS(INDICES), WIRE_INTS(4, DTYPE_F32)),
    FAILS("one_hot of negative classes", 0, OP_ONE_HOT, WIRE_INPUTS(INDICES), WIRE_INTS(-4, DTYPE_F32)),
    FAILS("one_hot of too many classes", 0, OP_ONE_HOT, WIRE_INPUTS(INDICES), WIRE_INTS(BIG, DTYPE_F32)),
    FAILS("eye with negative rows", 0, OP_EYE, WIRE_INTS(DTYPE_F32, -1, 4, 0)),
    FAILS("eye that overflows", 0, OP_EYE, WIRE_INTS(DTYPE_F32, INT64_C(1) << 32, INT64_C(1) << 32, 0)),
    LIVES("eye with a diagonal far outside", OP_EYE, WIRE_INTS(DTYPE_F32, 2, 2, INT64_MIN)),
    FAILS("arange with step 0", 0, OP_ARANGE, WIRE_INTS(DTYPE_I64, 0, 4, 0), WIRE_FLOATS(0, 4, 0)),
    FAILS("arange without end", 0, OP_ARANGE, WIRE_INTS(DTYPE_F64, 0, 0, 1), WIRE_FLOATS(0, INFINITY, 1)),
    FAILS("arange of NaN", 0, OP_ARANGE, WIRE_INTS(DTYPE_F64, 0, 0, 1), WIRE_FLOATS(NAN, 4, 1)),
    FAILS("arange of all integers", 0, OP_ARANGE, WIRE_INTS(DTYPE_I64, INT64_MIN, INT64_MAX, 1),
          WIRE_FLOATS(-9.3e18, 9.3e18, 1)),
    FAILS("arange with a tiny step", 0, OP_ARANGE, WIRE_INTS(DTYPE_F64, 0, 1, 1), WIRE_FLOATS(0, 1e300, 1e-300)),
    FAILS("uniform integers", 0, OP_UNIFORM, WIRE_INTS(DTYPE_I32, 1, 0, 4), WIRE_FLOATS(0, 1)),
    EITHER("uniform between NaN and infinity", OP_UNIFORM, WIRE_INTS(DTYPE_F32, 1, 0, 4), WIRE_FLOATS(NAN, INFINITY)),
    LIVES("uniform with extreme seed and offset", OP_UNIFORM, WIRE_INTS(DTYPE_F32, INT64_MIN, INT64_MAX, 4),
          WIRE_FLOATS(0, 1)),
    /* streams and numbers */
    FAILS("stream that is not open", 0, OP_ADD, WIRE_INPUTS(KEPT, KEPT), .stream = 77),
    FAILS("largest stream number", 0, OP_ADD, WIRE_INPUTS(KEPT, KEPT), .stream = UINT32_MAX),
};

Test(malformed_operations, every_row) {
    hostile_run(rows, sizeof rows / sizeof *rows, NULL);
}
