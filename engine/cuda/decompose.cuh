/* What kernels of decompositions share: a block of threads works on one matrix, which lies row by row in the workspace; reflections. */
#pragma once

#include <math.h>

#include "engine/cuda/cuda.h"
#include "engine/cuda/solver.h"
#include "engine/cuda/space.h"

namespace {

/* A complex number, with the operators of a real one. */
template <class R> struct complex_number {
    R re, im;
    complex_number() = default;
    template <class V> __host__ __device__ explicit complex_number(V real) : re((R)real), im(0) {
    }
    __host__ __device__ complex_number(R real, R imaginary) : re(real), im(imaginary) {
    }
    template <class V>
    __host__ __device__ explicit complex_number(const complex_number<V> &other) : re((R)other.re), im((R)other.im) {
    }
    __device__ __forceinline__ complex_number operator*(const complex_number &b) const {
        return complex_number(re * b.re - im * b.im, re * b.im + im * b.re);
    }
    /* After Smith: by the larger part first, so that squares do not overflow. */
    __device__ __forceinline__ complex_number operator/(const complex_number &b) const {
        const bool across = fabs(b.re) < fabs(b.im);
        const R large = across ? b.im : b.re, small = across ? b.re : b.im;
        const R ratio = large == 0 ? 0 : small / large, divisor = large + small * ratio;
        return complex_number((across ? re * ratio + im : re + im * ratio) / divisor,
                              (across ? im * ratio - re : im - re * ratio) / divisor);
    }
    __device__ __forceinline__ complex_number operator-(const complex_number &b) const {
        return complex_number(re - b.re, im - b.im);
    }
    __device__ __forceinline__ complex_number operator+(const complex_number &b) const {
        return complex_number(re + b.re, im + b.im);
    }
    __device__ __forceinline__ complex_number &operator*=(const complex_number &b) {
        return *this = *this * b;
    }
    __device__ __forceinline__ complex_number &operator/=(const complex_number &b) {
        return *this = *this / b;
    }
    __device__ __forceinline__ complex_number &operator-=(const complex_number &b) {
        return *this = *this - b;
    }
    __device__ __forceinline__ complex_number &operator+=(const complex_number &b) {
        return *this = *this + b;
    }
    __device__ __forceinline__ bool operator==(const complex_number &b) const {
        return re == b.re && im == b.im;
    }
    __device__ __forceinline__ bool operator!=(const complex_number &b) const {
        return !(*this == b);
    }
};

/* Of the elements of matrices: the real type of their precision, and the type of theirs in f64. */
template <class T> struct element_of {
    typedef T part;
    typedef double wide;
    enum { is_complex = false };
};
template <class R> struct element_of<complex_number<R>> {
    typedef R part;
    typedef complex_number<double> wide;
    enum { is_complex = true };
};

template <class T> __device__ __forceinline__ double real_of(T x) {
    return (double)x;
}
template <class R> __device__ __forceinline__ double real_of(const complex_number<R> &x) {
    return (double)x.re;
}
template <class T> __device__ __forceinline__ double imaginary_of(T) {
    return 0;
}
template <class R> __device__ __forceinline__ double imaginary_of(const complex_number<R> &x) {
    return (double)x.im;
}
template <class T> __device__ __forceinline__ T conjugate_of(T x) {
    return x;
}
template <class R> __device__ __forceinline__ complex_number<R> conjugate_of(const complex_number<R> &x) {
    return complex_number<R>(x.re, -x.im);
}
/* |re| + |im|, and the square of the magnitude. */
template <class T> __device__ __forceinline__ double size_of(const T &x) {
    return fabs(real_of(x)) + fabs(imaginary_of(x));
}
template <class T> __device__ __forceinline__ double square_of(const T &x) {
    return real_of(x) * real_of(x) + imaginary_of(x) * imaginary_of(x);
}
/* An element of two parts; of a real one the second one is 0. */
template <class T> __device__ __forceinline__ T element_make(double re, double im) {
    if constexpr (element_of<T>::is_complex) {
        return T((typename element_of<T>::part)re, (typename element_of<T>::part)im);
    } else {
        return (T)re;
    }
}

/* A block's threads, spread over the elements of a matrix with rows of this width: `columns` of them over a row, a power of two, and as many
 * rows at a time as there are threads for. Then no element needs a division. */
struct spread {
    uint32_t row, column;   /* where the thread begins */
    uint32_t rows, columns; /* and its steps */
    __device__ __forceinline__ explicit spread(int64_t width) {
        uint32_t shift = 0;
        while ((1 << shift) < SPACE_THREADS && (1 << shift) < width) {
            shift++;
        }
        columns = 1u << shift;
        rows = SPACE_THREADS >> shift;
        row = threadIdx.x >> shift;
        column = threadIdx.x & (columns - 1);
    }
};

/* What all threads of a block work on. */
template <typename T> struct place {
    T *a, *b, *tau;
    int64_t *order;
    int64_t m, n, r;
};

/* The report is host memory. What a matrix reports is one word, so that blocks which write at the same time do not mix theirs; `limit`, the
 * extent, is the same for all. The code comes last. By all threads of a block. */
__device__ __forceinline__ void report_singular(struct report *report, int64_t n, int64_t number, int64_t row) {
    if (threadIdx.x == 0 && *(volatile report_code *)&report->code == STATUS_OK) {
        *(volatile int64_t *)&report->limit = n;
        *(volatile int64_t *)&report->value = number * n + row;
        __threadfence_system();
        *(volatile report_code *)&report->code = STATUS_SINGULAR;
    }
}

/* The sum over the block, for all threads; the same at each run. */
__device__ __forceinline__ double block_sum(double value) {
    __shared__ double sums[SPACE_THREADS];
    sums[threadIdx.x] = value;
    __syncthreads();
    for (uint32_t width = SPACE_THREADS / 2; width > 0; width /= 2) {
        if (threadIdx.x < width) {
            sums[threadIdx.x] += sums[threadIdx.x + width];
        }
        __syncthreads();
    }
    const double sum = sums[0];
    __syncthreads();
    return sum;
}

/* x's columns become (I - tau v vᴴ) · x, or with `inverse` that with the conjugate of tau, for v in column k of a below its diagonal, where it
 * is 1. */
template <typename T>
__device__ void reflect(const struct place<T> &own, int64_t k, bool inverse, T *x, int64_t columns, int64_t first) {
    const T tau = inverse ? conjugate_of(own.tau[k]) : own.tau[k];
#pragma unroll 1
    for (int64_t j = first + threadIdx.x; j < columns; j += SPACE_THREADS) {
        T product = x[k * columns + j];
#pragma unroll 1
        for (int64_t i = k + 1; i < own.m; i++) {
            product += conjugate_of(own.a[i * own.n + k]) * x[i * columns + j];
        }
        product *= tau;
        x[k * columns + j] -= product;
#pragma unroll 1
        for (int64_t i = k + 1; i < own.m; i++) {
            x[i * columns + j] -= own.a[i * own.n + k] * product;
        }
    }
    __syncthreads();
}

/* R, whose diagonal is real, and, below it, the vectors of the reflections in the place of a. */
template <typename T> __device__ void triangulate(const struct place<T> &own) {
    typedef typename element_of<T>::wide W;
    const int64_t steps = own.m < own.n ? own.m : own.n;
#pragma unroll 1
    for (int64_t k = 0; k < steps; k++) {
        double below = 0;
#pragma unroll 1
        for (int64_t i = k + 1 + threadIdx.x; i < own.m; i += SPACE_THREADS) {
            below += square_of(own.a[i * own.n + k]);
        }
        below = block_sum(below);
        const W alpha = (W)own.a[k * own.n + k];
        const double re = real_of(alpha), im = imaginary_of(alpha);
        const bool turns = below != 0 || im != 0;
        const double beta = turns ? -copysign(sqrt(re * re + im * im + below), re) : re;
        __syncthreads();
#pragma unroll 1
        for (int64_t i = k + 1 + threadIdx.x; i < own.m && turns; i += SPACE_THREADS) {
            own.a[i * own.n + k] = (T)((W)own.a[i * own.n + k] / (alpha - (W)beta));
        }
        if (threadIdx.x == 0) {
            own.tau[k] = turns ? element_make<T>((beta - re) / beta, -im / beta) : (T)0;
        }
        __syncthreads();
        reflect(own, k, true, own.a, own.n, k + 1);
        if (threadIdx.x == 0) {
            own.a[k * own.n + k] = (T)beta;
        }
        __syncthreads();
    }
}

} // namespace

