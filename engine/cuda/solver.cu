/* A launch becomes cuSOLVER's tasks, matrix by matrix, in one workspace. cuSOLVER wants columns one after the other, and matrices here have rows
 * one after the other: what is symmetric changes its triangle, what can be computed of the transpose is, and the rest is copied.
 *
 * Of eigenvalues and singular values more is promised than LAPACK does: a matrix with NaN or infinity has NaN as its results, and magnitudes
 * are no limit. So the matrix is scaled by a power of two, after a search for its greatest magnitude; one that is not finite becomes
 * zeros, of which each iteration ends, and its results NaN. */
#include "engine/cuda/solver.h"

#include "engine/cuda/cusolver.h"
#include "engine/cuda/decompose.cuh"

namespace {

enum solver_part { PART_ALL, PART_UPPER, PART_LOWER };
/* What happens to elements on the way. */
enum solver_change {
    CHANGE_NONE,
    CHANGE_SCALE, /* by the power of two that *greatest asks for; zeros, if it is not finite */
    CHANGE_BACK,  /* the other way; NaN, if it is not finite, or *info says that there is no result */
    CHANGE_CHECK, /* NaN likewise */
};

struct solver_move {
    const void *from; /* NULL: the identity */
    void *to;
    int64_t rows, columns, from_row, from_column, to_row, to_column; /* strides in elements */
    const unsigned long long *greatest;
    const int *info;
    int32_t part, change; /* other parts are zeros */
};

/* The bits of the greatest magnitude, as f64: those of numbers that are not finite are greater than all others. */
template <typename T>
__global__ void __launch_bounds__(SPACE_THREADS) solver_greatest(const __grid_constant__ struct solver_move p) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x, all = p.rows * p.columns;
    unsigned long long most = 0;
    for (int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; e < all; e += step) {
        const int64_t i = e / p.columns, j = e - i * p.columns;
        if (p.part == PART_ALL || (p.part == PART_UPPER ? j >= i : j <= i)) {
            const double magnitude = fabs((double)((const T *)p.from)[i * p.from_row + j * p.from_column]);
            const unsigned long long bits = (unsigned long long)__double_as_longlong(magnitude);
            most = bits > most ? bits : most;
        }
    }
    if (most) {
        atomicMax((unsigned long long *)p.to, most);
    }
}

__device__ __forceinline__ bool is_finite(unsigned long long greatest) {
    return greatest < 0x7ff0000000000000ull;
}

/* So that greatest / 2^exponent is from 0.5 to 1. */
__device__ __forceinline__ int exponent_of(unsigned long long greatest) {
    int exponent = 0;
    frexp(__longlong_as_double((long long)greatest), &exponent);
    return exponent;
}

template <typename T>
__global__ void __launch_bounds__(SPACE_THREADS) solver_copy(const __grid_constant__ struct solver_move p) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x, all = p.rows * p.columns;
    const bool taken = p.change == CHANGE_NONE || is_finite(*p.greatest);
    const bool given = taken && (p.change == CHANGE_NONE || p.change == CHANGE_SCALE || *p.info == 0);
    const int exponent = taken && (p.change == CHANGE_SCALE || p.change == CHANGE_BACK) ? exponent_of(*p.greatest) : 0;
    for (int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; e < all; e += step) {
        const int64_t i = e / p.columns, j = e - i * p.columns;
        const bool kept = p.part == PART_ALL || (p.part == PART_UPPER ? j >= i : j <= i);
        T x = 0;
        if (!p.from) {
            x = (T)(i == j);
        } else if (p.change == CHANGE_SCALE) {
            x = kept && taken ? (T)ldexp((double)((const T *)p.from)[i * p.from_row + j * p.from_column], -exponent)
                              : (T)0;
        } else if (kept) {
            x = ((const T *)p.from)[i * p.from_row + j * p.from_column];
            x = !given ? (T)nan("") : p.change == CHANGE_BACK ? (T)ldexp((double)x, exponent) : x;
        }
        ((T *)p.to)[i * p.to_row + j * p.to_column] = x;
    }
}

