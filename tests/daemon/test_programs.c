/* Recorded programs: they compute what their operations compute one by one, bit for bit; loops; failures; lost connections. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/programs.h"
#include "tests/daemon/proxy.h"
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

TestSuite(programs, .init = start, .fini = stop, .timeout = 120);

/* ---- the same bits as one by one ---- */

enum { INPUTS = 4, OUTPUTS_MOST = 4 };

/* x (4, 6), y (6, 5), image (2, 3, 8, 8), places (4) of 0 … 3. Writes its outputs and returns how many there are. */
typedef int body(td_tensor *const *inputs, td_tensor **outputs);

static int body_chain(td_tensor *const *in, td_tensor **out) {
    td_tensor *x = td_multiply(td_add(in[0], in[0]), td_tanh(in[0]));
    out[0] = td_where(td_greater(x, in[0]), td_exp(td_negative(x)), td_gelu(x));
    out[1] = x;
    return 2;
}

static int body_dense(td_tensor *const *in, td_tensor **out) {
    td_tensor *z = td_matmul(in[0], in[1]);
    out[0] = td_softmax(z, -1);
    out[1] = td_matmul(td_transpose(z), in[0]);
    out[2] = td_linear(in[0], td_transpose(in[1]), NULL, TD_ACTIVATION_RELU);
    return 3;
}

static int body_convolution(td_tensor *const *in, td_tensor **out) {
    td_tensor *weight = td_reshape(td_slice(td_reshape(in[2], TD_SHAPE(384)), 0, 0, 108, 1), TD_SHAPE(4, 3, 3, 3));
    td_tensor *y = td_relu(
        td_conv(in[2], weight, NULL, TD_SHAPE(1, 1), TD_SHAPE(1, 1), TD_SHAPE(1, 1), 1, TD_LAYOUT_CHANNELS_FIRST));
    td_max_pool(y, TD_SHAPE(2, 2), TD_SHAPE(2, 2), TD_SHAPE(0, 0), TD_SHAPE(1, 1), 0, TD_LAYOUT_CHANNELS_FIRST, &out[0],
                &out[1]);
    return 2;
}

static int body_reductions(td_tensor *const *in, td_tensor **out) {
    out[0] = td_sum(in[2], TD_AXES(0, 2), 1);
    out[1] = td_argmax(in[0], TD_AXES(1), 0);
    out[2] = td_layer_norm(in[0], NULL, NULL, 1, 1e-5);
    out[3] = td_cumulative_sum(td_mean(in[2], TD_AXES(3), 0), 1, 0);
    return 4;
}

static int body_views(td_tensor *const *in, td_tensor **out) {
    td_tensor *flipped = td_flip(in[0], TD_AXES(0));
    out[0] = td_slice(td_transpose(flipped), 0, 1, TD_NONE, 2);
    out[1] = td_reshape(out[0], TD_SHAPE(-1));
    out[2] = td_add(td_broadcast_to(td_slice(in[0], 0, 0, 1, 1), TD_SHAPE(4, 6)), flipped);
    out[3] = td_concat((td_tensor *[]){in[0], flipped}, 2, 1);
    return 4;
}

static int body_indices(td_tensor *const *in, td_tensor **out) {
    out[0] = td_take(in[0], in[3], 0);
    out[1] = td_argsort(td_sum(in[0], TD_AXES(1), 0), 0, 0);
    out[2] = td_take(in[0], out[1], 0);
    out[3] = td_one_hot(in[3], TD_F32, 4);
    return 4;
}

static int body_random(td_tensor *const *in, td_tensor **out) {
    out[0] = td_normal(client.device, TD_F32, TD_SHAPE(7, 5), 42, 1, 2);
    out[1] = td_dropout(in[0], 0.5, 7);
    out[2] = td_bernoulli_like(td_sigmoid(in[1]), 3);
    return 3;
}

