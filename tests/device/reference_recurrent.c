/* Recurrent layers, step by step and unit by unit. The size of each number is what its rounding errors are proportional to. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/device/reference.h"

enum { INPUTS_MOST = 11 };

struct layer {
    const struct reference_request *r;
    enum dtype dtype;
    bool gru, back, reverse;
    int64_t n, batch, in, hidden, gates;
    struct values *given[INPUTS_MOST];
    const long double *x, *h0, *c0, *w_ih, *w_hh, *b_ih, *b_hh, *result, *kept, *cells, *grad_result, *grad_h_n,
        *grad_c_n;
};

static const long double *take(struct layer *l, unsigned *at) {
    struct values *values = *at < l->r->n_inputs ? reference_cast(l->r->inputs[*at], l->dtype) : NULL;
    if (!values)
        return NULL;
    l->given[(*at)++] = values;
    return values->f;
}

static void layer_open(struct layer *l, const struct reference_request *r) {
    struct recurrent_attributes given;
    unsigned at = 0;
    recurrent_attributes_read(&r->attributes, &given);
    *l = (struct layer){.r = r, .reverse = given.reverse};
    l->gru = r->opcode == OP_GRU || r->opcode == OP_GRU_GRAD;
    l->back = r->opcode == OP_LSTM_GRAD || r->opcode == OP_GRU_GRAD;
    l->gates = l->gru ? 3 : 4;
    l->dtype = r->inputs[0]->dtype;
    for (unsigned i = 1; i < r->n_inputs; i++)
        l->dtype = reference_promote(l->dtype, r->inputs[i]->dtype);
    if (l->back) {
        l->grad_result = take(l, &at);
        l->grad_h_n = take(l, &at);
        l->grad_c_n = l->gru ? NULL : take(l, &at);
    }
    const struct values *x = r->inputs[at], *h0 = r->inputs[at + 1];
    l->n = x->shape[0];
    l->batch = x->shape[1];
    l->in = x->shape[2];
    l->hidden = h0->shape[1];
    l->x = take(l, &at);
    l->h0 = take(l, &at);
    l->c0 = l->gru ? NULL : take(l, &at);
    l->w_ih = take(l, &at);
    l->w_hh = take(l, &at);
    if (l->back) {
        l->result = take(l, &at);
        l->kept = take(l, &at);
        l->cells = l->gru ? NULL : take(l, &at);
    } else {
        l->b_ih = take(l, &at);
        l->b_hh = take(l, &at);
    }
}

static int64_t place_of(const struct layer *l, int64_t step) {
    return l->reverse ? l->n - 1 - step : step;
}

static long double sigmoid(long double x) {
    return 1 / (1 + expl(-x));
}

/* The derivatives of sigmoid and tanh, from their values; a little more, as much as the error of the difference may be. */
static long double sigmoid_slope(long double k) {
    return fabsl(k * (1 - k)) + 0x1p-6L;
}
static long double tanh_slope(long double k) {
    return fabsl(1 - k * k) + 0x1p-6L;
}

/* ---- forward ---- */

/* All results of a layer; `error` bounds the error of a state in roundings. */
struct forward {
    long double *h, *c, *h_error, *c_error; /* [batch][hidden] */
    struct values *out;
};

/* x · w_ihᵀ + b_ih, or h · w_hhᵀ + b_hh, of one gate's unit; *size: its magnitudes, and the errors that come with h. */
static long double sum_of(const struct layer *l, const long double *from, const long double *errors,
                          const long double *weights, const long double *bias, int64_t width, int64_t unit,
                          long double *size) {
    long double sum = bias ? bias[unit] : 0;
    *size += fabsl(sum);
    (void)l;
    for (int64_t k = 0; k < width; k++) {
        long double product = from[k] * weights[unit * width + k];
        sum += product;
        *size += fabsl(product) + (errors ? errors[k] * fabsl(weights[unit * width + k]) : 0);
    }
    return sum;
}

static void store(const struct layer *l, struct forward *f, unsigned output, int64_t at, long double value,
                  long double size) {
    if (l->r->output == output) {
        f->out->f[at] = value;
        f->out->scale[at] = size;
    }
}

