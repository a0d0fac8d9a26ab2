#include <stdbool.h>
#include <stddef.h>

#include "proto/ops/op.h"
#include "tests/daemon/autograd_cases.h"

/* One of the results that have gradients; `which` 3, of gru 2: all of them. */
static td_tensor *lstm(td_tensor **x, td_tensor *b_ih, td_tensor *b_hh, int reverse, int which) {
    td_tensor *result = NULL, *h = NULL, *c = NULL, *gates = NULL, *cells = NULL;
    td_lstm(td_square(x[0]), x[1], x[2], x[3], x[4], b_ih, b_hh, reverse, &result, &h, &c, &gates, &cells);
    return which == 0 ? result : which == 1 ? h : which == 2 ? c : td_multiply(td_multiply(result, h), c);
}

static td_tensor *gru(td_tensor **x, td_tensor *b_ih, td_tensor *b_hh, int reverse, int which) {
    td_tensor *result = NULL, *h = NULL, *gates = NULL;
    td_gru(td_square(x[0]), x[1], x[2], x[3], b_ih, b_hh, reverse, &result, &h, &gates);
    return which == 0 ? result : which == 1 ? h : td_multiply(result, h);
}

static td_tensor *lstm_result(td_tensor **x) {
    return lstm(x, NULL, NULL, 0, 0);
}
static const struct autograd_case lstm_result_case = {OP_LSTM,
                                                      "the result alone",
                                                      lstm_result,
                                                      -1,
                                                      1,
                                                      true,
                                                      5,
                                                      {3, 2, 2, 2, 2},
                                                      {{3, 2, 3}, {2, 2}, {2, 2}, {8, 3}, {8, 2}}};

static td_tensor *lstm_h(td_tensor **x) {
    return lstm(x, NULL, NULL, 0, 1);
}
static const struct autograd_case lstm_h_case = {
    OP_LSTM, "h_n alone", lstm_h, -1, 1, true, 5, {3, 2, 2, 2, 2}, {{3, 2, 3}, {2, 2}, {2, 2}, {8, 3}, {8, 2}}};

static td_tensor *lstm_c(td_tensor **x) {
    return lstm(x, x[5], x[6], 0, 2);
}
static const struct autograd_case lstm_c_case = {OP_LSTM,
                                                 "c_n alone, biases",
                                                 lstm_c,
                                                 -1,
                                                 1,
                                                 true,
                                                 7,
                                                 {3, 2, 2, 2, 2, 1, 1},
                                                 {{3, 2, 3}, {2, 2}, {2, 2}, {8, 3}, {8, 2}, {8}, {8}}};

static td_tensor *lstm_all(td_tensor **x) {
    return lstm(x, x[5], x[6], 0, 3);
}
static const struct autograd_case lstm_all_case = {OP_LSTM,
                                                   "all results, biases",
                                                   lstm_all,
                                                   -1,
                                                   1,
                                                   true,
                                                   7,
                                                   {3, 2, 2, 2, 2, 1, 1},
                                                   {{3, 2, 3}, {2, 2}, {2, 2}, {8, 3}, {8, 2}, {8}, {8}}};

static td_tensor *lstm_reverse(td_tensor **x) {
    return lstm(x, x[5], x[6], 1, 3);
}
static const struct autograd_case lstm_reverse_case = {OP_LSTM,
                                                       "reverse",
                                                       lstm_reverse,
                                                       -1,
                                                       1,
                                                       true,
                                                       7,
                                                       {3, 2, 2, 2, 2, 1, 1},
                                                       {{3, 2, 3}, {2, 2}, {2, 2}, {8, 3}, {8, 2}, {8}, {8}}};

static td_tensor *lstm_bias(td_tensor **x) {
    return lstm(x, x[5], x[5], 0, 0);
}
static const struct autograd_case lstm_bias_case = {OP_LSTM,
                                                    "one tensor as both biases",
                                                    lstm_bias,
                                                    -1,
                                                    1,
                                                    true,
                                                    6,
                                                    {3, 2, 2, 2, 2, 1},
                                                    {{3, 2, 3}, {2, 2}, {2, 2}, {8, 3}, {8, 2}, {8}}};

static td_tensor *gru_result(td_tensor **x) {
    return gru(x, NULL, NULL, 0, 0);
}
static const struct autograd_case gru_result_case = {
    OP_GRU, "the result alone", gru_result, -1, 1, true, 4, {3, 2, 2, 2}, {{3, 2, 3}, {2, 2}, {6, 3}, {6, 2}}};

