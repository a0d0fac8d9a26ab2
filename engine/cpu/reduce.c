/* Reductions: walks over kept and reduced axes, and picks the direction in which memory is read in order.
 *
 * "Down": a block of outputs along the last kept axis is accumulated side by side, one row of it for each reduced element;
 * sums over leading axes. "Along": one output takes runs along the last reduced axis; sums over trailing axes. */
#include "engine/cpu/cpu.h"
#include "engine/cpu/walk.h"

enum {
    SEGMENTS_MAX = 16, /* parts of the reduced elements, where there are too few outputs to share out */
    SHORT_RUN = 16,    /* reduced runs up to this length are rather taken down */
};

struct job {
    const struct cpu_reduction *reduction;
    struct walk kept;    /* lines of outputs: the kept axes, without the last one where `down` */
    struct walk reduced; /* steps: the reduced axes, without the last one where not `down` */
    char *in, *out;
    int64_t in_size, out_size;
    int64_t width, width_stride; /* outputs in a line; 1 where not `down` */
    int64_t run, run_stride;     /* elements in a step; 1 where `down` */
    int64_t lines, steps;
    int64_t columns; /* blocks of outputs in a line */
    int64_t count;   /* elements reduced into one */
    bool down;
    unsigned parts;
    /* The block whose steps are shared out. */
    char *at;
    int64_t n;
    struct cpu_accumulators *segments;
};

/* Takes steps begin … end - 1 into the accumulators of the n outputs whose elements begin at `at`. */
static void job_accumulate(const struct job *job, char *at, int64_t n, int64_t begin, int64_t end,
                           struct cpu_accumulators *accumulators) {
    struct walk walk = job->reduced;
    job->reduction->start(n, accumulators);
    if (begin == end) {
        return; /* of an empty tensor: there is no element to walk to */
    }
    walk_seek(&walk, &at, begin);
    for (int64_t i = begin; i < end; i++) {
        if (job->down) {
            job->reduction->column(n, walk.at[0], job->width_stride, i, accumulators);
        } else {
            job->reduction->row(job->run, walk.at[0], job->run_stride, i * job->run, accumulators);
        }
        walk_advance(&walk, 1);
    }
}

/* Finds a block of outputs in the line that `kept` stands on: where its elements begin, where its results go, how many. */
static int64_t job_block(const struct job *job, const struct walk *kept, int64_t block, char **at, char **out) {
    int64_t line = block / job->columns, first = block % job->columns * CPU_REDUCE_WIDTH, left = job->width - first;
    *at = kept->at[0] + first * job->width_stride * job->in_size;
    *out = job->out + (line * job->width + first) * job->out_size;
    return left < CPU_REDUCE_WIDTH ? left : CPU_REDUCE_WIDTH;
}

/* A share of the blocks. */
static void job_part(void *context, unsigned part) {
    const struct job *job = context;
    struct cpu_accumulators accumulators;
    struct walk kept = job->kept;
    int64_t blocks = job->lines * job->columns;
    int64_t block = cpu_part_begin(blocks, part, job->parts), end = cpu_part_begin(blocks, part + 1, job->parts);
    char *at, *out;
    walk_seek(&kept, &job->in, block / job->columns);
    while (block < end) {
        int64_t n = job_block(job, &kept, block, &at, &out);
        job_accumulate(job, at, n, 0, job->steps, &accumulators);
        job->reduction->finish(n, &accumulators, job->count, out);
        if (++block % job->columns == 0) {
            walk_advance(&kept, 1);
        }
    }
}

/* A share of the steps of one block. */
static void job_segment(void *context, unsigned part) {
    const struct job *job = context;
    if (job->down || job->steps >= job->parts) {
        int64_t begin = cpu_part_begin(job->steps, part, job->parts);
        int64_t end = cpu_part_begin(job->steps, part + 1, job->parts);
        job_accumulate(job, job->at, job->n, begin, end, &job->segments[part]);
        return;
    }
    /* Few long runs: each is cut. */
    struct walk walk = job->reduced;
    int64_t begin = cpu_part_begin(job->run, part, job->parts), end = cpu_part_begin(job->run, part + 1, job->parts);
    job->reduction->start(1, &job->segments[part]);
    walk_seek(&walk, &job->at, 0);
    for (int64_t i = 0; i < job->steps; i++) {
        job->reduction->row(end - begin, walk.at[0] + begin * job->run_stride * job->in_size, job->run_stride,
                            i * job->run + begin, &job->segments[part]);
        walk_advance(&walk, 1);
    }
}

/* Fewer blocks than threads: one after another, each by all threads. Segments merge in order, so that the first of equals
 * stays the first. */
