/* Fourier transforms along an axis. engine/device/fft.h says how.
 *
 * Lines that fit shared memory are read, transformed and written by one kernel, several to a block where they are short. Longer ones are read
 * into the workspace, go to and fro there in one launch for each factor, and are written from there.
 *
 * cuFFT goes first, if it is there: on lines as they are in the tensors where it can (transforms of complex numbers, and of real ones to
 * half of a Hermitian transform, which are as long as the line), on the half of a Hermitian transform after it has been copied, as cuFFT may
 * write to it, and else, if lines are long, on lines in the workspace, read and written as for the passes here. */
#include <string.h>

#include "engine/cuda/cufft.h"
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

/* For cuFFT: the half of a Hermitian transform, with zeros where there must be. */
template <typename T>
__global__ void __launch_bounds__(SPACE_THREADS) fft_half(const __grid_constant__ struct fft_arguments p) {
    const int64_t half = p.request.n / 2 + 1;
    const int64_t step = (int64_t)gridDim.x * blockDim.x, all = p.lines * half;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += step) {
        const int64_t line = i / half;
        const fft_number<T> z = tensor_read<T>(p, p.line + line, i - line * half);
        ((fft_number<T> *)p.to)[i] = p.request.swap ? fft_number<T>{z.im, z.re} : z;
    }
}

/* `lines` numbers at p.to, which cuFFT has not scaled. */
template <typename T>
__global__ void __launch_bounds__(SPACE_THREADS) fft_scale(const __grid_constant__ struct fft_arguments p) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.lines; i += step) {
        ((T *)p.to)[i] *= (T)p.scale;
    }
}

} // namespace

/* ---- the launcher ---- */

typedef void fft_function(const struct fft_arguments arguments);
struct fft_kernels {
    fft_function *roots, *chirp, *block, *load, *pass, *store, *half, *scale;
};
#define FFT_KERNELS(T)                                                                                                 \
    { fft_roots<T>, fft_chirp<T>, fft_block<T>, fft_load<T>, fft_pass<T>, fft_store<T>, fft_half<T>, fft_scale<T> }
static const struct fft_kernels kernels[] = {FFT_KERNELS(float), FFT_KERNELS(double)};