static int body_constants(td_tensor *const *in, td_tensor **out) {
    td_tensor *ramp = td_arange(client.device, TD_F32, 0, 6, 1);
    out[0] = td_multiply(in[0], ramp);
    out[1] = ramp;
    out[2] = td_full(client.device, TD_I64, TD_SHAPE(3), 7);
    return 3;
}

static int body_several(td_tensor *const *in, td_tensor **out) {
    td_tensor *square = td_matmul(td_transpose(in[0]), in[0]);
    td_qr(square, TD_QR_MODE_REDUCED, &out[0], &out[1]);
    td_tensor *u, *s, *v;
    td_svd(in[1], 0, &u, &s, &v);
    out[2] = s;
    out[3] = td_abs(u);
    return 4;
}

static int body_empty(td_tensor *const *in, td_tensor **out) {
    td_tensor *none = td_slice(in[0], 0, 2, 2, 1);
    out[0] = td_exp(none);
    out[1] = td_sum(none, TD_ALL_AXES, 0);
    out[2] = td_concat((td_tensor *[]){none, in[0]}, 2, 0);
    return 3;
}

static int body_unused(td_tensor *const *in, td_tensor **out) {
    td_exp(td_matmul(in[0], in[1]));
    td_tensor *a = td_add(in[0], in[0]), *b = td_add(in[0], in[0]);
    out[0] = td_multiply(a, b);
    out[1] = td_multiply(b, a);
    return 2;
}

static int body_training(td_tensor *const *in, td_tensor **out) {
    td_tensor *w = td_transpose(in[1]), *loss, *slopes[2], *xs[] = {in[0], in[1]};
    programs_ok(td_tape_begin());
    loss = td_cross_entropy(td_matmul(in[0], td_transpose(w)), in[3], NULL, -1, TD_REDUCTION_MEAN, 0);
    programs_ok(td_gradients(loss, 2, xs, slopes));
    td_tape_end();
    out[0] = loss;
    out[1] = td_subtract(in[0], td_multiply(slopes[0], td_full(client.device, TD_F32, TD_SCALAR, 0.1)));
    out[2] = slopes[1];
    return 3;
}

static const struct {
    const char *name;
    body *body;
} bodies[] = {
    {"a chain of elementwise operations", body_chain},
    {"products and softmax", body_dense},
    {"convolution and pooling", body_convolution},
    {"reductions and scans", body_reductions},
    {"views", body_views},
    {"indices", body_indices},
    {"random numbers", body_random},
    {"constants", body_constants},
    {"operations with several outputs", body_several},
    {"tensors without elements", body_empty},
    {"unused and equal operations", body_unused},
    {"gradients", body_training},
};

static void make_inputs(td_tensor *inputs[INPUTS], uint64_t seed) {
    inputs[0] = programs_numbers(client.device, TD_SHAPE(4, 6), seed);
    inputs[1] = programs_numbers(client.device, TD_SHAPE(6, 5), seed + 1);
    inputs[2] = programs_numbers(client.device, TD_SHAPE(2, 3, 8, 8), seed + 2);
    inputs[3] = td_cast(td_uniform(client.device, TD_F32, TD_SHAPE(4), seed + 3, 0, 3.9), TD_I64);
}

/* Inputs whose bits are in `mask` are parameters, the others are captured. */
static td_program *record(body *run, td_tensor *const *captured, unsigned mask, bool consumed, int *n) {
    td_tensor *inputs[INPUTS], *outputs[OUTPUTS_MOST];
    programs_ok(td_record_begin(client.device));
    for (int i = 0; i < INPUTS; i++) {
        const td_tensor *like = captured[i];
        inputs[i] = !(mask >> i & 1) ? captured[i]
                    : consumed
                        ? td_parameter_consumed(td_tensor_dtype(like), td_tensor_rank(like), td_tensor_shape(like))
                        : td_parameter(td_tensor_dtype(like), td_tensor_rank(like), td_tensor_shape(like));
    }
    *n = run(inputs, outputs);
    return programs_end(client.device, *n, outputs);
}

