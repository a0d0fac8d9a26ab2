/* Derivatives of the program's own (td_custom_gradient()), and parts that are computed again (td_checkpoint()). */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/status.h"

static struct daemon tensord;
static struct client client;

static void start(void) {
    daemon_start(&tensord, &(struct daemon_options){.devices = "cpu:0,cpu:1"});
    client_open(&client, tensord.url, NULL);
}

static void stop(void) {
    client_close(&client);
    daemon_stop(&tensord);
}

TestSuite(autograd_custom, .init = start, .fini = stop, .timeout = 240);

static void ok(int code) {
    cr_assert_eq(code, 0, "%s", td_last_error()->message);
}

static td_tensor *vector(double a, double b, double c) {
    return td_upload(client.device, TD_F64, TD_SHAPE(3), (const double[]){a, b, c});
}

static void expect(td_tensor *x, double a, double b, double c) {
    double got[3];
    ok(td_fetch(x, got, sizeof got));
    cr_assert(fabs(got[0] - a) + fabs(got[1] - b) + fabs(got[2] - c) < 1e-12, "%g %g %g", got[0], got[1], got[2]);
}

/* What the functions count: their calls, and the end of their state. */
struct counts {
    int forward, backward, destroyed;
    td_tensor *weight;
};

static void destroy(void *state) {
    ((struct counts *)state)->destroyed++;
}

/* ---- td_custom_gradient ---- */

/* a · b, and b², which is there for the way back; as derivative of it 10 · a · b² for a, so that nobody else can have made it. */
static int product(void *state, td_tensor *const *inputs, td_tensor **outputs) {
    struct counts *counts = state;
    counts->forward++;
    outputs[0] = td_multiply(inputs[0], inputs[1]);
    outputs[1] = td_square(inputs[1]);
    return outputs[1] ? 0 : td_last_error()->code;
}

static int product_back(void *state, const td_backward *call) {
    struct counts *counts = state;
    counts->backward++;
    cr_assert_eq(call->n_inputs, 2);
    cr_assert_eq(call->n_outputs, 2);
    cr_assert(call->inputs[0] && !call->inputs[1], "only the first input is kept");
    cr_assert(!call->outputs[0] && call->outputs[1]);
    cr_assert(call->wanted[0] && !call->wanted[1]);
    td_tensor *ten = td_full(client.device, TD_F64, 0, NULL, 10);
    td_tensor *slope = td_multiply(td_multiply(ten, call->inputs[0]), call->outputs[1]);
    call->input_gradients[0] = td_multiply(slope, td_add(call->output_gradients[0], call->output_gradients[1]));
    return call->input_gradients[0] ? 0 : td_last_error()->code;
}

static const td_gradient_rule product_rule = {.name = "product",
                                              .forward = product,
                                              .backward = product_back,
                                              .destroy = destroy,
                                              .keeps_inputs = 1 << 0,
                                              .keeps_outputs = 1 << 1};

Test(autograd_custom, the_rule_of_the_program_counts_and_not_its_operations) {
    struct counts counts = {0};
    ok(td_tape_begin());
    td_tensor *x = vector(1, 2, 3), *b = vector(2, 2, 1), *out[2], *g;
    ok(td_custom_gradient(&product_rule, &counts, 2, (td_tensor *[]){x, b}, 2, out));
    expect(out[0], 2, 4, 3);
    ok(td_gradients(td_square(out[0]), 1, &x, &g));
    expect(g, 4 * 10 * 4, 8 * 20 * 4, 6 * 30);
    cr_assert_eq(counts.backward, 1);
    cr_assert_eq(counts.destroyed, 0);
    td_tape_end();
    cr_assert_eq(counts.destroyed, 1);
}

