/* Operations that keep a device at work for long, each in a way of its own. */
#include <unistd.h>

#include "tests/bench/bench.h"

static td_tensor *one(td_device *device, td_dtype dtype) {
    return bench_made(td_full(device, dtype, TD_SHAPE(1), 1), "full");
}

/* A view of one element that looks like a large tensor. */
static td_tensor *view(td_device *device, td_dtype dtype, int rank, const int64_t *shape) {
    td_tensor *element = one(device, dtype), *made = bench_made(td_broadcast_to(element, rank, shape), "broadcast_to");
    td_release(element);
    return made;
}

static void open_sum(td_device *device, td_tensor *x[3]) {
    x[0] = view(device, TD_F32, TD_SHAPE(INT64_C(1000000000000)));
}

static td_tensor *make_sum(td_device *device, td_tensor *const x[3]) {
    (void)device;
    return td_sum(x[0], TD_ALL_AXES, 0);
}

static void open_column_sum(td_device *device, td_tensor *x[3]) {
    x[0] = view(device, TD_F64, TD_SHAPE(INT64_C(10000000000), 64));
}

static td_tensor *make_column_sum(td_device *device, td_tensor *const x[3]) {
    (void)device;
    return td_sum(x[0], TD_AXES(0), 0);
}

static void open_argmax(td_device *device, td_tensor *x[3]) {
    x[0] = view(device, TD_F16, TD_SHAPE(INT64_C(100000000000)));
}

static td_tensor *make_argmax(td_device *device, td_tensor *const x[3]) {
    (void)device;
    return td_argmax(x[0], TD_ALL_AXES, 0);
}

/* A product so deep that it takes hours, of operands that must be packed. */
static void open_giant_product(td_device *device, td_tensor *x[3]) {
    x[0] = view(device, TD_F32, TD_SHAPE(1024, INT64_C(1) << 26));
    x[1] = view(device, TD_F32, TD_SHAPE(INT64_C(1) << 26, 1024));
}

/* The same in a kernel of our own, with a workspace larger than the pieces that memory is taken in. */
static void open_giant_integer_product(td_device *device, td_tensor *x[3]) {
    x[0] = view(device, TD_I64, TD_SHAPE(1024, INT64_C(1) << 24));
    x[1] = view(device, TD_I64, TD_SHAPE(INT64_C(1) << 24, 1024));
}

static void open_vectors(td_device *device, td_tensor *x[3]) {
    x[0] = view(device, TD_F64, TD_SHAPE(1, INT64_C(1) << 36));
    x[1] = view(device, TD_F64, TD_SHAPE(INT64_C(1) << 36, 1));
}

static void open_small_products(td_device *device, td_tensor *x[3]) {
    x[0] = view(device, TD_F32, TD_SHAPE(1 << 24, 1, 1));
    x[1] = view(device, TD_F32, TD_SHAPE(1 << 24, 1, 1));
}

static void open_integer_products(td_device *device, td_tensor *x[3]) {
    x[0] = bench_made(td_full_int(device, TD_I64, TD_SHAPE(2000, 2000), 1), "full_int");
    x[1] = td_keep(x[0]);
}

static void open_products(td_device *device, td_tensor *x[3]) {
    x[0] = bench_made(td_full(device, TD_F32, TD_SHAPE(3000, 3000), 1), "full");
    x[1] = td_keep(x[0]);
}

static void open_wide_products(td_device *device, td_tensor *x[3]) {
    x[0] = bench_made(td_full(device, TD_F64, TD_SHAPE(2500, 2500), 1), "full");
    x[1] = td_keep(x[0]);
}

static void open_half_products(td_device *device, td_tensor *x[3]) {
    x[0] = bench_made(td_full(device, TD_BF16, TD_SHAPE(3000, 3000), 1), "full");
    x[1] = td_keep(x[0]);
}

static td_tensor *make_product(td_device *device, td_tensor *const x[3]) {
    (void)device;
    return td_matmul(x[0], x[1]);
}

static void open_softmax(td_device *device, td_tensor *x[3]) {
    x[0] = bench_made(td_full(device, TD_F64, TD_SHAPE(1, 1 << 23), 1), "full");
}

static td_tensor *make_softmax(td_device *device, td_tensor *const x[3]) {
    (void)device;
    return td_softmax(x[0], -1);
}

