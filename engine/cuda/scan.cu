/* Scans. A line is cut into chunks where there are too few lines to occupy the device: then one kernel computes the result of each chunk,
 * a second one the results of all chunks before it, and a third one goes on from there. How a line is cut depends on shapes and device
 * alone, and results are merged in one order, so they are the same each time.
 *
 *   along  A block takes a chunk of one line, tile by tile. A warp has 32 · SCAN_ROUNDS neighbours of a tile, of which it reads and writes 32
 *          at a time, side by side.
 *   down   A thread takes a chunk of one line, element by element; its neighbours have the lines beside.
 *
 * Elements are loaded and stored by their dtype at run time, and computed as i64 (u64 modulo 2^64) or f64: memory does not bring them faster.
 *
 * A scan is a class: an accumulator A (plain, a multiple of 4 bytes), neutral(), load(p, at, position), merge(a, b) with b the later one,
 * and store(p, at, a). */
#include <float.h>

#include "engine/cuda/number.cuh"
#include "engine/cuda/space.h"

enum {
    SCAN_THREADS = SPACE_THREADS,
    SCAN_WARPS = SCAN_THREADS / 32,
    SCAN_ROUNDS = 4,
    SCAN_TILE = SCAN_THREADS * SCAN_ROUNDS,
    SCAN_CHUNKS_MAX = SCAN_TILE, /* of a line: the second kernel takes them as one tile */
    SCAN_BLOCKS_BUSY = 4,        /* with so many blocks for each processor the device is busy */
    SCAN_CHUNK_DOWN = 64,        /* elements that a thread takes at least */
    SCAN_SHORT = 64,             /* lines up to this length are taken by single threads */
};

enum scan_phase { SCAN_WHOLE, SCAN_TOTALS, SCAN_FINAL };

struct scan_plan {
    const void *in;
    void *out;
    int64_t *positions;
    void *totals; /* accumulators [lines][chunks]: of chunks, then of all before them; NULL where there is one chunk */
    int64_t lines, n, in_stride, out_stride;
    int64_t chunks, chunk; /* elements */
    int rank;              /* axes of lines */
    int64_t shape[SHAPE_RANK_MAX], in_strides[SHAPE_RANK_MAX], out_strides[SHAPE_RANK_MAX];
    uint8_t in_dtype, out_dtype;
    bool initial; /* the result begins with an element more */
    bool lowest;
    int64_t flip;
    bool down;
    enum scan_phase phase;
    unsigned grid, prefix_grid;
};

