/* Fourier transforms along an axis. engine/device/fft.h says how.
 *
 * Lines that fit shared memory are read, transformed and written by one kernel, several to a block where they are short. Longer ones are read
 * into the workspace, go to and fro there in one launch for each factor, and are written from there. */
#include "engine/cuda/cuda.h"
#include "engine/cuda/space.h"

#define FFT_FUNCTION static __host__ __device__ inline
#include "engine/device/fft.h"

namespace {

enum {
    SHARED_BYTES = 32768, /* of two places for the numbers of a block */
    GROUP = 1 << 24,      /* numbers of the lines that are on their way together */
};

/* What is transformed: lines; the filter, of which there is one; lines times the chirp, whose transform times the filter's is then
 * transformed back. */
enum fft_purpose { FOR_RESULT, FOR_FILTER, FOR_FILTERED, FOR_UNFILTERED };

template <typename T> struct alignas(2 * sizeof(T)) fft_number { T re, im; };

struct fft_arguments {
    struct fft_request request;
    struct fft_length length;
    enum fft_purpose purpose;
    const char *x;
    char *out;
    int64_t x_extent, out_extent; /* elements on a line of each, in memory */
    int64_t line, lines;          /* the first line, and how many */
    int64_t together;             /* lines of a block */
    double scale;
    char *roots, *chirp, *filter, *spread;
    char *from, *to;              /* of a pass */
    int64_t pass_m, pass_s, step; /* of a pass: groups, the distance of results, and of roots in the table */
    int radix;
};

template <typename T>
__device__ __forceinline__ fft_number<T> fft_multiply(const fft_number<T> &a, const fft_number<T> &b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
template <typename T> __device__ __forceinline__ fft_number<T> fft_add(const fft_number<T> &a, const fft_number<T> &b) {
    return {a.re + b.re, a.im + b.im};
}
template <typename T>
__device__ __forceinline__ fft_number<T> fft_less(const fft_number<T> &a, const fft_number<T> &b) {
    return {a.re - b.re, a.im - b.im};
}
/* a - b·i and a + b·i */
template <typename T>
__device__ __forceinline__ fft_number<T> fft_back(const fft_number<T> &a, const fft_number<T> &b) {
    return {a.re + b.im, a.im - b.re};
}
template <typename T> __device__ __forceinline__ fft_number<T> fft_on(const fft_number<T> &a, const fft_number<T> &b) {
    return {a.re - b.im, a.im + b.re};
}

/* ---- numbers in the tensors and in the workspace ---- */

template <typename T>
__device__ __forceinline__ fft_number<T> tensor_read(const struct fft_arguments &p, int64_t line, int64_t k) {
    const int64_t inner = p.request.inner, outer = line / inner;
    const bool hermitian = p.request.in == FFT_HERMITIAN, turned = hermitian && 2 * k > p.request.n;
    const int64_t own = turned ? p.request.n - k : k;
    const int64_t at = (outer * p.x_extent + own) * inner + line - outer * inner;
    fft_number<T> z = {0, 0};
    if (k < p.request.n && own < p.request.n_in) {
        if (p.request.in == FFT_REAL) {
            z.re = ((const T *)p.x)[at];
        } else {
            z = ((const fft_number<T> *)p.x)[at];
            if (hermitian) {
                z.im = own == 0 || 2 * own == p.request.n ? 0 : turned ? -z.im : z.im;
            }
        }
    }
    return p.request.swap ? fft_number<T>{z.im, z.re} : z;
}

template <typename T>
__device__ __forceinline__ void tensor_write(const struct fft_arguments &p, int64_t line, int64_t k, fft_number<T> z) {
    const int64_t inner = p.request.inner, outer = line / inner;
    const int64_t at = (outer * p.out_extent + k) * inner + line - outer * inner;
    const fft_number<T> own = {(p.request.swap ? z.im : z.re) * (T)p.scale,
                               (p.request.swap ? z.re : z.im) * (T)p.scale};
    if (p.request.out == FFT_REAL) {
        ((T *)p.out)[at] = own.re;
    } else {
        ((fft_number<T> *)p.out)[at] = own;
    }
}

/* Number k of a line of the group. */
template <typename T>
__device__ __forceinline__ fft_number<T> fft_read(const struct fft_arguments &p, int64_t line, int64_t k) {
    if (p.purpose == FOR_FILTER) {
        return ((const fft_number<T> *)p.filter)[k];
    }
    if (p.purpose == FOR_UNFILTERED) {
        return ((const fft_number<T> *)p.spread)[line * p.length.n + k];
    }
    const fft_number<T> z = tensor_read<T>(p, p.line + line, k);
    return p.purpose == FOR_FILTERED && k < p.request.n ? fft_multiply(z, ((const fft_number<T> *)p.chirp)[k]) : z;
}

template <typename T>
__device__ __forceinline__ void fft_write(const struct fft_arguments &p, int64_t line, int64_t k, fft_number<T> z) {
    if (p.purpose == FOR_FILTER) {
        ((fft_number<T> *)p.filter)[k] = z;
    } else if (p.purpose == FOR_FILTERED) {
        const fft_number<T> product = fft_multiply(z, ((const fft_number<T> *)p.filter)[k]);
        ((fft_number<T> *)p.spread)[line * p.length.n + k] = {product.im, product.re};
    } else if (k < p.request.n_out) {
        if (p.purpose == FOR_UNFILTERED) {
            z = fft_multiply(fft_number<T>{z.im, z.re}, ((const fft_number<T> *)p.chirp)[k]);
        }
        tensor_write(p, p.line + line, k, z);
    }
}

/* ---- a pass ---- */

/* Of factors up to 5: one group of a pass. Of others: one result. `each` is their number. */
__device__ __forceinline__ int64_t pass_each(int radix, int64_t m, int64_t s) {
    return radix <= 5 ? m * s : m * s * radix;
}

template <typename T>
__device__ __forceinline__ void pass_any(const fft_number<T> *x, fft_number<T> *y, const fft_number<T> *w, int radix,
                                         int64_t m, int64_t s, int64_t step, int64_t number) {
    const int64_t row = number / s, q = number - row * s, p = row / radix;
    const int j = (int)(row - p * radix);
    fft_number<T> sum = x[q + s * p];
    for (int k = 1; k < radix; k++) {
        sum = fft_add(sum, fft_multiply(x[q + s * (p + m * k)], w[j * k % radix * m * step]));
    }
    y[q + s * row] = fft_multiply(sum, w[j * p * step]);
}

template <typename T>
__device__ __forceinline__ void pass_one(const fft_number<T> *x, fft_number<T> *y, const fft_number<T> *w, int radix,
                                         int64_t m, int64_t s, int64_t step, int64_t number) {
    if (radix > 5) {
        pass_any(x, y, w, radix, m, s, step, number);
        return;
    }
    const int64_t p = number / s, q = number - p * s, distance = m * s;
    const fft_number<T> *from = x + q + s * p;
    fft_number<T> *to = y + q + s * radix * p;
    const fft_number<T> a = from[0], b = from[distance];
    if (radix == 2) {
        to[0] = fft_add(a, b);
        to[s] = fft_multiply(fft_less(a, b), w[p * step]);
    } else if (radix == 3) {
        const fft_number<T> c = from[2 * distance], sum = fft_add(b, c);
        const T sine = (T)0.86602540378443864676;
        const fft_number<T> half = {a.re - sum.re * (T)0.5, a.im - sum.im * (T)0.5};
        const fft_number<T> turn = {(b.re - c.re) * sine, (b.im - c.im) * sine};
        to[0] = fft_add(a, sum);
        to[s] = fft_multiply(fft_back(half, turn), w[p * step]);
        to[2 * s] = fft_multiply(fft_on(half, turn), w[2 * p * step]);
    } else if (radix == 4) {
        const fft_number<T> c = from[2 * distance], d = from[3 * distance];
        const fft_number<T> even = fft_add(a, c), odd = fft_add(b, d), less = fft_less(a, c), other = fft_less(b, d);
        to[0] = fft_add(even, odd);
        to[s] = fft_multiply(fft_back(less, other), w[p * step]);
        to[2 * s] = fft_multiply(fft_less(even, odd), w[2 * p * step]);
        to[3 * s] = fft_multiply(fft_on(less, other), w[3 * p * step]);
    } else {
        const T c1 = (T)0.30901699437494742410, c2 = (T)-0.80901699437494742410;
        const T s1 = (T)0.95105651629515357212, s2 = (T)0.58778525229247312917;
        const fft_number<T> c = from[2 * distance], d = from[3 * distance], e = from[4 * distance];
        const fft_number<T> be = fft_add(b, e), eb = fft_less(b, e), cd = fft_add(c, d), dc = fft_less(c, d);
        const fft_number<T> one = {a.re + c1 * be.re + c2 * cd.re, a.im + c1 * be.im + c2 * cd.im};
        const fft_number<T> two = {a.re + c2 * be.re + c1 * cd.re, a.im + c2 * be.im + c1 * cd.im};
        const fft_number<T> one_turn = {s1 * eb.re + s2 * dc.re, s1 * eb.im + s2 * dc.im};
        const fft_number<T> two_turn = {s2 * eb.re - s1 * dc.re, s2 * eb.im - s1 * dc.im};
        to[0] = fft_add(a, fft_add(be, cd));
        to[s] = fft_multiply(fft_back(one, one_turn), w[p * step]);
        to[2 * s] = fft_multiply(fft_back(two, two_turn), w[2 * p * step]);
        to[3 * s] = fft_multiply(fft_on(two, two_turn), w[3 * p * step]);
        to[4 * s] = fft_multiply(fft_on(one, one_turn), w[4 * p * step]);
    }
}

/* ---- kernels ---- */

template <typename T>
__global__ void __launch_bounds__(SPACE_THREADS) fft_roots(const __grid_constant__ struct fft_arguments p) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; k < p.length.n; k += step) {
        double re, im;
        fft_root(k, p.length.n, &re, &im);
        ((fft_number<T> *)p.roots)[k] = {(T)re, (T)im};
    }
}