static void open_take(td_device *device, td_tensor *x[3]) {
    x[0] = bench_made(td_full(device, TD_U8, TD_SHAPE(1000), 1), "full");
    x[1] = bench_made(td_full_int(device, TD_I32, TD_SHAPE(1 << 24), 999), "full_int");
}

static td_tensor *make_take(td_device *device, td_tensor *const x[3]) {
    (void)device;
    return td_take(x[0], x[1], 0);
}

static void open_nothing(td_device *device, td_tensor *x[3]) {
    (void)device, (void)x;
}

static td_tensor *make_normal(td_device *device, td_tensor *const x[3]) {
    (void)x;
    return td_normal(device, TD_F64, TD_SHAPE(1 << 23), 1, 0, 1);
}

static void open_pow(td_device *device, td_tensor *x[3]) {
    x[0] = view(device, TD_F64, TD_SHAPE(1 << 23));
}

static td_tensor *make_pow(td_device *device, td_tensor *const x[3]) {
    (void)device;
    return td_pow(x[0], x[0]);
}

static void open_transposed(td_device *device, td_tensor *x[3]) {
    x[1] = bench_made(td_full(device, TD_U8, TD_SHAPE(8192, 8192), 1), "full");
    x[0] = bench_made(td_transpose(x[1]), "transpose");
}

static td_tensor *make_copy(td_device *device, td_tensor *const x[3]) {
    (void)device;
    return td_copy(x[0]);
}

/* Images of which each takes a core half a second. */
static void open_convolution(td_device *device, td_tensor *x[3]) {
    x[0] = bench_made(td_full(device, TD_F32, TD_SHAPE(4, 512, 64, 64), 1), "full");
    x[1] = bench_made(td_full(device, TD_F32, TD_SHAPE(512, 512, 5, 5), 1), "full");
}

static td_tensor *make_convolution(td_device *device, td_tensor *const x[3]) {
    (void)device;
    return td_conv(x[0], x[1], NULL, 0, NULL, TD_SHAPE(2, 2), 0, NULL, 1, TD_LAYOUT_CHANNELS_FIRST);
}

static void open_decomposition(td_device *device, td_tensor *x[3]) {
    x[0] = view(device, TD_F32, TD_SHAPE(3000, 3000));
}

static td_tensor *make_decomposition(td_device *device, td_tensor *const x[3]) {
    td_tensor *q = NULL, *r = NULL;
    (void)device;
    td_qr(x[0], TD_QR_MODE_REDUCED, &q, &r);
    td_release(q);
    return r;
}

static void open_eigenvalues(td_device *device, td_tensor *x[3]) {
    x[0] = view(device, TD_F32, TD_SHAPE(6000, 6000));
}

static td_tensor *make_eigenvalues(td_device *device, td_tensor *const x[3]) {
    (void)device;
    return td_eigvalsh(x[0], false);
}

/* The longest take minutes: an operation of more than four hours is refused, and a sanitizer makes minutes into hours. */
const struct bench_long bench_longs[] = {
    {"a sum of 1e12 elements of a view", open_sum, make_sum},
    {"sums over 1e10 rows of a view", open_column_sum, make_column_sum},
    {"an argmax of 1e11 elements of a view", open_argmax, make_argmax},
    {"a product of depth 2^24, i64", open_giant_integer_product, make_product},
    {"a product of depth 2^26, f32", open_giant_product, make_product},
    {"a product of two vectors of 2^36, f64", open_vectors, make_product},
    {"2^24 products of 1 by 1", open_small_products, make_product},
    {"products of 3000, f32", open_products, make_product},
    {"products of 2500, f64", open_wide_products, make_product},
    {"products of 3000, bf16", open_half_products, make_product},
    {"products of 2000, i64", open_integer_products, make_product},
    {"a softmax of 2^23, f64", open_softmax, make_softmax},
    {"2^24 elements taken by index", open_take, make_take},
    {"2^23 random numbers, f64", open_nothing, make_normal},
    {"2^23 powers, f64", open_pow, make_pow},
    {"a transposed copy of 64 MiB", open_transposed, make_copy},
    {"convolutions of 512 channels", open_convolution, make_convolution},
    {"QR decompositions of 3000, f32", open_decomposition, make_decomposition},
    {"eigenvalues of 6000, f32", open_eigenvalues, make_eigenvalues},
};
const size_t bench_longs_count = sizeof bench_longs / sizeof *bench_longs;

/* ---- keeping busy ---- */

