/* Decompositions and linear equations: a block for each matrix, which it factors in the workspace, row by row as it lies there. A step of
 * the elimination, or a reflection, is a pass of all threads over what is left of the matrix. That suits batches of matrices; a
 * single large matrix has one multiprocessor, unless cuSOLVER is there (solver.h). */
#include "engine/cuda/decompose.cuh"

namespace {

struct decompose_arguments {
    const char *a, *b;
    char *out[3];
    char *workspace; /* for each matrix: a copy of it, and of b */
    struct report *report;
    int64_t batch, m, n, r; /* of the matrices as they are factored, and columns of b */
    int64_t b_rows;         /* rows of the copy of b */
    int64_t rows, columns;  /* of the first output */
    int64_t place, b_at;    /* bytes of a matrix's part of the workspace, and where b begins in it */
    int64_t order_at;       /* where the exchanges of rows are, and the reflections' factors */
    int32_t opcode;
    bool upper, unit, across, identity; /* identity: there is no b */
};

__device__ __forceinline__ void singular(const struct decompose_arguments &p, int64_t number, int64_t row) {
    report_singular(p.report, p.n, number, row);
}

/* The row of the element of largest magnitude (of complex numbers |re| + |im|) in column k from row k on, the first one of equals. */
template <typename T> __device__ __forceinline__ int64_t block_pivot(const struct place<T> &own, int64_t k) {
    __shared__ double most[SPACE_THREADS];
    __shared__ int64_t rows[SPACE_THREADS];
    double best = -1;
    int64_t row = k;
#pragma unroll 1
    for (int64_t i = k + threadIdx.x; i < own.m; i += SPACE_THREADS) {
        const double value = size_of(own.a[i * own.n + k]);
        if (value > best) {
            best = value;
            row = i;
        }
    }
    most[threadIdx.x] = best;
    rows[threadIdx.x] = row;
    __syncthreads();
    for (uint32_t width = SPACE_THREADS / 2; width > 0; width /= 2) {
        if (threadIdx.x < width) {
            const double other = most[threadIdx.x + width];
            const int64_t other_row = rows[threadIdx.x + width];
            if (other > most[threadIdx.x] || (other == most[threadIdx.x] && other_row < rows[threadIdx.x])) {
                most[threadIdx.x] = other;
                rows[threadIdx.x] = other_row;
            }
        }
        __syncthreads();
    }
    const int64_t found = rows[0];
    __syncthreads();
    return found;
}

template <typename T> __device__ __forceinline__ void exchange(T *x, int64_t columns, int64_t a, int64_t b) {
#pragma unroll 1
    for (int64_t j = threadIdx.x; j < columns; j += SPACE_THREADS) {
        const T value = x[a * columns + j];
        x[a * columns + j] = x[b * columns + j];
        x[b * columns + j] = value;
    }
}

/* L and U in the place of a; `order` gets the rows in their new order, and b's rows are exchanged likewise. Returns the sign of the
 * exchanges. */
template <typename T> __device__ double eliminate(const struct place<T> &own) {
    const int64_t steps = own.m < own.n ? own.m : own.n;
    double sign = 1;
#pragma unroll 1
    for (int64_t i = threadIdx.x; i < own.m; i += SPACE_THREADS) {
        own.order[i] = i;
    }
    __syncthreads();
#pragma unroll 1
    for (int64_t k = 0; k < steps; k++) {
        const int64_t pivot = block_pivot(own, k);
        if (pivot != k) {
            sign = -sign;
            exchange(own.a, own.n, k, pivot);
            exchange(own.b, own.r, k, pivot);
            exchange(own.order, 1, k, pivot);
        }
        __syncthreads();
        const T divisor = own.a[k * own.n + k];
        if (divisor != (T)0) {
#pragma unroll 1
            for (int64_t i = k + 1 + threadIdx.x; i < own.m; i += SPACE_THREADS) {
                own.a[i * own.n + k] /= divisor;
            }
            __syncthreads();
            const spread over(own.n - k - 1);
#pragma unroll 1
            for (int64_t i = k + 1 + over.row; i < own.m; i += over.rows) {
                const T factor = own.a[i * own.n + k];
#pragma unroll 1
                for (int64_t j = k + 1 + over.column; j < own.n; j += over.columns) {
                    own.a[i * own.n + j] -= factor * own.a[k * own.n + j];
                }
            }
        }
        __syncthreads();
    }
    return sign;
}

/* b becomes the solution for a triangle of a; `transposed`: of the triangle's conjugate transpose. Each row's elements are taken in order. */
template <typename T>
__device__ void substitute(const T *a, int64_t stride, int64_t n, bool upper, bool unit, bool transposed, T *b,
                           int64_t r) {
    const bool backward = upper != transposed;
    const spread over(r);
#pragma unroll 1
    for (int64_t step = 0; step < n; step++) {
        const int64_t k = backward ? n - 1 - step : step, rest = n - 1 - step;
#pragma unroll 1
        for (int64_t j = threadIdx.x; j < r && !unit; j += SPACE_THREADS) {
            b[k * r + j] /= transposed ? conjugate_of(a[k * stride + k]) : a[k * stride + k];
        }
        __syncthreads();
#pragma unroll 1
        for (int64_t e = over.row; e < rest; e += over.rows) {
            const int64_t i = backward ? e : k + 1 + e;
            const T factor = transposed ? conjugate_of(a[k * stride + i]) : a[i * stride + k];
#pragma unroll 1
            for (int64_t j = over.column; j < r; j += over.columns) {
                b[i * r + j] -= factor * b[k * r + j];
            }
        }
        __syncthreads();
    }
}

/* Whether the diagonal has no 0; else that is reported. */
template <typename T>
__device__ bool diagonal_holds(const struct decompose_arguments &p, const T *a, int64_t stride, int64_t n,
                               int64_t number) {
    __shared__ unsigned long long zero;
    if (threadIdx.x == 0) {
        zero = ~0ull;
    }
    __syncthreads();
#pragma unroll 1
    for (int64_t i = threadIdx.x; i < n; i += SPACE_THREADS) {
        if (a[i * stride + i] == (T)0) {
            atomicMin(&zero, (unsigned long long)i);
        }
    }
    __syncthreads();
    const unsigned long long found = zero;
    __syncthreads();
    if (found == ~0ull) {
        return true;
    }
    singular(p, number, (int64_t)found);
    return false;
}

/* b is the identity, or the operand with zeros below it. */
template <typename T>
__device__ void prepare_b(const struct decompose_arguments &p, const struct place<T> &own, int64_t number) {
    const bool operand = !p.identity;
    const int64_t given = operand ? (p.across ? p.n : p.m) : 0;
    const T *b = operand ? (const T *)p.b + number * given * p.r : nullptr;
    const spread over(p.r);
#pragma unroll 1
    for (int64_t i = over.row; i < p.b_rows; i += over.rows) {
#pragma unroll 1
        for (int64_t j = over.column; j < p.r; j += over.columns) {
            const int64_t e = i * p.r + j;
            own.b[e] = operand ? (i < given ? b[e] : (T)0) : (T)(i == j);
        }
    }
    __syncthreads();
}

template <typename T>
__device__ void write_b(const struct decompose_arguments &p, const struct place<T> &own, int64_t number) {
    T *out = (T *)p.out[0] + number * p.rows * p.columns;
    __syncthreads();
#pragma unroll 1
    for (int64_t e = threadIdx.x; e < p.rows * p.columns; e += SPACE_THREADS) {
        out[e] = own.b[e];
    }
}

template <typename T> __device__ void decompose_cholesky(const struct decompose_arguments &p, int64_t number) {
    const int64_t n = p.n;
    const T *a = (const T *)p.a + number * n * n;
    T *out = (T *)p.out[0] + number * n * n;
    const spread over(n);
#pragma unroll 1
    for (int64_t i = over.row; i < n; i += over.rows) {
#pragma unroll 1
        for (int64_t j = over.column; j < n; j += over.columns) {
            out[i * n + j] = (p.upper ? j >= i : j <= i) ? a[i * n + j] : (T)0;
        }
    }
    __syncthreads();
    /* Of column k of L, or row k of U: element i lies at k · down + i · along. */
    const int64_t along = p.upper ? 1 : n, down = p.upper ? n : 1;
#pragma unroll 1
    for (int64_t k = 0; k < n; k++) {
        const double pivot = real_of(out[k * n + k]);
        if (!(pivot > 0)) {
            singular(p, number, k);
            return;
        }
        const T root = (T)sqrt(pivot);
        __syncthreads();
#pragma unroll 1
        for (int64_t i = k + threadIdx.x; i < n; i += SPACE_THREADS) {
            out[k * down + i * along] = i == k ? root : out[k * down + i * along] / root;
        }
        __syncthreads();
        const spread rest(n - k - 1);
#pragma unroll 1
        for (int64_t i = k + 1 + rest.row; i < n; i += rest.rows) {
            const T first = out[k * down + i * along];
#pragma unroll 1
            for (int64_t j = k + 1 + rest.column; j < n; j += rest.columns) {
                if (p.upper ? j >= i : j <= i) {
                    const T second = out[k * down + j * along];
                    out[i * n + j] -= p.upper ? conjugate_of(first) * second : first * conjugate_of(second);
                }
            }
        }
        __syncthreads();
    }
}

template <typename T> __device__ void decompose_triangular(const struct decompose_arguments &p, int64_t number) {
    const T *a = (const T *)p.a + number * p.n * p.n, *b = (const T *)p.b + number * p.n * p.r;
    T *out = (T *)p.out[0] + number * p.n * p.r;
    if (!p.unit && !diagonal_holds(p, a, p.n, p.n, number)) {
        return;
    }
#pragma unroll 1
    for (int64_t e = threadIdx.x; e < p.n * p.r; e += SPACE_THREADS) {
        out[e] = b[e];
    }
    __syncthreads();
    substitute(a, p.n, p.n, p.upper, p.unit, false, out, p.r);
}

template <typename T>
__device__ void decompose_lu(const struct decompose_arguments &p, const struct place<T> &own, int64_t number) {
    const int64_t m = p.m, n = p.n, k = m < n ? m : n;
    T *permutation = (T *)p.out[0] + number * m * m, *l = (T *)p.out[1] + number * m * k,
      *u = (T *)p.out[2] + number * k * n;
    eliminate(own);
    const spread over(m > n ? m : n);
#pragma unroll 1
    for (int64_t i = over.row; i < m; i += over.rows) {
#pragma unroll 1
        for (int64_t j = over.column; j < m; j += over.columns) {
            permutation[i * m + j] = (T)(own.order[j] == i);
        }
#pragma unroll 1
        for (int64_t j = over.column; j < k; j += over.columns) {
            l[i * k + j] = i > j ? own.a[i * n + j] : (T)(i == j);
        }
#pragma unroll 1
        for (int64_t j = over.column; j < n && i < k; j += over.columns) {
            u[i * n + j] = i <= j ? own.a[i * n + j] : (T)0;
        }
    }
}

template <typename T>
__device__ void decompose_det(const struct decompose_arguments &p, const struct place<T> &own, int64_t number) {
    typedef typename element_of<T>::wide W;
    typedef typename element_of<T>::part R;
    W product = (W)eliminate(own), sign = product;
    if (threadIdx.x != 0) {
        return;
    }
    double sum = 0;
#pragma unroll 1
    for (int64_t i = 0; i < p.n; i++) {
        const W pivot = (W)own.a[i * p.n + i];
        const double size =
            element_of<T>::is_complex ? hypot(real_of(pivot), imaginary_of(pivot)) : fabs(real_of(pivot));
        product *= pivot;
        sum += log(size);
        sign *= size == 0 ? (W)0 : pivot / (W)size;
    }
    if (p.opcode == OP_DET) {
        ((T *)p.out[0])[number] = (T)product;
        return;
    }
    ((T *)p.out[0])[number] = (T)(product != product ? product : sign);
    ((R *)p.out[1])[number] = (R)sum;
}

template <typename T>
__device__ void decompose_qr(const struct decompose_arguments &p, const struct place<T> &own, int64_t number) {
    const int64_t steps = p.m < p.n ? p.m : p.n, width = p.columns;
    T *r = (T *)p.out[1] + number * width * p.n;
    triangulate(own);
    prepare_b(p, own, number);
#pragma unroll 1
    for (int64_t k = steps; k-- > 0;) {
        reflect(own, k, false, own.b, p.r, k);
    }
    write_b(p, own, number);
    const spread over(p.n);
#pragma unroll 1
    for (int64_t i = over.row; i < width; i += over.rows) {
#pragma unroll 1
        for (int64_t j = over.column; j < p.n; j += over.columns) {
            r[i * p.n + j] = i <= j && i < steps ? own.a[i * p.n + j] : (T)0;
        }
    }
}

template <typename T>
__device__ void decompose_lstsq(const struct decompose_arguments &p, const struct place<T> &own, int64_t number) {
    triangulate(own);
    if (!diagonal_holds(p, own.a, p.n, p.n, number)) {
        return;
    }
    prepare_b(p, own, number);
    if (p.across) {
        substitute(own.a, p.n, p.n, true, false, true, own.b, p.r);
#pragma unroll 1
        for (int64_t k = p.n; k-- > 0;) {
            reflect(own, k, false, own.b, p.r, 0);
        }
    } else {
#pragma unroll 1
        for (int64_t k = 0; k < p.n; k++) {
            reflect(own, k, true, own.b, p.r, 0);
        }
        substitute(own.a, p.n, p.n, true, false, false, own.b, p.r);
    }
    write_b(p, own, number);
}

template <typename T>
__device__ void decompose_solve(const struct decompose_arguments &p, const struct place<T> &own, int64_t number) {
    prepare_b(p, own, number);
    eliminate(own);
    if (!diagonal_holds(p, own.a, p.n, p.n, number)) {
        return;
    }
    substitute(own.a, p.n, p.n, false, true, false, own.b, p.r);
    substitute(own.a, p.n, p.n, true, false, false, own.b, p.r);
    write_b(p, own, number);
}

/* A kernel for each operation, so that none needs the registers of another; solve is also the inverse, and det slogdet. */
template <typename T, int OPCODE>
__global__ void __launch_bounds__(SPACE_THREADS)
    decompose_kernel(const __grid_constant__ struct decompose_arguments p) {
#pragma unroll 1
    for (int64_t number = blockIdx.x; number < p.batch; number += gridDim.x) {
        if constexpr (OPCODE == OP_CHOLESKY) {
            decompose_cholesky<T>(p, number);
        } else if constexpr (OPCODE == OP_TRIANGULAR_SOLVE) {
            decompose_triangular<T>(p, number);
        } else {
            char *memory = p.workspace + number * p.place;
            const struct place<T> own = {
                (T *)memory, (T *)(memory + p.b_at), (T *)(memory + p.order_at),
                    (int64_t *)(memory + p.order_at), p.m, p.n, OPCODE == OP_LU ? 0 : p.r
            };
            const T *a = (const T *)p.a + number * p.m * p.n;
            const spread over(p.n);
#pragma unroll 1
            for (int64_t i = over.row; i < p.m; i += over.rows) {
#pragma unroll 1
                for (int64_t j = over.column; j < p.n; j += over.columns) {
                    own.a[i * p.n + j] = p.across ? conjugate_of(a[j * p.m + i]) : a[i * p.n + j];
                }
            }
            __syncthreads();
            if constexpr (OPCODE == OP_LU) {
                decompose_lu(p, own, number);
            } else if constexpr (OPCODE == OP_QR) {
                decompose_qr(p, own, number);
            } else if constexpr (OPCODE == OP_LSTSQ) {
                decompose_lstsq(p, own, number);
            } else if constexpr (OPCODE == OP_DET) {
                decompose_det(p, own, number);
            } else {
                decompose_solve(p, own, number);
            }
        }
        __syncthreads();
    }
}

} // namespace

