/* Reductions of one contiguous run of elements to one output, by CUB's DeviceReduce, which is made for that. Other reductions go by
 * reduce.cuh: CUB could not read strided elements without a copy, would give each of several outputs only one block, and does not
 * pay for short runs.
 *
 * CUB gets accumulators, and merges them. An item of its input is the accumulator that take() makes of one load of 16 bytes: CUB itself
 * would load elements one by one, since they do not come from a plain pointer. So sums are as exact as those of reduce.cuh. The few
 * elements before and after the aligned loads are taken when the result is stored.
 *
 * DeviceReduce cuts the input by its length and the device alone and merges the blocks' accumulators with a second
 * kernel, in order: it promises equal results from run to run on one device ("run-to-run" determinism, in
 * <cub/device/device_reduce.cuh>). It allocates nothing: it tells how much memory it needs. */
#pragma once

#include <atomic>
#include <cub/device/device_reduce.cuh>
#include <iterator>

#include "engine/cuda/reduce.cuh"

/* CUB's input: the loads. */
template <class Op> struct whole_items {
    typedef typename Op::A value_type;
    typedef value_type reference;
    typedef const value_type *pointer;
    typedef int64_t difference_type;
    typedef std::random_access_iterator_tag iterator_category;

    typedef reduce_vector<typename Op::T> V;
    typedef typename V::type vector;

    Op op;
    const vector *loads;
    int64_t head; /* elements before the first load */
    int64_t at;   /* the load that this points to */

    __device__ value_type operator*() const {
        value_type a = op.neutral();
        const vector loaded = loads[at];
        op.take(a, loaded.x, head + at * V::n, 1);
        return a;
    }
    __host__ __device__ whole_items operator+(int64_t distance) const {
        return {op, loads, head, at + distance};
    }
    __device__ value_type operator[](int64_t distance) const {
        return *(*this + distance);
    }
};

template <class Op> struct whole_merge {
    typedef typename Op::A A;
    Op op;
    __device__ A operator()(const A &a, const A &b) const {
        A merged = a;
        op.merge(merged, b);
        return merged;
    }
};

/* CUB's output: CUB stores the accumulator of all loads, and this writes the result. */
template <class Op> struct whole_result {
    typedef void value_type;
    typedef void reference;
    typedef void pointer;
    typedef int64_t difference_type;
    typedef std::output_iterator_tag iterator_category;

    typedef typename Op::A A;
    typedef typename Op::T T;

    Op op;
    const T *x;
    int64_t head, tail, n; /* the loads are of the elements from `head` up to `tail` */
    typename Op::R *out;

    __device__ whole_result operator*() const {
        return *this;
    }
    __device__ A take(int64_t begin, int64_t end) const {
        A a = op.neutral();
#pragma unroll 1
        for (int64_t i = begin; i < end; i++) {
            const T one[1] = {x[i]};
            op.take(a, one, i, 1);
        }
        return a;
    }
    __device__ const whole_result &operator=(const A &loaded) const {
        A a = take(0, head);
        op.merge(a, loaded);
        op.merge(a, take(tail, n));
        *out = op.finish(a);
        return *this;
    }
};

/* CUB reports some errors by exceptions. If it throws one while it looks at the device for the first time, its next call would wait for
 * ever: so it is not called again. */
inline std::atomic<bool> whole_given_up{false};

/* CUB's protocol: called without memory, it only tells how many bytes it needs. */
template <class Op>
static cudaError_t reduce_whole(const reduce_plan *plan, void *memory, size_t *bytes, cudaStream_t stream) {
    typedef typename Op::T T;
    typedef reduce_vector<T> V;
    typedef typename V::type vector;
    const Op op(plan->numbers);
    const T *x = (const T *)plan->in;
    int64_t head = (int64_t)((0 - (uintptr_t)x) % sizeof(vector) / sizeof(T));
    int64_t loads = plan->run > head ? (plan->run - head) / V::n : 0;
    if (!loads || whole_given_up.load(std::memory_order_relaxed)) {
        return cudaErrorNotSupported;
    }
    const whole_items<Op> items = {op, (const vector *)(const void *)(x + head), head, 0};
    const whole_result<Op> result = {op, x, head, head + loads * V::n, plan->run, (typename Op::R *)plan->out};
    const whole_merge<Op> merge = {op};
    try {
        return cub::DeviceReduce::Reduce(memory, *bytes, items, result, loads, merge, op.neutral(), stream);
    } catch (...) { /* no caller handles exceptions */
        whole_given_up.store(true, std::memory_order_relaxed);
        return cudaErrorUnknown;
    }
}