static void job_run_segments(struct job *job, struct team *team) {
    struct cpu_accumulators segments[SEGMENTS_MAX];
    struct walk kept = job->kept;
    char *out;
    job->segments = segments;
    walk_seek(&kept, &job->in, 0);
    for (int64_t block = 0; block < job->lines * job->columns;) {
        job->n = job_block(job, &kept, block, &job->at, &out);
        team_run(team, job->parts, job_segment, job);
        for (unsigned i = 1; i < job->parts; i++) {
            job->reduction->merge(job->n, &segments[0], &segments[i]);
        }
        job->reduction->finish(job->n, &segments[0], job->count, out);
        if (++block % job->columns == 0) {
            walk_advance(&kept, 1);
        }
    }
}

static int64_t magnitude(int64_t stride) {
    return stride < 0 ? -stride : stride;
}

static bool job_goes_down(const struct operand *x, int k) {
    if (k == 0 || x->shape[k - 1] < 4) {
        return false;
    }
    if (k == x->rank) {
        return true;
    }
    int64_t kept = magnitude(x->strides[k - 1]), reduced = magnitude(x->strides[x->rank - 1]);
    return kept < reduced || (x->shape[x->rank - 1] <= SHORT_RUN && x->shape[k - 1] >= 4 * SHORT_RUN);
}

/* Sets up a walk over axes first … end - 1 of the input; returns the number of its positions. */
static int64_t job_walk(struct walk *walk, const struct operand *x, int first, int end, int64_t size) {
    int64_t positions = 1;
    walk->arrays = 1;
    walk->rank = end - first;
    walk_array(walk, 0, x->strides, first, size);
    for (int i = first; i < end; i++) {
        walk->shape[i - first] = x->shape[i];
        positions *= x->shape[i];
    }
    return positions;
}

/* An empty input has no memory. It is presented as one place that all steps, of which there are none, would read. */
static void job_init_empty(struct job *job, const struct launch *launch) {
    static char nowhere[8];
    const struct operand *out = &launch->output;
    *job = (struct job){.in = nowhere,
                        .out = out->data,
                        .out_size = (int64_t)dtype_size((enum dtype)out->dtype),
                        .width = 1,
                        .run = 1,
                        .lines = 1,
                        .columns = 1};
    for (int i = 0; i < out->rank; i++) {
        job->lines *= out->shape[i];
    }
    job->kept = (struct walk){.arrays = 1, .rank = 1, .shape = {job->lines}};
}

static void job_init(struct job *job, const struct launch *launch) {
    const struct operand *x = &launch->inputs[0];
    int k = (int)launch->ints[0];
    if (!x->data) {
        job_init_empty(job, launch);
        return;
    }
    *job = (struct job){.in = x->data,
                        .out = launch->output.data,
                        .in_size = (int64_t)dtype_size((enum dtype)x->dtype),
                        .out_size = (int64_t)dtype_size((enum dtype)launch->output.dtype),
                        .down = job_goes_down(x, k),
                        .width = 1,
                        .run = 1};
    bool along = !job->down && k < x->rank;
    if (job->down) {
        job->width = x->shape[k - 1];
        job->width_stride = x->strides[k - 1];
    }
    if (along) {
        job->run = x->shape[x->rank - 1];
        job->run_stride = x->strides[x->rank - 1];
    }
    job->lines = job_walk(&job->kept, x, 0, job->down ? k - 1 : k, job->in_size);
    job->steps = job_walk(&job->reduced, x, k, along ? x->rank - 1 : x->rank, job->in_size);
    job->count = job->steps * job->run;
    job->columns = (job->width + CPU_REDUCE_WIDTH - 1) / CPU_REDUCE_WIDTH;
}

int cpu_reduce(struct cpu *cpu, const struct launch *launch, struct fault *fault) {
    struct job job;
    (void)fault;
    job_init(&job, launch);
    job.reduction = cpu->kernels->reductions[launch->opcode][launch->inputs[0].dtype];
    int64_t blocks = job.lines * job.columns;
    job.parts = cpu_parts(cpu, job.lines * job.width * job.count * (job.in_size < 4 ? 4 : job.in_size));
    if (blocks >= 2 * job.parts || blocks >= cpu->team.threads || job.parts == 1) {
        job.parts = blocks < job.parts ? (unsigned)blocks : job.parts;
        team_run(&cpu->team, job.parts, job_part, &job);
        return STATUS_OK;
    }
    job.parts = job.parts < SEGMENTS_MAX ? job.parts : SEGMENTS_MAX;
    job_run_segments(&job, &cpu->team);
    return STATUS_OK;
}