/* ---- the launcher ---- */

static void decompose_plan(const struct launch *launch, struct decompose_arguments *p) {
    const struct operand *a = &launch->inputs[0], *out = &launch->output;
    const int64_t size = (int64_t)dtype_size((enum dtype)a->dtype);
    p->opcode = launch->opcode;
    p->batch = a->shape[0];
    p->across = launch->opcode == OP_LSTSQ && a->shape[1] < a->shape[2];
    p->m = a->shape[p->across ? 2 : 1];
    p->n = a->shape[p->across ? 1 : 2];
    p->rows = out->shape[1];
    p->columns = out->shape[2];
    p->r = launch->n_inputs == 2                                 ? launch->inputs[1].shape[2]
           : launch->opcode == OP_INV || launch->opcode == OP_QR ? p->columns
                                                                 : 0;
    p->b_rows = p->r ? p->m : 0;
    p->b_at = rounded(p->m * p->n * size);
    p->order_at = p->b_at + rounded(p->b_rows * p->r * size);
    p->place = p->order_at + rounded(p->m * (int64_t)sizeof(int64_t));
}

static uint64_t own_workspace(const struct launch *launch) {
    struct decompose_arguments p = {};
    if (launch->opcode == OP_CHOLESKY || launch->opcode == OP_TRIANGULAR_SOLVE) {
        return 0;
    }
    decompose_plan(launch, &p);
    return (uint64_t)p.batch * (uint64_t)p.place;
}

