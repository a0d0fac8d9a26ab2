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
                                                                NULL};