Test(autograd_custom, a_second_derivative_goes_through_what_the_rule_enqueues) {
    struct counts counts = {0};
    ok(td_tape_begin());
    ok(td_tape_begin());
    td_tensor *x = vector(1, 2, 3), *b = vector(2, 2, 1), *out[2], *g, *again;
    ok(td_custom_gradient(&product_rule, &counts, 2, (td_tensor *[]){x, b}, 2, out));
    ok(td_gradients(out[0], 1, &x, &g));
    td_tape_end();
    cr_assert_eq(counts.destroyed, 0, "the outer tape has it, too");
    expect(g, 40, 80, 30);
    ok(td_gradients(g, 1, &x, &again));
    /* 10 · b², and by way of b², which is an output: its derivative is 10 · a · b², too */
    expect(again, 40 + 10 * 40, 40 + 20 * 80, 10 + 30 * 30);
    td_tape_end();
    cr_assert_eq(counts.destroyed, 1);
}

/* The same output is not used: its gradient is zeros, and not NULL. What is given for an input that nobody wants is not used. */
static int identities(void *state, td_tensor *const *inputs, td_tensor **outputs) {
    (void)state;
    outputs[0] = inputs[0];
    outputs[1] = inputs[0];
    outputs[2] = td_cast(inputs[1], TD_I64);
    return 0;
}

static int identities_back(void *state, const td_backward *call) {
    cr_assert(call->output_gradients[0] && call->output_gradients[1] && !call->output_gradients[2]);
    *(int *)state += call->wanted[1];
    call->input_gradients[0] = call->output_gradients[0];
    call->input_gradients[1] = call->inputs[0];
    return 0;
}

static const td_gradient_rule identities_rule = {
    .name = "identities", .forward = identities, .backward = identities_back, .keeps_inputs = TD_KEEP_ALL};

/* Handles that are not the functions' own are neither released nor counted twice. */
Test(autograd_custom, inputs_may_be_outputs_and_gradients) {
    int wanted = 0;
    td_tensor *x = vector(1, 2, 3), *b = vector(5, 6, 7), *out[3], *g[2];
    for (int i = 0; i < 2; i++) {
        ok(td_tape_begin());
        ok(td_custom_gradient(&identities_rule, &wanted, 2, (td_tensor *[]){x, b}, 3, out));
        cr_assert(out[0] != out[1] && out[0] != x);
        td_tensor *y = td_multiply(out[0], x);
        ok(td_gradients(y, 1 + i, (td_tensor *[]){x, b}, g));
        expect(g[0], 2, 4, 6);
        if (i)
            expect(g[1], 1, 2, 3);
        cr_assert_eq(wanted, i);
        for (int k = 0; k < 3; k++)
            td_release(out[k]);
        td_tape_end();
        expect(x, 1, 2, 3);
    }
}

/* Gradients in a shape that the input was broadcast to are added up, and cast. */
static int broadcast(void *state, td_tensor *const *inputs, td_tensor **outputs) {
    (void)state;
    outputs[0] = td_cast(td_broadcast_to(inputs[0], TD_SHAPE(2, 3)), TD_F64);
    return 0;
}

static int broadcast_back(void *state, const td_backward *call) {
    const int *which = state;
    td_tensor *g = call->output_gradients[0];
    if (*which == 1)
        g = td_sum(g, TD_AXES(1), 0);
    if (*which == 2)
        g = td_cast(g, TD_I32);
    if (*which == 3)
        return TD_E_LIMIT;
    if (*which == 4)
        g = td_reshape(g, TD_SHAPE(5));
    call->input_gradients[0] = g;
    return g ? 0 : td_last_error()->code;
}

