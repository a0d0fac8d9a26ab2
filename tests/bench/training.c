/* A network of 784-256-10 that is trained on batches of 256 images of bytes: its step as a recorded program and as operations one by one, and an
 * epoch of it in one message over a slow link. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"

enum { PIXELS = 784, HIDDEN = 256, CLASSES = 10, BATCH = 256, PARAMETERS = 4, STATE = 2 * PARAMETERS, IN = STATE + 2 };
enum { RUNS = 5, DELAY_MS = 20 };

static const int64_t shapes[PARAMETERS][2] = {{HIDDEN, PIXELS}, {HIDDEN}, {CLASSES, HIDDEN}, {CLASSES}};

static int rank_of(int i) {
    return i % 2 ? 1 : 2;
}

/* A step of gradient descent with momentum: changes the state, parameters and then velocities, in its place; returns the loss. */
static td_tensor *step(td_device *device, td_tensor *state[STATE], td_tensor *images, td_tensor *labels) {
    td_tensor *slopes[PARAMETERS];
    td_scope_begin("step");
    bench_check(td_tape_begin(), "td_tape_begin");
    td_tensor *x = td_multiply(td_cast(images, TD_F32), td_full(device, TD_F32, TD_SCALAR, 1.0 / 255));
    td_tensor *hidden = td_linear(x, state[0], state[1], TD_ACTIVATION_RELU);
    td_tensor *scores = td_linear(hidden, state[2], state[3], TD_ACTIVATION_NONE);
    td_tensor *loss = td_cross_entropy(scores, labels, NULL, -100, TD_REDUCTION_MEAN, 0);
    bench_check(td_gradients(loss, PARAMETERS, state, slopes), "td_gradients");
    td_tape_end();
    bench_check(td_sgd(PARAMETERS, state, slopes, state + PARAMETERS, 0.01, 0.9, 0, 0), "td_sgd");
    for (int i = 0; i < STATE; i++)
        td_keep(state[i]);
    td_keep(loss);
    td_scope_end();
    return bench_made(loss, "a step");
}

static td_program *record(td_device *device) {
    td_tensor *all[IN];
    td_program *program;
    bench_check(td_record_begin(device), "td_record_begin");
    for (int i = 0; i < STATE; i++)
        all[i] = td_parameter_consumed(TD_F32, rank_of(i), shapes[i % PARAMETERS]);
    td_tensor *images = td_parameter(TD_U8, TD_SHAPE(BATCH, PIXELS)), *labels = td_parameter(TD_U8, TD_SHAPE(BATCH));
    all[STATE] = step(device, all, images, labels);
    bench_check(td_record_end(device, STATE + 1, all, &program), "td_record_end");
    for (int i = 0; i <= STATE; i++)
        td_release(all[i]);
    td_release(images);
    td_release(labels);
    return program;
}

static void state_make(td_device *device, td_tensor *state[STATE]) {
    for (int i = 0; i < STATE; i++) {
        const int64_t *shape = shapes[i % PARAMETERS];
        state[i] = i < PARAMETERS && rank_of(i) == 2
                       ? td_uniform(device, TD_F32, 2, shape, (uint64_t)i + 1, -0.05, 0.05)
                       : td_full(device, TD_F32, rank_of(i), shape, 0);
        bench_made(state[i], "the network");
    }
}

static void release_all(td_tensor **tensors, int count) {
    for (int i = 0; i < count; i++)
        td_release(tensors[i]);
}

/* Random images and labels, a batch for each of `count` steps. */
static void data_make(td_device *device, int64_t count, td_tensor **images, td_tensor **labels) {
    *images = td_randint(device, TD_U8, TD_SHAPE(count, BATCH, PIXELS), 7, 0, 256);
    *labels = td_randint(device, TD_U8, TD_SHAPE(count, BATCH), 8, 0, CLASSES);
    bench_made(*images, "images");
    bench_made(*labels, "labels");
}

/* ---- a step ---- */

/* Seconds of a step; the state of all[] is changed. */
static double by_program(td_device *device, td_program *program, td_tensor *all[IN], int times) {
    td_tensor *results[STATE + 1];
    double begin = bench_now();
    for (int i = 0; i < times; i++) {
        while (td_program_run(program, IN, all, STATE + 1, results))
            if (!bench_again(device))
                bench_check(td_last_error()->code, "td_program_run");
        memcpy(all, results, STATE * sizeof *all);
        td_release(results[STATE]);
    }
    bench_check(td_sync(device), "td_sync");
    return (bench_now() - begin) / times;
}

static double one_by_one(td_device *device, td_tensor *all[IN], int times) {
    double begin = bench_now();
    for (int i = 0; i < times; i++) {
        td_release(step(device, all, all[STATE], all[STATE + 1]));
        if (i % 32 == 31)
            bench_check(td_sync(device), "td_sync"); /* so that the send queue is never full */
    }
    bench_check(td_sync(device), "td_sync");
    return (bench_now() - begin) / times;
}