struct solver_factors {
    const void *a; /* LU of n by n */
    void *out[2];  /* determinant; or sign and logarithm */
    const int64_t *order;
    const int *info;
    struct report *report;
    int64_t n, number;
};

__global__ void __launch_bounds__(SPACE_THREADS) solver_report(const __grid_constant__ struct solver_factors p) {
    const int info = *p.info;
    if (info > 0) {
        report_singular(p.report, p.n, p.number, info - 1);
    }
}

template <typename T>
__global__ void __launch_bounds__(SPACE_THREADS) solver_determinant(const __grid_constant__ struct solver_factors p) {
    if (threadIdx.x != 0) {
        return;
    }
    double product = 1, sum = 0, sign = 1;
#pragma unroll 1
    for (int64_t i = 0; i < p.n; i++) {
        const double pivot = (double)((const T *)p.a)[i * p.n + i];
        product *= pivot;
        sum += log(fabs(pivot));
        sign *= (pivot < 0 ? -1 : pivot == 0 ? 0 : 1) * (p.order[i] != i + 1 ? -1 : 1);
    }
    if (!p.out[1]) {
        *(T *)p.out[0] = (T)copysign(product, sign < 0 ? -1.0 : 1.0);
        return;
    }
    *(T *)p.out[0] = (T)(product != product ? product : sign);
    *(T *)p.out[1] = (T)sum;
}

struct solver_triangles {
    const void *a; /* LU of m by n, columns one after the other */
    void *p, *l, *u;
    const int64_t *order;
    int64_t *rows; /* where each row of the result comes from */
    int64_t m, n, steps;
};

/* The exchanges one after the other, as they were made. A matrix with NaN may have exchanges with rows that are none. */
__global__ void __launch_bounds__(SPACE_THREADS) solver_rows(const __grid_constant__ struct solver_triangles p) {
#pragma unroll 1
    for (int64_t i = threadIdx.x; i < p.m; i += SPACE_THREADS) {
        p.rows[i] = i;
    }
    __syncthreads();
    if (threadIdx.x != 0) {
        return;
    }
#pragma unroll 1
    for (int64_t k = 0; k < p.steps; k++) {
        const int64_t other = p.order[k] - 1;
        if (other > k && other < p.m) {
            const int64_t row = p.rows[k];
            p.rows[k] = p.rows[other];
            p.rows[other] = row;
        }
    }
}

/* The permutation and both triangles: a row of one of the three for each block. */
template <typename T>
__global__ void __launch_bounds__(SPACE_THREADS)
    solver_triangles_kernel(const __grid_constant__ struct solver_triangles p) {
    const T *a = (const T *)p.a;
#pragma unroll 1
    for (int64_t i = blockIdx.x; i < p.m; i += gridDim.x) {
#pragma unroll 1
        for (int64_t j = threadIdx.x; j < p.m; j += SPACE_THREADS) {
            ((T *)p.p)[i * p.m + j] = (T)(p.rows[j] == i);
        }
#pragma unroll 1
        for (int64_t j = threadIdx.x; j < p.steps; j += SPACE_THREADS) {
            ((T *)p.l)[i * p.steps + j] = i > j ? a[j * p.m + i] : (T)(i == j);
        }
#pragma unroll 1
        for (int64_t j = threadIdx.x; j < p.n && i < p.steps; j += SPACE_THREADS) {
            ((T *)p.u)[i * p.n + j] = i <= j ? a[j * p.m + i] : (T)0;
        }
    }
}

} // namespace

/* ---- the launcher ---- */

static const void *const greatest_kernels[] = {(const void *)solver_greatest<float>,
                                               (const void *)solver_greatest<double>};