/* The chirp, and the filter, which is its conjugate on both sides of 0. */
template <typename T>
__global__ void __launch_bounds__(SPACE_THREADS) fft_chirp(const __grid_constant__ struct fft_arguments p) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x, n = p.request.n;
    for (int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; k < p.length.n; k += step) {
        const int64_t from = k < n ? k : p.length.n - k;
        double re = 0, im = 0;
        if (from < n) {
            fft_root(from * from % (2 * n), 2 * n, &re, &im);
        }
        ((fft_number<T> *)p.filter)[k] = {(T)re, (T)-im};
        if (k < n) {
            ((fft_number<T> *)p.chirp)[k] = {(T)re, (T)im};
        }
    }
}

/* Whole lines, in shared memory: number k of line v of a block is at k · together + v. */
template <typename T>
__global__ void __launch_bounds__(SPACE_THREADS) fft_block(const __grid_constant__ struct fft_arguments p) {
    __shared__ fft_number<T> places[SHARED_BYTES / sizeof(fft_number<T>)];
    const int64_t n = p.length.n, s = p.together;
    for (int64_t first = (int64_t)blockIdx.x * s; first < p.lines; first += (int64_t)gridDim.x * s) {
        fft_number<T> *x = places, *y = places + n * s;
        /* Threads follow the elements as they lie in memory. */
        for (int64_t i = threadIdx.x; i < n * s; i += SPACE_THREADS) {
            const int64_t v = p.request.inner == 1 ? i / n : i % s, k = p.request.inner == 1 ? i - v * n : i / s;
            if (first + v < p.lines) {
                x[k * s + v] = fft_read<T>(p, first + v, k);
            }
        }
        __syncthreads();
        int64_t m = n, distance = s, step = 1;
        for (int i = 0; i < p.length.radices; i++) {
            const int radix = p.length.radix[i];
            m /= radix;
            const int64_t each = pass_each(radix, m, distance);
            for (int64_t number = threadIdx.x; number < each; number += SPACE_THREADS) {
                pass_one(x, y, (const fft_number<T> *)p.roots, radix, m, distance, step, number);
            }
            __syncthreads();
            distance *= radix;
            step *= radix;
            fft_number<T> *other = x;
            x = y;
            y = other;
        }
        for (int64_t i = threadIdx.x; i < n * s; i += SPACE_THREADS) {
            const int64_t v = p.request.inner == 1 ? i / n : i % s, k = p.request.inner == 1 ? i - v * n : i / s;
            if (first + v < p.lines) {
                fft_write(p, first + v, k, x[k * s + v]);
            }
        }
        __syncthreads(); /* all have read before the next lines come */
    }
}

