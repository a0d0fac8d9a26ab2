/* Eigenvalues and singular values by Jacobi's rotations: a block for each matrix, which it brings to a diagonal in the workspace. In each round
 * of a sweep the rows go in pairs that have no row in common, so all pairs are rotated at the same time; after as many rounds as
 * there are rows less one, each has met each other one. That suits batches of matrices; a single large matrix has one
 * multiprocessor, unless cuSOLVER is there (solver.h).
 *
 * Symmetric matrices: rotations from both sides (Golub, Van Loan: "Matrix Computations", 8.5). Others: rotations from one side, until all rows
 * are orthogonal (Hestenes, 1958): then their lengths are the singular values. Of complex matrices one row of a pair is first multiplied by a
 * number of magnitude 1, so that the element to be removed, or the product of the rows, is real. The matrix is scaled by a power of two first. */
#include "engine/cuda/decompose.cuh"
#include "engine/cuda/solver.h"

namespace {

enum {
    WARP = 32,
    SWEEPS_MOST = 60, /* 6 to 12 are usual */
};

struct spectral_arguments {
    const char *a;
    char *values, *left, *right; /* eigenvectors are `left` */
    char *workspace;
    int64_t batch, m, n;  /* m >= n: of a matrix, or of its transpose if that is `across` */
    int64_t columns;      /* left vectors that are wanted */
    int64_t place;        /* bytes of a matrix's part of the workspace, and where in it there are: */
    int64_t vectors_at;   /* right vectors, row by row, */
    int64_t rotations_at; /* rotations of a round, or squares of rows' lengths, f64, */
    int64_t order_at;     /* the place of each value in the result, */
    int64_t basis_at;     /* what completes the left vectors: reflections' vectors, their factors, and the identity */
    int64_t factors_at, identity_at;
    bool upper, across;
};

/* The greatest magnitude of what the threads of a block give; NaN if one is NaN or infinite. */
__device__ __forceinline__ double block_greatest(double magnitude) {
    __shared__ double most[SPACE_THREADS];
    most[threadIdx.x] = magnitude;
    __syncthreads();
    for (uint32_t width = SPACE_THREADS / 2; width > 0; width /= 2) {
        if (threadIdx.x < width) {
            const double other = most[threadIdx.x + width];
            most[threadIdx.x] = other > most[threadIdx.x] || isnan(other) ? other : most[threadIdx.x];
        }
        __syncthreads();
    }
    const double greatest = most[0];
    __syncthreads();
    return isinf(greatest) ? nan("") : greatest;
}

__device__ __forceinline__ double warp_sum(double x) {
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, distance, WARP);
    }
    return x;
}

/* The rows of pair `pair` in a round, of so many rows and, if that is odd, one that is none: all but the last one go round in a ring, and the
 * last one meets the one that the ring's turn leaves over. False: one of the two is none. */
__device__ __forceinline__ bool pair_rows(int64_t pair, int64_t round, int64_t n, int64_t *p, int64_t *q) {
    const int64_t ring = n + n % 2 - 1;
    int64_t first = pair == 0 ? ring : (round + pair) % ring, second = (round + ring - pair) % ring;
    *p = first < second ? first : second;
    *q = first < second ? second : first;
    return *q < n;
}

/* The tangent of the angle at which a rotation makes `between` 0; a and b are what stands on the diagonal. */
__device__ __forceinline__ double tangent(double a, double b, double between) {
    const double theta = (b - a) / (2 * between);
    return copysign(1.0, theta) / (fabs(theta) + sqrt(theta * theta + 1));
}

template <typename T> __device__ __forceinline__ double epsilon() {
    return sizeof(typename element_of<T>::part) == 8 ? 0x1p-53 : 0x1p-24;
}

/* A rotation. `turn` is a number of magnitude 1 that the second of two rows is multiplied by first, so that what is to become 0 is real; of real
 * rows it is 1. */
template <typename T> struct turned_rotation {
    typename element_of<T>::part c, s;
    T turn;
};