static const void *const copy_kernels[] = {(const void *)solver_copy<float>, (const void *)solver_copy<double>};
static const void *const determinant_kernels[] = {(const void *)solver_determinant<float>,
                                                  (const void *)solver_determinant<double>};

static const void *const triangles_kernels[] = {(const void *)solver_triangles_kernel<float>,
                                                (const void *)solver_triangles_kernel<double>};

bool solver_walk(cuda_kernel_seen *seen, void *context) {
    bool more = seen(context, false, (const void *)solver_report) && seen(context, false, (const void *)solver_rows);
    for (int wide = 0; wide < 2; wide++) {
        more = more && seen(context, false, greatest_kernels[wide]) && seen(context, false, copy_kernels[wide]) &&
               seen(context, false, determinant_kernels[wide]) && seen(context, false, triangles_kernels[wide]);
    }
    return more;
}

/* All that a launch is to cuSOLVER. */
struct solver {
    struct cuda *cuda;
    const struct launch *launch;
    cudaStream_t stream;
    struct fault *fault;
    bool wide, upper, refused;
    int64_t batch, m, n, size;
    int64_t columns;             /* of Q, of b, or of the left vectors of a matrix that is not wider than high */
    enum cusolver_task tasks[2]; /* the first, and another that may want a workspace */
    /* Places in the workspace, which begins at an address that is aligned, and how many bytes the tasks' own part has. */
    char *a, *b, *values, *u, *vt, *order, *rows, *info, *greatest, *room;
    uint64_t bytes, room_bytes;
};

enum {
    PLACE_ALIGNMENT = 256,
    /* A factorisation is some kernels for each few dozen rows. With as many rows as this they may fill CUDA's queue, about a thousand launches
     * long; then the call waits for the device. */
    ROWS_MANY = 4096,
};

static uint64_t place_rounded(uint64_t bytes) {
    return (bytes + PLACE_ALIGNMENT - 1) & ~(uint64_t)(PLACE_ALIGNMENT - 1);
}

static char *solver_place(struct solver *s, char *workspace, int64_t bytes) {
    char *at = workspace + s->bytes;
    s->bytes += place_rounded((uint64_t)bytes);
    return at;
}

/* False: the launch is not for cuSOLVER. Complex matrices have own kernels alone, and its triangular systems are cuBLAS's. */
static bool solver_describe(struct solver *s, const struct launch *launch) {
    const int64_t *shape = launch->inputs[0].shape;
    if (launch->inputs[0].dtype != DTYPE_F32 && launch->inputs[0].dtype != DTYPE_F64) {
        return false;
    }
    s->launch = launch;
    s->wide = launch->output.dtype == DTYPE_F64;
    s->size = s->wide ? 8 : 4;
    s->batch = shape[0];
    s->m = shape[1];
    s->n = shape[2];
    s->columns = 0;
    switch (launch->opcode) {
    case OP_CHOLESKY: {
        struct cholesky_attributes attributes;
        cholesky_attributes_read(&launch->attributes, &attributes);
        s->upper = attributes.upper;
        s->tasks[0] = s->tasks[1] = CUSOLVER_CHOLESKY;
        return true;
    }
    case OP_SOLVE:
    case OP_INV:
        s->columns = launch->output.shape[2];
        s->tasks[0] = s->tasks[1] = CUSOLVER_LU;
        return true;
    case OP_LU:
    case OP_DET:
    case OP_SLOGDET:
        s->tasks[0] = s->tasks[1] = CUSOLVER_LU;
        return true;
    case OP_QR:
        s->columns = launch->output.shape[2];
        s->tasks[0] = CUSOLVER_QR;
        s->tasks[1] = CUSOLVER_Q;
        return true;
    case OP_EIGH: {
        struct eigh_attributes attributes;
        eigh_attributes_read(&launch->attributes, &attributes);
        s->upper = attributes.upper;
        s->tasks[0] = s->tasks[1] = CUSOLVER_EIGEN;
        return true;
    }
    case OP_EIGVALSH: {
        struct eigvalsh_attributes attributes;
        eigvalsh_attributes_read(&launch->attributes, &attributes);
        s->upper = attributes.upper;
        s->tasks[0] = s->tasks[1] = CUSOLVER_EIGEN;
        return true;
    }
    case OP_SVD:
        s->columns = s->m > s->n ? launch->output.shape[2] : launch_further(launch, 2)->shape[1];
        s->tasks[0] = s->tasks[1] = CUSOLVER_SINGULAR;
        return true;
    case OP_SVDVALS:
        s->tasks[0] = s->tasks[1] = CUSOLVER_SINGULAR;
        return true;
    default:
        return false;
    }
}

