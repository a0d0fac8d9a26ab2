/* cross: products of vectors of three elements, row by row. Dtypes without a loop of their own go through buffers, element by element of the vectors,
 * by the rows of multiply and subtract; halves do so in f32. */
#include "engine/cpu/cpu.h"
#include "engine/cpu/walk.h"

enum {
    PIECE = 1 << 13, /* vectors between two looks whether to stop */
    BLOCK = 128,     /* of those that go through buffers */
};
enum { OUT, A, B, ARRAYS };

struct job {
    struct cpu_job base;
    cpu_cross_function *cross; /* NULL: through buffers */
    cpu_row_function *load, *multiply, *subtract, *store;
    struct walk walk; /* of the arrays, without the last axis */
    char *origin[ARRAYS];
    int64_t vectors, size;                /* bytes of an element */
    int64_t step[ARRAYS], across[ARRAYS]; /* elements */
};

/* A buffer for one element of each vector of a block. */
typedef struct {
    _Alignas(64) char bytes[BLOCK * 16];
} buffer;

static void row2(cpu_row_function *row, int64_t n, buffer *out, buffer *a, buffer *b) {
    row(&(struct cpu_row){n, {out->bytes, a->bytes, b->bytes}, {1, 1, 1}});
}

/* BLOCK vectors at most. */
static void block_run(const struct job *job, int64_t n, char *const at[ARRAYS]) {
    buffer a[3], b[3], left, right;
    for (int i = 0; i < 3; i++) {
        char *x = at[A] + i * job->across[A] * job->size, *y = at[B] + i * job->across[B] * job->size;
        job->load(&(struct cpu_row){n, {a[i].bytes, x}, {1, job->step[A]}});
        job->load(&(struct cpu_row){n, {b[i].bytes, y}, {1, job->step[B]}});
    }
    for (int i = 0; i < 3; i++) {
        int next = (i + 1) % 3, last = (i + 2) % 3;
        row2(job->multiply, n, &left, &a[next], &b[last]);
        row2(job->multiply, n, &right, &a[last], &b[next]);
        row2(job->subtract, n, &left, &left, &right);
        char *out = at[OUT] + i * job->across[OUT] * job->size;
        job->store(&(struct cpu_row){n, {out, left.bytes}, {job->step[OUT], 1}});
    }
}

/* Vectors that follow one another along one axis. */
static void vectors_run(const struct job *job, int64_t n, char *const at[ARRAYS]) {
    if (job->cross) {
        job->cross(n, at[OUT], at[A], at[B], job->step, job->across);
        return;
    }
    for (int64_t i = 0; i < n; i += BLOCK) {
        char *here[ARRAYS];
        for (int k = 0; k < ARRAYS; k++) {
            here[k] = at[k] + i * job->step[k] * job->size;
        }
        block_run(job, n - i < BLOCK ? n - i : BLOCK, here);
    }
}

static bool cross_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    struct walk walk = job->walk;
    const int last = walk.rank - 1;
    int64_t begin = cpu_part_begin(job->vectors, lane->part, base->parts);
    int64_t end = cpu_part_begin(job->vectors, lane->part + 1, base->parts), since = 0;
    begin += lane->position;
    walk_seek(&walk, job->origin, begin);
    while (begin < end) {
        int64_t n = walk.shape[last] - walk.index[last];
        n = n < end - begin ? n : end - begin;
        n = n < PIECE ? n : PIECE;
        vectors_run(job, n, walk.at);
        walk_advance(&walk, n);
        begin += n;
        since += n;
        lane->position += n;
        if (since >= PIECE && begin < end) {
            since = 0;
            if (cpu_job_stops(base)) {
                return false;
            }
        }
    }
    return true;
}

static cpu_cross_function *cross_find(const struct cpu *cpu, enum dtype dtype) {
    switch (dtype) {
    case DTYPE_F32:
        return cpu->kernels->cross[CPU_CROSS_F32];
    case DTYPE_F64:
        return cpu->kernels->cross[CPU_CROSS_F64];
    case DTYPE_I32:
    case DTYPE_U32:
        return cpu->kernels->cross[CPU_CROSS_32];
    case DTYPE_I64:
    case DTYPE_U64:
        return cpu->kernels->cross[CPU_CROSS_64];
    default:
        return NULL;
    }
}

static int cross_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    const struct operand *operands[ARRAYS] = {&launch->output, &launch->inputs[0], &launch->inputs[1]};
    const enum dtype dtype = (enum dtype)launch->output.dtype;
    const enum dtype computed = dtype == DTYPE_F16 || dtype == DTYPE_BF16 ? DTYPE_F32 : dtype;
    const int last = launch->output.rank - 1;
    struct job job = {.base = {.cpu = cpu, .run = cross_part},
                      .cross = cross_find(cpu, dtype),
                      .walk = {.rank = last, .arrays = ARRAYS},
                      .vectors = 1,
                      .size = (int64_t)dtype_size(dtype)};
    (void)fault;
    if (!job.cross) {
        job.multiply = cpu_row_find(cpu->kernels, OP_MULTIPLY, computed);
        job.subtract = cpu_row_find(cpu->kernels, OP_SUBTRACT, computed);
        job.load = computed == dtype ? cpu_row_find(cpu->kernels, OP_COPY, dtype) : cpu->kernels->cast[dtype][computed];
        job.store = computed == dtype ? job.load : cpu->kernels->cast[computed][dtype];
    }
    for (int i = 0; i < last; i++) {
        job.walk.shape[i] = launch->output.shape[i];
        job.vectors *= launch->output.shape[i];
    }
    for (int k = 0; k < ARRAYS; k++) {
        walk_array(&job.walk, k, operands[k]->strides, 0, job.size);
        job.origin[k] = operands[k]->data;
        job.step[k] = operands[k]->strides[last - 1];
        job.across[k] = operands[k]->strides[last];
    }
    double work = (double)job.vectors * (double)(9 * job.size) * (job.cross ? 1 : 2);
    job.base.parts = cpu_parts(cpu, work);
    cpu_job_begin(&job.base, sizeof job, work, begun);
    return STATUS_OK;
}

const struct cpu_kernel cpu_kernel_cross = {.driver = cross_run};