enum { AHEAD = 4, LARGEST_BYTES = 256 << 20, PIECE_BYTES = 4 << 20, PIECES_MAX = 1024, PATIENCE_S = 10 };

/* The memory that the work leaves, in pieces. A piece may be given memory that the work still uses, such as its workspace, and
 * is then computed behind the work, after hours perhaps: so while the work runs nobody waits for a piece. */
struct fill {
    td_stream *stream;
    td_tensor *computed; /* something small that is there already */
    td_tensor *pieces[PIECES_MAX];
    size_t count;
};

/* The worker answers in order: with the reply to a later request it is known whether there was memory for `made`, also
 * while it has not been computed. */
static bool refused(td_tensor *made, td_tensor *computed) {
    uint8_t byte;
    td_test(made); /* asks */
    return td_fetch(computed, &byte, 1) == TD_OK && td_test(made) && td_wait(made) == TD_E_OUT_OF_MEMORY;
}

static void fill_open(struct fill *fill, td_device *device) {
    bench_check(td_stream_open(device, 0, &fill->stream), "stream_open");
    fill->computed = one(device, TD_U8);
    bench_check(td_wait(fill->computed), "wait");
}

/* Down to pieces of PIECE_BYTES, the largest first. */
static void fill_take(struct fill *fill, td_device *device, int64_t largest) {
    bench_check(td_stream_set(device, fill->stream), "stream_set");
    for (int64_t bytes = largest; bytes >= PIECE_BYTES && fill->count < PIECES_MAX;) {
        td_tensor *piece = bench_made(td_full(device, TD_U8, TD_SHAPE(bytes), 1), "full");
        if (refused(piece, fill->computed)) {
            td_release(piece);
            bytes /= 2;
        } else {
            fill->pieces[fill->count++] = piece;
        }
    }
    bench_check(td_stream_set(device, NULL), "stream_set");
}

/* The memory of a session that has just ended comes back when its work has stopped: until then who is refused tries again. */
static bool patient(double since) {
    usleep(1000);
    return bench_now() < since + PATIENCE_S;
}

static void open_work(const struct bench_long *work, td_device *device, td_tensor *x[3], const struct fill *fill) {
    double since = bench_now();
    for (;;) {
        bool without = false;
        work->open(device, x);
        for (int i = 0; i < 3; i++)
            without |= x[i] && refused(x[i], fill->computed);
        if (!without || !patient(since))
            return;
        td_release(x[0]);
        td_release(x[1] == x[0] ? NULL : x[1]);
    }
}

/* The next result of the work. It has the memory of as many pieces as it needs, those first that were taken last: these have
 * what was free between the work's own. */
static td_tensor *make_beside(const struct bench_long *work, td_device *device, td_tensor *const x[3],
                              struct fill *fill) {
    double since = bench_now();
    for (;;) {
        td_tensor *made = work->make(device, x);
        if (!made || !refused(made, fill->computed) || (!fill->count && !patient(since)))
            return made;
        td_release(made);
        if (fill->count)
            td_release(fill->pieces[--fill->count]);
    }
}

/* A work that fails by itself must not pass for one that was stopped with its session. */
static void check_ended(const struct bench_long *work, td_device *device) {
    td_error error = *td_last_error();
    bool ended = error.code == TD_E_CANCELLED || error.code == TD_E_DRAINING || td_flush(device) != TD_OK;
    if (!ended)
        bench_fail("%s: %s", work->name, error.message);
}

void bench_long_keep_busy(const struct bench_long *work, td_device *device, int told) {
    static struct fill fill;
    td_tensor *x[3] = {0}, *made[AHEAD] = {0};
    fill_open(&fill, device);
    open_work(work, device, x, &fill);
    if (told >= 0) {
        fill_take(&fill, device, LARGEST_BYTES);
        bench_check(td_sync(device), "sync"); /* nothing else is at work yet */
    }
    for (size_t i = 0;; i = (i + 1) % AHEAD) {
        if (made[i] && told >= 0) {
            fill_take(&fill, device, PIECE_BYTES); /* what the results have left of the pieces given back for them */
            if (write(told, "!", 1) != 1)
                bench_fail("%s: nobody wants to know that it runs", work->name);
            told = -1;
        }
        if (made[i] && td_wait(made[i]) != TD_OK)
            break;
        td_release(made[i]);
        made[i] = make_beside(work, device, x, &fill);
        if (!made[i] || td_flush(device) != TD_OK)
            break;
    }
    check_ended(work, device);
}