Test(autograd_custom, gradients_are_checked) {
    static const struct {
        int code;
        const char *text;
    } errors[] = {{TD_OK, ""},
                  {TD_E_SHAPE, "wide: the gradient of input 0 has neither"},
                  {TD_E_DTYPE, "wide: the gradient of input 0 is i32"},
                  {TD_E_LIMIT, "wide: backward returned"},
                  {TD_E_SHAPE, "reshape"}};
    float got[3];
    for (int which = 0; which < 5; which++) {
        const td_gradient_rule rule = {.name = "wide", .forward = broadcast, .backward = broadcast_back};
        td_tensor *x = td_cast(vector(1, 2, 3), TD_F32), *y, *g;
        ok(td_tape_begin());
        ok(td_custom_gradient(&rule, &which, 1, &x, 1, &y));
        cr_assert_eq(td_gradients(y, 1, &x, &g), errors[which].code, "%d: %s", which, td_last_error()->message);
        if (which) {
            cr_assert(strstr(td_last_error()->message, errors[which].text), "%s", td_last_error()->message);
            cr_assert_null(g);
        } else {
            ok(td_fetch(g, got, sizeof got));
            cr_assert(got[0] == 2 && got[1] == 2 && got[2] == 2, "%g %g %g", (double)got[0], (double)got[1],
                      (double)got[2]);
        }
        td_tape_end();
    }
}

static int fails(void *state, td_tensor *const *inputs, td_tensor **outputs) {
    const int *how = state;
    outputs[0] = td_square(inputs[0]);
    if (*how == 2)
        return TD_E_LIMIT;
    if (*how == 1)
        outputs[1] = td_reshape(inputs[0], TD_SHAPE(7));
    if (*how == 3)
        return td_gradients(outputs[0], 1, inputs, &outputs[1]);
    return 0;
}

static int never(void *state, const td_backward *call) {
    (void)state, (void)call;
    return TD_E_INTERNAL;
}

/* Also each call without a tape. */
Test(autograd_custom, errors_of_the_call_leave_nothing) {
    static const char *const texts[] = {"square: output 1 is NULL", "reshape: ", "square: the function returned",
                                        "no tape"};
    static const int codes[] = {TD_E_INVALID_ARGUMENT, TD_E_SHAPE, TD_E_LIMIT, TD_E_INVALID_ARGUMENT};
    ok(td_sync(client.device));
    const struct status_baseline before = {.device = "cpu:0", .live = 0, .sessions = 1};
    const td_gradient_rule rule = {.name = "square", .forward = fails, .backward = never};
    td_tensor *x = vector(1, 2, 3), *out[2];
    for (int how = 0; how < 8; how++) {
        int which = how / 2;
        if (how % 2)
            ok(td_tape_begin());
        cr_assert_eq(td_custom_gradient(&rule, &which, 1, &x, 2, out), codes[which], "%s", td_last_error()->message);
        cr_assert(strstr(td_last_error()->message, texts[which]), "%s", td_last_error()->message);
        cr_assert(!out[0] && !out[1]);
        cr_assert_null(td_add(out[0], x));
        cr_assert_eq(td_last_error()->code, codes[which], "who passes the NULL on keeps the error");
        td_tape_end();
    }
    td_release(x);
    ok(td_sync(client.device));
    cr_assert(status_settles(tensord.url, &before, 30000));
}

Test(autograd_custom, the_state_is_destroyed_once_whatever_happens) {
    struct counts counts = {0};
    td_tensor *x = vector(1, 2, 3), *out[2], *none = NULL;
    ok(td_custom_gradient(&product_rule, &counts, 2, (td_tensor *[]){x, x}, 2, out));
    cr_assert_eq(counts.destroyed, 1, "no tape has noted it");
    cr_assert_eq(td_custom_gradient(&product_rule, &counts, 1, &none, 2, out), TD_E_INVALID_ARGUMENT);
    cr_assert_eq(counts.destroyed, 2);
    cr_assert_eq(td_custom_gradient(&product_rule, &counts, 2, (td_tensor *[]){x, x}, 0, out), TD_E_INVALID_ARGUMENT);
    cr_assert_eq(counts.destroyed, 3);
    cr_assert_eq(td_checkpoint(NULL, &counts, destroy, 1, &x, 2, out), TD_E_INVALID_ARGUMENT);
    cr_assert_eq(counts.destroyed, 4);
    ok(td_checkpoint(product, &counts, destroy, 2, (td_tensor *[]){x, x}, 2, out));
    cr_assert_eq(counts.destroyed, 5);
    cr_assert_eq(counts.forward, 2);
}