template <typename R> __device__ __forceinline__ R turned(R, R y) {
    return y;
}
template <typename R>
__device__ __forceinline__ complex_number<R> turned(const complex_number<R> &turn, const complex_number<R> &y) {
    return turn * y;
}
template <typename R> __device__ __forceinline__ R times(R c, R x) {
    return c * x;
}
template <typename R> __device__ __forceinline__ complex_number<R> times(R c, const complex_number<R> &x) {
    return complex_number<R>(c * x.re, c * x.im);
}

/* Rows p and q become c · p - s · turn · q and s · p + c · turn · q, by `lanes` threads. */
template <typename T>
__device__ __forceinline__ void rotate_rows(T *p, T *q, int64_t n, const struct turned_rotation<T> &r, int64_t lane,
                                            int64_t lanes) {
#pragma unroll 1
    for (int64_t i = lane; i < n; i += lanes) {
        const T x = p[i], y = turned(r.turn, q[i]);
        p[i] = times(r.c, x) - times(r.s, y);
        q[i] = times(r.s, x) + times(r.c, y);
    }
}

/* `between` with a magnitude of `size`, divided by that; of real numbers nothing is turned. */
template <typename T> __device__ __forceinline__ T turn_of(const typename element_of<T>::wide &between, double size) {
    if constexpr (element_of<T>::is_complex) {
        return element_make<T>(between.re / size, between.im / size);
    } else {
        return (T)1;
    }
}

/* What a rotation is made of: the magnitude of complex numbers, and real ones as they are. */
__device__ __forceinline__ double length_of(double x) {
    return x;
}
__device__ __forceinline__ double length_of(const complex_number<double> &x) {
    return hypot(x.re, x.im);
}

__device__ __forceinline__ complex_number<double> warp_sum(const complex_number<double> &x) {
    return complex_number<double>(warp_sum(x.re), warp_sum(x.im));
}

/* Divides rows by their lengths, which are 1 but for rounding: a turn's magnitude is 1 less or more some rounding error, and a row of complex
 * numbers is turned some hundred times. */
template <typename T> __device__ void set_lengths(T *rows, int64_t n) {
#pragma unroll 1
    for (int64_t k = threadIdx.x / WARP; k < n; k += SPACE_THREADS / WARP) {
        T *row = rows + k * n;
        double sum = 0;
#pragma unroll 1
        for (int64_t i = threadIdx.x % WARP; i < n; i += WARP) {
            sum += square_of(row[i]);
        }
        const double length = sqrt(warp_sum(sum));
#pragma unroll 1
        for (int64_t i = threadIdx.x % WARP; i < n; i += WARP) {
            row[i] = element_make<T>(real_of(row[i]) / length, imaginary_of(row[i]) / length);
        }
    }
    __syncthreads();
}

template <typename T> __device__ void set_identity(T *x, int64_t rows, int64_t columns) {
#pragma unroll 1
    for (int64_t e = threadIdx.x; e < rows * columns; e += SPACE_THREADS) {
        x[e] = (T)(e / columns == e % columns);
    }
}

template <typename T> __device__ void fill_nan(char *out, int64_t number, int64_t elements) {
    T *to = (T *)out + number * elements;
#pragma unroll 1
    for (int64_t e = threadIdx.x; e < elements && out; e += SPACE_THREADS) {
        to[e] = element_make<T>(nan(""), nan(""));
    }
}

/* ---- symmetric matrices ---- */

/* For each pair of a round: cosine, sine, the new elements of the diagonal, and by what the second row is turned. */
struct pair_rotation {
    double c, s, p, q, re, im;
};

template <typename T>
__device__ __forceinline__ struct turned_rotation<T> rotation_of(const struct pair_rotation &r, bool conjugate) {
    typedef typename element_of<T>::part R;
    return {(R)r.c, (R)r.s, element_make<T>(r.re, conjugate ? -r.im : r.im)};
}