/* A program that runs another one and does nothing else. */
static td_program *inside(td_program *program, bool consumed) {
    int n_inputs = td_program_parameters(program), n = td_program_results(program), rank;
    td_tensor *tensors[INPUTS], *results[OUTPUTS_MOST];
    const int64_t *shape;
    td_dtype dtype;
    programs_ok(td_record_begin(client.device));
    for (int i = 0; i < n_inputs; i++) {
        programs_ok(td_program_parameter_type(program, i, &dtype, &rank, &shape));
        tensors[i] = consumed ? td_parameter_consumed(dtype, rank, shape) : td_parameter(dtype, rank, shape);
    }
    programs_ok(td_program_run(program, n_inputs, tensors, n, results));
    td_program *outer = programs_end(client.device, n, results);
    td_program_release(program);
    return outer;
}

/* The same program by way of a file. */
static td_program *saved(td_program *program, bool consumed) {
    char file[] = "/tmp/tensord-program-XXXXXX";
    int fd = mkstemp(file);
    (void)consumed;
    cr_assert(fd >= 0 && !close(fd));
    programs_ok(td_program_save(program, file));
    td_program_release(program);
    programs_ok(td_program_load(client.device, file, &program));
    unlink(file);
    return program;
}

typedef td_program *way(td_program *program, bool consumed);

/* `other` (may be NULL) makes another program of it, which computes the same. */
static void expect_run(size_t row, unsigned mask, bool consumed, way *other_way) {
    td_tensor *inputs[INPUTS], *given[INPUTS], *one_by_one[OUTPUTS_MOST], *results[OUTPUTS_MOST];
    int n;
    make_inputs(inputs, 1);
    td_scope_begin(NULL);
    td_program *program = record(bodies[row].body, inputs, mask, consumed, &n);
    program = other_way ? other_way(program, consumed) : program;
    td_scope_end();
    for (uint64_t run = 0; run < 3; run++) {
        td_scope_begin(NULL);
        int count = 0;
        td_tensor *other[INPUTS];
        make_inputs(other, 10 * run + 1);
        for (int i = 0; i < INPUTS; i++) {
            other[i] = mask >> i & 1 ? other[i] : inputs[i];
            if (mask >> i & 1)
                given[count++] = consumed ? td_keep(td_copy(other[i])) : other[i];
        }
        bodies[row].body(other, one_by_one);
        cr_assert_eq(td_program_run(program, count, given, n, results), 0, "%s: %s", bodies[row].name,
                     td_last_error()->message);
        for (int i = 0; i < n; i++)
            programs_expect_same(results[i], one_by_one[i], bodies[row].name);
        td_scope_end();
    }
    td_program_release(program);
}

Test(programs, compute_the_bits_of_their_operations) {
    for (size_t row = 0; row < sizeof bodies / sizeof *bodies; row++)
        expect_run(row, 0xf, false, NULL);
}

Test(programs, compute_the_same_from_inputs_that_they_consume) {
    for (size_t row = 0; row < sizeof bodies / sizeof *bodies; row++)
        expect_run(row, 0xf, true, NULL);
}

Test(programs, compute_the_same_from_captured_tensors) {
    for (size_t row = 0; row < sizeof bodies / sizeof *bodies; row++) {
        expect_run(row, 0, false, NULL);
        expect_run(row, 0x5, false, NULL);
    }
}

Test(programs, compute_the_same_inside_of_another_program) {
    for (size_t row = 0; row < sizeof bodies / sizeof *bodies; row++) {
        expect_run(row, 0xf, true, inside);
        expect_run(row, 0x5, false, inside);
    }
}

Test(programs, compute_the_same_from_a_file) {
    for (size_t row = 0; row < sizeof bodies / sizeof *bodies; row++) {
        expect_run(row, 0xf, true, saved);
        expect_run(row, 0x5, false, saved);
    }
}

