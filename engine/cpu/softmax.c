/* Softmax: shares the rows out. */
#include "engine/cpu/cpu.h"
#include "engine/cpu/walk.h"

struct job {
    cpu_softmax_function *row;
    struct walk walk; /* of output and input, without the last axis */
    char *origin[2];
    int64_t rows, n;
    int64_t out_stride, in_stride;
    unsigned parts;
};

static void job_part(void *context, unsigned part) {
    const struct job *job = context;
    struct walk walk = job->walk;
    int64_t row = cpu_part_begin(job->rows, part, job->parts), end = cpu_part_begin(job->rows, part + 1, job->parts);
    walk_seek(&walk, job->origin, row);
    for (; row < end; row++) {
        job->row(job->n, walk.at[1], job->in_stride, walk.at[0], job->out_stride);
        walk_advance(&walk, 1);
    }
}

int cpu_softmax(struct cpu *cpu, const struct launch *launch, struct fault *fault) {
    const struct operand *out = &launch->output, *x = &launch->inputs[0];
    int64_t size = (int64_t)dtype_size((enum dtype)x->dtype);
    int last = x->rank - 1;
    struct job job = {.row = cpu->kernels->softmax[launch->opcode][x->dtype],
                      .walk = {.rank = last, .arrays = 2},
                      .origin = {out->data, x->data},
                      .rows = 1,
                      .n = x->shape[last],
                      .out_stride = out->strides[last],
                      .in_stride = x->strides[last]};
    (void)fault;
    walk_array(&job.walk, 0, out->strides, 0, size);
    walk_array(&job.walk, 1, x->strides, 0, size);
    for (int i = 0; i < last; i++) {
        job.walk.shape[i] = x->shape[i];
        job.rows *= x->shape[i];
    }
    /* Three passes with an exponential. */
    job.parts = cpu_parts(cpu, job.rows * job.n * 32);
    job.parts = job.rows < job.parts ? (unsigned)job.rows : job.parts;
    team_run(&cpu->team, job.parts, job_part, &job);
    return STATUS_OK;
}