static void solver_places(struct solver *s, char *workspace) {
    const int64_t least = s->m < s->n ? s->m : s->n, most = s->m < s->n ? s->n : s->m;
    const bool vectors = s->launch->opcode == OP_SVD, qr = s->launch->opcode == OP_QR;
    const int64_t wide = qr && s->columns > s->n ? s->columns : s->n;
    s->bytes = 0;
    s->a = solver_place(s, workspace, s->launch->opcode == OP_CHOLESKY ? 0 : s->m * wide * s->size);
    s->b = solver_place(s, workspace, s->tasks[0] == CUSOLVER_LU ? s->n * s->columns * s->size : 0);
    s->values = solver_place(s, workspace, least * s->size);
    s->u = solver_place(s, workspace, vectors ? most * s->columns * s->size : 0);
    s->vt = solver_place(s, workspace, vectors ? least * least * s->size : 0);
    s->order = solver_place(s, workspace, least * (int64_t)sizeof(int64_t));
    s->rows = solver_place(s, workspace, s->launch->opcode == OP_LU ? s->m * (int64_t)sizeof(int64_t) : 0);
    s->info = solver_place(s, workspace, sizeof(int));
    s->greatest = solver_place(s, workspace, sizeof(uint64_t));
    s->room = workspace + s->bytes;
    s->room_bytes = 0;
    for (enum cusolver_task task : s->tasks) {
        const uint64_t bytes = cusolver_workspace(task, s->wide, s->m, wide);
        s->room_bytes = bytes > s->room_bytes ? bytes : s->room_bytes;
    }
    s->bytes += s->room_bytes;
}

uint64_t solver_workspace(const struct cuda *cuda, const struct launch *launch) {
    struct solver s = {};
    if (launch->scarce || !solver_describe(&s, launch) || !cusolver_suits(cuda, s.batch, s.m, s.n)) {
        return 0;
    }
    solver_places(&s, nullptr);
    return PLACE_ALIGNMENT + s.bytes;
}

bool solver_waits(const struct cuda *cuda, const struct launch *launch) {
    struct solver s = {};
    if (launch->scarce || !solver_describe(&s, launch) || !cusolver_suits(cuda, s.batch, s.m, s.n)) {
        return false;
    }
    const int64_t rows = s.batch * (s.m < s.n ? s.m : s.n);
    return !cuda_library_in_use(cuda, CUDA_CUSOLVER) || s.tasks[0] == CUSOLVER_EIGEN || s.tasks[0] == CUSOLVER_SINGULAR || rows >= ROWS_MANY;
}

/* ---- steps: each returns whether the next one may follow; else the code is in *code, or cuSOLVER has refused ---- */

static bool step_kernel(const struct solver *s, const void *kernel, int64_t elements, const void *arguments,
                        int *code) {
    *code = space_start(kernel, space_blocks(s->cuda, elements / SPACE_THREADS + 1), arguments, s->fault, s->stream);
    return *code == STATUS_OK;
}

static bool step_move(const struct solver *s, const struct solver_move *move, int *code) {
    return step_kernel(s, copy_kernels[s->wide], move->rows * move->columns, move, code);
}