Test(programs, result_may_be_any_tensor) {
    td_tensor *w = client_ramp(client.device, 3, 10), *kept = td_copy(w);
    programs_ok(td_record_begin(client.device));
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(2, 3)), *y = td_add(x, w);
    td_tensor *named[] = {x, td_transpose(x), w, y, y, td_slice(y, 1, 1, 2, 1)};
    td_program *program = programs_end(client.device, 6, named);
    td_release(w);
    td_tensor *input = td_reshape(client_ramp(client.device, 6, 0), TD_SHAPE(2, 3)), *results[6];
    programs_ok(td_program_run(program, 1, &input, 6, results));
    td_tensor *sum = td_add(input, kept);
    for (int run = 0; run < 2; run++) {
        programs_expect_same(results[0], input, "a parameter");
        programs_expect_same(results[1], td_transpose(input), "a view of a parameter");
        programs_expect_same(results[2], kept, "a captured tensor");
        programs_expect_same(results[3], sum, "a result");
        programs_expect_same(results[4], sum, "the same result again");
        programs_expect_same(results[5], td_slice(sum, 1, 1, 2, 1), "a view of a result");
        programs_ok(td_record_begin(client.device));
        x = td_parameter(TD_F32, TD_SHAPE(2, 3));
        programs_ok(td_program_run(program, 1, &x, 6, results));
        program = programs_end(client.device, 6, results);
        programs_ok(td_program_run(program, 1, &input, 6, results));
    }
}

/* ---- memory and lives ---- */

Test(programs, captured_tensor_keeps_its_value) {
    td_tensor *w = client_ramp(client.device, 3, 1), *g = client_ramp(client.device, 3, 0);
    programs_ok(td_record_begin(client.device));
    td_tensor *y = td_multiply(w, td_parameter(TD_F32, TD_SHAPE(3)));
    td_program *program = programs_end(client.device, 1, &y);
    programs_ok(td_sgd(1, &w, &g, NULL, 1, 0, 0, 0)); /* writes to w's memory where nothing else uses it */
    td_tensor *x = client_ramp(client.device, 3, 1), *result;
    programs_ok(td_program_run(program, 1, &x, 1, &result));
    client_expect(result, (const float[]){1, 4, 9}, 3);
    client_expect(w, (const float[]){1, 1, 1}, 3);
}

Test(programs, released_program_still_runs_what_was_enqueued) {
    programs_ok(td_record_begin(client.device));
    td_tensor *x = td_parameter_consumed(TD_F32, TD_SHAPE(3));
    td_tensor *y = td_add(x, td_full(client.device, TD_F32, TD_SCALAR, 1));
    td_program *program = programs_end(client.device, 1, &y);
    td_tensor *state = client_ramp(client.device, 3, 0);
    for (int i = 0; i < 1000; i++)
        programs_ok(td_program_run(program, 1, &state, 1, &state));
    td_program_release(program);
    client_expect(state, (const float[]){1000, 1001, 1002}, 3);
}

Test(programs, leave_no_memory_behind) {
    programs_ok(td_sync(client.device));
    const struct status_baseline before = {.device = "cpu:0", .live = 0, .sessions = 1};
    td_tensor *w = td_full(client.device, TD_F32, TD_SHAPE(1000, 100), 1);
    for (int i = 0; i < 20; i++) {
        td_scope_begin(NULL);
        programs_ok(td_record_begin(client.device));
        td_tensor *x = td_parameter(TD_F32, TD_SHAPE(1000, 100));
        td_tensor *y = td_matmul(td_transpose(td_exp(td_add(x, w))), w);
        td_program *program = programs_end(client.device, 1, &y);
        td_tensor *input = td_copy(w), *result;
        programs_ok(td_program_run(program, 1, &input, 1, &result));
        programs_ok(td_program_run(program, 1, &input, 1, &result));
        td_program_release(program);
        td_scope_end();
    }
    td_release(w);
    programs_ok(td_sync(client.device));
    cr_assert(status_settles(tensord.url, &before, 30000), "programs hold memory after their release");
}

/* ---- failures ---- */

