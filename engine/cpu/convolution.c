/* Convolutions as products of matrices (im2col): what the kernel sees at some places of the result is gathered into a block, one column for
 * each place and one row for each product of a sum, and BLAS multiplies the weight by it. The gradient by x gathers from the
 * gradient in the same way: which of y's places see a place of x. The gradient by the weight multiplies y's gradient by the transpose of
 * blocks.
 *
 * In f32, where there is oneDNN, it computes some images at a time instead. The gradient by the weight is then a sum of slices of the images.
 *
 * Blocks, images and slices depend on shapes alone, so the sums come out the same with any number of threads. */
#include "engine/cpu/cpu.h"
#include "engine/cpu/move.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/dnnl.h"
#include "proto/ops/convolution.h"

enum {
    BLOCK = 1 << 18,      /* elements of a block: some 1 MiB */
    BLOCK_PLACES = 64,    /* at least so many places in it, */
    PLACES_MULTIPLE = 16, /* and a multiple of these */
    ROWS_LEAST = 16,      /* of a block of the gradient by the weight */
    ROWS_MOST = 128,
    IMAGES_WORK = 1 << 23, /* multiplications of the images that oneDNN computes at a time */
    IMAGES_LEAST = 4,      /* of a batch: fewer would keep few threads busy */
    SLICES_MOST = 8,
    SLICES_ELEMENTS = 1 << 24, /* of all slices */
};

enum way {
    WAY_FORWARD, /* from x to y */
    WAY_BACK,    /* from y's gradient to x's */
    WAY_WEIGHT,  /* from x and y's gradient to the weight's */
};

struct job {
    struct cpu_job base;
    const struct blas *blas;
    enum way way;
    struct convolution c;
    int64_t size; /* of an element */
    bool is_f64;
    const char *source; /* what is gathered from: x, or y's gradient */
    const char *left;   /* the weight, or y's gradient */
    const char *bias;   /* NULL: there is none */
    char *result;
    int64_t source_channels, result_channels; /* of a group; of the weight: y's and x's */
    int64_t places, kernel, source_places;    /* volumes of what the places are of, the kernel, what is gathered from */
    int64_t depth;                            /* rows of all blocks: source channels times kernel */
    int64_t rows, row_blocks;                 /* of a block, and how many of these there are; WAY_WEIGHT */
    int64_t width, blocks;                    /* places in a block, blocks of one image */
    bool plain;                               /* a kernel of one place: the source itself is the block */
    int64_t units;
    unsigned threads;
    char *workspace;
    double work;
    /* By oneDNN: units are so many images each, and the last one may have fewer. In the workspace are the weight in oneDNN's order, the slices
     * of its gradient, and scratch memory for each thread. */
    const struct dnnl_convolution *some, *last; /* NULL: by blocks */
    int64_t images, slices;
    size_t weight_bytes, slice_bytes, scratch_bytes;
};

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t divided_up(int64_t n, int64_t by) {
    return n / by + (n % by != 0);
}

/* The extents of what the places are of, and of what is gathered from. */
static const int64_t *places_extents(const struct job *job) {
    return job->way == WAY_BACK ? job->c.x : job->c.y;
}
static const int64_t *source_extents(const struct job *job) {
    return job->way == WAY_BACK ? job->c.y : job->c.x;
}

/* ---- gathering ---- */

/* n elements with strides. */
static void copy_run(int64_t n, int64_t size, const char *from, int64_t from_stride, char *to, int64_t to_stride) {
    if (from_stride == 1 && to_stride == 1) {
        cpu_move(to, from, (size_t)(n * size));
    } else if (size == 4) {
        const uint32_t *x = (const void *)from;
        uint32_t *out = (void *)to;
        for (int64_t i = 0; i < n; i++) {
            out[i * to_stride] = x[i * from_stride];
        }
    } else {
        const uint64_t *x = (const void *)from;
        uint64_t *out = (void *)to;
        for (int64_t i = 0; i < n; i++) {
            out[i * to_stride] = x[i * from_stride];
        }
    }
}

