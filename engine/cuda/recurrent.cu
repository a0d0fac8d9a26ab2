/* Recurrent layers: products by the module's own path for products (matmul.c), and around them kernels with a thread for each unit's cell. The
 * products with x of all steps are one; then each step is a product with the state before and a kernel. Backward the gradients by the sums of the
 * gates of all steps stay in the workspace, and the gradients by x and the weights are products of them. */
#include "engine/cuda/formula.cuh"

#define RECURRENT_FUNCTION static __device__ __forceinline__
#include "engine/device/recurrent_formula.h"

#include "engine/cuda/cuda.h"
#include "engine/cuda/space.h"

namespace {

enum { COLUMNS = 32, COLUMN_ROWS = SPACE_THREADS / COLUMNS };

/* One step, [batch][…] of each operand. */
struct recurrent_arguments {
    int64_t batch, hidden;
    bool gru;
    const void *of_x,
        *of_h; /* sums of products, [gates·h]; backward of_h: [h], of the step behind; NULL: there is none */
    const void *b_ih, *b_hh;             /* NULL: there is none */
    const void *h_before, *c_before, *c; /* c: backward */
    void *kept, *h_after, *c_after;
    const void *grad_result, *grad_h,
        *grad_c;               /* grad_h, grad_c: of the last state; NULL: the step is not the last one */
    void *by_h, *by_c;         /* gradients by the states, which become those by the states before */
    void *slopes_x, *slopes_h; /* [gates·h]; the same of an LSTM */
};

template <class T> __device__ __forceinline__ T bias_of(const void *bias, int64_t at) {
    return bias ? ((const T *)bias)[at] : (T)0;
}

/* The formulas, by type. */
#define RECURRENT_OF(name, T)                                                                                          \
    __device__ __forceinline__ void lstm_cell(T *k, T before, T *c, T *h) {                                            \
        recurrent_lstm_##name(k, before, c, h);                                                                        \
    }                                                                                                                  \
    __device__ __forceinline__ void gru_cell(T *k, T before, T *h) {                                                   \
        recurrent_gru_##name(k, before, h);                                                                            \
    }                                                                                                                  \
    __device__ __forceinline__ void lstm_cell_back(const T *k, T before, T c, T by_h, T *by_c, T *slopes) {            \
        recurrent_lstm_back_##name(k, before, c, by_h, by_c, slopes);                                                  \
    }                                                                                                                  \
    __device__ __forceinline__ void gru_cell_back(const T *k, T before, T *by_h, T *slopes) {                          \
        recurrent_gru_back_##name(k, before, by_h, slopes);                                                            \
    }
RECURRENT_OF(f32, float)
RECURRENT_OF(f64, double)

template <class T>
__global__ void __launch_bounds__(SPACE_THREADS)
    recurrent_forward(const __grid_constant__ struct recurrent_arguments p) {
    const int64_t step = (int64_t)gridDim.x * SPACE_THREADS, gates = p.gru ? 3 : 4;
    const T *x = (const T *)p.of_x, *s = (const T *)p.of_h;
    for (int64_t at = (int64_t)blockIdx.x * SPACE_THREADS + threadIdx.x; at < p.batch * p.hidden; at += step) {
        const int64_t row = at / p.hidden, unit = at - row * p.hidden, sums = row * gates * p.hidden + unit;
        T k[RECURRENT_KEPT], *kept = (T *)p.kept + row * RECURRENT_KEPT * p.hidden + unit;
#pragma unroll
        for (int gate = 0; gate < 3; gate++) {
            const int64_t place = gate * p.hidden;
            k[gate] = x[sums + place] + bias_of<T>(p.b_ih, place + unit);
            k[3] = s[sums + place] + bias_of<T>(p.b_hh, place + unit);
            if (!p.gru || gate < 2) {
                k[gate] += k[3];
            }
        }
        if (p.gru) {
            gru_cell(k, ((const T *)p.h_before)[at], (T *)p.h_after + at);
        } else {
            const int64_t place = 3 * p.hidden;
            k[3] = x[sums + place] + bias_of<T>(p.b_ih, place + unit) +
                   (s[sums + place] + bias_of<T>(p.b_hh, place + unit));
            lstm_cell(k, ((const T *)p.c_before)[at], (T *)p.c_after + at, (T *)p.h_after + at);
        }
#pragma unroll
        for (int gate = 0; gate < RECURRENT_KEPT; gate++) {
            kept[gate * p.hidden] = k[gate];
        }
    }
}

template <class T>
__global__ void __launch_bounds__(SPACE_THREADS) recurrent_back(const __grid_constant__ struct recurrent_arguments p) {
    const int64_t step = (int64_t)gridDim.x * SPACE_THREADS, gates = p.gru ? 3 : 4;
    T *by_h = (T *)p.by_h, *by_c = (T *)p.by_c;
    for (int64_t at = (int64_t)blockIdx.x * SPACE_THREADS + threadIdx.x; at < p.batch * p.hidden; at += step) {
        const int64_t row = at / p.hidden, unit = at - row * p.hidden;
        const T *kept = (const T *)p.kept + row * RECURRENT_KEPT * p.hidden + unit;
        T k[RECURRENT_KEPT], slopes[RECURRENT_KEPT], h;
        /* The gradient by the state after the step: what is given of the last one, else what the step behind has left. */
        h = p.grad_h ? ((const T *)p.grad_h)[at] : ((const T *)p.of_h)[at] + (p.gru ? by_h[at] : (T)0);
        if (!p.grad_result) { /* before the first step */
            by_h[at] = h;
            continue;
        }
        h += ((const T *)p.grad_result)[at];
#pragma unroll
        for (int gate = 0; gate < RECURRENT_KEPT; gate++) {
            k[gate] = kept[gate * p.hidden];
        }
        if (p.gru) {
            gru_cell_back(k, ((const T *)p.h_before)[at], &h, slopes);
            by_h[at] = h;
        } else {
            T c = p.grad_c ? ((const T *)p.grad_c)[at] : by_c[at];
            lstm_cell_back(k, ((const T *)p.c_before)[at], ((const T *)p.c)[at], h, &c, slopes);
            by_c[at] = c;
        }
        T *x = (T *)p.slopes_x + row * gates * p.hidden + unit, *s = (T *)p.slopes_h + row * gates * p.hidden + unit;
#pragma unroll
        for (int gate = 0; gate < 3; gate++) {
            x[gate * p.hidden] = slopes[gate];
        }
        if (p.gru) {
            s[0] = slopes[0];
            s[p.hidden] = slopes[1];
            s[2 * p.hidden] = slopes[3];
        } else {
            x[3 * p.hidden] = slopes[3];
        }
    }
}

struct recurrent_columns {
    const void *slopes;
    void *out;
    int64_t rows, columns;
};

/* The sums of columns: 32 columns for each block, whose rows 8 threads share. */
template <class T>
__global__ void __launch_bounds__(SPACE_THREADS) recurrent_biases(const __grid_constant__ struct recurrent_columns p) {
    __shared__ double parts[COLUMN_ROWS][COLUMNS];
    const int lane = (int)threadIdx.x % COLUMNS, down = (int)threadIdx.x / COLUMNS;
    for (int64_t begin = (int64_t)blockIdx.x * COLUMNS; begin < p.columns; begin += (int64_t)gridDim.x * COLUMNS) {
        const int64_t column = begin + lane;
        double sum = 0;
        for (int64_t row = down; row < p.rows && column < p.columns; row += COLUMN_ROWS) {
            sum += (double)((const T *)p.slopes)[row * p.columns + column];
        }
        parts[down][lane] = sum;
        __syncthreads();
        if (down == 0 && column < p.columns) {
            double all = 0;
            for (int i = 0; i < COLUMN_ROWS; i++) {
                all += parts[i][lane];
            }
            ((T *)p.out)[column] = (T)all;
        }
        __syncthreads();
    }
}

} // namespace

