/* Loops over recorded programs: they compute what their iterations compute one by one, bit for bit; training in one loop. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/programs.h"

static struct daemon tensord;
static struct client client;

static void start(void) {
    daemon_start(&tensord, &(struct daemon_options){.devices = "cpu:0"});
    client_open(&client, tensord.url, NULL);
}

static void stop(void) {
    client_close(&client);
    daemon_stop(&tensord);
}

TestSuite(program_loops, .init = start, .fini = stop, .timeout = 120);

/* ---- loops ---- */

/* (w, x) -> (w + x, w · x): a running sum, and what it made of each x. */
static td_program *accumulate(bool consumed) {
    programs_ok(td_record_begin(client.device));
    td_tensor *w = consumed ? td_parameter_consumed(TD_F32, TD_SHAPE(3)) : td_parameter(TD_F32, TD_SHAPE(3));
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(3));
    td_tensor *named[] = {td_add(w, x), td_multiply(w, x), td_add(x, x)};
    return programs_end(client.device, 3, named);
}

static void expect_loop(int64_t times, bool consumed) {
    const td_carry carried[] = {{0, 0}};
    const int slices[] = {1}, stacks[] = {1};
    const td_loop loop = {1, carried, 1, slices, 1, stacks};
    td_program *program = accumulate(consumed);
    td_tensor *begin = client_ramp(client.device, 3, 1), *w = begin,
              *all = programs_numbers(client.device, TD_SHAPE(times, 3), 5);
    td_tensor *inputs[] = {td_copy(begin), all}, *results[3], *last = NULL;
    programs_ok(td_program_repeat(program, times, &loop, 2, inputs, 3, results));
    td_tensor **products = calloc((size_t)times, sizeof(td_tensor *));
    for (int64_t i = 0; i < times; i++) {
        td_tensor *x = td_squeeze(td_slice(all, 0, i, i + 1, 1), TD_AXES(0));
        products[i] = td_multiply(w, x);
        w = td_add(w, x);
        last = td_add(x, x);
    }
    programs_expect_same(results[0], w, "a carried result");
    programs_expect_same(results[1], td_stack(products, (int)times, 0), "a stacked result");
    programs_expect_same(results[2], last, "the last iteration's result");
    if (!consumed)
        programs_expect_same(inputs[0], begin, "the first iteration's input");
    free(products);
}

Test(program_loops, loop_carries_slices_and_stacks) {
    static const int64_t times[] = {1, 2, 3, 1000};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        expect_loop(times[i], false);
        expect_loop(times[i], true);
    }
}

/* A loop in a recording becomes the operations of its iterations. */
Test(program_loops, loop_inside_of_a_program_is_unrolled) {
    const td_carry carried[] = {{0, 0}};
    const int slices[] = {1}, stacks[] = {1};
    const td_loop loop = {1, carried, 1, slices, 1, stacks};
    td_program *program = accumulate(true), *outer;
    td_tensor *w = client_ramp(client.device, 3, 1), *xs = programs_numbers(client.device, TD_SHAPE(50, 3), 5),
              *results[3], *again[3];
    programs_ok(td_record_begin(client.device));
    td_tensor *inside_of[] = {td_parameter_consumed(TD_F32, TD_SHAPE(3)), xs};
    programs_ok(td_program_repeat(program, 50, &loop, 2, inside_of, 3, results));
    outer = programs_end(client.device, 3, results);
    td_tensor *inputs[] = {td_copy(w), xs};
    programs_ok(td_program_repeat(program, 50, &loop, 2, inputs, 3, results));
    programs_ok(td_program_run(outer, 1, &w, 3, again));
    for (int i = 0; i < 3; i++)
        programs_expect_same(again[i], results[i], "a loop");
}