/* Along the last axis: n places from `place` on, which see a row of the source through place `tap` of the kernel. */
static void gather_run(const struct job *job, const char *row, int64_t place, int64_t n, int64_t tap, char *out) {
    int64_t stride = job->c.stride[2], size = job->size, extent = source_extents(job)[2];
    int64_t shift = tap * job->c.dilation[2] - job->c.padding[2], first, count, from, step, by;
    if (job->way == WAY_BACK) { /* place = stride · seen + shift */
        int64_t at = place - shift, missing = at < 0 ? -at : (stride - at % stride) % stride;
        first = missing;
        from = (at + missing) / stride;
        count = first < n && from < extent ? least(divided_up(n - first, stride), extent - from) : 0;
        step = 1;
        by = stride;
    } else { /* seen = stride · place + shift */
        int64_t at = place * stride + shift;
        first = at < 0 ? divided_up(-at, stride) : 0;
        from = at + first * stride;
        count = first < n && from < extent ? least(n - first, divided_up(extent - from, stride)) : 0;
        step = stride;
        by = 1;
    }
    if (count < n) {
        memset(out, 0, (size_t)(n * size));
    }
    if (count > 0) {
        copy_run(count, size, row + from * size, step, out + first * size, by);
    }
}

/* The place of the source along an axis; false: it is in the padding, or between places. */
static bool gather_at(const struct job *job, int axis, int64_t place, int64_t tap, int64_t *seen) {
    int64_t stride = job->c.stride[axis], shift = tap * job->c.dilation[axis] - job->c.padding[axis];
    int64_t extent = source_extents(job)[axis];
    if (job->way == WAY_BACK) {
        int64_t at = place - shift;
        *seen = at / stride;
        return at >= 0 && at % stride == 0 && *seen < extent;
    }
    *seen = place * stride + shift;
    return *seen >= 0 && *seen < extent;
}

/* One row of a block: n places from `place` on, through place `tap` of the kernel, in one channel of the source. */
static void gather_row(const struct job *job, const char *channel, int64_t tap, int64_t place, int64_t n, char *out) {
    const int64_t *extent = places_extents(job), *seen = source_extents(job), *kernel = job->c.kernel;
    int64_t tx = tap % kernel[2], ty = tap / kernel[2] % kernel[1], tz = tap / kernel[2] / kernel[1];
    int64_t x = place % extent[2], y = place / extent[2] % extent[1], z = place / extent[2] / extent[1];
    while (n > 0) {
        int64_t run = least(n, extent[2] - x), sy, sz;
        if (gather_at(job, 1, y, ty, &sy) && gather_at(job, 0, z, tz, &sz)) {
            gather_run(job, channel + (sz * seen[1] + sy) * seen[2] * job->size, x, run, tx, out);
        } else {
            memset(out, 0, (size_t)(run * job->size));
        }
        n -= run;
        out += run * job->size;
        x = 0;
        if (++y == extent[1]) {
            y = 0;
            z++;
        }
    }
}

/* Rows of a block from `row` on; the row length is `width`. `source` is the group's first channel. */
static void gather(const struct job *job, const char *source, int64_t row, int64_t rows, int64_t place, int64_t n,
                   char *block) {
    for (int64_t i = 0; i < rows; i++) {
        int64_t channel = (row + i) / job->kernel, tap = (row + i) % job->kernel;
        gather_row(job, source + channel * job->source_places * job->size, tap, place, n, block + i * n * job->size);
    }
}

/* ---- products ---- */

