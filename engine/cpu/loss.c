/* Losses of rows of scores, and their gradients, by the loops of softmax. Rows are computed in units, which depend on the shape alone: the
 * sums of the units are added up in their order at the end. The gradient by a mean first sums the weights of the targets. */
#include <math.h>
#include <string.h>

#include "engine/cpu/floats.h"
#include "engine/cpu/indices.h"
#include "engine/device/loss.h"

enum {
    PIECE = 1 << 14,      /* scores between two looks whether to stop */
    PLAIN_ROWS = 1 << 10, /* rows of a unit, where one score of each is read */
};

enum round { ROUND_WEIGHTS, ROUND_ROWS };

struct sums {
    double loss, weight;
};

struct job {
    struct cpu_job base;
    const struct cpu_softmax *softmax;  /* of the scores, */
    const struct cpu_softmax *computed; /* and of those that have been read */
    struct report *report;
    struct class_loss loss;
    enum round round;
    struct cpu_floats floats;
    const char *scores, *gradient, *probabilities, *weight; /* NULL: there is none */
    struct cpu_indices targets;                             /* no data: there are none */
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

static double weight_of(const struct job *job, int64_t class) {
    return job->weight ? cpu_floats_get(&job->floats, job->weight, class) : 1;
}

/* ---- a row ---- */

struct row {
    const char *x, *wanted; /* its first score, its first probability */
    char *out;              /* of a gradient */
    int64_t target;
};

/* Classes of a row that are computed at a time: all of them, or of halves some, in buffers. */
struct block {
    int64_t n, stride;               /* of scores and probabilities */
    const void *x, *wanted, *weight; /* NULL: there is none */
    int64_t target;                  /* counted from the first class; it may lie in another block */
    double smoothing, each;          /* each class's share of it */
};
enum { BUFFER_X, BUFFER_WANTED, BUFFER_WEIGHT, BUFFERS };

static struct block block_read(const struct job *job, const struct row *row, int64_t first,
                               struct cpu_floats_buffer *buffers) {
    const struct cpu_floats *floats = &job->floats;
    int64_t inner = job->loss.inner, from = first * inner * floats->size;
    struct block block = {.n = cpu_floats_block(floats, job->loss.classes - first),
                          .stride = cpu_floats_stride(floats, inner),
                          .target = row->target - first,
                          .smoothing = job->loss.smoothing,
                          .each = job->loss.smoothing / (double)job->loss.classes};
    block.x = cpu_floats_read(floats, block.n, row->x + from, inner, &buffers[BUFFER_X]);
    if (row->wanted) {
        block.wanted = cpu_floats_read(floats, block.n, row->wanted + from, inner, &buffers[BUFFER_WANTED]);
    }
    if (job->weight) {
        block.weight = cpu_floats_read(floats, block.n, job->weight + first * floats->size, 1, &buffers[BUFFER_WEIGHT]);
    }
    return block;
}

/* Loops over a block, for each dtype one without a question for every class. */
#define INLINE static inline __attribute__((always_inline))

/* What the loss multiplies -log_softmax of class i by. */
INLINE double block_factor(const struct block *block, int64_t i, bool is_f64) {
    double s = block->smoothing, weight = block->weight ? cpu_floats_at(is_f64, block->weight, i) : 1;
    double own = block->wanted ? cpu_floats_at(is_f64, block->wanted, i * block->stride) : i == block->target ? 1 : 0;
    return weight * (s > 0 ? (1 - s) * own + block->each : own);
}

/* Adds the factors to a sum. */
INLINE double block_factors(struct block block, double sum, bool is_f64) {
    for (int64_t i = 0; i < block.n; i++) {
        sum += block_factor(&block, i, is_f64);
    }
    return sum;
}

/* Adds the losses to a sum. */
INLINE double block_losses(struct block block, double sum, double logarithm, double maximum, bool is_f64) {
    for (int64_t i = 0; i < block.n; i++) {
        double x = cpu_floats_at(is_f64, block.x, i * block.stride);
        sum += block_factor(&block, i, is_f64) * (logarithm - (x - maximum));
    }
    return sum;
}

/* The same where only the wanted ones count, which lie one after another: several sums, for one would wait for itself. */
INLINE double block_wanted(struct block block, double sum, bool is_f64) {
    double sums[8] = {sum};
    int64_t i = 0;
    for (; i + 8 <= block.n; i += 8) {
        for (int k = 0; k < 8; k++) {
            sums[k] += cpu_floats_at(is_f64, block.wanted, i + k);
        }
    }
    for (; i < block.n; i++) {
        sums[0] += cpu_floats_at(is_f64, block.wanted, i);
    }
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/* Takes the gradient's share of what is wanted from each result. */
INLINE void block_less_wanted(struct block block, void *out, int64_t stride, double gradient, bool is_f64) {
    for (int64_t i = 0; i < block.n; i++) {
        double more = cpu_floats_at(is_f64, out, i * stride);
        cpu_floats_put(is_f64, out, i * stride, more - gradient * cpu_floats_at(is_f64, block.wanted, i * stride));
    }
}

/* The gradients of the parts of softmax in `out`, in their place, where all that is wanted lies one after another. */
INLINE void block_of_parts(struct block block, void *out, double gradient, double all, bool is_f64) {
    for (int64_t i = 0; i < block.n; i++) {
        double less = all * cpu_floats_at(is_f64, out, i) - cpu_floats_at(is_f64, block.wanted, i);
        cpu_floats_put(is_f64, out, i, gradient * less);
    }
}

/* Makes the gradients of the parts of softmax, in their place. */
INLINE void block_gradients(struct block block, void *out, double gradient, double all, bool is_f64) {
    for (int64_t i = 0; i < block.n; i++) {
        double part = cpu_floats_at(is_f64, out, i * block.stride);
        cpu_floats_put(is_f64, out, i * block.stride, gradient * (all * part - block_factor(&block, i, is_f64)));
    }
}

/* Whether only the target has a factor. */
static bool row_single(const struct job *job, const struct row *row) {
    return !row->wanted && !(job->loss.smoothing > 0);
}

static double row_loss(const struct job *job, const struct row *row, struct cpu_floats_buffer *buffers) {
    const struct cpu_floats *floats = &job->floats;
    int64_t classes = job->loss.classes, inner = job->loss.inner;
    double maximum = job->softmax->maximum(classes, row->x, inner);
    double logarithm = log(job->softmax->sum(classes, row->x, inner, maximum));
    if (row_single(job, row)) {
        double x = cpu_floats_get(floats, row->x, row->target * inner);
        return weight_of(job, row->target) * (logarithm - (x - maximum));
    }
    double loss = 0;
    for (int64_t first = 0; first < classes;) {
        struct block block = block_read(job, row, first, buffers);
        loss = floats->is_f64 ? block_losses(block, loss, logarithm, maximum, true)
                              : block_losses(block, loss, logarithm, maximum, false);
        first += block.n;
    }
    return loss;
}

static void row_zero(const struct job *job, const struct row *row) {
    int64_t inner = job->loss.inner, size = job->floats.size;
    if (inner == 1) {
        memset(row->out, 0, (size_t)(job->loss.classes * size));
        return;
    }
    for (char *to = row->out, *end = to + job->loss.classes * inner * size; to < end; to += inner * size) {
        memset(to, 0, size == 2 ? 2 : size == 4 ? 4 : 8);
    }
}

/* Whether the factors are the probabilities that are wanted. */
static bool row_wanted(const struct job *job, const struct row *row) {
    return row->wanted && !job->weight && !(job->loss.smoothing > 0);
}

/* The sum of the factors of all classes. */
static double row_factors(const struct job *job, const struct row *row, struct cpu_floats_buffer *buffers) {
    if (row_single(job, row)) {
        return weight_of(job, row->target);
    }
    double all = 0;
    for (int64_t first = 0; first < job->loss.classes;) {
        struct block block = block_read(job, row, first, buffers);
        if (block.stride == 1 && row_wanted(job, row)) {
            all = job->floats.is_f64 ? block_wanted(block, all, true) : block_wanted(block, all, false);
            first += block.n;
            continue;
        }
        all = job->floats.is_f64 ? block_factors(block, all, true) : block_factors(block, all, false);
        first += block.n;
    }
    return all;
}

/* The gradients of a block whose scaled parts of softmax are in `out`: less what is wanted. */
static void block_finish(const struct job *job, const struct row *row, const struct block *block, void *out,
                         double gradient) {
    const struct cpu_floats *floats = &job->floats;
    if (row_single(job, row)) {
        int64_t at = block->target * block->stride;
        if (block->target >= 0 && block->target < block->n) {
            double more = cpu_floats_at(floats->is_f64, out, at);
            cpu_floats_put(floats->is_f64, out, at, more - gradient * weight_of(job, row->target));
        }
    } else if (block->stride == 1) {
        if (floats->is_f64) {
            block_less_wanted(*block, out, 1, gradient, true);
        } else {
            block_less_wanted(*block, out, 1, gradient, false);
        }
    } else if (floats->is_f64) {
        block_less_wanted(*block, out, block->stride, gradient, true);
    } else {
        block_less_wanted(*block, out, block->stride, gradient, false);
    }
}

static void row_gradient(const struct job *job, const struct row *row, double gradient,
                         struct cpu_floats_buffer *buffers) {
    const struct cpu_floats *floats = &job->floats;
    int64_t classes = job->loss.classes, inner = job->loss.inner;
    if (job->loss.plain) {
        row_zero(job, row);
        cpu_floats_set(floats, row->out, row->target * inner, -gradient * weight_of(job, row->target));
        return;
    }
    if (inner == 1 && row_wanted(job, row) && job->softmax == job->computed) { /* exponentials are taken once */
        const double all = row_factors(job, row, buffers);
        const struct block block = block_read(job, row, 0, buffers);
        job->softmax->row(classes, row->x, 1, row->out, 1);
        if (floats->is_f64) {
            block_of_parts(block, row->out, gradient, all, true);
        } else {
            block_of_parts(block, row->out, gradient, all, false);
        }
        return;
    }
    double maximum = job->softmax->maximum(classes, row->x, inner);
    double sum = job->softmax->sum(classes, row->x, inner, maximum), all = row_factors(job, row, buffers);
    /* All but what is wanted can be done as softmax is written, if the factor there neither overflows nor becomes subnormal. */
    double scale = gradient * all, size = fabs(scale / sum);
    bool scaled = (row_single(job, row) || row_wanted(job, row)) && size > 0x1p-100 && size < 0x1p100;
    for (int64_t first = 0; first < classes;) {
        struct block block = block_read(job, row, first, buffers);
        char *to = row->out + first * inner * floats->size;
        void *out = cpu_floats_results(floats, to, &buffers[BUFFER_X]);
        job->computed->write(block.n, block.x, block.stride, out, block.stride, maximum, scaled ? sum / scale : sum);
        if (scaled) {
            block_finish(job, row, &block, out, gradient);
        } else if (floats->is_f64) {
            block_gradients(block, out, gradient, all, true);
        } else {
            block_gradients(block, out, gradient, all, false);
        }
        cpu_floats_write(floats, block.n, to, inner, &buffers[BUFFER_X]);
        first += block.n;
    }
}

/* Adds the row to the sums of its unit. */
static void row_run(const struct job *job, int64_t number, struct sums *sums, struct cpu_floats_buffer *buffers) {
    const struct class_loss *loss = &job->loss;
    int64_t outer = number / loss->inner, inner = number % loss->inner;
    int64_t at = (outer * loss->classes * loss->inner + inner) * job->floats.size;
    struct row row = {.x = job->scores + at,
                      .wanted = job->probabilities ? job->probabilities + at : NULL,
                      .out = loss->back ? job->out + at : NULL,
                      .target = job->targets.data ? cpu_index(&job->targets, number) : 0};
    bool ignored = job->targets.data && row.target == loss->ignored;
    bool wrong = !ignored && (uint64_t)row.target >= (uint64_t)loss->classes;
    if (wrong) {
        report_target(job, row.target, number);
    }
    if (!ignored && !wrong) {
        sums->weight += job->targets.data ? weight_of(job, row.target) : 1;
    }
    if (job->round == ROUND_WEIGHTS) {
        return;
    }
    if (!loss->back) {
        double value = ignored || wrong ? 0 : row_loss(job, &row, buffers);
        sums->loss += value;
        if (loss->reduction == OP_REDUCTION_NONE) {
            cpu_floats_set(&job->floats, job->out, number, value);
        }
    } else if (ignored || wrong) {
        row_zero(job, &row);
    } else {
        bool each = loss->reduction == OP_REDUCTION_NONE;
        double gradient = cpu_floats_get(&job->floats, job->gradient, each ? number : 0) * job->scale;
        row_gradient(job, &row, gradient, buffers);
    }
}

/* The sum of the wanted scores of n rows, of which all targets are classes: of several sums, for one would wait for itself. */
INLINE double plain_wanted(const struct job *job, int64_t begin, int64_t n, const int64_t *targets, bool is_f64) {
    const int64_t classes = job->loss.classes, first = begin * classes;
    double sums[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        for (int k = 0; k < 4; k++) {
            sums[k] += cpu_floats_at(is_f64, job->scores, first + (i + k) * classes + targets[i + k]);
        }
    }
    for (; i < n; i++) {
        sums[0] += cpu_floats_at(is_f64, job->scores, first + i * classes + targets[i]);
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* Adds rows without weights, whose classes lie one after another, to the sums. False: some target is none of the classes, or ignored. */
static bool plain_block(const struct job *job, int64_t begin, int64_t n, const int64_t *targets, struct sums *sums) {
    const struct class_loss *loss = &job->loss;
    bool all = true;
    for (int64_t i = 0; i < n; i++) {
        all &= ((uint64_t)targets[i] < (uint64_t)loss->classes) & (targets[i] != loss->ignored);
    }
    if (all) {
        sums->weight += (double)n;
        sums->loss -= job->floats.is_f64 ? plain_wanted(job, begin, n, targets, true)
                                         : plain_wanted(job, begin, n, targets, false);
    }
    return all;
}

/* Adds rows of log-probabilities to the sums: one score of each row is all that is read. */
static void plain_rows(const struct job *job, int64_t begin, int64_t end, struct sums *sums) {
    const struct class_loss *loss = &job->loss;
    for (int64_t number = begin; number < end; number++) {
        int64_t target = cpu_index(&job->targets, number), row = number * loss->classes;
        double value = 0;
        if (loss->inner > 1) {
            row = number / loss->inner * loss->classes * loss->inner + number % loss->inner;
        }
        if (target != loss->ignored && (uint64_t)target < (uint64_t)loss->classes) {
            double weight = weight_of(job, target);
            sums->weight += weight;
            value = -weight * cpu_floats_get(&job->floats, job->scores + row * job->floats.size, target * loss->inner);
        } else if (target != loss->ignored) {
            report_target(job, target, number);
        }
        sums->loss += value;
        if (loss->reduction == OP_REDUCTION_NONE) {
            cpu_floats_set(&job->floats, job->out, number, value);
        }
    }
}

/* The same, block by block, in as few steps for each row as there can be. */
static void plain_run(const struct job *job, int64_t begin, int64_t end, struct sums *sums) {
    const struct class_loss *loss = &job->loss;
    const bool simple = !job->weight && !job->floats.widen && loss->inner == 1 && loss->reduction != OP_REDUCTION_NONE;
    int64_t block[CPU_INDICES_BLOCK];
    for (int64_t n; simple && begin < end; begin += n) {
        n = end - begin < CPU_INDICES_BLOCK ? end - begin : CPU_INDICES_BLOCK;
        if (!plain_block(job, begin, n, cpu_indices_read(&job->targets, begin, 1, n, block), sums)) {
            plain_rows(job, begin, begin + n, sums);
        }
    }
    plain_rows(job, begin, end, sums);
}

/* ---- the job ---- */

static void unit_run(const struct job *job, int64_t unit, struct cpu_floats_buffer *buffers) {
    struct sums sums = {0, 0};
    int64_t begin = unit * job->unit, end = begin + job->unit;
    end = end < job->loss.rows ? end : job->loss.rows;
    if (job->loss.plain && !job->loss.back) {
        plain_run(job, begin, end, &sums);
    } else {
        for (int64_t row = begin; row < end; row++) {
            row_run(job, row, &sums, buffers);
        }
    }
    if (job->sums) {
        job->sums[unit] = sums;
    }
}

static bool units_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    int64_t begin = cpu_part_begin(job->units, lane->part, base->parts);
    int64_t end = cpu_part_begin(job->units, lane->part + 1, base->parts);
    struct cpu_floats_buffer buffers[BUFFERS];
    cpu_floats_begin(buffers, BUFFERS);
    for (int64_t unit = begin + lane->position; unit < end; unit++) {
        unit_run(job, unit, buffers);
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
    cpu_floats_set(&job->floats, job->out, 0,
                   job->loss.reduction == OP_REDUCTION_MEAN ? total.loss / total.weight : total.loss);
}

/* Whether the launch needs the sums of its units. */
static bool loss_sums(const struct class_loss *loss) {
    return loss->back ? loss->reduction == OP_REDUCTION_MEAN : loss->reduction != OP_REDUCTION_NONE;
}

static int64_t unit_rows(const struct class_loss *loss) {
    if (loss->plain && !loss->back) {
        return PLAIN_ROWS;
    }
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
    job.floats = cpu_floats_of(cpu, (enum dtype)loss->scores->dtype);
    job.softmax = cpu->kernels->softmax[0][loss->scores->dtype];
    job.computed = cpu->kernels->softmax[0][job.floats.is_f64 ? DTYPE_F64 : DTYPE_F32];
    job.scores = loss->scores->data;
    job.gradient = loss->back ? loss->gradient->data : NULL;
    job.weight = loss->weight ? loss->weight->data : NULL;
    job.probabilities = loss->soft ? loss->targets->data : NULL;
    if (!loss->soft) {
        job.targets = cpu_indices_of(cpu, loss->targets);
    }
    job.unit = unit_rows(loss);
    job.units = units_of(loss);
    job.sums = loss_sums(loss) ? launch->workspace : NULL;
    if (job.sums && loss->back) {
        job.round = ROUND_WEIGHTS;
        job.base.again = weights_again;
    } else if (job.sums || (!loss->back && loss->reduction != OP_REDUCTION_NONE)) {
        job.base.end = loss_end;
    }
    double row = loss->plain ? (loss->back ? (double)loss->classes * (double)job.floats.size : 0) + 64
                             : (double)loss->classes * (job.floats.is_f64 ? 96 : 40) + 512;
    double work = (double)loss->rows * row;
    job.base.parts = cpu_parts(cpu, work);
    job.base.parts = job.units < job.base.parts ? (unsigned)job.units : job.base.parts;
    cpu_job_begin(&job.base, sizeof job, work, begun);
    return STATUS_OK;
}

#define LOSS                                                                                                           \
    { {.index_dtypes = CPU_INDEX_DTYPES, .workspace = loss_workspace, .halves = true}, loss_run }
const struct cpu_kernel cpu_kernel_cross_entropy = LOSS;
const struct cpu_kernel cpu_kernel_cross_entropy_grad = LOSS;
const struct cpu_kernel cpu_kernel_soft_cross_entropy = LOSS;
const struct cpu_kernel cpu_kernel_soft_cross_entropy_grad = LOSS;
const struct cpu_kernel cpu_kernel_nll_loss = LOSS;
const struct cpu_kernel cpu_kernel_nll_loss_grad = LOSS;
