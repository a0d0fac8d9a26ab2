/* Convolutions of halves: the weight is converted to f32 before all else, images and places as they are computed; and the gradient by the weight is
 * added up in f32. */
#include "engine/cpu/convolution.h"

enum { ELEMENTS = 1 << 16 }; /* that are converted between two looks whether to stop */

static int64_t weight_elements(const struct convolution_job *job) {
    return job->c.y_channels * (job->c.x_channels / job->c.groups) * job->kernel;
}

static int64_t bias_elements(const struct convolution_job *job) {
    return job->bias ? job->c.groups * job->result_channels : 0;
}

static int64_t rounded(int64_t elements) {
    return (elements * (int64_t)sizeof(float) + 63) & ~INT64_C(63);
}

/* Elements `first` on of the weight: to f32, or of its gradient from there, with what other slices of the images have added up. */
static void weight_run(const struct convolution_job *job, int64_t first, int64_t n) {
    if (job->way != WAY_WEIGHT) {
        convolution_convert(job->widen, n, job->own_weight + first * job->own_size,
                            (char *)(uintptr_t)job->left + first * job->size);
        return;
    }
    float *sums = (float *)(void *)job->result + first;
    for (int64_t slice = 1; slice < job->slices; slice++) {
        const float *part = (const float *)(const void *)convolution_slice_sums(job, slice) + first;
        for (int64_t i = 0; i < n; i++) {
            sums[i] += part[i];
        }
    }
    convolution_convert(job->narrow, n, (const char *)sums, job->own_result + first * job->own_size);
}

static bool weight_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct convolution_job *job = (struct convolution_job *)base;
    int64_t elements = weight_elements(job);
    int64_t begin = cpu_part_begin(elements, lane->part, base->parts);
    int64_t end = cpu_part_begin(elements, lane->part + 1, base->parts);
    for (int64_t at = begin + lane->position; at < end; at += ELEMENTS) {
        weight_run(job, at, least(ELEMENTS, end - at));
        if (at + ELEMENTS < end && cpu_job_stops(base)) {
            lane->position = at + ELEMENTS - begin;
            return false;
        }
    }
    return true;
}

static bool halves_again(struct cpu_job *base) {
    struct convolution_job *job = (struct convolution_job *)base;
    bool weight = job->way == WAY_WEIGHT;
    if (base->run == weight_part && !weight) {
        base->run = job->run;
        if (base->done && !convolution_images_begin(job)) {
            cpu_job_fail(base);
            return false;
        }
        return true;
    }
    if (weight && base->run != weight_part) {
        base->run = weight_part;
        return true;
    }
    return !weight && job->again && job->again(base);
}

void convolution_halves_init(struct convolution_job *job) {
    job->own_weight = job->left;
    job->own_bias = job->bias;
    job->own_result = job->result;
    job->converted_bytes = rounded(weight_elements(job)) + rounded(bias_elements(job));
    job->run = job->base.run;
    job->again = job->base.again;
    job->base.again = halves_again;
    if (job->way == WAY_WEIGHT) {
        job->base.end = NULL;
    } else {
        job->base.run = weight_part;
    }
}

void convolution_halves_begin(struct convolution_job *job) {
    char *converted = job->workspace, *bias = converted + rounded(weight_elements(job));
    job->workspace += job->converted_bytes;
    if (job->way == WAY_WEIGHT) {
        job->result = converted;
    } else {
        job->left = converted;
    }
    if (job->bias) {
        convolution_convert(job->widen, bias_elements(job), job->own_bias, bias);
        job->bias = bias;
    }
}