/* ---- launchers ---- */

static const void *const recurrent_forwards[2] = {(const void *)recurrent_forward<float>,
                                                  (const void *)recurrent_forward<double>};
static const void *const recurrent_backs[2] = {(const void *)recurrent_back<float>,
                                               (const void *)recurrent_back<double>};
static const void *const recurrent_sums[2] = {(const void *)recurrent_biases<float>,
                                              (const void *)recurrent_biases<double>};

static bool recurrent_walk(cuda_kernel_seen *seen, void *context) {
    bool more = true;
    for (int f64 = 0; f64 < 2; f64++) {
        more = more && seen(context, false, recurrent_forwards[f64]) && seen(context, false, recurrent_backs[f64]) &&
               seen(context, false, recurrent_sums[f64]);
    }
    return more;
}

/* A launch under way, and its workspace. */
struct recurrent_launch {
    struct cuda *cuda;
    struct cuda_stream *stream;
    struct fault *fault;
    struct recurrent r;
    bool f64, tf32;
    int64_t size;
    char *sums, *sums_h;     /* forward: of all steps with x, of one step with the state */
    char *slopes, *slopes_h; /* backward: [n][batch][gates·h]; of an LSTM slopes_h is slopes */
    char *by_h, *states; /* backward: a product of one step; the states before all steps, in the order of the steps */
};

