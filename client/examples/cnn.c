/* Trains a small convolutional network through a tensord daemon, on CIFAR-10 or on Fashion-MNIST:
 *
 *     conv 3→6 (5×5), relu, max-pool 2 · conv 6→16 (5×5, padding 3), relu · conv 16→16 (5×5), relu, max-pool 2 ·
 *     conv 16→16 (3×3), relu, max-pool 2 · flatten to 64 · linear 120, relu, 84, relu, 10 · cross-entropy · Adam
 *
 * Images are 32×32 with three channels; those of Fashion-MNIST get a border, and three equal channels. They are uploaded once, as bytes.
 * Forward, backward and optimiser run on the device: a step enqueues some sixty operations and returns at once. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "client/examples/job.h"
#include "client/tensord.h"

enum { SIDE = 32, CHANNELS = 3, CLASSES = 10, STEPS_AHEAD = 4 };
enum { MNIST_SIDE = 28, MNIST_BORDER = (SIDE - MNIST_SIDE) / 2 };
enum { CIFAR_FILES = 5, CIFAR_IMAGES = 10000, CIFAR_BYTES = CHANNELS * SIDE * SIDE };

static void *allocate(size_t bytes) {
    void *memory = calloc(1, bytes);
    if (!memory)
        job_die("images", "no memory");
    return memory;
}

/* ---- numbers that are the same everywhere, for the first parameters and for images that are made up ---- */

static uint32_t generator = 1;

static uint32_t next_number(void) {
    generator = generator * 1664525u + 1013904223u;
    return generator >> 8;
}

/* ---- images: bytes (count, channels, 32, 32), and their classes ---- */

struct images {
    uint8_t *pixels, *classes;
    int64_t count, channels;
};

static gzFile open_file(const char *folder, const char *name, bool wanted) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    gzFile file = gzopen(path, "rb"); /* it reads files that are not compressed, too */
    if (!file && wanted)
        job_die(path, "cannot be opened: --data names the folder of CIFAR-10's binary files, or of Fashion-MNIST");
    return file;
}

static void read_bytes(gzFile file, const char *name, void *to, size_t bytes) {
    if (gzread(file, to, (unsigned)bytes) != (int)bytes)
        job_die(name, "is cut short, or cannot be read");
}

/* CIFAR-10: records of a class and of the planes of the three channels. */
static void read_cifar(gzFile file, const char *name, struct images *images) {
    images->channels = CHANNELS;
    for (int i = 0; i < CIFAR_IMAGES; i++, images->count++) {
        read_bytes(file, name, &images->classes[images->count], 1);
        read_bytes(file, name, &images->pixels[images->count * CIFAR_BYTES], CIFAR_BYTES);
    }
    gzclose(file);
}

static struct images images_cifar(const char *folder, gzFile first, bool training) {
    size_t most = (size_t)(training ? CIFAR_FILES : 1) * CIFAR_IMAGES;
    struct images images = {.pixels = allocate(most * CIFAR_BYTES), .classes = allocate(most)};
    char name[32] = "test_batch.bin";
    for (int i = 1; i <= (training ? CIFAR_FILES : 1); i++) {
        if (training)
            snprintf(name, sizeof name, "data_batch_%d.bin", i);
        read_cifar(i == 1 ? first : open_file(folder, name, true), name, &images);
    }
    return images;
}

/* Fashion-MNIST: a header of 16 bytes and images, one of 8 bytes and classes. */
static struct images images_mnist(const char *folder, bool training) {
    struct images images = {.count = training ? 60000 : 10000, .channels = 1};
    char name[64];
    uint8_t header[16];
    images.pixels = allocate((size_t)images.count * SIDE * SIDE);
    images.classes = allocate((size_t)images.count);
    snprintf(name, sizeof name, "%s-images-idx3-ubyte.gz", training ? "train" : "t10k");
    gzFile file = open_file(folder, name, true);
    read_bytes(file, name, header, 16);
    for (int64_t row = 0; row < images.count * MNIST_SIDE; row++) {
        int64_t image = row / MNIST_SIDE, y = row % MNIST_SIDE + MNIST_BORDER;
        read_bytes(file, name, images.pixels + (image * SIDE + y) * SIDE + MNIST_BORDER, MNIST_SIDE);
    }
    gzclose(file);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte.gz", training ? "train" : "t10k");
    file = open_file(folder, name, true);
    read_bytes(file, name, header, 8);
    read_bytes(file, name, images.classes, (size_t)images.count);
    gzclose(file);
    return images;
}