void bench_training(const struct bench_placement *placement, td_device *device) {
    double recorded[RUNS], eager[RUNS];
    td_tensor *all[IN], *images, *labels;
    char name[96];
    int times = bench_quick ? 3 : 100;
    td_program *program = record(device);
    state_make(device, all);
    data_make(device, 1, &images, &labels);
    all[STATE] = td_reshape(images, TD_SHAPE(BATCH, PIXELS));
    all[STATE + 1] = td_reshape(labels, TD_SHAPE(BATCH));
    by_program(device, program, all, 1); /* plans */
    for (int run = 0; run < RUNS; run++) {
        recorded[run] = by_program(device, program, all, times);
        eager[run] = one_by_one(device, all, times);
    }
    double mine = bench_median(recorded, RUNS) * 1e6, theirs = bench_median(eager, RUNS) * 1e6;
    snprintf(name, sizeof name, "step of 784-256-10, against its operations (%s)", placement->name);
    bench_row(name, mine, "us", theirs, mine / theirs, BENCH_LOWER, 1 / 1.5);
    release_all(all, IN);
    td_release(images);
    td_release(labels);
    td_program_release(program);
}

/* ---- epochs over a slow link ---- */

/* A client that trains. The losses of an epoch are looked at while the next one runs. */
struct trainer {
    struct bench_client client;
    td_program *program;
    td_tensor *all[IN];
    int64_t steps;
    float *losses;
};

static void trainer_open(struct trainer *trainer, const char *url, int64_t steps) {
    bench_client_open(&trainer->client, url, NULL);
    trainer->steps = steps;
    trainer->losses = malloc((size_t)steps * sizeof(float));
    if (!trainer->losses)
        bench_fail("no memory");
    trainer->program = record(trainer->client.device);
    state_make(trainer->client.device, trainer->all);
    data_make(trainer->client.device, steps, &trainer->all[STATE], &trainer->all[STATE + 1]);
}

static void trainer_look(struct trainer *trainer, td_tensor *losses) {
    bench_check(td_fetch(losses, trainer->losses, (size_t)trainer->steps * sizeof(float)), "the losses");
    if (!(trainer->losses[trainer->steps - 1] < 100))
        bench_fail("the last loss of an epoch is %g", (double)trainer->losses[trainer->steps - 1]);
    td_release(losses);
}

/* Images per second of `epochs`. */
static double trainer_run(struct trainer *trainer, int epochs) {
    static const td_carry carried[STATE] = {{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}, {6, 6}, {7, 7}};
    static const int sliced[] = {STATE, STATE + 1}, stacked[] = {STATE};
    static const td_loop epoch = {STATE, carried, 2, sliced, 1, stacked};
    td_tensor *results[STATE + 1], *losses = NULL;
    double begin = bench_now();
    for (int i = 0; i < epochs; i++) {
        bench_check(td_program_repeat(trainer->program, trainer->steps, &epoch, IN, trainer->all, STATE + 1, results),
                    "td_program_repeat");
        memcpy(trainer->all, results, STATE * sizeof *results);
        if (losses)
            trainer_look(trainer, losses);
        losses = results[STATE];
    }
    trainer_look(trainer, losses);
    return (double)(epochs * trainer->steps * BATCH) / (bench_now() - begin);
}

static void trainer_close(struct trainer *trainer) {
    free(trainer->losses);
    bench_client_close(&trainer->client);
}

/* Milliseconds until an answer comes, the least of some. */
static double answer_ms(struct trainer *trainer) {
    double least = 1e9;
    for (int i = 0; i < 5; i++) {
        double begin = bench_now();
        bench_check(td_sync(trainer->client.device), "td_sync");
        least = bench_now() - begin < least ? bench_now() - begin : least;
    }
    return least * 1e3;
}

static void measure(const char *local_url, const char *slow_url, const char *how) {
    struct trainer local, slow;
    double near[RUNS], far[RUNS];
    char name[96];
    int64_t steps = bench_quick ? 8 : 234;
    int epochs = bench_quick ? 2 : 12;
    trainer_open(&local, local_url, steps);
    trainer_open(&slow, slow_url, steps);
    trainer_run(&local, 1);
    trainer_run(&slow, 1);
    for (int run = 0; run < RUNS; run++) {
        near[run] = trainer_run(&local, epochs);
        far[run] = trainer_run(&slow, epochs);
    }
    double mine = bench_median(far, RUNS), limit = bench_median(near, RUNS);
    snprintf(name, sizeof name, "epochs over a link of 2 x %d ms, by %s", DELAY_MS, how);
    bench_row(name, mine / 1e3, "kimg/s", limit / 1e3, mine / limit, BENCH_HIGHER, 0.98);
    bench_note("an answer takes %.1f ms, on the local link %.3f ms; %d epochs of %d steps, in one message each",
               answer_ms(&slow), answer_ms(&local), epochs, (int)steps);
    trainer_close(&local);
    trainer_close(&slow);
}

/* In a process of its own, which may have a network of its own. */
static void epochs(void) {
    struct bench_daemon daemon;
    char slow[BENCH_URL];
    pid_t relay = 0;
    bool netem = bench_link_netem(DELAY_MS);
    bench_daemon_start(&daemon);
    if (!netem) {
        printf("(netem is not permitted here, or missing: a process delays what it passes on)\n");
        relay = bench_link_relay(daemon.tcp, DELAY_MS, slow);
    }
    measure(daemon.url, netem ? daemon.tcp : slow, netem ? "netem" : "a relay");
    if (relay) {
        kill(relay, SIGKILL);
        waitpid(relay, NULL, 0);
    }
    bench_daemon_stop(&daemon);
}

void bench_epochs(void) {
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        epochs();
        fflush(stdout);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0 || status != 0)
        bench_fail("the epochs over a slow link: %s", *bench_failure() ? bench_failure() : "the process failed");
}