static char *element_at(const struct recurrent_launch *l, const void *from, int64_t at) {
    return (char *)from + at * l->size;
}

/* A matrix as it lies in memory, or its transpose. */
struct recurrent_matrix {
    const void *data;
    int64_t rows, columns;
    bool transposed; /* rows and columns are those of the transpose, which is what is in memory */
};

/* to (m, n) = a (m, k) · b (k, n), without gaps. */
static int recurrent_multiply(const struct recurrent_launch *l, struct recurrent_matrix a, struct recurrent_matrix b,
                              void *to) {
    const uint8_t dtype = l->f64 ? DTYPE_F64 : DTYPE_F32;
    const struct recurrent_matrix *const sides[2] = {&a, &b};
    alignas(struct launch) char room[sizeof(struct launch) + 2 * sizeof(struct operand)];
    int64_t shapes[3][2], strides[3][2];
    memset(room, 0, sizeof room);
    struct launch *launch = (struct launch *)(void *)room;
    launch->opcode = OP_MATMUL;
    launch->n_inputs = 2;
    launch->tf32 = l->tf32;
    for (int i = 0; i < 2; i++) {
        const struct recurrent_matrix *side = sides[i];
        shapes[i][0] = side->transposed ? side->columns : side->rows;
        shapes[i][1] = side->transposed ? side->rows : side->columns;
        strides[i][0] = side->transposed ? 1 : side->columns;
        strides[i][1] = side->transposed ? side->columns : 1;
        struct operand *operand = &launch->inputs[i];
        operand->data = (void *)side->data;
        operand->shape = shapes[i];
        operand->strides = strides[i];
        operand->dtype = operand->as = dtype;
        operand->rank = 2;
    }
    shapes[2][0] = shapes[0][0];
    shapes[2][1] = strides[2][0] = shapes[1][1];
    strides[2][1] = 1;
    launch->output.data = to;
    launch->output.shape = shapes[2];
    launch->output.strides = strides[2];
    launch->output.dtype = dtype;
    launch->output.rank = 2;
    return cuda_kernel_matmul.driver(l->cuda, l->stream, launch, l->fault);
}

static int recurrent_copy(const struct recurrent_launch *l, void *to, const void *from, int64_t elements) {
    if (elements > 0) {
        CUDA_TRY(l->fault,
                 cudaMemcpyAsync(to, from, (size_t)(elements * l->size), cudaMemcpyDeviceToDevice, l->stream->stream));
    }
    return STATUS_OK;
}

static int recurrent_clear(const struct recurrent_launch *l, void *to, int64_t elements) {
    if (to && elements > 0) {
        CUDA_TRY(l->fault, cudaMemsetAsync(to, 0, (size_t)(elements * l->size), l->stream->stream));
    }
    return STATUS_OK;
}

/* The state before a step: h, or c of an LSTM. */
static const char *state_before(const struct recurrent_launch *l, const void *first, const void *all, int64_t step) {
    const struct recurrent *r = &l->r;
    return step == 0 ? (const char *)first : element_at(l, all, recurrent_at(r, step - 1) * r->batch * r->hidden);
}

/* What forward and backward steps have in common. */
static struct recurrent_arguments step_arguments(const struct recurrent_launch *l, int64_t step) {
    const struct recurrent *r = &l->r;
    const int64_t at = recurrent_at(r, step), state = r->batch * r->hidden;
    struct recurrent_arguments p = {};
    p.batch = r->batch;
    p.hidden = r->hidden;
    p.gru = r->gru;
    p.h_before = state_before(l, r->h0, r->result, step);
    p.c_before = r->gru ? NULL : state_before(l, r->c0, r->cells, step);
    p.kept = element_at(l, r->kept, at * RECURRENT_KEPT * state);
    return p;
}

static int step_start(const struct recurrent_launch *l, const void *kernel, const struct recurrent_arguments *p) {
    return space_start(kernel, space_blocks(l->cuda, p->batch * p->hidden / SPACE_THREADS + 1), p, l->fault,
                       l->stream->stream);
}