/* One step of one image; `h` and `c` are its states, replaced at the end. */
static void image_step(const struct layer *l, struct forward *f, int64_t step, int64_t image) {
    int64_t hidden = l->hidden, place = place_of(l, step) * l->batch + image;
    long double *h = f->h + image * hidden, *c = f->c + image * hidden, *h_error = f->h_error + image * hidden;
    long double *c_error = f->c_error + image * hidden, *next = calloc(2 * (size_t)hidden, sizeof *next);
    for (int64_t unit = 0; unit < hidden; unit++) {
        long double own[4] = {0}, size[4] = {0}, state[4] = {0}, kept[4];
        for (int64_t gate = 0; gate < l->gates; gate++) {
            own[gate] =
                sum_of(l, l->x + place * l->in, NULL, l->w_ih, l->b_ih, l->in, gate * hidden + unit, &size[gate]);
            state[gate] = sum_of(l, h, h_error, l->w_hh, l->b_hh, hidden, gate * hidden + unit, &size[gate]);
        }
        if (l->gru) {
            kept[0] = sigmoid(own[0] + state[0]);
            kept[1] = sigmoid(own[1] + state[1]);
            kept[2] = tanhl(own[2] + kept[0] * state[2]);
            kept[3] = state[2];
            size[3] = size[2];
            size[0] = 1 + size[0] * sigmoid_slope(kept[0]);
            size[1] = 1 + size[1] * sigmoid_slope(kept[1]);
            size[2] = 1 + (size[2] + size[0] * fabsl(state[2])) * tanh_slope(kept[2]);
            next[unit] = (1 - kept[1]) * kept[2] + kept[1] * h[unit];
            next[hidden + unit] =
                1 + (1 - kept[1]) * size[2] + size[1] * (1 + fabsl(h[unit])) + kept[1] * h_error[unit];
        } else {
            for (int gate = 0; gate < 4; gate++)
                kept[gate] = gate == 2 ? tanhl(own[2] + state[2]) : sigmoid(own[gate] + state[gate]);
            for (int gate = 0; gate < 4; gate++)
                size[gate] = 1 + size[gate] * (gate == 2 ? tanh_slope(kept[2]) : sigmoid_slope(kept[gate]));
            c_error[unit] = kept[1] * c_error[unit] + size[0] + kept[0] * size[2] + (1 + size[1]) * fabsl(c[unit]) + 1;
            c[unit] = kept[1] * c[unit] + kept[0] * kept[2];
            next[unit] = kept[3] * tanhl(c[unit]);
            next[hidden + unit] = 1 + size[3] + kept[3] * c_error[unit] * tanh_slope(tanhl(c[unit]));
            store(l, f, 4, place * hidden + unit, c[unit], c_error[unit]);
        }
        for (int gate = 0; gate < 4; gate++)
            store(l, f, l->gru ? 2 : 3, (place * 4 + gate) * hidden + unit, kept[gate], 1 + size[gate]);
    }
    for (int64_t unit = 0; unit < hidden; unit++) {
        h[unit] = next[unit];
        h_error[unit] = next[hidden + unit];
        store(l, f, 0, place * hidden + unit, h[unit], h_error[unit]);
    }
    free(next);
}

static struct values *forward_run(const struct layer *l) {
    unsigned output = l->r->output, kept = l->gru ? 2 : 3;
    int64_t size = l->batch * l->hidden, steps[3] = {l->n, l->batch, output == kept ? 4 * l->hidden : l->hidden};
    bool state = output == 1 || (!l->gru && output == 2);
    struct forward f = {.out = values_create(l->dtype, state ? 2 : 3, state ? steps + 1 : steps)};
    values_scaled(f.out, (double)(l->in + l->hidden));
    f.h = calloc((size_t)size + 1, sizeof *f.h);
    f.c = calloc((size_t)size + 1, sizeof *f.c);
    f.h_error = calloc((size_t)size + 1, sizeof *f.h);
    f.c_error = calloc((size_t)size + 1, sizeof *f.h);
    for (int64_t i = 0; i < size; i++) {
        f.h[i] = l->h0[i];
        f.c[i] = l->gru ? 0 : l->c0[i];
    }
    for (int64_t step = 0; step < l->n; step++)
        for (int64_t image = 0; image < l->batch; image++)
            image_step(l, &f, step, image);
    for (int64_t i = 0; i < size && state; i++) {
        f.out->f[i] = output == 1 ? f.h[i] : f.c[i];
        f.out->scale[i] = output == 1 ? f.h_error[i] : f.c_error[i];
    }
    free(f.h);
    free(f.c);
    free(f.h_error);
    free(f.c_error);
    return f.out;
}