Test(program_loops, gradients_go_through_a_program_inside) {
    programs_ok(td_record_begin(client.device));
    td_tensor *p = td_parameter(TD_F32, TD_SHAPE(4, 6)), *q = td_parameter(TD_F32, TD_SHAPE(6, 5));
    td_tensor *y = td_softmax(td_matmul(td_tanh(p), q), -1);
    td_program *model = programs_end(client.device, 1, &y);
    td_tensor *x = programs_numbers(client.device, TD_SHAPE(4, 6), 1),
              *w = programs_numbers(client.device, TD_SHAPE(6, 5), 2), *slopes[2], *results[2];
    programs_ok(td_record_begin(client.device));
    td_tensor *inner[] = {td_parameter(TD_F32, TD_SHAPE(4, 6)), w};
    programs_ok(td_program_run(model, 2, inner, 1, &y));
    programs_ok(td_gradients(td_sum(td_square(y), TD_ALL_AXES, 0), 2, inner, slopes));
    td_program *gradients = programs_end(client.device, 2, slopes);
    programs_ok(td_program_run(gradients, 1, &x, 2, results));
    programs_ok(td_tape_begin());
    td_tensor *z = td_softmax(td_matmul(td_tanh(x), w), -1), *xs[] = {x, w};
    programs_ok(td_gradients(td_sum(td_square(z), TD_ALL_AXES, 0), 2, xs, slopes));
    td_tape_end();
    programs_expect_same(results[0], slopes[0], "by a parameter");
    programs_expect_same(results[1], slopes[1], "by a captured tensor");
}

Test(program_loops, counter_is_a_sliced_arange) {
    programs_ok(td_record_begin(client.device));
    td_tensor *sum = td_parameter(TD_I64, TD_SCALAR), *i = td_parameter(TD_I64, TD_SCALAR);
    td_tensor *next = td_add(sum, td_multiply(i, i));
    td_program *program = programs_end(client.device, 1, &next);
    const td_carry carried[] = {{0, 0}};
    const int slices[] = {1};
    td_tensor *inputs[] = {td_full(client.device, TD_I64, TD_SCALAR, 0), td_arange(client.device, TD_I64, 0, 101, 1)};
    td_tensor *result;
    int64_t value;
    programs_ok(td_program_repeat(program, 101, &(td_loop){1, carried, 1, slices, 0, NULL}, 2, inputs, 1, &result));
    programs_ok(td_fetch(result, &value, sizeof value));
    cr_assert_eq(value, 338350);
}

/* What one iteration carries may be a parameter of it: two states change places. */
Test(program_loops, loop_may_exchange_its_states) {
    programs_ok(td_record_begin(client.device));
    td_tensor *a = td_parameter_consumed(TD_F32, TD_SHAPE(2)), *b = td_parameter_consumed(TD_F32, TD_SHAPE(2));
    td_tensor *named[] = {b, td_add(a, b)};
    td_program *program = programs_end(client.device, 2, named);
    const td_carry carried[] = {{0, 0}, {1, 1}};
    td_tensor *states[] = {td_full(client.device, TD_F32, TD_SHAPE(2), 0),
                           td_full(client.device, TD_F32, TD_SHAPE(2), 1)};
    programs_ok(td_program_repeat(program, 20, &(td_loop){2, carried, 0, NULL, 0, NULL}, 2, states, 2, states));
    client_expect(states[0], (const float[]){6765, 6765}, 2);
    client_expect(states[1], (const float[]){10946, 10946}, 2);
}

Test(program_loops, failed_iteration_ends_the_loop) {
    programs_ok(td_record_begin(client.device));
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(3)), *place = td_parameter(TD_I64, TD_SHAPE(1));
    td_label("pick");
    td_tensor *y = td_take(x, place, 0);
    td_program *program = programs_end(client.device, 1, &y);
    const int slices[] = {1}, stacks[] = {0};
    td_tensor *inputs[] = {client_ramp(client.device, 3, 0),
                           td_upload(client.device, TD_I64, TD_SHAPE(4, 1), (int64_t[]){0, 2, 7, 1})};
    td_tensor *result;
    programs_ok(td_program_repeat(program, 4, &(td_loop){0, NULL, 1, slices, 1, stacks}, 2, inputs, 1, &result));
    const td_error *error = client_expect_failure(result, TD_E_OUT_OF_RANGE);
    cr_assert_str_eq(error->label, "pick");
    cr_assert(strstr(error->message, "iteration"), "%s", error->message);
}

/* ---- training ---- */

