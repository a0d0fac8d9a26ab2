/* The stand-in for cuFFT: lines at any strides, taken apart by the factors of their lengths. The input of a transform to real numbers is lost. */
#include <cufft.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/stand_ins/libraries/stand_in.h"

#define EXPECT(condition) stand_in_expect(condition, "what does not fulfil: " #condition)

enum { PLANS_MAX = 128, WORK_BYTES = 1024 };

static struct plan {
    bool taken, made, manual;
    cufftType type;
    int64_t n, in_stride, in_distance, out_stride, out_distance, batch;
    void *work;
    cudaStream_t stream;
} plans[PLANS_MAX];

static cufftResult outcome(const char *function) {
    switch (stand_in_call(function)) {
    case STAND_IN_WORKS:
        return CUFFT_SUCCESS;
    case STAND_IN_NO_MEMORY:
        return CUFFT_ALLOC_FAILED;
    case STAND_IN_REFUSES:
        return CUFFT_INVALID_SIZE;
    default:
        return CUFFT_EXEC_FAILED;
    }
}
#define BEGIN                                                                                                          \
    do {                                                                                                               \
        cufftResult begin_result = outcome(__func__);                                                                  \
        if (begin_result != CUFFT_SUCCESS)                                                                             \
            return begin_result;                                                                                       \
    } while (0)

cufftResult cufftGetVersion(int *version) {
    *version = CUFFT_VERSION;
    return CUFFT_SUCCESS;
}

cufftResult cufftCreate(cufftHandle *handle) {
    BEGIN;
    int i = 0;
    while (plans[i].taken) {
        i++;
        stand_in_expect(i < PLANS_MAX, "plans without end");
    }
    plans[i] = (struct plan){.taken = true};
    *handle = i;
    stand_in_objects(1);
    return CUFFT_SUCCESS;
}

cufftResult cufftDestroy(cufftHandle handle) {
    EXPECT(plans[handle].taken);
    plans[handle].taken = false;
    stand_in_objects(-1);
    return outcome(__func__);
}

cufftResult cufftSetAutoAllocation(cufftHandle handle, int automatic) {
    BEGIN;
    EXPECT(!plans[handle].made);
    plans[handle].manual = !automatic;
    return CUFFT_SUCCESS;
}

cufftResult cufftMakePlanMany64(cufftHandle handle, int rank, long long int *n, long long int *in_embed,
                                long long int in_stride, long long int in_distance, long long int *out_embed,
                                long long int out_stride, long long int out_distance, cufftType type,
                                long long int batch, size_t *bytes) {
    BEGIN;
    struct plan *plan = &plans[handle];
    EXPECT(plan->taken && !plan->made && plan->manual && rank == 1 && in_embed && out_embed && *n > 0 && batch > 0);
    *plan =
        (struct plan){true, true, true, type, *n, in_stride, in_distance, out_stride, out_distance, batch, NULL, NULL};
    *bytes = WORK_BYTES;
    return CUFFT_SUCCESS;
}

cufftResult cufftSetWorkArea(cufftHandle handle, void *work) {
    BEGIN;
    EXPECT(work && (uintptr_t)work % 256 == 0);
    plans[handle].work = work;
    return CUFFT_SUCCESS;
}

cufftResult cufftSetStream(cufftHandle handle, cudaStream_t stream) {
    BEGIN;
    plans[handle].stream = stream;
    return CUFFT_SUCCESS;
}

/* ---- execution ---- */

struct work {
    struct plan plan;
    void *in, *out;
    bool wide, inverse, real_in, real_out;
};

static double read_number(const void *data, bool wide, int64_t at) {
    return wide ? ((const double *)data)[at] : (double)((const float *)data)[at];
}
static void write_number(void *data, bool wide, int64_t at, double value) {
    if (wide)
        ((double *)data)[at] = value;
    else
        ((float *)data)[at] = (float)value;
}

static int64_t smallest_factor(int64_t n) {
    for (int64_t p = 2; p * p <= n; p++)
        if (n % p == 0)
            return p;
    return n;
}

/* The transform of every step-th number of a line, as pairs: the sums of all products, of the transforms of its p parts. `room` has room for a line. */
static void transform(const struct work *work, const long double *roots, int64_t step, const long double *line,
                      long double *result, long double *room) {
    int64_t n = work->plan.n, m = n / step, p = smallest_factor(m), q = m / p;
    for (int64_t b = 0; b < p && q > 1; b++)
        transform(work, roots, step * p, line + 2 * b * step, room + 2 * b * q, result + 2 * b * q);
    for (int64_t k = 0; k < m; k++) {
        long double re = 0, im = 0;
        for (int64_t b = 0, at = 0; b < p; b++, at += k * step, at -= at < n ? 0 : n) {
            const long double *x = q > 1 ? room + 2 * (b * q + k % q) : line + 2 * b * step;
            long double c = roots[2 * at], s = work->inverse ? -roots[2 * at + 1] : roots[2 * at + 1];
            re += x[0] * c - x[1] * s;
            im += x[0] * s + x[1] * c;
        }
        result[2 * k] = re;
        result[2 * k + 1] = im;
    }
}