/* One round. Returns whether a thread has rotated. */
template <typename T>
__device__ bool rotate_round(T *a, T *vectors, struct pair_rotation *rotations, int64_t n, int64_t round) {
    const int64_t pairs = (n + 1) / 2;
    bool rotated = false;
#pragma unroll 1
    for (int64_t i = threadIdx.x; i < pairs; i += SPACE_THREADS) {
        int64_t p, q;
        struct pair_rotation own = {1, 0, 0, 0, 1, 0};
        if (pair_rows(i, round, n, &p, &q)) {
            const typename element_of<T>::wide element = (typename element_of<T>::wide)a[p * n + q];
            const double between = length_of(element);
            own.p = real_of(a[p * n + p]);
            own.q = real_of(a[q * n + q]);
            if (fabs(between) > epsilon<T>() / 4) {
                own.re = element_of<T>::is_complex ? real_of(element) / between : 1;
                own.im = imaginary_of(element) / between;
                const double t = tangent(own.p, own.q, between);
                own.c = 1 / sqrt(t * t + 1);
                own.s = t * own.c;
                own.p -= t * between;
                own.q += t * between;
                rotated = true;
            }
        }
        rotations[i] = own;
    }
    __syncthreads();
    const spread along(n);
#pragma unroll 1
    for (int64_t i = along.row; i < pairs; i += along.rows) {
        int64_t p, q;
        if (!pair_rows(i, round, n, &p, &q) || rotations[i].s == 0) {
            continue;
        }
        const struct turned_rotation<T> own = rotation_of<T>(rotations[i], false);
#pragma unroll 1
        for (int64_t k = along.column; k < n; k += along.columns) {
            rotate_rows(a + p * n + k, a + q * n + k, 1, own, 0, 1);
            if (vectors) {
                rotate_rows(vectors + p * n + k, vectors + q * n + k, 1, own, 0, 1);
            }
        }
    }
    __syncthreads();
    const spread across(pairs);
#pragma unroll 1
    for (int64_t i = across.column; i < pairs; i += across.columns) {
        int64_t p, q;
        if (!pair_rows(i, round, n, &p, &q) || rotations[i].s == 0) {
            continue;
        }
        const struct turned_rotation<T> own = rotation_of<T>(rotations[i], true);
#pragma unroll 1
        for (int64_t k = across.row; k < n; k += across.rows) {
            rotate_rows(a + k * n + p, a + k * n + q, 1, own, 0, 1);
        }
    }
    __syncthreads();
#pragma unroll 1
    for (int64_t i = threadIdx.x; i < pairs; i += SPACE_THREADS) {
        int64_t p, q;
        if (pair_rows(i, round, n, &p, &q) && rotations[i].s != 0) {
            a[p * n + p] = (T)rotations[i].p;
            a[q * n + q] = (T)rotations[i].q;
            a[p * n + q] = a[q * n + p] = (T)0;
        }
    }
    __syncthreads();
    return rotated;
}

/* Sweeps until none rotates. False: they did not end. */
template <typename T> __device__ bool diagonalise(T *a, T *vectors, struct pair_rotation *rotations, int64_t n) {
#pragma unroll 1
    for (int sweep = 0; sweep < SWEEPS_MOST; sweep++) {
        bool rotated = false;
#pragma unroll 1
        for (int64_t round = 0; round < n + n % 2 - 1; round++) {
            rotated |= rotate_round(a, vectors, rotations, n, round);
        }
        if (!__syncthreads_or(rotated)) {
            return true;
        }
    }
    return false;
}

/* Element i, j of the symmetric or Hermitian matrix of which one triangle is read, and of its diagonal the real parts. */
template <typename T>
__device__ __forceinline__ T symmetric_element(const struct spectral_arguments &p, const T *from, int64_t i,
                                               int64_t j) {
    const bool read = p.upper ? j >= i : j <= i;
    const T element = read ? from[i * p.n + j] : conjugate_of(from[j * p.n + i]);
    return i == j ? (T)real_of(element) : element;
}

/* The greater of `most` and the parts' magnitudes; NaN if one is. */
template <typename T> __device__ __forceinline__ double greater_part(double most, const T &x) {
    const double re = fabs(real_of(x)), im = fabs(imaginary_of(x)), value = im > re || isnan(im) ? im : re;
    return value > most || isnan(value) ? value : most;
}