static uint64_t decompose_workspace(struct device *device, const struct launch *launch) {
    const uint64_t own = own_workspace(launch), library = solver_workspace(cuda_of(device), launch);
    return library > own ? library : own;
}

struct decompose_entry {
    int opcode;
    const void *kernels[DECOMPOSE_DTYPES];
};

#define ENTRY(opcode, kernel)                                                                                          \
    {                                                                                                                  \
        opcode, {                                                                                                      \
            (const void *)decompose_kernel<float, kernel>, (const void *)decompose_kernel<double, kernel>,             \
                (const void *)decompose_kernel<complex_number<float>, kernel>,                                         \
                (const void *)decompose_kernel<complex_number<double>, kernel>                                         \
        }                                                                                                              \
    }
static const struct decompose_entry decompose_entries[] = {
    ENTRY(OP_CHOLESKY, OP_CHOLESKY),
    ENTRY(OP_TRIANGULAR_SOLVE, OP_TRIANGULAR_SOLVE),
    ENTRY(OP_LU, OP_LU),
    ENTRY(OP_QR, OP_QR),
    ENTRY(OP_LSTSQ, OP_LSTSQ),
    ENTRY(OP_DET, OP_DET),
    ENTRY(OP_SLOGDET, OP_DET),
    ENTRY(OP_SOLVE, OP_SOLVE),
    ENTRY(OP_INV, OP_SOLVE),
};