static bool step_task(struct solver *s, const struct cusolver_matrix *matrix, int *code) {
    *code = cusolver_run(s->cuda, matrix, s->room, s->room_bytes, s->stream, &s->refused, s->fault);
    return *code == STATUS_OK && !s->refused;
}

static bool step_report(const struct solver *s, int64_t number, int *code) {
    const struct solver_factors arguments = {
        nullptr, {nullptr, nullptr}, nullptr, (const int *)s->info, s->launch->report, s->n, number};
    *code = space_start((const void *)solver_report, 1, &arguments, s->fault, s->stream);
    return *code == STATUS_OK;
}

/* From rows one after the other to columns one after the other, or back. */
static struct solver_move move_turn(const void *rows, void *columns, int64_t m, int64_t n) {
    struct solver_move move = {};
    move.from = rows;
    move.to = columns;
    move.rows = m;
    move.columns = n;
    move.from_row = n;
    move.from_column = 1;
    move.to_row = 1;
    move.to_column = m;
    return move;
}

static struct solver_move move_back(const void *columns, void *rows, int64_t m, int64_t n) {
    struct solver_move move = {};
    move.from = columns;
    move.to = rows;
    move.rows = m;
    move.columns = n;
    move.from_row = 1;
    move.from_column = m;
    move.to_row = n;
    move.to_column = 1;
    return move;
}

static struct cusolver_matrix matrix_of(const struct solver *s, enum cusolver_task task) {
    struct cusolver_matrix matrix = {};
    matrix.task = task;
    matrix.wide = s->wide;
    matrix.m = s->m;
    matrix.n = s->n;
    matrix.k = s->columns;
    matrix.a = s->a;
    matrix.b = s->b;
    matrix.values = s->values;
    matrix.tau = s->values;
    matrix.u = s->u;
    matrix.vt = s->vt;
    matrix.order = (int64_t *)s->order;
    matrix.info = (int *)s->info;
    return matrix;
}

/* Rows one after the other: cuSOLVER sees the transpose, with the other triangle, whose factor is the transpose of the one wanted. */
static void solver_cholesky(struct solver *s, int64_t number, const char *a, int *code) {
    char *out = (char *)s->launch->output.data + number * s->n * s->n * s->size;
    struct solver_move move = move_turn(a, out, s->n, s->n);
    struct cusolver_matrix matrix = matrix_of(s, CUSOLVER_CHOLESKY);
    move.to_row = s->n;
    move.to_column = 1;
    move.part = s->upper ? PART_UPPER : PART_LOWER;
    matrix.a = out;
    matrix.upper = !s->upper;
    if (step_move(s, &move, code) && step_task(s, &matrix, code) && step_report(s, number, code)) {
        move.from = out; /* each element is read and written by one thread */
        step_move(s, &move, code);
    }
}

static void solver_linear(struct solver *s, int64_t number, const char *a, int *code) {
    const struct launch *launch = s->launch;
    const struct cusolver_matrix factor = matrix_of(s, CUSOLVER_LU), solve = matrix_of(s, CUSOLVER_SOLVE);
    const struct solver_move take = move_turn(a, s->a, s->n, s->n);
    if (!step_move(s, &take, code) || !step_task(s, &factor, code)) {
        return;
    }
    if (launch->opcode == OP_DET || launch->opcode == OP_SLOGDET) {
        struct solver_factors arguments = {s->a,
                                           {(char *)launch->output.data + number * s->size, nullptr},
                                           (const int64_t *)s->order,
                                           (const int *)s->info,
                                           launch->report,
                                           s->n,
                                           number};
        if (launch->opcode == OP_SLOGDET) {
            arguments.out[1] = (char *)launch_further(launch, 1)->data + number * s->size;
        }
        *code = space_start(determinant_kernels[s->wide], 1, &arguments, s->fault, s->stream);
        return;
    }
    const int64_t place = number * s->n * s->columns * s->size;
    const char *b = launch->n_inputs == 2 ? (const char *)launch->inputs[1].data + place : nullptr;
    const struct solver_move take_b = move_turn(b, s->b, s->n, s->columns);
    const struct solver_move give = move_back(s->b, (char *)launch->output.data + place, s->n, s->columns);
    if (step_report(s, number, code) && step_move(s, &take_b, code) && step_task(s, &solve, code)) {
        step_move(s, &give, code);
    }
}