/* c (m, n) = a (m, k) · b, which is (k, n), or (n, k) and transposed; or it is added to c. */
static void multiply(const struct job *job, int64_t m, int64_t n, int64_t k, const char *a, int64_t a_row,
                     const char *b, int64_t b_row, bool transposed, char *c, int64_t c_row, bool add) {
    CBLAS_TRANSPOSE way = transposed ? CblasTrans : CblasNoTrans;
    if (job->is_f64) {
        job->blas->dgemm(CblasRowMajor, CblasNoTrans, way, (int)m, (int)n, (int)k, 1, (const void *)a, (int)a_row,
                         (const void *)b, (int)b_row, add ? 1 : 0, (void *)c, (int)c_row);
    } else {
        job->blas->sgemm(CblasRowMajor, CblasNoTrans, way, (int)m, (int)n, (int)k, 1, (const void *)a, (int)a_row,
                         (const void *)b, (int)b_row, add ? 1 : 0, (void *)c, (int)c_row);
    }
}

static void fill_bias(const struct job *job, int64_t channel, char *result, int64_t n) {
    for (int64_t i = 0; i < job->result_channels; i++, result += job->places * job->size) {
        if (job->is_f64) {
            const double bias = ((const double *)(const void *)job->bias)[channel + i];
            double *out = (void *)result;
            for (int64_t k = 0; k < n; k++) {
                out[k] = bias;
            }
        } else {
            const float bias = ((const float *)(const void *)job->bias)[channel + i];
            float *out = (void *)result;
            for (int64_t k = 0; k < n; k++) {
                out[k] = bias;
            }
        }
    }
}

/* Some places of one group of an image. */
static void unit_places(const struct job *job, int64_t unit, char *block) {
    int64_t place = unit % job->blocks * job->width, image = unit / job->blocks, size = job->size;
    int64_t group = image % job->c.groups, n = least(job->width, job->places - place); /* image: of each group one */
    const char *source = job->source + image * job->source_channels * job->source_places * size;
    char *result = job->result + (image * job->result_channels * job->places + place) * size;
    const char *weight = job->left + group * job->result_channels * job->depth * size;
    int64_t row = n;
    if (job->bias) {
        fill_bias(job, group * job->result_channels, result, n);
    }
    if (job->plain) {
        block = (char *)(uintptr_t)source + place * size;
        row = job->places;
    } else {
        gather(job, source, 0, job->depth, place, n, block);
    }
    multiply(job, job->result_channels, n, job->depth, weight, job->depth, block, row, false, result, job->places,
             job->bias != NULL);
}

static bool places_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    char *block = job->workspace + (int64_t)lane->number * job->depth * job->width * job->size;
    int64_t begin = cpu_part_begin(job->units, lane->part, base->parts);
    int64_t end = cpu_part_begin(job->units, lane->part + 1, base->parts);
    for (int64_t unit = begin + lane->position; unit < end; unit++) {
        unit_places(job, unit, block);
        if (unit + 1 < end && cpu_job_stops(base)) {
            lane->position = unit + 1 - begin;
            return false;
        }
    }
    return true;
}

/* Rows of the depth, for one group of the weight's gradient: a sum over the places of all images. The sum so far is in the result. */
static bool unit_weight(struct job *job, int64_t unit, char *block, int64_t *position) {
    int64_t group = unit / job->row_blocks, row = unit % job->row_blocks * job->rows, size = job->size;
    int64_t rows = least(job->rows, job->depth - row), channels = job->c.y_channels / job->c.groups;
    char *result = job->result + (group * channels * job->depth + row) * size;
    int64_t steps = job->c.batch * job->blocks;
    for (; *position < steps; ++*position) {
        int64_t image = *position / job->blocks * job->c.groups + group;
        int64_t place = *position % job->blocks * job->width, n = least(job->width, job->places - place);
        const char *gradient = job->left + (image * channels * job->places + place) * size;
        const char *source = job->source + image * job->source_channels * job->source_places * size;
        if (*position > 0 && cpu_job_stops(&job->base)) {
            return false;
        }
        gather(job, source, row, rows, place, n, block);
        multiply(job, channels, rows, n, gradient, job->places, block, n, true, result, job->depth, *position > 0);
    }
    if (steps == 0) {
        for (int64_t i = 0; i < channels; i++) {
            memset(result + i * job->depth * size, 0, (size_t)(rows * size));
        }
    }
    *position = 0;
    return true;
}