/* Stripes whose direction and width are the class's, with noise. */
static struct images images_made_up(int64_t count) {
    struct images images = {.count = count, .channels = CHANNELS};
    images.pixels = allocate((size_t)count * CIFAR_BYTES);
    images.classes = allocate((size_t)count);
    for (int64_t i = 0; i < count; i++) {
        uint32_t class = images.classes[i] = (uint8_t)(next_number() % CLASSES);
        for (uint32_t k = 0; k < CIFAR_BYTES; k++) {
            uint32_t x = k % SIDE, y = k / SIDE % SIDE, channel = k / SIDE / SIDE;
            uint32_t wave = (x * class + y * (CLASSES - class) + 3 * channel) % 16;
            images.pixels[i * CIFAR_BYTES + k] = (uint8_t)(wave * 12 + next_number() % 64);
        }
    }
    return images;
}

static struct images images_read(const char *folder, bool training) {
    if (!folder)
        return images_made_up(training ? 10240 : 1000);
    gzFile cifar = open_file(folder, training ? "data_batch_1.bin" : "test_batch.bin", false);
    return cifar ? images_cifar(folder, cifar, training) : images_mnist(folder, training);
}

struct dataset {
    td_device *device;
    td_tensor *images, *classes;
    int64_t count, channels;
};

static struct dataset dataset_upload(td_device *device, const char *folder, bool training) {
    struct images images = images_read(folder, training);
    struct dataset set = {.device = device, .count = images.count, .channels = images.channels};
    set.images = td_upload(device, TD_U8, TD_SHAPE(set.count, set.channels, SIDE, SIDE), images.pixels);
    set.classes = td_upload(device, TD_U8, TD_SHAPE(set.count), images.classes);
    free(images.pixels);
    free(images.classes);
    return set;
}

/* ---- the network ---- */

/* A layer: its weight is (outputs, inputs, kernel, kernel), or without a kernel (outputs, inputs). */
struct layer {
    int64_t inputs, outputs, kernel, padding;
    bool relu, pool;
};
static const struct layer layers[] = {
    {3, 6, 5, 0, true, true},          {6, 16, 5, 3, true, false},   {16, 16, 5, 0, true, true},
    {16, 16, 3, 0, true, true},        {64, 120, 0, 0, true, false}, {120, 84, 0, 0, true, false},
    {84, CLASSES, 0, 0, false, false},
};
enum { LAYERS = sizeof layers / sizeof *layers, PARAMETERS = 2 * LAYERS };

/* Weight and bias of each layer in turn. */
struct network {
    td_tensor *parameter[PARAMETERS], *first[PARAMETERS], *second[PARAMETERS];
    td_tensor *scale;
    int64_t steps;
    double rate;
};

/* As PyTorch's layers begin: between -1/√n and 1/√n for sums of n products. */
static td_tensor *parameter_make(td_device *device, int rank, const int64_t *shape, double bound) {
    int64_t elements = 1;
    for (int i = 0; i < rank; i++)
        elements *= shape[i];
    float *values = allocate((size_t)elements * sizeof *values);
    for (int64_t i = 0; i < elements; i++)
        values[i] = (float)(bound * (2.0 * next_number() / (1 << 24) - 1));
    td_tensor *parameter = td_upload(device, TD_F32, rank, shape, values);
    free(values);
    return parameter;
}

static struct network network_make(td_device *device, double rate) {
    struct network net = {.rate = rate};
    net.scale = td_full(device, TD_F32, TD_SCALAR, 1.0 / 255);
    for (int i = 0; i < LAYERS; i++) {
        const struct layer *layer = &layers[i];
        const int64_t shape[] = {layer->outputs, layer->inputs, layer->kernel, layer->kernel};
        int rank = layer->kernel ? 4 : 2;
        double bound = 1 / sqrt((double)(layer->inputs * (layer->kernel ? layer->kernel * layer->kernel : 1)));
        net.parameter[2 * i] = parameter_make(device, rank, shape, bound);
        net.parameter[2 * i + 1] = parameter_make(device, 1, shape, bound);
        for (int k = 2 * i; k < 2 * i + 2; k++) {
            net.first[k] = td_full(device, TD_F32, k % 2 ? 1 : rank, shape, 0);
            net.second[k] = td_full(device, TD_F32, k % 2 ? 1 : rank, shape, 0);
        }
    }
    return net;
}