static void read_line(const struct work *work, int64_t number, long double *line) {
    const struct plan *plan = &work->plan;
    int64_t n = plan->n, given = work->real_out ? n / 2 + 1 : n;
    for (int64_t k = 0; k < given; k++) {
        int64_t at = number * plan->in_distance + k * plan->in_stride;
        line[2 * k] = read_number(work->in, work->wide, work->real_in ? at : 2 * at);
        line[2 * k + 1] = work->real_in ? 0 : read_number(work->in, work->wide, 2 * at + 1);
        if (work->real_out) {
            stand_in_expect((k > 0 && 2 * k < n) || line[2 * k + 1] == 0 || line[2 * k + 1] != line[2 * k + 1],
                            "a Hermitian transform that is none");
            write_number(work->in, work->wide, 2 * at, NAN);
        }
    }
    for (int64_t k = given; k < n; k++) {
        line[2 * k] = line[2 * (n - k)];
        line[2 * k + 1] = -line[2 * (n - k) + 1];
    }
}

static void compute(void *argument) {
    const struct work *work = argument;
    const struct plan *plan = &work->plan;
    int64_t n = plan->n, results = work->real_in ? n / 2 + 1 : n;
    long double *roots = malloc((size_t)n * 2 * sizeof *roots);
    long double *lines = malloc((size_t)(plan->batch * n) * 2 * sizeof *lines),
                *result = malloc((size_t)n * 4 * sizeof *result);
    for (int64_t k = 0; k < n; k++) {
        long double angle = -2 * acosl(-1) * (long double)k / (long double)n;
        roots[2 * k] = cosl(angle);
        roots[2 * k + 1] = sinl(angle);
    }
    for (int64_t number = 0; number < plan->batch; number++) /* all of them first: it may be in place */
        read_line(work, number, lines + 2 * number * n);
    for (int64_t number = 0; number < plan->batch; number++) {
        transform(work, roots, 1, lines + 2 * number * n, result, result + 2 * n);
        for (int64_t k = 0; k < results; k++) {
            int64_t at = number * plan->out_distance + k * plan->out_stride;
            write_number(work->out, work->wide, work->real_out ? at : 2 * at, (double)result[2 * k]);
            if (!work->real_out)
                write_number(work->out, work->wide, 2 * at + 1, (double)result[2 * k + 1]);
        }
    }
    free(roots);
    free(lines);
    free(result);
}

static cufftResult run(cufftHandle handle, cufftType type, void *in, void *out, int direction) {
    struct work work = {.plan = plans[handle], .in = in, .out = out, .inverse = direction == CUFFT_INVERSE};
    work.wide = type == CUFFT_Z2Z || type == CUFFT_D2Z || type == CUFFT_Z2D;
    work.real_in = type == CUFFT_R2C || type == CUFFT_D2Z;
    work.real_out = type == CUFFT_C2R || type == CUFFT_Z2D;
    EXPECT(work.plan.made && work.plan.type == type && work.plan.work);
    EXPECT(((uintptr_t)in | (uintptr_t)out) % (work.wide ? 16 : 8) == 0);
#ifndef FAKECUDA
    memset(work.plan.work, 0xab, WORK_BYTES);
#endif
    return stand_in_put(work.plan.stream, compute, &work) ? CUFFT_SUCCESS : CUFFT_EXEC_FAILED;
}

cufftResult cufftExecC2C(cufftHandle handle, cufftComplex *in, cufftComplex *out, int direction) {
    BEGIN;
    return run(handle, CUFFT_C2C, in, out, direction);
}
cufftResult cufftExecZ2Z(cufftHandle handle, cufftDoubleComplex *in, cufftDoubleComplex *out, int direction) {
    BEGIN;
    return run(handle, CUFFT_Z2Z, in, out, direction);
}
cufftResult cufftExecR2C(cufftHandle handle, cufftReal *in, cufftComplex *out) {
    BEGIN;
    return run(handle, CUFFT_R2C, in, out, CUFFT_FORWARD);
}
cufftResult cufftExecD2Z(cufftHandle handle, cufftDoubleReal *in, cufftDoubleComplex *out) {
    BEGIN;
    return run(handle, CUFFT_D2Z, in, out, CUFFT_FORWARD);
}
cufftResult cufftExecC2R(cufftHandle handle, cufftComplex *in, cufftReal *out) {
    BEGIN;
    return run(handle, CUFFT_C2R, in, out, CUFFT_INVERSE);
}
cufftResult cufftExecZ2D(cufftHandle handle, cufftDoubleComplex *in, cufftDoubleReal *out) {
    BEGIN;
    return run(handle, CUFFT_Z2D, in, out, CUFFT_INVERSE);
}