static bool fft_walk(cuda_kernel_seen *seen, void *context) {
    bool more = true;
    for (const struct fft_kernels &row : kernels) {
        for (fft_function *kernel :
             {row.roots, row.chirp, row.block, row.load, row.pass, row.store, row.half, row.scale}) {
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

/* ---- cuFFT ---- */

/* How it computes a launch. */
enum fft_way {
    WAY_NONE,    /* not at all */
    WAY_DIRECT,  /* from tensor to tensor */
    WAY_HALF,    /* from a copy of the input to the output */
    WAY_PLACES,  /* within the workspace */
};

enum { LIBRARY_ALIGNMENT = 256, CALLS_MOST = 64 };

static uint64_t library_aligned(uint64_t bytes) {
    return (bytes + LIBRARY_ALIGNMENT - 1) & ~(uint64_t)(LIBRARY_ALIGNMENT - 1);
}

/* The transform of one call, and how many calls there are: an axis that is not the last one has its lines side by side, and the axes
 * before it take a call each. */
struct fft_library {
    enum fft_way way;
    struct cufft_lines lines;
    int64_t calls, group;
    uint64_t bytes; /* of lines in the workspace, before cuFFT's own */
};

/* Of whether addresses are aligned the workspace must not depend. */
static struct fft_library library_make(const struct fft_plan *plan) {
    const struct fft_arguments *p = &plan->arguments;
    const struct fft_request *request = &p->request;
    const bool whole = request->n_in == request->n, last = request->inner == 1;
    struct fft_library library;
    memset(&library, 0, sizeof library);
    struct cufft_lines *lines = &library.lines;
    lines->n = request->n;
    lines->wide = request->wide;
    lines->in_stride = lines->out_stride = request->inner;
    lines->in_distance = last ? p->x_extent : 1;
    lines->out_distance = last ? p->out_extent : 1;
    lines->batch = last ? plan->lines : request->inner;
    library.calls = last ? 1 : request->outer;
    library.group = plan->lines;
    const bool few = library.calls <= CALLS_MOST && request->n > 1;
    if (few && whole && request->in == FFT_COMPLEX && !request->halved) {
        library.way = WAY_DIRECT;
    } else if (few && whole && request->in == FFT_REAL && request->halved) {
        library.way = WAY_DIRECT;
        lines->type = CUFFT_TYPE_R2C;
    } else if (few && request->in == FFT_HERMITIAN) {
        library.way = WAY_HALF;
        lines->type = CUFFT_TYPE_C2R;
        lines->in_stride = 1;
        lines->in_distance = request->n / 2 + 1;
        library.calls = last ? 1 : request->outer;
        library.bytes = library_aligned((uint64_t)(plan->lines * lines->in_distance * plan->size));
    } else if (!plan->shared) {
        library.way = WAY_PLACES;
        library.calls = 1;
        library.group = plan->group;
        lines->in_stride = lines->out_stride = 1;
        lines->in_distance = lines->out_distance = request->n;
        lines->batch = plan->group;
        library.bytes = library_aligned((uint64_t)(plan->group * request->n * plan->size));
    }
    return library;
}

static uint64_t fft_workspace(struct device *device, const struct launch *launch) {
    const struct fft_plan plan = plan_make(launch);
    const struct fft_library library = library_make(&plan);
    if (library.way == WAY_NONE || launch->scarce || !cuda_library_wanted(cuda_of(device), CUDA_CUFFT)) {
        return (uint64_t)plan.bytes;
    }
    const uint64_t bytes = LIBRARY_ALIGNMENT + library.bytes + cufft_workspace(&library.lines);
    return bytes > (uint64_t)plan.bytes ? bytes : (uint64_t)plan.bytes;
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

/* Where a call's lines begin, in bytes. */
static char *call_at(char *data, int64_t call, int64_t extent, int64_t inner, int64_t size) {
    return data + call * extent * inner * size;
}

/* Whether each call's lines begin where a complex number could. */
static bool library_aligned_calls(const struct fft_plan *plan, const struct fft_library *library) {
    const struct fft_arguments *p = &plan->arguments;
    const int64_t next = library->calls > 1 ? p->request.inner * plan->size / 2 : 0; /* a line of reals */
    uintptr_t bits = 0;
    if (library->way == WAY_DIRECT) {
        bits |= (uintptr_t)p->x | (uintptr_t)(p->request.in == FFT_REAL ? next * p->x_extent : 0);
    }
    if (library->way != WAY_PLACES) {
        bits |= (uintptr_t)p->out | (uintptr_t)(p->request.out == FFT_REAL ? next * p->out_extent : 0);
    }
    return bits % (uintptr_t)plan->size == 0;
}

static int library_calls(struct cuda *cuda, const struct fft_context *context, const struct fft_plan *plan,
                         const struct fft_library *library, char *places, bool *refused) {
    const struct fft_arguments *p = &plan->arguments;
    const struct fft_request *request = &p->request;
    const int64_t in_size = request->in == FFT_REAL ? plan->size / 2 : plan->size;
    const int64_t out_size = request->out == FFT_REAL ? plan->size / 2 : plan->size;
    char *workspace = places + library->bytes;
    int code = STATUS_OK;
    *refused = false;
    for (int64_t call = 0; call < library->calls && code == STATUS_OK && !*refused; call++) {
        char *in = library->way == WAY_HALF
                       ? places + call * request->inner * library->lines.in_distance * plan->size
                       : call_at((char *)p->x, call, p->x_extent, request->inner, in_size);
        code = cufft_transform(cuda, &library->lines, in,
                               call_at(p->out, call, p->out_extent, request->inner, out_size), request->swap,
                               workspace, context->stream, refused, context->fault);
    }
    return code;
}

/* Groups of lines, read into the workspace, transformed in their place, and written. */
static int library_groups(struct cuda *cuda, const struct fft_context *context, const struct fft_plan *plan,
                          struct fft_library *library, char *places, bool *refused) {
    struct fft_arguments p = plan->arguments;
    char *workspace = places + library->bytes;
    int code = STATUS_OK;
    p.purpose = FOR_RESULT;
    p.length.n = p.request.n;
    p.scale = p.request.scale;
    p.from = p.to = places;
    *refused = false;
    for (p.line = 0; p.line < plan->lines && code == STATUS_OK && !*refused; p.line += library->group) {
        p.lines = plan->lines - p.line < library->group ? plan->lines - p.line : library->group;
        library->lines.batch = p.lines;
        code = fft_start(context, context->kernels->load, p.lines * p.length.n, &p);
        if (code == STATUS_OK) { /* an inverse transform has its parts swapped as it is read and written */
            code = cufft_transform(cuda, &library->lines, places, places, false, workspace,
                                   context->stream, refused, context->fault);
        }
        if (code == STATUS_OK && !*refused) {
            code = fft_start(context, context->kernels->store, p.lines * p.length.n, &p);
        }
    }
    return code;
}

/* Whether cuFFT has the plans for all groups. */
static bool library_ready(const struct cuda *cuda, const struct fft_plan *plan, struct fft_library *library) {
    const int64_t last = plan->lines % library->group;
    if (library->way != WAY_PLACES || plan->lines > last) {
        if (!cufft_ready(cuda, &library->lines)) {
            return false;
        }
    }
    if (library->way != WAY_PLACES || last == 0) {
        return true;
    }
    library->lines.batch = last;
    return cufft_ready(cuda, &library->lines);
}

static bool fft_waits(struct device *device, const struct launch *launch) {
    const struct fft_plan plan = plan_make(launch);
    struct fft_library library = library_make(&plan);
    const struct cuda *cuda = cuda_of(device);
    return library.way != WAY_NONE && !launch->scarce && cuda_library_wanted(cuda, CUDA_CUFFT) &&
           library_aligned_calls(&plan, &library) && !library_ready(cuda, &plan, &library);
}

static int library_run(struct cuda *cuda, const struct fft_context *context, const struct fft_plan *plan,
                       bool scarce, bool *refused) {
    struct fft_arguments p = plan->arguments;
    struct fft_library library = library_make(plan);
    *refused = true;
    if (library.way == WAY_NONE || !cuda_library_wanted(cuda, CUDA_CUFFT)) {
        return STATUS_OK;
    }
    if (scarce) {
        return cuda_library_refused(cuda, CUDA_CUFFT, "cuFFT", "no memory for its workspace", context->fault);
    }
    if (!library_aligned_calls(plan, &library)) {
        return cuda_library_refused(cuda, CUDA_CUFFT, "cuFFT", "a tensor is not aligned", context->fault);
    }
    char *places = (char *)(uintptr_t)library_aligned((uint64_t)(uintptr_t)context->workspace);
    int code;
    if (library.way == WAY_PLACES) {
        code = library_groups(cuda, context, plan, &library, places, refused);
    } else {
        code = STATUS_OK;
        if (library.way == WAY_HALF) {
            p.to = places;
            p.line = 0;
            p.lines = plan->lines;
            code = fft_start(context, context->kernels->half, p.lines * library.lines.in_distance, &p);
        }
        if (code == STATUS_OK) {
            code = library_calls(cuda, context, plan, &library, places, refused);
        }
        if (code == STATUS_OK && !*refused && p.request.scale != 1) {
            p.to = p.out;
            p.scale = p.request.scale;
            p.lines = plan->lines * p.request.n_out * (p.request.out == FFT_REAL ? 1 : 2);
            code = fft_start(context, context->kernels->scale, p.lines, &p);
        }
    }
    if (code == STATUS_OK && !*refused) {
        cuda_library_computed(cuda, CUDA_CUFFT);
    }
    return code;
}

static int fft_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch, struct fault *fault) {
    const struct fft_plan plan = plan_make(launch);
    const struct fft_context context = {cuda, &kernels[plan.arguments.request.wide], (char *)launch->workspace, fault,
                                        stream->stream};
    bool refused;
    int code = library_run(cuda, &context, &plan, launch->scarce, &refused);
    if (code != STATUS_OK || !refused) {
        return code;
    }
    code = fft_start(&context, context.kernels->roots, plan.arguments.length.n, &plan.arguments);
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
    { {.workspace = fft_workspace, .waits = fft_waits}, fft_run, fft_walk, CUDA_CUFFT }
const struct cuda_kernel cuda_kernel_fft = FOURIER;
const struct cuda_kernel cuda_kernel_ifft = FOURIER;
const struct cuda_kernel cuda_kernel_rfft = FOURIER;
const struct cuda_kernel cuda_kernel_irfft = FOURIER;