static td_tensor *layer_forward(const struct network *net, int i, td_tensor *x) {
    const struct layer *layer = &layers[i];
    td_tensor *weight = net->parameter[2 * i], *bias = net->parameter[2 * i + 1], *chosen;
    if (!layer->kernel)
        return td_linear(x, weight, bias, layer->relu ? TD_ACTIVATION_RELU : TD_ACTIVATION_NONE);
    x = td_conv(x, weight, bias, TD_SHAPE(1), TD_SHAPE(layer->padding), TD_SHAPE(1), 1, TD_LAYOUT_CHANNELS_FIRST);
    x = td_relu(x);
    if (layer->pool)
        td_max_pool(x, TD_SHAPE(2), TD_SCALAR, TD_SCALAR, TD_SCALAR, 0, TD_LAYOUT_CHANNELS_FIRST, &x, &chosen);
    return x;
}

/* From bytes (batch, channels, 32, 32) to a score for each class. */
static td_tensor *forward(const struct network *net, td_tensor *images) {
    int64_t batch = td_tensor_shape(images)[0];
    td_tensor *x = td_multiply(td_cast(images, TD_F32), net->scale);
    x = td_broadcast_to(x, TD_SHAPE(batch, CHANNELS, SIDE, SIDE));
    for (int i = 0; i < LAYERS; i++) {
        if (!layers[i].kernel && td_tensor_rank(x) == 4)
            x = td_reshape(x, TD_SHAPE(batch, layers[i].inputs));
        x = layer_forward(net, i, x);
    }
    return x;
}

/* A step on a batch: moves the parameters down the gradient of the mean loss, which it returns. */
static td_tensor *train_step(struct network *net, td_tensor *images, td_tensor *classes) {
    td_tensor *gradients[PARAMETERS];
    job_check(td_tape_begin());
    td_tensor *scores = forward(net, images);
    td_tensor *loss = td_cross_entropy(scores, classes, NULL, -100, TD_REDUCTION_MEAN, 0);
    job_check(td_gradients(loss, PARAMETERS, net->parameter, gradients));
    td_tape_end();
    job_check(td_adam(PARAMETERS, net->parameter, gradients, net->first, net->second, ++net->steps, net->rate, 0.9,
                      0.999, 1e-8, 0));
    return loss;
}

/* ---- training and testing ---- */

struct options {
    const char *url, *device, *data;
    long epochs, batch, seed, steps, evaluate;
    double rate;
};

/* Returns the mean loss of an epoch; *rate is images per second. */
static double train_epoch(struct network *net, const struct dataset *set, td_tensor *order, long epoch, long batch,
                          double *rate) {
    td_tensor *sum = td_full(set->device, TD_F32, TD_SCALAR, 0), *mark = NULL;
    long steps = set->count / batch; /* the images that are left over come in another epoch, whose order differs */
    double start = job_seconds();
    float loss;

    for (long step = 0; step < steps; step++) {
        td_scope_begin("train"); /* its end frees the handles of the step, except those that are kept */
        td_tensor *chosen = td_slice(order, 0, step * batch, (step + 1) * batch, 1);
        td_tensor *mean = train_step(net, td_take(set->images, chosen, 0), td_take(set->classes, chosen, 0));
        td_tensor *added = td_keep(td_add(sum, mean));
        td_release(sum);
        sum = added;
        td_scope_end();
        /* Waits for the loss of some steps ago, so that the host is never far ahead and the device still has work. */
        if ((step + 1) % STEPS_AHEAD == 0) {
            if (mark) {
                job_check(td_wait(mark));
                long done = step + 1 - STEPS_AHEAD;
                job_progress(epoch, done, steps, (double)(done * batch) / (job_seconds() - start));
            }
            td_release(mark);
            mark = td_copy(sum);
        }
    }
    job_check(td_fetch(sum, &loss, sizeof loss));
    *rate = (double)(steps * batch) / (job_seconds() - start);
    td_release(mark);
    td_release(sum);
    return loss / (double)steps;
}

/* The share of images whose greatest score is that of their class. */
static double test(const struct network *net, const struct dataset *set, int64_t batch) {
    int64_t correct;
    td_scope_begin("test");
    td_tensor *sum = td_full_int(set->device, TD_I64, TD_SCALAR, 0);
    for (int64_t i = 0; i < set->count; i += batch) {
        td_tensor *scores = forward(net, td_slice(set->images, 0, i, i + batch, 1));
        td_tensor *guess = td_argmax(scores, TD_AXES(-1), 0);
        td_tensor *right = td_equal(guess, td_slice(set->classes, 0, i, i + batch, 1));
        sum = td_add(sum, td_sum(right, TD_ALL_AXES, 0));
    }
    job_check(td_fetch(sum, &correct, sizeof correct));
    td_scope_end();
    return (double)correct / (double)set->count;
}