/* ---- backward ---- */

/* Of all steps: the gradients by the sums of the gates with x and with h, and their sizes; of the state before a step: by h and by c. */
struct backward {
    long double *by_x, *by_h, *size;      /* [n][batch][gates·hidden] */
    long double *h, *c, *h_size, *c_size; /* [batch][hidden] */
};

static long double state_before(const struct layer *l, const long double *first, const long double *all, int64_t step,
                                int64_t at) {
    return step == 0 ? first[at] : all[place_of(l, step - 1) * l->batch * l->hidden + at];
}

static void image_back(const struct layer *l, struct backward *b, int64_t step, int64_t image) {
    int64_t hidden = l->hidden, place = place_of(l, step) * l->batch + image;
    for (int64_t unit = 0; unit < hidden; unit++) {
        int64_t at = image * hidden + unit, first = place * l->gates * hidden + unit;
        const long double *kept = l->kept + place * 4 * hidden + unit;
        long double k[4] = {kept[0], kept[hidden], kept[2 * hidden], kept[3 * hidden]}, by[4], size[4];
        long double dh = b->h[at] + l->grad_result[place * hidden + unit];
        long double dh_size = b->h_size[at] + fabsl(l->grad_result[place * hidden + unit]);
        if (l->gru) {
            long double before = state_before(l, l->h0, l->result, step, at);
            by[2] = dh * (1 - k[1]) * (1 - k[2] * k[2]);
            by[1] = dh * (before - k[2]) * k[1] * (1 - k[1]);
            by[0] = by[2] * k[3] * k[0] * (1 - k[0]);
            by[3] = by[2] * k[0];
            size[2] = dh_size * (fabsl(1 - k[1]) + 0x1p-6L) * tanh_slope(k[2]);
            size[1] = dh_size * (fabsl(before) + fabsl(k[2])) * sigmoid_slope(k[1]);
            size[0] = size[2] * fabsl(k[3]) * sigmoid_slope(k[0]);
            b->h[at] = dh * k[1];
            b->h_size[at] = dh_size * fabsl(k[1]);
        } else {
            long double c = l->cells[place * hidden + unit], t = tanhl(c),
                        before = state_before(l, l->c0, l->cells, step, at);
            long double dc = b->c[at] + dh * k[3] * (1 - t * t),
                        dc_size = b->c_size[at] + dh_size * fabsl(k[3]) * tanh_slope(t);
            by[0] = dc * k[2] * k[0] * (1 - k[0]);
            by[1] = dc * before * k[1] * (1 - k[1]);
            by[2] = dc * k[0] * (1 - k[2] * k[2]);
            by[3] = dh * t * k[3] * (1 - k[3]);
            size[0] = dc_size * fabsl(k[2]) * sigmoid_slope(k[0]);
            size[1] = dc_size * fabsl(before) * sigmoid_slope(k[1]);
            size[2] = dc_size * fabsl(k[0]) * tanh_slope(k[2]);
            size[3] = dh_size * (fabsl(t) + 0x1p-6L) * sigmoid_slope(k[3]);
            b->c[at] = dc * k[1];
            b->c_size[at] = dc_size * fabsl(k[1]);
            b->h[at] = b->h_size[at] = 0;
        }
        for (int64_t gate = 0; gate < l->gates; gate++) {
            b->by_x[first + gate * hidden] = by[gate];
            b->by_h[first + gate * hidden] = l->gru && gate == 2 ? by[3] : by[gate];
            b->size[first + gate * hidden] = size[gate];
        }
    }
    for (int64_t unit = 0; unit < hidden; unit++)
        for (int64_t row = 0; row < l->gates * hidden; row++) {
            int64_t at = image * hidden + unit, from = place * l->gates * hidden + row;
            b->h[at] += b->by_h[from] * l->w_hh[row * hidden + unit];
            b->h_size[at] += b->size[from] * fabsl(l->w_hh[row * hidden + unit]);
        }
}

