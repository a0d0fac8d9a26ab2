/* Losses of elements, piece by piece. The sums of pieces, which depend on the shape alone, are added up in their order at the end. */
#include "engine/cpu/cpu.h"
#include "engine/device/loss.h"

enum { PIECE = 1 << 14 }; /* elements between two looks whether to stop */

struct job {
    struct cpu_job base;
    const struct cpu_loss *functions;
    struct element_loss loss;
    bool is_f64;
    int64_t size, pieces;
    const char *in[LOSS_INPUTS];
    const char *gradient, *factor; /* by each loss, or one number for all; the other one is NULL */
    char *out;
    double *sums; /* workspace: of each piece */
};

static double element(const struct job *job, const void *from) {
    return job->is_f64 ? *(const double *)from : (double)*(const float *)from;
}

static void set(const struct job *job, void *to, double value) {
    if (job->is_f64) {
        *(double *)to = value;
    } else {
        *(float *)to = (float)value;
    }
}

static void piece_run(const struct job *job, int64_t piece) {
    const struct element_loss *loss = &job->loss;
    const void *in[LOSS_INPUTS];
    int64_t at = piece * PIECE, n = loss->elements - at < PIECE ? loss->elements - at : PIECE;
    for (unsigned i = 0; i < loss->n_inputs; i++) {
        in[i] = job->in[i] + at * job->size;
    }
    if (loss->back) {
        const char *gradient = job->gradient ? job->gradient + at * job->size : NULL;
        double factor = job->factor ? element(job, job->factor) * loss->scale : 0;
        job->functions->back(n, in, loss->delta, gradient, factor, job->out + at * job->size);
    } else if (loss->reduction == OP_REDUCTION_NONE) {
        job->functions->each(n, in, loss->delta, job->out + at * job->size);
    } else {
        job->sums[piece] = job->functions->sum(n, in, loss->delta);
    }
}

static bool pieces_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    int64_t begin = cpu_part_begin(job->pieces, lane->part, base->parts);
    int64_t end = cpu_part_begin(job->pieces, lane->part + 1, base->parts);
    for (int64_t piece = begin + lane->position; piece < end; piece++) {
        piece_run(job, piece);
        if (piece + 1 < end && cpu_job_stops(base)) {
            lane->position = piece + 1 - begin;
            return false;
        }
    }
    return true;
}

static void sums_end(struct cpu_job *base) {
    struct job *job = (struct job *)base;
    double sum = 0;
    for (int64_t i = 0; i < job->pieces; i++) {
        sum += job->sums[i];
    }
    bool mean = job->loss.reduction == OP_REDUCTION_MEAN;
    set(job, job->out, mean ? sum / (double)job->loss.elements : sum);
}

static int64_t pieces_of(const struct element_loss *loss) {
    return loss->elements / PIECE + (loss->elements % PIECE != 0);
}

static uint64_t element_loss_workspace(struct device *device, const struct launch *launch) {
    struct element_loss loss = element_loss_make(launch);
    (void)device;
    return loss.back || loss.reduction == OP_REDUCTION_NONE ? 0 : (uint64_t)pieces_of(&loss) * sizeof(double);
}

static int element_loss_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    struct job job = {.base = {.cpu = cpu, .run = pieces_part},
                      .loss = element_loss_make(launch),
                      .is_f64 = launch->output.dtype == DTYPE_F64,
                      .out = launch->output.data,
                      .sums = launch->workspace};
    struct element_loss *loss = &job.loss;
    (void)fault;
    job.size = job.is_f64 ? 8 : 4;
    job.pieces = pieces_of(loss);
    job.functions = &cpu->kernels->loss[(job.is_f64 ? LOSS_WAY_COUNT : 0) + loss->way];
    for (unsigned i = 0; i < loss->n_inputs; i++) {
        job.in[i] = loss->x[i].data;
    }
    if (loss->back && loss->reduction == OP_REDUCTION_NONE) {
        job.gradient = loss->gradient->data;
    } else if (loss->back) {
        job.factor = loss->gradient->data;
    } else if (loss->reduction != OP_REDUCTION_NONE) {
        job.base.end = sums_end;
    }
    bool functions = loss->way >= LOSS_WAY_bce; /* of real numbers */
    double work = (double)loss->elements * (double)(job.size * (loss->n_inputs + 1)) * (functions ? 4 : 1);
    job.base.parts = cpu_parts(cpu, work);
    job.base.parts = job.pieces < job.base.parts ? (unsigned)job.pieces : job.base.parts;
    cpu_job_begin(&job.base, sizeof job, work, begun);
    return STATUS_OK;
}

#define ELEMENT_LOSS                                                                                                   \
    { {.workspace = element_loss_workspace}, element_loss_run }
const struct cpu_kernel cpu_kernel_mse_loss = ELEMENT_LOSS;
const struct cpu_kernel cpu_kernel_mse_loss_grad = ELEMENT_LOSS;
const struct cpu_kernel cpu_kernel_l1_loss = ELEMENT_LOSS;
const struct cpu_kernel cpu_kernel_l1_loss_grad = ELEMENT_LOSS;
const struct cpu_kernel cpu_kernel_huber_loss = ELEMENT_LOSS;
const struct cpu_kernel cpu_kernel_huber_loss_grad = ELEMENT_LOSS;
const struct cpu_kernel cpu_kernel_bce_with_logits = ELEMENT_LOSS;
const struct cpu_kernel cpu_kernel_bce_with_logits_grad = ELEMENT_LOSS;
const struct cpu_kernel cpu_kernel_kl_div = ELEMENT_LOSS;
const struct cpu_kernel cpu_kernel_kl_div_grad = ELEMENT_LOSS;
const struct cpu_kernel cpu_kernel_bce_with_logits_target_grad = ELEMENT_LOSS;
const struct cpu_kernel cpu_kernel_kl_div_target_grad = ELEMENT_LOSS;