namespace {

/* ---- elements by dtype ---- */

__device__ inline int64_t load_integer(const struct scan_plan &p, int64_t at) {
    switch (p.in_dtype) {
    case DTYPE_BOOL:
    case DTYPE_U8:
        return ((const uint8_t *)p.in)[at];
    case DTYPE_I8:
        return ((const int8_t *)p.in)[at];
    case DTYPE_I16:
        return ((const int16_t *)p.in)[at];
    case DTYPE_U16:
        return ((const uint16_t *)p.in)[at];
    case DTYPE_U32:
        return ((const uint32_t *)p.in)[at];
    case DTYPE_I32:
        return ((const int32_t *)p.in)[at];
    default:
        return ((const int64_t *)p.in)[at];
    }
}

__device__ inline void store_integer(const struct scan_plan &p, int64_t at, int64_t x) {
    switch (p.out_dtype) {
    case DTYPE_BOOL:
    case DTYPE_U8:
    case DTYPE_I8:
        ((uint8_t *)p.out)[at] = (uint8_t)x;
        return;
    case DTYPE_I16:
    case DTYPE_U16:
        ((int16_t *)p.out)[at] = (int16_t)x;
        return;
    case DTYPE_I32:
    case DTYPE_U32:
        ((int32_t *)p.out)[at] = (int32_t)x;
        return;
    default:
        ((int64_t *)p.out)[at] = x;
    }
}

__device__ inline double load_float(const struct scan_plan &p, int64_t at) {
    switch (p.in_dtype) {
    case DTYPE_F16:
        return (double)__half2float(((const __half *)p.in)[at]);
    case DTYPE_BF16:
        return (double)__bfloat162float(((const __nv_bfloat16 *)p.in)[at]);
    case DTYPE_F32:
        return (double)((const float *)p.in)[at];
    default:
        return ((const double *)p.in)[at];
    }
}

__device__ inline void store_float(const struct scan_plan &p, int64_t at, double x) {
    switch (p.out_dtype) {
    case DTYPE_F16:
        ((__half *)p.out)[at] = number_cast<__half>::from(x);
        return;
    case DTYPE_BF16:
        ((__nv_bfloat16 *)p.out)[at] = number_cast<__nv_bfloat16>::from(x);
        return;
    case DTYPE_F32:
        ((float *)p.out)[at] = (float)x;
        return;
    default:
        ((double *)p.out)[at] = x;
    }
}

/* ---- the scans ---- */

struct sum_integer {
    typedef uint64_t A;
    static __device__ A neutral() {
        return 0;
    }
    static __device__ A load(const struct scan_plan &p, int64_t at, int64_t) {
        return (uint64_t)load_integer(p, at);
    }
    static __device__ A merge(const A &a, const A &b) {
        return a + b;
    }
    static __device__ void store(const struct scan_plan &p, int64_t at, const A &a) {
        store_integer(p, at, (int64_t)a);
    }
};

struct product_integer : sum_integer {
    static __device__ A neutral() {
        return 1;
    }
    static __device__ A merge(const A &a, const A &b) {
        return a * b;
    }
};

/* The sum and its rounding errors (Knuth's TwoSum), which infinities and NaN make NaN: then the sum is right without them. */
struct carried {
    double value, error;
};
struct sum_float {
    typedef carried A;
    static __device__ A neutral() {
        return {0, 0};
    }
    static __device__ A load(const struct scan_plan &p, int64_t at, int64_t) {
        return {load_float(p, at), 0};
    }
    static __device__ A merge(const A &a, const A &b) {
        const double after = a.value + b.value, part = after - a.value;
        return {after, a.error + b.error + ((a.value - (after - part)) + (b.value - part))};
    }
    static __device__ void store(const struct scan_plan &p, int64_t at, const A &a) {
        store_float(p, at, a.error - a.error == 0 ? a.value + a.error : a.value);
    }
};

struct product_float {
    typedef double A;
    static __device__ A neutral() {
        return 1;
    }
    static __device__ A load(const struct scan_plan &p, int64_t at, int64_t) {
        return load_float(p, at);
    }
    static __device__ A merge(const A &a, const A &b) {
        return a * b;
    }
    static __device__ void store(const struct scan_plan &p, int64_t at, const A &a) {
        store_float(p, at, a);
    }
};

/* Of complex numbers. */
struct product_complex {
    typedef formula_c128 A;
    static __device__ A neutral() {
        return formula_make_c128(1, 0);
    }
    static __device__ A load(const struct scan_plan &p, int64_t at, int64_t) {
        return p.in_dtype == DTYPE_C64 ? formula_c64_to_c128(((const formula_c64 *)p.in)[at])
                                       : ((const formula_c128 *)p.in)[at];
    }
    static __device__ A merge(const A &a, const A &b) {
        return formula_multiply_c128(a, b);
    }
    static __device__ void store(const struct scan_plan &p, int64_t at, const A &a) {
        if (p.out_dtype == DTYPE_C64) {
            ((formula_c64 *)p.out)[at] = formula_c128_to_c64(a);
        } else {
            ((formula_c128 *)p.out)[at] = a;
        }
    }
};

/* Extremes. The least of x is found as the greatest of ~x or -x, which turns the order around and is exact. `flip` has the highest bit of
 * u64, without which its numbers have the order of i64. */
template <class C> struct extreme_found {
    int64_t at; /* -1: nothing yet */
    C value;
};
template <class C>
__device__ inline extreme_found<C> extreme_later(const extreme_found<C> &a, const extreme_found<C> &b) {
    const bool later = b.value != b.value || (a.value == a.value && b.value >= a.value);
    return b.at >= 0 && (a.at < 0 || later) ? b : a;
}
struct extreme_integer {
    typedef extreme_found<int64_t> A;
    static __device__ A neutral() {
        return {-1, 0};
    }
    static __device__ A load(const struct scan_plan &p, int64_t at, int64_t position) {
        const int64_t x = load_integer(p, at) ^ p.flip;
        return {position, p.lowest ? ~x : x};
    }
    static __device__ A merge(const A &a, const A &b) {
        return extreme_later(a, b);
    }
    static __device__ void store(const struct scan_plan &p, int64_t at, const A &a) {
        store_integer(p, at, (p.lowest ? ~a.value : a.value) ^ p.flip);
        p.positions[at] = a.at;
    }
};
struct extreme_float {
    typedef extreme_found<double> A;
    static __device__ A neutral() {
        return {-1, 0};
    }
    static __device__ A load(const struct scan_plan &p, int64_t at, int64_t position) {
        const double x = load_float(p, at);
        return {position, p.lowest ? -x : x};
    }
    static __device__ A merge(const A &a, const A &b) {
        return extreme_later(a, b);
    }
    static __device__ void store(const struct scan_plan &p, int64_t at, const A &a) {
        store_float(p, at, p.lowest ? -a.value : a.value);
        p.positions[at] = a.at;
    }
};

/* The greatest element so far, and the sum of exp(x - that). The lowest level is finite, so that exp(-infinity - level) is 0. */
struct level_sum {
    double level, sum;
};
struct logsumexp {
    typedef level_sum A;
    static __device__ A neutral() {
        return {-DBL_MAX, 0};
    }
    static __device__ A load(const struct scan_plan &p, int64_t at, int64_t) {
        const double x = load_float(p, at);
        return x >= -DBL_MAX ? A{x, 1} : A{-DBL_MAX, x != x ? x : 0};
    }
    static __device__ A merge(const A &a, const A &b) {
        const double higher = a.level > b.level ? a.level : b.level;
        const double first = a.level == higher ? 1 : exp(a.level - higher);
        const double second = b.level == higher ? 1 : exp(b.level - higher);
        return {higher, a.sum * first + b.sum * second};
    }
    static __device__ void store(const struct scan_plan &p, int64_t at, const A &a) {
        store_float(p, at, a.level + log(a.sum));
    }
};

/* ---- places ---- */

struct scan_place {
    int64_t in, out;
};

__device__ inline int64_t scan_divide(int64_t a, int64_t b) {
    return ((uint64_t)(a | b) >> 32) == 0 ? (int64_t)((uint32_t)a / (uint32_t)b) : a / b;
}

/* Where a line begins, without the initial element. */
__device__ inline scan_place scan_line(const struct scan_plan &p, int64_t line) {
    scan_place place = {0, p.initial ? p.out_stride : 0};
    for (int i = p.rank - 1; i >= 0; i--) {
        const int64_t left = i > 0 ? scan_divide(line, p.shape[i]) : 0, index = line - left * p.shape[i];
        place.in += index * p.in_strides[i];
        place.out += index * p.out_strides[i];
        line = left;
    }
    return place;
}

/* ---- along ---- */

/* The accumulator of the lane that is `distance` before, or of the last lane. */
template <bool LAST, class A> __device__ inline A scan_shuffle(const A &a, int distance) {
    uint32_t words[sizeof(A) / 4];
    A result;
    static_assert(sizeof(A) % 4 == 0, "an accumulator is made of words");
    memcpy(words, &a, sizeof a);
#pragma unroll
    for (unsigned i = 0; i < sizeof(A) / 4; i++) {
        words[i] = LAST ? __shfl_sync(0xffffffffu, words[i], 31, 32)
                        : __shfl_up_sync(0xffffffffu, words[i], (unsigned)distance, 32);
    }
    memcpy(&result, words, sizeof result);
    return result;
}

/* Of a tile, whose elements are the accumulators of all threads, in the order of a warp's rounds: makes each that of all up to and with it,
 * from `carry` on, which becomes that of the whole tile. All threads of the block call this. */
template <class Op>
__device__ inline void scan_tile(typename Op::A (&a)[SCAN_ROUNDS], typename Op::A &carry, typename Op::A *shared) {
    typedef typename Op::A A;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    A before = Op::neutral(); /* of the warp's earlier rounds */
#pragma unroll
    for (int r = 0; r < SCAN_ROUNDS; r++) {
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) {
            const A earlier = scan_shuffle<false>(a[r], distance);
            if (lane >= distance) {
                a[r] = Op::merge(earlier, a[r]);
            }
        }
        a[r] = Op::merge(before, a[r]);
        before = scan_shuffle<true>(a[r], 0);
    }
    if (lane == 0) {
        shared[warp] = before;
    }
    __syncthreads();
    A prefix = carry;
    for (int w = 0; w < SCAN_WARPS; w++) {
        if (w == warp) {
            prefix = carry;
        }
        carry = Op::merge(carry, shared[w]);
    }
#pragma unroll
    for (int r = 0; r < SCAN_ROUNDS; r++) {
        a[r] = Op::merge(prefix, a[r]);
    }
    __syncthreads(); /* the next tile writes to `shared` */
}

