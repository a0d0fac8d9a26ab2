/* How a product is cut: into rectangles, those into steps of their depth and strips of rows; and what it is computed in. All but the number of
 * threads follows from shapes and dtypes alone, so that results are the same at any number of them. */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "engine/cpu/matmul.h"

enum {
    BF16_SIDE = 8, /* fewer rows or columns are not worth oneDNN's packing */
    BF16_KEPT =
        4
        << 20, /* bytes of b that a thread keeps for its next rectangle: what the second-level cache has no room for is copied as fast */
    DIRECT_SIDE = 2048, /* most rows and columns of a rectangle that goes to BLAS as it is */
    /* So many such rectangles are enough, for threads also share their strips. Of four, each operand is packed twice: at 1024 and 2000 that
     * takes 10 % longer. */
    DIRECT_GRID = 2,
    SMALL_GRID = 4,  /* but of small products so many, */
    PACKED_GRID = 8, /* so many others are enough, which have no strips */
    /* The least depth of its pieces: on most processors OpenBLAS packs blocks that are about so deep. */
    DIRECT_DEPTH = 320,
    DIRECT_DEPTH_F64 = 256,
    /* A strip's rows are a multiple of this, and of what BLAS takes at a time: so sums come out the same however many strips it is given. */
    STRIP_ROWS = 48,
    /* Multiplications of a step of a strip, at least: of less, OpenBLAS computes in other ways, which differ in their sums. */
    STRIP_WORK = 1 << 23,
    INTEGER_DEPTH = 64,    /* of a piece in the device's own kernels */
    VECTOR_SIDE = 1 << 14, /* most columns or rows of a rectangle with one row or column */
    RECTANGLE_WORK = 1024, /* what a rectangle costs besides its arithmetic, as bytes of memory traffic */
};
/* Multiplications of a rectangle that is worth a place in the grid; of a step of one without strips, about 1 ms; and of what is computed of a
 * large one between two looks whether to stop, while others have the device by turns: about 3 ms, of f64 half as many. A step of a strip has
 * half of these at most. */
static const double grid_work = 1 << 19;
static const double small_work = 4e6; /* since OpenBLAS multiplies without packing up to 10⁶ */
static const int64_t step_work = INT64_C(1) << 25, turn_work = INT64_C(5) << 25;
/* For about so long BLAS computes between two looks where nobody else has the device. A product of 2048 takes 2 % longer with pieces of 12 ms,
 * and as long as in one call with pieces of 25 to 30. */
static const double piece_ns = 30e6;

static double grid_rectangles(const struct matmul_job *job) {
    return (double)job->batches * (double)job->grid_rows * (double)job->grid_columns;
}

/* As few rectangles as have at most so many rows and columns; then more, until there are `enough`, but not so many that they are less than
 * side_least wide and high or are not worth it. As square as possible, since each operand is packed once for each row or column of the grid. */
static void job_grid(struct matmul_job *job, int64_t height_most, int64_t width_most, int64_t side_least,
                     double enough) {
    job->grid_rows = divided_up(job->m, height_most);
    job->grid_columns = divided_up(job->n, width_most);
    while (grid_rectangles(job) < enough) {
        int64_t height = job->m / job->grid_rows, width = job->n / job->grid_columns;
        if ((height < 2 * side_least && width < 2 * side_least) ||
            (double)height * (double)width * (double)job->k < 2 * grid_work) {
            return;
        }
        *(height >= width ? &job->grid_rows : &job->grid_columns) *= 2;
    }
}

/* Whether so many runs leave some threads idle for more than a tenth of the time. */
static bool runs_uneven(double runs, unsigned threads) {
    return runs < 0.9 * threads * ceil(runs / threads);
}

/* As few runs of strips as give each thread its share. */
static void job_runs(struct matmul_job *job) {
    double rectangles = grid_rectangles(job);
    while (job->runs < job->strips && runs_uneven(rectangles * (double)job->runs, job->threads)) {
        job->runs++;
    }
}