static void add_product(struct values *out, int64_t at, long double by, long double size, long double other) {
    out->f[at] += by * other;
    out->scale[at] += size * fabsl(other);
}

/* One gate's unit of one step and image: its share of the results. */
static void share(const struct layer *l, const struct backward *b, unsigned wanted, int64_t step, int64_t image,
                  int64_t row, struct values *out) {
    int64_t place = place_of(l, step) * l->batch + image, from = place * l->gates * l->hidden + row;
    enum { GRAD_X, GRAD_H0, GRAD_W_IH, GRAD_W_HH, GRAD_B_IH, GRAD_B_HH };
    if (wanted == GRAD_B_IH || wanted == GRAD_B_HH)
        add_product(out, row, wanted == GRAD_B_IH ? b->by_x[from] : b->by_h[from], b->size[from], 1);
    for (int64_t k = 0; k < l->in && wanted == GRAD_X; k++)
        add_product(out, place * l->in + k, b->by_x[from], b->size[from], l->w_ih[row * l->in + k]);
    for (int64_t k = 0; k < l->in && wanted == GRAD_W_IH; k++)
        add_product(out, row * l->in + k, b->by_x[from], b->size[from], l->x[place * l->in + k]);
    for (int64_t k = 0; k < l->hidden && wanted == GRAD_W_HH; k++)
        add_product(out, row * l->hidden + k, b->by_h[from], b->size[from],
                    state_before(l, l->h0, l->result, step, image * l->hidden + k));
}

static struct values *backward_out(const struct layer *l, unsigned wanted) {
    int64_t gates = l->gates * l->hidden;
    int64_t x[] = {l->n, l->batch, l->in}, state[] = {l->batch, l->hidden}, ih[] = {gates, l->in},
            hh[] = {gates, l->hidden};
    const int64_t *const shapes[] = {x, state, ih, hh, &gates, &gates};
    static const int ranks[] = {3, 2, 2, 2, 1, 1};
    struct values *out = values_create(l->dtype, ranks[wanted], shapes[wanted]);
    values_scaled(out, (double)(l->n * l->batch + l->in + gates));
    return out;
}

static struct values *backward_run(const struct layer *l) {
    size_t all = (size_t)(l->n * l->batch * l->gates * l->hidden) + 1, size = (size_t)(l->batch * l->hidden);
    long double *memory = calloc(3 * all + 4 * size + 1, sizeof *memory);
    struct backward b = {.by_x = memory, .by_h = memory + all, .size = memory + 2 * all, .h = memory + 3 * all};
    b.c = b.h + size;
    b.h_size = b.c + size;
    b.c_size = b.h_size + size;
    /* The outputs by their names: of an LSTM there is one for c0, and both biases have the same. */
    bool by_c = !l->gru && l->r->output == 2;
    unsigned wanted = by_c ? 1 : l->gru || l->r->output < 2 ? l->r->output : l->r->output - 1;
    struct values *out = backward_out(l, wanted);
    for (size_t i = 0; i < size; i++) {
        b.h[i] = l->grad_h_n[i];
        b.h_size[i] = fabsl(b.h[i]);
        b.c[i] = l->gru ? 0 : l->grad_c_n[i];
        b.c_size[i] = fabsl(b.c[i]);
    }
    for (int64_t step = l->n - 1; step >= 0; step--)
        for (int64_t image = 0; image < l->batch; image++) {
            image_back(l, &b, step, image);
            for (int64_t row = 0; row < l->gates * l->hidden; row++)
                share(l, &b, wanted, step, image, row, out);
        }
    for (size_t i = 0; i < size && wanted == 1; i++) {
        out->f[i] = by_c ? b.c[i] : b.h[i];
        out->scale[i] = by_c ? b.c_size[i] : b.h_size[i];
    }
    free(memory);
    return out;
}

struct values *reference_recurrent(const struct reference_request *r) {
    struct layer l;
    layer_open(&l, r);
    struct values *out = l.back ? backward_run(&l) : forward_run(&l);
    for (int64_t k = 0; k < out->count; k++)
        out->f[k] = value_round(out->dtype, out->f[k]);
    for (unsigned i = 0; i < INPUTS_MOST; i++)
        values_destroy(l.given[i]);
    return out;
}
