/* The table of one vector level's kernels. */
#include "engine/cpu/lanes.h"
#include "engine/cpu/move.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define LEVEL "avx512"
#elif defined(__AVX2__)
#define LEVEL "avx2"
#elif defined(__SSE4_2__)
#define LEVEL "sse4.2"
#elif defined(__aarch64__)
#define LEVEL "neon"
#else
#define LEVEL "generic"
#endif

void CPU_NAME(stream)(void *to, const void *from, size_t bytes) {
#if defined(__AVX512F__)
    for (size_t i = 0; i < bytes; i += 64) {
        _mm512_stream_si512((__m512i *)(void *)((char *)to + i), _mm512_loadu_si512((const char *)from + i));
    }
#elif defined(__AVX__)
    for (size_t i = 0; i < bytes; i += 32) {
        _mm256_stream_si256((__m256i *)(void *)((char *)to + i),
                            _mm256_loadu_si256((const __m256i *)(const void *)((const char *)from + i)));
    }
#elif defined(__SSE2__)
    for (size_t i = 0; i < bytes; i += 16) {
        _mm_stream_si128((__m128i *)(void *)((char *)to + i),
                         _mm_loadu_si128((const __m128i *)(const void *)((const char *)from + i)));
    }
#else
    memcpy(to, from, bytes);
#endif
}

static void move(void *to, const void *from, size_t bytes) {
    cpu_move(to, from, bytes);
}

/* Streaming stores are weakly ordered: this comes before the result is given to another thread. */
void CPU_NAME(stream_end)(void) {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

extern const struct cpu_kernels CPU_NAME(kernels);
const struct cpu_kernels CPU_NAME(kernels) = {
    .level = LEVEL,
    .elementwise = CPU_NAME(elementwise),
    .cast = CPU_NAME(cast),
    .reductions = CPU_NAME(reductions),
    .scans = CPU_NAME(scans),
    .linear = CPU_NAME(linear),
    .softmax = CPU_NAME(softmax),
    .random = CPU_NAME(random),
    .pooling = CPU_NAME(pooling),
    .normalisation = CPU_NAME(normalisation),
    .optimiser = CPU_NAME(optimiser),
    .rotate_f32 = CPU_NAME(rotate_f32),
    .rotate_f64 = CPU_NAME(rotate_f64),
    .attention = CPU_NAME(attention),
    .recurrent = CPU_NAME(recurrent),
    .loss = CPU_NAME(loss),
    .fft_f32 = &CPU_NAME(fft_f32),
    .fft_f64 = &CPU_NAME(fft_f64),
    .sort = CPU_NAME(sort),
    .argsort = CPU_NAME(argsort),
    .find = CPU_NAME(find),
    .select = &CPU_NAME(select),
    .search = CPU_NAME(search),
    .product_u32 = CPU_NAME(product_u32),
    .product_u64 = CPU_NAME(product_u64),
    .product_bool = CPU_NAME(product_bool),
    .gather = CPU_NAME(gather),
    .cross = CPU_NAME(cross),
    .turn = CPU_NAME(turn),
    .reflect = CPU_NAME(reflect),
    .triangle = CPU_NAME(triangle),
    .chain = CPU_NAME(chain),
    .chain_tile = &CPU_NAME(chain_tile),
    .creation = &CPU_NAME(creation),
    .symmetric = &CPU_NAME(symmetric),
    .move = move,
    .stream = CPU_NAME(stream),
    .stream_end = CPU_NAME(stream_end),
};