template <typename T> __device__ __forceinline__ T scaled(const T &x, int exponent) {
    return element_make<T>(ldexp(real_of(x), exponent), ldexp(imaginary_of(x), exponent));
}

/* One triangle of the operand, as the whole matrix, scaled; the exponent goes to *exponent. False: an element is not finite. */
template <typename T>
__device__ bool take_symmetric(const struct spectral_arguments &p, const T *from, T *a, int *exponent) {
    const int64_t n = p.n;
    double most = 0;
#pragma unroll 1
    for (int64_t e = threadIdx.x; e < n * n; e += SPACE_THREADS) {
        most = greater_part(most, symmetric_element(p, from, e / n, e % n));
    }
    most = block_greatest(most);
    *exponent = 0;
    if (isnan(most)) {
        return false;
    }
    frexp(most, exponent);
#pragma unroll 1
    for (int64_t e = threadIdx.x; e < n * n; e += SPACE_THREADS) {
        a[e] = scaled(symmetric_element(p, from, e / n, e % n), -*exponent);
    }
    __syncthreads();
    return true;
}

template <typename T, bool VECTORS>
__device__ void eigen_matrix(const struct spectral_arguments &p, char *memory, int64_t number) {
    typedef typename element_of<T>::part R;
    const int64_t n = p.n;
    T *a = (T *)memory, *vectors = VECTORS ? (T *)(memory + p.vectors_at) : nullptr;
    struct pair_rotation *rotations = (struct pair_rotation *)(memory + p.rotations_at);
    int64_t *order = (int64_t *)(memory + p.order_at);
    int exponent;
    bool found = take_symmetric(p, (const T *)p.a + number * n * n, a, &exponent);
    if (found) {
        if (VECTORS) {
            set_identity(vectors, n, n);
        }
        __syncthreads();
        found = diagonalise(a, vectors, rotations, n);
    }
    if (!found) {
        fill_nan<R>(p.values, number, n);
        fill_nan<T>(p.left, number, n * n);
        return;
    }
#pragma unroll 1
    for (int64_t i = threadIdx.x; i < n; i += SPACE_THREADS) {
        const double own = real_of(a[i * n + i]);
        int64_t rank = 0;
#pragma unroll 1
        for (int64_t j = 0; j < n; j++) {
            const double other = real_of(a[j * n + j]);
            rank += other < own || (other == own && j < i);
        }
        order[i] = rank;
        ((R *)p.values)[number * n + rank] = (R)ldexp(own, exponent);
    }
    __syncthreads();
    if (VECTORS) {
        T *out = (T *)p.left + number * n * n;
        if constexpr (element_of<T>::is_complex) {
            set_lengths(vectors, n);
        }
#pragma unroll 1
        for (int64_t e = threadIdx.x; e < n * n; e += SPACE_THREADS) {
            out[e % n * n + order[e / n]] = conjugate_of(vectors[e]);
        }
    }
}

/* ---- singular values ---- */

/* The operand's matrix as n rows of m, scaled; the exponent goes to *exponent. False: an element is not finite. */
template <typename T>
__device__ bool take_rows(const struct spectral_arguments &p, const T *from, T *rows, int *exponent) {
    double most = 0;
#pragma unroll 1
    for (int64_t e = threadIdx.x; e < p.m * p.n; e += SPACE_THREADS) {
        most = greater_part(most, from[e]);
    }
    most = block_greatest(most);
    *exponent = 0;
    if (isnan(most)) {
        return false;
    }
    frexp(most, exponent);
#pragma unroll 1
    for (int64_t e = threadIdx.x; e < p.m * p.n; e += SPACE_THREADS) {
        rows[p.across ? e : e % p.n * p.m + e / p.n] = scaled(from[e], -*exponent);
    }
    __syncthreads();
    return true;
}

/* The sum of the squares of all elements: rows whose own sum is below a small part of it count as 0. */
template <typename T> __device__ double negligible_square(const T *rows, int64_t count) {
    double sum = 0;
#pragma unroll 1
    for (int64_t e = threadIdx.x; e < count; e += SPACE_THREADS) {
        sum += square_of(rows[e]);
    }
    return block_sum(sum) * epsilon<T>() * epsilon<T>() / 16;
}