/* `bf16`: bf16 is multiplied as it is. */
static void job_type(struct matmul_job *job, bool bf16) {
    static const struct {
        enum dtype packed;
        size_t product; /* offset in struct cpu_kernels; 0: BLAS */
    } types[DTYPE_COUNT] = {
        [DTYPE_BOOL] = {DTYPE_I32, offsetof(struct cpu_kernels, product_bool)},
        [DTYPE_U8] = {DTYPE_I32, offsetof(struct cpu_kernels, product_u32)},
        [DTYPE_I8] = {DTYPE_I32, offsetof(struct cpu_kernels, product_u32)},
        [DTYPE_I16] = {DTYPE_I32, offsetof(struct cpu_kernels, product_u32)},
        [DTYPE_I32] = {DTYPE_I32, offsetof(struct cpu_kernels, product_u32)},
        [DTYPE_I64] = {DTYPE_I64, offsetof(struct cpu_kernels, product_u64)},
        [DTYPE_U16] = {DTYPE_I32, offsetof(struct cpu_kernels, product_u32)},
        [DTYPE_U32] = {DTYPE_I32, offsetof(struct cpu_kernels, product_u32)},
        [DTYPE_U64] = {DTYPE_I64, offsetof(struct cpu_kernels, product_u64)},
        [DTYPE_F16] = {DTYPE_F32, 0},
        [DTYPE_BF16] = {DTYPE_F32, 0},
        [DTYPE_F32] = {DTYPE_F32, 0},
        [DTYPE_F64] = {DTYPE_F64, 0},
        [DTYPE_C64] = {DTYPE_C64, 0},
        [DTYPE_C128] = {DTYPE_C128, 0},
    };
    size_t offset = types[job->dtype].product;
    job->packed = types[job->dtype].packed;
    job->summed = job->packed;
    if (job->dtype == DTYPE_BF16 && job->a->dtype == DTYPE_BF16 && job->b->dtype == DTYPE_BF16 &&
        least(job->m, least(job->n, job->k)) >= BF16_SIDE && bf16) {
        job->packed = DTYPE_BF16;
    }
    job->packed_size = (int64_t)dtype_size(job->packed);
    job->summed_size = (int64_t)dtype_size(job->summed);
    if (offset) {
        memcpy(&job->product, (const char *)job->base.cpu->kernels + offset, sizeof job->product);
    }
}

static void job_linear(struct matmul_job *job, const struct launch *launch) {
    bool integers = dtype_kind(job->dtype) == DTYPE_KIND_INT;
    job->bias = launch->n_inputs == 3 ? &launch->inputs[2] : NULL;
    job->finished = integers ? job->dtype : job->summed;
    struct linear_attributes attributes;
    linear_attributes_read(&launch->attributes, &attributes);
    if (job->bias || attributes.activation != OP_ACTIVATION_NONE) {
        job->finish = job->base.cpu->kernels->linear[attributes.activation][job->finished];
    }
}

void matmul_init(struct matmul_job *job, struct cpu *cpu, const struct launch *launch) {
    const struct operand *a = &launch->inputs[0], *b = &launch->inputs[1], *c = &launch->output;
    *job = (struct matmul_job){.base.cpu = cpu, .a = a, .b = b, .c = c, .dtype = (enum dtype)c->dtype, .batches = 1};
    job->size = (int64_t)dtype_size(job->dtype);
    job->m = a->shape[a->rank - 2];
    job->k = a->shape[a->rank - 1];
    job->n = b->shape[b->rank - 1];
    for (int i = 0; i < c->rank - 2; i++) {
        job->batches *= c->shape[i];
    }
    job_type(job, false);
    if (launch->opcode == OP_LINEAR) {
        job_linear(job, launch);
    }
}

static bool job_is_direct(const struct matmul_job *job) {
    struct matrix a = matmul_batch(job->a, 0), b = matmul_batch(job->b, 0);
    return job->packed != DTYPE_BF16 && job->packed == (enum dtype)job->a->dtype &&
           job->packed == (enum dtype)job->b->dtype && !job->product && matrix_is_plain(&a) && matrix_is_plain(&b) &&
           job->n <= INT_MAX;
}

static int64_t rounded(int64_t bytes) {
    return (bytes + 63) & ~INT64_C(63);
}

/* Sizes of the blocks of rectangles that have so many rows and columns, or one less: these may have deeper blocks. */
static void job_blocks(struct matmul_job *job, int64_t height, int64_t width) {
    int64_t depth = least(job->k, matmul_block_depth(job, height > 1 ? height - 1 : 1, width > 1 ? width - 1 : 1));
    int64_t a = least((int64_t)BLOCK_ROWS * BLOCK_DEPTH, height * depth);
    int64_t b = least((int64_t)BLOCK_DEPTH * BLOCK_COLUMNS, depth * width);
    if (job->packed == DTYPE_BF16) {
        depth = matmul_block_depth(job, height, width);
        a = height * depth;
        b = depth * width;
    }
    int64_t b_bytes = rounded(b * job->packed_size);
    if (job->bf16) {
        job->bf16_order = dnnl_product_order(job->bf16);
        int64_t one = (int64_t)job->bf16_order.bytes, all = divided_up(job->k, depth);
        job->bf16_keeps = all <= BF16_KEPT / one;
        b_bytes = job->bf16_keeps ? all * one : one;
    }
    job->b_block = rounded(a * job->packed_size);
    job->c_block = job->b_block + b_bytes;
    job->blocks = job->c_block + rounded(height * width * job->summed_size);
}

/* How many times as long as a product of f32 one takes. */
static int64_t dtype_slow(enum dtype dtype) {
    return dtype == DTYPE_F64 ? 2 : dtype == DTYPE_C64 ? 4 : dtype == DTYPE_C128 ? 8 : 1;
}

/* So many strips at once as take `work`, of a rectangle's in equal pieces. */
static int64_t strips_of(const struct matmul_job *job, int64_t width, double work) {
    double strips = work / ((double)job->strip * (double)width * (double)job->depth);
    return strips < 2 ? 1 : divided_up(job->strips, divided_up(job->strips, (int64_t)strips));
}