template <class Op>
__global__ void __launch_bounds__(SCAN_THREADS) scan_along(const __grid_constant__ struct scan_plan p) {
    typedef typename Op::A A;
    __shared__ A shared[SCAN_WARPS];
    const int64_t first = (int64_t)(threadIdx.x / 32) * 32 * SCAN_ROUNDS + threadIdx.x % 32; /* in a tile */
    for (int64_t unit = blockIdx.x; unit < p.lines * p.chunks; unit += gridDim.x) {
        const int64_t line = scan_divide(unit, p.chunks), begin = (unit - line * p.chunks) * p.chunk;
        const int64_t end = p.n - begin < p.chunk ? p.n : begin + p.chunk;
        const scan_place place = scan_line(p, line);
        A carry = p.phase == SCAN_FINAL ? ((const A *)p.totals)[unit] : Op::neutral();
        if (p.initial && begin == 0 && p.phase != SCAN_TOTALS && threadIdx.x == 0) {
            Op::store(p, place.out - p.out_stride, Op::neutral());
        }
#pragma unroll 1
        for (int64_t tile = begin; tile < end; tile += SCAN_TILE) {
            A a[SCAN_ROUNDS];
#pragma unroll
            for (int r = 0; r < SCAN_ROUNDS; r++) {
                const int64_t i = tile + first + r * 32;
                a[r] = i < end ? Op::load(p, place.in + i * p.in_stride, i) : Op::neutral();
            }
            scan_tile<Op>(a, carry, shared);
#pragma unroll
            for (int r = 0; r < SCAN_ROUNDS; r++) {
                const int64_t i = tile + first + r * 32;
                if (i < end && p.phase != SCAN_TOTALS) {
                    Op::store(p, place.out + i * p.out_stride, a[r]);
                }
            }
        }
        if (p.phase == SCAN_TOTALS && threadIdx.x == 0) {
            ((A *)p.totals)[unit] = carry;
        }
    }
}

