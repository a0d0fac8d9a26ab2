/* Steps of optimisers: shares the elements of a parameter out. */
#include "engine/device/optimiser.h"

#include "engine/cpu/floats.h"

enum { PIECE = 1 << 15 }; /* elements between two looks whether to stop */

struct job {
    struct cpu_job base;
    cpu_optimiser_function *function;
    const char *in[OPTIMISER_INPUTS];
    char *out[OPTIMISER_OUTPUTS];
    unsigned n_inputs, n_outputs;
    int64_t elements;
    struct cpu_floats floats;
    struct optimiser_f64 wide;
    struct optimiser_f32 narrow;
};

/* A result takes the place of the input of its role. */
static unsigned input_of(unsigned output) {
    return output ? output + 1 : 0;
}

static void elements_run(struct job *job, int64_t at, int64_t n, struct cpu_floats_buffer *buffers) {
    const struct cpu_floats *floats = &job->floats;
    const void *in[OPTIMISER_INPUTS];
    void *out[OPTIMISER_OUTPUTS];
    for (unsigned i = 0; i < job->n_inputs; i++) {
        in[i] = cpu_floats_read(floats, n, job->in[i] + at * floats->size, 1, &buffers[i]);
    }
    for (unsigned i = 0; i < job->n_outputs; i++) {
        out[i] = cpu_floats_results(floats, job->out[i] + at * floats->size, &buffers[input_of(i)]);
    }
    job->function(n, in, out, floats->is_f64 ? (const void *)&job->wide : &job->narrow);
    for (unsigned i = 0; i < job->n_outputs; i++) {
        cpu_floats_write(floats, n, job->out[i] + at * floats->size, 1, &buffers[input_of(i)]);
    }
}

static void piece_run(struct job *job, int64_t begin, int64_t n) {
    struct cpu_floats_buffer buffers[OPTIMISER_INPUTS];
    int64_t most = cpu_floats_block(&job->floats, n);
    cpu_floats_begin(buffers, OPTIMISER_INPUTS);
    for (int64_t i = 0; i < n; i += most) {
        elements_run(job, begin + i, n - i < most ? n - i : most, buffers);
    }
}

static bool elements_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    int64_t begin = cpu_part_begin(job->elements, lane->part, base->parts);
    int64_t end = cpu_part_begin(job->elements, lane->part + 1, base->parts);
    for (int64_t at = begin + lane->position; at < end;) {
        int64_t n = end - at < PIECE ? end - at : PIECE;
        piece_run(job, at, n);
        at += n;
        if (at < end && cpu_job_stops(base)) {
            lane->position = at - begin;
            return false;
        }
    }
    return true;
}

static int optimiser_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    const struct operand *parameter = &launch->output;
    struct job job = {.base = {.cpu = cpu, .run = elements_part},
                      .n_inputs = launch->n_inputs,
                      .n_outputs = 1u + launch->further,
                      .elements = parameter->shape[0],
                      .floats = cpu_floats_of(cpu, (enum dtype)parameter->dtype)};
    (void)fault;
    enum optimiser_way way = optimiser_make(launch, &job.wide);
    job.narrow = optimiser_narrow(&job.wide);
    job.function = cpu->kernels->optimiser[(job.floats.is_f64 ? OPTIMISER_WAY_COUNT : 0) + way];
    for (unsigned i = 0; i < job.n_inputs; i++) {
        job.in[i] = launch->inputs[i].data;
    }
    job.out[0] = parameter->data;
    for (unsigned i = 1; i < job.n_outputs; i++) {
        job.out[i] = launch_further(launch, i)->data;
    }
    double work = (double)job.elements * (double)((job.floats.is_f64 ? 8 : 4) * (job.n_inputs + job.n_outputs));
    job.base.parts = cpu_parts(cpu, work);
    cpu_job_begin(&job.base, sizeof job, work, begun);
    return STATUS_OK;
}

#define OPTIMISER                                                                                                      \
    { {.halves = true}, optimiser_run }
const struct cpu_kernel cpu_kernel_sgd = OPTIMISER;
const struct cpu_kernel cpu_kernel_adam = OPTIMISER;
const struct cpu_kernel cpu_kernel_adamw = OPTIMISER;
const struct cpu_kernel cpu_kernel_rmsprop = OPTIMISER;
const struct cpu_kernel cpu_kernel_adagrad = OPTIMISER;
const struct cpu_kernel cpu_kernel_moving_average = OPTIMISER;