/* Makes all rows orthogonal that count. False: the sweeps did not end. */
template <typename T> __device__ bool orthogonalise(T *rows, T *vectors, int64_t m, int64_t n, double least_square) {
    typedef typename element_of<T>::part R;
    typedef typename element_of<T>::wide W;
    const double limit = epsilon<T>() * fmax(8.0, sqrt((double)m));
    const int64_t lane = threadIdx.x % WARP;
#pragma unroll 1
    for (int sweep = 0; sweep < SWEEPS_MOST; sweep++) {
        bool rotated = false;
#pragma unroll 1
        for (int64_t round = 0; round < n + n % 2 - 1; round++) {
#pragma unroll 1
            for (int64_t i = threadIdx.x / WARP; i < (n + 1) / 2;
                 i += SPACE_THREADS / WARP) { /* a warp for each pair */
                int64_t p, q;
                if (!pair_rows(i, round, n, &p, &q)) {
                    continue;
                }
                T *x = rows + p * m, *y = rows + q * m;
                double a = 0, b = 0;
                W product = (W)0;
#pragma unroll 1
                for (int64_t k = lane; k < m; k += WARP) {
                    a += square_of(x[k]);
                    b += square_of(y[k]);
                    product += (W)x[k] * conjugate_of((W)y[k]);
                }
                a = warp_sum(a);
                b = warp_sum(b);
                product = warp_sum(product);
                const double between = length_of(product);
                if (!(fmin(a, b) > least_square) || !(fabs(between) > limit * sqrt(a) * sqrt(b))) {
                    continue;
                }
                const double t = tangent(a, b, between), c = 1 / sqrt(t * t + 1);
                const struct turned_rotation<T> own = { (R) c, (R)(t *c), turn_of<T>(product, between) };
                rotate_rows(x, y, m, own, lane, WARP);
                if (vectors) {
                    rotate_rows(vectors + p * n, vectors + q * n, n, own, lane, WARP);
                }
                rotated = true;
            }
            __syncthreads();
        }
        if (!__syncthreads_or(rotated)) {
            return true;
        }
    }
    return false;
}

/* The left vectors: rows that count, divided by their lengths, and an orthonormal basis of what these leave over, of which the reflections that
 * triangulate them make the identity's further columns. Element i of vector k goes to out[i · row + k · column]. */
template <typename T>
__device__ void write_left(const struct spectral_arguments &p, char *memory, const T *rows, const double *squares,
                           const int64_t *order, int64_t good, T *out, int64_t row, int64_t column) {
    const struct place<T> own = {
        (T *)(memory + p.basis_at), (T *)(memory + p.identity_at), (T *)(memory + p.factors_at),
            nullptr, p.m, good, p.columns
    };
#pragma unroll 1
    for (int64_t e = threadIdx.x; e < p.m * p.n; e += SPACE_THREADS) {
        const int64_t k = e / p.m, i = e % p.m;
        if (order[k] < good) {
            const double length = sqrt(squares[k]);
            const T element = element_make<T>(real_of(rows[e]) / length, imaginary_of(rows[e]) / length);
            own.a[i * good + order[k]] = element;
            out[i * row + order[k] * column] = element;
        }
    }
    if (good == p.columns) {
        return;
    }
    set_identity(own.b, p.m, p.columns);
    __syncthreads();
    triangulate(own);
#pragma unroll 1
    for (int64_t k = good; k-- > 0;) {
        reflect(own, k, false, own.b, p.columns, good);
    }
#pragma unroll 1
    for (int64_t e = threadIdx.x; e < p.m * (p.columns - good); e += SPACE_THREADS) {
        const int64_t i = e / (p.columns - good), k = good + e % (p.columns - good);
        out[i * row + k * column] = own.b[i * p.columns + k];
    }
}

