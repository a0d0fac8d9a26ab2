/* Softmax: shares the rows out, and computes long rows piece by piece. */
#include "engine/cpu/cpu.h"
#include "engine/cpu/walk.h"

enum { PIECE = 1 << 14 }; /* elements between two looks whether to stop: 0.1 to 0.5 ms */

struct job {
    struct cpu_job base;
    const struct cpu_softmax *softmax;
    struct walk walk; /* of output and input, without the last axis */
    char *origin[2];
    int64_t rows, n;
    int64_t out_stride, in_stride, size;
};

/* The state of a row that is left. */
struct row {
    double maximum, sum;
};

/* One row, from *position on, which counts the elements of its three passes. False: it is left. */
static bool job_row(struct job *job, const struct walk *walk, struct row *row, int64_t *position) {
    const struct cpu_softmax *softmax = job->softmax;
    while (*position < 3 * job->n) {
        int64_t pass = *position / job->n, i = *position % job->n;
        int64_t n = job->n - i < PIECE ? job->n - i : PIECE;
        const char *x = walk->at[1] + i * job->in_stride * job->size;
        char *out = walk->at[0] + i * job->out_stride * job->size;
        if (pass == 0) {
            double maximum = softmax->maximum(n, x, job->in_stride);
            row->maximum = i > 0 && row->maximum > maximum ? row->maximum : maximum;
            row->sum = 0;
        } else if (pass == 1) {
            row->sum += softmax->sum(n, x, job->in_stride, row->maximum);
        } else {
            softmax->write(n, x, job->in_stride, out, job->out_stride, row->maximum, row->sum);
        }
        *position += n;
        if (*position < 3 * job->n && cpu_job_stops(&job->base)) {
            return false;
        }
    }
    *position = 0;
    return true;
}

/* The rows of a part. lane->position counts rows, and within a long row its elements. */
static bool job_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    struct walk walk = job->walk;
    struct row here, *row = lane->state ? lane->state : &here;
    bool whole = job->n <= PIECE;
    int64_t begin = cpu_part_begin(job->rows, lane->part, base->parts);
    int64_t end = cpu_part_begin(job->rows, lane->part + 1, base->parts);
    int64_t at = begin + (whole ? 0 : lane->position / (3 * job->n));
    int64_t position = whole ? 0 : lane->position % (3 * job->n);
    walk_seek(&walk, job->origin, at);
    for (; at < end; at++) {
        if (whole) {
            job->softmax->row(job->n, walk.at[1], job->in_stride, walk.at[0], job->out_stride);
        } else if (!job_row(job, &walk, row, &position)) {
            lane->position = (at - begin) * 3 * job->n + position;
            return false;
        }
        walk_advance(&walk, 1);
    }
    return true;
}

const struct cpu_softmax *cpu_softmax_find(const struct cpu_kernels *kernels, unsigned opcode, unsigned dtype,
                                           int64_t n) {
    return n <= PIECE ? kernels->softmax[opcode == OP_LOG_SOFTMAX][dtype] : NULL;
}

static int softmax_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    const struct operand *out = &launch->output, *x = &launch->inputs[0];
    int64_t size = (int64_t)dtype_size((enum dtype)x->dtype);
    int last = x->rank - 1;
    struct job job = {.base = {.cpu = cpu, .run = job_part, .lane_bytes = sizeof(struct row)},
                      .softmax = cpu->kernels->softmax[launch->opcode == OP_LOG_SOFTMAX][x->dtype],
                      .walk = {.rank = last, .arrays = 2},
                      .origin = {out->data, x->data},
                      .rows = 1,
                      .n = x->shape[last],
                      .out_stride = out->strides[last],
                      .in_stride = x->strides[last],
                      .size = size};
    (void)fault;
    walk_array(&job.walk, 0, out->strides, 0, size);
    walk_array(&job.walk, 1, x->strides, 0, size);
    for (int i = 0; i < last; i++) {
        job.walk.shape[i] = x->shape[i];
        job.rows *= x->shape[i];
    }
    /* Three passes with an exponential. */
    double work = (double)job.rows * ((double)job.n * (x->dtype == DTYPE_F64 ? 96 : 32) + 256);
    job.base.parts = cpu_parts(cpu, work);
    job.base.parts = job.rows < job.base.parts ? (unsigned)job.rows : job.base.parts;
    cpu_job_begin(&job.base, sizeof job, work, begun);
    return STATUS_OK;
}

static uint32_t softmax_found(const struct device *device, unsigned opcode) {
    uint32_t found = 0;
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        const struct cpu_kernels *kernels = ((const struct cpu *)device)->kernels;
        found |= (uint32_t)(kernels->softmax[opcode == OP_LOG_SOFTMAX][dtype] != NULL) << dtype;
    }
    return found;
}

const struct cpu_kernel cpu_kernel_softmax = {{.dtypes = softmax_found}, softmax_run};
const struct cpu_kernel cpu_kernel_log_softmax = {{.dtypes = softmax_found}, softmax_run};