/* ---- td_checkpoint ---- */

/* exp(sin(x · weight)), where the weight is in the state. */
static int wave(void *state, td_tensor *const *inputs, td_tensor **outputs) {
    struct counts *counts = state;
    counts->forward++;
    td_tape_end(); /* the program's error: it has begun none here, so nothing happens */
    outputs[0] = td_exp(td_sin(td_multiply(inputs[0], counts->weight)));
    return outputs[0] ? 0 : td_last_error()->code;
}

static double wave_slope(double x, double weight) {
    return exp(sin(x * weight)) * cos(x * weight);
}

Test(autograd_custom, a_part_is_computed_again_with_its_parameters) {
    struct counts counts = {0};
    ok(td_tape_begin());
    td_tensor *x = vector(1, 2, 3), *g[2], *y;
    counts.weight = vector(0.5, 0.25, 2);
    ok(td_checkpoint(wave, &counts, destroy, 1, &x, 1, &y));
    cr_assert_eq(counts.forward, 1);
    ok(td_gradients(y, 2, (td_tensor *[]){x, counts.weight}, g));
    cr_assert_eq(counts.forward, 2);
    expect(g[0], 0.5 * wave_slope(1, 0.5), 0.25 * wave_slope(2, 0.25), 2 * wave_slope(3, 2));
    expect(g[1], wave_slope(1, 0.5), 2 * wave_slope(2, 0.25), 3 * wave_slope(3, 2));
    td_tape_end();
    cr_assert_eq(counts.destroyed, 1);
}

/* f(a, a): the function takes one handle twice. */
static int powers(void *state, td_tensor *const *inputs, td_tensor **outputs) {
    (void)state;
    outputs[0] = td_multiply(inputs[0], td_square(inputs[1]));
    outputs[1] = inputs[0];
    return 0;
}

Test(autograd_custom, the_same_input_twice_counts_once_for_each_use) {
    ok(td_tape_begin());
    td_tensor *x = vector(1, 2, 3), *g, *out[2];
    ok(td_checkpoint(powers, NULL, NULL, 2, (td_tensor *[]){x, x}, 2, out));
    ok(td_gradients(td_add(out[0], out[1]), 1, &x, &g));
    expect(g, 4, 13, 28);
    td_tape_end();
}

/* A part in a part, which has a rule of its own inside. */
static int nested(void *state, td_tensor *const *inputs, td_tensor **outputs) {
    struct counts *counts = state;
    td_tensor *inner, *own[2];
    int code = td_checkpoint(wave, counts, NULL, 1, inputs, 1, &inner);
    if (!code)
        code = td_custom_gradient(&product_rule, counts, 2, (td_tensor *[]){inner, td_stop_gradient(counts->weight)}, 2,
                                  own);
    if (!code)
        outputs[0] = td_multiply(own[0], inputs[0]);
    return code;
}

static td_tensor *nested_of(struct counts *counts, td_tensor *x) {
    td_tensor *y;
    ok(td_checkpoint(nested, counts, destroy, 1, &x, 1, &y));
    return y;
}

/* Against the same without checkpoints: first and second derivatives. */
static td_tensor *plain_of(struct counts *counts, td_tensor *x) {
    td_tensor *own[2], *inner = td_exp(td_sin(td_multiply(x, counts->weight)));
    ok(td_custom_gradient(&product_rule, counts, 2, (td_tensor *[]){inner, td_stop_gradient(counts->weight)}, 2, own));
    return td_multiply(own[0], x);
}