template <typename T, bool VECTORS>
__device__ void singular_matrix(const struct spectral_arguments &p, char *memory, int64_t number) {
    typedef typename element_of<T>::part R;
    const int64_t m = p.m, n = p.n;
    T *rows = (T *)memory, *vectors = VECTORS ? (T *)(memory + p.vectors_at) : nullptr;
    double *squares = (double *)(memory + p.rotations_at);
    int64_t *order = (int64_t *)(memory + p.order_at);
    int exponent;
    double least_square = 0;
    bool found = take_rows(p, (const T *)p.a + number * m * n, rows, &exponent);
    if (found) {
        if (VECTORS) {
            set_identity(vectors, n, n);
        }
        least_square = negligible_square(rows, m * n);
        found = orthogonalise(rows, vectors, m, n, least_square);
    }
    if (!found) {
        fill_nan<R>(p.values, number, n);
        fill_nan<T>(p.left, number, m * p.columns);
        fill_nan<T>(p.right, number, n * n);
        return;
    }
#pragma unroll 1
    for (int64_t k = threadIdx.x / WARP; k < n; k += SPACE_THREADS / WARP) {
        double sum = 0;
#pragma unroll 1
        for (int64_t i = threadIdx.x % WARP; i < m; i += WARP) {
            sum += square_of(rows[k * m + i]);
        }
        sum = warp_sum(sum);
        if (threadIdx.x % WARP == 0) {
            squares[k] = sum;
        }
    }
    __syncthreads();
    double counted = 0;
#pragma unroll 1
    for (int64_t k = threadIdx.x; k < n; k += SPACE_THREADS) {
        int64_t rank = 0;
#pragma unroll 1
        for (int64_t j = 0; j < n; j++) {
            rank += squares[j] > squares[k] || (squares[j] == squares[k] && j < k);
        }
        order[k] = rank;
        counted += squares[k] > least_square;
        ((R *)p.values)[number * n + rank] = (R)ldexp(sqrt(squares[k]), exponent);
    }
    const int64_t good = (int64_t)block_sum(counted); /* after it, all threads see the order */
    if (VECTORS) {
        T *left = (T *)p.left + number * m * p.columns, *right = (T *)p.right + number * n * n;
        if constexpr (element_of<T>::is_complex) {
            set_lengths(vectors, n);
        }
#pragma unroll 1
        for (int64_t e = threadIdx.x; e < n * n; e += SPACE_THREADS) {
            const int64_t rank = order[e / n], i = e % n;
            right[p.across ? i * n + rank : rank * n + i] = conjugate_of(vectors[e]);
        }
        write_left(p, memory, rows, squares, order, good, left, p.across ? (int64_t)1 : p.columns,
                   p.across ? m : (int64_t)1);
    }
}

template <typename T, bool VECTORS, bool SYMMETRIC>
__global__ void __launch_bounds__(SPACE_THREADS) spectral_kernel(const __grid_constant__ struct spectral_arguments p) {
#pragma unroll 1
    for (int64_t number = blockIdx.x; number < p.batch; number += gridDim.x) {
        char *memory = p.workspace + number * p.place;
        if constexpr (SYMMETRIC) {
            eigen_matrix<T, VECTORS>(p, memory, number);
        } else {
            singular_matrix<T, VECTORS>(p, memory, number);
        }
        __syncthreads();
    }
}

} // namespace

/* ---- the launcher ---- */

static bool is_symmetric(const struct launch *launch) {
    return launch->opcode == OP_EIGH || launch->opcode == OP_EIGVALSH;
}

static void spectral_plan(const struct launch *launch, struct spectral_arguments *p) {
    const struct operand *a = &launch->inputs[0];
    const int64_t size = (int64_t)dtype_size((enum dtype)a->dtype);
    p->batch = a->shape[0];
    p->across = a->shape[1] < a->shape[2];
    p->m = a->shape[p->across ? 2 : 1];
    p->n = a->shape[p->across ? 1 : 2];
    p->columns =
        launch->opcode == OP_SVD ? (p->across ? launch_further(launch, 2)->shape[1] : launch->output.shape[2]) : 0;
    p->vectors_at = rounded(p->m * p->n * size);
    p->rotations_at = p->vectors_at + rounded(p->n * p->n * size);
    p->order_at = p->rotations_at + rounded((p->n + 1) / 2 * (int64_t)sizeof(struct pair_rotation));
    p->basis_at = p->order_at + rounded(p->n * (int64_t)sizeof(int64_t));
    p->factors_at = p->basis_at + (p->columns ? rounded(p->m * p->n * size) : 0);
    p->identity_at = p->factors_at + rounded(p->n * size);
    p->place = p->identity_at + rounded(p->m * p->columns * size);
}