static bool weight_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    char *block = job->workspace + (int64_t)lane->number * job->rows * job->width * job->size;
    int64_t begin = cpu_part_begin(job->units, lane->part, base->parts);
    int64_t end = cpu_part_begin(job->units, lane->part + 1, base->parts);
    int64_t steps = most(job->c.batch * job->blocks, 1);
    int64_t position = lane->position % steps;
    for (int64_t unit = begin + lane->position / steps; unit < end; unit++) {
        if (!unit_weight(job, unit, block, &position)) {
            lane->position = (unit - begin) * steps + position;
            return false;
        }
    }
    return true;
}

/* ---- by oneDNN ---- */

static char *images_scratch(const struct job *job, unsigned lane) {
    return job->workspace + job->weight_bytes + (size_t)job->slices * job->slice_bytes + lane * job->scratch_bytes;
}

/* Runs one unit. */
static void unit_images(struct job *job, int64_t unit, const void *weight, bool add, char *scratch) {
    int64_t image = unit * job->images, source = image * job->c.groups * job->source_channels * job->source_places;
    int64_t result = image * job->c.groups * job->result_channels * job->places;
    const struct dnnl_convolution *convolution =
        unit + 1 < divided_up(job->c.batch, job->images) ? job->some : job->last;
    char *from = (char *)(uintptr_t)job->source + source * job->size;
    char *other = (job->way == WAY_WEIGHT ? (char *)(uintptr_t)job->left : job->result) + result * job->size;
    bool back = job->way == WAY_BACK;
    if (!dnnl_convolution_run(convolution, back ? other : from, (void *)(uintptr_t)weight, job->bias,
                              back ? from : other, add, scratch)) {
        cpu_job_fail(&job->base);
    }
}

static bool images_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    const char *weight = job->weight_bytes ? job->workspace : job->left;
    int64_t begin = cpu_part_begin(job->units, lane->part, base->parts);
    int64_t end = cpu_part_begin(job->units, lane->part + 1, base->parts);
    for (int64_t unit = begin + lane->position; unit < end; unit++) {
        unit_images(job, unit, weight, false, images_scratch(job, lane->number));
        if (unit + 1 < end && cpu_job_stops(base)) {
            lane->position = unit + 1 - begin;
            return false;
        }
    }
    return true;
}

/* A slice of the images, whose sum so far is in the workspace. */
static bool slices_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    int64_t units = divided_up(job->c.batch, job->images), all = units + 1;
    int64_t begin = cpu_part_begin(job->units, lane->part, base->parts);
    int64_t end = cpu_part_begin(job->units, lane->part + 1, base->parts), position = lane->position % all;
    for (int64_t slice = begin + lane->position / all; slice < end; slice++) {
        int64_t first = cpu_part_begin(units, slice, (unsigned)job->slices);
        int64_t after = cpu_part_begin(units, slice + 1, (unsigned)job->slices);
        for (; first + position < after; position++) {
            if (position > 0 && cpu_job_stops(base)) {
                lane->position = (slice - begin) * all + position;
                return false;
            }
            unit_images(job, first + position, job->workspace + (size_t)slice * job->slice_bytes, position > 0,
                        images_scratch(job, lane->number));
        }
        position = 0;
    }
    return true;
}

static void slices_end(struct cpu_job *base) {
    struct job *job = (struct job *)base;
    int64_t elements = job->c.y_channels * job->depth;
    float *result = (void *)job->result;
    memcpy(result, job->workspace, (size_t)elements * sizeof *result);
    for (int64_t slice = 1; slice < job->slices; slice++) {
        const float *part = (const void *)(job->workspace + (size_t)slice * job->slice_bytes);
        for (int64_t i = 0; i < elements; i++) {
            result[i] += part[i];
        }
    }
}

/* ---- the job ---- */

