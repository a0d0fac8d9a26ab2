/* Trains a small network on Fashion-MNIST through a tensord daemon: 784 → 256 (relu) → 10 (softmax).
 *
 * The images are uploaded once, as bytes, and stay on the device. Every training step enqueues some forty operations and
 * returns at once: the host runs ahead of the device. Every STEPS_AHEAD steps it waits, and at the end of each epoch it
 * fetches the loss. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

#include "client/examples/job.h"
#include "client/tensord.h"

enum { PIXELS = 28 * 28, HIDDEN = 256, CLASSES = 10, STEPS_AHEAD = 20, TEST_BATCH = 1000 };

static const double learning_rate = 0.05, momentum = 0.9;

/* ---- the data: gzip'ed IDX files: a magic number, the extents (both big-endian), and bytes ---- */

/* Images and labels on the device: u8 (count, 784) and u8 (count). */
struct dataset {
    td_device *device;
    td_tensor *images, *labels;
    uint32_t count;
};

static uint32_t read_u32(gzFile file, const char *path) {
    uint8_t b[4];
    if (gzread(file, b, 4) != 4)
        job_die(path, "cannot be read");
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static uint8_t *read_idx(const char *folder, const char *name, uint32_t rank, uint32_t item_bytes, uint32_t *count) {
    char path[4096];
    uint32_t bytes = 1;

    snprintf(path, sizeof path, "%s/%s-ubyte.gz", folder, name);
    gzFile file = gzopen(path, "rb");
    if (!file)
        job_die(path,
                "cannot be opened; the Debian package is dataset-fashion-mnist, another place is named with --data");
    if (read_u32(file, path) != (0x0800 | rank))
        job_die(path, "is not the IDX file it should be");
    *count = read_u32(file, path);
    for (uint32_t i = 1; i < rank; ++i)
        bytes *= read_u32(file, path);
    if (bytes != item_bytes || *count == 0 || *count > 1000000)
        job_die(path, "has other extents than Fashion-MNIST");
    uint8_t *data = malloc((size_t)*count * bytes);
    if (!data)
        job_die(path, "no memory");
    if (gzread(file, data, *count * bytes) != (int)(*count * bytes))
        job_die(path, "is cut short");
    gzclose(file);
    return data;
}

static struct dataset upload_dataset(td_device *device, const char *folder, const char *prefix) {
    struct dataset set = {.device = device};
    char name[64];
    uint32_t n_labels;

    snprintf(name, sizeof name, "%s-images-idx3", prefix);
    uint8_t *images = read_idx(folder, name, 3, PIXELS, &set.count);
    td_label(name);
    set.images = td_upload(device, TD_U8, TD_SHAPE(set.count, PIXELS), images);
    snprintf(name, sizeof name, "%s-labels-idx1", prefix);
    uint8_t *labels = read_idx(folder, name, 1, 1, &n_labels);
    if (n_labels != set.count)
        job_die(folder, "holds another number of labels than of images");
    td_label(name);
    set.labels = td_upload(device, TD_U8, TD_SHAPE(set.count), labels);
    free(images); /* td_upload() does not need them any more */
    free(labels);
    return set;
}

/* ---- the network ---- */

enum { W1, B1, W2, B2, PARAMETERS };

struct network {
    td_tensor *parameter[PARAMETERS], *velocity[PARAMETERS];
    td_tensor *rate, *momentum, *scale; /* numbers that the formulas use */
};

static td_tensor *number(td_device *device, double value) {
    return td_full(device, TD_F32, TD_SCALAR, value);
}

static struct network network_make(td_device *device, uint64_t seed) {
    static const char *const names[PARAMETERS] = {"w1", "b1", "w2", "b2"};
    static const int64_t shapes[PARAMETERS][2] = {{HIDDEN, PIXELS}, {HIDDEN}, {CLASSES, HIDDEN}, {CLASSES}};
    struct network net = {.rate = number(device, learning_rate),
                          .momentum = number(device, momentum),
                          .scale = number(device, 1.0 / 255)};

    for (int i = 0; i < PARAMETERS; ++i) {
        int rank = i == W1 || i == W2 ? 2 : 1;
        double deviation = rank == 2 ? sqrt(2.0 / (double)shapes[i][1]) : 0; /* He et al., 2015 */
        td_label(names[i]);
        net.parameter[i] = td_normal(device, TD_F32, rank, shapes[i], seed + (uint64_t)i, 0, deviation);
        net.velocity[i] = td_full(device, TD_F32, rank, shapes[i], 0);
    }
    return net;
}

/* From the bytes of images to logits. */
static td_tensor *forward(const struct network *net, td_tensor *images) {
    td_tensor *const *p = net->parameter;
    td_tensor *x = td_multiply(td_cast(images, TD_F32), net->scale);
    td_tensor *hidden = td_linear(x, p[W1], p[B1], TD_ACTIVATION_RELU);
    td_label("logits");
    return td_linear(hidden, p[W2], p[B2], TD_ACTIVATION_NONE);
}

/* Replaces a handle that outlives the step. */
static void replace(td_tensor **kept, td_tensor *with) {
    td_release(*kept);
    *kept = td_keep(with);
}

/* Gradient descent with momentum: v ← momentum · v + gradient, p ← p − rate · v. */
static void update(struct network *net, int i, td_tensor *gradient) {
    replace(&net->velocity[i], td_add(td_multiply(net->velocity[i], net->momentum), gradient));
    replace(&net->parameter[i], td_subtract(net->parameter[i], td_multiply(net->velocity[i], net->rate)));
}

/* One step on a batch: adds the mean of its cross-entropy to *loss_sum and moves the parameters down that mean's gradient. */
static void train_step(struct network *net, td_tensor *images, td_tensor *labels, td_tensor **loss_sum) {
    td_tensor *gradients[PARAMETERS];
    job_check(td_tape_begin());
    td_tensor *loss = td_cross_entropy(forward(net, images), labels, NULL, -100, TD_REDUCTION_MEAN, 0);
    job_check(td_gradients(loss, PARAMETERS, net->parameter, gradients));
    td_tape_end();
    replace(loss_sum, td_add(*loss_sum, loss));
    for (int i = 0; i < PARAMETERS; ++i)
        update(net, i, gradients[i]);
}

/* ---- training and testing ---- */

struct options {
    const char *url, *device, *data;
    long epochs, batch, seed;
};

/* Returns the mean loss of an epoch; *rate is images per second. */
static double train_epoch(struct network *net, const struct dataset *set, td_tensor *order, long epoch, long batch,
                          double *rate) {
    td_tensor *loss_sum = number(set->device, 0), *mark = NULL;
    long steps = set->count / batch; /* the images that are left over come in another epoch, whose order differs */
    double start = job_seconds();
    float loss;

    for (long step = 0; step < steps; ++step) {
        td_scope_begin("train"); /* its end frees the handles of the step, except those passed to td_keep() */
        td_tensor *chosen = td_slice(order, 0, step * batch, (step + 1) * batch, 1);
        train_step(net, td_take(set->images, chosen, 0), td_take(set->labels, chosen, 0), &loss_sum);
        td_scope_end();
        /* Without this the host would enqueue the whole epoch at once, and calls would fail with TD_E_AGAIN when the queue
         * is full. It waits for the loss of STEPS_AHEAD steps ago, so the device still has work meanwhile. */
        if ((step + 1) % STEPS_AHEAD == 0) {
            long done = step + 1 - STEPS_AHEAD;
            if (done > 0) {
                job_check(td_wait(mark));
                job_progress(epoch, done, steps, (double)(done * batch) / (job_seconds() - start));
            }
            td_release(mark);
            mark = td_copy(loss_sum);
        }
    }
    job_check(td_fetch(loss_sum, &loss, sizeof loss));
    *rate = (double)(steps * batch) / (job_seconds() - start);
    td_release(mark);
    td_release(loss_sum);
    return loss / (double)steps;
}

/* The share of images whose largest logit is the one of their label. */
static double test(const struct network *net, const struct dataset *set) {
    int64_t correct;

    td_scope_begin("test");
    td_tensor *sum = td_full_int(set->device, TD_I64, TD_SCALAR, 0);
    for (int64_t i = 0; i < set->count; i += TEST_BATCH) {
        td_tensor *logits = forward(net, td_slice(set->images, 0, i, i + TEST_BATCH, 1));
        td_tensor *guess = td_argmax(logits, TD_AXES(-1), 0);
        td_tensor *right = td_equal(guess, td_slice(set->labels, 0, i, i + TEST_BATCH, 1));
        sum = td_add(sum, td_sum(right, TD_ALL_AXES, 0));
    }
    job_check(td_fetch(sum, &correct, sizeof correct));
    td_scope_end();
    return (double)correct / set->count;
}

static void run(td_device *device, const struct options *options) {
    struct dataset training = upload_dataset(device, options->data, "train");
    struct dataset testing = upload_dataset(device, options->data, "t10k");
    struct network net = network_make(device, (uint64_t)options->seed * PARAMETERS);
    unsigned short random[3] = {(unsigned short)options->seed, (unsigned short)(options->seed >> 16), 0x330e};
    int32_t *order = malloc(training.count * sizeof *order);
    double accuracy = 0;

    if (!order || options->batch > training.count)
        job_die("--batch", order ? "is larger than the training set" : "no memory");
    for (uint32_t i = 0; i < training.count; ++i)
        order[i] = (int32_t)i;
    printf("%u images to train, %u to test, on %s\n", training.count, testing.count, td_device_name(device));

    for (long epoch = 1; epoch <= options->epochs; ++epoch) {
        double rate;
        td_tensor *shuffle = job_shuffled(device, order, training.count, random);
        double loss = train_epoch(&net, &training, shuffle, epoch, options->batch, &rate);
        td_release(shuffle);
        accuracy = test(&net, &testing);
        job_progress_end();
        printf("epoch %2ld  loss %.4f  test accuracy %.2f %%  %.0f images/s\n", epoch, loss, 100 * accuracy, rate);
    }
    printf("test accuracy %.2f %% after %ld epochs\n", 100 * accuracy, options->epochs);
    free(order);
}

/* ---- the command line ---- */

static const char usage[] =
    "usage: fashion_mnist [OPTION]...\n"
    "  --url URL      unix:/path, tcp:// or tls://host:port; else $TENSORD_URL; else the default\n"
    "  --device NAME  cpu:0 or the like; else the daemon's first device\n"
    "  --data DIR     where the four .gz files are (/usr/share/datasets/fashion-mnist)\n"
    "  --epochs N     (10)\n"
    "  --batch N      images in a step (128)\n"
    "  --seed N       (1)\n"
    "  --help\n";

static struct options options_parse(int argc, char **argv) {
    struct options options = {.data = "/usr/share/datasets/fashion-mnist", .epochs = 10, .batch = 128, .seed = 1};
    const struct job_option known[] = {
        {"url", .text = &options.url},        {"device", .text = &options.device}, {"data", .text = &options.data},
        {"epochs", .count = &options.epochs}, {"batch", .count = &options.batch},  {"seed", .count = &options.seed},
    };
    job_options(argc, argv, usage, known, sizeof known / sizeof *known);
    return options;
}

int main(int argc, char **argv) {
    struct options options = options_parse(argc, argv);
    td_connection *connection;
    td_device *device;

    setvbuf(stdout, NULL, _IOLBF, 0);
    job_check(td_connect(options.url, NULL, &connection));
    job_check(td_device_open(connection, options.device, &device));
    run(device, &options);
    td_close(connection); /* also frees what is left on the device */
    return EXIT_SUCCESS;
}