template <typename T>
__global__ void __launch_bounds__(SPACE_THREADS) fft_load(const __grid_constant__ struct fft_arguments p) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x, all = p.lines * p.length.n;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += step) {
        const int64_t line = i / p.length.n;
        ((fft_number<T> *)p.to)[i] = fft_read<T>(p, line, i - line * p.length.n);
    }
}

template <typename T>
__global__ void __launch_bounds__(SPACE_THREADS) fft_pass(const __grid_constant__ struct fft_arguments p) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x, each = pass_each(p.radix, p.pass_m, p.pass_s);
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < each * p.lines; i += step) {
        const int64_t line = i / each;
        pass_one((const fft_number<T> *)p.from + line * p.length.n, (fft_number<T> *)p.to + line * p.length.n,
                 (const fft_number<T> *)p.roots, p.radix, p.pass_m, p.pass_s, p.step, i - line * each);
    }
}

template <typename T>
__global__ void __launch_bounds__(SPACE_THREADS) fft_store(const __grid_constant__ struct fft_arguments p) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x, all = p.lines * p.length.n;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += step) {
        const int64_t line = i / p.length.n;
        fft_write(p, line, i - line * p.length.n, ((const fft_number<T> *)p.from)[i]);
    }
}

} // namespace

/* ---- the launcher ---- */