/* A net of two layers; (w1, w2, m1, m2, x, y) -> the first four, replaced, and the loss. */
static void net(td_tensor **state, td_tensor *x, td_tensor *y, td_tensor **loss) {
    td_tensor *slopes[2];
    td_tensor *hidden = td_relu(td_matmul(x, state[0]));
    *loss = td_cross_entropy(td_matmul(hidden, state[1]), y, NULL, -1, TD_REDUCTION_MEAN, 0);
    programs_ok(td_gradients(*loss, 2, state, slopes));
    programs_ok(td_sgd(2, state, slopes, state + 2, 0.2, 0.9, 0, 0));
}

enum { STEPS = 60, BATCH = 32, WIDTH = 8, HIDDEN = 16, CLASSES = 3 };

static void net_begin(td_tensor *state[4]) {
    state[0] = td_normal(client.device, TD_F32, TD_SHAPE(WIDTH, HIDDEN), 1, 0, 0.5);
    state[1] = td_normal(client.device, TD_F32, TD_SHAPE(HIDDEN, CLASSES), 2, 0, 0.5);
    state[2] = td_full(client.device, TD_F32, TD_SHAPE(WIDTH, HIDDEN), 0);
    state[3] = td_full(client.device, TD_F32, TD_SHAPE(HIDDEN, CLASSES), 0);
}

Test(program_loops, training_falls_and_has_the_bits_of_eager_training) {
    td_tensor *xs = programs_numbers(client.device, TD_SHAPE(STEPS, BATCH, WIDTH), 3),
              *ys = td_argmax(td_slice(xs, 2, 0, CLASSES, 1), TD_AXES(2), 0);
    td_tensor *state[4], *losses[STEPS];
    net_begin(state);
    for (int i = 0; i < STEPS; i++) {
        programs_ok(td_tape_begin());
        net(state, td_squeeze(td_slice(xs, 0, i, i + 1, 1), TD_AXES(0)),
            td_squeeze(td_slice(ys, 0, i, i + 1, 1), TD_AXES(0)), &losses[i]);
        td_tape_end();
    }
    td_tensor *eager = td_stack(losses, STEPS, 0);

    programs_ok(td_record_begin(client.device));
    td_tensor *named[5], *loss;
    named[0] = td_parameter_consumed(TD_F32, TD_SHAPE(WIDTH, HIDDEN));
    named[1] = td_parameter_consumed(TD_F32, TD_SHAPE(HIDDEN, CLASSES));
    named[2] = td_parameter_consumed(TD_F32, TD_SHAPE(WIDTH, HIDDEN));
    named[3] = td_parameter_consumed(TD_F32, TD_SHAPE(HIDDEN, CLASSES));
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(BATCH, WIDTH)), *y = td_parameter(TD_I64, TD_SHAPE(BATCH));
    net(named, x, y, &loss);
    named[4] = loss;
    td_program *step = programs_end(client.device, 5, named);

    const td_carry carried[] = {{0, 0}, {1, 1}, {2, 2}, {3, 3}};
    const int slices[] = {4, 5}, stacks[] = {4};
    td_tensor *inputs[6] = {NULL, NULL, NULL, NULL, xs, ys}, *results[5];
    net_begin(inputs);
    programs_ok(td_program_repeat(step, STEPS, &(td_loop){4, carried, 2, slices, 1, stacks}, 6, inputs, 5, results));
    programs_expect_same(results[4], eager, "the losses of an epoch");
    for (int i = 0; i < 4; i++)
        programs_expect_same(results[i], state[i], "weights after an epoch");
    float values[STEPS];
    programs_ok(td_fetch(results[4], values, sizeof values));
    cr_assert_lt(values[STEPS - 1], 0.5F * values[0], "%g to %g", values[0], values[STEPS - 1]);

    td_tensor *single[6], *outputs[5];
    net_begin(single);
    for (int i = 0; i < STEPS; i++) {
        single[4] = td_squeeze(td_slice(xs, 0, i, i + 1, 1), TD_AXES(0));
        single[5] = td_squeeze(td_slice(ys, 0, i, i + 1, 1), TD_AXES(0));
        programs_ok(td_program_run(step, 6, single, 5, outputs));
        memcpy(single, outputs, 4 * sizeof *single);
    }
    for (int i = 0; i < 4; i++)
        programs_expect_same(single[i], state[i], "weights after single steps");
}
