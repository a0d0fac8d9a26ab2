/* Memory for time: trains a network of many equal blocks, each x + W · gelu(layer_norm(x)), to give its own input back:
 *
 *     checkpoint --blocks 32             keeps what each block computes for the way back
 *     checkpoint --blocks 32 --again     keeps the blocks' inputs alone, and computes the rest again when it is needed: td_checkpoint()
 *
 * Both print the same losses; `tensorctl status` shows the most memory that the device has used, and the time is printed at the end. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/examples/job.h"
#include "client/tensord.h"

enum { WIDTH = 256, BLOCKS_MOST = 256 };

struct options {
    const char *url, *device;
    long blocks, batch, steps;
    bool again;
};

static td_tensor *weights[BLOCKS_MOST];

/* A td_function: `weight` points to the block's handle, which is in use as long as the tape is. */
static int block(void *weight, td_tensor *const *x, td_tensor **y) {
    td_tensor *const *of = weight;
    td_tensor *change = td_matmul(td_gelu(td_layer_norm(*x, NULL, NULL, 1, 1e-5)), *of);
    *y = td_add(*x, change);
    return *y ? TD_OK : td_last_error()->code;
}

/* Returns the loss, and replaces the weights. */
static td_tensor *train_step(const struct options *options, td_tensor *inputs) {
    td_tensor *gradients[BLOCKS_MOST], *x = inputs;
    td_tensor *rate = td_full(td_tensor_device(inputs), TD_F32, TD_SCALAR, 0.01);
    job_check(td_tape_begin());
    for (long i = 0; i < options->blocks; i++) {
        td_tensor *y;
        td_scope_begin(NULL); /* its end frees what the block computes and the tape does not keep */
        job_check(options->again ? td_checkpoint(block, &weights[i], NULL, 1, &x, 1, &y) : block(&weights[i], &x, &y));
        td_keep(y);
        td_scope_end();
        if (i > 0)
            td_release(x);
        x = y;
    }
    td_tensor *loss = td_mse_loss(x, inputs, TD_REDUCTION_MEAN);
    job_check(td_gradients(loss, (int)options->blocks, weights, gradients));
    td_tape_end();
    for (long i = 0; i < options->blocks; i++) {
        td_tensor *moved = td_subtract(weights[i], td_multiply(gradients[i], rate));
        td_release(weights[i]);
        weights[i] = td_keep(moved);
    }
    return loss;
}

static void run(td_device *device, const struct options *options) {
    td_tensor *inputs = td_normal(device, TD_F32, TD_SHAPE(options->batch, WIDTH), 1, 0, 1);
    for (long i = 0; i < options->blocks; i++)
        weights[i] = td_normal(device, TD_F32, TD_SHAPE(WIDTH, WIDTH), 2 + (uint64_t)i, 0, 1 / sqrt(WIDTH));
    double start = job_seconds();
    for (long step = 1; step <= options->steps; step++) {
        float loss;
        td_scope_begin("step");
        job_check(td_fetch(train_step(options, inputs), &loss, sizeof loss));
        td_scope_end();
        printf("step %2ld  loss %.6f\n", step, (double)loss);
    }
    printf("%.1f ms a step\n", 1000 * (job_seconds() - start) / (double)options->steps);
}

static const char usage[] =
    "usage: checkpoint [OPTION]...\n"
    "  --url URL      unix:/path, tcp:// or tls://host:port; else $TENSORD_URL; else the default\n"
    "  --device NAME  cpu:0 or the like; else the daemon's first device\n"
    "  --again        computes the blocks again in place of keeping what they compute\n"
    "  --blocks N     (32)\n"
    "  --batch N      rows of 256 numbers (1024)\n"
    "  --steps N      (4)\n"
    "  --help\n";

int main(int argc, char **argv) {
    struct options options = {.blocks = 32, .batch = 1024, .steps = 4};
    const struct job_option known[] = {
        {"url", .text = &options.url},        {"device", .text = &options.device}, {"again", .flag = &options.again},
        {"blocks", .count = &options.blocks}, {"batch", .count = &options.batch},  {"steps", .count = &options.steps},
    };
    td_connection *connection;
    td_device *device;
    job_options(argc, argv, usage, known, sizeof known / sizeof *known);
    if (options.blocks > BLOCKS_MOST)
        job_die("--blocks", "is more than 256");
    job_check(td_connect(options.url, NULL, &connection));
    job_check(td_device_open(connection, options.device, &device));
    run(device, &options);
    td_close(connection); /* also frees what is left on the device */
    return EXIT_SUCCESS;
}
