/* Cross-entropy of rows of scores, and its gradient, by the loops of softmax. */
#include <math.h>

#include "engine/cpu/cpu.h"

enum { PIECE = 1 << 14 }; /* scores between two looks whether to stop */

struct job {
    struct cpu_job base;
    const struct cpu_softmax *softmax;
    struct report *report;
    struct cross_entropy_attributes given;
    bool is_f64, back;
    int64_t size;
    const char *scores, *gradient;
    const int64_t *targets;
    char *out;
    int64_t rows, classes, inner; /* scores [outer, classes, inner]; rows: outer · inner */
};

/* The first thread claims the report by setting its code. No reader sees a code without its figures: readers come after the launch. */
static void report_target(const struct job *job, int64_t value, int64_t position) {
    struct report *report = job->report;
    uint32_t none = STATUS_OK;
    if (atomic_compare_exchange_strong(&report->code, &none, STATUS_OUT_OF_RANGE)) {
        report->value = value;
        report->position = position;
        report->limit = job->classes;
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

static double row_mean(const struct job *job, const char *x) {
    double sum = 0;
    for (int64_t i = 0; i < job->classes; i++) {
        sum += element(job, x, i * job->inner);
    }
    return sum / (double)job->classes;
}

static double row_loss(const struct job *job, const char *x, int64_t target) {
    double s = job->given.label_smoothing, maximum = job->softmax->maximum(job->classes, x, job->inner);
    double logarithm = log(job->softmax->sum(job->classes, x, job->inner, maximum));
    double own = logarithm - (element(job, x, target * job->inner) - maximum);
    return s > 0 ? (1 - s) * own + s * (logarithm - (row_mean(job, x) - maximum)) : own;
}

static void row_gradient(const struct job *job, const char *x, int64_t target, double gradient, char *out) {
    double s = job->given.label_smoothing, each = s / (double)job->classes;
    double maximum = job->softmax->maximum(job->classes, x, job->inner);
    double sum = job->softmax->sum(job->classes, x, job->inner, maximum);
    job->softmax->write(job->classes, x, job->inner, out, job->inner, maximum, sum);
    for (int64_t i = 0; i < job->classes; i++) {
        double wanted = i == target ? 1 - s + each : each;
        set(job, out, i * job->inner, gradient * (element(job, out, i * job->inner) - wanted));
    }
}

static void row_zero(const struct job *job, char *out) {
    for (int64_t i = 0; i < job->classes; i++) {
        set(job, out, i * job->inner, 0);
    }
}

static void row_run(const struct job *job, int64_t row) {
    int64_t outer = row / job->inner, inner = row % job->inner, target = job->targets[row];
    int64_t at = (outer * job->classes * job->inner + inner) * job->size;
    bool ignored = target == job->given.ignore_index, wrong = (uint64_t)target >= (uint64_t)job->classes;
    if (wrong && !ignored) {
        report_target(job, target, row);
    }
    if (job->back && (ignored || wrong)) {
        row_zero(job, job->out + at);
    } else if (job->back) {
        row_gradient(job, job->scores + at, target, element(job, job->gradient, row), job->out + at);
    } else {
        set(job, job->out, row, ignored || wrong ? 0 : row_loss(job, job->scores + at, target));
    }
}

static bool rows_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    int64_t begin = cpu_part_begin(job->rows, lane->part, base->parts);
    int64_t end = cpu_part_begin(job->rows, lane->part + 1, base->parts), read = 0;
    for (int64_t row = begin + lane->position; row < end; row++) {
        row_run(job, row);
        read += job->classes;
        if (read >= PIECE && row + 1 < end) {
            read = 0;
            if (cpu_job_stops(base)) {
                lane->position = row + 1 - begin;
                return false;
            }
        }
    }
    return true;
}

static int cross_entropy_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun,
                             struct fault *fault) {
    bool back = launch->opcode == OP_CROSS_ENTROPY_GRAD;
    const struct operand *scores = &launch->inputs[back], *targets = &launch->inputs[1 + back];
    struct job job = {.base = {.cpu = cpu, .run = rows_part},
                      .softmax = cpu->kernels->softmax[0][scores->dtype],
                      .report = launch->report,
                      .is_f64 = scores->dtype == DTYPE_F64,
                      .back = back,
                      .scores = scores->data,
                      .gradient = back ? launch->inputs[0].data : NULL,
                      .targets = targets->data,
                      .out = launch->output.data,
                      .rows = 1,
                      .inner = 1};
    (void)fault;
    cross_entropy_attributes_read(&launch->attributes, &job.given);
    job.size = job.is_f64 ? 8 : 4;
    job.classes = scores->shape[scores->rank == 1 ? 0 : 1];
    for (int i = 0; i < targets->rank; i++) {
        job.rows *= targets->shape[i];
        job.inner *= i > 0 ? targets->shape[i] : 1;
    }
    double work = (double)job.rows * ((double)job.classes * (job.is_f64 ? 96 : 40) + 512);
    job.base.parts = cpu_parts(cpu, work);
    job.base.parts = job.rows < job.base.parts ? (unsigned)job.rows : job.base.parts;
    cpu_job_begin(&job.base, sizeof job, work, begun);
    return STATUS_OK;
}

const struct cpu_kernel cpu_kernel_cross_entropy = {.driver = cross_entropy_run};
const struct cpu_kernel cpu_kernel_cross_entropy_grad = {.driver = cross_entropy_run};