static void job_strips(struct matmul_job *job, int64_t width) {
    int64_t height = job->m / job->grid_rows, last = job->k - (job->steps - 1) * job->depth;
    int64_t work = width * (job->steps > 1 ? least(job->depth, last) : last);
    job->strip = divided_up(divided_up(STRIP_WORK, work), STRIP_ROWS) * STRIP_ROWS;
    job->strips = height < job->strip ? 1 : height / job->strip;
    job->together = strips_of(job, width, job->base.cpu->rates.flop[job->dtype] / 2 * piece_ns);
    job->apart = strips_of(job, width, (double)turn_work / (double)dtype_slow(job->dtype));
}

/* Rectangles, and pieces of them. */
static void job_divide(struct matmul_job *job) {
    bool vector = job->m == 1 || job->n == 1;
    int64_t side = vector ? VECTOR_SIDE : DIRECT_SIDE;
    if (job->direct) {
        bool small = (double)job->m * (double)job->n * (double)job->k <= small_work;
        job_grid(job, side, side, 16, vector ? PACKED_GRID : small ? SMALL_GRID : DIRECT_GRID);
    } else {
        job_grid(job, BLOCK_ROWS, BLOCK_COLUMNS, 128, PACKED_GRID);
    }
    int64_t height = divided_up(job->m, job->grid_rows), width = divided_up(job->n, job->grid_columns);
    int64_t direct_depth = job->size >= 8 ? DIRECT_DEPTH_F64 : DIRECT_DEPTH;
    int64_t least_depth = job->direct    ? direct_depth
                          : job->product ? INTEGER_DEPTH
                                         : matmul_block_depth(job, height, width);
    int64_t step = job->direct && !vector
                       ? turn_work / 2 / dtype_slow(job->dtype) / (STRIP_ROWS * width)
                       : step_work / (height * width * (job->product ? 8 : 1) + (height + width) * 16);
    job->depth = step > least_depth ? step / least_depth * least_depth : least_depth; /* whole blocks */
    job->steps = job->k / job->depth + (job->k % job->depth > job->depth / 2); /* a small rest goes with the last one */
    job->steps = job->steps > 0 ? job->steps : 1;
    job->strips = job->runs = job->together = job->apart = 1;
    job->strip = height;
    if (job->direct && !vector) {
        job_strips(job, width);
    }
    if (!job->direct) {
        job_blocks(job, height, width);
    }
}

/* The cost, as bytes of memory traffic: some 4 multiplications take as long as moving a byte, and each operand is read. In double, since
 * it may be more than 2^63. */
static double job_work(const struct matmul_job *job) {
    double m = (double)job->m, n = (double)job->n, k = (double)job->k;
    double packing = job->direct ? 1 : 12; /* by the element */
    double read = (m * k + k * n) * packing + m * n * packing;
    return (double)job->batches * (m * n * k * (job->product ? 1 : 0.25) + read + RECTANGLE_WORK);
}

void matmul_find_bf16(struct matmul_job *job) {
    job_type(job, true);
    if (job->packed != DTYPE_BF16) {
        return;
    }
    job_divide(job);
    job->bf16_rows = divided_up(job->m, job->grid_rows);
    job->bf16_columns = divided_up(job->n, job->grid_columns);
    job->bf16 =
        dnnl_product_find(job->base.cpu->dnnl, job->bf16_rows, job->bf16_columns, matmul_block_depth(job, 1, 1));
    if (!job->bf16) {
        job_type(job, false);
    }
}

void matmul_plan(struct matmul_job *job) {
    job->direct = job_is_direct(job);
    job->work = job_work(job);
    unsigned parts = cpu_parts(job->base.cpu, job->work), most = job->base.cpu->team.threads;
    job->threads = parts < most ? parts : most;
    job_divide(job);
    job_runs(job);
    if (job->bf16) {
        job->scratch = job->blocks;
        job->blocks += (int64_t)dnnl_product_scratch_bytes(job->bf16);
    }
    double runs = grid_rectangles(job) * (double)job->runs;
    job->base.parts = runs < parts ? (unsigned)runs : parts;
    job->threads = job->threads < job->base.parts ? job->threads : job->base.parts;
    if (job->bf16) { /* the fewer parts, the more of their rectangles find b packed */
        job->base.parts = job->threads;
    }
    job->base.lanes_most = job->direct ? 0 : job->threads;
}

struct matrix matmul_batch(const struct operand *operand, int64_t batch) {
    int last = operand->rank - 1;
    int64_t offset = 0;
    for (int i = last - 2; i > 0; i--) {
        offset += batch % operand->shape[i] * operand->strides[i];
        batch /= operand->shape[i];
    }
    if (last > 1) { /* a number of the first axis is below its extent */
        offset += batch * operand->strides[0];
    }
    return (struct matrix){(char *)operand->data + offset * operand_size(operand), operand->shape[last - 1],
                           operand->shape[last], operand->strides[last - 1], operand->strides[last]};
}