static td_tensor *gru_h(td_tensor **x) {
    return gru(x, x[4], x[5], 0, 1);
}
static const struct autograd_case gru_h_case = {OP_GRU,
                                                "h_n alone, biases",
                                                gru_h,
                                                -1,
                                                1,
                                                true,
                                                6,
                                                {3, 2, 2, 2, 1, 1},
                                                {{3, 2, 3}, {2, 2}, {6, 3}, {6, 2}, {6}, {6}}};

static td_tensor *gru_all(td_tensor **x) {
    return gru(x, x[4], x[5], 0, 2);
}
static const struct autograd_case gru_all_case = {OP_GRU,
                                                  "all results, biases",
                                                  gru_all,
                                                  -1,
                                                  1,
                                                  true,
                                                  6,
                                                  {3, 2, 2, 2, 1, 1},
                                                  {{3, 2, 3}, {2, 2}, {6, 3}, {6, 2}, {6}, {6}}};

static td_tensor *gru_reverse(td_tensor **x) {
    return gru(x, x[4], x[5], 1, 2);
}
static const struct autograd_case gru_reverse_case = {
    OP_GRU, "reverse", gru_reverse, -1, 1, true, 6, {3, 2, 2, 2, 1, 1}, {{3, 2, 3}, {2, 2}, {6, 3}, {6, 2}, {6}, {6}}};

/* All elements of several tensors. */
static td_tensor *joined(td_tensor *const *all, int count) {
    td_tensor *flat[6];
    for (int i = 0; i < count; i++)
        flat[i] = td_reshape(all[i], TD_SHAPE(-1));
    return td_concat(flat, count, 0);
}

/* What a layer keeps for its gradient, alone and with the rest. */
static td_tensor *lstm_kept(td_tensor **x, int reverse, bool alone) {
    td_tensor *all[5] = {NULL};
    td_lstm(td_square(x[0]), x[1], x[2], x[3], x[4], x[5], x[6], reverse, &all[0], &all[1], &all[2], &all[3], &all[4]);
    return joined(all + 3 * alone, alone ? 2 : 5);
}
static td_tensor *gru_kept(td_tensor **x, int reverse, bool alone) {
    td_tensor *all[3] = {NULL};
    td_gru(td_square(x[0]), x[1], x[2], x[3], x[4], x[5], reverse, &all[0], &all[1], &all[2]);
    return joined(all + 2 * alone, alone ? 1 : 3);
}

/* The gradients of layers, as functions of all that they take. */
static td_tensor *lstm_grad(td_tensor **x, int reverse) {
    td_tensor *by[6] = {NULL};
    td_lstm_grad(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], x[9], x[10], reverse, &by[0], &by[1], &by[2],
                 &by[3], &by[4], &by[5]);
    return joined(by, 6);
}
static td_tensor *gru_grad(td_tensor **x, int reverse) {
    td_tensor *by[6] = {NULL};
    td_gru_grad(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], reverse, &by[0], &by[1], &by[2], &by[3], &by[4],
                &by[5]);
    return joined(by, 6);
}

/* The same with what a layer has kept: x, states, weights, and biases. */
static td_tensor *lstm_then_grad(td_tensor **x, int reverse) {
    td_tensor *all[5] = {NULL}, *by[6] = {NULL};
    td_lstm(x[0], x[1], x[2], x[3], x[4], x[5], x[6], reverse, &all[0], &all[1], &all[2], &all[3], &all[4]);
    td_lstm_grad(td_sin(all[0]), all[2], all[1], x[0], x[1], x[2], x[3], x[4], all[0], all[3], all[4], reverse, &by[0],
                 &by[1], &by[2], &by[3], &by[4], &by[5]);
    return joined(by, 6);
}
static td_tensor *gru_then_grad(td_tensor **x, int reverse) {
    td_tensor *all[3] = {NULL}, *by[6] = {NULL};
    td_gru(x[0], x[1], x[2], x[3], x[4], x[5], reverse, &all[0], &all[1], &all[2]);
    td_gru_grad(td_sin(all[0]), all[1], x[0], x[1], x[2], x[3], all[0], all[2], reverse, &by[0], &by[1], &by[2], &by[3],
                &by[4], &by[5]);
    return joined(by, 6);
}

/* Of n steps. */
#define LSTM_GRAD(n)                                                                                                   \
    ({n, 2, 2}, {2, 2}, {2, 2}, {n, 2, 3}, {2, 2}, {2, 2}, {8, 3}, {8, 2}, {n, 2, 2}, {n, 2, 8}, {n, 2, 2})