Test(programs, failure_names_the_operation_and_its_label) {
    programs_ok(td_record_begin(client.device));
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(3)), *places = td_parameter(TD_I64, TD_SHAPE(2));
    td_scope_begin_label("net");
    td_label("rows");
    td_tensor *taken = td_take(x, places, 0);
    td_scope_end();
    td_tensor *named[] = {td_exp(taken), td_exp(x)};
    td_program *program = programs_end(client.device, 2, named);
    td_tensor *inputs[] = {client_ramp(client.device, 3, 0),
                           td_upload(client.device, TD_I64, TD_SHAPE(2), (int64_t[]){1, 9})};
    td_tensor *results[2];
    programs_ok(td_program_run(program, 2, inputs, 2, results));
    for (int i = 0; i < 2; i++) {
        const td_error *error = client_expect_failure(results[i], TD_E_OUT_OF_RANGE);
        cr_assert_str_eq(error->operation, "take", "%s", error->message);
        cr_assert_str_eq(error->label, "net/rows", "%s", error->message);
        cr_assert(strstr(error->message, "index 9"), "%s", error->message);
    }
    inputs[1] = td_upload(client.device, TD_I64, TD_SHAPE(2), (int64_t[]){2, 0});
    programs_ok(td_program_run(program, 2, inputs, 2, results));
    td_tensor *expected = td_exp(td_take(inputs[0], inputs[1], 0));
    programs_expect_same(results[0], expected, "the run after a failure");
}

Test(programs, failed_input_is_the_cause_of_the_results) {
    programs_ok(td_record_begin(client.device));
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(2)), *y = td_exp(x);
    td_program *program = programs_end(client.device, 1, &y);
    td_tensor *ramp = client_ramp(client.device, 3, 0), *result;
    td_tensor *places = td_upload(client.device, TD_I64, TD_SHAPE(2), (int64_t[]){1, 9});
    td_label("wrong");
    td_tensor *input = td_take(ramp, places, 0);
    programs_ok(td_program_run(program, 1, &input, 1, &result));
    const td_error *error = client_expect_failure(result, TD_E_OUT_OF_RANGE);
    cr_assert_str_eq(error->label, "wrong", "%s", error->message);
    programs_ok(td_record_begin(client.device));
    y = td_exp(input);
    program = programs_end(client.device, 1, &y);
    programs_ok(td_program_run(program, 0, NULL, 1, &result));
    error = client_expect_failure(result, TD_E_OUT_OF_RANGE);
    cr_assert(strstr(error->message, "index 9 at position 1"), "%s", error->message);
}

/* Captured tensors that have failed are the first cause of the runs, as inputs are: also those that fail only after the program is there. */
Test(programs, failed_captured_tensor_is_the_cause_of_the_results) {
    td_tensor *ramp = client_ramp(client.device, 3, 0);
    td_tensor *places = td_upload(client.device, TD_I64, TD_SHAPE(2), (int64_t[]){1, 9});
    for (int known = 0; known < 2; known++) {
        td_label("wrong");
        td_tensor *captured = td_take(ramp, places, 0), *results[4];
        const td_error *error = known ? client_expect_failure(captured, TD_E_OUT_OF_RANGE) : NULL;
        uint64_t sequence = error ? error->sequence : 0;
        programs_ok(td_record_begin(client.device));
        td_tensor *y = td_exp(td_add(captured, td_full(client.device, TD_F32, TD_SCALAR, 1)));
        td_program *program = programs_end(client.device, 1, &y);
        td_label("run");
        programs_ok(td_program_run(program, 0, NULL, 1, &results[0]));
        results[1] = td_add(td_full(client.device, TD_F32, TD_SHAPE(2), 1), results[0]);
        programs_ok(td_program_run(program, 0, NULL, 1, &results[2]));
        programs_ok(td_program_repeat(program, 3, NULL, 0, NULL, 1, &results[3]));
        for (int i = 0; i < 4; i++) {
            error = client_expect_failure(results[i], TD_E_OUT_OF_RANGE);
            cr_assert_str_eq(error->operation, "take", "%s", error->message);
            cr_assert_str_eq(error->label, "wrong", "%s", error->message);
            cr_assert(!strstr(error->message, "program"), "%s", error->message);
            cr_assert(!known || error->sequence == sequence, "operation %llu", (unsigned long long)error->sequence);
        }
        td_program_release(program);
        client_expect(td_exp(td_full(client.device, TD_F32, TD_SHAPE(1), 0)), (const float[]){1}, 1);
    }
}

