/* Rules of recurrent layers. */
#include <criterion/criterion.h>

#include "tests/unit/infer.h"

Test(op_recurrent, the_result_has_the_state_of_each_step) {
    static const struct infer_case cases[] = {
        {OP_LSTM, "f32(7,3,5) f32(3,4) f32(3,4) f32(16,5) f32(16,4)", INTS(0), .result = "f32(7,3,4)"},
        {OP_LSTM, "f16(7,3,5) f16(3,4) f32(3,4) f16(16,5) f16(16,4) f16(16) f16(16)", INTS(1), .result = "f32(7,3,4)"},
        {OP_GRU, "f32(0,3,5) f32(3,4) f32(12,5) f32(12,4)", INTS(0), .result = "f32(0,3,4)"},
        {OP_GRU, "f32(7,3,5) f32(3,4) f32(12,5) f32(12,4) f32(12) f32(12)", INTS(0), .result = "f32(7,3,4)"},
        {OP_LSTM_GRAD,
         "f32(7,3,4) f32(3,4) f32(3,4) f32(7,3,5) f32(3,4) f32(3,4) f32(16,5) f32(16,4) f32(7,3,4) f32(7,3,16) "
         "f32(7,3,4)",
         INTS(0), .result = "f32(7,3,5)"},
        {OP_GRU_GRAD, "f32(7,3,4) f32(3,4) f32(7,3,5) f32(3,4) f32(12,5) f32(12,4) f32(7,3,4) f32(7,3,16)", INTS(0),
         .result = "f32(7,3,5)"},
    };
    INFER_CHECK(cases);
}

Test(op_recurrent, errors_name_the_shapes) {
    static const struct infer_case cases[] = {
        {OP_LSTM, "f32(7,5) f32(3,4) f32(3,4) f32(16,5) f32(16,4)", INTS(0), FAILS(SHAPE, "x (7, 5), h0 (3, 4)")},
        {OP_LSTM, "f32(7,3,5) f32(2,4) f32(3,4) f32(16,5) f32(16,4)", INTS(0), FAILS(SHAPE, "h0 (2, 4)")},
        {OP_LSTM, "f32(7,3,5) f32(3,4) f32(3,4) f32(12,5) f32(16,4)", INTS(0),
         FAILS(SHAPE, "w_ih is (12, 5), not (16, 5)")},
        {OP_LSTM, "f32(7,3,5) f32(3,4) f32(4) f32(16,5) f32(16,4)", INTS(0), FAILS(SHAPE, "c0 is (4,), not (3, 4)")},
        {OP_LSTM, "f32(7,3,5) f32(3,4) f32(3,4) f32(16,5) f32(16,4) f32(16)", INTS(0),
         FAILS(INVALID_ARGUMENT, "b_hh is not")},
        {OP_GRU, "f32(7,3,5) f32(3,4) f32(12,5) f32(12,4) f32(12) f32(4)", INTS(0),
         FAILS(SHAPE, "b_hh is (4,), not (12,)")},
        {OP_GRU, "f32(7,3,0) f32(3,4) f32(12,0) f32(12,4)", INTS(0), FAILS(SHAPE, "above 0")},
        {OP_GRU_GRAD, "f32(7,3,4) f32(3,4) f32(7,3,5) f32(3,4) f32(12,5) f32(12,4) f32(7,3,4) f32(7,3,12)", INTS(0),
         FAILS(SHAPE, "gates is (7, 3, 12), not (7, 3, 16)")},
    };
    INFER_CHECK(cases);
}