static bool decompose_walk(cuda_kernel_seen *seen, void *context) {
    bool more = true;
    for (const struct decompose_entry &entry : decompose_entries) {
        for (const void *kernel : entry.kernels) {
            more = more && seen(context, false, kernel);
        }
    }
    return more && solver_walk(seen, context);
}

static int decompose_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch,
                         struct fault *fault) {
    struct decompose_arguments p = {};
    bool refused;
    int code = solver_run(cuda, stream, launch, &refused, fault);
    if (code != STATUS_OK || !refused) {
        return code;
    }
    decompose_plan(launch, &p);
    p.a = (const char *)launch->inputs[0].data;
    p.b = launch->n_inputs == 2 ? (const char *)launch->inputs[1].data : nullptr;
    p.out[0] = (char *)launch->output.data;
    for (unsigned i = 0; i < launch->further && i < 2; i++) {
        p.out[i + 1] = (char *)launch_further(launch, i + 1)->data;
    }
    p.identity = launch->n_inputs == 1;
    p.workspace = (char *)launch->workspace;
    p.report = launch->report;
    if (launch->opcode == OP_CHOLESKY) {
        struct cholesky_attributes attributes;
        cholesky_attributes_read(&launch->attributes, &attributes);
        p.upper = attributes.upper;
    } else if (launch->opcode == OP_TRIANGULAR_SOLVE) {
        struct triangular_solve_attributes attributes;
        triangular_solve_attributes_read(&launch->attributes, &attributes);
        p.upper = attributes.upper;
        p.unit = attributes.unit_diagonal;
    }
    for (const struct decompose_entry &entry : decompose_entries) {
        if (entry.opcode == launch->opcode) {
            return space_start(entry.kernels[decompose_dtype(launch->inputs[0].dtype)], space_blocks(cuda, p.batch), &p,
                               fault, stream->stream);
        }
    }
    return fault_set(fault, STATUS_INTERNAL, "%s has no kernel", op_info(launch->opcode)->name);
}

#define DECOMPOSE                                                                                                      \
    {                                                                                                                  \
        {.workspace = decompose_workspace, .weight = decompose_weight, .waits = decompose_waits}, decompose_run,       \
            decompose_walk, CUDA_CUSOLVER                                                                              \
    }
const struct cuda_kernel cuda_kernel_cholesky = DECOMPOSE;
const struct cuda_kernel cuda_kernel_lu = DECOMPOSE;
const struct cuda_kernel cuda_kernel_qr = DECOMPOSE;
const struct cuda_kernel cuda_kernel_solve = DECOMPOSE;
const struct cuda_kernel cuda_kernel_triangular_solve = DECOMPOSE;
const struct cuda_kernel cuda_kernel_inv = DECOMPOSE;
const struct cuda_kernel cuda_kernel_det = DECOMPOSE;
const struct cuda_kernel cuda_kernel_slogdet = DECOMPOSE;
const struct cuda_kernel cuda_kernel_lstsq = DECOMPOSE;
