/* The greatest or least elements of rows, in order, and their positions: one block for each row.
 *
 * The key of the last element that belongs to the result is found digit by digit from the top, by counting (radix select). Then the
 * positions of all elements above it, and of the first ones equal to it, are written in the order of positions, and sorted there by
 * key. So the result does not depend on the order in which threads run. */
#include "engine/cuda/cuda.h"
#include "engine/cuda/space.h"

namespace {

struct topk_arguments {
    const char *x;
    char *values;
    int64_t *positions;
    int64_t rows, n, k, inner; /* x [outer, n, inner], results [outer, k, inner]; rows: outer · inner */
    uint64_t flip;             /* all ones for the least elements: turns the order of keys round */
};

/* An element's bits as an unsigned number that has the element's order: NaN above all, -0 as +0. */
template <typename B> struct topk_unsigned {
    typedef B bits;
    static __device__ __forceinline__ B key(B x) {
        return x;
    }
};
template <typename B> struct topk_signed {
    typedef B bits;
    static __device__ __forceinline__ B key(B x) {
        return (B)(x ^ (B)((B)1 << (8 * sizeof(B) - 1)));
    }
};
template <typename B, B infinity> struct topk_float {
    typedef B bits;
    static __device__ __forceinline__ B key(B x) {
        const B sign = (B)((B)1 << (8 * sizeof(B) - 1)), magnitude = (B)(x & (B)~sign);
        return magnitude > infinity ? (B) ~(B)0 : x == magnitude ? (B)(sign + magnitude) : (B)(sign - magnitude);
    }
};

struct topk_f16 : topk_float<uint16_t, 0x7c00> {};
struct topk_bf16 : topk_float<uint16_t, 0x7f80> {};
struct topk_f32 : topk_float<uint32_t, 0x7f800000u> {};
struct topk_f64 : topk_float<uint64_t, 0x7ff0000000000000ull> {};

enum { DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS };
static_assert((int)DIGITS == (int)SPACE_THREADS, "each thread of a block has one digit");

template <typename E> struct topk_row {
    typedef typename E::bits bits;
    const bits *x;
    bits *values;
    int64_t *positions;
    int64_t n, k, inner;
    bits flip;

    __device__ __forceinline__ bits key(int64_t at) const {
        return (bits)(E::key(x[at * inner]) ^ flip);
    }
    /* Of two elements, whether the first comes before the second. */
    __device__ __forceinline__ bool before(int64_t a, int64_t b) const {
        const bits a_key = key(a), b_key = key(b);
        return a_key > b_key || (a_key == b_key && a < b);
    }
};

/* The key of the element that comes last in the result; `equal`: how many of that key belong to it. */
template <typename E>
__device__ __forceinline__ typename E::bits topk_last_key(const struct topk_row<E> &row, int64_t *equal) {
    typedef typename E::bits bits;
    __shared__ unsigned long long counts[DIGITS];
    __shared__ unsigned long long left;
    __shared__ unsigned digit;
    bits known = 0, found = 0; /* the digits found so far, and all ones where they are */
    unsigned long long wanted = (unsigned long long)row.k;
#pragma unroll 1
    for (int shift = 8 * (int)sizeof(bits) - DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
        counts[threadIdx.x] = 0;
        __syncthreads();
        for (int64_t at = threadIdx.x; at < row.n; at += SPACE_THREADS) {
            const bits key = row.key(at);
            if ((bits)(key & found) == known) {
                atomicAdd(&counts[(unsigned)(key >> shift) & (DIGITS - 1)], 1ull);
            }
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            unsigned at = DIGITS - 1;
            left = wanted;
            for (; counts[at] < left; at--) {
                left -= counts[at];
            }
            digit = at;
        }
        __syncthreads();
        wanted = left;
        known = (bits)(known | (bits)((bits)digit << shift));
        found = (bits)(found | (bits)((bits)(DIGITS - 1) << shift));
    }
    *equal = (int64_t)wanted;
    __syncthreads();
    return known;
}

/* Positions of the elements that belong to the result, ascending. */
template <typename E>
__device__ __forceinline__ void topk_collect(const struct topk_row<E> &row, typename E::bits last, int64_t equal) {
    /* Up to and with each thread: elements above the last key in the low half, equal ones in the high half. */
    __shared__ unsigned sums[SPACE_THREADS];
    const unsigned me = threadIdx.x;
    int64_t filled = 0, room = equal; /* places filled, and equal elements still to come */
#pragma unroll 1
    for (int64_t begin = 0; begin < row.n; begin += SPACE_THREADS) {
        const int64_t at = begin + me;
        const typename E::bits key = at < row.n ? row.key(at) : 0;
        const unsigned above = at < row.n && key > last, same = at < row.n && key == last;
        if (!__syncthreads_or((int)(above | same))) {
            continue;
        }
        sums[me] = above | same << 16;
        for (unsigned distance = 1; distance < SPACE_THREADS; distance *= 2) {
            __syncthreads();
            const unsigned lower = me >= distance ? sums[me - distance] : 0;
            __syncthreads();
            sums[me] += lower;
        }
        __syncthreads();
        const int64_t above_before = (sums[me] & 0xffff) - above, same_before = (sums[me] >> 16) - same;
        if (above || (same && same_before < room)) {
            row.positions[(filled + above_before + (same_before < room ? same_before : room)) * row.inner] = at;
        }
        const int64_t all_above = sums[SPACE_THREADS - 1] & 0xffff, all_same = sums[SPACE_THREADS - 1] >> 16;
        const int64_t taken = all_same < room ? all_same : room;
        filled += all_above + taken;
        room -= taken;
        __syncthreads(); /* all threads have read the sums before these change */
    }
}

template <typename E>
__device__ __forceinline__ void topk_exchange(const struct topk_row<E> &row, int64_t a, int64_t b) {
    if (b < row.k) {
        const int64_t first = row.positions[a * row.inner], second = row.positions[b * row.inner];
        if (row.before(second, first)) {
            row.positions[a * row.inner] = second;
            row.positions[b * row.inner] = first;
        }
    }
}

/* A bitonic sort in which all comparisons go one way. So k need not be a power of two: it is as if the places from k on had the elements that
 * come last. */
template <typename E> __device__ __forceinline__ void topk_sort(const struct topk_row<E> &row) {
#pragma unroll 1
    for (int width = 0; (int64_t)1 << width < row.k;
         width++) { /* sorted runs of 2^width become runs of twice as many */
        const int64_t half = (int64_t)1 << width, pairs = (((row.k - 1) >> (width + 1)) + 1) << width;
        __syncthreads();
#pragma unroll 1
        for (int64_t i = threadIdx.x; i < pairs; i += SPACE_THREADS) {
            const int64_t run = i >> width << (width + 1), at = i & (half - 1);
            topk_exchange(row, run + at, run + 2 * half - 1 - at);
        }
#pragma unroll 1
        for (int step = width - 1; step >= 0; step--) {
            __syncthreads();
#pragma unroll 1
            for (int64_t i = threadIdx.x; i < pairs; i += SPACE_THREADS) {
                const int64_t distance = (int64_t)1 << step, at = (i >> step << (step + 1)) + (i & (distance - 1));
                topk_exchange(row, at, at + distance);
            }
        }
    }
    __syncthreads();
}

template <typename E>
__global__ void __launch_bounds__(SPACE_THREADS) topk_kernel(const __grid_constant__ struct topk_arguments p) {
    typedef typename E::bits bits;
    for (int64_t number = blockIdx.x; number < p.rows; number += gridDim.x) {
        const int64_t outer = number / p.inner, inner = number - outer * p.inner;
        struct topk_row<E> row;
        row.x = (const bits *)p.x + outer * p.n * p.inner + inner;
        row.values = (bits *)p.values + outer * p.k * p.inner + inner;
        row.positions = p.positions + outer * p.k * p.inner + inner;
        row.n = p.n;
        row.k = p.k;
        row.inner = p.inner;
        row.flip = (bits)p.flip;
        int64_t equal;
        const bits last = topk_last_key(row, &equal);
        topk_collect(row, last, equal);
        topk_sort(row);
#pragma unroll 1
        for (int64_t i = threadIdx.x; i < row.k; i += SPACE_THREADS) {
            row.values[i * row.inner] = row.x[row.positions[i * row.inner] * row.inner];
        }
    }
}

} // namespace