/* The place of a dtype in tables of kernels. */
enum { DECOMPOSE_DTYPES = 4 };
static inline int decompose_dtype(unsigned dtype) {
    return dtype == DTYPE_F32 ? 0 : dtype == DTYPE_F64 ? 1 : dtype == DTYPE_C64 ? 2 : 3;
}

static inline int64_t rounded(int64_t bytes) {
    return (bytes + 63) & ~INT64_C(63);
}

/* What own kernels take, where cuSOLVER does not take the launch: a matrix has one multiprocessor. Never more than some estimate: no device has
 * measured it. */
static inline uint64_t decompose_weight(struct device *device, const struct launch *launch, uint64_t ns) {
    const struct cuda *cuda = cuda_of(device);
    const int64_t *shape = launch->inputs[0].shape;
    const double block_flop = 1.5; /* of f32 or f64 in a nanosecond: an element is read and written for two */
    const double m = (double)shape[1], n = (double)shape[2], rounds = ceil((double)shape[0] / cuda->processors);
    const double columns = launch->n_inputs == 2 ? (double)launch->inputs[1].shape[2] : 0; /* right-hand sides */
    const double factors =
        launch->opcode == OP_TRIANGULAR_SOLVE ? 0 : op_info(launch->opcode)->flop * m * n * (m < n ? m : n);
    const double flop = (factors + 2 * m * n * columns) * (decompose_dtype(launch->inputs[0].dtype) < 2 ? 1 : 4);
    const double own = rounds * flop / block_flop;
    if (solver_workspace(cuda, launch) || own <= (double)ns) {
        return ns;
    }
    return own < 5e16 ? (uint64_t)own : (uint64_t)5e16;
}

static inline bool decompose_waits(struct device *device, const struct launch *launch) {
    return solver_waits(cuda_of(device), launch);
}