static void job_operands(struct job *job, const struct launch *launch) {
    const struct operand *in = launch->inputs, *out = &launch->output;
    const struct operand *x = &in[0], *weight = &in[1], *y = out;
    job->way = WAY_FORWARD;
    job->result = out->data;
    job->source = in[0].data;
    job->left = in[1].data;
    job->bias = launch->n_inputs == 3 ? in[2].data : NULL;
    if (launch->opcode == OP_CONV_GRAD_WEIGHT) {
        job->way = WAY_WEIGHT;
        weight = out;
        y = &in[1];
    } else if (launch->opcode != OP_CONV) {
        job->way = WAY_BACK;
        x = out;
        y = &in[0];
    }
    convolution_make(&job->c, launch->opcode, &launch->attributes, x->rank, x->shape, weight->shape, y->shape, false);
    job->is_f64 = out->dtype == DTYPE_F64;
    job->size = job->is_f64 ? 8 : 4;
}

static void job_blocks(struct job *job) {
    const struct convolution *c = &job->c;
    bool back = job->way == WAY_BACK;
    job->places = convolution_volume(places_extents(job));
    job->source_places = convolution_volume(source_extents(job));
    job->kernel = convolution_volume(c->kernel);
    job->source_channels = (back ? c->y_channels : c->x_channels) / c->groups;
    job->result_channels = (back ? c->x_channels : c->y_channels) / c->groups;
    job->depth = job->source_channels * job->kernel;
    job->rows = job->depth;
    job->row_blocks = 1;
    if (job->way == WAY_WEIGHT) {
        job->rows = least(most(divided_up(job->depth, 8), ROWS_LEAST), ROWS_MOST);
        job->row_blocks = divided_up(job->depth, job->rows);
    }
    job->plain = job->way != WAY_WEIGHT && job->kernel == 1;
    for (int i = 0; i < CONVOLUTION_AXES; i++) {
        job->plain &= c->stride[i] == 1 && c->padding[i] == 0;
    }
    int64_t width = most(BLOCK / job->rows / PLACES_MULTIPLE * PLACES_MULTIPLE, BLOCK_PLACES);
    job->width = least(width, job->places);
    job->blocks = divided_up(job->places, job->width);
    job->units = job->way == WAY_WEIGHT ? c->groups * job->row_blocks : c->batch * c->groups * job->blocks;
}

/* As bytes of memory traffic: some 4 multiplications take as long as moving a byte. */
static void job_work(struct job *job) {
    double images = (double)job->c.batch * (double)job->c.groups, places = (double)job->places;
    double gathered = images * (double)job->depth * places;
    double channels = (double)(job->way == WAY_WEIGHT ? job->c.y_channels / job->c.groups : job->result_channels);
    job->work = gathered * (channels * (double)job->size / 16 + 2 * (double)job->size) + 1024 * (double)job->units;
    unsigned parts = cpu_parts(job->base.cpu, job->work), threads = job->base.cpu->team.threads;
    job->base.parts = job->units < parts ? (unsigned)job->units : parts;
    job->threads = job->base.parts < threads ? job->base.parts : threads;
    job->base.lanes_most = job->threads;
}

/* Whether oneDNN computes the launch: then units are images, or slices of them. */
static bool job_images(struct job *job, struct dnnl *dnnl) {
    static const enum dnnl_way ways[] = {
        [WAY_FORWARD] = DNNL_FORWARD, [WAY_BACK] = DNNL_BACK, [WAY_WEIGHT] = DNNL_WEIGHT};
    const struct convolution *c = &job->c;
    if (!dnnl || job->is_f64 || c->batch < IMAGES_LEAST || (job->bias && job->way != WAY_FORWARD)) {
        return false;
    }
    double work = (double)c->y_channels * (double)(c->x_channels / c->groups) * (double)job->kernel *
                  (double)convolution_volume(c->y);
    job->images = work < IMAGES_WORK ? least((int64_t)(IMAGES_WORK / work), c->batch) : 1;
    int64_t units = divided_up(c->batch, job->images);
    job->some = dnnl_convolution_find(dnnl, ways[job->way], c, job->images, job->bias != NULL);
    job->last = dnnl_convolution_find(dnnl, ways[job->way], c, c->batch - (units - 1) * job->images, job->bias != NULL);
    if (!job->some || !job->last) {
        return false;
    }
    size_t a = dnnl_convolution_scratch_bytes(job->some), b = dnnl_convolution_scratch_bytes(job->last);
    job->scratch_bytes = a > b ? a : b;
    job->weight_bytes = dnnl_convolution_weight_bytes(job->some);
    job->units = units;
    if (job->way == WAY_WEIGHT) {
        int64_t elements = c->y_channels * job->depth;
        job->slices = least(least(units, SLICES_MOST), most(SLICES_ELEMENTS / elements, 1));
        job->slice_bytes = ((size_t)elements * sizeof(float) + 63) & ~(size_t)63;
        job->units = job->slices;
    }
    return dnnl_convolution_weight_bytes(job->last) == job->weight_bytes;
}