/* ---- the launcher ---- */

typedef void topk_function(const struct topk_arguments arguments);

struct topk_entry {
    enum dtype dtype;
    topk_function *kernel;
};

static const struct topk_entry topk_entries[] = {
    {DTYPE_U8, topk_kernel<topk_unsigned<uint8_t>>},
    {DTYPE_I8, topk_kernel<topk_signed<uint8_t>>},
    {DTYPE_I16, topk_kernel<topk_signed<uint16_t>>},
    {DTYPE_I32, topk_kernel<topk_signed<uint32_t>>},
    {DTYPE_I64, topk_kernel<topk_signed<uint64_t>>},
    {DTYPE_U16, topk_kernel<topk_unsigned<uint16_t>>},
    {DTYPE_U32, topk_kernel<topk_unsigned<uint32_t>>},
    {DTYPE_U64, topk_kernel<topk_unsigned<uint64_t>>},
    {DTYPE_F16, topk_kernel<topk_f16>},
    {DTYPE_BF16, topk_kernel<topk_bf16>},
    {DTYPE_F32, topk_kernel<topk_f32>},
    {DTYPE_F64, topk_kernel<topk_f64>},
};

static bool topk_walk(cuda_kernel_seen *seen, void *context) {
    bool more = true;
    for (const struct topk_entry &entry : topk_entries) {
        more = more && seen(context, false, (const void *)entry.kernel);
    }
    return more;
}

static int topk_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch, struct fault *fault) {
    const struct operand *x = &launch->inputs[0], *values = &launch->output;
    struct topk_attributes attributes;
    struct topk_arguments arguments = {};
    topk_attributes_read(&launch->attributes, &attributes);
    arguments.x = (const char *)x->data;
    arguments.values = (char *)values->data;
    arguments.positions = (int64_t *)launch_further(launch, 1)->data;
    arguments.rows = x->shape[0] * x->shape[2];
    arguments.n = x->shape[1];
    arguments.k = values->shape[1];
    arguments.inner = x->shape[2];
    arguments.flip = attributes.largest ? 0 : ~UINT64_C(0);
    for (const struct topk_entry &entry : topk_entries) {
        if (entry.dtype == (enum dtype)x->dtype) {
            return space_start((const void *)entry.kernel, space_blocks(cuda, arguments.rows), &arguments, fault,
                               stream->stream);
        }
    }
    return fault_set(fault, STATUS_INTERNAL, "topk of %s has no kernel", dtype_name((enum dtype)x->dtype));
}

const struct cuda_kernel cuda_kernel_topk = {.driver = topk_run, .walk = topk_walk};