/* Totals of a line's chunks become those of all chunks before. */
template <class Op>
__global__ void __launch_bounds__(SCAN_THREADS) scan_prefixes(const __grid_constant__ struct scan_plan p) {
    typedef typename Op::A A;
    __shared__ A shared[SCAN_WARPS];
    const int64_t first = (int64_t)(threadIdx.x / 32) * 32 * SCAN_ROUNDS + threadIdx.x % 32;
    for (int64_t line = blockIdx.x; line < p.lines; line += gridDim.x) {
        A a[SCAN_ROUNDS], carry = Op::neutral(), *totals = (A *)p.totals + line * p.chunks;
#pragma unroll
        for (int r = 0; r < SCAN_ROUNDS; r++) {
            a[r] = first + r * 32 < p.chunks ? totals[first + r * 32] : Op::neutral();
        }
        scan_tile<Op>(a, carry, shared);
#pragma unroll
        for (int r = 0; r < SCAN_ROUNDS; r++) {
            const int64_t i = first + r * 32 + 1;
            if (i < p.chunks) {
                totals[i] = a[r];
            }
        }
        if (threadIdx.x == 0) {
            totals[0] = Op::neutral();
        }
    }
}

/* ---- down ---- */

template <class Op>
__global__ void __launch_bounds__(SCAN_THREADS) scan_down(const __grid_constant__ struct scan_plan p) {
    typedef typename Op::A A;
    const int64_t step = (int64_t)gridDim.x * SCAN_THREADS;
    for (int64_t unit = (int64_t)blockIdx.x * SCAN_THREADS + threadIdx.x; unit < p.lines * p.chunks; unit += step) {
        const int64_t chunk = scan_divide(unit, p.lines), line = unit - chunk * p.lines, begin = chunk * p.chunk;
        const int64_t end = p.n - begin < p.chunk ? p.n : begin + p.chunk;
        const scan_place place = scan_line(p, line);
        A *total = (A *)p.totals + line * p.chunks + chunk;
        A a = p.phase == SCAN_FINAL ? *total : Op::neutral();
        if (p.initial && begin == 0 && p.phase != SCAN_TOTALS) {
            Op::store(p, place.out - p.out_stride, a);
        }
#pragma unroll 4
        for (int64_t i = begin; i < end; i++) {
            a = Op::merge(a, Op::load(p, place.in + i * p.in_stride, i));
            if (p.phase != SCAN_TOTALS) {
                Op::store(p, place.out + i * p.out_stride, a);
            }
        }
        if (p.phase == SCAN_TOTALS) {
            *total = a;
        }
    }
}

