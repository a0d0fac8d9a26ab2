/* CUB's reduction on the host, in place of CUDA's header of this name: it follows the same protocol, and takes the items in
 * an order of its own, so that who calls it must do without one. */
#pragma once

#include <type_traits>

namespace cub {

struct DeviceReduce {
    enum { BLOCKS = 7, SLACK = 255 /* CUB aligns what it is given */ };

    /* Without memory: how many bytes it needs. In shares one of which may be empty, the last share first, each from its
     * end; their results are merged from the middle. */
    template <class In, class Out, class Count, class Merge, class Init>
    static cudaError_t Reduce(void *memory, size_t &bytes, In in, Out out, Count n, Merge merge, Init init,
                              cudaStream_t stream) {
        typedef typename std::decay<decltype(merge(init, in[0]))>::type A;
        const size_t needed = (BLOCKS + 1) * sizeof(A) + SLACK;
        if (!memory) {
            bytes = needed;
            return cudaSuccess;
        }
        if (bytes < needed || n < 1)
            return cudaErrorInvalidValue;
        emulated_work(stream, [=] { work(memory, in, out, n, merge, init); });
        return cudaSuccess;
    }

    template <class In, class Out, class Count, class Merge, class Init>
    static void work(void *memory, In in, Out out, Count n, Merge merge, Init init) {
        typedef typename std::decay<decltype(merge(init, in[0]))>::type A;
        A *shares = (A *)(((uintptr_t)memory + SLACK) & ~(uintptr_t)SLACK);
        const Count share = n / BLOCKS + 1;
        for (int b = BLOCKS - 1; b >= 0; b--) {
            const Count begin = b * share, end = n < begin + share ? n : begin + share;
            const In items = in + begin;
            shares[b] = init;
            for (Count i = end - begin - 1; i >= 0; i--)
                shares[b] = merge(items[i], shares[b]);
        }
        A result = shares[BLOCKS / 2];
        for (int b = 1; b < BLOCKS; b++)
            result = merge(result, shares[(BLOCKS / 2 + b) % BLOCKS]);
        *out = merge(init, result);
    }
};

}