#define GRU_GRAD(n) ({n, 2, 2}, {2, 2}, {n, 2, 3}, {2, 2}, {6, 3}, {6, 2}, {n, 2, 2}, {n, 2, 8})
#define LSTM ({3, 2, 3}, {2, 2}, {2, 2}, {8, 3}, {8, 2}, {8}, {8})
#define GRU ({3, 2, 3}, {2, 2}, {6, 3}, {6, 2}, {6}, {6})

#define CASES(X)                                                                                                       \
    X(lstm_kept_alone, LSTM, -1, 1, true, 7, (3, 2, 2, 2, 2, 1, 1), LSTM, lstm_kept(x, 0, true))                       \
    X(lstm_kept_too, LSTM, -1, 1, true, 7, (3, 2, 2, 2, 2, 1, 1), LSTM, lstm_kept(x, 1, false))                        \
    X(gru_kept_alone, GRU, -1, 1, true, 6, (3, 2, 2, 2, 1, 1), GRU, gru_kept(x, 0, true))                              \
    X(gru_kept_too, GRU, -1, 1, true, 6, (3, 2, 2, 2, 1, 1), GRU, gru_kept(x, 1, false))                               \
    X(lstm_grad, LSTM_GRAD, 0.1, 0.9, true, 11, (3, 2, 2, 3, 2, 2, 2, 2, 3, 3, 3), LSTM_GRAD(3), lstm_grad(x, 0))      \
    X(lstm_grad_reverse, LSTM_GRAD, 0.1, 0.9, true, 11, (3, 2, 2, 3, 2, 2, 2, 2, 3, 3, 3), LSTM_GRAD(2),               \
      lstm_grad(x, 1))                                                                                                 \
    X(lstm_grad_step, LSTM_GRAD, 0.1, 0.9, true, 11, (3, 2, 2, 3, 2, 2, 2, 2, 3, 3, 3), LSTM_GRAD(1), lstm_grad(x, 0)) \
    X(lstm_grad_none, LSTM_GRAD, 0.1, 0.9, true, 11, (3, 2, 2, 3, 2, 2, 2, 2, 3, 3, 3), LSTM_GRAD(0), lstm_grad(x, 0)) \
    X(lstm_then_grad, LSTM_GRAD, -1, 1, true, 7, (3, 2, 2, 2, 2, 1, 1), LSTM, lstm_then_grad(x, 0))                    \
    X(lstm_then_grad_reverse, LSTM_GRAD, -1, 1, true, 7, (3, 2, 2, 2, 2, 1, 1), LSTM, lstm_then_grad(x, 1))            \
    X(gru_grad, GRU_GRAD, 0.1, 0.9, true, 8, (3, 2, 3, 2, 2, 2, 3, 3), GRU_GRAD(3), gru_grad(x, 0))                    \
    X(gru_grad_reverse, GRU_GRAD, 0.1, 0.9, true, 8, (3, 2, 3, 2, 2, 2, 3, 3), GRU_GRAD(2), gru_grad(x, 1))            \
    X(gru_grad_step, GRU_GRAD, 0.1, 0.9, true, 8, (3, 2, 3, 2, 2, 2, 3, 3), GRU_GRAD(1), gru_grad(x, 0))               \
    X(gru_grad_none, GRU_GRAD, 0.1, 0.9, true, 8, (3, 2, 3, 2, 2, 2, 3, 3), GRU_GRAD(0), gru_grad(x, 0))               \
    X(gru_then_grad, GRU_GRAD, -1, 1, true, 6, (3, 2, 2, 2, 1, 1), GRU, gru_then_grad(x, 0))                           \
    X(gru_then_grad_reverse, GRU_GRAD, -1, 1, true, 6, (3, 2, 2, 2, 1, 1), GRU, gru_then_grad(x, 1))

CASES(AUTOGRAD_SHAPED)

const struct autograd_case *const autograd_recurrent_cases[] = {&lstm_result_case,
                                                                &lstm_h_case,
                                                                &lstm_c_case,
                                                                &lstm_all_case,
                                                                &lstm_reverse_case,
                                                                &lstm_bias_case,
                                                                &gru_result_case,
                                                                &gru_h_case,
                                                                &gru_all_case,
                                                                &gru_reverse_case,
                                                                CASES(AUTOGRAD_SHAPED_ROW) NULL};