typedef void fft_function(const struct fft_arguments arguments);
struct fft_kernels {
    fft_function *roots, *chirp, *block, *load, *pass, *store;
};
#define FFT_KERNELS(T)                                                                                                 \
    { fft_roots<T>, fft_chirp<T>, fft_block<T>, fft_load<T>, fft_pass<T>, fft_store<T> }
static const struct fft_kernels kernels[] = {FFT_KERNELS(float), FFT_KERNELS(double)};

static bool fft_walk(cuda_kernel_seen *seen, void *context) {
    bool more = true;
    for (const struct fft_kernels &row : kernels) {
        for (fft_function *kernel : {row.roots, row.chirp, row.block, row.load, row.pass, row.store}) {
            more = more && seen(context, false, (const void *)kernel);
        }
    }
    return more;
}

struct fft_plan {
    struct fft_arguments arguments;
    int64_t size, lines, group;
    bool chirped, shared;
    int64_t bytes;
    int64_t places[2]; /* where long lines go to and fro */
};

static char *plan_place(struct fft_plan *plan, char *workspace, int64_t bytes) {
    char *at = workspace + plan->bytes;
    plan->bytes += (bytes + 63) / 64 * 64;
    return at;
}

static struct fft_plan plan_make(const struct launch *launch) {
    struct fft_plan plan = {};
    struct fft_arguments &p = plan.arguments;
    char *workspace = (char *)launch->workspace;
    p.request = fft_request_make(launch);
    plan.size = p.request.wide ? 16 : 8;
    plan.chirped = !fft_factor(p.request.n, &p.length);
    if (plan.chirped) {
        fft_factor(fft_room(2 * p.request.n - 1), &p.length);
    }
    const int64_t n = p.length.n, most = SHARED_BYTES / (2 * plan.size);
    plan.lines = p.request.outer * p.request.inner;
    plan.shared = n <= most;
    p.together = plan.shared ? (most / n < plan.lines ? most / n : plan.lines) : 1;
    plan.group = GROUP / n < 1 ? 1 : GROUP / n < plan.lines ? GROUP / n : plan.lines;
    p.x = (const char *)launch->inputs[0].data;
    p.out = (char *)launch->output.data;
    p.x_extent = launch->inputs[0].shape[1];
    p.out_extent = launch->output.shape[1];
    p.scale = plan.chirped ? p.request.scale / (double)n : p.request.scale;
    p.roots = plan_place(&plan, workspace, n * plan.size);
    p.chirp = plan_place(&plan, workspace, plan.chirped ? p.request.n * plan.size : 0);
    p.filter = plan_place(&plan, workspace, plan.chirped ? n * plan.size : 0);
    p.spread = plan_place(&plan, workspace, plan.chirped ? plan.group * n * plan.size : 0);
    for (int i = 0; i < 2; i++) {
        plan.places[i] = plan.bytes;
        plan_place(&plan, workspace, plan.shared ? 0 : plan.group * n * plan.size);
    }
    return plan;
}