Test(autograd_custom, parts_nest_and_have_second_derivatives) {
    double got[2][4][3];
    for (int kind = 0; kind < 2; kind++) {
        struct counts counts = {.weight = vector(0.5, 0.25, 2)};
        td_tensor *x = vector(1, 2, 3), *xs[] = {x, counts.weight}, *g[4];
        ok(td_tape_begin());
        ok(td_tape_begin());
        td_tensor *y = (kind ? nested_of : plain_of)(&counts, x);
        ok(td_gradients(y, 2, xs, g));
        td_tape_end();
        ok(td_gradients(td_add(td_square(g[0]), g[1]), 2, xs, g + 2));
        for (int i = 0; i < 4; i++)
            ok(td_fetch(g[i], got[kind][i], sizeof got[kind][i]));
        td_tape_end();
    }
    for (int i = 0; i < 12; i++) {
        double expected = got[0][i / 3][i % 3], is = got[1][i / 3][i % 3];
        cr_assert(fabs(is - expected) <= 1e-12 * fabs(expected) && expected != 0, "%d: %g, not %g", i, is, expected);
    }
}

/* Another number of elements each time. */
static int grows(void *state, td_tensor *const *inputs, td_tensor **outputs) {
    int *calls = state;
    outputs[0] = td_broadcast_to(inputs[0], TD_SHAPE(++*calls, 3));
    return 0;
}

Test(autograd_custom, a_function_that_makes_something_else_is_found_out) {
    int calls = 0;
    ok(td_tape_begin());
    td_tensor *x = vector(1, 2, 3), *y, *g;
    ok(td_checkpoint(grows, &calls, NULL, 1, &x, 1, &y));
    cr_assert_eq(td_gradients(y, 1, &x, &g), TD_E_INVALID_ARGUMENT);
    cr_assert(strstr(td_last_error()->message, "when it ran first"), "%s", td_last_error()->message);
    td_tape_end();
}

enum { LARGE = 1 << 18, DEPTH = 4 };

static int deep(void *state, td_tensor *const *inputs, td_tensor **outputs) {
    (void)state;
    outputs[0] = inputs[0];
    for (int i = 0; i < DEPTH; i++)
        outputs[0] = td_exp(td_sin(outputs[0]));
    return 0;
}

static bool holds_bytes(const Tensord__Status *status, const void *bytes) {
    return status_device(status, "cpu:0")->memory_live == *(const uint64_t *)bytes;
}

/* x and the result live, of LARGE f32 each; and without a checkpoint what sin's and exp's rules read: each one's result. */
Test(autograd_custom, what_is_between_is_not_kept) {
    ok(td_sync(client.device));
    for (int kind = 0; kind < 2; kind++) {
        td_tensor *x = td_full(client.device, TD_F32, TD_SHAPE(LARGE), 0.5), *y, *g;
        ok(td_tape_begin());
        td_scope_begin(NULL);
        if (kind)
            ok(td_checkpoint(deep, NULL, NULL, 1, &x, 1, &y));
        else
            ok(deep(NULL, &x, &y));
        td_keep(y);
        td_scope_end();
        ok(td_sync(client.device));
        const uint64_t bytes = (kind ? 2 : 1 + DEPTH) * UINT64_C(4) * LARGE;
        status_until(tensord.url, holds_bytes, &bytes, 30000);
        ok(td_gradients(y, 1, &x, &g));
        td_release(y), td_release(g), td_release(x);
        td_tape_end();
        ok(td_sync(client.device));
        status_until(tensord.url, holds_bytes, &(uint64_t){0}, 30000);
    }
}

/* Its devices are two. */
static int elsewhere(void *other, td_tensor *const *inputs, td_tensor **outputs) {
    outputs[0] = td_square(td_copy_to(inputs[0], other));
    return 0;
}

Test(autograd_custom, a_part_on_another_device) {
    td_device *other;
    ok(td_device_open(client.connection, "cpu:1", &other));
    ok(td_tape_begin());
    td_tensor *x = vector(1, 2, 3), *y, *g;
    ok(td_checkpoint(elsewhere, other, NULL, 1, &x, 1, &y));
    cr_assert_eq(td_tensor_device(y), other);
    ok(td_gradients(y, 1, &x, &g));
    expect(g, 2, 4, 6);
    td_device_close(other);
    cr_assert_eq(td_gradients(td_copy(x), 1, &x, &g), 0, "what was on the closed device is not on the way");
    td_tape_end();
}