/* ---- the table ---- */

typedef void scan_function(const struct scan_plan plan);

struct scan_kernels {
    int accumulator; /* bytes */
    scan_function *along, *down, *prefixes;
};

#define SCAN_KERNELS(Op)                                                                                               \
    { (int)sizeof(Op::A), scan_along<Op>, scan_down<Op>, scan_prefixes<Op> }

const struct scan_kernels sums_of_integers = SCAN_KERNELS(sum_integer), sums_of_floats = SCAN_KERNELS(sum_float);
const struct scan_kernels products_of_integers = SCAN_KERNELS(product_integer);
const struct scan_kernels products_of_floats = SCAN_KERNELS(product_float);
const struct scan_kernels products_of_complex = SCAN_KERNELS(product_complex);
const struct scan_kernels extremes_of_integers = SCAN_KERNELS(extreme_integer);
const struct scan_kernels extremes_of_floats = SCAN_KERNELS(extreme_float);
const struct scan_kernels exponentials = SCAN_KERNELS(logsumexp);

} // namespace

static const struct scan_kernels *scan_kernels_of(unsigned opcode, enum dtype computed) {
    bool floats = dtype_kind(computed) == DTYPE_KIND_FLOAT;
    switch (opcode) {
    case OP_CUMULATIVE_SUM:
        return floats ? &sums_of_floats : &sums_of_integers;
    case OP_CUMULATIVE_PROD:
        return dtype_is_complex(computed) ? &products_of_complex
               : floats                   ? &products_of_floats
                                          : &products_of_integers;
    case OP_LOGCUMSUMEXP:
        return &exponentials;
    default:
        return floats ? &extremes_of_floats : &extremes_of_integers;
    }
}

static bool scan_walk(cuda_kernel_seen *seen, void *context) {
    const struct scan_kernels *const all[] = {
        &sums_of_integers,     &sums_of_floats,     &products_of_integers, &products_of_floats, &products_of_complex,
        &extremes_of_integers, &extremes_of_floats, &exponentials,
    };
    for (const struct scan_kernels *kernels : all) {
        if (!seen(context, false, (const void *)kernels->along) || !seen(context, false, (const void *)kernels->down) ||
            !seen(context, false, (const void *)kernels->prefixes)) {
            return false;
        }
    }
    return true;
}

/* ---- the plan ---- */

static int64_t magnitude(int64_t stride) {
    return stride < 0 ? -stride : stride;
}