/* ---- threads and connections ---- */

struct worker {
    td_program *shared;
    int number, code;
};

/* Records and runs a program of its own, and runs the shared one. */
static void *work(void *some) {
    struct worker *worker = some;
    float expected[3], got[3];
    for (int round = 0; round < 20; round++) {
        td_scope_begin(NULL);
        float rise = (float)(worker->number * 100 + round);
        td_program *own = NULL;
        worker->code = td_record_begin(client.device);
        td_tensor *x = td_parameter(TD_F32, TD_SHAPE(3));
        td_tensor *y = td_add(x, td_full(client.device, TD_F32, TD_SCALAR, rise));
        if (!worker->code)
            worker->code = td_record_end(client.device, 1, &y, &own);
        td_tensor *state = td_full(client.device, TD_F32, TD_SHAPE(3), 0);
        for (int i = 0; i < 10 && !worker->code; i++) {
            worker->code = td_program_run(own, 1, &state, 1, &state);
            if (!worker->code)
                worker->code = td_program_run(worker->shared, 1, &state, 1, &state);
        }
        if (!worker->code)
            worker->code = td_fetch(state, got, sizeof got);
        for (int i = 0; i < 3; i++)
            expected[i] = 10 * (rise + 1);
        if (!worker->code && memcmp(got, expected, sizeof got))
            worker->code = -1;
        td_program_release(own);
        td_scope_end();
        if (worker->code)
            break;
    }
    return NULL;
}

Test(programs, threads_record_and_run_at_once) {
    enum { THREADS = 4 };
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    programs_ok(td_record_begin(client.device));
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(3));
    td_tensor *y = td_add(x, td_full(client.device, TD_F32, TD_SCALAR, 1));
    td_program *shared = programs_end(client.device, 1, &y);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.shared = shared, .number = i};
        pthread_create(&threads[i], NULL, work, &workers[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        cr_expect_eq(workers[i].code, 0, "thread %d: %d", i, workers[i].code);
    }
}

Test(programs, survive_a_cut_connection_exactly_once) {
    struct proxy proxy;
    struct client far;
    proxy_start(&proxy, tensord.url, 7);
    atomic_store(&proxy.cuts_max, 12);
    atomic_store(&proxy.every, 3000);
    client_open(&far, proxy.url, NULL);
    td_tensor *state = client_ramp(far.device, 3, 0), *one = td_full(far.device, TD_F32, TD_SCALAR, 1);
    for (int round = 0; round < 40; round++) {
        programs_ok(td_record_begin(far.device));
        td_tensor *x = td_parameter_consumed(TD_F32, TD_SHAPE(3)), *y = x;
        for (int i = 0; i < 10; i++)
            y = td_add(y, one);
        td_program *program = NULL;
        programs_ok(td_record_end(far.device, 1, &y, &program));
        const td_carry carried[] = {{0, 0}};
        for (int i = 0; i < 5; i++)
            programs_ok(td_program_run(program, 1, &state, 1, &state));
        programs_ok(td_program_repeat(program, 5, &(td_loop){1, carried, 0, NULL, 0, NULL}, 1, &state, 1, &state));
        td_program_release(program);
        programs_ok(td_wait(state));
    }
    client_expect(state, (const float[]){4000, 4001, 4002}, 3);
    cr_assert_gt(atomic_load(&proxy.cuts), 3, "nothing was cut");
    client_close(&far);
    proxy_stop(&proxy);
}
