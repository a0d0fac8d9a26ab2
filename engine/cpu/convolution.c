/* Convolutions as products of matrices (im2col): what the kernel sees at some places of the result is gathered into a block, one column for
 * each place and one row for each product of a sum, and BLAS multiplies the weight by it. The gradient by x gathers from the
 * gradient in the same way: which of y's places see a place of x. The gradient by the weight multiplies y's gradient by the transpose of
 * blocks.
 *
 * In f32 and of halves, where there is oneDNN, it computes some images at a time instead (convolution_images.c), or pieces of them (convolution_cut.c).
 *
 * Blocks, images, slices and pieces depend on shapes alone, so the sums come out the same with any number of threads. */
#include "engine/cpu/convolution.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/move.h"

enum {
    BLOCK = 1 << 18,      /* elements of a block: some 1 MiB */
    BLOCK_PLACES = 64,    /* at least so many places in it, */
    PLACES_MULTIPLE = 16, /* and a multiple of these */
    BLOCK_ROWS = 1 << 16, /* at most; of a deeper sum there are several blocks */
    ROWS_LEAST = 16,      /* of a block of the gradient by the weight */
    ROWS_MOST = 128,
    CHANNELS_MULTIPLE = 48, /* of a strip: what BLAS takes at a time */
};

/* ---- gathering ---- */