static int64_t ceiling(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Cuts lines into chunks of at least `least` elements, a multiple of `unit`, so that there are as many as the device wants. `at_once` is how
 * many a block takes. */
static void plan_chunks(struct scan_plan *plan, const struct cuda *cuda, int64_t at_once, int64_t unit, int64_t least) {
    int64_t wanted = (int64_t)cuda->processors * SCAN_BLOCKS_BUSY * at_once;
    plan->chunk = plan->n;
    plan->chunks = 1;
    if (plan->lines >= wanted || plan->n < 2 * least) {
        return;
    }
    int64_t chunks = ceiling(wanted, plan->lines), most = plan->n / least;
    chunks = chunks < most ? chunks : most;
    chunks = chunks < (int64_t)SCAN_CHUNKS_MAX ? chunks : (int64_t)SCAN_CHUNKS_MAX;
    plan->chunk = ceiling(ceiling(plan->n, chunks), unit) * unit;
    plan->chunks = ceiling(plan->n, plan->chunk);
}

static void plan_init(struct scan_plan *plan, const struct cuda *cuda, const struct launch *launch) {
    const struct operand *x = &launch->inputs[0], *out = &launch->output;
    int last = x->rank - 1;
    memset(plan, 0, sizeof *plan);
    plan->in = x->data;
    plan->out = out->data;
    plan->positions = launch->further ? (int64_t *)launch_further(launch, 1)->data : NULL;
    plan->in_dtype = x->dtype;
    plan->out_dtype = out->dtype;
    plan->n = x->shape[last];
    plan->in_stride = x->strides[last];
    plan->out_stride = out->strides[last];
    plan->initial = out->shape[last] > x->shape[last];
    plan->lowest = launch->opcode == OP_CUMMIN;
    plan->flip = x->dtype == DTYPE_U64 ? INT64_MIN : 0;
    plan->rank = last;
    plan->lines = 1;
    for (int i = 0; i < last; i++) {
        plan->shape[i] = x->shape[i];
        plan->in_strides[i] = x->strides[i];
        plan->out_strides[i] = out->strides[i];
        plan->lines *= x->shape[i];
    }
    plan->down = magnitude(out->strides[last - 1]) < magnitude(plan->out_stride) || plan->n <= SCAN_SHORT;
    if (plan->down) {
        plan_chunks(plan, cuda, SCAN_THREADS, 1, SCAN_CHUNK_DOWN);
    } else {
        plan_chunks(plan, cuda, 1, SCAN_TILE, SCAN_TILE);
    }
    int64_t blocks = plan->down ? ceiling(plan->lines * plan->chunks, SCAN_THREADS) : plan->lines * plan->chunks;
    plan->grid = space_blocks(cuda, blocks);
    plan->prefix_grid = space_blocks(cuda, plan->lines);
}

static uint64_t scan_workspace(struct device *device, const struct launch *launch) {
    struct scan_plan plan;
    plan_init(&plan, cuda_of(device), launch);
    const struct scan_kernels *kernels = scan_kernels_of(launch->opcode, (enum dtype)launch->inputs[0].as);
    return plan.chunks > 1 ? (uint64_t)plan.lines * (uint64_t)plan.chunks * (uint64_t)kernels->accumulator : 0;
}

static int scan_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch, struct fault *fault) {
    const struct scan_kernels *kernels = scan_kernels_of(launch->opcode, (enum dtype)launch->inputs[0].as);
    struct scan_plan plan;
    plan_init(&plan, cuda, launch);
    plan.totals = launch->workspace;
    const void *kernel = (const void *)(plan.down ? kernels->down : kernels->along);
    if (plan.chunks > 1) {
        plan.phase = SCAN_TOTALS;
        int code = space_start(kernel, plan.grid, &plan, fault, stream->stream);
        if (code == STATUS_OK) {
            code = space_start((const void *)kernels->prefixes, plan.prefix_grid, &plan, fault, stream->stream);
        }
        if (code != STATUS_OK) {
            return code;
        }
        plan.phase = SCAN_FINAL;
    }
    return space_start(kernel, plan.grid, &plan, fault, stream->stream);
}

/* Integers are converted as they are loaded. */
static bool scan_converts(const struct device *device, unsigned opcode, enum dtype from, enum dtype to) {
    (void)device, (void)opcode;
    return dtype_kind(from) != DTYPE_KIND_FLOAT && (to == DTYPE_I64 || to == DTYPE_U64);
}

static bool scan_has(unsigned opcode, enum dtype dtype) {
    bool floating = dtype_kind(dtype) == DTYPE_KIND_FLOAT && !dtype_is_f8(dtype);
    switch (opcode) {
    case OP_CUMULATIVE_SUM:
        return floating || dtype == DTYPE_I64 || dtype == DTYPE_U64;
    case OP_CUMULATIVE_PROD:
        return floating || dtype == DTYPE_I64 || dtype == DTYPE_U64 || dtype_is_complex(dtype);
    case OP_LOGCUMSUMEXP:
        return floating;
    default:
        return floating || dtype_kind(dtype) < DTYPE_KIND_FLOAT;
    }
}

CUDA_KERNELS_FOUND(scan_found, scan_has)

#define SCAN                                                                                                           \
    { {.dtypes = scan_found, .converts = scan_converts, .workspace = scan_workspace}, scan_run, scan_walk }
const struct cuda_kernel cuda_kernel_cumulative_sum = SCAN;
const struct cuda_kernel cuda_kernel_cumulative_prod = SCAN;
const struct cuda_kernel cuda_kernel_cummax = SCAN;
const struct cuda_kernel cuda_kernel_cummin = SCAN;
const struct cuda_kernel cuda_kernel_logcumsumexp = SCAN;
