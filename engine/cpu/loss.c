/* Losses of rows of scores, and their gradients, by the loops of softmax. Rows are computed in units, which depend on the shape alone: the
 * sums of the units are added up in their order at the end. The gradient by a mean first sums the weights of the targets. */
#include <math.h>

#include "engine/cpu/cpu.h"
#include "engine/device/loss.h"

enum { PIECE = 1 << 14 }; /* scores between two looks whether to stop */

enum round { ROUND_WEIGHTS, ROUND_ROWS };

struct sums {
    double loss, weight;
};

struct job {
    struct cpu_job base;
    const struct cpu_softmax *softmax;
    struct report *report;
    struct class_loss loss;
    enum round round;
    bool is_f64;
    int64_t size;
    const char *scores, *gradient, *probabilities, *weight; /* NULL: there is none */
    const int64_t *targets;
    char *out;
    int64_t unit, units; /* rows of a unit */
    struct sums *sums;   /* workspace: of each unit */
    double scale;        /* of the gradient by the loss */
};

/* The first thread claims the report by setting its code. No reader sees a code without its figures: readers come after the launch. */
static void report_target(const struct job *job, int64_t value, int64_t position) {
    struct report *report = job->report;
    uint32_t none = STATUS_OK;
    if (atomic_compare_exchange_strong(&report->code, &none, STATUS_OUT_OF_RANGE)) {
        report->value = value;
        report->position = position;
        report->limit = job->loss.classes;
    }
}

static double element(const struct job *job, const char *from, int64_t at) {
    return job->is_f64 ? ((const double *)(const void *)from)[at] : (double)((const float *)(const void *)from)[at];
}

static void set(const struct job *job, char *to, int64_t at, double value) {
    if (job->is_f64) {
        ((double *)(void *)to)[at] = value;
    } else {
        ((float *)(void *)to)[at] = (float)value;
    }
}

static double weight_of(const struct job *job, int64_t class) {
    return job->weight ? element(job, job->weight, class) : 1;
}

/* ---- a row ---- */

struct row {
    const char *x, *wanted; /* its first score, its first probability */
    char *out;              /* of a gradient */
    int64_t target;
};

/* What the loss multiplies -log_softmax of a class by. */
static double row_factor(const struct job *job, const struct row *row, int64_t class) {
    double s = job->loss.smoothing, each = s / (double)job->loss.classes;
    double own = row->wanted ? element(job, row->wanted, class * job->loss.inner) : class == row->target ? 1 : 0;
    return weight_of(job, class) * (s > 0 ? (1 - s) * own + each : own);
}

/* Whether only the target has a factor. */
static bool row_single(const struct job *job, const struct row *row) {
    return !row->wanted && !(job->loss.smoothing > 0);
}

static double row_loss(const struct job *job, const struct row *row) {
    int64_t classes = job->loss.classes, inner = job->loss.inner;
    if (job->loss.plain) {
        return -weight_of(job, row->target) * element(job, row->x, row->target * inner);
    }
    double maximum = job->softmax->maximum(classes, row->x, inner);
    double logarithm = log(job->softmax->sum(classes, row->x, inner, maximum));
    if (row_single(job, row)) {
        return weight_of(job, row->target) * (logarithm - (element(job, row->x, row->target * inner) - maximum));
    }
    double loss = 0;
    for (int64_t i = 0; i < classes; i++) {
        loss += row_factor(job, row, i) * (logarithm - (element(job, row->x, i * inner) - maximum));
    }
    return loss;
}

static void row_zero(const struct job *job, const struct row *row) {
    for (int64_t i = 0; i < job->loss.classes; i++) {
        set(job, row->out, i * job->loss.inner, 0);
    }
}

static void row_gradient(const struct job *job, const struct row *row, double gradient) {
    int64_t classes = job->loss.classes, inner = job->loss.inner;
    if (job->loss.plain) {
        row_zero(job, row);
        set(job, row->out, row->target * inner, -gradient * weight_of(job, row->target));
        return;
    }
    double maximum = job->softmax->maximum(classes, row->x, inner), all = 0;
    double sum = job->softmax->sum(classes, row->x, inner, maximum);
    job->softmax->write(classes, row->x, inner, row->out, inner, maximum, sum);
    if (row_single(job, row)) {
        all = weight_of(job, row->target);
    } else {
        for (int64_t i = 0; i < classes; i++) {
            all += row_factor(job, row, i);
        }
    }
    for (int64_t i = 0; i < classes; i++) {
        double part = element(job, row->out, i * inner);
        set(job, row->out, i * inner, gradient * (all * part - row_factor(job, row, i)));
    }
}

/* Adds the row to the sums of its unit. */
static void row_run(const struct job *job, int64_t number, struct sums *sums) {
    const struct class_loss *loss = &job->loss;
    int64_t outer = number / loss->inner, inner = number % loss->inner;
    int64_t at = (outer * loss->classes * loss->inner + inner) * job->size;
    struct row row = {.x = job->scores + at,
                      .wanted = job->probabilities ? job->probabilities + at : NULL,
                      .out = loss->back ? job->out + at : NULL,
                      .target = job->targets ? job->targets[number] : 0};
    bool ignored = job->targets && row.target == loss->ignored;
    bool wrong = !ignored && (uint64_t)row.target >= (uint64_t)loss->classes;
    if (wrong) {
        report_target(job, row.target, number);
    }
    if (!ignored && !wrong) {
        sums->weight += job->targets ? weight_of(job, row.target) : 1;
    }
    if (job->round == ROUND_WEIGHTS) {
        return;
    }
    if (!loss->back) {
        double value = ignored || wrong ? 0 : row_loss(job, &row);
        sums->loss += value;
        if (loss->reduction == OP_REDUCTION_NONE) {
            set(job, job->out, number, value);
        }
    } else if (ignored || wrong) {
        row_zero(job, &row);
    } else {
        bool each = loss->reduction == OP_REDUCTION_NONE;
        row_gradient(job, &row, element(job, job->gradient, each ? number : 0) * job->scale);
    }
}