static void solver_lu(struct solver *s, int64_t number, const char *a, int *code) {
    const int64_t steps = s->m < s->n ? s->m : s->n;
    const struct cusolver_matrix factor = matrix_of(s, CUSOLVER_LU);
    const struct solver_move take = move_turn(a, s->a, s->m, s->n);
    const struct solver_triangles triangles = {
        s->a,
        (char *)s->launch->output.data + number * s->m * s->m * s->size,
        (char *)launch_further(s->launch, 1)->data + number * s->m * steps * s->size,
        (char *)launch_further(s->launch, 2)->data + number * steps * s->n * s->size,
        (const int64_t *)s->order,
        (int64_t *)s->rows,
        s->m,
        s->n,
        steps};
    if (!step_move(s, &take, code) || !step_task(s, &factor, code)) {
        return;
    }
    *code = space_start((const void *)solver_rows, 1, &triangles, s->fault, s->stream);
    if (*code == STATUS_OK) {
        *code = space_start(triangles_kernels[s->wide], space_blocks(s->cuda, s->m), &triangles, s->fault, s->stream);
    }
}

static void solver_qr(struct solver *s, int64_t number, const char *a, int *code) {
    const int64_t steps = s->m < s->n ? s->m : s->n;
    char *q = (char *)s->launch->output.data + number * s->m * s->columns * s->size;
    char *r = (char *)launch_further(s->launch, 1)->data + number * s->columns * s->n * s->size;
    const struct cusolver_matrix factor = matrix_of(s, CUSOLVER_QR);
    struct cusolver_matrix make = matrix_of(s, CUSOLVER_Q);
    const struct solver_move take = move_turn(a, s->a, s->m, s->n), give = move_back(s->a, q, s->m, s->columns);
    struct solver_move triangle = move_back(s->a, r, s->m, s->n);
    make.n = s->columns;
    make.k = steps;
    triangle.rows = s->columns;
    triangle.part = PART_UPPER;
    if (step_move(s, &take, code) && step_task(s, &factor, code) && step_move(s, &triangle, code) &&
        step_task(s, &make, code)) {
        step_move(s, &give, code);
    }
}

/* The matrix as it is given to an iteration: `turn` with columns one after the other. */
static bool step_take(const struct solver *s, const char *a, enum solver_part part, bool turn, int *code) {
    struct solver_move move = move_turn(a, s->a, s->m, s->n), search;
    if (!turn) {
        move.to_row = s->n;
        move.to_column = 1;
    }
    move.part = part;
    move.change = CHANGE_SCALE;
    move.greatest = (const unsigned long long *)s->greatest;
    search = move;
    search.to = s->greatest;
    cudaError_t error = cudaMemsetAsync(s->greatest, 0, sizeof(uint64_t), s->stream);
    if (error != cudaSuccess) {
        *code = cuda_fault(s->fault, error, "cudaMemsetAsync");
        return false;
    }
    return step_kernel(s, greatest_kernels[s->wide], s->m * s->n, &search, code) && step_move(s, &move, code);
}

/* Results of an iteration; `move` says from where to where. */
static bool step_give(const struct solver *s, struct solver_move move, enum solver_change change, int *code) {
    move.change = change;
    move.greatest = (const unsigned long long *)s->greatest;
    move.info = (const int *)s->info;
    return step_move(s, &move, code);
}