/* The first steps, on the images in their order; prints the loss of each. */
static void run_steps(struct network *net, const struct dataset *set, const struct options *options) {
    for (long step = 0; step < options->steps; step++) {
        float loss;
        int64_t begin = step * options->batch % set->count, end = begin + options->batch;
        td_scope_begin("step");
        td_tensor *mean =
            train_step(net, td_slice(set->images, 0, begin, end, 1), td_slice(set->classes, 0, begin, end, 1));
        job_check(td_fetch(mean, &loss, sizeof loss));
        td_scope_end();
        printf("step %2ld  loss %.6f\n", step + 1, (double)loss);
    }
}

static void run_epochs(struct network *net, const struct dataset *training, const struct dataset *testing,
                       const struct options *options) {
    unsigned short random[3] = {(unsigned short)options->seed, (unsigned short)(options->seed >> 16), 0x330e};
    int32_t *order = allocate((size_t)training->count * sizeof *order);
    for (int64_t i = 0; i < training->count; i++)
        order[i] = (int32_t)i;
    for (long epoch = 1; epoch <= options->epochs; epoch++) {
        double rate;
        td_tensor *shuffle = job_shuffled(training->device, order, training->count, random);
        double loss = train_epoch(net, training, shuffle, epoch, options->batch, &rate);
        td_release(shuffle);
        double accuracy = test(net, testing, options->batch);
        job_progress_end();
        printf("epoch %2ld  loss %.4f  test accuracy %.2f %%  %.0f images/s\n", epoch, loss, 100 * accuracy, rate);
        fflush(stdout);
    }
    free(order);
}

static void run_evaluations(const struct network *net, const struct dataset *set, const struct options *options) {
    for (long i = 0; i < options->evaluate; i++) {
        double start = job_seconds(), accuracy = test(net, set, options->batch);
        printf("test accuracy %.2f %%  %.0f images/s\n", 100 * accuracy, (double)set->count / (job_seconds() - start));
    }
}

static void run(td_device *device, const struct options *options) {
    generator = (uint32_t)options->seed;
    struct network net = network_make(device, options->rate);
    if (options->evaluate) {
        struct dataset images = dataset_upload(device, options->data, false);
        job_check(td_wait(images.classes));
        run_evaluations(&net, &images, options);
        return;
    }
    struct dataset training = dataset_upload(device, options->data, true);
    if (options->batch > training.count)
        job_die("--batch", "is larger than the training set");
    if (options->steps) {
        run_steps(&net, &training, options);
        return;
    }
    struct dataset testing = dataset_upload(device, options->data, false);
    printf("%lld images to train, %lld to test, on %s\n", (long long)training.count, (long long)testing.count,
           td_device_name(device));
    run_epochs(&net, &training, &testing, options);
}

/* ---- the command line ---- */

static const char usage[] =
    "usage: cnn [OPTION]...\n"
    "  --url URL      unix:/path, tcp:// or tls://host:port; else $TENSORD_URL; else the default\n"
    "  --device NAME  cpu:0 or the like; else the daemon's first device\n"
    "  --data DIR     with CIFAR-10's binary files, or Fashion-MNIST (/usr/share/datasets/fashion-mnist)\n"
    "  --made-up      images that the program makes itself\n"
    "  --epochs N     (10)\n"
    "  --batch N      images in a step (256)\n"
    "  --steps N      only so many steps, with the loss of each\n"
    "  --evaluate N   no training: the network as it begins guesses the classes of all test images, N times\n"
    "  --rate R       of Adam (0.001)\n"
    "  --seed N       (1)\n"
    "  --help\n";

static struct options options_parse(int argc, char **argv) {
    struct options options = {
        .data = "/usr/share/datasets/fashion-mnist", .epochs = 10, .batch = 256, .seed = 1, .rate = 0.001};
    bool made_up = false;
    const struct job_option known[] = {
        {"url", .text = &options.url},        {"device", .text = &options.device},
        {"data", .text = &options.data},      {"made-up", .flag = &made_up},
        {"epochs", .count = &options.epochs}, {"batch", .count = &options.batch},
        {"steps", .count = &options.steps},   {"evaluate", .count = &options.evaluate},
        {"rate", .number = &options.rate},    {"seed", .count = &options.seed},
    };
    job_options(argc, argv, usage, known, sizeof known / sizeof *known);
    if (made_up)
        options.data = NULL;
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