static uint64_t own_workspace(const struct launch *launch) {
    struct spectral_arguments p = {};
    spectral_plan(launch, &p);
    return (uint64_t)p.batch * (uint64_t)p.place;
}

static uint64_t spectral_workspace(struct device *device, const struct launch *launch) {
    const uint64_t own = own_workspace(launch), library = solver_workspace(cuda_of(device), launch);
    return library > own ? library : own;
}

#define KERNELS(vectors, symmetric)                                                                                    \
    {                                                                                                                  \
        (const void *)spectral_kernel<float, vectors, symmetric>,                                                      \
            (const void *)spectral_kernel<double, vectors, symmetric>,                                                 \
            (const void *)spectral_kernel<complex_number<float>, vectors, symmetric>,                                  \
            (const void *)spectral_kernel<complex_number<double>, vectors, symmetric>                                  \
    }
/* [whether it is eigh][with vectors] */
static const void *const spectral_kernels[2][2][DECOMPOSE_DTYPES] = {
    {KERNELS(false, false), KERNELS(true, false)},
    {KERNELS(false, true), KERNELS(true, true)},
};

static bool spectral_walk(cuda_kernel_seen *seen, void *context) {
    bool more = true;
    for (int i = 0; i < 4 * DECOMPOSE_DTYPES; i++) {
        more =
            more && seen(context, false,
                         spectral_kernels[i / (2 * DECOMPOSE_DTYPES)][i / DECOMPOSE_DTYPES % 2][i % DECOMPOSE_DTYPES]);
    }
    return more; /* cuSOLVER's are of decompose.cu's walk */
}

static int spectral_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch,
                        struct fault *fault) {
    struct spectral_arguments p = {};
    bool refused;
    int code = solver_run(cuda, stream, launch, &refused, fault);
    if (code != STATUS_OK || !refused) {
        return code;
    }
    spectral_plan(launch, &p);
    p.a = (const char *)launch->inputs[0].data;
    p.workspace = (char *)launch->workspace;
    p.values = (char *)launch->output.data;
    if (launch->opcode == OP_EIGH) {
        struct eigh_attributes attributes;
        eigh_attributes_read(&launch->attributes, &attributes);
        p.upper = attributes.upper;
        p.left = (char *)launch_further(launch, 1)->data;
    } else if (launch->opcode == OP_EIGVALSH) {
        struct eigvalsh_attributes attributes;
        eigvalsh_attributes_read(&launch->attributes, &attributes);
        p.upper = attributes.upper;
    } else if (launch->opcode == OP_SVD) {
        p.values = (char *)launch_further(launch, 1)->data;
        char *u = (char *)launch->output.data, *vh = (char *)launch_further(launch, 2)->data;
        p.left = p.across ? vh : u;
        p.right = p.across ? u : vh;
    }
    const bool vectors = launch->opcode == OP_EIGH || launch->opcode == OP_SVD;
    return space_start(spectral_kernels[is_symmetric(launch)][vectors][decompose_dtype(launch->inputs[0].dtype)],
                       space_blocks(cuda, p.batch), &p, fault, stream->stream);
}

#define SPECTRAL                                                                                                       \
    {                                                                                                                  \
        {.workspace = spectral_workspace, .weight = decompose_weight, .waits = decompose_waits}, spectral_run,         \
            spectral_walk, CUDA_CUSOLVER                                                                               \
    }
const struct cuda_kernel cuda_kernel_eigh = SPECTRAL;
const struct cuda_kernel cuda_kernel_eigvalsh = SPECTRAL;
const struct cuda_kernel cuda_kernel_svd = SPECTRAL;
const struct cuda_kernel cuda_kernel_svdvals = SPECTRAL;