static void images_done(struct cpu_job *base) {
    struct job *job = (struct job *)base;
    dnnl_convolution_release(job->some);
    dnnl_convolution_release(job->last);
    job->some = job->last = NULL;
}

static void job_init(struct job *job, struct cpu *cpu, const struct launch *launch) {
    *job = (struct job){.base.cpu = cpu, .blas = &cpu->blas};
    job_operands(job, launch);
    job_blocks(job);
    job->base.run = job->way == WAY_WEIGHT ? weight_part : places_part;
    int64_t units = job->units;
    if (job_images(job, cpu->dnnl)) {
        job->base.run = job->way == WAY_WEIGHT ? slices_part : images_part;
        job->base.end = job->way == WAY_WEIGHT ? slices_end : NULL;
        job->base.done = images_done;
    } else {
        images_done(&job->base);
        job->units = units;
    }
    job_work(job);
}

static int64_t job_block_bytes(const struct job *job) {
    return job->plain ? 0 : job->rows * job->width * job->size;
}

static uint64_t convolution_workspace(struct device *device, const struct launch *launch) {
    struct job job;
    job_init(&job, (struct cpu *)device, launch);
    /* When the launch runs, oneDNN may have no memory any more. */
    uint64_t blocks = (uint64_t)job_block_bytes(&job) * job.threads, images = 0;
    if (job.some) {
        blocks = (uint64_t)job_block_bytes(&job) * job.base.cpu->team.threads;
        images = job.weight_bytes + (uint64_t)job.slices * job.slice_bytes + (uint64_t)job.scratch_bytes * job.threads;
    }
    images_done(&job.base);
    return images > blocks ? images : blocks;
}

static int convolution_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    struct job job;
    job_init(&job, cpu, launch);
    job.workspace = launch->workspace;
    if (job.some && job.weight_bytes &&
        !dnnl_convolution_prepare(job.some, job.left, job.workspace, images_scratch(&job, 0))) {
        images_done(&job.base);
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "oneDNN has no memory");
    }
    if (cpu_job_keep(&job.base, sizeof job, job.work, begun)) {
        if (*begun == &cpu->waiting) {
            images_done(&job.base);
        }
        return STATUS_OK;
    }
    /* Each part has the block of one thread. */
    job.base.parts = job.threads;
    cpu_job_run(&job.base);
    return STATUS_OK;
}

static int convolution_needs(struct device *device, enum dtype dtype, struct fault *fault) {
    struct cpu *cpu = (struct cpu *)device;
    (void)dtype;
    cpu_seeks_dnnl(cpu);
    return cpu_needs_blas(cpu, fault);
}

#define CONVOLUTION                                                                                                    \
    { {.needs = convolution_needs, .workspace = convolution_workspace}, convolution_run }
const struct cpu_kernel cpu_kernel_conv = CONVOLUTION;
const struct cpu_kernel cpu_kernel_conv_transpose = CONVOLUTION;
const struct cpu_kernel cpu_kernel_conv_grad_input = CONVOLUTION;
const struct cpu_kernel cpu_kernel_conv_grad_weight = CONVOLUTION;