/* n elements with strides; halves become f32. */
static void copy_run(const struct convolution_job *job, int64_t n, const char *from, int64_t from_stride, char *to,
                     int64_t to_stride) {
    int64_t size = job->size;
    if (job->widen) {
        job->widen(&(struct cpu_row){n, {to, (char *)(uintptr_t)from}, {to_stride, from_stride}});
    } else if (from_stride == 1 && to_stride == 1) {
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
static void gather_run(const struct convolution_job *job, const char *row, int64_t place, int64_t n, int64_t tap,
                       char *out) {
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
        copy_run(job, count, row + from * job->own_size, step, out + first * size, by);
    }
}

/* The place of the source along an axis; false: it is in the padding, or between places. */
static bool gather_at(const struct convolution_job *job, int axis, int64_t place, int64_t tap, int64_t *seen) {
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
static void gather_row(const struct convolution_job *job, const char *channel, int64_t tap, int64_t place, int64_t n,
                       char *out) {
    const int64_t *extent = places_extents(job), *seen = source_extents(job), *kernel = job->c.kernel;
    int64_t tx = tap % kernel[2], ty = tap / kernel[2] % kernel[1], tz = tap / kernel[2] / kernel[1];
    int64_t x = place % extent[2], y = place / extent[2] % extent[1], z = place / extent[2] / extent[1];
    while (n > 0) {
        int64_t run = least(n, extent[2] - x), sy, sz;
        if (gather_at(job, 1, y, ty, &sy) && gather_at(job, 0, z, tz, &sz)) {
            gather_run(job, channel + (sz * seen[1] + sy) * seen[2] * job->own_size, x, run, tx, out);
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
static void gather(const struct convolution_job *job, const char *source, int64_t row, int64_t rows, int64_t place,
                   int64_t n, char *block) {
    for (int64_t i = 0; i < rows; i++) {
        int64_t channel = (row + i) / job->kernel, tap = (row + i) % job->kernel;
        gather_row(job, source + channel * job->source_places * job->own_size, tap, place, n,
                   block + i * n * job->size);
    }
}

/* ---- products ---- */

/* c (m, n) = a (m, k) · b, which is (k, n), or (n, k) and transposed; or it is added to c. */
static void multiply(const struct convolution_job *job, int64_t m, int64_t n, int64_t k, const char *a, int64_t a_row,
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

static void fill_bias(const struct convolution_job *job, int64_t channel, char *result, int64_t stride, int64_t n) {
    for (int64_t i = 0; i < job->result_channels; i++, result += stride * job->size) {
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

static int64_t job_block_bytes(const struct convolution_job *job) {
    return job->plain ? 0 : job->rows * job->width * job->size;
}

/* A thread's workspace: a block, and behind it, of halves, the results at its places, or y's gradient there. */
static int64_t job_lane_bytes(const struct convolution_job *job) {
    int64_t channels = !job->widen ? 0 : job->way == WAY_WEIGHT ? job->strip : job->result_channels;
    return job_block_bytes(job) + channels * job->width * job->size;
}

static char *lane_block(const struct convolution_job *job, const struct cpu_lane *lane) {
    return job->workspace + (int64_t)lane->number * job_lane_bytes(job);
}

/* Places of some channels, which are `places` apart in `own` and `n` apart in `block`: from one to the other. */
static void convert_places(const struct convolution_job *job, int64_t channels, int64_t n, char *own, char *block) {
    bool widens = job->way == WAY_WEIGHT;
    for (int64_t i = 0; i < channels; i++, own += job->places * job->own_size, block += n * job->size) {
        convolution_convert(widens ? job->widen : job->narrow, n, widens ? own : block, widens ? block : own);
    }
}

/* One step of a unit, which is some places of one group of an image: a block, and for a strip of the result's channels its product. The block stays
 * in the thread's workspace for the strips that follow, as do the sums of halves. */
static void unit_places(const struct convolution_job *job, int64_t unit, int64_t step, char *block) {
    int64_t place = unit % job->blocks * job->width, image = unit / job->blocks, size = job->size;
    int64_t group = image % job->c.groups, n = least(job->width, job->places - place); /* image: of each group one */
    int64_t row = step / job->strips * job->rows, rows = least(job->rows, job->depth - row);
    int64_t channel = step % job->strips * job->strip, channels = least(job->strip, job->result_channels - channel);
    const char *source = job->source + image * job->source_channels * job->source_places * job->own_size;
    char *own = job->result + (image * job->result_channels * job->places + place) * job->own_size;
    char *result = job->widen ? block + job_block_bytes(job) : own;
    const char *weight = job->left + (group * job->result_channels * job->depth + channel * job->depth + row) * size;
    int64_t stride = n, result_stride = job->widen ? n : job->places;
    if (job->bias && step == 0) {
        fill_bias(job, group * job->result_channels, result, result_stride, n);
    }
    if (job->plain) {
        block = (char *)(uintptr_t)source + (row * job->places + place) * size;
        stride = job->places;
    } else if (channel == 0) {
        gather(job, source, row, rows, place, n, block);
    }
    result += channel * result_stride * size;
    multiply(job, channels, n, rows, weight, job->depth, block, stride, false, result, result_stride,
             job->bias || row > 0);
    if (job->narrow && row + rows == job->depth) {
        convert_places(job, channels, n, own + channel * job->places * job->own_size, result);
    }
}

static bool places_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct convolution_job *job = (struct convolution_job *)base;
    char *block = lane_block(job, lane);
    int64_t steps = job->row_blocks * job->strips;
    int64_t begin = cpu_part_begin(job->units, lane->part, base->parts) * steps;
    int64_t end = cpu_part_begin(job->units, lane->part + 1, base->parts) * steps;
    for (int64_t at = begin + lane->position; at < end; at++) {
        unit_places(job, at / steps, at % steps, block);
        if (at + 1 < end && cpu_job_stops(base)) {
            lane->position = at + 1 - begin;
            return false;
        }
    }
    return true;
}

/* One step of a unit of the weight's gradient, which is rows of the depth for one group, summed up over the places of all images: a block of
 * these, and for a strip of y's channels its product. The sum so far is in the result. */
static void unit_weight(const struct convolution_job *job, int64_t unit, int64_t step, char *block) {
    int64_t group = unit / job->row_blocks, row = unit % job->row_blocks * job->rows, size = job->size;
    int64_t rows = least(job->rows, job->depth - row), number = step / job->strips;
    int64_t channel = step % job->strips * job->strip, channels = least(job->strip, job->result_channels - channel);
    int64_t image = number / job->blocks * job->c.groups + group;
    int64_t place = number % job->blocks * job->width, n = least(job->width, job->places - place);
    char *result = job->result + ((group * job->result_channels + channel) * job->depth + row) * size;
    char *gradient =
        (char *)(uintptr_t)job->left + ((image * job->result_channels + channel) * job->places + place) * job->own_size;
    int64_t stride = job->places;
    if (channel == 0) {
        const char *source = job->source + image * job->source_channels * job->source_places * job->own_size;
        gather(job, source, row, rows, place, n, block);
    }
    if (job->widen) {
        convert_places(job, channels, n, gradient, block + job_block_bytes(job));
        gradient = block + job_block_bytes(job);
        stride = n;
    }
    multiply(job, channels, rows, n, gradient, stride, block, n, true, result, job->depth, number > 0);
}

static bool weight_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct convolution_job *job = (struct convolution_job *)base;
    char *block = lane_block(job, lane);
    int64_t steps = job->c.batch * job->blocks * job->strips;
    int64_t begin = cpu_part_begin(job->units, lane->part, base->parts) * steps;
    int64_t end = cpu_part_begin(job->units, lane->part + 1, base->parts) * steps;
    for (int64_t at = begin + lane->position; at < end; at++) {
        unit_weight(job, at / steps, at % steps, block);
        if (at + 1 < end && cpu_job_stops(base)) {
            lane->position = at + 1 - begin;
            return false;
        }
    }
    return true;
}

/* The weight's gradient of no images. */
static bool zero_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct convolution_job *job = (struct convolution_job *)base;
    int64_t elements = job->c.y_channels * job->depth;
    int64_t begin = cpu_part_begin(elements, lane->part, base->parts);
    memset(job->result + begin * job->own_size, 0,
           (size_t)((cpu_part_begin(elements, lane->part + 1, base->parts) - begin) * job->own_size));
    return true;
}

/* ---- the job ---- */

static void job_operands(struct convolution_job *job, const struct launch *launch) {
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
    job->own_size = (int64_t)dtype_size((enum dtype)out->dtype);
    if (job->own_size < job->size) {
        job->widen = job->base.cpu->kernels->cast[out->dtype][DTYPE_F32];
        job->narrow = job->base.cpu->kernels->cast[DTYPE_F32][out->dtype];
    }
}

static void job_blocks(struct convolution_job *job) {
    const struct convolution *c = &job->c;
    bool back = job->way == WAY_BACK;
    job->places = convolution_volume(places_extents(job));
    job->source_places = convolution_volume(source_extents(job));
    job->kernel = convolution_volume(c->kernel);
    job->source_channels = (back ? c->y_channels : c->x_channels) / c->groups;
    job->result_channels = (back ? c->x_channels : c->y_channels) / c->groups;
    job->depth = job->source_channels * job->kernel;
    job->rows = job->way == WAY_WEIGHT ? least(most(divided_up(job->depth, 8), ROWS_LEAST), ROWS_MOST)
                                       : least(job->depth, BLOCK_ROWS);
    job->row_blocks = divided_up(job->depth, job->rows);
    job->plain = job->way != WAY_WEIGHT && job->kernel == 1 && !job->widen;
    for (int i = 0; i < CONVOLUTION_AXES; i++) {
        /* output_padding, which the dilation limits, too, adds places that see nothing of the source. */
        job->plain &= c->stride[i] == 1 && c->padding[i] == 0 && c->x[i] == c->y[i];
    }
    int64_t width = most(BLOCK / job->rows / PLACES_MULTIPLE * PLACES_MULTIPLE, BLOCK_PLACES);
    job->width = least(width, job->places);
    job->blocks = divided_up(job->places, job->width);
    double strip = convolution_call_work / ((double)(job->size / 4) * (double)job->rows * (double)job->width);
    job->strip = job->result_channels;
    if (strip < (double)job->strip) {
        job->strip = least(most((int64_t)strip / CHANNELS_MULTIPLE, 1) * CHANNELS_MULTIPLE, job->strip);
    }
    job->strips = divided_up(job->result_channels, job->strip);
    job->units = job->way == WAY_WEIGHT ? c->groups * job->row_blocks : c->batch * c->groups * job->blocks;
}

/* As bytes of memory traffic: some 4 multiplications take as long as moving a byte. */
static void job_work(struct convolution_job *job) {
    double images = (double)job->c.batch * (double)job->c.groups, places = (double)job->places;
    double gathered = images * (double)job->depth * places;
    double channels = (double)(job->way == WAY_WEIGHT ? job->c.y_channels / job->c.groups : job->result_channels);
    job->work = gathered * (channels * (double)job->size / 16 + 2 * (double)job->size) + 1024 * (double)job->units;
    unsigned parts = cpu_parts(job->base.cpu, job->work), threads = job->base.cpu->team.threads;
    job->base.parts = job->units < parts ? (unsigned)job->units : parts;
    job->threads = job->base.parts < threads ? job->base.parts : threads;
    job->base.lanes_most = job->threads;
}

static void job_init(struct convolution_job *job, struct cpu *cpu, const struct launch *launch) {
    *job = (struct convolution_job){.base.cpu = cpu, .blas = &cpu->blas};
    job_operands(job, launch);
    job_blocks(job);
    int64_t units = job->units;
    if (!convolution_images_init(job, cpu->dnnl)) {
        convolution_images_release(job);
        job->units = units;
        job->base.run = job->way == WAY_WEIGHT ? weight_part : places_part;
    }
    if (job->way == WAY_WEIGHT && job->c.batch == 0) {
        job->base.run = zero_part;
    } else if (job->widen) {
        convolution_halves_init(job);
    }
    job_work(job);
}

static bool by_dnnl(const struct convolution_job *job) {
    return job->base.done;
}

static uint64_t convolution_workspace(struct device *device, const struct launch *launch) {
    struct convolution_job job;
    job_init(&job, (struct cpu *)device, launch);
    /* When the launch runs, oneDNN may have no memory any more. */
    uint64_t blocks = (uint64_t)job_lane_bytes(&job) * job.threads, images = 0;
    if (by_dnnl(&job)) {
        blocks = (uint64_t)job_lane_bytes(&job) * job.base.cpu->team.threads;
        images = convolution_images_workspace(&job);
    }
    convolution_images_release(&job);
    return (uint64_t)job.converted_bytes + (images > blocks ? images : blocks);
}

static int convolution_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    struct convolution_job job;
    job_init(&job, cpu, launch);
    job.workspace = launch->workspace;
    if (job.converted_bytes) {
        convolution_halves_begin(&job);
    } else if (by_dnnl(&job) && !convolution_images_begin(&job)) {
        convolution_images_release(&job);
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "oneDNN has no memory");
    }
    if (cpu_job_keep(&job.base, sizeof job, job.work, begun)) {
        if (*begun == &cpu->waiting) {
            convolution_images_release(&job);
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
    { {.needs = convolution_needs, .workspace = convolution_workspace, .halves = true}, convolution_run }
const struct cpu_kernel cpu_kernel_conv = CONVOLUTION;
const struct cpu_kernel cpu_kernel_conv_transpose = CONVOLUTION;
const struct cpu_kernel cpu_kernel_conv_grad_input = CONVOLUTION;
const struct cpu_kernel cpu_kernel_conv_grad_weight = CONVOLUTION;
