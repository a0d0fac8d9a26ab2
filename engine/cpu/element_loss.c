/* Losses of elements, piece by piece. The sums of pieces, which depend on the shape alone, are added up in their order at the end. */
#include "engine/cpu/element_loss.h"
#include "engine/cpu/floats.h"
#include "engine/device/loss.h"

enum {
    PIECE = LOSS_ASKS,      /* elements between two looks whether to stop */
    CACHED_MOST = 16 << 20, /* bytes of inputs that are taken to be in the caches */
};

struct job {
    struct cpu_job base;
    const struct cpu_loss *functions;
    struct element_loss loss;
    struct cpu_floats floats;
    int64_t pieces;
    const char *in[LOSS_INPUTS];
    const char *gradient, *factor; /* by each loss, or one number for all; the other one is NULL */
    char *out;
    double *sums; /* workspace: of each piece */
    bool cached;  /* the inputs are in the caches */
};

/* Buffers: one for each of the inputs from x on, and one for the gradient. */
enum { BUFFER_GRADIENT = LOSS_INPUTS, BUFFERS };

/* n elements from number `at` on. Returns the sum of their losses, if these are reduced; else their results are written. Those in a buffer take the
 * place of x. */
static double block_run(const struct job *job, int64_t at, int64_t n, struct cpu_floats_buffer *buffers) {
    const struct element_loss *loss = &job->loss;
    const struct cpu_floats *floats = &job->floats;
    const void *in[LOSS_INPUTS], *gradient = NULL;
    for (unsigned i = 0; i < loss->n_inputs; i++) {
        in[i] = cpu_floats_read(floats, n, job->in[i] + at * floats->size, 1, &buffers[i]);
    }
    if (!loss->back && loss->reduction != OP_REDUCTION_NONE) {
        return job->functions->sum(n, in, loss->delta);
    }
    if (job->gradient) {
        gradient = cpu_floats_read(floats, n, job->gradient + at * floats->size, 1, &buffers[BUFFER_GRADIENT]);
    }
    double factor = job->factor ? cpu_floats_get(floats, job->factor, 0) * loss->scale : 0;
    char *to = job->out + at * floats->size;
    void *out = cpu_floats_results(floats, to, &buffers[0]);
    if (loss->back) {
        job->functions->back(n, in, loss->delta, gradient, factor, out);
    } else {
        job->functions->each(n, in, loss->delta, out);
    }
    cpu_floats_write(floats, n, to, 1, &buffers[0]);
    return 0;
}

static void piece_run(const struct job *job, int64_t piece) {
    struct cpu_floats_buffer buffers[BUFFERS];
    cpu_floats_begin(buffers, BUFFERS);
    int64_t begin = piece * PIECE, left = job->loss.elements - begin, n = left < PIECE ? left : PIECE;
    int64_t most = cpu_floats_block(&job->floats, job->cached && n > PIECE / 2 ? PIECE / 2 : n);
    double sum = 0;
    for (int64_t i = 0; i < n; i += most) {
        sum += block_run(job, begin + i, n - i < most ? n - i : most, buffers);
    }
    if (job->sums) {
        job->sums[piece] = sum;
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
    cpu_floats_set(&job->floats, job->out, 0, mean ? sum / (double)job->loss.elements : sum);
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
                      .floats = cpu_floats_of(cpu, (enum dtype)launch->output.dtype),
                      .out = launch->output.data,
                      .sums = launch->workspace};
    struct element_loss *loss = &job.loss;
    (void)fault;
    job.pieces = pieces_of(loss);
    job.cached = loss->elements <= CACHED_MOST / (job.floats.size * (int64_t)loss->n_inputs);
    job.functions = &cpu->kernels->loss[(job.floats.is_f64 ? LOSS_WAY_COUNT : 0) + loss->way];
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
    double work =
        (double)loss->elements * (double)((job.floats.is_f64 ? 8 : 4) * (loss->n_inputs + 1)) * (functions ? 4 : 1);
    job.base.parts = cpu_parts(cpu, work);
    job.base.parts = job.pieces < job.base.parts ? (unsigned)job.pieces : job.base.parts;
    cpu_job_begin(&job.base, sizeof job, work, begun);
    return STATUS_OK;
}

#define ELEMENT_LOSS                                                                                                   \
    { {.workspace = element_loss_workspace, .halves = true}, element_loss_run }
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