static void solver_eigen(struct solver *s, int64_t number, const char *a, int *code) {
    const bool vectors = s->launch->opcode == OP_EIGH;
    struct cusolver_matrix matrix = matrix_of(s, CUSOLVER_EIGEN);
    matrix.upper = !s->upper;
    matrix.vectors = vectors;
    char *values = (char *)s->launch->output.data + number * s->n * s->size;
    if (!step_take(s, a, s->upper ? PART_UPPER : PART_LOWER, false, code) || !step_task(s, &matrix, code) ||
        !step_give(s, move_back(s->values, values, s->n, 1), CHANGE_BACK, code) || !vectors) {
        return;
    }
    char *out = (char *)launch_further(s->launch, 1)->data + number * s->n * s->n * s->size;
    step_give(s, move_back(s->a, out, s->n, s->n), CHANGE_CHECK, code);
}

/* A matrix that is not higher than wide is decomposed as its transpose, as which cuSOLVER sees it: the left vectors are then the right ones. */
static void solver_singular(struct solver *s, int64_t number, const char *a, int *code) {
    const bool vectors = s->launch->opcode == OP_SVD, turn = s->m > s->n;
    const int64_t least = turn ? s->n : s->m, most = turn ? s->m : s->n;
    struct cusolver_matrix matrix = matrix_of(s, CUSOLVER_SINGULAR);
    matrix.m = most;
    matrix.n = least;
    matrix.vectors = vectors;
    const struct operand *value = vectors ? launch_further(s->launch, 1) : &s->launch->output;
    char *values = (char *)value->data + number * least * s->size;
    if (!step_take(s, a, PART_ALL, turn, code) || !step_task(s, &matrix, code) ||
        !step_give(s, move_back(s->values, values, least, 1), CHANGE_BACK, code) || !vectors) {
        return;
    }
    char *u = (char *)s->launch->output.data, *vh = (char *)launch_further(s->launch, 2)->data;
    struct solver_move left, right;
    if (turn) {
        left = move_back(s->u, u + number * most * s->columns * s->size, most, s->columns);
        right = move_back(s->vt, vh + number * least * least * s->size, least, least);
    } else { /* both as they lie */
        left = move_back(s->u, vh + number * most * s->columns * s->size, s->columns, most);
        right = move_back(s->vt, u + number * least * least * s->size, least, least);
        left.from_row = most;
        right.from_row = least;
        left.from_column = right.from_column = 1;
    }
    if (step_give(s, left, CHANGE_CHECK, code)) {
        step_give(s, right, CHANGE_CHECK, code);
    }
}

int solver_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch, bool *refused,
               struct fault *fault) {
    struct solver s = {};
    *refused = true;
    if (!solver_describe(&s, launch) || !cusolver_suits(cuda, s.batch, s.m, s.n)) {
        return STATUS_OK;
    }
    if (launch->scarce) {
        return cuda_library_refused(cuda, CUDA_CUSOLVER, "cuSOLVER", "no memory for its workspace", fault);
    }
    s.cuda = cuda;
    s.stream = stream->stream;
    s.fault = fault;
    solver_places(&s, (char *)(uintptr_t)place_rounded((uint64_t)(uintptr_t)launch->workspace));
    int code = STATUS_OK;
    for (int64_t number = 0; number < s.batch && code == STATUS_OK && !s.refused; number++) {
        const char *a = (const char *)launch->inputs[0].data + number * s.m * s.n * s.size;
        switch (s.tasks[0]) {
        case CUSOLVER_CHOLESKY:
            solver_cholesky(&s, number, a, &code);
            break;
        case CUSOLVER_LU:
            (launch->opcode == OP_LU ? solver_lu : solver_linear)(&s, number, a, &code);
            break;
        case CUSOLVER_QR:
            solver_qr(&s, number, a, &code);
            break;
        case CUSOLVER_EIGEN:
            solver_eigen(&s, number, a, &code);
            break;
        default:
            solver_singular(&s, number, a, &code);
        }
    }
    *refused = s.refused;
    if (code == STATUS_OK && !s.refused) {
        cuda_library_computed(cuda, CUDA_CUSOLVER);
    }
    return code;
}