/* ---- the job ---- */

static void unit_run(const struct job *job, int64_t unit) {
    struct sums sums = {0, 0};
    int64_t begin = unit * job->unit, end = begin + job->unit;
    for (int64_t row = begin; row < end && row < job->loss.rows; row++) {
        row_run(job, row, &sums);
    }
    if (job->sums) {
        job->sums[unit] = sums;
    }
}

static bool units_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    int64_t begin = cpu_part_begin(job->units, lane->part, base->parts);
    int64_t end = cpu_part_begin(job->units, lane->part + 1, base->parts);
    for (int64_t unit = begin + lane->position; unit < end; unit++) {
        unit_run(job, unit);
        if (unit + 1 < end && cpu_job_stops(base)) {
            lane->position = unit + 1 - begin;
            return false;
        }
    }
    return true;
}

static struct sums sums_total(const struct job *job) {
    struct sums total = {0, 0};
    for (int64_t i = 0; i < job->units; i++) {
        total.loss += job->sums[i].loss;
        total.weight += job->sums[i].weight;
    }
    return total;
}

static bool weights_again(struct cpu_job *base) {
    struct job *job = (struct job *)base;
    if (job->round == ROUND_ROWS) {
        return false;
    }
    job->round = ROUND_ROWS;
    job->scale = 1 / sums_total(job).weight;
    return true;
}

static void loss_end(struct cpu_job *base) {
    struct job *job = (struct job *)base;
    struct sums total = sums_total(job);
    set(job, job->out, 0, job->loss.reduction == OP_REDUCTION_MEAN ? total.loss / total.weight : total.loss);
}

/* Whether the launch needs the sums of its units. */
static bool loss_sums(const struct class_loss *loss) {
    return loss->back ? loss->reduction == OP_REDUCTION_MEAN : loss->reduction != OP_REDUCTION_NONE;
}

static int64_t unit_rows(const struct class_loss *loss) {
    int64_t least = loss->plain ? PIECE / 16 : PIECE;
    return loss->classes < least ? least / loss->classes : 1;
}

static int64_t units_of(const struct class_loss *loss) {
    int64_t rows = unit_rows(loss);
    return loss->rows / rows + (loss->rows % rows != 0);
}

static uint64_t loss_workspace(struct device *device, const struct launch *launch) {
    struct class_loss loss = class_loss_make(launch);
    (void)device;
    return loss_sums(&loss) ? (uint64_t)units_of(&loss) * sizeof(struct sums) : 0;
}

static int loss_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    struct job job = {.base = {.cpu = cpu, .run = units_part},
                      .loss = class_loss_make(launch),
                      .round = ROUND_ROWS,
                      .report = launch->report,
                      .out = launch->output.data,
                      .scale = 1};
    const struct class_loss *loss = &job.loss;
    (void)fault;
    job.softmax = cpu->kernels->softmax[0][loss->scores->dtype];
    job.is_f64 = loss->scores->dtype == DTYPE_F64;
    job.size = job.is_f64 ? 8 : 4;
    job.scores = loss->scores->data;
    job.gradient = loss->back ? loss->gradient->data : NULL;
    job.weight = loss->weight ? loss->weight->data : NULL;
    job.probabilities = loss->soft ? loss->targets->data : NULL;
    job.targets = loss->soft ? NULL : loss->targets->data;
    job.unit = unit_rows(loss);
    job.units = units_of(loss);
    job.sums = loss_sums(loss) ? launch->workspace : NULL;
    if (job.sums && loss->back) {
        job.round = ROUND_WEIGHTS;
        job.base.again = weights_again;
    } else if (job.sums || (!loss->back && loss->reduction != OP_REDUCTION_NONE)) {
        job.base.end = loss_end;
    }
    double row = loss->plain ? (loss->back ? (double)loss->classes * (double)job.size : 0) + 64
                             : (double)loss->classes * (job.is_f64 ? 96 : 40) + 512;
    double work = (double)loss->rows * row;
    job.base.parts = cpu_parts(cpu, work);
    job.base.parts = job.units < job.base.parts ? (unsigned)job.units : job.base.parts;
    cpu_job_begin(&job.base, sizeof job, work, begun);
    return STATUS_OK;
}

#define LOSS                                                                                                           \
    { {.workspace = loss_workspace}, loss_run }
const struct cpu_kernel cpu_kernel_cross_entropy = LOSS;
const struct cpu_kernel cpu_kernel_cross_entropy_grad = LOSS;
const struct cpu_kernel cpu_kernel_soft_cross_entropy = LOSS;
const struct cpu_kernel cpu_kernel_soft_cross_entropy_grad = LOSS;
const struct cpu_kernel cpu_kernel_nll_loss = LOSS;
const struct cpu_kernel cpu_kernel_nll_loss_grad = LOSS;