/* ---- forward ---- */

static int step_forward(const struct recurrent_launch *l, int64_t step) {
    const struct recurrent *r = &l->r;
    const int64_t at = recurrent_at(r, step), state = r->batch * r->hidden, gates = r->gates * r->hidden;
    struct recurrent_arguments p = step_arguments(l, step);
    int code =
        recurrent_multiply(l, {p.h_before, r->batch, r->hidden, false}, {r->w_hh, gates, r->hidden, true}, l->sums_h);
    if (code != STATUS_OK) {
        return code;
    }
    p.of_x = element_at(l, l->sums, at * r->batch * gates);
    p.of_h = l->sums_h;
    p.b_ih = r->b_ih;
    p.b_hh = r->b_hh;
    p.h_after = element_at(l, r->result, at * state);
    p.c_after = r->gru ? NULL : element_at(l, r->cells, at * state);
    return step_start(l, recurrent_forwards[l->f64], &p);
}

static int recurrent_forwards_run(const struct recurrent_launch *l) {
    const struct recurrent *r = &l->r;
    const int64_t state = r->batch * r->hidden, gates = r->gates * r->hidden;
    int code = STATUS_OK;
    if (r->n > 0) {
        code = recurrent_multiply(l, {r->x, r->n * r->batch, r->in, false}, {r->w_ih, gates, r->in, true}, l->sums);
    }
    for (int64_t step = 0; step < r->n && code == STATUS_OK; step++) {
        code = step_forward(l, step);
    }
    if (code == STATUS_OK) {
        code = recurrent_copy(l, r->h_n, state_before(l, r->h0, r->result, r->n), state);
    }
    if (code == STATUS_OK && !r->gru) {
        code = recurrent_copy(l, r->c_n, state_before(l, r->c0, r->cells, r->n), state);
    }
    return code;
}

/* ---- backward ---- */

/* `step` -1: the state before the first one. */
static int step_back(const struct recurrent_launch *l, int64_t step) {
    const struct recurrent *r = &l->r;
    const int64_t state = r->batch * r->hidden, gates = r->gates * r->hidden;
    const bool last = step == r->n - 1;
    struct recurrent_arguments p = step_arguments(l, step < 0 ? 0 : step);
    if (!last) {
        const char *behind = element_at(l, l->slopes_h, recurrent_at(r, step + 1) * r->batch * gates);
        int code = recurrent_multiply(l, {behind, r->batch, gates, false}, {r->w_hh, gates, r->hidden, false}, l->by_h);
        if (code != STATUS_OK) {
            return code;
        }
    }
    p.of_h = l->by_h;
    p.grad_h = last ? r->grad_h_n : NULL;
    p.grad_c = last ? r->grad_c_n : NULL;
    p.by_h = r->grad_h0;
    p.by_c = r->grad_c0;
    if (step >= 0) {
        const int64_t at = recurrent_at(r, step);
        p.grad_result = element_at(l, r->grad_result, at * state);
        p.c = r->gru ? NULL : element_at(l, r->cells, at * state);
        p.slopes_x = element_at(l, l->slopes, at * r->batch * gates);
        p.slopes_h = element_at(l, l->slopes_h, at * r->batch * gates);
    }
    return step_start(l, recurrent_backs[l->f64], &p);
}

static int biases_run(const struct recurrent_launch *l, const void *slopes, void *out) {
    const struct recurrent *r = &l->r;
    const struct recurrent_columns p = {slopes, out, r->n * r->batch, r->gates * r->hidden};
    return space_start(recurrent_sums[l->f64], space_blocks(l->cuda, (p.columns - 1) / COLUMNS + 1), &p, l->fault,
                       l->stream->stream);
}

/* In the order of the sequence: all results but the last one, behind h0 or before it. */
static int states_gather(const struct recurrent_launch *l) {
    const struct recurrent *r = &l->r;
    const int64_t state = r->batch * r->hidden, others = (r->n - 1) * state;
    int code = recurrent_copy(l, element_at(l, l->states, recurrent_at(r, 0) * state), r->h0, state);
    if (code != STATUS_OK) {
        return code;
    }
    return r->reverse ? recurrent_copy(l, l->states, element_at(l, r->result, state), others)
                      : recurrent_copy(l, element_at(l, l->states, state), r->result, others);
}