static uint64_t fft_workspace(struct device *device, const struct launch *launch) {
    (void)device;
    return (uint64_t)plan_make(launch).bytes;
}

struct fft_context {
    const struct cuda *cuda;
    const struct fft_kernels *kernels;
    char *workspace;
    struct fault *fault;
    cudaStream_t stream;
};

static int fft_start(const struct fft_context *context, fft_function *kernel, int64_t work,
                     const struct fft_arguments *arguments) {
    return space_start((const void *)kernel, space_blocks(context->cuda, work / SPACE_THREADS + 1), arguments,
                       context->fault, context->stream);
}

/* In the workspace, a launch for each factor. */
static int fft_long(const struct fft_context *context, const struct fft_plan *plan, struct fft_arguments p) {
    const int64_t all = p.lines * p.length.n;
    int place = 0;
    p.to = context->workspace + plan->places[place];
    int code = fft_start(context, context->kernels->load, all, &p);
    p.pass_m = p.length.n;
    p.pass_s = p.step = 1;
    for (int i = 0; i < p.length.radices && code == STATUS_OK; i++) {
        p.radix = p.length.radix[i];
        p.pass_m /= p.radix;
        p.from = context->workspace + plan->places[place];
        place = 1 - place;
        p.to = context->workspace + plan->places[place];
        code = fft_start(context, context->kernels->pass, p.radix <= 5 ? all / p.radix : all, &p);
        p.pass_s *= p.radix;
        p.step *= p.radix;
    }
    p.from = context->workspace + plan->places[place];
    return code == STATUS_OK ? fft_start(context, context->kernels->store, all, &p) : code;
}

static int fft_lines(const struct fft_context *context, const struct fft_plan *plan, enum fft_purpose purpose,
                     int64_t line, int64_t lines) {
    struct fft_arguments p = plan->arguments;
    p.purpose = purpose;
    p.line = line;
    p.lines = lines;
    if (!plan->shared) {
        return fft_long(context, plan, p);
    }
    return space_start((const void *)context->kernels->block,
                       space_blocks(context->cuda, (lines + p.together - 1) / p.together), &p, context->fault,
                       context->stream);
}

static int fft_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch, struct fault *fault) {
    const struct fft_plan plan = plan_make(launch);
    const struct fft_context context = {cuda, &kernels[plan.arguments.request.wide], (char *)launch->workspace, fault,
                                        stream->stream};
    int code = fft_start(&context, context.kernels->roots, plan.arguments.length.n, &plan.arguments);
    if (plan.chirped && code == STATUS_OK) {
        code = fft_start(&context, context.kernels->chirp, plan.arguments.length.n, &plan.arguments);
        if (code == STATUS_OK) {
            code = fft_lines(&context, &plan, FOR_FILTER, 0, 1);
        }
    }
    for (int64_t line = 0; line < plan.lines && code == STATUS_OK; line += plan.group) {
        const int64_t lines = plan.lines - line < plan.group ? plan.lines - line : plan.group;
        code = fft_lines(&context, &plan, plan.chirped ? FOR_FILTERED : FOR_RESULT, line, lines);
        if (plan.chirped && code == STATUS_OK) {
            code = fft_lines(&context, &plan, FOR_UNFILTERED, line, lines);
        }
    }
    return code;
}

#define FOURIER                                                                                                        \
    { {.workspace = fft_workspace}, fft_run, fft_walk }
const struct cuda_kernel cuda_kernel_fft = FOURIER;
const struct cuda_kernel cuda_kernel_ifft = FOURIER;
const struct cuda_kernel cuda_kernel_rfft = FOURIER;
const struct cuda_kernel cuda_kernel_irfft = FOURIER;
