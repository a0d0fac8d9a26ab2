/* Cross-entropy, by its formula. */
#include <math.h>
#include <string.h>

#include "tests/device/reference.h"

struct row {
    const struct values *scores;
    int64_t at, step, classes; /* its first score, and the way to the next one */
    long double greatest, sum;
};

static struct row row_make(const struct values *scores, int64_t number) {
    struct row row = {.scores = scores, .step = 1, .greatest = -INFINITY};
    int axis = scores->rank == 1 ? 0 : 1;
    row.classes = scores->shape[axis];
    for (int i = axis + 1; i < scores->rank; i++)
        row.step *= scores->shape[i];
    row.at = number / row.step * row.classes * row.step + number % row.step;
    for (int64_t c = 0; c < row.classes; c++)
        row.greatest = fmaxl(row.greatest, scores->f[row.at + c * row.step]);
    for (int64_t c = 0; c < row.classes; c++)
        row.sum += expl(scores->f[row.at + c * row.step] - row.greatest);
    return row;
}

static long double row_logarithm(const struct row *row, int64_t c) {
    return row->scores->f[row->at + c * row->step] - row->greatest - logl(row->sum);
}

static void loss_of(const struct row *row, int64_t target, long double smoothing, struct values *out, int64_t number) {
    long double loss = -(1 - smoothing) * row_logarithm(row, target);
    for (int64_t c = 0; c < row->classes; c++)
        loss -= smoothing / (long double)row->classes * row_logarithm(row, c);
    out->f[number] = value_round(out->dtype, loss);
    out->scale[number] = fabsl(loss) + fabsl(row->greatest) + 1;
}

static void gradient_of(const struct row *row, int64_t target, long double smoothing, long double gradient,
                        struct values *out) {
    for (int64_t c = 0; c < row->classes; c++) {
        int64_t at = row->at + c * row->step;
        long double part = expl(row_logarithm(row, c));
        long double wanted = (c == target ? 1 - smoothing : 0) + smoothing / (long double)row->classes;
        out->f[at] = value_round(out->dtype, gradient * (part - wanted));
        out->scale[at] = fabsl(gradient) * (part * (1 + fabsl(row->greatest)) + wanted);
    }
}

struct values *reference_loss(const struct reference_request *r) {
    bool back = r->opcode == OP_CROSS_ENTROPY_GRAD;
    enum dtype dtype = r->inputs[back]->dtype;
    struct cross_entropy_attributes given;
    cross_entropy_attributes_read(&r->attributes, &given);
    if (back)
        dtype = reference_promote(dtype, r->inputs[0]->dtype);
    const struct values *targets = r->inputs[1 + back];
    struct values *scores = reference_cast(r->inputs[back], dtype);
    struct values *gradient = back ? reference_cast(r->inputs[0], dtype) : NULL;
    const struct values *like = back ? scores : targets;
    struct values *out = values_create(dtype, like->rank, like->shape);
    values_scaled(out, (double)scores->shape[scores->rank == 1 ? 0 : 1]);
    for (int64_t k = 0; k < targets->count; k++) {
        int64_t target = targets->i[k];
        if (target == given.ignore_index)
            continue;
        struct row row = row_make(scores, k);
        if (target < 0 || target >= row.classes)
            return NULL;
        if (back)
            gradient_of(&row, target, given.label_smoothing, gradient->f[k], out);
        else
            loss_of(&row, target, given.label_smoothing, out, k);
    }
    values_destroy(scores);
    values_destroy(gradient);
    return out;
}