static int gradients_run(const struct recurrent_launch *l) {
    const struct recurrent *r = &l->r;
    const int64_t all = r->n * r->batch, gates = r->gates * r->hidden;
    int code = recurrent_multiply(l, {l->slopes, all, gates, false}, {r->w_ih, gates, r->in, false}, r->grad_x);
    if (code == STATUS_OK) {
        code = recurrent_multiply(l, {l->slopes, all, gates, true}, {r->x, all, r->in, false}, r->grad_w_ih);
    }
    if (code == STATUS_OK) {
        code = states_gather(l);
    }
    if (code == STATUS_OK) {
        code = recurrent_multiply(l, {l->slopes_h, all, gates, true}, {l->states, all, r->hidden, false}, r->grad_w_hh);
    }
    if (code == STATUS_OK) {
        code = biases_run(l, l->slopes, r->grad_b_ih);
    }
    if (code == STATUS_OK && r->gru) {
        code = biases_run(l, l->slopes_h, r->grad_b_hh);
    }
    return code;
}

static int recurrent_backs_run(const struct recurrent_launch *l) {
    const struct recurrent *r = &l->r;
    const int64_t state = r->batch * r->hidden, gates = r->gates * r->hidden;
    int code = STATUS_OK;
    if (r->n > 0 && r->batch > 0) {
        for (int64_t step = r->n - 1; step >= -1 && code == STATUS_OK; step--) {
            code = step_back(l, step);
        }
        return code == STATUS_OK ? gradients_run(l) : code;
    }
    if ((code = recurrent_clear(l, r->grad_w_ih, gates * r->in)) != STATUS_OK ||
        (code = recurrent_clear(l, r->grad_w_hh, gates * r->hidden)) != STATUS_OK ||
        (code = recurrent_clear(l, r->grad_b_ih, gates)) != STATUS_OK ||
        (code = recurrent_clear(l, r->grad_b_hh, gates)) != STATUS_OK ||
        (code = recurrent_copy(l, r->grad_h0, r->grad_h_n, state)) != STATUS_OK) {
        return code;
    }
    return r->gru ? STATUS_OK : recurrent_copy(l, r->grad_c0, r->grad_c_n, state);
}

/* ---- launches ---- */

/* Gives the parts of the workspace their places, and returns its bytes. */
static uint64_t recurrent_places(struct recurrent_launch *l, char *workspace) {
    const struct recurrent *r = &l->r;
    const int64_t steps = r->n * r->batch, gates = r->gates * r->hidden;
    const int64_t sizes[4] = {steps * gates, r->back ? (r->gru ? steps * gates : 0) : r->batch * gates,
                              r->back ? r->batch * r->hidden : 0, r->back ? steps * r->hidden : 0};
    char *places[4];
    int64_t bytes = 0;
    for (int i = 0; i < 4; i++) {
        places[i] = workspace ? workspace + bytes : NULL;
        bytes += (sizes[i] * l->size + 255) / 256 * 256;
    }
    l->sums = l->slopes = places[0];
    l->sums_h = places[1];
    l->slopes_h = r->gru ? places[1] : places[0];
    l->by_h = places[2];
    l->states = places[3];
    return (uint64_t)bytes;
}

static struct recurrent_launch recurrent_launch_make(const struct launch *launch) {
    struct recurrent_launch l = {};
    l.r = recurrent_make(launch);
    l.f64 = launch->output.dtype == DTYPE_F64;
    l.tf32 = launch->tf32;
    l.size = l.f64 ? 8 : 4;
    return l;
}

static uint64_t recurrent_workspace(struct device *device, const struct launch *launch) {
    struct recurrent_launch l = recurrent_launch_make(launch);
    (void)device;
    return recurrent_places(&l, NULL);
}

static int recurrent_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch,
                         struct fault *fault) {
    struct recurrent_launch l = recurrent_launch_make(launch);
    l.cuda = cuda;
    l.stream = stream;
    l.fault = fault;
    recurrent_places(&l, (char *)launch->workspace);
    return l.r.back ? recurrent_backs_run(&l) : recurrent_forwards_run(&l);
}

#define RECURRENT                                                                                                      \
    { .base = {.workspace = recurrent_workspace}, .driver = recurrent_run, .walk = recurrent_walk }
const struct cuda_kernel cuda_kernel_lstm = RECURRENT;
const struct cuda_kernel cuda_kernel_lstm_grad = RECURRENT;
const struct cuda_kernel cuda_kernel_gru = RECURRENT;
const struct cuda_kernel cuda_kernel_gru_grad = RECURRENT;
